//! What an agent on a device sends, and what it is sent; and what an adb server, or a device behind it, answers.

use device::remote::adb::wire::{self, Packet, SyncAnswer};
use device::remote::detached::{Description, DetachedCommands, Status};
use device::remote::frame::{Frame, path_below};
use std::path::Path;

pub fn frame_seeds() -> Vec<Vec<u8>> {
    let all = [
        Frame::Part("run.fathom/meta.json".into(), b"{}".to_vec()),
        Frame::Start(vec!["fathom".into(), "net".into()]),
        Frame::Ask(vec!["read".into(), "/proc/version".into()]),
        Frame::Follow(vec!["run.fathom".into(), "tables".into()]),
        Frame::Piece("run.fathom/events.log".into(), 3, b"abc".to_vec()),
        Frame::Exit(-9),
        Frame::Done(Err("no".into())),
        Frame::Pong(1, 2),
        Frame::Answer(Ok("x".into())),
    ];
    let mut bytes = Vec::new();
    for frame in &all {
        // A vector takes everything.
        let _ = frame.write(&mut bytes);
    }
    assert!(!bytes.is_empty(), "the seeds cannot be made");
    vec![bytes]
}

/// What is read is read the same from what it writes, and no name leads out of its directory.
pub fn check_frame(bytes: &[u8]) {
    let mut from = bytes;
    while let Ok(Some(frame)) = Frame::read(&mut from) {
        if let Frame::Part(name, _) | Frame::Piece(name, ..) = &frame
            && let Some(path) = path_below(Path::new("/directory"), name)
        {
            assert!(path.starts_with("/directory") && !name.split('/').any(|part| part == ".."));
        }
        let mut again = Vec::new();
        if frame.write(&mut again).is_ok() {
            assert_eq!(Frame::read(&mut &again[..]).ok().flatten(), Some(frame));
        }
    }
}

pub fn answer_seeds() -> Vec<Vec<u8>> {
    let list =
        "R58M\tdevice product:a model:B device:c transport_id:4\n4d no permissions (x); see [http://y] usb:1-2\n";
    let listed = format!("OKAY{:04x}{list}", list.len()).into_bytes();
    let refused = b"FAIL000edevice offline".to_vec();
    let mut packets = Vec::new();
    for packet in
        [Packet::Stdout(b"text".to_vec()), Packet::Stderr(vec![0, 255]), Packet::CloseStdin, Packet::Exit(137)]
    {
        // A vector takes everything.
        let _ = packet.write(&mut packets);
    }
    let stat = [&b"STA2"[..], &[0; 68]].concat();
    let files =
        [&b"DATA\x03\0\0\0abc"[..], b"DONE\0\0\0\0", b"STAT", &[1; 12], b"FAIL\x02\0\0\0no", b"OKAY\0\0\0\0", &stat]
            .concat();
    vec![listed, refused, packets, files]
}

/// Nothing is kept that was only announced; what is listed has a name and a state; a packet is read as it was written.
pub fn check_answer(bytes: &[u8]) {
    let mut from = bytes;
    if let Ok(Ok(())) = wire::read_status(&mut from)
        && let Ok(block) = wire::read_block(&mut from)
    {
        assert!(block.len() <= 0xffff);
    }
    for device in wire::parse_devices(&String::from_utf8_lossy(bytes)) {
        assert!(!device.serial.is_empty() && !device.state.is_empty() && !device.serial.contains([' ', '\n']));
    }
    let mut from = bytes;
    while let Ok(Some(packet)) = Packet::read(&mut from) {
        let mut again = Vec::new();
        let _ = packet.write(&mut again);
        assert_eq!(Packet::read(&mut &again[..]).ok().flatten(), Some(packet));
    }
    let mut from = bytes;
    while let Ok(answer) = SyncAnswer::read(&mut from) {
        if let SyncAnswer::Data(data) = answer {
            assert!(data.len() <= wire::PACKET_BYTES_MAX);
        }
    }
}

pub fn detached_seeds() -> Vec<Vec<u8>> {
    let about = br#"{"version":1,"argv":["fathom","bench"],"lease_s":150,"boot":"b","keeper":7,"began":9,"command":8,"since_s":1}"#;
    vec![about.to_vec(), br#"{"exit":-9,"by":"lease"}"#.to_vec(), b"run-7".to_vec()]
}

/// What is read of a detached command is read the same from what is written, and its name leads nowhere else.
pub fn check_detached(bytes: &[u8]) {
    if let Ok(about) = Description::parse(bytes) {
        let again = serde_json::to_vec(&about).unwrap_or_default();
        assert_eq!(Description::parse(&again), Ok(about));
    }
    if let Ok(status) = Status::parse(bytes) {
        let again = serde_json::to_vec(&status).unwrap_or_default();
        assert_eq!(Status::parse(&again), Ok(status));
    }
    let directory = Path::new("/directory");
    if let Ok(place) = DetachedCommands::in_directory(directory).place(&String::from_utf8_lossy(bytes)) {
        assert!(place.path().starts_with(directory) && place.path().components().count() == 4);
    }
}
