//! The transport to a device: runs a shell command there, with its input, outputs and exit status, and explains its error
//! messages. ssh is the system's own, with the user's settings; Android devices are reached through the local adb server
//! ([`super::adb`]).

use super::adb::wire::ListedDevice;
use super::adb::{AdbServer, Failure, shell};
use super::patience::{DRAIN_TIMEOUT, SILENCE_TIMEOUT, TransferCount, receive, run_in_thread};
use super::pipe::{Ending, LossCause, Pipe};
use super::{DeviceAddress, Unreachable};
use child::quoted;
use model::Context;
use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

/// The maximum output of a command, bytes; a device must not exhaust the memory.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;
/// How long to wait for a command to exit after its outputs are closed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the adb server may take for a request: its own limit of silence, and starting it.
const SERVER_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a machine of the lab may be silent: it boots first, and may have to download its kernel.
const BOOT_TIMEOUT: Duration = Duration::from_secs(900);

/// How long this device may be silent.
pub(super) fn silence_timeout(place: &DeviceAddress) -> Duration {
    if matches!(place, DeviceAddress::Lab(_)) { BOOT_TIMEOUT } else { SILENCE_TIMEOUT }
}

/// Starts a shell command there.
pub(super) fn open(place: &DeviceAddress, line: &str, context: &Context) -> Result<Pipe, Unreachable> {
    let mut command = match place {
        DeviceAddress::Adb(serial) => {
            let serial = serial.as_deref().unwrap_or_default();
            let (serial, line) = (serial.to_owned(), line.to_owned());
            let opened = move || shell::open(&AdbServer::from_environment(), &serial, &line);
            let opened =
                run_in_thread(place, SERVER_TIMEOUT, context, &format!("the adb server to reach {place}"), opened)?;
            return opened.map_err(|e| adb_error(place, &e));
        }
        DeviceAddress::Local => {
            let mut command = Command::new("sh");
            command.args(["-c", line]);
            command
        }
        DeviceAddress::Netns(name) => {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", name, "sh", "-c", line]);
            command
        }
        DeviceAddress::Lab(name) => {
            let ours = std::env::current_exe().map_err(|e| cannot_start(place, &Command::new("fathom"), &e))?;
            let mut command = Command::new(ours);
            command.args(["lab", "exec", name, "--", "sh", "-c", line]);
            command
        }
        DeviceAddress::Ssh(user, host, port) => ssh(user.as_deref(), host, *port, line),
    };
    // Ctrl-C is handled and forwarded by this program.
    command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| cannot_start(place, &command, &e))?;
    match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
        (Some(to), Some(from), Some(complaints)) => {
            Ok(Pipe { to: Box::new(to), from: Box::new(from), complaints: Box::new(complaints), life: Box::new(child) })
        }
        _ => Err(Unreachable::new(place, "it has no pipes")),
    }
}

