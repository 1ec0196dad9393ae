//! Who delays whom: the time of slow operations by victim, culprit and reason, summed over incidents.
//!
//! Processes are told apart by name, as a fleet's dashboards do; the number of rows is bounded, and what exceeds it is summed in one row.

use super::account::{Culprit, Spent};
use super::incident::SlowOperation;
use std::collections::BTreeMap;

/// Maximum number of rows, the one for the rest excluded.
pub const ROWS_MAX: usize = 1000;

/// The victim of the row for the rest.
pub const OTHERS: &str = "others";

/// Who waited for whom, and for what.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Delay {
    /// The victim's name.
    pub victim: String,
    /// The culprit's name, [`OWN`] or [`UNKNOWN`].
    pub culprit: String,
    /// What the time was spent on, as in an operation's account.
    pub spent: &'static str,
    /// The disk's name; empty if it is none.
    pub disk: String,
}

/// The culprit of time that an operation spent on its own process's behalf.
pub const OWN: &str = "own";
/// The culprit of time whose cause is not known.
pub const UNKNOWN: &str = "unknown";

#[derive(Debug, Clone, Default)]
pub struct Matrix {
    rows: BTreeMap<Delay, f64>,
    rest_ns: f64,
    /// Number of operations.
    pub operations: u64,
    /// The sum of their durations, ns.
    pub total_ns: u64,
}

impl Matrix {
    /// Adds a slow operation's time. What its account lacks has no known cause.
    pub fn add(&mut self, operation: &SlowOperation) {
        let duration_ns = operation.end_ns.saturating_sub(operation.start_ns);
        self.operations += 1;
        self.total_ns += duration_ns;
        let victim = operation.process.as_deref().unwrap_or(UNKNOWN);
        let accounted: f64 = operation.account.values().sum();
        // The linker may know a slightly longer operation around the one that was slow.
        let scale = if accounted > duration_ns as f64 { duration_ns as f64 / accounted } else { 1.0 };
        for ((spent, culprit), ns) in &operation.account {
            let culprit = match culprit {
                Culprit::Own => OWN,
                Culprit::Unknown => UNKNOWN,
                Culprit::Process(tgid) => operation.culprits.get(tgid).map_or(UNKNOWN, String::as_str),
            };
            let disk = spent.disk().and_then(|disk| operation.disks.get(&disk)).map_or("", String::as_str);
            self.add_to(victim, culprit, spent.name(), disk, ns * scale);
        }
        let left = duration_ns as f64 - accounted * scale;
        if left >= 1.0 {
            self.add_to(victim, UNKNOWN, Spent::Other.name(), "", left);
        }
    }

    fn add_to(&mut self, victim: &str, culprit: &str, spent: &'static str, disk: &str, ns: f64) {
        let row = Delay { victim: victim.into(), culprit: culprit.into(), spent, disk: disk.into() };
        if self.rows.len() >= ROWS_MAX && !self.rows.contains_key(&row) {
            self.rest_ns += ns;
        } else {
            *self.rows.entry(row).or_default() += ns;
        }
    }

    /// The rows with their time in ns, the longest first, and then the row for the rest, if there is one.
    pub fn rows(&self) -> Vec<(Delay, f64)> {
        let mut rows: Vec<(Delay, f64)> = self.rows.iter().map(|(row, ns)| (row.clone(), *ns)).collect();
        rows.sort_by(|a, b| b.1.total_cmp(&a.1));
        if self.rest_ns > 0.0 {
            let (victim, culprit) = (OTHERS.into(), UNKNOWN.into());
            rows.push((Delay { victim, culprit, spent: Spent::Other.name(), disk: String::new() }, self.rest_ns));
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::account::Account;

    fn operation(process: &str, duration_ns: u64, account: Account) -> SlowOperation {
        SlowOperation {
            tgid: 1,
            tid: 1,
            start_ns: 1000,
            end_ns: 1000 + duration_ns,
            process: Some(process.into()),
            shape: None,
            account,
            culprits: [(7, "hog".to_string())].into(),
            disks: [(8, "vda".to_string())].into(),
        }
    }

    fn sum(matrix: &Matrix) -> f64 {
        matrix.rows().iter().map(|(_, ns)| ns).sum()
    }

    #[test]
    fn rows_add_up_to_the_operations_and_the_rest_is_unknown() {
        let mut matrix = Matrix::default();
        let account: Account =
            [((Spent::Flush(8), Culprit::Process(7)), 600.0), ((Spent::Running, Culprit::Own), 100.0)].into();
        matrix.add(&operation("app", 1000, account.clone()));
        matrix.add(&operation("app", 1000, account));
        matrix.add(&operation("app", 500, [((Spent::Journal, Culprit::Process(9)), 700.0)].into()));
        matrix.add(&operation("app", 300, Account::new()));
        assert_eq!((matrix.operations, matrix.total_ns, sum(&matrix)), (4, 2800, 2800.0));
        let (worst, ns) = &matrix.rows()[0];
        assert_eq!((worst.culprit.as_str(), worst.spent, worst.disk.as_str(), *ns), ("hog", "flush", "vda", 1200.0));
        let unknown: f64 = matrix.rows().iter().filter(|(row, _)| row.culprit == UNKNOWN).map(|(_, ns)| ns).sum();
        assert_eq!(unknown, 600.0 + 500.0 + 300.0, "the rest, a process without a name, and what was not linked");
    }

    #[test]
    fn number_of_rows_is_bounded_and_nothing_is_lost() {
        let mut matrix = Matrix::default();
        for n in 0..3 * ROWS_MAX {
            matrix.add(&operation(&format!("app{n}"), 10, Account::new()));
        }
        assert_eq!((matrix.rows().len(), sum(&matrix)), (ROWS_MAX + 1, 30.0 * ROWS_MAX as f64));
    }
}
