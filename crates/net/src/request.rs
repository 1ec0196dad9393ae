//! What a command line requests for a run: the kind of traffic, and where the server is.

use crate::highest_rate;
use crate::link::spec::SpecError as LinkError;
use crate::quantity::{IPERF2_PACKET_BYTES, IPERF2_RATE_BPS, Rate};
use crate::remote::{ListenAddress, Server};
use crate::spec::{Direction, Traffic};
use crate::spec_error::SpecError;
use device::remote::DeviceAddress;
use std::net::{Ipv4Addr, SocketAddr};

/// Why a command line does not describe a valid run.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
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
    LocalEndOnLink,
    #[error("{0} is the wildcard address: give the server's own, such as 192.0.2.7:7100")]
    Wildcard(SocketAddr),
    /// QEMU forwards IPv4 only.
    #[error("{0}: ports are forwarded into a guest over IPv4 only")]
    NotForwarded(SocketAddr),
    /// A client on another machine reaches a guest only through this machine.
    #[error(
        "{0} reaches the guest through this machine: give an address and port of this machine, ADDR:PORT, that {0} reaches"
    )]
    GuestUnreachable(DeviceAddress),
    /// A guest's traffic leaves through QEMU.
    #[error("--link cannot carry a guest's traffic: QEMU sends it as this machine's own")]
    GuestOnLink,
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
pub enum TrafficKind {
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
pub fn requested_traffic(
    kind: TrafficKind,
    rate: Option<Rate>,
    directions: &[Direction],
) -> Result<Traffic, RequestError> {
    Ok(match (kind, rate) {
        (TrafficKind::Udp { .. }, Some(Rate::Auto)) if directions.len() > 1 => return Err(RequestError::OneDirection),
        (TrafficKind::Udp { packet_bytes }, Some(Rate::Auto)) => {
            Traffic::Udp { rate_bps: highest_rate::INITIAL_RATE_BPS, packet_bytes }
        }
        (TrafficKind::Udp { packet_bytes }, Some(Rate::Fixed(rate_bps))) => Traffic::Udp { rate_bps, packet_bytes },
        (TrafficKind::Udp { .. }, None) => return Err(RequestError::UdpNeedsRate),
        (TrafficKind::Iperf2, _) => Traffic::Udp { rate_bps: IPERF2_RATE_BPS, packet_bytes: IPERF2_PACKET_BYTES },
        (TrafficKind::Transactions { request_bytes, response_bytes }, _) => {
            Traffic::Transactions { request_bytes, response_bytes }
        }
        (TrafficKind::Tcp, Some(Rate::Auto)) => return Err(RequestError::AutoNeedsUdp),
        (TrafficKind::Tcp, Some(Rate::Fixed(rate))) => Traffic::Tcp { rate_bps: Some(rate) },
        (TrafficKind::Tcp, None) => Traffic::Tcp { rate_bps: None },
    })
}

/// The two ends of a run, as named on the command line.
#[derive(Debug, Clone, Copy)]
pub struct RequestedEnds<'a> {
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

impl<'a> RequestedEnds<'a> {
    /// Where the server is.
    pub fn server(&self) -> Result<Server<'a>, RequestError> {
        let local = |end: &DeviceAddress| *end == DeviceAddress::Local;
        if self.through_here && (local(self.from) || self.to.is_some_and(local)) {
            return Err(RequestError::LocalEndOnLink);
        }
        let guest = |end: &DeviceAddress| matches!(end, DeviceAddress::Lab(_));
        if self.through_here && (guest(self.from) || self.to.is_some_and(guest)) {
            return Err(RequestError::GuestOnLink);
        }
        match (self.to, self.address, self.interface) {
            (to, Some(address), _) if address.ip().is_unspecified() && (to.is_some() || !local(self.from)) => {
                Err(RequestError::Wildcard(address))
            }
            (None, Some(address), _) => Ok(Server::Stands(address)),
            (Some(to @ DeviceAddress::Lab(_)), address, _) => self.forwarded_server(to, address),
            (Some(to), Some(address), _) => Ok(Server::Start(to, ListenAddress::Address(address))),
            (Some(to), None, Some(interface)) => Ok(Server::Start(to, ListenAddress::Interface(interface))),
            (Some(to), None, None) if to == self.from => {
                Ok(Server::Start(to, ListenAddress::Address((Ipv4Addr::LOCALHOST, 0).into())))
            }
            _ => Err(RequestError::NoAddress),
        }
    }

