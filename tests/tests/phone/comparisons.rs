//! Host and device compared: by settings, by traces, and by the claims of the papers.

use super::{DAEMON_PATH, clean, json, phone, told};
use anyhow::{Context, Result, ensure};
use fathom_tests::contracts::check_contract;
use fathom_tests::fathom;
use fathom_tests::phone::{Phone, Shape};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

pub fn host_and_device_are_compared_by_settings() -> Result<()> {
    let phone = phone()?;
    let directory = tempfile::tempdir()?;
    let mut command = phone.fathom();
    command.args([
        "bench",
        "compare",
        "host",
        &phone.name(),
        "--quick",
        "--blocks",
        "12",
        "--no-wait",
        "-p",
        "rows=10",
    ]);
    command.args(["-p", "op=insert", "--b-settings", "journal_mode=wal", "--json"]).current_dir(directory.path());
    let value = json(&command.output()?)?;
    let settings = &value["settings"];
    ensure!(settings[0]["a"] == "delete" && settings[0]["b"] == "wal", "{settings}");
    // The framework's default, since none was given.
    ensure!(settings[1]["b"] == "full", "{settings}");
    let part = &value["apart"][0];
    let number = |value: &Value| value.as_f64().with_context(|| part.to_string());
    ensure!(part["steps"][0]["factor"] == "journal_mode" && part["steps"][1]["factor"].is_null(), "{part}");
    let steps = number(&part["steps"][0]["ratio"])? * number(&part["steps"][1]["ratio"])?;
    // Medians do not multiply exactly; they are of the same magnitude.
    ensure!((number(&part["ratio"])? / steps).ln().abs() < 2.0, "{part}");
    ensure!(directory.path().join("compare/local.fathom").is_dir(), "no archive");
    for words in [&["host", "host"][..], &["host", "b.fathom"], &["a.fathom", "b.fathom", "--quick"]] {
        let output = phone.fathom().args(["bench", "compare"]).args(words).output()?;
        ensure!(output.status.code() == Some(2), "{words:?}: {}", told(&output));
    }
    clean(&phone)
}

/// Counts are arithmetic: SQLite writes the same on both, except for what the journal mode adds.
pub fn compared_traces() -> Result<()> {
    let phone = Phone::start(DAEMON_PATH, &Shape { uid: 0, ..Shape::default() })?;
    let directory = tempfile::tempdir()?;
    let words = ["bench", "compare", "host", &phone.name(), "--quick", "--blocks", "2", "--no-wait", "-p", "rows=10"];
    let mut command = phone.fathom();
    command.args(words).args(["-p", "op=insert", "--b-settings", "journal_mode=persist", "--trace", "--json"]);
    let output = command.current_dir(directory.path()).output()?;
    let value = json(&output)?;
    check_contract("bench-compare-trace", &value)?;
    let recordings = value["traced"]["recordings"].as_array().context("no recordings")?;
    ensure!(recordings.len() == 2, "{value}");
    let row = |side: usize, what: &str| -> Result<Value> {
        let figures = recordings[side]["figures"].as_array().with_context(|| recordings[side].to_string())?;
        let rows = figures.iter().flat_map(|f| f["rows"].as_array().cloned().unwrap_or_default());
        rows.into_iter().find(|r| r["what"] == what).with_context(|| what.to_string())
    };
    let count = |side, what: &str| -> Result<f64> { row(side, what)?["ours"].as_f64().context("no count") };
    // DELETE: the header, a page and its checksum are written before the commit, and the file is removed; PERSIST clears the header.
    let (a, b) = (count(0, "of these to the journal")?, count(1, "of these to the journal")?);
    ensure!((b - a - 1.0).abs() < 0.1, "the journal: {a} on the host, {b} on the device");
    let (a, b) = (count(0, "of these to the database")?, count(1, "of these to the database")?);
    ensure!((a - b).abs() < 0.1, "the database: {a} and {b}");
    // The stand-in's files are in memory: that is reported as no disk, not as a disk without commands.
    let commands = row(1, "device commands per INSERT")?;
    ensure!(commands["ours"].is_null() && commands["note"].as_str().is_some_and(|n| n.contains("disk")), "{commands}");
    ensure!(count(0, "device commands per INSERT")? > 0.0, "none on the host");
    ensure!(
        value["traced"]["diff"]["statements"].as_array().is_some_and(|s| !s.is_empty()),
        "{}",
        value["traced"]["diff"]
    );
    clean(&phone)
}

