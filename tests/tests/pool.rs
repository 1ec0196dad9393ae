//! The pool through the program: what it refuses, that a clean shutdown loses no data, and that a demo leaves no process.

use anyhow::{Context, Result, ensure};
use fathom_tests::pool::{Client, Server, Verb, pool_command};
use fathom_tests::{Case, installed, run_suite, silent_connections, wait_until};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, Output, Stdio};

fn main() -> ExitCode {
    let cases: Vec<Case> = vec![
        (
            "insecure_is_required_once_for_loopback_and_twice_elsewhere",
            Ok(()),
            insecure_is_refused_without_confirmation,
        ),
        (
            "wrong_key_is_refused_and_reported_at_both_ends",
            installed("qemu-io"),
            wrong_key_is_refused_and_reported_at_both_ends,
        ),
        ("status_shows_every_node_and_lost_ones", installed("qemu-io"), status_shows_every_node_and_lost_ones),
        ("without_shared_memory_data_uses_connection", installed("qemu-io"), without_memory),
        ("one_config_file_starts_nodes_and_coordinator", installed("nbdinfo"), one_file),
        ("config_error_names_line", Ok(()), wrong_file),
        (
            "attach_names_missing_module_and_dry_run_prints_commands",
            Ok(()),
            attach_names_missing_module_and_dry_run_prints_commands,
        ),
        ("store_in_use_and_missing_node_have_own_errors", Ok(()), not_there),
        ("only_stale_socket_is_replaced", Ok(()), gives_way),
        ("impossible_store_sizes_leave_no_file", Ok(()), too_large),
        ("failed_coordinator_start_leaves_running_one_alone", Ok(()), in_vain),
        ("client_over_limit_is_refused_and_logged", Ok(()), too_many_clients),
        ("client_that_aborts_is_one_line_with_who_what_and_why", Ok(()), aborting_clients),
        ("silent_connections_do_not_block_clients", installed("nbdinfo"), silent_clients),
        ("dead_node_fails_requests_and_is_named_until_back", check_libnbd(), dead_node),
        ("late_node_is_waited_for_and_named", Ok(()), late_node),
        (
            "degraded_pool_serves_present_nodes_read_only",
            installed("nbdinfo"),
            degraded_pool_serves_present_nodes_read_only,
        ),
        ("pool_keeps_data_across_clean_shutdown", installed("qemu-io"), back_again),
        ("init_does_not_overwrite_existing_file", Ok(()), not_over),
        ("try_measures_and_leaves_no_process", Ok(()), try_measures_and_leaves_no_process),
        ("paper_cluster_checks_answers_and_leaves_nothing", Ok(()), paper_cluster_checks_answers_and_leaves_nothing),
        ("shared_medium_limits_packet_rate", can_make_medium(), over_a_medium),
        ("compute_rate_is_measured_with_and_without_reads", Ok(()), compute_rate_is_measured_with_and_without_reads),
    ];
    run_suite(cases)
}

fn run_refused(words: &[&str], status: i32, reason: &str) -> Result<Output> {
    // If it is not refused, it may serve forever.
    let mut command = Command::new("timeout");
    let output = command.arg("60").arg(fathom_tests::fathom()).arg("pool").args(words).stdin(Stdio::null()).output()?;
    let messages = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(status) && messages.contains(reason),
        "{words:?}: {:?}: {messages}",
        output.status
    );
    Ok(output)
}

fn insecure_is_refused_without_confirmation() -> Result<()> {
    let twice = "pass --insecure twice";
    run_refused(&["node", "--backend", "memory:1M", "--listen", "127.0.0.1:0"], 2, "pool keygen")?;
    run_refused(&["node", "--backend", "memory:1M", "--listen", "0.0.0.0:0", "--insecure"], 2, twice)?;
    let front = ["--nbd", "unix:/nowhere/socket"];
    run_refused(&[&["serve", "--node", "192.0.2.1:1", "--insecure"], &front[..]].concat(), 2, twice)?;
    run_refused(&["bench", "--node", "127.0.0.1:1"], 2, "--insecure")?;
    run_refused(&["serve", "--backend", "memory:1M", "--nbd", "tcp:0.0.0.0:0", "--insecure"], 2, twice)?;
    run_refused(&["serve", "--backend", "memory:1M", "--nbd", "tcp:127.0.0.1:0"], 2, "--verify-clients")?;
    let node = ["node", "--backend", "memory:1M", "--listen", "0.0.0.0:0", "--insecure", "--insecure"];
    Server::start(&node)?.end()
}

