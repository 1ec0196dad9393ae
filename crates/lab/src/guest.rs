//! A virtual machine with Debian's stock kernel: a fresh machine whose ext4, jbd2, loop and disk drivers are modules,
//! whatever the host's kernel has built in.
//!
//! # How it works
//!
//! QEMU starts the kernel with an initramfs made in memory: busybox, the modules, the files that the caller adds, and
//! `init.sh`. The first serial line is the kernel's console, kept in a file in case something fails. The second is ours:
//! the host writes a command as one line of base64, the guest answers with its stdout, its stderr (both base64) and its
//! exit status, each after a marker that base64 cannot contain, so that no output of a program can be mistaken for the
//! protocol. Files come back through a disk of their own, written as a tar archive, or through a directory of the host that is
//! mounted in the guest (9p): its files are on the host however the guest ends.
//!
//! # Its end
//!
//! A guest has no network (`-nic none`; except one that is a [device](Config::device)) and ends by itself: QEMU dies with the thread that
//! started it, is killed when the [`Guest`] is dropped, and the guest powers off when no command arrived for [`Config::idle`]. Its files
//! are unlinked as soon as it is up.
//!
//! # Uncertainty
//!
//! By default the machine is emulated in software (TCG), so that it behaves the same on every host; a scenario uses KVM where that works
//! ([`crate::accelerator`]). The times of an emulated machine measure nothing: an fsync may take a hundred times as long as on the host.
//!
//! One thread of QEMU emulates all CPUs in turn. With a thread for each, QEMU 7.2 occasionally keeps using its translation of
//! an instruction that the kernel has long since changed: all CPUs were seen trapping for minutes at a jump label of
//! `bpf_trace_run1` whose breakpoint (`text_poke_bp`, while the timing of BPF programs was turned on) was gone from memory.

use crate::accelerator::Accelerator;
use crate::arch::Arch;
use crate::debian::Packages;
use crate::initramfs::Initramfs;
use crate::kernel::Kernel;
use crate::patience::ProcessStopwatch;
use crate::scenario::forward::Forward;
use crate::wake::Monitor;
use crate::{Error, find_program};
use child::kill_with_parent;
use model::Context;
use model::text::ShownPath as _;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::time::Duration;

/// The guest's first program.
const INIT_SCRIPT: &str = include_str!("init.sh");

/// Modules that every guest loads: the disks' drivers, and those that the file systems of the tests need. ext4 requests
/// `crc32c_generic` by alias.
const BASE_MODULES: [&str; 9] =
    ["virtio_pci", "virtio_blk", "virtio_scsi", "sd_mod", "nvme", "crc32c_generic", "ext4", "loop", "dm_mod"];

const TERMINAL_SOCKET: &str = "terminal";
/// The sockets of a command's standard input, output and error; the guest's ports have the same names.
pub(crate) const STREAM_NAMES: [&str; 3] = ["stdin", "stdout", "stderr"];
/// Further modules for streams and a network.
const STREAM_MODULES: &[&str] = &["virtio_console", "virtio_net"];

/// Further modules for a directory of the host.
const SHARE_MODULES: &[&str] = &["9p", "9pnet_virtio"];

/// Further modules for an SD card.
const SD_MODULES: &[&str] = &["sdhci_pci", "mmc_block"];

/// Bytes of the disk through which files come back; it is sparse.
const EXCHANGE_BYTES: u64 = 1 << 30;
/// How often a command is sent if the serial line truncates it.
const SENDS_MAX: u32 = 5;

/// How often the guest reports that it is alive while a command runs (`init.sh`).
const ALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// How long a command may take to end after its limit.
const COMMAND_END_TIMEOUT: Duration = Duration::from_secs(60);

/// How often a wait checks whether it is to end.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The driver of a guest's disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bus {
    /// virtio-blk.
    Virtio,
    /// A SCSI disk behind virtio-scsi.
    Scsi,
    /// An NVMe namespace.
    Nvme,
    /// An SD card in an SDHCI host: one at most, since cards have no serial number of ours. Its size is a power of two.
    Sd,
}

