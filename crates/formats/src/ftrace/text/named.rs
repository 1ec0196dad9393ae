//! Events as a list of their fields, `NAME=VALUE NAME=VALUE`: the form of `trace-cmd report -R` and of tracefs's option `fields`, also for
//! single events without a format of their own.
//!
//! Values are the kernel's own: a disk's number as one number, a task's state as bits. Numbers are decimal, or hexadecimal after `0x`;
//! tracefs appends the other form in parentheses. An array is `ARRAY[03, 00, …]` (trace-cmd) or `{0x3,0x0,…}` (tracefs, which does not
//! print the arguments of system calls: `args=<INVALID-SIZE>`).
//!
//! *Uncertainty*: later versions of libtraceevent print a field as the event's own format does, which may be hexadecimal without `0x`;
//! earlier ones print it as decimal. Where both are possible and differ, the event counts as not readable.

use super::fields::{parse_hex, parse_signed};
use crate::ftrace::decoder::{DecodedEvent, Kind};

/// Fills in the fields from such a text; `None` if it is none, or lacks a field that its kind cannot do without.
pub(super) fn fill(seen: &mut DecodedEvent, text: &str) -> Option<()> {
    if seen.kind == Kind::Print {
        // A program's text may contain anything, also what looks like fields.
        seen.text = text.strip_prefix("ip=")?.split_once(" buf=")?.1.into();
        return Some(());
    }
    for (place, name) in seen.kind.numbers().iter().enumerate() {
        let Some(value) = field_value(text, name) else { continue };
        if (seen.kind, *name) == (Kind::SysEnter, "args") {
            fill_arguments(seen, value)?;
        } else {
            seen.put(place, parse_number(seen.kind, name, value)?);
        }
    }
    if let Some(words) = seen.kind.text().and_then(|name| field_value(text, name)) {
        seen.text = unquoted(words).into();
    }
    if let Some(words) = seen.kind.disk().and_then(|name| field_value(text, name)) {
        seen.disk = Some(unquoted(words).into());
    }
    let is_bytes = matches!(seen.kind.text(), Some("cmnd" | "cdw10"));
    if is_bytes {
        seen.text = parse_bytes(&seen.text)?.iter().map(|byte| format!("{byte:02x}")).collect();
    }
    seen.is_whole().then_some(())
}

/// The value of a field: up to the next field, or to the end.
fn field_value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let at = text.match_indices(name).map(|(at, _)| at).find(|at| {
        let begins = *at == 0 || text.as_bytes()[at - 1] == b' ';
        begins && text.as_bytes().get(at + name.len()) == Some(&b'=')
    })?;
    let after = &text[at + name.len() + 1..];
    let next = after.match_indices(' ').map(|(at, _)| at).find(|at| {
        let word = after[at + 1..].split(' ').next().unwrap_or_default();
        word.split_once('=').is_some_and(|(name, _)| is_name(name))
    });
    Some(after[..next.unwrap_or(after.len())].trim())
}

fn is_name(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

/// A number; of an array its first four bytes.
fn parse_number(kind: Kind, name: &str, value: &str) -> Option<u64> {
    if let Some(all) = parse_bytes(value) {
        return Some(all.iter().take(4).rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)));
    }
    let word = value.split(' ').next()?;
    match name {
        _ if word.starts_with("0x") => parse_hex(word),
        // Longs, which have a `0x` where they are not printed by the event's format (`%lx`).
        "i_ino" | "clone_flags" => parse_hex(word),
        "cmd_arg" | "data_flags" | "opcode" if kind != Kind::NvmeSetup => {
            let same = word.len() == 1 || word.contains(|c: char| c.is_ascii_alphabetic());
            same.then(|| parse_hex(word)).flatten()
        }
        _ => parse_signed(word).or_else(|| word.parse().ok()),
    }
}

fn unquoted(value: &str) -> &str {
    value.strip_prefix('"').and_then(|inner| inner.strip_suffix('"')).unwrap_or(value)
}

fn parse_items(value: &str) -> Option<impl Iterator<Item = &str>> {
    let inner = value.strip_prefix("ARRAY[").and_then(|rest| rest.strip_suffix(']'));
    let inner = inner.or_else(|| value.strip_prefix('{')?.strip_suffix('}'))?;
    Some(inner.split(',').map(str::trim).filter(|item| !item.is_empty()))
}

