//! Small traces whose truth is known, each for a class of what other tools write.

use super::*;
use analysis::Summary as Shown;
use formats::perfetto::wire::Encode as _;
use model::table::{DriverCommand, Operation, Span};
use model::{LossSource, SpanFlag};

/// An imported trace.
struct ImportedTrace {
    done: ImportResult,
    shown: Shown,
    archive: Archive,
    _directory: tempfile::TempDir,
}

impl ImportedTrace {
    fn from_trace(trace: &[u8]) -> Self {
        Self::try_from_trace(trace).unwrap()
    }

    fn try_from_trace(trace: &[u8]) -> Result<Self> {
        let directory = tempfile::tempdir().unwrap();
        let (file, output) = (directory.path().join("t.txt"), directory.path().join("t.fathom"));
        std::fs::write(&file, trace).unwrap();
        let done = import_to(&file, &output)?;
        let archive = Archive::open(&output).unwrap();
        let shown = analysis::summarise_archive(&archive).unwrap();
        Ok(Self { done, shown, archive, _directory: directory })
    }

    /// Marks that are operations: name and length in us.
    fn marks(&self) -> Vec<(String, u64)> {
        let spans: Vec<Span> = self.archive.rows().unwrap();
        let name = |id: u64| spans.iter().find(|s| s.id == id).map(|s| s.flags.to_string()).unwrap_or_default();
        let all: Vec<Operation> = self.archive.rows().unwrap();
        let mut all: Vec<_> =
            all.iter().map(|o| (o.start_ns, name(o.span), (o.end_ns.unwrap() - o.start_ns) / 1000)).collect();
        all.sort();
        all.into_iter().map(|(_, name, us)| (name, us)).collect()
    }

    /// Commands of the device: kind, flags, bytes, how long they took in us, and whether they have an end.
    fn commands(&self) -> Vec<(String, String, u64, Option<u64>, bool)> {
        let spans: Vec<Span> = self.archive.rows().unwrap();
        let mut all: Vec<&Span> = spans.iter().filter(|s| s.layer == Layer::Driver).collect();
        all.sort_by_key(|s| (s.start_ns, s.id));
        let us = |s: &&Span| s.took_ns().map(|ns| ns / 1000);
        all.iter().map(|s| (s.kind.to_string(), s.flags.to_string(), s.bytes, us(s), s.end_ns.is_some())).collect()
    }

    /// How long each command took in us, of those with an end.
    fn took(&self) -> Vec<Option<u64>> {
        self.commands().iter().filter(|(.., ended)| *ended).map(|(_, _, _, us, _)| *us).collect()
    }

    fn coverage(&self, probe: &str) -> Coverage {
        let all: Vec<Coverage> = self.archive.rows().unwrap();
        all.into_iter().find(|row| row.probe == probe).unwrap()
    }

    fn text(&self) -> String {
        analysis::show::text(&self.shown)
    }
}

fn import_to(file: &Path, output: &Path) -> Result<ImportResult> {
    let request = Import {
        files: vec![file.into()],
        output: output.into(),
        keep_sql: false,
        machine: None,
        facts: Environment::new(),
    };
    import(&request, &Context::silent(), &|_| ())
}

/// Lines of tracefs: task and thread, time in us after 100 s, event.
fn trace_lines(events: &[(&str, u64, &str)]) -> Vec<u8> {
    let mut text = String::from("# tracer: nop\n");
    for (task, us, event) in events {
        text.push_str(&format!(" {task} [000] d..1. {}.{:06}: {event}\n", 100 + us / 1_000_000, us % 1_000_000));
    }
    text.into_bytes()
}

const APP_TASK: &str = "app-100";
const IDLE_TASK: &str = "<idle>-0";
const SWITCH_OUT: &str = "sched_switch: prev_comm=app prev_pid=100 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120";
const SWITCH_IN: &str = "sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=app next_pid=100 next_prio=120";
const WAKING_EVENT: &str = "sched_waking: comm=app pid=100 prio=120 target_cpu=000";

