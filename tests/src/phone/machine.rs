//! The device as a virtual machine, of this machine's architecture or arm64: Debian's kernel, an SD card on the MMC layer with /data on it
//! as f2fs, two more as removable storage, /sdcard behind FUSE (bindfs, which passes each request to a process and back, as Android's media
//! provider does), and the daemon in a root of its own, reached through a port of this machine.
//!
//! Its times are those of an emulated processor. Missing from Debian's kernels: SELinux's policy, vendors' drivers, Android's own FUSE.

use super::userland::{Userland, package_cache};
use crate::run;
use anyhow::{Context, Result, ensure};
use lab::arch::Arch;
use lab::guest::{Bus, Config, Disk, Guest, check_available};
use lab::scenario::Forward;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

/// Bytes of the card: a power of two, as cards have.
const CARD_BYTES: u64 = 512 << 20;
/// Bytes of each of two further cards, which are removable: FAT, mounted as by vold, and behind FUSE for apps and shells.
const REMOVABLE_CARD_BYTES: u64 = 64 << 20;
/// The daemon's port there.
const DAEMON_PORT: u16 = 5555;
/// How long a step of preparation may take by the guest's clock.
const STEP_TIMEOUT: Duration = Duration::from_secs(120);

/// Makes the machine a device. The root is an archive; mounts are made before the daemon enters it.
const PREPARE_SCRIPT: &str = r#"set -e
ip link set lo up
ip link set eth0 up
ip address add 10.0.2.15/24 dev eth0
ip route add default via 10.0.2.2
mkdir -p /phone
tar -x -f /phone.tar -C /phone
# Programs of another architecture came without their libraries; the device's own are the same.
[ -e /lib ] || ln -s /phone/lib /lib
mount -t tracefs none /sys/kernel/tracing 2>/dev/null || true
for directory in proc sys dev; do
    mount --rbind /$directory /phone/$directory
done
mount -t f2fs -o noatime /dev/disk/data /phone/data
mkdir -p /phone/data/local/tmp /phone/data/misc/perfetto-traces /phone/data/media/0 /phone/storage/emulated/0
chmod 777 /phone/data/misc/perfetto-traces
chown 2000:2000 /phone/data/local/tmp
chmod 771 /phone/data/local/tmp
mkdir -p /etc
ln -sf /proc/self/mounts /etc/mtab
bindfs --force-user=2000 --force-group=2000 --create-for-user=0 --create-for-group=0 --chown-ignore --perms=a+rwX \
    -o allow_other /phone/data/media/0 /phone/storage/emulated/0
