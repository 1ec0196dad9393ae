//! Recognises the kind of a trace by its content, never by its name, and turns each kind into events.

use crate::{Error, ErrorContext, Result};
use formats::ftrace::calls::Machine;
use formats::ftrace::content::{ReadError, TraceContent};
use formats::ftrace::decoder::Kind;
use formats::ftrace::run::{self, Summary, TraceBuffer};
use formats::ftrace::text;
use formats::ftrace::translate::TraceContext;
use formats::tracedat::{self, TraceDat};
use formats::{blktrace, perfetto};
use model::Event;
use model::text::ShownPath as _;
use std::path::{Path, PathBuf};

/// The supported kinds, for error messages.
const SUPPORTED_FORMATS: &str = "not a trace that Fathom can import; supported: trace.dat of trace-cmd (versions 6 and 7), Perfetto traces with \
    ftrace events, ftrace as text (tracefs's `trace`, `trace-cmd report`, `perf script`), and blktrace's binary files";

/// A trace, read as far as its kind needs.
pub(crate) struct Foreign<'a> {
    content: ForeignContent<'a>,
    trace_context: TraceContext,
    /// The kind of file.
    pub format: String,
    /// The kernel that was traced, if known.
    pub release: Option<String>,
    /// What the user should know about how it was read.
    pub notes: Vec<String>,
}

enum ForeignContent<'a> {
    Pages(TraceDat<'a>, Vec<TraceBuffer<'a>>),
    Gathered(TraceContent),
}

/// The magic of `perf record`'s files. Their event descriptions differ from ftrace's; the output of `perf script` can be read.
const PERF_MAGIC: &[u8] = b"PERFILE2";

/// Returns the file, and those that belong to it: blktrace writes one for each CPU, and several disks can be one trace.
pub(crate) fn read_files(named: &[PathBuf]) -> Result<Vec<Vec<u8>>> {
    let mut paths: Vec<PathBuf> = Vec::new();
    let mut alone = Vec::new();
    for file in std::collections::BTreeSet::from_iter(named) {
        let bytes = read_file(file)?;
        let is_blktrace = blktrace::is(&bytes);
        if named.len() > 1 && !is_blktrace && !bytes.is_empty() {
            let why = "several files are one trace only if blktrace made them; import each by itself".into();
            return Err(Error::Foreign { file: file.clone(), why });
        }
        let siblings = if is_blktrace || bytes.is_empty() { sibling_files(file) } else { Vec::new() };
        if siblings.is_empty() {
            alone.push(bytes);
        } else {
            paths.extend(siblings);
        }
    }
    // A shell's `sda.blktrace.*` names each of them.
    paths.sort();
    paths.dedup();
    paths.iter().map(|path| read_file(path)).chain(alone.into_iter().map(Ok)).collect()
}

/// Reads a file of any kind, decompressed if `gzip` made it.
fn read_file(file: &Path) -> Result<Vec<u8>> {
    if file.is_dir() {
        let why = if archive::Meta::read(file).is_ok() {
            format!("an archive already: `fathom show {}`", file.shown())
        } else {
            "a directory; name the file in it".into()
        };
        return Err(Error::Foreign { file: file.to_owned(), why });
    }
    let bytes = std::fs::read(file).doing(|| format!("reading {}", file.shown()))?;
    if perfetto::ftrace::is_gzip(&bytes) {
        perfetto::ftrace::gunzip(&bytes)
            .map_err(|error| Error::Foreign { file: file.to_owned(), why: error.to_string() })
    } else {
        Ok(bytes)
    }
}

/// Returns `DEV.blktrace.0`, `DEV.blktrace.1`, … next to one of them, including itself.
fn sibling_files(file: &Path) -> Vec<PathBuf> {
    let stem = |path: &Path| {
        let (stem, cpu) = path.file_name()?.to_str()?.rsplit_once('.')?;
        (stem.ends_with(".blktrace") && cpu.parse::<u16>().is_ok()).then(|| stem.to_owned())
    };
    let Some(own) = stem(file) else { return Vec::new() };
    let directory = file.parent().unwrap_or(Path::new(""));
    let listed = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let entries =
        std::fs::read_dir(listed).into_iter().flatten().flatten().map(|entry| directory.join(entry.file_name()));
    let all: Vec<PathBuf> = entries.filter(|path| stem(path).as_ref() == Some(&own)).collect();
    all
}

