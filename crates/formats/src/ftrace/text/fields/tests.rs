use super::*;

fn read(kind: Kind, text: &str) -> Option<(Vec<Option<i64>>, String)> {
    let mut seen = DecodedEvent::new(kind, 0, 0, 0);
    fill(&mut seen, text)?;
    let count = if kind == Kind::SysEnter { 7 } else { kind.numbers().len() };
    Some(((0..count).map(|i| seen.number(i).map(u64::cast_signed)).collect(), seen.text))
}

const VDA_DEV: i64 = 254 << 20;

#[test]
fn events_are_read_from_text_of_kernel_and_trace_cmd() {
    for (kind, text, numbers, words) in [
        (
            Kind::SysEnter,
            "NR 262 (ffffff9c, 5629badb5c90, 7ffd1b29dd60, 0, 7ffd1b29de7c, 8)",
            &[262, 0xffff_ff9c, 0x5629_badb_5c90, 0x7ffd_1b29_dd60, 0, 0x7ffd_1b29_de7c, 8][..],
            "",
        ),
        (Kind::SysExit, "NR 262 = -2", &[262, -2], ""),
        (Kind::Switch, "my app:323 [120] D ==> trace-cmd:321 [120]", &[323, 2, 321], "trace-cmd"),
        (
            Kind::Switch,
            "prev_comm=a b prev_pid=7 prev_prio=120 prev_state=R+ ==> next_comm=c d next_pid=8 next_prio=120",
            &[7, 0x100, 8],
            "c d",
        ),
        (Kind::Waking, "comm=trace cmd pid=321 prio=120 target_cpu=001", &[321], "trace cmd"),
        (Kind::Waking, "a:b:321 [120] CPU:001", &[321], "a:b"),
        (Kind::NewTask, "pid=324 comm=my app clone_flags=1200011 oom_score_adj=0", &[324, 0x120_0011], "my app"),
        (Kind::Fork, "comm=bash pid=323 child_comm=b a pid=1 child_pid=324", &[323, 324], "b a pid=1"),
        (Kind::Exec, "filename=/usr/bin/a b pid=319 old_pid=318", &[319, 318], "/usr/bin/a b"),
        (Kind::Exit, "comm=rm pid=319 prio=120 group_dead=true", &[319], "rm"),
        (Kind::BioQueue, "254,0 DS 319557648 + 8 [rm]", &[VDA_DEV, 319_557_648, 8], "DS"),
        (Kind::BioRemap, "254,0 WS 9000 + 8 <- (254,1) 952", &[VDA_DEV, 9000, 8, VDA_DEV + 1, 952], "WS"),
        (Kind::BioSplit, "254,0 RA 21009848 / 21012032 [python3]", &[VDA_DEV, 21_009_848, 21_012_032], "RA"),
        (Kind::BioComplete, "254,0 FWS 0 + 0 [-5]", &[VDA_DEV, 0, 0, -5], "FWS"),
        (
            Kind::RqIssue,
            "254,0 DS 4096 () 319557648 + 8 0x2,0,4 [kworker/0:1H]",
            &[VDA_DEV, 319_557_648, 8, 4096],
            "DS",
        ),
        (Kind::RqIssue, "254,0 FF 0 () 0 + 0 [kworker/0:1H]", &[VDA_DEV, 0, 0, 0], "FF"),
        (Kind::RqIssue, "8,0 N 96 (12 00 00 00 60 00) 0 + 0 none,0,0 [sg]", &[8 << 20, 0, 0, 96], "N"),
        (Kind::RqComplete, "254,0 WS () 48 + 8 0x2,0,4 [-5]", &[VDA_DEV, 48, 8, -5], "WS"),
        (Kind::CommitBegin, "dev 254,0 transaction 99 sync 0", &[VDA_DEV, 99], ""),
        (Kind::Handle, "dev 254,0 tid 99 type 1 line_no 5 requested_blocks 2", &[VDA_DEV, 99], ""),
        (Kind::DaWriteBegin, "dev 254,0 ino 9978195 pos 4096 len 1", &[VDA_DEV, 9_978_195, 4096, 1], ""),
        (Kind::F2fsWriteBegin, "dev = (8,1), ino = 4, pos = 0, len = 1024, flags = 0", &[8 << 20 | 1, 4, 0, 1024], ""),
        (Kind::F2fsSyncEnter, "dev = (8,1), ino = 4, pino = 3, i_mode = 0x81a4, i_size = 1", &[8 << 20 | 1, 4], ""),
        (Kind::EvictInode, "dev 254,0 ino 9986058 nlink 0", &[VDA_DEV, 9_986_058, 0], ""),
        (
            Kind::ExtentFound,
            "dev 254,0 ino 11 found 1 [0/1) 39944706 WR",
            &[VDA_DEV, 11, 0, 1, 39_944_706, 0b1_0001, 1],
            "",
        ),
        (
            Kind::ExtentKept,
            "dev 254,0 ino 12 es [8/4) mapped 39930567 status U",
            &[VDA_DEV, 12, 8, 4, 39_930_567, 2],
            "",
        ),
        (Kind::GetPages, "dev=254:0 ino=d1f ofs=8192-16383", &[VDA_DEV, 0xd1f, 2, 3], ""),
        (Kind::CacheAdd, "dev 254:0 ino 984153 pfn=0x291153 ofs=8192 order=2", &[VDA_DEV, 0x98_4153, 2, 2], ""),
        (Kind::DirtyBuffer, "254,0 sector=39944194 size=4096", &[VDA_DEV, 39_944_194, 4096], ""),
        (Kind::Print, "tracing_mark_write: B|7|save: all", &[], "B|7|save: all"),
        (Kind::Print, "0xffffffff81: E", &[], "E"),
    ] {
        let numbers = numbers.iter().copied().map(Some).collect();
        assert_eq!(read(kind, text), Some((numbers, words.to_owned())), "{text}");
    }
}

#[test]
fn an_extent_that_was_not_found_has_no_place() {
    let (numbers, _) = read(Kind::ExtentFound, "dev 254,0 ino 11 found 0 [0/0) 0 ").unwrap();
    assert_eq!(numbers, [Some(VDA_DEV), Some(11), None, None, None, None, Some(0)]);
}

#[test]
fn text_of_another_form_is_refused() {
    for (kind, text) in [
        (Kind::SysEnter, "NR 1 (1, 2)"),
        (Kind::SysExit, "1 = 5"),
        (Kind::Switch, "a ==> b"),
        (Kind::BioQueue, "254,0 WS x + 8 [a]"),
        (Kind::BioQueue, "254 WS 5 + 8 [a]"),
        (Kind::BioQueue, "254,0 WS 5 / 8 [a]"),
        (Kind::BioSplit, "254,0 WS 5 + 8 [a]"),
        (Kind::RqComplete, "254,0 WS () 48 + 8"),
        (Kind::CommitBegin, "dev 254,0"),
        (Kind::ExtentKept, "dev 254,0 ino 12 es [8"),
        (Kind::CacheAdd, "dev 254:0 ino zz ofs=1"),
        (Kind::Step, "stmt=1"),
        (Kind::DirtyBuffer, ""),
    ] {
        assert_eq!(read(kind, text), None, "{text}");
    }
}
