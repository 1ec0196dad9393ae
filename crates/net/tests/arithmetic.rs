//! The algorithms' arithmetic, compiled natively from the headers of the BPF programs: compared to the formulas of the
//! papers in floating point, and properties for extreme numbers (undefined behaviour and overflow trap).

use proptest::prelude::*;
use std::ffi::{CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

const BIC: i32 = 0;
const HTCP: i32 = 1;
const WESTWOOD: i32 = 2;

/// The layout of `struct flow` in flow.h.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Flow {
    cwnd: u32,
    credit: u32,
    ssthresh: u32,
    clamp: u32,
    mss: u32,
    delivered: u32,
    now_us: u64,
}

type State = [u64; 13];

#[derive(Clone, Copy)]
struct Native {
    start: unsafe extern "C" fn(i32, *mut State, *mut Flow),
    acked: unsafe extern "C" fn(i32, *mut State, *mut Flow, u32, i32, u32),
    loss: unsafe extern "C" fn(i32, *mut State, *mut Flow) -> u32,
    resumed: unsafe extern "C" fn(i32, *mut State, *mut Flow),
    timeout: unsafe extern "C" fn(i32, *mut State),
    step_of_bic: unsafe extern "C" fn(u32, u32) -> u64,
    alpha_of_htcp: unsafe extern "C" fn(u64, u32, u32) -> u32,
    rate_of_westwood: unsafe extern "C" fn(*const State) -> u64,
}

/// Compiles the headers once and loads them into this process.
fn native() -> Native {
    static NATIVE: OnceLock<Native> = OnceLock::new();
    *NATIVE.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let library = directory.path().join("cc.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/native.c");
        let trap = ["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"];
        let options = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o"];
        let done = Command::new("cc").args(trap).args(options).arg(&library).arg(source).output().expect("cc");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let path = CString::new(library.as_os_str().as_bytes()).expect("no NUL in it");
        // SAFETY: the library was just built, runs no code when it is loaded, and is never unloaded.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null(), "dlopen");
        let find = |name: &str| -> *mut c_void {
            let name = CString::new(name).expect("no NUL in it");
            // SAFETY: the handle is open.
            let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
            assert!(!found.is_null(), "{name:?}");
            found
        };
        // SAFETY: the functions have these types in native.c.
        unsafe {
            Native {
                start: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(i32, *mut State, *mut Flow)>(find(
                    "start",
                )),
                acked: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(i32, *mut State, *mut Flow, u32, i32, u32),
                >(find("acked")),
                loss: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(i32, *mut State, *mut Flow) -> u32>(
                    find("loss"),
                ),
                resumed: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(i32, *mut State, *mut Flow)>(find(
                    "resumed",
                )),
                timeout: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(i32, *mut State)>(find("timeout")),
                step_of_bic: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(u32, u32) -> u64>(find(
                    "step_of_bic",
                )),
                alpha_of_htcp: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(u64, u32, u32) -> u32>(find(
                    "alpha_of_htcp",
                )),
                rate_of_westwood: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const State) -> u64>(find(
                    "rate_of_westwood",
                )),
            }
        }
    })
}

/// One connection with its algorithm.
struct Connection {
    which: i32,
    state: State,
    flow: Flow,
}

impl Connection {
    fn new(which: i32, cwnd: u32, ssthresh: u32) -> Self {
        let flow = Flow { cwnd, ssthresh, clamp: u32::MAX, mss: 1448, now_us: 1_000_000, ..Flow::default() };
        let mut new = Self { which, state: [u64::MAX; 13], flow };
        // SAFETY: both are initialized and have the sizes of the C side; the same applies below.
        unsafe { (native().start)(which, &raw mut new.state, &raw mut new.flow) };
        new
    }

    fn acked(&mut self, segments: u32, rtt_us: i32, state: u32) {
        self.flow.delivered = self.flow.delivered.wrapping_add(segments);
        // SAFETY: as in `new`.
        unsafe { (native().acked)(self.which, &raw mut self.state, &raw mut self.flow, segments, rtt_us, state) };
    }

