//! The remedies: which findings have them, how they are applied, and what they give up.
//!
//! What SQLite gives up is quoted from its documentation (sqlite.org: PRAGMA synchronous, Write-Ahead Logging): in WAL mode,
//! NORMAL may lose the last commits in a power failure but not corrupt the database; with a rollback journal, NORMAL has a small
//! chance of corruption on an unfortunately timed power failure on older file systems; OFF may corrupt it in either.

use model::FindingCode;
use model::quantity::Choices;
use serde::Serialize;
use std::path::PathBuf;

/// The effect of a remedy on durability. The order is the policy: later ones give up more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// Unchanged.
    Same,
    /// The last commits may be lost in a power failure.
    LastCommits,
    /// The database or the file system may be damaged in a power failure.
    Corruption,
}

impl Durability {
    /// The values of `--allow`: what the best remedy may give up.
    pub const CHOICES: Choices<Self, 3> = [
        ("same", "None: every commit survives a power failure as before", Self::Same),
        ("last-commits", "The last commits may be lost in a power failure", Self::LastCommits),
        ("corruption", "The database may be damaged by a power failure", Self::Corruption),
    ];

    /// Its name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::LastCommits => "last-commits",
            Self::Corruption => "corruption",
        }
    }
}

/// The journal mode that a remedy's SQL leaves the database in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JournalMode {
    Delete,
    Wal,
}

/// A remedy that can be tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Remedy {
    pub name: String,
    /// Findings that have this remedy.
    #[serde(skip)]
    pub codes: &'static [FindingCode],
    /// SQL that changes the database itself, permanently.
    pub persistent: Option<String>,
    /// The mode that this sets, if any.
    #[serde(skip)]
    pub sets_journal: Option<JournalMode>,
    /// SQL that changes a connection: the program has to execute it each time.
    pub connection: Option<String>,
    /// A file of the machine's settings and its value.
    pub machine: Option<(PathBuf, String)>,
    /// A mount and the option to remount it with.
    pub mount: Option<(PathBuf, String)>,
    /// What it gives up.
    pub durability: Durability,
    /// The same in plain words.
    pub gives_up: &'static str,
}

/// What may be changed on the machine.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    /// Schedulers that the files' disk supports but does not use.
    pub schedulers: Vec<String>,
    /// The queue directory of that disk, such as /sys/block/vda/queue, if its settings may be changed.
    pub queue: Option<PathBuf>,
    /// Files of the CPUs' governors.
    pub governors: Vec<PathBuf>,
    /// A mount that may be remounted.
    pub scratch: Option<PathBuf>,
}

const SAME_DURABILITY: &str = "nothing: each commit is as durable as before";
const SAME_DURABILITY_WAL: &str =
    "nothing: each commit is as durable as before (over several attached databases, it is atomic in each only)";
const ATOMICITY_LOST: &str =
    "after a power failure, a transaction may be in some of its attached databases and not in others";
const LAST_COMMITS_LOST: &str = "the last commits may be lost when the power fails; the database stays intact";
const DAMAGE_ON_OLD_FILE_SYSTEMS: &str =
    "a power failure at the wrong moment may damage the database, on older file systems";
const DATABASE_DAMAGE: &str = "a power failure or a crash of the system may damage the database";