ln -sfn /storage/emulated/0 /phone/sdcard
for card in card1:3234-3432 card2:A1B2-C3D4; do
    raw=/phone/mnt/media_rw/${card#*:}
    seen=/phone/storage/${card#*:}
    mkdir -p $raw $seen
    # What is on it stays when the machine boots again.
    mount -t vfat /dev/disk/${card%:*} $raw 2>/dev/null || { mkdosfs /dev/disk/${card%:*} && mount -t vfat /dev/disk/${card%:*} $raw; }
    bindfs --force-user=2000 --force-group=2000 --create-for-user=0 --create-for-group=0 --chown-ignore --chmod-ignore --perms=a+rwX \
        -o allow_other $raw $seen
done
# As Android's init does: the service, and what reads ftrace for it, as root, and sockets for everybody.
if [ -e /phone/system/perfetto ]; then
    mkdir -p /dev/socket
    for service in traced traced_probes; do
        setsid chroot /phone /system/bin/$service </dev/null >/run/$service.log 2>&1 &
        while [ ! -S /dev/socket/traced_consumer ]; do sleep 0.1; done
    done
    chmod 666 /dev/socket/traced_consumer /dev/socket/traced_producer
fi
"#;

/// A running virtual machine.
pub struct Machine {
    config: Config,
    guest: Mutex<Option<Guest>>,
    start: String,
    /// The port of this machine that is forwarded to the daemon.
    pub port: u16,
}

/// The components of a machine.
pub(super) struct Device<'a> {
    /// The daemon's program.
    pub daemon: &'a str,
    pub root: &'a Path,
    pub userland: &'a Userland,
    pub arch: Arch,
}

/// Why a virtual machine is not possible here.
pub fn possible() -> Result<(), String> {
    super::possible()?;
    ["mkfs.f2fs", "bindfs", "tar"].into_iter().try_for_each(crate::installed)?;
    check_available(Arch::default()).map_err(|why| why.to_string())
}

/// The same for another architecture, for which everything is fetched except two programs of ours.
pub fn possible_on(arch: Arch) -> Result<(), String> {
    possible()?;
    check_available(arch).map_err(|why| why.to_string())?;
    arch.program(&crate::fathom()).map_err(|why| why.to_string())?;
    let daemon = daemon_path(arch);
    let why = || format!("{} is not there: `cargo xtask aarch64 adbd` builds it", daemon.display());
    daemon.is_file().then_some(()).ok_or_else(why)
}

/// The daemon's program for another architecture.
pub(super) fn daemon_path(arch: Arch) -> PathBuf {
    let built = format!("../target/{}-unknown-linux-musl/release/adbd", arch.name());
    Path::new(env!("CARGO_MANIFEST_DIR")).join(built)
}

impl Machine {
    /// Boots it. `words` are options of its daemon, and its disks are in `directory`.
    pub(super) fn boot(of: &Device<'_>, directory: &Path, words: &[String], key: Option<&Path>) -> Result<Self> {
        let archive = of.root.with_extension("tar");
        run(Command::new("tar")
            .args(["-c", "--owner=0", "--group=0", "-f"])
            .arg(&archive)
            .arg("-C")
            .arg(of.root)
            .arg("."))?;
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut files = vec![
            (archive, "phone.tar".to_owned()),
            (PathBuf::from(of.daemon), "adbd".into()),
            (of.userland.bindfs.clone().context("bindfs is not installed")?, "usr/bin/bindfs".into()),
        ];
        let mut start =
            format!("/adbd --root /phone --machine 0.0.0.0:{DAEMON_PORT} {}", words.join(" ").replace('=', " "));
        if let Some(key) = key {
            files.push((key.to_path_buf(), "key.pub".into()));
            start += " --key /key.pub";
        }
        let mut config = Config {
            arch: of.arch,
            disks: [("data", CARD_BYTES), ("card1", REMOVABLE_CARD_BYTES), ("card2", REMOVABLE_CARD_BYTES)]
                .map(|(name, bytes)| Disk { name: name.into(), bus: Bus::Sd, bytes, ext4: false })
                .to_vec(),
            mkfs: [("data".to_owned(), vec!["mkfs.f2fs".to_owned(), "-q".into()])].into(),
            modules: ["f2fs", "crc32_generic", "fuse", "vfat", "nls_cp437", "nls_ascii"].map(String::from).to_vec(),
            files,
            texts: vec![("prepare".into(), PREPARE_SCRIPT.into())],
            device: true,
            forward: vec![Forward { address: Ipv4Addr::LOCALHOST, host: port, guest: DAEMON_PORT }],
            // All figures of the papers take most of an hour on a busy host.
            idle: Duration::from_secs(7200),
            keep: Some(directory.to_path_buf()),
            ..Config::default()
        };
        let guest = boot_guest(&config, &start)?;
        // The content of the card is kept when it boots again.
        config.mkfs.clear();
        Ok(Self { config, guest: Mutex::new(Some(guest)), start, port })
    }

    /// The output of a command in the machine's own shell, which is not the device's.
    pub fn run(&self, line: &str) -> Result<String> {
        let mut guest = self.guest.lock().map_err(|_| anyhow::anyhow!("poisoned"))?;
        run_line(guest.as_mut().context("it is off")?, line)
    }

    /// Makes the daemon close its connection; processes keep running.
    pub(super) fn cut(&self) -> Result<()> {
        self.run("kill -USR1 $(cat /run/adbd)").map(drop)
    }

    /// Unplugs the network card's cable, or plugs it in.
    pub fn cable(&self, plugged: bool) -> Result<()> {
        let line =
            if plugged { "ip link set eth0 up; ip route add default via 10.0.2.2" } else { "ip link set eth0 down" };
        self.run(line).map(drop)
    }

    /// Powers it off abruptly, and on again: anything not yet written to the card is lost.
    pub(super) fn reboot(&self) -> Result<()> {
        let mut guest = self.guest.lock().map_err(|_| anyhow::anyhow!("poisoned"))?;
        drop(guest.take());
        *guest = Some(boot_guest(&self.config, &self.start)?);
        Ok(())
    }
}

fn boot_guest(config: &Config, start: &str) -> Result<Guest> {
    let mut guest = Guest::boot(config, &package_cache())?;
    run_line(&mut guest, "sh /prepare")?;
    run_line(&mut guest, &format!("setsid {start} </dev/null >/run/adbd.log 2>&1 & echo $! >/run/adbd"))?;
    Ok(guest)
}

fn run_line(guest: &mut Guest, line: &str) -> Result<String> {
    let output = guest.run(line, STEP_TIMEOUT)?;
    ensure!(output.status == 0, "{line}: {} {}{}", output.status, output.stdout, output.stderr);
    Ok(output.stdout)
}
