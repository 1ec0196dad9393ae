//! Third-party test suites against a pool of three unequal nodes with stores in files.

#[path = "pool_clients/tls.rs"]
mod tls;

use anyhow::{Context, Result, ensure};
use fathom_tests::pool::Pool;
use fathom_tests::service::Service;
use fathom_tests::{Case, installed, root, run, run_suite, wait_until_within};
use lab::kept::UndoGuard;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

fn main() -> ExitCode {
    let all = |programs: &[&str]| programs.iter().try_for_each(|program| installed(program));
    let fuse = all(&["nbdfuse", "losetup"]).and_then(|()| root()).and_then(|()| check_exists("/dev/fuse"));
    let cases: Vec<Case> = vec![
        (
            "qemu_img_copy_compares_equal_and_reads_back",
            all(&["qemu-img", "nbdcopy", "nbdinfo"]),
            qemu_img_copy_compares_equal_and_reads_back,
        ),
        ("trimming_whole_disk_frees_space", all(&["qemu-io"]), trimming_whole_disk_frees_space),
        ("nbd_tester_client_finds_no_error", find_tester().map(drop), nbd_tester_client_finds_no_error),
        ("tls_admits_only_valid_clients", all(&["nbdinfo", "nbdcopy", "qemu-io"]), tls::tls_admits_only_valid_clients),
        (
            "silent_connections_do_not_block_tls_clients",
            installed("nbdinfo"),
            tls::silent_connections_do_not_block_tls_clients,
        ),
        ("fsx_finds_no_difference", fuse.clone().and_then(|()| find_fsx().map(drop)), fsx_finds_no_difference),
        (
            "fio_continues_across_coordinator_restarts",
            all(&["fio", "nbdkit"]),
            fio_continues_across_coordinator_restarts,
        ),
        ("ext4_passes_check_after_use", fuse.clone().and_then(|()| all(&["mkfs.ext4"])), || {
            file_system_passes_check("ext4")
        }),
        ("xfs_passes_check_after_use", file_system("xfs").and(fuse.clone()).and_then(|()| all(&["mkfs.xfs"])), || {
            file_system_passes_check("xfs")
        }),
        ("btrfs_passes_check_after_use", file_system("btrfs").and(fuse).and_then(|()| all(&["mkfs.btrfs"])), || {
            file_system_passes_check("btrfs")
        }),
    ];
    run_suite(cases)
}

fn check_exists(path: &str) -> Result<(), String> {
    if Path::new(path).exists() { Ok(()) } else { Err(format!("there is no {path}")) }
}

/// Whether this kernel has the file system, built in or as a module.
fn file_system(name: &str) -> Result<(), String> {
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let loaded = || Command::new("modprobe").arg("-q").arg(name).status().is_ok_and(|status| status.success());
    let there = known.lines().any(|line| line.trim() == name) || loaded();
    there.then_some(()).ok_or_else(|| format!("this kernel has no {name}"))
}

fn tools_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target")
}

fn find_tester() -> Result<PathBuf, String> {
    let tester = tools_directory().join("nbd-tester/nbd-tester-client");
    if tester.exists() { Ok(tester) } else { Err("scripts/nbd-tester has not built nbd-tester-client".into()) }
}

fn find_fsx() -> Result<PathBuf, String> {
    let fsx = tools_directory().join("tools/bin/fsx");
    if fsx.exists() { Ok(fsx) } else { Err("scripts/setup test has not installed fsx".into()) }
}

/// Three nodes; the disk has 60 MiB concatenated, a little less in stripes.
fn start_pool(layout: &str) -> Result<Pool> {
    Pool::new(&["18M", "23M", "19M"], &["--layout", layout])
}

/// Writes bytes in which no two blocks are alike, except for a hole.
fn write_image(path: &Path, size: usize) -> Result<()> {
    let hole = size / 3..size / 2;
    let byte = |at: usize| if hole.contains(&at) { 0 } else { ((at as u64 * 2_654_435_761) >> 13) as u8 };
    Ok(std::fs::write(path, (0..size).map(byte).collect::<Vec<u8>>())?)
}

