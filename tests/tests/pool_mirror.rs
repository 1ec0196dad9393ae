//! A mirrored pool of real nodes: what ends one of them, or makes it silent, slow or wrong, costs neither data nor service.
//!
//! Every write is unique, so that a read shows which one it returns. Clients measure how long their longest request takes; the figures are
//! printed, and the tests demand only that requests end.

use anyhow::{Context, Result, ensure};
use fathom_tests::pool::{Client, Server, Verb, pool_command, pool_status};
use fathom_tests::{Case, run, run_suite, wait_until};
use lab::kept::UndoGuard;
use lab::loopdisk::{Backing, FileSystem, LoopDisk, Options};
use serde_json::Value;
use stats::random::Random;
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    let cases: Vec<Case> = vec![
        ("killed_node_is_gone_without_and_resynced", Ok(()), killed_node_is_gone_without_and_resynced),
        ("stopped_node_holds_up_no_request", Ok(()), stopped_node_holds_up_no_request),
        ("two_nodes_go_on_with_one_and_know_which", Ok(()), two_nodes_go_on_with_one_and_know_which),
        ("without_a_majority_the_needed_nodes_are_named", Ok(()), without_a_majority_the_needed_nodes_are_named),
        ("answered_writes_survive_the_coordinator", Ok(()), answered_writes_survive_the_coordinator),
        ("damaged_copy_is_mended_from_another", Ok(()), damaged_copy_is_mended_from_another),
        ("slow_flushes_of_a_node_hold_up_nobody", can_be_slowed(), slow_flushes_of_a_node_hold_up_nobody),
        ("improper_members_are_refused", Ok(()), improper_members_are_refused),
    ];
    run_suite(cases)
}

const BLOCK_BYTES: u64 = 4096;
/// Blocks that are used, spread over the disk.
const PLACE_COUNT: usize = 300;
/// Requests of a client under way.
const DEPTH: usize = 8;
/// Far above what is promised (docs/guide/pool.md): a request that takes longer has not been answered at all.
const ENDLESS: Duration = Duration::from_secs(30);

fn can_be_slowed() -> Result<(), String> {
    UndoGuard::can_throttle()?;
    LoopDisk::available(FileSystem::Ext4).map_err(|why| why.to_string())
}

/// Nodes, each of which may be there or not, and their coordinator.
struct Mirror {
    directory: tempfile::TempDir,
    stores: Vec<PathBuf>,
    addresses: Vec<String>,
    nodes: Vec<Option<Server>>,
    coordinator: Option<Server>,
    options: Vec<String>,
}

