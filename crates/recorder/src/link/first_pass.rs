//! What must be known of the whole log before its first event is linked.

use archive::LogReader;
use causal::InnerTasks;
use model::event::op_kind;
use model::{Event, Record};
use std::collections::BTreeSet;
use std::path::Path;

/// The marks, and the processes whose statements were recorded.
///
/// Marks are read from a program's memory at the end and so stand last, though what ran inside them comes after them; in a
/// container they have the numbers that the program knows itself by.
pub fn read(dir: &Path) -> archive::Result<(Vec<Event>, BTreeSet<u32>)> {
    let (mut marks, mut with_statements, mut inner) = (Vec::new(), BTreeSet::new(), InnerTasks::default());
    for event in LogReader::open(dir)? {
        inner.learn(&event);
        match &event.record {
            Record::Mark(_) => marks.push(event),
            Record::Statement(_) => drop(with_statements.insert(event.header.tgid)),
            Record::OpBegin(begin) if begin.kind == op_kind::STATEMENT => {
                with_statements.insert(event.header.tgid);
            }
            _ => {}
        }
    }
    Ok((marks.into_iter().map(|mark| inner.readdress(mark)).collect(), with_statements))
}
