//! The gate before each process: is the machine in the same state as when the first one began?
//!
//! A laptop that has grown hot, a phone that has begun to charge, a backup that has just started: each makes the next
//! process slower than the previous one, and no statistics can distinguish that from the measured effect. So the sensors
//! are read before each process. Where waiting helps (heat, a lowered frequency, others' work) the runner waits, but not
//! forever: after a time limit, or when the total waiting time exceeds an allowance, the process runs anyway and is
//! **marked**. Nothing is dropped, and a missing sensor is marked as such.
//!
//! Thresholds: ±3 °C of the first start is krun's requirement; a third of one processor is more than an idle desktop
//! uses and less than any started job; below 30 % charge phones save power. Waiting does not heat a machine that has
//! become cooler than at first, nor charge a battery: those are marked at once.
//!
//! Pure: the caller provides the time and the readings.

use device::{Battery, Readings};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Maximum deviation of the temperature from the first one, °C.
pub const TEMPERATURE_DEVIATION_C_MAX: f64 = 3.0;
/// Processors that others may keep busy.
pub const BUSY_CPUS_MAX: f64 = 0.33;
/// The charge of the battery must be above this, percent.
pub const BATTERY_PERCENT_MIN: u64 = 30;
/// How much lower the allowed frequency may be than at first, as a fraction: drivers round.
const FREQUENCY_DROP_MAX: f64 = 0.01;

/// Whether a gate was passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The machine was in the required state.
    Passed,
    /// It was not, and the process ran anyway.
    Failed,
    /// There is no such sensor.
    Unavailable,
}

impl State {
    /// The name in the archive.
    pub fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Unavailable => "unavailable",
        }
    }
}

/// One gate, as stored with the replicate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// Whether it was passed.
    pub state: State,
    /// The reading.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The required value, the reason for a missing one, or the battery's status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// All gates by name: `temperature`, `frequency`, `load`, `battery`; and `waited`, how long in s.
pub type Marks = BTreeMap<String, Mark>;

/// What the runner must do.
#[derive(Debug, Clone, PartialEq)]
pub enum Signal {
    /// Check again soon; the text describes what it waits for.
    Wait(String),
    /// Start the process.
    Go(Marks),
    /// Start the process although a gate was not passed.
    GiveUp(Marks),
}

/// Limits of waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitLimits {
    /// Before one process, ns.
    pub process_ns: u64,
    /// Before all processes of a design together, ns.
    pub design_ns: u64,
}

/// The gate of a run.
#[derive(Debug, Clone)]
pub struct Gate {
    limits: WaitLimits,
    spent_ns: u64,
    waiting_since: Option<u64>,
    temperature_c: Option<f64>,
    frequency_mhz: Option<f64>,
    charging: Option<String>,
}

impl Gate {
    /// Creates a gate without any readings yet.
    pub fn new(limits: WaitLimits) -> Self {
        Self { limits, spent_ns: 0, waiting_since: None, temperature_c: None, frequency_mhz: None, charging: None }
    }

    /// Takes the first readings from the marks of a replicate that ran before an interruption.
    pub fn restore_first_readings(&mut self, marks: &Marks) {
        let value = |name: &str| marks.get(name).and_then(|m| m.value);
        self.temperature_c = self.temperature_c.or_else(|| value("temperature"));
        self.frequency_mhz = self.frequency_mhz.or_else(|| value("frequency"));
        let charging = marks.get("battery").filter(|m| m.state == State::Passed).and_then(|m| m.why.clone());
        self.charging = self.charging.take().or(charging);
    }

    /// Returns what to do at `now_ns` (any steady clock), given the sensors. After `Go` and `GiveUp` the next call is
    /// about the next process.
    pub fn signal(&mut self, now_ns: u64, readings: &Readings) -> Signal {
        let since = *self.waiting_since.get_or_insert(now_ns);
        let waited_ns = now_ns.saturating_sub(since);
        let (mut marks, helps) = self.judge(readings);
        let failed = marks.values().any(|m| m.state == State::Failed);
        if let Some(what) = helps
            && waited_ns < self.limits.process_ns
            && self.spent_ns.saturating_add(waited_ns) < self.limits.design_ns
        {
            return Signal::Wait(what);
        }
        self.waiting_since = None;
        self.spent_ns = self.spent_ns.saturating_add(waited_ns);
        if waited_ns > 0 {
            let waited =
                Mark { state: State::Passed, value: Some(waited_ns as f64 / 1e9), unit: Some("s".into()), why: None };
            marks.insert("waited".into(), waited);
        }
        if failed { Signal::GiveUp(marks) } else { Signal::Go(marks) }
    }

