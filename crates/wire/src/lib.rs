//! Keys, and connections that both ends vouch for.
//!
//! A room of its own because `pool` and `net` both need it and must not know each other.
//!
//! A [`Key`] is a small file that every end has a copy of. With it, a connection is TLS 1.3 in which both ends present a
//! certificate of that one key and accept no other: there is no authority, no name and no date in it, so a device whose clock
//! stands at 1970 is let in, and a stranger is not, whoever vouches for him. Without a key a connection is what it was;
//! whether that is allowed is for the program to ask its user.
//!
//! [`PendingConnections`] keep those who have connected and not yet shown who they are apart from those who are served.
//!
//! Over a stream that is not encrypted, the protocols of this program begin with a capital F, so that an end with a key can tell
//! one without from something else altogether. The other way round, [`stranger`] reads the first bytes of TLS, and
//! [`KEYLESS`] is the answer to it that the other end understands.

mod address;
mod key;
mod pending;
mod pinned;
mod stream;

pub use address::{AddressError, address};
pub use key::{Key, KeyError};
pub use pending::{NotAdmitted, PendingConnection, PendingConnections};
pub use stream::{KEYLESS, LIMIT, Refused, Stream, accept, connect, stranger};
