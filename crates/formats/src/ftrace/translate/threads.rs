//! Translates the events of threads: calls, sleeps, tasks, and events from within the file system.

use super::Translator;
use super::calls::{self, Call, DescriptorCall};
use super::extents::File;
use crate::ftrace::calls::DescriptorChange;
use crate::ftrace::decoder::{DecodedEvent, Kind};
use model::Call as Name;
use model::event::{
    CacheAdd, FsWrite, Header, OffCpu, SyncBegin, Syscall, Task, file_what, flags, header_flags, task_what,
};

/// Longer writes are reported piece by piece, as its pages may reach the disk before the call returns; as in `syscalls.bpf.c`.
const LONG_WRITE_BYTES: u64 = 64 << 10;
/// A thread can be woken while it leaves the CPU, before the switch: this much earlier at most; as in `sched.bpf.c`.
const LEAVING_NS_MAX: u64 = 100_000;
/// Dirty pages of a file that are remembered.
const DIRTY_PAGES_MAX: usize = 1 << 16;

impl Translator {
    pub(super) fn on_call(&mut self, s: &DecodedEvent) {
        let Some(number) = s.number(0).filter(|n| *n < 1 << 16) else {
            self.thread(s.tid).call = None;
            return;
        };
        if s.kind == Kind::SysExit {
            return self.on_exit(s);
        }
        self.tasks.on_call(s.tid);
        if self.learns {
            self.known.callers.insert(s.tid);
        }
        let args: [u64; 6] = std::array::from_fn(|i| s.number(i + 1).unwrap_or(0));
        let (shape, odd) = calls::interpret_entry(self.machine, number, args);
        let tgid = self.tasks.process(s.tid);
        if self.tracer == Some(tgid) {
            return;
        }
        let path = std::mem::take(&mut self.thread(s.tid).path);
        let call = shape.map(|shape| {
            let fd = shape.fd.map_or(-1, |i| args[usize::from(i)] as i32);
            let opened = (fd >= 0).then(|| self.descriptors.opened(tgid, fd));
            let file = opened.and_then(|o| self.known.files.get(&o).copied());
            let syncs = shape.call.syncs();
            let opens = shape.call == Name::Open;
            let emitted = match shape.fd {
                Some(_) => file.is_some() || syncs,
                None => !opens || self.known.about_files.contains(&(s.tid, s.time_ns)),
            };
            let start_ns = s.time_ns;
            let (txn, began_at, fs_start_ns) = (None, None, 0);
            Call {
                shape,
                start_ns,
                args,
                fd,
                opened,
                file,
                fs_start_ns,
                txn,
                fs_writes: 0,
                cache_added: 0,
                began_at,
                emitted,
                path,
            }
        });
        let begun = call.as_ref().filter(|c| c.shape.call.syncs()).map(|c| (c.file, c.shape.call, c.opened));
        let thread = self.thread(s.tid);
        (thread.call, thread.odd) = (call, odd);
        thread.added.clear();
        if let Some((file, call, opened)) = begun {
            self.name(s, s.tid);
            let (dev, ino) = file.unwrap_or((0, 0));
            let mode = opened.map_or(0, |o| self.descriptors.mode(o));
            let ctx = self.context(s.tid) | self.regular_flag(file) | mode;
            self.put(self.header(s), SyncBegin { ino, dev, call: call as u16, ctx });
        }
    }

    fn regular_flag(&self, file: Option<File>) -> u16 {
        if file.is_some_and(|f| self.known.regular.contains(&f)) { flags::REGULAR } else { 0 }
    }

    fn mode_flags(&self, call: &Call) -> u16 {
        call.opened.map_or(0, |opened| self.descriptors.mode(opened)) | calls::call_mode(call.shape, call.args)
    }

