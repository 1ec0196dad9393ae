//! Parses events' texts: the numbers of [`DecodedEvent`], from the kernel's own format (`TP_printk`) or that of trace-cmd's plugins.
//!
//! A line in another format gives `None`: it is counted, never guessed.

use crate::ftrace::decoder::{DecodedEvent, Kind};

/// Fills in the fields from a text; `None` if it cannot be parsed.
pub fn fill(seen: &mut DecodedEvent, text: &str) -> Option<()> {
    use Kind as K;
    match seen.kind {
        K::SysEnter => fill_enter(seen, text),
        K::SysExit => {
            let (id, ret) = text.strip_prefix("NR ")?.split_once(" = ")?;
            put(seen, "id", parse_signed(id)?);
            put(seen, "ret", parse_signed(ret)?)
        }
        K::Switch => fill_switch(seen, text),
        K::Waking | K::Wakeup => match value(text, "pid") {
            Some(pid) => {
                put(seen, "pid", parse_signed(pid)?)?;
                put_text(seen, text, "comm=", " pid=")
            }
            // trace-cmd's plugin: NAME:PID [PRIORITY] …
            None => {
                let (name, pid) = parse_named(text.split_once(" [")?.0)?;
                seen.text = name.into();
                put(seen, "pid", pid)
            }
        },
        K::NewTask => {
            put(seen, "pid", parse_signed(value(text, "pid")?)?);
            put(seen, "clone_flags", parse_hex(value(text, "clone_flags")?)?);
            put_text(seen, text, "comm=", " clone_flags=")
        }
        K::Fork => {
            put(seen, "parent_pid", parse_signed(value(text, "pid")?)?);
            put(seen, "child_pid", parse_signed(value(text, "child_pid")?)?);
            put_text(seen, text, "child_comm=", " child_pid=")
        }
        K::Exec => {
            put(seen, "pid", parse_signed(value(text, "pid")?)?);
            value(text, "old_pid").and_then(parse_signed).and_then(|n| put(seen, "old_pid", n));
            put_text(seen, text, "filename=", " pid=")
        }
        K::Exit => {
            put(seen, "pid", parse_signed(value(text, "pid")?)?);
            put_text(seen, text, "comm=", " pid=")
        }
        K::BioQueue | K::BioRemap | K::BioSplit | K::BioComplete | K::GetRequest => fill_disk(seen, text),
        K::RqInsert | K::RqIssue | K::RqComplete => fill_disk(seen, text),
        K::CommitBegin | K::CommitEnd => fill_pairs(seen, text, &[("dev", "dev"), ("transaction", "transaction")]),
        K::Handle => fill_pairs(seen, text, &[("dev", "dev"), ("tid", "tid")]),
        K::DaWriteBegin | K::WriteBegin | K::F2fsWriteBegin => {
            fill_pairs(seen, text, &[("dev", "dev"), ("ino", "ino"), ("pos", "pos"), ("len", "len")])
        }
        K::SyncEnter | K::F2fsSyncEnter | K::UnlinkEnter | K::AllocateInode | K::WritePages | K::WritePagesDone => {
            fill_pairs(seen, text, &[("dev", "dev"), ("ino", "ino")])
        }
        K::EvictInode => fill_pairs(seen, text, &[("dev", "dev"), ("ino", "ino"), ("nlink", "nlink")]),
        K::ExtentFound | K::ExtentKept => fill_extent(seen, text),
        K::GetPages | K::CacheAdd => fill_cache(seen, text),
        K::DirtyBuffer => {
            let (dev, rest) = text.split_once(' ')?;
            put(seen, "dev", parse_device(dev)?);
            put(seen, "sector", parse_decimal(value(rest, "sector")?)?);
            put(seen, "size", parse_decimal(value(rest, "size")?)?)
        }
        K::Print => {
            let text = text.strip_prefix("tracing_mark_write: ").unwrap_or(text);
            // trace-cmd puts the writer's address before the text, where it cannot name it.
            let text = text.split_once(": ").filter(|(at, _)| at.starts_with("0x")).map_or(text, |(_, after)| after);
            seen.text = text.into();
            Some(())
        }
        K::ScsiHandler => put(seen, "host_no", parse_decimal(value(text, "host_no")?)?),
        // `super::driver` parses these; those of Fathom's own probes have no text.
        K::ScsiStart | K::ScsiDone | K::ScsiTimeout | K::ScsiError => None,
        K::MmcStart | K::MmcDone | K::NvmeSetup | K::NvmeDone | K::UfsCommand => None,
        K::Step | K::StepReturn | K::Reset | K::Finalize | K::OpenPath => None,
    }
}