/// A disk of the guest, with a volatile write cache; in the guest it is `/dev/disk/NAME`.
#[derive(Debug, Clone)]
pub struct Disk {
    /// Its name and serial number: letters and digits, at most 20.
    pub name: String,
    pub bus: Bus,
    /// Bytes; the file on the host is sparse.
    pub bytes: u64,
    /// Whether it has an empty ext4 when the guest starts.
    pub ext4: bool,
}

/// The configuration of a guest.
#[derive(Debug, Clone)]
pub struct Config {
    /// Its architecture. Files and programs are copied as they are: they must fit it.
    pub arch: Arch,
    pub memory_mb: u32,
    pub cpus: u32,
    pub accelerator: Accelerator,
    pub disks: Vec<Disk>,
    /// The command that makes the file system of a disk here before the guest boots, by the disk's name.
    pub mkfs: BTreeMap<String, Vec<String>>,
    /// Sectors of 512 bytes that cannot be read, by the disk's name. QEMU's SD card does not report them to its host.
    pub bad_sectors: BTreeMap<String, Vec<u64>>,
    /// Bytes per second that can be written to a disk, by its name; further writes wait, as with a device that hangs.
    pub write_bytes_per_s: BTreeMap<String, u32>,
    /// Modules to load besides the usual ones (ext4, loop, dm_mod and the disks' drivers), each followed by its parameters.
    pub modules: Vec<String>,
    /// Files to put into it: path here, path there. All are executable; a program's shared libraries are added.
    pub files: Vec<(PathBuf, String)>,
    /// Programs of this machine to add at the same path, with their shared libraries.
    pub programs: Vec<PathBuf>,
    /// Texts to add as files: path and text.
    pub texts: Vec<(String, String)>,
    /// A directory of this machine that is `/share` in the guest.
    pub share: Option<PathBuf>,
    /// Whether it has a terminal (`/dev/terminal`) whose other end is [`Guest::terminal`].
    pub terminal: bool,
    /// Whether it is used as a device: with ports for a command's streams ([`Guest::streams`]), and with QEMU's user-mode network, in
    /// which this machine is 10.0.2.2.
    pub device: bool,
    /// Ports of this machine forwarded to it, if it is a device.
    pub forward: Vec<Forward>,
    /// A file for the commands that the SD card itself receives, one line of QEMU's each (`sdcard_normal_command`): an independent check of
    /// the drivers.
    pub card_log: Option<PathBuf>,
    /// A directory for its disks, its initramfs and the command that started it, which stay there; without a directory nothing
    /// stays.
    pub keep: Option<PathBuf>,
    /// How long it may take to boot, not counting time during which the host gave it no processor.
    pub boot_limit: Duration,
    /// How long it waits for a command before it powers off.
    pub idle: Duration,
    /// A guest that runs a command and reports nothing for this long, counted likewise, hangs: its init reports every few
    /// seconds.
    pub silence: Duration,
    /// Cancelling it ends the waiting for the guest.
    pub context: Context,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            arch: Arch::default(),
            memory_mb: 1024,
            cpus: 2,
            accelerator: Accelerator::Tcg,
            disks: Vec::new(),
            mkfs: BTreeMap::new(),
            bad_sectors: BTreeMap::new(),
            write_bytes_per_s: BTreeMap::new(),
            modules: Vec::new(),
            files: Vec::new(),
            programs: Vec::new(),
            texts: Vec::new(),
            share: None,
            keep: None,
            terminal: false,
            device: false,
            forward: Vec::new(),
            card_log: None,
            boot_limit: Duration::from_secs(300),
            idle: Duration::from_secs(300),
            silence: Duration::from_secs(300),
            context: Context::silent(),
        }
    }
}

/// The result of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Its exit status; 124 if it did not end within its limit.
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

/// A running guest; dropping it ends it and removes everything it left.
#[derive(Debug)]
pub struct Guest {
    qemu: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    files: Files,
    silence: Duration,
    context: Context,
    /// The other end of its terminal, if it has one.
    pub terminal: Option<UnixStream>,
    /// The other ends of a command's standard input, output and error, if it is a device.
    pub streams: Option<[UnixStream; 3]>,
    /// The kernel's release.
    pub release: String,
    /// Its accelerator: KVM or TCG.
    pub accelerator: Accelerator,
}