    /// Returns the gates, and a problem that waiting may solve.
    fn judge(&mut self, readings: &Readings) -> (Marks, Option<String>) {
        let mut marks = Marks::new();
        let mut helps = None;
        let mut put = |name: &str, unit: &str, reading: &Result<f64, String>, judge: &mut dyn FnMut(f64) -> Verdict| {
            let mark = match reading {
                Err(why) => Mark { state: State::Unavailable, value: None, unit: None, why: Some(why.clone()) },
                Ok(value) => {
                    let verdict = judge(*value);
                    if verdict.waiting_helps {
                        helps.get_or_insert_with(|| format!("{name} {value:.1} {unit}"));
                    }
                    let state = if verdict.wrong.is_none() { State::Passed } else { State::Failed };
                    Mark { state, value: Some(*value), unit: Some(unit.into()), why: verdict.wrong }
                }
            };
            marks.insert(name.into(), mark);
        };
        put("temperature", "°C", &readings.temperature_c, &mut |t| {
            let first = *self.temperature_c.get_or_insert(t);
            Verdict::from_check((t - first).abs() <= TEMPERATURE_DEVIATION_C_MAX, t > first, || {
                format!("at first {first:.1} °C, allowed ± {TEMPERATURE_DEVIATION_C_MAX}")
            })
        });
        put("frequency", "MHz", &readings.frequency_mhz, &mut |f| {
            let first = *self.frequency_mhz.get_or_insert(f);
            Verdict::from_check(f >= first * (1.0 - FREQUENCY_DROP_MAX), true, || {
                format!("at first up to {first:.0} MHz")
            })
        });
        put("load", "CPUs", &readings.busy_cpus, &mut |busy| {
            Verdict::from_check(busy <= BUSY_CPUS_MAX, true, || {
                format!("other processes used more than {BUSY_CPUS_MAX} CPUs")
            })
        });
        let battery = self.battery(&readings.battery);
        marks.insert("battery".into(), battery);
        (marks, helps)
    }

    fn battery(&mut self, reading: &Result<Battery, String>) -> Mark {
        let battery = match reading {
            Ok(battery) => battery,
            Err(why) => return Mark { state: State::Unavailable, value: None, unit: None, why: Some(why.clone()) },
        };
        let first = self.charging.get_or_insert_with(|| battery.status.clone());
        let (state, why) = if *first != battery.status {
            (State::Failed, format!("at first {first}, now {}", battery.status))
        } else if battery.percent <= BATTERY_PERCENT_MIN {
            (State::Failed, format!("must be above {BATTERY_PERCENT_MIN} %"))
        } else {
            (State::Passed, battery.status.clone())
        };
        Mark { state, value: Some(battery.percent as f64), unit: Some("%".into()), why: Some(why) }
    }
}

struct Verdict {
    wrong: Option<String>,
    waiting_helps: bool,
}

