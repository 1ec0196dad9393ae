//! A node of the paper: one process for each connection, all reading one file.
//!
//! The paper starts as many processes on a tablet as there are transfer threads. Here the listening process creates one by
//! `fork` for each connection, so that their number always matches. The file may be a real one or memory; an emulated
//! flash, if there is one, is shared by all of them.
//!
//! An address beyond the file, or a file that cannot be read, ends the connection: the protocol has no error messages.

use super::{ADDRESS_BYTES, decode_address, pattern};
use crate::flash::Flash;
use rustix::process::{Signal, WaitOptions, set_parent_process_death_signal, wait};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

/// The input buffer of a process: more requests than accumulate on one connection with batches of 100.
const INPUT_BUFFER_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub struct PaperNode {
    /// `None`: without I/O. Nothing is read, and the replies are whatever is in the buffer.
    file: Option<File>,
    size_bytes: u64,
    flash: Option<Flash>,
}

impl PaperNode {
    /// Serves an existing file; `io` is false for the paper's measurement without I/O.
    pub fn file(path: &Path, io: bool, flash: Option<Flash>) -> io::Result<Self> {
        let file = File::open(path)?;
        // Works for a block device too.
        let size_bytes = io::Seek::seek(&mut &file, io::SeekFrom::End(0))?;
        Ok(Self { file: io.then_some(file), size_bytes, flash: flash.filter(|_| io) })
    }

    /// Serves memory of `size_bytes`. With `first`, the address of its first byte in the cluster, it is filled so that
    /// replies can be checked ([`pattern`]); otherwise it reads as zeros and takes no memory.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn memory(size_bytes: u64, first: Option<u64>, io: bool, flash: Option<Flash>) -> io::Result<Self> {
        if first.is_some() && io && available_bytes().is_some_and(|available| size_bytes > available) {
            let text = format!("{size_bytes} bytes are more than this machine's free memory");
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, text));
        }
        let file = File::from(rustix::fs::memfd_create("paper-node", rustix::fs::MemfdFlags::CLOEXEC)?);
        file.set_len(size_bytes)?;
        if let Some(first) = first.filter(|_| io) {
            let mut part = Vec::with_capacity(1 << 20);
            let mut at = 0;
            while at < size_bytes {
                part.clear();
                part.extend((at..size_bytes.min(at + (1 << 20))).map(|at| pattern(first + at)));
                file.write_all_at(&part, at)?;
                at += part.len() as u64;
            }
        }
        Ok(Self { file: io.then_some(file), size_bytes, flash: flash.filter(|_| io) })
    }

    /// Bytes of its file.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Serves one connection until the other end closes it.
    ///
    /// # Errors
    /// Errors of the connection or the file, or an address beyond it.
    pub fn serve(&self, mut stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut input = vec![0; INPUT_BUFFER_BYTES];
        // Without I/O this is the reply, whatever it contains.
        let mut output = vec![0; INPUT_BUFFER_BYTES / ADDRESS_BYTES];
        let mut buffered = 0;
        loop {
            // All that has arrived: less than the buffer, except for a flood, whose rest waits for the next iteration.
            let count = stream.read(&mut input[buffered..])?;
            if count == 0 {
                return Ok(());
            }
            buffered += count;
            let (whole, rest) = input[..buffered].as_chunks::<ADDRESS_BYTES>();
            for (bytes, answer) in whole.iter().zip(&mut output) {
                self.read(decode_address(*bytes), answer)?;
            }
            let (count, rest) = (whole.len(), buffered - rest.len()..buffered);
            stream.write_all(&output[..count])?;
            buffered = rest.len();
            input.copy_within(rest, 0);
        }
    }

    fn read(&self, address: u64, answer: &mut u8) -> io::Result<()> {
        if address >= self.size_bytes {
            let text = format!("address {address} is beyond the file of {} bytes", self.size_bytes);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        if let Some(flash) = &self.flash {
            flash.read();
        }
        match &self.file {
            Some(file) => file.read_exact_at(std::slice::from_mut(answer), address),
            None => Ok(()),
        }
    }

    /// Serves all connections, a process for each; returns in those processes, with the result of the connection, and never
    /// in the listening one. Must be called by a single-threaded process.
    pub fn listen(&self, listener: &TcpListener, report: &dyn Fn(String)) -> io::Result<()> {
        loop {
            // Reap finished processes; nothing else waits for them.
            while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) => {
                    report(format!("cannot accept a connection: {error}"));
                    std::thread::sleep(Duration::from_millis(100));
                    continue;
                }
            };
            // SAFETY: the process has one thread, so the child inherits no lock held by another thread.
            match unsafe { libc::fork() } {
                0 => {
                    // Killing the node also kills its processes. If this fails, they end with their connections.
                    let _ = set_parent_process_death_signal(Some(Signal::KILL));
                    return self.serve(&stream);
                }
                -1 => report(format!("cannot fork a process for a connection: {}", io::Error::last_os_error())),
                _ => {}
            }
        }
    }
}

/// The memory available without swapping; `None` if the kernel does not report it.
fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::encode_address;

    /// A connection to a node that runs in a thread, and the node's result.
    fn connect_to(node: PaperNode) -> (TcpStream, std::thread::JoinHandle<io::Result<()>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        (stream, std::thread::spawn(move || node.serve(&far)))
    }

    #[test]
    fn addresses_are_answered_in_any_fragmentation() {
        let (mut stream, node) = connect_to(PaperNode::memory(100_000, Some(0), true, None).unwrap());
        stream.set_nodelay(true).unwrap();
        let addresses = [0, 99_999, 255, 256, 65_536, 77_777];
        let sent: Vec<u8> = addresses.iter().flat_map(|a| encode_address(*a)).collect();
        for cut in [1, 3, 7, 30] {
            for part in sent.chunks(cut) {
                stream.write_all(part).unwrap();
                std::thread::yield_now();
            }
            let mut answers = [0; 6];
            stream.read_exact(&mut answers).unwrap();
            assert_eq!(answers, addresses.map(pattern), "in parts of {cut}");
        }
        drop(stream);
        node.join().unwrap().unwrap();
    }

    #[test]
    fn address_beyond_the_file_ends_the_connection() {
        for io in [true, false] {
            let (mut stream, node) = connect_to(PaperNode::memory(10, None, io, None).unwrap());
            stream.write_all(&encode_address(10)).unwrap();
            assert_eq!(stream.read(&mut [0]).unwrap(), 0);
            assert!(node.join().unwrap().unwrap_err().to_string().contains("beyond the file of 10 bytes"));
        }
    }

    #[test]
    fn without_io_every_address_gets_a_byte() {
        let (mut stream, node) = connect_to(PaperNode::memory(1 << 40, None, false, None).unwrap());
        let sent: Vec<u8> = (0..10_000_u64).flat_map(|a| encode_address(a << 20)).collect();
        stream.write_all(&sent).unwrap();
        stream.read_exact(&mut [0; 10_000]).unwrap();
        drop(stream);
        node.join().unwrap().unwrap();
    }

    #[test]
    fn five_bytes_encode_an_address() {
        for at in [0, 1, 0x01_2345_6789, super::super::SPACE_BYTES_MAX - 1] {
            assert_eq!(decode_address(encode_address(at)), at);
        }
    }
}
