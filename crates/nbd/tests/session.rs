//! A whole session, byte by byte, with a store whose replies are delayed by the test.

use bytes::{BufMut, Bytes};
use nbd::memory::Memory;
use nbd::{Error, Export, Failure, Info, Single, Tls, Violation, wire};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::oneshot;

/// Reads wait until the test releases them; everything else uses memory.
struct HeldReads {
    memory: Memory,
    waiting: RefCell<BTreeMap<u64, oneshot::Sender<()>>>,
}

impl HeldReads {
    fn new(size_bytes: u64) -> Self {
        Self { memory: Memory::new(size_bytes), waiting: RefCell::default() }
    }
}

impl Export for HeldReads {
    fn info(&self) -> &Info {
        self.memory.info()
    }
    fn read(&self, offset: u64, length: u32) -> impl Future<Output = Result<Bytes, Error>> {
        let (go, wait) = oneshot::channel();
        self.waiting.borrow_mut().insert(offset, go);
        async move {
            wait.await.map_err(|_| Error::Shutdown)?;
            self.memory.read(offset, length).await
        }
    }
    fn write(&self, offset: u64, data: Bytes, durable: bool) -> impl Future<Output = Result<(), Error>> {
        self.memory.write(offset, data, durable)
    }
    fn flush(&self) -> impl Future<Output = Result<(), Error>> {
        self.memory.flush()
    }
    fn trim(&self, offset: u64, length: u32, durable: bool) -> impl Future<Output = Result<(), Error>> {
        self.memory.trim(offset, length, durable)
    }
    async fn write_zeroes(&self, o: u64, l: u32, d: bool, a: bool, f: bool) -> Result<(), Error> {
        self.memory.write_zeroes(o, l, d, a, f).await
    }
}

/// The client's end.
struct Client(DuplexStream);

impl Client {
    /// Handshake with EXPORT_NAME: simple replies.
    async fn begin(mut self) -> Self {
        let mut bytes = Vec::new();
        bytes.put_u32(3);
        bytes.put_u64(wire::OPTION_MAGIC);
        bytes.put_u32(wire::option::EXPORT_NAME);
        bytes.put_u32(0);
        self.0.write_all(&bytes).await.expect("the server reads");
        let mut greeting = [0; 18 + 10];
        self.0.read_exact(&mut greeting).await.expect("greeting, size and flags");
        self
    }

    async fn ask(&mut self, command: u16, flags: u16, cookie: u64, offset: u64, length: u32, payload: &[u8]) {
        let mut bytes = Vec::new();
        bytes.put_u32(wire::REQUEST_MAGIC);
        bytes.put_u16(flags);
        bytes.put_u16(command);
        bytes.put_u64(cookie);
        bytes.put_u64(offset);
        bytes.put_u32(length);
        bytes.put_slice(payload);
        self.0.write_all(&bytes).await.expect("the server reads");
    }

    /// Reads the next reply: cookie and error.
    async fn reply(&mut self) -> (u64, u32) {
        assert_eq!(self.0.read_u32().await.expect("a reply"), wire::SIMPLE_REPLY_MAGIC);
        let error = self.0.read_u32().await.expect("an error number");
        (self.0.read_u64().await.expect("a cookie"), error)
    }

    async fn data(&mut self, length: usize) -> Vec<u8> {
        let mut data = vec![0; length];
        self.0.read_exact(&mut data).await.expect("data");
        data
    }
}

/// Serves `export` to `client` until either ends; also returns how the server ended.
fn run_session<E: Export, T>(
    export: &Single<E>,
    client: impl AsyncFnOnce(Client, &E) -> T,
) -> (Result<(), Failure>, T) {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let talk = async { client(Client(theirs).begin().await, &export.export).await };
        tokio::join!(nbd::serve(ours, export, &Tls::Off), talk)
    })
}

fn single_export<E>(export: E) -> Single<E> {
    Single { name: String::new(), export }
}

use wire::command::{DISCONNECT, READ, WRITE};

