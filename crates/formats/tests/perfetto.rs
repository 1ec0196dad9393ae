//! Reads the export back with our own reader. Perfetto's own reading is tested in `trace_processor.rs`.

mod synthetic;

use formats::perfetto::fields::{clock_snapshot, interned_data, track_event};
use formats::perfetto::reader::{Annotation, Body, TrackEvent};
use formats::perfetto::{Packet, Reader, Summary, Tables, export};
use model::Layer;
use model::table::DriverCommand;
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap, HashSet};
use synthetic::{Made, everything, inserts};

fn write_trace(made: &Made) -> (Vec<u8>, Summary) {
    let mut bytes = Vec::new();
    let summary = export(&made.tables(), &mut bytes).unwrap();
    (bytes, summary)
}

fn packets(bytes: &[u8]) -> Vec<Packet<'_>> {
    Reader::new(bytes).collect::<Result<_, _>>().unwrap()
}

fn events(packets: &[Packet<'_>]) -> Vec<(u64, TrackEvent)> {
    let event = |p: &Packet<'_>| match &p.body {
        Body::Event(e) => Some((p.timestamp_ns.unwrap(), e.clone())),
        _ => None,
    };
    packets.iter().filter_map(event).collect()
}

/// The texts of one field of the interned data, by number.
fn texts(packets: &[Packet<'_>], field: u32) -> HashMap<u64, String> {
    let all = packets.iter().flat_map(|p| &p.interned);
    all.filter(|(f, _, _)| *f == field).map(|(_, iid, text)| (*iid, text.clone())).collect()
}

/// On every track begins and ends are balanced, times are monotonic and nothing stays open.
fn assert_nested(events: &[(u64, TrackEvent)]) {
    let mut tracks: BTreeMap<u64, (u64, i64)> = BTreeMap::new();
    for (time, event) in events {
        let (last, depth) = tracks.entry(event.track_uuid).or_default();
        assert!(*time >= *last, "time falls on track {}", event.track_uuid);
        *last = *time;
        match event.kind {
            track_event::SLICE_BEGIN => *depth += 1,
            track_event::SLICE_END => *depth -= 1,
            _ => {}
        }
        assert!(*depth >= 0, "an end without a begin on track {}", event.track_uuid);
    }
    assert!(tracks.values().all(|(_, depth)| *depth == 0), "a slice stays open");
}

#[test]
fn slices_nest_on_every_track_and_are_complete() {
    let tables = everything();
    let (bytes, summary) = write_trace(&tables);
    let events = events(&packets(&bytes));
    assert_nested(&events);
    let begins = events.iter().filter(|(_, e)| e.kind == track_event::SLICE_BEGIN).count();
    assert_eq!(begins, tables.spans.len() + tables.slices.len());
    assert_eq!(summary.slices, begins as u64);
    assert_eq!(summary.unfinished, 1);
    assert_eq!(summary.losses, 1);
}

#[test]
fn flows_have_two_ends_and_are_limited_per_slice() {
    let tables = everything();
    let (bytes, summary) = write_trace(&tables);
    let mut ends: HashMap<u64, Vec<(u64, bool)>> = HashMap::new();
    for (time, event) in events(&packets(&bytes)) {
        assert!(event.flow_ids.len() + event.terminating_flow_ids.len() <= 32);
        event.flow_ids.iter().for_each(|id| ends.entry(*id).or_default().push((time, false)));
        event.terminating_flow_ids.iter().for_each(|id| ends.entry(*id).or_default().push((time, true)));
    }
    assert_eq!(ends.len() as u64, summary.flows);
    // 20 inserts with 3 links each, and 32 of the flush's 40 waiters.
    assert_eq!((summary.flows, summary.flows_left_out), (60 + 32, 8 + 1));
    for (id, mut ends) in ends {
        ends.sort_unstable();
        let [(begin, false), (end, last)] = ends[..] else { panic!("arrow {id}: {ends:?}") };
        assert_eq!(last, end > begin, "arrow {id} ends where it is later than it began, and only there");
    }
}

#[test]
fn annotations_describe_the_slice() {
    let (bytes, _) = write_trace(&inserts(2));
    let packets = packets(&bytes);
    let names = texts(&packets, interned_data::DEBUG_ANNOTATION_NAMES);
    let values = texts(&packets, interned_data::DEBUG_ANNOTATION_STRING_VALUES);
    let titles = texts(&packets, interned_data::EVENT_NAMES);
    let mut lines = Vec::new();
    for (time, event) in events(&packets) {
        if event.kind != track_event::SLICE_BEGIN || event.correlation_id != Some(2) {
            continue;
        }
        let notes = event.annotations.iter().map(|(name, value)| match value {
            Annotation::Number(x) => format!("{}={}", names[name], *x as i64),
            Annotation::Text(x) => format!("{}={x}", names[name]),
            Annotation::Interned(x) => format!("{}={:?}", names[name], values[x]),
        });
        lines.push(format!("@{time} {:?} {}", titles[&event.name_iid], notes.collect::<Vec<_>>().join(" ")));
    }
    let statement = r#"statement="INSERT INTO \"t<b>\" VALUES (?, ?) -- \u{1}\n'é""#;
    assert_eq!(
        lines,
        [
            format!(
                r#"@11000 "INSERT INTO \"t<b>\" VALUES (?, ?) -- \u{{1}}\n'é" span=5 {statement} operation=2 rows=0 bytes=4096 result=-5 flags="sync meta""#
            ),
            format!(
                r#"@11100 "pwrite64" span=6 {statement} operation=2 file="/tmp/a b.db" offset=4096 bytes=4096 result=-5 flags="sync meta" confidence="structural""#
            ),
            format!(
                r#"@11300 "request" span=8 {statement} operation=2 disk="loop0" sector=64 bytes=4096 result=-5 flags="sync meta" charged_to=operation 2 100.0 % by page (structural) confidence="structural""#
            ),
            r#"@11000 "Database: cpu" operation=2 waits_for_span=8"#.into(),
            r#"@11300 "Driver: device" operation=2 waits_for_span=8"#.into(),
        ]
    );
}

#[test]
fn driver_commands_name_requests_or_have_own_row() {
    let mut made = inserts(1);
    let request = made.spans.iter().find(|s| s.layer == Layer::Driver).unwrap().clone();
    let sent = |command, name: &'static str, start_ns, end_ns, error: Option<&str>| DriverCommand {
        command,
        confidence: None,
        protocol: "mmc".into(),
        name: name.into(),
        disk: request.disk,
        lba: command.map(|_| 64),
        blocks: command.map(|_| 8),
        bytes: 0,
        start_ns,
        end_ns,
        timed_out: false,
        error: error.map(Into::into),
    };
    made.driver_commands = vec![
        sent(Some(request.id), "CMD25", request.start_ns, Some(request.start_ns + 5), Some("ETIMEDOUT")),
        sent(Some(request.id), "CMD25", request.start_ns + 6, request.end_ns, None),
        sent(None, "CMD13", request.start_ns + 1, Some(request.start_ns + 3), None),
        sent(None, "CMD6", request.start_ns + 2, None, None),
    ];
    let (bytes, summary) = write_trace(&made);
    let packets = packets(&bytes);
    let all = events(&packets);
    assert_nested(&all);
    let titles = texts(&packets, interned_data::EVENT_NAMES);
    let values = texts(&packets, interned_data::DEBUG_ANNOTATION_STRING_VALUES);
    let begun: Vec<_> = all.iter().filter(|(_, e)| e.kind == track_event::SLICE_BEGIN).collect();
    let named = |name: &str| begun.iter().filter(|(_, e)| titles[&e.name_iid] == name).collect::<Vec<_>>();
    let of_request = named("CMD25 lba 64 + 8");
    assert_eq!(of_request.len(), 1, "the request's own slice, once");
    assert!(
        of_request[0]
            .1
            .annotations
            .iter()
            .any(|(_, v)| matches!(v, Annotation::Interned(x) if values[x] == "ETIMEDOUT"))
    );
    let (status, flush) = (named("CMD13"), named("CMD6"));
    assert!(status.len() == 1 && flush.len() == 1 && status[0].1.track_uuid != of_request[0].1.track_uuid);
    assert_ne!(status[0].1.track_uuid, flush[0].1.track_uuid, "they overlap: a lane each");
    assert_eq!(summary.slices as usize, made.spans.len() + made.slices.len() + 2);
    assert_eq!(summary.unfinished, 1);
}

