//! A device for the real `adb`: the daemon of `src/bin/adbd` with a private root, with Debian's toybox as userland and mksh as shell, as
//! on Android, and scripts that replay the output of real models' `getprop` and `dumpsys`; and an adb server of the test's own, with its
//! own key. No code of Android runs: what is real is everything between Fathom and the device's processes.
//!
//! The device's kernel is this machine's, or that of a [virtual machine](machine).

pub mod machine;
pub mod userland;

use crate::service::Service;
use crate::{installed, run, wait_until};
use anyhow::{Context, Result, bail, ensure};
use lab::arch::Arch;
use machine::Machine;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Why such a device is not possible here.
pub fn possible() -> Result<(), String> {
    lab::privilege::full().map_err(|why| why.to_string())?;
    installed("adb")?;
    userland::possible()
}

/// The properties of a device.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Its user: 2000 is Android's shell.
    pub uid: u32,
    /// Options of its /data/local/tmp, a tmpfs.
    pub data: &'static str,
    /// The features of its adb.
    pub features: &'static str,
    /// The rate of its link, in bytes per second.
    pub rate: Option<u64>,
    /// Whether the host's key is admitted.
    pub authorized: bool,
    /// Whether it requires no key at all.
    pub open: bool,
    /// How far its clock is ahead of this machine's: files that are copied to it appear older by that much.
    pub ahead_s: u64,
    /// The directories of crates/device/tests/fixtures whose `run/` it replays; of two files with the same name the first
    /// is used.
    pub models: &'static [&'static str],
    /// For a device that is a virtual machine: its processor's architecture.
    pub arch: Arch,
    /// For a device that is a virtual machine: whether its Perfetto is the real one.
    pub perfetto: bool,
}

impl Default for Shape {
    fn default() -> Self {
        let features = "shell_v2,cmd,stat_v2,ls_v2,fixed_push_mkdir";
        Self {
            uid: 2000,
            data: "size=512m",
            features,
            rate: None,
            authorized: true,
            open: false,
            ahead_s: 0,
            models: &["phone"],
            arch: Arch::default(),
            perfetto: false,
        }
    }
}

/// A running device, and the adb server connected to it.
pub struct Phone {
    body: Body,
    server: Service,
    /// The adb server's port.
    pub port: String,
    /// The device's serial number.
    pub serial: String,
    /// Removed when the others have ended.
    directory: tempfile::TempDir,
}

/// The implementation of the device.
enum Body {
    /// A daemon on this machine, with a private root.
    Root(Service),
    /// A machine of its own.
    Machine(Box<Machine>),
}

impl Phone {
    /// Starts both. `daemon` is the daemon's program.
    pub fn start(daemon: &str, shape: &Shape) -> Result<Self> {
        Self::start_as(daemon, shape, false)
    }

    /// The same with a virtual machine as the device. `daemon` is for this machine's architecture; one for another
    /// architecture is searched for.
    pub fn boot(daemon: &str, shape: &Shape) -> Result<Self> {
        let daemon = if shape.arch.is_own() { daemon.into() } else { machine::daemon_path(shape.arch) };
        Self::start_as(&daemon.to_string_lossy(), shape, true)
    }

