use super::super::loss::LossModel;
use super::*;
use proptest::prelude::*;

const NS_PER_MS: u64 = 1_000_000;

fn single_packet(bytes: u64) -> WireSize {
    WireSize { packets: 1, bytes }
}

/// All departures, polled at the link's own events: (direction, due, item).
fn drain(link: &mut EmulatedLink<u32>) -> Vec<(Direction, u64, u32)> {
    let mut out = Vec::new();
    while let Some(next) = link.next_event() {
        while let Some(left) = link.pop(next) {
            assert!(left.due <= next);
            out.push((left.direction, left.due, left.item));
        }
    }
    out
}

fn due_times(link: &mut EmulatedLink<u32>) -> Vec<u64> {
    drain(link).into_iter().map(|(_, due, _)| due).collect()
}

#[test]
fn constant_delay_is_added_exactly() {
    let mut link =
        EmulatedLink::new(&Spec::symmetric(DirectionSpec { delay_ns: 8 * NS_PER_MS, ..DirectionSpec::default() }));
    for (i, at) in [0, 1, 1, 5 * NS_PER_MS].into_iter().enumerate() {
        link.push(UP, i as u32, single_packet(1500), at).unwrap();
    }
    assert_eq!(due_times(&mut link), [8 * NS_PER_MS, 8 * NS_PER_MS + 1, 8 * NS_PER_MS + 1, 13 * NS_PER_MS]);
}

#[test]
fn rate_delays_packets_by_serialization_time() {
    // 1500 bytes at 12 Mb/s take 1 ms.
    let mut link = EmulatedLink::new(&Spec::symmetric(DirectionSpec {
        rate_bps: 12_000_000,
        delay_ns: 10 * NS_PER_MS,
        ..DirectionSpec::default()
    }));
    for i in 0..3 {
        link.push(UP, i, single_packet(1500), 0).unwrap();
    }
    // After the medium was idle the next one starts at its arrival.
    assert_eq!(link.next_event(), Some(NS_PER_MS));
    assert!(link.pop(4 * NS_PER_MS).is_none());
    link.push(UP, 3, single_packet(750), 20 * NS_PER_MS).unwrap();
    assert_eq!(due_times(&mut link), [11 * NS_PER_MS, 12 * NS_PER_MS, 13 * NS_PER_MS, 30 * NS_PER_MS + NS_PER_MS / 2]);
}

#[test]
fn serialization_time_does_not_accumulate_rounding() {
    // 1000 bytes at 7 Mb/s: 1142857.142857… ns. 7000 of them take 8 s exactly.
    let way = DirectionSpec { rate_bps: 7_000_000, queue_packets: 10_000, ..DirectionSpec::default() };
    let mut link = EmulatedLink::new(&Spec::symmetric(way));
    for i in 0..7000 {
        link.push(UP, i, single_packet(1000), 0).unwrap();
    }
    assert_eq!(due_times(&mut link).last(), Some(&8_000_000_000));
}

#[test]
fn half_duplex_directions_alternate_with_packet_cost() {
    let way = DirectionSpec { packet_ns: 100, ..DirectionSpec::default() };
    let mut link = EmulatedLink::new(&Spec { half_duplex: true, ..Spec::symmetric(way) });
    for i in 0..3 {
        link.push(UP, i, single_packet(1), 0).unwrap();
    }
    link.push(DOWN, 10, single_packet(1), 0).unwrap();
    link.push(DOWN, 11, single_packet(1), 0).unwrap();
    let expected = [(UP, 100, 0), (DOWN, 200, 10), (UP, 300, 1), (DOWN, 400, 11), (UP, 500, 2)];
    assert_eq!(drain(&mut link), expected);
    // A full-duplex link sends in both directions at once.
    let mut link = EmulatedLink::new(&Spec::symmetric(way));
    link.push(UP, 0, single_packet(1), 0).unwrap();
    link.push(DOWN, 1, single_packet(1), 0).unwrap();
    assert_eq!(drain(&mut link), [(UP, 100, 0), (DOWN, 100, 1)]);
}

