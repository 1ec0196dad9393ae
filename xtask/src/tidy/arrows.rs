//! Arrows go down only, and only those that docs/internals/architecture.md declares.
//!
//! What a room is *built* from must be declared. Its *tests* may in addition use any room of a lower floor: they make
//! loop disks and archives for their checks, and nothing that is shipped depends on them.

use crate::markdown::table;
use crate::metadata::Package;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;

/// A room as declared in the manual.
#[derive(Debug, Default)]
pub struct Room {
    /// Floor; arrows go to lower ones.
    floor: u32,
    /// Rooms that it may be built from; `*` is all below.
    may_use: Vec<String>,
    /// Foreign crates that it may use, if that is limited.
    only: Option<Vec<String>>,
}

/// Parses the table `room | floor | may use | foreign crates | …`.
pub fn declared(page: &str) -> Result<BTreeMap<String, Room>> {
    let header = ["room", "floor", "may use", "foreign crates", "what it is"];
    let rows = table(page, &header).context("docs/internals/architecture.md has no table of rooms")?;
    let names = |cell: &str| -> Vec<String> {
        cell.split(',').map(|n| n.trim().trim_matches('`').to_string()).filter(|n| !n.is_empty()).collect()
    };
    let mut rooms = BTreeMap::new();
    for row in rows {
        ensure!(row.len() == header.len(), "docs/internals/architecture.md: a row of {} cells: {row:?}", row.len());
        let name = row[0].trim_matches('`').to_string();
        let floor =
            row[1].parse().with_context(|| format!("docs/internals/architecture.md: {name}: floor {}", row[1]))?;
        let only = (row[3] != "any").then(|| names(row[3]));
        rooms.insert(name, Room { floor, may_use: names(row[2]), only });
    }
    for (name, room) in &rooms {
        for used in room.may_use.iter().filter(|u| *u != "*") {
            let below = rooms.get(used).is_some_and(|u| u.floor < room.floor);
            ensure!(below, "docs/internals/architecture.md: {name} may not use {used}: it is not on a lower floor");
        }
    }
    Ok(rooms)
}

/// The packages' violations.
pub fn offences(rooms: &BTreeMap<String, Room>, packages: &[Package]) -> Vec<String> {
    let mut offences = Vec::new();
    let ours: BTreeMap<&str, &str> = packages
        .iter()
        .map(|p| (p.name.as_str(), p.directory.strip_prefix("crates/").unwrap_or(&p.directory)))
        .collect();
    for package in packages {
        let name = ours[package.name.as_str()];
        let Some(room) = rooms.get(name) else {
            offences.push(format!("{}: the room is not in docs/internals/architecture.md", package.directory));
            continue;
        };
        let lower = |used: &str| rooms.get(used).is_some_and(|u| u.floor < room.floor);
        for used in &package.uses {
            let Some(used) = ours.get(used.as_str()) else {
                if room.only.as_ref().is_some_and(|only| !only.contains(used)) {
                    offences.push(format!("{}: may not depend on {used}", package.directory));
                }
                continue;
            };
            let allowed = room.may_use.iter().any(|m| m == used || (m == "*" && lower(used)));
            if !allowed {
                offences.push(format!(
                    "{}: the arrow to {used} is not in docs/internals/architecture.md",
                    package.directory
                ));
            }
        }
        for used in package.tests_use.iter().filter_map(|u| ours.get(u.as_str())) {
            if !lower(used) {
                offences.push(format!("{}: its tests use {used}, which is not on a lower floor", package.directory));
            }
        }
    }
    offences
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
| room | floor | may use | foreign crates | what it is |
|---|---|---|---|---|
| `model` | 0 | | `serde` | words |
| `stats` | 1 | `model` | any | pure |
| `archive` | 1 | `model` | any | files |
| `cli` | 2 | * | any | prints |
";

    fn package(directory: &str, uses: &[&str], tests_use: &[&str]) -> Package {
        let own = |list: &[&str]| list.iter().map(|s| s.to_string()).collect();
        let name = if directory == "crates/cli" { "fathom" } else { directory.trim_start_matches("crates/") };
        let (uses, tests_use) = (own(uses), own(tests_use));
        Package { name: name.into(), directory: directory.into(), uses, tests_use, tests: vec![] }
    }

    fn house(stats: Package) -> Vec<String> {
        let model = package("crates/model", &["serde"], &["proptest"]);
        let archive = package("crates/archive", &["model", "parquet"], &[]);
        let cli = package("crates/cli", &["model", "stats", "archive", "clap"], &[]);
        offences(&declared(PAGE).unwrap(), &[model, archive, cli, stats])
    }

    #[test]
    fn declared_workspace_passes() {
        assert_eq!(house(package("crates/stats", &["model"], &["model"])), [""; 0]);
    }

    #[test]
    fn sideways_and_upward_arrows_are_offences() {
        assert_eq!(house(package("crates/stats", &["archive"], &[])).len(), 1);
        assert_eq!(house(package("crates/stats", &["fathom"], &[])).len(), 1);
        assert_eq!(house(package("crates/stats", &[], &["archive"])).len(), 1);
    }

    #[test]
    fn undeclared_dependency_of_limited_room_is_offence() {
        let rooms = declared(PAGE).unwrap();
        assert_eq!(offences(&rooms, &[package("crates/model", &["serde", "libc"], &[])]).len(), 1);
    }

    #[test]
    fn undeclared_room_is_offence() {
        assert_eq!(house(package("crates/attic", &[], &[])).len(), 1);
    }

    #[test]
    fn page_with_upward_arrow_is_refused() {
        assert!(declared(&PAGE.replace("| `stats` | 1 | `model`", "| `stats` | 1 | `cli`")).is_err());
        assert!(declared("no table").is_err());
    }
}
