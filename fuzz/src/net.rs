//! What the ends of `fathom net` say to each other, and what packets say.

use ::net::control::{Announcement, Message, parse_token};
use ::net::spec::{Direction, SocketOptions, Spec, Traffic};
use ::net::tcp_info::TcpSample;
use ::net::traffic::packet::PacketHeader;

/// Messages as they go over the wire.
pub fn message_seeds() -> Vec<Vec<u8>> {
    let spec = Spec {
        traffic: Traffic::Udp { rate_bps: 1_000_000, packet_bytes: 1470 },
        directions: vec![Direction::Up],
        streams: 1,
        duration_ms: 10_000,
        socket: SocketOptions { congestion: Some("cubic".into()), send_buffer: Some(9), ..SocketOptions::default() },
        copy: false,
        probe: false,
        readings: net::spec::Readings::All,
    };
    let samples = vec![TcpSample { time_ns: 5, cwnd: 10, ..TcpSample::default() }; 2];
    [
        Message::Hello { oldest: 1, newest: 1, program: "Fathom".into() },
        Message::Start { spec },
        Message::Ready { token: "00".repeat(16) },
        Message::Pong { asked_ns: 1, came_ns: u64::MAX, left_ns: 3 },
        Message::Samples { direction: Direction::Down, acks: false, samples },
        Message::Report { report: Box::default() },
    ]
    .iter()
    .filter_map(|m| m.frame().ok())
    .map(|frame| frame[4..].to_vec())
    .collect()
}

/// A message that is read can be written, and read again; a spec that is accepted has bounds.
pub fn check_message(bytes: &[u8]) {
    let Ok(message) = Message::parse(bytes) else { return };
    if let Message::Start { spec } = &message
        && spec.check().is_ok()
    {
        assert!((1..=128).contains(&spec.streams) && spec.duration_ms <= 3_600_000);
    }
    if let Message::Ready { token } = &message {
        // It is a token or none.
        let _ = parse_token(token);
    }
    let frame = message.frame().expect("what came in a frame fits one");
    assert!(Message::parse(&frame[4..]).is_ok());
}

/// An announcement, a packet and a reading of the kernel's.
pub fn binary_seeds() -> Vec<Vec<u8>> {
    let announcement = Announcement { token: [7; 16], direction: Direction::Down, stream: 3 };
    let mut packet = vec![1; 40];
    PacketHeader { number: 3, sent_ns: 4 }.write(77, &mut packet);
    vec![announcement.encoded()[8..].to_vec(), packet, vec![9; 280]]
}

/// Whatever is read is written back as it was.
pub fn check_binary(bytes: &[u8]) {
    if let Some(announcement) = Announcement::parse(bytes) {
        assert_eq!(&announcement.encoded()[8..], &bytes[..Announcement::ENCODED_BYTES]);
    }
    if let Some(packet) = PacketHeader::read(77, bytes) {
        let mut again = bytes.to_vec();
        packet.write(77, &mut again);
        assert_eq!(again, bytes);
        assert!(packet.number < u64::MAX);
    }
    let sample = TcpSample::parse(bytes);
    assert!(sample.cwnd <= u32::MAX.into() && (bytes.len() >= 232 || sample.snd_wnd == 0));
}

/// A `struct inet_diag_msg` of IPv4 or IPv6, with `struct tcp_info`, the name of a congestion control, memory and a cgroup.
pub fn diag_seeds() -> Vec<Vec<u8>> {
    let seed = |family: u8| {
        let mut message = vec![0_u8; 72];
        (message[0], message[1]) = (family, 1);
        for (kind, length) in [(2_u16, 280_usize), (4, 6), (7, 36), (21, 8)] {
            message.extend((length as u16 + 4).to_ne_bytes());
            message.extend(kind.to_ne_bytes());
            message.resize((message.len() + length).next_multiple_of(4), kind as u8);
        }
        message
    };
    vec![seed(2), seed(10)]
}

/// Any message is a socket or none, whatever its attributes' lengths, and an account takes what it says.
pub fn check_diag(bytes: &[u8]) {
    let Some(mut socket) = net::flow::diag::parse_socket(bytes) else { return };
    let mut account = net::flow::account::FlowAccount::new(socket.congestion.as_deref());
    for time_ns in [0, 1_000_000, 2_000_000_000] {
        socket.sample.time_ns = time_ns;
        account.push(&socket.sample);
    }
    account.finish();
    assert_eq!(account.division().total_ns(), 2_000_000_000);
}
