//! Whole files, written or read from start to end in blocks: as dd does with one file and a file benchmark with many.
//!
//! An iteration is all of them. A write creates new files each time (the old ones are removed outside the measurement),
//! so that allocation is part of it, as with dd. Data left in the page cache is written back before the next iteration,
//! outside the measured time but inside the disk's account.
//!
//! During the measurement every stamp of every block that is read is checked, one per page; afterwards every byte of
//! the files is checked, read back from the disk if its file system allows eviction.

use super::buffer::Buffer;
use super::directory::{Account, Directory};
use super::files::RunDirectory;
use super::io_error::{self, on};
use super::lines::Lines;
use super::machine::{Jvm, JvmProcess};
use super::pattern::{PAGE_BYTES, Pattern, Template};
use super::state::{Cache, State, evict, open};
use crate::marks::{Series, Writer};
use crate::{Error, check_cancelled};
use model::Context;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Seed of the files' content.
pub(super) const CONTENT_SEED: u64 = 2014;

/// The files, blocks and iterations of a transfer.
#[derive(Debug)]
pub(crate) struct Transfer {
    /// The workload's name, for marks and files.
    pub name: &'static str,
    pub files: u64,
    pub blocks: u64,
    pub block: usize,
    pub writes: bool,
    /// What lies between the program and the disk.
    pub state: State,
    pub iterations: u64,
    /// The option that reduces the amount of data.
    pub remedy: &'static str,
    /// The JVM that transfers the files, if it is not done natively.
    pub machine: Option<Jvm>,
}

impl Transfer {
    /// Bytes per iteration; fails if that overflows, or is zero.
    pub(crate) fn bytes(&self) -> Result<u64, Error> {
        let bytes = self.files.checked_mul(self.blocks).and_then(|n| n.checked_mul(self.block as u64));
        match bytes.filter(|n| i64::try_from(*n).is_ok()) {
            None => Err(Error::Usage(format!("the amount of data is too large ({})", self.remedy))),
            Some(0) => Err(Error::Usage(format!("no data to transfer; each of {} must be at least 1", self.remedy))),
            Some(n) => Ok(n),
        }
    }

    /// Runs it in a directory of its own under `dir`.
    pub(crate) fn run(&self, dir: &Path, context: &Context) -> Result<Lines, Error> {
        let bytes = self.bytes()?;
        let place = Directory::new(dir)?;
        self.state.check_block(self.block as u64, place.logical_block())?;
        place.check_space(bytes, self.remedy)?;
        let directory = RunDirectory::new(place.path(), self.name)?;
        let result = Run { what: self, place: &place, context, pattern: self.pattern() }.execute(&directory, bytes);
        directory.end(result)
    }

    fn pattern(&self) -> Pattern {
        Pattern::stamped(CONTENT_SEED, self.block.min(PAGE_BYTES), self.block.min(1 << 20))
    }

    /// The JVM's arguments.
    fn options(&self) -> [(&'static str, u64); 5] {
        [
            ("--files", self.files),
            ("--blocks", self.blocks),
            ("--block", self.block as u64),
            ("--sync", u64::from(self.state == State::Synced)),
            ("--seed", CONTENT_SEED),
        ]
    }

    fn length(&self) -> u64 {
        self.blocks * self.block as u64
    }
}

/// The start and the duration of a native iteration in a series.
fn start_and_duration((result, start, end): (Result<(), Error>, u64, u64)) -> Result<(u64, u64), Error> {
    result.map(|()| (start, end - start))
}

struct Run<'a> {
    what: &'a Transfer,
    place: &'a Directory,
    context: &'a Context,
    pattern: Pattern,
}

