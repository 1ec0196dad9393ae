//! How the kernel schedules a thread of ours: on which processors (its affinity), and whether it may preempt who runs (its policy).
//!
//! What the user chose (`taskset`, `chrt`, a cpuset) bounds what is set here, and what he changes meanwhile stays as he wants it.

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::cell::Cell;
use std::sync::OnceLock;

thread_local! {
    /// What this thread had, and what it was given in its place.
    static PINNED: Cell<Option<(CpuSet, CpuSet)>> = const { Cell::new(None) };
}

/// What the first thread of this process that was pinned had before.
static USUAL: OnceLock<CpuSet> = OnceLock::new();

/// Keeps this thread on a processor; false if it may not run there, or if it has no other, and then nothing is changed.
pub(crate) fn pin(processor: usize) -> bool {
    if processor >= CpuSet::MAX_CPU {
        return false;
    }
    let Ok(now) = sched_getaffinity(None) else { return false };
    let usual = match PINNED.get() {
        Some((usual, given)) if given == now => usual,
        // It was not pinned, or it was changed since.
        _ => now,
    };
    let mut one = CpuSet::new();
    one.set(processor);
    let can = usual.is_set(processor) && usual.count() > 1 && (now == one || sched_setaffinity(None, &one).is_ok());
    if can {
        USUAL.get_or_init(|| usual);
        PINNED.set(Some((usual, one)));
    }
    can
}

/// This thread may run where it might before it was pinned; false if that was changed meanwhile, which is left as it is.
pub(crate) fn unpin() -> bool {
    let Some((usual, given)) = PINNED.take() else { return true };
    // Where it fails all of those processors are gone, and the kernel has let it go.
    sched_getaffinity(None).is_ok_and(|now| now == given) && sched_setaffinity(None, &usual).is_ok()
}

/// A thread has the mask of the one that started it, which may have been pinned: it is let go. To be called once, by the new thread.
pub fn inherit_nothing() {
    let single = sched_getaffinity(None).is_ok_and(|now| now.count() == 1);
    if let Some(usual) = USUAL.get().filter(|_| single) {
        // It stays where it is then, and is slower, and nothing else.
        let _ = sched_setaffinity(None, usual);
    }
}

/// The processor that this thread runs on now.
pub(crate) fn current() -> usize {
    sched_getcpu()
}

/// Changes the policy of this thread between SCHED_OTHER and SCHED_BATCH; false if it has another (which the user chose), or if that is not
/// allowed.
pub(crate) fn set_patient(patient: bool) -> bool {
    let (from, to) =
        if patient { (libc::SCHED_OTHER, libc::SCHED_BATCH) } else { (libc::SCHED_BATCH, libc::SCHED_OTHER) };
    let priority: libc::c_int = 0;
    // The system calls themselves: musl's functions of these names do nothing but fail.
    // SAFETY: it takes no pointer.
    let now = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
    // SAFETY: a `sched_param` is this one number, which lives until the call is over.
    now == libc::c_long::from(from)
        && unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, to, &raw const priority) } == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask() -> CpuSet {
        sched_getaffinity(None).expect("a thread has a mask")
    }

    /// In a separate thread, since the mask is the thread's.
    fn apart(check: impl FnOnce(CpuSet) + Send + 'static) {
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
        apart(|all| {
            let allowed: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|nth| all.is_set(*nth)).take(2).collect();
            for processor in &allowed {
                assert!(pin(*processor));
                assert!(mask().count() == 1 && current() == *processor);
            }
            // What a pinned thread starts is not pinned.
            let started = std::thread::spawn(|| {
                inherit_nothing();
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
        apart(|all| {
            let first = current();
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
        // A separate thread, since the policy is the thread's.
        let check = || {
            if policy() != libc::c_long::from(libc::SCHED_OTHER) {
                eprintln!("skipped: this test was started with another policy than SCHED_OTHER");
                return;
            }
            assert!(set_patient(true) && policy() == libc::c_long::from(libc::SCHED_BATCH));
            assert!(!set_patient(true), "it is not the usual one now");
            assert!(set_patient(false) && policy() == libc::c_long::from(libc::SCHED_OTHER));
            let priority: libc::c_int = 0;
            // SAFETY: as in `set_patient`.
            let idle = unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_IDLE, &raw const priority) };
            assert!(idle == 0 && !set_patient(true) && policy() == libc::c_long::from(libc::SCHED_IDLE));
        };
        std::thread::spawn(check).join().expect("it does not panic");
    }
}
