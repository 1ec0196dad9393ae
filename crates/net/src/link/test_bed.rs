//! Two network namespaces with the emulated link between them.
//!
//! Each contains a TUN device, `link0`, whose other end is the emulator; each has an address from the blocks reserved for
//! benchmarks (RFC 2544, RFC 5180), which no real network uses. [`Namespace::command`](lab::netns::Namespace::command) runs
//! programs inside.

use super::engine::{Emulator, Engine, Outcome, TUN_QUEUE_PACKETS};
use super::spec::Spec;
use lab::netns::Namespace;
use std::io::{Error, Result};
use std::process::Command;

/// Name of the device in both namespaces.
pub const DEVICE_NAME: &str = "link0";
/// Addresses of the client.
pub const CLIENT_ADDRESSES: [&str; 2] = ["198.18.0.1", "2001:2::1"];
/// Addresses of the server.
pub const SERVER_ADDRESSES: [&str; 2] = ["198.18.0.2", "2001:2::2"];

/// A running link; dropping it stops the emulator, the namespaces and the programs inside.
#[derive(Debug)]
pub struct TestBed {
    // The emulator stops before the namespaces that contain its devices.
    emulator: Emulator,
    client: Namespace,
    server: Namespace,
}

impl TestBed {
    /// Creates the namespaces and starts the emulator.
    ///
    /// # Errors
    /// The link is not possible, or the machine does not permit creating it; the text says what is missing.
    pub fn create(spec: &Spec) -> Result<Self> {
        spec.check().map_err(Error::other)?;
        let client = Namespace::create()?;
        let server = Namespace::beside(&client)?;
        let ends = [client.tun(DEVICE_NAME, true)?, server.tun(DEVICE_NAME, true)?];
        for (namespace, own, other) in
            [(&client, CLIENT_ADDRESSES, SERVER_ADDRESSES), (&server, SERVER_ADDRESSES, CLIENT_ADDRESSES)]
        {
            // There is no router on the link, so solicitations are pointless.
            namespace.sysctl(&format!("net.ipv6.conf.{DEVICE_NAME}.router_solicitations"), "0")?;
            namespace.sysctl(&format!("net.ipv6.conf.{DEVICE_NAME}.addr_gen_mode"), "1")?;
            let (mtu, queue) = (spec.mtu().to_string(), TUN_QUEUE_PACKETS.to_string());
            namespace.ip(&["link", "set", "dev", DEVICE_NAME, "mtu", &mtu, "txqueuelen", &queue, "up"])?;
            for (own, other) in own.iter().zip(other) {
                let nodad: &[&str] = if own.contains(':') { &["nodad"] } else { &[] };
                namespace.ip(&[&["address", "add", own, "peer", other, "dev", DEVICE_NAME], nodad].concat())?;
            }
        }
        let [from_client, from_server] = ends;
        let emulator = Engine::new(from_client, from_server, spec)?.start()?;
        Ok(Self { emulator, client, server })
    }

    /// Where the client runs.
    pub fn client(&self) -> &Namespace {
        &self.client
    }

    /// Where the server runs.
    pub fn server(&self) -> &Namespace {
        &self.server
    }

    /// How to run a command in either namespace, as text.
    pub fn usage(&self) -> String {
        let one = |end: &str, addresses: [&str; 2], namespace: &Namespace| {
            format!("In the {end}'s namespace, {}:\n  {} CMD\n", addresses.join(" and "), namespace.nsenter(false))
        };
        one("client", CLIENT_ADDRESSES, &self.client) + &one("server", SERVER_ADDRESSES, &self.server)
    }

