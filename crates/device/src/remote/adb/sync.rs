//! File transfer to and from a device, with adb's file service. Version 2 of each request is used where the device supports
//! it: it has 64-bit sizes, and numeric errors.

use super::server::{AdbServer, Failure};
use super::wire::{CHUNK_BYTES_MAX, SyncAnswer, SyncStat, sync_head, sync_request};
use crate::remote::read::read_some;
use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// How long a device may be silent, or take nothing: it also writes what it has in memory.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a device may take to close an aborted file.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The requested attributes of a file on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdbFile {
    /// Type and permissions.
    pub mode: u32,
    /// Bytes.
    pub size: u64,
}

/// A connection to the file service.
#[derive(Debug)]
pub struct AdbSync {
    stream: BufReader<TcpStream>,
    stat_v2: bool,
    sendrecv_v2: bool,
}

impl AdbSync {
    pub fn open(server: &AdbServer, serial: &str) -> Result<Self, Failure> {
        let features = server.features(serial)?;
        let has = |name: &str| features.iter().any(|f| f == name);
        let stream = server.open(serial, "sync:")?;
        stream
            .set_read_timeout(Some(SILENCE_TIMEOUT))
            .and_then(|()| stream.set_write_timeout(Some(SILENCE_TIMEOUT)))
            .map_err(device_lost)?;
        let stream = BufReader::new(stream);
        Ok(Self { stream, stat_v2: has("stat_v2"), sendrecv_v2: has("sendrecv_v2") })
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.stream.get_mut().write_all(bytes).map_err(device_lost)
    }

    fn read_answer(&mut self) -> Result<SyncAnswer, Failure> {
        match SyncAnswer::read(&mut self.stream).map_err(device_lost)? {
            SyncAnswer::Fail(why) => Err(Failure::Refused(why)),
            other => Ok(other),
        }
    }

    /// The attributes of a file; `None` if it does not exist, or is not accessible.
    pub fn stat(&mut self, path: &str) -> Result<Option<AdbFile>, Failure> {
        self.send(&sync_request(if self.stat_v2 { b"STA2" } else { b"STAT" }, path))?;
        match self.read_answer()? {
            SyncAnswer::Stat(stat) => Ok(stat.map(|SyncStat { mode, size, .. }| AdbFile { mode, size })),
            _ => Err(Failure::Refused("the device's reply does not match the request".into())),
        }
    }

    /// Writes a file there, with these permissions.
    ///
    /// # Errors
    /// See [`Failure`]; for a file that cannot be read here the reason is in its text.
    pub fn push(&mut self, from: &mut impl Read, path: &str, mode: u32) -> Result<(), Failure> {
        if self.sendrecv_v2 {
            self.send(&sync_request(b"SND2", path))?;
            // Type and permissions, and no compression.
            self.send(&[&b"SND2"[..], &(0o100_000 | mode).to_le_bytes(), &0_u32.to_le_bytes()].concat())?;
        } else {
            self.send(&sync_request(b"SEND", &format!("{path},{}", 0o100_000 | mode)))?;
        }
        let mut buffer = vec![0; CHUNK_BYTES_MAX];
        loop {
            let got = match read_some(from, &mut buffer) {
                Ok(0) => break,
                Ok(got) => got,
                Err(error) => {
                    self.give_up();
                    return Err(Failure::Refused(format!("cannot read the data to send: {error}")));
                }
            };
            let sent = self.send(&sync_head(b"DATA", got as u32)).and_then(|()| self.send(&buffer[..got]));
            if let Err(error) = sent {
                // A device without free space sends an error, and closes the connection.
                return Err(match self.read_answer() {
                    Err(Failure::Refused(why)) => Failure::Refused(why),
                    _ => error,
                });
            }
        }
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs() as u32);
        self.send(&sync_head(b"DONE", now))?;
        match self.read_answer()? {
            SyncAnswer::Okay => Ok(()),
            _ => Err(Failure::Refused("the device did not confirm the file".into())),
        }
    }

    /// Ends an incomplete file, and waits until the device has closed it: streams of a device are not ordered, so a command
    /// that removes the file could be executed before the file is written.
    fn give_up(&mut self) {
        let _ = self.stream.get_ref().set_read_timeout(Some(CLOSE_TIMEOUT));
        let _ = self.send(&sync_head(b"DONE", 0)).and_then(|()| self.read_answer());
    }

    /// Reads a file from there, at most `limit` bytes; returns its size.
    ///
    /// # Errors
    /// See [`Failure`]; it has more than `limit`, or cannot be written here.
    pub fn pull(&mut self, path: &str, to: &mut impl Write, limit: u64) -> Result<u64, Failure> {
        self.send(&sync_request(if self.sendrecv_v2 { b"RCV2" } else { b"RECV" }, path))?;
        if self.sendrecv_v2 {
            self.send(&sync_head(b"RCV2", 0))?;
        }
        let mut all = 0;
        loop {
            match self.read_answer()? {
                SyncAnswer::Data(bytes) => {
                    all += bytes.len() as u64;
                    if all > limit {
                        return Err(Failure::Refused(format!("{path} on the device is longer than {limit} bytes")));
                    }
                    to.write_all(&bytes)
                        .map_err(|e| Failure::Refused(format!("cannot write the received data: {e}")))?;
                }
                SyncAnswer::Done => return Ok(all),
                _ => return Err(Failure::Refused("the device's reply does not match the request".into())),
            }
        }
    }
}

fn device_lost(error: io::Error) -> Failure {
    Failure::DeviceLost(error)
}
