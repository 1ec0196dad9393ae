//! Nodes whose medium is slow, damaged or full: a slow node is not gone, and what is wrong with a medium is said everywhere.
//!
//! The slow medium is a loop disk in memory, whose write rate the block layer limits (`lab::kept::Kept::throttle`).

use anyhow::{Context, Result, ensure};
use fathom_tests::pool::{Client, Server, Verb, pool_command, pool_status};
use fathom_tests::{Case, installed, run, run_suite, wait_until, wait_until_within};
use lab::kept::UndoGuard;
use lab::loopdisk::{Backing, FileSystem, LoopDisk, Options};
use stats::random::Random;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

fn main() -> ExitCode {
    let cases: Vec<Case> = vec![
        ("flush_longer_than_timeout_keeps_node_and_blocks_no_read", can_be_slowed(), || slow_medium(SHORT_RUN)),
        ("damage_is_reported_by_both_ends_and_by_scrub", Ok(()), damage_is_reported_by_both_ends_and_by_scrub),
        ("full_medium_is_named_until_it_has_room", ext4(), full_medium_is_named_until_it_has_room),
        ("long::sd_card_takes_700_mb_with_default_settings", can_be_slowed(), || slow_medium(LONG_RUN)),
    ];
    run_suite(cases)
}

/// What the tests with a slow medium need.
fn can_be_slowed() -> Result<(), String> {
    installed("nbdcopy")?;
    UndoGuard::can_throttle()?;
    LoopDisk::available(FileSystem::Ext4).map_err(|why| why.to_string())
}

fn ext4() -> Result<(), String> {
    LoopDisk::available(FileSystem::Ext4).map_err(|why| why.to_string())
}

/// Two nodes with stores in these directories, and their coordinator, with the logs of both ends.
struct Two {
    directory: tempfile::TempDir,
    stores: [PathBuf; 2],
    nodes: [Server; 2],
    coordinator: Server,
    metrics: String,
}

impl Two {
    fn new(directories: [&Path; 2], size: &str) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let stores = [directories[0].join("store0"), directories[1].join("store1")];
        let start = |store: &Path| {
            let store_text = store.display().to_string();
            run(&mut pool_command(&["node", "--init", "--store", &store_text, "--size", size]))?;
            let words = ["node", "--store", &store_text, "--insecure", "--listen", "127.0.0.1:0"];
            let log = std::fs::File::options().create(true).append(true).open(directory.path().join("nodes"))?;
            Server::started(pool_command(&words).stderr(log))
        };
        let nodes = [start(&stores[0])?, start(&stores[1])?];
        let front = format!("unix:{}", directory.path().join("nbd").display());
        let words = ["serve", "--insecure", "--nbd", &front, "--metrics", "127.0.0.1:0", "--node", &nodes[0].says];
        let words = [&words[..], &["--node", &nodes[1].says]].concat();
        let log = std::fs::File::create(directory.path().join("coordinator"))?;
        let coordinator = Server::started(pool_command(&words).stderr(log))?;
        let mut two = Self { directory, stores, nodes, coordinator, metrics: String::new() };
        wait_until("the address of the metrics", || {
            let log = two.log("coordinator")?;
            let address = log.split("metrics at http://").nth(1).and_then(|rest| rest.split('/').next());
            two.metrics = address.unwrap_or_default().to_string();
            Ok(!two.metrics.is_empty())
        })?;
        Ok(two)
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("nbd")
    }

    fn log(&self, name: &str) -> Result<String> {
        Ok(std::fs::read_to_string(self.directory.path().join(name))?)
    }

    fn logged(&self, name: &str, words: &[&str]) -> Result<()> {
        let is_there = |line: &str| words.iter().all(|word| line.contains(word));
        wait_until("the line", || Ok(self.log(name)?.lines().any(is_there)))
            .with_context(|| format!("{words:?} is not in {:?}", self.log(name)))
    }

    /// The value of a metric of the coordinator, of the second node.
    fn metric(&self, name: &str, labels: &str) -> Result<f64> {
        let mut stream = std::net::TcpStream::connect(&self.metrics)?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
        let mut page = String::new();
        std::io::Read::read_to_string(&mut stream, &mut page)?;
        let address = format!("address=\"{}\"", self.nodes[1].says);
        let of = |line: &&str| line.starts_with(&format!("fathom_pool_{name}{{")) && line.contains(&address);
        let line = page.lines().filter(of).find(|line| line.contains(labels));
        let value = line.and_then(|line| line.rsplit(' ').next()).with_context(|| format!("no {name} in {page}"))?;
        Ok(value.parse()?)
    }

    /// Waits for this state of the second node; also returns its status.
    fn state(&self, wanted: &str) -> Result<serde_json::Value> {
        let mut seen = serde_json::Value::Null;
        let all = wait_until("the state", || {
            let (status, code) = pool_status(&self.socket())?;
            seen = status["nodes"][1].clone();
            Ok(seen["state"] == wanted && (code == Some(0)) == (wanted == "serving"))
        });
        all.with_context(|| format!("{wanted}: {seen}"))?;
        Ok(seen)
    }
}

