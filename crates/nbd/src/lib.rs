//! An NBD server library: serve any store as a network block device.
//!
//! A store implements [`Export`]; [`serve`] runs the protocol over any stream (TCP, a Unix socket, a pipe in a test). It
//! implements the newstyle protocol of `doc/proto.md` of the NetworkBlockDevice project: GO, INFO, LIST and the old
//! EXPORT_NAME, STARTTLS, structured replies, `base:allocation`; READ, WRITE, FLUSH, TRIM, WRITE_ZEROES, CACHE and
//! BLOCK_STATUS with FUA, DF, NO_HOLE, REQ_ONE and FAST_ZERO; several connections to one export, replies in any order.
//!
//! It is a separate crate because it can be used on its own: it has no dependency on Fathom. It opens no socket and spawns
//! no task, so it suits both a single-threaded runtime per core and a runtime with work stealing:
//!
//! ```no_run
//! # async fn accept() -> std::io::Result<()> {
//! use nbd::{Single, Tls, memory::Memory};
//! use std::sync::Arc;
//!
//! let exports = Arc::new(Single { name: "trial".into(), export: Memory::new(1 << 30) });
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:10809").await?;
//! loop {
//!     let (stream, _) = listener.accept().await?;
//!     stream.set_nodelay(true)?;
//!     let exports = exports.clone();
//!     tokio::spawn(async move { nbd::serve(stream, &*exports, &Tls::Off).await });
//! }
//! # }
//! ```
//!
//! Not implemented: EXTENDED_HEADERS and RESIZE (experimental in the protocol), metadata contexts other than
//! `base:allocation`, holes in the reply to a read.

// The examples of the README are compiled with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod budget;
pub mod buffer;
#[cfg(feature = "tls")]
pub mod certificates;
mod connection;
mod export;
mod handshake;
pub mod inbox;
pub mod memory;
pub mod outbox;
mod request;
mod tasks;
pub mod wire;

pub use connection::{AdmittedClient, Failure, Tls, handshake, serve};
pub use export::{Error, Export, Exports, Extent, Info, PAYLOAD_BYTES_MAX, Single};
pub use handshake::{Encryption, Violation};
