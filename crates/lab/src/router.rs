//! Diverts a route of this machine between two devices through two TUN devices of our own, for as long as something is
//! inserted between them.
//!
//! # What is diverted
//!
//! Packets to one address and port, and those that come back from it: nothing else on this machine is affected. Packets to
//! the address go into the first device, and what its owner writes to the second continues as usual; and vice versa. That
//! takes routing rules (`ip rule`, by port since Linux 4.17) and no address, translation or firewall:
//!
//! - from this machine itself, or out of one of the two devices: as usual (these rules must come first, or packets would loop; the
//!   reverse-path filter looks routes up on their behalf);
//! - to the address and port: into the first device;
//! - from the address and port: into the second.
//!
//! # Lifetime
//!
//! The devices and the routes through them vanish with the file descriptors, even if their owner is killed. The rules do not, so a process
//! holds them, as [`crate::netns`] holds a namespace: a shell that waits for the end of its input, which the kernel closes however we end,
//! and removes the rules of our [`RULE_PROTOCOL`]. It also does so at its start, in case an earlier one was killed itself. Rules whose device
//! is gone have no effect, and packets take their usual route.
//!
//! Only one per network namespace: this is ensured by a name that is bound there and held by the shell as well.

use std::io::{BufRead as _, BufReader, Error, ErrorKind, Read as _, Result, Write as _};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The devices: packets to the address go into the first, packets from it into the second.
pub const DEVICE_NAMES: [&str; 2] = ["fathom-to", "fathom-from"];
/// Distinguishes our rules from others (`ip rule list protocol 217`); the kernel does not care about the number.
pub const RULE_PROTOCOL: u8 = 217;
/// The first of our rules, before the machine's own rules without an explicit number (they count down from 32766), and our
/// tables.
const RULE_PRIORITY_FIRST: u32 = 7100;
/// How long an earlier detour may take to disappear.
const DETOUR_END_TIMEOUT: Duration = Duration::from_secs(3);

const KEEPER_SCRIPT: &str = r#"
trap '' HUP INT TERM QUIT PIPE
clean() {
    "$1" -4 rule flush protocol "$2" 2>/dev/null
    "$1" -6 rule flush protocol "$2" 2>/dev/null
}
clean "$@"
echo ready
read -r line
clean "$@"
exit 0
"#;

/// Rules by port and rules with an owner: bfff4862653b and 1b71af6053af, Linux 4.17. On an older kernel our rules could not be distinguished
/// from others when they are removed.
fn check_kernel(release: &str) -> Result<()> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version < (4, 17) {
        let needed = format!("routing by port needs Linux 4.17 on this machine, which has {release}");
        return Err(Error::new(ErrorKind::Unsupported, needed));
    }
    Ok(())
}

/// A diverted route; dropping it removes the rules.
#[derive(Debug)]
pub struct Router(Child);

impl Router {
    /// Diverts packets to `address`, and from there, through two new devices, and returns these.
    ///
    /// # Errors
    /// This machine is not a router, lacks the privilege to change its routes, has another emulated route, or `ip`
    /// failed.
    pub fn create(address: SocketAddr, mtu: u32, queue: u32) -> Result<(Self, [OwnedFd; 2])> {
        let ip = crate::find_program("ip", "iproute2").map_err(Error::other)?;
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        check_kernel(release.trim())?;
        check_forwarding(address)?;
        let lock = acquire_lock()?;
        let held = lock.as_raw_fd();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", KEEPER_SCRIPT, "fathom-detour"]).arg(&ip).arg(RULE_PROTOCOL.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // Neither Ctrl-C on the terminal nor the end of our process group must reach it.
        command.process_group(0);
        // SAFETY: between fork and exec only a system call with integers; the descriptor is open until the child has its own.
        unsafe {
            command.pre_exec(move || match libc::fcntl(held, libc::F_SETFD, 0) {
                0 => Ok(()),
                _ => Err(Error::last_os_error()),
            });
        }
        let mut keeper = Self(command.spawn()?);
        let mut line = String::new();
        if let Some(stdout) = keeper.0.stdout.as_mut() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        if line != "ready\n" {
            return Err(Error::other("the shell that holds the routes exited at once"));
        }
        let devices = [crate::netns::tun(DEVICE_NAMES[0], true)?, crate::netns::tun(DEVICE_NAMES[1], true)?];
        DEVICE_NAMES.iter().try_for_each(|device| configure_device(device, address))?;
        keeper.add_rules(&ip, address, mtu, queue)?;
        Ok((keeper, devices))
    }

