//! Writes the log in a separate thread.
//!
//! Packing and storing a record takes several times as long as taking it off the ring, and on a machine with few CPUs it
//! takes that time from the very program that is measured. So the thread that empties the ring only copies, and another one
//! packs and writes at the priority of an idle task, whenever no other task wants a CPU. If it falls behind, it gets the
//! priority of any other thread until it has caught up.

use archive::{Error, LogWriter, NoRoom};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Size of the buffers in which records are handed over.
const BUFFER_BYTES: usize = 1 << 20;
/// Maximum number of waiting buffers; beyond it the ring has to wait.
const QUEUED_BUFFERS_MAX: usize = 64;
/// Number of waiting buffers beyond which the writer gets an ordinary priority.
const BACKLOG_BUFFERS: usize = 8;

/// State shared by both threads.
#[derive(Debug, Default)]
struct State {
    /// Why the log accepts no more: the disk or the limit is full.
    full: Option<Error>,
    /// Any other error that stopped it.
    failed: Option<Error>,
    /// Buffers written.
    written: usize,
    /// The writing thread, 0 until it is running.
    thread: libc::pid_t,
}

impl State {
    fn ended(&self) -> bool {
        self.full.is_some() || self.failed.is_some()
    }
}

/// The result of writing.
#[derive(Debug, Clone, Default)]
pub struct LogResult {
    /// Why it accepted no more: the disk or the limit was full.
    pub full: Option<String>,
    /// Whether the disk is the reason, and not the requested limit.
    pub disk_full: bool,
    /// When it became full: the time of the first record that did not fit.
    pub full_since_ns: u64,
    /// Records in the log.
    pub records: u64,
    /// Records that did not fit.
    pub refused: u64,
}

/// An archive's log and the thread that writes it.
#[derive(Debug)]
pub struct BackgroundWriter {
    buffer: Vec<u8>,
    full: SyncSender<Vec<u8>>,
    /// Written buffers, to be reused: allocating new memory would cost more than the copying.
    empty: Receiver<Vec<u8>>,
    sent: usize,
    /// Whether the thread has an ordinary priority.
    ordinary: bool,
    state: Arc<Mutex<State>>,
    thread: JoinHandle<Result<LogResult, Error>>,
}

impl BackgroundWriter {
    /// Takes over a newly created log.
    pub fn new(writer: LogWriter) -> Self {
        let (full, take) = sync_channel(QUEUED_BUFFERS_MAX);
        let (give_back, empty) = channel();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        let thread = std::thread::spawn(move || run_writer(writer, &take, &give_back, &shared));
        Self { buffer: Vec::with_capacity(BUFFER_BYTES), full, empty, sent: 0, ordinary: true, state, thread }
    }

    /// Accepts a record, to be written soon.
    pub fn append(&mut self, record: &[u8]) {
        self.buffer.extend_from_slice(&(record.len() as u32).to_ne_bytes());
        self.buffer.extend_from_slice(record);
        // Leaves room for the next record as well, unless that is a long text.
        if self.buffer.len() + 512 > BUFFER_BYTES {
            self.flush();
        }
    }

    /// Hands over what was accepted so far for writing.
    pub fn flush(&mut self) {
        if self.buffer.is_empty() {
            return;
        }
        let next = self.empty.try_recv().unwrap_or_else(|_| Vec::with_capacity(BUFFER_BYTES));
        let buffer = std::mem::replace(&mut self.buffer, next);
        // The writer accepts buffers until this end is dropped; if it has died, `finish` reports it.
        let _ = self.full.send(buffer);
        self.sent += 1;
        self.set_priority();
    }

    /// Whether nothing more can be stored.
    pub fn ended(&self) -> bool {
        self.state(State::ended)
    }

    fn state<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Writes the rest.
    ///
    /// # Errors
    /// What stopped the writing, except lack of room.
    pub fn finish(mut self) -> Result<LogResult, Error> {
        self.flush();
        change_priority(self.state(|s| s.thread), false);
        drop(self.full);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Gives the writer a CPU if it falls behind.
    fn set_priority(&mut self) {
        let (written, thread) = self.state(|s| (s.written, s.thread));
        let waiting = self.sent - written;
        let ordinary = if self.ordinary { waiting > BACKLOG_BUFFERS / 2 } else { waiting > BACKLOG_BUFFERS };
        if thread != 0 && ordinary != self.ordinary {
            change_priority(thread, !ordinary);
            self.ordinary = ordinary;
        }
    }
}

fn run_writer(
    mut writer: LogWriter,
    buffers: &Receiver<Vec<u8>>,
    give_back: &Sender<Vec<u8>>,
    state: &Mutex<State>,
) -> Result<LogResult, Error> {
    let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: a call without arguments that cannot fail.
    lock().thread = unsafe { libc::gettid() };
    while let Ok(mut buffer) = buffers.recv() {
        let is_full = buffer.len() + 512 > BUFFER_BYTES;
        let mut rest = &buffer[..];
        while let Some((length, after)) = rest.split_first_chunk() {
            let (record, after) = after.split_at(u32::from_ne_bytes(*length) as usize);
            rest = after;
            // After the first refusal it is still called, since it counts what it refuses.
            if let Err(error) = writer.append(record) {
                note_error(&mut lock(), error);
            }
        }
        // A partial buffer is what a second brought: a crash must not cost it.
        if !is_full && let Err(error) = writer.sync_chunk() {
            note_error(&mut lock(), error);
        }
        lock().written += 1;
        buffer.clear();
        let _ = give_back.send(buffer);
    }
    // The last chunk may not fit either.
    if let Err(error) = writer.sync_chunk() {
        note_error(&mut lock(), error);
    }
    let mut state = lock();
    if let Some(error) = state.failed.take() {
        return Err(error);
    }
    let full = state.full.take();
    let disk_full = matches!(&full, Some(Error::Full { why: NoRoom::Disk(_), .. }));
    let summary = writer.finish()?;
    // The error of the first refusal did not include those that followed.
    let full = full.map(|error| match error {
        Error::Full { path, why, .. } => {
            Error::Full { path, why, kept_events: summary.events, lost_events: summary.lost_events }.to_string()
        }
        other => other.to_string(),
    });
    Ok(LogResult {
        full,
        disk_full,
        full_since_ns: summary.lost_since_ns.unwrap_or_default(),
        records: summary.events,
        refused: summary.lost_events,
    })
}

fn note_error(state: &mut State, error: Error) {
    if state.ended() {
        return;
    }
    match error {
        Error::Full { .. } => state.full = Some(error),
        other => state.failed = Some(other),
    }
}

/// Makes a thread run like any other, or only when no other task wants to. Without the permission to undo that (it needs
/// CAP_SYS_NICE) it is left as it is: better a disturbance than a writer that starves.
fn change_priority(thread: libc::pid_t, idle: bool) {
    // SAFETY: a call without arguments that cannot fail.
    if thread == 0 || unsafe { libc::geteuid() } != 0 {
        return;
    }
    let policy = if idle { libc::SCHED_IDLE } else { libc::SCHED_OTHER };
    let priority = 0i32;
    // SAFETY: `struct sched_param` begins with this one number on Linux, and it lives until the call returns. Called by
    // number, since musl's own function only returns ENOSYS. A refusal changes nothing.
    unsafe { libc::syscall(libc::SYS_sched_setscheduler, thread, policy, &raw const priority) };
}
