//! Which SQLite ran: of the files that were probed, those that a process had mapped as code which executed statements.
//!
//! Probes are put on whatever may be loaded, so a file that was probed says nothing yet: the system's library is probed for
//! every command. A process whose mappings were not seen (it was forked off one that had them, and is gone) may have used any
//! of the probed files; then the version is known only if they all have the same.

use capture::sqlite::find::mappings;
use model::Fact;
use std::collections::{BTreeMap, BTreeSet};

/// A file with SQLite in it that was probed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probed {
    /// Its path.
    pub path: String,
    /// Its inode; 0 if it is not known. Of the few files that are probed, it tells one from another.
    pub ino: u64,
    /// The version that it names itself.
    pub version: String,
}

/// What the recorded processes did.
#[derive(Debug, Default)]
pub struct Ran {
    told: BTreeSet<u32>,
    mapped: BTreeMap<u32, BTreeSet<u64>>,
}

impl Ran {
    /// A process executed a statement.
    pub fn statement(&mut self, tgid: u32) {
        self.told.insert(tgid);
    }

    /// Whether that is known of it.
    pub fn has_told(&self, tgid: u32) -> bool {
        self.told.contains(&tgid)
    }

    /// A process mapped a file as code.
    pub fn mapped(&mut self, tgid: u32, ino: u64) {
        self.mapped.entry(tgid).or_default().insert(ino);
    }

    /// Asks those that still live what they have mapped.
    pub fn ask_the_living(&mut self) {
        for &tgid in &self.told {
            let Ok(maps) = std::fs::read(format!("/proc/{tgid}/maps")) else { continue };
            let inodes = mappings(&String::from_utf8_lossy(&maps)).map(|m| m.inode).collect::<Vec<_>>();
            self.mapped.entry(tgid).or_default().extend(inodes);
        }
    }

    /// The version that ran, with its file; or why it is not known, and what was probed. `None` if nothing was.
    pub fn version(&self, probed: &[Probed]) -> Option<Fact> {
        if probed.is_empty() {
            return None;
        }
        let fact = |value, unknown, source| Fact { value, unknown, unit: None, source, varies: "run".into() };
        let why_not = |why: &str| {
            let list: Vec<String> = probed.iter().map(|p| format!("{} ({})", p.path, p.version)).collect();
            fact(None, Some(format!("{why}; probed were {}", list.join(", "))), "the recorded statements".into())
        };
        if self.told.is_empty() {
            return Some(why_not("no statement was recorded"));
        }
        let mut ran: BTreeSet<usize> = BTreeSet::new();
        let mut sure = true;
        for tgid in &self.told {
            let its = self.mapped.get(tgid);
            let has = |p: &Probed| its.is_some_and(|inodes| inodes.contains(&p.ino));
            let files: Vec<usize> = (0..probed.len()).filter(|&i| has(&probed[i])).collect();
            sure &= files.len() == 1;
            ran.extend(if files.is_empty() { (0..probed.len()).collect() } else { files });
        }
        let of = |what: fn(&Probed) -> &str| ran.iter().map(|&i| what(&probed[i])).collect::<BTreeSet<&str>>();
        let (versions, paths) = (of(|p| &p.version), of(|p| &p.path));
        if !sure && versions.len() > 1 {
            return Some(why_not("a process executed statements of which it was not seen which SQLite has them"));
        }
        let joined = |set: BTreeSet<&str>, by: &str| set.into_iter().collect::<Vec<_>>().join(by);
        Some(fact(Some(joined(versions, ", ")), None, joined(paths, " ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probed(all: &[(&str, u64, &str)]) -> Vec<Probed> {
        all.iter().map(|&(path, ino, version)| Probed { path: path.into(), ino, version: version.into() }).collect()
    }

    #[test]
    fn a_library_that_nobody_used_is_not_named() {
        let both = probed(&[("/lib/libsqlite3.so.0", 5, "3.40.1"), ("/opt/app", 6, "3.54.1")]);
        let mut ran = Ran::default();
        ran.mapped(1, 5);
        let nobody = ran.version(&both).unwrap();
        assert_eq!(nobody.value, None);
        let why = nobody.unknown.unwrap();
        assert!(why.starts_with("no statement") && why.contains("/lib/libsqlite3.so.0 (3.40.1)"), "{why}");
        assert!(Ran::default().version(&[]).is_none());

        ran.mapped(2, 6);
        ran.mapped(2, 7);
        ran.statement(2);
        let one = ran.version(&both).unwrap();
        assert_eq!((one.value.as_deref(), one.source.as_str()), (Some("3.54.1"), "/opt/app"));

        ran.statement(1);
        assert_eq!(ran.version(&both).unwrap().value.as_deref(), Some("3.40.1, 3.54.1"), "both ran");
    }

    #[test]
    fn of_a_process_whose_mappings_were_not_seen_only_a_common_version_is_known() {
        let mut ran = Ran::default();
        ran.statement(u32::MAX);
        ran.ask_the_living();
        let same = probed(&[("/a", 5, "3.40.1"), ("/b", 6, "3.40.1")]);
        assert_eq!(ran.version(&same).unwrap().value.as_deref(), Some("3.40.1"));
        let two = probed(&[("/a", 5, "3.40.1"), ("/b", 6, "3.41.0")]);
        let fact = ran.version(&two).unwrap();
        assert!(fact.value.is_none() && fact.unknown.unwrap().contains("/b (3.41.0)"));
    }
}