fn wrong_key_is_refused_and_reported_at_both_ends() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (right, wrong, messages) = (path("right"), path("wrong"), path("said"));
    let made = pool_command(&["keygen", &right]).output()?;
    let fingerprint = String::from_utf8(made.stdout)?.trim().to_string();
    ensure!(made.status.success() && fingerprint.len() == 19, "{fingerprint:?}");
    ensure!(pool_command(&["keygen", &wrong]).output()?.status.success(), "a second key");
    let before = std::fs::read(&right)?;
    run_refused(&["keygen", &right], 1, "never overwritten")?;
    ensure!(std::fs::read(&right)? == before, "it was overwritten");

    // Any address is fine with a key.
    let listen = ["node", "--backend", "memory:4M", "--listen", "0.0.0.0:0", "--key", &right];
    let node = start_with_output(&listen, &messages)?;
    let port = node.says.rsplit(':').next().context("no port")?;
    let address = format!("127.0.0.1:{port}");
    run_refused(&["bench", "--node", &address, "--key", &wrong], 1, &format!("peer's key ({fingerprint})"))?;
    run_refused(&["bench", "--node", &address, "--insecure"], 1, "give --key FILE")?;
    std::net::TcpStream::connect(&address)?.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    for words in ["the peer's key differs", "the peer was started without a key", "first bytes are \"GET / HT\""] {
        wait_for_text(&messages, words)?;
    }
    let front = format!("unix:{}", path("nbd"));
    let old = path("old");
    let coordinator = start_with_output(&["serve", "--key", &right, "--nbd", &front, "--node", &address], &old)?;
    qemu_io(&coordinator.says, &["write -P 7 1M 2M", "read -P 7 1M 2M", "read -P 0 0 1M"])?;
    // A later coordinator has the higher epoch, and the earlier one gets an error.
    let bench = ["bench", "--key", &right, "--node", &address, "--duration", "1", "--threads", "16", "--json"];
    run_refused(&bench, 1, "another coordinator is connected to the node")?;
    qemu_io(&coordinator.says, &["read -P 7 1M 2M"])?;
    let output = pool_command(&[&bench[..], &["--take-over"]].concat()).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let figures: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    ensure!(figures["failed"] == 0 && figures["ops_per_s"].as_f64() > Some(0.0), "{figures}");
    wait_for_text(&messages, "another coordinator has taken over")?;
    wait_for_text(&old, "another coordinator has taken over (epoch 2, this one's is 1): process ")?;
    ensure!(!coordinator.exits()?.success(), "it cannot serve any more");
    node.end()
}

/// Waits until the file contains these words.
fn wait_for_text(path: &str, words: &str) -> Result<()> {
    wait_until("the message", || Ok(std::fs::read_to_string(path)?.contains(words)))
        .with_context(|| format!("{words:?} is not in {:?}", std::fs::read_to_string(path)))
}

fn without_memory() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let socket = directory.path().join("nbd").display().to_string();
    let node = Server::start(&["node", "--backend", "memory:4M", "--insecure", "--listen", "127.0.0.1:0"])?;
    let front = format!("unix:{socket}");
    let words = ["serve", "--insecure", "--nbd", &front, "--node", &node.says, "--no-shared-memory"];
    let coordinator = Server::start(&words)?;
    qemu_io(&coordinator.says, &["write -P 7 1M 2M", "read -P 7 1M 2M"])?;
    let now: serde_json::Value =
        serde_json::from_slice(&fathom_tests::run(&mut pool_command(&["status", "--json", &socket]))?.stdout)?;
    let node = &now["nodes"][0];
    ensure!(node["shared_memory_bytes"]["sent"] == 0 && node["shared_memory_bytes"]["received"] == 0, "{node}");
    let whole = |way: &str| node["bytes"][way].as_u64() > Some(2 << 20);
    ensure!(whole("sent") && whole("received"), "{node}");
    Ok(())
}

fn status_shows_every_node_and_lost_ones() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = |name: &str| directory.path().join(name).display().to_string();
    let socket = path("nbd");
    let start = |listen: &str| Server::start(&["node", "--backend", "memory:4M", "--insecure", "--listen", listen]);
    let nodes = [start("127.0.0.1:0")?, start("127.0.0.1:0")?];
    let messages = path("said");
    let front = format!("unix:{socket}");
    let words = [
        &["serve", "--insecure", "--pool", "p\"q", "--nbd", &front, "--metrics", "127.0.0.1:0"][..],
        &["--node", &nodes[0].says, "--node", &nodes[1].says],
    ];
    let coordinator = start_with_output(&words.concat(), &messages)?;
    qemu_io(&coordinator.says, &["write -P 7 3M 2M", "read -P 7 3M 1M"])?;
    let ask = || -> Result<serde_json::Value> { Ok(fathom_tests::pool::pool_status(Path::new(&socket))?.0) };
    let now = ask()?;
    ensure!(now["pool"] == "p\"q" && now["size_bytes"] == 8 << 20 && now["epoch"] == 1, "{now}");
    for (node, server) in now["nodes"].as_array().context("no nodes")?.iter().zip(&nodes) {
        ensure!(
            node["address"] == server.says && node["state"] == "serving" && node["size_bytes"] == 4 << 20,
            "{node}"
        );
        let positive = |name: &str| node[name].as_f64().is_some_and(|value| value > 0.0);
        ensure!(["window", "batch", "rtt_us", "requests", "epoch"].into_iter().all(positive), "{node}");
        let (frames, memory) = (&node["bytes"], &node["shared_memory_bytes"]);
        ensure!(frames["sent"].as_u64() > Some(0) && node["frames"]["received"].as_u64() > Some(0), "{node}");
        // The nodes are on this machine: data of a MiB are transferred through shared memory.
        ensure!(memory["sent"] == 1 << 20 && frames["sent"].as_u64() < Some(1 << 16), "{node}");
    }
    ensure!(now["nodes"][0]["shared_memory_bytes"]["received"] == 1 << 20, "{now}");
    let table = String::from_utf8(fathom_tests::run(&mut pool_command(&["status", &front]))?.stdout)?;
    ensure!(table.contains(&nodes[1].says) && table.contains("8 MiB in 2 nodes"), "{table}");

    wait_for_text(&messages, "metrics at http://")?;
    let text = std::fs::read_to_string(&messages)?;
    let metrics = text.split("http://").nth(1).and_then(|rest| rest.split('/').next()).context("no address")?;
    let page = get_page(metrics, "/metrics")?;
    let line = format!(
        "fathom_pool_node_up{{pool=\"p\\\"q\",node=\"{}\"",
        now["nodes"][0]["node"].as_str().unwrap_or_default()
    );
    ensure!(page.contains(&line) && page.contains("fathom_pool_size_bytes{pool=\"p\\\"q\"} 8388608"), "{page}");
    // Every line is a comment, or a name, labels and a number.
    for line in page.split("\r\n\r\n").nth(1).context("no body")?.lines().filter(|line| !line.starts_with('#')) {
        let value = line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok());
        ensure!(line.starts_with("fathom_pool_") && value.is_some(), "{line}");
    }
    let by_address = fathom_tests::run(&mut pool_command(&["status", "--json", metrics]))?.stdout;
    ensure!(serde_json::from_slice::<serde_json::Value>(&by_address)?["pool"] == "p\"q", "another pool");

    // A missing node is reported with the reason.
    let [first, second] = nodes;
    drop(second);
    wait_until("the reason of the missing node", || {
        let now = ask()?;
        let gone = &now["nodes"][1];
        Ok(gone["state"] == "connecting" && gone["why"].as_str().is_some_and(|why| why.contains("refused")))
    })?;
    // The remaining nodes can no longer be flushed, so they are not shut down cleanly.
    drop((coordinator, first));
    run_refused(&["status", &path("nowhere")], 1, "no coordinator answers")?;
    Ok(())
}

