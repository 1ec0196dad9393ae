//! A device daemon for the tests: it speaks adbd's transport protocol over TCP, so that the real `adb`, server and client, can use it
//! (`adb connect 127.0.0.1:PORT`), and runs commands in a private root. It contains no code of Android; it is written from the
//! protocol's documentation (protocol.txt, SYNC.TXT, shell_protocol.h).
//!
//!     adbd --root DIRECTORY --port-file FILE [--uid N] [--key FILE] [--data OPTIONS] [--features LIST] [--rate BYTES_PER_S] \
//!         [--ahead SECONDS]
//!     adbd --root DIRECTORY --machine ADDRESS [--uid N] [--key FILE] [--features LIST] [--rate BYTES_PER_S]
//!
//! With `--machine` the machine that it runs on is the device: DIRECTORY is its root, with everything mounted there, the daemon listens there,
//! and SIGUSR1 cuts the link. Otherwise the device is a process with PID 1 in namespaces of its own, with DIRECTORY as its root: `/proc` is
//! its own, `/sys` and `/dev` are this host's, `/data/local/tmp` is a tmpfs with these options. This process acts as its power supply:
//! SIGUSR1 cuts the link (processes keep running), SIGUSR2 restarts it (processes are gone, `/data` too), and its end is the device's.
//! Without a key any host may connect.

mod message;
mod reverse;
mod rsa;
mod services;

use message::{AUTH, CLSE, CNXN, DATA_BYTES_MAX, Message, OKAY, OPEN, PROTOCOL_VERSION, WRTE};
use rsa::PublicKey;
use std::collections::HashMap;
use std::ffi::CString;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Debug, Clone, Default)]
struct Options {
    root: String,
    port_file: String,
    uid: u32,
    key: Option<String>,
    data: String,
    features: String,
    rate: Option<u64>,
    ahead: u32,
    machine: Option<String>,
}

fn main() -> io::Result<()> {
    let mut options = Options {
        data: "size=512m".into(),
        features: "shell_v2,cmd,stat_v2,ls_v2,fixed_push_mkdir".into(),
        ..Options::default()
    };
    let mut words = std::env::args().skip(1);
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| wrong("an option without a value"))?;
        match word.as_str() {
            "--root" => options.root = value,
            "--port-file" => options.port_file = value,
            "--uid" => options.uid = value.parse().map_err(|_| wrong("--uid"))?,
            "--key" => options.key = Some(std::fs::read_to_string(value)?),
            "--data" => options.data = value,
            "--features" => options.features = value,
            "--rate" => options.rate = value.parse().ok(),
            "--ahead" => options.ahead = value.parse().map_err(|_| wrong("--ahead"))?,
            "--machine" => options.machine = Some(value),
            _ => return Err(wrong(&word)),
        }
    }
    let listener = TcpListener::bind(options.machine.as_deref().unwrap_or("127.0.0.1:0"))?;
    // Blocked before any thread is started, so that each signal is waited for and none ends a process.
    let signals = block_signals();
    if options.machine.is_some() {
        return enter_root(&options).and_then(|()| serve(&listener, &options));
    }
    std::fs::write(format!("{}.new", options.port_file), listener.local_addr()?.port().to_string())?;
    std::fs::rename(format!("{}.new", options.port_file), &options.port_file)?;
    let mut device = start_device(&listener, &options)?;
    loop {
        match wait_for_signal(&signals) {
            libc::SIGUSR1 => {
                // SAFETY: a signal to our own child, which was not waited for.
                unsafe { libc::kill(device, libc::SIGUSR1) };
            }
            libc::SIGUSR2 => {
                kill_device(device);
                // A fixed wait: a device that starts is away for a while.
                std::thread::sleep(Duration::from_millis(500));
                device = start_device(&listener, &options)?;
            }
            libc::SIGCHLD => {
                // SAFETY: a plain system call for any ended child.
                let ended = unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) };
                if ended == device {
                    return Err(wrong("the device ended by itself"));
                }
            }
            _ => {
                kill_device(device);
                return Ok(());
            }
        }
    }
}

fn block_signals() -> libc::sigset_t {
    // SAFETY: a set of bits, for which zero is valid, and calls that write only into it.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        for signal in [libc::SIGUSR1, libc::SIGUSR2, libc::SIGTERM, libc::SIGINT, libc::SIGCHLD] {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        set
    }
}