    fn loss(&mut self) -> u32 {
        // SAFETY: as in `new`.
        unsafe { (native().loss)(self.which, &raw mut self.state, &raw mut self.flow) }
    }

    /// An idle time without data in flight.
    fn idle(&mut self, us: u64) {
        self.flow.now_us += us;
        // SAFETY: as in `new`.
        unsafe { (native().resumed)(self.which, &raw mut self.state, &raw mut self.flow) };
    }

    fn timeout(&mut self) {
        // SAFETY: as in `new`.
        unsafe { (native().timeout)(self.which, &raw mut self.state) };
    }

    /// A whole window is acknowledged in pairs, as by a receiver that delays acknowledgements, within `rtt_us`.
    fn round(&mut self, rtt_us: u32) {
        let pairs = (self.flow.cwnd / 2).max(1);
        for _ in 0..pairs {
            self.flow.now_us += u64::from(rtt_us / pairs).max(1);
            self.acked(2, rtt_us as i32, 0);
        }
    }
}

fn bic_step(max: u32, cwnd: u32) -> f64 {
    // SAFETY: takes and returns numbers.
    unsafe { (native().step_of_bic)(max, cwnd) as f64 / 1024.0 }
}

fn htcp_alpha(since_s: f64, rtt_ms: f64, beta: f64) -> f64 {
    let numbers = ((since_s * 1e6) as u64, (rtt_ms * 1e3) as u32, (beta * 128.0) as u32);
    // SAFETY: takes and returns numbers.
    f64::from(unsafe { (native().alpha_of_htcp)(numbers.0, numbers.1, numbers.2) }) / 128.0
}

fn assert_close(a: f64, b: f64, within: f64) {
    assert!((a - b).abs() <= within, "{a} is not {b} within {within}");
}

#[test]
fn slow_start_doubles_up_to_ssthresh() {
    for which in [BIC, HTCP, WESTWOOD] {
        let mut c = Connection::new(which, 10, 40);
        c.round(50_000);
        assert_eq!(c.flow.cwnd, 20, "{which}");
        c.round(50_000);
        assert_eq!(c.flow.cwnd, 40, "{which}");
        let before = c.flow.cwnd;
        c.round(50_000);
        assert!(c.flow.cwnd < 2 * before, "{which}: {}", c.flow.cwnd);
    }
}

#[test]
fn bic_searches_between_windows() {
    // Far below the maximum: linear; nearer: a quarter of the distance; close to it: S_min.
    assert_close(bic_step(1000, 100), 16.0, 0.0);
    assert_close(bic_step(1000, 960), 10.0, 0.0);
    assert_close(bic_step(1000, 999), 0.2, 0.001);
    // Past it: S_min, then a third of the distance beyond it, then linear.
    assert_close(bic_step(1000, 1000), 0.2, 0.001);
    assert_close(bic_step(1000, 1030), 10.0, 0.001);
    assert_close(bic_step(1000, 1200), 16.0, 0.0);
    // Small windows are standard TCP, and without a known maximum the step is at least a twentieth.
    assert_close(bic_step(1000, 14), 1.0, 0.0);
    assert_close(bic_step(0, 1000), 50.0, 0.0);
}

#[test]
fn bic_returns_to_maximum_and_plateaus() {
    let mut c = Connection::new(BIC, 500, 2);
    let ssthresh = c.loss();
    assert_eq!(ssthresh, 500 * 819 / 1024);
    (c.flow.cwnd, c.flow.ssthresh, c.flow.credit) = (ssthresh, ssthresh, 0);
    let windows: Vec<u32> = (0..60)
        .map(|_| {
            c.round(50_000);
            c.flow.cwnd
        })
        .collect();
    assert!(windows.windows(2).all(|w| w[0] <= w[1]), "{windows:?}");
    let near = windows.iter().filter(|w| (492..=504).contains(*w)).count();
    let far = windows.iter().filter(|w| **w < 492).count();
    assert!(near > 2 * far, "a plateau at the maximum: {windows:?}");
    // A second loss below the maximum: another flow needs room, and the maximum is lowered below this window.
    let mut rival = Connection::new(BIC, 500, 2);
    rival.loss();
    rival.flow.cwnd = 450;
    rival.loss();
    rival.flow.cwnd = 400;
    rival.flow.ssthresh = 2;
    (0..12).for_each(|_| rival.round(50_000));
    assert!((401..=409).contains(&rival.flow.cwnd), "it lingers at 404: {}", rival.flow.cwnd);
}

