//! Pools on a simulated network: faults of the network, killed nodes and a second coordinator, controlled by seeds.
//!
//! `FATHOM_SEEDS=200` runs each scenario with this many seeds, `PROPTEST_CASES=1000` runs as many models.

mod faults;
mod model;
mod world;
