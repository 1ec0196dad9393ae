//! Pools of processes: nodes with stores in files, a coordinator, and a client that keeps many requests in flight.

use crate::fathom;
use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// `fathom pool …`.
pub fn pool_command(words: &[&str]) -> Command {
    let mut command = Command::new(fathom());
    command.arg("pool").args(words).stdin(Stdio::null());
    command
}

/// A process whose first line is its address.
pub struct Server {
    child: Child,
    pub says: String,
}

impl Server {
    /// Starts `fathom pool …`.
    pub fn start(words: &[&str]) -> Result<Self> {
        Self::started(&mut pool_command(words))
    }

    /// Starts a command of [`pool_command`], whose stderr may be redirected.
    pub fn started(command: &mut Command) -> Result<Self> {
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let mut says = String::new();
        BufReader::new(child.stdout.take().context("it has no stdout")?).read_line(&mut says)?;
        ensure!(!says.is_empty(), "{command:?} said nothing: {}", child.wait()?);
        Ok(Self { child, says: says.trim().into() })
    }

    /// Starts one that will be disturbed on purpose: its stderr is discarded.
    fn start_quiet(words: &[&str]) -> Result<Self> {
        Self::started(pool_command(words).stderr(Stdio::null()))
    }

    /// Ends it as a user would.
    pub fn end(mut self) -> Result<()> {
        ensure!(Command::new("kill").arg(self.child.id().to_string()).status()?.success(), "it is gone already");
        let status = self.child.wait()?;
        ensure!(status.success(), "it ended with {status}");
        Ok(())
    }

