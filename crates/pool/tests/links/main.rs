//! The tuner on simulated links: it must come within a tenth of the best fixed setting at every load.
//!
//! The best is found by trying windows and batches one after the other. It is then measured again with the same seeds as
//! the tuner, since the maximum of many noisy numbers overestimates the true value.

mod gradient;
mod world;

use gradient::Gradient;
use pool::setting::Setting;
use pool::tuner::Tuner;
use world::{Asked, Control, Other, World, rates, run};

impl Control for Tuner {
    fn setting(&self, _: usize) -> Setting {
        Setting::holding(GRANTED, self.hold())
    }
    fn answered(&mut self, node: usize, now_ns: u64, answers: u32, left: u32, _: u64) {
        self.answered(node, now_ns, answers, left);
    }
}

/// The window granted by a node.
const GRANTED: u32 = 1024;
const MS: u64 = 1_000_000;
const SEEDS: [u64; 3] = [1, 2, 3];

/// A busy machine: durations vary and threads are preempted.
const LOOPBACK: World = World {
    nodes: 1,
    first: None,
    asked: Asked::Any,
    shared: false,
    packet_ns: 0,
    byte_ns: 0.05,
    burst: 0,
    queue: u64::MAX,
    delay_ns: 3_000,
    call_ns: 5_000,
    each_ns: 1_000,
    store_ns: 0,
    servers: 4,
    reply_bytes: 512,
    jitter: 0.1,
    stalls_per_s: 20.0,
};
const PACKETS: World = World { packet_ns: 250_000, burst: 4, queue: 1000, delay_ns: 20_000, ..LOOPBACK };
const BYTES: World =
    World { packet_ns: 1_000, byte_ns: 200.0, queue: 1000, delay_ns: 500_000, reply_bytes: 4096, ..LOOPBACK };
const SLOW: World = World { store_ns: 1_900_000, delay_ns: 20_000, ..LOOPBACK };
const EIGHT_SLOW: World = World { nodes: 8, store_ns: 1_900_000, reply_bytes: 1, ..LOOPBACK };
const MEDIUM: World = World { nodes: 8, shared: true, reply_bytes: 1, ..PACKETS };
const MEDIUM_FLASH: World = World { store_ns: 1_900_000, ..MEDIUM };

/// Seven nodes in memory, and one with a slow store.
const ONE_SLOW: World = World { nodes: 8, first: Some(Other { store_ns: 1_900_000, ..Other::LOOPBACK }), ..LOOPBACK };
/// Seven nearby nodes, and one behind a radio link.
const ONE_FAR: World =
    World { nodes: 8, first: Some(Other { packet_ns: 250_000, delay_ns: 2_000_000, ..Other::LOOPBACK }), ..LOOPBACK };
/// Seven with slow stores, and one behind a radio link too.
const ONE_FAR_OF_SLOW: World = World {
    first: Some(Other { packet_ns: 250_000, delay_ns: 2_000_000, store_ns: 1_900_000, ..Other::LOOPBACK }),
    ..EIGHT_SLOW
};

impl Other {
    const LOOPBACK: Self = Self { packet_ns: 0, byte_ns: 0.05, delay_ns: 3_000, store_ns: 0 };
}

const LOADS: [u32; 5] = [1, 4, 32, 320, 2560];

const WINDOWS: [u32; 14] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 512, 1024];
const BATCHES: [u32; 14] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 256, 512];

/// The best of the fixed settings, and its mean rate over the seeds.
fn best(world: &World, load: u32, span_ns: u64) -> (f64, u32, u32) {
    let windows = WINDOWS.into_iter().filter(|window| *window < load).chain([load.min(GRANTED)]);
    let pairs = windows
        .flat_map(|window| BATCHES.into_iter().filter(move |b| *b < window).chain([window]).map(move |b| (window, b)));
    // A window that is never full is as good as one twice its size, and large loads need time.
    let look_ns = (span_ns / 8).max(u64::from(load) * MS);
    let mut rates: Vec<_> = pairs
        .map(|(window, batch)| {
            (run(world, load, &mut Setting::new(window, batch), (look_ns / 2, look_ns), 7), window, batch)
        })
        .collect();
    rates.sort_by(|one, two| two.0.total_cmp(&one.0));
    let again = rates.iter().take(3).map(|(_, window, batch)| {
        let span = (span_ns / 4, span_ns / 2);
        let rates = SEEDS.map(|seed| run(world, load, &mut Setting::new(*window, *batch), span, seed));
        (rates.iter().sum::<f64>() / rates.len() as f64, *window, *batch)
    });
    again.max_by(|one, two| one.0.total_cmp(&two.0)).unwrap()
}