/// Gets a page as a browser does.
fn get_page(address: &str, page: &str) -> Result<String> {
    let mut stream = std::net::TcpStream::connect(address)?;
    stream.write_all(format!("GET {page} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// Returns a port that nobody listens on now.
fn free_port() -> Result<String> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

fn one_file() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let file = |name: &str| directory.path().join(name).display().to_string();
    let (address, metrics) = (free_port()?, free_port()?);
    let text = format!(
        "key = \"pool.key\"\n[node]\nstore = \"a.img\"\nlisten = \"{address}\"\nmetrics = \"{metrics}\"\n\
         [serve]\npool = \"filed\"\nlayout = \"stripe\"\nnodes = [\"{address}\"]\nnbd = \"unix:{}\"\n",
        file("nbd")
    );
    let config = file("pool.toml");
    std::fs::write(&config, text)?;
    fathom_tests::run(&mut pool_command(&["keygen", &file("pool.key")]))?;
    fathom_tests::run(&mut pool_command(&["node", "--init", "--store", &file("a.img"), "--size", "2M"]))?;
    let node = Server::start(&["node", "--config", &config])?;
    ensure!(node.says == address, "{}", node.says);
    let coordinator = Server::start(&["serve", "--config", &config])?;
    let told = fathom_tests::run(Command::new("nbdinfo").arg(&coordinator.says))?;
    ensure!(String::from_utf8_lossy(&told.stdout).contains("export-size: 2097152"), "another size");
    let map = fathom_tests::run(Command::new("nbdinfo").args(["--map", &coordinator.says]))?;
    ensure!(String::from_utf8_lossy(&map.stdout).contains("hole,zero"), "nothing was written");
    ensure!(get_page(&metrics, "/metrics")?.contains("fathom_pool_store_coordinators_total{"), "no metrics");
    ensure!(get_page(&metrics, "/status")?.contains("the coordinator has the status"), "a node has no status");
    let status = fathom_tests::run(&mut pool_command(&["status", "--json", &file("nbd")]))?.stdout;
    let status: serde_json::Value = serde_json::from_slice(&status)?;
    ensure!(status["pool"] == "filed" && status["stripe_bytes"] == 65_536, "{status}");
    coordinator.end()?;
    ensure!(!Path::new(&file("nbd.status")).exists(), "the socket was left behind");
    node.end()
}

fn wrong_file() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let config = directory.path().join("pool.toml").display().to_string();
    let serve = ["serve", "--config", &config];
    run_refused(&serve, 1, "cannot read")?;
    for (text, words) in [
        ("[serve]\nnodes = [\"127.0.0.1:1\"]\nnbd = \"unix:x\"\nlatout = 1\n", "line 4"),
        ("[serve]\nnodes = [\"nowhere\"]\nnbd = \"unix:x\"\n", "nodes = \"nowhere\""),
        ("[serve]\nnodes = [\"127.0.0.1:1\"]\nnbd = \"x\"\n", "unix:PATH or tcp"),
        ("[node]\nstore = \"x\"\nlisten = \"127.0.0.1:1\"\n", "has no [serve]"),
        ("\u{0}", "line 1"),
    ] {
        std::fs::write(&config, text)?;
        run_refused(&serve, 1, words)?;
    }
    std::fs::write(&config, "[serve]\nnodes = [\"127.0.0.1:1\"]\nnbd = \"unix:x\"\n")?;
    run_refused(&serve, 2, "no authentication at 127.0.0.1:1")?;
    std::fs::write(&config, "key = \"pool.toml\"\n[serve]\nnodes = [\"127.0.0.1:1\"]\nnbd = \"unix:x\"\n")?;
    run_refused(&serve, 1, "chmod 600")?;
    Ok(())
}

fn attach_names_missing_module_and_dry_run_prints_commands() -> Result<()> {
    let dry = ["attach", "--dry-run", "--with", "nbd-client", "unix:/run/pool.sock"];
    let told = String::from_utf8(fathom_tests::run(&mut pool_command(&dry))?.stdout)?;
    ensure!(
        told.lines()
            .eq(["nbd-client -unix /run/pool.sock /dev/nbd0 -name pool -block-size 4096", "nbd-client -d /dev/nbd0"]),
        "{told}"
    );
    if Path::new("/dev/nbd0").exists() || Path::new("/dev/ublk-control").exists() {
        return Ok(());
    }
    run_refused(&["attach", "unix:/run/pool.sock"], 2, "modprobe nbd")?;
    Ok(())
}

fn not_there() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let store = directory.path().join("a.img").display().to_string();
    fathom_tests::run(&mut pool_command(&["node", "--init", "--store", &store, "--size", "1M"]))?;
    let words = ["node", "--store", &store, "--listen", "127.0.0.1:0", "--insecure"];
    let node = Server::start(&words)?;
    run_refused(&words, 1, "is in use by another node")?;
    run_refused(&["bench", "--insecure", "--node", &node.says, "--node", &node.says], 1, "are the same node")?;
    for verb in [["serve", "--nbd", "unix:/nowhere/socket"], ["node", "--insecure", "--listen=127.0.0.1:0"]] {
        let words = [&verb[..], &["--backend", "memory:4000000T"]].concat();
        run_refused(&words, 1, "in memory: this machine has")?;
    }
    let nobody = free_port()?;
    let advice = format!("start `fathom pool node --store FILE --listen {nobody}`");
    run_refused(&["bench", "--insecure", "--node", &node.says, "--node", &nobody], 1, &advice)?;
    node.end()
}