#[test]
fn full_queue_drops_tail() {
    let way = DirectionSpec { rate_bps: 12_000_000, queue_packets: 2, ..DirectionSpec::default() };
    let mut link = EmulatedLink::new(&Spec::symmetric(way));
    let taken: Vec<bool> = (0..5).map(|i| link.push(UP, i, single_packet(1500), 0).is_ok()).collect();
    // One is being sent, two wait.
    assert_eq!(taken, [true, true, true, false, false]);
    // Those three are still in flight.
    assert_eq!((link.counts(UP).in_flight(), link.counts(UP).dropped), (3, 2));
    // A millisecond later one has been sent, and there is room for one more.
    assert_eq!(
        (
            link.push(UP, 5, single_packet(1500), NS_PER_MS).is_ok(),
            link.push(UP, 6, single_packet(1500), NS_PER_MS).is_ok()
        ),
        (true, false)
    );
    let left: Vec<u32> = drain(&mut link).into_iter().map(|(_, _, item)| item).collect();
    assert_eq!(left, [0, 1, 2, 5]);
    let counts = link.counts(UP);
    assert_eq!((counts.offered, counts.delivered, counts.dropped, counts.queue_max), (7, 4, 3, 2));
    assert_eq!(counts.in_flight(), 0);

    let way = DirectionSpec { rate_bps: 12_000_000, queue_bytes: 3000, ..DirectionSpec::default() };
    let mut link = EmulatedLink::new(&Spec::symmetric(way));
    let taken: Vec<bool> = (0..4).map(|i| link.push(UP, i, single_packet(1500), 0).is_ok()).collect();
    assert_eq!(taken, [true, true, true, false]);
}

#[test]
fn unlimited_direction_queues_for_shared_medium() {
    let slow = DirectionSpec { rate_bps: 12_000_000, ..DirectionSpec::default() };
    let free = DirectionSpec { queue_packets: 1, ..DirectionSpec::default() };
    let mut link = EmulatedLink::new(&Spec { up: slow, down: free, half_duplex: true, ..Spec::default() });
    link.push(UP, 0, single_packet(1500), 0).unwrap();
    let taken: Vec<bool> = (1..3).map(|i| link.push(DOWN, i, single_packet(1500), 0).is_ok()).collect();
    assert_eq!(taken, [true, false]);
    assert_eq!(drain(&mut link), [(UP, NS_PER_MS, 0), (DOWN, NS_PER_MS, 1)]);
}

#[test]
fn late_polling_does_not_change_due_times() {
    let way = DirectionSpec { rate_bps: 12_000_000, delay_ns: NS_PER_MS, ..DirectionSpec::default() };
    let mut link = EmulatedLink::new(&Spec::symmetric(way));
    for i in 0..3 {
        link.push(UP, i, single_packet(1500), 0).unwrap();
    }
    let late: Vec<u64> = std::iter::from_fn(|| link.pop(1000 * NS_PER_MS)).map(|d| d.due).collect();
    assert_eq!(late, [2 * NS_PER_MS, 3 * NS_PER_MS, 4 * NS_PER_MS]);
}

#[test]
fn lost_packet_occupies_medium() {
    let way = DirectionSpec { rate_bps: 12_000_000, loss: LossModel::Each(1.0), ..DirectionSpec::default() };
    let mut link = EmulatedLink::new(&Spec { up: way, down: DirectionSpec::default(), ..Spec::default() });
    link.push(UP, 0, single_packet(1500), 0).unwrap();
    link.push(UP, 1, single_packet(1500), 0).unwrap();
    assert_eq!(link.next_event(), Some(NS_PER_MS), "the second starts when the first was sent");
    assert_eq!(due_times(&mut link), [0; 0]);
    assert_eq!((link.counts(UP).lost, link.counts(UP).delivered), (2, 0));
}

#[test]
fn gso_packet_counts_as_its_packets() {
    let way = DirectionSpec { packet_ns: 10, queue_packets: 5, ..DirectionSpec::default() };
    let mut link = EmulatedLink::new(&Spec::symmetric(way));
    let large = WireSize { packets: 4, bytes: 6000 };
    link.push(UP, 0, large, 0).unwrap();
    link.push(UP, 1, large, 0).unwrap();
    assert_eq!(link.push(UP, 2, large, 0), Err(PushError::Queue));
    assert_eq!(due_times(&mut link), [40, 80]);
    assert_eq!(link.counts(UP).delivered, 8);
}

#[test]
fn memory_limit_and_full_queue_are_distinguished() {
    let mut link =
        EmulatedLink::new(&Spec::symmetric(DirectionSpec { delay_ns: NS_PER_MS, ..DirectionSpec::default() }));
    let large = WireSize { packets: 1, bytes: IN_FLIGHT_BYTES_MAX / 2 };
    assert!(link.push(UP, 0, large, 0).is_ok() && link.push(UP, 1, large, 0).is_ok());
    assert_eq!(link.push(UP, 2, single_packet(1), 0), Err(PushError::Memory));
    assert_eq!(due_times(&mut link).len(), 2);
    assert!(link.push(UP, 3, single_packet(1), NS_PER_MS).is_ok());
}

