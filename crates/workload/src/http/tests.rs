//! The client against scripted servers on loopback; the server against raw bytes.

use super::*;
use std::collections::BTreeMap;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// The output of the workload: samples by metric (including iterations), marks, and the result of its check.
#[derive(Debug, Default)]
struct Report {
    samples: BTreeMap<String, Vec<f64>>,
    marks: BTreeMap<String, String>,
    verified: Option<(bool, String)>,
}

impl Report {
    fn value(&self, metric: &str) -> f64 {
        self.samples[metric][0]
    }
}

fn workload(words: &[&str]) -> (Report, Result<(), Error>) {
    let words: Vec<String> = words.iter().map(ToString::to_string).collect();
    let mut out = Vec::new();
    let result = run(&words, &Context::silent(), &mut out);
    let mut said = Report::default();
    for line in String::from_utf8(out).unwrap().lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        if let Some(metric) = line["metric"].as_str() {
            said.samples.entry(metric.into()).or_default().push(line["v"].as_f64().unwrap());
        } else if let Some(mark) = line["mark"].as_str() {
            said.marks.insert(mark.into(), line["text"].as_str().unwrap().into());
        } else {
            said.verified = Some((line["verified"].as_bool().unwrap(), line["by"].as_str().unwrap().into()));
        }
    }
    (said, result)
}

/// Expects a failure whose message contains `part`.
fn assert_fails(words: &[&str], part: &str) {
    match workload(words).1 {
        Err(Error::Failed(text) | Error::Usage(text)) => assert!(text.contains(part), "{text}"),
        other => panic!("{words:?}: {other:?}"),
    }
}

/// A server that handles the n-th connection with `script`, and ends with the test.
fn serve_script(script: impl Fn(usize, &mut TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("--url=http://{}/", listener.local_addr().unwrap());
    // This thread ends with the process.
    std::thread::spawn(move || {
        for (nth, stream) in listener.incoming().enumerate() {
            script(nth, &mut stream.unwrap());
        }
    });
    url
}

/// Reads a request; false at the end of the connection.
fn read_request(stream: &mut TcpStream) -> bool {
    let (mut heard, mut byte) = (Vec::new(), [0]);
    while !heard.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => heard.push(byte[0]),
            _ => return false,
        }
    }
    true
}

fn send(stream: &mut TcpStream, text: &str) {
    let _ = stream.write_all(text.as_bytes());
}

const OK_RESPONSE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";

#[test]
fn every_request_and_its_bytes_are_counted_and_checked() {
    for (words, connections) in [
        (&["--connections=1"][..], 1),
        (&["--connections=5", "--threads=2"], 5),
        (&["--connections=3", "--keep-alive=off"], 3),
        (&["--connections=4", "--threads=2", "--rate=1000"], 4),
    ] {
        let words = [&["--self", "--inner=50", "--iterations=4"], words].concat();
        let (said, result) = workload(&words);
        result.unwrap();
        assert_eq!((said.samples["iteration"].len(), said.value("work")), (4, 50.0));
        assert_eq!((said.value("requests"), said.value("errors")), (200.0, 0.0));
        let head = if words.contains(&"--keep-alive=off") { "Connection: close\r\n".len() } else { 0 };
        assert_eq!(said.value("received"), 200.0 * (OK_RESPONSE.len() + head) as f64);
        assert!(said.value("latency.p50") > 1000.0 && said.value("latency.p99") <= said.value("latency.max"));
        // None of 200 values lies beyond the 99.9th percentile.
        assert!(!said.samples.contains_key("latency.p99.9"));
        assert_eq!(said.samples.contains_key("send.late.max"), words.contains(&"--rate=1000"));
        assert!(said.marks["mode"].contains(&format!("{connections} connections")), "{:?}", said.marks);
        assert!(said.marks.contains_key("peer"), "{:?}", said.marks);
        let (verified, by) = said.verified.unwrap();
        assert!(verified && by.starts_with("200 responses with status 200"), "{by}");
    }
}

#[test]
fn iterations_add_up_to_run() {
    let (said, result) = workload(&["--self", "--inner=20", "--iterations=10"]);
    result.unwrap();
    let sum: f64 = said.samples["iteration"].iter().sum();
    assert!((sum * said.value("request.rate") / 1e9 - 200.0).abs() < 1e-3);
}

#[test]
fn stall_delays_requests_due_during_it() {
    // The second connection, the client's after the initial fetch, is stalled at its first request.
    let url = serve_script(|nth, stream| {
        let mut stalled = nth == 0;
        while read_request(stream) {
            if !stalled {
                std::thread::sleep(Duration::from_millis(200));
                stalled = true;
            }
            send(stream, OK_RESPONSE);
        }
    });
    let (said, result) = workload(&[&url, "--rate=1000", "--inner=300", "--iterations=1"]);
    result.unwrap();
    // Request k was due after k ms and answered after 200 ms or later: half of the 300 waited 50 ms or longer. A client
    // that measures from the actual time of sending would see only one.
    assert!(said.value("latency.p50") >= 49e6, "{}", said.value("latency.p50"));
}

