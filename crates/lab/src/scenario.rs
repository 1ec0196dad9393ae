//! A scenario from its file (TOML), checked as a whole before anything boots: the disks, their content, the workload, and
//! how it is recorded. Pure; [`crate::run`] boots it.
//!
//! Everything in the file can be checked without a guest. An unknown key is reported with its line, a value of `--set`
//! with its setting.

mod catalog;
mod disk;
mod disks;
pub(crate) mod forward;
pub(crate) mod script;
mod value;

pub use catalog::{Entry, Series, find, find_series, series, shipped};
pub use disk::{Bus, Disk, Map, Scheduler};
pub use forward::Forward;
pub use value::{Bytes, Span};

use crate::accelerator::Accelerator;
use crate::arch::Arch;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where a scenario's file system is mounted in the guest; the directory of its workload.
pub const MOUNT_POINT: &str = "/mnt";

/// The longest limit of a workload.
const TIME_S_MAX: u64 = 24 * 3600;

/// Most rows of a workload.
const ROWS_MAX: u32 = 10_000_000;

/// Most disks of one guest: each takes a slot of its PCI bus.
const DISKS_MAX: usize = 12;

/// An error in a scenario, as one sentence or as the lines marked by the TOML parser.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct Error {
    /// The file, or the setting.
    pub place: String,
    /// The error there.
    pub what: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its purpose, in one line.
    pub about: String,
    #[serde(default)]
    pub machine: Machine,
    /// The disks, by name; in the guest `/dev/disk/NAME`.
    pub disk: BTreeMap<String, Disk>,
    /// The file system mounted at [`MOUNT_POINT`].
    pub filesystem: FileSystem,
    /// SQLite's settings, for the workload's `{journal_mode}`, `{page_size}` and `{synchronous}`.
    #[serde(default)]
    pub sqlite: Sqlite,
    pub workload: Workload,
    /// How it is recorded.
    #[serde(default)]
    pub record: Record,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Machine {
    pub arch: Arch,
    pub memory: Bytes,
    pub cpus: u32,
    pub accelerator: Accelerator,
    /// A guest that reports nothing for this long is considered hung.
    pub silence: Span,
    /// Ports of this machine forwarded to a guest that is a device.
    #[serde(deserialize_with = "forward::one_or_several", skip_serializing_if = "Vec::is_empty")]
    pub forward: Vec<Forward>,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            arch: Arch::default(),
            memory: Bytes(1 << 30),
            cpus: 2,
            accelerator: Accelerator::Auto,
            silence: Span(120),
            forward: Vec::new(),
        }
    }
}

/// A file system, made and mounted in the guest.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FileSystem {
    #[serde(rename = "type")]
    pub kind: Kind,
    /// The disk that it is on.
    pub disk: String,
    #[serde(default)]
    pub mkfs: Vec<String>,
    /// Mount options, as after `mount -o`.
    #[serde(default)]
    pub mount: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// ext4.
    Ext4,
    /// F2FS.
    F2fs,
    /// XFS.
    Xfs,
    /// btrfs.
    Btrfs,
}

impl Kind {
    /// The name for `mount -t`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::F2fs => "f2fs",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// The program that makes it, and the Debian package that has it.
    pub fn mkfs(self) -> (&'static str, &'static str) {
        match self {
            Self::Ext4 => ("mkfs.ext4", "e2fsprogs"),
            Self::F2fs => ("mkfs.f2fs", "f2fs-tools"),
            Self::Xfs => ("mkfs.xfs", "xfsprogs"),
            Self::Btrfs => ("mkfs.btrfs", "btrfs-progs"),
        }
    }

    /// The smallest disk that Debian 12's mkfs accepts (xfsprogs 6.1, btrfs-progs 6.2); the others report it themselves.
    fn disk_size_min(self) -> Bytes {
        Bytes(match self {
            Self::Ext4 | Self::F2fs => 0,
            Self::Xfs => 300 << 20,
            Self::Btrfs => 110 << 20,
        })
    }