fn damage_is_reported_by_both_ends_and_by_scrub() -> Result<()> {
    const NODE_BYTES: u64 = 8 << 20;
    let directory = tempfile::tempdir()?;
    let two = Two::new([directory.path(), directory.path()], "8M")?;
    let (mut client, size) = Client::connect(&two.socket())?;
    ensure!(size == 2 * NODE_BYTES, "{size} bytes");
    client.now(Verb::Write, NODE_BYTES, 1 << 20, &[7; 1 << 20])?;
    client.now(Verb::Flush, 0, 0, &[])?;
    two.state("serving")?;
    let scrub = || -> Result<(serde_json::Value, Option<i32>)> {
        let output = pool_command(&["scrub", "--json", &two.socket().display().to_string()]).output()?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok((serde_json::from_slice(&output.stdout).context(text)?, output.status.code()))
    };
    let (clean, code) = scrub()?;
    ensure!(code == Some(0) && clean["nodes"][1]["verified_bytes"] == NODE_BYTES, "{clean}");
    // The coordinator reads what is cached itself, and meets the damage.
    let frames = || -> Result<u64> {
        pool_status(&two.socket())?.0["nodes"][1]["frames"]["sent"].as_u64().context("no frames of the second node")
    };
    let before = frames()?;
    let data = client.now(Verb::Read, NODE_BYTES + 32_768, 65_536, &[])?;
    ensure!(data == [7; 65_536] && frames()? == before, "the coordinator has asked the node");
    // Two blocks, of which a client reads one.
    let file = std::fs::File::options().write(true).open(&two.stores[1])?;
    for offset in [40_960 + 5, 409_600] {
        std::os::unix::fs::FileExt::write_all_at(&file, &[1], offset)?;
    }
    file.sync_data()?;
    for _ in 0..3 {
        let read = client.now(Verb::Read, NODE_BYTES + 32_768, 65_536, &[]);
        ensure!(read.as_ref().is_err_and(|error| error.to_string().ends_with("error 5")), "{read:?}");
    }
    for block in [36_864, 45_056] {
        let data = client.now(Verb::Read, NODE_BYTES + block, 4096, &[]).context("another block")?;
        ensure!(data == [7; 4096], "wrong data at {block}");
    }
    let (address, store) = (two.nodes[1].says.as_str(), two.stores[1].display().to_string());
    let node = two.state("failing")?;
    let name = node["node"].as_str().context("no name")?;
    ensure!(
        node["why"] == "1 damaged block" && node["errors"]["damaged"] == 3 && node["store"] == store.as_str(),
        "{node}"
    );
    two.logged("nodes", &[name, &store, "damaged", "offset 40960 "])?;
    two.logged("coordinator", &[address, name, &store, "damaged, at offset 40960"])?;
    ensure!(two.log("nodes")?.matches("does not match").count() == 1, "{}", two.log("nodes")?);
    ensure!(two.metric("node_errors_total", "kind=\"damaged\"")? == 3.0, "the counter differs");
    ensure!(two.metric("node_damaged_blocks", "")? == 1.0, "the gauge differs");
    // The scrub finds the other one too, which has not been read.
    let (found, code) = scrub()?;
    let bad = &found["nodes"][1]["bad"];
    let offsets: Vec<_> = [0, 1].map(|nth| (bad[nth]["offset"].as_u64(), bad[nth]["on_disk"][0].as_u64())).to_vec();
    let wanted = [40_960, 409_600].map(|offset| (Some(offset), Some(NODE_BYTES + offset)));
    ensure!(code == Some(1) && offsets == wanted && found["nodes"][1]["damaged_blocks"] == 2, "{found}");
    let text = pool_command(&["scrub", &two.socket().display().to_string()]).output()?;
    let text = String::from_utf8(text.stdout)?;
    ensure!(text.contains(&format!("{address}  {store}  8 MiB verified, 2 damaged blocks")), "{text}");
    ensure!(text.contains("damaged: 4096 bytes at offset 409600 of the store"), "{text}");
    // New data repairs them.
    client.now(Verb::Write, NODE_BYTES, 1 << 20, &[8; 1 << 20])?;
    two.state("serving")?;
    ensure!(scrub()?.1 == Some(0), "it is repaired");
    drop(client);
    let Two { directory, nodes: [first, second], coordinator, .. } = two;
    coordinator.end()?;
    first.end()?;
    second.end()?;
    // A coordinator that ends in order leaves no error, although it may not have read the last reports.
    let log = std::fs::read_to_string(directory.path().join("nodes"))?;
    ensure!(!log.contains("connection"), "{log}");
    Ok(())
}

