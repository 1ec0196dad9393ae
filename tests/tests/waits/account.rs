//! Where the time of an operation went, compared with the program's own clocks: every kind of operation with every kind of wait, at its
//! begin, in the middle and at its end (`programs/waiting.py`).

use anyhow::{Context, Result, ensure};
use fathom_tests::truth::slowdisk::SlowDisk;
use fathom_tests::{fathom, record, rows, run};
use lab::loopdisk::Options;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAM_PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/waiting.py");

/// What the program knows of one of its operations.
struct OwnAccount {
    what: String,
    wait: String,
    kind: String,
    tgid: u64,
    begin_ns: u64,
    end_ns: u64,
    cpu_ns: u64,
    /// In the run queue, by the kernel's own count; of it, at most `unsure_ns` before or after.
    queued_ns: u64,
    unsure_ns: u64,
}

/// What the kernel calls each wait outside recorded calls.
const WAIT_NAMES: [(&str, &str); 7] = [
    ("timer", "timer"),
    ("futex", "futex"),
    ("pipe", "pipe"),
    ("poll", "poll"),
    ("socket", "socket"),
    ("child", "child process"),
    ("flock", "flock lock"),
];

/// No time is asserted: the recording says about each operation what the program's own clocks say. A sleep shown as CPU time differs by
/// more than half of all that it slept.
pub fn of_all_pairs() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let slow = SlowDisk::create(directory.path(), (500, 30_000), None, 1, &Options::default())?;
    slow.slow()?;
    let disk = slow.disk.path().display().to_string();
    let mut wrong = Vec::new();
    let pairs =
        [(&["statement", "mark", "inferred", "call"][..], &[][..]), (&["function"], &["--op", "libc.so.6:qsort"])];
    for (kinds, options) in pairs {
        let (archive, own) = run_operations(directory.path(), &disk, kinds, options)?;
        let shown = RecordedOperations::read(&archive)?;
        let operations = own.iter().filter(|own| own.kind != "call" || own.wait == "sync");
        for own in operations {
            wrong.extend(shown.judge(own).err().map(|why| format!("{}: {why:#}", own.what)));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// A program that maps the memory for its marks only when it has something to mark.
const LATE_MARKS_PROGRAM: &str = r#"
import mmap, os, struct, time
now = lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME)
begin = now()
# A fixed wait: the sleep is what is measured.
time.sleep(0.2)
end = now()
fd = int(os.environ["FATHOM_MARKS_FD"])
area = mmap.mmap(fd, os.fstat(fd).st_size)
struct.pack_into("<Q", area, 24, 1)
struct.pack_into("<QQIIQ32s", area, 64, begin, end, os.getpid(), os.getpid(), 1, b"late")
"#;

/// Sleeps of a recorded thread are known from its begin on, before anything says that they will matter.
pub fn before_marks_are_mapped() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let archive = record(directory.path(), &[], &["python3", "-c", LATE_MARKS_PROGRAM])?;
    let shown = RecordedOperations::read(&archive)?;
    let mark = &shown.operations[..];
    ensure!(mark.len() == 1, "{mark:?}");
    let slices = shown.slices.get(&row_number(&mark[0], "id")?).context("no slices")?;
    let ns = |is_wanted: &dyn Fn(&BTreeMap<String, String>) -> bool| -> Result<u64> {
        let wanted = slices.iter().filter(|slice| is_wanted(slice));
        wanted.map(|s| Ok(row_number(s, "end_ns")? - row_number(s, "start_ns")?)).sum()
    };
    let (slept, whole) = (ns(&|s| s["wait"] == "timer")?, ns(&|s| s["reason"] != "run queue")?);
    ensure!(2 * slept > whole, "{slices:?}");
    Ok(())
}

fn run_operations(
    directory: &Path,
    disk: &str,
    kinds: &[&str],
    options: &[&str],
) -> Result<(PathBuf, Vec<OwnAccount>)> {
    let archive = directory.join(format!("{}.fathom", kinds[0]));
    let mut command = Command::new(fathom());
    command.args(["record", "--quiet", "-o"]).arg(&archive).args(options);
    let output = run(command.args(["--", "python3", PROGRAM_PATH, disk]).args(kinds))?;
    let text = String::from_utf8(output.stdout)?;
    let own = text.lines().map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [tgid, kind, wait, place, begin_ns, end_ns, cpu_ns, queued_ns, unsure_ns] = words[..] else {
            anyhow::bail!("{line}")
        };
        Ok(OwnAccount {
            what: format!("{kind} {wait} {place}"),
            wait: wait.into(),
            kind: kind.into(),
            tgid: tgid.parse()?,
            begin_ns: begin_ns.parse()?,
            end_ns: end_ns.parse()?,
            cpu_ns: cpu_ns.parse()?,
            queued_ns: queued_ns.parse()?,
            unsure_ns: unsure_ns.parse()?,
        })
    });
    let own = own.collect::<Result<Vec<_>>>()?;
    ensure!(own.len() == kinds.len() * 24, "{text}");
    Ok((archive, own))
}

