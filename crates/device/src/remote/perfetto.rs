//! An Android device's own Perfetto: configures it, and fetches its trace. A shell may use it without root; its service
//! reads ftrace with its own permissions, and the framework's atrace category `database` contains SQL statements.
//!
//! The configuration is passed on standard input and the trace is written below /data/misc/perfetto-traces: SELinux lets
//! both the service and the shell access it (perfetto.dev, "Android: using the cmdline"). The service silently omits events
//! that a kernel lacks.

use super::adb::{AdbServer, AdbSync};
use super::agent::now_ns;
use super::link::{Skew, skew};
use super::patience::{SILENCE_TIMEOUT, run_in_thread};
use super::pipe::{Ending, LossCause, Pipe};
use super::read::read_some;
use super::transport;
use super::{DeviceAddress, Unreachable};
use model::Context;
use model::text::ShownPath as _;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A directory that the service may write and a shell may read.
const TRACE_DIRECTORY: &str = "/data/misc/perfetto-traces";
/// The maximum size of a trace, bytes.
const TRACE_BYTES_MAX: u64 = 4 << 30;
/// Checks whether it can record at all, before waiting for it. Without the service the property is unknown except to init:
/// then it is tried.
const CHECK_SCRIPT: &str = "command -v perfetto >/dev/null || { echo 'no perfetto on this device: Android 9 or newer has it' >&2; exit 1; }; \
    case $(getprop init.svc.traced 2>/dev/null) in stopped|stopping) \
    echo 'the tracing service of its Perfetto is stopped: adb shell setprop persist.traced.enable 1' >&2; exit 1;; esac";
/// How long the service may take in addition to the recording: it starts atrace, and flushes at the end.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The number of clock exchanges.
const CLOCK_EXCHANGES: usize = 4;
const HUNDREDTH_NS: u64 = 10_000_000;
/// The maximum output that is kept, bytes.
const OUTPUT_BYTES_KEPT: usize = 8192;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The trace's name there, unique across hosts.
    pub name: String,
    pub duration: Duration,
    /// The trace ends at this size, bytes.
    pub max_bytes: Option<u64>,
}

/// Events of the layers supported by the importer. The service expands groups with `*`.
const FTRACE_EVENTS: &[&str] = &[
    "block/*",
    "ext4/*",
    "f2fs/*",
    "jbd2/*",
    "ufs/*",
    "scsi/*",
    "mmc/*",
    "fs/*",
    "sched/sched_switch",
    "sched/sched_wakeup",
    "sched/sched_process_exit",
    "task/task_newtask",
    "task/task_rename",
    "raw_syscalls/*",
];

