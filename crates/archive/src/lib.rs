//! NAME.fathom/: the only result format.