/// The recorded operations and their slices.
struct RecordedOperations {
    operations: Vec<BTreeMap<String, String>>,
    slices: BTreeMap<u64, Vec<BTreeMap<String, String>>>,
}

fn row_number(row: &BTreeMap<String, String>, column: &str) -> Result<u64> {
    let value = row.get(column).with_context(|| format!("no {column} in {row:?}"))?;
    value.parse().with_context(|| format!("{column} of {row:?}"))
}

impl RecordedOperations {
    fn read(archive: &Path) -> Result<Self> {
        let mut slices: BTreeMap<u64, Vec<_>> = BTreeMap::new();
        for slice in rows(archive, "slices")? {
            slices.entry(row_number(&slice, "operation")?).or_default().push(slice);
        }
        Ok(Self { operations: rows(archive, "operations")?, slices })
    }

    /// Compares the longest operation that the process performed meanwhile with what it says itself.
    fn judge(&self, own: &OwnAccount) -> Result<()> {
        let length =
            |row: &&BTreeMap<String, String>| Some(row_number(row, "end_ns").ok()? - row_number(row, "start_ns").ok()?);
        let within = |row: &&BTreeMap<String, String>| {
            let start_ns = row_number(row, "start_ns").unwrap_or(0);
            row_number(row, "tgid").is_ok_and(|tgid| tgid == own.tgid) && (own.begin_ns..own.end_ns).contains(&start_ns)
        };
        let operation = self.operations.iter().filter(within).max_by_key(|row| length(row)).context("not recorded")?;
        let slices = self.slices.get(&row_number(operation, "id")?).context("no slices")?;
        let sum = |reason: &str| -> Result<u64> {
            slices
                .iter()
                .filter(|s| s["reason"] == reason)
                .map(|s| Ok(row_number(s, "end_ns")? - row_number(s, "start_ns")?))
                .sum()
        };
        let (cpu_ns, run_queue_ns) = (sum("cpu")?, sum("run queue")?);
        let length_ns = row_number(operation, "end_ns")? - row_number(operation, "start_ns")?;
        let waited_ns = length_ns - cpu_ns - run_queue_ns;
        let wall_ns = own.end_ns - own.begin_ns;
        let shortest_ns = wall_ns.saturating_sub(own.cpu_ns + own.queued_ns);
        let slept_ns = wall_ns.saturating_sub(own.cpu_ns + own.queued_ns.saturating_sub(own.unsure_ns));
        let story = || {
            let line = |s: &BTreeMap<String, String>| {
                format!("{} {} {:?}: {}-{}", s["layer"], s["reason"], s.get("wait"), s["start_ns"], s["end_ns"])
            };
            slices.iter().map(line).collect::<Vec<_>>().join("\n  ")
        };
        ensure!(
            cpu_ns.abs_diff(own.cpu_ns) < slept_ns / 2
                && (shortest_ns.saturating_sub(slept_ns / 2)..slept_ns + slept_ns / 2).contains(&waited_ns),
            "cpu {cpu_ns} ns and {waited_ns} ns of waiting, its own clocks say {} and {shortest_ns} to {slept_ns}:\n  {}",
            own.cpu_ns,
            story()
        );
        let named = WAIT_NAMES.iter().find(|(wait, _)| *wait == own.wait).map(|(_, name)| *name);
        if let Some(name) = named {
            let of_it = slices.iter().filter(|s| s.get("wait").is_some_and(|wait| wait == name));
            let named_ns =
                of_it.map(|s| Ok(row_number(s, "end_ns")? - row_number(s, "start_ns")?)).sum::<Result<u64>>()?;
            // The syncs of an inferred transaction take longer than this wait.
            let least_ns = if own.kind == "inferred" { 0 } else { shortest_ns / 4 };
            ensure!(named_ns > least_ns, "{name} {named_ns} ns of {slept_ns}:\n  {}", story());
        }
        Ok(())
    }
}
