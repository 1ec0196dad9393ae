//! The wire format of the adb server. Lengths are checked before memory is allocated: the responses may come from any device.

use crate::remote::read::read_head;
use std::io::{self, Read, Write};

/// The maximum length of a service name: its length field has four hexadecimal digits.
const SERVICE_BYTES_MAX: usize = 0xffff;
/// The maximum accepted size of a shell packet or file chunk, bytes. adb's own are at most 64 KiB and 1 MiB.
pub const PACKET_BYTES_MAX: usize = 1 << 20;
/// The maximum size of a sent file chunk (SYNC_DATA_MAX).
pub const CHUNK_BYTES_MAX: usize = 64 << 10;

fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// Formats a request for a service: its length, then its name.
///
/// # Errors
/// It is too long.
pub fn format_request(service: &str) -> io::Result<Vec<u8>> {
    if service.len() > SERVICE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too long for a request to adb"));
    }
    Ok(format!("{:04x}{service}", service.len()).into_bytes())
}

/// Reads the four hexadecimal digits of a length, and that many bytes.
///
/// # Errors
/// The connection broke, or there are no digits.
pub fn read_block(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut digits = [0; 4];
    from.read_exact(&mut digits)?;
    let text = std::str::from_utf8(&digits).ok().filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
    let length = text.and_then(|d| usize::from_str_radix(d, 16).ok());
    let length = length.ok_or_else(|| invalid("adb's answer has no length"))?;
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Reads OKAY, or FAIL with the reason, which becomes the inner error.
///
/// # Errors
/// The connection broke, or it is neither.
pub fn read_status(from: &mut impl Read) -> io::Result<Result<(), String>> {
    let mut word = [0; 4];
    from.read_exact(&mut word)?;
    match &word {
        b"OKAY" => Ok(Ok(())),
        b"FAIL" => Ok(Err(String::from_utf8_lossy(&read_block(from)?).into_owned())),
        _ => Err(invalid("the peer is not an adb server")),
    }
}

/// A device as listed by the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedDevice {
    /// Serial number, or address and port.
    pub serial: String,
    /// `device`, `offline`, `unauthorized`, …
    pub state: String,
    /// Further fields: `product`, `model`, `device`, `usb`, `transport_id`.
    pub about: Vec<(String, String)>,
}

impl ListedDevice {
    /// A value of `about`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.about.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }
}

/// Keys appended by `host:devices-l` (transport.cpp, append_transport). A state may consist of several words, with colons in them.
const LIST_KEYS: [&str; 6] = ["usb", "product", "model", "device", "features", "transport_id"];

/// Parses the output of `host:devices`, `host:devices-l` or `host:track-devices`. Invalid lines are skipped.
pub fn parse_devices(text: &str) -> Vec<ListedDevice> {
    text.lines().filter_map(parse_device).collect()
}

fn parse_device(line: &str) -> Option<ListedDevice> {
    let line = line.trim_end();
    let (serial, rest) = line.split_once([' ', '\t'])?;
    let mut words: Vec<&str> = rest.split_whitespace().collect();
    let mut about = Vec::new();
    while let Some((key, value)) =
        words.last().and_then(|w| w.split_once(':')).filter(|(key, _)| LIST_KEYS.contains(key))
    {
        about.push((key.to_owned(), value.to_owned()));
        words.pop();
    }
    about.reverse();
    let state = words.join(" ");
    (!serial.is_empty() && !state.is_empty()).then(|| ListedDevice { serial: serial.into(), state, about })
}

/// A packet of the shell protocol, version 2 (shell_protocol.h): a byte of kind, a length of 4 bytes, and that many bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet {
    Stdin(Vec<u8>),
    Stdout(Vec<u8>),
    /// Error output of the command.
    Stderr(Vec<u8>),
    /// Its exit status; 128 plus the signal's number if it was killed by a signal.
    Exit(u8),
    /// The end of the command's input.
    CloseStdin,
    /// Another kind, of a later version.
    Other(u8, Vec<u8>),
}

impl Packet {
    /// Reads the next packet; `None` at the end between two packets.
    ///
    /// # Errors
    /// The connection broke within a packet, or it is too long.
    pub fn read(from: &mut impl Read) -> io::Result<Option<Self>> {
        let Some(head) = read_head::<5>(from)? else { return Ok(None) };
        let bytes = read_counted(from, [head[1], head[2], head[3], head[4]])?;
        Ok(Some(match (head[0], bytes.first()) {
            (0, _) => Self::Stdin(bytes),
            (1, _) => Self::Stdout(bytes),
            (2, _) => Self::Stderr(bytes),
            (3, Some(status)) if bytes.len() == 1 => Self::Exit(*status),
            (3, _) => return Err(invalid("invalid exit status from adb's shell")),
            (4, _) => Self::CloseStdin,
            (kind, _) => Self::Other(kind, bytes),
        }))
    }

