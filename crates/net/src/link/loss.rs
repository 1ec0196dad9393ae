//! Selects the packets that are lost, from a seed, so that a run can be reproduced packet by packet.
//!
//! Two models: independent losses (Bernoulli), and bursts (Gilbert 1960, Elliott 1963): the link is in a good or a bad
//! state, changes state after each packet with given probabilities, and loses packets in each state with its own
//! probability.

use super::spec_error::QuantityError;
use stats::random::Random;

/// A model of loss. Probabilities are in 0..=1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum LossModel {
    #[default]
    None,
    /// Independent losses with this probability.
    Each(f64),
    /// In bursts.
    Burst {
        /// Of a transition to the bad state, after a packet in the good state.
        worsen: f64,
        /// Of a transition to the good state, after a packet in the bad state.
        recover: f64,
        /// Of losing a packet in the bad state.
        bad: f64,
        /// Of losing a packet in the good state.
        good: f64,
    },
}

impl LossModel {
    /// The mean share of lost packets in the long run.
    pub fn mean(self) -> f64 {
        match self {
            Self::None => 0.0,
            Self::Each(p) => p,
            Self::Burst { worsen, recover, .. } if worsen + recover <= 0.0 => 0.0,
            Self::Burst { worsen, recover, bad, good } => (worsen * bad + recover * good) / (worsen + recover),
        }
    }

    /// Parses `1%`, `0.01`, or `burst:WORSEN,RECOVER[,BAD[,GOOD]]` with probabilities of that form (BAD defaults to 100 %, GOOD to 0).
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let Some(list) = text.strip_prefix("burst:") else {
            let p = parse_probability(text)?;
            return Ok(if p > 0.0 { Self::Each(p) } else { Self::None });
        };
        let parts = list.split(',').map(parse_probability).collect::<Result<Vec<_>, _>>()?;
        let (worsen, recover) = match parts[..] {
            [worsen, recover] | [worsen, recover, _] | [worsen, recover, _, _] => (worsen, recover),
            _ => return Err(QuantityError::Burst),
        };
        let (bad, good) = (parts.get(2).copied().unwrap_or(1.0), parts.get(3).copied().unwrap_or(0.0));
        Ok(Self::Burst { worsen, recover, bad, good })
    }
}

fn parse_probability(text: &str) -> Result<f64, QuantityError> {
    let (number, scale) = text.trim().strip_suffix('%').map_or((text.trim(), 1.0), |n| (n, 0.01));
    let value = number.trim().parse::<f64>().ok().map(|v| v * scale).filter(|v| (0.0..=1.0).contains(v));
    value.ok_or_else(|| QuantityError::Share(text.into()))
}

/// The state of the loss model for one direction of a link.
#[derive(Debug, Clone)]
pub struct Losses {
    model: LossModel,
    random: Random,
    in_bad_state: bool,
}

impl Losses {
    /// Starts in the good state.
    pub fn new(model: LossModel, seed: u64) -> Self {
        Self { model, random: Random::new(seed), in_bad_state: false }
    }

    /// Whether the next packet is lost.
    pub fn loses_next(&mut self) -> bool {
        match self.model {
            LossModel::None => false,
            LossModel::Each(p) => self.random.unit() < p,
            LossModel::Burst { worsen, recover, bad, good } => {
                let lost = self.random.unit() < if self.in_bad_state { bad } else { good };
                let change = self.random.unit() < if self.in_bad_state { recover } else { worsen };
                self.in_bad_state ^= change;
                lost
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(model: LossModel, seed: u64) -> (f64, f64) {
        let mut losses = Losses::new(model, seed);
        let lost: Vec<bool> = (0..200_000).map(|_| losses.loses_next()).collect();
        let count = lost.iter().filter(|l| **l).count() as f64;
        let bursts = lost.windows(2).filter(|w| !w[0] && w[1]).count().max(1) as f64;
        (count / lost.len() as f64, count / bursts)
    }

    #[test]
    fn loss_share_and_burst_length_match_model() {
        let (each, length) = share(LossModel::Each(0.01), 1);
        // Five standard deviations of a binomial: 5 * sqrt(0.01 * 0.99 / 200000) = 0.0011.
        assert!((each - 0.01).abs() < 0.0012, "{each}");
        assert!(length < 1.1, "{length}");
        let model = LossModel::Burst { worsen: 0.005, recover: 0.25, bad: 1.0, good: 0.0 };
        let (burst, length) = share(model, 2);
        assert!((model.mean() - 0.005 / 0.255).abs() < 1e-12);
        assert!((burst - model.mean()).abs() < 0.004, "{burst}");
        assert!((length - 4.0).abs() < 0.5, "the bad state lasts 1 / 0.25 packets: {length}");
        assert_eq!(share(LossModel::None, 3).0, 0.0);
        assert_eq!(share(LossModel::Each(1.0), 3).0, 1.0);
    }

    #[test]
    fn same_seed_gives_same_losses() {
        let draw = |seed| {
            let mut losses = Losses::new(LossModel::Each(0.5), seed);
            (0..64).map(|_| losses.loses_next()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn loss_models_are_parsed() {
        assert_eq!(LossModel::parse("1%"), Ok(LossModel::Each(0.01)));
        assert_eq!(LossModel::parse("0"), Ok(LossModel::None));
        assert_eq!(LossModel::parse("0.25"), Ok(LossModel::Each(0.25)));
        let burst = LossModel::Burst { worsen: 0.005, recover: 0.25, bad: 1.0, good: 0.0 };
        assert_eq!(LossModel::parse("burst:0.5%,25%"), Ok(burst));
        for wrong in ["", "x", "101%", "-1", "nan", "burst:1%", "burst:1%,2%,3%,4%,5%"] {
            assert!(LossModel::parse(wrong).is_err(), "{wrong}");
        }
    }
}