impl Mirror {
    fn new(sizes: &[&str], options: &[&str]) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let stores = (0..sizes.len()).map(|nth| directory.path().join(format!("store{nth}"))).collect();
        Self::with_stores(directory, stores, sizes, options)
    }

    fn with_stores(
        directory: tempfile::TempDir,
        stores: Vec<PathBuf>,
        sizes: &[&str],
        options: &[&str],
    ) -> Result<Self> {
        let options = options.iter().map(ToString::to_string).collect();
        let (addresses, nodes) = (vec!["127.0.0.1:0".into(); sizes.len()], sizes.iter().map(|_| None).collect());
        let mut mirror = Self { directory, stores, addresses, nodes, coordinator: None, options };
        for (nth, size) in sizes.iter().enumerate() {
            let store = mirror.stores[nth].display().to_string();
            run(&mut pool_command(&["node", "--init", "--store", &store, "--size", size]))?;
            mirror.start_node(nth)?;
        }
        mirror.serve()?;
        Ok(mirror)
    }

    fn log(&self) -> Result<std::fs::File> {
        Ok(std::fs::File::options().create(true).append(true).open(self.directory.path().join("log"))?)
    }

    fn start_node(&mut self, nth: usize) -> Result<()> {
        let (store, address) = (self.stores[nth].display().to_string(), &self.addresses[nth]);
        let words = ["node", "--store", &store, "--listen", address, "--insecure"];
        let node = Server::started(pool_command(&words).stderr(self.log()?))?;
        self.addresses[nth].clone_from(&node.says);
        self.nodes[nth] = Some(node);
        Ok(())
    }

    fn kill_node(&mut self, nth: usize) -> Result<()> {
        self.nodes[nth].take().context("it is not there")?.kill()
    }

    fn signal(&self, nth: usize, signal: i32) -> Result<()> {
        self.nodes[nth].as_ref().context("it is not there")?.signal(signal)
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("nbd")
    }

    fn words(&self) -> Vec<String> {
        let front = format!("unix:{}", self.socket().display());
        let mut words: Vec<String> =
            ["serve", "--layout", "mirror", "--insecure", "--nbd", &front].map(String::from).into();
        words.extend(self.addresses.iter().flat_map(|address| ["--node".to_string(), address.clone()]));
        words.extend(self.options.iter().cloned());
        words
    }

    fn serve(&mut self) -> Result<()> {
        let words = self.words();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.coordinator = Some(Server::started(pool_command(&words).stderr(self.log()?))?);
        Ok(())
    }

    fn client(&self) -> Result<Client> {
        Ok(Client::connect(&self.socket())?.0)
    }

    /// Waits until the copies have this property; also returns the status.
    fn wait_for(&self, what: &str, so: impl Fn(&Value) -> bool) -> Result<Value> {
        let mut seen = Value::Null;
        let came = wait_until(what, || {
            seen = pool_status(&self.socket())?.0["mirror"].clone();
            Ok(so(&seen))
        });
        came.with_context(|| {
            format!("{seen}; {}", std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default())
        })?;
        Ok(seen)
    }

    fn wait_until_whole(&self) -> Result<()> {
        let begin = Instant::now();
        self.wait_for("all copies", |mirror| {
            let is_whole = |node: &Value| node["is_connected"] == true && node["is_out"] == false;
            mirror["durable_copies"] == mirror["copies"]
                && mirror["nodes"].as_array().is_some_and(|nodes| nodes.iter().all(is_whole))
        })?;
        println!("  all copies are whole after {:.1} s", begin.elapsed().as_secs_f64());
        Ok(())
    }

    /// The state as people see it.
    fn text(&self) -> Result<String> {
        let output = pool_command(&["status", &self.socket().display().to_string()]).output()?;
        Ok(String::from_utf8(output.stdout)?)
    }

    fn end(mut self) -> Result<()> {
        self.coordinator.take().map_or(Ok(()), Server::end)?;
        self.nodes.into_iter().flatten().try_for_each(Server::end)
    }
}

/// What each place of the disk may contain: the numbers of writes; more than one if it is unknown which was done.
struct Oracle {
    random: Random,
    places: Vec<u64>,
    may: BTreeMap<u64, Vec<u64>>,
    last: u64,
}

#[derive(Debug, Default)]
struct Load {
    requests: u64,
    /// The longest read, write and flush.
    longest: [Duration; 3],
}

impl Oracle {
    fn new(seed: u64, disk_bytes: u64) -> Self {
        let mut random = Random::new(seed);
        let blocks = disk_bytes / BLOCK_BYTES;
        let may: BTreeMap<u64, Vec<u64>> = (0..PLACE_COUNT).map(|_| (random.below(blocks), vec![0])).collect();
        Self { random, places: may.keys().copied().collect(), may, last: 0 }
    }

    fn content(place: u64, write: u64) -> Vec<u8> {
        if write == 0 {
            return vec![0; BLOCK_BYTES as usize];
        }
        let word = Random::new(place << 32 ^ write).bits().to_le_bytes();
        word.iter().copied().cycle().take(BLOCK_BYTES as usize).collect()
    }

    fn check(&mut self, place: u64, data: &[u8]) -> Result<()> {
        let may = self.may.get_mut(&place).context("no such place")?;
        let found = may.iter().copied().find(|write| Self::content(place, *write) == data);
        let found =
            found.with_context(|| format!("block {place} has {:x?}, none of the writes {may:?}", &data[..8]))?;
        *may = vec![found];
        Ok(())
    }

