//! Our congestion controls compared with the kernel's modules of the same names, in Debian's stock kernel.
//!
//! Both run over the same emulated link, one after the other, and their windows are compared cycle by cycle: a cycle is the
//! growth from one reduction to the next. Cycles are compared instead of whole curves because the guest is emulated in
//! software, and a host that is busy for 50 ms causes one packet drop more or less; from there two curves of the very same code
//! are out of step and their difference is meaningless. An algorithm decides how much of the window remains after a loss and
//! how it grows from there until the next. The sender samples every 10 ms of the guest's own clock: where it did not for
//! [`STALL_MS`], the guest stalled, and the cycle is not counted, whatever it was like. If that leaves too few, or two flows
//! differ by more than allowed, another pair is sent and the cycles of all are judged together, by the same bounds: chance
//! shrinks with more cycles, a difference of the algorithms does not.

use super::{find_program, run_shell};
use anyhow::{Context, Result, ensure};
use fathom_tests::{fathom, run};
use lab::guest::{Config, Guest};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// Three hosts in a row: a sends; r is the bottleneck (4 Mb/s, a queue of 40 packets that drops what does not fit); b receives,
/// and its acknowledgements wait 60 ms in r. So slow that an emulated machine keeps up: 345 segments a second, 21 of them in
/// flight before the queue. Segments are not aggregated, as required by a queue that counts packets.
const LINK_SCRIPT: &str = "
for n in a r b; do ip netns add $n; ip -n $n link set dev lo up; done
ip link add name ar netns a type veth peer name ra netns r
ip link add name br netns b type veth peer name rb netns r
ip -n a addr add 10.1.0.1/24 dev ar; ip -n r addr add 10.1.0.2/24 dev ra
ip -n b addr add 10.2.0.1/24 dev br; ip -n r addr add 10.2.0.2/24 dev rb
for d in 'a ar' 'r ra' 'r rb' 'b br'; do set -- $d; ip -n $1 link set dev $2 up gso_max_segs 1; done
ip -n a route add default via 10.1.0.2; ip -n b route add default via 10.2.0.2
ip netns exec r sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
ip netns exec a sh -c 'echo 1 >/proc/sys/net/ipv4/tcp_no_metrics_save'
tc -n r qdisc add dev rb root netem rate 4mbit limit 40
tc -n r qdisc add dev ra root netem delay 60ms limit 1000
ip netns exec b /bulk receive 5001 >/dev/null 2>&1 &
";

const MODULE_NAMES: [&str; 5] = ["veth", "sch_netem", "tcp_bic", "tcp_htcp", "tcp_westwood"];
/// A westwood cycle takes five seconds here.
const FLOW_SECONDS: u32 = 35;
/// Shorter cycles, in milliseconds, are parts of the kernel's recovery, not growth.
const CYCLE_MS_MIN: u32 = 500;
/// Milliseconds between two samples: a guest that stalled for this long has dropped a packet more or less.
const STALL_MS: u32 = 50;
/// Fewer cycles than this prove nothing.
const CYCLES_MIN: usize = 3;
/// The most pairs of flows that are sent.
const FLOW_PAIRS_MAX: usize = 3;
/// Points of a mean cycle.
const MEAN_CYCLE_POINTS: usize = 50;

/// A cycle counts if its first and its last window are within this share of the flow's median ones. The other cycles are
/// partial recoveries of the kernel, or were cut short by a loss of its own.
const SPREAD_MAX: f64 = 0.2;

/// How far above its start a window still counts as just begun, segments.
const BEGUN_SEGMENTS_MAX: f64 = 6.0;

/// How far ours may be from the module's. In five guests, on a host with more than twenty busy processes for its two cores, two
/// flows of the same module differed by up to 0.06 in area (0.02 for htcp and westwood), by a factor of up to 1.01 in segments,
/// and bic's pace by a factor of up to 1.2.
struct Bound {
    name: &'static str,
    /// Share of the window that remains after a loss: difference.
    left: f64,
    /// Area between the mean cycles, as a share of the area under the module's.
    area: f64,
    /// Segments delivered in a cycle, ratio either way.
    segments: f64,
    /// Segments delivered per segment of window growth at the beginning of cycles, ratio either way. More meaningful for bic,
    /// whose window hardly moves for most of a cycle and leaps at the end; how far it leaps before the queue's drops are
    /// noticed is chance, so `segments` is not compared there.
    pace: f64,
}

