//! A leaf of the account in words.

use super::contract::{Account, Between, BetweenLeaf, Leaf, WaitEnder, Whose};
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

/// Formats the time outside operations, if it is noticeable: a line for each large part.
pub fn between_text(out: &mut String, between: &Between) {
    if !between.leaves.iter().any(|leaf| leaf.listed) && between.unaccounted_ns <= between.operations_ns {
        return;
    }
    let share = |ns: u64| ns as f64 / between.whole_ns.max(1) as f64;
    let whole = duration(between.whole_ns as f64);
    let threads = counted(between.threads as usize, "thread");
    wrapped(
        out,
        "",
        &format!(
            "Time of the threads: {whole} in {threads}, of which {:.1} % in operations",
            100.0 * share(between.operations_ns)
        ),
    );
    let mut rest = 0_u64;
    for leaf in &between.leaves {
        if !leaf.listed {
            rest = rest.saturating_add(leaf.ns);
            continue;
        }
        let range = leaf
            .interval
            .map_or(String::new(), |[low, high]| format!(" ({:.0} to {:.0} %)", 100.0 * low, 100.0 * high));
        let who = match (leaf.process.as_deref(), leaf.tgid) {
            (Some(name), Some(tgid)) => format!("; mostly {} (PID {tgid})", shown(name)),
            _ => String::new(),
        };
        let line = format!(
            "{}{range}: {}, in {}{who}",
            leaf.what,
            duration(leaf.ns as f64),
            counted(leaf.threads as usize, "thread")
        );
        wrapped(out, &format!("{:>5.1} % ", 100.0 * leaf.share), &line);
        if let Some(wait) = leaf.slow_waits.first() {
            wrapped(out, "        ", &format!("longest seen: {}", stacks::line(wait)));
        }
    }
    if rest > 0 {
        wrapped(out, &format!("{:>5.1} % ", 100.0 * share(rest)), "smaller parts (--json)");
    }
    wrapped(out, &format!("{:>5.1} % ", 100.0 * share(between.unaccounted_ns)), "not accounted for");
    out.push('\n');
}

/// The time outside operations, as a line of `show`, where it is most of the time.
pub fn between_line(between: &Between) -> String {
    let outside = between.whole_ns.saturating_sub(between.operations_ns);
    if outside <= between.operations_ns {
        return String::new();
    }
    let mut out = String::new();
    let percent = |ns: u64| 100.0 * ns as f64 / between.whole_ns.max(1) as f64;
    let (ns, what) = match between.leaves.first().filter(|leaf| leaf.ns >= between.unaccounted_ns) {
        Some(leaf) => (leaf.ns, leaf.what.as_str()),
        None => (between.unaccounted_ns, "is not accounted for"),
    };
    let (share, largest) = (percent(outside), percent(ns));
    let threads = counted(between.threads as usize, "thread");
    wrapped(&mut out, "", &format!("Outside operations: {share:.0} % of the time of {threads}; {largest:.0} % {what}"));
    out
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
    let codes: Vec<&str> = leaf.findings.iter().map(|code| code.name()).collect();
    let named = if codes.is_empty() { String::new() } else { format!(" [{}]", codes.join(", ")) };
    format!("{}{range}: {}, {of}{statement}{named}", leaf.what, duration(leaf.ns as f64))
}

/// What a part of an account is said to be.
pub struct Said<'a> {
    pub layer: Option<Layer>,
    pub reason: Reason,
    pub wait: Option<Wait>,
    pub call: Option<&'a str>,
    pub whose: Option<Whose>,
    pub by: &'a [WaitEnder],
    pub ns: u64,
}

impl<'a> From<&'a Leaf> for Said<'a> {
    fn from(leaf: &'a Leaf) -> Self {
        let Leaf { layer, reason, wait, whose, ns, .. } = *leaf;
        Self { layer, reason, wait, call: leaf.call.as_deref(), whose, by: &leaf.by, ns }
    }
}

impl<'a> From<&'a BetweenLeaf> for Said<'a> {
    fn from(leaf: &'a BetweenLeaf) -> Self {
        let BetweenLeaf { layer, reason, wait, ns, .. } = *leaf;
        Self { layer, reason, wait, call: leaf.call.as_deref(), whose: None, by: &leaf.by, ns }
    }
}

/// What the thread did or waited for, as it follows "of the time": `waits for a futex, ended by worker (PID 7)`.
pub fn phrase(leaf: &Leaf) -> String {
    phrase_of(&leaf.into())
}

pub fn phrase_of(said: &Said) -> String {
    let ended = if said.reason == Reason::Cpu { String::new() } else { ended_phrase(said) };
    name_of(said) + &ended
}

/// The same without who ended it, so that leaves of two recordings have the same.
pub fn name<'a>(leaf: impl Into<Said<'a>>) -> String {
    name_of(&leaf.into())
}

fn name_of(said: &Said) -> String {
    let call = said.call.map_or(String::new(), |call| format!(", in {call}"));
    let others = said.whose == Some(Whose::Others);
    match (said.reason, said.wait) {
        (Reason::Cpu, _) => match said.layer {
            Some(Layer::App) => "runs in the program".into(),
            Some(Layer::Database) => "runs in the database's code".into(),
            Some(Layer::Tracer) => "is the recording's own".into(),
            Some(Layer::Syscall | Layer::FileSystem) => format!("runs in the kernel{call}"),
            Some(layer) => format!("runs in the kernel, in {layer}"),
            None => "runs".into(),
        },
        (_, Some(wait)) => format!("waits for {}", with_article(wait)),
        (Reason::RunQueue, None) => "waits for a processor".into(),
        (Reason::Device, None) if others => "waits for the device to read or write for others".into(),
        (Reason::Device, None) => "waits for the device to read or write".into(),
        (Reason::Flush, None) if others => "waits for a flush of the device's cache that is for others".into(),
        (Reason::Flush, None) => "waits for a flush of the device's cache".into(),
        (Reason::Queue, None) if others => "waits until its request is issued to the device, behind others".into(),
        (Reason::Queue, None) => "waits until its request is issued to the device".into(),
        (Reason::Journal, None) if others => "waits for others' part of a commit of the file system's journal".into(),
        (Reason::Journal, None) => "waits for the file system's journal".into(),
        (Reason::Other, None) => format!("sleeps for a reason that has no name{call}"),
    }
}

fn ended_phrase(said: &Said) -> String {
    let Some(by) = said.by.first() else { return String::new() };
    let file = by.file.as_deref().map(|path| path.rsplit('/').next().unwrap_or(path));
    let on = file.map_or_else(String::new, |name| format!(" on {}", shown(name)));
    let wait = said.wait.unwrap_or(Wait::Futex);
    let who = waits::ended_by(wait, by.tgid, by.process.as_deref(), by.statement.as_deref());
    let who = match (said.whose, by.tgid) {
        (Some(Whose::Others), Some(tgid)) => {
            Some(format!("{} (PID {tgid})", by.process.as_deref().map_or_else(|| "unnamed".into(), shown)))
        }
        _ => who,
    };
    // Since when a lock is held is known no better than since when its holder is in its operation.
    let since = by.since_ns.filter(|_| wait.is_lock() && said.whose.is_none());
    let since = since.map_or(String::new(), |ns| format!(", there for up to {}", duration(ns as f64)));
    let who = who.map(|who| format!("{who}{since}"));
    let alone = by.ns as f64 >= MAIN_ENDER_SHARE_MIN * said.ns as f64;
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