fn sql_remedy(
    name: &str,
    codes: &'static [FindingCode],
    (persistent, connection): (Option<&str>, Option<&str>),
    (durability, gives_up): (Durability, &'static str),
) -> Remedy {
    Remedy {
        name: name.into(),
        codes,
        persistent: persistent.map(Into::into),
        sets_journal: None,
        connection: connection.map(Into::into),
        machine: None,
        mount: None,
        durability,
        gives_up,
    }
}

fn wal_remedy(
    name: &str,
    codes: &'static [FindingCode],
    connection: Option<&str>,
    effect: (Durability, &'static str),
) -> Remedy {
    let sets_journal = Some(JournalMode::Wal);
    Remedy { sets_journal, ..sql_remedy(name, codes, (Some("PRAGMA journal_mode=WAL"), connection), effect) }
}

/// Returns all remedies that can be tried.
pub fn all(machine: &Machine) -> Vec<Remedy> {
    use Durability::{Corruption, LastCommits, Same};
    use FindingCode::*;
    let mut all = vec![
        wal_remedy("wal", &[J01, J02, J03, F01, F03, S01, R01], None, (Same, SAME_DURABILITY_WAL)),
        sql_remedy("truncate", &[J01, J02, J03], (None, Some("PRAGMA journal_mode=TRUNCATE")), (Same, SAME_DURABILITY)),
        sql_remedy("persist", &[J01, J02, J03], (None, Some("PRAGMA journal_mode=PERSIST")), (Same, SAME_DURABILITY)),
        sql_remedy(
            "checkpoint-10000",
            &[S02],
            (None, Some("PRAGMA wal_autocheckpoint=10000")),
            (Same, "nothing: the WAL grows to 10,000 pages, and takes longer to recover"),
        ),
        sql_remedy(
            "cache-64M",
            &[S04, S06, S07, D01, R01],
            (None, Some("PRAGMA cache_size=-65536")),
            (Same, "nothing: up to 64 MB of memory a connection"),
        ),
        Remedy {
            // A database with a WAL keeps its page size.
            sets_journal: Some(JournalMode::Delete),
            ..sql_remedy(
                "page-8192",
                &[R01, S04],
                (Some("PRAGMA journal_mode=DELETE; PRAGMA page_size=8192; VACUUM"), None),
                (Same, SAME_DURABILITY),
            )
        },
        wal_remedy(
            "wal-normal",
            &[J01, J02, J03, F01, F02, F03, S01, D01, W01],
            Some("PRAGMA synchronous=NORMAL"),
            (LastCommits, LAST_COMMITS_LOST),
        ),
        sql_remedy(
            "normal",
            &[F01],
            (None, Some("PRAGMA synchronous=NORMAL")),
            (Corruption, DAMAGE_ON_OLD_FILE_SYSTEMS),
        ),
        sql_remedy(
            "off",
            &[F01, F02, F03, S01, J03],
            (None, Some("PRAGMA synchronous=OFF")),
            (Corruption, DATABASE_DAMAGE),
        ),
    ];
    let of_machine = |name: String, codes: &'static [FindingCode], file: PathBuf, value: &str| Remedy {
        name,
        codes,
        machine: Some((file, value.into())),
        ..sql_remedy("", codes, (None, None), (Same, "nothing: it holds for the whole machine, until it restarts"))
    };
    if let Some(queue) = &machine.queue {
        for scheduler in &machine.schedulers {
            all.push(of_machine(
                format!("scheduler-{scheduler}"),
                &[Q01, F02, D01, W01],
                queue.join("scheduler"),
                scheduler,
            ));
        }
        all.push(of_machine("read-ahead-1024".into(), &[S04, D01], queue.join("read_ahead_kb"), "1024"));
        all.push(of_machine("requests-256".into(), &[Q01], queue.join("nr_requests"), "256"));
    }
    if let Some(governor) = machine.governors.first() {
        all.push(of_machine("governor-performance".into(), &[G01], governor.clone(), "performance"));
    }
    if let Some(directory) = &machine.scratch {
        let mount = |name: &str, option: &str, durability, gives_up| Remedy {
            mount: Some((directory.clone(), option.into())),
            ..sql_remedy(name, &[F01, F02, F03, J01, J03], (None, None), (durability, gives_up))
        };
        all.push(mount(
            "mount-lazytime",
            "lazytime",
            Same,
            "nothing of files: their times may be lost when the power fails",
        ));
        all.push(mount(
            "mount-nobarrier",
            "nobarrier",
            Corruption,
            "a power failure may damage the file system, unless its disk has power-loss protection",
        ));
    }
    all
}

/// What is known about the database before anything is tried.
#[derive(Debug, Clone, Copy, Default)]
pub struct Database {
    /// It has a WAL.
    pub wal: bool,
    /// Transactions write several databases at once.
    pub spans_databases: bool,
}

/// Adapts the remedies to this database: it leaves its journal mode only for a remedy that changes it, and the drawback of a WAL
/// for transactions over several databases is reported as given up.
pub fn adapt_to_database(mut all: Vec<Remedy>, database: Database) -> Vec<Remedy> {
    for remedy in &mut all {
        let Some(sql) = &mut remedy.persistent else { continue };
        match remedy.sets_journal {
            Some(JournalMode::Delete) if database.wal => {
                sql.push_str("; PRAGMA journal_mode=WAL");
                remedy.sets_journal = Some(JournalMode::Wal);
            }
            Some(JournalMode::Wal) if database.spans_databases && !database.wal => {
                (remedy.durability, remedy.gives_up) = (Durability::Corruption, ATOMICITY_LOST);
            }
            _ => {}
        }
    }
    all
}

/// Returns the option that undoes a remount.
pub fn undo_option(option: &str) -> Option<&'static str> {
    match option {
        "lazytime" => Some("nolazytime"),
        "nobarrier" => Some("barrier"),
        _ => None,
    }
}