    fn on_exit(&mut self, s: &DecodedEvent) {
        let tgid = self.tasks.process(s.tid);
        let thread = self.thread(s.tid);
        let (call, odd) = (thread.call.take(), thread.odd.take());
        let Some(result) = s.number(1).map(u64::cast_signed) else { return };
        if let Some(odd) = odd {
            self.on_odd(tgid, odd, result);
        }
        let Some(mut call) = call else { return };
        if call.shape.call == Name::Open && result >= 0 {
            let given = call.shape.pos.map_or(0, |i| call.args[usize::from(i)]);
            let (appends, mode) = calls::open_mode(self.machine, given);
            let opened = self.descriptors.renew(tgid, result as i32, (!appends).then_some(0));
            self.descriptors.set_mode(opened, mode);
            call.opened = Some(opened);
            call.fd = result as i32;
            call.file = self.known.files.get(&opened).copied();
            if self.learns && call.file.is_some() {
                self.known.about_files.insert((s.tid, call.start_ns));
            }
            if self.learns {
                // The opened file may be learnt later.
                self.pending_opens.insert(opened, (s.tid, call.start_ns));
            }
            // Directories and devices are opened too; a journal handle shows that a file was created or truncated.
            call.emitted = call.txn.is_some() || call.file.is_some_and(|f| self.known.regular.contains(&f));
        }
        let file = call.file;
        let transfers = call.shape.call.reads() || call.shape.call.writes();
        let at = call.shape.pos.filter(|_| call.shape.call != Name::Open);
        let mut pos = at.map_or(-1, |i| call.args[usize::from(i)] as i64);
        if pos == -1 && transfers {
            let at = call.began_at.or_else(|| call.opened.and_then(|o| self.descriptors.position(o)));
            pos = at.and_then(|at| i64::try_from(at).ok()).unwrap_or(-1);
            if let (Some(opened), true) = (call.opened, result >= 0) {
                let to = at.map(|at| at.saturating_add(result as u64));
                self.descriptors.moved(opened, to);
            }
        }
        if !call.emitted {
            return;
        }
        if calls::is_store(&call) {
            self.known.sleepers.insert(s.tid);
        }
        self.name(s, s.tid);
        let mut bytes = call.shape.bytes.map_or(0, |i| call.args[usize::from(i)]);
        if call.shape.bytes.is_none() && transfers && result > 0 {
            bytes = result as u64;
        }
        let (dev, ino) = file.unwrap_or((0, 0));
        let ctx = self.context(s.tid) | flags::IN_SYSCALL | self.regular_flag(file) | self.mode_flags(&call);
        let named = match call.shape.call {
            Name::Open if result >= 0 => Some(file_what::OPENED),
            Name::Unlink if result == 0 => Some(file_what::REMOVED),
            _ => None,
        };
        let regular = self.regular_flag(file) != 0;
        if let (Some(what), true) = (named, regular && ino != 0 && !call.path.is_empty()) {
            let record =
                model::event::File { ino, dev, what, text: std::mem::take(&mut call.path), ..Default::default() };
            self.put(self.header(s), record);
        } else if named == Some(file_what::REMOVED) && ino != 0 {
            self.put(self.header(s), model::event::File { ino, dev, what: file_what::REMOVED, ..Default::default() });
        }
        let record = Syscall {
            start_ns: call.start_ns,
            ino,
            pos,
            bytes,
            result,
            fs_start_ns: call.fs_start_ns,
            fs_end_ns: if call.fs_start_ns == 0 { 0 } else { s.time_ns },
            dev,
            txn: call.txn.map_or(0, |t| t.1),
            handles: call.txn.map_or(0, |t| t.2),
            cache_added: call.cache_added,
            call: call.shape.call as u16,
            ctx,
            fd: call.fd,
            fs_writes: call.fs_writes,
        };
        self.put(self.header(s), record);
    }

    fn on_odd(&mut self, tgid: u32, DescriptorCall { other, args }: DescriptorCall, result: i64) {
        let fd = args[0] as i32;
        match other {
            DescriptorChange::Close if result >= 0 => drop(self.descriptors.renew(tgid, fd, None)),
            DescriptorChange::Dup if result >= 0 => {
                let from = self.descriptors.opened(tgid, fd);
                self.descriptors.share(tgid, result as i32, from);
            }
            DescriptorChange::Control if result >= 0 && calls::is_duplication(args[1]) => {
                let from = self.descriptors.opened(tgid, fd);
                self.descriptors.share(tgid, result as i32, from);
            }
            DescriptorChange::Seek if result >= 0 => {
                let opened = self.descriptors.opened(tgid, fd);
                self.descriptors.moved(opened, Some(result as u64));
            }
            _ => {}
        }
    }