#[test]
fn htcp_growth_depends_on_time_since_loss() {
    // alpha = 2 (1 - beta) f(d) with f = 1 + 10 d + (d / 2)^2 after the first second, at the reference RTT.
    for since in [0.0_f64, 0.5, 1.0, 1.5, 2.0, 5.0, 20.0] {
        for beta in [0.5, 0.75] {
            let d = (since - 1.0).max(0.0);
            let f = 1.0 + 10.0 * d + (d / 2.0).powi(2);
            // In whole segments.
            assert_close(htcp_alpha(since, 100.0, beta), 2.0 * (1.0 - beta) * f.floor(), 0.02);
        }
    }
    // Short and long paths: scaled by RTT / 100 ms, within 1/10 and 2, and not below standard TCP.
    assert_close(htcp_alpha(2.0, 50.0, 0.5), 5.0, 0.0);
    assert_close(htcp_alpha(2.0, 1.0, 0.5), 1.0, 0.0);
    assert_close(htcp_alpha(2.0, 900.0, 0.5), 22.0, 0.0);
    assert_close(htcp_alpha(1.0, 20.0, 0.5), 1.0, 0.0);
}

#[test]
fn htcp_backs_off_by_queue_ratio() {
    let mut c = Connection::new(HTCP, 100, 2);
    let mut left = Vec::new();
    for _ in 0..6 {
        // The queue fills: 60 ms, growing to 80; the rate is always that of the link.
        for n in 0..100 {
            c.flow.cwnd = 100;
            c.round(60_000 + 200 * n);
        }
        c.flow.cwnd = 100;
        left.push(c.loss());
    }
    // At the first losses the rate is not known yet; then beta is 60 / 80.
    assert_eq!(left[0], 50, "{left:?}");
    assert!(left[3..].iter().all(|l| (74..=78).contains(l)), "{left:?}");
    // The rate halves: conditions have changed.
    for _ in 0..100 {
        c.flow.cwnd = 50;
        c.round(80_000);
    }
    c.flow.cwnd = 50;
    assert_eq!(c.loss(), 25);
}

#[test]
fn westwood_sets_window_to_measured_rate() {
    let mut c = Connection::new(WESTWOOD, 100, 2);
    for _ in 0..50 {
        c.flow.cwnd = 100;
        c.round(80_000);
    }
    // 100 segments of 1448 bytes in 80 ms.
    // SAFETY: as in `Connection::new`.
    let rate = unsafe { (native().rate_of_westwood)(&raw const c.state) } as f64;
    assert_close(rate, 100.0 * 1448.0 / 0.080, 0.02 * rate);
    // The minimum round trip was 40 ms: half of the data in flight is in a queue.
    c.acked(0, 40_000, 0);
    assert!((48..=51).contains(&c.loss()), "{}", c.loss());
    // After a timeout the path may have changed.
    c.timeout();
    c.acked(0, 80_000, 0);
    assert!((97..=102).contains(&c.loss()), "{}", c.loss());
    // Without an estimate it is Reno.
    assert_eq!(Connection::new(WESTWOOD, 100, 2).loss(), 50);
}

#[test]
fn westwood_excludes_idle_time_from_rate() {
    // 50 Mb/s and 16 ms hold 69 segments. The connection is established, waits 2 s until its run begins, and slow start fills the path.
    let mut c = Connection::new(WESTWOOD, 10, u32::MAX);
    c.idle(2_000_000);
    for window in [10, 20, 40, 69, 69, 69, 69] {
        c.flow.cwnd = window;
        c.round(16_000);
    }
    // According to the first sample, of 64 ms in which the window grew, half of the path; including the idle time it would
    // be 6 segments.
    assert!((25..=69).contains(&c.loss()), "{}", c.loss());
    // A pause in the middle makes no difference either.
    for _ in 0..60 {
        c.flow.cwnd = 69;
        c.round(16_000);
    }
    let before = c.loss();
    c.idle(5_000_000);
    for _ in 0..4 {
        c.flow.cwnd = 69;
        c.round(16_000);
    }
    assert!(c.loss().abs_diff(before) <= 2 && before >= 55, "{} and {before}", c.loss());
}

