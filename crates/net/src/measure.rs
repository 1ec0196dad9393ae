//! A measurement request to another process, and its response: the process that starts a run elsewhere (on a device, in a
//! namespace with an emulated link) receives the measurements of both ends rather than printed output, adds its own facts,
//! and shows the result once.
//!
//! Both are JSON. The TCP samples, which an [`EndReport`](crate::outcome::EndReport) omits since they have their own frames
//! between two ends, are added here.

use crate::clock::Moment;
use crate::highest_rate::{self, SearchResult};
use crate::run::{Outcome, Session};
use crate::spec::Spec;
use crate::tcp_info::TcpSample;
use crate::{Error, Result};
use model::Environment;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// A request for a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRequest {
    pub address: SocketAddr,
    /// The file of its key.
    pub key: Option<PathBuf>,
    /// The only interface that the client may use.
    pub interface: Option<String>,
    pub spec: Spec,
    /// Whether to search for the highest UDP rate; the rate of `spec` is ignored then.
    pub highest: bool,
    /// Whether to print progress to stderr.
    pub progress: bool,
}

/// The result of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// The measurements of both ends.
    pub outcome: Outcome,
    /// The search, if requested.
    pub search: Option<SearchResult>,
    /// Whether the user ended it early.
    pub interrupted: bool,
}

impl RunRequest {
    /// Measures. `begun` receives the session before anything is sent, `tell` each step of a search.
    pub async fn measure(&self, begun: impl FnOnce(&Session), tell: &mut dyn FnMut(String)) -> Result<Measurement> {
        let key = self.key.as_deref().map(wire::Key::read).transpose()?;
        let mut session = Session::connect(self.address, key.as_ref(), self.interface.as_deref()).await?;
        begun(&session);
        let (outcome, search) = if self.highest {
            highest_rate::find_highest_rate(&mut session, &self.spec, tell)
                .await
                .map(|(outcome, found)| (outcome, Some(found)))?
        } else {
            (session.run(&self.spec).await?, None)
        };
        Ok(Measurement { outcome, search, interrupted: session.interrupter().load(Ordering::Relaxed) })
    }
}

/// The response of the measuring process.
#[derive(Debug, Clone, PartialEq)]
pub struct Handover {
    pub measured: Measurement,
    /// Where it ran.
    pub place: ClientMachine,
}

/// The machine of a client.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientMachine {
    pub facts: Environment,
    /// Its boot: the kernel's boot_id.
    pub boot: Option<String>,
    /// A moment after the run.
    pub moment: Moment,
}

/// Samples of one direction.
#[derive(Serialize, Deserialize)]
struct Readings {
    samples: Vec<TcpSample>,
    acks: Vec<TcpSample>,
}

#[derive(Serialize, Deserialize)]
struct HandoverJson {
    outcome: Outcome,
    /// In the order of [`sent_directions`].
    readings: Vec<Readings>,
    search: Option<SearchResult>,
    interrupted: bool,
    place: ClientMachine,
}

/// The sent directions of both ends.
fn sent_directions(outcome: &mut Outcome) -> impl Iterator<Item = &mut crate::outcome::SentDirection> {
    outcome.own.sent.iter_mut().chain(&mut outcome.other.sent)
}

impl Handover {
    /// Formats as JSON, in one line.
    pub fn into_json(self) -> Result<String> {
        let Self { measured: Measurement { mut outcome, search, interrupted }, place } = self;
        let readings = sent_directions(&mut outcome)
            .map(|sent| Readings { samples: std::mem::take(&mut sent.samples), acks: std::mem::take(&mut sent.acks) })
            .collect();
        serde_json::to_string(&HandoverJson { outcome, readings, search, interrupted, place }).map_err(Error::HandOver)
    }