impl Verdict {
    fn from_check(right: bool, waiting_helps: bool, why: impl FnOnce() -> String) -> Self {
        Self { wrong: (!right).then(why), waiting_helps: !right && waiting_helps }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn calm() -> Readings {
        Readings {
            temperature_c: Ok(40.0),
            frequency_mhz: Ok(2000.0),
            busy_cpus: Ok(0.1),
            battery: Ok(Battery { percent: 80, status: "Discharging".into() }),
        }
    }

    fn gate() -> Gate {
        let mut gate = Gate::new(WaitLimits { process_ns: 30 * SECOND_NS, design_ns: 50 * SECOND_NS });
        assert!(
            matches!(gate.signal(0, &calm()), Signal::Go(marks) if marks.values().all(|m| m.state == State::Passed))
        );
        gate
    }

    fn state(signal: &Signal, name: &str) -> State {
        match signal {
            Signal::Go(marks) | Signal::GiveUp(marks) => marks[name].state,
            Signal::Wait(_) => panic!("{signal:?}"),
        }
    }

    #[test]
    fn gate_waits_while_the_machine_is_hot() {
        let mut gate = gate();
        let hot = Readings { temperature_c: Ok(43.1), ..calm() };
        assert!(matches!(gate.signal(SECOND_NS, &hot), Signal::Wait(what) if what.contains("temperature 43.1")));
        let warm = Readings { temperature_c: Ok(42.9), ..calm() };
        let signal = gate.signal(9 * SECOND_NS, &warm);
        assert!(matches!(&signal, Signal::Go(marks) if marks["waited"].value == Some(8.0)), "{signal:?}");
    }

    #[test]
    fn process_runs_after_the_gates_limit_and_is_marked() {
        let mut gate = gate();
        let busy = Readings { busy_cpus: Ok(1.9), ..calm() };
        assert!(matches!(gate.signal(0, &busy), Signal::Wait(_)));
        assert!(matches!(gate.signal(30 * SECOND_NS - 1, &busy), Signal::Wait(_)));
        let signal = gate.signal(30 * SECOND_NS, &busy);
        assert!(matches!(&signal, Signal::GiveUp(marks) if marks["load"].value == Some(1.9)), "{signal:?}");
        assert_eq!((state(&signal, "load"), state(&signal, "temperature")), (State::Failed, State::Passed));
        // 30 s of the allowance of 50 are spent: the next may wait 20, those after it not at all.
        assert!(matches!(gate.signal(100 * SECOND_NS, &busy), Signal::Wait(_)));
        assert!(matches!(gate.signal(120 * SECOND_NS, &busy), Signal::GiveUp(_)));
        assert!(matches!(gate.signal(200 * SECOND_NS, &busy), Signal::GiveUp(_)));
        assert!(matches!(gate.signal(201 * SECOND_NS, &calm()), Signal::Go(_)));
    }

    #[test]
    fn gates_that_cannot_recover_are_marked_at_once() {
        for (readings, name) in [
            (Readings { temperature_c: Ok(30.0), ..calm() }, "temperature"),
            (Readings { battery: Ok(Battery { percent: 30, status: "Discharging".into() }), ..calm() }, "battery"),
            (Readings { battery: Ok(Battery { percent: 80, status: "Charging".into() }), ..calm() }, "battery"),
        ] {
            let signal = gate().signal(SECOND_NS, &readings);
            assert!(matches!(signal, Signal::GiveUp(_)));
            assert_eq!(state(&signal, name), State::Failed);
        }
    }

    #[test]
    fn gate_waits_for_a_lowered_frequency() {
        let slow = Readings { frequency_mhz: Ok(1500.0), ..calm() };
        assert!(matches!(gate().signal(SECOND_NS, &slow), Signal::Wait(what) if what.contains("frequency")));
    }

    #[test]
    fn unreadable_sensors_do_not_block_the_gate() {
        let none = Readings {
            temperature_c: Err("no sensor".into()),
            frequency_mhz: Err(String::new()),
            busy_cpus: Err(String::new()),
            battery: Err(String::new()),
        };
        let signal = Gate::new(WaitLimits { process_ns: SECOND_NS, design_ns: SECOND_NS }).signal(0, &none);
        assert!(matches!(&signal, Signal::Go(marks) if marks.values().all(|m| m.state == State::Unavailable)));
    }

    #[test]
    fn resumed_run_compares_with_the_first_start() {
        let Signal::Go(marks) = gate().signal(SECOND_NS, &calm()) else { panic!() };
        let stored: Marks = serde_json::from_str(&serde_json::to_string(&marks).unwrap()).unwrap();
        let mut again = Gate::new(WaitLimits { process_ns: SECOND_NS, design_ns: SECOND_NS });
        again.restore_first_readings(&stored);
        let other = Readings {
            temperature_c: Ok(48.0),
            battery: Ok(Battery { percent: 80, status: "Charging".into() }),
            ..calm()
        };
        assert!(matches!(again.signal(0, &other), Signal::Wait(_)));
        let signal = again.signal(SECOND_NS, &other);
        assert_eq!((state(&signal, "temperature"), state(&signal, "battery")), (State::Failed, State::Failed));
    }
}