impl<'a> Foreign<'a> {
    /// Opens a trace of any kind; `machine`: the architecture of its system calls, overriding what the trace contains.
    pub fn open(files: &'a [Vec<u8>], file: &Path, machine: Option<Machine>) -> Result<Self> {
        let refuse = |why: String| Error::Foreign { file: file.to_owned(), why };
        let bytes = files.first().map(Vec::as_slice).unwrap_or_default();
        if files.iter().all(Vec::is_empty) {
            return Err(refuse("an empty file".into()));
        }
        if bytes.starts_with(PERF_MAGIC) {
            let name = file.shown();
            return Err(refuse(format!(
                "perf's own file; import the file that `perf script -i {name} >{name}.txt` writes"
            )));
        }
        if tracedat::is(bytes) {
            let trace = TraceDat::parse(bytes).map_err(|e| refuse(e.to_string()))?;
            return Self::from_pages(trace, machine).map_err(refuse);
        }
        let gathered = gather_events(files, bytes).map_err(|e| refuse(e.to_string()))?;
        Ok(Self::from_gathered(gathered, machine))
    }

    fn from_pages(trace: TraceDat<'a>, requested_machine: Option<Machine>) -> std::result::Result<Self, String> {
        let parts = run::trace_buffers(&trace).map_err(|e| e.to_string())?;
        let machine = trace.uname.split_whitespace().rev().find_map(Machine::from_uname);
        let trace_context = trace_context(requested_machine.or(machine), trace.names.clone());
        let format = format!("trace.dat version {} of trace-cmd", trace.version);
        let release = trace.uname.split_whitespace().nth(2).map(str::to_owned);
        Ok(Self { content: ForeignContent::Pages(trace, parts), trace_context, format, release, notes: Vec::new() })
    }

    fn from_gathered(mut gathered: TraceContent, requested_machine: Option<Machine>) -> Self {
        let pairs = |map: &std::collections::BTreeMap<u32, u32>| map.iter().map(|(a, b)| (*a, *b)).collect();
        let machine = requested_machine.or(gathered.machine);
        let trace_context = TraceContext {
            tasks: pairs(&gathered.tasks),
            members: pairs(&gathered.members),
            ..trace_context(machine, std::mem::take(&mut gathered.names).into_iter().collect())
        };
        let mut notes = std::mem::take(&mut gathered.notes);
        let calls = gathered.events.iter().any(
            |next| matches!(next, formats::ftrace::merge::TraceItem::DecodedEvent(seen) if seen.kind == Kind::SysEnter),
        );
        if machine.is_none() && calls {
            notes.push(
                "it does not name its machine: system call numbers are read as those of x86_64; `--machine aarch64` changes that"
                    .into(),
            );
        }
        let (format, release) = (gathered.format.clone(), gathered.release.clone());
        Self { content: ForeignContent::Gathered(gathered), trace_context, format, release, notes }
    }

    /// Passes its events to `sink`.
    pub fn run(&self, sink: &mut dyn FnMut(&Event)) -> Summary {
        match &self.content {
            ForeignContent::Pages(trace, parts) => {
                run::translate_buffers(parts, &self.trace_context, &trace.stats, sink)
            }
            ForeignContent::Gathered(gathered) => run::translate_content(gathered, &self.trace_context, sink),
        }
    }
}

fn trace_context(machine: Option<Machine>, names: Vec<(u32, String)>) -> TraceContext {
    TraceContext { names, ..TraceContext::for_machine(machine.unwrap_or(Machine::X86_64)) }
}

/// blktrace's and Perfetto's files have unique beginnings; text may begin with anything.
fn gather_events(files: &[Vec<u8>], bytes: &[u8]) -> std::result::Result<TraceContent, ReadError> {
    let all: Vec<&[u8]> = files.iter().map(Vec::as_slice).collect();
    if all.iter().any(|bytes| blktrace::is(bytes)) {
        return blktrace::read(&all);
    }
    if text::is(bytes) {
        text::read(bytes)
    } else if perfetto::ftrace::is(bytes) {
        perfetto::ftrace::read(bytes)
    } else {
        Err(ReadError::Empty(SUPPORTED_FORMATS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file as `gzip` writes it, of one stored block.
    fn zipped(bytes: &[u8]) -> Vec<u8> {
        let [low, high] = (bytes.len() as u16).to_le_bytes();
        let head = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1, low, high, !low, !high];
        [&head[..], bytes, &[0; 8]].concat()
    }

    #[test]
    fn any_kind_of_file_may_be_zipped() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("x.gz");
        for bytes in [&b"\x17\x08\x44tracing7\0"[..], b"a-1 [000] 5.000009: kmalloc: x\n", PERF_MAGIC, b"no trace"] {
            std::fs::write(&file, zipped(bytes)).unwrap();
            assert_eq!(read_file(&file).unwrap(), bytes);
        }
        std::fs::write(&file, &zipped(b"cut off")[..18]).unwrap();
        assert!(matches!(read_file(&file), Err(Error::Foreign { .. })));
    }
}
