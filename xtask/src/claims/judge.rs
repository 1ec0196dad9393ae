//! What decides a claim: values of a run compared with each other, or with a paper's count.

use super::results::{Results, Value};
use anyhow::{Result, ensure};
use serde::Deserialize;

/// The verdict on a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Everything measured supports it.
    Confirmed,
    /// Something measured contradicts it.
    NotConfirmed,
    /// What was measured is too uncertain.
    Undecided,
    /// Nothing was measured that could decide it.
    CannotBeTested,
}

impl Outcome {
    /// In the order in which they are counted.
    pub const ALL: [Self; 4] = [Self::Confirmed, Self::NotConfirmed, Self::Undecided, Self::CannotBeTested];

    pub fn text(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::NotConfirmed => "not confirmed",
            Self::Undecided => "undecided",
            Self::CannotBeTested => "cannot be tested",
        }
    }

    /// The same at the beginning of a sentence.
    pub fn title(self) -> String {
        let text = self.text();
        text[..1].to_uppercase() + &text[1..]
    }
}

/// A verdict, and the values on which it is based.
#[derive(Debug, PartialEq)]
pub struct Verdict {
    pub outcome: Outcome,
    pub because: String,
}

/// What must hold for the values of a table; each value as [`Results::value`] finds it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Page of docs/results.
    page: String,
    /// How the heading above the table begins.
    table: String,
    /// Each count is more than nothing.
    some: Option<Vec<String>>,
    /// Each value is higher than the next.
    higher: Option<Vec<String>>,
    /// The values are within a quarter of each other.
    alike: Option<Vec<String>>,
    /// The first value is this many times the second, within a quarter.
    times: Option<(f64, String, String)>,
    /// The value is about this, within a quarter.
    about: Option<(f64, String)>,
    /// The counts are this, within a half.
    count: Option<(f64, Vec<String>)>,
}

/// Smallest relevant ratio between rates or times.
const RATIO_MIN: f64 = 1.25;

/// Smallest relevant difference between counts.
const COUNT_DIFFERENCE_MIN: f64 = 0.5;

impl Rule {
    pub fn judge(&self, results: &Results) -> Result<Verdict> {
        let value = |place: &String| {
            let (table, place) = place.split_once('>').unwrap_or((&self.table, place));
            results.value(&self.page, table.trim(), place)
        };
        let values = |places: &[String]| places.iter().map(value).collect::<Result<Vec<Value>>>();
        let rules = [
            self.some.as_ref().map(|places| values(places).map(|v| counts(&v, |n| n >= COUNT_DIFFERENCE_MIN))),
            self.higher.as_ref().map(|places| values(places).map(|v| pairwise(&v, is_higher))),
            self.alike.as_ref().map(|places| values(places).map(|v| pairwise(&v, |a, b| is_times(1.0, a, b)))),
            self.times.as_ref().map(|(n, a, b)| Ok(pairwise(&[value(a)?, value(b)?], |a, b| is_times(*n, a, b)))),
            self.about.as_ref().map(|(n, place)| Ok(about(*n, value(place)?))),
            self.count
                .as_ref()
                .map(|(n, places)| values(places).map(|v| counts(&v, |have| (have - n).abs() < COUNT_DIFFERENCE_MIN))),
        ];
        let mut rules = rules.into_iter().flatten();
        let verdict = rules.next();
        ensure!(rules.next().is_none(), "a test has several rules");
        let Some(verdict) = verdict else {
            anyhow::bail!("a test has no rule (some, higher, alike, times, about, count)")
        };
        let Verdict { outcome, because } = verdict?;
        Ok(Verdict { outcome, because: format!("{because} ([run](../results/{}))", self.page) })
    }
}

/// Judges each two neighbours: one contradiction decides, then one doubt.
fn pairwise(values: &[Value], judge: impl Fn(&Value, &Value) -> Outcome) -> Verdict {
    let shown: Vec<String> = values.iter().map(|value| format!("{}: {}", value.name, value.shown)).collect();
    let shown = shown.join("; ");
    if values.iter().any(|value| value.is_inconsistent) {
        return Verdict { outcome: Outcome::Undecided, because: format!("processes of the run disagree: {shown}") };
    }
    let all: Vec<Outcome> = values.windows(2).map(|pair| judge(&pair[0], &pair[1])).collect();
    if all.contains(&Outcome::NotConfirmed) {
        Verdict { outcome: Outcome::NotConfirmed, because: shown }
    } else if all.contains(&Outcome::Undecided) {
        Verdict { outcome: Outcome::Undecided, because: format!("the intervals overlap: {shown}") }
    } else {
        Verdict { outcome: Outcome::Confirmed, because: shown }
    }
}