fn wait_for_signal(set: &libc::sigset_t) -> i32 {
    let mut signal = 0;
    // SAFETY: both live until the call returns.
    unsafe { libc::sigwait(set, &raw mut signal) };
    signal
}

fn kill_device(device: i32) {
    // SAFETY: signals to our own child; all of its namespace ends with it.
    unsafe {
        libc::kill(device, libc::SIGKILL);
        libc::waitpid(device, std::ptr::null_mut(), 0);
    }
}

/// Starts the device; returns its process ID.
fn start_device(listener: &TcpListener, options: &Options) -> io::Result<i32> {
    let flags = libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::SIGCHLD;
    // SAFETY: like fork: there is one thread here, and the child has its own copy of everything.
    let child = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    match child {
        0 => {
            let failed = run_device(listener, options).err();
            eprintln!("adbd: {failed:?}");
            std::process::exit(1);
        }
        -1 => Err(io::Error::last_os_error()),
        child => Ok(child as i32),
    }
}

fn mount(source: &str, target: &str, kind: &str, flags: libc::c_ulong, data: &str) -> io::Result<()> {
    let c = |text: &str| CString::new(text).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
    let (source, point, kind, data) = (c(source)?, c(target)?, c(kind)?, c(data)?);
    // SAFETY: all are NUL-terminated texts and live until the call returns.
    let done = unsafe { libc::mount(source.as_ptr(), point.as_ptr(), kind.as_ptr(), flags, data.as_ptr().cast()) };
    if done == 0 { Ok(()) } else { Err(io::Error::other(format!("mounting {target}: {}", io::Error::last_os_error()))) }
}

fn run_device(listener: &TcpListener, options: &Options) -> io::Result<()> {
    // SAFETY: a plain system call. When the power supply is gone, so is the device.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let at = |name: &str| format!("{}/{name}", options.root);
    mount("none", "/", "none", libc::MS_REC | libc::MS_PRIVATE, "")?;
    mount("proc", &at("proc"), "proc", 0, "")?;
    mount("/sys", &at("sys"), "none", libc::MS_BIND | libc::MS_REC, "")?;
    mount("/dev", &at("dev"), "none", libc::MS_BIND | libc::MS_REC, "")?;
    // A flag for the kernel, but an option for users.
    let (noexec, data): (Vec<&str>, Vec<&str>) = options.data.split(',').partition(|o| *o == "noexec");
    let flags = libc::MS_NOSUID | libc::MS_NODEV | if noexec.is_empty() { 0 } else { libc::MS_NOEXEC };
    let data = [format!("mode=0771,uid={0},gid={0}", options.uid), data.join(",")].join(",");
    mount("tmpfs", &at("data/local/tmp"), "tmpfs", flags, data.trim_end_matches(','))?;
    enter_root(options)?;
    serve(listener, options)
}

