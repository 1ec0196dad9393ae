//! Foreign traces: trace.dat files, and pages of ftrace, from bytes to the linker's events.

use formats::ftrace::calls::Machine;
use formats::ftrace::content::{ReadError, TraceContent};
use formats::ftrace::decoder::{Decoder, Kind};
use formats::ftrace::format::Format;
use formats::ftrace::merge::Clock;
use formats::ftrace::page::Layout;
use formats::ftrace::run::{self, TraceBuffer};
use formats::ftrace::text;
use formats::ftrace::translate::TraceContext;
use formats::perfetto::wire::Encode as _;
use formats::tracedat::TraceDat;
use formats::{blktrace, perfetto};
use model::Event;
use std::borrow::Cow;

const PAGE_HEADER_FORMAT: &str = "field: u64 timestamp;offset:0;size:8;signed:0;\nfield: local_t commit;offset:8;size:8;signed:1;\n\
    field: char data;offset:16;size:4080;signed:0;\n";
const PAGE_BYTES: usize = 4096;

fn trace_context() -> TraceContext {
    TraceContext {
        machine: Machine::X86_64,
        names: vec![(50, "jbd2/vda-8".into()), (10, "app".into())],
        tasks: Vec::new(),
        members: Vec::new(),
        partitions: Vec::new(),
        open: Vec::new(),
        tracer: None,
        marking: Vec::new(),
    }
}

/// Every kind of event, each with all its fields one after the other: numbers of eight bytes, a text of sixteen.
fn event_formats() -> Vec<Format> {
    let of = |(id, kind): (usize, &Kind)| {
        let mut text = format!(
            "name: {}\nID: {}\nfield:unsigned short common_type;offset:0;size:2;signed:0;\n\
             field:int common_pid;offset:4;size:4;signed:1;\n",
            kind.name(),
            id + 1
        );
        let mut at = 8;
        for name in kind.numbers() {
            let (of, size) = if *name == "args" { ("unsigned long args[6]", 48) } else { ("u64", 8) };
            let declared = if size == 48 { of.to_owned() } else { format!("{of} {name}") };
            text += &format!("field:{declared};offset:{at};size:{size};signed:0;\n");
            at += size;
        }
        if let Some(name) = kind.text() {
            text += &format!("field:char {name}[16];offset:{at};size:16;signed:0;\n");
        }
        Format::parse("x", &text).expect("a format that was just made")
    };
    Kind::ALL.iter().enumerate().map(of).collect()
}

/// An event as the kernel would store it: what, which thread, its numbers, its text.
type Line = (Kind, u32, &'static [u64], &'static str);

/// What a write, its fsync, the commit and its flushes leave.
const STORY_LINES: &[Line] = &[
    (Kind::NewTask, 1, &[10, 0], "app"),
    (Kind::Step, 10, &[7], "INSERT"),
    (Kind::SysEnter, 10, &[257, 0, 0, 2, 0, 0, 0], ""),
    (Kind::Handle, 10, &[7 << 20, 5], ""),
    (Kind::SysExit, 10, &[257, 4], ""),
    (Kind::SysEnter, 10, &[18, 4, 0, 4096, 0, 0, 0], ""),
    (Kind::DaWriteBegin, 10, &[7 << 20, 12, 0, 4096], ""),
    (Kind::SysExit, 10, &[18, 4096], ""),
    (Kind::SysEnter, 10, &[74, 4, 0, 0, 0, 0, 0], ""),
    (Kind::SyncEnter, 10, &[7 << 20, 12], ""),
    (Kind::WritePages, 10, &[7 << 20, 12], ""),
    (Kind::ExtentKept, 10, &[7 << 20, 12, 0, 1, 100, 1], ""),
    (Kind::BioQueue, 10, &[7 << 20, 800, 8], "WS"),
    (Kind::GetRequest, 10, &[7 << 20, 800, 8], "WS"),
    (Kind::RqInsert, 10, &[7 << 20, 800, 8, 4096], "WS"),
    (Kind::RqIssue, 10, &[7 << 20, 800, 8, 4096], "WS"),
    (Kind::WritePagesDone, 10, &[7 << 20, 12], ""),
    (Kind::Switch, 10, &[10, 2, 0], "swapper"),
    (Kind::RqComplete, 0, &[7 << 20, 800, 8, 0], "WS"),
    (Kind::CommitBegin, 50, &[7 << 20, 5], ""),
    (Kind::BioQueue, 50, &[7 << 20, 9000, 8], "FWFSM"),
    (Kind::RqIssue, 50, &[7 << 20, 0, 0, 0], "FF"),
    (Kind::RqComplete, 0, &[7 << 20, u64::MAX, 0, 0], "FF"),
    (Kind::RqIssue, 50, &[7 << 20, 9000, 8, 4096], "WSM"),
    (Kind::RqComplete, 0, &[7 << 20, 9000, 8, 0], "WSM"),
    (Kind::RqIssue, 50, &[7 << 20, 0, 0, 0], "FF"),
    (Kind::RqComplete, 0, &[7 << 20, u64::MAX, 0, 0], "FF"),
    (Kind::RqComplete, 0, &[7 << 20, 9000, 0, 0], "WSM"),
    (Kind::DirtyBuffer, 50, &[7 << 20, 33, 4096], ""),
    (Kind::CommitEnd, 50, &[7 << 20, 5], ""),
    (Kind::Waking, 50, &[10], "app"),
    (Kind::Switch, 0, &[0, 0, 10], "app"),
    (Kind::SysExit, 10, &[74, 0], ""),
    (Kind::StepReturn, 10, &[101], ""),
    (Kind::Print, 10, &[], "B|10|mark"),
    (Kind::BioSplit, 10, &[7 << 20, 800, 804], "W"),
    (Kind::BioRemap, 10, &[8 << 20, 5, 8, 7 << 20, 800], "W"),
    (Kind::Print, 10, &[], "E"),
    (Kind::Exit, 10, &[10], "app"),
];