#[test]
fn answers_are_sent_in_completion_order() {
    let (end, ()) = run_session(&single_export(HeldReads::new(1 << 20)), async |mut client, held| {
        client.ask(WRITE, 0, 1, 512, 4, b"abcd").await;
        assert_eq!(client.reply().await, (1, 0));
        client.ask(READ, 0, 2, 0, 4, &[]).await;
        client.ask(READ, 0, 3, 512, 4, &[]).await;
        while held.waiting.borrow().len() < 2 {
            tokio::task::yield_now().await;
        }
        for (offset, cookie, data) in [(512, 3, b"abcd"), (0, 2, b"\0\0\0\0")] {
            let go = held.waiting.borrow_mut().remove(&offset).expect("it waits");
            go.send(()).expect("the server waits for it");
            assert_eq!(client.reply().await, (cookie, 0));
            assert_eq!(client.data(4).await, data);
        }
        client.ask(DISCONNECT, 0, 4, 0, 0, &[]).await;
    });
    end.expect("the client left as it should");
}

#[test]
fn disconnect_waits_for_in_flight_requests() {
    let (end, ()) = run_session(&single_export(HeldReads::new(1 << 20)), async |mut client, held| {
        client.ask(READ, 0, 9, 0, 2, &[]).await;
        client.ask(DISCONNECT, 0, 10, 0, 0, &[]).await;
        while held.waiting.borrow().is_empty() {
            tokio::task::yield_now().await;
        }
        let go = held.waiting.borrow_mut().remove(&0).expect("it waits");
        go.send(()).expect("the server waits for it");
        assert_eq!(client.reply().await, (9, 0));
        assert_eq!(client.data(2).await, [0, 0]);
        assert_eq!(client.0.read(&mut [0]).await.expect("the end"), 0);
    });
    end.expect("the client left as it should");
}

#[test]
fn refused_write_consumes_its_payload() {
    let (end, ()) = run_session(&single_export(Memory::new(4096)), async |mut client, _| {
        let long = vec![wire::REQUEST_MAGIC as u8; 200_000];
        client.ask(WRITE, 0, 1, 4000, long.len() as u32, &long).await;
        assert_eq!(client.reply().await, (1, Error::NoSpace.number()));
        client.ask(READ, 0, 2, 0, 4, &[]).await;
        assert_eq!(client.reply().await, (2, 0));
        assert_eq!(client.data(4).await, [0; 4]);
    });
    end.expect("nothing else was wrong");
}

/// libnbd registers a request only when it has sent all of it, and closes a connection on which a reply arrives before.
#[test]
fn refused_write_is_answered_after_whole_payload() {
    let (end, ()) = run_session(&single_export(Memory::new(4096)), async |mut client, _| {
        let half = [7; 50_000];
        client.ask(READ, 0, 1, 0, 4, &[]).await;
        client.ask(WRITE, 0, 2, 4000, 100_000, &half).await;
        assert_eq!(client.reply().await, (1, 0));
        client.data(4).await;
        // The server has received everything and could answer.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let early = tokio::time::timeout(std::time::Duration::ZERO, client.0.read_u8()).await;
        assert!(early.is_err(), "it was answered in the middle of its payload");
        client.0.write_all(&half).await.expect("the server reads");
        assert_eq!(client.reply().await, (2, Error::NoSpace.number()));
        client.ask(WRITE, 0, 3, 4000, 100_000, &half).await;
    });
    assert!(matches!(end, Err(Failure::Violation(Violation::Truncated))), "{end:?}");
}

#[test]
fn disconnects_and_protocol_errors_are_reported() {
    let (end, ()) = run_session(&single_export(Memory::new(4096)), async |mut client, _| {
        client.ask(WRITE, 0, 1, 0, 100, b"only this").await;
    });
    assert!(matches!(end, Err(Failure::Violation(Violation::Truncated))), "{end:?}");
    let (end, ()) = run_session(&single_export(Memory::new(4096)), async |mut client, _| {
        client.0.write_all(&[0; 28]).await.expect("the server reads");
        assert_eq!(client.0.read(&mut [0]).await.expect("the end"), 0);
    });
    assert!(matches!(end, Err(Failure::Violation(Violation::Request))), "{end:?}");
}

