//! Whole runs over loopback with both ends in this process: counts, granted settings and limits.

use net::run::{Outcome, Session};
use net::serve::Server;
use net::spec::{Direction, SocketOptions, Spec, Traffic};
use net::why::{self, Cause};
use std::net::SocketAddr;
use std::rc::Rc;

const BULK_TCP: Traffic = Traffic::Tcp { rate_bps: None };
const UP_ONLY: &[Direction] = &[Direction::Up];

fn spec(traffic: Traffic, directions: &[Direction], duration_ms: u64) -> Spec {
    Spec {
        traffic,
        directions: directions.to_vec(),
        streams: 1,
        duration_ms,
        socket: SocketOptions::default(),
        copy: false,
        probe: false,
        readings: net::spec::Readings::All,
    }
}

/// Serves on `address`, and returns the result of `ask`.
fn with_server<T>(address: &str, key: Option<wire::Key>, ask: impl AsyncFnOnce(SocketAddr) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let server = Server::listen(address.parse().unwrap(), key, Rc::new(|_| ())).await.unwrap();
        let at = server.address();
        tokio::select! {
            () = server.serve(false) => unreachable!("it serves without end"),
            asked = ask(at) => asked,
        }
    })
}

fn run(spec: &Spec) -> Outcome {
    run_at("127.0.0.1:0", None, spec)
}

fn run_at(address: &str, key: Option<wire::Key>, spec: &Spec) -> Outcome {
    let outcome = with_server(address, key.clone(), async |at| {
        let mut session = Session::connect(at, key.as_ref(), None).await.unwrap();
        session.run(spec).await.unwrap()
    });
    assert_eq!(outcome.own.trouble, None);
    outcome
}

fn limits(outcome: &Outcome, direction: Direction) -> Vec<why::Limit> {
    let (sent, received) = (outcome.sent(direction).unwrap(), outcome.received(direction).unwrap());
    let rate_bps = net::estimate::received_throughput(received).unwrap().whole;
    let (sender, receiver) = (outcome.sender(direction), outcome.receiver(direction));
    why::limits(&why::BothEnds { spec: &outcome.spec, sent, received, sender, receiver, rate_bps, searched: None })
}

fn verified_by(outcome: &Outcome) -> Option<String> {
    let moment = net::clock::Moment::now();
    let context = net::rows::RowContext { ahead_ns: 0, marks: Vec::new(), limited_by: "", moment, link: None };
    net::rows::from_outcome(outcome, context).replicate.verified_by
}

#[test]
fn bulk_is_counted_at_receiver_and_sampled_at_sender() {
    let both = [Direction::Up, Direction::Down];
    let outcome = run(&Spec { streams: 2, ..spec(BULK_TCP, &both, 1000) });
    assert_eq!(verified_by(&outcome).as_deref(), Some("bytes counted at the receiver"));
    for direction in both {
        let (sent, received) = (outcome.sent(direction).unwrap(), outcome.received(direction).unwrap());
        let total: u64 = received.streams.iter().sum();
        assert!(received.streams.len() == 2 && received.streams.iter().all(|b| *b > 0));
        // Bytes after the last interval are in none of them.
        assert!(received.bytes.iter().sum::<u64>() <= total);
        assert!(sent.samples.is_sorted_by_key(|s| s.time_ns));
        for (stream, bytes) in (0..).zip(&received.streams) {
            let last = sent.samples.iter().rev().find(|s| s.stream == stream).unwrap();
            // Bytes acknowledged by the receiver's kernel but not read: at most its buffer.
            assert!(last.bytes_acked <= bytes + (64 << 20), "{direction:?} {stream}");
            assert!(last.bytes_acked > 0 && last.snd_mss > 1000);
        }
        assert!(received.unread.iter().all(|u| u.buffer_bytes > 0) && !received.unread.is_empty());
        assert!(!limits(&outcome, direction).is_empty());
    }
}

#[test]
fn every_option_reaches_both_ends() {
    let mut wanted = spec(BULK_TCP, UP_ONLY, 200);
    wanted.copy = true;
    wanted.socket = SocketOptions {
        send_buffer: Some(40_000),
        receive_buffer: Some(50_000),
        mss: Some(1000),
        congestion: Some("reno".into()),
        nodelay: true,
        pacing_bps: Some(80_000_000),
    };
    let outcome = run(&wanted);
    let (sent, received) = (outcome.sent(Direction::Up).unwrap(), outcome.received(Direction::Up).unwrap());
    for socket in [&sent.sockets[0], &received.sockets[0]] {
        // Linux grants twice what is set.
        assert_eq!((socket.send_buffer, socket.receive_buffer), (80_000, 100_000), "{socket:?}");
    }
    // Only a sender's congestion control matters, and the other end may not have it.
    assert_eq!(sent.sockets[0].congestion.as_deref(), Some("reno"));
    let last = sent.samples.last().unwrap();
    assert!((900..=1000).contains(&last.snd_mss), "{last:?}");
    assert_eq!(sent.sockets[0].local, received.sockets[0].peer);
}

