//! Scheduling of our threads: on which CPUs (the affinity), and whether they may preempt others (the policy).
//!
//! The user's settings (`taskset`, `chrt`, a cpuset) limit what is set here, and later changes by the user are kept.

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::cell::Cell;
use std::sync::OnceLock;

thread_local! {
    /// The original mask of this thread, and the one it was given.
    static PINNED_MASKS: Cell<Option<(CpuSet, CpuSet)>> = const { Cell::new(None) };
}

/// The original mask of the first thread of this process that was pinned.
static ORIGINAL_MASK: OnceLock<CpuSet> = OnceLock::new();

/// Pins this thread to a CPU; false if it may not run there, or if it has no other, and then nothing is changed.
pub(crate) fn pin(processor: usize) -> bool {
    if processor >= CpuSet::MAX_CPU {
        return false;
    }
    let Ok(now) = sched_getaffinity(None) else { return false };
    let usual = match PINNED_MASKS.get() {
        Some((usual, given)) if given == now => usual,
        // It was not pinned, or its mask was changed since.
        _ => now,
    };
    let mut one = CpuSet::new();
    one.set(processor);
    let can = usual.is_set(processor) && usual.count() > 1 && (now == one || sched_setaffinity(None, &one).is_ok());
    if can {
        ORIGINAL_MASK.get_or_init(|| usual);
        PINNED_MASKS.set(Some((usual, one)));
    }
    can
}

/// Restores this thread's original mask; false if it was changed meanwhile, and then it is kept.
pub(crate) fn unpin() -> bool {
    let Some((usual, given)) = PINNED_MASKS.take() else { return true };
    // If this fails, all of those CPUs are gone, and the kernel has unpinned the thread.
    sched_getaffinity(None).is_ok_and(|now| now == given) && sched_setaffinity(None, &usual).is_ok()
}

/// Unpins a new thread, which inherits the mask of its creator, possibly a pinned one. Called once, by the new thread.
pub fn restore_original_mask() {
    let single = sched_getaffinity(None).is_ok_and(|now| now.count() == 1);
    if let Some(usual) = ORIGINAL_MASK.get().filter(|_| single) {
        // If this fails, the thread stays pinned, and is only slower.
        let _ = sched_setaffinity(None, usual);
    }
}

/// The CPU that this thread currently runs on.
pub(crate) fn current_cpu() -> usize {
    sched_getcpu()
}

/// Changes the policy of this thread between SCHED_OTHER and SCHED_BATCH; false if it has another (set by the user), or if
/// that is not permitted.
pub(crate) fn set_batch_policy(patient: bool) -> bool {
    let (from, to) =
        if patient { (libc::SCHED_OTHER, libc::SCHED_BATCH) } else { (libc::SCHED_BATCH, libc::SCHED_OTHER) };
    let priority: libc::c_int = 0;
    // The system calls are made directly: musl's functions of these names always fail.
    // SAFETY: it takes no pointer.
    let now = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
    // SAFETY: a `sched_param` is this one number, which lives until the call returns.
    now == libc::c_long::from(from)
        && unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, to, &raw const priority) } == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask() -> CpuSet {
        sched_getaffinity(None).expect("a thread has a mask")
    }

    /// Runs a check in a separate thread, since the mask is per thread.
    fn in_new_thread(check: impl FnOnce(CpuSet) + Send + 'static) {
        std::thread::spawn(move || {
            let all = mask();
            if all.count() < 2 {
                println!("SKIP affinity: one processor only");
                return;
            }
            check(all);
        })
        .join()
        .expect("it does not panic");
    }

    #[test]
    fn pinned_thread_gets_its_mask_back() {
        in_new_thread(|all| {
            let allowed: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|nth| all.is_set(*nth)).take(2).collect();
            for processor in &allowed {
                assert!(pin(*processor));
                assert!(mask().count() == 1 && current_cpu() == *processor);
            }
            // A thread started by a pinned thread is not pinned.
            let started = std::thread::spawn(|| {
                restore_original_mask();
                mask()
            });
            assert!(started.join().expect("it does not panic") == all);
            assert!(unpin() && mask() == all);
            assert!(unpin() && mask() == all);
            let outside = (0..CpuSet::MAX_CPU).find(|nth| !all.is_set(*nth));
            assert!(!pin(CpuSet::MAX_CPU) && outside.is_none_or(|outside| !pin(outside)));
            assert!(mask() == all);
        });
    }

    #[test]
    fn users_mask_is_kept() {
        in_new_thread(|all| {
            let first = current_cpu();
            let mut one = CpuSet::new();
            one.set((0..CpuSet::MAX_CPU).find(|nth| all.is_set(*nth) && *nth != first).expect("there are two"));
            assert!(pin(first));
            sched_setaffinity(None, &one).expect("it is allowed");
            assert!(!unpin() && mask() == one);
            assert!(!pin(first) && mask() == one, "the user wants it there");
        });
    }

    fn policy() -> libc::c_long {
        // SAFETY: it takes no pointer.
        unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) }
    }

    #[test]
    fn policy_is_set_and_user_policy_is_kept() {
        // In a separate thread, since the policy is per thread.
        let check = || {
            if policy() != libc::c_long::from(libc::SCHED_OTHER) {
                eprintln!("skipped: this test was started with another policy than SCHED_OTHER");
                return;
            }
            assert!(set_batch_policy(true) && policy() == libc::c_long::from(libc::SCHED_BATCH));
            assert!(!set_batch_policy(true), "it is not the usual one now");
            assert!(set_batch_policy(false) && policy() == libc::c_long::from(libc::SCHED_OTHER));
            let priority: libc::c_int = 0;
            // SAFETY: as in `set_batch_policy`.
            let idle = unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_IDLE, &raw const priority) };
            assert!(idle == 0 && !set_batch_policy(true) && policy() == libc::c_long::from(libc::SCHED_IDLE));
        };
        std::thread::spawn(check).join().expect("it does not panic");
    }
}