#[test]
fn mark_has_its_own_end_whatever_comes_last() {
    let begin = |at, name: &'static str| (APP_TASK, at, name);
    let end = |at| (APP_TASK, at, "tracing_mark_write: E|100");
    let nested =
        [begin(0, "print: B|100|upgrade"), begin(1000, "tracing_mark_write: B|100|open"), end(2000), end(5_000_000)];
    let of = |events: &[(&str, u64, &str)]| ImportedTrace::from_trace(&trace_lines(events)).marks();
    assert_eq!(of(&nested), [("upgrade".into(), 5_000_000), ("open".into(), 1000)]);
    let one = [begin(100, "tracing_mark_write: B|100|outer"), end(1100)];
    assert_eq!(of(&one), [("outer".into(), 1000)]);
    let counter = [one[0], one[1], (APP_TASK, 1100, "tracing_mark_write: C|100|x|1")];
    assert_eq!(of(&counter), [("outer".into(), 1000)]);
    let slept = [
        begin(0, "tracing_mark_write: B|100|save"),
        (APP_TASK, 100_000, SWITCH_OUT),
        (IDLE_TASK, 4_900_000, WAKING_EVENT),
        (IDLE_TASK, 4_900_010, SWITCH_IN),
        end(5_000_000),
    ];
    assert_eq!(of(&slept), [("save".into(), 5_000_000)]);
}

#[test]
fn mark_at_the_end_of_a_perfetto_trace_has_its_own_end() {
    let mut trace = Vec::new();
    trace.message(1, |packet| {
        packet.message(1, |bundle| {
            bundle.varint(1, 0);
            for (at, text) in [(100_000_000_000, "B|100|save"), (105_000_000_000, "E|100")] {
                bundle.message(2, |event| {
                    event.varint(1, at);
                    event.varint(2, 100);
                    event.message(3, |print| {
                        print.varint(1, 1);
                        print.bytes(2, text.as_bytes());
                    });
                });
            }
        });
    });
    assert_eq!(ImportedTrace::from_trace(&trace).marks(), [("save".into(), 5_000_000)]);
}

#[test]
fn deeply_nested_mark_keeps_its_own_end() {
    const MARK_COUNT: u64 = 70;
    let begins: Vec<String> = (0..MARK_COUNT).map(|n| format!("tracing_mark_write: B|100|m{n}")).collect();
    let mut events: Vec<(&str, u64, &str)> =
        begins.iter().zip(0..).map(|(text, n)| (APP_TASK, n, text.as_str())).collect();
    events.extend((0..MARK_COUNT).map(|n| (APP_TASK, 1000 + n, "tracing_mark_write: E|100")));
    let expected: Vec<(String, u64)> =
        (0..MARK_COUNT).map(|n| (format!("m{n}"), 1000 + MARK_COUNT - 1 - 2 * n)).collect();
    let read = ImportedTrace::from_trace(&trace_lines(&events));
    assert_eq!(read.marks(), expected);
    assert!(read.done.left_out.is_empty(), "{:?}", read.done.left_out);
}

#[test]
fn texts_that_are_not_marks_are_counted() {
    let read = ImportedTrace::from_trace(&trace_lines(&[
        (APP_TASK, 0, "tracing_mark_write: E|100"),
        (APP_TASK, 1, "tracing_mark_write: S|100|load|7"),
        (APP_TASK, 2, "tracing_mark_write: C|100|x|1"),
        (APP_TASK, 3, "tracing_mark_write: B|100|whole"),
        (APP_TASK, 4, "tracing_mark_write: I|100|now"),
        (APP_TASK, 5, "tracing_mark_write: E|100"),
        (APP_TASK, 6, "tracing_mark_write: F|100|load|7"),
        (APP_TASK, 7, "tracing_mark_write: B|100|open"),
        (APP_TASK, 8, "tracing_mark_write: hello"),
        (APP_TASK, 9, "kmalloc: x"),
    ]));
    let left: Vec<(&str, u64)> = read.done.left_out.iter().map(|(name, n)| (name.as_str(), *n)).collect();
    assert_eq!(
        left,
        [
            ("kmalloc", 1),
            ("print: asynchronous marks (S, F, G, H)", 2),
            ("print: begins of marks without an end", 1),
            ("print: counters (C)", 1),
            ("print: ends of marks without a begin", 1),
            ("print: instants (I, N)", 1),
            ("print: other texts", 1),
        ]
    );
    assert_eq!((read.done.taken, read.marks()), (2, vec![("whole".into(), 2)]));
    let stored = read.shown.environment["trace.left_out"].value.clone().unwrap();
    assert!(
        stored.starts_with("print: asynchronous marks (S, F, G, H) 2, ") && stored.contains("kmalloc 1"),
        "{stored}"
    );
}

