//! Why a run differs: what SQLite's files show of its settings, then and now.
//!
//! Each is concluded from counts alone, and says no more than these decide: a WAL that is written is WAL mode, a rollback journal that is
//! unlinked is DELETE. `synchronous` is told only where nothing else changed.

use super::contract::Contract;
use super::difference::Difference;
use super::observe::{CHECKPOINTS, EXECUTIONS, Observed};

/// Sums over all statements and the rest, then or now.
struct Counted<'a> {
    sum: Box<dyn Fn(&str) -> u64 + 'a>,
}

impl<'a> Counted<'a> {
    fn then(contract: &'a Contract) -> Self {
        let sections = || contract.statements.iter().map(|s| &s.counts).chain([&contract.program]);
        Self { sum: Box::new(move |name| sections().map(|s| s.count(name)).sum()) }
    }

    fn now(found: &'a Observed) -> Self {
        let ones = || found.statements.values().chain([&found.program]);
        Self { sum: Box::new(move |name| ones().map(|one| one.calls.get(name).copied().unwrap_or(0)).sum()) }
    }

    fn any(&self, calls: &[&str], file: &str) -> u64 {
        calls.iter().map(|call| (self.sum)(&format!("{call} {file}"))).sum()
    }

    fn syncs(&self, file: &str) -> u64 {
        self.any(&["fsync", "fdatasync"], file)
    }

    /// SQLite's journal mode, as its files show it.
    fn journal_mode(&self) -> Option<&'static str> {
        let writes = |file| self.any(&["write", "pwrite64", "writev", "pwritev"], file) > 0;
        if writes("WAL") {
            Some("WAL")
        } else if writes("rollback journal") {
            Some(match (self.any(&["unlink"], "rollback journal"), self.any(&["ftruncate"], "rollback journal")) {
                (1.., _) => "DELETE",
                (0, 1..) => "TRUNCATE",
                (0, 0) => "PERSIST",
            })
        } else {
            writes("database").then_some("OFF or MEMORY")
        }
    }
}

/// Executions of statements that begin with a word.
fn executions(word: &str, contract: &Contract, found: &Observed) -> (u64, u64) {
    let is = |text: &str| text.trim_start().get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    let then = contract.statements.iter().filter(|s| is(&s.text)).map(|s| s.counts.count(EXECUTIONS)).sum();
    let now = found.statements.iter().filter(|(text, _)| is(text));
    (then, now.map(|(_, one)| one.calls.get(EXECUTIONS).copied().unwrap_or(0)).sum())
}

fn times(n: u64) -> String {
    model::counted(usize::try_from(n).unwrap_or(usize::MAX), "time")
}

/// What explains the first of the differences.
pub(super) fn because(contract: &Contract, found: &Observed, differences: &[Difference]) -> Option<String> {
    let first = differences.first()?;
    let (then, now) = (Counted::then(contract), Counted::now(found));
    if let (Some(was), Some(is)) = (then.journal_mode(), now.journal_mode())
        && was != is
    {
        return Some(format!("journal_mode changed from {was} to {is}"));
    }
    let ends = ["COMMIT", "END"].map(|word| executions(word, contract, found));
    let (was, is) = (ends[0].0 + ends[1].0, ends[0].1 + ends[1].1);
    let syncs = first.what.starts_with("fsync") || first.what.starts_with("fdatasync");
    let of_sqlite = ["WAL", "database", "rollback journal", "directory"].iter().any(|file| first.what.ends_with(file));
    if is < was && first.delta() > 0 && of_sqlite {
        return Some(format!("statements no longer share a transaction: COMMIT ran {}, before {was}", times(is)));
    }
    // Where a transaction was rolled back at its end, as test frameworks do, there was no COMMIT.
    let (was, is) = executions("BEGIN", contract, found);
    if is < was && first.delta() > 0 && of_sqlite {
        return Some(format!("statements no longer share a transaction: BEGIN ran {}, before {was}", times(is)));
    }
    if let (was, is @ 1..) = ((then.sum)(CHECKPOINTS), (now.sum)(CHECKPOINTS))
        && is != was
    {
        return Some(format!("the WAL is checkpointed by {is} executions, before by {was}"));
    }
    let own = |d: &&Difference| d.statement == first.statement;
    if let Some(more) = differences.iter().filter(own).find(|d| d.what == EXECUTIONS) {
        let [was, _] = more.expected;
        return Some(match (was, more.found) {
            (0, n) => format!("the statement is new: it ran {}", times(n)),
            (_, 0) => "the statement is no longer executed".into(),
            (was, n) => format!("the statement ran {}, before {was}", times(n)),
        });
    }
    let equal = |word: &&str| {
        let (then, now) = executions(word, contract, found);
        then == now
    };
    if syncs && of_sqlite && ["BEGIN", "COMMIT", "END", "ROLLBACK", "SAVEPOINT", "RELEASE"].iter().all(equal) {
        let changed = ["WAL", "database", "rollback journal"].iter().any(|file| then.syncs(file) != now.syncs(file));
        return changed.then(|| "synchronous is another: the journal mode and the transactions are the same".into());
    }
    let reads = first.what.ends_with("read database") || first.what == "pread64 database";
    let same_rows = !differences.iter().filter(own).any(|d| d.what == super::observe::ROWS);
    if reads && first.delta() > 0 && same_rows {
        return Some("more of the database is read for the same rows: an index is missing or not used".into());
    }
    None
}