#[test]
fn commands_in_flight_are_counted() {
    let (bytes, summary) = write_trace(&inserts(3));
    let counts: Vec<(u64, u64)> =
        events(&packets(&bytes)).into_iter().filter_map(|(t, e)| Some((t, e.counter_value?))).collect();
    assert_eq!(counts, [(10_300, 1), (11_300, 2), (11_600, 1), (12_300, 2), (12_600, 1), (13_600, 0)]);
    assert_eq!(summary.counts, 6);
}

#[test]
fn tracks_are_grouped_by_process_and_disk_in_layer_order() {
    let (bytes, _) = write_trace(&inserts(2));
    let packets = packets(&bytes);
    let tracks = packets.iter().filter_map(|p| match &p.body {
        Body::Track(t) => Some((t.uuid, t.clone())),
        _ => None,
    });
    let tracks: BTreeMap<u64, _> = tracks.collect();
    let mut paths: Vec<(Vec<(u64, String)>, bool)> = Vec::new();
    for track in tracks.values() {
        let (mut path, mut at) = (Vec::new(), Some(track));
        while let Some(track) = at {
            path.insert(0, (track.rank, track.name.clone()));
            at = tracks.get(&track.parent_uuid);
        }
        paths.push((path, track.counter));
    }
    paths.sort();
    let paths: Vec<String> =
        paths.into_iter().map(|(p, _)| p.into_iter().map(|(_, name)| name).collect::<Vec<_>>().join("/")).collect();
    assert_eq!(
        paths,
        [
            "sqlite3",
            "sqlite3/sqlite3",
            "sqlite3/sqlite3/Database",
            "sqlite3/sqlite3/Syscall",
            "sqlite3/sqlite3/Where the time goes",
            "Disk loop0 (7:0)",
            "Disk loop0 (7:0)/Block",
            "Disk loop0 (7:0)/Block",
            "Disk loop0 (7:0)/Driver",
            "Disk loop0 (7:0)/Driver",
            "Disk loop0 (7:0)/commands in flight",
        ]
    );
}

