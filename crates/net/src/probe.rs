//! The TCP state at each acknowledgement, from the tracepoint `tcp:tcp_probe` (net/ipv4/tcp_input.c, tcp_rcv_established):
//! one event for each packet that a connection receives.
//!
//! A separate trace instance in tracefs leaves other users' tracing undisturbed: its clock is `boot`, as for all our
//! timestamps; its filter selects the cookies of our sockets, which also map an event to its stream. Events are lines of
//! text in the format of the tracepoint (`events/tcp/tcp_probe/format`); a missing field is 0.
//!
//! **Uncertainty.** The text truncates times to microseconds. The kernel formats at most some hundred thousand lines a
//! second: at higher acknowledgement rates it overwrites the oldest events; the number of lost events is reported. The
//! tracepoint fires before the packet is processed, so the window is the one before it.

use crate::tcp_info::TcpSample;
use bpf::tracefs;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The buffer size of each CPU, KiB.
const BUFFER_KIB: &str = "8192";
/// Prefix of the instance names, followed by the process id and a counter.
const INSTANCE_PREFIX: &str = "fathom-net-";
/// The maximum number of events kept.
pub const ACKS_MAX: usize = 1_000_000;

/// A running trace instance; dropping it removes the instance.
#[derive(Debug)]
pub struct Probe {
    dir: PathBuf,
    pipe: File,
    cookies: Vec<u64>,
    partial_line: Vec<u8>,
    /// The events so far, in order.
    pub acks: Vec<TcpSample>,
}

/// Why acknowledgements cannot be recorded, and how to fix it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The kernel's tracing is not accessible.
    #[error("tcp_probe: tracefs is not mounted or not accessible; as root: mount -t tracefs none /sys/kernel/tracing")]
    NoTracefs,
    /// The kernel has no such tracepoint.
    #[error("tcp_probe: this kernel has no tracepoint tcp:tcp_probe, or tracefs needs root")]
    NoTracepoint,
    /// A trace instance requires root.
    #[error("tcp_probe: a trace instance needs root; omit --tcp-probe, or run the sender as root")]
    NotRoot,
    /// A tracefs operation failed.
    #[error("tcp_probe: cannot {doing}: {source}")]
    Io { doing: &'static str, source: std::io::Error },
}

/// Checks whether this end can record acknowledgements.
///
/// # Errors
/// Why it cannot, and how to fix it.
pub fn check_support() -> Result<(), ProbeError> {
    tracefs_directory().map(drop)
}

fn tracefs_directory() -> Result<PathBuf, ProbeError> {
    let dir = tracefs::mount_point().or_else(tracefs::mount_privately).ok_or(ProbeError::NoTracefs)?;
    if !dir.join("events/tcp/tcp_probe").is_dir() {
        return Err(ProbeError::NoTracepoint);
    }
    // SAFETY: geteuid only reads.
    match unsafe { libc::geteuid() } {
        0 => Ok(dir),
        _ => Err(ProbeError::NotRoot),
    }
}

impl Probe {
    /// Starts recording the sockets with these cookies; the index of a cookie is its stream number.
    ///
    /// # Errors
    /// As [`check_support`], or tracefs operations that failed.
    pub fn start(cookies: Vec<u64>) -> Result<Self, ProbeError> {
        static NEXT_INSTANCE: AtomicU64 = AtomicU64::new(0);
        let number = NEXT_INSTANCE.fetch_add(1, Ordering::Relaxed);
        let instances = tracefs_directory()?.join("instances");
        remove_stale_instances(&instances);
        let dir = instances.join(format!("{INSTANCE_PREFIX}{}-{number}", std::process::id()));
        let refused = |doing, source| ProbeError::Io { doing, source };
        fs::create_dir(&dir).map_err(|e| refused("create a trace instance", e))?;
        let filter = cookies.iter().map(|c| format!("sock_cookie == {c}")).collect::<Vec<_>>().join(" || ");
        let set = || {
            fs::write(dir.join("trace_clock"), "boot")?;
            fs::write(dir.join("buffer_size_kb"), BUFFER_KIB)?;
            fs::write(dir.join("events/tcp/tcp_probe/filter"), &filter)?;
            let pipe = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(dir.join("trace_pipe"))?;
            fs::write(dir.join("events/tcp/tcp_probe/enable"), "1")?;
            Ok(pipe)
        };
        match set() {
            Ok(pipe) => Ok(Self { dir, pipe, cookies, partial_line: Vec::new(), acks: Vec::new() }),
            Err(e) => {
                let _ = fs::remove_dir(&dir);
                Err(refused("set up the trace instance", e))
            }
        }
    }