fn gives_way() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = |name: &str| directory.path().join(name).display().to_string();
    let node = Server::start(&["node", "--backend", "memory:1M", "--listen", "127.0.0.1:0", "--insecure"])?;
    let dead = |name: &str| std::os::unix::net::UnixListener::bind(path(name)).map(drop);
    dead("dead")?;
    fathom_tests::run(&mut pool_command(&["node", "--init", "--store", &path("store"), "--size", "1M"]))?;
    fathom_tests::run(Command::new("mkfifo").arg(path("fifo")))?;
    std::fs::write(path("nbd.status"), b"precious")?;
    for (name, to) in [("to-file", "store"), ("to-nothing", "nothing"), ("to-dead", "dead")] {
        std::os::unix::fs::symlink(path(to), path(name))?;
    }
    let is_kept = |name: &str, words: &[&str]| -> Result<()> {
        let before = std::fs::symlink_metadata(path(name))?;
        run_refused(words, 1, "is not a socket")?;
        let after = std::fs::symlink_metadata(path(name)).with_context(|| format!("{name} was removed"))?;
        ensure!((before.ino(), before.len()) == (after.ino(), after.len()), "{name} was replaced");
        Ok(())
    };
    for name in ["store", "fifo", "to-file", "to-nothing", "to-dead"] {
        let own = path(name);
        is_kept(name, &["serve", "--backend", "memory:1M", "--nbd", &format!("unix:{own}")])?;
        let front = format!("unix:{}", path("front"));
        is_kept(name, &["serve", "--insecure", "--node", &node.says, "--nbd", &front, "--status", &own])?;
    }
    let front = format!("unix:{}", path("nbd"));
    is_kept("nbd.status", &["serve", "--insecure", "--node", &node.says, "--nbd", &front])?;

    // A socket that nobody listens on is replaced, and a server whose socket was replaced does not remove the new one
    // when it ends.
    let words = ["serve", "--backend", "memory:1M", "--nbd", &format!("unix:{}", path("dead"))];
    let first = Server::start(&words)?;
    run_refused(&words, 1, "another program is serving it")?;
    std::fs::remove_file(path("dead"))?;
    let second = Server::start(&words)?;
    first.end()?;
    Client::connect(Path::new(&path("dead"))).context("the socket of the second is gone")?;
    second.end()?;
    ensure!(!Path::new(&path("dead")).exists(), "the socket was left behind");
    node.end()
}

/// Impossible requests are refused and have no effect.
fn too_large() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = |name: &str| directory.path().join(name).display().to_string();
    let store = path("a.img");
    let init = ["node", "--init", "--store", &store];
    run_refused(&[&init[..], &["--size", "99999999999T"]].concat(), 2, "at most 4194304T")?;
    run_refused(&init, 1, "no size given")?;
    ensure!(!Path::new(&store).exists(), "an empty file was left behind");
    let front = format!("unix:{}", path("nbd"));
    let words = ["serve", "--backend", "memory:1M", "--nbd", &front, "--status", &path("status")];
    run_refused(&words, 2, "cannot be used with")?;
    Ok(())
}

fn in_vain() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = |name: &str| directory.path().join(name).display().to_string();
    let node = Server::start(&["node", "--backend", "memory:1M", "--listen", "127.0.0.1:0", "--insecure"])?;
    let front = format!("unix:{}", path("nbd"));
    let serve = ["serve", "--insecure", "--node", &node.says, "--nbd"];
    let coordinator = Server::start(&[&serve[..], &[&front]].concat())?;
    let (mut client, _) = Client::connect(Path::new(&path("nbd")))?;
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let (port, other) = (taken.local_addr()?.to_string(), format!("unix:{}", path("other")));
    let tcp = format!("tcp:{port}");
    let long = format!("unix:{}", path(&"x".repeat(120)));
    for words in [
        &[front.as_str()][..],
        &[&tcp],
        &[&long],
        &["unix:/nowhere/socket"],
        &[&other, "--status", &path("nbd")],
        &[&other, "--status", "/nowhere/status"],
        &[&other, "--metrics", &port],
    ] {
        run_refused(&[&serve[..], words].concat(), 1, "cannot listen on")?;
        let works = client.now(Verb::Write, 0, 512, &[7; 512]).and_then(|_| client.now(Verb::Flush, 0, 0, &[]));
        works.with_context(|| format!("the nodes were taken away by one that failed: {words:?}"))?;
        ensure!(!Path::new(&path("other")).exists(), "a socket was left behind: {words:?}");
    }
    drop(client);
    coordinator.end()?;
    node.end()
}