fn make_page() -> Vec<u8> {
    let mut data = Vec::new();
    for (kind, tid, numbers, text) in STORY_LINES {
        let id = Kind::ALL.iter().position(|k| k == kind).unwrap_or_default() as u16 + 1;
        let mut event = [&id.to_le_bytes()[..], &[0, 0], &tid.to_le_bytes()].concat();
        numbers.iter().for_each(|n| event.extend(n.to_le_bytes()));
        if kind.text().is_some() {
            let mut field = [0; 16];
            field[..text.len()].copy_from_slice(text.as_bytes());
            event.extend(field);
        }
        data.extend(((event.len() as u32 / 4) | (100 << 5)).to_le_bytes());
        data.extend(event);
    }
    let mut page = [&1000u64.to_le_bytes()[..], &(data.len() as u64).to_le_bytes(), &data].concat();
    assert!(page.len() <= PAGE_BYTES, "the story is longer than a page");
    page.resize(PAGE_BYTES, 0);
    page
}

pub fn page_seeds() -> Vec<Vec<u8>> {
    let layout = Layout::parse(PAGE_HEADER_FORMAT, PAGE_BYTES, false).expect("a sound header");
    let mut kinds = 0;
    let summary = translate_pages(&make_page(), layout, &mut |_| kinds += 1);
    assert_eq!(
        summary.taken.values().sum::<u64>(),
        STORY_LINES.len() as u64,
        "an event of the story is not understood"
    );
    assert!(kinds > 20, "the story becomes {kinds} events");
    vec![make_page(), [make_page(), make_page()].concat()]
}

fn translate_pages(bytes: &[u8], layout: Layout, sink: &mut dyn FnMut(&Event)) -> run::Summary {
    let decoder = Decoder::new(layout, &event_formats());
    let half = (bytes.len() / 2).next_multiple_of(PAGE_BYTES).min(bytes.len());
    let cpus = vec![(0, Cow::Borrowed(&bytes[..half])), (1, Cow::Borrowed(&bytes[half..]))];
    run::translate_buffers(
        &[TraceBuffer { decoder, layout, clock: Clock::NS, cpus, cut: 0 }],
        &trace_context(),
        &[],
        sink,
    )
}

/// Whatever the pages hold becomes events that go through the log unchanged.
pub fn check_pages(bytes: &[u8]) {
    let Some(layout) = Layout::parse(PAGE_HEADER_FORMAT, PAGE_BYTES, false) else { return };
    translate_pages(bytes, layout, &mut |event| {
        // The length of a text is known when it is stored.
        let (mut stored, mut again) = (Vec::new(), Vec::new());
        event.encode(&mut stored);
        let read = Event::decode(&stored).expect("it does not come back from the log");
        assert_eq!(read.header, event.header, "another event comes back from the log");
        read.encode(&mut again);
        assert_eq!(stored, again, "it is another one after the log");
    });
}

