//! A medium like Wi-Fi between a coordinator and many nodes, in network namespaces of our own.
//!
//! With small packets, Wi-Fi is limited by the time that each packet takes on the air, however short it is. A queue of the
//! kernel can do the same: its size table (`tc-stab`) counts every packet as at least 1,500 bytes, and a token bucket
//! (`tc-tbf`) lets a fixed number of bytes per second pass.
//!
//! **Shared** ([`Kind::Shared`]): all nodes and both directions take turns, as on a channel. Everything passes through
//! one queue:
//!
//! ```text
//!  hosts ──up──▶ air ══ the one queue ══▶ ether ──down──▶ hosts        hosts: the coordinator's namespace, the nodes'
//! ```
//!
//! Each side sends everything to `air`, which has only one route: through the queue to `ether`, which has a route to every host.
//!
//! **Per node** ([`Kind::PerNode`]): each node has a link of its own, with a queue for each direction, as by cable.
//!
//! Not emulated: collisions and back-off (the queue is fair and loses nothing until it is full), rates that depend on
//! distance, aggregation by the radio (A-MPDU). The sender does not aggregate segments, so that a packet is a packet.

use crate::netns::Namespace;
use model::quantity::Choices;
use std::io::{Error, Result};
use std::net::Ipv4Addr;

/// What the nodes share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One half-duplex medium for all.
    Shared,
    /// A full-duplex link for each node.
    PerNode,
}

impl Kind {
    /// The choices of `--link`.
    pub const CHOICES: Choices<Self, 2> = [
        ("shared", "One medium for all nodes and both directions", Self::Shared),
        ("per-node", "A link for each node", Self::PerNode),
    ];
}

/// The speed, and the length of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Packets per second; none are larger than [`PACKET_BYTES`].
    pub packets_per_s: u32,
    /// Most packets that wait; further ones are dropped.
    pub queue_packets: u32,
}

/// Bytes that every packet is charged as: those of the largest.
pub const PACKET_BYTES: u32 = 1514;

/// Packets that pass at once after an idle period: a token bucket needs some.
const BURST_PACKETS: u32 = 4;

/// Maximum number of nodes: one byte of the address distinguishes them.
const NODES_MAX: usize = 250;

/// The namespaces; all are removed when this is dropped.
#[derive(Debug)]
pub struct Medium {
    coordinator: Namespace,
    nodes: Namespace,
    addresses: Vec<Ipv4Addr>,
    _between: Vec<Namespace>,
}

impl Medium {
    /// Creates a medium for `nodes` nodes.
    ///
    /// # Errors
    /// Namespaces cannot be created here, or the kernel lacks a queue.
    pub fn create(kind: Kind, nodes: usize, rate: Rate) -> Result<Self> {
        if nodes == 0 || nodes > NODES_MAX {
            return Err(Error::other(format!("a medium has 1 to {NODES_MAX} nodes")));
        }
        if rate.packets_per_s == 0 || rate.queue_packets == 0 {
            return Err(Error::other("a medium needs a rate and a queue of at least one packet"));
        }
        let coordinator = Namespace::create()?;
        let far = Namespace::beside(&coordinator)?;
        for side in [&coordinator, &far] {
            quiet(side)?;
        }
        match kind {
            Kind::Shared => shared(coordinator, far, nodes, rate),
            Kind::PerNode => per_node(coordinator, far, nodes, rate),
        }
    }

    pub fn coordinator(&self) -> &Namespace {
        &self.coordinator
    }

    pub fn nodes(&self) -> &Namespace {
        &self.nodes
    }

    /// The address of each node in it.
    pub fn addresses(&self) -> &[Ipv4Addr] {
        &self.addresses
    }
}

