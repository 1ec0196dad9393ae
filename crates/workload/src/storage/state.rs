//! What lies between the program and the disk: the page cache, in a state that is set up before each iteration and
//! verified, not assumed.
//!
//! Reads:
//! - `warm`: the file was read before; the disk is not involved if it fits into memory.
//! - `cold`: the file's own pages are evicted before each iteration (posix_fadvise DONTNEED, needs no root). The file's
//!   metadata in the kernel (inode, extents) stays.
//! - `dropped`: all pages, directory entries and inodes are dropped (/proc/sys/vm/drop_caches, needs root).
//! - `direct`: O_DIRECT, bypassing the cache.
//!
//! Writes:
//! - `buffered`: only into the page cache. The disk gets the data later, outside the measurement: this is what an
//!   unsynced benchmark shows.
//! - `synced`: as buffered, with fdatasync at the end, inside the measurement.
//! - `each`: fdatasync after every write.
//! - `direct`: O_DIRECT. The disk has acknowledged each write, perhaps from its own volatile cache.
//!
//! Whether pages are evicted is queried from the kernel (cachestat, Linux 6.5; otherwise mincore), after each eviction.
//! A file system that *is* the cache (tmpfs) keeps them: that is reported, not hidden.

use super::io_error::{self, on};
use super::lines::Lines;
use crate::Error;
use crate::options::Options;
use model::text::ShownPath as _;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The values of `--state`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Warm,
    Cold,
    Dropped,
    Direct,
    Buffered,
    Synced,
    Each,
}

pub(crate) const READ_STATES: &[&str] = &["cold", "dropped", "direct", "warm"];
const DROP_CACHES_PATH: &str = "/proc/sys/vm/drop_caches";

impl State {
    /// Parses `--op` (whether it writes) and `--state`, which must be one of the operation's; by default the first of
    /// them.
    pub(crate) fn parse(options: &Options, write_states: &[&'static str]) -> Result<(bool, Self), Error> {
        let writes = options.one_of("op", &["read", "write"])? == "write";
        let allowed = if writes { write_states } else { READ_STATES };
        let name = match options.text("state") {
            "" => allowed[0],
            _ => options.one_of("state", allowed)?,
        };
        let state = match name {
            "warm" => Self::Warm,
            "cold" => Self::Cold,
            "dropped" => Self::Dropped,
            "direct" => Self::Direct,
            "synced" => Self::Synced,
            "each" => Self::Each,
            _ => Self::Buffered,
        };
        Ok((writes, state))
    }

    /// Whether a read in this state must come from the disk.
    pub(crate) fn reads_disk(self) -> bool {
        matches!(self, Self::Cold | Self::Dropped | Self::Direct)
    }

    /// Options for opening a file in this state.
    pub(crate) fn open_options(self) -> OpenOptions {
        let mut options = OpenOptions::new();
        if self == Self::Direct {
            options.custom_flags(libc::O_DIRECT);
        }
        options
    }

    /// Fails if O_DIRECT does not support such blocks.
    pub(crate) fn check_block(self, block: u64, logical: Option<u64>) -> Result<(), Error> {
        match logical {
            Some(logical) if self == Self::Direct && !block.is_multiple_of(logical) => Err(Error::Failed(format!(
                "O_DIRECT does not support blocks of {block} bytes: this disk has blocks of {logical} bytes, and \
                 O_DIRECT needs multiples of them (--block, --align; --state cold takes any)"
            ))),
            _ => Ok(()),
        }
    }
}

/// Opens a file in a state; the error for a file system without O_DIRECT names it.
pub(crate) fn open(options: &OpenOptions, state: State, path: &Path) -> Result<File, Error> {
    options.open(path).map_err(|e| match e.raw_os_error() {
        Some(libc::EINVAL) if state == State::Direct => Error::Failed(format!(
            "cannot open {} with O_DIRECT: its file system does not support it (use --state cold, or synced)",
            path.shown()
        )),
        _ => io_error::failed("open", path, &e),
    })
}

/// How the states were set up so far, and what was found then.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    /// Pages in the cache at the start of an iteration, in the worst case (`warm`: the best case), and their total.
    found: Option<(u64, u64)>,
    how: &'static str,
    unknown: Option<String>,
}

impl Cache {
    /// Sets up the state for the files before an iteration of reads.
    pub(crate) fn prepare<P: AsRef<Path>>(&mut self, state: State, files: &[P]) -> Result<(), Error> {
        let mut now = (0, 0);
        if state == State::Dropped {
            drop_caches()?;
        }
        for path in files {
            let path = path.as_ref();
            let file = File::open(path).map_err(on("open", path))?;
            if matches!(state, State::Cold | State::Dropped | State::Direct) {
                evict(&file).map_err(on("evict from the page cache", path))?;
            }
            match cached_pages(&file) {
                Ok((pages, of, how)) => {
                    now = (now.0 + pages, now.1 + of);
                    self.how = how;
                }
                Err(e) => self.unknown = Some(e.to_string()),
            }
        }
        self.found = Some(match self.found {
            Some(before) if (before.0 > now.0) != (state == State::Warm) => before,
            _ => now,
        });
        Ok(())
    }

