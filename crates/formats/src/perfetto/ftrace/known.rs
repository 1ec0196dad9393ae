//! Where Perfetto's messages of known events have the fields of [`DecodedEvent`]: field numbers of
//! `protos/perfetto/trace/ftrace/*.proto`.
//!
//! Perfetto stores a disk's number in the form of user space, not of the kernel (`TranslateBlockDeviceIDToUserspace`); it is
//! converted back here. Events without a message of their own have their names and those of their fields in the trace
//! ([`by_name`]).

use crate::ftrace::decoder::{DecodedEvent, Kind};
use crate::perfetto::wire::{Fields, Value};

/// An event's field in `FtraceEvent`, its kind, the fields of its numbers in the order of [`Kind::numbers`] (0: it has none), and the
/// field of its text.
type KnownEvent = (u32, Kind, &'static [u32], u32);

const KNOWN_EVENTS: &[KnownEvent] = &[
    (3, Kind::Print, &[], 2),
    (4, Kind::Switch, &[2, 4, 6], 5),
    (17, Kind::Wakeup, &[2], 1),
    (20, Kind::Waking, &[2], 1),
    (41, Kind::DaWriteBegin, &[1, 2, 3, 4], 0),
    (43, Kind::SyncEnter, &[1, 2], 0),
    (45, Kind::RqIssue, &[1, 2, 3, 4], 5),
    (97, Kind::CacheAdd, &[4, 2, 3, 0], 0),
    (117, Kind::BioComplete, &[1, 2, 3, 4], 5),
    (119, Kind::BioQueue, &[1, 2, 3], 4),
    (120, Kind::BioRemap, &[1, 2, 3, 4, 5], 6),
    (121, Kind::DirtyBuffer, &[1, 2, 3], 0),
    (122, Kind::GetRequest, &[1, 2, 3], 4),
    // Its error was called `errors` (4) before Linux 4.20.
    (125, Kind::RqComplete, &[1, 2, 3, 7], 5),
    (126, Kind::RqInsert, &[1, 2, 3, 4], 5),
    (131, Kind::BioSplit, &[1, 2, 3], 4),
    (136, Kind::AllocateInode, &[1, 2], 0),
    (152, Kind::ExtentKept, &[1, 2, 3, 4, 5, 6], 0),
    (154, Kind::ExtentFound, &[1, 2, 3, 4, 5, 6, 7], 0),
    (160, Kind::EvictInode, &[1, 2, 3], 0),
    (217, Kind::UnlinkEnter, &[1, 2], 0),
    (219, Kind::WriteBegin, &[1, 2, 3, 4], 0),
    (232, Kind::WritePages, &[1, 2], 0),
    (233, Kind::WritePagesDone, &[1, 2], 0),
    (235, Kind::NewTask, &[1, 3], 2),
    (237, Kind::Exec, &[2, 3], 1),
    (238, Kind::Exit, &[2], 1),
    (239, Kind::Fork, &[2, 4], 3),
    (255, Kind::F2fsSyncEnter, &[1, 2], 0),
    (271, Kind::F2fsWriteBegin, &[1, 2, 3, 4], 0),
    (329, Kind::SysEnter, &[1, 2], 0),
    (330, Kind::SysExit, &[1, 2], 0),
    (406, Kind::UfsCommand, &[10, 7, 4, 5, 8, 0], 6),
];

/// The kind of an event's field.
pub fn kind_of_field(field: u32) -> Option<Kind> {
    KNOWN_EVENTS.iter().find(|known| known.0 == field).map(|known| known.1)
}

/// Fills in a known event from its message. A missing number is 0, as usual in protobuf, if its kind has a field for it.
pub fn fill(seen: &mut DecodedEvent, field: u32, message: &[u8]) -> Option<()> {
    let (_, kind, numbers, text) = KNOWN_EVENTS.iter().find(|known| known.0 == field)?;
    for (place, _) in numbers.iter().enumerate().filter(|(_, from)| **from != 0) {
        // Kernels that report a UFS event's type as text have no number for it.
        if (*kind, place) != (Kind::UfsCommand, 0) {
            seen.put(place, 0);
        }
    }
    let (mut args, mut fields) = (0, Fields::new(message));
    for (field, value) in fields.by_ref() {
        if *kind == Kind::SysEnter && field == 2 {
            each_number(value, |n| {
                args += 1;
                if args <= 6 {
                    seen.put(args, n);
                }
            });
        } else if let Some(place) = numbers.iter().position(|own| *own == field) {
            seen.put(place, kernel_number(kind.numbers()[place], value.number()));
        } else if field == *text {
            seen.text = value.text();
        } else if *kind == Kind::RqComplete && field == 4 && seen.number(3) == Some(0) {
            seen.put(3, value.number());
        }
    }
    require_whole(seen, !fields.failed())
}

/// Fills in an event from named fields.
pub fn by_name<'a>(seen: &mut DecodedEvent, fields: impl Iterator<Item = (&'a str, Value<'a>)>) -> Option<()> {
    let text = seen.kind.text();
    for (name, value) in fields {
        if text == Some(name) && matches!(name, "cmnd" | "cdw10") {
            // Bytes, not a text.
            seen.text = value.bytes().iter().map(|b| format!("{b:02x}")).collect();
        } else if text == Some(name) {
            seen.text = value.text();
        } else if seen.kind.disk() == Some(name) {
            seen.disk = Some(value.text().into());
        } else {
            seen.set(name, kernel_number(name, value.number()));
        }
    }
    require_whole(seen, true)
}

