//! Network namespaces of our own for as long as something needs them: devices, addresses, queues, and programs inside.
//!
//! # How a namespace is held
//!
//! A namespace lives as long as a process, a mount or a device holds it. `ip netns` holds it by a mount, which outlives a
//! crash. Here it is a process, the *keeper*: a shell ([`KEEPER_SCRIPT`]) that was started inside and waits for the end of its
//! standard input. That end comes when the owner drops the [`Namespace`], and just as surely when the owner dies by any
//! signal, because the kernel then closes the pipe. The keeper then ends all programs that are still inside and exits
//! itself, and with the last process the kernel removes the namespace with its devices. So a crash leaves nothing behind
//! that would have to be searched for.
//!
//! # Privileges
//!
//! Root can create network namespaces directly. Any other user creates them inside a user namespace of their own, where
//! they are root; namespaces that are to be joined must then be made [`beside`](Namespace::beside) each other, in one
//! user namespace. Some systems forbid that (`kernel.unprivileged_userns_clone`, AppArmor); see
//! [`Namespace::available`].
//!
//! A process with threads cannot enter a user namespace. So nothing here enters: [`Namespace::command`] starts programs
//! inside, and a child opens a device or socket inside and passes the file descriptor back ([`Namespace::open`]).
//!
//! Not covered: a SIGKILL to the keeper itself while programs run inside; they then keep the namespace until they end.
//! A keeper has no name by which it would be killed.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Error, Read, Result};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// Reports that it is ready, waits for the end of its input, then ends all processes in the same namespace. A program
/// that is just starting may be missed in one pass, so it repeats until none is left. `-ef` compares the targets of
/// proc's links inside the shell: checking all processes starts none.
const KEEPER_SCRIPT: &str = r#"
trap '' HUP INT TERM QUIT PIPE
echo ready
read -r line
for round in 1 2 3 4 5 6 7 8 9 10; do
    found=
    for process in /proc/[0-9]*; do
        [ "$process" != "/proc/$$" ] || continue
        [ "$process/ns/net" -ef "/proc/$$/ns/net" ] || continue
        # A zombie shows no namespace, so what is found here still runs.
        kill -KILL "${process#/proc/}" 2>/dev/null && found=1
    done
    [ -n "$found" ] || exit 0
    sleep 0.05
done
"#;

/// A network namespace, removed with everything in it when dropped.
#[derive(Debug)]
pub struct Namespace {
    keeper: Child,
    files: Arc<NamespaceFiles>,
}

/// What a child needs to enter: open files, since a process ID could be reused.
#[derive(Debug)]
struct NamespaceFiles {
    user: Option<File>,
    net: File,
}

impl NamespaceFiles {
    /// Enters with the calling process, which must have one thread.
    fn enter(&self) -> Result<()> {
        // As the owner of the user namespace we are root in it once inside; the network namespace belongs to it.
        for (file, kind) in self.user.iter().map(|f| (f, libc::CLONE_NEWUSER)).chain([(&self.net, libc::CLONE_NEWNET)])
        {
            // SAFETY: setns reads two integers; the file is open as long as self is.
            if unsafe { libc::setns(file.as_raw_fd(), kind) } != 0 {
                return Err(Error::last_os_error());
            }
        }
        Ok(())
    }
}

/// How a namespace is created.
enum Origin {
    /// As root, or with the privilege.
    Privileged,
    /// In a new user namespace.
    User,
    /// In the user namespace of another namespace, if that has one.
    Beside(Arc<NamespaceFiles>),
}

impl Namespace {
    /// Creates a namespace with only `lo`, up. Without the privilege, it is created in a new user namespace.
    ///
    /// # Errors
    /// Neither is allowed here; see [`available`](Self::available).
    pub fn create() -> Result<Self> {
        Self::create_from(&Origin::Privileged).or_else(|_| Self::create_from(&Origin::User)).map_err(|error| {
            Error::new(
                error.kind(),
                format!(
                    "cannot create a network namespace: {error}. Run as root, or allow user namespaces \
                     (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces)"
                ),
            )
        })
    }

