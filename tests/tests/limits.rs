//! Bottleneck identification: a limit is injected, and the first cause that `fathom net run` names must be that one.
//!
//! Each limit is run a few times ([`RUN_COUNT`] by default; `FATHOM_RUNS=20` for the table of the manual), each over an emulated link
//! of its own kind, and must be named correctly in 19 of 20 runs, or in all but one of fewer; by default, no more runs are made
//! once that is reached. All traffic is in namespaces that the program creates.
//!
//! A run is repeated for one reason only, whatever cause it named: the host was CPU-starved during the run ([`Pulse`]), which
//! is a limit other than the injected one. If too few runs are left, the test prints SKIP with the number of usable runs.

use anyhow::{Context, Result, ensure};
use fathom_tests::{Case, fathom, installed, root, run, run_suite};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How often each limit is injected.
const RUN_COUNT: usize = 2;
/// Seconds of a run.
const RUN_SECONDS: f64 = 1.0;
/// A process that only sleeps for 10 ms at a time and wakes up this late, s, found no processor, or its machine was
/// stalled.
const WAKEUP_DELAY_S_MAX: f64 = 0.15;
/// That process needs next to no processor time; if it waited for a processor for this share of a run, others used all of them.
/// Less than the share at which the program names the processor, since it is another thread that waits here.
const WAIT_SHARE_MAX: f64 = 0.15;
/// How often void runs are repeated.
const ROUNDS_MAX: usize = 4;

/// Drops everything above 10 Mb/s, in netfilter, which shares no code with the emulated link.
const POLICER_SCRIPT: &str = "nft add table inet fathom; nft add chain inet fathom in \"{ type filter hook input priority 0; }\"; \
    nft add rule inet fathom in tcp dport 7100 limit rate over 1250 kbytes/second burst 32 kbytes drop";
