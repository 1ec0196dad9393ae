//! What is served: the trait that a store implements, and the words it is described by.

use bytes::{Bytes, BytesMut};
use std::future::Future;

/// A request's longest payload, and so the longest read or write. What Linux and QEMU assume of a server that does not state it.
pub const MAX_PAYLOAD: u32 = 32 << 20;

/// Why a request failed: the errors that the protocol has, and no others.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// EPERM: a write to an export that is read-only.
    #[error("not permitted")]
    Permission,
    /// EIO: the medium failed, or holds damaged data.
    #[error("the medium failed")]
    Io,
    /// EIO, and what happened: sent to clients that take structured replies, at most 4,096 bytes of it.
    #[error("{0}")]
    Because(String),
    /// ENOMEM.
    #[error("the server has no memory left")]
    Memory,
    /// EINVAL: the request makes no sense.
    #[error("invalid request")]
    Invalid,
    /// ENOSPC: a write beyond the end, or a full medium.
    #[error("no space left, or the range ends beyond the export")]
    NoSpace,
    /// ENOTSUP.
    #[error("not supported")]
    Unsupported,
    /// ESHUTDOWN.
    #[error("the server is shutting down")]
    Shutdown,
}

impl Error {
    /// The protocol's number for it.
    pub fn number(&self) -> u32 {
        match self {
            Self::Permission => 1,
            Self::Io | Self::Because(_) => 5,
            Self::Memory => 12,
            Self::Invalid => 22,
            Self::NoSpace => 28,
            Self::Unsupported => 95,
            Self::Shutdown => 108,
        }
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        use std::io::ErrorKind;
        match error.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Self::Permission,
            ErrorKind::OutOfMemory => Self::Memory,
            ErrorKind::InvalidInput => Self::Invalid,
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => Self::NoSpace,
            ErrorKind::Unsupported => Self::Unsupported,
            _ => Self::Io,
        }
    }
}

/// What an export is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    /// Bytes.
    pub size_bytes: u64,
    /// A line for people.
    pub description: String,
    /// Requests must begin and end on a multiple of this (a power of two, 1 to 65,536).
    pub block_min_bytes: u32,
    /// Requests of multiples of this are served best (a power of two, 512 at least).
    pub block_preferred_bytes: u32,
    /// Writes are refused.
    pub read_only: bool,
    /// A flush through one connection covers what others were answered before it.
    pub multi_connection: bool,
    /// Seeks cost.
    pub rotational: bool,
    /// TRIM does something.
    pub trim: bool,
    /// Zeroes are written faster than data.
    pub fast_zero: bool,
}

impl Info {
    /// A plain disk: byte-granular, best in 4 KiB, writable, one connection's flush covers all.
    pub fn disk(size_bytes: u64) -> Self {
        Self {
            size_bytes,
            description: String::new(),
            block_min_bytes: 1,
            block_preferred_bytes: 4096,
            read_only: false,
            multi_connection: true,
            rotational: false,
            trim: true,
            fast_zero: false,
        }
    }
}

/// A stretch of an export, for `base:allocation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Bytes.
    pub length: u32,
    /// Takes no space.
    pub hole: bool,
    /// Reads as zeroes.
    pub zero: bool,
}

impl Extent {
    pub(crate) fn flags(self) -> u32 {
        u32::from(self.hole) | u32::from(self.zero) << 1
    }
}

/// A store that is served.
///
/// Ranges are checked before they come here: they are not empty, end within the export, keep to its block size, and are
/// no longer than [`MAX_PAYLOAD`] where data travels. Requests run beside one another; the client gets each answer when it
/// is there, in whatever order. `durable` (FUA) and [`Export::flush`] return when the data is on the medium, and a flush
/// covers every write that was answered before it was asked.
///
/// A store that has an answer at hand gives it in [`Export::read_now`] or [`Export::write_now`], on the spot; then a request
/// costs no task and its data one copy.
pub trait Export {
    /// What it is.
    fn info(&self) -> &Info;

    /// Appends exactly `length` bytes to `out` if that needs no waiting; `None` sends the request to [`Export::read`]. What is
    /// appended beside an error or `None` is taken back.
    fn read_now(&self, offset: u64, length: u32, out: &mut BytesMut) -> Option<Result<(), Error>> {
        let _ = (offset, length, out);
        None
    }

    /// Writes if that needs no waiting; `None` sends the request to [`Export::write`].
    fn write_now(&self, offset: u64, data: &[u8], durable: bool) -> Option<Result<(), Error>> {
        let _ = (offset, data, durable);
        None
    }

    /// Reads exactly `length` bytes; any other number is answered as EIO.
    fn read(&self, offset: u64, length: u32) -> impl Future<Output = Result<Bytes, Error>>;

    /// As [`Export::read`], in as many parts as the store has it: large ones leave as they are, without a copy.
    fn read_parts(&self, offset: u64, length: u32) -> impl Future<Output = Result<Vec<Bytes>, Error>> {
        async move { Ok(vec![self.read(offset, length).await?]) }
    }

    /// Writes.
    fn write(&self, offset: u64, data: Bytes, durable: bool) -> impl Future<Output = Result<(), Error>>;

    /// Makes durable what was answered.
    fn flush(&self) -> impl Future<Output = Result<(), Error>>;

    /// The range's content is no longer needed; it may be the whole export.
    fn trim(&self, offset: u64, length: u32, durable: bool) -> impl Future<Output = Result<(), Error>>;

    /// The range shall read as zeroes; it may be the whole export. `allocate`: it must take space. `fast`: answer
    /// [`Error::Unsupported`] at once rather than be as slow as a write.
    fn write_zeroes(
        &self,
        offset: u64,
        length: u32,
        durable: bool,
        allocate: bool,
        fast: bool,
    ) -> impl Future<Output = Result<(), Error>>;

    /// The range will be read soon.
    fn cache(&self, offset: u64, length: u32) -> impl Future<Output = Result<(), Error>> {
        let _ = (offset, length);
        async { Ok(()) }
    }

    /// What the range holds, from `offset` on: at least one extent of at least one byte; later ones may be left out. Without
    /// better knowledge, everything is data.
    fn extents(&self, offset: u64, length: u32) -> impl Future<Output = Result<Vec<Extent>, Error>> {
        let _ = offset;
        async move { Ok(vec![Extent { length, hole: false, zero: false }]) }
    }
}

/// The exports that a server has, by name.
pub trait Exports {
    /// What one of them is.
    type Export: Export;

    /// The export of that name; the empty name asks for the default one.
    fn find(&self, name: &str) -> Option<&Self::Export>;

    /// The names, for LIST.
    fn names(&self) -> Vec<String>;
}

/// One export under one name, which is also the default.
#[derive(Debug, Clone)]
pub struct Single<E> {
    /// Its name; may be empty.
    pub name: String,
    /// The export.
    pub export: E,
}

impl<E: Export> Exports for Single<E> {
    type Export = E;

    fn find(&self, name: &str) -> Option<&E> {
        (name.is_empty() || name == self.name).then_some(&self.export)
    }

    fn names(&self) -> Vec<String> {
        vec![self.name.clone()]
    }
}