impl Config {
    /// Formats the text form of TraceConfig (protos/perfetto/config/trace_config.proto).
    pub fn text(&self) -> String {
        let mut text = format!(
            "duration_ms: {}\nwrite_into_file: true\nfile_write_period_ms: 2500\nflush_period_ms: 5000\nmax_file_size_bytes: {}\n\
             buffers {{ size_kb: 65536 fill_policy: RING_BUFFER }}\nbuffers {{ size_kb: 4096 fill_policy: RING_BUFFER }}\n\
             data_sources {{ config {{ name: \"linux.ftrace\" target_buffer: 0 ftrace_config {{\n",
            self.duration.as_millis().max(1),
            self.max_bytes.unwrap_or(TRACE_BYTES_MAX).min(TRACE_BYTES_MAX),
        );
        for event in FTRACE_EVENTS {
            let _ = writeln!(text, "  ftrace_events: \"{event}\"");
        }
        text.push_str(
            "  atrace_categories: \"database\"\n  atrace_apps: \"*\"\n  buffer_size_kb: 16384\n  drain_period_ms: 250\n} } }\n\
             data_sources { config { name: \"linux.process_stats\" target_buffer: 1 process_stats_config { scan_all_processes_on_start: true } } }\n\
             data_sources { config { name: \"linux.system_info\" target_buffer: 1 } }\n",
        );
        text
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trace {
    pub bytes: u64,
    /// The offset of the device's clock to this machine's at the beginning of the recording, and after its end.
    pub clocks: [Option<Skew>; 2],
}

/// Records on a device into a file here, until the time is over or `context` is cancelled. The trace is removed from the device.
///
/// # Errors
/// The device, its perfetto, or the file here failed: a sentence that suggests a remedy.
pub fn record(
    place: &DeviceAddress,
    config: &Config,
    file: &Path,
    context: &Context,
    told: &mut dyn FnMut(String),
) -> Result<Trace, Unreachable> {
    let place = &transport::look_up(place, context)?;
    let fail = |why: String| Unreachable::new(place, why);
    let DeviceAddress::Adb(Some(serial)) = place else { return Err(fail("it is not an Android device".into())) };
    transport::run(place, CHECK_SCRIPT, None, context, "tell whether its perfetto can record")?;
    let there = format!("{TRACE_DIRECTORY}/fathom-{}.pftrace", config.name);
    // Reported before anything is recorded.
    let part = file.with_extension("pftrace.part");
    let out = File::create(&part).map_err(|e| fail(format!("cannot write {}: {e}", file.shown())))?;
    let first = measure_skew(place, context);
    told(format!("{place}: recording by its perfetto for {} s", config.duration.as_secs_f64()));
    let recorded = run_trace(place, config, &there, context).map_err(|why| (why, false));
    if recorded.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    let last = measure_skew(place, context);
    let pulled = recorded.and_then(|()| pull(place, serial, &there, out, [&part, file]).map_err(|why| (why, true)));
    match pulled {
        // A recorded trace is not discarded if it cannot be stored here.
        Err((why, true)) => {
            let pull = format!("adb -s {serial} pull {there}");
            Err(fail(format!("{}; the trace is still on the device: `{pull}` fetches it", why.why)))
        }
        done => {
            // If the device is still reachable.
            if let Err(error) = transport::run(
                place,
                &format!("rm -f {}", child::quoted(&there)),
                None,
                &Context::silent(),
                "remove the trace",
            ) {
                told(format!("{there} could not be removed from the device: {error}"));
            }
            done.map(|bytes| Trace { bytes, clocks: [first, last] }).map_err(|(why, _)| why)
        }
    }
}

/// Its clock offset, from its /proc/uptime, which is CLOCK_BOOTTIME: no program of ours is there to respond with a higher precision.
fn measure_skew(place: &DeviceAddress, context: &Context) -> Option<Skew> {
    let one = |_| {
        let asked = now_ns();
        let said = transport::run(place, "cat /proc/uptime", None, context, "tell its time").ok()?;
        let exchange = skew(asked, uptime(&said)?, now_ns());
        Some(Skew { error_ns: exchange.error_ns + HUNDREDTH_NS / 2, ..exchange })
    };
    // A device that leaves one unanswered is not asked again.
    (0..CLOCK_EXCHANGES).map_while(one).min_by_key(|exchange| exchange.error_ns)
}

/// The middle of the hundredth of a second shown by /proc/uptime, ns.
fn uptime(said: &[u8]) -> Option<u64> {
    let (seconds, hundredths) = std::str::from_utf8(said).ok()?.split_whitespace().next()?.split_once('.')?;
    let (seconds, hundredths): (u64, u64) = (seconds.parse().ok()?, hundredths.parse().ok().filter(|h| *h < 100)?);
    seconds.checked_mul(100)?.checked_add(hundredths)?.checked_mul(HUNDREDTH_NS)?.checked_add(HUNDREDTH_NS / 2)
}

/// Fetches the trace into a temporary file, and renames it when it is complete; an existing file is kept until then.
fn pull(
    place: &DeviceAddress,
    serial: &str,
    there: &str,
    mut out: File,
    [part, file]: [&Path; 2],
) -> Result<u64, Unreachable> {
    let cannot = |e: std::io::Error| Unreachable::new(place, format!("cannot write {}: {e}", file.shown()));
    let sync = AdbSync::open(&AdbServer::from_environment(), serial);
    let pulled = sync
        .and_then(|mut sync| sync.pull(there, &mut out, TRACE_BYTES_MAX))
        .map_err(|e| transport::adb_error(place, &e));
    let kept = pulled.and_then(|bytes| std::fs::rename(part, file).map(|()| bytes).map_err(cannot));
    if kept.is_err() {
        let _ = std::fs::remove_file(part);
    }
    kept
}

fn run_trace(place: &DeviceAddress, config: &Config, there: &str, context: &Context) -> Result<(), Unreachable> {
    let Pipe { to, from, complaints, mut life } = transport::open(place, &command_line(config, there), context)?;
    let broken = |e: std::io::Error| Unreachable::new(place, LossCause::from_error(&e).to_string());
    let first = move || {
        let (mut from, mut number) = (BufReader::new(from), String::new());
        (&mut from).take(100).read_line(&mut number).map(|_| (from, number))
    };
    let started = run_in_thread(place, SILENCE_TIMEOUT, context, &format!("{place} to start its perfetto"), first);
    let (from, number) = started.inspect_err(|_| life.kill())?.map_err(broken)?;
    let number: Option<u32> = number.trim().parse().ok();
    // Both are read concurrently: neither fills the memory, nor can a full pipe block it.
    let (out, err) = (keep_tail(from), keep_tail(complaints));
    let (begun, mut asked) = (Instant::now(), None::<Instant>);
    let ending = loop {
        if let Some(ending) = life.wait(POLL_INTERVAL) {
            break ending;
        }
        let past = begun.elapsed().as_secs();
        context.progress(&format!("recording on {place}, {past} of {} s", config.duration.as_secs()), 0, 0);
        if context.cancelled() && asked.is_none() {
            asked = Some(Instant::now());
            if let Some(number) = number {
                // It is interrupted already; this is what ends it.
                transport::run(place, &format!("kill -TERM {number}"), None, &Context::silent(), "stop its perfetto")?;
            }
        }
        if asked.is_some_and(|since| since.elapsed() > STOP_TIMEOUT) || begun.elapsed() > config.duration + STOP_TIMEOUT
        {
            life.kill();
            break Ending::Lost(LossCause::Other("its perfetto did not stop".into()));
        }
    };
    context.clear_progress();
    drop(to);
    let said = [out, err].map(|hearing| hearing.join().unwrap_or_default()).concat();
    let said = String::from_utf8_lossy(&said);
    match ending {
        Ending::Exit(0) => Ok(()),
        Ending::Exit(_) if asked.is_some() => Ok(()),
        Ending::Exit(status) => Err(Unreachable::new(
            place,
            transport::explain(&said, &LossCause::Other(format!("its perfetto ended with status {status}"))),
        )),
        Ending::Lost(why) => Err(Unreachable::new(place, transport::explain(&said, &why))),
    }
}

/// The command line for the device's shell. It first prints the PID of perfetto, so that it can be stopped: a shell's
/// stream carries no signals. The shell's input is empty, and ends with the connection or with this program: then the trace
/// will not be fetched, so perfetto is stopped (it treats SIGTERM like Ctrl-C; in the background a shell makes it ignore
/// SIGINT), and its output file is removed. The configuration is not a here-document, which needs a directory for temporary
/// files on Android.
fn command_line(config: &Config, there: &str) -> String {
    let (config, there, most) = (child::quoted(&config.text()), child::quoted(there), STOP_TIMEOUT.as_secs());
    format!(
        "exec 3<&0; echo {config} | perfetto --txt -c - -o {there} 3<&- & p=$!; echo $p; \
         {{ read -r x <&3; trap '' TERM HUP; kill -TERM $p; n=0; \
         while kill -0 $p && [ $n -lt {most} ]; do sleep 1; n=$((n + 1)); done; rm -f {there}; }} >/dev/null 2>&1 & w=$!; \
         wait $p; s=$?; kill $w 2>/dev/null; exit $s"
    )
}

/// Reads all output, and keeps the last part, which contains the reason.
fn keep_tail(mut from: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let (mut said, mut buffer) = (Vec::new(), [0; 4096]);
        while let Some(got) = read_some(&mut from, &mut buffer).ok().filter(|got| *got > 0) {
            said.extend_from_slice(&buffer[..got]);
            if said.len() > 2 * OUTPUT_BYTES_KEPT {
                said.drain(..said.len() - OUTPUT_BYTES_KEPT);
            }
        }
        said
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_names_events_and_limits() {
        let duration = Duration::from_millis(1500);
        let text = Config { name: "t".into(), duration, max_bytes: Some(1 << 20) }.text();
        for part in
            ["duration_ms: 1500\n", "max_file_size_bytes: 1048576\n", "\"ext4/*\"", "atrace_categories: \"database\""]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(text.matches('{').count(), text.matches('}').count(), "{text}");
    }

    #[test]
    fn uptime_is_hundredths_of_seconds() {
        assert_eq!(uptime(b"12.34 56.78\n"), Some(12_345_000_000));
        assert_eq!(uptime(b"0.00 0.00\r\n"), Some(5_000_000));
        for other in [&b""[..], b"12", b"x.34 1", b"12.345 1", b"\xff.00 1", b"99999999999999999999.00 1"] {
            assert_eq!(uptime(other), None, "{other:?}");
        }
    }
}