/// As trace-cmd writes version 6, around the same pages.
pub fn trace_dat_seeds() -> Vec<Vec<u8>> {
    let sized = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let mut file = [&b"\x17\x08\x44tracing6\0\0\x08"[..], &4096u32.to_le_bytes()].concat();
    file.extend(
        [b"header_page\0".to_vec(), sized(PAGE_HEADER_FORMAT), b"header_event\0".to_vec(), sized("x")].concat(),
    );
    file.extend(0u32.to_le_bytes());
    file.extend([&1u32.to_le_bytes()[..], b"block\0", &1u32.to_le_bytes()].concat());
    file.extend(sized(
        "name: block_rq_issue\nID: 16\nfield:unsigned short common_type;offset:0;size:2;signed:0;\n\
         field:int common_pid;offset:4;size:4;signed:1;\nfield:dev_t dev;offset:8;size:4;signed:0;\n",
    ));
    file.extend([0; 8]);
    file.extend(sized("50 jbd2/vda-8\n"));
    file.extend(1u32.to_le_bytes());
    file.extend([&b"options  \0"[..], &4u16.to_le_bytes(), &6u32.to_le_bytes(), b"[boot]", &[0, 0]].concat());
    file.extend(b"flyrecord\0");
    let data = file.len() + 16 + 14;
    file.extend([(data as u64).to_le_bytes(), (PAGE_BYTES as u64).to_le_bytes()].concat());
    file.extend(sized("[boot]"));
    file.extend(make_page());
    assert!(TraceDat::parse(&file).is_ok_and(|t| t.buffers[0].cpus[0].1.len() == PAGE_BYTES), "the seed is not read");
    vec![file]
}

/// What is read of a file is translated too.
pub fn check_trace_dat(bytes: &[u8]) {
    let Ok(trace) = TraceDat::parse(bytes) else { return };
    let Ok(parts) = run::trace_buffers(&trace) else { return };
    run::translate_buffers(&parts, &trace_context(), &trace.stats, &mut |_| ());
}

/// What is gathered of a file goes the way of pages.
fn check_gathered(read: Result<TraceContent, ReadError>) {
    if let Ok(trace) = read {
        run::translate_content(&trace, &trace_context(), &mut |_| ());
    }
}

/// The head of tracefs's `trace`, lines of each form, and one of each kind of event.
pub fn text_seeds() -> Vec<Vec<u8>> {
    const EVENT_LINES: &[&str] = &[
        "sys_enter: NR 1 (3, 7f12, 200, 0, 0, 0)",
        "sys_exit: NR 1 = 512",
        "sched_switch: prev_comm=a b prev_pid=7 prev_prio=120 prev_state=R+ ==> next_comm=c next_pid=8 next_prio=120",
        "sched_switch: a:7 [120] D ==> b:8 [120]",
        "sched_waking: comm=app pid=7 prio=120 target_cpu=001",
        "task_newtask: pid=9 comm=app clone_flags=1200011 oom_score_adj=0",
        "sched_process_fork: comm=app pid=7 child_comm=app child_pid=9",
        "sched_process_exec: filename=/bin/a pid=9 old_pid=9",
        "block_bio_queue: 8,0 WS 800 + 8 [app]",
        "block_split: 8,0 W 800 / 804 [app]",
        "block_bio_remap: 8,0 W 900 + 8 <- (254,1) 100",
        "block_getrq: 8,0 WS 800 + 8 [app]",
        "block_rq_issue: 8,0 WS 4096 () 800 + 8 0x2,0,4 [app]",
        "block_rq_issue: 8,0 FF 0 () 0 + 0 [app]",
        "block_rq_complete: 8,0 WS () 800 + 8 0x2,0,4 [-5]",
        "block_rq_complete: 8,0 FF () 18446744073709551615 + 0 [0]",
        "jbd2_start_commit: dev 8,0 transaction 5 sync 0",
        "jbd2_handle_start: dev 8,0 tid 5 type 1 line_no 2",
        "ext4_da_write_begin: dev 8,0 ino 12 pos 0 len 4096",
        "ext4_sync_file_enter: dev 8,0 ino 12 parent 2 datasync 1",
        "ext4_es_lookup_extent_exit: dev 8,0 ino 12 found 1 [0/1) 100 WR",
        "ext4_es_insert_extent: dev 8,0 ino 12 es [0/1) mapped 100 status W",
        "f2fs_write_begin: dev = (8,1), ino = 4, pos = 0, len = 1024, flags = 0",
        "mm_filemap_get_pages: dev=8:0 ino=c ofs=0-4095",
        "mm_filemap_add_to_page_cache: dev 8:0 ino c pfn=0x1 ofs=0 order=0",
        "block_dirty_buffer: 8,0 sector=33 size=4096",
        "tracing_mark_write: B|7|mark",
        "print: tracing_mark_write: E",
    ];
    let mut text = String::from("# tracer: nop\n# entries-in-buffer/entries-written: 28/30   #P:2\n");
    for (i, said) in EVENT_LINES.iter().enumerate() {
        text += &match i % 3 {
            0 => format!("             app-7   (    7) [000] d..2.  5.{i:06}: {said}\n"),
            1 => format!("box:  a b-7   [001]     5.{i:06}000: {said}\n"),
            _ => format!("app 7/7 [001] 5.{i:06}:    1 x:{said}\n"),
        };
    }
    text += "CPU:1 [LOST 3 EVENTS]\n app-7 [001] 6.0: sys_exit: NR 1 = 1\n";
    let read = text::read(text.as_bytes()).expect("the seed is no trace");
    let understood = read.left_out.is_empty() && read.unread.is_empty();
    assert!(understood, "lines of the seed are not understood: {:?} {:?}", read.left_out, read.unread);
    vec![text.into_bytes()]
}

