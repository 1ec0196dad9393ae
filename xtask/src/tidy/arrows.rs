//! Arrows go down only, and only those that docs/internals/architecture.md declares.
//!
//! What a crate is *built* from must be declared. Its *tests* may in addition use any crate of a lower floor: they make
//! loop disks and archives for their checks, and nothing that is shipped depends on them.

use crate::markdown::table;
use crate::metadata::Package;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;

/// What the manual declares of a crate.
#[derive(Debug, Default)]
pub struct CrateRules {
    /// Floor; arrows go to lower ones.
    floor: u32,
    /// Crates that it may be built from; `*` is all below.
    may_use: Vec<String>,
    /// Foreign crates that it may use, if that is limited.
    only: Option<Vec<String>>,
}

/// Parses the table `crate | floor | may use | foreign crates | …`.
pub fn parse_rules(page: &str) -> Result<BTreeMap<String, CrateRules>> {
    let header = ["crate", "floor", "may use", "foreign crates", "what it is"];
    let rows = table(page, &header).context("docs/internals/architecture.md has no table of crates")?;
    let names = |cell: &str| -> Vec<String> {
        cell.split(',').map(|n| n.trim().trim_matches('`').to_string()).filter(|n| !n.is_empty()).collect()
    };
    let mut rules = BTreeMap::new();
    for row in rows {
        ensure!(row.len() == header.len(), "docs/internals/architecture.md: a row of {} cells: {row:?}", row.len());
        let name = row[0].trim_matches('`').to_string();
        let floor =
            row[1].parse().with_context(|| format!("docs/internals/architecture.md: {name}: floor {}", row[1]))?;
        let only = (row[3] != "any").then(|| names(row[3]));
        rules.insert(name, CrateRules { floor, may_use: names(row[2]), only });
    }
    for (name, rule) in &rules {
        for used in rule.may_use.iter().filter(|u| *u != "*") {
            let below = rules.get(used).is_some_and(|u| u.floor < rule.floor);
            ensure!(below, "docs/internals/architecture.md: {name} may not use {used}: it is not on a lower floor");
        }
    }
    Ok(rules)
}

/// The packages' violations.
pub fn offences(rules: &BTreeMap<String, CrateRules>, packages: &[Package]) -> Vec<String> {
    let mut offences = Vec::new();
    let ours: BTreeMap<&str, &str> = packages
        .iter()
        .map(|p| (p.name.as_str(), p.directory.strip_prefix("crates/").unwrap_or(&p.directory)))
        .collect();
    for package in packages {
        let name = ours[package.name.as_str()];
        let Some(rule) = rules.get(name) else {
            offences.push(format!("{}: the crate is not in docs/internals/architecture.md", package.directory));
            continue;
        };
        let lower = |used: &str| rules.get(used).is_some_and(|u| u.floor < rule.floor);
        for used in &package.uses {
            let Some(used) = ours.get(used.as_str()) else {
                if rule.only.as_ref().is_some_and(|only| !only.contains(used)) {
                    offences.push(format!("{}: may not depend on {used}", package.directory));
                }
                continue;
            };
            let allowed = rule.may_use.iter().any(|m| m == used || (m == "*" && lower(used)));
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

    const RULES_PAGE: &str = "\
| crate | floor | may use | foreign crates | what it is |
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

    fn offences_with(stats: Package) -> Vec<String> {
        let model = package("crates/model", &["serde"], &["proptest"]);
        let archive = package("crates/archive", &["model", "parquet"], &[]);
        let cli = package("crates/cli", &["model", "stats", "archive", "clap"], &[]);
        offences(&parse_rules(RULES_PAGE).unwrap(), &[model, archive, cli, stats])
    }

    #[test]
    fn declared_workspace_passes() {
        assert_eq!(offences_with(package("crates/stats", &["model"], &["model"])), [""; 0]);
    }

    #[test]
    fn sideways_and_upward_arrows_are_offences() {
        assert_eq!(offences_with(package("crates/stats", &["archive"], &[])).len(), 1);
        assert_eq!(offences_with(package("crates/stats", &["fathom"], &[])).len(), 1);
        assert_eq!(offences_with(package("crates/stats", &[], &["archive"])).len(), 1);
    }

    #[test]
    fn undeclared_dependency_of_a_limited_crate_is_an_offence() {
        let rules = parse_rules(RULES_PAGE).unwrap();
        assert_eq!(offences(&rules, &[package("crates/model", &["serde", "libc"], &[])]).len(), 1);
    }

    #[test]
    fn undeclared_crate_is_an_offence() {
        assert_eq!(offences_with(package("crates/attic", &[], &[])).len(), 1);
    }

    #[test]
    fn page_with_upward_arrow_is_refused() {
        assert!(parse_rules(&RULES_PAGE.replace("| `stats` | 1 | `model`", "| `stats` | 1 | `cli`")).is_err());
        assert!(parse_rules("no table").is_err());
    }
}
