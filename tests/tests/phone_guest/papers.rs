//! The papers' figures of this machine and the guest: one paper at a time, each within the time limit of a test. All in one run are tested
//! with the stand-in that shares this machine's kernel.

use super::{assert_clean, json, start_phone, stderr_of};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::Path;

pub fn papers_claims_are_judged_of_guest() -> Result<()> {
    let phone = start_phone(0)?;
    let directory = tempfile::tempdir()?;
    let page = directory.path().join("page.md");
    let mut command = phone.fathom();
    command.args([
        "papers",
        "000/9-10",
        "000/12",
        "004",
        "--quick",
        "--blocks",
        "2",
        "--no-wait",
        "--device",
        &phone.name(),
    ]);
    command.args(["--called", "guest", "-p", "sqlite.rows=10", "--json", "-o"]).arg(&page);
    let value = json(&command.current_dir(directory.path()).output()?)?;
    let claims = value["claims"].as_array().context("claims")?;
    let of = |figure: &str| claims.iter().filter(|c| c["figure"] == figure).collect::<Vec<_>>();
    // Times of its emulated processor decide no claim.
    ensure!(of("000/9")[0]["because"].as_str().is_some_and(|why| why.contains("emulated")), "{:?}", of("000/9"));
    ensure!(of("004/2-4").iter().all(|c| c["outcome"] != "cannot_be_tested"), "{:?}", of("004/2-4"));
    // Commands of its card were counted, so that the claim is decided, either way.
    ensure!(of("000/12").iter().all(|c| c["outcome"] != "cannot_be_tested"), "{:?}", of("000/12"));
    ensure!(fs::read_to_string(&page)?.contains("mmcblk0"), "{}", fs::read_to_string(&page)?);
    assert_clean(&phone)
}

/// The smallest possible values of each design: a design that is not selected takes none. Figures 1 to 8 of paper 000 are in no test: an
/// emulated guest takes more than 15 minutes for their programs.
const SMALL_PARAMETERS: [&str; 15] = [
    "sqlite.rows=10",
    "random.file_size=16M",
    "cluster.by=cluster",
    "cluster.nodes=1",
    "cluster.threads=4,32",
    "cluster.batch=1,10,100",
    "cluster.seconds=1",
    "cluster-devices.threads=4",
    "cluster-devices.seconds=1",
    "net-wlan.link=wifi_g",
    "net-wlan.seconds=1",
    "net-delay.cc=cubic",
    "net-delay.seconds=1",
    "net-loss.seconds=1",
    "net-devices.seconds=1",
];

/// Makes a page of these figures, as `fathom papers` takes them, and checks that it contains the figures that it names; returns the claims.
/// The guest is behind NAT: it reaches this machine, but not the other way round.
fn made(asked: &str, designs: &str, figures: &[&str]) -> Result<Vec<Value>> {
    let phone = start_phone(0)?;
    let directory = tempfile::tempdir()?;
    let (page, external) = (directory.path().join("page.md"), directory.path().join("external"));
    fs::create_dir(&external)?;
    let here = format!("external={}", external.display());
    let name = phone.name();
    let mut words = vec!["papers"];
    words.extend(asked.split(' '));
    words.extend(["--quick", "--blocks", "2", "--no-wait", "--json", "--called", "guest", "--device", &name]);
    words.extend(["--interface", "eth0", "--dir", "internal=/data/local/tmp"]);
    words.extend(["--dir", "external=/storage/3234-3432", "--dir-here", &here]);
    let of = |parameter: &&&str| parameter.split_once('.').is_some_and(|(of, _)| designs.split(' ').any(|d| d == of));
    words.extend(SMALL_PARAMETERS.iter().filter(of).flat_map(|parameter| ["-p", parameter]));
    let mut command = phone.fathom();
    let output = command.args(&words).arg("-o").arg(&page).current_dir(directory.path()).output()?;
    let (value, text) = (json(&output)?, fs::read_to_string(&page)?);
    if let Some(keep) = std::env::var_os("FATHOM_KEEP_ARCHIVE") {
        fs::write(Path::new(&keep).join(format!("papers-{}.md", asked.replace(['/', ' '], "-"))), &text)?;
    }
    for figure in figures {
        let (paper, number) = figure.split_once('/').context("a figure")?;
        ensure!(text.contains(&format!("### {paper} figure {number}: ")), "{figure}: {}", stderr_of(&output));
    }
    let claims = value["claims"].as_array().context("claims")?;
    ensure!(!claims.is_empty(), "no claim is about these figures: {value}");
    ensure!(claims.iter().all(|c| c["because"].as_str().is_some_and(|why| !why.is_empty())), "{value}");
    assert_clean(&phone)?;
    Ok(claims.clone())
}

pub fn paper_000_sqlite() -> Result<()> {
    made("000/9-10 000/11 000/12 000/13-15", "sqlite", &["000/9", "000/10", "000/11", "000/12", "000/13-15"]).map(drop)
}

pub fn paper_001() -> Result<()> {
    made("001", "random cluster cluster-devices", &["001/1, 3", "001/2, 4", "001/7", "001/8", "001/9", "001/10"])
        .map(drop)
}

pub fn paper_002() -> Result<()> {
    made("002", "net-wlan net-delay net-loss net-devices", &["002/5", "002/6", "002/ch4", "002/loss"]).map(drop)
}

pub fn paper_004() -> Result<()> {
    let claims = made("004", "sqlite", &["004/1", "004/2-4", "004/5"])?;
    let recorded = claims.iter().filter(|c| c["figure"] == "004/2-4").all(|c| c["outcome"] != "cannot_be_tested");
    ensure!(recorded, "its INSERTs were not recorded: {claims:?}");
    Ok(())
}
