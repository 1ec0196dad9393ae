//! A design: blocks, replicates, samples.