/// The ssh command that runs a shell command there.
fn ssh(user: Option<&str>, host: &str, port: Option<u16>, line: &str) -> Command {
    let mut command = Command::new("ssh");
    // There is no terminal for a password; a lost host is detected; port forwardings of the user's settings are disabled.
    command.args(["-T", "-x", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ClearAllForwardings=yes"]);
    command.args(["-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=6"]);
    if let Some(user) = user {
        command.args(["-l", user]);
    }
    if let Some(port) = port {
        command.args(["-p", &port.to_string()]);
    }
    // The remote user's shell may be any.
    command.args(["--", host, &format!("exec sh -c {}", quoted(line))]);
    command
}

/// Looks up the device: the namespace exists, or adb has one that may be used and is recent enough; an adb device is
/// returned with its serial number.
pub fn look_up(place: &DeviceAddress, context: &Context) -> Result<DeviceAddress, Unreachable> {
    let found = place.clone();
    let what = format!("the adb server to look up {place}");
    run_in_thread(place, 2 * SERVER_TIMEOUT, context, &what, move || look_up_now(&found))?
}

fn look_up_now(place: &DeviceAddress) -> Result<DeviceAddress, Unreachable> {
    match place {
        DeviceAddress::Netns(name) if !Path::new("/run/netns").join(name).exists() => Err(Unreachable::new(
            place,
            "no such network namespace; `ip netns list` lists them, `ip netns add` makes one",
        )),
        DeviceAddress::Adb(wanted) => {
            let server = AdbServer::from_environment();
            let list = server.devices().map_err(|e| adb_error(place, &e))?;
            // adb's own variable, used if no serial number is given.
            let usual = std::env::var("ANDROID_SERIAL").ok().filter(|serial| !serial.is_empty());
            let serial = choose(&list, wanted.as_deref().or(usual.as_deref()))
                .map_err(|why| Unreachable::new(place, why.to_string()))?;
            let found = DeviceAddress::Adb(Some(serial.clone()));
            let features = server.features(&serial).map_err(|e| adb_error(&found, &e))?;
            if !features.iter().any(|f| f == "shell_v2") {
                return Err(Unreachable::new(
                    &found,
                    "its adb does not support shell_v2: Android 7 or newer is needed",
                ));
            }
            Ok(found)
        }
        _ => Ok(place.clone()),
    }
}

/// Why no device of adb was selected, and how to fix it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum ChoiceError {
    #[error("several devices are connected: choose one of {0}")]
    Several(String),
    #[error(
        "adb lists no device: connect one by USB and enable USB debugging in its developer options, or `adb connect \
         HOST:5555`"
    )]
    NoDevice,
    #[error("adb lists no device of that name, only {0}")]
    Unknown(String),
    #[error("adb lists several devices with that serial number: choose one by its place, {0}")]
    Shared(String),
    #[error(transparent)]
    Unusable(#[from] UnusableState),
}

/// Selects a serial number from the list of the adb server; or the USB port, where several devices share the number.
fn choose(devices: &[ListedDevice], wanted: Option<&str>) -> Result<String, ChoiceError> {
    let names = || devices.iter().map(|d| format!("adb:{}", printable(&d.serial))).collect::<Vec<_>>().join(", ");
    // `adb -s` also accepts a port, such as usb:1-2.
    let port = |d: &ListedDevice| d.get("usb").map(|port| format!("usb:{port}"));
    let found = match (wanted, devices) {
        (Some(wanted), all) => {
            let same: Vec<&ListedDevice> = all.iter().filter(|d| d.serial == wanted).collect();
            if same.len() > 1 {
                let ports: Vec<String> = same
                    .iter()
                    .map(|d| port(d).map_or("one without".into(), |p| format!("adb:{}", printable(&p))))
                    .collect();
                return Err(ChoiceError::Shared(ports.join(" or ")));
            }
            let by_port = all.iter().find(|d| port(d).as_deref() == Some(wanted));
            if let (true, Some(device)) = (same.is_empty(), by_port) {
                check_usable(&device.state)?;
                return Ok(wanted.to_owned());
            }
            same.into_iter().next()
        }
        (None, [one]) => Some(one),
        (None, []) => None,
        (None, _) => return Err(ChoiceError::Several(names())),
    };
    let Some(found) = found else {
        return Err(if devices.is_empty() { ChoiceError::NoDevice } else { ChoiceError::Unknown(names()) });
    };
    check_usable(&found.state)?;
    Ok(found.serial.clone())
}

/// Why a device listed by adb cannot be used, and how to fix it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnusableState {
    /// Its user has not authorized this computer.
    #[error(
        "it has not authorized this computer: unlock it and allow USB debugging when prompted (`adb reconnect` prompts again)"
    )]
    Unauthorized,
    /// It is connected, but does not respond.
    #[error("it does not answer (adb says `offline`): unplug it and plug it in again, or `adb reconnect`")]
    Offline,
    /// The adb server has no permission to open it: its message.
    #[error(
        "adb has no permission to use it ({0}): Debian's package android-sdk-platform-tools-common has the udev rules"
    )]
    NoPermission(String),
    /// Another state, such as recovery.
    #[error("its adb state is `{0}`; a running Android is needed")]
    OtherState(String),
}