#[test]
fn flush_whose_sector_is_all_ones_completes() {
    let read = ImportedTrace::from_trace(&trace_lines(&[
        (APP_TASK, 1000, "block_rq_issue: 8,0 FF 0 () 18446744073709551615 + 0 [app]"),
        (IDLE_TASK, 2000, "block_rq_complete: 8,0 FF () 18446744073709551615 + 0 [0]"),
        (APP_TASK, 3000, "block_rq_issue: 8,0 R 4096 () 4096 + 8 [app]"),
        (IDLE_TASK, 3500, "block_rq_complete: 8,0 R () 4096 + 8 [0]"),
    ]));
    let kinds: Vec<_> = read.commands().iter().map(|c| (c.0.clone(), c.2, c.3)).collect();
    assert_eq!(kinds, [("flush".into(), 0, Some(1000)), ("command".into(), 4096, Some(500))]);
}

/// Before Linux 4.8 a flush was a write without sectors, and before 4.12 no request of a file system had bytes.
#[test]
fn requests_of_old_kernels_keep_their_kind_and_bytes() {
    let read = ImportedTrace::from_trace(&trace_lines(&[
        ("jbd2/x-200", 0, "block_bio_queue: 8,0 WS 3427120 + 16 [jbd2/x]"),
        ("jbd2/x-200", 10, "block_rq_issue: 8,0 WS 0 () 3427120 + 16 [mmcqd/0]"),
        ("mmcqd/0-81", 9181, "block_rq_complete: 8,0 WS () 3427120 + 16 [0]"),
        ("mmcqd/0-81", 10_853, "block_rq_issue: 8,0 FWS 0 () 18446744073709551615 + 0 [mmcqd/0]"),
        ("mmcqd/0-81", 11_853, "block_rq_complete: 8,0 FWS () 18446744073709551615 + 0 [0]"),
    ]));
    let kinds: Vec<_> = read.commands().iter().map(|c| (c.0.clone(), c.2, c.3)).collect();
    assert_eq!(kinds, [("command".into(), 8192, Some(9171)), ("flush".into(), 0, Some(1000))]);
    assert_eq!(read.shown.relations.get("carries").copied().unwrap_or(0), 3, "its bio is carried too");
}

#[test]
fn passed_through_commands_complete() {
    let read = ImportedTrace::from_trace(&trace_lines(&[
        (APP_TASK, 0, "block_rq_issue: 8,0 N 0 () 0 + 0 [kworker/u16:9]"),
        (APP_TASK, 10, "block_rq_issue: 8,0 N 36 (12 00 00 00 24 00) 0 + 0 [app]"),
        (IDLE_TASK, 8851, "block_rq_complete: 8,0 N () 18446744073709551615 + 0 [0]"),
        (IDLE_TASK, 9000, "block_rq_complete: 8,0 N (12 00 00 00 24 00) 0 + 0 [0]"),
    ]));
    assert_eq!(read.took(), [Some(8851), Some(8990)]);
    assert_eq!(read.commands().iter().map(|c| c.2).sum::<u64>(), 36);
    assert_eq!(read.shown.device_commands.incomplete, 0);
}

#[test]
fn minus_one_is_read_as_an_error() {
    let read = ImportedTrace::from_trace(&trace_lines(&[
        (APP_TASK, 0, "block_rq_issue: 8,0 R 4096 () 4096 + 8 [my app: x]"),
        (IDLE_TASK, 500, "block_rq_complete: 8,0 R () 4096 + 8 [-1]"),
    ]));
    let spans: Vec<Span> = read.archive.rows().unwrap();
    assert_eq!(spans.iter().filter_map(|s| s.result).collect::<Vec<_>>(), [-1]);
}