const CONTROL_BOUNDS: [Bound; 3] = [
    Bound { name: "bic", left: 0.03, area: 0.10, segments: f64::INFINITY, pace: 1.5 },
    Bound { name: "htcp", left: 0.03, area: 0.08, segments: 1.2, pace: 1.5 },
    Bound { name: "westwood", left: 0.05, area: 0.08, segments: 1.2, pace: 1.5 },
];

pub fn trajectories_match() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let bulk = directory.path().join("bulk");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/bulk.c");
    run(Command::new("cc").args(["-O2", "-static", "-o"]).arg(&bulk).arg(source))?;
    let (ip, tc) = (find_program("ip")?, find_program("tc")?);
    // The guest's shell has a built-in ip that does not support namespaces.
    let prelude = format!("set -e\nip() {{ {} \"$@\"; }}\ntc() {{ {} \"$@\"; }}\n", ip.display(), tc.display());
    let config = Config {
        modules: MODULE_NAMES.iter().map(ToString::to_string).collect(),
        programs: vec![ip.clone(), tc],
        files: vec![(fathom(), "/fathom".into()), (bulk, "/bulk".into())],
        ..Config::default()
    };
    let mut guest = Guest::boot(&config, &Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/lab"))?;
    run_shell(&mut guest, &format!("{prelude}{LINK_SCRIPT}"))?;
    let mut wrong = String::new();
    for bound in &CONTROL_BOUNDS {
        let mut send = |name: &str| -> Result<Vec<Sample>> {
            let send = format!("{} netns exec a /bulk send 10.2.0.1 5001 {name} {FLOW_SECONDS}", ip.display());
            let text = run_shell(&mut guest, &format!("/fathom net cc --load {name} -- {send}"))?;
            if let Some(directory) = std::env::var_os("FATHOM_KEEP_WINDOWS") {
                std::fs::write(Path::new(&directory).join(name), &text)?;
            }
            parse_samples(&text)
        };
        let (mut modules, mut ours) = (Vec::new(), Vec::new());
        let mut verdict = Ok(());
        for _ in 0..FLOW_PAIRS_MAX {
            append_flow(&mut modules, send(bound.name)?);
            append_flow(&mut ours, send(&format!("fathom_{}", bound.name))?);
            verdict = match (Cycles::new(&modules), Cycles::new(&ours)) {
                (Ok(module), Ok(ours)) => {
                    println!("{}: module {module}; ours {ours}; area {:.3}", bound.name, module.area(&ours));
                    bound.holds(&module, &ours).map_err(|why| format!("{why:#}"))
                }
                (Err(TooFew { left, spoiled }), _) | (_, Err(TooFew { left, spoiled })) => {
                    println!("{}: the guest stood still in {spoiled} cycles, and {left} are left", bound.name);
                    Err(format!("too few cycles to compare: {left}, and {spoiled} in which the guest stood still"))
                }
            };
            if verdict.is_ok() {
                break;
            }
        }
        if let Err(why) = verdict {
            let _ = writeln!(wrong, "{}: {why}", bound.name);
        }
    }
    ensure!(wrong.is_empty(), "{wrong}");
    // The kernel's own module is still there, and ours is gone.
    let left = run_shell(&mut guest, "cat /proc/sys/net/ipv4/tcp_available_congestion_control")?;
    ensure!(left.contains("westwood") && !left.contains("fathom"), "{left}");
    Ok(())
}

impl Bound {
    fn holds(&self, module: &Cycles, ours: &Cycles) -> Result<()> {
        let left = (module.left - ours.left).abs();
        ensure!(left <= self.left, "a loss leaves {:.3} of the window, the module's {:.3}", ours.left, module.left);
        let area = module.area(ours);
        ensure!(area <= self.area, "the mean cycles are {area:.3} apart");
        let ratio = ours.segments / module.segments;
        ensure!(ratio.max(1.0 / ratio) <= self.segments, "a cycle takes {ratio:.3} times the module's segments");
        let ratio = ours.pace / module.pace;
        ensure!(ratio.max(1.0 / ratio) <= self.pace, "at first growth takes {ratio:.3} times the module's segments");
        Ok(())
    }
}

