//! The client that measures NBD servers, with a correct server, and some faulty ones.

use bytes::{Bytes, BytesMut};
use nbd::memory::Memory;
use nbd::{Error, Export, Info, Single, Tls};
use pool::nbd_bench::{Load, ServerAddress, Uri, run};
use std::rc::Rc;
use std::time::Duration;

const DISK_BYTES: u64 = (8 << 20) + 512;

/// Memory whose reads are modified.
struct ChangedMemory {
    memory: Memory,
    change: fn(u64, &mut BytesMut) -> Result<(), Error>,
}

impl Export for ChangedMemory {
    fn info(&self) -> &Info {
        self.memory.info()
    }
    async fn read(&self, offset: u64, length: u32) -> Result<Bytes, Error> {
        let mut data = BytesMut::from(&self.memory.read(offset, length).await?[..]);
        (self.change)(offset, &mut data)?;
        Ok(data.freeze())
    }
    async fn write(&self, offset: u64, data: Bytes, durable: bool) -> Result<(), Error> {
        self.memory.write(offset, data, durable).await
    }
    async fn flush(&self) -> Result<(), Error> {
        Ok(())
    }
    async fn trim(&self, _: u64, _: u32, _: bool) -> Result<(), Error> {
        Ok(())
    }
    async fn write_zeroes(&self, _: u64, _: u32, _: bool, _: bool, _: bool) -> Result<(), Error> {
        Err(Error::Unsupported)
    }
}

/// A server in a separate thread, until the process ends.
fn serve_changed(change: fn(u64, &mut BytesMut) -> Result<(), Error>) -> (tempfile::TempDir, Uri) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("nbd");
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    listener.set_nonblocking(true).expect("a socket");
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let listener = tokio::net::UnixListener::from_std(listener).expect("a socket");
            let export = ChangedMemory { memory: Memory::new(DISK_BYTES), change };
            let exports = Rc::new(Single { name: "disk".into(), export });
            while let Ok((stream, _)) = listener.accept().await {
                let exports = exports.clone();
                tokio::task::spawn_local(async move { nbd::serve(stream, &*exports, &Tls::Off).await });
            }
        });
    });
    let place = Uri { export: "disk".into(), server: ServerAddress::Unix(path) };
    (directory, place)
}

fn load() -> Load {
    Load {
        block_bytes: 4096,
        depth: 64,
        batch: 1,
        duration: Duration::from_millis(200),
        write: false,
        fill: true,
        compare: true,
        seed: 7,
        server: Some(std::process::id()),
    }
}

#[test]
fn writes_are_read_back_and_counted() {
    let (_directory, place) = serve_changed(|_, _| Ok(()));
    for (depth, batch) in [(64, 1), (64, 32), (1, 1)] {
        let figures = run(&place, &Load { depth, batch, ..load() }).expect("the server does as it should");
        assert_eq!(figures.failed, 0);
        assert!(figures.compared as f64 >= 0.1 * figures.ops_per_s && figures.ops_per_s > 0.0, "{figures:?}");
        assert!(figures.latency_ns.p50 > 0.0 && figures.latency_ns.p50 <= figures.latency_ns.p99);
        assert!(figures.requests_per_write >= f64::from(batch) && figures.requests_per_write <= f64::from(depth));
        // Both ends are threads of this process.
        assert!(figures.server_ns.is_some_and(|server| server > 0.0) && figures.client_ns > 0.0);
    }
    let written = run(&place, &Load { write: true, fill: false, ..load() }).expect("the server does as it should");
    assert_eq!((written.failed, written.compared), (0, 0));
}

#[test]
fn error_of_a_wrong_byte_names_its_offset() {
    let (_directory, place) = serve_changed(|offset, data| {
        if offset == 4096 * 100 {
            data[4095] ^= 1;
        }
        Ok(())
    });
    // Two thousand blocks: the wrong one is read eventually.
    let why =
        run(&place, &Load { duration: Duration::from_secs(60), ..load() }).expect_err("a byte differs").to_string();
    assert!(why.contains("wrong data at 409600"), "{why}");
}

#[test]
fn refused_requests_are_counted_separately() {
    let (_directory, place) = serve_changed(|offset, _| if offset < DISK_BYTES / 2 { Err(Error::Io) } else { Ok(()) });
    let figures = run(&place, &load()).expect("half is answered");
    assert!(figures.failed > 0 && figures.compared > 0, "{figures:?}");
}

#[test]
fn missing_server_and_unknown_export_are_named() {
    let (directory, place) = serve_changed(|_, _| Ok(()));
    let why = run(&Uri { export: "other".into(), ..place.clone() }, &load()).expect_err("no export").to_string();
    assert!(why.contains("refused the export \"other\"") && why.contains("no export of that name"), "{why}");
    let nowhere = Uri { server: ServerAddress::Unix(directory.path().join("none")), ..place.clone() };
    let why = run(&nowhere, &load()).expect_err("no server listens").to_string();
    assert!(why.contains("none") && why.contains("No such file"), "{why}");
    let why = run(&place, &Load { block_bytes: 16 << 20, ..load() }).expect_err("too large").to_string();
    assert!(why.contains("larger than the disk"), "{why}");
    let why = run(&place, &Load { depth: 1 << 17, ..load() }).expect_err("too many").to_string();
    assert!(why.contains("65536"), "{why}");
}
