//! The JSON contracts: what `--json` of each verb has, by names. Each verb runs on something small, the set of its fields is compared with
//! `tests/contracts/VERB.txt`, and a field that comes, goes or changes its name fails until the file says the same: then look whether
//! `version` must rise, and at docs/reference/json.md. FATHOM_ACCEPT=1 writes the files anew.
//!
//! Names only: what a number is, other lanes hold against the truth. Names that are data (a disk's, a fact's) count as `*`.

use anyhow::{Context, Result, ensure};
use fathom_tests::bench::Folder;
use fathom_tests::{Case, fathom, lane, root, run, until};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

fn main() -> ExitCode {
    let cases: Vec<Case> = vec![
        ("recording_contracts_have_known_fields", Ok(()), recording),
        ("benchmark_contracts_have_known_fields", Ok(()), benchmark),
        ("untraced_check_contract_has_known_fields", Ok(()), check),
        ("fix_contract_has_known_fields", root(), fix),
        ("device_contracts_have_known_fields", Ok(()), device),
        ("lab_list_contract_has_known_fields", Ok(()), lab),
        ("pool_contracts_have_known_fields", Ok(()), pool),
        ("net_contracts_have_known_fields", Ok(()), net),
        ("net_link_contract_has_known_fields", root(), net_link),
    ];
    lane(cases)
}

/// Objects whose names are data.
const MAPS: &[&str] = &[
    "by_disk",
    "calls",
    "counts",
    "disk",
    "disks",
    "environment",
    "facts",
    "filesystem_reads",
    "filesystem_writes",
    "inside",
    "kinds",
    "layers",
    "marks",
    "metrics",
    "needs",
    "parameters",
    "parts",
    "reasons",
    "request_sizes",
    "sizes",
    "sources",
    "times",
];

/// Objects that are as the machine is, and say so themselves.
const OPAQUE: &[&str] = &["gates"];

/// What was found in a document.
#[derive(Default)]
struct Found {
    /// The names of all fields, each once, with the way to it.
    fields: BTreeSet<String>,
    /// Ways to what is null or empty: what would stand below is not known.
    open: BTreeSet<String>,
}

impl Found {
    fn look(&mut self, value: &Value, way: &str, name: &str) {
        match value {
            Value::Object(object) if object.is_empty() => drop(self.open.insert(way.into())),
            Value::Object(object) => {
                let data = MAPS.contains(&name);
                for (name, value) in object.iter().filter(|_| !OPAQUE.contains(&name)) {
                    let way = format!("{way}.{}", if data { "*" } else { name });
                    self.fields.insert(way.clone());
                    self.look(value, &way, if data { "" } else { name });
                }
            }
            Value::Array(values) if values.is_empty() => drop(self.open.insert(way.into())),
            Value::Array(values) => values.iter().for_each(|value| self.look(value, &format!("{way}[]"), "")),
            Value::Null => drop(self.open.insert(way.into())),
            _ => {}
        }
    }

    fn is_open(&self, field: &str) -> bool {
        self.open.iter().any(|way| field.strip_prefix(way.as_str()).is_some_and(|rest| rest.starts_with(['.', '['])))
    }
}

/// Holds what a verb printed against its contract.
fn hold(name: &str, printed: &str) -> Result<()> {
    let value: Value = serde_json::from_str(printed).with_context(|| format!("{name}: {printed}"))?;
    ensure!(value["version"].is_u64(), "{name} has no version: {printed}");
    let mut found = Found::default();
    found.look(&value, "", "");
    found.fields.insert(format!("version {}", value["version"]));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("contracts/{name}.txt"));
    if std::env::var_os("FATHOM_ACCEPT").is_some() {
        fs::write(&file, found.fields.iter().map(|field| format!("{field}\n")).collect::<String>())?;
    }
    let known = fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?;
    let known: BTreeSet<String> = known.lines().map(Into::into).collect();
    let new: Vec<_> = found.fields.difference(&known).collect();
    let gone: Vec<_> = known.difference(&found.fields).filter(|field| !found.is_open(field)).collect();
    ensure!(
        new.is_empty() && gone.is_empty(),
        "`{name}` has {new:?} and lacks {gone:?}; if that is meant, FATHOM_ACCEPT=1 writes {}",
        file.display()
    );
    Ok(())
}

/// Holds several verbs of a folder.
fn hold_all(folder: &Folder, all: &[(&str, &[&str])]) -> Result<()> {
    for (name, words) in all {
        hold(name, &folder.run(words)?)?;
    }
    Ok(())
}