/// Plain sockets: one receives everything, the other sends as fast as it can.
const RECEIVER_COMMAND: &str = "python3 -c 'import socket
s = socket.create_server((\"0.0.0.0\", 7200))
print(1, flush=True)
c = s.accept()[0]
while c.recv(1 << 16): pass' > others & until [ -s others ]; do sleep 0.05; done";
const SENDER_SCRIPT: &str = "import os, socket
c = socket.create_connection((os.environ[\"FATHOM_LINK_SERVER\"], 7200))
while True: c.sendall(bytes(1 << 16))";

/// A limit.
struct InjectedLimit {
    /// What `limited_by` must begin with.
    cause: &'static str,
    link: &'static [&'static str],
    /// Command prefix of the server.
    serve: String,
    /// Arguments of `net run`.
    run: &'static [&'static str],
    /// Shell command that runs in the background; `$serve` is the server.
    background: String,
    /// Shell command that runs at the server before it starts.
    before: &'static str,
    seconds: f64,
}

impl Default for InjectedLimit {
    fn default() -> Self {
        // 20 ms of round trip; no rate, so that only the injected limit limits a run.
        let link = &["--delay", "10ms"];
        Self {
            cause: "",
            link,
            serve: String::new(),
            run: &[],
            background: String::new(),
            before: "",
            seconds: RUN_SECONDS,
        }
    }
}

fn main() -> ExitCode {
    let bed = || installed("ip").and_then(|()| possible());
    let cases: Vec<Case> = vec![
        ("small_receive_buffer_is_receive_window", bed(), || {
            named(InjectedLimit { cause: "receive_window", run: &["--rcvbuf", "32K"], ..InjectedLimit::default() })
        }),
        ("small_send_buffer_is_send_buffer", bed(), || {
            named(InjectedLimit { cause: "send_buffer", run: &["--sndbuf", "32K"], ..InjectedLimit::default() })
        }),
        ("one_percent_loss_is_congestion", bed(), || {
            // With a congestion control that reacts to loss, whatever this machine's default: BBR ignores it, and the link's
            // own speed is the limit.
            let (link, run) = (&["--delay", "10ms", "--loss", "1%"], &["--cc", "cubic"]);
            named(InjectedLimit { cause: "congestion", link, run, ..InjectedLimit::default() })
        }),
        ("slow_link_is_link_rate", bed(), || {
            named(InjectedLimit {
                cause: "link_rate",
                link: &["--delay", "10ms", "--rate", "10mbit", "--queue", "100"],
                ..InjectedLimit::default()
            })
        }),
        ("udp_above_link_rate_is_link_rate", bed(), || {
            // The queue holds everything, so that nothing is lost.
            named(InjectedLimit {
                cause: "link_rate",
                link: &["--delay", "10ms", "--rate", "10mbit", "--queue", "1000"],
                run: &["--udp", "--rate", "10500K"],
                ..InjectedLimit::default()
            })
        }),
        ("udp_below_link_rate_is_application", bed(), || {
            named(InjectedLimit {
                cause: "application",
                link: &["--delay", "10ms", "--rate", "10mbit", "--queue", "1000"],
                run: &["--udp", "--rate", "8M"],
                ..InjectedLimit::default()
            })
        }),
        ("bursty_writer_is_application", bed(), || {
            named(InjectedLimit { cause: "application", run: &["--rate", "10M"], ..InjectedLimit::default() })
        }),
        ("policer_with_cubic_is_policer", bed().and_then(|()| installed("nft")), || {
            // The kernel's own token bucket, of a second: it passes the first packets, and then drops everything above 10 Mb/s.
            let (link, run) = (&["--delay", "10ms", "--gso", "off"], &["--cc", "cubic"]);
            named(InjectedLimit {
                cause: "policer",
                link,
                run,
                before: POLICER_SCRIPT,
                seconds: 4.0,
                ..InjectedLimit::default()
            })
        }),
        ("policer_with_bbr_is_policer", bed().and_then(|()| installed("nft")).and_then(|()| bbr()), || {
            let (link, run) = (&["--delay", "10ms", "--gso", "off"], &["--cc", "bbr"]);
            named(InjectedLimit {
                cause: "policer",
                link,
                run,
                before: POLICER_SCRIPT,
                seconds: 4.0,
                ..InjectedLimit::default()
            })
        }),
        ("queue_of_four_packets_is_a_shallow_buffer", bed(), || {
            let (link, run) = (&["--delay", "10ms", "--rate", "10mbit", "--queue", "4"], &["--cc", "cubic"]);
            named(InjectedLimit { cause: "shallow_buffer", link, run, seconds: 5.0, ..InjectedLimit::default() })
        }),
        ("other_flows_on_link_are_competing_traffic", bed().and_then(|()| installed("python3")), || {
            let (link, run) = (&["--delay", "10ms", "--rate", "20mbit", "--queue", "100"], &["--cc", "cubic"]);
            let background = format!("exec python3 -c '{SENDER_SCRIPT}'");
            named(InjectedLimit {
                cause: "competing_traffic",
                link,
                run,
                background,
                before: RECEIVER_COMMAND,
                seconds: 2.0,
                ..InjectedLimit::default()
            })
        }),
        ("serial_requests_are_round_trips", bed(), || {
            named(InjectedLimit { cause: "round_trips", run: &["--transactions"], ..InjectedLimit::default() })
        }),
        ("pausing_receiver_is_application", bed(), || {
            // Its buffer holds the data of 20 ms; it is stopped for 200.
            let background = "while :; do sleep 0.05; kill -STOP $serve; sleep 0.2; kill -CONT $serve; done".into();
            named(InjectedLimit {
                cause: "application",
                background,
                run: &["--rcvbuf", "256K"],
                ..InjectedLimit::default()
            })
        }),
        ("starved_receiver_is_cpu", bed().and_then(|()| installed("taskset")), || {
            // A weight of 15 against about a thousand (sched(7)).
            let (serve, background) =
                ("taskset -c 0 nice -n 19".into(), "taskset -c 0 sh -c 'while :; do :; done'".into());
            let link = &["--delay", "2ms"];
            named(InjectedLimit { cause: "cpu", link, serve, background, run: &["--copy"], ..InjectedLimit::default() })
        }),
        ("receiver_with_cpu_quota_is_cpu", bed().and_then(|()| root()).and_then(|()| quota()), || {
            let group = Group::create(2)?;
            // The shell joins the group and then execs the program.
            let serve = format!("sh -c 'echo $$ > {}/cgroup.procs; exec \"$@\"' sh", group.0.display());
            named(InjectedLimit {
                cause: "cpu",
                link: &["--delay", "2ms"],
                serve,
                run: &["--copy"],
                ..InjectedLimit::default()
            })
        }),
    ];
    run_suite(cases)
}

/// Whether a link can be created here, or why not.
fn possible() -> Result<(), String> {
    let output = Command::new(fathom()).args(["net", "link", "--", "true"]).output().map_err(|e| e.to_string())?;
    output.status.success().then_some(()).ok_or_else(|| String::from_utf8_lossy(&output.stderr).trim().to_string())
}

/// Injects the limit, and counts how often it was named correctly.
fn named(limit: InjectedLimit) -> Result<()> {
    let asked = std::env::var("FATHOM_RUNS").ok().and_then(|n| n.parse().ok());
    let runs = asked.unwrap_or(RUN_COUNT);
    // For the table, all runs are made.
    let needed = asked.unwrap_or(runs - runs.div_ceil(20));
    let pulse = Pulse::start();
    let (mut right, mut made, mut void) = (0, 0, 0);
    for _ in 0..ROUNDS_MAX {
        let over = made_over_a_link(&limit, (needed - right).min(runs - made))?;
        for (begin, end, limits) in over.runs {
            let right_name = limits[0]["cause"] == limit.cause;
            // A link that was late still has the injected limit, but may have another one, too.
            let too_late = over.too_late.clone().filter(|_| !right_name);
            if let Some(why) = pulse.missed(begin, end)?.or(too_late) {
                void += 1;
                println!("void, whatever it named: {why}");
                continue;
            }
            made += 1;
            if right_name {
                right += 1;
            } else {
                println!("run {made}, not {}: {limits:#}", limit.cause);
            }
        }
        if right >= needed || made == runs {
            break;
        }
    }
    println!("{}: named right in {right} of {made} runs, {void} were void", limit.cause);
    if right < needed && made < runs {
        // A limit that was not in effect cannot be named: that is no evidence against the program.
        println!("SKIP {}: {void} runs were void, since this machine had no time for anybody", limit.cause);
    }
    ensure!(right + made.div_ceil(20) >= made, "{right} of {made} runs were named right");
    Ok(())
}

/// Runs over one link.
struct OverLink {
    /// When each run began and ended, s since the machine was started, and its reported limit.
    runs: Vec<(f64, f64, Value)>,
    /// Why the link was not the requested one, if it reports that.
    too_late: Option<String>,
}

/// Makes this many runs over one link.
fn made_over_a_link(limit: &InjectedLimit, runs: usize) -> Result<OverLink> {
    let directory = tempfile::tempdir()?;
    let (at, program) = (directory.path().display(), fathom());
    let program = program.display();
    run(Command::new(fathom()).args(["pool", "keygen"]).arg(directory.path().join("key")))?;
    let key = format!("--key {at}/key");
    let (serve, words) = (&limit.serve, limit.run.join(" "));
    let background = match limit.background.as_str() {
        "" => "true",
        words => words,
    };
    let (before, seconds) = (limit.before, limit.seconds);
    std::fs::write(directory.path().join("before"), before)?;
    let script = format!(
        "$FATHOM_LINK_ENTER_SERVER sh -c 'cd {at}; . ./before'
         $FATHOM_LINK_ENTER_SERVER {serve} {program} net serve --listen $FATHOM_LINK_SERVER:7100 {key} >{at}/served & serve=$!
         until [ -s {at}/served ]; do sleep 0.05; done
         ({background}) & background=$!
         for i in $(seq {runs}); do
             read -r up idle </proc/uptime; echo $up >{at}/$i.times
             {program} net run $FATHOM_LINK_SERVER:7100 {key} --json --duration {seconds} {words} >{at}/$i.json
             read -r up idle </proc/uptime; echo $up >>{at}/$i.times
         done
         kill $background; kill -CONT $serve; kill $serve; true"
    );
    let mut link = Command::new(fathom());
    link.args(["net", "link", "--json"]).args(limit.link).args(["--", "sh", "-c", &script]).stdin(Stdio::null());
    let output = link.output()?;
    let report: Value =
        serde_json::from_slice(&output.stdout).with_context(|| format!("the link's report: {output:?}"))?;
    let messages = String::from_utf8_lossy(&output.stderr);
    let one = |i: usize| -> Result<_> {
        let value = parsed(&directory.path().join(format!("{i}.json"))).with_context(|| messages.to_string())?;
        let times = std::fs::read_to_string(directory.path().join(format!("{i}.times")))?;
        let (begin, end) = times.trim().split_once('\n').context("no times")?;
        Ok((begin.parse()?, end.parse()?, value["limited_by"].clone()))
    };
    let runs = (1..=runs).map(one).collect::<Result<_>>()?;
    let too_late = (report["valid"] == false).then(|| format!("the emulated link: {}", report["invalid_because"]));
    Ok(OverLink { runs, too_late })
}

/// Notes when this machine had no time for a process that needs next to none.
struct Pulse {
    beats: Arc<Mutex<Vec<Sleep>>>,
    stop: Arc<AtomicBool>,
}

/// A sleep: when it began and ended, s since the machine was started, and how much of it was spent waiting for a
/// processor.
struct Sleep {
    from: f64,
    to: f64,
    waited: f64,
}

impl Pulse {
    fn start() -> Self {
        let pulse = Self { beats: Arc::default(), stop: Arc::default() };
        let (beats, stop) = (pulse.beats.clone(), pulse.stop.clone());
        std::thread::spawn(move || {
            let mut before = (uptime(), waited());
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(10));
                let now = (uptime(), waited());
                if let Ok(mut beats) = beats.lock() {
                    beats.push(Sleep { from: before.0, to: now.0, waited: now.1 - before.1 });
                }
                before = now;
            }
        });
        pulse
    }

    /// Why a measurement between these times was limited by something other than the injected limit, if it was.
    fn missed(&self, begin: f64, end: f64) -> Result<Option<String>> {
        let beats = self.beats.lock().map_err(|_| anyhow::anyhow!("the pulse's thread died"))?;
        let within = |beat: &Sleep| (beat.to.min(end) - beat.from.max(begin)).max(0.0);
        let late: f64 = beats.iter().filter(|beat| beat.to - beat.from > WAKEUP_DELAY_S_MAX).map(within).sum();
        let waited: f64 = beats.iter().filter(|beat| within(beat) > 0.0).map(|beat| beat.waited).sum();
        Ok(if late > 0.0 {
            Some(format!("for {late:.2} s of the run this machine had no time for anybody"))
        } else if waited > WAIT_SHARE_MAX * (end - begin) {
            let share = 100.0 * waited / (end - begin);
            Some(format!("a process that only sleeps waited for a processor for {share:.0} % of the run"))
        } else {
            None
        })
    }
}

/// How long the calling thread has waited for a processor so far, s.
fn waited() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').nth(1).and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Seconds since the machine was started.
fn uptime() -> f64 {
    let text = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    text.split(' ').next().and_then(|s| s.parse().ok()).unwrap_or(0.0)
}

/// Whether this kernel has BBR.
fn bbr() -> Result<(), String> {
    let path = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let all = std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
    all.split_whitespace().any(|name| name == "bbr").then_some(()).ok_or_else(|| format!("no bbr in {path}"))
}

fn parsed(path: &Path) -> Result<Value> {
    Ok(serde_json::from_slice(&std::fs::read(path)?)?)
}

/// Whether a control group can be given a quota here.
fn quota() -> Result<(), String> {
    Group::create(50).map(drop).map_err(|e| format!("no quota of processor time can be set: {e:#}"))
}

/// A control group with this many percent of a processor, removed when dropped.
struct Group(PathBuf);

impl Group {
    fn create(percent: u64) -> Result<Self> {
        // Version 1 has a hierarchy for the cpu controller; version 2 has one for all.
        let one = Path::new("/sys/fs/cgroup/cpu");
        let root = if one.exists() { one } else { Path::new("/sys/fs/cgroup") };
        let dir = root.join(format!("fathom-limits-{}-{percent}", std::process::id()));
        std::fs::create_dir(&dir).with_context(|| dir.display().to_string())?;
        let group = Self(dir);
        let (period_us, quota_us) = (100_000, percent * 1000);
        if one.exists() {
            std::fs::write(group.0.join("cpu.cfs_period_us"), period_us.to_string())?;
            std::fs::write(group.0.join("cpu.cfs_quota_us"), quota_us.to_string())?;
        } else {
            // The controller may be enabled for children already.
            let _ = std::fs::write(root.join("cgroup.subtree_control"), "+cpu");
            std::fs::write(group.0.join("cpu.max"), format!("{quota_us} {period_us}"))?;
        }
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The last process in the group may take a moment to exit.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}
