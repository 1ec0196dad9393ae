//! The way to a device: a command line of this machine that runs a line of shell there, with its input, outputs and exit
//! status, and what the words mean with which it fails. ssh and adb are the system's own, with their user's settings.

use super::{DeviceAddress, Unreachable};
use std::io;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// What runs this line of shell there.
pub fn shell(place: &DeviceAddress, line: &str) -> Command {
    let mut command;
    match place {
        DeviceAddress::Local => {
            command = Command::new("sh");
            command.args(["-c", line]);
        }
        DeviceAddress::Netns(name) => {
            command = Command::new("ip");
            command.args(["netns", "exec", name, "sh", "-c", line]);
        }
        DeviceAddress::Ssh(user, host, port) => {
            command = Command::new("ssh");
            // Nobody is there to type a password; a host that is gone is noticed; no port that its user's settings forward is opened.
            command.args([
                "-T",
                "-x",
                "-o",
                "BatchMode=yes",
                "-o",
                "ConnectTimeout=15",
                "-o",
                "ClearAllForwardings=yes",
            ]);
            command.args(["-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=6"]);
            if let Some(user) = user {
                command.args(["-l", user]);
            }
            if let Some(port) = port {
                command.args(["-p", &port.to_string()]);
            }
            // Its user's shell may be any.
            command.args(["--", host, &format!("exec sh -c {}", quoted(line))]);
        }
        DeviceAddress::Adb(serial) => {
            command = adb(serial.as_deref());
            // Without a terminal bytes stay what they are.
            command.args(["shell", "-T", line]);
        }
    }
    command
}

/// adb, for this device.
pub fn adb(serial: Option<&str>) -> Command {
    let mut command = Command::new("adb");
    if let Some(serial) = serial {
        command.args(["-s", serial]);
    }
    command
}