    /// Writes, reads and flushes until it is told to end; reads must return what was written. `fails`: the coordinator may end.
    fn load(&mut self, client: &mut Client, is_over: &AtomicBool, fails: bool) -> Result<Load> {
        let mut load = Load::default();
        let mut under_way: BTreeMap<u64, (usize, Instant, u64)> = BTreeMap::new();
        let mut run = |oracle: &mut Self, under_way: &mut BTreeMap<u64, (usize, Instant, u64)>| -> Result<()> {
            while !is_over.load(Ordering::Relaxed) || !under_way.is_empty() {
                while under_way.len() < DEPTH && !is_over.load(Ordering::Relaxed) {
                    let place = oracle.places[oracle.random.below(oracle.places.len() as u64) as usize];
                    if under_way.contains_key(&place) {
                        continue;
                    }
                    let kind = match oracle.random.below(20) {
                        0..9 => 0,
                        9..19 => 1,
                        _ => 2,
                    };
                    let (offset, length) = (place * BLOCK_BYTES, BLOCK_BYTES as u32);
                    match kind {
                        0 => client.ask(Verb::Read, false, place, offset, length, &[]),
                        1 => {
                            oracle.last += 1;
                            oracle.may.entry(place).or_default().push(oracle.last);
                            let fua = oracle.last.is_multiple_of(16);
                            client.ask(Verb::Write, fua, place, offset, length, &Self::content(place, oracle.last));
                        }
                        _ => client.ask(Verb::Flush, false, place, 0, 0, &[]),
                    }
                    under_way.insert(place, (kind, Instant::now(), oracle.last));
                }
                client.send()?;
                let (place, error) = client.reply()?;
                let (kind, begin, write) = under_way.remove(&place).context("a reply to nothing")?;
                ensure!(error == 0, "request of kind {kind} at block {place}: error {error}");
                load.requests += 1;
                load.longest[kind] = load.longest[kind].max(begin.elapsed());
                match kind {
                    0 => {
                        let data = client.data(BLOCK_BYTES as u32)?;
                        oracle.check(place, &data)?;
                    }
                    1 => drop(oracle.may.insert(place, vec![write])),
                    _ => {}
                }
            }
            Ok(())
        };
        match run(self, &mut under_way) {
            Err(why) if !fails || why.downcast_ref::<std::io::Error>().is_none() => return Err(why),
            _ => {}
        }
        let longest = load.longest.iter().max().copied().unwrap_or_default();
        ensure!(longest < ENDLESS, "{load:?}");
        Ok(load)
    }

    /// Reads everything.
    fn check_all(&mut self, client: &mut Client) -> Result<()> {
        for place in self.places.clone() {
            let data = client.now(Verb::Read, place * BLOCK_BYTES, BLOCK_BYTES as u32, &[])?;
            self.check(place, &data)?;
        }
        Ok(())
    }
}

/// Runs `meanwhile` under load.
fn under_load<T>(
    oracle: &mut Oracle,
    mirror: &mut Mirror,
    fails: bool,
    meanwhile: impl FnOnce(&mut Mirror) -> Result<T>,
) -> Result<(T, Load)> {
    let (mut client, is_over) = (mirror.client()?, AtomicBool::new(false));
    std::thread::scope(|scope| {
        let load = scope.spawn(|| oracle.load(&mut client, &is_over, fails));
        // A fixed wait: so that there is a load before anything happens.
        std::thread::sleep(Duration::from_millis(500));
        let done = meanwhile(mirror);
        is_over.store(true, Ordering::Relaxed);
        let load = load.join().map_err(|_| anyhow::anyhow!("the client panicked"))?;
        let log = std::fs::read_to_string(mirror.directory.path().join("log")).unwrap_or_default();
        let load = load.with_context(|| log.clone())?;
        println!(
            "  {} requests, the longest read {:?}, write {:?}, flush {:?}",
            load.requests, load.longest[0], load.longest[1], load.longest[2]
        );
        Ok((done?, load))
    })
}

fn pause(seconds: f64) {
    // A fixed wait: the load goes on meanwhile.
    std::thread::sleep(Duration::from_secs_f64(seconds));
}

fn disk_bytes(mirror: &Mirror) -> Result<u64> {
    Ok(Client::connect(&mirror.socket())?.1)
}

/// Each node in turn is the only one, or one of two, that has the data: so it has what the others have.
fn check_each_copy(mirror: &mut Mirror, oracle: &mut Oracle) -> Result<()> {
    for nth in 0..mirror.nodes.len() {
        mirror.wait_until_whole()?;
        mirror.kill_node(nth)?;
        oracle.check_all(&mut mirror.client()?).with_context(|| format!("without node {nth}"))?;
        mirror.start_node(nth)?;
    }
    mirror.wait_until_whole()
}