    /// Creates a namespace that can be joined with `other`.
    ///
    /// # Errors
    /// The kernel refuses, for example because of `user.max_net_namespaces`.
    pub fn beside(other: &Self) -> Result<Self> {
        Self::create_from(&Origin::Beside(other.files.clone()))
            .map_err(|error| Error::new(error.kind(), format!("cannot create a second network namespace: {error}")))
    }

    /// Checks whether namespaces can be created here.
    ///
    /// # Errors
    /// Describes what is missing, or what the kernel refuses: a sentence for the user, and a test's reason to be
    /// skipped.
    pub fn available() -> Result<()> {
        crate::find_program("ip", "iproute2").map_err(Error::other)?;
        Self::create().map(drop)
    }

    fn create_from(origin: &Origin) -> Result<Self> {
        // SAFETY: these have no arguments and cannot fail.
        let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
        let maps = [
            (c"/proc/self/setgroups", "deny".to_string()),
            (c"/proc/self/uid_map", format!("0 {uid} 1")),
            (c"/proc/self/gid_map", format!("0 {gid} 1")),
        ];
        let mut command = Command::new("/bin/sh");
        command.args(["-c", KEEPER_SCRIPT, "fathom-netns"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // Its own process group: Ctrl-C on the terminal must not reach it.
        command.process_group(0);
        let (user, beside) = match origin {
            Origin::Privileged => (false, None),
            Origin::User => (true, None),
            Origin::Beside(files) => (false, Some(files.clone())),
        };
        let prepare = move || {
            if let Some(user) = beside.as_ref().and_then(|files| files.user.as_ref()) {
                // SAFETY: setns reads two integers; the file is open.
                check(unsafe { libc::setns(user.as_raw_fd(), libc::CLONE_NEWUSER) })?;
            }
            let flags = libc::CLONE_NEWNET | if user { libc::CLONE_NEWUSER } else { 0 };
            // SAFETY: unshare reads an integer; the child has one thread.
            check(unsafe { libc::unshare(flags) })?;
            if user {
                for (path, text) in &maps {
                    write(path, text.as_bytes())?;
                }
            }
            Ok(())
        };
        // SAFETY: between fork and exec only system calls on memory made before the fork.
        unsafe { command.pre_exec(prepare) };
        let mut keeper = command.spawn()?;
        let mut line = String::new();
        if let Some(stdout) = keeper.stdout.as_mut() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        if line != "ready\n" {
            let status = keeper.wait()?;
            return Err(Error::other(format!("the process that holds the namespace exited at once: {status}")));
        }
        let open = |name: &str| File::open(format!("/proc/{}/ns/{name}", keeper.id()));
        let inside_user = match origin {
            Origin::Privileged => false,
            Origin::User => true,
            Origin::Beside(files) => files.user.is_some(),
        };
        let files =
            Arc::new(NamespaceFiles { user: inside_user.then(|| open("user")).transpose()?, net: open("net")? });
        let made = Self { keeper, files };
        made.ip(&["link", "set", "dev", "lo", "up"])?;
        Ok(made)
    }

    /// The keeper's process ID: `nsenter --net --target PID` (with `--user` if [`is_user`](Self::is_user)) enters the
    /// namespace.
    pub fn pid(&self) -> u32 {
        self.keeper.id()
    }

    /// Whether it is inside its own user namespace.
    pub fn is_user(&self) -> bool {
        self.files.user.is_some()
    }

    /// The prefix of a command line that makes it run inside: from another shell, or if `beside`, from a namespace of
    /// the same origin, which is already in the same user namespace.
    pub fn nsenter(&self, beside: bool) -> String {
        let user = if self.is_user() && !beside { "--user --preserve-credentials " } else { "" };
        format!("nsenter {user}--net --target {}", self.pid())
    }

    /// A command that will run inside. Dropping the namespace ends it.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        let files = self.files.clone();
        // SAFETY: between fork and exec only setns, on files that are open.
        unsafe { command.pre_exec(move || files.enter()) };
        command
    }

    /// Runs a program inside to its end and returns its standard output.
    ///
    /// # Errors
    /// It cannot be started, or it fails, with its standard error.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let output = self.command(program).args(arguments).stdin(Stdio::null()).output()?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_string();
        Err(Error::other(format!("{program} {}: {said} ({})", arguments.join(" "), output.status)))
    }