/// State of the sender's TCP at one moment.
struct Sample {
    ms: u32,
    window: f64,
    /// Growing, not reducing or recovering.
    grows: bool,
    delivered: f64,
}

fn parse_samples(text: &str) -> Result<Vec<Sample>> {
    let line = |line: &str| -> Option<Sample> {
        let n: Vec<u32> = line.split(' ').map(|w| w.parse().ok()).collect::<Option<_>>()?;
        let [ms, window, _ssthresh, _srtt, state, _retransmits, delivered] = n[..] else { return None };
        Some(Sample { ms, window: window.into(), grows: state < 2, delivered: delivered.into() })
    };
    text.lines().map(|l| line(l).with_context(|| format!("no sample: {l}"))).collect()
}

/// Appends a flow to others. The gap between two counts as a stall, so that no cycle begins in one and ends in the next.
fn append_flow(flows: &mut Vec<Sample>, flow: Vec<Sample>) {
    let after = flows.last().map_or(0, |last| last.ms + 10 * STALL_MS);
    flows.extend(flow.into_iter().map(|s| Sample { ms: s.ms + after, ..s }));
}

/// Why there is nothing to compare.
#[derive(Debug, PartialEq)]
struct TooFew {
    /// Cycles that count.
    left: usize,
    /// Cycles during which the guest stalled.
    spoiled: usize,
}

/// A flow's cycles.
struct Cycles {
    /// Share of the window that remained after a loss, median.
    left: f64,
    /// Segments delivered per segment of window growth.
    segments: f64,
    /// The same until the window is [`BEGUN_SEGMENTS_MAX`] above its start, over the cycles that reach that step by step.
    pace: f64,
    /// The window through a cycle, median over the cycles at each point.
    mean: Vec<f64>,
    count: usize,
    /// Cycles that are not counted because the guest stalled.
    spoiled: usize,
}

impl std::fmt::Display for Cycles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "leaves {:.3}, {:.0} segments a cycle, at first {:.1} for one of growth, {} cycles ({} with a stall left out)",
            self.left, self.segments, self.pace, self.count, self.spoiled
        )
    }
}

impl Cycles {
    /// # Errors
    /// Fewer than [`CYCLES_MIN`] cycles are alike and without a stall.
    fn new(samples: &[Sample]) -> Result<Self, TooFew> {
        let stalled = |part: &[Sample]| part.windows(2).any(|pair| pair[1].ms - pair[0].ms > STALL_MS);
        let mut left = Vec::new();
        let mut cycles: Vec<&[Sample]> = Vec::new();
        let mut from = None;
        let mut before = None;
        for (n, pair) in samples.windows(2).enumerate() {
            match (pair[0].grows, pair[1].grows) {
                (true, false) => {
                    before = Some(pair[0].window);
                    cycles.extend(from.take().map(|from| &samples[from..=n]));
                }
                (false, true) => {
                    // A reduction that the kernel undid as spurious does not count.
                    let reduced = before.take().filter(|_| !stalled(pair));
                    left.extend(reduced.map(|b| pair[1].window / b).filter(|l| *l < 1.0));
                    from = Some(n + 1);
                }
                _ => {}
            }
        }
        cycles.retain(|c| c[c.len() - 1].ms - c[0].ms >= CYCLE_MS_MIN);
        let all = cycles.len();
        cycles.retain(|c| !stalled(c));
        let spoiled = all - cycles.len();
        let begun: Vec<&[Sample]> = cycles.iter().filter_map(|c| cycle_beginning(c)).collect();
        for end in [|c: &[Sample]| c[c.len() - 1].window, |c: &[Sample]| c[0].window] {
            let usual = median(cycles.iter().map(|c| end(c)).collect()).unwrap_or(0.0);
            cycles.retain(|c| (end(c) - usual).abs() <= SPREAD_MAX * usual);
        }
        let too_few = TooFew { left: cycles.len(), spoiled };
        if cycles.len() < CYCLES_MIN {
            return Err(too_few);
        }
        Self::from_cycles(left, &cycles, &begun, spoiled).ok_or(too_few)
    }