    /// Writes the marks `cache` and, if it is not as requested, `cache.doubt`.
    pub(crate) fn append_to(&self, state: State, read: Option<u64>, requested: u64, lines: &mut Lines) {
        let Some((pages, of)) = self.found else { return };
        let made = match state {
            State::Warm => "warm: read before",
            State::Cold => "cold: posix_fadvise(DONTNEED) before each iteration",
            State::Dropped => "dropped: drop_caches before each iteration",
            _ => "direct: O_DIRECT",
        };
        match &self.unknown {
            Some(why) => lines.mark("cache", format!("{made}; what the cache held is unknown: {why}")),
            None => lines.mark("cache", format!("{made}; {pages} of {of} pages in the cache then ({})", self.how)),
        }
        // A read of less than a page fetches the page; so at least the requested bytes must have been read. A tenth is
        // allowed for offsets that were read twice in one iteration.
        let doubt = if state.reads_disk() {
            match read {
                _ if pages > 0 && state != State::Direct => Some(format!("{pages} pages could not be evicted")),
                Some(read) if read < requested - requested / 10 => {
                    Some(format!("the disk read {read} bytes for {requested} requested"))
                }
                None => Some("the disk's counters are not known".into()),
                _ => None,
            }
        } else {
            (state == State::Warm && pages < of).then(|| "the file is not all in the cache; it may not fit".into())
        };
        if let Some(doubt) = doubt {
            lines.mark("cache.doubt", doubt);
        }
    }
}

/// Evicts a file's pages from the page cache. Only clean ones can be evicted, so it is synced first.
pub(crate) fn evict(file: &File) -> std::io::Result<()> {
    file.sync_data().or_else(|e| match e.raw_os_error() {
        // Opened for reading on a file system that cannot sync such files.
        Some(libc::EINVAL | libc::EROFS) => Ok(()),
        _ => Err(e),
    })?;
    // SAFETY: the descriptor is open for the call's duration.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        error => Err(std::io::Error::from_raw_os_error(error)),
    }
}

fn drop_caches() -> Result<(), Error> {
    std::fs::write(DROP_CACHES_PATH, "3").map_err(|e| match e.kind() {
        std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => Error::Failed(format!(
            "--state dropped writes to {DROP_CACHES_PATH}, which needs root (and a machine of your own): {e}; --state cold \
             evicts only the file's own pages and needs no root"
        )),
        _ => io_error::failed("drop the caches through", Path::new(DROP_CACHES_PATH), &e),
    })
}

/// Pages of a file in the page cache, their total, and how that is known.
fn cached_pages(file: &File) -> std::io::Result<(u64, u64, &'static str)> {
    // SAFETY: takes no pointers.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(1) as u64;
    let length = file.metadata()?.len();
    let pages = length.div_ceil(page);
    if pages == 0 {
        return Ok((0, 0, "empty"));
    }
    // The same number on every architecture (it is in the common table).
    const SYS_CACHESTAT: libc::c_long = 451;
    let (range, mut found) = ([0_u64, length], [0_u64; 5]);
    // SAFETY: struct cachestat_range is two u64, struct cachestat five (uapi/linux/mman.h); both live through the call.
    let result = unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), range.as_ptr(), found.as_mut_ptr(), 0) };
    if result == 0 {
        return Ok((found[0], pages, "cachestat"));
    }
    let size = usize::try_from(length).map_err(std::io::Error::other)?;
    let mut map = vec![0_u8; pages as usize];
    // SAFETY: a new mapping at the kernel's choice, unmapped below, never dereferenced.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), size, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if at == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the mapping just made, and a byte for each of its pages.
    let result = unsafe { libc::mincore(at, size, map.as_mut_ptr().cast()) };
    let error = std::io::Error::last_os_error();
    // SAFETY: as above.
    unsafe { libc::munmap(at, size) };
    if result != 0 {
        return Err(error);
    }
    Ok((map.iter().filter(|b| **b & 1 == 1).count() as u64, pages, "mincore"))
}

#[cfg(test)]
mod tests {
    use super::super::testing::Scratch;
    use super::*;

    #[test]
    fn blocks_unaligned_for_o_direct_are_refused() {
        assert!(State::Direct.check_block(1, Some(512)).is_err());
        assert!(State::Direct.check_block(4096, Some(512)).is_ok());
        assert!(State::Cold.check_block(1, Some(512)).is_ok());
        assert!(State::Direct.check_block(1, None).is_ok(), "the kernel will tell");
    }

    /// Works on any temporary directory: a disk file system drops its pages, tmpfs does not, and both are detected.
    #[test]
    fn cached_pages_are_counted() {
        let scratch = Scratch::new("state");
        let path = scratch.path().join("x");
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        let file = File::open(&path).unwrap();
        let (pages, of, how) = cached_pages(&file).unwrap();
        assert_eq!((pages, of), (256, 256), "{how}");
        evict(&file).unwrap();
        let left = cached_pages(&file).unwrap().0;
        let mut cache = Cache::default();
        cache.prepare(State::Cold, &[&path]).unwrap();
        assert_eq!(cache.found, Some((left, 256)));
        let mut lines = Lines::default();
        cache.append_to(State::Cold, Some(1 << 20), 1 << 20, &mut lines);
        assert_eq!(String::from_utf8_lossy(lines.bytes()).contains("cache.doubt"), left > 0);
    }

    #[test]
    fn cold_read_that_never_reached_the_disk_is_doubted() {
        let cache = Cache { found: Some((0, 256)), how: "cachestat", unknown: None };
        for (state, read, doubted) in [
            (State::Cold, Some(1 << 20), false),
            (State::Cold, Some(1 << 19), true),
            (State::Cold, None, true),
            (State::Direct, Some(0), true),
            (State::Warm, Some(0), true),
        ] {
            let mut lines = Lines::default();
            cache.append_to(state, read, 1 << 20, &mut lines);
            assert_eq!(String::from_utf8_lossy(lines.bytes()).contains("cache.doubt"), doubted, "{state:?} {read:?}");
        }
    }
}
