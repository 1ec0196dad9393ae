//! Names of files and processes.
//!
//! An inode number is used again once its file is removed. SQLite's rollback journal is removed and created again in
//! every transaction, often with the same inode, so a file is (device, inode) **for as long as a name held**: after a
//! removal, the next name is a new file.
//!
//! A process has the last name it was seen with; a journal's thread is known by it alone before its first commit.
//!
//! *Uncertainty*: a file that is used under no name that was seen keeps an empty path; hard links show their newest name.

use crate::Sink;
use crate::hash::FastMap;
use crate::pages::FileKey;
use model::event::{self, Header, file_what, task_what};
use model::table::{File, Process};

/// Files remembered before removed ones are forgotten.
const KEPT: usize = 1 << 16;

struct Known {
    id: u64,
    path: Option<String>,
    start_ns: u64,
    removed: bool,
}

impl Known {
    fn row(&self, key: FileKey) -> File {
        File { id: self.id, dev: key.0, ino: key.1, path: self.path.clone(), start_ns: self.start_ns }
    }
}

#[derive(Default)]
struct Program {
    name: String,
    parent: Option<u32>,
    tracked: bool,
}

/// The registers.
#[derive(Default)]
pub(crate) struct Names {
    files: FastMap<FileKey, Known>,
    count: u64,
    processes: FastMap<u32, Program>,
}

impl Names {
    /// Whether this is a journal's thread, by the name that jbd2 gives it.
    pub(crate) fn is_journal_thread(&self, tgid: u32) -> bool {
        self.processes.get(&tgid).is_some_and(|p| p.name.starts_with("jbd2/"))
    }

    /// Whether two processes have the same parent.
    pub(crate) fn are_siblings(&self, one: u32, other: u32) -> bool {
        let parent = |tgid| self.processes.get(&tgid).and_then(|p| p.parent);
        parent(one).is_some_and(|of_one| parent(other) == Some(of_one))
    }

    /// The file of an inode, as known now; `None` for no inode.
    pub(crate) fn file(&mut self, key: FileKey, time_ns: u64) -> Option<u64> {
        if key.1 == 0 {
            return None;
        }
        if let Some(known) = self.files.get(&key) {
            return Some(known.id);
        }
        self.count += 1;
        // Its row is written when its name is learnt, or at the end.
        self.files.insert(key, Known { id: self.count, path: None, start_ns: time_ns, removed: false });
        Some(self.count)
    }

    /// The path of an inode, as known now.
    pub(crate) fn path(&self, key: FileKey) -> Option<&str> {
        self.files.get(&key)?.path.as_deref()
    }

    /// A call opened the inode; its name follows. After a removal that makes it a new file.
    pub(crate) fn opened(&mut self, key: FileKey, time_ns: u64) {
        if self.files.get(&key).is_some_and(|k| k.removed && k.path.is_some()) {
            self.files.remove(&key);
            self.file(key, time_ns);
        }
    }

    /// A file became known by name, or lost it. Returns whether the inode's pages are gone with it.
    pub(crate) fn learn(&mut self, header: &Header, file: &event::File, sink: &mut dyn Sink) -> bool {
        let key = (file.dev, file.ino);
        if file.ino == 0 {
            return false;
        }
        let removed = file.what == file_what::REMOVED;
        let path = (!file.text.is_empty()).then(|| file.text.clone());
        match self.files.get_mut(&key) {
            Some(known) if known.path.is_none() && !known.removed => {
                known.path = path;
                if known.path.is_some() {
                    sink.file(known.row(key));
                }
                known.removed = removed;
            }
            Some(known) if removed => known.removed = true,
            Some(known) if known.path == path && !known.removed => {}
            _ => {
                self.count += 1;
                let known = Known { id: self.count, path, start_ns: header.time_ns, removed };
                if known.path.is_some() {
                    sink.file(known.row(key));
                }
                self.files.insert(key, known);
            }
        }
        if removed && self.files.len() > KEPT {
            self.files.retain(|_, k| !k.removed || k.path.is_none());
        }
        removed
    }

    /// A task was made, became another program, or ended.
    pub(crate) fn task(&mut self, header: &Header, task: &event::Task, sink: &mut dyn Sink) {
        if header.tid != header.tgid {
            return;
        }
        if task.what == task_what::FORKED {
            self.end(header.tgid, sink);
        }
        let known = self.processes.entry(header.tgid).or_default();
        if !task.text.is_empty() {
            known.name.clone_from(&task.text);
        }
        if task.parent != 0 {
            known.parent = Some(task.parent);
        }
        if task.what == task_what::ENDED {
            self.end(header.tgid, sink);
        }
    }

    /// A record of the process says that it is recorded.
    pub(crate) fn tracked(&mut self, tgid: u32) {
        match self.processes.get_mut(&tgid) {
            Some(known) => known.tracked = true,
            None => {
                self.processes.insert(tgid, Program { tracked: true, ..Program::default() });
            }
        }
    }

    /// Whether any record said so.
    pub(crate) fn is_tracked(&self, tgid: u32) -> bool {
        self.processes.get(&tgid).is_some_and(|p| p.tracked)
    }

    fn end(&mut self, tgid: u32, sink: &mut dyn Sink) {
        if let Some(p) = self.processes.remove(&tgid) {
            sink.process(Process { tgid, name: p.name, parent: p.parent, tracked: p.tracked });
        }
    }

    /// Writes the rows that waited for more to be known.
    pub(crate) fn finish(&mut self, sink: &mut dyn Sink) {
        let mut nameless: Vec<_> = self.files.iter().filter(|(_, k)| k.path.is_none()).collect();
        nameless.sort_by_key(|(_, k)| k.id);
        nameless.into_iter().for_each(|(key, known)| sink.file(known.row(*key)));
        let mut tgids: Vec<u32> = self.processes.keys().copied().collect();
        tgids.sort_unstable();
        tgids.into_iter().for_each(|tgid| self.end(tgid, sink));
    }

    pub(crate) fn len(&self) -> usize {
        self.files.len() + self.processes.len()
    }
}
