//! Names of counts. A contract's file names its counts for people (`fdatasync WAL = 2`); the names are formatted and parsed only here.
//!
//! A name unknown to this version is [`CountName::Other`]: a contract that is newer, or edited by hand, can still be compared.

use model::Call;
use sqlite::FileClass;
use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    Sqlite(FileClass),
    /// Another file of the program.
    File,
    Directory,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountName {
    /// How often a statement ran.
    Executions,
    /// Rows that it returned.
    Rows,
    /// Executions that wrote the database of a WAL.
    Checkpoints,
    /// Flushes of the device's cache.
    Flushes,
    /// Write commands of the device.
    WriteCommands,
    /// A system call, and the kind of file if it is on one.
    Call(Call, Option<FileKind>),
    /// Bytes that calls read from a kind of file, or from all of them.
    BytesRead(Option<FileKind>),
    /// Bytes that calls wrote.
    BytesWritten(Option<FileKind>),
    /// All calls that read (`/proc/PID/io`).
    ReadCalls,
    WriteCalls,
    /// A name unknown to this version.
    Other,
}

impl FileKind {
    fn name(self) -> &'static str {
        match self {
            Self::Sqlite(class) => class.name(),
            Self::File => "file",
            Self::Directory => "directory",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        let classes = FileClass::ALL.into_iter().filter(|class| *class != FileClass::Other).map(Self::Sqlite);
        classes.chain([Self::File, Self::Directory]).find(|kind| kind.name() == name)
    }
}

/// How often a statement ran.
pub const EXECUTIONS: &str = "executions";
/// Rows that it returned.
pub const ROWS: &str = "rows returned";
/// Executions that wrote the database of a WAL.
pub const CHECKPOINTS: &str = "WAL checkpoints";
/// Flushes of the device's cache.
pub const FLUSHES: &str = "flushes";

/// Names without a file.
const NAMES_WITHOUT_FILE: [(CountName, &str); 9] = [
    (CountName::Executions, EXECUTIONS),
    (CountName::Rows, ROWS),
    (CountName::Checkpoints, CHECKPOINTS),
    (CountName::Flushes, FLUSHES),
    (CountName::WriteCommands, "write commands"),
    (CountName::ReadCalls, "read calls"),
    (CountName::WriteCalls, "write calls"),
    (CountName::BytesRead(None), BYTES_READ),
    (CountName::BytesWritten(None), BYTES_WRITTEN),
];
const BYTES_READ: &str = "bytes read";
const BYTES_WRITTEN: &str = "bytes written";

impl CountName {
    pub fn parse(name: &str) -> Self {
        if let Some((fixed, _)) = NAMES_WITHOUT_FILE.iter().find(|(_, known)| *known == name) {
            return *fixed;
        }
        let of = |verb: &str| FileKind::parse(name.strip_prefix(verb)?.strip_prefix(' ')?);
        if let Some(file) = of(BYTES_READ) {
            return Self::BytesRead(Some(file));
        }
        if let Some(file) = of(BYTES_WRITTEN) {
            return Self::BytesWritten(Some(file));
        }
        let call = |word: &str| Call::ALL.iter().copied().find(|call| call.name() == word);
        let found = match name.split_once(' ') {
            Some((word, file)) => {
                call(word).zip(FileKind::parse(file)).map(|(call, file)| Self::Call(call, Some(file)))
            }
            None => call(name).map(|call| Self::Call(call, None)),
        };
        found.unwrap_or(Self::Other)
    }

    /// Returns the kind of file, if the count is for one.
    pub fn file(self) -> Option<FileKind> {
        match self {
            Self::Call(_, file) | Self::BytesRead(file) | Self::BytesWritten(file) => file,
            _ => None,
        }
    }
}

impl fmt::Display for CountName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self {
            Self::Call(call, _) => call.name(),
            Self::BytesRead(_) => BYTES_READ,
            Self::BytesWritten(_) => BYTES_WRITTEN,
            fixed => NAMES_WITHOUT_FILE.iter().find(|(known, _)| known == fixed).map_or("other", |(_, name)| name),
        };
        match self.file() {
            Some(file) => write!(f, "{verb} {}", file.name()),
            None => f.write_str(verb),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_counts_round_trip() {
        let files = FileClass::ALL.into_iter().filter(|class| *class != FileClass::Other).map(FileKind::Sqlite);
        let files: Vec<_> = files.chain([FileKind::File, FileKind::Directory]).map(Some).chain([None]).collect();
        let calls = Call::ALL.iter().flat_map(|call| files.iter().map(|file| CountName::Call(*call, *file)));
        let bytes = files.iter().flat_map(|file| [CountName::BytesRead(*file), CountName::BytesWritten(*file)]);
        for name in calls.chain(bytes).chain(NAMES_WITHOUT_FILE.map(|(fixed, _)| fixed)) {
            assert_eq!(CountName::parse(&name.to_string()), name, "{name}");
        }
        for unknown in ["", "fsync", "fsync sqlite", "bytes", "bytes read other", "open file again"] {
            let call_alone = unknown == "fsync";
            assert_eq!(CountName::parse(unknown) == CountName::Other, !call_alone, "{unknown}");
        }
    }
}
