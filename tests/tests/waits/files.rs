//! Calls by name and by file, compared with the program's own counts; what a sync waited for, compared with what it is charged for.

use super::operations;
use anyhow::{Context, Result, ensure};
use fathom_tests::{ext4, record, rows, run, show};
use serde_json::Value;
use std::process::Command;

/// argv: a directory on a disk. Everything is done outside operations but the syncs and the synchronous write.
const PYTHON_PROGRAM: &str = r#"
import mmap, os, sys
os.chdir(sys.argv[1])
source = os.open("source", os.O_CREAT | os.O_RDWR, 0o644)
for i in range(7):
    os.pwrite(source, b"s" * 4096, 4096 * i)
# The C library calls pwritev2 in any case.
os.pwritev(source, [b"v" * 4096], 0)
os.pwritev(source, [b"v" * 4096], 0, os.RWF_DSYNC)
for i in range(3):
    os.pread(source, 200, 4096 * i)
target = os.open("target", os.O_CREAT | os.O_RDWR, 0o644)
os.sendfile(target, source, 0, 8192)
os.copy_file_range(source, target, 8192, 0, 8192)
read, write = os.pipe()
os.write(write, b"p" * 1000)
os.splice(read, target, 1000, offset_dst=12288)
mapped = os.open("mapped", os.O_CREAT | os.O_RDWR, 0o644)
os.ftruncate(mapped, 8192)
with mmap.mmap(mapped, 8192) as area:
    area[:5] = b"hello"
    area[4096:4101] = b"hello"
os.truncate("target", 10000)
os.ftruncate(target, 9000)
os.link("target", "linked")
os.symlink("target", "symbolic")
os.mkdir("directory")
os.rename("linked", "directory/linked")
os.unlink("symbolic")
# Not on ext4, and one that fails.
memory = f"/dev/shm/fathom-unlink-{os.getpid()}"
os.close(os.open(memory, os.O_CREAT | os.O_RDWR, 0o600))
os.unlink(memory)
try:
    os.unlink(memory)
except FileNotFoundError:
    pass
# As rm -r does it: unlinkat with AT_REMOVEDIR.
os.mkdir("empty")
os.rmdir("empty", dir_fd=os.open(".", os.O_RDONLY))
for i in range(5):
    os.pwrite(source, b"d" * 4096, 4096 * i)
    os.fdatasync(source)
os._exit(0)
"#;

/// What the program does, by call: times, and bytes moved.
const TRUE_COUNTS: [(&str, u64, u64); 15] = [
    ("pwrite64", 12, 12 * 4096),
    ("pwritev2", 2, 2 * 4096),
    ("pread64", 3, 600),
    ("sendfile", 1, 8192),
    ("copy_file_range", 1, 8192),
    ("splice", 1, 1000),
    ("truncate", 1, 0),
    ("ftruncate", 2, 0),
    ("link", 1, 0),
    ("symlink", 1, 0),
    ("mkdir", 2, 0),
    ("rmdir", 1, 0),
    ("rename", 1, 0),
    ("unlink", 3, 0),
    ("fdatasync", 5, 0),
];

pub fn add_up() -> Result<()> {
    let (disk, directory) = (ext4()?, tempfile::tempdir()?);
    let archive =
        record(directory.path(), &[], &["python3", "-c", PYTHON_PROGRAM, &disk.path().display().to_string()])?;
    let summary = show(&archive)?;
    let own = disk.path().display().to_string();
    // The interpreter's own files: it opens, reads and maps its modules.
    let files = summary["files"].as_array().context("files[]")?;
    let find = |name: &str| -> Result<&Value> {
        let path = format!("{own}/{name}");
        files.iter().find(|f| f["path"] == path.as_str()).with_context(|| format!("no {name}: {files:?}"))
    };
    let calls = rows(&archive, "spans")?;
    for (name, times, bytes) in TRUE_COUNTS {
        let total = &summary["calls"][name];
        // The interpreter makes some of these calls itself while it starts, but never writes.
        let least = matches!(name, "pread64" | "unlink" | "rename" | "mkdir");
        let counted = total["count"].as_u64().unwrap_or(0);
        ensure!(counted == times || least && counted > times, "{name}: {total}, not {times}");
        ensure!(least || total["bytes"] == bytes, "{name}: {total}, not {bytes} bytes");
        ensure!(calls.iter().any(|span| span["layer"] == "Syscall" && span["kind"] == name), "{name} is no span");
    }
    let (source, target) = (find("source")?, find("target")?);
    let counts = |file: &Value, names: [&str; 4]| names.map(|name| file[name].as_u64());
    let names = ["writes", "bytes_written", "reads", "writes_outside"];
    ensure!(counts(source, names) == [14, 14 * 4096, 3, 13].map(Some), "{source}");
    ensure!(counts(target, names) == [3, 8192 * 2 + 1000, 0, 3].map(Some), "{target}");
    let mapped = find("mapped")?;
    ensure!(
        mapped["mapped_bytes_written"] == 8192 && mapped["writes"] == 0,
        "two pages were dirtied by stores: {mapped}"
    );
    // The table adds up to the calls.
    for (field, of) in [
        (
            "writes",
            &["pwrite64", "pwritev", "pwritev2", "write", "writev", "sendfile", "splice", "copy_file_range"][..],
        ),
        ("reads", &["read", "pread64", "readv", "preadv", "preadv2"]),
    ] {
        let listed: u64 = files.iter().filter_map(|f| f[field].as_u64()).sum();
        let total = |what: &str| of.iter().filter_map(|name| summary["calls"][*name][what].as_u64()).sum::<u64>();
        ensure!(
            listed == total("count") - total("without_file"),
            "{field}: {listed} in files, {} calls",
            total("count")
        );
    }
    let text = run(Command::new(fathom_tests::fathom()).arg("show").arg(&archive))?.stdout;
    let text = String::from_utf8(text)?;
    ensure!(text.contains("calls of the recorded processes that read, write or copy"), "{text}");
    syncs_wait(&summary)
}

/// Each fdatasync waits for a page that was written before it, and for its flush.
fn syncs_wait(summary: &Value) -> Result<()> {
    let sync = operations(summary)?.iter().find(|o| o["statement"] == "fdatasync source").context("no fdatasync")?;
    let waited = &sync["waited_for"];
    let number = |field: &str| waited[field].as_f64().unwrap_or(0.0);
    ensure!(sync["count"] == 5 && number("requests") >= 1.0 && number("flushes") >= 1.0, "{waited}");
    let data = |who: &str| waited["data"][who].as_f64().unwrap_or(0.0);
    ensure!(data("process") > data("itself") && data("process") >= 4000.0, "the data was written before: {waited}");
    let all = &summary["device_commands"];
    ensure!(all["waited_for_by_calls"].as_u64().is_some_and(|n| n >= 10), "{all}");
    Ok(())
}
