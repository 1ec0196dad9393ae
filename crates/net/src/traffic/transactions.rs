//! Transactions: a request, its response, the next request; one at a time per connection. The client counts them and
//! measures their latency. With one byte in each direction they show the cost of a packet.

use super::{Connection, LiveCounters, Role, RunClock, TimingEnd};
use crate::clock;
use crate::outcome::{EndReport, Transactions};
use crate::spec::{Direction, Spec};
use crate::usage::{ThreadTotals, ThreadUsage};
use hdrhistogram::Histogram;
use socket2::SockRef;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

type Sizes = (usize, usize);

pub fn run(
    spec: &Spec,
    side: Role,
    sizes: Sizes,
    connections: Vec<Connection>,
    stop: &AtomicBool,
    live: &LiveCounters,
) -> EndReport {
    let course = RunClock::new(spec, stop, live);
    let done = AtomicU64::new(0);
    let mut report = EndReport::default();
    let (mut ends_ns, mut totals) = (Vec::new(), Vec::new());
    let mut all = latency_histogram();
    let mut threads = ThreadTotals::default();
    std::thread::scope(|scope| {
        let (course, done) = (&course, &done);
        let handles: Vec<_> = connections
            .iter()
            .map(|c| {
                scope.spawn(move || {
                    let before = ThreadUsage::now();
                    let mut times = latency_histogram();
                    let ended = match side {
                        Role::Client => run_client(&c.stream, sizes, done, &mut times, course),
                        Role::Server => run_server(&c.stream, sizes),
                    };
                    let by = if side == Role::Client { TimingEnd::Local } else { TimingEnd::Remote };
                    let why = ended.map_or_else(|e| e.to_string(), |()| "closed by the other end".into());
                    let trouble = course.connection_error(c.announcement.stream, &why, by);
                    (ThreadUsage::now().since(before), times, trouble)
                })
            })
            .collect();
        course.run_intervals(clock::sleep_until, || {
            ends_ns.push(clock::now_ns());
            totals.push(done.load(Ordering::Relaxed));
            live.set(Direction::Up, done.load(Ordering::Relaxed));
        });
        if side == Role::Server {
            // The client has its own clock; requests that still arrive are answered.
            let deadline = clock::now_ns() + 2_000_000_000;
            while !course.is_interrupted() && clock::now_ns() < deadline && !handles.iter().all(|h| h.is_finished()) {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        for c in &connections {
            let _ = SockRef::from(&c.stream).set_linger(Some(Duration::ZERO));
            let _ = c.stream.shutdown(Shutdown::Both);
        }
        for handle in handles {
            let (used, times, trouble) =
                handle.join().unwrap_or_else(|_| (ThreadUsage::default(), latency_histogram(), None));
            threads.add(used);
            // Both histograms have the same bounds.
            let _ = all.add(times);
            report.trouble = report.trouble.take().or(trouble);
        }
        report.trouble = report.trouble.take().or_else(|| course.suspension_text());
    });
    if side == Role::Client {
        let before = std::iter::once(0).chain(totals.iter().copied());
        let us = |q: f64| all.value_at_quantile(q) as f64 / 1e3;
        report.transactions = Some(Transactions {
            start_ns: course.start_ns,
            ends_ns,
            counts: totals.iter().zip(before).map(|(now, then)| now - then).collect(),
            latency_us: [us(0.5), us(0.9), us(0.99), us(0.999), all.max() as f64 / 1e3],
            threads,
        });
    }
    report
}

/// From 1 ns to 1 h with three digits.
fn latency_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("the bounds are in order")
}

fn run_client(
    mut stream: &TcpStream,
    (request, response): Sizes,
    done: &AtomicU64,
    times: &mut Histogram<u64>,
    course: &RunClock<'_>,
) -> std::io::Result<()> {
    let (request, mut buffer) = (super::random_bytes(request), vec![0; response]);
    while !course.is_over() {
        let begin = clock::now_ns();
        stream.write_all(&request)?;
        stream.read_exact(&mut buffer)?;
        // Anything longer than an hour counts as an hour.
        times.saturating_record(clock::now_ns() - begin);
        done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn run_server(mut stream: &TcpStream, (request, response): Sizes) -> std::io::Result<()> {
    let (mut buffer, response) = (vec![0; request], super::random_bytes(response));
    loop {
        match stream.read_exact(&mut buffer) {
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            other => other?,
        }
        stream.write_all(&response)?;
    }
}