/// The host's side of the guest's files. Once QEMU has opened them too their directory is removed, so that nothing is left
/// behind however this process ends.
#[derive(Debug)]
struct Files {
    /// The kernel log.
    console: File,
    /// QEMU's messages.
    errors: File,
    /// The disk through which files come back.
    exchange: File,
}

/// Whether this machine has what a guest of an architecture needs, apart from the network to fetch the kernel.
///
/// # Errors
/// `Missing`, with the name of the package.
pub fn check_available(arch: Arch) -> Result<(), Error> {
    let (qemu, package) = arch.qemu();
    find_program(qemu, package)?;
    find_program("mkfs.ext4", "e2fsprogs")?;
    find_program("tar", "tar")?;
    if arch.is_own() { find_program("busybox", "busybox-static").map(drop) } else { Ok(()) }
}

/// A static busybox, from Debian's `busybox-static`: this machine's, or a fetched one.
fn busybox(arch: Arch, cache: &Path, context: &Context) -> Result<PathBuf, Error> {
    if arch.is_own() {
        return find_program("busybox", "busybox-static");
    }
    let directory = Packages::new(cache, arch.debian())?.with_context(context).unpack("busybox-static")?;
    let found =
        ["bin/busybox", "usr/bin/busybox"].map(|path| directory.join(path)).into_iter().find(|path| path.is_file());
    found.ok_or_else(|| Error::Missing(format!("no busybox in {}", directory.shown())))
}