fn killed_node_is_gone_without_and_resynced() -> Result<()> {
    let mut mirror = Mirror::new(&["24M", "24M", "24M"], &[])?;
    let mut oracle = Oracle::new(1, disk_bytes(&mirror)?);
    ensure!(pool_status(&mirror.socket())?.0["mirror"]["copies"] == 3, "three nodes, three copies");
    under_load(&mut oracle, &mut mirror, false, |mirror| {
        mirror.kill_node(2)?;
        pause(1.0);
        let status = mirror.wait_for("a copy less", |mirror| mirror["durable_copies"] == 2)?;
        ensure!(
            status["nodes"][2]["is_out"] == true && status["nodes"][2]["lacks_bytes"].as_u64() > Some(0),
            "{status}"
        );
        let (text, address) = (mirror.text()?, &mirror.addresses[2]);
        ensure!(text.contains(&format!("Durable on 2 of 3 copies; {address} lacks ")), "{text}");
        mirror.start_node(2)?;
        mirror.wait_until_whole()
    })?;
    let text = mirror.text()?;
    ensure!(text.contains("Durable on 3 of 3 copies\n"), "{text}");
    check_each_copy(&mut mirror, &mut oracle)?;
    mirror.end()
}

fn stopped_node_holds_up_no_request() -> Result<()> {
    let mut mirror = Mirror::new(&["24M", "24M", "24M"], &[])?;
    let mut oracle = Oracle::new(2, disk_bytes(&mirror)?);
    for nth in 0..3 {
        println!("node {nth} is stopped:");
        under_load(&mut oracle, &mut mirror, false, |mirror| {
            mirror.signal(nth, libc::SIGSTOP)?;
            pause(3.0);
            mirror.wait_for("a copy less", |mirror| mirror["durable_copies"] == 2)?;
            mirror.signal(nth, libc::SIGCONT)?;
            mirror.wait_until_whole()
        })?;
    }
    check_each_copy(&mut mirror, &mut oracle)?;
    mirror.end()
}

fn two_nodes_go_on_with_one_and_know_which() -> Result<()> {
    let mut mirror = Mirror::new(&["16M", "24M"], &["--node-timeout", "2s", "--wait", "1s"])?;
    let mut oracle = Oracle::new(3, disk_bytes(&mirror)?);
    under_load(&mut oracle, &mut mirror, false, |mirror| {
        mirror.signal(1, libc::SIGSTOP)?;
        pause(1.0);
        mirror.wait_for("a copy less", |mirror| mirror["durable_copies"] == 1)?;
        Ok(())
    })?;
    mirror.kill_node(1)?;
    mirror.kill_node(0)?;
    mirror.coordinator.take().context("no coordinator")?.kill()?;
    // It does not know that it was gone without.
    mirror.start_node(1)?;
    let words = mirror.words();
    let output = pool_command(&words.iter().map(String::as_str).collect::<Vec<_>>()).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(!output.status.success() && said.contains(&mirror.addresses[0]), "{said}");
    ensure!(!said.contains(&format!("needed: {}", mirror.addresses[1])), "{said}");
    mirror.start_node(0)?;
    mirror.serve()?;
    oracle.check_all(&mut mirror.client()?)?;
    check_each_copy(&mut mirror, &mut oracle)?;
    mirror.end()
}

fn without_a_majority_the_needed_nodes_are_named() -> Result<()> {
    let mut mirror = Mirror::new(&["16M", "16M", "16M"], &["--node-timeout", "2s", "--wait", "1s"])?;
    let mut oracle = Oracle::new(4, disk_bytes(&mirror)?);
    under_load(&mut oracle, &mut mirror, false, |_| {
        pause(0.5);
        Ok(())
    })?;
    mirror.kill_node(0)?;
    mirror.kill_node(2)?;
    let mut client = mirror.client()?;
    for verb in [Verb::Read, Verb::Write, Verb::Flush] {
        let data = if verb == Verb::Write { vec![1; 4096] } else { Vec::new() };
        let length = if verb == Verb::Flush { 0 } else { 4096 };
        // Beyond what the oracle knows of: it may or may not be done.
        let refused = client.now(verb, 0, length, &data);
        ensure!(refused.as_ref().is_err_and(|why| why.to_string().ends_with("error 5")), "{verb:?}: {refused:?}");
    }
    oracle.may.remove(&0);
    oracle.places.retain(|place| *place != 0);
    let is_named = |text: &str, addresses: &[String]| text.contains(&addresses[0]) && text.contains(&addresses[2]);
    let text = mirror.text()?;
    ensure!(text.contains("Requests wait: ") && is_named(&text, &mirror.addresses), "{text}");
    mirror.coordinator.take().context("no coordinator")?.kill()?;
    let words = mirror.words();
    let output = pool_command(&words.iter().map(String::as_str).collect::<Vec<_>>()).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(!output.status.success() && is_named(&said, &mirror.addresses), "{said}");
    // Any majority is enough.
    mirror.start_node(2)?;
    mirror.serve()?;
    oracle.check_all(&mut mirror.client()?)?;
    mirror.start_node(0)?;
    check_each_copy(&mut mirror, &mut oracle)?;
    mirror.end()
}

