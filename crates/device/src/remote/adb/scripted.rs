//! Tests with a scripted adb server: the responses of each connection are known bytes, so that a connection can end after
//! each of them, and a device can print endlessly.

use super::server::{AdbServer, Failure};
use super::wire::{Packet, SyncAnswer};
use super::{AdbSync, shell};
use crate::remote::pipe::Ending;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Responses of a server, by the prefix of the request.
type Script = &'static [(&'static str, &'static [u8])];

const FILE_SCRIPT: Script = &[
    ("host-serial:", b"OKAY0008shell_v2"),
    ("host:transport:", b"OKAY"),
    ("sync:", b"OKAY"),
    ("STAT", b"STAT\xa4\x81\0\0\x05\0\0\0\x07\0\0\0"),
    ("RECV", b"DATA\x03\0\0\0abcDATA\x02\0\0\0deDONE\0\0\0\0"),
    ("SEND", b"OKAY\0\0\0\0"),
];

/// A server with this script whose connections end after `cut` bytes of responses in total.
fn start_server(script: Script, cut: usize) -> AdbServer {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut left = cut;
        // Ends with the test's process; a test opens few.
        for stream in listener.incoming().take(4) {
            let Ok(stream) = stream else { return };
            let _ = serve(&stream, script, &mut left);
        }
    });
    AdbServer::from_address(address)
}

fn serve(mut stream: &TcpStream, script: Script, left: &mut usize) -> io::Result<()> {
    let mut in_sync = false;
    loop {
        let request = if in_sync { read_sync_request(&mut stream)? } else { read_request(&mut stream)? };
        in_sync |= request == "sync:";
        let answer = script.iter().find(|(begin, _)| request.starts_with(begin)).map_or(&b"FAIL0002no"[..], |(_, a)| a);
        let part = &answer[..answer.len().min(*left)];
        *left -= part.len();
        stream.write_all(part)?;
        if part.len() < answer.len() {
            return Ok(());
        }
    }
}

fn read_request(from: &mut impl Read) -> io::Result<String> {
    let mut digits = [0; 4];
    from.read_exact(&mut digits)?;
    let length = std::str::from_utf8(&digits).ok().and_then(|d| usize::from_str_radix(d, 16).ok());
    let mut name = vec![0; length.ok_or(io::ErrorKind::InvalidData)?];
    from.read_exact(&mut name)?;
    Ok(String::from_utf8_lossy(&name).into_owned())
}

/// Reads four letters, then a counted name; a file that is sent is read to its end.
fn read_sync_request(from: &mut impl Read) -> io::Result<String> {
    loop {
        let (mut id, mut number) = ([0; 4], [0; 4]);
        from.read_exact(&mut id)?;
        from.read_exact(&mut number)?;
        if &id == b"DONE" {
            return Ok("SEND".into());
        }
        let mut name = vec![0; u32::from_le_bytes(number) as usize];
        from.read_exact(&mut name)?;
        if &id != b"SEND" && &id != b"DATA" {
            return Ok(String::from_utf8_lossy(&id).into_owned());
        }
    }
}

fn script_bytes(script: Script, begins: &[&str]) -> usize {
    begins.iter().map(|begin| script.iter().find(|(b, _)| b == begin).unwrap().1.len()).sum()
}

/// Ends the connections after each byte of a command's responses: the command fails, and the error is of a connection or of the device.
fn cut_everywhere<T: std::fmt::Debug>(whole: usize, of: impl Fn(&AdbServer) -> Result<T, Failure>) -> T {
    for cut in 0..whole {
        let failed = of(&start_server(FILE_SCRIPT, cut)).unwrap_err();
        assert!(
            matches!(failed, Failure::ServerLost(..) | Failure::DeviceLost(_)),
            "after {cut} of {whole} bytes: {failed}"
        );
    }
    of(&start_server(FILE_SCRIPT, whole)).unwrap()
}

#[test]
fn pull_cut_at_any_byte_is_never_whole() {
    let whole = script_bytes(FILE_SCRIPT, &["host-serial:", "host:transport:", "sync:", "RECV"]);
    let bytes = cut_everywhere(whole, |server| {
        let mut to = Vec::new();
        AdbSync::open(server, "R58")?.pull("/data/local/tmp/f", &mut to, 100).map(|_| to)
    });
    assert_eq!(bytes, b"abcde");
}

#[test]
fn push_cut_at_any_byte_is_never_done() {
    let whole = script_bytes(FILE_SCRIPT, &["host-serial:", "host:transport:", "sync:", "SEND"]);
    cut_everywhere(whole, |server| {
        AdbSync::open(server, "R58")?.push(&mut &b"program"[..], "/data/local/tmp/f", 0o700)
    });
}

