//! Matching of the executions of two recordings: the n-th of a statement's shape to the n-th of the same shape.
//!
//! Executions are not matched by time: two recordings have no meaningful common clock, and a slower program is at another point
//! at every moment. What has no counterpart (a statement of one recording only, or the surplus executions of one) is listed and
//! not compared.

use analysis::rows::Index;
use serde::Serialize;
use std::collections::BTreeMap;

/// A statement that both recordings have.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Shape {
    /// `statement`, `function`, `mark` or `transaction`.
    pub kind: String,
    pub text: String,
    /// Matched executions, by their positions in each recording, in order.
    pub pairs: Vec<[u32; 2]>,
    /// Finished executions of each recording without a counterpart.
    pub left: [u64; 2],
}

/// A statement that only one recording has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct UnmatchedStatement {
    /// The shape's text.
    pub statement: String,
    /// `statement`, `function`, `mark` or `transaction`.
    pub kind: String,
    /// Its finished executions.
    pub count: u64,
    /// Their time, ns.
    pub sum_ns: u64,
}

/// All matches.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Alignment {
    /// Statements of both recordings.
    pub shapes: Vec<Shape>,
    /// Statements of one recording only.
    pub alone: [Vec<UnmatchedStatement>; 2],
}

/// Finished executions by kind and text: ordinal and position.
type Executions<'a> = BTreeMap<(&'a str, &'a str), Vec<(u64, u64, u32)>>;

fn executions_by_statement<'a>(index: &Index<'a>) -> Executions<'a> {
    let mut all = Executions::new();
    for (at, operation) in index.rows.operations.iter().enumerate().filter(|(_, o)| o.end_ns.is_some()) {
        if let Some(shape) = index.shape(at).map(|shape| &index.rows.shapes[shape]) {
            let list = all.entry((shape.kind.as_ref(), shape.text.as_str())).or_default();
            list.push((operation.nth, operation.start_ns, at as u32));
        }
    }
    all.values_mut().for_each(|list| list.sort_unstable());
    all
}

fn unmatched_statement(index: &Index, (kind, text): (&str, &str), list: &[(u64, u64, u32)]) -> UnmatchedStatement {
    let time = |at: u32| {
        let operation = &index.rows.operations.at(at as usize);
        operation.end_ns.unwrap_or(0).saturating_sub(operation.start_ns)
    };
    let sum_ns = list.iter().fold(0_u64, |sum, &(.., at)| sum.saturating_add(time(at)));
    UnmatchedStatement { statement: text.into(), kind: kind.into(), count: list.len() as u64, sum_ns }
}

/// Aligns two recordings.
pub fn align(a: &Index, b: &Index) -> Alignment {
    let (mut of_a, mut of_b) = (executions_by_statement(a), executions_by_statement(b));
    let mut alignment = Alignment::default();
    let common: Vec<(&str, &str)> = of_a.keys().filter(|key| of_b.contains_key(*key)).copied().collect();
    for key in common {
        let (x, y) = (of_a.remove(&key).unwrap_or_default(), of_b.remove(&key).unwrap_or_default());
        let mut pairs = Vec::new();
        let (mut i, mut j) = (0, 0);
        while let (Some(p), Some(q)) = (x.get(i), y.get(j)) {
            if p.0 == q.0 {
                pairs.push([p.2, q.2]);
            }
            (i, j) = (i + usize::from(p.0 <= q.0), j + usize::from(q.0 <= p.0));
        }
        let left = [x.len() - pairs.len(), y.len() - pairs.len()].map(|n| n as u64);
        alignment.shapes.push(Shape { kind: key.0.into(), text: key.1.into(), pairs, left });
    }
    let rest = |index: &Index, all: Executions| {
        let mut list: Vec<UnmatchedStatement> =
            all.iter().map(|(key, list)| unmatched_statement(index, *key, list)).collect();
        list.sort_by(|p, q| q.sum_ns.cmp(&p.sum_ns).then_with(|| p.statement.cmp(&q.statement)));
        list
    };
    alignment.alone = [rest(a, of_a), rest(b, of_b)];
    alignment
}

#[cfg(test)]
mod tests {
    use super::*;
    use analysis::small_trace;

    #[test]
    fn the_nth_execution_is_aligned_with_the_nth() {
        let (a, mut b) = (small_trace::rows(), small_trace::rows());
        // B's INSERTs were recorded from the second on, and there is one more; its SELECT reads another table.
        b.shapes[1].text = "SELECT * FROM u".into();
        b.operations.edit()[1].nth = 2;
        let end_ns = b.operations.start_ns(4) + 5;
        b.operations.edit()[4].end_ns = Some(end_ns);
        b.operations.edit()[4].nth = 3;
        let (a, b) = (Index::new(&a), Index::new(&b));
        let found = align(&a, &b);
        let insert = found.shapes.iter().find(|s| s.text == small_trace::INSERT_STATEMENT).unwrap();
        // A's third did not finish.
        assert_eq!((&insert.pairs[..], insert.left), (&[[2, 2]][..], [1, 2]));
        let names =
            |side: usize| found.alone[side].iter().map(|s| (s.statement.as_str(), s.sum_ns)).collect::<Vec<_>>();
        assert_eq!(names(0), [(small_trace::SELECT_STATEMENT, 100_000)]);
        assert_eq!(names(1), [("SELECT * FROM u", 100_000)]);
    }
}
