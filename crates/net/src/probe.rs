//! What TCP knows at each acknowledgement, through the tracepoint `tcp:tcp_probe` (net/ipv4/tcp_input.c,
//! tcp_rcv_established): one event for each packet that a connection receives.
//!
//! A trace instance of our own in tracefs, so that nobody else's tracing is disturbed: the clock is `boot`, as that of all
//! our times; the filter takes our sockets' cookies only, which are also what joins an event to its stream. Events come as
//! lines of text, whose form is the tracepoint's own (`events/tcp/tcp_probe/format`); a field that is missing is 0.
//!
//! **Uncertainty.** Times are cut to microseconds by the text. The kernel formats some hundred thousand lines a second at most: of faster
//! acknowledgements it overwrites the oldest, and says how many; that number is reported. The tracepoint fires before the
//! packet is processed, so the window is that before it.

use crate::tcp_info::TcpSample;
use bpf::tracefs;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What the buffer of each processor holds, KiB.
const BUFFER_KIB: &str = "8192";
/// Instances are called so, with the number of their process and one of their own.
const NAME: &str = "fathom-net-";
/// No more events are kept.
const MOST: usize = 1_000_000;

/// A trace instance under way; it is removed when this is dropped.
#[derive(Debug)]
pub struct Probe {
    dir: PathBuf,
    pipe: File,
    cookies: Vec<u64>,
    rest: Vec<u8>,
    /// The events so far, in order.
    pub acks: Vec<TcpSample>,
}

/// Why acknowledgements cannot be recorded, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The kernel's tracing is out of reach.
    #[error("tcp_probe: tracefs is not mounted or not accessible; as root: mount -t tracefs none /sys/kernel/tracing")]
    NoTracefs,
    /// The kernel does not tell.
    #[error("tcp_probe: this kernel has no tracepoint tcp:tcp_probe, or tracefs needs root")]
    NoTracepoint,
    /// Only root may have an instance.
    #[error("tcp_probe: a trace instance needs root; omit --tcp-probe, or run the sender as root")]
    NotRoot,
    /// Tracefs refused something.
    #[error("tcp_probe: cannot {doing}: {source}")]
    Io {
        /// What.
        doing: &'static str,
        /// Why.
        source: std::io::Error,
    },
}

/// Whether this end can do it.
///
/// # Errors
/// Why not, and what to do.
pub fn possible() -> Result<(), ProbeError> {
    place().map(drop)
}

fn place() -> Result<PathBuf, ProbeError> {
    let dir = tracefs::mounted().or_else(tracefs::own_mount).ok_or(ProbeError::NoTracefs)?;
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
    /// Begins to record the sockets of these cookies; the place of a cookie is its stream's number.
    ///
    /// # Errors
    /// As [`possible`], or what tracefs refused.
    pub fn start(cookies: Vec<u64>) -> Result<Self, ProbeError> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let instances = place()?.join("instances");
        sweep(&instances);
        let dir = instances.join(format!("{NAME}{}-{number}", std::process::id()));
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
            Ok(pipe) => Ok(Self { dir, pipe, cookies, rest: Vec::new(), acks: Vec::new() }),
            Err(e) => {
                let _ = fs::remove_dir(&dir);
                Err(refused("set up the trace instance", e))
            }
        }
    }

    /// Takes in what has come; call it every 100 ms or so.
    pub fn drain(&mut self) {
        let mut room = [0; 1 << 16];
        loop {
            match self.pipe.read(&mut room) {
                Ok(0) => return,
                Ok(n) => self.rest.extend_from_slice(&room[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return,
            }
            let whole = self.rest.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
            let lines: Vec<u8> = self.rest.drain(..whole).collect();
            for line in String::from_utf8_lossy(&lines).lines() {
                if let Some(ack) = parse(line, &self.cookies).filter(|_| self.acks.len() < MOST) {
                    self.acks.push(ack);
                }
            }
        }
    }

    /// Ends recording; gives the events, and how many the kernel overwrote.
    pub fn finish(mut self) -> (Vec<TcpSample>, u64) {
        let _ = fs::write(self.dir.join("events/tcp/tcp_probe/enable"), "0");
        // What was being written is there after a moment.
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
        // The pipe keeps the instance busy, so it must go first.
        if let Ok(none) = File::open("/dev/null") {
            drop(std::mem::replace(&mut self.pipe, none));
        }
        let _ = fs::remove_dir(&self.dir);
    }
}

/// Removes the instances of processes that were killed and could not.
fn sweep(instances: &Path) {
    for entry in fs::read_dir(instances).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|n| n.strip_prefix(NAME)?.split('-').next()?.parse::<u32>().ok());
        if number.is_some_and(|id| !Path::new(&format!("/proc/{id}")).exists()) {
            let _ = fs::write(entry.path().join("events/tcp/tcp_probe/enable"), "0");
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// An event from its line; `None` for any other line, or another's socket.
fn parse(line: &str, cookies: &[u64]) -> Option<TcpSample> {
    let (head, fields) = line.split_once(": tcp_probe: ")?;
    let (seconds, rest) = head.rsplit(' ').next()?.split_once('.')?;
    // The text has six digits of a second.
    let micros: u64 = rest.parse().ok().filter(|_| rest.len() == 6)?;
    let time_ns = seconds.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(micros)?.checked_mul(1000)?;
    let field = |name: &str| {
        let text = fields.split(' ').find_map(|f| f.strip_prefix(name)?.strip_prefix('='))?;
        match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        }
    };
    // The tracepoint writes it in hexadecimal without saying so.
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

    const LINE: &str = "          <idle>-0       [001] ..s1.  1234.000567: tcp_probe: family=AF_INET src=127.0.0.1:7100 dest=127.0.0.1:40000 mark=0x0 data_len=0 snd_nxt=0x2 snd_una=0x1 snd_cwnd=10 ssthresh=2147483647 snd_wnd=65536 srtt=25 rcv_wnd=65536 sock_cookie=1f skbaddr=0 skaddr=0";

    #[test]
    fn tcp_probe_line_is_parsed_for_its_stream() {
        let ack = parse(LINE, &[7, 31]).unwrap();
        assert_eq!((ack.time_ns, ack.stream, ack.cwnd), (1_234_000_567_000, 1, 10));
        assert_eq!((ack.srtt_us, ack.snd_wnd, ack.ssthresh), (25, 65_536, 2_147_483_647));
        assert_eq!(parse(LINE, &[7]), None);
        for cut in 0..LINE.len() {
            // Truncated lines do not panic.
            let _ = parse(&LINE[..cut], &[31]);
        }
    }

    #[test]
    #[ignore = "root: a trace instance"]
    fn every_acknowledgement_is_traced_and_instance_removed() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let cookie = socket2::SockRef::from(&client).cookie().unwrap();
        // As a killed process leaves it: no process has that id (kernel/pid.c, PID_MAX_LIMIT).
        let left = place().unwrap().join("instances").join(format!("{NAME}{}-0", 1 << 30));
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
