//! Duplicated descriptors share a file, its position and the flags with which it was opened, as in dd and in a shell's redirections.

mod support;

use formats::ftrace::calls::Machine;
use model::event::flags;
use model::{Call, Event, Record};

/// Calls of one thread: each with its number, its arguments, and its result. A write passes through ext4.
fn trace(calls: &[(u32, [u64; 3], i64)]) -> String {
    let mut lines = String::new();
    let mut at = 100;
    let mut line = |text: String| {
        at += 10;
        lines.push_str(&format!(" dd-10 [000] ..... 1.{at:06}: {text}\n"));
    };
    for (number, [a, b, c], result) in calls {
        line(format!("sys_enter: NR {number} ({a:x}, {b:x}, {c:x}, 0, 0, 0)"));
        if *number == 1 {
            line("ext4_da_write_begin: dev 8,0 ino 12 pos 0 len 4096 flags 0".into());
        }
        line(format!("sys_exit: NR {number} = {result}"));
    }
    lines
}

/// The writes: flags, whether the position is known, and the position.
fn writes(calls: &[(u32, [u64; 3], i64)]) -> Vec<(bool, i64)> {
    let all = support::events(&trace(calls), Machine::X86_64);
    let write = |event: &Event| match &event.record {
        Record::Syscall(r) if r.call == Call::Write as u16 => Some((r.ctx & flags::SYNC_FILE != 0, r.pos)),
        _ => None,
    };
    all.iter().filter_map(write).collect()
}

const SYS_WRITE: u32 = 1;
const SYS_CLOSE: u32 = 3;
const SYS_LSEEK: u32 = 8;
const SYS_DUP2: u32 = 33;
const SYS_FCNTL: u32 = 72;
const SYS_OPENAT: u32 = 257;
/// O_WRONLY, O_CREAT and O_DSYNC.
const SYNC_OPEN_FLAGS: u64 = 0x1041;

#[test]
fn a_duplicate_keeps_the_flags_and_position_of_its_original() {
    let open = (SYS_OPENAT, [0xffff_ff9c, 0, SYNC_OPEN_FLAGS], 3);
    let write = |fd: u64| (SYS_WRITE, [fd, 0, 4096], 4096);
    // dd: its output becomes descriptor 1.
    let dd = [open, (SYS_DUP2, [3, 1, 0], 1), (SYS_CLOSE, [3, 0, 0], 0), (SYS_LSEEK, [1, 8192, 0], 8192), write(1)];
    assert_eq!(writes(&dd).iter().map(|(synced, _)| *synced).collect::<Vec<_>>(), [true]);
    // A shell keeps a duplicate from 10 on.
    for command in [0, 1030] {
        let shell = [open, (SYS_FCNTL, [3, command, 10], 10), (SYS_CLOSE, [3, 0, 0], 0), write(10)];
        assert_eq!(writes(&shell), [(true, 0)]);
    }
    // F_GETFL duplicates nothing; nor does a call that failed, or a descriptor onto itself.
    let other = [
        open,
        (SYS_OPENAT, [0xffff_ff9c, 0, 1], 4),
        (SYS_FCNTL, [3, 3, 0], 4),
        (SYS_DUP2, [3, 4, 0], -9),
        (SYS_DUP2, [4, 4, 0], 4),
    ];
    assert_eq!(writes(&[&other[..], &[write(4)]].concat()), [(false, 0)]);
}