impl Run<'_> {
    fn execute(&self, directory: &RunDirectory, bytes: u64) -> Result<Lines, Error> {
        let what = self.what;
        let mut lines = Lines::default();
        self.place.marks(&mut lines);
        lines.mark("state", format!("{:?}", what.state).to_lowercase());
        lines.work("byte", bytes);
        let mut machine =
            what.machine.as_ref().map(|jvm| JvmProcess::new(jvm, &what.options(), what.block)).transpose()?;
        let marks = Writer::from_environment();
        let mut series =
            Series::new(marks.as_ref(), &format!("{} {}", what.name, if what.writes { "write" } else { "read" }));
        let (mut account, mut cache) = (Account::default(), Cache::default());
        let (mut kept, mut total) = (None, 0);
        if !what.writes {
            let inner = directory.inner("files")?;
            let paths = self.paths(inner.path());
            self.write(&paths, State::Buffered)?;
            self.write_back(&paths)?;
            if what.state == State::Warm {
                self.check_all(&paths)?;
            }
            kept = Some((inner, paths));
        }
        for nth in 0..what.iterations {
            self.context.progress(what.name, nth, what.iterations);
            let before;
            let in_java = machine.is_some();
            let counters = || self.place.counters().map(|c| if in_java { c.without_own() } else { c });
            let result = match &kept {
                Some((_, paths)) if !what.writes => {
                    cache.prepare(what.state, paths)?;
                    before = counters();
                    match &mut machine {
                        Some(machine) => machine.transfer("read", paths),
                        None => start_and_duration(series.around(|| self.read(paths))),
                    }
                }
                _ => {
                    drop(kept.take());
                    let inner = directory.inner(&format!("files-{nth}"))?;
                    let paths = self.paths(inner.path());
                    before = counters();
                    let result = match &mut machine {
                        Some(machine) => machine.transfer("write", &paths),
                        None => start_and_duration(series.around(|| self.write(&paths, what.state))),
                    };
                    kept = Some((inner, paths));
                    result
                }
            };
            let (start, ns) = result?;
            if let Some((_, paths)) = kept.as_ref().filter(|_| what.writes) {
                self.write_back(paths)?;
            }
            account.add(before, counters(), bytes);
            lines.iteration(start, ns);
            total += ns;
        }
        let seconds = total.max(1) as f64 / 1e9;
        lines.sample("bandwidth", "KiB/s", bytes as f64 * what.iterations as f64 / 1024.0 / seconds);
        lines.mark("mode", machine.map_or(Ok("native".into()), JvmProcess::end)?);
        let Some((_, paths)) = &kept else { return Ok(lines) };
        if what.writes {
            // From the disk, not from what the write left in memory. tmpfs keeps its pages, and is its own disk.
            for path in paths {
                File::open(path).and_then(|f| evict(&f)).map_err(on("evict from the page cache", path))?;
            }
        }
        self.check_all(paths)?;
        cache.append_to(what.state, account.read_bytes(), account.requested(), &mut lines);
        account.append_to(what.writes, &mut lines);
        let inside = if what.writes { "" } else { ", the stamps of every block in each iteration" };
        let files = model::counted(paths.len(), "file");
        lines.verified(format!("every byte of {files} of {}{inside}", model::text::size(what.length())));
        Ok(lines)
    }

    fn paths(&self, directory: &Path) -> Vec<PathBuf> {
        (0..self.what.files).map(|n| directory.join(format!("{n:06}"))).collect()
    }

    fn write(&self, paths: &[PathBuf], state: State) -> Result<(), Error> {
        let mut template = Template::new(self.pattern, self.what.block);
        let mut options = state.open_options();
        options.write(true).create_new(true);
        for (nth, path) in paths.iter().enumerate() {
            let file = open(&options, state, path)?;
            for at in self.offsets() {
                check_cancelled(self.context)?;
                let block = template.at(nth as u64 * self.what.length() + at);
                match file.write_at(block, at).map_err(on("write", path))? {
                    n if n == block.len() => {}
                    // Writing the rest gives the reason: a full disk, a limit.
                    n => file.write_all_at(&block[n..], at + n as u64).map_err(on("write", path))?,
                }
            }
            if state == State::Synced {
                file.sync_data().map_err(on("sync", path))?;
            }
        }
        Ok(())
    }

    fn read(&self, paths: &[PathBuf]) -> Result<(), Error> {
        let mut options = self.what.state.open_options();
        options.read(true);
        self.read_with(paths, &options, self.what.state, |offset, block| self.pattern.wrong_stamp(offset, block))
    }

    /// Checks every byte, through the cache.
    fn check_all(&self, paths: &[PathBuf]) -> Result<(), Error> {
        let mut options = State::Warm.open_options();
        options.read(true);
        self.read_with(paths, &options, State::Warm, |offset, block| self.pattern.wrong(offset, block))
    }

    fn read_with(
        &self,
        paths: &[PathBuf],
        options: &std::fs::OpenOptions,
        state: State,
        wrong: impl Fn(u64, &[u8]) -> Option<u64>,
    ) -> Result<(), Error> {
        let mut block = Buffer::new(self.what.block);
        for (nth, path) in paths.iter().enumerate() {
            let first = nth as u64 * self.what.length();
            let file = open(options, state, path)?;
            for at in self.offsets() {
                check_cancelled(self.context)?;
                let got = file.read_at(&mut block, at).map_err(on("read", path))?;
                if got < block.len() {
                    file.read_exact_at(&mut block, at).map_err(|e| match e.kind() {
                        std::io::ErrorKind::UnexpectedEof => {
                            io_error::short_transfer("read", path, at, got, self.what.block)
                        }
                        _ => io_error::failed("read", path, &e),
                    })?;
                }
                if let Some(place) = wrong(first + at, &block) {
                    return Err(io_error::wrong_byte(path, place - first));
                }
            }
        }
        Ok(())
    }

    /// The offsets of the blocks.
    fn offsets(&self) -> impl Iterator<Item = u64> + use<> {
        let block = self.what.block as u64;
        (0..self.what.blocks).map(move |n| n * block)
    }

    /// Writes everything back to the disk: one file by its own sync, many by that of their file system, since a flush for
    /// each of hundreds would take longer than the measurement.
    fn write_back(&self, paths: &[PathBuf]) -> Result<(), Error> {
        let Some(path) = paths.first() else { return Ok(()) };
        let file = File::open(path).map_err(on("open", path))?;
        if paths.len() == 1 {
            return file.sync_all().map_err(on("sync", path));
        }
        // SAFETY: the descriptor is open for the call's duration.
        match unsafe { libc::syncfs(file.as_raw_fd()) } {
            0 => Ok(()),
            _ => Err(io_error::failed("sync the file system of", path, &std::io::Error::last_os_error())),
        }
    }
}