    fn start_as(daemon: &str, shape: &Shape, machine: bool) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        // The device's user needs it to reach its root.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))?;
        let at = |name: &str| directory.path().join(name);
        let userland = userland::Userland::for_arch(shape.arch)?;
        make_root(&at("root"), &userland, shape.models)?;
        if shape.perfetto {
            userland::put_perfetto(&at("root"), shape.arch)?;
        }
        fs::create_dir_all(at("home/.android"))?;
        let key = at("home/.android/adbkey");
        run(Command::new("adb").arg("keygen").arg(&key))?;
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
        let mut command = Command::new("adb");
        command.args(["-P", &port, "nodaemon", "server"]).env("HOME", at("home")).env("ADB_MDNS", "0");
        let server = Service::start("adb's server", &mut command, &at("server.log"))?;
        let strangers = at("stranger");
        if !shape.authorized {
            run(Command::new("adb").arg("keygen").arg(&strangers))?;
        }
        let admitted = if shape.authorized { &key } else { &strangers };
        let mut words = vec![format!("--uid={}", shape.uid), format!("--features={}", shape.features)];
        words.extend(shape.rate.map(|rate| format!("--rate={rate}")));
        words.extend((shape.ahead_s > 0).then(|| format!("--ahead={}", shape.ahead_s)));
        let key = (!shape.open).then(|| admitted.with_extension("pub"));
        let body = if machine {
            let device = machine::Device { daemon, root: &at("root"), userland: &userland, arch: shape.arch };
            Body::Machine(Box::new(Machine::boot(&device, &at("machine"), &words, key.as_deref())?))
        } else {
            let mut command = Command::new(daemon);
            command.arg("--root").arg(at("root")).arg("--port-file").arg(at("port"));
            command
                .args(["--data", shape.data])
                .args(words.iter().flat_map(|word| word.split_once('=')).flat_map(<[&str; 2]>::from));
            if let Some(key) = key {
                command.arg("--key").arg(key);
            }
            Body::Root(Service::start("the daemon", &mut command, &at("daemon.log"))?)
        };
        let mut phone = Self { body, server, port, serial: String::new(), directory };
        let port = format!("127.0.0.1:{}", phone.port);
        phone.server.ready(|| Ok(std::net::TcpStream::connect(&port).is_ok()))?;
        phone.serial = match &mut phone.body {
            Body::Machine(machine) => format!("127.0.0.1:{}", machine.port),
            Body::Root(daemon) => {
                let port = phone.directory.path().join("port");
                daemon.ready(|| Ok(port.exists()))?;
                format!("127.0.0.1:{}", fs::read_to_string(&port)?)
            }
        };
        phone.connect()?;
        if shape.authorized {
            phone.ready()?;
        }
        Ok(phone)
    }

    /// `adb connect`.
    pub fn connect(&self) -> Result<()> {
        let mut command = self.adb();
        command.args(["connect", &self.serial]);
        let output = command.stdin(Stdio::null()).output()?;
        ensure!(!String::from_utf8_lossy(&output.stdout).contains("cannot"), "{output:?}");
        Ok(())
    }

    /// Waits until adb calls it a device.
    pub fn ready(&self) -> Result<()> {
        wait_until("a device in adb's list", || {
            let state = self.adb().args(["-s", &self.serial, "get-state"]).stdin(Stdio::null()).output()?;
            Ok(state.stdout.starts_with(b"device"))
        })
    }

    /// The adb client, for this server.
    pub fn adb(&self) -> Command {
        let mut command = Command::new("adb");
        command.env("HOME", self.directory.path().join("home")).env("ANDROID_ADB_SERVER_PORT", &self.port);
        command
    }

    /// The program under test, for this server.
    pub fn fathom(&self) -> Command {
        let mut command = Command::new(crate::fathom());
        command
            .env("ANDROID_ADB_SERVER_PORT", &self.port)
            .env("HOME", self.directory.path().join("home"))
            .stdin(Stdio::null());
        command
    }

    /// The device's name.
    pub fn name(&self) -> String {
        format!("adb:{}", self.serial)
    }

    /// The output of a shell command on the device.
    pub fn shell(&self, line: &str) -> Result<String> {
        let output = run(self.adb().args(["-s", &self.serial, "shell", line]))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Adds a file to those that its fakes replay.
    pub fn replay(&self, name: &str, bytes: &[u8]) -> Result<()> {
        Ok(fs::write(self.replayed(name), bytes)?)
    }

    /// The path of a file that its fakes replay.
    pub fn replayed(&self, name: &str) -> PathBuf {
        self.directory.path().join("root/replay").join(name)
    }

    fn signal(&self, name: &str) -> Result<()> {
        run(Command::new("kill").args([name, &self.daemon()?.id().to_string()])).map(drop)
    }

    fn daemon(&self) -> Result<&Service> {
        match &self.body {
            Body::Root(daemon) => Ok(daemon),
            Body::Machine(_) => bail!("the device is a machine"),
        }
    }

    /// The virtual machine of the device.
    pub fn machine(&self) -> Result<&Machine> {
        match &self.body {
            Body::Machine(machine) => Ok(machine),
            Body::Root(_) => bail!("the device is no machine"),
        }
    }

    /// Cuts the link; processes there keep running.
    pub fn cut(&self) -> Result<()> {
        match &self.body {
            Body::Root(_) => self.signal("-USR1"),
            Body::Machine(machine) => machine.cut(),
        }
    }

    /// Cuts the link, and does not respond until it reappears.
    pub fn vanish(&self) -> Result<()> {
        // The device is the daemon's only child.
        run(Command::new("pkill").args(["-STOP", "-P", &self.daemon()?.id().to_string()]))?;
        let mut command = self.adb();
        command.args(["disconnect", &self.serial]).stdin(Stdio::null());
        run(&mut command).map(drop)
    }

    /// Makes it respond again.
    pub fn reappear(&self) -> Result<()> {
        run(Command::new("pkill").args(["-CONT", "-P", &self.daemon()?.id().to_string()])).map(drop)
    }

    /// Moves from its own adb server to that of another device. It must be open: the other server has another key.
    pub fn connect_to(&self, other: &Self) -> Result<()> {
        // A device has one host at a time.
        run(self.adb().args(["disconnect", &self.serial]))?;
        let mut command = other.adb();
        command.args(["connect", &self.serial]);
        let output = command.stdin(Stdio::null()).output()?;
        ensure!(!String::from_utf8_lossy(&output.stdout).contains("cannot"), "{output:?}");
        wait_until("a second device in adb's list", || {
            let state = other.adb().args(["-s", &self.serial, "get-state"]).stdin(Stdio::null()).output()?;
            Ok(state.stdout.starts_with(b"device"))
        })
    }

    /// Restarts the device.
    pub fn reboot(&self) -> Result<()> {
        match &self.body {
            Body::Root(_) => self.signal("-USR2"),
            Body::Machine(machine) => machine.reboot(),
        }
    }

    /// The files left in its directory for temporary files, apart from the program that is kept and its hash.
    pub fn left(&self) -> Result<Vec<String>> {
        let all = self.shell("ls /data/local/tmp /data/local/tmp/fathom 2>/dev/null; true")?;
        let own =
            |l: &&str| !l.is_empty() && !l.ends_with(':') && !["fathom", "verified"].contains(l) && !is_program(l);
        Ok(all.lines().map(str::trim).filter(own).map(Into::into).collect())
    }

    /// The processes of the program on the device, with their names in `ps`: without the directory of their file.
    pub fn processes(&self) -> Result<Vec<String>> {
        let all = self.shell("ps -A -o ARGS")?;
        // A check that sees no processes would always pass.
        ensure!(all.contains("ps -A"), "ps there shows no processes: {all}");
        let own = |l: &&str| l.split(' ').next().is_some_and(is_program);
        Ok(all.lines().map(str::trim).filter(own).map(Into::into).collect())
    }
}