    /// Parses JSON.
    pub fn parse(json: &[u8]) -> Result<Self> {
        let HandoverJson { mut outcome, readings, search, interrupted, place } =
            serde_json::from_slice(json).map_err(Error::HandOver)?;
        let directions = sent_directions(&mut outcome).count();
        if readings.len() != directions {
            let why = format!("samples of {} directions for {directions} that were sent", readings.len());
            return Err(Error::HandOver(serde::de::Error::custom(why)));
        }
        for (sent, readings) in sent_directions(&mut outcome).zip(readings) {
            (sent.samples, sent.acks) = (readings.samples, readings.acks);
        }
        Ok(Self { measured: Measurement { outcome, search, interrupted }, place })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offset::ClockOffset;
    use crate::outcome::{EndReport, PacketsSent, SentDirection, Transactions};
    use crate::spec::{Direction, Readings as When, SocketOptions, Traffic};

    fn sent(direction: Direction, cwnd: u64) -> SentDirection {
        let sample = TcpSample { time_ns: 5, cwnd, ..TcpSample::default() };
        SentDirection {
            direction,
            start_ns: 1,
            end_ns: u64::MAX,
            sockets: vec![Default::default()],
            threads: Default::default(),
            packets: None,
            samples: vec![sample; 3],
            acks: vec![sample],
            acks_lost: 7,
            carried: Vec::new(),
        }
    }

    fn handed_over() -> Handover {
        let spec = Spec {
            traffic: Traffic::Tcp { rate_bps: None },
            directions: vec![Direction::Up, Direction::Down],
            streams: 1,
            duration_ms: 1000,
            socket: SocketOptions::default(),
            copy: false,
            probe: true,
            readings: When::All,
        };
        let own = EndReport {
            sent: vec![sent(Direction::Up, 10)],
            trouble: Some("a \"b\"\n".into()),
            ..EndReport::default()
        };
        let other = EndReport { sent: vec![sent(Direction::Down, 20)], ..EndReport::default() };
        let clock = Some(ClockOffset { at_ns: 1, ahead_ns: -0.5, drift: 0.25, error_ns: 0.0 });
        let outcome = Outcome { spec, own, other, clock, searched: Some(crate::rate_check::TrialVerdict::Lossy) };
        let place = ClientMachine {
            boot: Some("b".into()),
            moment: Moment { boot_ns: 9, unix_ns: 10 },
            ..ClientMachine::default()
        };
        Handover { measured: Measurement { outcome, search: None, interrupted: true }, place }
    }

    #[test]
    fn handed_over_run_is_read_back_with_its_readings() {
        let one = handed_over();
        assert_eq!(Handover::parse(one.clone().into_json().unwrap().as_bytes()).unwrap(), one);
    }

    #[test]
    fn search_survives_the_handover() {
        let tried = highest_rate::TrialRow {
            rate_bps: 5,
            seconds: 1.0,
            loss: 0.5,
            loss_upper: 0.75,
            queued: 0.0,
            burst_packets: 1.5,
            passed: true,
        };
        let bounds = highest_rate::Bounds {
            lost_or_queued_upper: None,
            confidence: 0.95,
            lowest_failed_bps: Some(6),
            stopped_by: "x".into(),
        };
        for bounds in [None, Some(bounds)] {
            let mut one = handed_over();
            let found = SearchResult { rate_bps: Some(5), trials: vec![tried], runs: vec![], text: "t".into(), bounds };
            one.measured.search = Some(found);
            assert_eq!(Handover::parse(one.clone().into_json().unwrap().as_bytes()).unwrap(), one);
        }
    }

    #[test]
    fn nan_and_infinity_survive_the_handover() {
        let mut one = handed_over();
        one.measured.outcome.clock =
            Some(ClockOffset { at_ns: 1, ahead_ns: f64::NAN, drift: 0.5, error_ns: f64::INFINITY });
        one.measured.outcome.own.machine.busy = f64::NAN;
        one.measured.outcome.own.transactions =
            Some(Transactions { latency_us: [1.0, f64::NAN, 3.0, 4.0, 5.0], ..Transactions::default() });
        one.measured.outcome.own.sent[0].packets =
            Some(PacketsSent { late_us: [f64::NAN; 3], ..PacketsSent::default() });
        let back = Handover::parse(one.into_json().unwrap().as_bytes()).unwrap().measured.outcome;
        let clock = back.clock.unwrap();
        assert!(clock.ahead_ns.is_nan() && clock.drift == 0.5 && clock.error_ns.is_nan());
        assert!(back.own.machine.busy.is_nan());
        let latency = back.own.transactions.unwrap().latency_us;
        assert!(latency[0] == 1.0 && latency[1].is_nan() && latency[4] == 5.0);
        assert!(back.own.sent[0].packets.as_ref().unwrap().late_us.iter().all(|late| late.is_nan()));
    }

    #[test]
    fn samples_that_do_not_match_directions_are_refused() {
        let whole: serde_json::Value = serde_json::from_str(&handed_over().into_json().unwrap()).unwrap();
        for count in [0, 1, 3] {
            let mut json = whole.clone();
            let readings = json["readings"].as_array_mut().unwrap();
            readings.resize(count, readings[0].clone());
            assert!(matches!(Handover::parse(json.to_string().as_bytes()), Err(Error::HandOver(_))), "{count}");
        }
    }

    #[test]
    fn text_that_is_no_result_is_refused() {
        for bad in [&b""[..], b"{}", b"fathom: no", b"\xff", b"{\"outcome\":null}"] {
            assert!(matches!(Handover::parse(bad), Err(Error::HandOver(_))));
        }
    }
}
