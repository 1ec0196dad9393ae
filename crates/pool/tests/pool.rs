//! Pools over real sockets: nodes are processes of this test's own program, the coordinator serves NBD on a Unix socket,
//! and the clients are common ones. A client that is not installed is reported as ignored, with the reason.

use bytes::{Bytes, BytesMut};
use lab::kept::UndoGuard;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use nbd::{Export as _, Single, Tls};
use pool::bench::{self, Load};
use pool::connect::tcp;
use pool::hello::{self, Answer, Hello};
use pool::layout::Arrangement;
use pool::link::{Control, Health, Options, greet};
use pool::node::{Node, WORKERS_PER_CLASS};
use pool::protocol::{Claim, LossCause, LossId, StorePosition};
use pool::setting::Setting;
use pool::store::Store;
use pool::volume::{AssemblyError, Volume, check_free};
use std::cell::RefCell;
use std::future::Future;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// If set, this process is a node with the store of that name.
const NODE_ENV: &str = "FATHOM_TEST_POOL_NODE";
const MIB: u64 = 1 << 20;

fn main() -> ExitCode {
    if let Some(store) = std::env::var_os(NODE_ENV) {
        return run_node(Path::new(&store));
    }
    let trials = vec![
        trial("fio_verifies_over_three_unequal_nodes", &["fio"], check_fio),
        trial("qemu_io_reads_back_across_node_boundaries", &["qemu-io"], check_qemu_io),
        trial("nbdcopy_round_trips_over_stripes", &["nbdcopy", "qemu-img"], check_copy),
        trial("nbdinfo_map_shows_written_and_trimmed_ranges", &["nbdinfo", "qemu-io"], check_map_after_restart),
        trial("killed_node_keeps_flushed_writes", &[], check_kills),
        trial("in_flight_writes_are_resent_after_node_restart", &["fio"], check_kills_under_fio),
        trial("older_coordinator_is_fenced_off_with_reason", &[], check_fencing),
        trial("coordinator_is_fenced_by_kind_of_answer_not_its_words", &[], check_fencing_by_kind),
        trial("mismatched_nodes_are_refused", &[], check_mismatched_nodes),
        trial("node_returns_after_other_node_at_its_address", &[], check_exchanged_nodes),
        trial("damaged_block_is_error_and_never_wrong_data", &[], check_damage),
        trial("loss_blocks_writes_until_accepted", &["unshare"], check_loss),
        trial("restart_after_flush_loses_nothing", &["unshare"], check_flushed),
        trial("failed_flush_is_remembered_on_device", &["unshare"], || check_failed_flush(false)),
        trial("failed_flush_is_remembered_on_file_system", &["unshare", "mkfs.ext4"], || check_failed_flush(true)),
        trial("write_lost_on_disk_of_killed_node_is_told_by_coordinator", &["unshare"], check_killed_witness),
        trial("medium_mounted_again_may_have_lost_writes", &["unshare", "mkfs.ext4"], check_remounted),
        trial("bench_counts_answers_of_nodes", &[], check_bench_counts),
        trial("cached_reads_need_no_request_while_node_serves", &[], check_cached_reads),
        trial("concurrent_flushes_share_one_request", &[], check_shared_flush),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn trial(name: &str, tools: &'static [&'static str], check: fn() -> Result<(), Failed>) -> Trial {
    Trial::ignorable_test(name, move || {
        match tools.iter().find(|tool| Command::new(tool).arg("-V").output().is_err()) {
            Some(tool) => Ok(Completion::ignored_with(format!("{tool} is not installed"))),
            // These simulate a restart of the machine, in a mount namespace.
            None if tools.contains(&"unshare") && !may_mount() => {
                Ok(Completion::ignored_with("a mount namespace needs CAP_SYS_ADMIN"))
            }
            None => check().map(|()| Completion::Completed),
        }
    })
}

fn may_mount() -> bool {
    rustix::thread::capabilities(None)
        .is_ok_and(|held| held.effective.contains(rustix::thread::CapabilitySet::SYS_ADMIN))
}

/// Serves a store until it is killed; prints its address on stdout.
fn run_node(path: &Path) -> ExitCode {
    let listen = std::env::args().nth(1).expect("an address");
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(WORKERS_PER_CLASS).build();
    let runtime = runtime.expect("a runtime");
    let memory = path.starts_with("memory");
    let store = if memory { Store::memory(16 * MIB, pool::unique_name::new_name()) } else { Store::open(path) };
    let node = Node::new(Arc::new(store.expect("a store")), memory);
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let listener = tokio::net::TcpListener::bind(listen).await.expect("an address");
        println!("{}", listener.local_addr().expect("an address"));
        node.listen(listener, Rc::new(|_| {}), std::future::pending::<()>()).await;
    });
    ExitCode::SUCCESS
}

/// A node's process; killed when it is dropped.
struct Process {
    child: Child,
    address: SocketAddr,
    store: PathBuf,
}

impl Process {
    fn start(store: &Path, listen: &str) -> Result<Self, Failed> {
        Self::spawn(Command::new(std::env::current_exe()?), store, listen)
    }

    /// Starts it on a machine whose boot id is in the file `boot`.
    fn start_on(boot: &Path, store: &Path, listen: &str) -> Result<Self, Failed> {
        let mut command = Command::new("unshare");
        let script = "mount --bind \"$1\" /proc/sys/kernel/random/boot_id && shift && exec \"$@\"";
        command.args(["--mount", "--", "sh", "-c", script, "sh"]).arg(boot).arg(std::env::current_exe()?);
        Self::spawn(command, store, listen)
    }

    fn spawn(mut command: Command, store: &Path, listen: &str) -> Result<Self, Failed> {
        let mut child = command.env(NODE_ENV, store).arg(listen).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no stdout")?).read_line(&mut line)?;
        Ok(Self { child, address: line.trim().parse()?, store: store.into() })
    }