impl Guest {
    /// Boots a guest. Kernel and modules are fetched into `cache` the first time.
    ///
    /// # Errors
    /// `Missing` if this machine lacks something, `Guest` if it does not come up within its limit.
    pub fn boot(config: &Config, cache: &Path) -> Result<Self, Error> {
        check_available(config.arch)?;
        let kernel = Kernel::stock(cache, config.arch, &config.context)?;
        let busybox = busybox(config.arch, cache, &config.context)?;
        let temporary = tempfile::Builder::new().prefix("fathom-lab-").tempdir();
        let temporary = temporary.map_err(|e| Error::io("create a directory in", &std::env::temp_dir(), e))?;
        let directory = config.keep.as_deref().unwrap_or(temporary.path());
        std::fs::create_dir_all(directory).map_err(|e| Error::io("create", directory, e))?;
        let initramfs = directory.join("initramfs");
        std::fs::write(&initramfs, build_image(config, &kernel, &busybox)?)
            .map_err(|e| Error::io("write", &initramfs, e))?;

        let accelerator = config.accelerator.resolve(config.arch, &kernel.image, cache, &config.context);
        let mut command = qemu_command(config, accelerator, &kernel, &initramfs, directory);
        for disk in config.disks.iter().chain([&exchange_disk()]) {
            attach_disk(&mut command, disk, config, directory)?;
        }
        if config.keep.is_some() {
            let path = directory.join("command");
            std::fs::write(&path, shell_line(&command)).map_err(|e| Error::io("write", &path, e))?;
        }
        let file = |name: &str| -> Result<File, Error> {
            let path = directory.join(name);
            let open = File::options().read(true).append(true).create(true).open(&path);
            open.map_err(|e| Error::io("create", &path, e))
        };
        let files = Files { console: file("console.log")?, errors: file("qemu.log")?, exchange: file("exchange")? };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(file("qemu.log")?);
        // Ctrl-C on the terminal is for the program that started the guest, which then decides how the guest ends.
        command.process_group(0);
        let monitor = Monitor::attach(&mut command)?;
        let mut qemu =
            kill_with_parent(&mut command).spawn().map_err(|e| Error::Missing(format!("cannot start QEMU: {e}")))?;
        monitor.keep_awake();
        let input = qemu.stdin.take().ok_or_else(|| Error::Guest("has no console".into()))?;
        let output = qemu.stdout.take().ok_or_else(|| Error::Guest("has no console".into()))?;
        let (sender, lines) = channel();
        // Ends when QEMU closes its side, at the latest when it is killed.
        std::thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).trim_end_matches('\r').to_string();
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let (silence, context) = (config.silence, config.context.clone());
        let release = kernel.release;
        let (terminal, streams) = (None, None);
        let mut guest = Self { qemu, input, lines, files, silence, context, terminal, streams, release, accelerator };
        let booting = ProcessStopwatch::start(guest.pid());
        while guest.next_line(&booting, config.boot_limit)? != "=ready" {}
        let connected = |name: &str| {
            let path = directory.join(name);
            UnixStream::connect(&path).map_err(|e| Error::io("connect to", &path, e))
        };
        if config.terminal {
            guest.terminal = Some(connected(TERMINAL_SOCKET)?);
        }
        if config.device {
            let [stdin, stdout, stderr] = STREAM_NAMES.map(connected);
            guest.streams = Some([stdin?, stdout?, stderr?]);
        }
        let path = temporary.path().to_path_buf();
        temporary.close().map_err(|e| Error::io("remove", &path, e))?;
        Ok(guest)
    }

    /// Runs a shell command and waits for it. In the guest it ends after `limit`, with status 124.
    ///
    /// # Errors
    /// `Guest` if the machine itself died or stopped answering.
    pub fn run(&mut self, command: &str, limit: Duration) -> Result<Output, Error> {
        let encoded = to_base64(command.as_bytes());
        let sent = format!("run {} {} {encoded}\n", limit.as_secs().max(1), encoded.len());
        // The guest's terminal buffers 4 KiB of unread input; more would be lost when the machine is busy.
        if sent.len() > 4000 {
            return Err(Error::Guest(format!("cannot run a command of {} bytes; pass it as a file", command.len())));
        }
        self.send(&sent)?;
        // The guest ends the command itself; the timeout here is for a guest that hangs as a whole.
        let (mut stdout, mut stderr) = (String::new(), String::new());
        let (mut into, mut tries, mut beats) = (None, 1, 0_u64);
        loop {
            let line = self.next_line(&ProcessStopwatch::start(self.pid()), self.silence)?;
            match line.as_str() {
                "=again" if tries < SENDS_MAX => {
                    tries += 1;
                    self.send(&sent)?;
                }
                "=again" => return Err(self.failure("never received a complete command")),
                // By the guest's own clock: a command that cannot be ended (it waits for a disk that never responds) is given
                // up.
                "=alive" if beats > (limit + COMMAND_END_TIMEOUT).as_secs() / ALIVE_INTERVAL.as_secs() => {
                    return Err(self.failure("could not end a command after its limit"));
                }
                "=alive" => beats += 1,
                "=stdout" => into = Some(&mut stdout),
                "=stderr" => into = Some(&mut stderr),
                _ => match (line.strip_prefix("=status "), into.as_deref_mut()) {
                    (Some(status), _) => {
                        let status = status.parse().map_err(|_| self.failure("answered with no status"))?;
                        let text = |base64: &str| String::from_utf8_lossy(&from_base64(base64)).into_owned();
                        return Ok(Output { status, stdout: text(&stdout), stderr: text(&stderr) });
                    }
                    (None, Some(text)) => text.push_str(&line),
                    (None, None) => {}
                },
            }
        }
    }

    fn send(&mut self, line: &str) -> Result<(), Error> {
        let sent = self.input.write_all(line.as_bytes()).and_then(|()| self.input.flush());
        sent.map_err(|_| self.failure("accepted no command"))
    }

    /// Copies a file or directory of the guest (an absolute path) below the directory `into`, at that same path.
    ///
    /// # Errors
    /// `Guest` if there is no such path, or it is larger than 1 GiB.
    pub fn fetch(&mut self, path: &str, into: &Path) -> Result<PathBuf, Error> {
        let inside = path.trim_start_matches('/');
        let pack = format!("tar -c -f /dev/disk/exchange -C / '{}' && sync", inside.replace('\'', "'\\''"));
        let packed = self.run(&pack, Duration::from_secs(300))?;
        if packed.status != 0 {
            return Err(self.failure(&format!("could not hand over {path}: {}", packed.stderr.trim())));
        }
        let rewound = self.files.exchange.rewind().and_then(|()| self.files.exchange.try_clone());
        let disk = rewound.map_err(|e| Error::io("read", Path::new("the exchange disk"), e))?;
        let tar = Command::new("tar").args(["-x", "-f", "-", "-C"]).arg(into).stdin(disk).output();
        match tar {
            Ok(output) if output.status.success() => Ok(into.join(inside)),
            Ok(output) => {
                Err(self.failure(&format!("sent a bad archive: {}", String::from_utf8_lossy(&output.stderr))))
            }
            Err(error) => Err(Error::Missing(format!("cannot start tar: {error}"))),
        }
    }

    /// The kernel log so far.
    pub fn console(&self) -> String {
        let read = |file: &File| {
            let mut bytes = vec![0; file.metadata().map_or(0, |m| m.len() as usize)];
            let read = file.read_at(&mut bytes, 0).unwrap_or(0);
            String::from_utf8_lossy(&bytes[..read]).into_owned()
        };
        read(&self.files.console) + &read(&self.files.errors)
    }

    /// The process ID of its QEMU.
    pub fn pid(&self) -> u32 {
        self.qemu.id()
    }

    /// The next line of the guest's answer, if it comes within `limit`.
    fn next_line(&self, had: &ProcessStopwatch, limit: Duration) -> Result<String, Error> {
        loop {
            match self.lines.recv_timeout(POLL_INTERVAL) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Disconnected) => return Err(self.failure("exited")),
                Err(RecvTimeoutError::Timeout) if self.context.cancelled() => {
                    return Err(Error::Guest("was interrupted".into()));
                }
                Err(RecvTimeoutError::Timeout) if had.elapsed() >= limit => {
                    return Err(self.failure("did not answer in time"));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Whether the machine itself has ended: its kernel panicked, or it was turned off.
    pub fn has_exited(&mut self) -> bool {
        // QEMU closes its side while it exits, some time before it can be waited for.
        let closed = std::iter::repeat_with(|| self.lines.try_recv()).find_map(Result::err);
        closed == Some(TryRecvError::Disconnected) || matches!(self.qemu.try_wait(), Ok(Some(_)))
    }

    fn failure(&self, what: &str) -> Error {
        let console = self.console();
        let lines: Vec<&str> = console.lines().collect();
        let tail = lines[lines.len().saturating_sub(15)..].join("\n");
        Error::Guest(format!("{what}; its console ends with\n{tail}"))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // Both fail only if it has already gone.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

fn exchange_disk() -> Disk {
    Disk { name: "exchange".into(), bus: Bus::Virtio, bytes: EXCHANGE_BYTES, ext4: false }
}

/// The guest's root file system.
fn build_image(config: &Config, kernel: &Kernel, busybox: &Path) -> Result<Vec<u8>, Error> {
    let mut image = Initramfs::default();
    image.file("init", INIT_SCRIPT.as_bytes(), true);
    image.copy(busybox, "bin/busybox")?;
    for directory in ["dev", "proc", "sys", "tmp", "run", "mnt", "etc", "root"] {
        image.directory(directory);
    }
    let shared = if config.share.is_some() { SHARE_MODULES } else { [].as_slice() };
    let card = if config.disks.iter().any(|d| d.bus == Bus::Sd) { SD_MODULES } else { [].as_slice() };
    let split = |entry: &'_ String| -> (String, String) {
        let (name, parameters) = entry.split_once(' ').unwrap_or((entry, ""));
        (name.replace('-', "_"), parameters.to_string())
    };
    let asked: Vec<(String, String)> = config.modules.iter().map(split).collect();
    let device = if config.device { STREAM_MODULES } else { [].as_slice() };
    let further = asked.iter().map(|(name, _)| name.as_str()).chain(shared.iter().chain(card).chain(device).copied());
    let names: Vec<&str> = BASE_MODULES.into_iter().chain(further).collect();
    let mut order = String::new();
    for module in kernel.load_order(&names)? {
        let to = format!("modules/{}", module.file_name().unwrap_or_default().to_string_lossy());
        image.copy(&module, &to)?;
        let name = module.file_stem().unwrap_or_default().to_string_lossy().replace('-', "_");
        let parameters = asked.iter().find(|(asked, _)| *asked == name).map_or("", |(_, parameters)| parameters);
        order.push_str(&format!("/{to} {parameters}\n"));
    }
    image.file("modules/order", order.as_bytes(), false);
    for program in &config.programs {
        image.program(program)?;
    }
    for (from, to) in &config.files {
        image.program_as(from, to)?;
    }
    for (to, text) in &config.texts {
        image.file(to, text.as_bytes(), false);
    }
    Ok(image.finish())
}

fn qemu_command(
    config: &Config,
    accelerator: Accelerator,
    kernel: &Kernel,
    initramfs: &Path,
    directory: &Path,
) -> Command {
    let disks = config.disks.len() + 1;
    let idle = config.idle.as_secs().max(1);
    let mut command = Command::new(config.arch.qemu().0);
    command.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]);
    command.args(["-nic", &nic_option(config)]);
    command.args(["-machine", config.arch.machine()]).args(accelerator.arguments(config.arch));
    command.args(["-m", &config.memory_mb.to_string(), "-smp", &config.cpus.to_string()]);
    command.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(initramfs);
    // Without no_timer_check the kernel waits at its start for ten ticks of a timer (timer_irq_works), for a time measured in loops: on a
    // busy host too few come, and it panics ("IO-APIC + timer doesn't work").
    // Programs in the guest read on this line whether its processor is emulated (`device`: `virtual.accelerator`).
    let timer = if config.arch == Arch::X86_64 { " no_timer_check" } else { "" };
    let [console, ours, terminal] = config.arch.lines();
    let line = format!(
        "console={console} quiet panic=-1{timer} fathom.line={ours} fathom.terminal={terminal} fathom.disks={disks} \
         fathom.idle={idle} fathom.accelerator={}",
        accelerator.name()
    );
    let cards = config.disks.iter().filter(|d| d.bus == Bus::Sd).map(|d| format!(" fathom.sd={}", d.name));
    command.args(["-append", &cards.fold(line, |line, card| line + &card)]);
    if let Some(share) = &config.share {
        // Owners stay the host's: the guest's root need not exist here. A comma in a value of QEMU's is doubled.
        let path = share.to_string_lossy().replace(',', ",,");
        command.arg("-virtfs").arg(format!("local,path={path},mount_tag=share,security_model=none"));
    }
    command.arg("-serial").arg(format!("file:{}", directory.join("console.log").to_string_lossy()));
    command.args(["-chardev", "stdio,id=line"]).args(config.arch.serial("line"));
    command.args(["-device", "virtio-scsi-pci,id=scsi"]);
    if config.terminal {
        let socket = directory.join(TERMINAL_SOCKET);
        command.arg("-chardev").arg(format!("socket,id=terminal,path={},server=on,wait=off", socket.to_string_lossy()));
        command.args(config.arch.serial("terminal"));
    }
    if let Some(log) = &config.card_log {
        command.args(["-trace", "enable=sdcard_normal_command", "-D"]).arg(log);
    }
    if config.device {
        command.args(["-device", "virtio-serial-pci"]);
        for name in STREAM_NAMES {
            let path = directory.join(name);
            command.arg("-chardev").arg(format!("socket,id={name},path={},server=on,wait=off", path.to_string_lossy()));
            command.arg("-device").arg(format!("virtserialport,chardev={name},name={name}"));
        }
    }
    command
}