    /// Writes the packet.
    ///
    /// # Errors
    /// The connection broke.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let status;
        let (kind, bytes): (u8, &[u8]) = match self {
            Self::Stdin(bytes) => (0, bytes),
            Self::Stdout(bytes) => (1, bytes),
            Self::Stderr(bytes) => (2, bytes),
            Self::Exit(number) => {
                status = [*number];
                (3, &status)
            }
            Self::CloseStdin => (4, &[]),
            Self::Other(kind, bytes) => (*kind, bytes),
        };
        let mut all = Vec::with_capacity(5 + bytes.len());
        all.push(kind);
        all.extend((bytes.len() as u32).to_le_bytes());
        all.extend(bytes);
        to.write_all(&all)?;
        to.flush()
    }
}

/// Reads a number of bytes given as little-endian `length`.
fn read_counted(from: &mut impl Read, length: [u8; 4]) -> io::Result<Vec<u8>> {
    let length = u32::from_le_bytes(length) as usize;
    if length > PACKET_BYTES_MAX {
        return Err(invalid("adb announces a packet that is too long"));
    }
    let mut bytes = Vec::new();
    from.take(length as u64).read_to_end(&mut bytes)?;
    if bytes.len() < length { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(bytes) }
}

/// Formats a request of the file service (file_sync_protocol.h): four letters, a length, a path.
pub fn sync_request(id: &[u8; 4], path: &str) -> Vec<u8> {
    [&id[..], &(path.len() as u32).to_le_bytes(), path.as_bytes()].concat()
}

/// Formats four letters and a number: the header of a chunk, or an end.
pub fn sync_head(id: &[u8; 4], number: u32) -> [u8; 8] {
    let mut all = [0; 8];
    all[..4].copy_from_slice(id);
    all[4..].copy_from_slice(&number.to_le_bytes());
    all
}

/// A response of the file service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyncAnswer {
    Okay,
    Fail(String),
    /// A part of a file.
    Data(Vec<u8>),
    /// There are no more parts.
    Done,
    /// The attributes of a file; `None` if it does not exist.
    Stat(Option<SyncStat>),
}

/// The attributes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncStat {
    /// Type and permissions.
    pub mode: u32,
    /// Bytes; in version 1 only the low 32 bits.
    pub size: u64,
    /// Last modification, s since 1970; in version 1 only the low 32 bits.
    pub mtime: i64,
}

