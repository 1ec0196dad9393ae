//! Foreign traces: trace.dat files, and pages of ftrace, from bytes to the linker's events.

use formats::ftrace::calls::Machine;
use formats::ftrace::format::Format;
use formats::ftrace::merge::Clock;
use formats::ftrace::page::Layout;
use formats::ftrace::run::{self, Part};
use formats::ftrace::seen::{Decoder, Kind};
use formats::ftrace::translate::Told;
use formats::tracedat::TraceDat;
use model::Event;
use std::borrow::Cow;

const HEADER: &str = "field: u64 timestamp;offset:0;size:8;signed:0;\nfield: local_t commit;offset:8;size:8;signed:1;\n\
    field: char data;offset:16;size:4080;signed:0;\n";
const PAGE: usize = 4096;

fn told() -> Told {
    Told {
        machine: Machine::X86_64,
        names: vec![(50, "jbd2/vda-8".into()), (10, "app".into())],
        tasks: Vec::new(),
        members: Vec::new(),
        partitions: Vec::new(),
        open: Vec::new(),
        tracer: None,
    }
}

/// Every kind of event, each with all its fields one after the other: numbers of eight bytes, a text of sixteen.
fn formats() -> Vec<Format> {
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
const STORY: &[Line] = &[
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

fn page() -> Vec<u8> {
    let mut data = Vec::new();
    for (kind, tid, numbers, text) in STORY {
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
    assert!(page.len() <= PAGE, "the story is longer than a page");
    page.resize(PAGE, 0);
    page
}

pub fn pages() -> Vec<Vec<u8>> {
    let layout = Layout::parse(HEADER, PAGE, false).expect("a sound header");
    let mut kinds = 0;
    let summary = translate(&page(), layout, &mut |_| kinds += 1);
    assert_eq!(summary.taken.values().sum::<u64>(), STORY.len() as u64, "an event of the story is not understood");
    assert!(kinds > 20, "the story becomes {kinds} events");
    vec![page(), [page(), page()].concat()]
}

fn translate(bytes: &[u8], layout: Layout, sink: &mut dyn FnMut(&Event)) -> run::Summary {
    let decoder = Decoder::new(layout, &formats());
    let half = (bytes.len() / 2).next_multiple_of(PAGE).min(bytes.len());
    let cpus = vec![(0, Cow::Borrowed(&bytes[..half])), (1, Cow::Borrowed(&bytes[half..]))];
    run::run(&[Part { decoder, layout, clock: Clock::NS, cpus }], &told(), &[], sink)
}

/// Whatever the pages hold becomes events that go through the log unchanged.
pub fn ftrace(bytes: &[u8]) {
    let Some(layout) = Layout::parse(HEADER, PAGE, false) else { return };
    translate(bytes, layout, &mut |event| {
        // The length of a text is told when it is stored.
        let (mut stored, mut again) = (Vec::new(), Vec::new());
        event.encode(&mut stored);
        let read = Event::decode(&stored).expect("it does not come back from the log");
        assert_eq!(read.header, event.header, "another event comes back from the log");
        read.encode(&mut again);
        assert_eq!(stored, again, "it is another one after the log");
    });
}

/// As trace-cmd writes version 6, around the same pages.
pub fn files() -> Vec<Vec<u8>> {
    let sized = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let mut file = [&b"\x17\x08\x44tracing6\0\0\x08"[..], &4096u32.to_le_bytes()].concat();
    file.extend([b"header_page\0".to_vec(), sized(HEADER), b"header_event\0".to_vec(), sized("x")].concat());
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
    file.extend([(data as u64).to_le_bytes(), (PAGE as u64).to_le_bytes()].concat());
    file.extend(sized("[boot]"));
    file.extend(page());
    assert!(TraceDat::parse(&file).is_ok_and(|t| t.buffers[0].cpus[0].1.len() == PAGE), "the seed is not read");
    vec![file]
}

/// What is read of a file is translated too.
pub fn trace_dat(bytes: &[u8]) {
    let Ok(trace) = TraceDat::parse(bytes) else { return };
    let Ok(parts) = run::parts(&trace) else { return };
    run::run(&parts, &told(), &trace.stats, &mut |_| ());
}