fn any_direction() -> impl Strategy<Value = DirectionSpec> {
    let rate = prop_oneof![Just(0), 1_000..10_000_000_000_u64];
    (0..NS_PER_MS, rate, 0..10_000_u64, any::<bool>(), 0.0..0.5, 1..20_u64, 0..20_000_u64).prop_map(
        |(delay_ns, rate_bps, packet_ns, reorder, loss, queue_packets, queue_bytes)| DirectionSpec {
            delay_ns,
            rate_bps,
            packet_ns,
            jitter_ns: delay_ns / 2,
            reorder,
            loss: LossModel::Each(loss),
            queue_packets,
            queue_bytes,
        },
    )
}

proptest! {
    /// For any input every packet is delivered, lost, dropped or rejected; none leaves before its delay; the order is kept
    /// unless reordering is requested; and the result does not depend on how often the link is polled.
    #[test]
    fn every_packet_is_accounted_for_and_in_order(
        up in any_direction(),
        down in any_direction(),
        half_duplex: bool,
        seed: u64,
        packets in prop::collection::vec((0..2_usize, 1..3000_u64, 0..100_000_u64), 0..60),
        looks in prop::collection::vec(0..100_000_u64, 0..20),
    ) {
        let spec = Spec { up, down, half_duplex, seed, ..Spec::default() };
        let run = |looks: &[u64]| {
            let mut link = EmulatedLink::new(&spec);
            let (mut now, mut looks, mut out, mut pushed) = (0, looks.iter(), Vec::new(), Vec::new());
            for (i, (direction, bytes, gap)) in packets.iter().enumerate() {
                now += gap;
                pushed.push((now, *bytes));
                let _ = link.push(*direction, i as u32, single_packet(*bytes), now);
                if let Some(look) = looks.next() {
                    now += look / 1000;
                    out.extend(std::iter::from_fn(|| link.pop(now)).map(|d| (d.direction, d.due, d.item)));
                }
            }
            out.extend(drain(&mut link));
            (out, pushed, [link.counts(UP), link.counts(DOWN)])
        };
        let (out, pushed, counts) = run(&[]);
        for direction in [UP, DOWN] {
            let way = if direction == UP { up } else { down };
            let c = counts[direction];
            prop_assert_eq!(c.offered, c.delivered + c.lost + c.dropped + c.rejected);
            prop_assert!(c.queue_max <= way.queue_packets);
            let mine: Vec<_> = out.iter().filter(|(d, _, _)| *d == direction).collect();
            prop_assert_eq!(mine.len() as u64, c.delivered);
            for (_, due, item) in &mine {
                let (at, bytes) = pushed[*item as usize];
                let sending = (bytes * 8 * 1_000_000_000).checked_div(way.rate_bps).unwrap_or(0) + way.packet_ns;
                prop_assert!(*due >= at + sending + way.delay_ns - way.jitter_ns);
            }
            if !way.reorder {
                prop_assert!(mine.windows(2).all(|w| w[0].2 < w[1].2 && w[0].1 <= w[1].1));
            }
        }
        // Frequent polling shifts arrivals by the times of the polls; apart from that nothing changes.
        let zeros = vec![0; looks.len()];
        let (often, _, same) = run(&zeros);
        let sorted = |mut v: Vec<(Direction, u64, u32)>| { v.sort_unstable(); v };
        prop_assert_eq!(sorted(often), sorted(out));
        prop_assert_eq!(same, counts);
        let (_, _, moved) = run(&looks);
        prop_assert_eq!(moved[UP].offered, counts[UP].offered);
    }

    /// A busy medium is never idle: n packets at once end after exactly the sum of their transmission times.
    #[test]
    fn busy_medium_is_never_idle(rate in 1_000..10_000_000_000_u64, sizes in prop::collection::vec(1..9000_u64, 1..50)) {
        let mut link = EmulatedLink::new(&Spec::symmetric(DirectionSpec { rate_bps: rate, ..DirectionSpec::default() }));
        for (i, bytes) in sizes.iter().enumerate() {
            link.push(UP, i as u32, single_packet(*bytes), 0).unwrap();
        }
        let bits = u128::from(sizes.iter().sum::<u64>()) * 8;
        prop_assert_eq!(u128::from(*due_times(&mut link).last().unwrap()), bits * 1_000_000_000 / u128::from(rate));
    }
}
