//! `fathom pool bench --paper --at`: one of the paper's nodes on each device, running for the measurement, and the coordinator here.

use super::paper::load;
use crate::args::PoolBench;
use crate::{Interrupted, Usage, progress};
use anyhow::{Context as _, Result};
use device::remote::{DeviceAddress, HeldCommand, HoldError};
use pool::paper::coordinator::{self, Failure, Measurement};
use std::net::SocketAddr;

/// A phone's network interface, and this machine's.
const DEVICE_INTERFACE_DEFAULT: &str = "wlan0";
const LOCAL_INTERFACE_DEFAULT: &str = "lo";

/// Measures the cluster of nodes on devices.
pub fn bench(args: &PoolBench) -> Result<Measurement> {
    let paper = &args.paper;
    let count = paper.use_first.map_or(paper.at.len(), usize::from);
    let Some(places) = paper.at.get(..count) else {
        return Err(Usage(format!("--use {count}: --at names {}", paper.at.len())).into());
    };
    coordinator::check_addressable(count as u64, paper.size)?;
    let context = progress::context(paper.lines || args.load.json);
    progress::end_on_signal(&context);
    let (mut nodes, mut addresses) = (Vec::new(), Vec::new());
    for (nth, place) in places.iter().enumerate() {
        context.progress(&format!("starting a node on {place}"), 0, 0);
        let words = node_words(args, nth as u64, place);
        let node = HeldCommand::start(place, &paper.binary, &words, &context, &|remark| eprintln!("fathom: {remark}"));
        let node = node.map_err(|why| match why {
            HoldError::Interrupted => Interrupted.into(),
            why => anyhow::Error::from(why),
        })?;
        let address: SocketAddr = node.ready().parse().with_context(|| {
            format!("{place}: its node printed {:?} instead of its address", analysis::text::shown(node.ready()))
        })?;
        addresses.push(address);
        nodes.push((place, node));
    }
    progress::clear(&context);
    let measured = coordinator::run(&addresses, load(args, !paper.no_io), &|| context.cancelled());
    let trouble = nodes.iter().find_map(|(_, node)| node.trouble());
    for (place, node) in nodes {
        if !node.close() {
            eprintln!("fathom: {}", device::remote::Remark::NotCleaned(place.clone()));
        }
    }
    match (measured, trouble) {
        (Err(Failure::Cancelled), _) => Err(Interrupted.into()),
        (Err(failure), Some(why)) => Err(anyhow::Error::from(failure).context(why)),
        (measured, _) => Ok(measured?),
    }
}

/// The arguments of the node on the device.
fn node_words(args: &PoolBench, nth: u64, place: &DeviceAddress) -> Vec<String> {
    let paper = &args.paper;
    let own = if *place == DeviceAddress::Local { LOCAL_INTERFACE_DEFAULT } else { DEVICE_INTERFACE_DEFAULT };
    let interface = paper.interface.as_deref().unwrap_or(own);
    let mut words: Vec<String> =
        ["pool", "node", "--paper", "--hosted", "--insecure", "--insecure"].map(String::from).to_vec();
    words.push(format!("--backend=memory:{}", paper.size));
    words.push(format!("--first={}", nth * paper.size));
    words.push(format!("--interface={interface}"));
    words.extend(paper.flash.map(|flash| format!("--flash={flash}")));
    words.extend(paper.no_io.then(|| "--no-io".into()));
    words
}