/// Fails with all results if the tuner reaches less than nine tenths of the best: on average over the seeds, since on some
/// links a random rhythm accounts for a fifth; or, during its first trials, less than four fifths.
fn within_a_tenth(world: &World, loads: &[u32], span_ns: u64) {
    let (mut lines, mut short) = (Vec::new(), false);
    for load in loads.iter().copied() {
        let (best, window, batch) = best(world, load, span_ns);
        let mean = |span| {
            let rates = SEEDS.map(|seed| run(world, load, &mut Tuner::new(world.nodes), span, seed));
            rates.iter().sum::<f64>() / rates.len() as f64 / best
        };
        // The first as in a bench of 6 s.
        let (early, share) = (mean((1500 * MS, 6000 * MS)), mean((span_ns / 2, span_ns)));
        short |= share < 0.9 || early < 0.8;
        lines.push(format!(
            "load {load}: {share:.3} ({early:.3} early) of {best:.0}/s (window {window}, batch {batch})"
        ));
    }
    println!("{}", lines.join("\n"));
    assert!(!short, "\n{}", lines.join("\n"));
}

#[test]
fn tuner_is_near_best_on_loopback() {
    within_a_tenth(&LOOPBACK, &[1, 320], 8000 * MS);
}

#[test]
fn tuner_is_near_best_on_packet_bound_link() {
    within_a_tenth(&PACKETS, &LOADS, 24_000 * MS);
}

#[test]
fn tuner_is_near_best_on_byte_bound_link() {
    within_a_tenth(&BYTES, &LOADS, 24_000 * MS);
}

#[test]
fn tuner_is_near_best_with_slow_store() {
    within_a_tenth(&SLOW, &LOADS, 24_000 * MS);
}

#[test]
fn tuner_is_near_best_on_shared_medium_with_slow_nodes() {
    within_a_tenth(&MEDIUM_FLASH, &LOADS, 24_000 * MS);
}

#[test]
fn tuner_is_near_best_on_shared_medium_with_memory_nodes() {
    within_a_tenth(&MEDIUM, &LOADS, 24_000 * MS);
}

#[test]
fn tuner_is_near_best_with_one_far_node() {
    within_a_tenth(&ONE_FAR, &[32], 12_000 * MS);
}

#[test]
fn slow_node_does_not_slow_others() {
    others_are_not_slowed(&[("slow", ONE_SLOW), ("far", ONE_FAR)], &[320]);
}

/// Requests to other nodes must not wait for a slow node.
fn others_are_not_slowed(worlds: &[(&str, World)], loads: &[u32]) {
    let (mut lines, mut hindered) = (Vec::new(), false);
    for (name, world) in worlds {
        for load in loads.iter().copied() {
            let others = |asked| {
                let sum = |seed| {
                    let world = World { asked, ..*world };
                    rates(&world, load, &mut Tuner::new(8), (4000 * MS, 8000 * MS), seed)[1..].iter().sum::<f64>()
                };
                SEEDS.map(sum).iter().sum::<f64>()
            };
            let share = others(Asked::Own) / others(Asked::NotTheFirst);
            hindered |= share < 0.9;
            lines.push(format!("{name}, load {load}: the others have {share:.3} of what they have without it"));
        }
    }
    println!("{}", lines.join("\n"));
    assert!(!hindered, "\n{}", lines.join("\n"));
}

#[test]
fn latency_based_window_is_not_better() {
    by_gradient(&[("slow store", SLOW), ("one medium, memory", MEDIUM)], &[32, 320]);
}

