//! What an agent on a device sends, and what it is sent.

use device::remote::frame::{Frame, below};
use std::path::Path;

pub fn frames() -> Vec<Vec<u8>> {
    let all = [
        Frame::Part("run.fathom/meta.json".into(), b"{}".to_vec()),
        Frame::Start(vec!["fathom".into(), "net".into()]),
        Frame::Ask(vec!["read".into(), "/proc/version".into()]),
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

/// What is read is read the same from what it writes, and no name leads out of its folder.
pub fn frame(bytes: &[u8]) {
    let mut from = bytes;
    while let Ok(Some(frame)) = Frame::read(&mut from) {
        if let Frame::Part(name, _) | Frame::Fetch(name) = &frame
            && let Some(path) = below(Path::new("/folder"), name)
        {
            assert!(path.starts_with("/folder") && !name.split('/').any(|part| part == ".."));
        }
        let mut again = Vec::new();
        if frame.write(&mut again).is_ok() {
            assert_eq!(Frame::read(&mut &again[..]).ok().flatten(), Some(frame));
        }
    }
}