#[test]
fn the_clock_packet_is_first_and_texts_are_interned_once() {
    let (bytes, _) = write_trace(&everything());
    let packets = packets(&bytes);
    assert_eq!(packets[0].sequence_flags, 1);
    let Body::Clocks(clocks) = &packets[1].body else { panic!("{:?}", packets[1]) };
    assert_eq!(clocks[..2], [(clock_snapshot::BOOTTIME, 1_000), (clock_snapshot::MONOTONIC, 900)]);
    let mut seen = HashSet::new();
    for (field, iid, _) in packets.iter().flat_map(|p| &p.interned) {
        assert!(seen.insert((*field, *iid)), "text {iid} of field {field} is interned twice");
    }
}

#[test]
fn empty_tables_give_trace_without_slices() {
    let mut bytes = Vec::new();
    assert_eq!(export(&Tables::default(), &mut bytes).unwrap(), Summary::default());
    assert_eq!(packets(&bytes).len(), 1);
}

#[test]
fn truncated_trace_is_read_to_cut() {
    let (bytes, _) = write_trace(&inserts(1));
    let whole = packets(&bytes).len();
    for cut in 0..bytes.len() {
        let read: Vec<_> = Reader::new(&bytes[..cut]).collect();
        let good = read.iter().filter(|p| p.is_ok()).count();
        assert!(good < whole && read.len() - good <= 1, "cut at {cut}");
    }
}

proptest! {
    #[test]
    fn arbitrary_spans_nest(spans in prop::collection::vec((0_usize..8, 0_u64..50, prop::option::of(0_u64..60), any::<bool>()), 0..60)) {
        let mut tables = Made::default();
        for (layer, start, end, thread) in &spans {
            let id = tables.span(model::Layer::ALL[*layer], "x", *start, *end);
            if !thread {
                tables.spans[id as usize - 1].tid = 0;
            }
        }
        let (bytes, summary) = write_trace(&tables);
        let events = events(&packets(&bytes));
        assert_nested(&events);
        prop_assert_eq!(summary.slices, spans.len() as u64);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes: Vec<u8>) {
        for _ in Reader::new(&bytes) {}
    }
}
