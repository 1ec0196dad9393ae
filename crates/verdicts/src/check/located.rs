//! Where in the program's source the calls of a difference are made.
//!
//! The counts do not know, so once a difference is certain the command runs again, stopped at each such call (`capture::located`), and is
//! recorded meanwhile: the recording knows the statement of a call, the stop its stack. Both know the thread and the time.
//!
//! **Uncertain:** which of several places is the new one. All are listed, the most frequent first.

use super::count_name::{CountName, EXECUTIONS};
use super::observe::{is_own_file, observe_calls};
use super::temporary;
use analysis::rows::Rows;
use model::Call;
use model::place::{Frame, LocatedCall};
use serde::Serialize;
use std::collections::BTreeMap;

/// Maximum number of places that are listed for a difference.
const PLACES_MAX: usize = 5;

/// A line of the program that makes calls of a kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The innermost function of the program's own files.
    pub function: String,
    /// The source, below the current directory if it is there; else the file of its code.
    pub file: String,
    /// The line; none if the code has no such information.
    pub line: Option<u32>,
    /// Number of such calls made there.
    pub calls: u64,
    /// That function's callers and the functions below it, the innermost first, as `FUNCTION (FILE:LINE)`.
    pub stack: Vec<String>,
}

/// The calls of one run with their stacks: by statement (`None`: outside) and call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Located(BTreeMap<(Option<String>, String), BTreeMap<Vec<Frame>, u64>>);

impl Located {
    /// Joins a recording with the stops of its command.
    pub fn new(rows: &Rows, calls: &[LocatedCall]) -> Self {
        let mut stops: BTreeMap<(u32, &str), BTreeMap<u64, &LocatedCall>> = BTreeMap::new();
        for call in calls {
            stops.entry((call.tid, call.call.as_str())).or_default().insert(call.time_ns, call);
        }
        let mut all = Self::default();
        observe_calls(rows, &mut |made| {
            let of_thread = stops.get(&(made.span.tid, &*made.span.kind));
            // The stop comes right before the call, and each call has its own.
            let stop = of_thread.and_then(|of| of.range(..=made.span.start_ns).next_back());
            let frames = stop.map_or(Vec::new(), |(_, stop)| stop.frames.clone());
            let key = (made.statement.map(str::to_owned), made.name.to_string());
            *all.0.entry(key).or_default().entry(frames).or_default() += 1;
        });
        all
    }

    /// Returns the places of the calls that a count is of, the most frequent first, and the number of such calls made elsewhere: at a place
    /// that is not known, or not listed.
    pub fn places(&self, statement: Option<&str>, is_total: bool, what: &str) -> (Vec<Place>, u64) {
        let of_statement = |found: &Option<String>| {
            is_total
                || found.as_deref() == statement
                || found.as_deref().zip(statement).is_some_and(|(found, wanted)| {
                    temporary::is_merged(wanted) && temporary::merged_name(found).as_deref() == Some(wanted)
                })
        };
        let (mut places, mut elsewhere): (Vec<Place>, u64) = (Vec::new(), 0);
        let of_count = self.0.iter().filter(|((found, name), _)| of_statement(found) && concerns(what, name));
        for (frames, calls) in of_count.flat_map(|(_, stacks)| stacks) {
            let Some(place) = place(frames, *calls) else {
                elsewhere += calls;
                continue;
            };
            match places
                .iter_mut()
                .find(|p| (&p.function, &p.file, p.line) == (&place.function, &place.file, place.line))
            {
                Some(known) => known.calls += calls,
                None => places.push(place),
            }
        }
        places.sort_by(|a, b| b.calls.cmp(&a.calls).then_with(|| (&a.file, a.line).cmp(&(&b.file, b.line))));
        elsewhere += places.iter().skip(PLACES_MAX).map(|place| place.calls).sum::<u64>();
        places.truncate(PLACES_MAX);
        (places, elsewhere)
    }
}

/// Whether a call belongs to what a count counts.
fn concerns(what: &str, call: &str) -> bool {
    let (what, call) = (CountName::parse(what), CountName::parse(call));
    let CountName::Call(made, file) = call else { return false };
    match what {
        CountName::Call(..) => what == call,
        CountName::BytesRead(of) => made.reads() && of == file,
        CountName::BytesWritten(of) => made.writes() && of == file,
        CountName::Flushes => made.syncs(),
        CountName::WriteCommands => made.writes() || made.syncs(),
        CountName::Checkpoints => made.writes(),
        CountName::Executions | CountName::Rows => true,
        CountName::ReadCalls => made.reads(),
        CountName::WriteCalls => made.writes(),
        CountName::Other => false,
    }
}

