//! The account of a flow at its receiving end, as far as that end can tell. Pure.
//!
//! A receiver sees whether its own program reads, and whether what it offers is used up each round trip. It does not see
//! why its peer sends no more: that is unknown here, and known at the other end.

use super::leaf::{Division, Leaf};
use crate::tcp_info::{OPTION_WSCALE, TcpSample};

/// Memory of unread data above this share of the receive buffer: the program does not read. (Half of it is overhead.)
const UNREAD_SHARE_MIN: f64 = 0.4;
/// The window limits if this share of it arrives in each round trip.
const WINDOW_SHARE_MIN: f64 = 0.7;

/// The leaf of an interval at the receiver.
pub fn leaf(before: &TcpSample, now: &TcpSample) -> Leaf {
    let is_unread = |s: &TcpSample| s.rcvbuf > 0 && s.rmem_alloc as f64 >= UNREAD_SHARE_MIN * s.rcvbuf as f64;
    if is_unread(before) && is_unread(now) {
        return Leaf::Reader;
    }
    let arrived = now.bytes_received.saturating_sub(before.bytes_received) as f64;
    let trips = now.time_ns.saturating_sub(before.time_ns) as f64 / 1e3 / now.rcv_rtt_us.max(1) as f64;
    let is_window_used = now.rcv_rtt_us > 0 && now.rcv_wnd > 0 && trips >= 1.0 && {
        let offered = now.rcv_wnd as f64 * trips;
        (WINDOW_SHARE_MIN * offered..=2.0 * offered).contains(&arrived)
    };
    match (is_window_used, now.options & OPTION_WSCALE != 0) {
        (true, true) => Leaf::ReceiveWindow,
        (true, false) => Leaf::ReceiveWindowUnscaled,
        (false, _) => Leaf::Unknown,
    }
}

/// The division of a flow's time at its receiver.
#[derive(Debug, Clone, Default)]
pub struct ReceivingAccount {
    last: Option<TcpSample>,
    division: Division,
}

impl ReceivingAccount {
    /// Takes the next sample and returns the division of the time since the previous one.
    pub fn push(&mut self, sample: &TcpSample) -> Division {
        let mut interval = Division::default();
        match &self.last {
            Some(before) if sample.time_ns < before.time_ns => return interval,
            Some(before) => interval.add(leaf(before, sample), sample.time_ns - before.time_ns),
            None => (),
        }
        self.division.add_all(&interval);
        self.last = Some(*sample);
        interval
    }

    pub fn division(&self) -> Division {
        self.division
    }
}