/// Its network, if it has one.
fn nic_option(config: &Config) -> String {
    if !config.device {
        return "none".into();
    }
    let mut words = "user,model=virtio-net-pci".to_string();
    for Forward { address, host, guest } in &config.forward {
        for protocol in ["tcp", "udp"] {
            words += &format!(",hostfwd={protocol}:{address}:{host}-:{guest}");
        }
    }
    words
}

/// A command as a shell would take it.
fn shell_line(command: &Command) -> String {
    let all = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<String> = all.map(|word| model::shell_word(Path::new(word))).collect();
    words.join(" ") + "\n"
}

/// Creates a disk's file and adds it to QEMU's command line.
fn attach_disk(command: &mut Command, disk: &Disk, config: &Config, directory: &Path) -> Result<(), Error> {
    let path = directory.join(&disk.name);
    let open = File::options().write(true).create(true).truncate(false).open(&path);
    open.and_then(|f| f.set_len(disk.bytes)).map_err(|e| Error::io("create", &path, e))?;
    // Not lazily: the kernel's own initialisation thread would write while a test counts.
    let ext4 = || ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"].map(String::from).to_vec();
    if let Some(words) = config.mkfs.get(&disk.name).cloned().or_else(|| disk.ext4.then(ext4)) {
        let mut mkfs = Command::new(find_program(&words[0], &words[0])?);
        mkfs.args(&words[1..]).arg(&path).stdin(Stdio::null());
        let output = mkfs.output().map_err(|e| Error::Missing(format!("cannot start {}: {e}", words[0])))?;
        if !output.status.success() {
            let messages = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(Error::io("format", &path, std::io::Error::other(messages)));
        }
    }
    let name = &disk.name;
    // unsafe: the guest sees a write cache and sends its flushes; the host need not obey them, since the file is
    // removed with the guest.
    let file = match config.bad_sectors.get(name) {
        None => format!("file={},format=raw", path.to_string_lossy()),
        Some(bad) => {
            format!(
                "driver=raw,file.driver=blkdebug,file.image.filename={}{}",
                path.to_string_lossy(),
                read_error_options(bad)
            )
        }
    };
    let slow =
        config.write_bytes_per_s.get(name).map_or(String::new(), |bytes| format!(",throttling.bps-write={bytes}"));
    command.arg("-drive").arg(format!("{file},if=none,id={name},cache=unsafe{slow}"));
    if disk.bus == Bus::Sd {
        command.args(["-device", "sdhci-pci"]);
    }
    command.arg("-device").arg(match disk.bus {
        Bus::Virtio => format!("virtio-blk-pci,drive={name},serial={name}"),
        Bus::Scsi => format!("scsi-hd,bus=scsi.0,drive={name},serial={name},device_id={name}"),
        Bus::Nvme => format!("nvme,drive={name},serial={name}"),
        Bus::Sd => format!("sd-card,drive={name}"),
    });
    Ok(())
}