    fn add_rules(&mut self, ip: &Path, address: SocketAddr, mtu: u32, queue: u32) -> Result<()> {
        let (host, port, last) = (address.ip(), address.port(), RULE_PRIORITY_FIRST + 9);
        let [to, from] = DEVICE_NAMES;
        let (table_to, table_from) = (RULE_PRIORITY_FIRST + 1, RULE_PRIORITY_FIRST + 2);
        // The rules that pass packets on precede those that divert.
        let orders = format!(
            "link set dev {to} mtu {mtu} txqueuelen {queue} up\n\
             link set dev {from} mtu {mtu} txqueuelen {queue} up\n\
             route add default dev {to} table {table_to}\n\
             route add default dev {from} table {table_from}\n\
             rule add pref {last} nop protocol {RULE_PROTOCOL}\n\
             rule add pref {RULE_PRIORITY_FIRST} iif lo goto {last} protocol {RULE_PROTOCOL}\n\
             rule add pref {} iif {to} goto {last} protocol {RULE_PROTOCOL}\n\
             rule add pref {} iif {from} goto {last} protocol {RULE_PROTOCOL}\n\
             rule add pref {} to {host} dport {port} table {table_to} protocol {RULE_PROTOCOL}\n\
             rule add pref {} from {host} sport {port} table {table_from} protocol {RULE_PROTOCOL}\n",
            RULE_PRIORITY_FIRST + 1,
            RULE_PRIORITY_FIRST + 2,
            RULE_PRIORITY_FIRST + 3,
            RULE_PRIORITY_FIRST + 4,
        );
        let mut command = Command::new(ip);
        command.args([if address.is_ipv4() { "-4" } else { "-6" }, "-batch", "-"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(orders.as_bytes())?;
        }
        let output = child.wait_with_output()?;
        if output.status.success() {
            return Ok(());
        }
        let messages = String::from_utf8_lossy(&output.stderr);
        let messages = messages.lines().filter(|l| !l.starts_with("Command failed")).collect::<Vec<_>>().join("; ");
        Err(Error::other(format!("cannot route traffic through the emulator: ip: {messages}")))
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        if let Some(mut stdout) = self.0.stdout.take() {
            let _ = stdout.read_to_end(&mut Vec::new());
        }
        let _ = self.0.wait();
    }
}

/// Checks whether this machine routes packets of that kind at all.
fn check_forwarding(address: SocketAddr) -> Result<()> {
    let (file, name) = if address.is_ipv4() {
        ("/proc/sys/net/ipv4/ip_forward", "net.ipv4.ip_forward")
    } else {
        ("/proc/sys/net/ipv6/conf/all/forwarding", "net.ipv6.conf.all.forwarding")
    };
    match std::fs::read_to_string(file)?.trim() {
        "0" => Err(Error::other(format!(
            "IP forwarding is off, which the route between the two devices needs: set `sysctl {name}=1`, and route \
             both devices through this machine"
        ))),
        _ => Ok(()),
    }
}

/// Binds the name that only one process can have per network namespace. It stays bound as long as the descriptor or a
/// copy of it is open.
fn acquire_lock() -> Result<UnixDatagram> {
    let name = std::os::unix::net::SocketAddr::from_abstract_name("fathom-detour")?;
    let begun = Instant::now();
    loop {
        match UnixDatagram::bind_addr(&name) {
            Ok(lock) => return Ok(lock),
            Err(e) if e.kind() == std::io::ErrorKind::AddrInUse && begun.elapsed() < DETOUR_END_TIMEOUT => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => {
                return Err(Error::other("another run uses an emulator on this machine: wait until it ends"));
            }
            Err(e) => return Err(e),
        }
    }
}

/// Makes the kernel send nothing of its own on this device, and forward what comes out of it.
fn configure_device(device: &str, address: SocketAddr) -> Result<()> {
    let set = |file: String, value: &str| {
        std::fs::write(&file, value).map_err(|e| Error::new(e.kind(), format!("cannot set {file}: {e}")))
    };
    let v6 = |name: &str| format!("/proc/sys/net/ipv6/conf/{device}/{name}");
    if address.is_ipv4() {
        if Path::new(&v6("disable_ipv6")).exists() {
            set(v6("disable_ipv6"), "1")?;
        }
        return set(format!("/proc/sys/net/ipv4/conf/{device}/forwarding"), "1");
    }
    set(v6("router_solicitations"), "0")?;
    set(v6("addr_gen_mode"), "1")?;
    set(v6("forwarding"), "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_without_rules_by_port_is_refused() {
        for (release, known) in
            [("4.17.0", true), ("4.16.18-1-amd64", false), ("3.10.0", false), ("6.1.0-37-amd64", true), ("", false)]
        {
            assert_eq!(check_kernel(release).is_ok(), known, "{release}");
        }
    }
}
