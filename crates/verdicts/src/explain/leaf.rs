//! A leaf of the account in words.

use super::contract::{Account, Leaf};
use analysis::caveats::Caveats;
use analysis::lines::wrapped;
use analysis::stacks;
use analysis::text::{duration, shown};
use analysis::waits;
use model::{Layer, Reason, Wait, counted};

/// The share of a leaf's waits from which on one ender is named alone.
const MAIN_ENDER_SHARE_MIN: f64 = 0.5;

/// Formats the account: a line for each large leaf, and the rest.
pub fn text(out: &mut String, account: &Account) {
    if account.whole_ns == 0 {
        return;
    }
    wrapped(
        out,
        "",
        &format!(
            "Where the time went: {} in {}, each part counted once",
            duration(account.whole_ns as f64),
            counted(account.executions as usize, "execution")
        ),
    );
    let (listed, rest): (Vec<&Leaf>, Vec<&Leaf>) = account.leaves.iter().partition(|leaf| leaf.listed);
    for leaf in listed {
        wrapped(out, &format!("{:>5.1} % ", 100.0 * leaf.share), &leaf_line(leaf, account.executions));
        if let Some(wait) = leaf.slow_waits.first() {
            wrapped(out, "        ", &format!("longest seen: {}", stacks::line(wait)));
        }
    }
    let share = |ns: u64| 100.0 * ns as f64 / account.whole_ns as f64;
    if !rest.is_empty() {
        let parts = counted(rest.len(), "smaller part");
        let ns = rest.iter().map(|leaf| leaf.ns).sum();
        wrapped(out, &format!("{:>5.1} % ", share(ns)), &format!("{parts} (--json)"));
    }
    wrapped(out, &format!("{:>5.1} % ", share(account.unaccounted_ns)), "not accounted for");
    out.push('\n');
}

/// The largest leaf, as a line of `show`; empty if there is none.
pub fn largest_line(account: &Account, caveats: &Caveats) -> String {
    let (share, what) = match account.leaves.first().filter(|leaf| leaf.ns >= account.unaccounted_ns) {
        Some(leaf) => (leaf.share, leaf.what.as_str()),
        None if account.unaccounted_ns > 0 => {
            (account.unaccounted_ns as f64 / account.whole_ns as f64, "is not accounted for")
        }
        None => return String::new(),
    };
    let caveat = caveats.against_times().map_or(String::new(), |caveat| format!(" ({})", caveat.because));
    let mut out = String::new();
    wrapped(&mut out, "", &format!("Largest part: {:.0} % of the time {what}{caveat}", 100.0 * share));
    out
}

fn leaf_line(leaf: &Leaf, executions: u64) -> String {
    let range =
        leaf.interval.map_or(String::new(), |[low, high]| format!(" ({:.0} to {:.0} %)", 100.0 * low, 100.0 * high));
    let statement = leaf.statement.as_deref().map_or(String::new(), |text| {
        let all = leaf.statement_ns == leaf.ns;
        format!("; {}{}", if all { "" } else { "mostly " }, shown(text))
    });
    let of = format!("in {} of {}", leaf.executions, counted(executions as usize, "execution"));
    format!("{}{range}: {}, {of}{statement}", leaf.what, duration(leaf.ns as f64))
}

/// What the thread did or waited for, as it follows "of the time": `waits for a futex, ended by worker (PID 7)`.
pub fn phrase(leaf: &Leaf) -> String {
    let call = leaf.call.as_deref().map_or(String::new(), |call| format!(", in {call}"));
    let wait = match (leaf.reason, leaf.wait) {
        (Reason::Cpu, _) => {
            return match leaf.layer {
                Some(Layer::App) => "runs in the program".into(),
                Some(Layer::Database) => "runs in the database's code".into(),
                Some(Layer::Tracer) => "is the recording's own".into(),
                Some(Layer::Syscall | Layer::FileSystem) => format!("runs in the kernel{call}"),
                Some(layer) => format!("runs in the kernel, in {layer}"),
                None => "runs".into(),
            };
        }
        (_, Some(wait)) => format!("waits for {}", with_article(wait)),
        (Reason::RunQueue, None) => "waits for a processor".into(),
        (Reason::Device, None) => "waits for the device to read or write".into(),
        (Reason::Flush, None) => "waits for a flush of the device's cache".into(),
        (Reason::Queue, None) => "waits until its request is issued to the device".into(),
        (Reason::Journal, None) => "waits for the file system's journal".into(),
        (Reason::Other, None) => format!("sleeps for a reason that has no name{call}"),
    };
    format!("{wait}{}", ended_phrase(leaf))
}

fn ended_phrase(leaf: &Leaf) -> String {
    let Some(by) = leaf.by.first() else { return String::new() };
    let file = by.file.as_deref().map(|path| path.rsplit('/').next().unwrap_or(path));
    let on = file.map_or_else(String::new, |name| format!(" on {}", shown(name)));
    let wait = leaf.wait.unwrap_or(Wait::Futex);
    let who = waits::ended_by(wait, by.tgid, by.process.as_deref(), by.statement.as_deref());
    let alone = by.ns as f64 >= MAIN_ENDER_SHARE_MIN * leaf.ns as f64;
    match who {
        Some(who) if alone => format!("{on}, {who}"),
        Some(who) => format!("{on}, of several {who}"),
        None => on,
    }
}

fn with_article(wait: Wait) -> String {
    match wait {
        Wait::Reclaim => "memory to be reclaimed".into(),
        Wait::DirtyThrottling | Wait::WriteThrottling => format!("{wait}"),
        Wait::JournalSpace => "space in the journal".into(),
        Wait::F2fsCleaning => "f2fs to clean segments".into(),
        Wait::Writeback => "a page under writeback".into(),
        Wait::IoQuota | Wait::CpuQuota => format!("its {wait}"),
        Wait::Fcntl | Wait::F2fsCheckpoint => format!("an {wait}"),
        _ => format!("a {wait}"),
    }
}

/// The sentence where no finding names anything.
pub fn without_finding(account: &Account) -> String {
    match account.leaves.first() {
        Some(leaf) if leaf.listed => format!(
            "No finding: no known cause fits. The largest part of the time {}; that has no remedy here, but no remedy for it saves more.",
            leaf.what
        ),
        _ => "No finding: nothing that is known to cost time took a noticeable part of it.".into(),
    }
}