/// `None` if the message was broken, or lacks what its kind cannot do without.
fn require_whole(seen: &DecodedEvent, sound: bool) -> Option<()> {
    (sound && seen.is_whole()).then_some(())
}

fn kernel_number(name: &str, value: u64) -> u64 {
    if matches!(name, "dev" | "s_dev" | "old_dev") { kernel_dev(value) } else { value }
}

/// Converts a disk's number from user space (makedev(3)) to the kernel's.
fn kernel_dev(dev: u64) -> u64 {
    let major = dev >> 8 & 0xfff | dev >> 32 & 0xffff_f000;
    let minor = dev & 0xff | dev >> 12 & 0xfff_ff00;
    (major & 0xfff) << 20 | minor & 0xf_ffff
}

/// Repeated numbers: either one of them, or many packed as varints.
pub fn each_number(value: Value<'_>, mut each: impl FnMut(u64)) {
    match value {
        Value::Number(n) => each(n),
        Value::Bytes(mut bytes) => {
            while let Some(n) = crate::perfetto::wire::take_varint(&mut bytes) {
                each(n);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perfetto::wire::Encode as _;

    #[test]
    fn device_numbers_of_user_space_become_those_of_kernel() {
        for (major, minor) in [(8_u64, 0_u64), (254, 1), (259, 300), (4095, 0xf_ffff)] {
            let user = (major & 0xfff) << 8 | (minor & !0xff) << 12 | minor & 0xff;
            assert_eq!(kernel_dev(user), major << 20 | minor, "{major}:{minor}");
        }
    }

    #[test]
    fn known_events_match_their_kinds() {
        for (field, kind, numbers, text) in KNOWN_EVENTS {
            assert_eq!(numbers.len(), kind.numbers().len(), "{field}");
            assert_eq!(*text != 0, kind.text().is_some(), "{field}");
            assert!(KNOWN_EVENTS.iter().filter(|other| other.0 == *field || other.1 == *kind).count() == 1, "{field}");
        }
    }

    #[test]
    fn an_old_completion_has_its_error_in_another_field() {
        for (field, error) in [(4, -5_i64), (7, -5)] {
            let mut message = Vec::new();
            message.varint(1, 8 << 8);
            message.varint(field, error.cast_unsigned());
            let mut seen = DecodedEvent::new(Kind::RqComplete, 0, 0, 0);
            fill(&mut seen, 125, &message).unwrap();
            assert_eq!((seen.number(0), seen.number(3)), (Some(8 << 20), Some((-5_i64).cast_unsigned())));
        }
    }
}
