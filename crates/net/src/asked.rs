//! What a command line requests for a run: the kind of traffic, and where the server is.

use crate::highest;
use crate::link::spec::SpecError as LinkError;
use crate::quantity::{IPERF2_PACKET, IPERF2_RATE, Rate};
use crate::remote::{Listen, Server};
use crate::spec::{Direction, Traffic};
use crate::spec_error::SpecError;
use device::remote::DeviceAddress;
use std::net::{Ipv4Addr, SocketAddr};

/// Why a command line does not describe a valid run.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Unasked {
    /// UDP needs a send rate.
    #[error(
        "UDP needs a rate: give --rate R, --rate auto (the highest with at most 1 % loss), or --preset iperf2 (1 Mb/s)"
    )]
    UdpNeedsRate,
    /// A rate search does not apply to TCP.
    #[error("--rate auto applies to --udp only; TCP finds its rate by itself")]
    AutoNeedsUdp,
    /// A search for the highest rate covers one direction only.
    #[error("--rate auto needs one direction: --direction up or down")]
    OneDirection,
    /// This machine cannot be an end of a run whose traffic is routed through it.
    #[error(
        "--link needs two other devices, with this machine as the router between them: give --from DEVICE and --to DEVICE \
         (or ADDR:PORT). To make this machine an end, use a network namespace: docs/guide/net-link.md has the commands"
    )]
    Between,
    #[error("{0} is the wildcard address: give the server's own, such as 192.0.2.7:7100")]
    Wildcard(SocketAddr),
    /// QEMU forwards IPv4 only.
    #[error("{0}: ports are forwarded into a guest over IPv4 only")]
    NotForwarded(SocketAddr),
    /// A client on another machine reaches a guest only through this machine.
    #[error(
        "{0} reaches the guest through this machine: give an address and port of this machine, ADDR:PORT, that {0} reaches"
    )]
    Unreached(DeviceAddress),
    /// A guest's traffic leaves through QEMU.
    #[error("--link cannot carry a guest's traffic: QEMU sends it as this machine's own")]
    GuestBehind,
    /// The server has no address.
    #[error("no address to test: give --interface IF (the server listens on its address) or ADDR:PORT")]
    NoAddress,
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The emulated link cannot run it.
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// The requested traffic, apart from its rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Tcp,
    /// UDP in packets of a given size.
    Udp {
        /// Payload of a packet.
        packet_bytes: u32,
    },
    /// iperf 2's defaults for UDP.
    Iperf2,
    Transactions {
        /// Bytes of a request.
        request_bytes: u32,
        /// Bytes of a response.
        response_bytes: u32,
    },
}

/// The requested traffic. A search for the highest rate starts at a default rate.
///
/// # Errors
/// The traffic does not support this rate, or both directions.
pub fn traffic(kind: Kind, rate: Option<Rate>, directions: &[Direction]) -> Result<Traffic, Unasked> {
    Ok(match (kind, rate) {
        (Kind::Udp { .. }, Some(Rate::Auto)) if directions.len() > 1 => return Err(Unasked::OneDirection),
        (Kind::Udp { packet_bytes }, Some(Rate::Auto)) => Traffic::Udp { rate_bps: highest::FIRST, packet_bytes },
        (Kind::Udp { packet_bytes }, Some(Rate::Of(rate_bps))) => Traffic::Udp { rate_bps, packet_bytes },
        (Kind::Udp { .. }, None) => return Err(Unasked::UdpNeedsRate),
        (Kind::Iperf2, _) => Traffic::Udp { rate_bps: IPERF2_RATE, packet_bytes: IPERF2_PACKET },
        (Kind::Transactions { request_bytes, response_bytes }, _) => {
            Traffic::Transactions { request_bytes, response_bytes }
        }
        (Kind::Tcp, Some(Rate::Auto)) => return Err(Unasked::AutoNeedsUdp),
        (Kind::Tcp, Some(Rate::Of(rate))) => Traffic::Tcp { rate_bps: Some(rate) },
        (Kind::Tcp, None) => Traffic::Tcp { rate_bps: None },
    })
}

/// The two ends of a run, as named on the command line.
#[derive(Debug, Clone, Copy)]
pub struct Ends<'a> {
    /// Where the client runs.
    pub from: &'a DeviceAddress,
    /// Where the server is started, if Fathom starts it.
    pub to: Option<&'a DeviceAddress>,
    /// The server's address.
    pub address: Option<SocketAddr>,
    /// The network interface whose address the server can use.
    pub interface: Option<&'a str>,
    /// Whether the traffic is routed through this machine.
    pub through_here: bool,
}

