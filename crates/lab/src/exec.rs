//! Runs one command in a guest, with its input, outputs and exit status, like ssh on a remote machine. So a guest is a device like any
//! other, which is booted for the command and ends with it.
//!
//! The streams are three ports of virtio-serial, each a socket here: bytes pass unchanged, and the guest's writes block until the host
//! has taken them. The exit status comes over the guest's own line.

use crate::guest::{Guest, STREAM_NAMES};
use crate::run::{self, NotStarted, Options};
use crate::scenario::{Scenario, script};
use crate::{Error, guest::Output};
use model::Context;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The command's script in the guest.
const COMMAND_PATH: &str = "/lab/command";
/// How long it may take.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(7 * 24 * 3600);

/// The host's ends of a command's streams.
pub struct Streams {
    pub stdin: Box<dyn Read + Send>,
    pub stdout: Box<dyn Write + Send>,
    pub stderr: Box<dyn Write + Send>,
}

impl std::fmt::Debug for Streams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Streams").finish_non_exhaustive()
    }
}

/// Boots a guest with the scenario's disks, prepares them, and runs a shell command in the file system; returns its exit
/// status.
///
/// # Errors
/// This machine lacks something, the guest does not boot, or it ends before the command does.
pub fn exec(
    scenario: &Scenario,
    line: &str,
    options: &Options<'_>,
    context: &Context,
    streams: Streams,
) -> Result<i32, NotStarted> {
    let mut config = run::guest_config(scenario, options, context)?;
    config.device = true;
    config.forward = scenario.machine.forward.clone();
    config.texts.push((COMMAND_PATH.into(), format!("{line}\n")));
    context.progress("booting", 0, 0);
    let mut guest = Guest::boot(&config, options.cache)?;
    context.progress("preparing disks", 0, 0);
    let Output { status, stderr, .. } =
        guest.run(&format!("{NETWORK_SCRIPT}; sh {}", script::PREPARE_PATH), run::PREPARE_TIMEOUT)?;
    context.clear_progress();
    if status != 0 {
        return Err(Error::Guest(format!("could not prepare its disks: {}", run::last_lines(&stderr))).into());
    }
    let Some([stdin, stdout, stderr]) = guest.streams.take() else {
        return Err(Error::Guest("has no ports".into()).into());
    };
    // This thread ends with the program: nothing else wakes a thread that waits for input.
    std::thread::spawn(move || copy_input(streams.stdin, stdin));
    let out = std::thread::spawn(move || copy_output(stdout, streams.stdout));
    let err = std::thread::spawn(move || copy_output(stderr, streams.stderr));
    let ended = guest.run(&attach_script(), COMMAND_TIMEOUT);
    // The command's output is in the sockets; they end with the guest.
    drop(guest);
    let _ = (out.join(), err.join());
    Ok(ended?.status)
}

/// The guest's end of QEMU's user-mode network. Its addresses are those of the network's DHCP server, which are always
/// the same.
const NETWORK_SCRIPT: &str = "ip link set lo up; ip link set eth0 up; ip address add 10.0.2.15/24 dev eth0; \
                       ip route add default via 10.0.2.2; mkdir -p /etc; echo nameserver 10.0.2.3 >/etc/resolv.conf";

/// Runs the command with the ports as its streams. A port whose other end has not connected yet reads as ended: so the input
/// begins with a line of ours.
fn attach_script() -> String {
    let [stdin, stdout, stderr] = STREAM_NAMES;
    format!(
        "port() {{ path=$(grep -lx \"$1\" /sys/class/virtio-ports/*/name); path=${{path%/name}}; echo /dev/${{path##*/}}; }}\n\
         until [ -c \"$(port {stdin})\" ] && [ -c \"$(port {stdout})\" ] && [ -c \"$(port {stderr})\" ]; do sleep 0.1; done\n\
         exec 3<\"$(port {stdin})\"\nuntil read -r go <&3; do sleep 0.1; done\ncd {}\n\
         exec sh {COMMAND_PATH} <&3 3<&- >\"$(port {stdout})\" 2>\"$(port {stderr})\"",
        crate::scenario::MOUNT_POINT
    )
}

fn copy_input(mut from: impl Read, mut to: UnixStream) {
    let mut bytes = [0; 1 << 16];
    if to.write_all(b"go\n").is_err() {
        return;
    }
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..n]).is_err() {
            return;
        }
    }
    // QEMU reads what is left before it notices the end; closing the whole socket might lose it.
    let _ = to.shutdown(Shutdown::Write);
    // Held until QEMU closes its side.
    let _ = to.read(&mut bytes);
}

fn copy_output(mut from: UnixStream, mut to: impl Write) {
    let mut bytes = [0; 1 << 16];
    let mut takes = true;
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        // A command whose output is no longer read continues.
        takes = takes && to.write_all(&bytes[..n]).and_then(|()| to.flush()).is_ok();
    }
}