    /// Reads the available events; call it about every 100 ms.
    pub fn drain(&mut self) {
        let mut buffer = [0; 1 << 16];
        loop {
            match self.pipe.read(&mut buffer) {
                Ok(0) => return,
                Ok(n) => self.partial_line.extend_from_slice(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return,
            }
            let whole = self.partial_line.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
            let lines: Vec<u8> = self.partial_line.drain(..whole).collect();
            for line in String::from_utf8_lossy(&lines).lines() {
                if let Some(ack) = parse(line, &self.cookies).filter(|_| self.acks.len() < ACKS_MAX) {
                    self.acks.push(ack);
                }
            }
        }
    }

    /// Stops recording; returns the events, and how many the kernel overwrote.
    pub fn finish(mut self) -> (Vec<TcpSample>, u64) {
        let _ = fs::write(self.dir.join("events/tcp/tcp_probe/enable"), "0");
        // Events still being written are complete after a moment.
        std::thread::sleep(Duration::from_millis(5));
        self.drain();
        let overrun = |cpu: fs::DirEntry| {
            let stats = fs::read_to_string(cpu.path().join("stats")).ok()?;
            stats.lines().find_map(|l| l.strip_prefix("overrun: "))?.trim().parse::<u64>().ok()
        };
        let lost = fs::read_dir(self.dir.join("per_cpu")).into_iter().flatten().flatten().filter_map(overrun).sum();
        (std::mem::take(&mut self.acks), lost)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = fs::write(self.dir.join("events/tcp/tcp_probe/enable"), "0");
        // The open pipe keeps the instance busy, so it is closed first.
        if let Ok(none) = File::open("/dev/null") {
            drop(std::mem::replace(&mut self.pipe, none));
        }
        let _ = fs::remove_dir(&self.dir);
    }
}

/// Removes instances left behind by killed processes.
fn remove_stale_instances(instances: &Path) {
    for entry in fs::read_dir(instances).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number =
            name.to_str().and_then(|n| n.strip_prefix(INSTANCE_PREFIX)?.split('-').next()?.parse::<u32>().ok());
        if number.is_some_and(|id| !Path::new(&format!("/proc/{id}")).exists()) {
            let _ = fs::write(entry.path().join("events/tcp/tcp_probe/enable"), "0");
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Parses an event from a line; `None` for any other line, or a socket of another process.
fn parse(line: &str, cookies: &[u64]) -> Option<TcpSample> {
    let (head, fields) = line.split_once(": tcp_probe: ")?;
    let (seconds, rest) = head.rsplit(' ').next()?.split_once('.')?;
    // The text has six decimals.
    let micros: u64 = rest.parse().ok().filter(|_| rest.len() == 6)?;
    let time_ns = seconds.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(micros)?.checked_mul(1000)?;
    let field = |name: &str| {
        let text = fields.split(' ').find_map(|f| f.strip_prefix(name)?.strip_prefix('='))?;
        match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        }
    };
    // The tracepoint writes the cookie in hexadecimal without a prefix.
    let cookie = fields.split(' ').find_map(|f| f.strip_prefix("sock_cookie="))?;
    let cookie = u64::from_str_radix(cookie, 16).ok()?;
    let stream = cookies.iter().position(|c| *c == cookie)? as u64;
    Some(TcpSample {
        time_ns,
        stream,
        cwnd: field("snd_cwnd").unwrap_or(0),
        ssthresh: field("ssthresh").unwrap_or(0),
        snd_wnd: field("snd_wnd").unwrap_or(0),
        srtt_us: field("srtt").unwrap_or(0),
        ..TcpSample::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    const EVENT_LINE: &str = "          <idle>-0       [001] ..s1.  1234.000567: tcp_probe: family=AF_INET src=127.0.0.1:7100 dest=127.0.0.1:40000 mark=0x0 data_len=0 snd_nxt=0x2 snd_una=0x1 snd_cwnd=10 ssthresh=2147483647 snd_wnd=65536 srtt=25 rcv_wnd=65536 sock_cookie=1f skbaddr=0 skaddr=0";

    #[test]
    fn tcp_probe_line_is_parsed_for_its_stream() {
        let ack = parse(EVENT_LINE, &[7, 31]).unwrap();
        assert_eq!((ack.time_ns, ack.stream, ack.cwnd), (1_234_000_567_000, 1, 10));
        assert_eq!((ack.srtt_us, ack.snd_wnd, ack.ssthresh), (25, 65_536, 2_147_483_647));
        assert_eq!(parse(EVENT_LINE, &[7]), None);
        for cut in 0..EVENT_LINE.len() {
            // Truncated lines do not panic.
            let _ = parse(&EVENT_LINE[..cut], &[31]);
        }
    }

    #[test]
    #[ignore = "root: a trace instance"]
    fn acknowledgements_are_traced_and_the_instance_is_removed() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let cookie = socket2::SockRef::from(&client).cookie().unwrap();
        // A leftover of a killed process: no process has that id (kernel/pid.c, PID_MAX_LIMIT).
        let left = tracefs_directory().unwrap().join("instances").join(format!("{INSTANCE_PREFIX}{}-0", 1 << 30));
        fs::create_dir(&left).unwrap();
        let mut probe = Probe::start(vec![cookie]).unwrap();
        assert!(!left.exists());
        let before = crate::clock::now_ns();
        let mut byte = [0];
        for _ in 0..50 {
            client.write_all(b"x").unwrap();
            server.read_exact(&mut byte).unwrap();
            server.write_all(b"y").unwrap();
            client.read_exact(&mut byte).unwrap();
            probe.drain();
        }
        let dir = probe.dir.clone();
        let (acks, lost) = probe.finish();
        assert!(acks.len() >= 50 && lost == 0, "{} {lost}", acks.len());
        assert!(
            acks.iter().all(|a| a.cwnd >= 10 && a.time_ns + 1_000_000 > before && a.time_ns < crate::clock::now_ns())
        );
        assert!(!dir.exists());
    }
}
