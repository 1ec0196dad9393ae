//! The cost of attaching alone can be measured: the same probes, called as often, which record nothing.

mod common;

use capture::{Request, Scope};
use common::Recorder;
use model::Event;
use model::table::Coverage;
use std::collections::BTreeMap;

/// Long enough for the kernel's counting of the programs' runs, which begins after 25 ms, to see some.
const CALL_COUNT: u32 = 300_000;

fn record_writes(hollow: bool) -> (Vec<Event>, Vec<Coverage>) {
    let directory = tempfile::tempdir().unwrap();
    let script =
        format!("exec dd if=/dev/zero of={}/f bs=1 count={CALL_COUNT} status=none", directory.path().display());
    let mut recorder = Recorder::start(&Request { hollow, stacks: false, ..Request::new(Scope::Command) });
    recorder.release(common::spawn_gated(&script));
    let (events, finished) = recorder.finish();
    (events, finished.coverage)
}

#[test]
fn empty_probes_attach_and_record_nothing() {
    needs_live_kernel!();
    let (recorded, probes) = record_writes(false);
    let (nothing, hollow) = record_writes(true);

    assert!(records!(recorded, Syscall).count() > CALL_COUNT as usize);
    // Records that the recorder adds itself, such as the command's name, remain.
    assert_eq!(records!(nothing, Syscall).count(), 0);
    assert!(nothing.len() < 100, "{} events", nothing.len());

    let how = |rows: &[Coverage]| -> BTreeMap<String, (bool, String)> {
        rows.iter().map(|row| (row.probe.clone(), (row.attached, row.how.clone()))).collect()
    };
    assert_eq!(how(&hollow), how(&probes));
    for probe in ["sys_enter", "sys_exit", "sched_switch"] {
        let row = hollow.iter().find(|row| row.probe == probe).unwrap();
        assert!(row.hits.is_some_and(|hits| hits > 0), "{row:?}");
    }
}