fn shared(coordinator: Namespace, far: Namespace, nodes: usize, rate: Rate) -> Result<Medium> {
    let (air, ether) = (Namespace::beside(&coordinator)?, Namespace::beside(&coordinator)?);
    for between in [&air, &ether] {
        quiet(between)?;
        between.sysctl("net.ipv4.ip_forward", "1")?;
    }
    air.veth("on", &ether, "off")?;
    air.address("on", "10.77.255.1/30")?;
    ether.address("off", "10.77.255.2/30")?;
    air.ip(&["route", "add", "10.77.0.0/16", "via", "10.77.255.2", "dev", "on"])?;
    add_queue(&air, "on", rate)?;
    let addresses: Vec<Ipv4Addr> = (1..=nodes as u8).map(|nth| Ipv4Addr::new(10, 77, 2, nth)).collect();
    let sides = [(&coordinator, 1, vec![Ipv4Addr::new(10, 77, 1, 1)]), (&far, 2, addresses.clone())];
    for (side, number, own) in sides {
        let (up, down) = (format!("up{number}"), format!("down{number}"));
        side.veth("up", &air, &up)?;
        side.veth("down", &ether, &down)?;
        disable_segmentation(side, "up")?;
        side.address("up", &format!("10.77.{}.1/30", 100 + number))?;
        air.address(&up, &format!("10.77.{}.2/30", 100 + number))?;
        side.address("down", &format!("10.77.{}.1/30", 200 + number))?;
        ether.address(&down, &format!("10.77.{}.2/30", 200 + number))?;
        for address in &own {
            side.address("lo", &format!("{address}/32"))?;
        }
        // It sends from its own address, so that responses find their way.
        let (source, via) = (own[0].to_string(), format!("10.77.{}.2", 100 + number));
        side.ip(&["route", "add", "default", "via", &via, "dev", "up", "src", &source])?;
        let (net, back) = (format!("10.77.{number}.0/24"), format!("10.77.{}.1", 200 + number));
        ether.ip(&["route", "add", &net, "via", &back, "dev", &down])?;
    }
    Ok(Medium { coordinator, nodes: far, addresses, _between: vec![air, ether] })
}

fn per_node(coordinator: Namespace, far: Namespace, nodes: usize, rate: Rate) -> Result<Medium> {
    let mut addresses = Vec::new();
    for nth in 1..=nodes as u8 {
        let (here, there) = (format!("to{nth}"), format!("from{nth}"));
        coordinator.veth(&here, &far, &there)?;
        coordinator.address(&here, &format!("10.78.{nth}.1/30"))?;
        far.address(&there, &format!("10.78.{nth}.2/30"))?;
        for (side, device) in [(&coordinator, &here), (&far, &there)] {
            disable_segmentation(side, device)?;
            add_queue(side, device, rate)?;
        }
        addresses.push(Ipv4Addr::new(10, 78, nth, 2));
    }
    Ok(Medium { coordinator, nodes: far, addresses, _between: Vec::new() })
}

/// Only measured traffic uses the devices, so responses may take another route.
fn quiet(side: &Namespace) -> Result<()> {
    // A kernel without IPv6 is quiet already.
    let _ = side.sysctl("net.ipv6.conf.all.disable_ipv6", "1");
    let _ = side.sysctl("net.ipv6.conf.default.disable_ipv6", "1");
    side.sysctl("net.ipv4.conf.all.rp_filter", "0")?;
    side.sysctl("net.ipv4.conf.default.rp_filter", "0")
}

/// Each segment is a packet of its own from the start: one that is segmented only after the queue would pass as one.
fn disable_segmentation(side: &Namespace, device: &str) -> Result<()> {
    side.ip(&["link", "set", "dev", device, "gso_max_segs", "1"]).map(drop)
}