    fn from_cycles(left: Vec<f64>, cycles: &[&[Sample]], begun: &[&[Sample]], spoiled: usize) -> Option<Self> {
        let at =
            |point: usize| median(cycles.iter().map(|c| c[(c.len() - 1) * point / MEAN_CYCLE_POINTS].window).collect());
        Some(Self {
            left: median(left)?,
            segments: median(cycles.iter().map(|c| c[c.len() - 1].delivered - c[0].delivered).collect())?,
            pace: per_growth(begun),
            mean: (0..=MEAN_CYCLE_POINTS).map(at).collect::<Option<_>>()?,
            count: cycles.len(),
            spoiled,
        })
    }

    /// The area between two mean cycles, as a share of the area under this one.
    fn area(&self, other: &Self) -> f64 {
        let between: f64 = self.mean.iter().zip(&other.mean).map(|(a, b)| (a - b).abs()).sum();
        between / self.mean.iter().sum::<f64>()
    }
}

/// The part of a cycle in which the window is not yet [`BEGUN_SEGMENTS_MAX`] above its start; `None` if that is the whole cycle, or
/// if the window leaps.
fn cycle_beginning(cycle: &[Sample]) -> Option<&[Sample]> {
    let end = cycle.iter().position(|s| s.window > cycle[0].window + BEGUN_SEGMENTS_MAX)?;
    let begun = &cycle[..end];
    (begun[end - 1].window >= cycle[0].window + BEGUN_SEGMENTS_MAX / 2.0).then_some(begun)
}

/// Segments delivered per segment of window growth, over all of these parts.
fn per_growth(parts: &[&[Sample]]) -> f64 {
    let sum = |of: fn(&Sample) -> f64| -> f64 { parts.iter().map(|p| of(&p[p.len() - 1]) - of(&p[0])).sum() };
    sum(|s| s.delivered) / sum(|s| s.window)
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len() % 2 == 1 { upper } else { f64::midpoint(values[middle - 1], upper) })
}

/// A flow whose window grows from 20 segments to 40 in two seconds, again and again; no samples for 100 ms from each stall on.
fn sawtooth(stalls: &[u32]) -> Vec<Sample> {
    let ms = (0..30_000).step_by(10).filter(|ms| !stalls.iter().any(|at| (*at..at + 100).contains(ms)));
    ms.map(|ms| {
        let in_cycle = ms % 2100;
        let window = 20.0 + f64::from(in_cycle.min(2000) / 100);
        // Reduced for the last 100 ms of each cycle.
        Sample { ms, window, grows: in_cycle < 2000, delivered: f64::from(ms) }
    })
    .collect()
}

/// Without a guest: cycles with a stall do not count, and too few cycles are reported with the reason.
pub fn stalls_are_left_out() -> Result<()> {
    let clean = Cycles::new(&sawtooth(&[])).map_err(|few| anyhow::anyhow!("{few:?}"))?;
    ensure!(clean.spoiled == 0 && clean.count >= 12, "{clean}");
    let some = Cycles::new(&sawtooth(&[3000, 9000])).map_err(|few| anyhow::anyhow!("{few:?}"))?;
    ensure!(some.spoiled == 2 && some.count == clean.count - 2, "{some}");
    ensure!(clean.area(&some) < 1e-9 && (clean.segments - some.segments).abs() < 1e-9, "{clean}; {some}");
    let mut twice = sawtooth(&[]);
    append_flow(&mut twice, sawtooth(&[]));
    let twice = Cycles::new(&twice).map_err(|few| anyhow::anyhow!("{few:?}"))?;
    ensure!(twice.count == 2 * clean.count && twice.spoiled <= 1, "{twice}");
    ensure!(clean.area(&twice) < 1e-9 && (clean.segments - twice.segments).abs() < 1e-9, "{clean}; {twice}");
    let everywhere: Vec<u32> = (0..15).map(|n| n * 2100 + 500).collect();
    let none = Cycles::new(&sawtooth(&everywhere)).err();
    ensure!(none.as_ref().is_some_and(|few| few.left == 0 && few.spoiled >= 12), "{none:?}");
    let short = Cycles::new(&sawtooth(&[])[..300]).err();
    ensure!(short == Some(TooFew { left: 0, spoiled: 0 }), "{short:?}");
    Ok(())
}