pub(super) fn put(seen: &mut DecodedEvent, name: &str, value: u64) -> Option<()> {
    seen.set(name, value);
    Some(())
}

pub(super) fn parse_decimal(text: &str) -> Option<u64> {
    text.parse().ok()
}

pub(super) fn parse_signed(text: &str) -> Option<u64> {
    text.trim().parse::<i64>().ok().map(i64::cast_unsigned)
}

pub(super) fn parse_hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()
}

/// `MAJOR,MINOR` or `MAJOR:MINOR`, as the kernel's device number.
fn parse_device(text: &str) -> Option<u64> {
    let (major, minor) = text.trim_matches(['(', ')']).split_once([',', ':'])?;
    let (major, minor): (u64, u64) = (major.parse().ok()?, minor.parse().ok()?);
    (major < 1 << 12 && minor < 1 << 20).then_some(major << 20 | minor)
}

/// The value of `NAME=VALUE`, up to a space.
pub(super) fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

/// The text between two marks, which may contain spaces.
fn put_text(seen: &mut DecodedEvent, text: &str, from: &str, to: &str) -> Option<()> {
    let after = &text[text.find(from)? + from.len()..];
    seen.text = after[..after.find(to)?].into();
    Some(())
}

/// `NAME:NUMBER`.
fn parse_named(text: &str) -> Option<(&str, u64)> {
    let (name, number) = text.trim().rsplit_once(':')?;
    Some((name, parse_signed(number)?))
}

/// `NR 1 (3, 7f12, 200, 0, 0, 0)`.
fn fill_enter(seen: &mut DecodedEvent, text: &str) -> Option<()> {
    let (id, rest) = text.strip_prefix("NR ")?.split_once(" (")?;
    put(seen, "id", parse_signed(id)?);
    let mut args = rest.strip_suffix(')')?.split(", ");
    for place in 1..7 {
        seen.put(place, parse_hex(args.next()?)?);
    }
    Some(())
}

/// A state's letters as the kernel's bits, as far as they are used.
fn state_bits(letters: &str) -> u64 {
    const PREEMPTED_BIT: u64 = 0x100;
    match letters.chars().next() {
        _ if letters.ends_with('+') => PREEMPTED_BIT,
        Some('R') | None => 0,
        Some('S') => 1,
        Some('D') => 2,
        _ => 4,
    }
}

fn fill_switch(seen: &mut DecodedEvent, text: &str) -> Option<()> {
    let (before, after) = text.split_once("==> ")?;
    if let Some(pid) = value(before, "prev_pid") {
        put(seen, "prev_pid", parse_signed(pid)?);
        put(seen, "prev_state", state_bits(value(before, "prev_state")?));
        put(seen, "next_pid", parse_signed(value(after, "next_pid")?)?);
        return put_text(seen, after, "next_comm=", " next_pid=");
    }
    // trace-cmd's plugin: NAME:PID [PRIORITY] STATE ==> NAME:PID [PRIORITY]
    let (who, rest) = before.rsplit_once(" [")?;
    put(seen, "prev_pid", parse_named(who)?.1);
    put(seen, "prev_state", state_bits(rest.split_once("] ")?.1.trim()));
    let (name, pid) = parse_named(after.rsplit_once(" [").map_or(after, |(who, _)| who))?;
    seen.text = name.into();
    put(seen, "next_pid", pid)
}

