//! Measures how many events per second are linked, on one core: `cargo run --release -p causal --example speed [EVENTS
//! [KIND,…]]`. Records of these kinds are left out, as if the kernel refused their probes: `600000 rq_done,commit_end`.
//!
//! The events are those of INSERTs on four threads, created beforehand and pushed as the log's reader would push them; rows
//! are created and dropped.

#[path = "../tests/common/mod.rs"]
mod common;

use causal::{Config, Linker, Sink};
use model::table;
use std::time::Instant;

/// Counts rows and keeps none.
#[derive(Default)]
struct CountingSink(u64);

impl Sink for CountingSink {
    fn operation(&mut self, _: table::Operation) {
        self.0 += 1;
    }
    fn shape(&mut self, _: table::Shape) {
        self.0 += 1;
    }
    fn span(&mut self, _: table::Span) {
        self.0 += 1;
    }
    fn link(&mut self, _: table::Link) {
        self.0 += 1;
    }
    fn driver_command(&mut self, _: table::DriverCommand) {
        self.0 += 1;
    }
    fn cause(&mut self, _: table::Cause) {
        self.0 += 1;
    }
    fn slice(&mut self, _: table::Slice) {
        self.0 += 1;
    }
    fn file(&mut self, _: table::File) {
        self.0 += 1;
    }
    fn process(&mut self, _: table::Process) {
        self.0 += 1;
    }
    fn loss(&mut self, _: table::LossRow) {
        self.0 += 1;
    }
}

fn main() {
    let wanted: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(3_000_000);
    let kinds = model::Record::KINDS;
    let kind = |name: &str| match kinds.iter().find(|kind| kind.name == name) {
        Some(kind) => kind.kind,
        None => panic!("no kind {name:?}; there are {:?}", kinds.iter().map(|kind| kind.name).collect::<Vec<_>>()),
    };
    let left_out: Vec<u8> = std::env::args().nth(2).iter().flat_map(|names| names.split(',')).map(kind).collect();
    let mut made = common::Inserts::new(4);
    let mut linker = Linker::new(Config::default());
    let mut sink = CountingSink::default();
    let (mut pushed, mut held, mut spent) = (0, 0, std::time::Duration::ZERO);
    let mut events = Vec::new();
    while pushed < wanted {
        while events.len() < 1_000 {
            made.next(&mut events);
        }
        events.retain(|e| !left_out.contains(&e.header.kind));
        pushed += events.len();
        let start = Instant::now();
        events.drain(..).for_each(|e| linker.push(e, &mut sink));
        spent += start.elapsed();
        held = held.max(linker.held());
    }
    let start = Instant::now();
    linker.finish(&mut sink);
    spent += start.elapsed();
    let rate = pushed as f64 / spent.as_secs_f64();
    eprintln!("{pushed} events, {} rows, {rate:.0} events/s, at most {held} entries held", sink.0);
    println!(r#"{{"metric":"events.rate","unit":"1/s","v":{rate:.0}}}"#);
}