#[test]
fn command_without_an_issue_has_no_duration() {
    // The completion is another command's.
    let read = ImportedTrace::from_trace(&trace_lines(&[
        (APP_TASK, 0, "block_rq_issue: 8,0 WS 8192 () 184067232 + 16 [app]"),
        (APP_TASK, 90_000_000, "block_rq_complete: 8,0 R () 184067232 + 16 [0]"),
    ]));
    assert_eq!(read.took(), [None]);
    let disk = &read.shown.device_commands.by_disk["8:0"];
    assert_eq!((disk.total, disk.incomplete, disk.untimed), (2, 1, 1));
    let completed: u64 = disk.times.values().map(|t| t.completed).sum();
    assert_eq!((completed, disk.depth_max), (0, 0));
    // By the clocks of its two CPUs, it completed before it was issued.
    let text = "a-1 [000] 100.000500: block_rq_issue: 8,0 WS 4096 () 2048 + 8 [a]\n\
                b-2 [001] 100.000400: block_rq_complete: 8,0 WS () 2048 + 8 [0]\n\
                a-1 [000] 100.001000: block_rq_issue: 8,0 WS 4096 () 2056 + 8 [a]\n\
                b-2 [001] 100.001300: block_rq_complete: 8,0 WS () 2056 + 8 [0]\n";
    let read = ImportedTrace::from_trace(text.as_bytes());
    assert_eq!(read.took(), [None, Some(300)]);
    assert!(read.commands()[0].1.ends_with(SpanFlag::Untimed.name()), "{:?}", read.commands());
    let times = &read.shown.device_commands.by_disk["8:0"].times["write"];
    assert_eq!((times.completed, times.issue_to_complete_ns.p50), (1, 300_000));
}

const NVME_EVENTS: [(&str, u64, &str); 6] = [
    (
        APP_TASK,
        100,
        "nvme_setup_cmd: nvme0: disk=nvme0n1, qid=1, cmdid=83, nsid=1, flags=0x0, meta=0x0, cmd=(nvme_cmd_write slba=2048, len=7, ctrl=0x0, dsmgmt=0, reftag=0)",
    ),
    (
        "app-101",
        150,
        "nvme_setup_cmd: nvme0: disk=nvme0n1, qid=2, cmdid=83, nsid=1, flags=0x0, meta=0x0, cmd=(nvme_cmd_read slba=4096, len=7, ctrl=0x0, dsmgmt=0, reftag=0)",
    ),
    (
        IDLE_TASK,
        250,
        "nvme_complete_rq: nvme0: disk=nvme0n1, qid=2, cmdid=83, res=0x0, retries=0, flags=0x0, status=0x0",
    ),
    (
        IDLE_TASK,
        600,
        "nvme_complete_rq: nvme0: disk=nvme0n1, qid=1, cmdid=83, res=0x0, retries=0, flags=0x0, status=0x0",
    ),
    (
        APP_TASK,
        700,
        "nvme_setup_cmd: nvme0: qid=0, cmdid=84, nsid=0, flags=0x0, meta=0x0, cmd=(nvme_admin_identify cns=1, ctrlid=0)",
    ),
    (IDLE_TASK, 1700, "nvme_complete_rq: nvme0: qid=0, cmdid=84, res=0x0, retries=0, flags=0x0, status=0x0"),
];

#[test]
fn nvme_commands_name_their_disk() {
    let read = ImportedTrace::from_trace(&trace_lines(&NVME_EVENTS));
    let commands: Vec<(String, &str, u64)> = read
        .shown
        .driver_commands
        .iter()
        .map(|c| (c.disk.clone().unwrap_or_default(), c.name.as_str(), c.count))
        .collect();
    let expected = [("", "Identify", 1), ("nvme0n1", "Read", 1), ("nvme0n1", "Write", 1)];
    let mut sorted: Vec<_> = commands.iter().map(|(disk, name, n)| (disk.as_str(), *name, *n)).collect();
    sorted.sort();
    assert_eq!(sorted, expected);
    // With its request in the trace, the disk has its own number, and that name.
    let with_request = [
        NVME_EVENTS[0],
        (APP_TASK, 101, "block_rq_issue: 259,3 WS 4096 () 2048 + 8 [app]"),
        (IDLE_TASK, 590, "block_rq_complete: 259,3 WS () 2048 + 8 [0]"),
        NVME_EVENTS[3],
    ];
    let read = ImportedTrace::from_trace(&trace_lines(&with_request));
    let disks: Vec<Disk> = read.archive.rows().unwrap();
    assert_eq!(disks.iter().map(|d| (d.dev, d.name.as_str())).collect::<Vec<_>>(), [(Dev::new(259, 3).0, "nvme0n1")]);
    let sent: Vec<DriverCommand> = read.archive.rows().unwrap();
    assert!(sent.iter().all(|c| c.disk == Some(Dev::new(259, 3).0) && c.command.is_some()), "{sent:?}");
}

