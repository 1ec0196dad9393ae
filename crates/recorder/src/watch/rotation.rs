//! Which incidents are kept: the newest, by number or by size.

use model::quantity::bytes;
use model::text::file_date;
use std::str::FromStr;

/// The value of `--keep`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    Incidents(u64),
    Bytes(u64),
}

/// A text is neither a number of incidents nor a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a number of incidents, or a size with its suffix (500M, 2G)")]
pub struct InvalidKeep;

impl FromStr for Keep {
    type Err = InvalidKeep;

    fn from_str(text: &str) -> Result<Self, InvalidKeep> {
        match text.parse() {
            Ok(0) => Err(InvalidKeep),
            Ok(incidents) => Ok(Self::Incidents(incidents)),
            Err(_) => bytes(text).map(Self::Bytes).map_err(|_| InvalidKeep),
        }
    }
}

/// An incident's place in the order: its number, and its size in bytes.
pub type Kept = (u64, u64);

/// Returns the numbers of those to be removed. The newest one always stays.
pub fn surplus(mut all: Vec<Kept>, keep: Keep) -> Vec<u64> {
    all.sort_unstable_by_key(|(number, _)| std::cmp::Reverse(*number));
    let (mut count, mut size) = (0u64, 0u64);
    let mut stays = |bytes: u64| {
        count += 1;
        size = size.saturating_add(bytes);
        let fits = match keep {
            Keep::Incidents(most) => count <= most,
            Keep::Bytes(most) => size <= most,
        };
        count == 1 || fits
    };
    let first_gone = all.iter().position(|(_, bytes)| !stays(*bytes)).unwrap_or(all.len());
    all.drain(first_gone..).map(|(number, _)| number).collect()
}

const PREFIX: &str = "incident-";
const SUFFIX: &str = ".fathom";

/// The name of an incident's archive: its number, which orders them even if the clock is set, and its time (UTC).
pub fn name(number: u64, unix_s: u64) -> String {
    format!("{PREFIX}{number:06}-{}{SUFFIX}", file_date(unix_s))
}

/// The number in an archive's name.
pub fn number_of(name: &str) -> Option<u64> {
    name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.split_once('-')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_are_removed_until_the_rest_fits() {
        let all = || (1..=5).rev().map(|number| (number, 10 * number)).collect::<Vec<Kept>>();
        assert_eq!(surplus(all(), Keep::Incidents(2)), [3, 2, 1]);
        assert_eq!(surplus(all(), Keep::Incidents(9)), [0; 0]);
        assert_eq!(surplus(all(), Keep::Bytes(95)), [3, 2, 1]);
        assert_eq!(surplus(all(), Keep::Bytes(120)), [2, 1]);
        assert_eq!(surplus(all(), Keep::Bytes(1)), [4, 3, 2, 1], "the newest stays");
        assert_eq!(surplus(Vec::new(), Keep::Bytes(1)), [0; 0]);
    }

    #[test]
    fn keep_is_a_number_or_a_size() {
        assert_eq!("20".parse(), Ok(Keep::Incidents(20)));
        assert_eq!("2G".parse(), Ok(Keep::Bytes(2 << 30)));
        for text in ["0", "-1", "x", "", "1K"] {
            assert_eq!(text.parse::<Keep>(), Err(InvalidKeep), "{text}");
        }
    }

    #[test]
    fn names_are_numbered_and_dated() {
        assert_eq!(name(7, 1_795_930_000), "incident-000007-20261129T052640Z.fathom");
        assert_eq!(file_date(951_782_400), "20000229T000000Z");
        assert_eq!(number_of(&name(1_234_567, 0)), Some(1_234_567));
        for other in ["incident-000007-x.fathom.coming-1", "trace.fathom", "incident-x-y.fathom"] {
            assert_eq!(number_of(other), None, "{other}");
        }
    }
}
