//! What a benchmark runs.