fn too_many_clients() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = |name: &str| directory.path().join(name).to_string_lossy().into_owned();
    let (socket, messages) = (path("nbd"), path("said"));
    let words = ["serve", "--backend", "memory:1M", "--nbd", &format!("unix:{socket}"), "--insecure"];
    let coordinator = start_with_output(&words, &messages)?;
    let served = || -> Result<Option<Client>> {
        let (mut client, _) = Client::connect(Path::new(&socket))?;
        Ok(client.now(Verb::Read, 0, 512, &[]).is_ok().then_some(client))
    };
    let mut clients = Vec::new();
    for nth in 0..256 {
        clients.push(served()?.with_context(|| format!("client {nth} was turned away"))?);
    }
    ensure!(served()?.is_none(), "a client too many is served");
    ensure!(std::fs::read_to_string(&messages)?.contains(": refused: 256 are connected"), "nothing tells of it");
    clients.pop();
    wait_until("a place for a client when one has gone", || Ok(served()?.is_some()))?;
    drop(clients);
    coordinator.end()
}

fn aborting_clients() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = |name: &str| directory.path().join(name).to_string_lossy().into_owned();
    let (socket, messages) = (path("nbd"), path("said"));
    let words = ["serve", "--backend", "memory:1M", "--nbd", &format!("unix:{socket}"), "--insecure"];
    let coordinator = start_with_output(&words, &messages)?;
    let connect = || Client::connect(Path::new(&socket)).map(|(client, _)| client);
    // It has its replies.
    connect()?.now(Verb::Read, 0, 512, &[])?;
    // It never reads them.
    let mut deaf = connect()?;
    (0..64).for_each(|cookie| deaf.ask(Verb::Read, false, cookie, 0, 1 << 20, &[]));
    deaf.send()?;
    wait_until("a reply", || deaf.has_reply())?;
    drop(deaf);
    // It ends in the middle of a request.
    let mut cut = connect()?;
    cut.ask(Verb::Write, false, 1, 0, 1 << 20, &[1; 1000]);
    cut.send()?;
    drop(cut);
    let lines = || -> Result<Vec<String>> {
        Ok(std::fs::read_to_string(&messages)?
            .lines()
            .filter(|line| line.contains("NBD client"))
            .map(Into::into)
            .collect())
    };
    wait_until("two lines", || Ok(lines()?.len() == 2))?;
    coordinator.end()?;
    let (lines, own) = (lines()?, format!("NBD client process {} (", std::process::id()));
    ensure!(lines.len() == 2 && lines.iter().all(|line| line.contains(&own)), "{lines:?}");
    let of = |words: &str| lines.iter().filter(|line| line.contains(words)).count();
    ensure!(
        of("the connection failed: ") == 1 && of("bytes of replies unsent") == 1 && of("message") == 1,
        "{lines:?}"
    );
    Ok(())
}

/// Valid clients are admitted on every listener despite thousands of idle connections.
fn silent_clients() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (key, messages, heard) = (path("key"), path("said"), path("heard"));
    fathom_tests::run(&mut pool_command(&["keygen", &key]))?;
    let node = ["node", "--backend", "memory:4M", "--listen", "127.0.0.1:0", "--key", &key];
    let node = start_with_output(&[&node[..], &["--metrics", "127.0.0.1:0"]].concat(), &heard)?;
    let before_node = silent_connections::open(&node.says)?;
    let words = ["serve", "--key", &key, "--node", &node.says, "--insecure", "--nbd", "tcp:127.0.0.1:0"];
    let coordinator = start_with_output(&[&words[..], &["--metrics", "127.0.0.1:0"]].concat(), &messages)?;
    let front = coordinator.says.trim_start_matches("nbd://").trim_end_matches("/pool").to_string();
    let before_front = silent_connections::open(&front)?;
    fathom_tests::run(Command::new("nbdinfo").args(["--size", &coordinator.says]))?;
    for (log, page) in [(&messages, "fathom_pool_size_bytes"), (&heard, "fathom_pool_store_size_bytes")] {
        wait_for_text(log, "metrics at http://")?;
        let text = std::fs::read_to_string(log)?;
        let metrics = text.split("http://").nth(1).and_then(|rest| rest.split('/').next()).context("no address")?;
        let _before_metrics = silent_connections::open(metrics)?;
        ensure!(get_page(metrics, "/metrics")?.contains(page), "no metrics at {metrics}");
    }
    // Once, and not for each connection.
    for log in [&messages, &heard] {
        let text = std::fs::read_to_string(log)?;
        ensure!(text.matches("unauthenticated connections").count() == 2, "{text}");
    }
    drop((before_node, before_front));
    // They are closed; clients admitted before are not.
    fathom_tests::run(Command::new("nbdinfo").args(["--size", &coordinator.says]))?;
    coordinator.end()?;
    node.end()
}

/// The distribution's Python, for which its python3-libnbd is built; another may come first in the path.
const PYTHON_PATH: &str = "/usr/bin/python3";

fn check_libnbd() -> Result<(), String> {
    let there =
        Command::new(PYTHON_PATH).args(["-c", "import nbd"]).output().is_ok_and(|output| output.status.success());
    there.then_some(()).ok_or_else(|| "python3-libnbd is not installed".into())
}