/// The recording that the program carries: the same fields on every machine.
fn recording() -> Result<()> {
    let folder = Folder::new()?;
    for name in ["a.fathom", "b.fathom"] {
        let carried = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/cli/sample");
        fs::create_dir(folder.path(name))?;
        for file in ["meta.json", "events.log"] {
            fs::copy(carried.join(file), folder.path(name).join(file))?;
        }
    }
    hold_all(
        &folder,
        &[
            ("show", &["show", "a.fathom", "--json"]),
            ("explain", &["explain", "a.fathom", "--json"]),
            ("diff", &["diff", "a.fathom", "b.fathom", "--json"]),
            ("whatif", &["whatif", "a.fathom", "--without", "fsync", "--json"]),
        ],
    )
}

fn benchmark() -> Result<()> {
    let folder = Folder::new()?;
    folder.run(&["bench", "run", "fake.toml", "--blocks=5", "-o", "b.fathom", "-q"])?;
    hold_all(
        &folder,
        &[
            ("bench-list", &["bench", "list", "--json"]),
            ("bench-run", &["bench", "run", "fake.toml", "--blocks=5", "-o", "a.fathom", "--json", "-q"]),
            ("bench-run", &["bench", "show", "a.fathom", "--json"]),
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

fn check() -> Result<()> {
    let folder = Folder::new()?;
    folder.run(&["check", "record", "--no-trace", "--", "cat", "fake.toml"])?;
    // One read more is a difference, whose fields are part of it.
    let words = ["check", "--no-trace", "--json", "--", "sh", "-c", "cat fake.toml fake.toml"];
    let (status, printed, messages) = folder.messages(&words)?;
    ensure!(status == Some(1), "{status:?}: {messages}");
    hold("check", &printed)
}

fn fix() -> Result<()> {
    let folder = Folder::new()?;
    hold("fix", &folder.run(&["fix", "--json", "-q", "--", "true"])?)
}

fn device() -> Result<()> {
    hold_all(
        &Folder::new()?,
        &[
            ("device-list", &["device", "list", "--json"]),
            ("device-info", &["device", "info", "--json"]),
            ("device-check", &["device", "check", "local", "--json"]),
            ("device-stop", &["device", "stop", "local", "--json"]),
        ],
    )
}

fn lab() -> Result<()> {
    let folder = Folder::new()?;
    hold("lab-list", &folder.run(&["lab", "list", "--json"])?)
}

/// A process that is ended with the test, and the first line that it printed.
struct Served(Child, String);

impl Served {
    fn start(folder: &Folder, words: &[&str]) -> Result<Self> {
        let log = fs::File::create(folder.path("said"))?;
        let child = folder.command(words).stdout(log).stderr(Stdio::null()).spawn()?;
        let mut served = Self(child, String::new());
        until("an address", || {
            served.1 = fs::read_to_string(folder.path("said"))?.trim().to_owned();
            Ok(!served.1.is_empty())
        })?;
        Ok(served)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn pool() -> Result<()> {
    let folder = Folder::new()?;
    let node = Served::start(&folder, &["pool", "node", "--backend=memory:1M", "--insecure", "--listen=127.0.0.1:0"])?;
    let pool = ["pool", "serve", "--node", &node.1, "--insecure", "--nbd=unix:disk.sock"];
    let _served = Served::start(&folder, &pool)?;
    hold_all(
        &folder,
        &[
            ("pool-status", &["pool", "status", "disk.sock", "--json"]),
            ("pool-bench", &["pool", "bench", "--nodes=1", "--size=1M", "--duration=0.1", "--json"]),
            ("pool-try", &["pool", "try", "--nodes=1", "--size=1M", "--duration=0.1", "--json"]),
        ],
    )
}

fn net() -> Result<()> {
    let folder = Folder::new()?;
    hold("net-cc", &folder.run(&["net", "cc", "--json"])?)?;
    let server = Served::start(&folder, &["net", "serve", "--listen=127.0.0.1:0"])?;
    hold("net-run", &folder.run(&["net", "run", &server.1, "--duration=2", "--json"])?)
}

fn net_link() -> Result<()> {
    let output = run(Command::new(fathom()).args(["net", "link", "--delay=1ms", "--json", "--", "true"]))?;
    hold("net-link", &String::from_utf8(output.stdout)?)
}
