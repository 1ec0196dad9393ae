//! A pool as a disk of Debian's kernel: `pool attach` with the kernel's own NBD client, followed by typical uses of a
//! disk.
//!
//! The kernel here may have no NBD client, and a disk over FUSE is different: this one is used by a kernel's block layer, with its
//! merges, its flushes and its discards of the whole disk.

use anyhow::{Context, Result, ensure};
use lab::guest::Guest;
use std::time::Duration;

/// The programs that the test runs in the guest.
pub const GUEST_PROGRAMS: [&str; 10] = [
    "nbd-client",
    "blkdiscard",
    "fstrim",
    "mkfs.ext4",
    "e2fsck",
    "mkfs.xfs",
    "xfs_repair",
    "mkfs.btrfs",
    "btrfs",
    "nohup",
];

/// Bytes of each of the two nodes; xfs requires at least 300 MB.
const NODE_SIZE: &str = "200M";

/// How each file system is made and checked.
const FILE_SYSTEMS: [(&str, &str, &str); 3] = [
    ("ext4", "mkfs.ext4 -q", "e2fsck -fn"),
    ("xfs", "mkfs.xfs -q -f", "xfs_repair -n"),
    ("btrfs", "mkfs.btrfs -q -f", "btrfs check"),
];

/// Emulated in software, on a machine that may be doing other work: long, and only a limit.
const GUEST_TIMEOUT: Duration = Duration::from_secs(900);

fn run_shell(guest: &mut Guest, command: &str) -> Result<String> {
    let output = guest.run(&format!("export PATH=/usr/sbin:/sbin:$PATH; {command}"), GUEST_TIMEOUT)?;
    ensure!(output.status == 0, "{command}: {output:?}");
    Ok(output.stdout)
}

/// Starts the coordinator and waits until it prints its address.
fn start_coordinator(guest: &mut Guest) -> Result<()> {
    let nodes = "--node 127.0.0.1:7001 --node 127.0.0.1:7002 --insecure";
    let start = format!(
        "nohup /fathom pool serve {nodes} --nbd unix:/run/p.sock >/run/serve 2>/run/serve.err & echo $! >/run/pid"
    );
    run_shell(guest, &format!("rm -f /run/serve; {start}; {}", wait_script("[ -s /run/serve ]", "/run/serve.err")))?;
    Ok(())
}

/// Waits, up to a minute, for a shell condition.
fn wait_script(test: &str, log: &str) -> String {
    format!("for i in $(seq 300); do {test} && exit 0; sleep 0.2; done; cat {log} >&2; exit 1")
}

pub fn a_disk() -> Result<()> {
    super::stock::with_stock_guest(|guest| attach_pool(guest, &FILE_SYSTEMS[..1]))
}

pub fn a_disk_with_other_file_systems() -> Result<()> {
    super::stock::with_stock_guest(|guest| attach_pool(guest, &FILE_SYSTEMS[1..]))
}

fn attach_pool(guest: &mut Guest, file_systems: &[(&str, &str, &str)]) -> Result<()> {
    run_shell(guest, "ip link set lo up && [ -b /dev/nbd0 ]").context("the guest has no NBD client")?;
    for port in ["7001", "7002"] {
        let node = format!(
            "/fathom pool node --init --size {NODE_SIZE} --store /run/{port} --listen 127.0.0.1:{port} --insecure"
        );
        let ready = wait_script(&format!("[ -s /run/{port}.out ]"), &format!("/run/{port}.err"));
        run_shell(guest, &format!("nohup {node} >/run/{port}.out 2>/run/{port}.err & {ready}"))?;
    }
    start_coordinator(guest)?;
    // With nbd-client, which leaves everything to the kernel; detached with the printed command.
    let by_client = "/fathom pool attach --with nbd-client";
    run_shell(guest, &format!("{by_client} unix:/run/p.sock"))?;
    let bytes: u64 = run_shell(guest, "cat /sys/block/nbd0/size")?.trim().parse::<u64>()? * 512;
    ensure!(bytes == 2 * (200 << 20), "the disk has {bytes} bytes");
    let (name, make, check) = FILE_SYSTEMS[0];
    use_file_system(guest, name, make, check).with_context(|| format!("{name} by nbd-client"))?;
    let detach = run_shell(guest, &format!("{by_client} --dry-run unix:/run/p.sock | tail -n 1"))?;
    run_shell(guest, detach.trim()).context("detaching")?;
    run_shell(guest, WAIT_UNTIL_GONE).context("it is still there")?;

    // By the program itself, which keeps running.
    let start = "nohup /fathom pool attach --with kernel unix:/run/p.sock >/run/attach 2>/run/attach.err & echo $! >/run/attach.pid";
    run_shell(guest, &format!("{start}; {}", wait_script("[ -s /run/attach ]", "/run/attach.err")))?;
    for &(name, make, check) in file_systems {
        use_file_system(guest, name, make, check).with_context(|| name.to_string())?;
    }
    restart_node(guest).context("a coordinator that was killed")?;
    trim_disk(guest).context("TRIM of the whole disk")?;
    run_shell(guest, "kill $(cat /run/attach.pid)")?;
    run_shell(guest, WAIT_UNTIL_GONE).context("it is still there")?;
    println!("{}", run_shell(guest, "cat /run/attach.err")?);
    run_shell(guest, "kill $(cat /run/pid); killall fathom; rm -f /run/700*; true")?;
    Ok(())
}