/// An event of a connection.
#[derive(Debug, Clone)]
enum Event {
    Acked {
        segments: u32,
        rtt_us: i32,
        state: u32,
        later_us: u64,
    },
    Loss,
    Timeout,
    /// The kernel may set any value.
    Set {
        cwnd: u32,
        ssthresh: u32,
        clamp: u32,
        mss: u32,
    },
}

/// Numbers of every size.
fn any_size() -> impl Strategy<Value = u32> {
    (0u32..32, any::<u32>()).prop_map(|(shift, value)| value >> shift)
}

fn any_event() -> impl Strategy<Value = Event> {
    let acked = (any_size(), any::<i32>(), 0u32..5, any_size(), 0u32..20);
    prop_oneof![
        8 => acked.prop_map(|(segments, rtt_us, state, later, shift)| Event::Acked {
            segments, rtt_us, state, later_us: u64::from(later) << shift }),
        2 => Just(Event::Loss),
        1 => Just(Event::Timeout),
        1 => (any_size(), any_size(), any_size(), any_size())
            .prop_map(|(cwnd, ssthresh, clamp, mss)| Event::Set { cwnd: cwnd.max(1), ssthresh, clamp: clamp.max(2), mss }),
    ]
}

proptest! {
    /// For any input from kernel or peer: no trap, the window never falls between losses except to its clamp, never exceeds
    /// the clamp, and is at least 2 after a loss.
    #[test]
    fn extreme_numbers_do_not_overflow(which in 0i32..3, story in prop::collection::vec(any_event(), 1..60)) {
        let mut c = Connection::new(which, 10, u32::MAX);
        for event in story {
            match event {
                Event::Acked { segments, rtt_us, state, later_us } => {
                    c.flow.now_us = c.flow.now_us.wrapping_add(later_us);
                    let before = c.flow.cwnd;
                    c.acked(segments, rtt_us, state);
                    prop_assert!(c.flow.cwnd >= before.min(c.flow.clamp), "{before} became {}", c.flow.cwnd);
                    prop_assert!(c.flow.cwnd <= before.max(c.flow.clamp));
                }
                Event::Loss => {
                    let ssthresh = c.loss();
                    prop_assert!(ssthresh >= 2);
                    c.flow.ssthresh = ssthresh;
                    c.flow.cwnd = ssthresh.min(c.flow.clamp);
                    c.flow.credit = 0;
                }
                Event::Timeout => c.timeout(),
                Event::Set { cwnd, ssthresh, clamp, mss } => {
                    c.flow = Flow { cwnd: cwnd.min(clamp), ssthresh, clamp, mss, ..c.flow };
                }
            }
        }
    }

    /// A loss never increases the window, except for Westwood, whose window is what the path carried.
    #[test]
    fn loss_reduces_window(which in 0i32..2, cwnd in 4u32..1_000_000, rounds in 0usize..3) {
        let mut c = Connection::new(which, cwnd, 2);
        for _ in 0..rounds {
            c.acked(cwnd, 50_000, 0);
        }
        let before = c.flow.cwnd;
        let left = c.loss();
        prop_assert!(left < before && left >= before / 2 - 1, "{before} -> {left}");
    }

    /// H-TCP grows faster the longer ago the last loss is.
    #[test]
    fn htcp_growth_never_falls_with_time(since in 0u64..1 << 40, more in 0u64..1 << 40, rtt in any_size(), beta in 64u32..103) {
        // SAFETY: takes and returns numbers.
        let of = |us| unsafe { (native().alpha_of_htcp)(us, rtt, beta) };
        prop_assert!(of(since) <= of(since + more));
    }
}
