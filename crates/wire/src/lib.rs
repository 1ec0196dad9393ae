//! Keys, and connections that both ends vouch for.