/// `trace-cmd report -R`, and marks whose writer's name the kernel hid.
#[test]
fn raw_fields_and_hidden_names_are_read() {
    let raw = "version = 6\ncpus=1\n\
        \x20  app-100   [000]   100.000100: print:                0xffff: B|100|work\n\
        \x20  app-100   [000]   100.000200: sched_switch:          prev_comm=app prev_pid=100 prev_prio=120 prev_state=1 next_comm=swapper/0 next_pid=0 next_prio=120\n\
        <idle>-0     [000]   100.000900: sched_switch:          prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=0 next_comm=app next_pid=100 next_prio=120\n\
        \x20  app-100   [000]   100.001000: print:                ip=0xffffffff8119b3b9 buf=E\n";
    let read = ImportedTrace::from_trace(raw.as_bytes());
    assert_eq!(read.marks(), [("work".into(), 900)]);
    let switch = read.coverage("sched_switch");
    assert_eq!((switch.attached, switch.hits), (true, Some(2)), "{switch:?}");
    let hidden = "app-100 [000] 100.000100: 0: B|100|outer\napp-100 [000] 100.001100: 0: E\n";
    assert_eq!(ImportedTrace::from_trace(hidden.as_bytes()).marks(), [("outer".into(), 1000)]);
}

#[test]
fn events_that_cannot_be_read_are_not_called_absent() {
    let read = ImportedTrace::from_trace(&trace_lines(&[
        (APP_TASK, 0, "sched_switch: app 100 runs no more"),
        (APP_TASK, 10, "sched_switch: app 100 runs no more"),
        (APP_TASK, 20, "block_rq_issue: 8,0 WS 4096 () 2048 + 8 [app]"),
        (APP_TASK, 25, "block_rq_issue: 8,0 WS"),
        (IDLE_TASK, 30, "block_rq_complete: 8,0 WS () 2048 + 8 [0]"),
    ]));
    assert_eq!(read.done.unread, [("sched_switch".into(), 2), ("block_rq_issue".into(), 1)]);
    let [switch, issue, waking] = ["sched_switch", "rq_issue", "sched_waking"].map(|probe| read.coverage(probe));
    assert_eq!((switch.attached, switch.absence), (false, Some(Absence::Unreadable)), "{switch:?}");
    assert!(switch.how.starts_with("2 events sched_switch in the trace"), "{switch:?}");
    assert!(issue.attached && issue.how.ends_with("1 event could not be read"), "{issue:?}");
    assert!(waking.how.starts_with("none in the trace"), "{waking:?}");
    let lost: Vec<_> =
        read.shown.loss.intervals.iter().map(|l| (l.source.as_str(), l.program.as_deref(), l.events)).collect();
    let source = LossSource::Unreadable.name();
    assert_eq!(lost, [(source, Some("sched_switch"), Some(2)), (source, Some("block_rq_issue"), Some(1))]);
    let text = read.text();
    assert!(
        !text.contains("No losses") && text.contains("not readable of the imported trace: sched_switch 2"),
        "{text}"
    );
    // If nothing at all can be read, there is no archive.
    let none = ImportedTrace::try_from_trace(&trace_lines(&[(APP_TASK, 0, "sched_switch: app 100 runs no more")]));
    let why = none.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(why.contains("sched_switch (not readable) 1"), "{why}");
}

#[test]
fn nothing_compared_is_not_called_equal() {
    for events in [
        &[(APP_TASK, 0, "tracing_mark_write: B|100|x"), (APP_TASK, 9, "tracing_mark_write: E")][..],
        &[
            (APP_TASK, 0, "block_rq_issue: 8,0 WS 4096 () 2048 + 8 [a]"),
            (IDLE_TASK, 9, "block_rq_complete: 8,0 WS () 2048 + 8 [0]"),
        ],
    ] {
        let read = ImportedTrace::from_trace(&trace_lines(events));
        assert_eq!(read.shown.completeness.state.name(), "not checked", "{:?}", read.shown.completeness);
        assert!(!read.text().contains("matches each disk"), "{}", read.text());
    }
}

