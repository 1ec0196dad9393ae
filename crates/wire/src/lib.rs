//! Keys, and mutually authenticated connections.
//!
//! A separate crate because `pool` and `net` both need it and must not depend on each other.
//!
//! A [`Key`] is a small file that every end has a copy of. With it, a connection uses TLS 1.3 in which both ends present a
//! certificate of that key and accept no other: there is no authority, no name and no date in it, so a device whose clock
//! is at 1970 is accepted, and a stranger is not, whatever certificates it has. Without a key a connection is unencrypted;
//! the program decides with its user whether that is allowed.
//!
//! [`PendingConnections`] keeps unauthenticated connections apart from those being served.
//!
//! On an unencrypted stream, the protocols of this program begin with a capital F, so that an end with a key can
//! distinguish a peer without one from other protocols. In the other direction, [`classify_stranger`] recognises the first bytes of
//! TLS, and [`KEYLESS_ALERT`] is the response that the other end understands.

mod address;
mod key;
mod pending;
mod pinned;
mod stream;

pub use address::{AddressError, address};
pub use key::{Key, KeyError};
pub use pending::{NotAdmitted, PendingConnection, PendingConnections};
pub use stream::{
    AUTHENTICATION_TIMEOUT, AuthenticationError, KEYLESS_ALERT, Stream, accept, classify_stranger, connect,
};