pub fn papers_claims_are_judged_of_host_and_device() -> Result<()> {
    let phone = Phone::start(DAEMON_PATH, &Shape { uid: 0, ..Shape::default() })?;
    let directory = tempfile::tempdir()?;
    let page = directory.path().join("page.md");
    let run = |figures: &[&str]| -> Result<Output> {
        let mut command = phone.fathom();
        command.args(["papers"]).args(figures).args([
            "--device",
            &phone.name(),
            "--quick",
            "--blocks",
            "2",
            "--no-wait",
        ]);
        command.args(["--called", "stand-in", "-p", "sqlite.rows=10", "--json", "-o"]).arg(&page);
        Ok(command.current_dir(directory.path()).output()?)
    };
    let value = json(&run(&["000/9-10", "000/12", "004"])?)?;
    check_contract("papers-device", &value)?;
    let claims = value["claims"].as_array().context("claims")?;
    let of = |figure: &str| claims.iter().filter(|c| c["figure"] == figure).collect::<Vec<_>>();
    ensure!(value["version"] == 1 && of("000/9").len() == 1 && of("000/1").is_empty(), "{value}");
    // Two blocks are too few for a verdict, and the stand-in has no disk.
    ensure!(of("000/12")[0]["outcome"] == "cannot_be_tested", "{:?}", of("000/12"));
    // In AOSP's journal mode and in SQLite's own, an INSERT makes the same number of writes on either machine.
    let writes = of("004/2-4");
    ensure!(writes.len() == 4 && writes[0]["outcome"] == "not_confirmed", "{writes:?}");
    let text = fs::read_to_string(&page)?;
    for expected in
        ["| 000/9 | INSERTs are slower on Android |", "stand-in", "DEVICE=adb:127.0.0.1", "### 004 figure 2-4"]
    {
        ensure!(text.contains(expected), "{expected}: {text}");
    }
    ensure!(!text.contains("phone") || !text.contains("- **phone**"), "it is no phone: {text}");
    // What is missing is reported before anything is measured.
    let output =
        Command::new(fathom()).args(["papers", "--device", "adb:nosuch"]).current_dir(directory.path()).output()?;
    ensure!(
        output.status.code() == Some(1) && !directory.path().join("papers-adb-nosuch").exists(),
        "{}",
        told(&output)
    );
    clean(&phone)
}

/// Runs `fathom papers` for these figures; returns its claims and the page that it wrote.
fn papers_of(phone: &Phone, directory: &Path, words: &[&str]) -> Result<(Value, String)> {
    let page = directory.join("page.md");
    let mut command = phone.fathom();
    command.arg("papers").args(words).args([
        "--device",
        &phone.name(),
        "--quick",
        "--blocks",
        "2",
        "--no-wait",
        "--json",
        "-o",
    ]);
    let value = json(&command.arg(&page).current_dir(directory).output()?)?;
    Ok((value, fs::read_to_string(&page)?))
}

