//! Chains of functions as records: each is reported once, and referred to by its number afterwards.

use super::program::Place;
use super::raw::Sleep;
use model::Event;
use model::event::{ANY_CPU, Chain, Header, Stack};
use std::collections::HashMap;
use std::fmt::Write as _;

/// Maximum number of known chains; beyond it all are reported again.
const CHAINS_MAX: usize = 1 << 16;
/// Maximum size of a record's text in bytes.
const TEXT_BYTES_MAX: usize = 60_000;

/// The chains reported so far.
#[derive(Debug, Default)]
pub struct Chains {
    numbers: HashMap<(String, u16), u32>,
    last: u32,
}

impl Chains {
    /// Returns the number of a chain; reports it first if it is new.
    pub fn number_of(&mut self, places: &[Place], ended: u16, time_ns: u64, events: &mut Vec<Event>) -> u32 {
        let key = (chain_text(places), ended);
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        if self.numbers.len() >= CHAINS_MAX {
            self.numbers.clear();
        }
        self.last += 1;
        let chain = Chain { chain: self.last, ended, len: key.0.len() as u16, text: key.0.clone() };
        let header = Header { time_ns, cpu: ANY_CPU, kind: Chain::INFO.kind, ..Header::default() };
        events.push(Event { header, record: chain.into() });
        self.numbers.insert(key, self.last);
        self.last
    }
}

/// Returns the text, one line per function.
fn chain_text(places: &[Place]) -> String {
    let mut text = String::new();
    for place in places {
        let from = text.len();
        if from > 0 {
            text.push('\n');
        }
        let Place { function, file, offset, build_id } = place;
        let _ = match function {
            Some((name, within)) => write!(text, "{name}\t{within:#x}\t{file}\t{offset:#x}\t{build_id}"),
            None => write!(text, "\t\t{file}\t{offset:#x}\t{build_id}"),
        };
        if text.len() > TEXT_BYTES_MAX {
            text.truncate(from);
            break;
        }
    }
    text
}

/// Returns the record of a sleep.
pub fn stack_event(asleep: &Sleep, kernel: u32, program: u32) -> Event {
    let (start_ns, time_ns) = asleep.slept_ns;
    let (tgid, tid) = asleep.thread;
    let header = Header { time_ns, cpu: ANY_CPU, kind: Stack::INFO.kind, tgid, tid, ..Header::default() };
    Event { header, record: Stack { start_ns, kernel, program, ctx: asleep.ctx, ..Stack::default() }.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Record;

    #[test]
    fn chain_is_reported_once() {
        let place = |name: &str| Place {
            function: Some((name.into(), 0x1a)),
            file: "/lib/libx.so".into(),
            offset: 0x101a,
            build_id: "ab12".into(),
        };
        let (mut chains, mut told) = (Chains::default(), Vec::new());
        let unnamed = Place { function: None, ..place("") };
        let both = [place("commit"), unnamed];
        assert_eq!(chains.number_of(&both, 0, 5, &mut told), 1);
        assert_eq!(chains.number_of(&both, 0, 6, &mut told), 1);
        assert_eq!(chains.number_of(&both, 3, 7, &mut told), 2, "it ends otherwise");
        assert_eq!(chains.number_of(&[], 4, 8, &mut told), 3);
        let texts: Vec<_> = told
            .iter()
            .map(|event| match &event.record {
                Record::Chain(chain) => (chain.chain, chain.ended, chain.text.as_str()),
                other => panic!("{other:?}"),
            })
            .collect();
        let text = "commit\t0x1a\t/lib/libx.so\t0x101a\tab12\n\t\t/lib/libx.so\t0x101a\tab12";
        assert_eq!(texts, [(1, 0, text), (2, 3, text), (3, 4, "")]);
    }

    #[test]
    fn long_chain_is_cut_at_whole_function() {
        let place =
            Place { function: Some(("f".repeat(300), 0)), file: "x".repeat(300), offset: 0, build_id: String::new() };
        let text = chain_text(&vec![place; 200]);
        assert!(text.len() <= TEXT_BYTES_MAX && text.lines().all(|line| line.split('\t').count() == 5));
    }
}
