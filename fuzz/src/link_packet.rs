//! What a TUN device hands to the emulated link: a header and a packet, both written by whoever sends into it.

use net::link::packet::{VNET_HEADER_BYTES, wire_size};
use net::link::schedule::{EmulatedLink, UP};
use net::link::{DirectionSpec, Spec};

/// A header and a packet of 3,000 bytes of TCP, to be cut, or of UDP, whole.
fn make_frame(kind: u8, version: u8) -> Vec<u8> {
    let mut frame = vec![1, kind, 66, 0];
    for word in [1448_u16, if version == 4 { 20 } else { 40 }, 16] {
        frame.extend(word.to_ne_bytes());
    }
    frame.resize(VNET_HEADER_BYTES + 3000, 0);
    frame[VNET_HEADER_BYTES] = version << 4 | 5;
    // TCP's header is of 20 bytes.
    frame[VNET_HEADER_BYTES + if version == 4 { 20 } else { 40 } + 12] = 0x50;
    frame
}

pub fn packet_seeds() -> Vec<Vec<u8>> {
    vec![make_frame(1, 4), make_frame(4, 6), make_frame(0, 4), make_frame(5, 4)]
}

/// A packet is at least one packet and its own bytes, and the link it is put on accounts for it.
pub fn check_packet(bytes: &[u8]) {
    let Some(size) = wire_size(bytes) else { return };
    assert!(size.packets >= 1 && size.bytes >= (bytes.len() - VNET_HEADER_BYTES) as u64);
    let way = DirectionSpec {
        rate_bps: 1_000_000,
        packet_ns: 1000,
        delay_ns: 1000,
        queue_packets: 10,
        ..DirectionSpec::default()
    };
    let mut link = EmulatedLink::new(&Spec::symmetric(way));
    let _ = link.push(UP, (), size, 0);
    while let Some(next) = link.next_event() {
        while link.pop(next).is_some() {}
    }
    let counts = link.counts(UP);
    assert_eq!(counts.offered, counts.delivered + counts.dropped + counts.rejected);
    assert_eq!(counts.offered, u64::from(size.packets));
}