fn is_program(name: &str) -> bool {
    name.strip_prefix("fathom-").is_some_and(|hash| hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()))
}

impl Drop for Phone {
    fn drop(&mut self) {
        // First the daemon, which ends the device with all its processes.
        if let Body::Root(daemon) = &mut self.body {
            let _ = daemon.end();
        }
        // A server that was started in place of ours is not our child.
        let _ = self.adb().arg("kill-server").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        let _ = self.server.end();
    }
}

/// Makes the private root.
fn make_root(root: &Path, userland: &userland::Userland, models: &[&str]) -> Result<()> {
    for directory in [
        "proc",
        "sys",
        "dev",
        "data/local/tmp",
        "data/misc/perfetto-traces",
        "system/bin",
        "system/xbin",
        "replay",
        "etc",
        "storage",
    ] {
        fs::create_dir_all(root.join(directory))?;
    }
    fs::set_permissions(root.join("data/misc/perfetto-traces"), fs::Permissions::from_mode(0o777))?;
    let bin = root.join("system/bin");
    fs::copy(&userland.shell, bin.join("sh"))?;
    fs::copy(&userland.toybox, bin.join("toybox"))?;
    for (here, there) in &userland.libraries {
        let there = root.join(there.strip_prefix("/")?);
        fs::create_dir_all(there.parent().context("a library's directory")?)?;
        fs::copy(here, there)?;
    }
    // Another architecture's toybox is of the same release.
    let applets = String::from_utf8(run(&mut Command::new("toybox"))?.stdout)?;
    for applet in applets.split_whitespace().filter(|a| !["sh", "toybox"].contains(a)) {
        symlink("toybox", bin.join(applet))?;
    }
    for model in models.iter().rev() {
        let fixtures =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/device/tests/fixtures").join(model).join("run");
        ensure!(fixtures.is_dir(), "{} is not there", fixtures.display());
        for entry in fs::read_dir(fixtures)? {
            let entry = entry?;
            fs::copy(entry.path(), root.join("replay").join(entry.file_name()))?;
        }
    }
    for (name, script) in [
        // A dump of all properties, or files of single ones.
        (
            "getprop",
            "#!/system/bin/sh\nif [ $# -eq 0 ]; then exec cat /replay/getprop; fi\n[ -e \"/replay/getprop $1\" ] && exec cat \"/replay/getprop $1\"\nexec sed -n \"s/^\\[$1\\]: \\[\\(.*\\)\\]\\$/\\1/p\" /replay/getprop\n",
        ),
        ("dumpsys", "#!/system/bin/sh\nexec cat \"/replay/dumpsys $1\"\n"),
        ("getenforce", "#!/system/bin/sh\nexec cat /replay/getenforce\n"),
        // Writes its arguments to a place where everyone may write.
        ("cmd", "#!/system/bin/sh\necho \"$*\" >>/data/misc/perfetto-traces/cmd\n"),
        ("perfetto", include_str!("../fakes/perfetto")),
        ("dalvikvm64", include_str!("../fakes/dalvikvm64")),
    ] {
        let _ = fs::remove_file(bin.join(name));
        lab::script::write(bin.join(name), script)?;
    }
    Ok(())
}
