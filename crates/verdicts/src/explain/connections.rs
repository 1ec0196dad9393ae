//! What SQLite does to open a database, before the first statement, and at its close is in no execution. It is found between them: calls on
//! SQLite's files and prepares of a thread that opened a database since its last execution.

use crate::diff::phase::{FileRole, Phase, Phases};
use analysis::rows::Index;
use model::{Call, Layer, ShapeKind, SpanKind};
use sqlite::FileClass;
use std::collections::BTreeMap;

/// What a thread did outside executions on SQLite's files, or an execution.
enum Step {
    Work { end_ns: u64, opens: bool, span: u64 },
    Execution(usize),
}

/// An execution after a database was opened, by position: the time that this took, and the call that opened it.
pub(super) struct Connected {
    pub at: usize,
    pub ns: u64,
    pub span: u64,
}

/// Returns the executions that come after a connection.
pub(super) fn connected(index: &Index, phases: &Phases) -> Vec<Connected> {
    let rows = index.rows;
    let mut found = Vec::new();
    let mut threads: BTreeMap<(u32, u32), Vec<(u64, Step)>> = BTreeMap::new();
    for (at, span) in rows.spans.of_layer(Layer::Syscall) {
        let Phase::In(call, FileRole::Of(class)) = phases.of_call(at) else { continue };
        let Some(end_ns) = span.end_ns.filter(|_| span.operation.is_none() && class != FileClass::Other) else {
            continue;
        };
        let opens = call == Call::Open && class == FileClass::Database && span.result.is_none_or(|result| result >= 0);
        threads
            .entry((span.tgid, span.tid))
            .or_default()
            .push((span.start_ns, Step::Work { end_ns, opens, span: span.id }));
    }
    // Without any, there is nothing to charge.
    threads.retain(|_, steps| steps.iter().any(|(_, step)| matches!(step, Step::Work { opens: true, .. })));
    for (_, span) in rows.spans.of_layer(Layer::Database) {
        let Some(end_ns) = span.end_ns.filter(|_| span.is(SpanKind::Prepare) && span.operation.is_none()) else {
            continue;
        };
        if let Some(steps) = threads.get_mut(&(span.tgid, span.tid)) {
            steps.push((span.start_ns, Step::Work { end_ns, opens: false, span: span.id }));
        }
    }
    let statement = |at: usize| index.shape(at).is_some_and(|shape| rows.shapes[shape].is(ShapeKind::Statement));
    for (at, operation) in rows.operations.iter().enumerate().filter(|(at, o)| o.parent.is_none() && statement(*at)) {
        if let Some(steps) = threads.get_mut(&(operation.tgid, operation.tid)) {
            steps.push((operation.start_ns, Step::Execution(at)));
        }
    }
    for steps in threads.values_mut() {
        steps.sort_by_key(|(start_ns, step)| (*start_ns, matches!(step, Step::Execution(_))));
        // What is inside a prepare counts once.
        let (mut ns, mut done_ns, mut opened) = (0_u64, 0_u64, None);
        for (start_ns, step) in steps.iter() {
            match step {
                Step::Work { end_ns, opens, span } => {
                    ns = ns.saturating_add(end_ns.saturating_sub(done_ns.max(*start_ns)));
                    done_ns = done_ns.max(*end_ns);
                    opened = opened.or(opens.then_some(*span));
                }
                // SQLite's own, which reads the schema in the first prepare.
                Step::Execution(_) if *start_ns < done_ns => {}
                Step::Execution(at) => {
                    found.extend(opened.take().map(|span| Connected { at: *at, ns, span }));
                    ns = 0;
                }
            }
        }
    }
    found
}