fn qemu_img_copy_compares_equal_and_reads_back() -> Result<()> {
    for layout in ["concat", "stripe"] {
        let pool = start_pool(layout)?;
        let size: usize = stdout_of(Command::new("nbdinfo").arg("--size").arg(pool.uri()))?.trim().parse()?;
        let file = |name: &str| pool.directory.path().join(name);
        let (image_file, back, cow) = (file("image"), file("back"), file("cow"));
        write_image(&image_file, size)?;
        run(Command::new("qemu-img")
            .args(["convert", "-n", "-W", "-m", "8", "-f", "raw", "-O", "raw"])
            .arg(&image_file)
            .arg(pool.uri()))?;
        run(Command::new("qemu-img").args(["compare", "-f", "raw", "-F", "raw"]).arg(&image_file).arg(pool.uri()))?;
        run(Command::new("nbdcopy").args(["--connections=4", pool.uri()]).arg(&back))?;
        ensure!(std::fs::read(&back)? == std::fs::read(&image_file)?, "{layout}: what came back differs");
        run(Command::new("qemu-img").args(["convert", "-f", "raw", "-O", "qcow2", pool.uri()]).arg(&cow))?;
        run(Command::new("qemu-img").args(["compare", "-f", "qcow2", "-F", "raw"]).arg(&cow).arg(pool.uri()))?;
        // The map covers the disk once, without a gap.
        let map = stdout_of(Command::new("nbdinfo").args(["--map", pool.uri()]))?;
        let mut end = 0;
        for line in map.lines() {
            let mut words = line.split_whitespace().map(str::parse::<u64>);
            let (begin, length) = (words.next().context("no offset")??, words.next().context("no length")??);
            ensure!(begin == end, "{layout}: a gap before {begin} in\n{map}");
            end += length;
        }
        ensure!(end == size as u64, "{layout}: the map ends at {end} of {size}");
        for can in ["flush", "fua", "trim", "zero", "cache", "multi-conn", "df"] {
            run(Command::new("nbdinfo").args(["--can", can, pool.uri()])).context(can)?;
        }
        pool.end()?;
    }
    Ok(())
}

/// Returns what a command printed. Third-party programs print binary data too: nbdinfo, the disk's, where `file` is not
/// installed.
fn stdout_of(command: &mut Command) -> Result<String> {
    Ok(String::from_utf8_lossy(&run(command)?.stdout).into_owned())
}

/// Bytes that a file occupies on its disk.
fn occupied_bytes(path: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    Ok(std::fs::metadata(path)?.blocks() * 512)
}

fn trimming_whole_disk_frees_space() -> Result<()> {
    let pool = start_pool("concat")?;
    let qemu_io = |commands: &[&str]| {
        let mut command = Command::new("qemu-io");
        let messages =
            stdout_of(command.args(["-f", "raw"]).args(commands.iter().flat_map(|c| ["-c", c])).arg(pool.uri()))?;
        ensure!(!messages.contains("failed"), "{messages}");
        Ok(())
    };
    qemu_io(&["write -P 7 0 60M", "flush"])?;
    let before = (0..pool.count()).map(|nth| occupied_bytes(&pool.store(nth))).sum::<Result<u64>>()?;
    qemu_io(&["discard 0 60M", "flush", "read -P 0 0 60M", "write -P 9 30M 4k", "read -P 9 30M 4k"])?;
    let after = (0..pool.count()).map(|nth| occupied_bytes(&pool.store(nth))).sum::<Result<u64>>()?;
    ensure!(before >= 60 << 20, "what was written takes {before} bytes");
    ensure!(after < 4 << 20, "of {before} bytes {after} stayed");
    // Where nothing was ever written, there is nothing to trim, however large the disk is.
    let large = Pool::new(&["8G", "8G"], &[])?;
    let discards: Vec<String> = (0..16).map(|nth| format!("discard {nth}G 1G")).collect();
    let mut command = Command::new("qemu-io");
    command.args(["-f", "raw"]).args(discards.iter().flat_map(|c| ["-c", c])).arg(large.uri());
    ensure!(!stdout_of(&mut command)?.contains("failed"), "a large disk is not trimmed");
    large.end()?;
    pool.end()
}

/// The transactions that the NBD project runs against its own server, except those that test its configuration. One is
/// omitted: integrityhuge requests up to 50 MB at once, more than the 32 MiB that the protocol guarantees a client.
fn nbd_tester_client_finds_no_error() -> Result<()> {
    let client = find_tester().map_err(anyhow::Error::msg)?;
    let directory = client.parent().context("it has a directory")?;
    let integrity = directory.join("integrity-test.tr").display().to_string();
    let transactions: [&[&str]; 5] = [&[], &["-w"], &["-w", "-f"], &["-i", "-t", &integrity], &["-h"]];
    for options in transactions {
        // Each expects a zeroed disk.
        let pool = start_pool("concat")?;
        let socket = pool.socket().display().to_string();
        run(Command::new("timeout").arg("240").arg(&client).args(["-N", "pool", "-u", &socket]).args(options))
            .with_context(|| format!("{options:?}"))?;
        pool.end()?;
    }
    Ok(())
}

/// The disk as a file, for programs without NBD support. Unmounted when dropped.
struct Fuse {
    service: Service,
    directory: tempfile::TempDir,
}

impl Fuse {
    fn new(uri: &str) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let at = directory.path().join("disk");
        std::fs::write(&at, "")?;
        let log = directory.path().join("log");
        let service = Service::start("nbdfuse", Command::new("nbdfuse").arg(&at).arg(uri), &log)?;
        let mut fuse = Self { service, directory };
        fuse.service.ready(|| Ok(std::fs::metadata(&at)?.len() > 0))?;
        Ok(fuse)
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("disk")
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        // If it does not stop, it is killed; the test has already failed.
        let _ = Command::new("umount").arg(self.file()).status();
        let service = &mut self.service;
        let _ = wait_until_within(Duration::from_secs(10), "an end of nbdfuse", || service.ended());
    }
}