#[test]
fn stat_cut_at_any_byte_is_no_answer() {
    let whole = script_bytes(FILE_SCRIPT, &["host-serial:", "host:transport:", "sync:", "STAT"]);
    let stat = cut_everywhere(whole, |server| AdbSync::open(server, "R58")?.stat("/data/local/tmp/f"));
    assert_eq!(stat.unwrap().size, 5);
}

const SHELL_SCRIPT: Script =
    &[("host:transport:", b"OKAY"), ("shell,v2,raw:", b"OKAY\x01\x03\0\0\0abc\x02\x02\0\0\0no\x03\x01\0\0\0\x07")];

#[test]
fn shell_cut_at_any_byte_has_no_exit_status() {
    let whole = script_bytes(SHELL_SCRIPT, &["host:transport:", "shell,v2,raw:"]);
    for cut in 0..=whole {
        let opened = shell::open(&start_server(SHELL_SCRIPT, cut), "R58", "x");
        // Both responses of the server have arrived: the command runs.
        let Ok(pipe) = opened else {
            assert!(cut < 8, "after {cut} bytes");
            continue;
        };
        let (mut from, mut complaints, mut life) = (pipe.from, pipe.complaints, pipe.life);
        let (mut out, mut err) = (Vec::new(), Vec::new());
        from.read_to_end(&mut out).unwrap();
        complaints.read_to_end(&mut err).unwrap();
        assert!(b"abc".starts_with(&out[..]) && b"no".starts_with(&err[..]), "after {cut} bytes: {out:?} {err:?}");
        let ending = life.wait(Duration::from_secs(20)).expect("it does not end");
        if cut == whole {
            assert_eq!((ending, out, err), (Ending::Exit(7), b"abc".to_vec(), b"no".to_vec()));
        } else {
            assert!(matches!(ending, Ending::Lost(_)), "after {cut} of {whole} bytes: {ending:?}");
        }
    }
}

/// Memory is not allocated for announced data before it arrives: a false length of 4 GiB costs nothing.
#[test]
fn announced_lengths_are_not_trusted() {
    for head in [&b"DATA\xff\xff\xff\xff"[..], b"FAIL\xff\xff\xff\xff"] {
        assert!(SyncAnswer::read(&mut &head[..]).is_err(), "{head:?}");
    }
    assert!(Packet::read(&mut &[1, 0xff, 0xff, 0xff, 0xff][..]).is_err());
}

/// A device that prints a gigabyte: how much of it was read when the request is cancelled.
#[test]
fn endless_output_is_given_up_early() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = AdbServer::from_address(listener.local_addr().unwrap().to_string());
    let sent = Arc::new(AtomicU64::new(0));
    let device = std::thread::spawn({
        let sent = sent.clone();
        move || {
            let (mut stream, _) = listener.accept().unwrap();
            for _ in 0..2 {
                read_request(&mut stream).unwrap();
                stream.write_all(b"OKAY").unwrap();
            }
            let mut packet = Vec::new();
            Packet::Stdout(vec![b'['; 64 << 10]).write(&mut packet).unwrap();
            while sent.load(Ordering::Relaxed) < 1 << 30 && stream.write_all(&packet).is_ok() {
                sent.fetch_add(64 << 10, Ordering::Relaxed);
            }
        }
    });
    let mut pipe = shell::open(&server, "R58", "getprop").unwrap();
    let mut taken = Vec::new();
    pipe.from.by_ref().take(1 << 20).read_to_end(&mut taken).unwrap();
    assert_eq!(taken.len(), 1 << 20);
    // The device blocks: every buffer on the path is full.
    let mut before = 0;
    while before != sent.load(Ordering::Relaxed) {
        before = sent.load(Ordering::Relaxed);
        // Long enough for all pending sends.
        std::thread::sleep(Duration::from_millis(100));
    }
    pipe.life.kill();
    device.join().unwrap();
    // The buffers of two sockets and a pipe, and no more.
    assert!(sent.load(Ordering::Relaxed) < 64 << 20, "{} bytes were taken", sent.load(Ordering::Relaxed));
}

#[test]
fn server_of_another_version_is_used_as_it_is() {
    // The adb client kills a server of another version, and thereby all connections of other users; Fathom has no need to.
    static LISTING_SCRIPT: Script = &[("host:devices-l", b"OKAY000bR58\tdevice\n"), ("host:kill", b"OKAY")];
    assert_eq!(start_server(LISTING_SCRIPT, 100).devices().unwrap()[0].serial, "R58");
    let refused = start_server(LISTING_SCRIPT, 100).features("R58").unwrap_err();
    assert!(matches!(&refused, Failure::Refused(why) if why == "no"), "{refused}");
}
