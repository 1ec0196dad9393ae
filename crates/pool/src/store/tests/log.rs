//! The operations of a store on its medium, in order: every write with its bytes, every sync, and when each began and ended.

use std::cell::RefCell;
use std::sync::{Arc, Mutex};

#[derive(Debug, Clone)]
pub(in crate::store) enum What {
    /// May stay in memory until the next sync.
    Write { at: u64, bytes: Vec<u8> },
    /// On the medium when it ends.
    Durable { at: u64, bytes: Vec<u8> },
    /// Every write that ended before it began is on the medium when it ends.
    Sync,
}

#[derive(Debug, Clone)]
pub(in crate::store) struct Event {
    pub what: What,
    /// A logical clock that advances by one at each beginning and each end.
    pub begun: usize,
    pub ended: Option<usize>,
}

#[derive(Debug, Default)]
struct Inner {
    now: usize,
    events: Vec<Event>,
}

#[derive(Debug, Default)]
pub(in crate::store) struct Log(Mutex<Inner>);

impl Log {
    pub fn begin(&self, what: What) -> usize {
        let mut inner = self.0.lock().expect("no thread panics");
        inner.now += 1;
        let begun = inner.now;
        inner.events.push(Event { what, begun, ended: None });
        inner.events.len() - 1
    }

    pub fn end(&self, event: usize) {
        let mut inner = self.0.lock().expect("no thread panics");
        inner.now += 1;
        inner.events[event].ended = Some(inner.now);
    }

    /// The time of the last event.
    pub fn now(&self) -> usize {
        self.0.lock().expect("no thread panics").now
    }

    /// Everything logged so far.
    pub fn events(&self) -> Vec<Event> {
        self.0.lock().expect("no thread panics").events.clone()
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Log>>> = const { RefCell::new(None) };
}

/// The log of disks opened by this thread.
pub(in crate::store) fn current() -> Option<Arc<Log>> {
    CURRENT.with_borrow(Option::clone)
}

/// Makes disks opened by this thread from now on write to this log.
pub(in crate::store) fn record(log: Option<Arc<Log>>) {
    CURRENT.set(log);
}

thread_local! {
    static MACHINE: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Changes the boot id seen by disks that this thread opens from now on.
pub(in crate::store) fn start_machine() {
    MACHINE.set(MACHINE.get() + 1);
}

/// The boot id of this thread's machine.
pub(in crate::store) fn boot() -> String {
    format!("boot {}", MACHINE.get())
}