    /// Runs iproute2's `ip` inside.
    ///
    /// # Errors
    /// It is not installed, or its error message.
    pub fn ip(&self, arguments: &[&str]) -> Result<String> {
        self.tool("ip", arguments)
    }

    /// Runs iproute2's `tc` inside.
    ///
    /// # Errors
    /// It is not installed, or its error message.
    pub fn tc(&self, arguments: &[&str]) -> Result<String> {
        self.tool("tc", arguments)
    }

    fn tool(&self, name: &str, arguments: &[&str]) -> Result<String> {
        let path = crate::find_program(name, "iproute2").map_err(Error::other)?;
        self.run(&path.to_string_lossy(), arguments)
    }

    /// Joins two namespaces by a pair of Ethernet devices, named `name` here and `peer_name` there, both up.
    ///
    /// # Errors
    /// The error message of `ip`; namespaces not made beside each other cannot be joined without root.
    pub fn veth(&self, name: &str, peer: &Self, peer_name: &str) -> Result<()> {
        let pid = peer.pid().to_string();
        self.ip(&["link", "add", "name", name, "type", "veth", "peer", "name", peer_name, "netns", &pid])?;
        self.ip(&["link", "set", "dev", name, "up"])?;
        peer.ip(&["link", "set", "dev", peer_name, "up"])?;
        Ok(())
    }

    /// Gives a device an address with its prefix length, such as `10.0.0.1/24` or `fd00::1/64`. It can be used at once:
    /// there is no duplicate address detection.
    ///
    /// # Errors
    /// The error message of `ip`.
    pub fn address(&self, device: &str, address: &str) -> Result<()> {
        let nodad: &[&str] = if address.contains(':') { &["nodad"] } else { &[] };
        self.ip(&[&["address", "add", address, "dev", device], nodad].concat()).map(drop)
    }

    /// Sets a kernel parameter of the namespace, such as `net.ipv4.tcp_wmem`.
    ///
    /// # Errors
    /// The parameter does not exist in namespaces, or the value is refused.
    pub fn sysctl(&self, name: &str, value: &str) -> Result<()> {
        let file = format!("/proc/sys/{}", name.replace('.', "/"));
        self.run("/bin/sh", &["-c", "echo \"$2\" >\"$1\"", "sysctl", &file, value]).map(drop)
    }

    /// Opens something inside: `make` runs in a child process there, between fork and exec (system calls only), and the
    /// file descriptor that it returns is passed back. The child closes its own copy.
    ///
    /// # Errors
    /// The error of `make`, or the descriptor cannot be passed.
    pub fn open(&self, mut make: impl FnMut() -> Result<RawFd> + Send + Sync + 'static) -> Result<OwnedFd> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = self.command("/bin/true");
        // SAFETY: system calls only, as `make` promises.
        unsafe { command.pre_exec(move || send_fd(theirs.as_raw_fd(), make()?)) };
        let status = command.stdin(Stdio::null()).status()?;
        drop(command);
        if !status.success() {
            return Err(Error::other(format!("/bin/true: {status}")));
        }
        receive_fd(ours.as_raw_fd())
    }

    /// Makes a TUN device (IP packets without a link header) inside; it lives as long as the returned file. It is down
    /// and has no address.
    ///
    /// With `vnet_header` each read and write starts with a `virtio_net_hdr` of 10 bytes.
    ///
    /// # Errors
    /// /dev/net/tun is missing or may not be opened, the name is too long or taken.
    pub fn tun(&self, name: &str, vnet_header: bool) -> Result<OwnedFd> {
        self.open(tun_maker(name, vnet_header)?).map_err(tun_error)
    }

    /// Removes the namespace now and returns whether that worked; dropping removes it too, but cannot report a failure.
    ///
    /// # Errors
    /// Something inside did not end.
    pub fn remove(mut self) -> Result<()> {
        let status = end_keeper(&mut self.keeper)?;
        if status { Ok(()) } else { Err(Error::other("a program inside the network namespace does not exit")) }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = end_keeper(&mut self.keeper);
    }
}