#[test]
fn duration_ends_the_run_and_inner_is_a_power_of_two() {
    let (said, result) = workload(&["--self", "--duration=0.05", "--min-iteration-ms=5"]);
    result.unwrap();
    let inner: f64 = said.marks["inner"].parse().unwrap();
    assert!((inner as u64).is_power_of_two() && said.value("requests") > 0.0, "{:?}", said.marks);
}

#[test]
fn connection_closed_between_requests_is_reopened() {
    // Each connection serves three requests and closes without announcing it.
    let url = serve_script(|_, stream| {
        (0..3).for_each(|_| {
            if read_request(stream) {
                send(stream, OK_RESPONSE)
            }
        })
    });
    let (said, result) = workload(&[&url, "--inner=30", "--iterations=1"]);
    result.unwrap();
    assert_eq!((said.value("requests"), said.value("errors"), said.value("reconnections")), (30.0, 0.0, 9.0));
}

#[test]
fn errors_are_reported() {
    let nobody = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}/", listener.local_addr().unwrap())
    };
    assert_fails(&["--url", &nobody], "no server is listening");
    let missing = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
    assert_fails(
        &[&serve_script(move |_, s| {
            while read_request(s) {
                send(s, missing)
            }
        })],
        "status 404 instead of 200",
    );
    assert_fails(
        &[&serve_script(|_, s| {
            read_request(s);
            send(s, "SSH-2.0-x\r\n\r\n")
        })],
        "not an HTTP response",
    );
    assert_fails(
        &[&serve_script(|_, s| {
            read_request(s);
            send(s, &OK_RESPONSE[..20])
        })],
        "before it answered",
    );
    assert_fails(
        &[
            &serve_script(|_, s| {
                while read_request(s) {
                    send(s, OK_RESPONSE)
                }
            }),
            "--bytes=2",
        ],
        "not the 2 of --bytes",
    );
    let slow = serve_script(|nth, s| {
        while read_request(s) {
            match nth {
                0 => send(s, OK_RESPONSE),
                // A fixed wait: it answers late.
                _ => std::thread::sleep(Duration::from_secs(1)),
            }
        }
    });
    for connections in ["--threads=1", "--connections=2"] {
        assert_fails(
            &[&slow, "--timeout-ms=200", "--inner=5", connections, "--threads=1"],
            "within 200 ms (0 bytes received)",
        );
    }
    for (words, part) in [
        (&["--url=https://127.0.0.1/"][..], "only http"),
        (&["--url=127.0.0.1"], "such as http://"),
        (&["--connections=0"], "from 1 to 4096"),
        (&["--rate=-1"], "--rate"),
        (&["--iterations=0"], "--iterations"),
        (&["--keep-alive=maybe"], "on, off"),
    ] {
        assert_fails(words, part);
    }
}

#[test]
fn mid_run_errors_are_counted_or_end_run_unverified() {
    // The second connection, the client's, sends half a body at its fifth request and closes.
    let script = |nth, s: &mut TcpStream| {
        let mut served = 0;
        while read_request(s) {
            served += 1;
            if nth == 1 && served == 5 {
                return send(s, &OK_RESPONSE[..OK_RESPONSE.len() - 1]);
            }
            send(s, OK_RESPONSE);
        }
    };
    let (said, result) = workload(&[&serve_script(script), "--inner=10", "--iterations=2"]);
    assert!(
        matches!(result, Err(Error::Failed(text)) if text.contains("in the middle") && text.contains("4 requests"))
    );
    let (verified, by) = said.verified.unwrap();
    assert!(!verified && by.contains("1 errors") && said.samples.is_empty(), "{by}");

    let (said, result) = workload(&[&serve_script(script), "--inner=10", "--iterations=2", "--max-errors=1"]);
    result.unwrap();
    // Nineteen of twenty requests succeeded: one complete iteration.
    assert_eq!((said.value("requests"), said.value("errors"), said.samples["iteration"].len()), (19.0, 1.0, 1));
    assert!(said.marks["error"].contains("in the middle") && said.verified.unwrap().0);
}

#[test]
fn changed_body_is_a_wrong_result() {
    let url = serve_script(|nth, s| {
        let mut served = 0;
        while read_request(s) {
            served += 1;
            send(s, if nth == 1 && served == 3 { &OK_RESPONSE[..OK_RESPONSE.len() - 1] } else { OK_RESPONSE });
            if nth == 1 && served == 3 {
                send(s, "y");
            }
        }
    });
    let (said, result) = workload(&[&url, "--inner=10", "--iterations=1"]);
    assert!(matches!(result, Err(Error::Failed(text)) if text.contains("a different body")));
    assert!(!said.verified.unwrap().0);
}

/// The response of one of our servers to bytes, until it closes.
fn fetch_raw(server: &Server, requests: &[u8]) -> String {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| server.serve(1, &|| over.load(Ordering::Relaxed)).unwrap());
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(requests).unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        over.store(true, Ordering::Relaxed);
        answer
    })
}

