//! Serves a file over a Unix socket, which is recreated:
//!
//!     truncate -s 1G disk.img
//!     cargo run --release -p nbd --example file -- disk.img disk.sock
//!     nbdinfo 'nbd+unix:///?socket=disk.sock'
//!
//! A file may block its reader, so each request runs on tokio's blocking threads, concurrently with the others.

use bytes::Bytes;
use nbd::{Error, Export, Info, Single, Tls};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::Arc;

struct Disk {
    file: Arc<File>,
    info: Info,
}

impl Disk {
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&File) -> std::io::Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        let file = self.file.clone();
        Ok(tokio::task::spawn_blocking(move || work(&file)).await.map_err(|_| Error::Io)??)
    }
}

impl Export for Disk {
    fn info(&self) -> &Info {
        &self.info
    }

    async fn read(&self, offset: u64, length: u32) -> Result<Bytes, Error> {
        self.run(move |file| {
            let mut data = vec![0; length as usize];
            file.read_exact_at(&mut data, offset)?;
            Ok(data.into())
        })
        .await
    }

    async fn write(&self, offset: u64, data: Bytes, durable: bool) -> Result<(), Error> {
        self.run(move |file| {
            file.write_all_at(&data, offset)?;
            if durable { file.sync_data() } else { Ok(()) }
        })
        .await
    }

    async fn flush(&self) -> Result<(), Error> {
        self.run(File::sync_data).await
    }

    async fn trim(&self, _offset: u64, _length: u32, _durable: bool) -> Result<(), Error> {
        // A hint that may be ignored.
        Ok(())
    }

    async fn write_zeroes(
        &self,
        offset: u64,
        length: u32,
        durable: bool,
        _hole: bool,
        fast: bool,
    ) -> Result<(), Error> {
        if fast {
            return Err(Error::Unsupported);
        }
        self.run(move |file| {
            for at in (0..u64::from(length)).step_by(1 << 20) {
                let count = (u64::from(length) - at).min(1 << 20) as usize;
                file.write_all_at(&vec![0; count], offset + at)?;
            }
            if durable { file.sync_data() } else { Ok(()) }
        })
        .await
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let (Some(path), Some(socket)) = (words.next(), words.next()) else {
        return Err("give a file and a socket".into());
    };
    let file = File::options().read(true).write(true).open(&path)?;
    let info = Info { description: path.clone(), trim: false, ..Info::disk(file.metadata()?.len()) };
    let exports = Rc::new(Single { name: path, export: Disk { file: Arc::new(file), info } });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, async move {
        if std::fs::exists(&socket)? {
            std::fs::remove_file(&socket)?;
        }
        let listener = tokio::net::UnixListener::bind(&socket)?;
        loop {
            let (stream, _) = listener.accept().await?;
            let exports = exports.clone();
            tokio::task::spawn_local(async move { nbd::serve(stream, &*exports, &Tls::Off).await });
        }
    })
}
