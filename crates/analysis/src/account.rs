//! Accounting of device commands: each command of the window is charged to an operation or process, or listed as
//! unattributed, and the charges add up to the commands issued.

use crate::by_key::RowsByKey;
use crate::contract::{ByConfidence, DeviceCommands, DiskCommands, ProcessUse};
use crate::rows::{Index, IoAction};
use model::table::Cause;
use model::{Layer, Origin, Relation};
use std::collections::{BTreeMap, HashSet};

/// Shares that differ by less are equal: they are sums of fractions.
const SHARE_TOLERANCE: f64 = 1e-6;

/// Charges all device commands, once for each index.
pub fn device_commands<'a>(index: &'a Index<'_>) -> &'a DeviceCommands {
    index.commands.get_or_init(|| charge_commands(index))
}

fn charge_commands(index: &Index) -> DeviceCommands {
    let rows = index.rows;
    let causes = (0..rows.causes.len()).filter(|&at| rows.causes.share(at).is_finite() && rows.causes.share(at) > 0.0);
    let causes = causes.filter_map(|at| Some((index.span(rows.causes.command(at))?, at as u32)));
    let causes = RowsByKey::new(rows.spans.len(), causes);
    let mut account = DeviceCommands::default();
    let mut by_disk: BTreeMap<u32, DiskCommands> = BTreeMap::new();
    let mut processes: BTreeMap<(Origin, Option<u32>), (f64, f64)> = BTreeMap::new();
    // What all commands are charged; more than there are only if a damaged table charges one more than once.
    let mut charged = 0.0;
    let retried: HashSet<u64> =
        rows.links.iter().filter(|l| l.relation == Relation::Retries).map(|l| l.parent).collect();
    for span in rows.spans.of_layer(Layer::Driver).map(|(_, s)| s) {
        // A command without a disk number may have been for the files' disk.
        let counted = span.disk.is_none_or(|d| index.counted_disks.contains(&d));
        let does = IoAction::on_disk(&span);
        let bytes = if does == IoAction::Flush { 0 } else { span.bytes };
        let disk = by_disk.entry(span.disk.unwrap_or(0)).or_default();
        // The driver had no room for this command: it was issued again, and only the reissued command counts.
        if retried.contains(&span.id) {
            disk.retried += 1;
            account.retried += u64::from(counted);
            continue;
        }
        disk.total += 1;
        let untimed = span.end_ns.is_some() && span.took_ns().is_none();
        disk.incomplete += u64::from(span.end_ns.is_none());
        disk.untimed += u64::from(untimed);
        *disk.kinds.entry(does.name().into()).or_default() += 1;
        match does {
            IoAction::Read => disk.bytes_read = disk.bytes_read.saturating_add(bytes),
            IoAction::Write => disk.bytes_written = disk.bytes_written.saturating_add(bytes),
            IoAction::Flush | IoAction::Discard | IoAction::Other => {}
        }
        account.total += u64::from(counted);
        account.incomplete += u64::from(counted && span.end_ns.is_none());
        account.untimed += u64::from(counted && untimed);
        let mut charge = |origin: Origin, tgid: Option<u32>, share: f64| {
            *match origin {
                Origin::Operation | Origin::Process => &mut disk.attributed,
                Origin::OtherProcess => &mut disk.other_processes,
                Origin::Tracer => &mut disk.tracer,
                Origin::Unattributed => &mut disk.unattributed,
            } += share;
            if !counted {
                return;
            }
            *match origin {
                Origin::Operation => &mut account.by_operations,
                Origin::Process => &mut account.by_recorded_processes,
                Origin::OtherProcess => &mut account.other_processes,
                Origin::Tracer => &mut account.tracer,
                Origin::Unattributed => &mut account.unattributed,
            } += share;
            if origin != Origin::Operation {
                let sums = processes.entry((origin, tgid)).or_default();
                sums.0 += share;
                sums.1 += share * bytes as f64;
            }
        };
        let own =
            index.span(span.id).map_or(&[][..], |at| causes.rows_of(at)).iter().map(|&at| rows.causes.at(at as usize));
        let own: Vec<Cause> = own.collect();
        own.iter().for_each(|c| charge(c.origin, c.tgid, c.share));
        // The rest that the table does not charge is listed as unattributed.
        let shared = own.iter().map(|c| c.share).sum::<f64>();
        let open = 1.0 - shared;
        if open > SHARE_TOLERANCE {
            charge(Origin::Unattributed, None, open);
        }
        if counted {
            charged += if open > SHARE_TOLERANCE { 1.0 } else { shared };
        }
    }
    account.attributed = account.by_operations + account.by_recorded_processes;
    let sum = account.attributed + account.other_processes + account.tracer + account.unattributed;
    assert!(
        !charged.is_finite() || !sum.is_finite() || (sum - charged).abs() <= SHARE_TOLERANCE * (1.0 + charged),
        "{charged} commands charged as {sum}"
    );
    // A command of which nothing is open may lack as much as the tolerance.
    debug_assert!(charged >= account.total as f64 * (1.0 - 2.0 * SHARE_TOLERANCE));
    let name = |dev: u32| if dev == 0 { "unknown disk".to_owned() } else { index.disk_name(dev) };
    account.by_disk =
        by_disk.into_iter().map(|(dev, disk)| (name(dev), DiskCommands { role: index.role(dev), ..disk })).collect();
    account.processes = processes
        .into_iter()
        .map(|((origin, tgid), (commands, bytes))| ProcessUse {
            name: tgid
                .and_then(|t| index.process_name(t))
                .unwrap_or(if tgid.is_some() { "unnamed" } else { "unknown" })
                .into(),
            tgid,
            origin: origin.name().into(),
            commands,
            bytes,
        })
        .collect();
    account.processes.sort_by(|a, b| b.commands.total_cmp(&a.commands));
    account
}

/// Share of the commands whose origin may be unknown without being reported: what was written before the recording.
const UNATTRIBUTED_SHARE_MAX: f64 = 0.01;

/// Returns the number of commands of unknown origin, if it must be reported as a loss; otherwise 0.
pub fn reportable_unattributed(account: &DeviceCommands) -> f64 {
    if account.unattributed > UNATTRIBUTED_SHARE_MAX * account.total as f64 + SHARE_TOLERANCE {
        account.unattributed
    } else {
        0.0
    }
}

/// Returns the confidence of the charges: sums of shares of all commands on the disks that hold the files, without unattributed ones.
pub fn charge_confidence(index: &Index) -> ByConfidence<f64> {
    let mut sums = ByConfidence::default();
    let charged = |c: &Cause| c.origin != Origin::Unattributed && c.share.is_finite();
    for cause in index.rows.causes.iter().filter(charged) {
        let disk = index.span(cause.command).and_then(|at| index.rows.spans.disk(at));
        if disk.is_none_or(|d| index.counted_disks.contains(&d)) {
            *sums.get_mut(cause.confidence) += cause.share;
        }
    }
    sums
}
