//! The JSON contracts (`fathom_tests::contracts`) of the verbs without special requirements: each runs on something
//! small.

use anyhow::{Context, Result, ensure};
use fathom_tests::bench::Directory;
use fathom_tests::contracts::{check_documented, hold_text};
use fathom_tests::{Case, fathom, root, run, run_suite, wait_until};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

fn main() -> ExitCode {
    let cases: Vec<Case> = vec![
        ("recording_contracts_have_known_fields", Ok(()), recording_contracts_have_known_fields),
        ("benchmark_contracts_have_known_fields", Ok(()), benchmark_contracts_have_known_fields),
        ("untraced_check_contract_has_known_fields", Ok(()), untraced_check_contract_has_known_fields),
        ("fix_contract_has_known_fields", root(), fix_contract_has_known_fields),
        ("device_contracts_have_known_fields", Ok(()), device_contracts_have_known_fields),
        ("lab_list_contract_has_known_fields", Ok(()), lab_list_contract_has_known_fields),
        ("pool_contracts_have_known_fields", Ok(()), pool_contracts_have_known_fields),
        ("mirrored_pool_contract_has_known_fields", Ok(()), mirrored_pool_contract_has_known_fields),
        ("net_contracts_have_known_fields", Ok(()), net_contracts_have_known_fields),
        ("net_link_contract_has_known_fields", root(), net_link),
        ("contracts_are_complete_and_listed_in_manual", Ok(()), contracts_are_complete_and_listed_in_manual),
    ];
    run_suite(cases)
}

/// Checks the contracts of several verbs in a directory.
fn hold_all(directory: &Directory, all: &[(&str, &[&str])]) -> Result<()> {
    for (name, words) in all {
        hold_text(name, &directory.run(words)?)?;
    }
    Ok(())
}

/// The recording shipped with the program: the same fields on every machine.
fn recording_contracts_have_known_fields() -> Result<()> {
    let directory = Directory::new()?;
    for name in ["a.fathom", "b.fathom"] {
        let carried = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/recorder/sample");
        fs::create_dir(directory.path(name))?;
        for file in ["meta.json", "events.log"] {
            fs::copy(carried.join(file), directory.path(name).join(file))?;
        }
    }
    hold_all(
        &directory,
        &[
            ("show", &["show", "a.fathom", "--json"]),
            ("explain", &["explain", "a.fathom", "--json"]),
            ("diff", &["diff", "a.fathom", "b.fathom", "--json"]),
            ("whatif", &["whatif", "a.fathom", "--without", "fsync", "--json"]),
        ],
    )
}

fn benchmark_contracts_have_known_fields() -> Result<()> {
    let directory = Directory::new()?;
    directory.run(&["bench", "run", "fake.toml", "--blocks=5", "-o", "b.fathom", "-q"])?;
    hold_all(
        &directory,
        &[
            ("bench-list", &["bench", "list", "--json"]),
            ("bench-run", &["bench", "run", "fake.toml", "--blocks=5", "-o", "a.fathom", "--json", "-q"]),
            ("bench-run", &["bench", "show", "a.fathom", "--json"]),
            // A sweep is a benchmark whose cells are links; it has no fields of its own.
            ("bench-run", &["net", "sweep", "fake.toml", "--blocks=5", "-o", "s.fathom", "--no-wait", "--json"]),
            ("bench-compare", &["bench", "compare", "a.fathom", "b.fathom", "--json", "--even-disturbed"]),
            ("bench-history", &["bench", "history", "a.fathom", "b.fathom", "--json", "--even-disturbed"]),
            ("bench-plan", &["bench", "plan", "a.fathom", "--json"]),
            ("bench-ab", &["bench", "ab", "--blocks=2", "--warmup=0", "-q", "--json", "--", "true", "true x"]),
            (
                "bench-selftest",
                &["bench", "selftest", "fake.toml", "--comparisons=1", "--blocks=5", "--no-wait", "--json"],
            ),
        ],
    )
}

fn untraced_check_contract_has_known_fields() -> Result<()> {
    let directory = Directory::new()?;
    directory.run(&["check", "record", "--no-trace", "--", "cat", "fake.toml"])?;
    // One more read is a difference, whose fields are part of it.
    let words = ["check", "--no-trace", "--json", "--", "sh", "-c", "cat fake.toml fake.toml"];
    let (status, printed, messages) = directory.messages(&words)?;
    ensure!(status == Some(1), "{status:?}: {messages}");
    hold_text("check", &printed)
}

fn fix_contract_has_known_fields() -> Result<()> {
    let directory = Directory::new()?;
    hold_text("fix", &directory.run(&["fix", "--json", "-q", "--", "true"])?)
}

