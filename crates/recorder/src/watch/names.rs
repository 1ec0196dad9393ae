//! What is named once and used for long: files, processes, statements. Their records have left the ring when an incident needs them.
//!
//! Each record that the ring gives up comes here. One that names something is kept until the same thing gets another name, until its
//! process ends, or until there are too many: then those named longest ago are forgotten, and are without a name in later incidents.

use model::event::{Chain, File, Header, InnerTask, Statement, Task, file_what, task_what};
use model::{Event, Record};
use std::collections::{BTreeMap, HashMap};

const STATEMENT_KIND: u8 = Statement::INFO.kind;
const FILE_KIND: u8 = File::INFO.kind;
const TASK_KIND: u8 = Task::INFO.kind;
const INNER_TASK_KIND: u8 = InnerTask::INFO.kind;
const CHAIN_KIND: u8 = Chain::INFO.kind;

/// Estimate of the memory that an entry needs in addition to its record, in bytes: its keys, and the nodes of two maps.
const ENTRY_BYTES: usize = 192;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    /// Process and address.
    Statement(u32, u64),
    /// File system and inode.
    File(u32, u64),
    Task(u32),
    Inner(u32),
    Chain(u32),
}

#[derive(Debug, Clone)]
pub struct Names {
    /// By age.
    records: BTreeMap<u64, (Key, Box<[u8]>)>,
    ages: HashMap<Key, u64>,
    next_age: u64,
    bytes: usize,
    bytes_max: usize,
    /// Number of names that were forgotten for lack of room.
    pub forgotten: u64,
}

impl Names {
    pub fn new(bytes_max: usize) -> Self {
        let (records, ages) = (BTreeMap::new(), HashMap::new());
        Self { records, ages, next_age: 0, bytes: 0, bytes_max, forgotten: 0 }
    }

    /// Learns from a record that is no longer in the ring.
    pub fn learn(&mut self, record: &[u8]) {
        let Some(header) = Header::decode(record) else { return };
        if ![STATEMENT_KIND, FILE_KIND, TASK_KIND, INNER_TASK_KIND, CHAIN_KIND].contains(&header.kind) {
            return;
        }
        let Some(event) = Event::decode(record) else { return };
        match event.record {
            Record::Statement(statement) => {
                // It was prepared long before the incident, which is not to begin with that.
                let late = Statement { start_ns: 0, ..statement };
                self.put(Key::Statement(header.tgid, late.stmt), Event { header, record: late.into() });
            }
            Record::File(file) if file.what == file_what::REMOVED => self.forget(Key::File(file.dev, file.ino)),
            Record::File(ref file) => self.put(Key::File(file.dev, file.ino), event),
            Record::Task(ref task) if task.what == task_what::ENDED => {
                self.forget(Key::Task(header.tid));
                self.forget(Key::Inner(header.tid));
            }
            Record::Task(_) => self.put(Key::Task(header.tid), event),
            Record::InnerTask(ref task) => self.put(Key::Inner(task.tid), event),
            Record::Chain(ref chain) => self.put(Key::Chain(chain.chain), event),
            _ => {}
        }
    }

    fn put(&mut self, key: Key, event: Event) {
        let mut bytes = Vec::new();
        event.encode(&mut bytes);
        self.forget(key);
        self.bytes += bytes.len() + ENTRY_BYTES;
        self.ages.insert(key, self.next_age);
        self.records.insert(self.next_age, (key, bytes.into()));
        self.next_age += 1;
        while self.bytes > self.bytes_max
            && let Some((_, (key, bytes))) = self.records.pop_first()
        {
            self.ages.remove(&key);
            self.bytes -= bytes.len() + ENTRY_BYTES;
            self.forgotten += 1;
        }
    }

    fn forget(&mut self, key: Key) {
        if let Some((_, bytes)) = self.ages.remove(&key).and_then(|age| self.records.remove(&age)) {
            self.bytes -= bytes.len() + ENTRY_BYTES;
        }
    }

    /// The records, those named longest ago first, as if they had been made at `at_ns`.
    pub fn records(&self, at_ns: u64) -> impl Iterator<Item = Vec<u8>> {
        self.records.values().map(move |(_, record)| {
            let mut record = record.to_vec();
            // A header begins with the time.
            if let Some(time) = record.first_chunk_mut() {
                *time = at_ns.to_le_bytes();
            }
            record
        })
    }

    /// Memory in use, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(line: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        Event::parse(line).unwrap().encode(&mut bytes);
        bytes
    }

    fn texts(names: &Names) -> Vec<String> {
        names.records(9).map(|record| Event::decode(&record).unwrap().to_text()).collect()
    }

    #[test]
    fn newest_name_of_each_thing_is_kept() {
        let mut names = Names::new(1 << 20);
        for line in [
            "@1 7 file dev=1 ino=2 text=/old",
            "@2 7 syscall start_ns=1",
            "@3 7 file dev=1 ino=2 text=/new",
            "@4 7 file dev=1 ino=3 text=/gone",
            "@5 7 file dev=1 ino=3 what=2 text=/gone",
            "@6 7 task text=hog",
            "@7 8 task text=ended",
            "@8 8 task what=2",
        ] {
            names.learn(&bytes(line));
        }
        let texts = texts(&names);
        assert_eq!(texts.len(), 2, "{texts:?}");
        assert!(texts[0].contains("/new") && texts[1].contains("hog"), "{texts:?}");
        assert!(texts.iter().all(|text| text.starts_with("@9 ")), "{texts:?}");
    }

    #[test]
    fn memory_is_bounded_under_any_number_of_names() {
        let mut names = Names::new(100_000);
        for n in 0..5000 {
            names.learn(&bytes(&format!("@{n} 7 file dev=1 ino={n} text=/{}", "x".repeat(n % 900))));
            assert!(names.held_bytes() <= 100_000);
        }
        assert_eq!(names.forgotten + names.records(0).count() as u64, 5000);
        assert!(texts(&names).last().is_some_and(|newest| newest.contains("ino=4999")));
        (0..5000).for_each(|n| names.learn(&bytes(&format!("@{n} 7 file dev=1 ino={n} what=2 text=/"))));
        assert_eq!((names.held_bytes(), names.records(0).count()), (0, 0));
    }

    #[test]
    fn statement_prepared_long_ago_does_not_begin_then() {
        let mut names = Names::new(1 << 20);
        names.learn(&bytes("@5 7 statement stmt=1 start_ns=4 text=SELECT"));
        let kept = texts(&names);
        assert!(kept[0].contains("SELECT") && !kept[0].contains("start_ns=4"), "{kept:?}");
    }
}
