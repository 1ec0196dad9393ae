//! The emulated link between two devices, with this machine as the router: traffic to an address and back passes through the link.
//!
//! The devices keep their networks, and so does the rest of the machine ([`lab::router`]). The client of the link is the
//! device that connects, the server is the address. The delay of the real path adds to that of the link.

use super::engine::{Emulator, Engine, Outcome, TUN_QUEUE_PACKETS};
use super::schedule::{DOWN, UP};
use super::spec::Spec;
use super::test_bed::parse_drops;
use lab::router::{DEVICE_NAMES, Router};
use std::io::{Error, Result};
use std::net::SocketAddr;

/// A link in the path; dropping it restores the original route.
#[derive(Debug)]
pub struct RoutedLink {
    // The rules are removed before the devices that they refer to.
    router: Router,
    emulator: Emulator,
    server: SocketAddr,
}

impl RoutedLink {
    /// Routes traffic to `server` through an emulator.
    ///
    /// # Errors
    /// The link is not possible, or this machine does not permit it; the text says what is missing.
    pub fn create(spec: &Spec, server: SocketAddr) -> Result<Self> {
        spec.check().map_err(Error::other)?;
        let (router, [to, from]) = Router::create(server, spec.mtu(), TUN_QUEUE_PACKETS)?;
        let emulator = Engine::new(to, from, spec)?.start()?;
        Ok(Self { router, emulator, server })
    }

    /// Restores the route and returns the outcome. If nothing passed the link, or its devices are gone so that the traffic
    /// is unknown, [`Outcome::failure`] says so.
    pub fn finish(mut self) -> Outcome {
        let table = std::fs::read_to_string("/proc/self/net/dev");
        drop(self.router);
        let mut outcome = self.emulator.stop();
        let counted =
            table.and_then(|table| DEVICE_NAMES.iter().map(|device| parse_drops(&table, device)).sum::<Result<u64>>());
        let trouble = match counted {
            Ok(lost) => {
                outcome.overrun += lost;
                bypass_reason(self.server, outcome.counts.map(|c| c.offered))
            }
            Err(error) => Some(error.to_string()),
        };
        outcome.failure = outcome.failure.or(trouble);
        outcome
    }
}

/// Why a direction bypassed the link, derived from the packets offered to it.
fn bypass_reason(server: SocketAddr, offered: [u64; 2]) -> Option<String> {
    match (offered[UP], offered[DOWN]) {
        (0, _) => Some(format!(
            "no packet for {server} reached the link: the client's route does not go through this machine, or a \
             firewall here drops its packets (`nft list ruleset`)"
        )),
        (_, 0) => Some(format!(
            "packets for {server} passed the link, but none came back through it: the server's return route does not \
             go through this machine, or a firewall or NAT here interferes (`nft list ruleset`)"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bypassed_link_is_reported() {
        let server = "192.0.2.7:7100".parse().unwrap();
        let remedy = |up, down| bypass_reason(server, [up, down]).unwrap_or_default();
        assert!(remedy(0, 0).contains("the client's route") && remedy(0, 9).contains("the client's route"));
        assert!(remedy(9, 0).contains("return route"));
        assert_eq!(bypass_reason(server, [1, 1]), None);
    }
}