fn parse_bytes(value: &str) -> Option<Vec<u8>> {
    parse_items(value)?.map(|item| u8::try_from(parse_hex(item)?).ok()).collect()
}

/// A system call's arguments: bytes, or words of tracefs.
fn fill_arguments(seen: &mut DecodedEvent, value: &str) -> Option<()> {
    if value.starts_with('{') {
        let words: Option<Vec<u64>> = parse_items(value)?.map(parse_hex).collect();
        words?.iter().take(6).enumerate().for_each(|(i, word)| seen.put(i + 1, *word));
        return Some(());
    }
    let bytes = parse_bytes(value)?;
    let width = bytes.len() / 6;
    // The traced machine's own order, which is that of every machine that Fathom supports.
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum: u64, byte| sum << 8 | u64::from(*byte));
    matches!(width, 4 | 8).then(|| {
        bytes.chunks_exact(width).take(6).enumerate().for_each(|(i, one)| seen.put(i + 1, word(one)));
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: Kind, text: &str) -> Option<(Vec<Option<u64>>, String)> {
        let mut seen = DecodedEvent::new(kind, 0, 0, 0);
        fill(&mut seen, text)?;
        let count = if kind == Kind::SysEnter { 7 } else { kind.numbers().len() };
        Some(((0..count).map(|i| seen.number(i)).collect(), seen.text))
    }

    #[test]
    fn fields_are_read_by_name() {
        for (kind, text, numbers, words) in [
            (
                Kind::Switch,
                "prev_comm=my app prev_pid=100 prev_prio=120 prev_state=1 next_comm=swapper/0 next_pid=0 next_prio=120",
                &[100, 1, 0][..],
                "swapper/0",
            ),
            (
                Kind::RqIssue,
                "dev=8388608 sector=2048 nr_sector=8 bytes=4096 rwbs=WS comm=app cmd=",
                &[8 << 20, 2048, 8, 4096],
                "WS",
            ),
            (
                Kind::RqComplete,
                "dev=0x800000 (8388608) sector=0xffffffffffffffff (-1) nr_sector=0x0 (0) error=0xfffffffb (-5) rwbs=\"FF\" cmd=\"\"",
                &[8 << 20, u64::MAX, 0, 0xffff_fffb],
                "FF",
            ),
            (
                Kind::CacheAdd,
                "pfn=0x4872aa i_ino=d476e index=0x2 s_dev=266338304 order=0",
                &[254 << 20, 0xd476e, 2, 0],
                "",
            ),
            (Kind::NewTask, "pid=16731 comm=sh clone_flags=4100 oom_score_adj=0", &[16_731, 0x4100], "sh"),
            (Kind::SysExit, "id=1 ret=-28", &[1, (-28_i64).cast_unsigned()], ""),
            (Kind::SysEnter, "id=0x4a (74) args={0x3,0x0,0x0,0x0,0x0,0x7}", &[74, 3, 0, 0, 0, 0, 7], ""),
            (
                Kind::SysEnter,
                "id=74 args=ARRAY[03, 00, 00, 00, 01, 00, 00, 00, 00, 00, 00, 00, 00, 00, 00, 00, 00, 00, 00, 00, 00, 00, 00, 00]",
                &[74, 3, 1, 0, 0, 0, 0],
                "",
            ),
            (Kind::Print, "ip=0xffffffff8119b3b9 buf=B|100|load a=1", &[], "B|100|load a=1"),
        ] {
            let numbers = numbers.iter().copied().map(Some).collect();
            assert_eq!(read(kind, text), Some((numbers, words.into())), "{text}");
        }
    }

    #[test]
    fn text_without_its_fields_is_refused() {
        for (kind, text) in [
            (Kind::Switch, "prev_comm=a prev_pid=1"),
            (Kind::RqIssue, "8,0 WS 4096 () 2048 + 8 [dev=1]"),
            (Kind::SysEnter, "id=1 args=ARRAY[03, zz]"),
            (Kind::SysEnter, "id=0x21 (33) args=<INVALID-SIZE>"),
            (
                Kind::MmcStart,
                "mrq=0xffff8 cmd_opcode=25 cmd_arg=800 blk_addr=2048 blocks=8 blksz=512 data_flags=0x100 tag=0",
            ),
            (Kind::Print, "B|1|x buf=y"),
        ] {
            assert_eq!(read(kind, text), None, "{text}");
        }
    }
}
