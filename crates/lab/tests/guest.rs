//! Boots a guest once, and tries everything in it that a test of Fathom will rely on.

use lab::Error;
use lab::guest::{Bus, Config, Disk, Guest};
use std::path::{Path, PathBuf};
use std::time::Duration;

const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

fn cache() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/lab")
}

fn disk(name: &str, bus: Bus, ext4: bool) -> Disk {
    Disk { name: name.into(), bus, bytes: 64 << 20, ext4 }
}

/// A guest, or the reason why there is none.
fn boot(test: &str, config: &Config) -> Option<Guest> {
    match Guest::boot(config, &cache()) {
        Ok(guest) => Some(guest),
        Err(Error::Missing(reason)) => {
            println!("SKIP {test}: {reason}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Runs a command and expects success.
fn run_ok(guest: &mut Guest, command: &str) -> String {
    let output = guest.run(command, COMMAND_TIMEOUT).unwrap();
    assert_eq!(output.status, 0, "{command}: {output:?}");
    output.stdout
}

#[test]
fn guest_has_real_disks_and_returns_files() {
    let disks = vec![disk("data", Bus::Virtio, true), disk("scsi0", Bus::Scsi, false), disk("nvme0", Bus::Nvme, false)];
    let note = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(note.path(), "from the host\n").unwrap();
    let files = vec![(note.path().to_path_buf(), "/note".to_string())];
    let config = Config { disks, files, ..Config::default() };
    let Some(mut guest) = boot("guest_has_real_disks_and_returns_files", &config) else { return };

    // The kernel is the stock one, with modules for drivers that may be built into the host's.
    assert_eq!(run_ok(&mut guest, "uname -r").trim(), guest.release);
    let modules = run_ok(&mut guest, "cat /proc/modules");
    for module in ["ext4", "jbd2", "loop", "virtio_blk", "sd_mod", "nvme"] {
        assert!(modules.lines().any(|l| l.split(' ').next() == Some(module)), "{module} in {modules}");
    }
    assert_eq!(run_ok(&mut guest, "ls /sys/class/net").trim(), "lo");
    assert!(!run_ok(&mut guest, "ls /sys/kernel/btf/vmlinux /sys/kernel/btf/ext4").is_empty());

    // Every disk has the requested driver, and a write cache whose flushes reach the driver.
    for (name, node) in [("data", "/dev/vda"), ("scsi0", "/dev/sda"), ("nvme0", "/dev/nvme0n1")] {
        assert_eq!(run_ok(&mut guest, &format!("readlink -f /dev/disk/{name}")).trim(), node);
        let cache = format!("cat /sys/block/{}/queue/write_cache", node.trim_start_matches("/dev/"));
        assert_eq!(run_ok(&mut guest, &cache).trim(), "write back");
    }

    // ext4 works, and the host's file is there.
    run_ok(&mut guest, "mount -t ext4 /dev/disk/data /mnt && mkdir /mnt/made && cp /note /mnt/made/copy && sync");
    let status = guest.run("echo no >&2; exit 7", COMMAND_TIMEOUT).unwrap();
    assert_eq!((status.status, status.stdout.as_str(), status.stderr.as_str()), (7, "", "no\n"));

    // Program output is never mistaken for the protocol: markers, control characters, large output.
    assert_eq!(
        run_ok(&mut guest, "printf '=status 3\\n\\001\\033[2J=stdout\\n'"),
        "=status 3\n\u{1}\u{1b}[2J=stdout\n"
    );
    assert_eq!(run_ok(&mut guest, "seq 1 20000").lines().count(), 20_000);
    let long = "x".repeat(2_000);
    assert_eq!(run_ok(&mut guest, &format!("echo {long}")).trim(), long);

    // Files and directories are returned unchanged.
    run_ok(&mut guest, "dd if=/dev/urandom of=/mnt/made/big bs=1M count=8 2>/dev/null");
    let sum = run_ok(&mut guest, "md5sum </mnt/made/big");
    let directory = tempfile::tempdir().unwrap();
    let fetched = guest.fetch("/mnt/made", directory.path()).unwrap();
    assert_eq!(std::fs::read_to_string(fetched.join("copy")).unwrap(), "from the host\n");
    let here = std::process::Command::new("md5sum").stdin(std::fs::File::open(fetched.join("big")).unwrap()).output();
    assert_eq!(String::from_utf8(here.unwrap().stdout).unwrap(), sum);
    assert!(matches!(guest.fetch("/no/such/path", directory.path()), Err(Error::Guest(_))));

    // A command that does not end is killed, and the guest continues.
    let slow = guest.run("sleep 1000", Duration::from_secs(1)).unwrap();
    assert_eq!(slow.status, 124);
    assert_eq!(run_ok(&mut guest, "echo alive").trim(), "alive");

    // Nothing of it is left.
    let pid = guest.pid();
    drop(guest);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn idle_guest_powers_off() {
    let config = Config { idle: Duration::from_secs(1), ..Config::default() };
    let Some(mut guest) = boot("idle_guest_powers_off", &config) else { return };
    // Whether or not the command arrives in time, the guest soon powers off and reports it instead of hanging.
    let end = std::time::Instant::now() + COMMAND_TIMEOUT;
    while guest.run("true", COMMAND_TIMEOUT).is_ok() {
        assert!(std::time::Instant::now() < end);
        std::thread::sleep(Duration::from_secs(3));
    }
}

#[test]
fn failed_guest_boot_says_why() {
    let config = Config { memory_mb: 40, boot_limit: COMMAND_TIMEOUT, ..Config::default() };
    match Guest::boot(&config, &cache()) {
        Ok(_) => panic!("Linux does not fit in 40 MB with its initramfs"),
        Err(Error::Missing(reason)) => println!("SKIP failed_guest_boot_says_why: {reason}"),
        Err(error) => assert!(error.to_string().contains("console ends with"), "{error}"),
    }
}