/// A word for a shell.
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The device, if it is there: the namespace exists, or adb has one that may be used and is new enough; then with its serial
/// number.
pub fn there(place: &DeviceAddress) -> Result<DeviceAddress, Unreachable> {
    match place {
        DeviceAddress::Netns(name) if !Path::new("/run/netns").join(name).exists() => Err(Unreachable::new(
            place,
            "no such network namespace; `ip netns list` lists them, `ip netns add` makes one",
        )),
        DeviceAddress::Adb(wanted) => {
            let list = run(place, Command::new("adb").arg("devices"), Stdio::null())?;
            let list = String::from_utf8_lossy(&list.stdout).into_owned();
            let serial = choose(&list, wanted.as_deref()).map_err(|why| Unreachable::new(place, why))?;
            let found = DeviceAddress::Adb(Some(serial.clone()));
            let features = run(&found, adb(Some(&serial)).arg("features"), Stdio::null())?;
            if !String::from_utf8_lossy(&features.stdout).lines().any(|l| l.trim() == "shell_v2") {
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

/// The serial number that is meant, of what `adb devices` lists.
fn choose(list: &str, wanted: Option<&str>) -> Result<String, String> {
    let devices: Vec<(&str, &str)> =
        list.lines().filter_map(|l| l.split_once('\t')).map(|(serial, state)| (serial, state.trim())).collect();
    let names = || devices.iter().map(|d| format!("adb:{}", d.0)).collect::<Vec<_>>().join(", ");
    let found = match (wanted, &devices[..]) {
        (Some(wanted), all) => all.iter().find(|d| d.0 == wanted),
        (None, [one]) => Some(one),
        (None, []) => None,
        (None, _) => return Err(format!("several devices are connected: choose one of {}", names())),
    };
    let Some((serial, state)) = found else {
        return Err(match devices.is_empty() {
            true => "adb lists no device: connect one by USB and enable USB debugging in its developer options, or \
                `adb connect HOST:5555`"
                .into(),
            false => format!("adb lists no device of that name, only {}", names()),
        });
    };
    match *state {
        "device" => Ok((*serial).to_string()),
        "unauthorized" => Err("it has not authorized this computer: unlock it and allow USB debugging when prompted \
            (`adb reconnect` prompts again)"
            .into()),
        "offline" => {
            Err("it does not answer (adb says `offline`): unplug it and plug it in again, or `adb reconnect`".into())
        }
        state if state.starts_with("no permissions") => Err(format!(
            "adb has no permission to use it ({state}): \
            Debian's package android-sdk-platform-tools-common has the udev rules"
        )),
        state => Err(format!("its adb state is `{state}`; a running Android is needed")),
    }
}

/// Runs a command of the way to its end.
pub fn run(place: &DeviceAddress, command: &mut Command, input: Stdio) -> Result<Output, Unreachable> {
    let output = command.stdin(input).output().map_err(|e| cannot_start(place, command, &e))?;
    if output.status.success() {
        return Ok(output);
    }
    // adb has failures on its output, too.
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    Err(Unreachable::new(place, explained(&String::from_utf8_lossy(&said), &output.status.to_string())))
}

/// Why a program of the way could not be started.
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

/// What ssh, adb or a shell complain of, and what to do. The first that fits counts.
const ADVICE: &[(&str, &str)] = &[
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
    ("Read-only file system", "the program's folder on the device is read-only"),
    ("can't execute", "the device refuses to execute the program (SELinux, or a file system mounted noexec)"),
    (
        "Permission denied",
        "permission denied on the device (file permissions, SELinux, or a file system mounted \
        noexec)",
    ),
    ("Exec format error", "the binary is for another architecture: give --binary FILE"),
    ("unauthorized", "unlock the device, and allow USB debugging"),
    ("not found", "`adb devices` lists the connected devices"),
    ("Operation not permitted", "entering a network namespace needs root"),
];

/// The last of what was said, and advice.
pub fn explained(said: &str, status: &str) -> String {
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    let last: Vec<&str> = lines.iter().rev().take(3).rev().copied().collect();
    // What a device says may hold what a terminal takes for orders.
    let told: String = last.join("; ").chars().filter(|c| !c.is_control()).take(400).collect();
    let told = if told.is_empty() { status.to_string() } else { told };
    match ADVICE.iter().find(|(words, _)| said.contains(words)) {
        Some((_, advice)) => format!("{told}: {advice}"),
        None => told,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str =
        "* daemon started successfully\nList of devices attached\nR58\tdevice\n192.0.2.3:5555\tunauthorized\n\n";

    #[test]
    fn adb_device_is_chosen_or_reason_given() {
        assert_eq!(choose(TWO, Some("R58")), Ok("R58".into()));
        assert_eq!(choose("List of devices attached\nR58\tdevice\n", None), Ok("R58".into()));
        let refused = |list: &str, wanted, words: &str| {
            let why = choose(list, wanted);
            assert!(why.as_ref().is_err_and(|w| w.contains(words)), "{why:?}");
        };
        refused(TWO, None, "adb:R58, adb:192.0.2.3:5555");
        refused(TWO, Some("192.0.2.3:5555"), "allow USB debugging");
        refused(TWO, Some("X"), "no device of that name");
        refused("List of devices attached\n\n", None, "enable USB debugging");
        refused("R58\toffline\n", None, "plug it in again");
        refused(
            "R58\tno permissions (missing udev rules? user is in the plugdev group); see [http://developer]\n",
            None,
            "udev",
        );
        refused("R58\trecovery\n", None, "`recovery`");
    }

    #[test]
    fn shell_words_are_quoted() {
        let line = ["a b", "$(touch x)", "it's"].map(quoted).join(" ");
        let output = shell(&DeviceAddress::Local, &format!("printf '%s|' {line}")).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "a b|$(touch x)|it's|");
        let ssh = shell(&"ssh:me@phone:8022".parse().unwrap(), "echo 'a'");
        let words: Vec<_> = ssh.get_args().map(|w| w.to_string_lossy().into_owned()).collect();
        assert_eq!(words[words.len() - 3..], ["--", "phone", r"exec sh -c 'echo '\''a'\'''"]);
        assert!(words.windows(2).any(|w| w == ["-p", "8022"]) && words.windows(2).any(|w| w == ["-l", "me"]));
    }

    #[test]
    fn failures_get_advice_without_control_sequences() {
        assert!(explained("ssh: connect to host x port 22: Connection refused\r\n", "").contains("no ssh server"));
        assert!(explained("me@x: Permission denied (publickey).", "").contains("ssh-copy-id"));
        assert!(explained("sh: /data/local/tmp/x: can't execute: Permission denied", "").contains("SELinux"));
        assert_eq!(explained("\x1b[2Jgone", "exit status: 1"), "[2Jgone");
        assert_eq!(explained("", "exit status: 255"), "exit status: 255");
    }
}