#[test]
fn udp_sends_due_packets_and_counts_received_ones() {
    for directions in [UP_ONLY, &[Direction::Down], &[Direction::Up, Direction::Down]] {
        // 1,000 packets per second.
        let outcome = run(&spec(Traffic::Udp { rate_bps: 8_000_000, packet_bytes: 1000 }, directions, 1000));
        for direction in directions {
            let sent = outcome.sent(*direction).unwrap().packets.clone().unwrap();
            let received = outcome.received(*direction).unwrap();
            let packets = received.packets.clone().unwrap();
            assert_eq!(sent.due, 1000);
            assert!(sent.sent <= sent.due && packets.received <= sent.sent && packets.received > 0);
            assert_eq!(packets.received * 1000, received.streams[0]);
            // Nothing is lost on the path: not even packets that arrive before the receiver is ready.
            assert_eq!(packets.received + packets.dropped_here, sent.sent, "{packets:?}");
            assert!(!packets.transit_ns.is_empty());
        }
        // One clock: the offset is zero.
        let clock = outcome.clock.unwrap();
        assert!(clock.ahead_ns.abs() <= clock.error_ns * 1.25 + 20_000.0, "{clock:?}");
    }
}

#[test]
fn transactions_are_counted_and_timed() {
    let outcome = run(&spec(Traffic::Transactions { request_bytes: 1, response_bytes: 100 }, UP_ONLY, 500));
    assert_eq!(verified_by(&outcome).as_deref(), Some("transactions counted at the client"));
    let transactions = outcome.own.transactions.unwrap();
    assert!(transactions.counts.iter().sum::<u64>() > 0);
    assert!(transactions.latency_us.is_sorted() && transactions.latency_us[0] > 0.0, "{transactions:?}");
}

#[test]
fn runs_work_over_ipv6_and_with_key() {
    let bulk = spec(BULK_TCP, UP_ONLY, 200);
    if std::net::TcpListener::bind("[::1]:0").is_ok() {
        run_at("[::1]:0", None, &bulk);
    }
    let key = wire::Key::generate().unwrap();
    run_at("127.0.0.1:0", Some(key.clone()), &bulk);
    run_at("127.0.0.1:0", Some(key), &spec(Traffic::Udp { rate_bps: 1_000_000, packet_bytes: 100 }, UP_ONLY, 200));
}

#[test]
fn rate_limited_sender_is_application_limited() {
    let outcome = run(&spec(Traffic::Tcp { rate_bps: Some(10_000_000) }, UP_ONLY, 1000));
    let limits = limits(&outcome, Direction::Up);
    assert_eq!(limits[0].cause, Cause::Application, "{limits:?}");
    // It never writes more than is due.
    let bytes: u64 = outcome.received(Direction::Up).unwrap().bytes.iter().sum();
    assert!(bytes <= 1_250_000 * 11 / 10, "{bytes}");
    // It also pauses: 100 bursts, each of which loopback carries in a packet or two, with sleeps between them, however fast
    // the machine is.
    let sent = outcome.sent(Direction::Up).unwrap();
    let segments = sent.samples.last().unwrap().data_segs_out;
    assert!(segments <= 400, "{segments} segments");
    assert!(sent.threads.paused_ns > 0, "{:?}", sent.threads);
}

#[test]
fn one_session_carries_several_runs() {
    with_server("127.0.0.1:0", None, async |at| {
        let mut session = Session::connect(at, None, None).await.unwrap();
        let mut wanted = spec(BULK_TCP, UP_ONLY, 100);
        for _ in 0..3 {
            assert_eq!(session.run(&wanted).await.unwrap().own.trouble, None);
        }
        wanted.socket.congestion = Some("nosuch".into());
        let error = session.run(&wanted).await.unwrap_err().to_string();
        assert!(error.contains("nosuch"), "{error}");
    });
}

