//! The trait that a store implements, and the types that describe it.

use bytes::{Bytes, BytesMut};
use std::future::Future;

/// The maximum payload of a request, and so the maximum read or write. Linux and QEMU assume this value if a server does
/// not announce one.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;

/// Why a request failed: exactly the errors of the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// EPERM: a write to a read-only export.
    #[error("not permitted")]
    Permission,
    /// EIO: the medium failed, or has damaged data.
    #[error("the medium failed")]
    Io,
    /// EIO with a message: sent to clients with structured replies, at most 4,096 bytes of it.
    #[error("{0}")]
    Because(String),
    /// ENOMEM.
    #[error("the server is out of memory")]
    Memory,
    /// EINVAL: the request is invalid.
    #[error("invalid request")]
    Invalid,
    /// ENOSPC: a write beyond the end, or a full medium.
    #[error("no space left, or the range ends beyond the export")]
    NoSpace,
    /// ENOSPC with a message, as [`Error::Because`].
    #[error("{0}")]
    NoSpaceBecause(String),
    /// ENOTSUP.
    #[error("not supported")]
    Unsupported,
    /// ESHUTDOWN.
    #[error("the server is shutting down")]
    Shutdown,
}

impl Error {
    /// The error number in the protocol.
    pub fn number(&self) -> u32 {
        match self {
            Self::Permission => 1,
            Self::Io | Self::Because(_) => 5,
            Self::Memory => 12,
            Self::Invalid => 22,
            Self::NoSpace | Self::NoSpaceBecause(_) => 28,
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

/// The properties of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    pub size_bytes: u64,
    /// A description in one line.
    pub description: String,
    /// Requests must begin and end at a multiple of this (a power of two, 1 to 65,536).
    pub block_min_bytes: u32,
    /// Requests of multiples of this are fastest (a power of two, at least 512).
    pub block_preferred_bytes: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether a flush on one connection covers earlier replies on the others.
    pub multi_connection: bool,
    /// Whether seeks are expensive.
    pub rotational: bool,
    /// Whether TRIM has an effect.
    pub trim: bool,
    /// Whether writing zeroes may be faster than writing data: only then clients are offered to ask for that.
    pub fast_zero: bool,
}

impl Info {
    /// The properties of a plain disk: byte-granular, fastest in units of 4 KiB, writable, and a flush on one connection covers all.
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

/// A part of an export, for `base:allocation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Bytes.
    pub length: u32,
    /// Whether it takes no space.
    pub hole: bool,
    /// Whether it reads as zeroes.
    pub zero: bool,
}

impl Extent {
    pub(crate) fn flags(self) -> u32 {
        u32::from(self.hole) | u32::from(self.zero) << 1
    }
}

/// A served store.
///
/// Ranges are validated before: they are not empty, end within the export, respect its block size, and are no longer than
/// [`PAYLOAD_BYTES_MAX`] where data is transferred. Requests run concurrently; the client gets each reply when it is ready, in
/// any order. `durable` (FUA) and [`Export::flush`] return when the data is on the medium, and a flush covers every write
/// that was answered before it was requested.
///
/// A store that can answer without waiting does so in [`Export::read_now`] or [`Export::write_now`]; then a request needs
/// no task and its data only one copy.
pub trait Export {
    fn info(&self) -> &Info;

    /// Appends exactly `length` bytes to `out` if that is possible without waiting; `None` passes the request to
    /// [`Export::read`]. Bytes appended before an error or `None` are removed.
    fn read_now(&self, offset: u64, length: u32, out: &mut BytesMut) -> Option<Result<(), Error>> {
        let _ = (offset, length, out);
        None
    }

    /// Writes if that is possible without waiting; `None` passes the request to [`Export::write`].
    fn write_now(&self, offset: u64, data: &[u8], durable: bool) -> Option<Result<(), Error>> {
        let _ = (offset, data, durable);
        None
    }

    /// Reads exactly `length` bytes; any other number is reported as EIO.
    fn read(&self, offset: u64, length: u32) -> impl Future<Output = Result<Bytes, Error>>;

    /// As [`Export::read`], in any number of parts: large ones are sent without a copy.
    fn read_parts(&self, offset: u64, length: u32) -> impl Future<Output = Result<Vec<Bytes>, Error>> {
        async move { Ok(vec![self.read(offset, length).await?]) }
    }

    fn write(&self, offset: u64, data: Bytes, durable: bool) -> impl Future<Output = Result<(), Error>>;

    fn flush(&self) -> impl Future<Output = Result<(), Error>>;

    /// The range's content is no longer needed; it may be the whole export.
    fn trim(&self, offset: u64, length: u32, durable: bool) -> impl Future<Output = Result<(), Error>>;

    /// Zeroes the range, which may be the whole export. `allocate`: it must occupy space. `fast`: return
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

    /// The allocation of the range, starting at `offset`: at least one extent of at least one byte; later ones may be
    /// omitted. By default, everything is data.
    fn extents(&self, offset: u64, length: u32) -> impl Future<Output = Result<Vec<Extent>, Error>> {
        let _ = offset;
        async move { Ok(vec![Extent { length, hole: false, zero: false }]) }
    }
}

/// The exports of a server, by name.
pub trait Exports {
    /// The type of an export.
    type Export: Export;

    /// The export with this name; the empty name selects the default one.
    fn find(&self, name: &str) -> Option<&Self::Export>;

    /// The names, for LIST.
    fn names(&self) -> Vec<String>;
}

/// One export under one name, which is also the default.
#[derive(Debug, Clone)]
pub struct Single<E> {
    /// Its name; may be empty.
    pub name: String,
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