    /// Arguments that mkfs always gets: ask no questions, and leave no initialisation to the kernel, which would run during a
    /// measurement.
    pub fn mkfs_options(self) -> &'static [&'static str] {
        match self {
            Self::Ext4 => &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
            Self::F2fs | Self::Xfs | Self::Btrfs => &["-q", "-f"],
        }
    }

    /// Its modules, including those requested by alias.
    pub fn modules(self) -> &'static [&'static str] {
        match self {
            Self::Ext4 => &[],
            Self::F2fs => &["f2fs", "crc32_generic"],
            Self::Xfs => &["xfs"],
            Self::Btrfs => &["btrfs"],
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sqlite {
    pub journal_mode: JournalMode,
    /// `page_size`, bytes.
    pub page_size: u32,
    pub synchronous: Synchronous,
}

impl Default for Sqlite {
    fn default() -> Self {
        Self { journal_mode: JournalMode::Delete, page_size: 4096, synchronous: Synchronous::Full }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum JournalMode {
    Delete,
    Truncate,
    Persist,
    Memory,
    Wal,
    Off,
}

/// How SQLite waits for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Synchronous {
    Off,
    Normal,
    Full,
    Extra,
}

/// The workload in the guest.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Shell commands, run in sequence until one fails; `fathom` is this program, `{dir}` the mounted directory.
    pub commands: Vec<String>,
    /// The number of rows, for `{rows}`.
    #[serde(default = "rows")]
    pub rows: u32,
    /// Programs of this machine that they need, by name; their shared libraries are added.
    #[serde(default)]
    pub programs: Vec<String>,
    /// How long they may take.
    #[serde(default = "limit")]
    pub limit: Span,
    /// Whether they may fail, as on a disk with errors.
    #[serde(default)]
    pub may_fail: bool,
}

fn rows() -> u32 {
    25
}

fn limit() -> Span {
    Span(300)
}

/// How it is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Record {
    /// The source of events.
    pub backend: Backend,
    /// Further arguments for `fathom record`.
    pub arguments: Vec<String>,
}

impl Default for Record {
    fn default() -> Self {
        Self { backend: Backend::Ebpf, arguments: Vec::new() }
    }
}

/// The source of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// BPF programs.
    Ebpf,
    /// The kernel's trace buffers.
    Ftrace,
}

impl Backend {
    /// The name for `--backend`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ebpf => "ebpf",
            Self::Ftrace => "ftrace",
        }
    }
}

impl Scenario {
    /// Parses and checks a scenario. `place` is the file's name, for errors; each of `settings` is `KEY=VALUE`, with the
    /// parts of the key separated by dots.
    ///
    /// # Errors
    /// Describes what is wrong, and where.
    pub fn parse(place: &str, text: &str, settings: &[String]) -> Result<Self, Error> {
        let wrong = |what: String| Error { place: place.to_string(), what };
        let mut scenario: Self = toml::from_str(text).map_err(|e| wrong(e.to_string().trim_end().to_string()))?;
        scenario.check().map_err(wrong)?;
        let mut table: toml::Table = toml::from_str(text).map_err(|e| wrong(e.to_string()))?;
        for setting in settings {
            let wrong = |what: String| Error { place: format!("--set {setting}"), what };
            value::set_value(&mut table, setting).map_err(wrong)?;
            scenario = table.clone().try_into().map_err(|e: toml::de::Error| wrong(one_line(e.message())))?;
        }
        // Several settings may belong together: for example, renaming a disk and moving the file system to it.
        let last = settings.last().map_or_else(|| place.to_string(), |s| format!("--set {s}"));
        scenario.check().map_err(|what| Error { place: last, what })?;
        Ok(scenario)
    }