fn answered_writes_survive_the_coordinator() -> Result<()> {
    let mut mirror = Mirror::new(&["16M", "16M", "16M"], &[])?;
    let mut oracle = Oracle::new(5, disk_bytes(&mirror)?);
    for round in 0..6 {
        under_load(&mut oracle, &mut mirror, true, |mirror| {
            // In some rounds with a node.
            if round % 2 == 1 {
                mirror.kill_node(round % 3)?;
            }
            pause(0.1 * f64::from(round as u32));
            mirror.coordinator.take().context("no coordinator")?.kill()
        })?;
        mirror.serve()?;
        oracle.check_all(&mut mirror.client()?).with_context(|| format!("round {round}"))?;
        if round % 2 == 1 {
            mirror.start_node(round % 3)?;
        }
        mirror.wait_until_whole()?;
    }
    check_each_copy(&mut mirror, &mut oracle)?;
    mirror.end()
}

/// The offset of a block with this content in a file.
fn find(store: &Path, content: &[u8]) -> Result<u64> {
    let bytes = std::fs::read(store)?;
    let found = bytes.chunks(BLOCK_BYTES as usize).position(|block| block == content);
    Ok(found.context("the block is not in the store")? as u64 * BLOCK_BYTES)
}

fn damaged_copy_is_mended_from_another() -> Result<()> {
    let mut mirror = Mirror::new(&["16M", "16M"], &[])?;
    let mut oracle = Oracle::new(6, disk_bytes(&mirror)?);
    under_load(&mut oracle, &mut mirror, false, |_| {
        pause(1.0);
        Ok(())
    })?;
    mirror.client()?.now(Verb::Flush, 0, 0, &[])?;
    let written: Vec<(u64, u64)> =
        oracle.may.iter().filter(|(_, may)| may[0] != 0).map(|(place, may)| (*place, may[0])).collect();
    // Bytes of the first are changed in one copy, and of the last, in another region, in the other.
    for (nth, (place, write)) in [(0, written[0]), (1, written[written.len() - 1])] {
        let content = Oracle::content(place, write);
        let file = std::fs::File::options().write(true).open(&mirror.stores[nth])?;
        let at = find(&mirror.stores[nth], &content)?;
        file.write_all_at(&[content[7] ^ 1], at + 7)?;
        file.sync_data()?;
        let mut client = mirror.client()?;
        // Reads alternate between copies.
        for _ in 0..64 {
            let data = client.now(Verb::Read, place * BLOCK_BYTES, BLOCK_BYTES as u32, &[])?;
            oracle.check(place, &data).with_context(|| format!("node {nth} is damaged"))?;
        }
        mirror.wait_until_whole()?;
        ensure!(find(&mirror.stores[nth], &content)? == at, "it is mended where it was");
    }
    // What nobody reads: a scrub finds it.
    let (place, write) = written[written.len() / 2];
    let content = Oracle::content(place, write);
    let file = std::fs::File::options().write(true).open(&mirror.stores[0])?;
    let at = find(&mirror.stores[0], &content)?;
    file.write_all_at(&[0; 2 * BLOCK_BYTES as usize], at)?;
    file.sync_data()?;
    let scrub = || -> Result<(Value, Option<i32>)> {
        let output = pool_command(&["scrub", "--json", &mirror.socket().display().to_string()]).output()?;
        Ok((serde_json::from_slice(&output.stdout)?, output.status.code()))
    };
    let (found, code) = scrub()?;
    let (bad, disk) = (&found["nodes"][0], place * BLOCK_BYTES);
    ensure!(
        code == Some(1) && bad["damaged_blocks"].as_u64() > Some(0) && bad["bad"][0]["on_disk"][0] == disk,
        "{found}"
    );
    wait_until("a clean scrub", || Ok(scrub()?.1 == Some(0)))?;
    ensure!(find(&mirror.stores[0], &content)? == at, "the scrub has it mended");
    check_each_copy(&mut mirror, &mut oracle)?;
    mirror.end()
}