fn dead_node() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (socket, messages, store) = (path("nbd"), path("said"), path("store"));
    fathom_tests::run(&mut pool_command(&["node", "--init", "--store", &store, "--size", "4M"]))?;
    let second = |listen: &str| Server::start(&["node", "--store", &store, "--insecure", "--listen", listen]);
    let first = Server::start(&["node", "--backend", "memory:4M", "--insecure", "--listen", "127.0.0.1:0"])?;
    let mut dead = second("127.0.0.1:0")?;
    let address = dead.says.clone();
    let front = format!("unix:{socket}");
    let nodes = ["--node", &first.says, "--node", &address, "--node-timeout", "2s"];
    let serve = [&["serve", "--insecure", "--nbd", &front][..], &nodes].concat();
    let coordinator = start_with_output(&serve, &messages)?;
    let (mut client, _) = Client::connect(Path::new(&socket))?;
    client.now(Verb::Write, 5 << 20, 4096, &[7; 4096])?;
    client.now(Verb::Flush, 0, 0, &[])?;
    dead.kill()?;
    let refused = |answer: Result<Vec<u8>>| match answer {
        Err(error) if error.to_string().ends_with("error 5") => Ok(()),
        other => anyhow::bail!("a dead node: {other:?}"),
    };
    refused(client.now(Verb::Read, 5 << 20, 4096, &[]))?;
    // A hundred of these would take minutes if each waited for its timeout, and the suite would not end.
    for _ in 0..100 {
        refused(client.now(Verb::Write, 5 << 20, 4096, &[8; 4096]))?;
        refused(client.now(Verb::Flush, 0, 0, &[]))?;
    }
    client.now(Verb::Read, 0, 4096, &[]).context("the other node serves")?;
    let named = format!("node {address}: no answer for 2 s");
    wait_for_text(&messages, &format!("a flush failed, clients get EIO: {named}"))?;
    let log = std::fs::read_to_string(&messages)?;
    ensure!(log.matches("a flush failed").count() == 1, "{log}");
    let (status, code) = fathom_tests::pool::pool_status(Path::new(&socket))?;
    ensure!(code == Some(1), "all is well, says the exit status {code:?}");
    let node = &status["nodes"][1];
    // The reason why it does not answer follows.
    let failed = status["flush_failed"].as_str().is_some_and(|text| text.starts_with(&named));
    ensure!(failed && node["state"] == "away", "{status}");
    let table = String::from_utf8(pool_command(&["status", &socket]).output()?.stdout)?;
    ensure!(table.contains(&format!("The last flush failed: {named}")), "{table}");
    // A client with structured replies gets the message too.
    let flush = "import nbd, sys\nh = nbd.NBD()\nh.connect_uri(sys.argv[1])\nh.flush()";
    let asked = Command::new(PYTHON_PATH).env("LIBNBD_DEBUG", "1").args(["-c", flush, &coordinator.says]).output()?;
    let text = String::from_utf8_lossy(&asked.stderr);
    ensure!(!asked.status.success() && text.contains(&named), "{text}");

    dead = second(&address)?;
    wait_for_text(&messages, &format!("node {address}: it is back"))?;
    client.now(Verb::Flush, 0, 0, &[])?;
    // The failed write may have been made; if not, what was flushed before is there.
    let data = client.now(Verb::Read, 5 << 20, 4096, &[])?;
    ensure!(data == [7; 4096], "it holds {:?}", &data[..4]);
    drop(client);
    coordinator.end()?;
    dead.end()?;
    first.end()
}

/// A node that starts after the coordinator, as after a power failure.
fn late_node() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (socket, messages, late) = (path("nbd"), path("said"), free_port()?);
    let node = |listen: &str| Server::start(&["node", "--backend", "memory:4M", "--insecure", "--listen", listen]);
    let first = node("127.0.0.1:0")?;
    let front = format!("unix:{socket}");
    let serve = ["serve", "--insecure", "--nbd", &front, "--node", &first.says, "--node", &late];
    // A limit ends it, with the address of who is missing.
    let limited = run_refused(&[&serve[..], &["--wait", "1s"]].concat(), 1, "1 of 2 nodes do not answer after 1 s")?;
    let text = String::from_utf8_lossy(&limited.stderr);
    ensure!(text.contains(&format!("node {late}: ")) && !text.contains(&first.says), "{text}");
    let mut waiting = pool_command(&serve).stdout(Stdio::piped()).stderr(std::fs::File::create(&messages)?).spawn()?;
    wait_for_text(&messages, "waiting for 1 of 2 nodes, for up to ")?;
    wait_for_text(&messages, &format!("node {late}: "))?;
    ensure!(waiting.try_wait()?.is_none(), "it does not wait");
    let second = node(&late)?;
    wait_until("a pool", || Ok(Client::connect(Path::new(&socket)).is_ok_and(|(_, size)| size == 8 << 20)))?;
    fathom_tests::run(Command::new("kill").arg(waiting.id().to_string()))?;
    ensure!(waiting.wait()?.success(), "{}", std::fs::read_to_string(&messages)?);
    // What no waiting can change is refused at once.
    let other = [&serve[..], &["--pool", "another"]].concat();
    run_refused(&other, 1, "belongs to the pool")?;
    first.end()?;
    second.end()
}