/// Checks whether a device in this state of the adb server can be used.
///
/// # Errors
/// Why it cannot, and how to fix it.
pub fn check_usable(state: &str) -> Result<(), UnusableState> {
    match state {
        "device" => Ok(()),
        "unauthorized" => Err(UnusableState::Unauthorized),
        "offline" => Err(UnusableState::Offline),
        state if state.starts_with("no permissions") => Err(UnusableState::NoPermission(printable(state))),
        state => Err(UnusableState::OtherState(printable(state))),
    }
}

/// Runs a shell command there until it exits, with this input; returns its output. `what` says what the command is for.
///
/// # Errors
/// It failed, its device was silent for too long, or `context` was cancelled.
pub fn run(
    place: &DeviceAddress,
    line: &str,
    input: Option<Box<dyn Read + Send>>,
    context: &Context,
    what: &str,
) -> Result<Vec<u8>, Unreachable> {
    let silence = if input.is_some() { DRAIN_TIMEOUT } else { silence_timeout(place) };
    run_within(silence, place, line, input, context, what)
}

fn run_within(
    silence: Duration,
    place: &DeviceAddress,
    line: &str,
    input: Option<Box<dyn Read + Send>>,
    context: &Context,
    what: &str,
) -> Result<Vec<u8>, Unreachable> {
    let Pipe { mut to, from, complaints, mut life } = open(place, line, context)?;
    let moved = TransferCount::default();
    let mut input = input.map(|input| moved.counting(input));
    let writing = std::thread::spawn(move || input.as_mut().is_none_or(|from| io::copy(from, &mut to).is_ok()));
    let (sender, outputs) = channel();
    let (from, complaints) = (moved.counting(from), moved.counting(complaints));
    std::thread::spawn(move || {
        let hearing = std::thread::spawn(move || read_bounded(complaints));
        let out = read_bounded(from);
        // What is longer is not waited for.
        let err = if out.1 { hearing.join().unwrap_or_default() } else { Default::default() };
        sender.send((out, err))
    });
    let waited = format!("{place} to {what}");
    let ((out, whole), (err, _)) = receive(&outputs, silence, &moved, context, &waited).map_err(|why| {
        life.kill();
        why.into_unreachable(place, &waited)
    })?;
    if !whole {
        life.kill();
        return Err(Unreachable::new(place, format!("its answer is longer than {OUTPUT_BYTES_MAX} bytes")));
    }
    let ending = life.wait(EXIT_TIMEOUT).unwrap_or_else(|| {
        life.kill();
        Ending::Lost(LossCause::Other("it does not end".into()))
    });
    // The command's status tells whether it has read all of its input.
    let _ = writing.join();
    let status = match ending {
        Ending::Exit(0) => return Ok(out),
        Ending::Exit(status) => LossCause::Status(status),
        Ending::Lost(why) => why,
    };
    // Some tools of Android print errors to their output, too.
    Err(Unreachable::new(place, explain(&String::from_utf8_lossy(&[out, err].concat()), &status)))
}

/// Reads at most [`OUTPUT_BYTES_MAX`] bytes, and returns whether that is everything.
fn read_bounded(from: impl Read) -> (Vec<u8>, bool) {
    let mut all = Vec::new();
    let _ = from.take(OUTPUT_BYTES_MAX + 1).read_to_end(&mut all);
    let is_complete = all.len() as u64 <= OUTPUT_BYTES_MAX;
    (all, is_complete)
}

/// A text from a device without control characters, so that it cannot control a terminal.
pub fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(400).collect()
}

/// Why adb refused, and how to fix it.
pub fn adb_error(place: &DeviceAddress, error: &Failure) -> Unreachable {
    match error {
        Failure::Refused(why) => Unreachable::new(place, explain(why, &LossCause::Other("adb refused".into()))),
        Failure::DeviceLost(error) => Unreachable::new(place, explain("", &LossCause::from_error(error))),
        other => Unreachable::new(place, printable(&other.to_string())),
    }
}

/// Why a program of the transport could not be started.
pub fn cannot_start(place: &DeviceAddress, command: &Command, error: &io::Error) -> Unreachable {
    let program = command.get_program().to_string_lossy();
    let package = match &*program {
        "ssh" => "openssh-client",
        "ip" => "iproute2",
        other => other,
    };
    Unreachable::new(
        place,
        match error.kind() {
            io::ErrorKind::NotFound => {
                format!("`{program}` is not installed (Debian: apt-get install {package})")
            }
            _ => format!("cannot start {program}: {error}"),
        },
    )
}

