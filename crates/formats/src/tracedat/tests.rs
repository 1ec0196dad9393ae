use super::*;
use crate::ftrace::decoder::{Decoder, Kind};
use crate::ftrace::merge::{MergedStreams, Stream, TraceItem};
use crate::ftrace::page::Pages;
use crate::ftrace::run::{self, NoClock};
use crate::ftrace::translate::TraceContext;
use model::{LossSource, Record};

const HEADER_PAGE: &str = "field: u64 timestamp;offset:0;size:8;signed:0;\nfield: local_t commit;offset:8;size:8;\
    signed:1;\nfield: char data;offset:16;size:4080;signed:0;\n";
const END_COMMIT_FORMAT: &str = "name: jbd2_end_commit\nID: 7\nfield:unsigned short common_type;offset:0;size:2;signed:0;\n\
    field:int common_pid;offset:4;size:4;signed:1;\nfield:dev_t dev;offset:4;size:4;signed:0;\nfield:tid_t transaction;offset:8;size:4;signed:0;\n";

/// A page with one event.
fn page(time: u64, transaction: u32) -> Vec<u8> {
    let mut page = time.to_le_bytes().to_vec();
    page.extend(16u64.to_le_bytes());
    page.extend([3, 0, 0, 0, 7, 0, 0, 0, 9, 0, 0, 0]);
    page.extend(transaction.to_le_bytes());
    page.resize(4096, 0);
    page
}

