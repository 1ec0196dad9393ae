//! What a user should know while a recording is made or linked. The caller decides on wording and relevance.

use crate::Error;
use crate::left_running::LeftProcesses;
use crate::output::MovedArchive;
use archive::table_maker::Occasion;
use model::counted;
use model::text::ShownPath as _;
use std::fmt;
use std::path::PathBuf;

#[derive(Debug)]
pub enum Notice {
    /// A file with a function that is to be an operation may throw exceptions or panic. One that leaves the function ends the
    /// program while it is recorded, since the kernel hides the return address from unwinders.
    MayThrow {
        /// The program or library.
        path: PathBuf,
        function: String,
    },
    /// The kernel has what these probes attach to, but refused them.
    ProbesRefused {
        count: usize,
        probe: String,
        /// Why the first was refused.
        how: String,
    },
    /// The probes are attached, and record nothing.
    AttachedOnly { probes: usize },
    /// The recording uses ftrace.
    ByFtrace {
        /// Why not through eBPF.
        why: String,
    },
    /// An archive existed at the place of the new one.
    KeptOld(MovedArchive),
    /// The process to record is a kernel thread, which makes no calls and runs no statements.
    KernelThread { pid: u32, name: Option<String> },
    /// The command does not end, but the recording does.
    CommandGoesOn,
    /// The command ended, and processes that it started continue, unrecorded.
    LeftRunning(LeftProcesses),
    /// A line was received that is not a command to a recording.
    UnknownCommand { line: String },
    /// The log ran out of room, and the recording ended early.
    LogFull { why: String },
    /// No process of the requested name existed or started.
    NoSuchProcess { name: String },
    /// The events are kept, but there is no room for their tables.
    NotLinked { archive: PathBuf, error: Error },
    /// An archive's `meta.json` is missing or damaged; its events are linked without it.
    MetaUnreadable(archive::Error),
    /// The metadata in `meta.json` is damaged; the events are linked without it.
    MetadataDamaged { archive: PathBuf, error: Error },
    /// An archive has no tables, or none of its whole log; its events are being linked.
    Linking { archive: PathBuf, why: Occasion },
    /// An archive's log has lost a part since its tables were made.
    LogCut(archive::Error),
}

const EVENTS_ONLY_TEXT: &str = "continuing with the events alone; disks, facts and coverage are lost";

impl Notice {
    /// Whether it is only a remark, which `--quiet` suppresses.
    pub fn is_remark(&self) -> bool {
        matches!(self, Self::MayThrow { .. } | Self::AttachedOnly { .. } | Self::KeptOld(_))
    }
}

/// Formats the notice as sentences, one per line.
impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MayThrow { path, function } => write!(
                f,
                "{} may throw exceptions or panic: one that unwinds through {function} aborts the program while \
                 it is recorded, since the kernel's return probe hides the return address from unwinders",
                path.shown()
            ),
            Self::ProbesRefused { count, probe, how } => write!(
                f,
                "the kernel refused {count} probes, such as {probe} ({how}); `fathom show` lists them under Probes"
            ),
            Self::AttachedOnly { probes } => {
                write!(f, "{} attached; nothing is recorded", counted(*probes, "probe"))
            }
            Self::ByFtrace { why } => write!(f, "recording through ftrace, as eBPF does not work here: {why}"),
            Self::KeptOld(kept) => {
                let gone = if kept.replaced { "; the one renamed before was deleted" } else { "" };
                write!(f, "the existing archive was renamed to {}{gone}", kept.path.shown())
            }
            // Such a recording would seem to have seen nothing.
            Self::KernelThread { pid, name } => write!(
                f,
                "process {pid}{} is a kernel thread: it makes no system calls and runs no statements, and mostly \
                 writes on behalf of other processes. Record those, or --all",
                name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default()
            ),
            Self::CommandGoesOn => f.write_str("the recording ended; the command continues"),
            Self::LeftRunning(left) => {
                let (is, them) = if left.0.len() == 1 { ("is", "it") } else { ("are", "them") };
                let numbers: Vec<String> = left.0.iter().map(|process| format!("--pid {}", process.pid)).collect();
                write!(
                    f,
                    "the recording ended with the command, but {left} {is} still running and no longer recorded; keep the program in \
                     the foreground, or record {them} separately: fathom record {}",
                    numbers.join(" ")
                )
            }
            Self::UnknownCommand { line } => {
                write!(f, "--control: `{}` is not a command; expected ping or stop", model::text::shown(line))
            }
            Self::LogFull { why } => write!(f, "the recording ended early: {why}"),
            Self::NoSuchProcess { name } => write!(
                f,
                "no process named {name} ran; the trace holds only other processes' I/O. A name is what `ps -o comm` \
                 shows, at most 15 bytes"
            ),
            Self::NotLinked { archive, error } => write!(
                f,
                "{}\nnot enough space to build the tables; the events are kept: copy {} to a disk with more space and run \
                 `fathom reindex` on it",
                model::text::error_chain(error),
                archive.shown()
            ),
            Self::MetaUnreadable(error) => write!(f, "{}\n{EVENTS_ONLY_TEXT}", error.without_remedy()),
            Self::MetadataDamaged { archive, error } => write!(f, "{}: {error}\n{EVENTS_ONLY_TEXT}", archive.shown()),
            Self::Linking { archive, why } => {
                let state = match why {
                    Occasion::NoTables | Occasion::Live => "has no tables yet",
                    Occasion::LogGrew => "has grown since its tables were made",
                };
                write!(f, "{} {state}; linking its events", archive.shown())
            }
            Self::LogCut(error) => error.fmt(f),
        }
    }
}

pub type Notify<'a> = &'a dyn Fn(Notice);