/// Waits until the device has no disk any more.
const WAIT_UNTIL_GONE: &str = "for i in $(seq 300); do [ $(cat /sys/block/nbd0/size) = 0 ] && exit 0; sleep 0.2; done; cat /run/attach.err; exit 1";

/// Makes a file system, uses it, checks it, verifies its content, and discards unused space.
fn use_file_system(guest: &mut Guest, name: &str, make: &str, check: &str) -> Result<()> {
    let fill = "mkdir /mnt/d && for i in $(seq 20); do head -c ${i}0000 /dev/urandom >/mnt/d/$i; done";
    let sums = "(cd /mnt/d && sha256sum * >/run/sums)";
    run_shell(
        guest,
        &format!("{make} /dev/nbd0 >/dev/null && mount -t {name} /dev/nbd0 /mnt && {fill} && {sums} && umount /mnt"),
    )?;
    run_shell(guest, &format!("{check} /dev/nbd0 >/run/check 2>&1 || {{ cat /run/check >&2; exit 1; }}"))?;
    // The kernel's cached content of the disk is dropped, so that it is read again.
    run_shell(guest, "echo 3 >/proc/sys/vm/drop_caches")?;
    let again = "(cd /mnt/d && sha256sum -c -s /run/sums) && rm -r /mnt/d && fstrim /mnt";
    run_shell(guest, &format!("mount -t {name} /dev/nbd0 /mnt && {again} && umount /mnt"))?;
    run_shell(guest, &format!("{check} /dev/nbd0 >/run/check 2>&1 || {{ cat /run/check >&2; exit 1; }}"))?;
    Ok(())
}

/// The coordinator is killed under a mounted file system that is being written to, and restarted: the disk waits for it. Requests in
/// flight are repeated after the kernel's timeout (`pool::kernel`), so this takes a while.
fn restart_node(guest: &mut Guest) -> Result<()> {
    run_shell(guest, "mkfs.ext4 -q -F /dev/nbd0 && mount -t ext4 /dev/nbd0 /mnt")?;
    let write =
        "for i in $(seq 60); do head -c 400000 /dev/urandom >/mnt/$i && sha256sum /mnt/$i >>/run/sums && sync; done";
    run_shell(
        guest,
        &format!("rm -f /run/sums /run/wrote; nohup sh -c '{write} && echo done >/run/wrote' >/run/write.log 2>&1 &"),
    )?;
    run_shell(guest, &wait_script("[ -s /run/sums ]", "/run/write.log"))?;
    // A fixed wait: no event shows that the writer does not continue.
    run_shell(guest, "kill -9 $(cat /run/pid); sleep 1; [ ! -e /run/wrote ]")
        .context("it wrote all before the kill")?;
    start_coordinator(guest)?;
    let written = guest.run("for i in $(seq 600); do [ -s /run/wrote ] && exit 0; sleep 0.5; done; cat /run/write.log; cat /run/attach.err /run/serve.err; dmesg | tail -20; exit 1", GUEST_TIMEOUT)?;
    ensure!(written.status == 0, "the writer did not go on: {written:?}");
    run_shell(guest, "umount /mnt && e2fsck -fn /dev/nbd0 >/run/check 2>&1 || { cat /run/check >&2; exit 1; }")?;
    run_shell(
        guest,
        "echo 3 >/proc/sys/vm/drop_caches; mount -t ext4 /dev/nbd0 /mnt && sha256sum -c -s /run/sums && umount /mnt",
    )?;
    Ok(())
}

/// One discard for the whole disk; the stores release their space, and everything reads as zeroes.
fn trim_disk(guest: &mut Guest) -> Result<()> {
    let taken = |guest: &mut Guest| -> Result<u64> {
        Ok(run_shell(guest, "du -k /run/7001 /run/7002 | awk '{ n += $1 } END { print n }'")?.trim().parse()?)
    };
    let before = taken(guest)?;
    run_shell(guest, "blkdiscard /dev/nbd0 && cmp -n 419430400 /dev/nbd0 /dev/zero")?;
    let after = taken(guest)?;
    println!("the stores took {before} KiB, and after the discard {after} KiB");
    ensure!(before > 4 * after, "the stores took {before} KiB and after the discard {after} KiB");
    Ok(())
}
