//! Why a run differs: the settings of SQLite that follow from its file accesses, before and now.
//!
//! Each setting is inferred from counts alone, and no further than these allow: a WAL that is written means WAL mode, a rollback
//! journal that is unlinked means DELETE. `synchronous` is reported only if nothing else changed.

use super::contract::Contract;
use super::count_name::{CHECKPOINTS, CountName, EXECUTIONS, FileKind, ROWS};
use super::difference::Difference;
use super::observe::ObservedRun;
use model::Call;
use sqlite::FileClass;

/// Sums over all statements and the rest, before or now.
struct CountSums<'a> {
    sum: Box<dyn Fn(&str) -> u64 + 'a>,
}

impl<'a> CountSums<'a> {
    fn from_contract(contract: &'a Contract) -> Self {
        let sections = || contract.statements.iter().map(|s| &s.counts).chain([&contract.program]);
        Self { sum: Box::new(move |name| sections().map(|s| s.count(name)).sum()) }
    }

    fn from_run(found: &'a ObservedRun) -> Self {
        let ones = || found.statements.values().chain([&found.program]);
        Self { sum: Box::new(move |name| ones().map(|one| one.calls.get(name).copied().unwrap_or(0)).sum()) }
    }

    fn sum_calls(&self, calls: &[Call], class: FileClass) -> u64 {
        let name = |call: &Call| CountName::Call(*call, Some(FileKind::Sqlite(class))).to_string();
        calls.iter().map(|call| (self.sum)(&name(call))).sum()
    }

    fn syncs(&self, class: FileClass) -> u64 {
        self.sum_calls(&[Call::Fsync, Call::Fdatasync], class)
    }

    /// Returns SQLite's journal mode, as inferred from its files.
    fn journal_mode(&self) -> Option<&'static str> {
        let journal = FileClass::RollbackJournal;
        let all: Vec<Call> = Call::ALL.iter().copied().filter(|call| call.writes()).collect();
        let writes = |class| self.sum_calls(&all, class) > 0;
        if writes(FileClass::Wal) {
            Some("WAL")
        } else if writes(journal) {
            Some(match (self.sum_calls(&[Call::Unlink], journal), self.sum_calls(&[Call::Ftruncate], journal)) {
                (1.., _) => "DELETE",
                (0, 1..) => "TRUNCATE",
                (0, 0) => "PERSIST",
            })
        } else {
            writes(FileClass::Database).then_some("OFF or MEMORY")
        }
    }
}

/// Files that SQLite syncs.
const SYNCED_CLASSES: [FileClass; 3] = [FileClass::Wal, FileClass::Database, FileClass::RollbackJournal];

/// Counts the executions of statements that begin with a word, before and now.
fn count_executions(word: &str, contract: &Contract, found: &ObservedRun) -> (u64, u64) {
    let is = |text: &str| text.trim_start().get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    let then = contract.statements.iter().filter(|s| is(&s.text)).map(|s| s.counts.count(EXECUTIONS)).sum();
    let now = found.statements.iter().filter(|(text, _)| is(text));
    (then, now.map(|(_, one)| one.calls.get(EXECUTIONS).copied().unwrap_or(0)).sum())
}

fn times_in_words(n: u64) -> String {
    model::counted(usize::try_from(n).unwrap_or(usize::MAX), "time")
}

/// Explains the first of the differences.
pub(super) fn explain_difference(
    contract: &Contract,
    found: &ObservedRun,
    differences: &[Difference],
) -> Option<String> {
    let first = differences.first()?;
    let (then, now) = (CountSums::from_contract(contract), CountSums::from_run(found));
    if let (Some(was), Some(is)) = (then.journal_mode(), now.journal_mode())
        && was != is
    {
        return Some(format!("journal_mode changed from {was} to {is}"));
    }
    let ends = ["COMMIT", "END"].map(|word| count_executions(word, contract, found));
    let (was, is) = (ends[0].0 + ends[1].0, ends[0].1 + ends[1].1);
    let what = CountName::parse(&first.what);
    let syncs = matches!(what, CountName::Call(Call::Fsync | Call::Fdatasync, _));
    let of_sqlite = match what.file() {
        Some(FileKind::Sqlite(class)) => SYNCED_CLASSES.contains(&class),
        Some(FileKind::Directory) => true,
        Some(FileKind::File) | None => false,
    };
    if is < was && first.delta() > 0 && of_sqlite {
        return Some(format!(
            "statements no longer share a transaction: COMMIT ran {}, before {was}",
            times_in_words(is)
        ));
    }
    // If a transaction was rolled back at its end, as test frameworks do, there was no COMMIT.
    let (was, is) = count_executions("BEGIN", contract, found);
    if is < was && first.delta() > 0 && of_sqlite {
        return Some(format!(
            "statements no longer share a transaction: BEGIN ran {}, before {was}",
            times_in_words(is)
        ));
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
            (0, n) => format!("the statement is new: it ran {}", times_in_words(n)),
            (_, 0) => "the statement is no longer executed".into(),
            (was, n) => format!("the statement ran {}, before {was}", times_in_words(n)),
        });
    }
    let equal = |word: &&str| {
        let (then, now) = count_executions(word, contract, found);
        then == now
    };
    if syncs && of_sqlite && ["BEGIN", "COMMIT", "END", "ROLLBACK", "SAVEPOINT", "RELEASE"].iter().all(equal) {
        let changed = SYNCED_CLASSES.iter().any(|class| then.syncs(*class) != now.syncs(*class));
        return changed.then(|| "synchronous is another: the journal mode and the transactions are the same".into());
    }
    let database = Some(FileKind::Sqlite(FileClass::Database));
    let reads = matches!(what, CountName::BytesRead(file) | CountName::Call(Call::Read | Call::Pread64, file) if file == database);
    let same_rows = !differences.iter().filter(own).any(|d| d.what == ROWS);
    if reads && first.delta() > 0 && same_rows {
        return Some("more of the database is read for the same rows: an index is missing or not used".into());
    }
    None
}