fn degraded_pool_serves_present_nodes_read_only() -> Result<()> {
    for layout in ["concat", "stripe"] {
        let directory = tempfile::tempdir()?;
        let path = |name: &str| directory.path().join(name).display().to_string();
        let (socket, messages) = (path("nbd"), path("said"));
        let node = || Server::start(&["node", "--backend", "memory:4M", "--insecure", "--listen", "127.0.0.1:0"]);
        let mut nodes = [node()?, node()?, node()?];
        let front = format!("unix:{socket}");
        let mut serve = vec!["serve", "--insecure", "--layout", layout, "--nbd", &front];
        let addresses: Vec<String> = nodes.iter().map(|node| node.says.clone()).collect();
        addresses.iter().for_each(|address| serve.extend(["--node", address]));
        let whole = start_with_output(&serve, &messages)?;
        let (mut client, size) = Client::connect(Path::new(&socket))?;
        for begin in (0..size).step_by(64 << 10) {
            client.now(Verb::Write, begin, 64 << 10, &[(begin >> 16) as u8; 64 << 10])?;
        }
        drop(client);
        whole.end()?;
        nodes[1].kill()?;
        let coordinator = start_with_output(&[&serve[..], &["--degraded"]].concat(), &messages)?;
        wait_for_text(&messages, &format!("degraded, so read-only: node {}: ", addresses[1]))?;
        let (mut client, now) = Client::connect(Path::new(&socket))?;
        ensure!(now == size, "{layout}: {now} of {size} bytes");
        let mut failed = 0;
        for begin in (0..size).step_by(64 << 10) {
            let missing = if layout == "stripe" { (begin >> 16) % 3 == 1 } else { (4 << 20..8 << 20).contains(&begin) };
            match client.now(Verb::Read, begin, 64 << 10, &[]) {
                Ok(data) => {
                    ensure!(!missing && data == [(begin >> 16) as u8; 64 << 10], "{layout}: wrong data at {begin}")
                }
                Err(error) => {
                    ensure!(missing && error.to_string().ends_with("error 5"), "{layout} at {begin}: {error}");
                    failed += 1;
                }
            }
        }
        ensure!(failed == 64, "{failed} reads failed");
        let refused = client.now(Verb::Write, 0, 512, &[1; 512]);
        ensure!(refused.as_ref().is_err_and(|error| error.to_string().ends_with("error 1")), "a write: {refused:?}");
        client.now(Verb::Flush, 0, 0, &[]).context("a flush of nothing")?;
        let (status, code) = fathom_tests::pool::pool_status(Path::new(&socket))?;
        let states: Vec<_> = (0..3).map(|nth| status["nodes"][nth]["state"].as_str().unwrap_or_default()).collect();
        ensure!(
            code == Some(1) && status["degraded"] == true && states == ["serving", "missing", "serving"],
            "{status}"
        );
        let table = String::from_utf8(pool_command(&["status", &socket]).output()?.stdout)?;
        ensure!(table.contains("Degraded: served read-only, without 1 of 3 nodes"), "{table}");
        let info = fathom_tests::run(Command::new("nbdinfo").arg(&coordinator.says))?.stdout;
        // It also quotes the first bytes of the disk, which are no text.
        let info = String::from_utf8_lossy(&info);
        ensure!(info.contains("is_read_only: true") && info.contains("degraded: read-only, 1 missing"), "{info}");
        drop(client);
        coordinator.end()?;
        drop(nodes);
    }
    Ok(())
}

/// Starts a server whose stderr goes to the file.
fn start_with_output(words: &[&str], path: &str) -> Result<Server> {
    Server::started(pool_command(words).stderr(std::fs::File::create(path)?))
}

fn qemu_io(uri: &str, commands: &[&str]) -> Result<()> {
    let mut command = Command::new("qemu-io");
    command.args(["-f", "raw"]).args(commands.iter().flat_map(|c| ["-c", c])).arg(uri);
    let output = command.output()?;
    let messages = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success() && !messages.contains("failed"),
        "{messages}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

fn back_again() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = |name: &str| directory.path().join(name).display().to_string();
    let front = format!("unix:{}", path("nbd"));
    let stores = [path("a"), path("b")];
    for store in &stores {
        let made = pool_command(&["node", "--init", "--store", store, "--size", "2M"]).output()?;
        ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
    for checks in [&["read -P 0 0 4M", "write -P 7 1M 2M"][..], &["read -P 7 1M 2M", "read -P 0 0 1M"]] {
        let node = |store: &String| Server::start(&["node", "--store", store, "--listen", "127.0.0.1:0", "--insecure"]);
        let nodes = stores.iter().map(node).collect::<Result<Vec<Server>>>()?;
        let words = ["serve", "--insecure", "--nbd", &front, "--node", &nodes[0].says, "--node", &nodes[1].says];
        let coordinator = Server::start(&words)?;
        qemu_io(&coordinator.says, checks)?;
        coordinator.end()?;
        ensure!(!Path::new(&path("nbd")).exists(), "the socket was left behind");
        nodes.into_iter().try_for_each(Server::end)?;
    }
    Ok(())
}

fn not_over() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("image");
    let store = path.display().to_string();
    std::fs::write(&path, b"precious")?;
    run_refused(&["node", "--init", "--store", &store, "--size", "1M"], 1, "--import")?;
    ensure!(std::fs::read(&path)? == b"precious", "it was changed");
    run_refused(&["node", "--store", &store, "--listen", "127.0.0.1:0", "--insecure"], 1, "is not a store")?;
    ensure!(
        pool_command(&["node", "--init", "--store", &store, "--import"]).output()?.status.success(),
        "it is not taken in"
    );
    ensure!(std::fs::read(&path)?.starts_with(b"precious"), "it was changed");
    run_refused(&["node", "--init", "--store", &store, "--size", "1M"], 1, "is already a store")?;
    Ok(())
}