pub fn check_text(bytes: &[u8]) {
    text::is(bytes);
    check_gathered(text::read(bytes));
}

/// The story as blktrace's records, as far as it is about the disk.
pub fn blktrace_seeds() -> Vec<Vec<u8>> {
    let mut file = Vec::new();
    for (nth, (kind, tid, numbers, rwbs)) in STORY_LINES.iter().enumerate() {
        let action = match kind {
            Kind::BioQueue => 1_u32,
            Kind::GetRequest => 4,
            Kind::RqIssue => 7,
            Kind::RqComplete => 8,
            Kind::RqInsert => 12,
            Kind::BioSplit => 13,
            Kind::BioRemap => 15,
            _ => continue,
        };
        let bit = |letter: char, bit: u32| if rwbs.contains(letter) { 1_u32 << bit } else { 0 };
        let flags = bit('W', 1) | bit('F', 2) | bit('S', 3) | bit('M', 12);
        let bytes = numbers[2].saturating_mul(512) as u32;
        file.extend(0x6561_7407_u32.to_le_bytes());
        file.extend((nth as u32).to_le_bytes());
        file.extend([nth as u64 * 1000, numbers[1]].map(u64::to_le_bytes).concat());
        file.extend([bytes, flags << 16 | action, *tid, numbers[0] as u32, 0].map(u32::to_le_bytes).concat());
        file.extend([0, 0, 16, 0]);
        file.extend([0, 0, 3, 36, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 32]);
    }
    let read = blktrace::read(&[&file]).expect("the seed is no trace");
    assert!(read.events.len() > 10 && read.damaged == 0, "the seed is not understood");
    vec![file]
}

pub fn check_blktrace(bytes: &[u8]) {
    let (a, b) = bytes.split_at(bytes.len() / 2);
    check_gathered(blktrace::read(&[a, b]));
    check_gathered(blktrace::read(&[bytes]));
}

/// The story as Perfetto's generic events, as events that the trace describes, and in the dense form.
pub fn bundle_seeds() -> Vec<Vec<u8>> {
    let mut trace = Vec::new();
    trace.message(1, |packet| {
        packet.message(1, |bundle| {
            bundle.varint(1, 1);
            bundle.varint(3, 1);
            for (nth, (kind, tid, numbers, text)) in STORY_LINES.iter().enumerate() {
                bundle.message(2, |event| {
                    event.varint(1, nth as u64 * 1000);
                    event.varint(2, (*tid).into());
                    event.message(327, |generic| {
                        generic.bytes(1, kind.name().as_bytes());
                        for (name, value) in kind.numbers().iter().zip(*numbers) {
                            generic.message(2, |field| {
                                field.bytes(1, name.as_bytes());
                                field.varint(5, *value);
                            });
                        }
                        if let Some(name) = kind.text() {
                            generic.message(2, |field| {
                                field.bytes(1, name.as_bytes());
                                field.bytes(3, text.as_bytes());
                            });
                        }
                    });
                });
            }
        });
    });
    trace.message(1, |packet| {
        packet.message(1, |bundle| {
            bundle.message(11, |described| {
                described.varint(1, 65_540);
                described.message(2, |message| {
                    message.bytes(1, b"jbd2_end_commit");
                    message.message(2, |field| {
                        field.bytes(1, b"transaction");
                        field.varint(3, 2);
                    });
                });
            });
            bundle.message(2, |event| event.message(65_540, |message| message.varint(2, 5)));
            bundle.message(2, |event| event.message(45, |issue| issue.varint(1, 2048)));
            bundle.message(4, |dense| {
                dense.bytes(5, b"app");
                [(1, 9), (2, 1), (3, 7), (6, 0), (7, 10), (8, 7)].iter().for_each(|(f, n)| dense.varint(*f, *n));
            });
        });
        packet.message(2, |tree| tree.message(1, |process| process.varint(1, 7)));
        packet.message(34, |stats| stats.message(2, |cpu| cpu.varint(3, 5)));
        packet.message(45, |system| system.message(1, |uname| uname.bytes(4, b"aarch64")));
    });
    let read = perfetto::ftrace::read(&trace).expect("the seed is no trace");
    assert!(read.events.len() >= STORY_LINES.len() && read.damaged == 0, "the seed is not understood: {read:?}");
    vec![trace]
}

pub fn check_bundle(bytes: &[u8]) {
    perfetto::ftrace::is(bytes);
    check_gathered(perfetto::ftrace::read(bytes));
    if let Ok(opened) = perfetto::ftrace::gunzip(bytes) {
        check_gathered(perfetto::ftrace::read(&opened));
    }
}