/// Other columns, flags and ends of parts: these were read well, and stay so.
#[test]
fn other_forms_of_lines_are_read() {
    let rt = "# tracer: nop\n#  TASK-PID    CPU#   |||||||      TIMESTAMP  FUNCTION\n\
        app-100     [000] d...1.. 100.000100: block_bio_queue: 8,0 WS 2048 + 8 [app]\n\
        app-100     [000] d...1.. 100.000200: block_rq_issue: 8,0 WS 4096 () 2048 + 8 [app]\n\
        <idle>-0      [000] d.h.2.. 100.001200: block_rq_complete: 8,0 WS () 2048 + 8 [0]\n";
    let tgid = "#           TASK-PID    TGID   CPU#  ||||    TIMESTAMP  FUNCTION\n\
        app-100   (  100) [000] d..1.   100.000100: block_bio_queue: 8,0 WS 2048 + 8 [app]\n\
        app-100   (-----) [000] d..1.   100.000200: block_rq_issue: 8,0 WS 4096 () 2048 + 8 none,0,0 [app]\n\
        <idle>-0     (-----) [000] d.h2.   100.001200: block_rq_complete: 8,0 WS () 2048 + 8 none,0,0 [0]\n";
    for text in [rt, tgid] {
        let read = ImportedTrace::from_trace(text.as_bytes());
        assert_eq!((read.took(), read.done.taken), (vec![Some(1000)], 3), "{text}");
    }
    let marks = "app-100   [000]   100.000100: tracing_mark_write: B|100|outer\n\
        app-100   [000]   100.001100: tracing_mark_write: E\n\
        app-100   [000]   100.002000: tracing_mark_write: B|100|outer\n\
        app-100   [000]   100.003000: tracing_mark_write: E|100\n";
    assert_eq!(ImportedTrace::from_trace(marks.as_bytes()).marks(), [("outer".into(), 1000), ("outer".into(), 1000)]);
    let parts = ImportedTrace::from_trace(&trace_lines(&[
        (APP_TASK, 0, "block_rq_issue: 8,0 W 1048576 () 8192 + 2048 [app]"),
        (IDLE_TASK, 500, "block_rq_complete: 8,0 W () 8192 + 1024 [0]"),
        (IDLE_TASK, 1500, "block_rq_complete: 8,0 W () 9216 + 1024 [0]"),
        (APP_TASK, 2000, "block_rq_issue: 8,0 D 0 () 65536 + 8192 [app]"),
        (IDLE_TASK, 2500, "block_rq_complete: 8,0 D () 65536 + 8192 [0]"),
        (APP_TASK, 3000, "block_rq_issue: 8,0 FWFS 4096 () 2048 + 8 [app]"),
        (IDLE_TASK, 3800, "block_rq_complete: 8,0 FWFS () 2048 + 8 [0]"),
    ]));
    assert_eq!(parts.took(), [Some(1500), Some(500), Some(800)]);
}

#[test]
fn failed_import_keeps_the_existing_archive() {
    let directory = tempfile::tempdir().unwrap();
    let (file, output) = (directory.path().join("t.txt"), directory.path().join("t.fathom"));
    let names = || {
        let mut all: Vec<_> = directory.path().read_dir().unwrap().map(|e| e.unwrap().file_name()).collect();
        all.sort();
        all
    };
    let mark = |name: &str| format!("a-1 [000] 1.000001: print: B|1|{name}\na-1 [000] 1.000002: print: E\n");
    let stored = |path: &Path| {
        analysis::summarise_archive(&Archive::open(path).unwrap()).unwrap().operations[0].statement.clone()
    };
    for name in ["first", "second"] {
        std::fs::write(&file, mark(name)).unwrap();
        import_to(&file, &output).unwrap();
    }
    std::fs::write(&file, "a-1 [000] 1.000001: kmalloc: x\n").unwrap();
    import_to(&file, &output).unwrap_err();
    assert_eq!(names(), ["t.fathom", "t.fathom.old", "t.txt"]);
    let old = directory.path().join("t.fathom.old");
    assert_eq!([stored(&output), stored(&old)], ["second", "first"]);
    // What a killed import left does not matter, and a directory of that name that is no archive is not touched.
    let left = directory.path().join("t.fathom.importing");
    std::fs::write(&file, mark("third")).unwrap();
    std::fs::create_dir(&left).unwrap();
    std::fs::write(left.join("mine"), "x").unwrap();
    import_to(&file, &output).unwrap_err();
    assert!(left.join("mine").exists() && stored(&output) == "second");
    std::fs::remove_dir_all(&left).unwrap();
    Archive::create(&left, &Meta::new(archive::ArchiveKind::Trace, 1, Vec::new()), false).unwrap();
    import_to(&file, &output).unwrap();
    assert_eq!((names().len(), stored(&output).as_str(), stored(&old).as_str()), (3, "third", "second"));
}
