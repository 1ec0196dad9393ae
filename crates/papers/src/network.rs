//! The claims of papers 001 and 002 about networks: with the device as a node of a cluster and as an end, by cells of one
//! benchmark (`cluster-devices`, `net-devices`, `net-delay-devices`). A host has no such network, so the device's cells are
//! compared with each other, as in the papers.
//!
//! A rate is above another if their intervals do not overlap. Rates within a quarter are about equal.

use super::outcome::{Decision, Outcome, RELEVANT_RATIO_MIN, cannot_be_tested};
use analysis::text::{digits, scale, shown};
use scores::results::{Bench, MeasuredCell};

/// A cell: the design, and values of its factors.
#[derive(Debug, Clone, Copy)]
pub struct Cell(pub &'static str, pub [(&'static str, &'static str); 3]);

/// How a claim is judged.
#[derive(Debug, Clone, Copy)]
pub enum NetworkTest {
    /// The first cell's rate is above the second's.
    Above(Cell, Cell),
    /// Both are within a quarter.
    Alike(Cell, Cell),
    /// The first's is about this many times the second's.
    Times(f64, Cell, Cell),
}

/// A cell's score: estimate, interval, unit.
struct Score<'a> {
    estimate: f64,
    interval: [f64; 2],
    unit: &'a str,
}

impl Score<'_> {
    fn text(&self) -> String {
        let [low, high] = self.interval;
        let (size, unit) = scale(self.unit, self.estimate);
        format!("{} {unit} ({} to {})", digits(self.estimate / size), digits(low / size), digits(high / size))
    }
}

impl NetworkTest {
    /// Judges the claim.
    pub fn judge(self, network: &Result<Bench, String>) -> Decision {
        let bench = match network {
            Ok(bench) => bench,
            Err(why) => return cannot_be_tested(why.clone()),
        };
        let all = bench.measured_cells();
        let (a, b) = match self {
            Self::Above(a, b) | Self::Alike(a, b) | Self::Times(_, a, b) => (a, b),
        };
        let of = |cell: Cell| find_cell(&all, cell).and_then(|m| cell_score(m).map(|s| (m, s)));
        let ((m, x), (n, y)) = match (of(a), of(b)) {
            (Ok(a), Ok(b)) => (a, b),
            (Err(why), _) | (_, Err(why)) => return cannot_be_tested(why),
        };
        let differs = |own: &MeasuredCell, other: &MeasuredCell| {
            let own = own.factors.iter().filter(|(name, value)| other.factors.get(*name) != Some(value));
            own.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
        };
        let because = format!("{}: {}; {}: {}", differs(m, n), x.text(), differs(n, m), y.text());
        let ratio = [x.interval[0] / y.interval[1], x.interval[1] / y.interval[0]];
        let near = |factor: f64| {
            let [low, high] = ratio.map(|r| r / factor);
            if low >= 1.0 / RELEVANT_RATIO_MIN && high <= RELEVANT_RATIO_MIN {
                Some(true)
            } else if high < 1.0 / RELEVANT_RATIO_MIN || low > RELEVANT_RATIO_MIN {
                Some(false)
            } else {
                None
            }
        };
        let holds = match self {
            Self::Above(..) if ratio[0] > 1.0 => Some(true),
            Self::Above(..) if ratio[1] < RELEVANT_RATIO_MIN => Some(false),
            Self::Above(..) => None,
            Self::Alike(..) => near(1.0),
            Self::Times(factor, ..) => near(factor),
        };
        match holds {
            Some(true) => (Outcome::Confirmed, because),
            Some(false) => (Outcome::NotConfirmed, because),
            None => cannot_be_tested(format!("the intervals are too wide: {because}")),
        }
    }
}

fn find_cell<'a, 'b>(all: &'a [MeasuredCell<'b>], cell: Cell) -> Result<&'a MeasuredCell<'b>, String> {
    let Cell(design, factors) = cell;
    let mut of_design = all.iter().filter(|m| m.design.name == design && m.extra.is_none()).peekable();
    if of_design.peek().is_none() {
        return Err(match design {
            "net-delay-devices" => "it needs a second device behind this machine, which delays what it forwards: `--server DEVICE`, as root \
                                    (docs/guide/net-link.md)"
                .into(),
            _ => format!("{design} was not measured"),
        });
    }
    let has = |m: &&MeasuredCell| factors.iter().all(|(name, value)| m.factors.get(*name).is_some_and(|v| v == value));
    of_design.find(has).ok_or_else(|| {
        let words: Vec<String> = factors.iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("no cell of {design} with {}", words.join(" "))
    })
}