    fn kill(&mut self) -> Result<(), Failed> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Kills it with SIGKILL, and restarts it at the same address.
    fn restart(&mut self) -> Result<(), Failed> {
        self.kill()?;
        *self = Self::start(&self.store, &self.address.to_string())?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.kill();
    }
}

struct Nodes {
    directory: tempfile::TempDir,
    processes: Vec<Process>,
}

impl Nodes {
    fn new(sizes: &[u64]) -> Result<Self, Failed> {
        let mut nodes = Self { directory: tempfile::tempdir()?, processes: Vec::new() };
        for (nth, size) in sizes.iter().enumerate() {
            let path = nodes.directory.path().join(format!("store{nth}"));
            drop(Store::format(&path, Some(*size), format!("node{nth}"), false)?);
            nodes.processes.push(Process::start(&path, "127.0.0.1:0")?);
        }
        Ok(nodes)
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.processes.iter().map(|process| process.address).collect()
    }
}

fn two_connections() -> Options {
    Options { connections: 2, ..Options::default() }
}

/// The reports of links.
type Reports = Rc<RefCell<Vec<String>>>;

async fn join(
    addresses: &[SocketAddr],
    pool: &str,
    stripe_bytes: Option<u64>,
) -> Result<(Volume, Reports), AssemblyError> {
    let arrangement =
        stripe_bytes.map_or(Arrangement::Concatenated, |stripe_bytes| Arrangement::Striped { stripe_bytes });
    let reports = Reports::default();
    let report = {
        let reports = reports.clone();
        Rc::new(move |line| reports.borrow_mut().push(line))
    };
    let volume =
        Volume::join(&tcp(), addresses, pool, arrangement, &two_connections(), &Control::Tuned, report).await?;
    Ok((volume, reports))
}

fn local<T>(work: impl Future<Output = Result<T, Failed>>) -> Result<T, Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, work)
}

/// Serves the pool while `clients` runs, which receives the disk's URI.
fn serve_pool(
    addresses: Vec<SocketAddr>,
    stripe_bytes: Option<u64>,
    clients: impl FnOnce(&str) -> Result<(), Failed>,
) -> Result<(), Failed> {
    serve_pool_and_count(addresses, stripe_bytes, &Arc::default(), clients)
}

/// The same; `answered` follows the number of requests that the second node has answered.
fn serve_pool_and_count(
    addresses: Vec<SocketAddr>,
    stripe_bytes: Option<u64>,
    answered: &Arc<AtomicU64>,
    clients: impl FnOnce(&str) -> Result<(), Failed>,
) -> Result<(), Failed> {
    let answered = answered.clone();
    let directory = tempfile::tempdir()?;
    let socket = directory.path().join("nbd");
    let uri = format!("nbd+unix:///disk?socket={}", socket.display());
    let (ready, wait) = std::sync::mpsc::channel();
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    std::thread::scope(|scope| {
        let coordinator = scope.spawn(move || {
            local(async {
                let (volume, _) = join(&addresses, "p", stripe_bytes).await?;
                let exports = Rc::new(Single { name: "disk".into(), export: volume });
                let count = async {
                    loop {
                        let link = exports.export.links().get(1);
                        answered.store(link.map_or(0, |link| link.counts().answered), Ordering::Relaxed);
                        // A fixed wait: the counter cannot be waited for.
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                };
                let listener = tokio::net::UnixListener::bind(socket)?;
                ready.send(())?;
                let accept = async {
                    while let Ok((stream, _)) = listener.accept().await {
                        let exports = exports.clone();
                        tokio::task::spawn_local(async move { nbd::serve(stream, &*exports, &Tls::Off).await });
                    }
                };
                tokio::select! {
                    () = accept => {}
                    () = count => {}
                    _ = ended => {}
                }
                Ok(())
            })
            .map_err(|failed| failed.message().unwrap_or("it failed").to_string())
        });
        // If the coordinator could not start, its own error is reported.
        let result = if wait.recv().is_ok() { clients(&uri) } else { Ok(()) };
        drop(end);
        coordinator.join().map_err(|_| "the coordinator panicked")??;
        result
    })
}

fn run(program: &str, arguments: &[&str]) -> Result<String, Failed> {
    let output = Command::new(program).args(arguments).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    Err(format!("{program} {arguments:?}: {}\n{text}{}", output.status, String::from_utf8_lossy(&output.stderr)).into())
}

fn verify(uri: &str) -> Result<(), Failed> {
    let uri = format!("--uri={uri}");
    let job = ["--name=verify", "--ioengine=nbd", "--rw=randwrite", "--bsrange=512-64k", "--size=24m"];
    let check = [
        "--verify=crc32c",
        "--do_verify=1",
        "--verify_fatal=1",
        "--verify_state_save=0",
        "--iodepth=64",
        "--randseed=7",
        &uri,
    ];
    run("fio", &[&job[..], &check[..]].concat()).map(drop)
}

fn check_fio() -> Result<(), Failed> {
    let nodes = Nodes::new(&[6 * MIB, 10 * MIB + 4096, 8 * MIB])?;
    serve_pool(nodes.addresses(), None, verify)
}

fn check_qemu_io() -> Result<(), Failed> {
    let commands = [
        "write -P 7 5M 8M",
        "read -P 7 5M 8M",
        "flush",
        "write -f -P 9 6291000 777",
        "read -P 9 6291000 777",
        "read -P 7 6291777 4096",
        "discard 5M 2M",
        "read -P 0 5M 2M",
        "read -P 7 7M 6M",
        "write -z 12M 8M",
        "read -P 0 12M 8M",
        "write -z -u 7M 1M",
        "read -P 0 7M 1M",
    ];
    let nodes = Nodes::new(&[6 * MIB, 10 * MIB, 8 * MIB])?;
    serve_pool(nodes.addresses(), None, |uri| {
        let mut arguments = vec!["-f", "raw"];
        arguments.extend(commands.iter().flat_map(|c| ["-c", c]));
        arguments.push(uri);
        let output = run("qemu-io", &arguments)?;
        // A pattern mismatch is only printed; some versions still exit with 0.
        if output.contains("failed") { Err(output.into()) } else { Ok(()) }
    })
}

fn check_copy() -> Result<(), Failed> {
    let nodes = Nodes::new(&[8 * MIB, 8 * MIB, 9 * MIB])?;
    let (source, back) = (nodes.directory.path().join("source"), nodes.directory.path().join("back"));
    let data: Vec<u8> = (0..24 * MIB).map(|at| ((at * 2_654_435_761) >> 13) as u8).collect();
    std::fs::write(&source, &data)?;
    let (source, to) = (source.to_string_lossy(), back.to_string_lossy());
    serve_pool(nodes.addresses(), Some(64 << 10), |uri| {
        run("nbdcopy", &["--connections=4", &source, uri])?;
        run("qemu-img", &["compare", "-f", "raw", "-F", "raw", &source, uri])?;
        run("nbdcopy", &["--connections=4", uri, &to]).map(drop)
    })?;
    if std::fs::read(back)? == data { Ok(()) } else { Err("what came back differs".into()) }
}

/// The map seen by a client matches the writes and trims, across the nodes' borders, with both layouts, also after the
/// nodes were killed and restarted.
fn check_map_after_restart() -> Result<(), Failed> {
    const BLOCK_BYTES: usize = 4096;
    for stripe_bytes in [None, Some(64 << 10)] {
        let mut nodes = Nodes::new(&[4 * MIB, 4 * MIB, 4 * MIB])?;
        let mut model = vec![false; 12 * MIB as usize / BLOCK_BYTES];
        let ends =
            ["write 4000K 1000K", "discard 4100K 300K", "write 7777K 1", "write -z -u 4500K 64K", "write 12284K 4K"];
        for (what, first, end) in
            [(true, 1000, 1250), (false, 1025, 1100), (true, 1944, 1945), (false, 1125, 1141), (true, 3071, 3072)]
        {
            model[first..end].fill(what);
        }
        serve_pool(nodes.addresses(), stripe_bytes, |uri| {
            let commands: Vec<&str> = ends.iter().flat_map(|command| ["-c", command]).collect();
            run("qemu-io", &[&["-d", "unmap", "-f", "raw"], &commands[..], &[uri]].concat())?;
            check_map(uri, &model)
        })?;
        for node in &mut nodes.processes {
            node.restart()?;
        }
        serve_pool(nodes.addresses(), stripe_bytes, |uri| {
            // Ranges trimmed before an unclean shutdown are not known to be holes until they are checked.
            run("qemu-io", &["-f", "raw", "-c", "read 0 12M", uri])?;
            check_map(uri, &model)
        })?;
    }
    Ok(())
}

fn check_map(uri: &str, model: &[bool]) -> Result<(), Failed> {
    let output = run("nbdinfo", &["--map", uri])?;
    let mut map = Vec::new();
    for line in output.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [offset, length, kind, ..] = words[..] else { return Err(format!("{line:?} is no line of a map").into()) };
        let (offset, length): (usize, usize) = (offset.parse()?, length.parse()?);
        if offset != map.len() * 4096 || length % 4096 != 0 {
            return Err(output.into());
        }
        map.extend(std::iter::repeat_n(kind == "0", length / 4096));
    }
    let differ = map.iter().zip(model).position(|(found, expected)| found != expected);
    match differ {
        None if map.len() == model.len() => Ok(()),
        _ => Err(format!("block {differ:?} differs:\n{output}").into()),
    }
}