/// Returns the remedies of the given findings, in the order of the list.
pub fn for_findings(all: Vec<Remedy>, codes: &[FindingCode]) -> Vec<Remedy> {
    all.into_iter().filter(|remedy| codes.iter().any(|code| remedy.codes.contains(code))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn all_possible_remedies() -> Vec<Remedy> {
        all(&Machine {
            schedulers: vec!["none".into(), "kyber".into()],
            queue: Some("/sys/block/vda/queue".into()),
            governors: vec!["/sys/g".into()],
            scratch: Some("/mnt".into()),
        })
    }

    #[test]
    fn names_are_unique_and_each_remedy_does_something() {
        let all = all_possible_remedies();
        let names: BTreeSet<&str> = all.iter().map(|r| r.name.as_str()).collect();
        assert_eq!(names.len(), all.len());
        for r in &all {
            assert!(
                r.persistent.is_some() || r.connection.is_some() || r.machine.is_some() || r.mount.is_some(),
                "{}",
                r.name
            );
            assert!(r.mount.as_ref().is_none_or(|(_, option)| undo_option(option).is_some()), "{}", r.name);
            assert_eq!(r.durability == Durability::Same, r.gives_up.starts_with("nothing"), "{}", r.name);
        }
    }

    #[test]
    fn weaker_sync_is_not_the_same_durability() {
        for r in all_possible_remedies() {
            let sql = [&r.persistent, &r.connection].into_iter().flatten().any(|sql| sql.contains("synchronous="));
            let barrier = r.mount.as_ref().is_some_and(|(_, option)| option == "nobarrier");
            assert_eq!(sql || barrier, r.durability != Durability::Same, "{}", r.name);
        }
    }

    /// Whatever the database is, a remedy leaves it in its previous mode, or in the mode that is the remedy.
    #[test]
    fn database_keeps_its_journal_mode_unless_it_is_the_remedy() {
        for (wal, last) in [(false, "DELETE"), (true, "WAL")] {
            for r in adapt_to_database(all_possible_remedies(), Database { wal, spans_databases: false }) {
                let modes: Vec<&str> = r
                    .persistent
                    .iter()
                    .flat_map(|sql| sql.split("journal_mode=").skip(1))
                    .map(|s| s.split(';').next().unwrap())
                    .collect();
                let named = r.name.starts_with("wal");
                assert!(modes.last().is_none_or(|mode| *mode == last || named), "{}: {modes:?}, WAL: {wal}", r.name);
                let set = r.sets_journal.map(|mode| if mode == JournalMode::Wal { "WAL" } else { "DELETE" });
                assert_eq!(set, modes.last().copied(), "{}", r.name);
            }
        }
    }

    #[test]
    fn wal_over_several_databases_is_not_the_same_durability() {
        let class = |spans, wal| -> Vec<Durability> {
            let all = adapt_to_database(all_possible_remedies(), Database { wal, spans_databases: spans });
            let of_wal = all.into_iter().filter(|r| r.name.starts_with("wal"));
            of_wal
                .inspect(|r| assert_eq!(r.gives_up == ATOMICITY_LOST, spans && !wal, "{}", r.name))
                .map(|r| r.durability)
                .collect()
        };
        assert_eq!(class(true, false), [Durability::Corruption; 2]);
        let kept = [Durability::Same, Durability::LastCommits];
        assert_eq!((class(false, false), class(true, true)), (kept.to_vec(), kept.to_vec()));
    }

    #[test]
    fn findings_choose_their_remedies() {
        let names = |code: FindingCode| -> Vec<String> {
            for_findings(all_possible_remedies(), &[code]).into_iter().map(|r| r.name).collect()
        };
        assert_eq!(names(FindingCode::S02), ["checkpoint-10000"]);
        assert_eq!(names(FindingCode::G01), ["governor-performance"]);
        assert!(names(FindingCode::J02).starts_with(&["wal".into(), "truncate".into(), "persist".into()]));
        assert!(names(FindingCode::T01).is_empty());
    }
}
