//! Many devices as one random-access disk.

pub mod attach;
pub mod auth;
pub mod bench;
pub mod config;
pub mod connect;
pub mod flash;
pub mod frame;
pub mod hello;
pub mod http;
pub mod kernel;
pub mod layout;
pub mod link;
pub mod listener;
pub mod memory;
pub mod nbd_bench;
pub mod nbd_server;
pub mod node;
pub mod packets;
pub mod paper;
pub mod protocol;
pub mod setting;
pub mod shm;
pub mod status;
pub mod store;
pub mod tuner;
pub mod volume;