/// Error messages of ssh, adb or a shell, and their remedies. The first match is used.
const ERROR_ADVICE: &[(&str, &str)] = &[
    ("Could not resolve hostname", "check the name; `ssh -G NAME` shows what ssh makes of it"),
    ("Host key verification failed", "connect once with ssh, verify the host key and accept it"),
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "it is a different machine than before, or was reinstalled: see `ssh-keygen -R`",
    ),
    ("Permission denied (", "ssh must work without a password: use `ssh-copy-id`, or run ssh-agent"),
    ("Connection refused", "no ssh server is listening: check host and port, or start one"),
    ("No route to host", "check that it is on and in this network"),
    ("timed out", "check that it is on, in this network, and not behind a firewall"),
    ("No space left", "free space on the device, where the program is copied"),
    ("Read-only file system", "the program's directory on the device is read-only"),
    ("can't execute", "the device refuses to execute the program (SELinux, or a file system mounted noexec)"),
    (
        "Permission denied",
        "permission denied on the device (file permissions, SELinux, or a file system mounted \
        noexec)",
    ),
    ("Exec format error", "the binary is for another architecture: give --binary FILE"),
    ("unauthorized", "unlock the device, and allow USB debugging"),
    ("device offline", "unplug it and plug it in again, or `adb reconnect`"),
    ("not found", "`fathom device list` lists the connected devices"),
    ("Operation not permitted", "entering a network namespace needs root"),
];

/// The advice if the connection is lost without a message.
const LOST_ADVICE: &str = "it was unplugged, restarted or left the network; `fathom device list` shows what is there";