/// A window controlled by the latency gradient has no advantage anywhere (except a random rhythm), with natural batches or
/// with the tuner's, and loses most of the throughput on a medium.
fn by_gradient(worlds: &[(&str, World)], loads: &[u32]) {
    let (mut table, mut better, mut worst) = (Vec::new(), Vec::new(), f64::MAX);
    for (name, world) in worlds {
        for load in loads.iter().copied() {
            let span = (6000 * MS, 12_000 * MS);
            let mean = |rate: &dyn Fn(u64) -> f64| SEEDS.map(rate).iter().sum::<f64>() / SEEDS.len() as f64;
            let tuner = mean(&|seed| run(world, load, &mut Tuner::new(world.nodes), span, seed));
            let gradient =
                |tuned| mean(&|s| run(world, load, &mut Gradient::new(world.nodes, GRANTED, tuned), span, s)) / tuner;
            let (natural, both) = (gradient(false), gradient(true));
            table.push(format!("| {name} | {load} | {tuner:.0} | {natural:.2} | {both:.2} |"));
            worst = natural.max(both).min(worst);
            if natural.max(both) > 1.15 {
                better.push(format!("{name}, load {load}: {natural:.2}, {both:.2}"));
            }
        }
    }
    println!("{}", table.join("\n"));
    assert!(better.is_empty() && worst < 0.5, "{better:?}, worst {worst:.2}");
}

/// Single requests, at any distance.
#[test]
fn single_requests_are_as_fast_as_without_tuner() {
    for world in [LOOPBACK, PACKETS, BYTES, SLOW] {
        let world = World { jitter: 0.0, stalls_per_s: 0.0, ..world };
        let span = (1000 * MS, 2000 * MS);
        let alone = run(&world, 1, &mut Setting::new(1, 1), span, 1);
        assert_eq!(run(&world, 1, &mut Tuner::new(1), span, 1), alone, "{world:?}");
    }
}

/// Every link at every load.
mod long {
    use super::*;

    #[test]
    #[ignore = "long: every load"]
    fn tuner_is_near_best_on_loopback_at_every_load() {
        within_a_tenth(&LOOPBACK, &LOADS, 8000 * MS);
    }

    #[test]
    #[ignore = "long: eight nodes at every load"]
    fn tuner_is_near_best_with_eight_slow_nodes() {
        within_a_tenth(&EIGHT_SLOW, &LOADS, 24_000 * MS);
    }

    #[test]
    #[ignore = "long: large replies on a medium"]
    fn tuner_is_near_best_on_shared_medium_with_large_replies() {
        within_a_tenth(&World { reply_bytes: 512, ..MEDIUM }, &[32, 320], 24_000 * MS);
    }

    #[test]
    #[ignore = "long: three kinds of unequal nodes at every load"]
    fn tuner_is_near_best_with_unequal_nodes() {
        for world in [ONE_SLOW, ONE_FAR, ONE_FAR_OF_SLOW] {
            within_a_tenth(&world, &LOADS[1..], 12_000 * MS);
        }
    }

    #[test]
    #[ignore = "long: three kinds of unequal nodes at every load"]
    fn slow_node_does_not_slow_others_at_any_load() {
        others_are_not_slowed(
            &[("slow", ONE_SLOW), ("far", ONE_FAR), ("far, all slow", ONE_FAR_OF_SLOW)],
            &[8, 32, 320, 2560],
        );
    }

    /// With `--nocapture` it prints the table in the manual.
    #[test]
    #[ignore = "long: nine links at every load"]
    fn latency_based_window_is_nowhere_better() {
        let worlds = [
            ("loopback", LOOPBACK),
            ("packet-bound", PACKETS),
            ("byte-bound", BYTES),
            ("slow store", SLOW),
            ("eight slow stores", EIGHT_SLOW),
            ("one medium, memory", MEDIUM),
            ("one medium, slow stores", MEDIUM_FLASH),
            ("eight, one slow", ONE_SLOW),
            ("eight, one far", ONE_FAR),
        ];
        by_gradient(&worlds, &LOADS);
    }
}