fn add_queue(side: &Namespace, device: &str, rate: Rate) -> Result<()> {
    let bytes = PACKET_BYTES.to_string();
    let bits = format!("{}bit", u64::from(rate.packets_per_s) * u64::from(PACKET_BYTES) * 8);
    let burst = (BURST_PACKETS * PACKET_BYTES).to_string();
    let limit = (u64::from(rate.queue_packets) * u64::from(PACKET_BYTES)).to_string();
    let table = ["stab", "mtu", "2048", "tsize", "512", "mpu", &bytes, "overhead", "0", "linklayer", "ethernet"];
    let bucket = ["tbf", "rate", &bits, "burst", &burst, "limit", &limit];
    let words = [&["qdisc", "add", "dev", device, "root"][..], &table, &bucket].concat();
    side.tc(&words).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    /// Bytes and packets that passed the queue of a device.
    fn queue_counters(side: &Namespace, device: &str) -> (u64, u64) {
        let text = side.tc(&["-s", "qdisc", "show", "dev", device]).unwrap();
        let sent: Vec<u64> = text.split("Sent ").nth(1).unwrap().split(' ').filter_map(|w| w.parse().ok()).collect();
        (sent[0], sent[1])
    }

    fn create_medium(kind: Kind, nodes: usize) -> Option<Medium> {
        if let Err(reason) = Namespace::available() {
            println!("SKIP a medium: {reason}");
            return None;
        }
        Some(Medium::create(kind, nodes, Rate { packets_per_s: 100_000, queue_packets: 1000 }).unwrap())
    }

    const ECHO_PROGRAM: &str = "
import socket, sys
s = socket.create_server((sys.argv[1], 7000)); print('up', flush=True)
c = s.accept()[0]
for _ in range(100): c.sendall(c.recv(5)[:1])
";
    const CLIENT_PROGRAM: &str = "
import socket, sys
c = socket.create_connection((sys.argv[1], 7000), 5); c.setsockopt(6, 1, 1)
for _ in range(100): c.sendall(b'12345'); assert len(c.recv(1)) == 1
";

    /// 100 requests and their responses between the coordinator and the node `nth`.
    fn exchange_messages(medium: &Medium, nth: usize) {
        let address = medium.addresses()[nth].to_string();
        let mut echo = medium.nodes().command("python3");
        let mut echo = echo.args(["-c", ECHO_PROGRAM, &address]).stdout(Stdio::piped()).spawn().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(echo.stdout.take().unwrap()), &mut String::new())
            .unwrap();
        medium.coordinator().run("python3", &["-c", CLIENT_PROGRAM, &address]).unwrap();
        assert!(echo.wait().unwrap().success());
    }

    #[test]
    fn shared_medium_charges_every_packet_as_the_largest() {
        let Some(medium) = create_medium(Kind::Shared, 3) else { return };
        let air = &medium._between[0];
        let (_, before) = queue_counters(air, "on");
        exchange_messages(&medium, 0);
        exchange_messages(&medium, 2);
        let (bytes, packets) = queue_counters(air, "on");
        // Two times 100 requests and 100 responses, three packets to open and up to four to close.
        assert!((400..=440).contains(&(packets - before)), "{packets} packets");
        assert_eq!(bytes, packets * u64::from(PACKET_BYTES), "a packet counts as less, or more, than the largest");
    }

    #[test]
    fn node_on_its_own_link_does_not_affect_others() {
        let Some(medium) = create_medium(Kind::PerNode, 3) else { return };
        exchange_messages(&medium, 1);
        let [one, two] = ["to1", "to2"].map(|device| queue_counters(medium.coordinator(), device).1);
        assert!(one < 5 && (100..120).contains(&two), "{one}, {two}");
        assert!((100..120).contains(&queue_counters(medium.nodes(), "from2").1));
    }

    #[test]
    fn invalid_input_is_refused() {
        let rate = Rate { packets_per_s: 1, queue_packets: 1 };
        assert!(Medium::create(Kind::Shared, 0, rate).is_err() && Medium::create(Kind::Shared, 251, rate).is_err());
        assert!(Medium::create(Kind::Shared, 1, Rate { packets_per_s: 0, ..rate }).is_err());
    }
}
