//! Names of files and processes.
//!
//! An inode number is reused once its file is removed. SQLite's rollback journal is removed and created again in every
//! transaction, often with the same inode, so a file is (device, inode) **for as long as a name held**: after a removal,
//! the next name is a new file. A file that is replaced by a rename disappears without a removal.
//!
//! The name of a file that a call opened or removed is recorded when the call ends, while the call's record is handed on at the time
//! the call began; another file may have had the inode for part of that time. So the upcoming name is noted on arrival, the call is
//! assigned to the file of that name, and the inode stays the older file's until the name's turn.
//!
//! A process has the last name it was seen with; before its first commit, a journal's thread is recognised by its name
//! alone.
//!
//! *Uncertainty*: a file used only under names that were not seen keeps an empty path; hard links show their newest name.

use crate::Sink;
use crate::hash::FastMap;
use crate::pages::FileKey;
use model::event::{self, Header, file_what, task_what};
use model::table::{File, Process};

/// Number of files kept before removed ones are dropped.
const FILES_MAX: usize = 1 << 16;

struct KnownFile {
    id: u64,
    path: Option<String>,
    start_ns: u64,
    /// The open that gave it its name created it.
    created: bool,
    removed: bool,
}

impl KnownFile {
    fn row(&self, key: FileKey) -> File {
        File { id: self.id, dev: key.0, ino: key.1, path: self.path.clone(), start_ns: self.start_ns }
    }
}

#[derive(Default)]
struct ProcessEntry {
    name: String,
    parent: Option<u32>,
    tracked: bool,
}

/// A name that a call will give to the inode that it opened.
struct UpcomingName {
    key: FileKey,
    path: String,
    created: bool,
    /// The file, if a call that removed it was handed on first.
    id: Option<u64>,
}

impl UpcomingName {
    /// Whether this names a file of that inode with that last component.
    fn is(&self, key: FileKey, name: &str) -> bool {
        self.key == key && base_name(&self.path) == name
    }
}

/// A call that opened a file was handed on but the file's name was not: the call has not ended.
struct OpenCall {
    tid: u32,
    end_ns: u64,
    name: UpcomingName,
    id: u64,
    /// No row was written for the file.
    new: bool,
}

/// The registers of files and processes.
#[derive(Default)]
pub(crate) struct Names {
    files: FastMap<FileKey, KnownFile>,
    /// By thread and time of the name.
    upcoming: FastMap<(u32, u64), UpcomingName>,
    /// Names that calls will remove, as the program passed them; by thread and time of the removal.
    removals: FastMap<(u32, u64), (FileKey, String)>,
    /// Files that were removed before they were handed on, until their rows are written.
    promised: Vec<u64>,
    /// At most one for each thread.
    open_calls: Vec<OpenCall>,
    count: u64,
    processes: FastMap<u32, ProcessEntry>,
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

    /// Returns the file of an inode, as known now; `None` for no inode.
    pub(crate) fn file(&mut self, key: FileKey, time_ns: u64) -> Option<u64> {
        if key.1 == 0 {
            return None;
        }
        if let Some(known) = self.files.get(&key) {
            return Some(known.id);
        }
        self.count += 1;
        // Its row is written when its name becomes known, or at the end.
        self.files
            .insert(key, KnownFile { id: self.count, path: None, start_ns: time_ns, created: false, removed: false });
        Some(self.count)
    }

    /// Returns the path of an inode, as known now.
    pub(crate) fn path(&self, key: FileKey) -> Option<&str> {
        self.files.get(&key)?.path.as_deref()
    }

    /// Notes on arrival what a call opened or removed.
    pub(crate) fn note_arrival(&mut self, header: &Header, file: &event::File) {
        if file.ino == 0 || file.text.is_empty() {
            return;
        }
        let (key, at) = ((file.dev, file.ino), (header.tid, header.time_ns));
        match file.what {
            file_what::REMOVED | file_what::UNLINKED => {
                self.removals.insert(at, (key, base_name(&file.text).to_owned()));
            }
            file_what::OPENED | file_what::CREATED => {
                let created = file.what == file_what::CREATED;
                self.upcoming.insert(at, UpcomingName { key, path: file.text.clone(), created, id: None });
            }
            _ => {}
        }
    }

    /// Returns the path of the file opened by a thread's call that ended at `end_ns`: the upcoming name, if any, else as
    /// known now.
    pub(crate) fn path_opened(&self, key: FileKey, tid: u32, end_ns: u64) -> Option<&str> {
        let upcoming = self.upcoming.get(&(tid, end_ns)).filter(|c| c.key == key);
        upcoming.map(|c| c.path.as_str()).or_else(|| self.path(key))
    }