/// A node whose machine has power failures.
struct Machine {
    directory: tempfile::TempDir,
    node: Process,
    starts: u32,
}

impl Machine {
    const STORE_BYTES: u64 = 4 * MIB;

    fn new() -> Result<Self, Failed> {
        let directory = tempfile::tempdir()?;
        let store = directory.path().join("store");
        drop(Store::format(&store, Some(Self::STORE_BYTES), "node0".into(), false)?);
        std::fs::write(directory.path().join("boot"), "boot 0\n")?;
        let node = Process::start_on(&directory.path().join("boot"), &store, "127.0.0.1:0")?;
        Ok(Self { directory, node, starts: 0 })
    }

    /// Data and sums currently on the medium, if everything is flushed.
    fn data(&self) -> Result<Vec<u8>, Failed> {
        let mut all = std::fs::read(&self.node.store)?;
        all.truncate(all.len() - 8192);
        Ok(all)
    }

    /// Restarts it; the medium has these data and sums, and the newest header.
    fn restart(&mut self, data: Option<&[u8]>) -> Result<(), Failed> {
        self.node.kill()?;
        if let Some(data) = data {
            use std::os::unix::fs::FileExt as _;
            std::fs::File::options().write(true).open(&self.node.store)?.write_all_at(data, 0)?;
        }
        self.starts += 1;
        let boot = self.directory.path().join("boot");
        std::fs::write(&boot, format!("boot {}\n", self.starts))?;
        self.node = Process::start_on(&boot, &self.node.store, &self.node.address.to_string())?;
        Ok(())
    }

    async fn join(&self, accept_loss: Option<LossId>) -> Result<(Volume, Reports), Failed> {
        join_accepting(self.node.address, accept_loss).await
    }

    /// Whether the newer of its headers has marks.
    fn is_marked(&self) -> Result<bool, Failed> {
        let all = std::fs::read(&self.node.store)?;
        let headers = all[all.len() - 8192..].chunks(4096).filter_map(|header| {
            let text = String::from_utf8_lossy(header);
            let field =
                |name: &str| Some(text.split(&format!("\"{name}\":")).nth(1)?.split([',', '}']).next()?.to_string());
            Some((field("sequence")?.parse::<u64>().ok()?, field("marked")? != "\"\""))
        });
        Ok(headers.max().ok_or("no header")?.1)
    }

