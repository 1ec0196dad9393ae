//! btt as the oracle for a command's queue and device times: Q2D (first bio queued to issued) and D2C (issued to completed).

use super::{cell, cell_ns, rows, unpack_blktrace};
use anyhow::{Context, Result, ensure};
use fathom_tests::{fathom, run};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// A command's first sector and its bytes, and when it was issued.
type IssuedCommand = (u64, u64, u64);
/// When the first of its bios was queued, and when it was completed.
type Times = (u64, u64);

/// Parses btt's list of I/Os: each bio with its events. Several bios may be in one command.
fn parse_btt(list: &str) -> Result<BTreeMap<IssuedCommand, Times>> {
    let mut commands: BTreeMap<IssuedCommand, Times> = BTreeMap::new();
    for io in list.split("\n\n") {
        let (mut queued, mut issued, mut completed) = (None, None, None);
        for line in io.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let Some([time, action, place]) = words.last_chunk::<3>() else { continue };
            let Some((sector, sectors)) = place.split_once('+') else { continue };
            let (seconds, rest) = time.split_once('.').with_context(|| format!("no time in {line}"))?;
            let at = seconds.parse::<u64>()? * 1_000_000_000 + rest.parse::<u64>()?;
            match *action {
                "Q" => queued = Some(at),
                "D" => issued = Some((sector.parse()?, sectors.parse::<u64>()? * 512, at)),
                "C" => completed = Some(at),
                _ => {}
            }
        }
        if let (Some(queued), Some(issued), Some(completed)) = (queued, issued, completed) {
            let known = commands.entry(issued).or_insert((queued, completed));
            known.0 = known.0.min(queued);
        }
    }
    Ok(commands)
}

/// The same for the imported archive.
fn imported_times(archive: &Path) -> Result<BTreeMap<IssuedCommand, Times>> {
    let spans = rows(archive, "spans")?;
    let bios = spans.iter().filter(|s| cell(s, "kind") == "bio");
    let mut queued: BTreeMap<String, u64> = bios.map(|s| (cell(s, "id").to_owned(), cell_ns(s, "start_ns"))).collect();
    let links = rows(archive, "links")?;
    // From bios to requests and, if there is a scheduler, from these to commands.
    for _ in 0..2 {
        for link in &links {
            if let Some(&at) = queued.get(cell(link, "parent")) {
                let first = queued.entry(cell(link, "child").to_owned()).or_insert(at);
                *first = at.min(*first);
            }
        }
    }
    let commands = spans.iter().filter(|s| cell(s, "layer") == "Driver");
    let command = |s: &super::Row| {
        let issued = (cell_ns(s, "sector"), cell_ns(s, "bytes"), cell_ns(s, "start_ns"));
        Some((issued, (*queued.get(cell(s, "id"))?, cell_ns(s, "end_ns"))))
    };
    Ok(commands.filter_map(command).collect())
}

/// Imports a blktrace recording and compares it with btt's results for the same.
fn compare_with_btt(directory: &Path, name: &str, least: usize) -> Result<()> {
    let tool = |program: &str, words: &[&str]| run(Command::new(program).current_dir(directory).args(words));
    tool("blkparse", &["-i", name, "-d", "merged", "-o", "text"])?;
    tool("btt", &["-i", "merged", "-p", "list"])?;
    let theirs = parse_btt(&std::fs::read_to_string(directory.join("list"))?)?;
    let archive = directory.join(format!("{name}.fathom"));
    run(Command::new(fathom())
        .arg("import")
        .arg(directory.join(format!("{name}.blktrace.0")))
        .arg("-o")
        .arg(&archive))?;
    let ours = imported_times(&archive)?;
    // btt's times are relative to the first event, ours are the kernel's. The offset is found from its first command, by
    // sector.
    let first = theirs.keys().min_by_key(|issued| issued.2).context("no command")?;
    let same = ours.keys().filter(|(sector, bytes, _)| (*sector, *bytes) == (first.0, first.1));
    let begun = same.map(|issued| issued.2 - first.2).min().context("btt's first command is not there")?;
    // The second part of a split bio has no `Q` of its own: btt counts such a command's wait from the first bio that was merged
    // after it.
    let text = std::fs::read_to_string(directory.join("text"))?;
    let splits: BTreeSet<u64> = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|words| words.get(5) == Some(&"X"))
        .filter_map(|words| words.get(9)?.parse().ok())
        .collect();
    let mut waited = (0, 0);
    for (&(sector, bytes, at), &(queued, completed)) in &theirs {
        let found = ours.get(&(sector, bytes, at + begun));
        let found = found.with_context(|| format!("no command of {bytes} bytes at {sector}, issued at {at} ns"))?;
        let said = (queued + begun, completed + begun);
        let is_rest = splits.contains(&sector) && found.0 < said.0 && found.1 == said.1;
        ensure!(
            *found == said || is_rest,
            "{bytes} bytes at {sector}: queued and completed at {found:?}, by btt at {said:?}"
        );
        waited = (waited.0 + at - queued, waited.1 + completed - at);
    }
    println!("{name}: {} commands, {} ns of Q2D and {} ns of D2C, as btt has them", theirs.len(), waited.0, waited.1);
    // btt omits flushes, and both parts of a split bio.
    let with_data = ours.keys().filter(|(_, bytes, _)| *bytes > 0).count();
    ensure!(
        theirs.len() >= least && with_data <= theirs.len() + 2 * splits.len(),
        "{} of {with_data} commands",
        theirs.len()
    );
    Ok(())
}

