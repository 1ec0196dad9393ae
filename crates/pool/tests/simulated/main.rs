//! Pools on a simulated network: what a network, a node that dies and a second coordinator may do to one, with seeds.
//!
//! `FATHOM_SEEDS=200` runs each scenario with so many seeds, `PROPTEST_CASES=1000` makes as many models.

mod faults;
mod model;
mod world;