/// A medium on which a flush takes seconds: its node has everything, and is not resynced from the others.
fn slow_flushes_of_a_node_hold_up_nobody() -> Result<()> {
    let disk = LoopDisk::create(96 << 20, FileSystem::Ext4, &Backing::Ram, &Options::default())?;
    let directory = tempfile::tempdir()?;
    let stores = vec![directory.path().join("store0"), directory.path().join("store1"), disk.path().join("store2")];
    let mut mirror = Mirror::with_stores(directory, stores, &["32M", "32M", "32M"], &[])?;
    let mut oracle = Oracle::new(7, disk_bytes(&mirror)?);
    under_load(&mut oracle, &mut mirror, false, |_| {
        pause(0.5);
        Ok(())
    })?;
    mirror.wait_until_whole()?;
    let limit = UndoGuard::throttle(disk.device(), 512 << 10)?;
    under_load(&mut oracle, &mut mirror, false, |mirror| {
        pause(6.0);
        let status = mirror.wait_for("a slow node", |mirror| mirror["nodes"][2]["is_slow"] == true)?;
        println!("  {status}");
        drop(limit);
        pause(1.0);
        Ok(())
    })?;
    mirror.wait_until_whole()?;
    check_each_copy(&mut mirror, &mut oracle)?;
    mirror.end()
}

fn improper_members_are_refused() -> Result<()> {
    let mut mirror = Mirror::new(&["16M", "16M", "16M"], &["--wait", "1s"])?;
    let mut oracle = Oracle::new(8, disk_bytes(&mirror)?);
    under_load(&mut oracle, &mut mirror, false, |_| {
        pause(0.3);
        Ok(())
    })?;
    mirror.coordinator.take().context("no coordinator")?.end()?;
    let store = |name: &str, size: &str| -> Result<(Server, String)> {
        let path = mirror.directory.path().join(name).display().to_string();
        run(&mut pool_command(&["node", "--init", "--store", &path, "--size", size]))?;
        Ok((
            Server::started(
                pool_command(&["node", "--store", &path, "--listen", "127.0.0.1:0", "--insecure"])
                    .stderr(mirror.log()?),
            )?,
            path,
        ))
    };
    let memory = Server::started(
        pool_command(&["node", "--backend", "memory:16M", "--listen", "127.0.0.1:0", "--insecure"])
            .stderr(mirror.log()?),
    )?;
    let ((new, _), (other, _), (small, _)) = (store("new", "16M")?, store("other", "16M")?, store("small", "256K")?);
    let full = mirror.directory.path().join("full");
    std::fs::write(&full, vec![5; 16 << 20])?;
    let path = full.display().to_string();
    run(&mut pool_command(&["node", "--init", "--import", "--store", &path]))?;
    let full = Server::started(
        pool_command(&["node", "--store", &path, "--listen", "127.0.0.1:0", "--insecure"]).stderr(mirror.log()?),
    )?;
    let [a, b, c] = [0, 1, 2].map(|nth| mirror.addresses[nth].as_str());
    let refused: [(&str, &[&str], &[&str]); 9] = [
        ("keeps its store in memory", &[a, b, &memory.says], &[]),
        ("keeps its store in memory", &[&new.says, &other.says, &memory.says], &[]),
        ("are the same node", &[a, b, b], &[]),
        ("is new, and the pool of", &[a, b, &new.says], &[]),
        ("has data, and the pool is new", &[&new.says, &full.says], &[]),
        ("is too small", &[&new.says, &small.says], &[]),
        ("placed as", &[b, a, c], &[]),
        ("2 copies", &[a, b, c], &["--copies", "2"]),
        ("belongs to the pool", &[a, b, c], &["--pool", "another"]),
    ];
    for (reason, nodes, options) in refused {
        let mut words = vec!["serve", "--layout", "mirror", "--insecure", "--nbd", "tcp:127.0.0.1:0", "--wait", "1s"];
        words.extend(nodes.iter().flat_map(|node| ["--node", node]));
        words.extend(options);
        let output = pool_command(&words).output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(!output.status.success() && said.contains(reason), "{reason:?}: {words:?}: {said}");
    }
    mirror.serve()?;
    oracle.check_all(&mut mirror.client()?)?;
    check_each_copy(&mut mirror, &mut oracle)?;
    mirror.end()
}