    /// A command in the client's namespace, with the addresses in the variables FATHOM_LINK_CLIENT and FATHOM_LINK_SERVER,
    /// and the prefix that runs a command on the server's side in FATHOM_LINK_ENTER_SERVER.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = self.client.command(program);
        command.envs([("FATHOM_LINK_CLIENT", CLIENT_ADDRESSES[0]), ("FATHOM_LINK_SERVER", SERVER_ADDRESSES[0])]);
        command.envs([("FATHOM_LINK_CLIENT6", CLIENT_ADDRESSES[1]), ("FATHOM_LINK_SERVER6", SERVER_ADDRESSES[1])]);
        command.env("FATHOM_LINK_ENTER_CLIENT", self.client.nsenter(true));
        command.env("FATHOM_LINK_ENTER_SERVER", self.server.nsenter(true));
        command
    }

    /// Stops the emulator and returns its outcome.
    ///
    /// # Errors
    /// The devices' counters cannot be read.
    pub fn finish(mut self) -> Result<Outcome> {
        // Read while the devices still exist.
        let overrun = device_drops(&self.client).and_then(|n| Ok(n + device_drops(&self.server)?));
        let mut outcome = self.emulator.stop();
        outcome.overrun = overrun?;
        Ok(outcome)
    }
}

/// Packets that the namespace's device dropped because its queue was full.
fn device_drops(namespace: &Namespace) -> Result<u64> {
    // The counters in sysfs would need a mount inside; this file shows the reader's own namespace.
    parse_drops(&namespace.run("/bin/cat", &["/proc/self/net/dev"])?, DEVICE_NAME)
}

/// Packets that a device dropped because its queue was full, from the kernel's table of devices.
pub(super) fn parse_drops(table: &str, device: &str) -> Result<u64> {
    let line = table.lines().find_map(|l| l.trim().strip_prefix(device)?.strip_prefix(':')).unwrap_or_default();
    // Received: bytes, packets, errs, drop, fifo, frame, compressed, multicast; sent: the same first four.
    line.split_whitespace().nth(11).and_then(|n| n.parse().ok()).ok_or_else(|| Error::other("no counters of the link"))
}

#[cfg(test)]
mod tests {
    use super::super::spec::DirectionSpec;
    use super::*;

    fn create_test_bed(test: &str, spec: &Spec) -> Option<TestBed> {
        TestBed::create(spec).map_err(|error| println!("SKIP {test}: {error}")).ok()
    }

    #[test]
    fn packets_pass_both_ways_and_are_accounted_for() {
        let way = DirectionSpec { delay_ns: 5_000_000, ..DirectionSpec::default() };
        let Some(bed) = create_test_bed("packets_pass_both_ways_and_are_accounted_for", &Spec::symmetric(way)) else {
            return;
        };
        let server = "
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('198.18.0.2', 7))
print('up', flush=True)
while True:
    data, peer = s.recvfrom(2048)
    s.sendto(data, peer)
";
        let client = "
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(5)
for i in range(50):
    t = time.monotonic()
    s.sendto(b'x' * 100, ('198.18.0.2', 7))
    s.recv(2048)
    print(int((time.monotonic() - t) * 1e6))
";
        use std::io::BufRead as _;
        let mut echo =
            bed.server().command("python3").args(["-c", server]).stdout(std::process::Stdio::piped()).spawn().unwrap();
        std::io::BufReader::new(echo.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
        let said = bed.command("python3").args(["-c", client]).output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        let trips: Vec<u64> = String::from_utf8(said.stdout).unwrap().lines().map(|l| l.parse().unwrap()).collect();
        assert_eq!(trips.len(), 50);
        assert!(trips.iter().all(|t| *t >= 10_000), "no trip is shorter than both delays: {trips:?}");
        let outcome = bed.finish().unwrap();
        echo.wait().unwrap();
        for counts in outcome.counts {
            assert_eq!((counts.offered, counts.delivered), (50, 50), "{outcome:?}");
            assert_eq!(counts.delivered_bytes, 50 * 128);
        }
        assert_eq!((outcome.overrun, outcome.unwritten, outcome.unreadable), (0, 0, 0), "{outcome:?}");
        assert_eq!(outcome.late.map(|l| (l.known.count(), l.upper.count())), [(50, 50); 2]);
    }
}
