//! SQLite's statements from Fathom's own probes, and marks that programs write into the trace.
//!
//! An execution begins at a statement's first `sqlite3_step` and ends when a step returns anything but "row", or when
//! the statement is reset or finalised, as in the eBPF backend (`sqlite.bpf.c`).
//!
//! A mark is a text `B|PID|NAME` and its end `E`, as in Android's atrace and Perfetto. Any other text, and a mark of which one half is
//! missing, is counted by what it is.

use super::Translator;
use crate::ftrace::decoder::{DecodedEvent, Kind};
use model::event::{Mark, OpBegin, OpEnd, Statement, flags, op_kind};
use std::collections::{BTreeMap, HashMap, VecDeque};

const SQLITE_ROW: i32 = 100;
/// Statements open on a thread.
const STATEMENTS_MAX: usize = 64;
/// Marks open on a thread. If there are more, the outermost is given up: the ends of the others remain theirs.
const MARKS_MAX: usize = 1024;

/// A text that becomes no mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnusedText {
    /// A mark that may end on another thread.
    Asynchronous,
    /// The begin of a mark whose end is missing.
    WithoutEnd,
    /// The value of a counter.
    Counter,
    /// The end of a mark whose begin is missing.
    WithoutBegin,
    /// A mark without a duration.
    Instant,
    /// Any other text.
    Other,
}

impl UnusedText {
    /// Such texts in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::WithoutEnd => "begins of marks without an end",
            Self::WithoutBegin => "ends of marks without a begin",
            Self::Asynchronous => "asynchronous marks (S, F, G, H)",
            Self::Counter => "counters (C)",
            Self::Instant => "instants (I, N)",
            Self::Other => "other texts",
        }
    }
}

#[derive(Debug)]
struct Execution {
    stmt: u64,
    begin_ns: u64,
    rows: u64,
    steps: u64,
    inside_ns: u64,
    entered_ns: u64,
}

#[derive(Debug, Default)]
struct ThreadOperations {
    open: Vec<Execution>,
    /// Statements being stepped, the innermost last.
    inside: Vec<u64>,
    marks: VecDeque<(u64, String)>,
}

/// The open statements and marks of all threads.
#[derive(Debug, Default)]
pub(super) struct Operations {
    threads: HashMap<u32, ThreadOperations>,
    /// Latest text of a statement: process, address.
    texts: HashMap<(u32, u64), String>,
    marks: u64,
    /// Texts that became no mark, by what they are.
    unused: BTreeMap<UnusedText, u64>,
}

impl Operations {
    /// Whether a statement runs on the thread, or is open between two of its rows.
    pub fn context(&self, tid: u32) -> u16 {
        match self.threads.get(&tid) {
            Some(t) if !t.inside.is_empty() => flags::IN_OP,
            Some(t) if !t.open.is_empty() => flags::BETWEEN_ROWS,
            _ => 0,
        }
    }

    pub fn is_open(&self, tid: u32) -> bool {
        self.threads.get(&tid).is_some_and(|t| !t.open.is_empty())
    }

    pub fn ended(&mut self, tid: u32) {
        let marks = self.threads.remove(&tid).map_or(0, |thread| thread.marks.len());
        self.leave_out(UnusedText::WithoutEnd, marks as u64);
    }

    fn leave_out(&mut self, what: UnusedText, texts: u64) {
        if texts > 0 {
            *self.unused.entry(what).or_default() += texts;
        }
    }

    /// Texts that became no mark, by what they are, once the trace has ended.
    pub fn unused(&self) -> BTreeMap<UnusedText, u64> {
        let mut all = self.unused.clone();
        let open: u64 = self.threads.values().map(|thread| thread.marks.len() as u64).sum();
        if open > 0 {
            *all.entry(UnusedText::WithoutEnd).or_default() += open;
        }
        all
    }
}

impl Translator {
    pub(super) fn on_operation(&mut self, s: &DecodedEvent) {
        match s.kind {
            Kind::Step => self.on_step(s),
            Kind::StepReturn => self.on_step_return(s),
            Kind::Print => self.on_print(s),
            _ => {
                let stmt = s.number(0).unwrap_or(0);
                if s.kind == Kind::Finalize {
                    self.operations.texts.remove(&(self.tasks.process(s.tid), stmt));
                }
                let thread = self.operations.threads.entry(s.tid).or_default();
                // sqlite3_step itself resets a statement that it reprepares; that is not an end.
                if !thread.inside.contains(&stmt)
                    && let Some(place) = thread.open.iter().position(|e| e.stmt == stmt)
                {
                    let execution = thread.open.remove(place);
                    self.end(s, &execution, SQLITE_ROW);
                }
            }
        }
    }

