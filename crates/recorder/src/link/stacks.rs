//! The stacks of long sleeps, each with the operation and the system call that the thread was in.
//!
//! The linker does not need them: they record where a thread slept, by thread number and time, and are kept until the rows of
//! that time pass. The recording's budget bounds their number.

use model::event::{chain_end, flags};
use model::table::{Operation, Span, StackRow};
use model::{Event, Layer, Record};
use std::collections::{BTreeMap, HashMap};

/// Functions by the number of their chain: names, places, and why the chain ends.
type Chains = HashMap<u32, (String, String, u16)>;

#[derive(Debug)]
struct Sleep {
    tgid: u32,
    end_ns: u64,
    kernel: u32,
    program: u32,
    between_rows: bool,
    /// The innermost operation around it, with its begin and end.
    operation: Option<(u64, u64, u64)>,
    span: Option<u64>,
}

/// The stacks of a log.
#[derive(Debug, Default)]
pub struct Stacks {
    chains: Chains,
    /// By thread and by the time at which it fell asleep.
    sleeps: BTreeMap<(u32, u64), Sleep>,
}

impl Stacks {
    /// Learns from an event, if it concerns a stack.
    pub fn learn(&mut self, event: &Event) {
        match &event.record {
            Record::Chain(chain) => {
                let (names, places) = chain.text.lines().map(split_columns).unzip::<_, _, Vec<String>, Vec<String>>();
                self.chains.insert(chain.chain, (names.join("\n"), places.join("\n"), chain.ended));
            }
            Record::Stack(stack) => {
                let sleep = Sleep {
                    tgid: event.header.tgid,
                    end_ns: event.header.time_ns,
                    kernel: stack.kernel,
                    program: stack.program,
                    between_rows: stack.ctx & flags::BETWEEN_ROWS != 0,
                    operation: None,
                    span: None,
                };
                self.sleeps.insert((event.header.tid, stack.start_ns), sleep);
            }
            _ => {}
        }
    }

    /// Handles an operation: its thread's sleeps during it belong to it, unless an inner operation follows.
    pub fn operation(&mut self, row: &Operation) {
        let end_ns = row.end_ns.unwrap_or(u64::MAX);
        for (_, sleep) in sleeps_within(&mut self.sleeps, (row.tgid, row.tid), row.start_ns, end_ns) {
            let inner = sleep.operation.is_none_or(|(_, from, to)| (row.start_ns, to) > (from, end_ns));
            // Between its rows a statement does not run.
            if inner && !(sleep.between_rows && row.steps.is_some()) {
                sleep.operation = Some((row.id, row.start_ns, end_ns));
            }
        }
    }

    /// Handles a span: a sleeping thread is in at most one system call.
    pub fn span(&mut self, row: &Span) {
        if row.layer != Layer::Syscall || self.sleeps.is_empty() {
            return;
        }
        let end_ns = row.end_ns.unwrap_or(u64::MAX);
        for (_, sleep) in sleeps_within(&mut self.sleeps, (row.tgid, row.tid), row.start_ns, end_ns) {
            sleep.span = Some(row.id);
        }
    }

    /// Returns the rows, by thread and time.
    pub fn rows(&self) -> impl Iterator<Item = StackRow> {
        self.sleeps.iter().flat_map(move |(&(tid, start_ns), sleep)| {
            let row = |kind: &'static str, chain: u32| {
                let (functions, places, ended) = self.chains.get(&chain)?.clone();
                Some(StackRow {
                    tgid: sleep.tgid,
                    tid,
                    start_ns,
                    end_ns: sleep.end_ns,
                    operation: sleep.operation.map(|(id, ..)| id),
                    span: sleep.span,
                    kind: kind.into(),
                    functions,
                    places,
                    ended: chain_end::text(ended).map(Into::into),
                })
            };
            [row("kernel", sleep.kernel), row("program", sleep.program)].into_iter().flatten()
        })
    }
}