fn fsx_finds_no_difference() -> Result<()> {
    let pool = start_pool("stripe")?;
    let fuse = Fuse::new(pool.uri())?;
    let configuration = pool.directory.path().join("fsx.toml");
    // A disk has a fixed size.
    std::fs::write(&configuration, "blockmode = true\n[weights]\ntruncate = 0\n")?;
    let fsx = find_fsx().map_err(anyhow::Error::msg)?;
    run(Command::new(fsx)
        .args(["-q", "-S", "7", "-N", "5000", "-P"])
        .arg(pool.directory.path())
        .arg("-f")
        .arg(&configuration)
        .arg(fuse.file()))?;
    drop(fuse);
    pool.end()
}

/// A file system is created, mounted, used, unmounted, checked, and used again after every node was restarted.
fn file_system_passes_check(kind: &str) -> Result<()> {
    // The smallest size that btrfs and xfs accept.
    let mut pool = Pool::new(&["110M", "120M", "130M"], &["--layout", "stripe"])?;
    let mount = tempfile::tempdir()?;
    let (make, check): (&[&str], &[&str]) = match kind {
        "ext4" => (&["mkfs.ext4", "-q", "-F"], &["e2fsck", "-f", "-n"]),
        "xfs" => (&["mkfs.xfs", "-q", "-f"], &["xfs_repair", "-n"]),
        _ => (&["mkfs.btrfs", "-q", "-f"], &["btrfs", "check", "--readonly"]),
    };
    for round in 0..2 {
        let fuse = Fuse::new(pool.uri())?;
        let attached = UndoGuard::attach(&fuse.file())?;
        if round == 0 {
            run(Command::new(make[0]).args(&make[1..]).arg(attached.answer()))?;
        }
        let script = r#"
            set -e
            mount -t "$3" "$1" "$2"
            if [ -e "$2/numbers" ]; then sha256sum --check --quiet "$2/sums"; fi
            seq 1 400000 >"$2/numbers"
            for i in $(seq 200); do mkdir -p "$2/d$((i % 7))"; head -c $((i * 501)) "$2/numbers" >"$2/d$((i % 7))/$i"; done
            rm -r "$2/d3"
            (cd / && find "$2" -type f ! -name sums -exec sha256sum {} + >"$2/sums")
            sync
            fstrim "$2"
            umount "$2"
        "#;
        // In a mount namespace of its own: a namespace that another process creates meanwhile (a container, another suite) gets a
        // copy of every existing mount, and the file system would stay in use there after our umount.
        let apart = ["--mount", "sh", "-c", script, "use", attached.answer()];
        run(Command::new("unshare").args(apart).arg(mount.path()).arg(kind))?;
        run(Command::new(check[0]).args(&check[1..]).arg(attached.answer()))?;
        drop(attached);
        drop(fuse);
        if round == 0 {
            (0..pool.count()).try_for_each(|node| pool.restart_node(node))?;
        }
    }
    pool.end()
}

/// fio through nbdkit, which reconnects when its server is gone, as the kernel's client does.
fn fio_continues_across_coordinator_restarts() -> Result<()> {
    let mut pool = start_pool("stripe")?;
    let front = pool.directory.path().join("kit");
    let kit = format!("socket={}", pool.socket().display());
    let mut between = Command::new("nbdkit");
    between.args(["--foreground", "--exit-with-parent", "--filter=retry", "--unix"]).arg(&front);
    between.args(["nbd", &kit, "export=pool", "retry-delay=1", "retry-exponential=no", "retries=60"]);
    let mut between = Service::start("nbdkit", &mut between, &pool.directory.path().join("kit.log"))?;
    let uri = format!("--uri=nbd+unix:///?socket={}", front.display());
    let job = ["--name=verify", "--ioengine=nbd", "--rw=randwrite", "--bsrange=512-64k", "--size=40m", "--iodepth=16"];
    let check = ["--verify=crc32c", "--do_verify=1", "--verify_fatal=1", "--verify_state_save=0", "--randseed=7", &uri];
    // Its socket file exists before it listens.
    between.ready(|| Ok(std::os::unix::net::UnixStream::connect(&front).is_ok()))?;
    let verified = std::thread::scope(|scope| -> Result<u32> {
        let client = scope.spawn(|| run(Command::new("fio").args(job).args(check)));
        let mut kills = 0;
        while !client.is_finished() {
            // A fixed wait: the coordinator is killed at regular intervals.
            std::thread::sleep(Duration::from_millis(400));
            if kills < 3 && !client.is_finished() {
                pool.kill_coordinator()?;
                pool.serve()?;
                kills += 1;
            }
        }
        client.join().map_err(|_| anyhow::Error::msg("the client panicked"))??;
        Ok(kills)
    });
    drop(between);
    println!("fio verified everything over {} restarts of the coordinator", verified?);
    pool.end()
}