    /// A server in a guest, reached through this address of this machine.
    fn forwarded_server(&self, to: &'a DeviceAddress, address: Option<SocketAddr>) -> Result<Server<'a>, RequestError> {
        let reachable = matches!(self.from, DeviceAddress::Local | DeviceAddress::Lab(_));
        match address.unwrap_or((Ipv4Addr::LOCALHOST, 0).into()) {
            SocketAddr::V4(at) if reachable || !at.ip().is_loopback() => {
                Ok(Server::Start(to, ListenAddress::Forwarded(at)))
            }
            SocketAddr::V4(_) => Err(RequestError::GuestUnreachable(self.from.clone())),
            at @ SocketAddr::V6(_) => Err(RequestError::NotForwarded(at)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_traffic_is_refused() {
        let up = [Direction::Up];
        let udp = TrafficKind::Udp { packet_bytes: 1000 };
        assert_eq!(requested_traffic(udp, None, &up), Err(RequestError::UdpNeedsRate));
        assert_eq!(requested_traffic(TrafficKind::Tcp, Some(Rate::Auto), &up), Err(RequestError::AutoNeedsUdp));
        assert_eq!(
            requested_traffic(udp, Some(Rate::Auto), &[Direction::Up, Direction::Down]),
            Err(RequestError::OneDirection)
        );
        let found = requested_traffic(udp, Some(Rate::Fixed(5000)), &up);
        assert_eq!(found, Ok(Traffic::Udp { rate_bps: 5000, packet_bytes: 1000 }));
        let iperf2 = Traffic::Udp { rate_bps: 1_000_000, packet_bytes: 1470 };
        assert_eq!(requested_traffic(TrafficKind::Iperf2, None, &up), Ok(iperf2));
        assert_eq!(
            requested_traffic(TrafficKind::Tcp, Some(Rate::Fixed(7000)), &up),
            Ok(Traffic::Tcp { rate_bps: Some(7000) })
        );
    }

    #[test]
    fn server_is_found_or_a_reason_is_given() {
        let (here, far) = (DeviceAddress::Local, DeviceAddress::Adb(None));
        let any: SocketAddr = "0.0.0.0:7100".parse().unwrap();
        let own: SocketAddr = "192.0.2.7:7100".parse().unwrap();
        let ends =
            |from, to, address, interface, through_here| RequestedEnds { from, to, address, interface, through_here };
        let why = |ends: RequestedEnds<'_>| ends.server().map(drop).unwrap_err();
        assert_eq!(why(ends(&here, Some(&far), Some(own), None, true)), RequestError::LocalEndOnLink);
        assert_eq!(why(ends(&far, Some(&here), Some(own), None, true)), RequestError::LocalEndOnLink);
        assert_eq!(why(ends(&far, None, Some(any), None, false)), RequestError::Wildcard(any));
        assert_eq!(why(ends(&here, Some(&far), Some(any), None, false)), RequestError::Wildcard(any));
        assert_eq!(why(ends(&here, Some(&far), None, None, false)), RequestError::NoAddress);
        assert_eq!(why(ends(&here, None, None, Some("lo"), false)), RequestError::NoAddress);
        let server = |ends: RequestedEnds<'_>| format!("{:?}", ends.server().unwrap());
        assert!(server(ends(&here, None, Some(any), None, false)).starts_with("Stands"));
        assert!(server(ends(&here, Some(&far), None, Some("wlan0"), false)).contains("wlan0"));
        assert!(server(ends(&far, Some(&far), None, None, false)).contains("127.0.0.1:0"));
        let guest = DeviceAddress::Lab("virtio-ext4".into());
        assert_eq!(why(ends(&far, Some(&guest), None, None, false)), RequestError::GuestUnreachable(far.clone()));
        assert_eq!(why(ends(&guest, Some(&far), Some(own), None, true)), RequestError::GuestOnLink);
        let six: SocketAddr = "[::1]:7100".parse().unwrap();
        assert_eq!(why(ends(&here, Some(&guest), Some(six), None, false)), RequestError::NotForwarded(six));
        assert!(server(ends(&far, Some(&guest), Some(own), None, false)).contains("Forwarded(192.0.2.7:7100)"));
        assert!(server(ends(&here, Some(&guest), None, Some("lo"), false)).contains("Forwarded(127.0.0.1:0)"));
    }
}