/// The last messages, with advice.
pub(super) fn explain(said: &str, why: &LossCause) -> String {
    // The transport to a guest is this program itself, whose name is already added to messages here.
    let lines = said.lines().map(|line| line.trim().trim_start_matches("fathom: "));
    let lines: Vec<&str> = lines.filter(|l| !l.is_empty()).collect();
    let last: Vec<&str> = lines.iter().rev().take(3).rev().copied().collect();
    let message = printable(&last.join("; "));
    let message = if message.is_empty() { why.to_string() } else { message };
    // A system call's error on the connection is searched too.
    let others = [said, if let LossCause::Connection(Some(error)) = why { error } else { "" }];
    let advice =
        ERROR_ADVICE.iter().find(|(words, _)| others.iter().any(|other| other.contains(words))).map(|(_, a)| *a);
    match (advice, why) {
        (Some(advice), _) => format!("{message}: {advice}"),
        (None, LossCause::Connection(_)) => format!("{message}: {LOST_ADVICE}"),
        (None, _) => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::adb::wire::parse_devices;

    const TWO_DEVICES: &str = "R58\tdevice\n192.0.2.3:5555\tunauthorized\n";

    #[test]
    fn adb_device_is_chosen_or_a_reason_given() {
        let choose = |list: &str, wanted| choose(&parse_devices(list), wanted);
        assert_eq!(choose(TWO_DEVICES, Some("R58")), Ok("R58".into()));
        assert_eq!(choose("R58\tdevice\n", None), Ok("R58".into()));
        let refused = |list: &str, wanted, words: &str| {
            let why = choose(list, wanted);
            assert!(why.as_ref().is_err_and(|w| w.to_string().contains(words)), "{why:?}");
        };
        refused(TWO_DEVICES, None, "adb:R58, adb:192.0.2.3:5555");
        refused(TWO_DEVICES, Some("192.0.2.3:5555"), "allow USB debugging");
        refused(TWO_DEVICES, Some("X"), "no device of that name");
        refused("", None, "enable USB debugging");
        refused("R58\toffline\n", None, "plug it in again");
        refused(
            "R58\tno permissions (missing udev rules? user is in the plugdev group); see [http://developer]\n",
            None,
            "udev",
        );
        refused("R58\trecovery\n", None, "`recovery`");
        refused("R58\tdevice\nR581\tdevice\n", Some("R5"), "no device of that name");
        // All devices of a cheap model have the same number.
        let clones = "0123\tdevice usb:1-2 transport_id:1\n0123\toffline usb:1-3 transport_id:2\n";
        refused(clones, Some("0123"), "adb:usb:1-2 or adb:usb:1-3");
        refused(clones, Some("usb:1-3"), "plug it in again");
        refused(clones, Some("usb:1-4"), "no device of that name");
        assert_eq!(choose(clones, Some("usb:1-2")), Ok("usb:1-2".into()));
    }

    #[test]
    fn shell_words_are_quoted() {
        let line = ["a b", "$(touch x)", "it's"].map(quoted).join(" ");
        let output =
            run(&DeviceAddress::Local, &format!("printf '%s|' {line}"), None, &Context::silent(), "print").unwrap();
        assert_eq!(String::from_utf8_lossy(&output), "a b|$(touch x)|it's|");
        let ssh = ssh(Some("me"), "phone", Some(8022), "echo 'a'");
        let words: Vec<_> = ssh.get_args().map(|w| w.to_string_lossy().into_owned()).collect();
        assert_eq!(words[words.len() - 3..], ["--", "phone", r"exec sh -c 'echo '\''a'\'''"]);
        assert!(words.windows(2).any(|w| w == ["-p", "8022"]) && words.windows(2).any(|w| w == ["-l", "me"]));
    }

    #[test]
    fn command_output_is_bounded_and_status_reported() {
        let run = |line: &str| run(&DeviceAddress::Local, line, None, &Context::silent(), "run");
        assert!(run("head -c 3000000 /dev/zero").unwrap_err().why.contains("longer than 1048576 bytes"));
        assert!(run("echo no >&2; exit 3").unwrap_err().why.contains("no"));
        assert!(run("exit 3").unwrap_err().why.contains("exit status 3"));
    }

    #[test]
    fn device_that_never_answers_is_given_up() {
        let quiet = |context: &Context, silence| {
            run_within(silence, &DeviceAddress::Local, "echo x; exec sleep 1000", None, context, "sleep")
                .unwrap_err()
                .why
        };
        let why = quiet(&Context::silent(), Duration::from_millis(200));
        assert!(why.contains("does not answer") && why.contains("local to sleep"), "{why}");
        let interrupted = Context::silent();
        interrupted.cancel_flag().store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(quiet(&interrupted, SILENCE_TIMEOUT).contains("interrupted while waiting for local to sleep"));
    }

    #[test]
    fn slow_answer_is_waited_for() {
        let line = "for i in 1 2 3 4 5 6; do sleep 0.2; echo $i; done";
        let silence = Duration::from_millis(900);
        let out = run_within(silence, &DeviceAddress::Local, line, None, &Context::silent(), "count").unwrap();
        assert_eq!(out, b"1\n2\n3\n4\n5\n6\n");
    }

    #[test]
    fn failures_get_advice_without_control_sequences() {
        let explained = |said: &str, why: LossCause| explain(said, &why);
        let status = |n| LossCause::Status(n);
        assert_eq!(
            explained("fathom: qemu is not installed\nneeds QEMU\n", status(1)),
            "qemu is not installed; needs QEMU"
        );
        assert!(
            explained("ssh: connect to host x port 22: Connection refused\r\n", status(255)).contains("no ssh server")
        );
        assert!(explained("me@x: Permission denied (publickey).", status(255)).contains("ssh-copy-id"));
        assert!(explained("sh: /data/local/tmp/x: can't execute: Permission denied", status(126)).contains("SELinux"));
        assert_eq!(explained("\x1b[2Jgone", status(1)), "[2Jgone");
        assert_eq!(explained("", status(255)), "exit status 255");
        let gone = explained("", LossCause::Connection(Some("Broken pipe (os error 32)".into())));
        assert!(gone.starts_with("the connection to the device broke: Broken pipe") && gone.contains("unplugged"));
        assert!(explained("", LossCause::Connection(Some("timed out".into()))).contains("firewall"));
        assert_eq!(explained("the connection to the device broke", status(1)), "the connection to the device broke");
    }
}
