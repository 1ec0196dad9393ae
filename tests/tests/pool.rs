//! The pool through the program: what it refuses, that an end in order loses nothing, and that a trial leaves nothing behind.

use anyhow::{Context, Result, ensure};
use fathom_tests::{Case, fathom, installed, lane};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Output, Stdio};

fn main() -> ExitCode {
    let cases: Vec<Case> = vec![
        ("no_address_but_loopback_is_taken_and_insecure_must_be_said", Ok(()), kept_to_the_machine),
        ("a_pool_that_was_ended_in_order_has_its_data_when_it_is_back", installed("qemu-io"), back_again),
        ("a_store_is_not_made_over_what_is_there", Ok(()), not_over),
        ("a_trial_measures_and_leaves_no_process", Ok(()), trial),
    ];
    lane(cases)
}

fn pool(words: &[&str]) -> Command {
    let mut command = Command::new(fathom());
    command.arg("pool").args(words).stdin(Stdio::null());
    command
}

fn refused(words: &[&str], status: i32, reason: &str) -> Result<Output> {
    let output = pool(words).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(status) && said.contains(reason), "{words:?}: {:?}: {said}", output.status);
    Ok(output)
}

fn kept_to_the_machine() -> Result<()> {
    refused(&["node", "--backend", "memory:1M", "--listen", "127.0.0.1:0"], 2, "--insecure")?;
    refused(&["node", "--backend", "memory:1M", "--listen", "0.0.0.0:0", "--insecure"], 2, "not a loopback address")?;
    let front = ["--nbd", "unix:/nowhere/socket"];
    refused(&[&["serve", "--node", "192.0.2.1:1", "--insecure"], &front[..]].concat(), 2, "not a loopback address")?;
    refused(&["bench", "--node", "127.0.0.1:1"], 2, "--insecure")?;
    refused(&["bench", "--node", "127.0.0.1:1", "--insecure"], 1, "cannot use the node 127.0.0.1:1")?;
    refused(&["serve", "--backend", "memory:1M", "--nbd", "tcp:0.0.0.0:0", "--insecure"], 2, "not a loopback address")?;
    Ok(())
}

/// A process that says where it is in its first line, and is ended as a user ends it.
struct Server {
    child: Child,
    says: String,
}

impl Server {
    fn start(words: &[&str]) -> Result<Self> {
        let mut child = pool(words).stdout(Stdio::piped()).spawn()?;
        let mut says = String::new();
        BufReader::new(child.stdout.take().context("it has no stdout")?).read_line(&mut says)?;
        Ok(Self { child, says: says.trim().into() })
    }

    fn end(mut self) -> Result<()> {
        ensure!(Command::new("kill").arg(self.child.id().to_string()).status()?.success(), "it is gone already");
        let status = self.child.wait()?;
        ensure!(status.success(), "it ended with {status}");
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn qemu_io(uri: &str, commands: &[&str]) -> Result<()> {
    let mut command = Command::new("qemu-io");
    command.args(["-f", "raw"]).args(commands.iter().flat_map(|c| ["-c", c])).arg(uri);
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success() && !said.contains("failed"), "{said}{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn back_again() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name).display().to_string();
    let front = format!("unix:{}", path("nbd"));
    let stores = [path("a"), path("b")];
    for store in &stores {
        let made = pool(&["node", "--init", "--store", store, "--size", "2M"]).output()?;
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
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("image");
    let store = path.display().to_string();
    std::fs::write(&path, b"precious")?;
    refused(&["node", "--init", "--store", &store, "--size", "1M"], 1, "--import")?;
    ensure!(std::fs::read(&path)? == b"precious", "it was changed");
    refused(&["node", "--store", &store, "--listen", "127.0.0.1:0", "--insecure"], 1, "is no store of a pool")?;
    ensure!(pool(&["node", "--init", "--store", &store, "--import"]).output()?.status.success(), "it is not taken in");
    ensure!(std::fs::read(&path)?.starts_with(b"precious"), "it was changed");
    refused(&["node", "--init", "--store", &store, "--size", "1M"], 1, "is a store already")?;
    Ok(())
}

fn trial() -> Result<()> {
    // A size that no other process on this machine has in its command line.
    let size = (2_000_000 + std::process::id()).to_string();
    let output =
        pool(&["try", "--nodes", "3", "--size", &size, "--threads", "16", "--duration", "0.4", "--json"]).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let rows = told["rows"].as_array().context("no rows")?;
    ensure!(told["nodes"] == 3 && rows.len() == 4, "{told}");
    for row in rows {
        let figures = &row["figures"];
        ensure!(figures["failed"] == 0 && figures["ops_per_s"].as_f64() > Some(0.0), "{row}");
        ensure!(figures["latency_us"]["p50"].as_f64() <= figures["latency_us"]["p99"].as_f64(), "{row}");
    }
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let words =
            String::from_utf8_lossy(&std::fs::read(entry.path().join("cmdline")).unwrap_or_default()).into_owned();
        ensure!(!words.contains(&format!("memory:{size}")), "it left {words}");
    }
    Ok(())
}