impl<'a> Ends<'a> {
    /// Where the server is.
    pub fn server(&self) -> Result<Server<'a>, Unasked> {
        let local = |end: &DeviceAddress| *end == DeviceAddress::Local;
        if self.through_here && (local(self.from) || self.to.is_some_and(local)) {
            return Err(Unasked::Between);
        }
        let guest = |end: &DeviceAddress| matches!(end, DeviceAddress::Lab(_));
        if self.through_here && (guest(self.from) || self.to.is_some_and(guest)) {
            return Err(Unasked::GuestBehind);
        }
        match (self.to, self.address, self.interface) {
            (to, Some(address), _) if address.ip().is_unspecified() && (to.is_some() || !local(self.from)) => {
                Err(Unasked::Wildcard(address))
            }
            (None, Some(address), _) => Ok(Server::Stands(address)),
            (Some(to @ DeviceAddress::Lab(_)), address, _) => self.forwarded(to, address),
            (Some(to), Some(address), _) => Ok(Server::Start(to, Listen::At(address))),
            (Some(to), None, Some(interface)) => Ok(Server::Start(to, Listen::On(interface))),
            (Some(to), None, None) if to == self.from => {
                Ok(Server::Start(to, Listen::At((Ipv4Addr::LOCALHOST, 0).into())))
            }
            _ => Err(Unasked::NoAddress),
        }
    }

    /// A server in a guest, reached through this address of this machine.
    fn forwarded(&self, to: &'a DeviceAddress, address: Option<SocketAddr>) -> Result<Server<'a>, Unasked> {
        let reachable = matches!(self.from, DeviceAddress::Local | DeviceAddress::Lab(_));
        match address.unwrap_or((Ipv4Addr::LOCALHOST, 0).into()) {
            SocketAddr::V4(at) if reachable || !at.ip().is_loopback() => Ok(Server::Start(to, Listen::Forwarded(at))),
            SocketAddr::V4(_) => Err(Unasked::Unreached(self.from.clone())),
            at @ SocketAddr::V6(_) => Err(Unasked::NotForwarded(at)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_without_sense_is_refused() {
        let up = [Direction::Up];
        let udp = Kind::Udp { packet_bytes: 1000 };
        assert_eq!(traffic(udp, None, &up), Err(Unasked::UdpNeedsRate));
        assert_eq!(traffic(Kind::Tcp, Some(Rate::Auto), &up), Err(Unasked::AutoNeedsUdp));
        assert_eq!(traffic(udp, Some(Rate::Auto), &[Direction::Up, Direction::Down]), Err(Unasked::OneDirection));
        let found = traffic(udp, Some(Rate::Of(5000)), &up);
        assert_eq!(found, Ok(Traffic::Udp { rate_bps: 5000, packet_bytes: 1000 }));
        let iperf2 = Traffic::Udp { rate_bps: 1_000_000, packet_bytes: 1470 };
        assert_eq!(traffic(Kind::Iperf2, None, &up), Ok(iperf2));
        assert_eq!(traffic(Kind::Tcp, Some(Rate::Of(7000)), &up), Ok(Traffic::Tcp { rate_bps: Some(7000) }));
    }

    #[test]
    fn server_is_found_or_reason_given() {
        let (here, far) = (DeviceAddress::Local, DeviceAddress::Adb(None));
        let any: SocketAddr = "0.0.0.0:7100".parse().unwrap();
        let own: SocketAddr = "192.0.2.7:7100".parse().unwrap();
        let ends = |from, to, address, interface, through_here| Ends { from, to, address, interface, through_here };
        let why = |ends: Ends<'_>| ends.server().map(drop).unwrap_err();
        assert_eq!(why(ends(&here, Some(&far), Some(own), None, true)), Unasked::Between);
        assert_eq!(why(ends(&far, Some(&here), Some(own), None, true)), Unasked::Between);
        assert_eq!(why(ends(&far, None, Some(any), None, false)), Unasked::Wildcard(any));
        assert_eq!(why(ends(&here, Some(&far), Some(any), None, false)), Unasked::Wildcard(any));
        assert_eq!(why(ends(&here, Some(&far), None, None, false)), Unasked::NoAddress);
        assert_eq!(why(ends(&here, None, None, Some("lo"), false)), Unasked::NoAddress);
        let server = |ends: Ends<'_>| format!("{:?}", ends.server().unwrap());
        assert!(server(ends(&here, None, Some(any), None, false)).starts_with("Stands"));
        assert!(server(ends(&here, Some(&far), None, Some("wlan0"), false)).contains("wlan0"));
        assert!(server(ends(&far, Some(&far), None, None, false)).contains("127.0.0.1:0"));
        let guest = DeviceAddress::Lab("virtio-ext4".into());
        assert_eq!(why(ends(&far, Some(&guest), None, None, false)), Unasked::Unreached(far.clone()));
        assert_eq!(why(ends(&guest, Some(&far), Some(own), None, true)), Unasked::GuestBehind);
        let six: SocketAddr = "[::1]:7100".parse().unwrap();
        assert_eq!(why(ends(&here, Some(&guest), Some(six), None, false)), Unasked::NotForwarded(six));
        assert!(server(ends(&far, Some(&guest), Some(own), None, false)).contains("Forwarded(192.0.2.7:7100)"));
        assert!(server(ends(&here, Some(&guest), None, Some("lo"), false)).contains("Forwarded(127.0.0.1:0)"));
    }
}
