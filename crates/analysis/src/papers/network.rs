//! The claims of papers 001 and 002 about networks: with the device as a node of a cluster and as an end, by cells of one
//! benchmark (`cluster-devices`, `net-devices`, `net-delay-devices`). A host has no such network, so the device's cells are
//! compared with each other, as in the papers.
//!
//! A rate is above another if their intervals do not overlap. Rates within a quarter are about equal.

use super::outcome::{Decided, Outcome, QUARTER, cannot};
use crate::bench::results::{Bench, Measured};
use crate::text::{digits, scale, shown};

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
    pub fn judge(self, network: &Result<Bench, String>) -> Decided {
        let bench = match network {
            Ok(bench) => bench,
            Err(why) => return cannot(why.clone()),
        };
        let all = bench.measured();
        let (a, b) = match self {
            Self::Above(a, b) | Self::Alike(a, b) | Self::Times(_, a, b) => (a, b),
        };
        let of = |cell: Cell| find(&all, cell).and_then(|m| score(m).map(|s| (m, s)));
        let ((m, x), (n, y)) = match (of(a), of(b)) {
            (Ok(a), Ok(b)) => (a, b),
            (Err(why), _) | (_, Err(why)) => return cannot(why),
        };
        let differs = |own: &Measured, other: &Measured| {
            let own = own.factors.iter().filter(|(name, value)| other.factors.get(*name) != Some(value));
            own.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
        };
        let because = format!("{}: {}; {}: {}", differs(m, n), x.text(), differs(n, m), y.text());
        let ratio = [x.interval[0] / y.interval[1], x.interval[1] / y.interval[0]];
        let near = |factor: f64| {
            let [low, high] = ratio.map(|r| r / factor);
            if low >= 1.0 / QUARTER && high <= QUARTER {
                Some(true)
            } else if high < 1.0 / QUARTER || low > QUARTER {
                Some(false)
            } else {
                None
            }
        };
        let holds = match self {
            Self::Above(..) if ratio[0] > 1.0 => Some(true),
            Self::Above(..) if ratio[1] < QUARTER => Some(false),
            Self::Above(..) => None,
            Self::Alike(..) => near(1.0),
            Self::Times(factor, ..) => near(factor),
        };
        match holds {
            Some(true) => (Outcome::Confirmed, because),
            Some(false) => (Outcome::NotConfirmed, because),
            None => cannot(format!("the intervals are too wide: {because}")),
        }
    }
}

fn find<'a, 'b>(all: &'a [Measured<'b>], cell: Cell) -> Result<&'a Measured<'b>, String> {
    let Cell(design, factors) = cell;
    let mut of_design = all.iter().filter(|m| m.design.name == design && m.also.is_none()).peekable();
    if of_design.peek().is_none() {
        return Err(match design {
            "net-delay-devices" => "it needs a second device behind this machine, which delays what it forwards: `--server DEVICE`, as root \
                                    (docs/guide/net-link.md)"
                .into(),
            _ => format!("{design} was not measured"),
        });
    }
    let has = |m: &&Measured| factors.iter().all(|(name, value)| m.factors.get(*name).is_some_and(|v| v == value));
    of_design.find(has).ok_or_else(|| {
        let words: Vec<String> = factors.iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("no cell of {design} with {}", words.join(" "))
    })
}

fn score<'a>(m: &'a Measured<'_>) -> Result<Score<'a>, String> {
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
    use crate::bench::made::bench;

    const fn of(batch: &'static str) -> Cell {
        Cell("cluster-devices", [("io", "flash"), ("threads", "32"), ("batch", batch)])
    }

    const ONE: Cell = of("1");
    const TEN: Cell = of("10");

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
            let got = [NetworkTest::Above(TEN, ONE), NetworkTest::Alike(TEN, ONE), NetworkTest::Times(10.0, TEN, ONE)];
            let got = got.map(|test| test.judge(&made).0);
            // Two equal rates may differ by the noise of the synthetic ones: then one is above the other, and both are alike.
            let expected = if one == ten && got[0] == Confirmed { Confirmed } else { above };
            assert_eq!(got, [expected, alike, times], "{one} {ten} {processes}");
        }
        let (_, because) = NetworkTest::Above(TEN, ONE).judge(&measured(1000.0, 10_000.0, 8));
        assert!(because.starts_with("batch=10: ") && because.contains("; batch=1: "), "{because}");
    }

    #[test]
    fn reason_is_told_where_nothing_was_measured() {
        let (made, other) = (measured(1.0, 2.0, 8), Cell("net-delay-devices", TEN.1));
        let why = |test: NetworkTest, made: &Result<Bench, String>| test.judge(made).1;
        assert!(why(NetworkTest::Alike(other, other), &made).contains("--server DEVICE"));
        assert!(why(NetworkTest::Above(of("100"), ONE), &made).contains("batch=100"));
        assert_eq!(why(NetworkTest::Above(TEN, ONE), &Err("no route".into())), "no route");
    }
}