impl SyncAnswer {
    /// Reads the next response.
    ///
    /// # Errors
    /// The connection broke, or the response is invalid.
    pub fn read(from: &mut impl Read) -> io::Result<Self> {
        let mut id = [0; 4];
        from.read_exact(&mut id)?;
        let mut word = || -> io::Result<u32> {
            let mut number = [0; 4];
            from.read_exact(&mut number)?;
            Ok(u32::from_le_bytes(number))
        };
        match &id {
            b"OKAY" => word().map(|_| Self::Okay),
            b"DONE" => word().map(|_| Self::Done),
            b"FAIL" => {
                let length = word()?;
                let why = read_counted(from, length.to_le_bytes())?;
                Ok(Self::Fail(String::from_utf8_lossy(&why).into_owned()))
            }
            b"DATA" => {
                let length = word()?;
                read_counted(from, length.to_le_bytes()).map(Self::Data)
            }
            b"STAT" => {
                let (mode, size, mtime) = (word()?, word()?, word()?);
                // Version 1 has no error field.
                Ok(Self::Stat((mode != 0).then(|| SyncStat { mode, size: size.into(), mtime: mtime.into() })))
            }
            b"STA2" | b"LST2" => {
                // error, dev, ino, mode, nlink, uid, gid, size, atime, mtime, ctime.
                let mut all = [0; 68];
                from.read_exact(&mut all)?;
                let u32_at = |at: usize| u32::from_le_bytes([all[at], all[at + 1], all[at + 2], all[at + 3]]);
                let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
                let stat = SyncStat { mode: u32_at(20), size: u64_at(36), mtime: u64_at(52) as i64 };
                Ok(Self::Stat((u32_at(0) == 0).then_some(stat)))
            }
            _ => Err(invalid("invalid reply from adb's file service")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn request_is_prefixed_by_hexadecimal_length() {
        assert_eq!(format_request("host:version").unwrap(), b"000chost:version");
        assert!(format_request(&"x".repeat(0x1_0000)).is_err());
    }

    #[test]
    fn status_is_okay_or_a_reason() {
        assert_eq!(read_status(&mut &b"OKAY"[..]).unwrap(), Ok(()));
        assert_eq!(read_status(&mut &b"FAIL0006closed"[..]).unwrap(), Err("closed".into()));
        for bad in [&b"HTTP/1.1"[..], b"FAIL00", b"FAIL+003abc", b"FAIL0009abc", b""] {
            assert!(read_status(&mut &bad[..]).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn device_list_is_parsed_with_states_of_several_words() {
        let text = "R58M\tdevice\n\
                    192.0.2.3:5555         device product:oriole model:Pixel_6 device:oriole transport_id:4\n\
                    4d00                   no permissions (user in plugdev group; are your udev rules wrong?); see [http://developer.android.com/tools/device.html] usb:1-2 transport_id:9\n\
                    \nnonsense\n";
        let all = parse_devices(text);
        assert_eq!(all.iter().map(|d| d.serial.as_str()).collect::<Vec<_>>(), ["R58M", "192.0.2.3:5555", "4d00"]);
        assert_eq!((all[1].state.as_str(), all[1].get("model")), ("device", Some("Pixel_6")));
        assert!(all[2].state.starts_with("no permissions (user") && all[2].state.ends_with("device.html]"));
        assert_eq!(
            (all[2].get("usb"), all[2].get("transport_id"), all[2].get("model")),
            (Some("1-2"), Some("9"), None)
        );
    }

    #[test]
    fn packets_of_the_shell_round_trip() {
        let all = [
            Packet::Stdin(b"a".to_vec()),
            Packet::Stdout(vec![]),
            Packet::Stderr(vec![0, 255]),
            Packet::Exit(137),
            Packet::CloseStdin,
            Packet::Other(5, b"24x80".to_vec()),
        ];
        let mut bytes = Vec::new();
        all.iter().for_each(|p| p.write(&mut bytes).unwrap());
        let mut from = &bytes[..];
        for packet in &all {
            assert_eq!(Packet::read(&mut from).unwrap().as_ref(), Some(packet));
        }
        assert_eq!(Packet::read(&mut from).unwrap(), None);
        assert!(Packet::read(&mut &bytes[..3]).is_err(), "truncated is no end");
        assert!(Packet::read(&mut &[1, 0xff, 0xff, 0xff, 0xff, 0][..]).is_err(), "nothing is allocated for a lie");
    }

    #[test]
    fn stat_of_both_versions_is_parsed() {
        let one = [&b"STAT"[..], &0o100_700_u32.to_le_bytes(), &5_u32.to_le_bytes(), &7_u32.to_le_bytes()].concat();
        let expected = Some(SyncStat { mode: 0o100_700, size: 5, mtime: 7 });
        assert_eq!(SyncAnswer::read(&mut &one[..]).unwrap(), SyncAnswer::Stat(expected));
        let mut two = [&b"STA2"[..], &[0; 68]].concat();
        two[24..28].copy_from_slice(&0o100_644_u32.to_le_bytes());
        two[40..48].copy_from_slice(&(5_u64 << 32).to_le_bytes());
        two[56..64].copy_from_slice(&9_u64.to_le_bytes());
        let expected = Some(SyncStat { mode: 0o100_644, size: 5 << 32, mtime: 9 });
        assert_eq!(SyncAnswer::read(&mut &two[..]).unwrap(), SyncAnswer::Stat(expected));
        two[4] = 2;
        assert_eq!(SyncAnswer::read(&mut &two[..]).unwrap(), SyncAnswer::Stat(None));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..96), text in ".{0,80}") {
            let _ = read_status(&mut &bytes[..]);
            let _ = SyncAnswer::read(&mut &bytes[..]);
            let mut from = &bytes[..];
            while let Ok(Some(packet)) = Packet::read(&mut from) {
                let mut again = Vec::new();
                packet.write(&mut again).unwrap();
                prop_assert_eq!(Packet::read(&mut &again[..]).unwrap().is_some(), true);
            }
            for device in parse_devices(&text) {
                prop_assert!(!device.serial.is_empty() && !device.state.is_empty());
            }
        }
    }
}