fn with_length(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

fn headers() -> Vec<u8> {
    [b"header_page\0".to_vec(), with_length(HEADER_PAGE), b"header_event\0".to_vec(), with_length("x")].concat()
}

fn systems() -> Vec<u8> {
    [&1u32.to_le_bytes()[..], b"jbd2\0", &1u32.to_le_bytes(), &with_length(END_COMMIT_FORMAT)].concat()
}

fn option(id: u16, data: &[u8]) -> Vec<u8> {
    [&id.to_le_bytes()[..], &(data.len() as u32).to_le_bytes(), data].concat()
}

/// As trace-cmd 3.1 writes it.
pub(super) fn version_6() -> Vec<u8> {
    let mut file = [MAGIC, b"6\0\0\x08", &4096u32.to_le_bytes()].concat();
    file.extend(headers());
    file.extend(0u32.to_le_bytes());
    file.extend(systems());
    file.extend([0; 8]);
    file.extend(with_length("9 jbd2/sda-8\n12 my prog\n"));
    file.extend(2u32.to_le_bytes());
    file.extend(b"options  \0");
    file.extend(option(4, b"local [boot]"));
    file.extend(option(5, b"Linux vm 6.1 x86_64"));
    file.extend(option(2, b"CPU: 1\nentries: 5\noverrun: 3\ncommit overrun: 0\ndropped events: 1\n"));
    file.extend(0u16.to_le_bytes());
    file.extend(b"flyrecord\0");
    let data = (file.len() + 32 + 8 + 6).next_multiple_of(4096);
    for n in [data, 4096, data + 4096, 4096] {
        file.extend((n as u64).to_le_bytes());
    }
    file.extend(with_length("[boot]"));
    file.resize(data, 0);
    file.extend(page(200, 2));
    file.extend(page(100, 1));
    file
}

/// The same as sections, some of them compressed.
pub(super) fn version_7(compression: &str) -> Vec<u8> {
    let close = |data: &[u8]| match compression {
        "zstd" => zstd::bulk::compress(data, 1).unwrap(),
        _ => miniz_oxide::deflate::compress_to_vec_zlib(data, 5),
    };
    let chunk = |data: &[u8]| {
        let closed = close(data);
        [&(closed.len() as u32).to_le_bytes()[..], &(data.len() as u32).to_le_bytes(), &closed].concat()
    };
    let mut file = [MAGIC, b"7\0\0\x08", &4096u32.to_le_bytes(), compression.as_bytes(), b"\x001.5\0"].concat();
    let to_options = file.len();
    file.extend([0; 8]);
    let mut section = |id: u16, flags: u16, data: &[u8]| {
        let place = file.len() as u64;
        file.extend(id.to_le_bytes());
        file.extend(flags.to_le_bytes());
        file.extend([0; 4]);
        file.extend((data.len() as u64).to_le_bytes());
        file.extend(data);
        place
    };
    let places = [
        (16, section(16, 1, &chunk(&headers()))),
        (18, section(18, 1, &chunk(&systems()))),
        (21, section(21, 0, &with_length("9 jbd2/sda-8\n12 my prog\n"))),
    ];
    let cpus = [page(200, 2), page(100, 1)].map(|page| [&1u32.to_le_bytes()[..], &chunk(&page)].concat());
    let pages = section(3, 1, &cpus.concat());
    let first = pages + 16;
    let mut buffer = pages.to_le_bytes().to_vec();
    buffer.extend(b"inst\0boot\0");
    buffer.extend([4096u32.to_le_bytes(), 2u32.to_le_bytes()].concat());
    for (cpu, place, size) in [(0u32, first, cpus[0].len()), (1, first + cpus[0].len() as u64, cpus[1].len())] {
        buffer.extend(cpu.to_le_bytes());
        buffer.extend(place.to_le_bytes());
        buffer.extend((size as u64).to_le_bytes());
    }
    let last = [option(3, &buffer), option(5, b"Linux vm 6.1 x86_64"), option(0, &0u64.to_le_bytes())].concat();
    let last = section(0, 0, &last);
    let mut options: Vec<u8> = places.iter().flat_map(|(id, at)| option(*id, &at.to_le_bytes())).collect();
    options.extend(option(2, b"Buffer: inst\n"));
    options.extend(option(2, b"CPU: 1\noverrun: 3\ndropped events: 1\n"));
    options.extend(option(0, &last.to_le_bytes()));
    let options = section(0, 0, &options);
    file[to_options..to_options + 8].copy_from_slice(&options.to_le_bytes());
    file
}

/// Transactions in time order.
fn transactions(trace: &TraceDat<'_>) -> Vec<(u64, u16, u32, u64)> {
    let buffer = &trace.buffers[0];
    let decoder = Decoder::new(buffer.layout, &trace.formats);
    let stream = |(cpu, pages): &'_ (u16, Cow<'_, [u8]>)| (*cpu, pages.to_vec());
    let owned: Vec<_> = buffer.cpus.iter().map(stream).collect();
    let streams = owned.iter().map(|(cpu, pages)| Stream {
        cpu: *cpu,
        pages: Pages::new(buffer.layout, pages),
        decoder: &decoder,
        clock: Clock::NS,
    });
    MergedStreams::new(streams.collect())
        .map(|next| match next {
            TraceItem::DecodedEvent(s) if s.kind == Kind::CommitEnd => (s.time_ns, s.cpu, s.tid, s.number(1).unwrap()),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn versions_6_and_7_give_same_content() {
    for (file, name) in [(version_6(), ""), (version_7("zstd"), "inst"), (version_7("zlib"), "inst")] {
        let trace = TraceDat::parse(&file).unwrap();
        assert_eq!(transactions(&trace), [(100, 1, 9, 1), (200, 0, 9, 2)]);
        assert_eq!(trace.names, [(9, "jbd2/sda-8".into()), (12, "my prog".into())]);
        assert_eq!(trace.uname, "Linux vm 6.1 x86_64");
        assert_eq!(trace.stats, [Stats { buffer: name.into(), cpu: 1, lost: 4 }]);
        assert_eq!((trace.buffers[0].name.as_str(), trace.buffers[0].clock.as_deref()), (name, Some("boot")));
    }
}

#[test]
fn the_clock_of_the_file_counts_if_an_instance_says_boot() {
    let file = version_7("zstd");
    let with = |clock: &str| TraceDat { clock: Some(clock.into()), ..TraceDat::parse(&file).unwrap() };
    assert_eq!(run::trace_buffers(&with("counter")).map(|_| ()), Err(NoClock::NoTime("counter".into())));
    assert_eq!(run::trace_buffers(&with("x86-tsc")).map(|_| ()), Err(NoClock::Cycles));
    assert_eq!(run::trace_buffers(&with("boot")).map(|parts| parts[0].clock), Ok(Clock::NS));
}

#[test]
fn events_after_a_cut_are_reported_as_lost() {
    let whole = version_6();
    let lost = |bytes: &[u8]| {
        let trace = TraceDat::parse(bytes).unwrap();
        let (parts, mut told) = (run::trace_buffers(&trace).unwrap(), Vec::new());
        let context = TraceContext::for_machine(crate::ftrace::calls::Machine::X86_64);
        let summary = run::translate_buffers(&parts, &context, &[], &mut |event| {
            if let Record::Loss(loss) = &event.record {
                told.push((loss.source, loss.events, loss.bound));
            }
        });
        (summary.damaged, told)
    };
    assert_eq!(lost(&whole), (0, Vec::new()));
    // Between pages, so that no page is damaged, and within one.
    for cut in [4096, 4090] {
        let (damaged, told) = lost(&whole[..whole.len() - cut]);
        assert!(damaged >= 1 && told == [(LossSource::Damage.number(), damaged, 1)], "{cut}: {damaged} {told:?}");
    }
}

#[test]
fn truncated_and_corrupted_files_do_not_panic() {
    for whole in [version_6(), version_7("zstd"), version_7("zlib")] {
        for cut in 0..whole.len().min(1500) {
            assert!(TraceDat::parse(&whole[..cut]).is_err(), "cut at {cut}");
        }
        for at in 0..whole.len().min(1500) {
            let mut file = whole.clone();
            file[at] ^= 0xff;
            let _ = TraceDat::parse(&file);
        }
    }
}

#[test]
fn unsupported_files_are_reported() {
    assert_eq!(TraceDat::parse(b"PERFILE2").unwrap_err(), Error::Foreign);
    let mut file = version_6();
    file[10] = b'5';
    assert!(TraceDat::parse(&file).unwrap_err().to_string().contains("version 5"));
    let mut file = version_7("zstd");
    let at = MAGIC.len() + 8;
    file[at..at + 4].copy_from_slice(b"lz77");
    assert!(TraceDat::parse(&file).unwrap_err().to_string().contains("lz77"));
}