    /// Returns the file opened by a thread's call that ended at `end_ns`.
    pub(crate) fn opened_file(&mut self, key: FileKey, (tid, end_ns): (u32, u64), time_ns: u64) -> Option<u64> {
        let Some(mut upcoming) = self.upcoming.remove(&(tid, end_ns)).filter(|c| c.key == key) else {
            // After a removal it is a new file; its name follows, if at all.
            if self.files.get(&key).is_some_and(|k| k.removed && k.path.is_some()) {
                self.files.remove(&key);
            }
            return self.file(key, time_ns);
        };
        let same = |other: &&mut OpenCall| other.name.key == key && other.name.path == upcoming.path;
        let known = self.files.get(&key).filter(|k| !upcoming.created && !k.removed).filter(|k| match &k.path {
            Some(path) => *path == upcoming.path,
            None => self.open_calls.iter().all(|other| other.id != k.id),
        });
        let (id, new) = if let Some(id) = upcoming.id {
            (id, self.promised.contains(&id))
        } else if let Some(other) = self.open_calls.iter_mut().find(same) {
            upcoming.created |= other.name.created;
            (other.id, other.new)
        } else if let Some(known) = known {
            (known.id, false)
        } else {
            self.count += 1;
            (self.count, true)
        };
        self.open_calls.push(OpenCall { tid, end_ns, name: upcoming, id, new });
        Some(id)
    }

    /// Returns the name that a thread's call removed until `end_ns`, if the inode gets it only while the call waits.
    fn name_of_later_file(&self, key: FileKey, tid: u32, end_ns: u64) -> Option<&str> {
        let (_, name) = self.removals.get(&(tid, end_ns)).filter(|(of, _)| *of == key)?;
        (self.path(key).map(base_name) != Some(name)).then_some(name)
    }

    /// Returns the path of the file removed by a thread's call that ended at `end_ns`.
    pub(crate) fn path_removed(&self, key: FileKey, tid: u32, end_ns: u64) -> Option<&str> {
        let name = self.name_of_later_file(key, tid, end_ns);
        let names = self.open_calls.iter().map(|o| &o.name).chain(self.upcoming.values());
        let upcoming = name.and_then(|name| names.into_iter().find(|c| c.is(key, name)));
        upcoming.map(|c| c.path.as_str()).or_else(|| self.path(key))
    }

    /// Returns the file removed by a thread's call that ended at `end_ns`.
    pub(crate) fn removed_file(&mut self, key: FileKey, (tid, end_ns): (u32, u64), time_ns: u64) -> Option<u64> {
        let Some(name) = self.name_of_later_file(key, tid, end_ns).map(str::to_owned) else {
            return self.file(key, time_ns);
        };
        if let Some(call) = self.open_calls.iter().rfind(|o| o.name.is(key, &name)) {
            return Some(call.id);
        }
        let mut names: Vec<_> =
            self.upcoming.iter_mut().filter(|((_, at), c)| *at <= end_ns && c.is(key, &name)).collect();
        names.sort_by_key(|((_, at), _)| *at);
        // Files of that name may come and go several times while the call waits; it removes the last one.
        let last = names.split_off(names.iter().rposition(|(_, c)| c.created).unwrap_or(0));
        let Some((_, first)) = last.first() else { return self.file(key, time_ns) };
        let id = first.id.unwrap_or_else(|| {
            self.count += 1;
            self.promised.push(self.count);
            self.count
        });
        last.into_iter().for_each(|(_, c)| c.id = Some(id));
        Some(id)
    }