/// A client's error names the node; EIO and ENOSPC differ.
fn full_medium_is_named_until_it_has_room() -> Result<()> {
    let disk = LoopDisk::create(24 << 20, FileSystem::Ext4, &Backing::Ram, &Options::default())?;
    let directory = tempfile::tempdir()?;
    let two = Two::new([directory.path(), disk.path()], "16M")?;
    let ballast = disk.path().join("ballast");
    let (mut client, size) = Client::connect(&two.socket())?;
    client.now(Verb::Write, size / 2, 4096, &[1; 4096])?;
    client.now(Verb::Flush, 0, 0, &[])?;
    // As much as there is: the store is sparse.
    let mut file = std::fs::File::create(&ballast)?;
    while file.write_all(&[1; 64 << 10]).and_then(|()| file.sync_data()).is_ok() {}
    let write = client.now(Verb::Write, size / 2 + (8 << 20), 1 << 20, &[2; 1 << 20]);
    ensure!(write.as_ref().is_err_and(|error| error.to_string().ends_with("error 28")), "{write:?}");
    let node = two.state("failing")?;
    ensure!(node["why"] == "its medium is full" && node["errors"]["full"].as_u64() > Some(0), "{node}");
    let (address, store) = (two.nodes[1].says.as_str(), two.stores[1].display().to_string());
    two.logged("nodes", &[&store, "full of ", "no space left"])?;
    two.logged("coordinator", &[address, &store, "a write of ", "the node's medium is full"])?;
    ensure!(two.metric("node_errors_total", "kind=\"full\"")? > 0.0, "the counter differs");
    client.now(Verb::Write, 0, 4096, &[3; 4096]).context("the other node has room")?;
    std::fs::remove_file(&ballast)?;
    drop(file);
    client.now(Verb::Write, size / 2 + (8 << 20), 1 << 20, &[2; 1 << 20]).context("it has room again")?;
    two.state("serving")?;
    drop(client);
    two.coordinator.end()?;
    let [first, second] = two.nodes;
    first.end()?;
    second.end()
}

