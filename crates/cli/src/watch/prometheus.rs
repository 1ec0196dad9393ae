//! Counters of a recorder that keeps slow operations, for the textfile collector of node_exporter.

use recorder::watch::Counts;
use recorder::watch::matrix::{Delay, Matrix};

/// Prometheus's text format, version 0.0.4: of counters that only grow while the recorder runs.
pub fn metrics(counts: &Counts, matrix: &Matrix) -> String {
    let label = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let mut text = String::from(
        "# HELP fathom_watch_operations_total Operations seen, by what became of them.\n\
         # TYPE fathom_watch_operations_total counter\n",
    );
    for (result, count) in [("kept", counts.kept), ("below", counts.below), ("shed", counts.shed())] {
        text += &format!("fathom_watch_operations_total{{result=\"{result}\"}} {count}\n");
    }
    text += "# HELP fathom_watch_delay_seconds_total Time of the slow operations that were kept.\n\
             # TYPE fathom_watch_delay_seconds_total counter\n";
    for (Delay { victim, culprit, spent, disk }, ns) in matrix.rows() {
        let [victim, culprit, disk] = [victim, culprit, disk].map(|name| label(&name));
        text += &format!(
            "fathom_watch_delay_seconds_total{{victim=\"{victim}\",culprit=\"{culprit}\",spent=\"{spent}\",disk=\"{disk}\"}} {:.9}\n",
            ns / 1e9
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use recorder::watch::SlowOperation;

    #[test]
    fn names_cannot_break_the_metrics() {
        let mut matrix = Matrix::default();
        matrix.add(&SlowOperation {
            tgid: 1,
            tid: 1,
            start_ns: 0,
            end_ns: 1_500_000_000,
            process: Some("a\"b\\c\nd".into()),
            shape: None,
            account: Default::default(),
            culprits: Default::default(),
            disks: Default::default(),
        });
        let text = metrics(&Counts { seen: 3, below: 2, kept: 1, ..Counts::default() }, &matrix);
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(samples.len(), 4, "{text}");
        let expected = "{victim=\"a\\\"b\\\\c\\nd\",culprit=\"unknown\",spent=\"other\",disk=\"\"} 1.500000000";
        assert!(samples[3].ends_with(expected), "{text}");
    }
}