    /// The thread's current call turns out to be about a file, though it has no descriptor.
    pub(super) fn note_about_file(&mut self, tid: u32) {
        let call = self.threads.get(&tid).and_then(|t| t.call.as_ref());
        if let Some(call) = call.filter(|c| c.shape.fd.is_none()) {
            self.known.about_files.insert((tid, call.start_ns));
        }
    }

    pub(super) fn on_file_system(&mut self, s: &DecodedEvent) {
        let Some(file) = self.file(s) else { return };
        let writes = matches!(s.kind, Kind::DaWriteBegin | Kind::WriteBegin | Kind::F2fsWriteBegin);
        let cached = matches!(s.kind, Kind::GetPages | Kind::CacheAdd);
        // The page cache of a disk itself is an inode of another file system (bdev), whose disk has the number 0.
        let of_disk = cached && file.0 >> 20 == 0 && file.0 < 64;
        if self.learns && !of_disk {
            if writes || s.kind == Kind::GetPages {
                self.known.regular.insert(file);
            }
            self.learn_file(s, file);
        }
        let (pos, len) = (s.number(2).unwrap_or(0), s.number(3).unwrap_or(0));
        if writes {
            let dirty = self.dirty.entry(file).or_default();
            if dirty.len() < DIRTY_PAGES_MAX && len > 0 && len <= 64 << 20 {
                dirty.extend(pos / 4096..=pos.saturating_add(len - 1) / 4096);
            }
        }
        let kernel = self.tasks.is_kernel(s.tid);
        let thread = self.threads.entry(s.tid).or_default();
        if s.kind == Kind::CacheAdd {
            let pages = 1u64 << s.number(3).unwrap_or(0).min(16);
            if thread.added.len() < 4096 && !of_disk {
                match thread.added.back_mut() {
                    Some((of, first, n)) if *of == file && first.saturating_add(*n) == pos => *n += pages,
                    _ => thread.added.push_back((file, pos, pages)),
                }
            }
        }
        if let Some(call) = thread.call.as_mut() {
            match s.kind {
                Kind::GetPages => return,
                Kind::CacheAdd => {
                    call.cache_added = call.cache_added.saturating_add(1 << s.number(3).unwrap_or(0).min(15))
                }
                _ => {
                    if call.fs_start_ns == 0 {
                        call.fs_start_ns = s.time_ns;
                    }
                    call.fs_writes += u32::from(writes);
                    call.file = Some(file);
                    call.emitted = true;
                    if writes {
                        call.began_at.get_or_insert(pos);
                    }
                }
            }
            let asked = call.shape.bytes.map_or(0, |i| call.args[usize::from(i)]);
            let transfers = call.shape.call.writes() || call.shape.call.reads();
            if !writes || (transfers && asked <= LONG_WRITE_BYTES) {
                return;
            }
        }
        let syscall_ns = thread.call.as_ref().map_or(0, |c| c.start_ns);
        if writes {
            let (dev, ino) = file;
            let bytes = len.min(u32::MAX.into()) as u32;
            self.put(self.between_rows(s), FsWrite { ino, pos, bytes, dev, syscall_ns });
        } else if s.kind == Kind::CacheAdd && self.tasks.is_caller(s.tid) && !kernel && !of_disk {
            let pages = 1u32 << s.number(3).unwrap_or(0).min(16);
            self.put(self.between_rows(s), CacheAdd { ino: file.1, index: pos, dev: file.0, pages });
        }
    }

    /// The thread's header, for a record without a context of its own.
    fn between_rows(&self, s: &DecodedEvent) -> Header {
        let mut header = self.header(s);
        if self.operations.context(s.tid) & flags::BETWEEN_ROWS != 0 {
            header.flags |= header_flags::BETWEEN_ROWS;
        }
        header
    }

    /// Learns the file of the descriptor in the thread's current call.
    fn learn_file(&mut self, s: &DecodedEvent, file: File) {
        let Some(call) = self.threads.get(&s.tid).and_then(|t| t.call.as_ref()) else { return };
        match call.opened {
            // A page that a read finds in the cache may belong to the program itself: a fault inside the call.
            Some(opened) if s.kind != Kind::CacheAdd => {
                self.known.files.entry(opened).or_insert(file);
                if let Some(about) = self.pending_opens.remove(&opened) {
                    self.known.about_files.insert(about);
                }
            }
            None if s.kind == Kind::UnlinkEnter => self.note_about_file(s.tid),
            _ => {}
        }
    }