/// Enters the device's root, as its user.
fn enter_root(options: &Options) -> io::Result<()> {
    std::os::unix::fs::chroot(&options.root)?;
    std::env::set_current_dir("/")?;
    if options.uid != 0 {
        // SAFETY: plain system calls, before there is another thread.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::setgroups(0, std::ptr::null()) == 0
                && libc::setgid(options.uid) == 0
                && libc::setuid(options.uid) == 0
        };
        if !done {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

fn serve(listener: &TcpListener, options: &Options) -> io::Result<()> {
    if options.machine.is_none() {
        // SAFETY: a plain system call. Changing the user has cleared this.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    }
    let link: Arc<Mutex<Option<TcpStream>>> = Arc::default();
    std::thread::spawn({
        let link = link.clone();
        move || {
            // SAFETY: a set of bits, for which zero is valid, and a call that writes only into it.
            let set = unsafe {
                let mut set: libc::sigset_t = std::mem::zeroed();
                libc::sigaddset(&raw mut set, libc::SIGUSR1);
                set
            };
            loop {
                wait_for_signal(&set);
                if let Ok(Some(link)) = link.lock().as_deref() {
                    let _ = link.shutdown(Shutdown::Both);
                }
            }
        }
    });
    loop {
        let (stream, _) = listener.accept()?;
        let _ = stream.set_nodelay(true);
        if let Ok(mut link) = link.lock() {
            *link = stream.try_clone().ok();
        }
        // One host at a time, like a phone on a cable.
        if let Err(error) =
            (Host { options, streams: Streams::new(Voice::new(stream.try_clone()?, options.rate)) }).serve(stream)
        {
            // A host that closes the connection is the usual end.
            if error.kind() != io::ErrorKind::UnexpectedEof {
                eprintln!("adbd: {error}");
            }
        }
    }
}

/// Sends to the host, at the link's rate.
#[derive(Clone)]
struct Voice {
    to: Arc<Mutex<TcpStream>>,
    rate: Option<u64>,
}

impl Voice {
    fn new(to: TcpStream, rate: Option<u64>) -> Self {
        Self { to: Arc::new(Mutex::new(to)), rate }
    }

    fn say(&self, message: &Message) -> io::Result<()> {
        let mut to = self.to.lock().map_err(|_| io::ErrorKind::BrokenPipe)?;
        self.pass(message);
        message.write(&mut *to)
    }

    /// A fixed wait: the time that a link of this rate takes.
    fn pass(&self, message: &Message) {
        if let Some(rate) = self.rate {
            std::thread::sleep(Duration::from_secs_f64((24 + message.data.len()) as f64 / rate as f64));
        }
    }
}

/// A stream on this side: input from the host, and the host's acknowledgements of data sent.
struct Stream {
    input: Sender<Vec<u8>>,
    taken: Sender<()>,
    end: UnixStream,
    /// For a stream that this side requested: receivers to use when the host has agreed.
    asked: Option<(Receiver<Vec<u8>>, Receiver<()>)>,
}

/// The streams of a host. Either side opens them.
#[derive(Clone)]
struct Streams {
    voice: Voice,
    all: Arc<Mutex<(HashMap<u32, Stream>, u32)>>,
}

impl Streams {
    fn new(voice: Voice) -> Self {
        Self { voice, all: Arc::new(Mutex::new((HashMap::new(), 1))) }
    }

    /// Adds a stream whose other end is `end`: with the host's number, or one requested from the host under this name.
    fn add(&self, end: UnixStream, with: Result<u32, &str>) -> io::Result<()> {
        let ((input, inputs), (taken, takes)) = (channel(), channel());
        let mut all = self.all.lock().map_err(|_| io::ErrorKind::BrokenPipe)?;
        let ours = all.1;
        all.1 += 1;
        match with {
            Ok(theirs) => {
                all.0.insert(ours, Stream { input, taken, end: end.try_clone()?, asked: None });
                drop(all);
                self.voice.say(&Message::new(OKAY, ours, theirs, []))?;
                self.begin(end, inputs, takes, ours, theirs)
            }
            Err(name) => {
                all.0.insert(ours, Stream { input, taken, end, asked: Some((inputs, takes)) });
                drop(all);
                self.voice.say(&Message::new(OPEN, ours, 0, format!("{name}\0")))
            }
        }
    }

    fn begin(
        &self,
        end: UnixStream,
        inputs: Receiver<Vec<u8>>,
        takes: Receiver<()>,
        ours: u32,
        theirs: u32,
    ) -> io::Result<()> {
        let (into, voice, answering) = (end.try_clone()?, self.voice.clone(), self.voice.clone());
        std::thread::spawn(move || pass_input(into, &inputs, &answering, ours, theirs));
        std::thread::spawn(move || send_output(end, &takes, &voice, ours, theirs));
        Ok(())
    }

    /// The host acknowledged data, or agrees to a stream.
    fn taken(&self, message: &Message) -> io::Result<()> {
        let mut all = self.all.lock().map_err(|_| io::ErrorKind::BrokenPipe)?;
        let Some(stream) = all.0.get_mut(&message.b) else { return Ok(()) };
        match stream.asked.take() {
            None => drop(stream.taken.send(())),
            Some((inputs, takes)) => self.begin(stream.end.try_clone()?, inputs, takes, message.b, message.a)?,
        }
        Ok(())
    }

    fn input(&self, message: Message) {
        if let Ok(all) = self.all.lock()
            && let Some(stream) = all.0.get(&message.b)
        {
            let _ = stream.input.send(message.data);
        }
    }

    fn close(&self, ours: u32) {
        if let Some(stream) = self.all.lock().ok().and_then(|mut all| all.0.remove(&ours)) {
            let _ = stream.end.shutdown(Shutdown::Both);
        }
    }

    fn close_all(&self) {
        if let Ok(mut all) = self.all.lock() {
            all.0.drain().for_each(|(_, stream)| drop(stream.end.shutdown(Shutdown::Both)));
        }
    }
}

struct Host<'a> {
    options: &'a Options,
    streams: Streams,
}

impl Host<'_> {
    fn serve(&self, mut from: TcpStream) -> io::Result<()> {
        if !self.admitted(&mut from)? {
            return Ok(());
        }
        let about = format!(
            "device::ro.product.name=fathom;ro.product.model=Private_Root;ro.product.device=root;features={}",
            self.options.features
        );
        self.streams.voice.say(&Message::new(CNXN, PROTOCOL_VERSION, DATA_BYTES_MAX as u32, about))?;
        loop {
            let message = Message::read(&mut from)?;
            self.streams.voice.pass(&message);
            match message.command {
                OPEN => self.open(&message)?,
                WRTE => self.streams.input(message),
                OKAY => self.streams.taken(&message)?,
                CLSE => self.streams.close(message.b),
                _ => {}
            }
        }
    }

    /// Greets, and requests a signature if a key is needed. A host without one is not admitted, and the connection
    /// stays open.
    fn admitted(&self, from: &mut TcpStream) -> io::Result<bool> {
        while Message::read(from)?.command != CNXN {}
        let Some(key) = &self.options.key else { return Ok(true) };
        let key = PublicKey::parse(key.as_bytes());
        loop {
            let mut token = [0; 20];
            std::fs::File::open("/dev/urandom")?.read_exact(&mut token)?;
            self.streams.voice.say(&Message::new(AUTH, 1, 0, token))?;
            let answer = Message::read(from)?;
            match (answer.command, answer.a) {
                (AUTH, 2) if key.as_ref().is_some_and(|key| key.verifies(&answer.data, &token)) => return Ok(true),
                // All keys of the host are refused: a phone would now show the last one to its user.
                (AUTH, 3) => {
                    let mut room = [0; 64];
                    while from.read(&mut room)? > 0 {}
                    return Ok(false);
                }
                _ => {}
            }
        }
    }

    fn open(&self, message: &Message) -> io::Result<()> {
        let name = String::from_utf8_lossy(&message.data).trim_end_matches('\0').to_owned();
        let (end, other) = UnixStream::pair()?;
        let served = match name.strip_prefix("reverse:") {
            Some(what) => reverse::serve(what, other, &self.streams),
            None => services::serve(&name, other, self.options.ahead),
        };
        if served {
            self.streams.add(end, Ok(message.a))
        } else {
            self.streams.voice.say(&Message::new(CLSE, 0, message.a, []))
        }
    }
}

impl Drop for Host<'_> {
    fn drop(&mut self) {
        reverse::end_all();
        self.streams.close_all();
    }
}

/// Passes on data from the host, and acknowledges it.
fn pass_input(mut into: UnixStream, inputs: &Receiver<Vec<u8>>, voice: &Voice, ours: u32, theirs: u32) {
    while let Ok(bytes) = inputs.recv() {
        // A service that has ended takes nothing; the host learns of its end in another way.
        let _ = into.write_all(&bytes);
        if voice.say(&Message::new(OKAY, ours, theirs, [])).is_err() {
            return;
        }
    }
}

/// Sends the service's output, one message at a time: the next when the host has acknowledged the last.
fn send_output(mut out: UnixStream, takes: &Receiver<()>, voice: &Voice, ours: u32, theirs: u32) {
    let mut room = vec![0; 64 << 10];
    while let Some(got) = out.read(&mut room).ok().filter(|n| *n > 0) {
        let sent = voice.say(&Message::new(WRTE, ours, theirs, &room[..got]));
        if sent.is_err() || takes.recv().is_err() {
            return;
        }
    }
    let _ = voice.say(&Message::new(CLSE, ours, theirs, []));
}