/// The stand-in's runtime is a fake: the test checks which cells are paired, not their results.
pub fn papers_bytecode() -> Result<()> {
    let phone = phone()?;
    let directory = tempfile::tempdir()?;
    let jar = directory.path().join("classes.jar");
    fs::write(&jar, "dexed classes")?;
    let jar = jar.to_str().context("a path")?;
    let words = ["000/1", "000/2", "-p", "linpack.size=100", "-p", "himeno.size=XS", "--dex-jar", jar];
    let (value, page) = papers_of(&phone, directory.path(), &words)?;
    let results = ["local", &format!("adb-{}", phone.serial.replace(':', "-"))].map(|name| {
        let archive = directory
            .path()
            .join(format!("papers-adb-{}", phone.serial.replace(':', "-")))
            .join(format!("{name}.fathom"));
        fathom_tests::rows(&archive, "cells").unwrap_or_default()
    });
    ensure!(results.iter().all(|cells| !cells.is_empty()), "{value}\n{page}");
    let claims = value["claims"].as_array().context("claims")?;
    let of_java =
        claims.iter().filter(|c| c["claim"].as_str().is_some_and(|t| t.contains("Java") || t.contains("bytecode")));
    let reasons: Vec<&str> = of_java.filter_map(|c| c["because"].as_str()).collect();
    // Two blocks are too few for a verdict; but the cells were paired.
    ensure!(
        !reasons.is_empty() && reasons.iter().any(|why| !why.contains("not measured") && !why.contains("--dex-jar")),
        "{claims:?}"
    );
    ensure!(page.contains("jvm-tiered") && page.contains("art-jit"), "{page}");
    clean(&phone)
}

pub fn papers_directories() -> Result<()> {
    let phone = phone()?;
    let directory = tempfile::tempdir()?;
    let dirs = ["--dir", "internal=/data/local/tmp", "--dir", "external=/data/local/tmp", "-p", "seq.count=8"];
    let here = format!("external={}", directory.path().display());
    let words = [&["000/6"][..], &dirs, &["--dir-here", &here]].concat();
    let (value, page) = papers_of(&phone, directory.path(), &words)?;
    let expected = format!(
        "- directory external: {} on the host, /data/local/tmp on the device",
        analysis_escaped(directory.path())
    );
    ensure!(page.contains(&expected), "{expected}: {page}");
    let claims = value["claims"].as_array().context("claims")?;
    let external: Vec<_> =
        claims.iter().filter(|c| c["claim"].as_str().is_some_and(|t| t.contains("external"))).collect();
    ensure!(!external.is_empty(), "{value}");
    for claim in external {
        let why = claim["because"].as_str().unwrap_or_default();
        ensure!(!why.contains("no directory of external storage"), "{claim}");
    }
    clean(&phone)
}

pub fn refused_directories() -> Result<()> {
    let phone = phone()?;
    let directory = tempfile::tempdir()?;
    for (words, why) in [
        (&["--dir", "internal=data"][..], "absolute path"),
        (&["--dir", "a=/data", "--dir-here", "b=/tmp"], "no --dir of the device has that name"),
    ] {
        let output = phone
            .fathom()
            .args(["papers", "000/5", "--device", &phone.name()])
            .args(words)
            .current_dir(directory.path())
            .output()?;
        ensure!(output.status.code() == Some(2) && told(&output).contains(why), "{}", told(&output));
    }
    clean(&phone)
}