struct Slow {
    data_mib: u64,
    mib_per_s: u64,
    options: &'static [&'static str],
}

/// An eighth of the data per second and of the timeout: as on an SD card, with less of everything.
const SHORT_RUN: Slow = Slow { data_mib: 24, mib_per_s: 3, options: &["--node-timeout", "1s"] };
/// An SD card.
const LONG_RUN: Slow = Slow { data_mib: 700, mib_per_s: 15, options: &[] };

/// Starts a coordinator of one node, whose stderr goes to a file.
fn start_coordinator(node: &str, socket: &Path, options: &[&str], log: &Path) -> Result<Server> {
    let front = format!("unix:{}", socket.display());
    let words = [&["serve", "--insecure", "--nbd", &front, "--node", node], options].concat();
    Server::started(pool_command(&words).stderr(std::fs::File::options().create(true).append(true).open(log)?))
}

/// Random bytes, which no layer can store as a hole.
fn random_file(path: &Path, mib: u64) -> Result<()> {
    let (mut file, mut random) = (std::fs::File::create(path)?, Random::new(7));
    for _ in 0..mib {
        let piece: Vec<u8> = (0..1 << 17).flat_map(|_| random.bits().to_le_bytes()).collect();
        file.write_all(&piece)?;
    }
    Ok(())
}

/// Removes the clean pages of a file from the page cache.
fn forget_pages(path: &Path) -> Result<()> {
    let file = std::fs::File::open(path)?;
    // SAFETY: the descriptor is open.
    let done = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    ensure!(done == 0, "{}", std::io::Error::from_raw_os_error(done));
    Ok(())
}

const BLOCK_BYTES: u32 = 4096;
/// Reads, one after the other, that are answered before a flush that was reported before the first was sent. If reads waited for
/// flushes, one could be, since its answer may overtake that of the flush on the way to the clients.
const OVERTAKING_MAX: usize = 2;
/// How much slower the medium becomes at most to hold a flush: a minute for what is rewritten. Reads that take longer
/// wait for the flush.
const SLOWDOWN_MAX: u64 = 16;