/// Makes a TUN device in the network namespace of this process; otherwise as [`Namespace::tun`].
///
/// # Errors
/// As [`Namespace::tun`].
pub fn tun(name: &str, vnet_header: bool) -> Result<OwnedFd> {
    let fd = tun_maker(name, vnet_header)?().map_err(tun_error)?;
    // SAFETY: the descriptor was just made and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns a function that creates a TUN device wherever it is called, with system calls only.
fn tun_maker(name: &str, vnet_header: bool) -> Result<impl FnMut() -> Result<RawFd> + Send + Sync + 'static> {
    const TUNSETIFF: libc::Ioctl = 0x4004_54ca;
    if name.len() >= libc::IFNAMSIZ {
        return Err(Error::other(format!("{name:?} is too long for a network device's name")));
    }
    let mut request = [0u8; 40];
    request[..name.len()].copy_from_slice(name.as_bytes());
    let vnet = if vnet_header { libc::IFF_VNET_HDR } else { 0 };
    let flags = (libc::IFF_TUN | libc::IFF_NO_PI | vnet) as i16;
    request[16..18].copy_from_slice(&flags.to_ne_bytes());
    Ok(move || {
        // SAFETY: the path is a C string; the result is checked.
        let fd = check(unsafe { libc::open(c"/dev/net/tun".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) })?;
        // SAFETY: struct ifreq is 40 bytes, of which the kernel reads and writes no more.
        match check(unsafe { libc::ioctl(fd, TUNSETIFF, request.as_mut_ptr()) }) {
            Ok(_) => Ok(fd),
            Err(error) => {
                // SAFETY: the descriptor is ours.
                unsafe { libc::close(fd) };
                Err(error)
            }
        }
    })
}

fn tun_error(error: Error) -> Error {
    let text = format!("cannot create a TUN device (needs /dev/net/tun readable and writable): {error}");
    Error::new(error.kind(), text)
}

/// Closes the keeper's standard input and lets it finish.
fn end_keeper(keeper: &mut Child) -> Result<bool> {
    drop(keeper.stdin.take());
    if let Some(mut stdout) = keeper.stdout.take() {
        stdout.read_to_end(&mut Vec::new())?;
    }
    Ok(keeper.wait()?.success())
}

fn check(result: libc::c_int) -> Result<libc::c_int> {
    if result < 0 { Err(Error::last_os_error()) } else { Ok(result) }
}

/// Writes a file of proc in one write, with system calls only.
fn write(path: &std::ffi::CStr, text: &[u8]) -> Result<()> {
    // SAFETY: the path is a C string; the result is checked.
    let fd = check(unsafe { libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) })?;
    // SAFETY: the buffer has the given length.
    let written = unsafe { libc::write(fd, text.as_ptr().cast(), text.len()) };
    let error = Error::last_os_error();
    // SAFETY: fd is ours.
    unsafe { libc::close(fd) };
    if usize::try_from(written) == Ok(text.len()) { Ok(()) } else { Err(error) }
}

/// Space for one control message with one descriptor, aligned as `cmsghdr` requires.
#[repr(C)]
union Control {
    header: libc::cmsghdr,
    bytes: [u8; 32],
}

/// A message of one byte with space for one descriptor.
fn message(byte: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: msghdr is plain data, for which zero is valid in all fields.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = byte;
    message.msg_iovlen = 1;
    message.msg_control = (control as *mut Control).cast();
    // SAFETY: CMSG_SPACE only computes.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<RawFd>() as u32) } as _;
    message
}

fn send_fd(socket: RawFd, fd: RawFd) -> Result<()> {
    let mut byte = [0u8];
    let mut vector = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    let mut control = Control { bytes: [0; 32] };
    let message = message(&mut vector, &mut control);
    // SAFETY: the control buffer holds a header and a descriptor (CMSG_SPACE of an int is 24 bytes).
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
        libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(fd);
        check(libc::sendmsg(socket, &message, 0) as libc::c_int)?;
    }
    Ok(())
}