fn device_contracts_have_known_fields() -> Result<()> {
    hold_all(
        &Directory::new()?,
        &[
            ("device-list", &["device", "list", "--json"]),
            ("device-info", &["device", "info", "--json"]),
            ("device-check", &["device", "check", "local", "--json"]),
            ("device-stop", &["device", "stop", "local", "--json"]),
        ],
    )
}

fn lab_list_contract_has_known_fields() -> Result<()> {
    let directory = Directory::new()?;
    hold_text("lab-list", &directory.run(&["lab", "list", "--json"])?)
}

/// A process that ends with the test, and the first line of its output.
struct ServedProcess(Child, String);

impl ServedProcess {
    fn start(directory: &Directory, words: &[&str]) -> Result<Self> {
        let log = fs::File::create(directory.path("said"))?;
        let child = directory.command(words).stdout(log).stderr(Stdio::null()).spawn()?;
        let mut served = Self(child, String::new());
        wait_until("an address", || {
            served.1 = fs::read_to_string(directory.path("said"))?.trim().to_owned();
            Ok(!served.1.is_empty())
        })?;
        Ok(served)
    }
}

impl Drop for ServedProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn pool_contracts_have_known_fields() -> Result<()> {
    let directory = Directory::new()?;
    let node = ServedProcess::start(
        &directory,
        &["pool", "node", "--backend=memory:1M", "--insecure", "--listen=127.0.0.1:0"],
    )?;
    let pool = ["pool", "serve", "--node", &node.1, "--insecure", "--nbd=unix:disk.sock"];
    let _served = ServedProcess::start(&directory, &pool)?;
    hold_all(
        &directory,
        &[
            ("pool-status", &["pool", "status", "disk.sock", "--json"]),
            ("pool-scrub", &["pool", "scrub", "disk.sock", "--json"]),
            ("pool-bench", &["pool", "bench", "--nodes=1", "--size=1M", "--duration=1", "--json"]),
            ("pool-bench-compute", &["pool", "bench", "--nodes=1", "--size=1M", "--duration=2", "--compute", "--json"]),
            ("pool-bench-nbd", &["pool", "bench", "--nbd=nbd+unix:///?socket=disk.sock", "--duration=1", "--json"]),
            ("pool-try", &["pool", "try", "--nodes=1", "--size=1M", "--duration=1", "--json"]),
        ],
    )
}

fn mirrored_pool_contract_has_known_fields() -> Result<()> {
    let directory = Directory::new()?;
    let node = |store: &str| -> Result<ServedProcess> {
        let words = ["pool", "node", "--init", "--store", store, "--size=2M", "--insecure", "--listen=127.0.0.1:0"];
        ServedProcess::start(&directory, &words)
    };
    let nodes = [node("a.img")?, node("b.img")?];
    let words = ["pool", "serve", "--layout=mirror", "--node", &nodes[0].1, "--node", &nodes[1].1, "--insecure"];
    let _served = ServedProcess::start(&directory, &[&words[..], &["--nbd=unix:disk.sock"]].concat())?;
    hold_text("pool-status-mirror", &directory.run(&["pool", "status", "disk.sock", "--json"])?)
}

fn net_contracts_have_known_fields() -> Result<()> {
    let directory = Directory::new()?;
    hold_text("net-cc", &directory.run(&["net", "cc", "--json"])?)?;
    let server = ServedProcess::start(&directory, &["net", "serve", "--listen=127.0.0.1:0"])?;
    hold_text("net-run", &directory.run(&["net", "run", &server.1, "--duration=2", "--json"])?)
}

fn net_link() -> Result<()> {
    let output = run(Command::new(fathom()).args(["net", "link", "--delay=1ms", "--json", "--", "true"]))?;
    hold_text("net-link", &String::from_utf8(output.stdout)?)
}

/// Compares the table of versions in docs/reference/json.md with the contracts' files.
fn contracts_are_complete_and_listed_in_manual() -> Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(here.join("../docs/reference/json.md"))?;
    let (_, table) = page.split_once("| contract | 0.1, 0.2 | 0.3 | now |").context("no table of versions")?;
    let rows = table.lines().skip(2).map_while(|line| line.strip_prefix("| `"));
    let row = |row: &str| {
        let mut cells = row.split('|').map(|cell| cell.trim().trim_end_matches('`').to_string());
        (cells.next().unwrap_or_default(), cells.nth(2).unwrap_or_default())
    };
    let listed: BTreeMap<String, String> = rows.map(row).collect();
    let mut held = BTreeMap::new();
    for entry in fs::read_dir(here.join("contracts"))? {
        let path = entry?.path();
        let name = path.file_stem().context("a name")?.to_string_lossy().into_owned();
        let fields = fs::read_to_string(&path)?;
        check_documented(&name, &fields)?;
        let version = fields.lines().find_map(|line| line.strip_prefix("version ")).context(name.clone())?;
        held.insert(name, version.to_string());
    }
    ensure!(listed == held, "the manual has {listed:?}\nthe contracts are {held:?}");
    Ok(())
}