    /// Waits until it ends by itself.
    pub fn exits(mut self) -> Result<ExitStatus> {
        for _ in 0..6000 {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        bail!("it goes on")
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Stops it with SIGSTOP, or has it go on with SIGCONT.
    pub fn signal(&self, signal: i32) -> Result<()> {
        // SAFETY: a plain system call; the child has not been waited for, so the number is its own.
        let sent = unsafe { libc::kill(self.child.id() as i32, signal) };
        ensure!(sent == 0, "{}", std::io::Error::last_os_error());
        Ok(())
    }

    /// Its peak memory, in KiB (VmHWM).
    pub fn peak_kib(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Nodes with stores in a directory, and their coordinator behind a Unix socket.
pub struct Pool {
    /// Contains the stores, and has room for more.
    pub directory: tempfile::TempDir,
    nodes: Vec<Server>,
    coordinator: Option<Server>,
    options: Vec<String>,
}

impl Pool {
    /// Makes stores of these sizes (as the program takes them), serves and joins them; `options` are those of `pool serve`.
    pub fn new(sizes: &[&str], options: &[&str]) -> Result<Self> {
        let options = options.iter().map(ToString::to_string).collect();
        let mut pool_of = Self { directory: tempfile::tempdir()?, nodes: Vec::new(), coordinator: None, options };
        for (nth, size) in sizes.iter().enumerate() {
            let store = pool_of.store(nth).display().to_string();
            crate::run(&mut pool_command(&["node", "--init", "--store", &store, "--size", size]))?;
            pool_of.nodes.push(pool_of.node(nth, "127.0.0.1:0")?);
        }
        pool_of.serve()?;
        Ok(pool_of)
    }

    /// How many nodes there are.
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// The file of a node's store.
    pub fn store(&self, nth: usize) -> PathBuf {
        self.directory.path().join(format!("store{nth}"))
    }

    /// The coordinator's socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("nbd")
    }

    /// The disk, as clients name it.
    pub fn uri(&self) -> &str {
        self.coordinator.as_ref().map_or("", |coordinator| &coordinator.says)
    }

    fn node(&self, nth: usize, listen: &str) -> Result<Server> {
        let store = self.store(nth).display().to_string();
        Server::start_quiet(&["node", "--store", &store, "--listen", listen, "--insecure"])
    }

    /// Kills a node with SIGKILL and restarts it at the same address.
    pub fn restart_node(&mut self, nth: usize) -> Result<()> {
        self.nodes[nth].kill()?;
        let address = self.nodes[nth].says.clone();
        self.nodes[nth] = self.node(nth, &address)?;
        Ok(())
    }

    /// Starts the coordinator.
    pub fn serve(&mut self) -> Result<()> {
        let front = format!("unix:{}", self.socket().display());
        let mut words = vec!["serve", "--insecure", "--nbd", &front];
        words.extend(self.nodes.iter().flat_map(|node| ["--node", &node.says]));
        words.extend(self.options.iter().map(String::as_str));
        self.coordinator = Some(Server::start_quiet(&words)?);
        Ok(())
    }

    /// Kills the coordinator with SIGKILL; its clients lose their connections.
    pub fn kill_coordinator(&mut self) -> Result<()> {
        self.coordinator.take().context("there is no coordinator")?.kill()
    }

    /// The peak memory of any node, in KiB.
    pub fn peak_kib(&self) -> Result<u64> {
        let peaks = self.nodes.iter().map(Server::peak_kib).collect::<Result<Vec<u64>>>()?;
        Ok(peaks.into_iter().max().unwrap_or(0))
    }

    /// Ends the coordinator, then the nodes, as a user would.
    pub fn end(mut self) -> Result<()> {
        self.coordinator.take().map_or(Ok(()), Server::end)?;
        self.nodes.drain(..).try_for_each(Server::end)
    }
}

/// The status of the pool behind this NBD socket, as JSON; and the exit status.
pub fn pool_status(socket: &Path) -> Result<(serde_json::Value, Option<i32>)> {
    let output = pool_command(&["status", "--json", &socket.display().to_string()]).output()?;
    let status = serde_json::from_slice(&output.stdout);
    Ok((status.with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?, output.status.code()))
}

/// The commands, with their numbers in the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Verb {
    Read = 0,
    Write = 1,
    Flush = 3,
    Trim = 4,
}

/// An NBD client with simple replies, small enough to be verified by reading.
pub struct Client {
    stream: UnixStream,
    out: Vec<u8>,
}

impl Client {
    /// Connects and chooses the default export; returns its size, too.
    pub fn connect(socket: &Path) -> Result<(Self, u64)> {
        let mut stream = UnixStream::connect(socket)?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        ensure!(greeting.starts_with(b"NBDMAGICIHAVEOPT"), "this is no NBD server");
        // Fixed newstyle without the zeroes; option 1 (EXPORT_NAME) with an empty name.
        stream.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0")?;
        let mut told = [0; 10];
        stream.read_exact(&mut told)?;
        let size = u64::from_be_bytes(told[..8].try_into()?);
        Ok((Self { stream, out: Vec::new() }, size))
    }

    /// Queues a request. `data` is for a write; otherwise `length` counts.
    pub fn ask(&mut self, command: Verb, fua: bool, cookie: u64, offset: u64, length: u32, data: &[u8]) {
        self.out.extend(0x2560_9513_u32.to_be_bytes());
        self.out.extend(u16::from(fua).to_be_bytes());
        self.out.extend((command as u16).to_be_bytes());
        self.out.extend(cookie.to_be_bytes());
        self.out.extend(offset.to_be_bytes());
        self.out.extend(length.to_be_bytes());
        self.out.extend(data);
    }

    /// Sends the queued requests.
    pub fn send(&mut self) -> Result<()> {
        self.stream.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// Whether a reply has begun to arrive.
    pub fn has_reply(&self) -> Result<bool> {
        use std::os::fd::AsRawFd as _;
        let mut poll = libc::pollfd { fd: self.stream.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one initialised entry, of an open descriptor.
        let ready = unsafe { libc::poll(&mut poll, 1, 0) };
        ensure!(ready >= 0, "{}", std::io::Error::last_os_error());
        Ok(ready > 0)
    }

    /// The next reply: its cookie and error number. The caller takes the data of a read with [`Client::data`].
    pub fn reply(&mut self) -> Result<(u64, u32)> {
        let mut head = [0; 16];
        self.stream.read_exact(&mut head)?;
        ensure!(head[..4] == 0x6744_6698_u32.to_be_bytes(), "this is no simple reply");
        Ok((u64::from_be_bytes(head[8..].try_into()?), u32::from_be_bytes(head[4..8].try_into()?)))
    }

    /// The data of a read that was answered without an error.
    pub fn data(&mut self, length: u32) -> Result<Vec<u8>> {
        let mut data = vec![0; length as usize];
        self.stream.read_exact(&mut data)?;
        Ok(data)
    }

    /// Queues a request, sends it and waits: for when no other request is in flight.
    pub fn now(&mut self, command: Verb, offset: u64, length: u32, data: &[u8]) -> Result<Vec<u8>> {
        self.ask(command, false, 1, offset, length, data);
        self.send()?;
        match self.reply()? {
            (1, 0) if command == Verb::Read => self.data(length),
            (1, 0) => Ok(Vec::new()),
            (_, error) => bail!("{command:?} at {offset}, {length} bytes: error {error}"),
        }
    }
}