fn cell_score<'a>(m: &'a MeasuredCell<'_>) -> Result<Score<'a>, String> {
    let e = &m.estimate;
    match (e.estimate, e.ci95) {
        (Some(estimate), Some(interval)) if interval[0] > 0.0 => Ok(Score { estimate, interval, unit: &e.unit }),
        (Some(_), _) => Err(format!("too few processes for an interval: {} of the five that it needs", e.processes)),
        (None, _) => {
            let why = e.failure.as_ref().or(e.absent.as_ref());
            Err(why.map_or_else(|| format!("{} has no score", m.design.name), |why| shown(why)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scores::synthetic::bench;

    const fn cell_with_batch(batch: &'static str) -> Cell {
        Cell("cluster-devices", [("io", "flash"), ("threads", "32"), ("batch", batch)])
    }

    const BATCH_OF_ONE: Cell = cell_with_batch("1");
    const BATCH_OF_TEN: Cell = cell_with_batch("10");

    fn measured(one: f64, ten: f64, processes: u64) -> Result<Bench, String> {
        let mut made = bench("b", "cluster-devices");
        made.add(&[("io", "flash"), ("threads", "32"), ("batch", "1")], 1e9 / one, 1.0, processes);
        made.add(&[("io", "flash"), ("threads", "32"), ("batch", "10")], 1e9 / ten, 1.0, processes);
        Ok(made)
    }

    #[test]
    fn rates_of_one_device_decide_by_their_intervals() {
        use Outcome::{CannotBeTested, Confirmed, NotConfirmed};
        for (one, ten, processes, above, alike, times) in [
            (1000.0, 10_000.0, 8, Confirmed, NotConfirmed, Confirmed),
            (1000.0, 9_000.0, 8, Confirmed, NotConfirmed, Confirmed),
            (1000.0, 4_600.0, 8, Confirmed, NotConfirmed, NotConfirmed),
            (1000.0, 1_000.0, 8, NotConfirmed, Confirmed, NotConfirmed),
            (1000.0, 500.0, 8, NotConfirmed, NotConfirmed, NotConfirmed),
            (1000.0, 10_000.0, 2, CannotBeTested, CannotBeTested, CannotBeTested),
        ] {
            let made = measured(one, ten, processes);
            let got = [
                NetworkTest::Above(BATCH_OF_TEN, BATCH_OF_ONE),
                NetworkTest::Alike(BATCH_OF_TEN, BATCH_OF_ONE),
                NetworkTest::Times(10.0, BATCH_OF_TEN, BATCH_OF_ONE),
            ];
            let got = got.map(|test| test.judge(&made).0);
            // Two equal rates may differ by the noise of the synthetic ones: then one is above the other, and both are alike.
            let expected = if one == ten && got[0] == Confirmed { Confirmed } else { above };
            assert_eq!(got, [expected, alike, times], "{one} {ten} {processes}");
        }
        let (_, because) = NetworkTest::Above(BATCH_OF_TEN, BATCH_OF_ONE).judge(&measured(1000.0, 10_000.0, 8));
        assert!(because.starts_with("batch=10: ") && because.contains("; batch=1: "), "{because}");
    }

    #[test]
    fn the_reason_is_given_where_nothing_was_measured() {
        let (made, other) = (measured(1.0, 2.0, 8), Cell("net-delay-devices", BATCH_OF_TEN.1));
        let why = |test: NetworkTest, made: &Result<Bench, String>| test.judge(made).1;
        assert!(why(NetworkTest::Alike(other, other), &made).contains("--server DEVICE"));
        assert!(why(NetworkTest::Above(cell_with_batch("100"), BATCH_OF_ONE), &made).contains("batch=100"));
        assert_eq!(why(NetworkTest::Above(BATCH_OF_TEN, BATCH_OF_ONE), &Err("no route".into())), "no route");
    }
}