    pub(super) fn on_schedule(&mut self, s: &DecodedEvent) {
        let tid = s.number(0).unwrap_or(0) as u32;
        if matches!(s.kind, Kind::Waking | Kind::Wakeup) {
            // A wake-up may be finished by the thread's new CPU (ttwu_queue): then whatever ran there is not the waker.
            let waker = if s.kind == Kind::Waking { s.tid } else { 0 };
            match self.threads.get_mut(&tid).map(|t| (&mut t.away, &mut t.woken_ns)) {
                Some((Some(away), _)) if away.2 == 0 => (away.2, away.3) = (s.time_ns, waker),
                Some((None, woken_ns)) => *woken_ns = Some(s.time_ns),
                _ => {}
            }
            return;
        }
        const PREEMPTED_BITS: u64 = 0x80 | 0x100;
        let state = match s.number(1).unwrap_or(0) {
            0 => 0,
            n if n & 3 == 0 && n & PREEMPTED_BITS != 0 => 0,
            n if n & 1 != 0 => 1,
            n if n & 2 != 0 => 2,
            _ => 3,
        };
        let mut matters = self.operations.is_open(tid) || self.known.sleepers.contains(&tid);
        matters |= self.threads.get(&tid).and_then(|t| t.call.as_ref()).is_some_and(|c| c.emitted);
        if matters {
            self.thread(tid).away = Some((s.time_ns, state, 0, 0));
        }
        let next = s.number(2).unwrap_or(0) as u32;
        let Some(thread) = self.threads.get_mut(&next) else { return };
        if let Some((start_ns, state, mut wake_ns, waker)) = thread.away.take() {
            let woken_while_leaving =
                thread.woken_ns.is_some_and(|woken| start_ns.saturating_sub(woken) < LEAVING_NS_MAX);
            if state != 0 && wake_ns == 0 && woken_while_leaving {
                wake_ns = start_ns;
            }
            let record = OffCpu { start_ns, wake_ns, waker, state, ctx: self.context(next) };
            self.put(self.header_of(s, next), record);
        }
    }

    pub(super) fn on_task(&mut self, s: &DecodedEvent) {
        match s.kind {
            Kind::NewTask => {
                let tid = s.number(0).unwrap_or(0) as u32;
                let process = self.tasks.created(s.tid, tid, s.number(1).unwrap_or(0), &s.text);
                self.threads.remove(&tid);
                if process {
                    self.descriptors.inherit(self.tasks.process(s.tid), tid);
                }
                if process && self.tasks.is_caller(s.tid) {
                    let parent = self.tasks.process(s.tid);
                    self.named.insert(tid);
                    let what = task_what::FORKED;
                    self.put(self.header_of(s, tid), Task { parent, what, text: s.text.clone(), ..Task::default() });
                }
            }
            Kind::Fork => {
                let (child, name) = (s.number(1).unwrap_or(0) as u32, s.text.clone());
                self.tasks.set_name(child, &name);
            }
            Kind::Exec => {
                let name = s.text.rsplit('/').next().unwrap_or_default();
                let end = (0..=name.len().min(15)).rev().find(|n| name.is_char_boundary(*n)).unwrap_or(0);
                let text = name[..end].to_owned();
                self.tasks.set_name(s.tid, &text);
                self.operations.ended(s.tid);
                if self.tasks.is_caller(s.tid) {
                    self.named.insert(s.tid);
                    self.executed.insert(s.text.clone());
                    self.put(self.header(s), Task { what: task_what::EXECUTED, text, ..Task::default() });
                }
            }
            _ => {
                if self.tasks.is_caller(s.tid) {
                    let text = self.tasks.name(s.tid).unwrap_or_default().to_owned();
                    self.put(self.header(s), Task { what: task_what::ENDED, text, ..Task::default() });
                }
                self.threads.remove(&s.tid);
                self.operations.ended(s.tid);
            }
        }
    }
}