fn receive_fd(socket: RawFd) -> Result<OwnedFd> {
    let mut byte = [0u8];
    let mut vector = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    let mut control = Control { bytes: [0; 32] };
    let mut message = message(&mut vector, &mut control);
    // SAFETY: the buffers live through the call; the header is checked before it is read.
    unsafe {
        check(libc::recvmsg(socket, &mut message, libc::MSG_CMSG_CLOEXEC) as libc::c_int)?;
        let header = libc::CMSG_FIRSTHDR(&message);
        if header.is_null() || (*header).cmsg_type != libc::SCM_RIGHTS {
            return Err(Error::other("received no file descriptor from the network namespace"));
        }
        Ok(OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::time::{Duration, Instant};

    /// Runs `test` with privilege and in user namespaces, as far as either is allowed; prints what was skipped.
    fn with_each_origin(name: &str, test: impl Fn(&Namespace, &Namespace)) {
        for origin in [Origin::Privileged, Origin::User] {
            let kind = if matches!(origin, Origin::User) { "in a user namespace" } else { "as root" };
            match Namespace::create_from(&origin) {
                Ok(first) => test(&first, &Namespace::beside(&first).unwrap()),
                Err(error) => println!("SKIP {name}: not allowed {kind}: {error}"),
            }
        }
    }

    fn wait_until(what: &str, condition: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(120);
        while !condition() {
            assert!(Instant::now() < end, "{what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The processes in a network namespace.
    fn inside(identity: &Path) -> Vec<u32> {
        let processes = std::fs::read_dir("/proc").unwrap().filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok());
        processes
            .filter(|pid: &u32| std::fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|link| link == identity))
            .collect()
    }

    fn identity(namespace: &Namespace) -> std::path::PathBuf {
        std::fs::read_link(format!("/proc/{}/ns/net", namespace.pid())).unwrap()
    }

    #[test]
    fn joined_namespaces_reach_only_each_other() {
        with_each_origin("joined_namespaces_reach_only_each_other", |a, b| {
            a.veth("here", b, "there").unwrap();
            let devices = |enter: String, from: Option<&Namespace>| {
                let script = format!("{enter} cat /proc/self/net/dev");
                match from {
                    Some(from) => from.run("/bin/sh", &["-c", &script]).unwrap(),
                    None => String::from_utf8(Command::new("/bin/sh").args(["-c", &script]).output().unwrap().stdout)
                        .unwrap(),
                }
            };
            assert!(devices(a.nsenter(true), Some(b)).contains("here"));
            assert!(devices(b.nsenter(false), None).contains("there"));
            a.address("here", "10.9.0.1/24").unwrap();
            b.address("there", "10.9.0.2/24").unwrap();
            a.address("here", "fd09::1/64").unwrap();
            b.address("there", "fd09::2/64").unwrap();
            let listen = |b: &Namespace, address: &'static str| {
                let socket = move || listener(address);
                std::net::TcpListener::from(b.open(socket).unwrap())
            };
            for address in ["10.9.0.2:7000", "[fd09::2]:7000"] {
                let server = listen(b, address);
                let (host, port) = address.rsplit_once(':').unwrap();
                let host = host.trim_matches(['[', ']']);
                let client =
                    "import socket,sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5).send(b'x')";
                let mut child = a.command("python3").args(["-c", client, host, port]).spawn().unwrap();
                let mut said = Vec::new();
                server.accept().unwrap().0.read_to_end(&mut said).unwrap();
                assert_eq!(said, b"x");
                assert!(child.wait().unwrap().success());
            }
            assert!(!Path::new("/sys/class/net/here").exists(), "a device of the inside is seen outside");
        });
    }

    /// A listening socket, by system calls only.
    fn listener(address: &str) -> Result<RawFd> {
        use std::os::fd::IntoRawFd;
        Ok(std::net::TcpListener::bind(address)?.into_raw_fd())
    }

    #[test]
    fn sysctls_and_qdiscs_are_per_namespace() {
        with_each_origin("sysctls_and_qdiscs_are_per_namespace", |a, b| {
            let read = |n: &Namespace| n.run("cat", &["/proc/sys/net/ipv4/tcp_wmem"]).unwrap();
            let before = read(b);
            a.sysctl("net.ipv4.tcp_wmem", "4096 8192 16384").unwrap();
            assert_eq!(read(a).split_whitespace().collect::<Vec<_>>(), ["4096", "8192", "16384"]);
            assert_eq!(read(b), before);
            assert!(a.sysctl("net.ipv4.tcp_wmem", "much").is_err());
            a.veth("x", b, "x").unwrap();
            a.tc(&["qdisc", "add", "dev", "x", "root", "tbf", "rate", "1mbit", "burst", "10k", "latency", "50ms"])
                .unwrap();
            assert!(a.tc(&["qdisc", "show", "dev", "x"]).unwrap().contains("tbf"));
            assert!(!b.tc(&["qdisc", "show", "dev", "x"]).unwrap().contains("tbf"));
            let error = a.tc(&["qdisc", "add", "dev", "nosuch", "root", "pfifo"]).unwrap_err().to_string();
            assert!(error.contains("nosuch"), "{error}");
        });
    }

    #[test]
    fn tun_device_delivers_packets_and_ends_with_file() {
        with_each_origin("tun_device_delivers_packets_and_ends_with_file", |a, _| {
            let tun = match a.tun("t0", false) {
                Ok(tun) => tun,
                Err(error) => return println!("SKIP tun_device_delivers_packets_and_ends_with_file: {error}"),
            };
            a.address("t0", "10.9.1.1/24").unwrap();
            a.sysctl("net.ipv6.conf.t0.disable_ipv6", "1").unwrap();
            a.ip(&["link", "set", "dev", "t0", "up"]).unwrap();
            let send = "import socket; socket.socket(2,2).sendto(b'fathom', ('10.9.1.2', 9))";
            a.run("python3", &["-c", send]).unwrap();
            let mut packet = [0; 2048];
            let length = File::from(tun).read(&mut packet).unwrap();
            assert_eq!((packet[0] >> 4, packet[9], &packet[16..20]), (4, 17, &[10, 9, 1, 2][..]));
            assert!(packet[..length].ends_with(b"fathom"));
            // A child that another test has forked and that has not reached its exec holds the file too.
            wait_until("the device outlives its file", || a.ip(&["link", "show", "dev", "t0"]).is_err());
            assert!(a.tun("a-name-that-is-too-long", false).is_err());
        });
    }

    #[test]
    fn end_of_a_namespace_kills_its_programs() {
        for origin in [Origin::Privileged, Origin::User] {
            let Ok(namespace) = Namespace::create_from(&origin) else { continue };
            let identity = identity(&namespace);
            let forks = "trap '' TERM; (sleep 1000 & sleep 1000) & echo up; sleep 1000";
            let mut child = namespace.command("/bin/sh").args(["-c", forks]).stdout(Stdio::piped()).spawn().unwrap();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
            assert!(inside(&identity).len() >= 2);
            namespace.remove().unwrap();
            child.wait().unwrap();
            wait_until("somebody is left inside", || inside(&identity).is_empty());
        }
    }

    #[test]
    fn sigkilled_owner_leaves_no_namespace() {
        // The owner is this very test program, told to run the helper below.
        let program = std::env::current_exe().unwrap();
        let arguments = ["--exact", "netns::tests::owner", "--ignored", "--nocapture"];
        let mut owner = Command::new(program).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(owner.stdout.take().unwrap()).lines();
        let mut lines = lines.map_while(Result::ok).filter_map(|l| Some(l.split_once("owns ")?.1.to_string()));
        let Some(link) = lines.next().filter(|l| !l.is_empty()) else {
            owner.wait().unwrap();
            return println!("SKIP sigkilled_owner_leaves_no_namespace: no namespace can be made");
        };
        assert!(!inside(Path::new(&link)).is_empty());
        owner.kill().unwrap();
        owner.wait().unwrap();
        wait_until("something is left of the killed owner's namespace", || inside(Path::new(&link)).is_empty());
    }

    #[test]
    #[ignore = "root: not a test but the process that one kills"]
    fn owner() {
        if std::env::args().all(|a| a != "--exact") {
            return;
        }
        let namespace = Namespace::create();
        let link = namespace.as_ref().map(|n| identity(n).to_string_lossy().into_owned()).unwrap_or_default();
        println!("owns {link}");
        let Ok(namespace) = namespace else { return };
        namespace.command("sleep").arg("60").status().unwrap();
    }
}