fn slow_medium(Slow { data_mib, mib_per_s, options }: Slow) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let disk = LoopDisk::create((data_mib + 72) << 20, FileSystem::Ext4, &Backing::Ram, &Options::default())?;
    let (store, socket, log) = (disk.path().join("store"), directory.path().join("nbd"), directory.path().join("log"));
    let (size, input) = (format!("{}M", data_mib + 16), directory.path().join("input"));
    random_file(&input, data_mib)?;
    let words = ["node", "--init", "--store", &store.display().to_string(), "--size", &size];
    run(&mut pool_command(&words))?;
    let node =
        Server::start(&["node", "--store", &store.display().to_string(), "--listen", "127.0.0.1:0", "--insecure"])?;
    let coordinator = start_coordinator(&node.says, &socket, options, &log)?;
    // What is read meanwhile is on the medium only, and too far apart for the kernel to read ahead.
    let (mut client, end) = Client::connect(&socket)?;
    let cold: Vec<u64> = (1..=16).map(|nth| end - (nth << 20)).collect();
    for offset in &cold {
        client.now(Verb::Write, *offset, BLOCK_BYTES, &[3; BLOCK_BYTES as usize])?;
    }
    client.now(Verb::Flush, 0, 0, &[])?;
    forget_pages(&store)?;

    let rate = mib_per_s << 20;
    let limit = UndoGuard::throttle(disk.device(), rate)?;
    let said = || -> Result<String> { Ok(std::fs::read_to_string(&log)?) };
    let state = || -> Result<(serde_json::Value, Option<i32>)> {
        let (status, code) = pool_status(&socket)?;
        Ok((status["nodes"][0].clone(), code))
    };
    let mut copy = Command::new("nbdcopy");
    let mut copy = copy.args(["--flush", "--request-size=262144"]).arg(&input).arg(&coordinator.says).spawn()?;
    let rewritten = (4 * usize::try_from(mib_per_s)?) << 20;
    let rewrite = |client: &mut Client| -> Result<()> {
        for begin in (0..rewritten).step_by(1 << 20) {
            client.now(Verb::Write, begin as u64, 1 << 20, &[9; 1 << 20])?;
        }
        Ok(())
    };
    // Flushes by another client while there is much to flush, and reads that overtake one of them. On a busy machine, two
    // reads may take longer than any flush of the copy: after it there is data of our own, whose flush takes twice as
    // long each time.
    let (mut flusher, _) = Client::connect(&socket)?;
    let (mut left, mut slowdown) = (cold.iter(), 1);
    let mut overtaking = 0;
    while overtaking < OVERTAKING_MAX {
        let much = |node: &serde_json::Value| node["dirty_bytes"].as_u64() > Some(rate);
        wait_until_within(Duration::from_secs(600), "much dirty data", || {
            let can_read = left.len() >= OVERTAKING_MAX;
            Ok(copy.try_wait()?.is_some() || (can_read && much(&state()?.0)))
        })?;
        if copy.try_wait()?.is_some() {
            slowdown *= 2;
            ensure!(slowdown <= SLOWDOWN_MAX, "no flush was overtaken by {OVERTAKING_MAX} reads, however long it took");
            // All that was written is flushed, so that no page is dirty.
            forget_pages(&store)?;
            left = cold.iter();
            rewrite(&mut client)?;
            limit.set_throttle(rate / slowdown)?;
        }
        flusher.ask(Verb::Flush, false, 9, 0, 0, &[]);
        flusher.send()?;
        wait_until("a flush that is reported", || {
            Ok(state()?.0["flushing_s"].as_f64() > Some(0.0) || flusher.has_reply()?)
        })?;
        overtaking = 0;
        while overtaking < OVERTAKING_MAX && !flusher.has_reply()? {
            let offset = left.next().context("there were too few blocks to read")?;
            let data = client.now(Verb::Read, *offset, BLOCK_BYTES, &[])?;
            ensure!(data == [3; BLOCK_BYTES as usize], "wrong data at {offset}");
            overtaking += usize::from(!flusher.has_reply()?);
        }
        limit.set_throttle(rate)?;
        ensure!(flusher.reply()? == (9, 0), "the flush failed");
        let (node, code) = state()?;
        ensure!(node["state"] == "serving" && code == Some(0), "{node}, exit status {code:?}");
    }
    ensure!(copy.wait()?.success(), "nbdcopy failed");
    ensure!(said()?.lines().all(|line| !line.contains("node ")), "the node was given up: {}", said()?);

    // A coordinator that is replaced during a flush waits until it is over.
    let mut is_flushing = false;
    while !is_flushing {
        rewrite(&mut client)?;
        client.ask(Verb::Flush, false, 9, 0, 0, &[]);
        client.send()?;
        wait_until("a flush that is reported", || {
            is_flushing = state()?.0["flushing_s"].as_f64() > Some(0.0);
            Ok(is_flushing || client.has_reply()?)
        })?;
        // One that was too short to be seen is tried again.
        ensure!(is_flushing || client.reply()? == (9, 0), "the flush failed");
    }
    let mut coordinator = coordinator;
    coordinator.kill()?;
    let coordinator = start_coordinator(&node.says, &socket, options, &log)?;
    drop(limit);
    let copied: PathBuf = directory.path().join("output");
    run(Command::new("nbdcopy").arg(&coordinator.says).arg(&copied))?;
    let (wrote, mut wanted) = (std::fs::read(&copied)?, std::fs::read(&input)?);
    wanted[..rewritten].fill(9);
    ensure!(wrote[..wanted.len()] == wanted, "the copy differs");
    coordinator.end().context("the coordinator")?;
    node.end().context("the node")
}
