//! What a user should know while a recording is made or linked. The caller decides how it reads, and what is worth saying.

use crate::Error;
use crate::output::MovedArchive;
use std::path::PathBuf;

/// One such fact.
#[derive(Debug)]
pub enum Notice {
    /// A file with a function that is to be an operation may throw exceptions or panic. One that leaves the function ends the
    /// program while it is recorded, since the kernel hides the way back from unwinders.
    MayThrow {
        /// The program or library.
        path: PathBuf,
        /// The function.
        function: String,
    },
    /// The kernel has what these probes attach to, and refused them.
    ProbesRefused {
        /// How many.
        count: usize,
        /// The first of them.
        probe: String,
        /// Why, of the first.
        how: String,
    },
    /// The probes are attached, and record nothing.
    AttachedOnly {
        /// How many.
        probes: usize,
    },
    /// The recording goes through ftrace.
    ByFtrace {
        /// Why not through eBPF.
        why: String,
    },
    /// An archive stood where the new one goes.
    KeptOld(MovedArchive),
    /// What is to be recorded is a thread of the kernel, which makes no calls and runs no statements.
    KernelThread {
        /// Its number.
        pid: u32,
        /// Its name, if it has one.
        name: Option<String>,
    },
    /// The command does not end; the recording does.
    CommandGoesOn,
    /// The log found no more room, and the recording ended early.
    LogFull {
        /// Why.
        why: String,
    },
    /// No process of the name that was asked for was there or began.
    NoSuchProcess {
        /// The name.
        name: String,
    },
    /// The events are kept, but there is no room for their tables.
    NotLinked {
        /// The archive.
        archive: PathBuf,
        /// Why.
        error: Error,
    },
    /// An archive's `meta.json` is missing or damaged; its events are linked without what it said.
    MetaUnreadable(archive::Error),
    /// What `meta.json` says of the machine is damaged; the events are linked without it.
    MetadataDamaged {
        /// The archive.
        archive: PathBuf,
        /// Why.
        error: Error,
    },
    /// An archive has no tables yet; its events are being linked.
    Linking {
        /// The archive.
        archive: PathBuf,
    },
}

/// Where notices go.
pub type Notify<'a> = &'a dyn Fn(Notice);