/// QEMU's options for sectors whose reads fail (docs/devel/blkdebug.rst): rules without an event apply from the start.
fn read_error_options(sectors: &[u64]) -> String {
    let rule = |(i, sector): (usize, &u64)| {
        [("event", "none"), ("iotype", "read"), ("errno", "5"), ("sector", &sector.to_string())]
            .map(|(key, value)| format!(",file.inject-error.{i}.{key}={value}"))
            .concat()
    };
    sectors.iter().enumerate().map(rule).collect()
}

const BASE64_ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Base64 with padding (RFC 4648).
fn to_base64(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let all = chunk.iter().fold(0u32, |a, &b| a << 8 | u32::from(b)) << (8 * (3 - chunk.len()));
        for i in 0..4 {
            let digit = BASE64_ALPHABET[(all >> (18 - 6 * i)) as usize & 63] as char;
            out.push(if i <= chunk.len() { digit } else { '=' });
        }
    }
    out
}

/// Decodes base64; other characters are skipped.
fn from_base64(text: &str) -> Vec<u8> {
    let (mut out, mut bits, mut held) = (Vec::new(), 0u32, 0u32);
    for digit in text.bytes().filter_map(|c| BASE64_ALPHABET.iter().position(|&a| a == c)) {
        bits = bits << 6 | digit as u32;
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_round_trips() {
        assert_eq!(to_base64(b"Man"), "TWFu");
        assert_eq!(to_base64(b"M"), "TQ==");
        for length in 0..70u8 {
            let bytes: Vec<u8> = (0..length).map(|b| b.wrapping_mul(37)).collect();
            assert_eq!(from_base64(&to_base64(&bytes)), bytes);
        }
        assert_eq!(from_base64("TW\nFu"), b"Man");
    }
}