/// The calls by which a count can be located.
pub fn calls_of(what: &str) -> Vec<Call> {
    let all = |wanted: fn(Call) -> bool| Call::ALL.iter().copied().filter(|call| wanted(*call)).collect();
    match CountName::parse(what) {
        CountName::Call(call, _) => vec![call],
        CountName::BytesRead(_) | CountName::ReadCalls => all(Call::reads),
        CountName::BytesWritten(_) | CountName::WriteCalls | CountName::Checkpoints => all(Call::writes),
        CountName::Flushes | CountName::WriteCommands => all(Call::syncs),
        // A new statement: by whatever it writes or syncs.
        _ if what == EXECUTIONS => all(|call| call.writes() || call.syncs()),
        _ => Vec::new(),
    }
}

/// The innermost function of the program itself, rather than of the system and its libraries; none if there is none, as at the end of an
/// interpreter.
fn place(frames: &[Frame], calls: u64) -> Option<Place> {
    let own = frames.iter().find(|frame| is_own_file(&absolute(&frame.code)))?;
    Some(Place {
        function: own.function.clone(),
        file: relative(&own.file),
        line: own.line,
        calls,
        stack: frames.iter().map(shown_frame).collect(),
    })
}

fn shown_frame(frame: &Frame) -> String {
    let file = relative(&frame.file);
    match frame.line {
        Some(line) => format!("{} ({file}:{line})", frame.function),
        None => format!("{} ({file})", frame.function),
    }
}

/// A script may be named by a path relative to the directory in which it was started.
fn absolute(file: &str) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    if file.starts_with('<') { String::new() } else { here.join(file).to_string_lossy().into_owned() }
}

fn relative(file: &str) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    let below = std::path::Path::new(file).strip_prefix(&here).ok().map(|path| path.to_string_lossy().into_owned());
    below.unwrap_or_else(|| file.trim_start_matches("./").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str, file: &str, line: u32) -> Frame {
        Frame { function: function.into(), file: file.into(), code: file.into(), line: Some(line) }
    }

    #[test]
    fn place_is_the_innermost_function_of_the_program() {
        let here = std::env::current_dir().unwrap();
        let own = here.join("models.py").to_string_lossy().into_owned();
        let frames = [frame("execute", "/usr/lib/python3/dist-packages/d.py", 3), frame("Order.save", &own, 88)];
        let found = place(&frames, 4).unwrap();
        assert_eq!((found.function.as_str(), found.file.as_str(), found.line), ("Order.save", "models.py", Some(88)));
        assert_eq!(found.stack[1], "Order.save (models.py:88)");
        assert_eq!(place(&frames[..1], 1), None);
        assert_eq!(place(&[], 1), None);
    }

    #[test]
    fn calls_at_places_and_elsewhere_add_up() {
        let here = std::env::current_dir().unwrap();
        let own = here.join("models.py").to_string_lossy().into_owned();
        let mut located = Located::default();
        let stacks = located.0.entry((None, "fsync file".into())).or_default();
        for line in 1..=8 {
            stacks.insert(vec![frame("f", &own, line)], u64::from(line));
        }
        stacks.insert(Vec::new(), 100);
        let (places, elsewhere) = located.places(None, true, "fsync file");
        let lines: Vec<_> = places.iter().filter_map(|place| place.line).collect();
        assert_eq!((lines, elsewhere), (vec![8, 7, 6, 5, 4], 100 + 1 + 2 + 3));
    }

    #[test]
    fn count_is_located_by_calls_that_it_counts() {
        for (what, call, is_of) in [
            ("fdatasync WAL", "fdatasync WAL", true),
            ("fdatasync WAL", "fdatasync database", false),
            ("bytes written WAL", "pwrite64 WAL", true),
            ("bytes written WAL", "pread64 WAL", false),
            ("flushes", "fsync file", true),
            ("executions", "pwrite64 WAL", true),
        ] {
            assert_eq!(concerns(what, call), is_of, "{what}, {call}");
        }
        assert_eq!(calls_of("fsync file"), [Call::Fsync]);
        assert!(calls_of("bytes written WAL").contains(&Call::Pwrite64) && calls_of("rows returned").is_empty());
    }
}