/// The stand-in's network is this machine's loopback: the test checks that the figures and the claims are built from the device's
/// cells.
pub fn papers_networks() -> Result<()> {
    let phone = phone()?;
    let directory = tempfile::tempdir()?;
    let mut words = vec!["001/7-12", "002/ch4", "--interface", "lo", "--interface-here", "lo"];
    let parameters = [
        "cluster.by=cluster",
        "cluster.io=flash",
        "cluster.nodes=1",
        "cluster.threads=4",
        "cluster.batch=1",
        "cluster.seconds=1",
        "cluster-devices.io=flash",
        "cluster-devices.threads=1,32",
        "cluster-devices.batch=1",
        // Threads that share a busy machine's processors with the node wait for their first response.
        "cluster-devices.seconds=4",
        "net-wlan.link=wifi_g",
        "net-wlan.traffic=tcp",
        "net-wlan.direction=down",
        "net-wlan.seconds=1",
        "net-devices.traffic=tcp",
        "net-devices.seconds=1",
    ];
    words.extend(parameters.iter().flat_map(|parameter| ["-p", parameter]));
    let (value, page) = papers_of(&phone, directory.path(), &words)?;
    let claims = value["claims"].as_array().context("claims")?;
    let why = |figure: &str| -> Vec<&str> {
        let of_figure = claims.iter().filter(|c| c["figure"] == figure);
        of_figure.filter_map(|c| c["because"].as_str()).collect()
    };
    // Two processes give no interval, but the cells exist.
    ensure!(why("001/7")[0].contains("too few processes") && why("002/ch4")[0].contains("too few"), "{claims:?}");
    ensure!(why("001/8")[0].contains("no cell of cluster-devices with"), "{claims:?}");
    let name = phone.name();
    for part in [
        "### 001 figure 7: ",
        "figure 7: the cluster without aggregation, by nodes and threads; on devices",
        "; between devices",
    ] {
        ensure!(page.contains(part), "{part}: {page}");
    }
    ensure!(page.contains(&format!("at={name}")) && page.contains(&format!("from={name}")), "{page}");
    clean(&phone)
}

/// All five papers in one run, with the smallest possible values: each measured figure is on the page.
pub fn papers_whole() -> Result<()> {
    let phone = Phone::start(DAEMON_PATH, &Shape { uid: 0, ..Shape::default() })?;
    let directory = tempfile::tempdir()?;
    let external = directory.path().join("external");
    fs::create_dir(&external)?;
    let here = format!("external={}", external.display());
    let mut words = vec!["--interface", "lo", "--interface-here", "lo", "--called", "stand-in", "--dir-here", &here];
    words.extend(["--dir", "internal=/data/local/tmp", "--dir", "external=/data/local/tmp"]);
    let parameters = [
        "linpack.size=100",
        "himeno.size=XS",
        "scimark.size=tiny",
        "sqlite.rows=10",
        "seq.count=8",
        "cluster.by=cluster",
        "cluster.nodes=1",
        "cluster.threads=4,32",
        "cluster.batch=1,10,100",
        "cluster.seconds=1",
        "cluster-devices.threads=4,32",
        "cluster-devices.seconds=1",
        "net-wlan.link=wifi_g",
        "net-wlan.seconds=1",
        "net-delay.cc=cubic,reno",
        "net-delay.seconds=1",
        "net-loss.seconds=1",
        "net-devices.seconds=1",
    ];
    words.extend(parameters.iter().flat_map(|parameter| ["-p", parameter]));
    let (value, page) = papers_of(&phone, directory.path(), &words)?;
    if let Some(keep) = std::env::var_os("FATHOM_KEEP_ARCHIVE") {
        fs::write(Path::new(&keep).join("papers.md"), &page)?;
    }
    let figures = [
        ("000", "1 2 3 4 5 6 7 8 9 10 11 12 13-15"),
        ("001", "1,3 2,4 7 8 9 10"),
        ("002", "5 6 ch4 loss"),
        ("004", "1 2-4 5"),
    ];
    for (paper, numbers) in figures {
        for number in numbers.split(' ').map(|n| n.replace(',', ", ")) {
            ensure!(page.contains(&format!("### {paper} figure {number}: ")), "{paper}/{number}: {page}");
        }
    }
    for part in ["; on devices", "; between devices"] {
        ensure!(page.contains(part), "{part}: {page}");
    }
    let claims = value["claims"].as_array().context("claims")?;
    ensure!(
        claims.iter().all(|c| c["because"].as_str().is_some_and(|why| !why.contains("nothing that was requested")))
    );
    clean(&phone)
}

/// Escapes a path as on a page.
fn analysis_escaped(path: &Path) -> String {
    path.display().to_string().replace('_', "\\_")
}