    fn on_step(&mut self, s: &DecodedEvent) {
        let Some(stmt) = s.number(0).filter(|n| *n != 0) else { return };
        self.tasks.on_call(s.tid);
        self.known.callers.insert(s.tid);
        let tgid = self.tasks.process(s.tid);
        let depth = self.operations.threads.entry(s.tid).or_default().inside.len() as u32 + 1;
        if !self.operations.threads.entry(s.tid).or_default().open.iter().any(|e| e.stmt == stmt) {
            self.name(s, s.tid);
            let text = self.operations.texts.entry((tgid, stmt)).or_default();
            if *text != s.text {
                s.text.clone_into(text);
                let text = s.text.clone();
                self.put(self.header(s), Statement { stmt, text, ..Statement::default() });
            }
            self.put(self.header(s), OpBegin { key: stmt, kind: op_kind::STATEMENT, depth });
            let thread = self.operations.threads.entry(s.tid).or_default();
            if thread.open.len() >= STATEMENTS_MAX {
                thread.open.remove(0);
            }
            let begin_ns = s.time_ns;
            thread.open.push(Execution { stmt, begin_ns, rows: 0, steps: 0, inside_ns: 0, entered_ns: 0 });
        }
        let thread = self.operations.threads.entry(s.tid).or_default();
        if let Some(e) = thread.open.iter_mut().find(|e| e.stmt == stmt) {
            e.steps += 1;
            e.entered_ns = s.time_ns;
        }
        if thread.inside.len() < STATEMENTS_MAX {
            thread.inside.push(stmt);
        }
    }

    fn on_step_return(&mut self, s: &DecodedEvent) {
        let Some(thread) = self.operations.threads.get_mut(&s.tid) else { return };
        let Some(stmt) = thread.inside.pop() else { return };
        let result = s.number(0).unwrap_or(0) as i32;
        let Some(place) = thread.open.iter().position(|e| e.stmt == stmt) else { return };
        let execution = &mut thread.open[place];
        execution.inside_ns += s.time_ns.saturating_sub(execution.entered_ns);
        if result == SQLITE_ROW {
            execution.rows += 1;
            return;
        }
        let execution = thread.open.remove(place);
        self.end(s, &execution, result);
    }

    fn end(&mut self, s: &DecodedEvent, e: &Execution, result: i32) {
        let record = OpEnd {
            key: e.stmt,
            start_ns: e.begin_ns,
            rows: e.rows,
            steps: e.steps,
            inside_ns: e.inside_ns,
            result,
            kind: op_kind::STATEMENT,
        };
        self.put(self.header(s), record);
    }

    fn on_print(&mut self, s: &DecodedEvent) {
        let text = s.text.trim_end();
        if let Some(name) = text.strip_prefix("B|").and_then(|rest| Some(rest.split_once('|')?.1)) {
            self.known.sleepers.insert(s.tid);
            let marks = &mut self.operations.threads.entry(s.tid).or_default().marks;
            marks.push_back((s.time_ns, name.to_owned()));
            if marks.len() > MARKS_MAX {
                marks.pop_front();
                self.operations.leave_out(UnusedText::WithoutEnd, 1);
            }
        } else if text == "E" || text.starts_with("E|") {
            let ended = self.operations.threads.get_mut(&s.tid).and_then(|t| t.marks.pop_back());
            if let Some((start_ns, text)) = ended {
                self.operations.marks += 1;
                let nth = self.operations.marks;
                self.put(self.header(s), Mark { start_ns, nth, text, ..Mark::default() });
            } else {
                self.operations.leave_out(UnusedText::WithoutBegin, 1);
            }
        } else {
            let what = match text.split('|').next() {
                Some("S" | "F" | "G" | "H") => UnusedText::Asynchronous,
                Some("C") => UnusedText::Counter,
                Some("I" | "N") => UnusedText::Instant,
                _ => UnusedText::Other,
            };
            self.operations.leave_out(what, 1);
        }
    }
}
