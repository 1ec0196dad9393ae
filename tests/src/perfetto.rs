//! A real ftrace trace as Perfetto would have recorded it: the pages of a trace.dat in the messages of
//! `protos/perfetto/trace/ftrace/*.proto`, field by field. Perfetto itself is in no registry.
//!
//! Switches and wake-ups are in the compact form, events with a message of their own are in it, and the others are generic or, in
//! every second bundle, described by the trace itself. `trace_processor`, which counts its events, would find errors here.

use anyhow::{Context, Result};
use formats::ftrace::format::Format;
use formats::ftrace::page::{Item, Layout, Pages};
use formats::perfetto::wire::Encode;
use formats::tracedat::TraceDat;
use std::collections::BTreeMap;

/// An event, its field in `FtraceEvent`, and its fields: the kernel's names, and their numbers.
type Message = (&'static str, u32, &'static [(&'static str, u32)]);

const EVENT_MESSAGES: &[Message] = &[
    (
        "block_rq_issue",
        45,
        &[("dev", 1), ("sector", 2), ("nr_sector", 3), ("bytes", 4), ("rwbs", 5), ("comm", 6), ("cmd", 7)],
    ),
    ("block_rq_complete", 125, &[("dev", 1), ("sector", 2), ("nr_sector", 3), ("rwbs", 5), ("cmd", 6), ("error", 7)]),
    ("block_rq_insert", 126, &[("dev", 1), ("sector", 2), ("nr_sector", 3), ("bytes", 4), ("rwbs", 5), ("comm", 6)]),
    ("block_bio_queue", 119, &[("dev", 1), ("sector", 2), ("nr_sector", 3), ("rwbs", 4), ("comm", 5)]),
    ("block_bio_complete", 117, &[("dev", 1), ("sector", 2), ("nr_sector", 3), ("error", 4), ("rwbs", 5)]),
    (
        "block_bio_remap",
        120,
        &[("dev", 1), ("sector", 2), ("nr_sector", 3), ("old_dev", 4), ("old_sector", 5), ("rwbs", 6)],
    ),
    ("block_split", 131, &[("dev", 1), ("sector", 2), ("new_sector", 3), ("rwbs", 4), ("comm", 5)]),
    ("block_getrq", 122, &[("dev", 1), ("sector", 2), ("nr_sector", 3), ("rwbs", 4), ("comm", 5)]),
    ("block_dirty_buffer", 121, &[("dev", 1), ("sector", 2), ("size", 3)]),
    ("ext4_da_write_begin", 41, &[("dev", 1), ("ino", 2), ("pos", 3), ("len", 4), ("flags", 5)]),
    ("ext4_sync_file_enter", 43, &[("dev", 1), ("ino", 2), ("parent", 3), ("datasync", 4)]),
    ("ext4_unlink_enter", 217, &[("dev", 1), ("ino", 2), ("parent", 3), ("size", 4)]),
    ("ext4_evict_inode", 160, &[("dev", 1), ("ino", 2), ("nlink", 3)]),
    ("ext4_writepages", 232, &[("dev", 1), ("ino", 2), ("nr_to_write", 3)]),
    ("ext4_writepages_result", 233, &[("dev", 1), ("ino", 2), ("ret", 3)]),
    (
        "ext4_es_lookup_extent_exit",
        154,
        &[("dev", 1), ("ino", 2), ("lblk", 3), ("len", 4), ("pblk", 5), ("status", 6), ("found", 7)],
    ),
    ("ext4_es_insert_extent", 152, &[("dev", 1), ("ino", 2), ("lblk", 3), ("len", 4), ("pblk", 5), ("status", 6)]),
    ("mm_filemap_add_to_page_cache", 97, &[("pfn", 1), ("i_ino", 2), ("index", 3), ("s_dev", 4)]),
    ("task_newtask", 235, &[("pid", 1), ("comm", 2), ("clone_flags", 3), ("oom_score_adj", 4)]),
    ("sched_process_fork", 239, &[("parent_comm", 1), ("parent_pid", 2), ("child_comm", 3), ("child_pid", 4)]),
    ("sched_process_exec", 237, &[("filename", 1), ("pid", 2), ("old_pid", 3)]),
    ("sched_process_exit", 238, &[("comm", 1), ("pid", 2), ("prio", 4)]),
    ("sys_exit", 330, &[("id", 1), ("ret", 2)]),
];

const GENERIC_EVENT_FIELD: u32 = 327;
const SYS_ENTER: u32 = 329;
/// The first field number that Perfetto gives an event without a message.
const DESCRIBED_EVENT_FIELD: u32 = 65_536;

/// A field's value.
enum Value {
    Number(u64),
    Text(Vec<u8>),
}

struct Event<'a> {
    layout: Layout,
    format: &'a Format,
    data: &'a [u8],
}

impl Event<'_> {
    fn number(&self, name: &str) -> u64 {
        let Some(field) = self.format.field(name) else { return 0 };
        let n = self.layout.number(self.data, field.offset, field.size);
        let n = if field.signed {
            (n << (64 - 8 * field.size)).cast_signed() >> (64 - 8 * field.size)
        } else {
            n.cast_signed()
        };
        // In the form of `ReadDevId`: makedev(3).
        let (major, minor) = (n >> 20, n & 0xf_ffff);
        if field.of == "dev_t" {
            ((minor & 0xff) | major << 8 | (minor & !0xff) << 12).cast_unsigned()
        } else {
            n.cast_unsigned()
        }
    }

    fn value(&self, name: &str) -> Option<Value> {
        let field = self.format.field(name)?;
        if !field.of.contains("char") {
            return matches!(field.size, 1 | 2 | 4 | 8).then(|| Value::Number(self.number(name)));
        }
        let (at, length) = match field.location() {
            Some(_) => {
                let word = self.layout.number(self.data, field.offset, 4);
                ((word & 0xffff) as usize, (word >> 16) as usize)
            }
            None => (field.offset, field.size),
        };
        let text = self.data.get(at..at + length)?;
        Some(Value::Text(text.split(|b| *b == 0).next().unwrap_or_default().to_vec()))
    }
}

fn put_field(out: &mut Vec<u8>, field: u32, value: &Value) {
    match value {
        Value::Number(n) => out.varint(field, *n),
        Value::Text(text) => out.bytes(field, text),
    }
}

/// Returns the trace, and the number of events of each name in it.
pub fn encode_trace(trace: &TraceDat<'_>) -> Result<(Vec<u8>, BTreeMap<String, u64>)> {
    let by_id: BTreeMap<u64, &Format> = trace.formats.iter().map(|f| (u64::from(f.id), f)).collect();
    let (mut out, mut counts) = (Vec::new(), BTreeMap::new());
    let mut words = trace.uname.split_whitespace();
    let (release, machine) =
        (words.nth(2).unwrap_or_default(), trace.uname.split_whitespace().last().unwrap_or_default());
    out.message(1, |packet| {
        packet.message(45, |system| {
            system.message(1, |uname| {
                uname.bytes(3, release.as_bytes());
                uname.bytes(4, machine.as_bytes());
            });
        });
    });
    let mut nth = 0;
    for buffer in &trace.buffers {
        for (cpu, pages) in &buffer.cpus {
            let items: Vec<Item<'_>> = Pages::new(buffer.layout, pages).collect();
            for some in items.chunks(300) {
                nth += 1;
                let mut bundle = Vec::new();
                bundle.varint(1, (*cpu).into());
                let (mut dense, mut described) = (Dense::default(), BTreeMap::new());
                for item in some {
                    let Item::Record(record) = item else { continue };
                    let id = buffer.layout.number(record.data, 0, 2);
                    let format = by_id.get(&id).with_context(|| format!("no format of event {id}"))?;
                    let event = Event { layout: buffer.layout, format, data: record.data };
                    *counts.entry(format.name.clone()).or_default() += 1;
                    if dense.takes(&event, record.time) {
                        continue;
                    }
                    bundle.message(2, |message| {
                        message.varint(1, record.time);
                        message.varint(2, event.number("common_pid"));
                        write_event(message, &event, nth % 2 == 0, &mut described);
                    });
                }
                dense.write(&mut bundle);
                for (id, (name, fields)) in described {
                    bundle.message(11, |told| {
                        told.varint(1, u64::from(id));
                        told.message(2, |message| describe_event(message, &name, &fields));
                    });
                }
                out.message(1, |packet| {
                    packet.varint(10, 1);
                    packet.bytes(1, &bundle);
                });
            }
        }
    }
    Ok((out, counts))
}

/// `DescriptorProto`.
fn describe_event(message: &mut Vec<u8>, name: &str, fields: &[(String, bool)]) {
    message.bytes(1, name.as_bytes());
    for (i, (name, text)) in fields.iter().enumerate() {
        message.message(2, |field| {
            field.bytes(1, name.as_bytes());
            field.varint(3, i as u64 + 1);
            field.varint(4, 1);
            field.varint(5, if *text { 9 } else { 4 });
        });
    }
}

type Descriptors = BTreeMap<u32, (String, Vec<(String, bool)>)>;

fn write_event(message: &mut Vec<u8>, event: &Event<'_>, describes: bool, described: &mut Descriptors) {
    let name = event.format.name.as_str();
    if name == "sys_enter" {
        return message.message(SYS_ENTER, |enter| {
            enter.varint(1, event.number("id"));
            let args = event.format.field("args").map_or(16, |f| f.offset);
            (0..6).for_each(|i| enter.varint(2, event.layout.number(event.data, args + i * 8, 8)));
        });
    }
    if let Some((_, field, fields)) = EVENT_MESSAGES.iter().find(|m| m.0 == name) {
        return message.message(*field, |inner| {
            fields.iter().for_each(|(name, to)| {
                if let Some(value) = event.value(name) {
                    put_field(inner, *to, &value);
                }
            });
        });
    }
    let own: Vec<(String, Value)> = event
        .format
        .fields
        .iter()
        .filter(|f| !f.name.starts_with("common_"))
        .filter_map(|f| Some((f.name.clone(), event.value(&f.name)?)))
        .collect();
    if describes {
        let id = DESCRIBED_EVENT_FIELD + u32::from(event.format.id);
        let fields = own.iter().map(|(name, value)| (name.clone(), matches!(value, Value::Text(_)))).collect();
        described.entry(id).or_insert((name.to_owned(), fields));
        return message.message(id, |inner| {
            own.iter().enumerate().for_each(|(i, (_, value))| put_field(inner, i as u32 + 1, value))
        });
    }
    message.message(GENERIC_EVENT_FIELD, |generic| {
        generic.bytes(1, name.as_bytes());
        for (name, value) in &own {
            generic.message(2, |field| {
                field.bytes(1, name.as_bytes());
                put_field(field, if matches!(value, Value::Text(_)) { 3 } else { 5 }, value);
            });
        }
    });
}

/// `CompactSched` of a bundle.
#[derive(Default)]
struct Dense {
    names: Vec<Vec<u8>>,
    /// By field number.
    lists: BTreeMap<u32, Vec<u64>>,
    last: [u64; 2],
}

impl Dense {
    fn takes(&mut self, event: &Event<'_>, time: u64) -> bool {
        let (which, of): (usize, &[(u32, &str)]) = match event.format.name.as_str() {
            "sched_switch" => (0, &[(2, "prev_state"), (3, "next_pid"), (4, "next_prio")]),
            "sched_waking" => (1, &[(8, "pid"), (9, "target_cpu"), (10, "prio")]),
            _ => return false,
        };
        let (at, name, comm) = [(1, 6, "next_comm"), (7, 11, "comm")][which];
        self.lists.entry(at).or_default().push(time - self.last[which]);
        self.last[which] = time;
        of.iter().for_each(|(field, name)| self.lists.entry(*field).or_default().push(event.number(name)));
        let Some(Value::Text(text)) = event.value(comm) else { return true };
        let place = self.names.iter().position(|n| *n == text).unwrap_or_else(|| {
            self.names.push(text);
            self.names.len() - 1
        });
        self.lists.entry(name).or_default().push(place as u64);
        true
    }

    fn write(&self, bundle: &mut Vec<u8>) {
        if self.lists.is_empty() {
            return;
        }
        bundle.message(4, |dense| {
            for (field, list) in &self.lists {
                let mut packed = Vec::new();
                for n in list {
                    // Only the number, without its field.
                    let mut one = Vec::new();
                    one.varint(1, *n);
                    packed.extend(&one[1..]);
                }
                dense.bytes(*field, &packed);
            }
            self.names.iter().for_each(|name| dense.bytes(5, name));
        });
    }
}
