//! Frames of a TUN device: a `virtio_net_hdr` (VIRTIO 1.2, 5.1.6) and an IP packet, which may stand for many.
//!
//! With segmentation offload, TCP passes down up to 64 KiB in one frame, to be split into packets of `gso_size` bytes of
//! payload, each with the headers of the first. The emulator never splits: it passes the frame on unchanged. But a rate, a
//! cost and a queue must count what a wire would carry, so the number of packets and their bytes are computed here.
//!
//! The sender controls the content of the packet, so it is not trusted: any inconsistent frame is counted as one packet of
//! its own length.

/// Bytes of the header before each packet.
pub const VNET_HEADER_BYTES: usize = 10;
/// An upper bound of a frame: the header, and 64 KiB of IP.
pub const FRAME_BYTES_MAX: usize = VNET_HEADER_BYTES + 65_536;

const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
/// Congestion was experienced: a flag in the type, not a type.
const GSO_ECN: u8 = 0x80;

/// The size of a frame on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireSize {
    /// IP packets.
    pub packets: u32,
    /// Their bytes, including headers.
    pub bytes: u64,
}

/// Returns the size on the wire of `frame`, a header and a packet; `None` if it is not an IP packet.
pub fn wire_size(frame: &[u8]) -> Option<WireSize> {
    let (header, packet) = frame.split_at_checked(VNET_HEADER_BYTES)?;
    let least = match packet.first()? >> 4 {
        4 => 20,
        6 => 40,
        _ => return None,
    };
    if packet.len() < least {
        return None;
    }
    Some(segmented_size(header, packet).unwrap_or(WireSize { packets: 1, bytes: packet.len() as u64 }))
}

/// The segments of a large packet, if it is one and its header is valid.
fn segmented_size(header: &[u8], packet: &[u8]) -> Option<WireSize> {
    let word = |at: usize| Some(usize::from(u16::from_ne_bytes([*header.get(at)?, *header.get(at + 1)?])));
    let (payload_each, transport) = (word(4)?, word(6)?);
    let headers = match header.get(1)? & !GSO_ECN {
        // The TCP header length is in the upper half of its 13th byte, in words of four bytes.
        GSO_TCPV4 | GSO_TCPV6 => transport + usize::from(packet.get(transport + 12)? >> 4) * 4,
        GSO_UDP_L4 => transport + 8,
        _ => return None,
    };
    let payload = packet.len().checked_sub(headers)?;
    if payload_each == 0 || payload == 0 {
        return None;
    }
    let packets = payload.div_ceil(payload_each);
    Some(WireSize { packets: u32::try_from(packets).ok()?, bytes: (packet.len() + (packets - 1) * headers) as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(gso: u8, gso_size: u16, transport: u16, packet: &[u8]) -> Vec<u8> {
        let mut frame = vec![1, gso, 0, 0];
        for word in [gso_size, transport, 16] {
            frame.extend(word.to_ne_bytes());
        }
        frame.extend(packet);
        frame
    }

    /// An IPv4 packet with TCP and ten words of its header.
    fn tcp(payload: usize) -> Vec<u8> {
        let mut packet = vec![0; 20 + 40 + payload];
        packet[0] = 0x45;
        packet[20 + 12] = 0xa0;
        packet
    }

    #[test]
    fn plain_packet_counts_once() {
        assert_eq!(wire_size(&frame(0, 0, 20, &tcp(100))), Some(WireSize { packets: 1, bytes: 160 }));
        let mut six = vec![0; 48];
        six[0] = 0x60;
        assert_eq!(wire_size(&frame(0, 0, 40, &six)), Some(WireSize { packets: 1, bytes: 48 }));
    }

    #[test]
    fn gso_packet_counts_as_its_segments() {
        // 10 000 bytes in packets of 1448 are seven, each with 60 bytes of headers.
        let expected = WireSize { packets: 7, bytes: 10_000 + 7 * 60 };
        assert_eq!(wire_size(&frame(GSO_TCPV4, 1448, 20, &tcp(10_000))), Some(expected));
        assert_eq!(wire_size(&frame(GSO_TCPV4 | GSO_ECN, 1448, 20, &tcp(10_000))), Some(expected));
        assert_eq!(wire_size(&frame(GSO_TCPV4, 1448, 20, &tcp(1448))), Some(WireSize { packets: 1, bytes: 1508 }));
        let udp = WireSize { packets: 3, bytes: 28 * 3 + 2500 };
        let mut packet = vec![0; 28 + 2500];
        packet[0] = 0x45;
        assert_eq!(wire_size(&frame(GSO_UDP_L4, 1000, 20, &packet)), Some(udp));
    }

    #[test]
    fn invalid_packets_count_as_one_or_none() {
        assert_eq!(wire_size(&[]), None);
        assert_eq!(wire_size(&[0; 10]), None);
        assert_eq!(wire_size(&frame(0, 0, 0, &[0x45; 19])), None);
        assert_eq!(wire_size(&frame(0, 0, 0, &[0x25; 60])), None);
        let one = Some(WireSize { packets: 1, bytes: 160 });
        assert_eq!(wire_size(&frame(GSO_TCPV4, 0, 20, &tcp(100))), one);
        assert_eq!(wire_size(&frame(GSO_TCPV4, 1448, 65_535, &tcp(100))), one);
        assert_eq!(wire_size(&frame(77, 1, 20, &tcp(100))), one);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic_or_shrink(bytes in prop::collection::vec(any::<u8>(), 0..300), large: bool, kind in 0..6_u8) {
            let mut bytes = bytes;
            if let Some(first) = bytes.get_mut(VNET_HEADER_BYTES) {
                *first = if large { 0x45 } else { 0x60 };
                bytes[1] = kind;
            }
            if let Some(size) = wire_size(&bytes) {
                prop_assert!(size.packets >= 1 && size.bytes >= (bytes.len() - VNET_HEADER_BYTES) as u64);
                prop_assert!(size.packets as usize <= bytes.len());
            }
        }
    }
}
