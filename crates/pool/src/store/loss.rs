//! Acknowledged writes that may be lost, as the store records them.
//!
//! A write is acknowledged when the page cache has it. The page cache loses it when the machine restarts; when write-back
//! fails, since the kernel then takes the page as clean and drops it when it likes; and when the medium is detached. It
//! reports a failed write-back once to each file description that was open (errseq_t, Linux 4.13), and to one that is opened
//! later only if nobody has seen it. So the boot of the machine says nothing about the page cache of a process that has
//! ended, and the first failure is the only notice that there will be:
//!
//! * A failed flush records all that it should have covered, durably, before it is answered. If the header cannot be
//!   written either, the coordinator remembers the answer ([`crate::link`]) and has the store record it when it can.
//! * An error of the descriptor for durable writes may be the notice of a lost write of data. So a flush follows, through
//!   the other descriptor, which has notices of its own, and its result decides.
//! * A process that was killed may have got the notice without recording it. The file system has one more, which `syncfs`
//!   returns (`s_wb_err`, Linux 5.8): so the first flush of a store with marks asks for it, and otherwise it is left there
//!   until the failure is recorded.
//! * A disk without a file system has no such notice, and its coordinator keeps a description of it instead
//!   ([`super::direct`]). By the time it tells, the new process may have flushed, summed and unmarked pages that are lost.
//! * A store with marks on a medium that was replugged or mounted again may have lost what is marked ([`super::medium`]).
//!
//! Nothing may be written or flushed through a coordinator then until the user accepts exactly what was shown.

use super::{Header, Store};
use crate::frame::Status;
use crate::protocol::{Claim, LossCause};
use model::text::ShownPath as _;
use std::ops::Range;
use std::path::Path;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::{fmt, io};

/// Called with a line for the log when a loss is recorded.
#[derive(Default)]
pub(super) struct Observer(std::sync::OnceLock<Box<dyn Fn(String) + Send + Sync>>);

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").field("set", &self.0.get().is_some()).finish()
    }
}

/// The consequences of an unclean shutdown, found when the store was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recovery {
    /// Bytes of marked regions, whose content is accepted as it is.
    pub marked_bytes: u64,
    /// Why acknowledged writes there may be lost; `None` if the page cache has kept them.
    pub cause: Option<LossCause>,
}

impl Recovery {
    /// A sentence about the store at `path`.
    pub fn sentence(&self, path: &Path) -> String {
        let (who, what) = match self.cause {
            None => ("the node", "was killed during writes"),
            Some(LossCause::MachineRestarted) => ("the machine", "restarted during writes"),
            Some(_) => ("the medium", "was replugged or mounted again after writes that may not be flushed"),
        };
        format!(
            "{who} of {} {what}: checksums of {} MiB are recomputed from the current content",
            path.shown(),
            self.marked_bytes.div_ceil(1 << 20)
        )
    }
}

impl Store {
    /// Records where acknowledged writes may be lost, if the page cache did not survive since regions were marked. They stay
    /// marked until their sums are recomputed: after another power failure this is repeated.
    pub(super) fn recover(&mut self) -> io::Result<Option<Recovery>> {
        let header = self.header();
        let Some(regions) = &self.regions else { return Ok(None) };
        if header.clean || header.marked.is_empty() {
            return Ok(None);
        }
        let ranges: Vec<_> = header.marked.iter().map(|region| regions.range(region, self.size_bytes)).collect();
        let marked_bytes = ranges.iter().map(|range| range.end - range.start).sum();
        let cause = if header.boot != self.boot || self.boot.is_empty() {
            Some(LossCause::MachineRestarted)
        } else if self.medium.as_ref().zip(header.medium.as_ref()).is_some_and(|(now, then)| !now.continues(then)) {
            Some(LossCause::MediumReplaced)
        } else {
            None
        };
        match cause {
            Some(cause) => self.write_header(|header| header.add_loss(ranges, cause))?,
            None if header.loss_causes.contains(&LossCause::FlushFailed) => {
                // Nothing is flushed until that is accepted, and a notice that the kernel still has must not come after that.
                if self.disk.sync().and_then(|()| self.disk.sync_file_system()).is_err() {
                    // Without a failure: the notice is gone, and the process must not end with what it knows.
                    let mut header = self.header.lock().unwrap_or_else(PoisonError::into_inner);
                    self.record_loss(&mut header, ranges.clone(), LossCause::FlushFailed);
                }
                self.marked_when_opened = ranges;
            }
            None => {
                self.marked_when_opened = ranges;
                *self.inherits.get_mut() = true;
            }
        }
        Ok(Some(Recovery { marked_bytes, cause }))
    }

    /// From now on `observer` gets a line for each loss that is recorded. Only the first call counts.
    pub fn observe_losses(&self, observer: impl Fn(String) + Send + Sync + 'static) {
        // A node serves its store once.
        let _ = self.losses.0.set(Box::new(observer));
    }