    /// The scenario as a file, with defaults filled in.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).unwrap_or_else(|error| format!("# cannot be written as TOML: {error}\n"))
    }

    fn check(&self) -> Result<(), String> {
        if self.about.is_empty() || self.about.contains('\n') {
            return Err("about: expected one line".into());
        }
        if self.disk.is_empty() || self.disk.len() > DISKS_MAX {
            return Err(format!("disk: expected 1 to {DISKS_MAX} disks, each a table [disk.NAME]"));
        }
        for (name, disk) in &self.disk {
            disk_name(name)?;
            disk.check().map_err(|(key, what)| format!("disk.{name}.{key}: {what}"))?;
        }
        for bus in [Bus::Sd, Bus::ScsiDebug] {
            if self.disk.values().filter(|d| d.bus == bus).count() > 1 {
                return Err(format!("disk: a guest has at most one disk of bus {}", bus.name()));
            }
        }
        let held: u64 = self.disk.values().filter(|d| d.bus.qemu().is_none()).map(|d| d.size.0).sum();
        if held > self.machine.memory.0 / 2 {
            return Err(
                "machine.memory: disks in the guest's memory (loop, scsi_debug) need twice their size of it".into()
            );
        }
        if !self.disk.contains_key(&self.filesystem.disk) {
            let names: Vec<&str> = self.disk.keys().map(String::as_str).collect();
            return Err(format!("filesystem.disk: no disk {:?}; there is {}", self.filesystem.disk, names.join(", ")));
        }
        let (kind, size) = (self.filesystem.kind, self.disk[&self.filesystem.disk].size);
        if size.0 < kind.disk_size_min().0 {
            let (least, size) = (String::from(kind.disk_size_min()), String::from(size));
            let disk = &self.filesystem.disk;
            return Err(format!(
                "filesystem.type: {} needs at least {least}, and disk.{disk}.size is {size}",
                kind.name()
            ));
        }
        if self.filesystem.mount.contains(char::is_whitespace) {
            return Err("filesystem.mount: expected options without blanks, such as noatime,commit=60".into());
        }
        if !(1..=ROWS_MAX).contains(&self.workload.rows) {
            return Err(format!("workload.rows: expected 1 to {ROWS_MAX}"));
        }
        if !self.sqlite.page_size.is_power_of_two() || !(512..=65536).contains(&self.sqlite.page_size) {
            return Err("sqlite.page_size: expected a power of two from 512 to 65536".into());
        }
        if !(256 << 20..=64 << 30).contains(&self.machine.memory.0) || !(1..=64).contains(&self.machine.cpus) {
            return Err("machine: expected memory of 256M to 64G and 1 to 64 cpus".into());
        }
        for (key, span) in [("machine.silence", self.machine.silence), ("workload.limit", self.workload.limit)] {
            if !(1..=TIME_S_MAX).contains(&span.0) {
                return Err(format!("{key}: expected a time from 1s to 24h"));
            }
        }
        if self.workload.commands.iter().all(|c| c.trim().is_empty()) {
            return Err("workload.commands: expected at least one command".into());
        }
        self.workload.commands.iter().try_for_each(|command| self.fill_placeholders(command).map(drop))?;
        let program = |name: &&String| name.is_empty() || name.contains(['/', '\0', '\n']);
        if let Some(name) = self.workload.programs.iter().find(program) {
            return Err(format!("workload.programs: {name:?} is not a program name"));
        }
        let taken = ["-o", "--output", "--backend", "--"];
        let given = |word: &&String| taken.iter().any(|t| *word == t || word.starts_with(&format!("{t}=")));
        match self.record.arguments.iter().find(given) {
            Some(word) => Err(format!("record.arguments: {word} is the lab's own; record.backend names the backend")),
            None => Ok(()),
        }
    }

    /// Fills in the placeholders of a workload's command.
    pub(crate) fn fill_placeholders(&self, command: &str) -> Result<String, String> {
        let sqlite = toml::Table::try_from(&self.sqlite).unwrap_or_default();
        let (mut out, mut rest) = (String::new(), command);
        // Only a name in braces is a placeholder: ${HOME} and { a; } are the shell's.
        while let Some(at) = rest.find('{') {
            let (before, from) = rest.split_at(at);
            out.push_str(before);
            let name = from[1..].split('}').next().unwrap_or_default();
            let hole = !before.ends_with('$')
                && from.len() > name.len() + 1
                && !name.is_empty()
                && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            if !hole {
                out.push('{');
                rest = &from[1..];
                continue;
            }
            match (name, sqlite.get(name)) {
                ("dir", _) => out.push_str(MOUNT_POINT),
                ("rows", _) => out.push_str(&self.workload.rows.to_string()),
                (_, Some(toml::Value::String(value))) => out.push_str(value),
                (_, Some(value)) => out.push_str(&value.to_string()),
                (_, None) => {
                    let known = "{dir}, {rows}, {journal_mode}, {page_size}, {synchronous}";
                    return Err(format!("workload.commands: unknown {{{name}}}; expected one of {known}"));
                }
            }
            rest = &from[name.len() + 2..];
        }
        Ok(out + rest)
    }
}

/// Checks that this is a name that every bus accepts as a serial number.
fn disk_name(name: &str) -> Result<(), String> {
    let letters = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    if name.is_empty() || name.len() > 20 || !letters || name == "exchange" {
        return Err(format!("disk.{name}: expected a name of at most 20 small letters and digits, not \"exchange\""));
    }
    Ok(())
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