/// Returns the sleeps of a thread that began within an interval.
fn sleeps_within(
    sleeps: &mut BTreeMap<(u32, u64), Sleep>,
    (tgid, tid): (u32, u32),
    from_ns: u64,
    to_ns: u64,
) -> impl Iterator<Item = (&(u32, u64), &mut Sleep)> {
    // A damaged log may contain an end before its begin.
    sleeps.range_mut((tid, from_ns)..=(tid, to_ns.max(from_ns))).filter(move |(_, sleep)| sleep.tgid == tgid)
}

/// Splits a line into a function's name and the rest. A function without a name is named by its file and the offset in it.
fn split_columns(line: &str) -> (String, String) {
    let (name, place) = line.split_once('\t').unwrap_or((line, ""));
    if !name.is_empty() {
        return (name.into(), place.into());
    }
    let mut words = place.split('\t').skip(1);
    let (file, offset) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    (format!("{}+{offset}", file.rsplit('/').next().unwrap_or(file)), place.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::event::{Chain, Header, Stack};

    fn event(tid: u32, time_ns: u64, record: Record) -> Event {
        Event { header: Header { time_ns, kind: record.kind(), tgid: 1, tid, ..Header::default() }, record }
    }

    fn chain(number: u32, text: &str, ended: u16) -> Event {
        event(0, 0, Chain { chain: number, ended, len: 0, text: text.into() }.into())
    }

    fn operation(id: u64, start_ns: u64, end_ns: Option<u64>, steps: Option<u64>) -> Operation {
        Operation {
            id,
            span: id,
            shape: 1,
            nth: 0,
            parent: None,
            tgid: 1,
            tid: 5,
            start_ns,
            end_ns,
            inside_ns: 0,
            rows: 0,
            steps,
            result: None,
        }
    }

    #[test]
    fn sleep_belongs_to_the_innermost_operation() {
        let mut stacks = Stacks::default();
        stacks.learn(&chain(1, "commit\t0x1a\t/bin/app\t0x101a\tab12\n\t\t/lib/x.so\t0x20\t", 3));
        stacks.learn(&chain(2, "schedule\t0x2\t[kernel]\t0x2\t", 0));
        let slept = |start_ns, ctx| Stack { start_ns, kernel: 2, program: 1, ctx, ..Stack::default() };
        for (tid, start_ns, ctx) in [(5, 150, 0), (5, 350, flags::BETWEEN_ROWS), (6, 150, 0)] {
            stacks.learn(&event(tid, start_ns + 20, slept(start_ns, ctx).into()));
        }
        // The inner one comes first, as it ends first; then it comes last.
        stacks.operation(&operation(2, 140, Some(180), Some(1)));
        stacks.operation(&operation(1, 100, None, Some(1)));
        stacks.operation(&operation(3, 100, Some(200), Some(1)));
        let rows: Vec<StackRow> = stacks.rows().collect();
        let about: Vec<_> = rows.iter().map(|r| (r.tid, r.start_ns, r.end_ns, &*r.kind, r.operation)).collect();
        assert_eq!(
            about,
            [
                (5, 150, 170, "kernel", Some(2)),
                (5, 150, 170, "program", Some(2)),
                (5, 350, 370, "kernel", None),
                (5, 350, 370, "program", None),
                (6, 150, 170, "kernel", None),
                (6, 150, 170, "program", None),
            ]
        );
        assert_eq!(rows[1].functions, "commit\nx.so+0x20");
        assert_eq!(rows[1].places, "0x1a\t/bin/app\t0x101a\tab12\n\t/lib/x.so\t0x20\t");
        assert_eq!((&rows[0].ended, rows[1].ended.is_some()), (&None, true));
    }

    #[test]
    fn missing_chain_gives_no_row() {
        let mut stacks = Stacks::default();
        let stack = Stack { start_ns: 5, kernel: 0, program: 7, ..Stack::default() };
        stacks.learn(&event(5, 9, stack.into()));
        assert_eq!(stacks.rows().count(), 0);
        stacks.learn(&chain(7, "", 4));
        let rows: Vec<StackRow> = stacks.rows().collect();
        assert_eq!((rows.len(), rows[0].functions.as_str(), rows[0].ended.is_some()), (1, "", true));
        // An end before its begin, as in a damaged log.
        stacks.operation(&operation(1, 900, Some(3), None));
    }
}