#[test]
fn interrupted_run_ends_at_both_ends_and_keeps_results() {
    let both = [Direction::Up, Direction::Down];
    let udp = Traffic::Udp { rate_bps: 8_000_000, packet_bytes: 1000 };
    let transactions = Traffic::Transactions { request_bytes: 1, response_bytes: 1 };
    for wanted in [spec(BULK_TCP, &both, 600_000), spec(udp, &both, 600_000), spec(transactions, UP_ONLY, 600_000)] {
        let outcome = with_server("127.0.0.1:0", None, async |at| {
            let mut session = Session::connect(at, None, None).await.unwrap();
            let interrupter = session.interrupter();
            let (outcome, ()) = tokio::join!(session.run(&wanted), async {
                // A fixed wait: until the run is in progress, since its results are only available at the end.
                tokio::time::sleep(std::time::Duration::from_millis(2000)).await;
                interrupter.store(true, std::sync::atomic::Ordering::Relaxed);
            });
            session.run(&wanted).await.expect_err("nothing begins after the end");
            // The server continues to serve.
            let mut next = Session::connect(at, None, None).await.unwrap();
            next.run(&spec(wanted.traffic, &wanted.directions, 100)).await.unwrap();
            outcome.unwrap()
        });
        assert_eq!(outcome.own.trouble, None);
        let Some(counted) = &outcome.own.transactions else {
            for direction in wanted.directions {
                let (sent, received) = (outcome.sent(direction).unwrap(), outcome.received(direction).unwrap());
                assert!(received.bytes.iter().sum::<u64>() > 0 && received.bytes.len() >= 3, "{received:?}");
                // The run did not take ten minutes, and packets not yet due are not missing.
                assert!(sent.end_ns - sent.start_ns < 300_000_000_000);
                if let Some(packets) = &sent.packets {
                    assert!(packets.due < 600_000 && packets.sent <= packets.due, "{packets:?}");
                }
            }
            continue;
        };
        assert!(counted.counts.iter().sum::<u64>() > 0 && counted.counts.len() < 3000);
    }
}

/// The values that `ss -ti` reports for the same connection in the middle of a run lie between our samples around it.
#[test]
fn readings_agree_with_ss() {
    if std::process::Command::new("ss").arg("-V").output().is_err() {
        println!("SKIP readings_agree_with_ss: ss is not installed");
        return;
    }
    let (outcome, before, said, after) = with_server("127.0.0.1:0", None, async |at| {
        let mut session = Session::connect(at, None, None).await.unwrap();
        // The run is interrupted after `ss` has finished, however late a busy machine starts it, and one more sample follows.
        let wanted = spec(Traffic::Tcp { rate_bps: Some(20_000_000) }, UP_ONLY, 600_000);
        let interrupter = session.interrupter();
        let looked = tokio::task::spawn_blocking(move || {
            // A fixed wait: until the run is in progress, since both report averages over the past.
            std::thread::sleep(std::time::Duration::from_millis(1000));
            let before = net::clock::now_ns();
            let filter = format!("dport = :{}", at.port());
            let said = std::process::Command::new("ss").args(["-tinOH", "state", "established", &filter]).output();
            let looked = (before, String::from_utf8(said.unwrap().stdout).unwrap(), net::clock::now_ns());
            // A fixed wait: until the next sample, taken every 10 ms.
            std::thread::sleep(std::time::Duration::from_millis(1000));
            interrupter.store(true, std::sync::atomic::Ordering::Relaxed);
            looked
        });
        let outcome = session.run(&wanted).await.unwrap();
        let (before, said, after) = looked.await.unwrap();
        (outcome, before, said, after)
    });
    let sent = outcome.sent(Direction::Up).unwrap();
    let own = &sent.sockets[0].local;
    let line = said.lines().find(|l| l.contains(own.as_str())).unwrap_or_else(|| panic!("{own} is not in: {said}"));
    let value = |name: &str| -> u64 {
        let word = line.split_whitespace().find_map(|w| w.strip_prefix(name)?.strip_prefix(':')).unwrap_or("0");
        word.parse().unwrap_or_else(|_| panic!("{name}:{word}"))
    };
    let earlier = sent.samples.iter().rev().find(|s| s.time_ns <= before).unwrap();
    let later = sent.samples.iter().find(|s| s.time_ns >= after).unwrap();
    let between = |name: &str, of: fn(&net::tcp_info::TcpSample) -> u64| {
        let (low, ss, high) = (of(earlier), value(name), of(later));
        assert!(low <= ss && ss <= high && ss > 0, "{name}: {low} <= {ss} <= {high}: {line}");
    };
    between("bytes_acked", |s| s.bytes_acked);
    between("bytes_sent", |s| s.bytes_sent);
    between("data_segs_out", |s| s.data_segs_out);
    assert_eq!(value("mss"), earlier.snd_mss, "{line}");
    // The window only grows on a path without loss.
    if later.total_retrans == 0 {
        between("cwnd", |s| s.cwnd);
    }
}
