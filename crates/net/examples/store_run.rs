//! Makes a run and prints the input of its evaluation, as one line of JSON for `crates/net/tests/stored`:
//!
//! ```text
//! fathom net serve --once --listen 127.0.0.1:7100 &
//! cargo run --package net --example store_run -- 127.0.0.1:7100 - 'this machine' '--rate 10M' application '{"rate":10000000}'
//! ```
//!
//! ADDRESS KEY (a file, or -) MACHINE INJECTED EXPECTED[,...] OPTIONS, which are JSON: `rate`, `cc`, `sndbuf`, `rcvbuf`, `pacing`, `ms`, `streams`,
//! `copy`, `down`.

use net::run::Session;
use net::spec::{Direction, Readings, SocketOptions, Spec, Traffic};
use net::why::{self, BothEnds, Cause, stored::StoredRun};
use serde_json::Value;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [address, key, machine, injected, expected, options] = &words[..] else {
        eprintln!("ADDRESS KEY MACHINE INJECTED EXPECTED OPTIONS; see the head of crates/net/examples/store_run.rs");
        std::process::exit(2);
    };
    let options: Value = serde_json::from_str(options).expect("OPTIONS are JSON");
    let number = |name: &str| options[name].as_u64();
    let direction = if options["down"] == true { Direction::Down } else { Direction::Up };
    let spec = Spec {
        traffic: Traffic::Tcp { rate_bps: number("rate") },
        directions: vec![direction],
        streams: number("streams").unwrap_or(1) as u16,
        duration_ms: number("ms").unwrap_or(1000),
        socket: SocketOptions {
            send_buffer: number("sndbuf").map(|b| b as u32),
            receive_buffer: number("rcvbuf").map(|b| b as u32),
            congestion: options["cc"].as_str().map(String::from),
            pacing_bps: number("pacing"),
            ..SocketOptions::default()
        },
        copy: options["copy"] == true,
        probe: false,
        readings: Readings::All,
    };
    let key = (key != "-").then(|| wire::Key::read(std::path::Path::new(key)).expect("the key can be read"));
    let address = address.parse().expect("ADDRESS is IP:PORT");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let outcome = tokio::task::LocalSet::new().block_on(&runtime, async {
        let mut session = Session::connect(address, key.as_ref(), None).await?;
        session.run(&spec).await
    });
    let outcome = outcome.expect("the run comes to its end");
    let (sent, received) = (outcome.sent(direction).expect("sent"), outcome.received(direction).expect("received"));
    let seen = BothEnds {
        spec: &outcome.spec,
        sent,
        received,
        sender: outcome.sender(direction),
        receiver: outcome.receiver(direction),
        rate_bps: net::estimate::received_throughput(received).expect("something arrived").whole,
        searched: None,
    };
    let cause = |name: &str| serde_json::from_value::<Cause>(name.into()).expect("EXPECTED is a cause");
    let stored =
        StoredRun::from_ends(&seen, machine.clone(), injected.clone(), expected.split(',').map(cause).collect());
    println!("{}", serde_json::to_string(&stored).expect("it is JSON"));
    for limit in why::limits(&seen) {
        eprintln!("{:?} {:.2} {:?} {}", limit.cause, limit.share, limit.allows_bps, limit.evidence);
    }
}
