//! `fathom device`, and what other verbs need to work on a device.

mod bench;
mod compare;
mod each;
mod fetch;
mod info;
mod inserts;
mod list;
mod papers;
mod perfetto;
mod record;
mod result;
mod service;
mod stop;

pub use bench::run as bench;
pub use compare::run as compare;
pub use papers::run as papers;
pub use record::run as record;
pub use service::run as service;

use crate::args::{Device, DeviceVerb};
use anyhow::Result;
use std::process::ExitCode;

pub fn run(args: &Device) -> Result<ExitCode> {
    match &args.verb {
        DeviceVerb::List(args) => list::run(args),
        DeviceVerb::Info(args) => info::info(args),
        DeviceVerb::Check(args) => info::check(args),
        DeviceVerb::Stop(args) => stop::run(args),
        DeviceVerb::Fetch(args) => fetch::run(args),
    }
}