    /// Records that a file got a name or lost it. Returns whether the inode's pages until then are gone.
    pub(crate) fn note_name(&mut self, header: &Header, file: &event::File, sink: &mut dyn Sink) -> bool {
        let key = (file.dev, file.ino);
        if file.ino == 0 {
            return false;
        }
        let removed = matches!(file.what, file_what::REMOVED | file_what::UNLINKED);
        let path = (!file.text.is_empty()).then(|| file.text.clone());
        self.removals.remove(&(header.tid, header.time_ns));
        let upcoming = self.upcoming.remove(&(header.tid, header.time_ns));
        let place = self.open_calls.iter().position(|o| (o.tid, o.end_ns) == (header.tid, header.time_ns));
        let call = match place {
            Some(place) => Some(self.open_calls.swap_remove(place)),
            // The record of the call that opened it was lost.
            None => upcoming.and_then(|upcoming| {
                let (id, (tid, end_ns)) = (upcoming.id?, (header.tid, header.time_ns));
                Some(OpenCall { tid, end_ns, name: upcoming, id, new: self.promised.contains(&id) })
            }),
        };
        let call = call.filter(|o| o.name.key == key);
        let new = call.as_ref().is_some_and(|o| o.new);
        let created = call.as_ref().map_or(file.what == file_what::CREATED, |o| o.name.created);
        match self.files.get_mut(&key) {
            // The removal of another file, recorded when its call ended: this one was created in the inode that it had freed.
            Some(known)
                if removed
                    && known.created
                    && path.is_some()
                    && known.path.as_deref().map(base_name) != path.as_deref().map(base_name) =>
            {
                return false;
            }
            Some(known)
                if known.path.is_none() && !known.removed && call.as_ref().map_or(!created, |o| o.id == known.id) =>
            {
                known.path = path;
                if known.path.is_some() {
                    sink.file(known.row(key));
                }
                (known.created, known.removed) = (created, removed);
            }
            Some(known) if removed => known.removed = true,
            // Another thread opened the file that this one created, and returned first.
            Some(known) if call.as_ref().is_some_and(|o| o.id == known.id) => return false,
            Some(known) if known.path == path && !known.removed && !created && !new => {}
            _ => {
                let id = call.filter(|o| o.new).map_or_else(
                    || {
                        self.count += 1;
                        self.count
                    },
                    |o| o.id,
                );
                self.promised.retain(|promised| *promised != id);
                self.open_calls.iter_mut().filter(|o| o.id == id).for_each(|o| o.new = false);
                let known = KnownFile { id, path, start_ns: header.time_ns, created, removed };
                if known.path.is_some() {
                    sink.file(known.row(key));
                }
                if let Some(nameless) = self.files.insert(key, known).filter(|k| k.path.is_none()) {
                    sink.file(nameless.row(key));
                }
            }
        }
        if removed && self.files.len() > FILES_MAX {
            self.files.retain(|_, k| !k.removed || k.path.is_none());
        }
        file.what == file_what::REMOVED || created
    }

    /// Records that a task was created, executed another program, or ended.
    pub(crate) fn on_task(&mut self, header: &Header, task: &event::Task, sink: &mut dyn Sink) {
        if header.tid != header.tgid {
            return;
        }
        if task.what == task_what::FORKED {
            self.end_process(header.tgid, sink);
        }
        let known = self.processes.entry(header.tgid).or_default();
        if !task.text.is_empty() {
            known.name.clone_from(&task.text);
        }
        if task.parent != 0 {
            known.parent = Some(task.parent);
        }
        if task.what == task_what::ENDED {
            self.end_process(header.tgid, sink);
        }
    }

    /// Marks the process as recorded, according to one of its records.
    pub(crate) fn mark_tracked(&mut self, tgid: u32) {
        match self.processes.get_mut(&tgid) {
            Some(known) => known.tracked = true,
            None => {
                self.processes.insert(tgid, ProcessEntry { tracked: true, ..ProcessEntry::default() });
            }
        }
    }

    /// Whether any record marked it so.
    pub(crate) fn is_tracked(&self, tgid: u32) -> bool {
        self.processes.get(&tgid).is_some_and(|p| p.tracked)
    }

    fn end_process(&mut self, tgid: u32, sink: &mut dyn Sink) {
        if let Some(p) = self.processes.remove(&tgid) {
            sink.process(Process { tgid, name: p.name, parent: p.parent, tracked: p.tracked });
        }
    }

    /// Writes the rows that were held back until more became known.
    pub(crate) fn finish(&mut self, sink: &mut dyn Sink) {
        let mut nameless: Vec<_> = self.files.iter().filter(|(_, k)| k.path.is_none()).collect();
        nameless.sort_by_key(|(_, k)| k.id);
        nameless.into_iter().for_each(|(key, known)| sink.file(known.row(*key)));
        let mut tgids: Vec<u32> = self.processes.keys().copied().collect();
        tgids.sort_unstable();
        tgids.into_iter().for_each(|tgid| self.end_process(tgid, sink));
    }

    pub(crate) fn len(&self) -> usize {
        self.files.len()
            + self.upcoming.len()
            + self.removals.len()
            + self.promised.len()
            + self.open_calls.len()
            + self.processes.len()
    }
}

/// A path's last component.
fn base_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}