#[test]
fn server_answers_in_order_and_closes_after_a_bad_request() {
    let server = Server::bind("127.0.0.1:0", 1).unwrap();
    let close = "GET / HTTP/1.1\r\nConnection: close\r\n\r\n";
    let closed = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx";
    let pipelined =
        format!("GET / HTTP/1.1\r\n\r\nHEAD /x HTTP/1.1\r\nHost: a\r\n\r\n{close}GET /not HTTP/1.1\r\n\r\n");
    let expected = format!("{OK_RESPONSE}{}{closed}", &OK_RESPONSE[..OK_RESPONSE.len() - 1]);
    assert_eq!(fetch_raw(&server, pipelined.as_bytes()), expected);
    assert_eq!(fetch_raw(&server, b"GET / HTTP/1.0\r\n\r\n"), closed);
    for (request, status) in [
        (&b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"[..], "405"),
        (b"\x16\x03\x01\x02\x00", "400"),
        (&[b"GET / HTTP/1.1\r\nA: ".as_slice(), &vec![b'a'; 20_000]].concat(), "431"),
    ] {
        let answer = fetch_raw(&server, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
}

/// Two bodies exceed the send buffer: the pipelined second request must not be forgotten.
#[test]
fn pipelined_requests_for_large_bodies_are_all_answered() {
    let server = Server::bind("127.0.0.1:0", super::server::BODY_BYTES_MAX).unwrap();
    let answer = fetch_raw(&server, b"GET / HTTP/1.1\r\n\r\nHEAD / HTTP/1.1\r\n\r\nGET / HTTP/1.0\r\n\r\n");
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 3);
    assert_eq!(answer.bytes().filter(|b| *b == b'x').count(), 2 * super::server::BODY_BYTES_MAX);
}

#[test]
fn unusable_listen_addresses_are_reported_with_advice() {
    let first = Server::bind("127.0.0.1:0", 1).unwrap();
    for (listen, part) in [
        (first.address().to_string().as_str(), "the address is in use"),
        ("192.0.2.1:0", "no such address"),
        ("nonsense", "such as 0.0.0.0:8080"),
    ] {
        let error = Server::bind(listen, 1).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains(listen), "{error}");
    }
    assert!(matches!(Server::bind("127.0.0.1:0", usize::MAX), Err(Error::Usage(_))));
}

#[test]
fn large_body_is_transferred_whole() {
    let (said, result) = workload(&["--self", "--bytes=3000000", "--inner=2", "--iterations=2", "--connections=2"]);
    result.unwrap();
    assert!(said.value("received") > 12_000_000.0 && said.verified.unwrap().1.contains("3000000"));
}

/// An independent server and an independent client.
#[test]
fn server_and_client_interoperate_with_python() {
    let serve = "import http.server as h\n\
                 class H(h.BaseHTTPRequestHandler):\n \
                 protocol_version='HTTP/1.1'\n \
                 def log_message(*a): pass\n \
                 def do_GET(s):\n  s.send_response(200); s.send_header('Transfer-Encoding','chunked'); s.end_headers()\n  \
                 s.wfile.write(b'1\\r\\nx\\r\\n0\\r\\n\\r\\n')\n\
                 s=h.ThreadingHTTPServer(('127.0.0.1',0),H); print(s.server_port,flush=True); s.serve_forever()";
    let python = std::process::Command::new("python3").args(["-c", serve]).stdout(std::process::Stdio::piped()).spawn();
    let Ok(mut python) = python else {
        println!("SKIP server_and_client_interoperate_with_python: python3 is not installed");
        return;
    };
    let mut port = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(python.stdout.take().unwrap()), &mut port).unwrap();
    let url = format!("--url=http://127.0.0.1:{}/", port.trim());
    let (said, result) = workload(&[&url, "--inner=20", "--iterations=2", "--connections=2", "--bytes=1"]);
    python.kill().unwrap();
    python.wait().unwrap();
    result.unwrap();
    assert_eq!((said.value("requests"), said.value("reconnections")), (40.0, 0.0));

    let server = Server::bind("127.0.0.1:0", 5).unwrap();
    let over = AtomicBool::new(false);
    let fetch = "import http.client as h, sys\nc=h.HTTPConnection(sys.argv[1])\n\
                 for _ in range(3): c.request('GET','/a?b'); r=c.getresponse(); print(r.status, r.read().decode())";
    let output = std::thread::scope(|scope| {
        scope.spawn(|| server.serve(2, &|| over.load(Ordering::Relaxed)).unwrap());
        let address = server.address().to_string();
        let output = std::process::Command::new("python3").args(["-c", fetch, &address]).output();
        over.store(true, Ordering::Relaxed);
        output.unwrap()
    });
    assert_eq!(String::from_utf8_lossy(&output.stdout), "200 xxxxx\n".repeat(3), "{output:?}");
}