/// `DEV RWBS [BYTES] [(COMMAND)] SECTOR [+ SECTORS | / SECTOR] [<- (DEV) SECTOR] [[ERROR]]`.
fn fill_disk(seen: &mut DecodedEvent, text: &str) -> Option<()> {
    let (dev, rest) = text.split_once(' ')?;
    put(seen, "dev", parse_device(dev)?);
    let (rwbs, mut rest) = rest.split_once(' ')?;
    seen.text = rwbs.into();
    if matches!(seen.kind, Kind::RqInsert | Kind::RqIssue) {
        let (bytes, after) = rest.split_once(' ')?;
        put(seen, "bytes", parse_decimal(bytes)?);
        rest = after;
    }
    if let Some(after) = rest.strip_prefix('(') {
        // The command of a request not made by the file system may contain anything but this.
        rest = after.split_once(") ")?.1;
    }
    let (sector, rest) = rest.split_once(' ')?;
    put(seen, "sector", parse_decimal(sector)?);
    let (mark, rest) = rest.split_once(' ')?;
    let (second, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    match (seen.kind, mark) {
        (Kind::BioSplit, "/") => return put(seen, "new_sector", parse_decimal(second)?),
        (Kind::BioSplit, _) | (_, "/") => return None,
        (_, "+") => put(seen, "nr_sector", parse_decimal(second)?),
        _ => return None,
    };
    match seen.kind {
        Kind::BioRemap => {
            let (dev, sector) = rest.strip_prefix("<- ")?.split_once(' ')?;
            put(seen, "old_dev", parse_device(dev)?);
            put(seen, "old_sector", parse_decimal(sector)?)
        }
        Kind::BioComplete | Kind::RqComplete => {
            let error = rest.rsplit_once('[')?.1.strip_suffix(']')?;
            put(seen, "error", parse_signed(error)?)
        }
        _ => Some(()),
    }
}

/// `NAME VALUE`, or `NAME = VALUE,`; the first of each name.
fn fill_pairs(seen: &mut DecodedEvent, text: &str, wanted: &[(&str, &str)]) -> Option<()> {
    for (name, word) in wanted {
        let mut all = text.split(' ').filter(|w| *w != "=").map(|w| w.trim_end_matches(','));
        all.find(|w| w == word)?;
        let value = all.next()?;
        put(seen, name, if *name == "dev" { parse_device(value)? } else { parse_signed(value)? });
    }
    Some(())
}

/// `dev D ino N found F [LBLK/LEN) PBLK STATUS`, `dev D ino N es [LBLK/LEN) mapped PBLK status STATUS …`.
fn fill_extent(seen: &mut DecodedEvent, text: &str) -> Option<()> {
    fill_pairs(seen, text, &[("dev", "dev"), ("ino", "ino")])?;
    if seen.kind == Kind::ExtentFound {
        fill_pairs(seen, text, &[("found", "found")])?;
        if seen.number(6) == Some(0) {
            return Some(());
        }
    }
    let (lblk, rest) = text.split_once('[')?.1.split_once('/')?;
    let (len, rest) = rest.split_once(") ")?;
    put(seen, "lblk", parse_decimal(lblk)?);
    put(seen, "len", parse_decimal(len)?);
    let mut words = rest.split(' ').filter(|word| !matches!(*word, "mapped" | "status"));
    put(seen, "pblk", parse_decimal(words.next()?)?);
    // `show_extent_status`: written, unwritten, delayed, hole, referenced.
    let letters = words.next().unwrap_or_default();
    let bit = |(place, letter): (usize, char)| u64::from(letters.contains(letter)) << place;
    put(seen, "status", ['W', 'U', 'D', 'H', 'R'].into_iter().enumerate().map(bit).sum())
}

/// `dev 254:0 ino 4fa7d pfn=0x1 ofs=0 order=0`, `dev=254:0 ino=4fa7d ofs=0-4095`: in bytes, with the inode in
/// hexadecimal.
fn fill_cache(seen: &mut DecodedEvent, text: &str) -> Option<()> {
    const PAGE_SHIFT: u64 = 12;
    let mut words = text.split([' ', '=']);
    let mut after = |name: &str| words.by_ref().find(|word| *word == name).and_then(|_| words.next());
    let (dev, ino, offset) = (after("dev")?, after("ino")?, after("ofs")?);
    put(seen, "s_dev", parse_device(dev)?);
    put(seen, "i_ino", parse_hex(ino)?);
    let (first, last) = offset.split_once('-').unwrap_or((offset, ""));
    put(seen, "index", parse_decimal(first)? >> PAGE_SHIFT);
    if seen.kind == Kind::GetPages {
        put(seen, "last_index", parse_decimal(last)? >> PAGE_SHIFT);
        return Some(());
    }
    put(seen, "order", value(text, "order").and_then(parse_decimal).unwrap_or(0))
}

#[cfg(test)]
mod tests;
