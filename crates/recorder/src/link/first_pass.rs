//! Collects what must be known of the whole log before its first event is linked.

use super::stacks::Stacks;
use archive::LogReader;
use causal::InnerTasks;
use model::event::op_kind;
use model::{Event, Record};
use std::collections::BTreeSet;
use std::path::Path;

pub struct FirstPass {
    /// The marks, and the losses.
    pub marks_and_losses: Vec<Event>,
    /// The processes whose statements were recorded.
    pub with_statements: BTreeSet<u32>,
    /// Where threads slept, which is reported only later.
    pub stacks: Stacks,
}

/// Reads the log.
///
/// Marks are read from a program's memory at the end and so come last, although they precede what ran inside them; in a
/// container they have the numbers by which the program knows itself. Losses are read from counters, at the end of a drain or once a
/// second, and come after records made during them, whose links they weaken.
pub fn read_log(dir: &Path) -> archive::Result<FirstPass> {
    let (mut marks, mut losses, mut with_statements) = (Vec::new(), Vec::new(), BTreeSet::new());
    let mut inner = InnerTasks::default();
    let mut stacks = Stacks::default();
    for event in LogReader::open(dir)? {
        inner.learn(&event);
        stacks.learn(&event);
        match &event.record {
            Record::Mark(_) => marks.push(event),
            Record::Loss(_) => losses.push(event),
            Record::Statement(_) => drop(with_statements.insert(event.header.tgid)),
            Record::OpBegin(begin) if begin.kind == op_kind::STATEMENT => {
                with_statements.insert(event.header.tgid);
            }
            _ => {}
        }
    }
    let marks = marks.into_iter().map(|mark| inner.renumber(mark));
    Ok(FirstPass { marks_and_losses: marks.chain(losses).collect(), with_statements, stacks })
}