fn is_higher(a: &Value, b: &Value) -> Outcome {
    match (a.interval, b.interval) {
        (Some([low, _]), Some([_, high])) if low > high => Outcome::Confirmed,
        (Some([_, high]), Some([low, _])) if high <= low => Outcome::NotConfirmed,
        (Some(_), Some(_)) => Outcome::Undecided,
        _ if a.number >= b.number * RATIO_MIN => Outcome::Confirmed,
        _ => Outcome::NotConfirmed,
    }
}

/// Whether a is n times b, within a quarter; where both have intervals, those of the ratio decide.
fn is_times(n: f64, a: &Value, b: &Value) -> Outcome {
    let ratio = match (a.interval, b.interval) {
        (Some([low, high]), Some([other_low, other_high])) => [low / other_high, high / other_low],
        _ => [a.number / b.number; 2],
    };
    let [low, high] = ratio.map(|ratio| ratio / n);
    if low >= 1.0 / RATIO_MIN && high <= RATIO_MIN {
        Outcome::Confirmed
    } else if high < 1.0 / RATIO_MIN || low > RATIO_MIN {
        Outcome::NotConfirmed
    } else {
        Outcome::Undecided
    }
}

fn about(n: f64, value: Value) -> Verdict {
    let exact =
        Value { name: String::new(), shown: String::new(), number: n, interval: Some([n, n]), is_inconsistent: false };
    let because = format!("{}: {}", value.name, value.shown);
    Verdict { because, ..pairwise(&[value, exact], |a, b| is_times(1.0, a, b)) }
}

fn counts(values: &[Value], holds: impl Fn(f64) -> bool) -> Verdict {
    let shown: Vec<String> = values.iter().map(|value| format!("{}: {}", value.name, value.shown)).collect();
    let holds = values.iter().all(|value| holds(value.number));
    Verdict { outcome: if holds { Outcome::Confirmed } else { Outcome::NotConfirmed }, because: shown.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(number: f64, interval: Option<[f64; 2]>) -> Value {
        Value { name: "v".into(), shown: number.to_string(), number, interval, is_inconsistent: false }
    }

    #[test]
    fn intervals_decide_where_there_are_some() {
        use Outcome::{Confirmed, NotConfirmed, Undecided};
        let narrow = |n: f64| value(n, Some([n - 1.0, n + 1.0]));
        let wide = |n: f64| value(n, Some([n / 3.0, n * 3.0]));
        let bare = |n: f64| value(n, None);
        for (a, b, higher, alike) in [
            (narrow(100.0), narrow(50.0), Confirmed, NotConfirmed),
            (narrow(50.0), narrow(100.0), NotConfirmed, NotConfirmed),
            (narrow(100.0), narrow(100.0), Undecided, Confirmed),
            (wide(100.0), wide(50.0), Undecided, Undecided),
            (bare(100.0), bare(50.0), Confirmed, NotConfirmed),
            (bare(100.0), bare(99.0), NotConfirmed, Confirmed),
        ] {
            assert_eq!((is_higher(&a, &b), is_times(1.0, &a, &b)), (higher, alike), "{a:?} {b:?}");
        }
        assert_eq!(is_times(10.0, &narrow(1000.0), &narrow(100.0)), Confirmed);
    }

    #[test]
    fn one_contradiction_decides_and_disagreement_leaves_it_open() {
        let values = [100.0, 50.0, 60.0].map(|n| value(n, Some([n, n])));
        assert_eq!(pairwise(&values, is_higher).outcome, Outcome::NotConfirmed);
        let mut doubtful = values[..2].to_vec();
        assert_eq!(pairwise(&doubtful, is_higher).outcome, Outcome::Confirmed);
        doubtful[0].is_inconsistent = true;
        assert_eq!(pairwise(&doubtful, is_higher).outcome, Outcome::Undecided);
    }

    #[test]
    fn counts_are_compared_within_half() {
        for (number, expected) in
            [(10.12, Outcome::NotConfirmed), (3.12, Outcome::Confirmed), (2.4, Outcome::NotConfirmed)]
        {
            let verdict = counts(&[value(number, None)], |have| (have - 3.0_f64).abs() < COUNT_DIFFERENCE_MIN);
            assert_eq!(verdict.outcome, expected, "{number}");
        }
        assert_eq!(about(16_000.0, value(17_067.0, None)).outcome, Outcome::Confirmed);
        assert_eq!(about(16_000.0, value(27_067.0, None)).outcome, Outcome::NotConfirmed);
    }
}