#[test]
fn client_that_is_owed_replies_is_reported() {
    let (end, ()) = run_session(&single_export(HeldReads::new(1 << 20)), async |mut client, held| {
        client.ask(READ, 0, 1, 0, 2, &[]).await;
        client.ask(READ, 0, 2, 4096, 2, &[]).await;
        while held.waiting.borrow().len() < 2 {
            tokio::task::yield_now().await;
        }
    });
    assert!(matches!(end, Err(Failure::Aborted { source: None, requests: 2, reply_bytes: 0 })), "{end:?}");
    // One that has its replies may close the connection without a word.
    let (end, ()) = run_session(&single_export(Memory::new(4096)), async |mut client, _| {
        client.ask(READ, 0, 1, 0, 2, &[]).await;
        assert_eq!(client.reply().await, (1, 0));
        assert_eq!(client.data(2).await, [0, 0]);
    });
    end.expect("nothing is owed");
}

/// A client that sends without reading: the server stops taking requests and continues when the client reads.
#[test]
fn unread_replies_throttle_requests() {
    const REPLY_BYTES: u32 = 8 << 20;
    const REPLY_COUNT: u64 = 40;
    let (end, ()) = run_session(&single_export(Memory::new(u64::from(REPLY_BYTES))), async |mut client, _| {
        for cookie in 0..REPLY_COUNT {
            client.ask(READ, 0, cookie, 0, REPLY_BYTES, &[]).await;
        }
        for cookie in 0..REPLY_COUNT {
            assert_eq!(client.reply().await, (cookie, 0));
            assert!(client.data(REPLY_BYTES as usize).await.iter().all(|b| *b == 0));
        }
    });
    end.expect("nothing was wrong");
}

/// Requests in flight at the store are bounded in bytes too: a store that buffers every answer would fill memory.
#[test]
fn long_reads_in_flight_are_limited_in_bytes() {
    const READ_BYTES: u32 = 16 << 20;
    const READ_COUNT: u64 = 24;
    let export = single_export(HeldReads::new(READ_COUNT * u64::from(READ_BYTES)));
    let (end, ()) = run_session(&export, async |mut client, held| {
        for cookie in 0..READ_COUNT {
            client.ask(READ, 0, cookie, cookie * u64::from(READ_BYTES), READ_BYTES, &[]).await;
        }
        for _ in 0..READ_COUNT {
            while held.waiting.borrow().is_empty() {
                tokio::task::yield_now().await;
            }
            // 64 MiB and at most one additional read.
            let waiting = held.waiting.borrow().len();
            assert!(waiting <= 5, "{waiting} reads were under way");
            let (_, go) = held.waiting.borrow_mut().pop_first().expect("one waits");
            go.send(()).expect("the store waits for it");
            assert_eq!(client.reply().await.1, 0);
            client.data(READ_BYTES as usize).await;
        }
    });
    end.expect("nothing was wrong");
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    /// Random requests against an array as oracle.
    #[test]
    fn export_behaves_as_a_byte_array(steps in proptest::collection::vec((0_u16..7, 0_u64..70_000, 1_u32..70_000, proptest::bits::u16::masked(19)), 1..40)) {
        const DISK_BYTES: usize = 200_000;
        let (end, ()) = run_session(&single_export(Memory::new(DISK_BYTES as u64)), async |mut client, _| {
            let mut truth = vec![0_u8; DISK_BYTES];
            for (nth, (command, offset, length, flags)) in steps.iter().enumerate() {
                let cookie = nth as u64;
                let range = *offset as usize..*offset as usize + *length as usize;
                let fill = nth as u8 + 1;
                match *command {
                    WRITE => {
                        client.ask(WRITE, flags & 1, cookie, *offset, *length, &vec![fill; range.len()]).await;
                        truth[range].fill(fill);
                    }
                    wire::command::TRIM | wire::command::WRITE_ZEROES => {
                        let flags = if *command == wire::command::TRIM { flags & 1 } else { *flags };
                        client.ask(*command, flags, cookie, *offset, *length, &[]).await;
                        truth[range].fill(0);
                    }
                    wire::command::FLUSH | wire::command::CACHE => {
                        client.ask(*command, 0, cookie, *offset, *length, &[]).await;
                    }
                    _ => {
                        client.ask(READ, 0, cookie, *offset, *length, &[]).await;
                        assert_eq!(client.reply().await, (cookie, 0));
                        assert!(client.data(range.len()).await == truth[range]);
                        continue;
                    }
                }
                assert_eq!(client.reply().await, (cookie, 0));
            }
            client.ask(DISCONNECT, 0, 0, 0, 0, &[]).await;
        });
        proptest::prop_assert!(end.is_ok());
    }
}