    /// Waits until the store has recorded that everything is flushed.
    async fn wait_until_unmarked(&self) -> Result<(), Failed> {
        for _ in 0..1000 {
            if !self.is_marked()? {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Err("it never says that all is flushed".into())
    }
}

async fn join_accepting(node: SocketAddr, accept_loss: Option<LossId>) -> Result<(Volume, Reports), Failed> {
    let reports = Reports::default();
    let report = {
        let reports = reports.clone();
        Rc::new(move |line| reports.borrow_mut().push(line))
    };
    let options = Options { accept_loss, ..Options::default() };
    let order = Arrangement::Concatenated;
    Ok((Volume::join(&tcp(), &[node], "p", order, &options, &Control::Tuned, report).await?, reports))
}

/// Checks that writes and flushes are refused, reads are not, and the range is reported.
async fn check_refusal(volume: &Volume, reports: &Reports, holds: &[u8]) -> Result<(), Failed> {
    let written = volume.write_range(2 * MIB, Bytes::from_static(b"more"), false).await;
    let trimmed = nbd::Export::trim(volume, 0, 4096, false).await;
    if written.is_ok() || trimmed.is_ok() || volume.flush().await.is_ok() {
        return Err("a write or a flush after a loss".into());
    }
    let data = volume.read_range(MIB, holds.len() as u32).await?;
    let ranges: Vec<(u64, u64)> = volume.lost_ranges().into_iter().map(|(_, begin, bytes)| (begin, bytes)).collect();
    let reports = reports.borrow().join("\n");
    if data != holds || ranges != [(MIB, MIB)] || !reports.contains("1048576 bytes from offset 1048576") {
        return Err(format!("{data:?}, {ranges:?}: {reports}").into());
    }
    Ok(())
}

fn check_loss() -> Result<(), Failed> {
    local(async {
        // The coordinator restarts before the node, after it, or not at all.
        for (drop_before, drop_after) in [(true, false), (false, true), (false, false)] {
            let mut machine = Machine::new()?;
            let (volume, reports) = machine.join(None).await?;
            volume.write_range(MIB, Bytes::from_static(b"old"), true).await?;
            machine.wait_until_unmarked().await?;
            let data = machine.data()?;
            volume.write_range(MIB, Bytes::from_static(b"new"), false).await?;
            let mut coordinator = Some((volume, reports));
            if drop_before {
                coordinator = None;
                // It detects unflushed data that it did not write.
                coordinator.replace(machine.join(None).await?);
            }
            machine.restart(Some(&data))?;
            if drop_after {
                coordinator = None;
            }
            let (volume, reports) = match coordinator {
                Some(there) => there,
                None => machine.join(None).await?,
            };
            volume.read_range(0, 1).await?;
            check_refusal(&volume, &reports, b"old").await?;
            // The same holds for the next coordinator until the loss is accepted.
            let (volume, reports) = machine.join(None).await?;
            check_refusal(&volume, &reports, b"old").await?;
            let shown = volume.loss_id().ok_or("no identifier")?;
            let (volume, reports) = machine.join(Some(shown)).await?;
            let accepted = format!("accepted (--accept-loss {shown})");
            if !reports.borrow().iter().any(|line| line.contains(&accepted) && line.contains("from offset 1048576")) {
                return Err(format!("{reports:?}").into());
            }
            volume.write_range(0, Bytes::from_static(b"goes on"), false).await?;
            volume.flush().await?;
            // Accepting one loss does not accept a later one.
            machine.wait_until_unmarked().await?;
            let data = machine.data()?;
            volume.write_range(MIB, Bytes::from_static(b"new"), false).await?;
            machine.restart(Some(&data))?;
            volume.read_range(0, 1).await?;
            if volume.flush().await.is_ok() {
                return Err("a flush after another loss".into());
            }
            // Nor does an option that is left on the command line.
            let (volume, reports) = machine.join(Some(shown)).await?;
            if volume.flush().await.is_ok() || !reports.borrow().iter().any(|line| line.contains("accepted before")) {
                return Err(format!("a loss was accepted twice: {reports:?}").into());
            }
        }
        Ok(())
    })
}

fn check_flushed() -> Result<(), Failed> {
    local(async {
        let mut machine = Machine::new()?;
        // A coordinator that is still running knows that it has flushed everything.
        let (volume, reports) = machine.join(None).await?;
        for round in 0..3_u8 {
            volume.write_range(MIB, Bytes::from(vec![round; 5000]), false).await?;
            volume.flush().await?;
            machine.restart(None)?;
            volume.write_range(2 * MIB, Bytes::from(vec![round; 5000]), true).await?;
        }
        // Without one the store records it, after a pause.
        machine.wait_until_unmarked().await?;
        drop(volume);
        machine.restart(None)?;
        let (volume, second) = machine.join(None).await?;
        volume.write_range(0, Bytes::from_static(b"x"), true).await?;
        let all = format!("{reports:?} {second:?}");
        if all.contains("lost") || all.contains("refused") {
            return Err(all.into());
        }
        Ok(())
    })
}

/// A node on a disk whose own medium is a file on a small tmpfs: it accepts less than its size, as a thin volume does.
struct ThinDisk {
    // In the order of their ends.
    node: Option<Process>,
    mounted: Option<UndoGuard>,
    attached: Option<UndoGuard>,
    _tmpfs: UndoGuard,
    directory: tempfile::TempDir,
}

impl ThinDisk {
    fn new(file_system: bool) -> Result<Self, Failed> {
        let directory = tempfile::tempdir()?;
        let [full, mount] = ["full", "mount"].map(|name| directory.path().join(name));
        std::fs::create_dir(&full)?;
        std::fs::create_dir(&mount)?;
        let tmpfs = UndoGuard::mount("tmpfs", "size=24M", &full)?;
        std::fs::File::create(full.join("image"))?.set_len(64 * MIB)?;
        let mut thin = Self { node: None, mounted: None, attached: None, _tmpfs: tmpfs, directory };
        thin.plug(false)?;
        let store = if file_system {
            run("mkfs.ext4", &["-q", "-O", "^has_journal", &thin.device().to_string_lossy()])?;
            thin.mount()?;
            mount.join("store")
        } else {
            thin.device()
        };
        let size = file_system.then_some(48 * MIB);
        drop(Store::format(&store, size, "node0".into(), false)?);
        thin.node = Some(Process::start(&store, "127.0.0.1:0")?);
        Ok(thin)
    }

    fn device(&self) -> PathBuf {
        self.attached.as_ref().map_or_else(PathBuf::new, |attached| attached.answer().into())
    }

    /// Attaches the disk, which is a new one each time.
    fn plug(&mut self, mount: bool) -> Result<(), Failed> {
        self.attached = Some(UndoGuard::attach(&self.directory.path().join("full/image"))?);
        if mount { self.mount() } else { Ok(()) }
    }

    fn mount(&mut self) -> Result<(), Failed> {
        self.mounted = Some(UndoGuard::mount_device(&self.device(), &self.directory.path().join("mount"))?);
        Ok(())
    }

    /// Leaves this much room on the medium of the disk.
    fn fill(&self, room: u64) -> Result<(), Failed> {
        let full = self.directory.path().join("full");
        let free = rustix::fs::statvfs(&full).map(|system| system.f_bavail * system.f_frsize)?;
        let file = std::fs::File::create(full.join("ballast"))?;
        Ok(rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, free.saturating_sub(room).max(1))?)
    }

    /// Extends it.
    fn empty(&self) -> Result<(), Failed> {
        Ok(std::fs::remove_file(self.directory.path().join("full/ballast"))?)
    }

    fn node(&mut self) -> Result<&mut Process, Failed> {
        self.node.as_mut().ok_or_else(|| "no node".into())
    }
}

/// A disk takes less than was acknowledged: from then on every client gets an error, whatever is restarted, until exactly
/// that is accepted.
fn check_failed_flush(file_system: bool) -> Result<(), Failed> {
    let mut thin = ThinDisk::new(file_system)?;
    let address = thin.node()?.address;
    local(async {
        let (volume, reports) = join_accepting(address, None).await?;
        volume.write_range(0, Bytes::from(vec![1; MIB as usize]), true).await?;
        thin.fill(3 * MIB)?;
        for nth in 1..9 {
            volume.write_range(nth * MIB, Bytes::from(vec![2; MIB as usize]), false).await?;
        }
        let refused = async |volume: &Volume, reports: &Reports| {
            let written = volume.write_range(0, Bytes::from_static(b"more"), false).await;
            let durable = volume.write_range(0, Bytes::from_static(b"more"), true).await;
            let trimmed = nbd::Export::trim(volume, 0, 4096, false).await;
            if written.is_ok() || durable.is_ok() || trimmed.is_ok() || volume.flush().await.is_ok() {
                return Err::<(), Failed>(format!("a write or a flush after a loss: {reports:?}").into());
            }
            volume.read_range(0, 4096).await.map(drop).map_err(Into::into)
        };
        // To whoever flushes first, and to all others.
        let (first, second) = tokio::join!(volume.flush(), volume.flush());
        if first.is_ok() || second.is_ok() {
            return Err("a flush of what the medium did not take".into());
        }
        refused(&volume, &reports).await?;
        thin.node()?.restart()?;
        volume.read_range(0, 1).await?;
        refused(&volume, &reports).await?;
        // The medium has room again, the kernel remembers nothing, and the next coordinator has seen no error.
        thin.empty()?;
        thin.node()?.restart()?;
        let (other, reports) = join_accepting(address, None).await?;
        refused(&other, &reports).await?;
        let lost = other.lost_ranges();
        let all = (1..9).all(|nth| lost.iter().any(|(_, at, bytes)| *at <= nth * MIB && (nth + 1) * MIB <= at + bytes));
        let shown = other.loss_id().ok_or("no identifier")?;
        let told = reports.borrow().join("\n");
        if !all || lost.iter().any(|(_, at, _)| *at < MIB) || !told.contains("a flush failed") {
            return Err(format!("{lost:?}: {told}").into());
        }
        let (volume, _) = join_accepting(address, Some(shown)).await?;
        volume.write_range(MIB, Bytes::from(vec![3; 2 * MIB as usize]), false).await?;
        volume.flush().await?;
        thin.node()?.restart()?;
        if volume.read_range(MIB, 2 * MIB as u32).await? != vec![3; 2 * MIB as usize] {
            return Err("what was flushed is gone".into());
        }
        Ok(())
    })
}

/// The kernel tells a node that its disk did not take a write, and the node is killed before it records that: nobody is told
/// again, but for the coordinator, which has had the disk open since.
fn check_killed_witness() -> Result<(), Failed> {
    let mut thin = ThinDisk::new(false)?;
    let address = thin.node()?.address;
    local(async {
        let (order, control) = (Arrangement::Concatenated, Control::Tuned);
        let options = Options { shared_memory: true, ..Options::default() };
        let volume = Volume::join(&tcp(), &[address], "p", order, &options, &control, Rc::new(drop)).await?;
        volume.write_range(0, Bytes::from(vec![1; MIB as usize]), true).await?;
        thin.fill(3 * MIB)?;
        for nth in 1..9 {
            volume.write_range(nth * MIB, Bytes::from(vec![2; MIB as usize]), false).await?;
        }
        // Instead of the node's flush, in the middle of which it is killed.
        let disk = std::fs::File::options().write(true).open(thin.device())?;
        thin.node()?.kill()?;
        if disk.sync_data().is_ok() || disk.sync_data().is_err() {
            return Err("the kernel tells once".into());
        }
        thin.empty()?;
        thin.node()?.restart()?;
        volume.read_range(0, 1).await?;
        let (flushed, loss) = (volume.flush().await, volume.links()[0].loss());
        let all =
            (1..9).all(|nth| loss.ranges.iter().any(|(at, bytes)| *at <= nth * MIB && (nth + 1) * MIB <= at + bytes));
        if flushed.is_ok() || !all || loss.causes != [LossCause::FlushFailed] {
            return Err(format!("{flushed:?}, {loss:?}").into());
        }
        Ok(())
    })
}

/// The node is killed with writes that are not flushed, and its disk is detached and attached, or only mounted again, before
/// it is started: the boot is the same, and the page cache is not.
fn check_remounted() -> Result<(), Failed> {
    for replug in [false, true] {
        let mut thin = ThinDisk::new(true)?;
        let (address, store) = (thin.node()?.address, thin.node()?.store.clone());
        local(async {
            let (volume, reports) = join_accepting(address, None).await?;
            volume.write_range(0, Bytes::from_static(b"data"), false).await?;
            thin.node()?.kill()?;
            // Each is undone when it is dropped.
            thin.mounted = None;
            if replug {
                thin.attached = None;
                thin.plug(true)?;
            } else {
                thin.mount()?;
            }
            thin.node = Some(Process::start(&store, &address.to_string())?);
            volume.read_range(0, 1).await?;
            let flushed = volume.flush().await;
            let causes: Vec<_> = volume.links().iter().flat_map(|link| link.loss().causes).collect();
            if flushed.is_ok() || causes != [LossCause::MediumReplaced] {
                return Err(format!("{replug}: {flushed:?}, {causes:?}, {reports:?}").into());
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn check_kills() -> Result<(), Failed> {
    let mut nodes = Nodes::new(&[4 * MIB; 3])?;
    local(async {
        let (volume, reports) = join(&nodes.addresses(), "p", None).await?;
        let volume = Rc::new(volume);
        const BLOCK_BYTES: u64 = 6000;
        let places = volume.size_bytes() / BLOCK_BYTES;
        let mut model = vec![0_u8; places as usize];
        for round in 1..=12_u8 {
            let chosen: Vec<u64> = (0..200).map(|nth| (nth * 7919 + u64::from(round) * 104_729) % places).collect();
            let writes: Vec<_> = chosen
                .iter()
                .map(|place| {
                    let (volume, offset) = (volume.clone(), place * BLOCK_BYTES);
                    let data = Bytes::from(vec![round; BLOCK_BYTES as usize]);
                    tokio::task::spawn_local(async move { volume.write_range(offset, data, false).await })
                })
                .collect();
            // A fixed wait: each round kills at a different moment of the writes.
            tokio::time::sleep(Duration::from_millis(u64::from(round) % 4)).await;
            nodes.processes[usize::from(round) % 3].restart()?;
            for write in writes {
                write.await??;
            }
            volume.flush().await?;
            chosen.iter().for_each(|place| model[*place as usize] = round);
        }
        nodes.processes.iter_mut().try_for_each(Process::restart)?;
        for (place, expected) in model.iter().enumerate() {
            let data = volume.read_range(place as u64 * BLOCK_BYTES, BLOCK_BYTES as u32).await?;
            if data.iter().any(|byte| byte != expected) {
                return Err(format!("at {place}: {}, not {expected}", data[0]).into());
            }
        }
        let reconnected: u64 = volume.links().iter().map(|link| link.counts().reconnected).sum();
        if reconnected < 12 { Err(format!("{reconnected} connections: {reports:?}").into()) } else { Ok(()) }
    })
}

fn check_kills_under_fio() -> Result<(), Failed> {
    let (mut nodes, answered) = (Nodes::new(&[8 * MIB; 3])?, Arc::<AtomicU64>::default());
    serve_pool_and_count(nodes.addresses(), None, &answered.clone(), |uri| {
        std::thread::scope(|scope| {
            let client = scope.spawn(|| verify(uri).map_err(|f| f.message().unwrap_or("it failed").to_string()));
            let (mut kills, mut seen) = (0, 0);
            while !client.is_finished() {
                let now = answered.load(Ordering::Relaxed);
                // Killed at intervals, it would make no progress on a busy machine.
                if now > seen + 16 {
                    nodes.processes[1].restart()?;
                    (kills, seen) = (kills + 1, now);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            client.join().map_err(|_| "the client panicked")??;
            if kills == 0 { Err("fio was not disturbed".into()) } else { Ok(()) }
        })
    })
}

fn check_error(result: Result<(Volume, Reports), AssemblyError>, reason: &str) -> Result<(), Failed> {
    match result {
        Ok(_) => Err(format!("it was admitted, and not refused: {reason}").into()),
        Err(error) if error.to_string().contains(reason) => Ok(()),
        Err(error) => Err(format!("{error}, and not: {reason}").into()),
    }
}

fn check_fencing() -> Result<(), Failed> {
    let nodes = Nodes::new(&[4 * MIB; 2])?;
    local(async {
        let (first, reports) = join(&nodes.addresses(), "p", None).await?;
        first.write_range(0, Bytes::from_static(b"first"), true).await?;
        let busy = check_free(&tcp(), &nodes.addresses(), "p").await.expect_err("the first is connected").to_string();
        if !busy.contains("another coordinator is connected") || !busy.contains("epoch 1") {
            return Err(busy.into());
        }
        if !reports.borrow().is_empty() {
            return Err(format!("no coordinator was taken over: {reports:?}").into());
        }
        let (second, takes) = join(&nodes.addresses(), "p", None).await?;
        let takes = takes.borrow().iter().filter(|line| line.contains("still connected (epoch 1)")).count();
        if takes != 2 {
            return Err(format!("{takes} of 2 nodes are reported to be taken over").into());
        }
        let error = first.write_range(0, Bytes::from_static(b"stale"), true).await.expect_err("it must be fenced off");
        let who = format!("process {} on ", std::process::id());
        if !error.to_string().contains("another coordinator has taken over") || reports.borrow().is_empty() {
            return Err(format!("{error}, {reports:?}").into());
        }
        if !error.to_string().contains(&who) {
            return Err(format!("{error}, {reports:?}").into());
        }
        let data = second.read_range(0, 5).await?;
        if data != "first" {
            return Err(format!("{data:?}").into());
        }
        drop((first, second));
        for _ in 0..6000 {
            if check_free(&tcp(), &nodes.addresses(), "p").await.is_ok() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Err("the coordinator is gone, and the nodes still report it".into())
    })
}

fn check_mismatched_nodes() -> Result<(), Failed> {
    let nodes = Nodes::new(&[4 * MIB, 8 * MIB, 4 * MIB])?;
    let [a, b, c] = nodes.addresses()[..] else { return Err("three nodes".into()) };
    local(async {
        check_error(join(&[a, b, a], "p", None).await, "are the same node (node0)")?;
        drop(join(&[a, b], "p", None).await?);
        check_error(join(&[a, b], "q", None).await, "belongs to the pool \"p\"")?;
        check_error(join(&[b, a], "p", None).await, "in their original order")?;
        check_error(join(&[a, b], "p", Some(4096)).await, "in their original order")?;
        check_error(join(&[a, b, c], "p", None).await, "is new, but")?;
        let closed = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        check_error(join(&[a, closed], "p", None).await, "refused")?;
        let place = StorePosition { index: 0, count: 2, stripe_bytes: 0, mirror: None };
        let claim = Claim {
            epoch: 99,
            coordinator: "c".into(),
            node: "node0".into(),
            size_bytes: 5 * MIB,
            place,
            joins: None,
            also: Default::default(),
        };
        let hello = Hello { protocol: pool::frame::VERSION, pool: "p".into(), claim: Some(claim) };
        let why = greet(&tcp(), a, &hello).await.map(drop).expect_err("it is too small").to_string();
        if !why.contains("fewer than the 5242880") {
            return Err(why.into());
        }
        let older = Hello { protocol: 0, claim: None, ..hello };
        let why = greet(&tcp(), a, &older).await.map(drop).expect_err("it is too old").to_string();
        if why.contains("use the same release") { Ok(()) } else { Err(why.into()) }
    })
}

/// Another node has the address, first for longer than a request may take, and then for less.
fn check_fencing_by_kind() -> Result<(), Failed> {
    let mut nodes = Nodes::new(&[4 * MIB])?;
    local(async {
        let (volume, _) = join(&nodes.addresses(), "p", None).await?;
        nodes.processes[0].kill()?;
        let listener = tokio::net::TcpListener::bind(nodes.processes[0].address).await?;
        let answers = ["fenced: in words only", "fenced: another coordinator has taken over"]
            .map(|why| Answer::Refused(why.into()));
        for answer in answers.into_iter().chain([Answer::Fenced("by its kind".into())]) {
            if let Health::Ended(why) = volume.links()[0].health() {
                return Err(format!("a node that refuses for now was given up: {why}").into());
            }
            let (mut stream, _) = listener.accept().await?;
            let _: Hello = hello::receive(&mut stream, &mut BytesMut::new()).await?;
            hello::send(&mut stream, &answer).await?;
        }
        let why = volume.wait_until_fenced().await;
        if why.ends_with("by its kind") { Ok(()) } else { Err(why.into()) }
    })
}

fn check_exchanged_nodes() -> Result<(), Failed> {
    let mut nodes = Nodes::new(&[4 * MIB; 2])?;
    let at = nodes.processes[0].address.to_string();
    let (right, wrong) = (nodes.processes[0].store.clone(), nodes.processes[1].store.clone());
    nodes.processes[1].kill()?;
    local(async {
        let (reports, options) =
            (Reports::default(), Options { node_timeout: Duration::from_secs(2), ..Options::default() });
        let (addresses, report) = ([nodes.processes[0].address], reports.clone());
        let report = Rc::new(move |line| report.borrow_mut().push(line));
        let arrangement = Arrangement::Concatenated;
        let (patient, _) = join(&addresses, "p", None).await?;
        patient.write_range(0, Bytes::from_static(b"data"), true).await?;
        let volume = Volume::join(&tcp(), &addresses, "p", arrangement, &options, &Control::Tuned, report).await?;
        nodes.processes[0].kill()?;
        nodes.processes[1] = Process::start(&wrong, &at)?;
        let error = volume.read_range(0, 4).await.expect_err("it is another node").to_string();
        let named = |text: &str| text.contains("this is the node node1, not node0");
        let repeated = reports.borrow().iter().filter(|line| named(line)).count();
        if !named(&error) || !error.contains("no answer for 2 s") || repeated != 1 {
            return Err(format!("{error}, {reports:?}").into());
        }
        if !matches!(volume.links()[0].health(), Health::Away(_)) {
            return Err("it is not away".into());
        }
        nodes.processes[1].kill()?;
        nodes.processes[0] = Process::start(&right, &at)?;
        while !matches!(volume.links()[0].health(), Health::Serving) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        drop((patient, volume));
        // For a moment: requests wait, for longer than a busy machine needs.
        let (volume, _) = join(&addresses, "p", None).await?;
        if volume.read_range(0, 4).await? != "data" {
            return Err("it reads as something else".into());
        }
        nodes.processes[0].kill()?;
        nodes.processes[1] = Process::start(&wrong, &at)?;
        let read = volume.read_range(0, 4);
        let exchange = async {
            while !matches!(volume.links()[0].health(), Health::Connecting(why) if named(&why)) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            nodes.processes[1].kill()?;
            nodes.processes[0] = Process::start(&right, &at)?;
            Ok::<_, Failed>(())
        };
        let (read, exchanged) = tokio::join!(read, exchange);
        exchanged?;
        if read? == "data" { Ok(()) } else { Err("it reads as something else".into()) }
    })
}

fn check_damage() -> Result<(), Failed> {
    let nodes = Nodes::new(&[4 * MIB])?;
    local(async {
        let (volume, _) = join(&nodes.addresses(), "p", None).await?;
        volume.write_range(8192, Bytes::from(vec![1; 8192]), true).await?;
        let file = std::fs::File::options().write(true).open(&nodes.processes[0].store)?;
        std::os::unix::fs::FileExt::write_all_at(&file, &[2], 9000)?;
        let error = volume.read(8192, 512).await.expect_err("the block is damaged");
        let whole = volume.read_range(12_288, 4096).await?;
        // EIO, and its origin.
        let expected =
            format!("node {}: a block of the node is damaged, at offset 8192 of its store", nodes.addresses()[0]);
        let as_it_is = error.number() == 5 && error.to_string() == expected;
        if as_it_is && whole == vec![1; 4096] { Ok(()) } else { Err(format!("{error}").into()) }
    })
}

/// The requests sent to all nodes.
fn requests_sent(volume: &Volume) -> u64 {
    volume.links().iter().map(|link| link.counts().requests_sent).sum()
}

fn check_cached_reads() -> Result<(), Failed> {
    let mut nodes = Nodes::new(&[4 * MIB, 4 * MIB])?;
    local(async {
        let options = Options { shared_memory: true, node_timeout: Duration::from_secs(2), ..two_connections() };
        let (stripes, control) = (Arrangement::Striped { stripe_bytes: 64 << 10 }, Control::Tuned);
        let report: Rc<dyn Fn(String)> = Rc::new(drop);
        let volume = Volume::join(&tcp(), &nodes.addresses(), "p", stripes, &options, &control, report).await?;
        let read = async |offset: u64, length: u32| -> Result<Vec<u8>, Failed> {
            let mut small = bytes::BytesMut::new();
            if let Some(done) = volume.read_now(offset, length, &mut small) {
                done?;
                return Ok(small.to_vec());
            }
            Ok(volume.read_parts(offset, length).await?.concat())
        };
        for round in 0..20_u32 {
            let data: Vec<u8> = (0..3 << 20).map(|at: u32| (at / 7 * (round + 1)) as u8).collect();
            volume.write_range(100, data.clone().into(), false).await?;
            let before = requests_sent(&volume);
            let same = read(100, 3 << 20).await? == data
                && read(300_000, 40_000).await? == data[299_900..339_900]
                && read(70_000, 4096).await? == data[69_900..73_996]
                && read(65_536, 512).await? == data[65_436..65_948];
            if !same || requests_sent(&volume) > before {
                return Err(
                    format!("round {round}: equal: {same}, {} requests", requests_sent(&volume) - before).into()
                );
            }
        }
        // A block that is damaged is an error of the node's, and others are still read.
        let file = std::fs::File::options().write(true).open(&nodes.processes[0].store)?;
        std::os::unix::fs::FileExt::write_all_at(&file, b"damage", 8200)?;
        let error = read(8192, 4096).await.expect_err("it is damaged");
        if !format!("{error:?}").contains("a block of the node is damaged") {
            return Err(error);
        }
        read(0, 8192).await?;
        // Nothing is served for a node that is gone, and everything again when it is back.
        nodes.processes[1].kill()?;
        while volume.links()[1].health() == Health::Serving {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if read(65_536, 4096).await.is_ok() {
            return Err("a node that is gone was read".into());
        }
        nodes.processes[1].restart()?;
        while volume.links()[1].health() != Health::Serving {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // Its process was killed: it verifies marked regions itself first.
        read(65_536, 4096).await?;
        let before = requests_sent(&volume);
        // Tries are rarer after misses.
        for _ in 0..20 {
            read(65_536, 4096).await?;
        }
        if requests_sent(&volume) - before < 20 { Ok(()) } else { Err("cached data is requested".into()) }
    })
}

fn check_shared_flush() -> Result<(), Failed> {
    let nodes = Nodes::new(&[MIB, MIB])?;
    local(async {
        let (volume, _) = join(&nodes.addresses(), "p", None).await?;
        volume.write_range(0, Bytes::from(vec![1; 8192]), false).await?;
        let before = requests_sent(&volume);
        // One begins at once, and all others wait for the next; whoever gives up ends it for nobody else.
        let all = futures_util::future::join_all((0..16).map(|nth| {
            let limit = Duration::from_secs(if nth == 0 { 0 } else { 60 });
            tokio::time::timeout(limit, volume.flush())
        }));
        let results = all.await;
        let failed = results[1..].iter().filter(|result| !matches!(result, Ok(Ok(())))).count();
        match (failed, requests_sent(&volume) - before) {
            (0, 4) => Ok(()),
            (failed, requests) => Err(format!("{failed} failed, {requests} requests to two nodes").into()),
        }
    })
}

fn check_bench_counts() -> Result<(), Failed> {
    let process = Process::start(Path::new("memory"), "127.0.0.1:0")?;
    local(async {
        let control = Control::Fixed(Setting::new(8, 4));
        let (at, usual) = ([process.address], Options::default());
        let one = Volume::join(&tcp(), &at, "p", Arrangement::Concatenated, &usual, &control, Rc::new(drop)).await?;
        let volume = Rc::new(one);
        for write in [false, true] {
            let duration = Duration::from_secs(2);
            let load = Load { block_bytes: 512, threads: 32, duration, write, checked: true, seed: 1 };
            let before = volume.links()[0].counts().answered;
            let figures = bench::run(volume.clone(), load).await?;
            let counts = volume.links()[0].counts();
            // Three quarters of the time count, or slightly more after a late end.
            let counted = figures.ops_per_s * (duration * 3 / 4).as_secs_f64();
            let agree = counted > 0.0 && counted <= (counts.answered - before) as f64;
            if !agree || (counts.window, counts.batch) != (8, 4) || figures.batch_mean > 8.0 || figures.failed > 0 {
                return Err(format!("{figures:?}, {counts:?}").into());
            }
        }
        Ok(())
    })
}
