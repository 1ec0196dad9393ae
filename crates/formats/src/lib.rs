//! Foreign traces, both ways; pure.
