//! Commands that drivers sent to their devices, by disk and by the name of the command.

use crate::contract::DriverCommands;
use crate::rows::Index;
use crate::times::times;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Disk, protocol and name.
type Key = (Option<u32>, Cow<'static, str>, Cow<'static, str>);

/// The commands of each name on each disk, the most frequent of a disk first.
pub fn driver_commands(index: &Index) -> Vec<DriverCommands> {
    let mut sums: BTreeMap<Key, (DriverCommands, Vec<u64>)> = BTreeMap::new();
    for row in &index.rows.driver_commands {
        let (sum, taken) = sums.entry((row.disk, row.protocol, row.name)).or_default();
        sum.count += 1;
        sum.linked += u64::from(row.command.is_some());
        sum.bytes = sum.bytes.saturating_add(row.bytes);
        sum.timeouts += u64::from(row.timed_out);
        if let Some(error) = &row.error {
            *sum.errors.entry(error.clone()).or_default() += 1;
        }
        match row.end_ns {
            Some(end_ns) => taken.push(end_ns.saturating_sub(row.start_ns)),
            None => sum.unfinished += 1,
        }
    }
    let mut all: Vec<_> = sums
        .into_iter()
        .map(|((disk, protocol, name), (sum, mut taken))| {
            let commands = DriverCommands {
                disk: disk.map(|disk| index.disk_name(disk)),
                protocol: protocol.into_owned(),
                name: name.into_owned(),
                time_ns: times(&mut taken),
                ..sum
            };
            (disk, commands)
        })
        .collect();
    all.sort_by(|(a, x), (b, y)| a.cmp(b).then(y.count.cmp(&x.count)).then_with(|| x.name.cmp(&y.name)));
    all.into_iter().map(|(_, commands)| commands).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Rows;
    use crate::small_trace;
    use model::Dev;
    use model::table::DriverCommand;

    fn row(name: &'static str, command: Option<u64>, end_ns: Option<u64>, error: Option<&str>) -> DriverCommand {
        DriverCommand {
            command,
            confidence: command.map(|_| model::Confidence::Exact),
            protocol: "scsi".into(),
            name: name.into(),
            disk: Some(Dev::new(254, 0).0),
            lba: Some(2048),
            blocks: Some(8),
            bytes: 4096,
            start_ns: 100,
            end_ns,
            timed_out: end_ns.is_none(),
            error: error.map(Into::into),
        }
    }

    #[test]
    fn commands_are_counted_by_disk_and_name() {
        let mut rows: Rows = small_trace::rows();
        rows.driver_commands = vec![
            row("UNMAP", None, Some(110), None),
            row("WRITE(10)", Some(61), Some(120), None),
            row("WRITE(10)", Some(61), Some(140), Some("MEDIUM ERROR (11/00)")),
            row("WRITE(10)", None, None, None),
        ]
        .into();
        let found = driver_commands(&Index::new(&rows));
        let short: Vec<_> = found.iter().map(|c| (c.name.as_str(), c.count, c.linked, c.bytes)).collect();
        assert_eq!(short, [("WRITE(10)", 3, 2, 12_288), ("UNMAP", 1, 0, 4096)]);
        let writes = &found[0];
        assert_eq!((writes.disk.as_deref(), writes.timeouts, writes.unfinished), (Some("vda"), 1, 1));
        assert_eq!((writes.time_ns.p50, writes.time_ns.sum), (30, 60));
        assert_eq!(writes.errors, BTreeMap::from([("MEDIUM ERROR (11/00)".into(), 1)]));
    }

    #[test]
    fn a_label_names_the_blocks_that_are_known() {
        let whole = row("WRITE(10)", None, None, None);
        assert_eq!(whole.label(), "WRITE(10) lba 2048 + 8");
        assert_eq!(DriverCommand { blocks: None, ..whole.clone() }.label(), "WRITE(10) lba 2048");
        assert_eq!(DriverCommand { lba: None, ..whole }.label(), "WRITE(10)");
    }
}