fn try_measures_and_leaves_no_process() -> Result<()> {
    // A size that occurs in no other process's command line on this machine.
    let size = (2_000_000 + std::process::id()).to_string();
    let output =
        pool_command(&["try", "--nodes", "3", "--size", &size, "--threads", "16", "--duration", "1", "--json"])
            .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && !said.contains("taking it over"), "{said}");
    let told: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let rows = told["rows"].as_array().context("no rows")?;
    ensure!(told["nodes"] == 3 && rows.len() == 4, "{told}");
    for row in rows {
        let figures = &row["figures"];
        ensure!(figures["failed"] == 0 && figures["ops_per_s"].as_f64() > Some(0.0), "{row}");
        ensure!(figures["latency_us"]["p50"].as_f64() <= figures["latency_us"]["p99"].as_f64(), "{row}");
    }
    // Ctrl-C during the run makes it fail and leaves no process.
    let mut command = pool_command(&["try", "--nodes", "2", "--size", &size, "--duration", "60"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut told = [0; 8];
    child.stdout.as_mut().context("no stdout")?.read_exact(&mut told)?;
    // The heading is printed once the handler of Ctrl-C is installed.
    ensure!(Command::new("kill").args(["-INT", &child.id().to_string()]).status()?.success(), "it exited");
    let output = child.wait_with_output()?;
    let messages = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(130), "{}: {messages}", output.status);
    ensure!(messages.contains("interrupted after 0 of 4 measurements"), "{messages}");
    nobody_has(&format!("memory:{size}"))
}

/// Whether a medium can be created here.
fn can_make_medium() -> Result<(), String> {
    lab::netns::Namespace::available().map_err(|why| why.to_string())
}

/// Runs a replicate of the bench; returns its output by metric, and its check.
fn run_replicate(words: &[&str]) -> Result<(std::collections::BTreeMap<String, f64>, String)> {
    let output = pool_command(words).output()?;
    ensure!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    let mut metrics = std::collections::BTreeMap::new();
    let mut by = None;
    for line in String::from_utf8(output.stdout)?.lines() {
        let line: serde_json::Value = serde_json::from_str(line)?;
        if let (Some(metric), Some(value)) = (line["metric"].as_str(), line["v"].as_f64()) {
            metrics.insert(metric.to_string(), value);
        } else if line["verified"] == true {
            by = line["by"].as_str().map(String::from);
        }
    }
    Ok((metrics, by.context("it was not verified")?))
}

/// Checks that no process is left that has this word in its command line. One of the paper's nodes has a process for each connection,
/// which dies with the node, but not immediately.
fn nobody_has(word: &str) -> Result<()> {
    let has = |entry: std::fs::DirEntry| {
        let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains(word)
    };
    wait_until(&format!("the end of all that has {word}"), || Ok(!std::fs::read_dir("/proc")?.flatten().any(has)))
}

fn paper_cluster_checks_answers_and_leaves_nothing() -> Result<()> {
    let size = (3_000_000 + std::process::id()).to_string();
    let all = ["bench", "--paper", "--nodes=3", "--threads=2", "--duration=1", "--lines", "--size", &size];
    for (batch, io) in [(1.0, true), (10.0, true), (10.0, false)] {
        let batched = format!("--batch={batch}");
        let own = [batched.as_str(), "--no-io"];
        let (metrics, by) = run_replicate(&[&all[..], if io { &own[..1] } else { &own[..] }].concat())?;
        ensure!(metrics["transactions"] > 0.0 && metrics["batch"] <= batch * 1.1, "{metrics:?}");
        let checked: f64 = by.split(' ').next().context("no number")?.parse()?;
        ensure!((checked > 0.0) == io, "{by}");
    }
    nobody_has(&format!("memory:{size}"))?;
    run_refused(&["bench", "--paper", "--nodes=2", "--size=1T", "--duration=0.5"], 1, "5 bytes can address")?;
    run_refused(&["bench", "--paper", "--node=127.0.0.1:1", "--insecure"], 1, "node 127.0.0.1:1")?;
    run_refused(&["bench", "--nodes=1", "--flash=servers=0,service_ms=1"], 2, "1 to 1024 servers")?;
    Ok(())
}

fn over_a_medium() -> Result<()> {
    let size = (4_000_000 + std::process::id()).to_string();
    let shared = ["bench", "--paper", "--nodes=2", "--threads=8", "--link=shared", "--packets-per-s=500"];
    let words = [&shared[..], &["--duration=2", "--lines", "--size", &size]].concat();
    let (metrics, _) = run_replicate(&words)?;
    // On a fast or slow machine: no more packets pass than the medium admits, both directions together, except for the few
    // that a bucket accumulated.
    let packets = metrics["packets.sent"] + metrics["packets.received"];
    ensure!(packets <= 500.0 * 1.1 && metrics["transactions"] <= 250.0 * 1.1, "{metrics:?}");
    // The same pool as it is today, over the same medium.
    let load = ["bench", "--paper=load", "--nodes=2", "--threads=8", "--link=per-node", "--packets-per-s=500"];
    let (metrics, _) = run_replicate(&[&load[..], &["--duration=2", "--lines", "--size", &size]].concat())?;
    ensure!(metrics["packets.sent"] <= 2.0 * 500.0 * 1.1, "{metrics:?}");
    nobody_has(&format!("memory:{size}"))
}

fn compute_rate_is_measured_with_and_without_reads() -> Result<()> {
    let size = (5_000_000 + std::process::id()).to_string();
    let output =
        pool_command(&["bench", "--nodes=2", "--compute", "--duration=1", "--threads=8", "--json", "--size", &size])
            .output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    for when in ["alone", "during"] {
        ensure!(told["reads"][when]["ops_per_s"].as_f64() > Some(0.0), "{told}");
        ensure!(told["compute"][when].as_f64() > Some(0.0), "{told}");
    }
    ensure!(told["compute"]["nodes_during"].as_array().map(Vec::len) == Some(2), "{told}");
    nobody_has(&format!("memory:{size}"))
}
