//! One small file per situation: its subject, event lines, `---`, the expected rows.
//!
//! `FATHOM_BLESS=1 cargo test -p causal --test cases` writes the actual rows; review the difference before committing it.
//! Before the events a file may set the linker's configuration (`tracer 99`, `loop 7:0 on 254:0 12`, …), and in events
//! numbers may be given by name: `dev=254:0`, `call=fsync`, `op=write`, `ctx=tracked|op`, `flags=preflush|fua`.

use causal::{Backing, Config, StackedDisk};
use model::event::{bio_flags, flags, header_flags};
use model::{BioEnd, Call, Dev, DiskOp, Event};
use std::path::Path;

fn dev(text: &str) -> u32 {
    let (major, minor) = text.split_once(':').expect("a device such as 254:0");
    Dev::new(major.parse().expect("a number"), minor.parse().expect("a number")).0
}

fn number(key: &str, value: &str) -> Option<u64> {
    let bits = |known: &[(&str, u16)]| {
        value.split('|').map(|w| known.iter().find(|(n, _)| *n == w).map(|(_, b)| u64::from(*b))).sum::<Option<u64>>()
    };
    match key {
        _ if value.parse::<i64>().is_ok() || value.starts_with("0x") => None,
        "dev" | "disk" | "from_disk" => Some(dev(value).into()),
        "ino" if value.contains(':') => Some(dev(value).into()),
        "call" => Call::ALL.iter().find(|c| c.name() == value).map(|c| *c as u64),
        "op" => DiskOp::ALL.iter().find(|c| c.name() == value).map(|c| *c as u64),
        "end" => BioEnd::ALL.iter().find(|c| c.name().replace(' ', "_").starts_with(value)).map(|c| *c as u64),
        "ctx" => bits(&[
            ("op", flags::IN_OP),
            ("call", flags::IN_SYSCALL),
            ("kernel", flags::KERNEL_THREAD),
            ("tracked", flags::TRACKED),
            ("tracer", flags::TRACER),
            ("direct", flags::DIRECT),
            ("regular", flags::REGULAR),
            ("osync", flags::SYNC_FILE),
            ("between", flags::BETWEEN_ROWS),
        ]),
        "flags" => bits(&[
            ("sync", bio_flags::SYNC),
            ("meta", bio_flags::META),
            ("preflush", bio_flags::PREFLUSH),
            ("fua", bio_flags::FUA),
            ("sequence", bio_flags::FLUSH_SEQUENCE),
            ("counted", bio_flags::COUNTED),
            ("untimed", bio_flags::UNTIMED),
        ]),
        _ => None,
    }
}

fn event(line: &str) -> Event {
    // A record without `ctx` has its header flags as words at the end.
    let (mut line, mut header) = (line, 0);
    while let Some((rest, word)) = line.rsplit_once(' ') {
        header |= match word {
            "kernel" => header_flags::KERNEL_THREAD,
            "between" => header_flags::BETWEEN_ROWS,
            "direct" => header_flags::DIRECT,
            "polling" => header_flags::POLLING,
            _ => break,
        };
        line = rest;
    }
    // Texts may contain anything and come last.
    let (head, tail) = line.find(" text=").map_or((line, ""), |at| line.split_at(at));
    let words: Vec<String> = head
        .split_whitespace()
        .map(|word| match word.split_once('=').and_then(|(k, v)| Some((k, number(k, v)?))) {
            Some((key, n)) => format!("{key}={n}"),
            None => word.into(),
        })
        .collect();
    let mut event = Event::parse(&(words.join(" ") + tail)).unwrap_or_else(|e| panic!("{line}: {e}"));
    event.header.flags = header | u8::from(line.contains("ctx=kernel"));
    if event.header.cpu == 999 {
        event.header.cpu = causal::UNKNOWN_CPU;
    }
    event
}

fn run(text: &str) -> String {
    let mut config = Config { horizon_ns: 1_000_000, ..Config::default() };
    let mut events = Vec::new();
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["tracer", tgid] => config.tracer = Some(tgid.parse().expect("a tgid")),
            ["tracer_file", disk, ino] => config.tracer_files.push((dev(disk), ino.parse().expect("an inode"))),
            ["horizon", ns] => config.horizon_ns = ns.parse().expect("ns"),
            ["full_since", ns] => config.full_since_ns = Some(ns.parse().expect("ns")),
            ["infer"] => config.with_statements = Some(Default::default()),
            ["by_place"] => config.by_place = true,
            ["told", tgid] => {
                let _ = config.with_statements.get_or_insert_default().insert(tgid.parse().expect("a tgid"));
            }
            ["group", name] => {
                config.group_commits.insert(config.functions.len() as u64);
                config.functions.push(name.into());
            }
            ["function", name] => config.functions.push(name.into()),
            ["partition" | "volume", part, disk] => {
                config.partitions.insert(dev(part), dev(disk));
            }
            ["loop", disk, "on", below, ino] => config.stacked.push(StackedDisk {
                disk: dev(disk),
                backing: Backing::File { dev: dev(below), ino: ino.parse().expect("an inode") },
            }),
            ["stacked", disk, "on", below] => {
                config.stacked.push(StackedDisk { disk: dev(disk), backing: Backing::Disks(vec![dev(below)]) });
            }
            _ => events.push(event(line)),
        }
    }
    causal::text::link_checked(config, events).to_text()
}

#[test]
fn every_case_gives_expected_rows() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let bless = std::env::var_os("FATHOM_BLESS").is_some();
    let mut names: Vec<_> = std::fs::read_dir(&directory).unwrap().map(|f| f.unwrap().path()).collect();
    names.sort();
    assert!(bless || names.len() >= 20, "the cases are gone");
    let mut wrong = Vec::new();
    for path in names {
        let text = std::fs::read_to_string(&path).unwrap();
        let (input, expected) = text.split_once("---\n").unwrap_or((&text, ""));
        let rows = run(input);
        if rows == expected {
            continue;
        }
        if bless {
            std::fs::write(&path, format!("{input}---\n{rows}")).unwrap();
        } else {
            wrong.push(format!("{}\nexpected:\n{expected}\ngot:\n{rows}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