pub fn queue_and_device_times_match_btt() -> Result<()> {
    let directory = tempfile::tempdir()?;
    unpack_blktrace("data", directory.path())?;
    compare_with_btt(directory.path(), "data", 140)
}

/// A partition's records name the partition, but sectors of its disk.
pub fn of_a_partition() -> Result<()> {
    let directory = tempfile::tempdir()?;
    unpack_blktrace("part", directory.path())?;
    compare_with_btt(directory.path(), "part", 20)?;
    // The disk, which was traced next: a command of either is a command of the disk.
    unpack_blktrace("sdb", directory.path())?;
    compare_with_btt(directory.path(), "sdb", 15)?;
    let (partition, disk) = (((8_u32 << 20) | 18).to_string(), ((8_u32 << 20) | 16).to_string());
    let mut alone: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for name in ["part", "sdb"] {
        for (what, (count, bytes)) in commands_by_kind(&directory.path().join(format!("{name}.fathom")))? {
            let sum = alone.entry(what.replace(&partition, &disk)).or_default();
            *sum = (sum.0 + count, sum.1 + bytes);
        }
    }
    let mut import = Command::new(fathom());
    import.current_dir(&directory).args(["import", "part.blktrace.0", "sdb.blktrace.0", "-o", "both.fathom"]);
    let said = String::from_utf8_lossy(&run(&mut import)?.stderr).into_owned();
    ensure!(said.contains("note: 8:18 is a partition of 8:16"), "{said}");
    let both = commands_by_kind(&directory.path().join("both.fathom"))?;
    println!("{both:?}");
    ensure!(both == alone && both.len() >= 4, "{both:?} together, {alone:?} each by itself");
    Ok(())
}

/// Two disks that were traced together: each of the files that a shell's `*` matches is read once, and each disk has the same events
/// as alone.
pub fn of_two_disks() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut alone = BTreeMap::new();
    for disk in ["sda", "sdb"] {
        unpack_blktrace(disk, directory.path())?;
        compare_with_btt(directory.path(), disk, 15)?;
        alone.append(&mut commands_by_kind(&directory.path().join(format!("{disk}.fathom")))?);
    }
    let files = ["sda.blktrace.0", "sda.blktrace.1", "sdb.blktrace.1"];
    let import = |files: &[&str]| {
        Command::new(fathom()).current_dir(&directory).arg("import").args(files).args(["-o", "both.fathom"]).output()
    };
    let output = import(&files)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let both = commands_by_kind(&directory.path().join("both.fathom"))?;
    println!("{both:?}");
    ensure!(both == alone && both.len() >= 5, "{both:?} together, {alone:?} each by itself");
    let refused = import(&["sda.blktrace.0", "text"])?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(!refused.status.success() && said.contains("only if blktrace made them"), "{said}");
    Ok(())
}

/// Commands by disk and kind, with their bytes.
fn commands_by_kind(archive: &Path) -> Result<BTreeMap<String, (u64, u64)>> {
    let mut counts = BTreeMap::new();
    for span in rows(archive, "spans")?.iter().filter(|s| cell(s, "layer") == "Driver") {
        let count: &mut (u64, u64) =
            counts.entry(["disk", "kind", "flags"].map(|c| cell(span, c)).join(" ")).or_default();
        *count = (count.0 + 1, count.1 + cell_ns(span, "bytes"));
    }
    Ok(counts)
}