    /// A sync failed: records what it should have covered, durably if possible, and returns the answer to whoever flushed. The
    /// caller holds no lock of the header.
    pub(super) fn record_sync_failure(&self, error: &io::Error) -> Status {
        let Some(regions) = &self.regions else { return Status::Io };
        let mut header = self.header.lock().unwrap_or_else(PoisonError::into_inner);
        let unflushed: Vec<_> = regions.unflushed().map(|region| regions.range(region, self.size_bytes)).collect();
        if unflushed.is_empty() {
            // Everything acknowledged is on the medium: a sum was lost, whose region keeps its mark.
            return Status::Io;
        }
        self.record_loss(&mut header, unflushed, LossCause::FlushFailed);
        self.is_noticed.store(true, Ordering::Release);
        self.idle.wake();
        let saved = if self.has_unsaved_loss() { "; the header cannot be written" } else { "" };
        if let Some(observer) = self.losses.0.get() {
            observer(format!(
                "a flush failed ({error}), and acknowledged writes may be lost in {}{saved}",
                header.shown_loss()
            ));
        }
        Status::Lost
    }

    /// Adds a loss to the header: in memory in any case, and on the medium if it can be written.
    pub(super) fn record_loss(&self, header: &mut Header, ranges: Vec<Range<u64>>, cause: LossCause) {
        header.add_loss(ranges, cause);
        self.flushes.set_failed(true);
        self.unsaved_loss.store(true, Ordering::Release);
        // If it fails, the next write of the header contains it.
        let _ = self.write_new_header(header, |_| {});
        self.publish_header(header);
        // Whatever was lost is recorded now.
        self.is_suspect.store(false, Ordering::Release);
    }

    /// Checks for a loss if a durable write returned an error. The caller holds no lock.
    pub(super) fn check_if_suspect(&self) {
        if self.is_suspect.swap(false, Ordering::AcqRel) {
            self.check_for_loss();
        }
    }

    /// The descriptor for durable writes returned an error, which may be the only notice of a lost write of data: the result of
    /// a flush, whose descriptor has notices of its own, decides. The caller holds no lock.
    pub(super) fn check_for_loss(&self) {
        if self.flushes.has_failed() {
            // No flush can decide it any more.
            self.record_sync_failure(&io::Error::from_raw_os_error(libc::EIO));
        } else {
            // A failure is recorded.
            let _ = self.flush();
        }
    }

    /// Whether a recorded loss is not on the medium yet.
    pub(super) fn has_unsaved_loss(&self) -> bool {
        self.unsaved_loss.load(Ordering::Acquire)
    }

    /// Writes a header that could not be written when it had to be.
    pub(super) fn try_to_save_loss(&self) {
        if self.has_unsaved_loss() {
            let mut header = self.header.lock().unwrap_or_else(PoisonError::into_inner);
            // It is tried again later.
            let _ = self.write_new_header(&mut header, |_| {});
        }
    }

    /// The same; and takes the file system's notice of a failed flush that is recorded, or the next process would record it again.
    pub(super) fn save_loss(&self) {
        self.try_to_save_loss();
        if !self.has_unsaved_loss() && self.is_noticed.swap(false, Ordering::AcqRel) {
            let _ = self.disk.sync_file_system();
        }
    }

    /// Records a failed flush that only its coordinator knows of: its claim is refused if that cannot be written. Returns the
    /// regions that may have lost something.
    ///
    /// Their marks may be gone, since a flush of pages that count as written succeeds, and their sums may be those of what is
    /// lost. So they are marked again, and the caller has the store treat them as just written when the header is on the
    /// medium: when the loss is accepted, what the medium has is accepted.
    pub(super) fn remember_failed_flush(&self, header: &mut Header, claim: &Claim) -> Vec<usize> {
        // A failure may come while an earlier one is not accepted yet. What this process answered it has recorded itself.
        let is_recorded = header.loss_causes.contains(&LossCause::FlushFailed);
        if !claim.also.flush_failed || (is_recorded && claim.also.instance == self.instance) {
            return Vec::new();
        }
        // What was marked when it was opened, and may have lost its mark since by a flush of clean pages.
        let mut ranges = self.marked_when_opened.clone();
        if let Some(regions) = &self.regions {
            ranges.extend(regions.unflushed().map(|region| regions.range(region, self.size_bytes)));
        }
        if ranges.is_empty() && !is_recorded {
            ranges.push(0..self.size_bytes);
        }
        let touched =
            |range: &Range<u64>| Some(self.regions.as_ref()?.touched_by(range.start, range.end - range.start));
        let regions: Vec<usize> = ranges.iter().filter_map(touched).flatten().collect();
        regions.iter().for_each(|region| header.marked.put(*region));
        header.add_loss(ranges, LossCause::FlushFailed);
        regions
    }

    /// The loss in these ranges is accepted: from now on they are what the medium has, as on a plain disk.
    pub(super) fn accept_medium(&self, ranges: &[(u64, u64)]) {
        let Some(regions) = &self.regions else { return };
        // No sums of these regions are being written.
        let _alone = self.settle_lock.lock().unwrap_or_else(PoisonError::into_inner);
        for (begin, bytes) in ranges {
            // The kernel may have the lost data in memory, as clean pages, and drop it later.
            self.disk.drop_cached(*begin, *bytes);
            for region in regions.marked_in(*begin, *bytes) {
                self.forget_sums(&regions.range(region, self.size_bytes));
            }
        }
    }
}
