//! `fathom check attach PID`: counts for a test what its own process asks of files. The test reads and writes lines: `attach`, once it permits
//! that (Yama), then `count`, or `count TID` for one of its threads, as often as it likes. It ends with its input, and the process continues.
//!
//! ```text
//! > attach
//! < {"version":1,"attached":true}
//! > count
//! < {"version":1,"counts":{"fdatasync WAL":3,"bytes written WAL":12392}}
//! ```

use crate::args;
use anyhow::{Context as _, Result, bail};
use capture::located::attached;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{BufRead as _, Write as _};
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use verdicts::check::attached_counts::{CallCounts, SeenCall};

/// The version of the lines.
const VERSION: u32 = 1;

/// Counts by thread.
type ThreadCounts = BTreeMap<u32, CallCounts>;

pub fn run(args: &args::CheckAttach) -> Result<ExitCode> {
    let pid = args.pid;
    let counts: Arc<Mutex<ThreadCounts>> = Arc::default();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        match line.split_once(' ').map_or((line.as_str(), None), |(word, tid)| (word, Some(tid.parse::<u32>()))) {
            ("attach", None) => attach(pid, &counts)?,
            ("count", None) => print(&counts, None)?,
            ("count", Some(Ok(tid))) => print(&counts, Some(tid))?,
            _ => bail!("{line:?}: expected `attach`, `count` or `count TID`"),
        }
        std::io::stdout().flush()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the counts of all threads together, or of one.
fn print(counts: &Mutex<ThreadCounts>, tid: Option<u32>) -> Result<()> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    let counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
    for (name, n) in
        counts.iter().filter(|(of, _)| tid.is_none_or(|tid| tid == **of)).flat_map(|(_, all)| &all.counts.calls)
    {
        *sums.entry(name.clone()).or_default() += n;
    }
    println!("{}", json!({ "version": VERSION, "counts": sums }));
    Ok(())
}

/// Attaches, by a thread of its own, which alone may wait for the process.
fn attach(pid: u32, counts: &Arc<Mutex<ThreadCounts>>) -> Result<()> {
    let (tell, told) = channel();
    let counts = counts.clone();
    std::thread::spawn(move || {
        let ready = tell.clone();
        let done = attached::count(pid, &mut || drop(ready.send(Ok(()))), &mut |call| {
            let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
            counts
                .entry(call.tid)
                .or_default()
                .add(seen(call, call.file.as_ref().map(|path| path.to_string_lossy()).as_deref()));
        });
        // After its end there is nothing left to count.
        let _ = tell.send(done);
    });
    let attached = told.recv().context("the process has ended")?;
    attached.with_context(|| {
        format!("cannot attach to process {pid} by ptrace (another tracer, /proc/sys/kernel/yama/ptrace_scope, or a sandbox)")
    })?;
    println!("{}", json!({ "version": VERSION, "attached": true }));
    Ok(())
}

/// A call as the counts take it.
pub fn seen<'a>(call: &attached::ReturnedCall, file: Option<&'a str>) -> SeenCall<'a> {
    SeenCall { call: call.call, file, is_directory: call.is_directory, result: call.result }
}
