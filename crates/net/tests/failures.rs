//! Failures between two ends and their error messages.

use net::Result;
use net::control::{CONTROL_MAGIC, DATA_MAGIC, Message};
use net::run::Session;
use net::serve::Server;
use net::spec::{Direction, SocketOptions, Spec, Traffic};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

fn run_local<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, work)
}

/// A server, and its reports.
async fn start_server(key: Option<wire::Key>) -> (SocketAddr, Rc<RefCell<Vec<String>>>) {
    let report = Rc::new(RefCell::new(Vec::new()));
    let teller = report.clone();
    let server = Server::listen("127.0.0.1:0".parse().unwrap(), key, Rc::new(move |t| teller.borrow_mut().push(t)));
    let server = server.await.unwrap();
    let at = server.address();
    tokio::task::spawn_local(async move { server.serve(false).await });
    (at, report)
}

fn bulk_spec(duration_ms: u64) -> Spec {
    Spec {
        traffic: Traffic::Tcp { rate_bps: None },
        directions: vec![Direction::Up],
        streams: 1,
        duration_ms,
        socket: SocketOptions::default(),
        copy: false,
        probe: false,
        readings: net::spec::Readings::All,
    }
}

/// A peer that answers each message with the next of these, and pings with its time; after that it stays silent.
async fn scripted_server(frames: Vec<Message>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::task::spawn_local(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut first = [0; 8];
        stream.read_exact(&mut first).await.unwrap();
        let mut frames = frames.into_iter();
        loop {
            let mut length = [0; 4];
            stream.read_exact(&mut length).await.unwrap();
            let mut rest = vec![0; u32::from_be_bytes(length) as usize];
            stream.read_exact(&mut rest).await.unwrap();
            let answer = match Message::parse(&rest).unwrap() {
                Message::Ping { asked_ns } => Some(Message::Pong { asked_ns, came_ns: 1, left_ns: 1 }),
                _ => frames.next(),
            };
            match answer {
                Some(message) => stream.write_all(&message.frame().unwrap()).await.unwrap(),
                None => std::future::pending().await,
            }
        }
    });
    at
}

#[track_caller]
fn fails_with(result: Result<impl Sized>, parts: &[&str]) {
    let text = result.err().expect("an error").to_string();
    assert!(parts.iter().all(|p| text.contains(p)), "{text}");
}

#[test]
fn unreachable_server_error_has_remedy() {
    run_local(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        drop(listener);
        fails_with(Session::connect(at, None, None).await, &["cannot reach", &at.to_string(), "fathom net serve"]);
    });
}

#[test]
fn port_in_use_and_public_address_without_key_are_refused() {
    run_local(async {
        let (at, _) = start_server(None).await;
        fails_with(Server::listen(at, None, Rc::new(|_| ())).await, &["cannot listen", "choose another"]);
        let open = "0.0.0.0:0".parse().unwrap();
        fails_with(Server::listen(open, None, Rc::new(|_| ())).await, &["a key is required", "keygen"]);
    });
}

#[test]
fn wrong_and_missing_keys_are_reported_at_both_ends() {
    run_local(async {
        let (one, other) = (wire::Key::generate().unwrap(), wire::Key::generate().unwrap());
        let (at, report) = start_server(Some(one.clone())).await;
        fails_with(Session::connect(at, Some(&other), None).await, &["key"]);
        fails_with(Session::connect(at, None, None).await, &["--key"]);
        Session::connect(at, Some(&one), None).await.unwrap();
        assert!(report.borrow().iter().any(|t| t.contains("key differs")), "{report:?}");
        let (open, _) = start_server(None).await;
        fails_with(Session::connect(open, Some(&one), None).await, &["key"]);
    });
}

#[test]
fn version_mismatch_names_both_ranges() {
    run_local(async {
        let skew = Message::Skew { oldest: 7, newest: 9, program: "Fathom 9.0".into() };
        let at = scripted_server(vec![skew]).await;
        fails_with(Session::connect(at, None, None).await, &["Fathom 9.0", "7 to 9", "4 to 4"]);

        let (at, report) = start_server(None).await;
        let mut stream = TcpStream::connect(at).await.unwrap();
        stream.write_all(CONTROL_MAGIC).await.unwrap();
        let hello = Message::Hello { oldest: 7, newest: 9, program: "Fathom 9.0".into() };
        stream.write_all(&hello.frame().unwrap()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        assert!(matches!(Message::parse(&answer[4..]).unwrap(), Message::Skew { oldest: 4, newest: 4, .. }));
        assert!(report.borrow()[0].contains("7 to 9"), "{report:?}");
    });
}

#[test]
fn foreign_protocol_is_recognised() {
    run_local(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        tokio::task::spawn_local(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
            std::future::pending::<()>().await;
        });
        fails_with(Session::connect(at, None, None).await, &["does not speak Fathom's protocol", "fathom net serve"]);
        // Unknown clients of our server, and data for no run, do no harm.
        let (at, report) = start_server(None).await;
        for words in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[&DATA_MAGIC[..], &[0; 19]].concat()] {
            let mut stream = TcpStream::connect(at).await.unwrap();
            stream.write_all(words).await.unwrap();
            // It may end with an error.
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
        assert_eq!(report.borrow().len(), 2, "{report:?}");
        Session::connect(at, None, None).await.unwrap();
    });
}

#[test]
fn refusal_of_peer_is_quoted() {
    run_local(async {
        let welcome = Message::Welcome { version: 4, program: "x".into() };
        let at = scripted_server(vec![welcome, Message::Refused { why: "I am tired".into() }]).await;
        let mut session = Session::connect(at, None, None).await.unwrap();
        fails_with(session.run(&bulk_spec(100)).await, &["refused", "I am tired"]);
    });
}

/// Time is paused, so that ten seconds of silence take no time.
#[test]
fn stalled_peer_times_out() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let at = scripted_server(vec![]).await;
        fails_with(
            Session::connect(at, None, None).await,
            &["no message from the other end for 10 s", "agreeing on a version"],
        );
    });
}

#[test]
fn dead_client_is_detected_and_next_one_served() {
    run_local(async {
        let (at, report) = start_server(None).await;
        let client = tokio::task::spawn_local(async move {
            let mut session = Session::connect(at, None, None).await.unwrap();
            session.run(&bulk_spec(30_000)).await
        });
        while report.borrow().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // A fixed wait: until the run is in progress. The server's reports come before it.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        // The client's run is dropped half-way, and its sockets with it.
        client.abort();
        let detected = tokio::time::timeout(Duration::from_secs(60), async {
            while report.borrow().len() < 2 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        detected.await.expect("the server sees that it is alone");
        assert!(report.borrow()[1].contains("broke while running"), "{report:?}");
        let mut session = Session::connect(at, None, None).await.unwrap();
        session.run(&bulk_spec(100)).await.unwrap();
    });
}
