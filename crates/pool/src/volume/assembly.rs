//! Which nodes there are when a pool is assembled: late ones are waited for, and dead ones may be left out.
//!
//! After a power failure all devices start at once, and the coordinator is seldom the last. So a node that does not answer is
//! asked again until a limit, and who is waited for is reported. A pool without some of its nodes can be read where they are
//! not needed: it is **degraded**, and read-only, since a write to a part of a request's nodes would be half a write. Where the
//! other nodes' bytes are is known from their stores, which keep their place on the disk ([`DiskPosition`]).

use super::{AssemblyError, advice};
use crate::connect::Connect;
use crate::hello::{self, Hello, Welcome};
use crate::layout::{Arrangement, Layout};
use crate::link::{JoinError, Options, greet};
use crate::protocol::DiskPosition;
use futures_util::future::join_all;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The pause between two attempts to reach a node.
pub(crate) const ASSEMBLY_RETRY_PAUSE: Duration = Duration::from_millis(250);
/// How often the nodes that are waited for are reported.
const PROGRESS_LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Whether waiting may help: nothing answers, or what answers has just been started.
fn may_recover(why: &JoinError) -> bool {
    match why {
        JoinError::Silent => true,
        JoinError::Unreachable(error) => matches!(error, hello::Error::Connection(_) | hello::Error::Closed),
        JoinError::Refused(_) | JoinError::Fenced(_) => false,
    }
}

/// Looks at all nodes, and waits up to `wait` for those that do not answer; `report` receives who is waited for. The result
/// of each is that of its last attempt.
pub(crate) async fn greet_all(
    connect: &Connect,
    addresses: &[SocketAddr],
    hello: &Hello,
    wait: Duration,
    report: &dyn Fn(String),
) -> Vec<Result<Welcome, JoinError>> {
    let (begin, late) = (Instant::now(), RefCell::new(vec![None; addresses.len()]));
    let look = |(nth, address): (usize, &SocketAddr)| {
        let (late, address) = (&late, *address);
        async move {
            loop {
                match greet(connect, address, hello).await {
                    Err(why) if may_recover(&why) && begin.elapsed() < wait => {
                        late.borrow_mut()[nth] = Some(format!("node {address}: {why}{}", advice(&address, &why)));
                    }
                    seen => {
                        late.borrow_mut()[nth] = None;
                        return seen.map(|(_, welcome)| welcome);
                    }
                }
                sleep(ASSEMBLY_RETRY_PAUSE).await;
            }
        }
    };
    let tell = async {
        let (mut told, mut next) = (Vec::new(), begin + ASSEMBLY_RETRY_PAUSE);
        loop {
            sleep(ASSEMBLY_RETRY_PAUSE).await;
            let now: Vec<String> = late.borrow().iter().flatten().cloned().collect();
            if now.is_empty() || (now == told && Instant::now() < next) {
                continue;
            }
            let (left, of) = (wait.saturating_sub(begin.elapsed()).as_secs(), addresses.len());
            report(format!("waiting for {} of {of} nodes, for up to {left} s: {}", now.len(), now.join("; ")));
            (told, next) = (now, Instant::now() + PROGRESS_LINE_INTERVAL);
        }
    };
    tokio::select! {
        seen = join_all(addresses.iter().enumerate().map(look)) => seen,
        () = tell => unreachable!("it has no end"),
    }
}

type PresentNode = (SocketAddr, Welcome);
type MissingNode = (SocketAddr, JoinError);

/// The nodes that are there, and those that are not, if the pool may be served without them.
///
/// # Errors
/// [`AssemblyError`]: nodes are missing or cannot be used, or one is given twice.
pub(super) fn split_present(
    all: impl Iterator<Item = (SocketAddr, Result<Welcome, JoinError>)>,
    options: &Options,
) -> Result<(Vec<PresentNode>, Vec<MissingNode>), AssemblyError> {
    let (mut nodes, mut missing) = (Vec::<PresentNode>::new(), Vec::new());
    for (address, seen) in all {
        match seen {
            Ok(welcome) => {
                if let Some((first, _)) = nodes.iter().find(|(_, other)| other.node == welcome.node) {
                    return Err(AssemblyError::Twice { node: welcome.node, first: *first, second: address });
                }
                nodes.push((address, welcome));
            }
            Err(why) if may_recover(&why) && (options.degraded || !options.wait.is_zero()) => {
                missing.push((address, why))
            }
            Err(why) => return Err(AssemblyError::Node { address, why }),
        }
    }
    if !missing.is_empty() && (!options.degraded || nodes.is_empty()) {
        let of = nodes.len() + missing.len();
        let missing =
            missing.iter().map(|(address, why)| format!("node {address}: {why}{}", advice(address, why))).collect();
        return Err(AssemblyError::Late { missing, of, waited: options.wait });
    }
    Ok((nodes, missing))
}

/// The nodes that are there, in the order of all.
pub(super) fn welcomes_by_address<'n>(addresses: &[SocketAddr], nodes: &'n [PresentNode]) -> Vec<Option<&'n Welcome>> {
    let find = |address| nodes.iter().find(|(other, _)| other == address).map(|(_, welcome)| welcome);
    addresses.iter().map(find).collect()
}

/// The bytes of each node of a pool of which some are missing, from the places of the others; a run of missing nodes counts
/// as one, the first.
pub(super) fn node_sizes(arrangement: Arrangement, nodes: &[Option<&Welcome>]) -> Result<Vec<u64>, AssemblyError> {
    let places: Vec<Option<&DiskPosition>> =
        nodes.iter().map(|node| node.and_then(|node| node.disk.as_ref())).collect();
    let known = nodes.iter().zip(&places).all(|(node, place)| node.is_none() == place.is_none());
    let disk_bytes = places.iter().flatten().next().filter(|_| known).map(|place| place.disk_bytes);
    let disk_bytes = disk_bytes.ok_or(AssemblyError::UnknownLayout)?;
    let mut sizes: Vec<u64> = nodes.iter().map(|node| node.map_or(0, |node| node.size_bytes)).collect();
    match arrangement {
        Arrangement::Striped { .. } => {
            let each = disk_bytes / nodes.len() as u64;
            sizes.iter_mut().zip(nodes).filter(|(_, node)| node.is_none()).for_each(|(size, _)| *size = each);
        }
        Arrangement::Concatenated => {
            let mut end = 0;
            let mut first_missing = None;
            for nth in 0..=nodes.len() {
                let begin = match places.get(nth) {
                    Some(None) => {
                        first_missing.get_or_insert(nth);
                        continue;
                    }
                    Some(Some(place)) => place.begin_bytes,
                    None => disk_bytes,
                };
                let gap = begin.checked_sub(end).ok_or(AssemblyError::UnknownLayout)?;
                match first_missing.take() {
                    Some(missing) => sizes[missing] = gap,
                    None if gap > 0 => return Err(AssemblyError::UnknownLayout),
                    None => {}
                }
                end = begin + sizes.get(nth).copied().unwrap_or(0);
            }
        }
    }
    let agrees = Layout::new(arrangement, &sizes).size_bytes() == disk_bytes
        && places.iter().flatten().all(|place| place.disk_bytes == disk_bytes);
    if agrees { Ok(sizes) } else { Err(AssemblyError::UnknownLayout) }
}

/// The place of each node on the disk.
pub(super) fn disk_positions(arrangement: Arrangement, sizes: &[u64]) -> Vec<DiskPosition> {
    let disk_bytes = Layout::new(arrangement, sizes).size_bytes();
    let mut end = 0;
    let place = |size: &u64| {
        let begin_bytes = match arrangement {
            Arrangement::Concatenated => end,
            Arrangement::Striped { .. } => 0,
        };
        end += size;
        DiskPosition { begin_bytes, disk_bytes }
    };
    sizes.iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST_STRIPES: Arrangement = Arrangement::Striped { stripe_bytes: 65_536 };

    fn nodes(arrangement: Arrangement, sizes: &[u64]) -> Vec<Welcome> {
        let places = disk_positions(arrangement, sizes).into_iter().map(Some);
        let node = |(size_bytes, disk): (&u64, Option<DiskPosition>)| Welcome {
            size_bytes: *size_bytes,
            disk,
            ..Welcome::default()
        };
        sizes.iter().zip(places).map(node).collect()
    }

    /// The layout without these nodes.
    fn without(arrangement: Arrangement, sizes_of: &[u64], missing: &[usize]) -> Option<Layout> {
        let nodes = nodes(arrangement, sizes_of);
        let there: Vec<Option<&Welcome>> =
            nodes.iter().enumerate().map(|(nth, node)| (!missing.contains(&nth)).then_some(node)).collect();
        node_sizes(arrangement, &there).ok().map(|sizes| Layout::new(arrangement, &sizes))
    }

    #[test]
    fn every_byte_of_present_nodes_is_where_it_was() {
        let all = [1 << 20, 4096, 3 << 20, 8192, 2 << 20];
        for arrangement in [Arrangement::Concatenated, TEST_STRIPES] {
            let all = if arrangement == TEST_STRIPES { [1 << 20, 3 << 20, 2 << 20, 5 << 20, 1 << 20] } else { all };
            let whole = Layout::new(arrangement, &all);
            for missing in (1_u32..31).map(|set| (0..5).filter(|nth| set >> nth & 1 == 1).collect::<Vec<usize>>()) {
                let degraded = without(arrangement, &all, &missing).expect("a layout");
                assert_eq!(degraded.size_bytes(), whole.size_bytes(), "{missing:?}");
                for at in (0..whole.size_bytes()).step_by(4096) {
                    let [was, is] = [&whole, &degraded].map(|layout| layout.pieces(at, 4096).next().expect("a piece"));
                    assert_eq!(missing.contains(&was.node), missing.contains(&is.node), "{missing:?}, {at}");
                    assert!(was == is || missing.contains(&was.node), "{missing:?}, {at}: {was:?}, {is:?}");
                }
            }
        }
    }

    #[test]
    fn layout_is_unknown_without_places_or_if_they_disagree() {
        let nodes = nodes(Arrangement::Concatenated, &[8192, 4096, 4096]);
        let of = |nodes: &[Option<&Welcome>]| node_sizes(Arrangement::Concatenated, nodes).ok();
        assert_eq!(of(&[None, Some(&nodes[1]), Some(&nodes[2])]), Some(vec![8192, 4096, 4096]));
        let older = Welcome { disk: None, ..nodes[1].clone() };
        assert_eq!(of(&[None, Some(&older), Some(&nodes[2])]), None, "a store of an older release");
        let other = DiskPosition { begin_bytes: 4096, disk_bytes: 16_384 };
        let other = Welcome { disk: Some(other), ..nodes[1].clone() };
        assert_eq!(of(&[None, Some(&other), Some(&nodes[2])]), None, "they do not fit together");
        assert_eq!(of(&[None, None, None]), None);
    }

    #[test]
    fn only_recoverable_failures_are_waited_for() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert!(
            may_recover(&JoinError::Silent) && may_recover(&JoinError::Unreachable(hello::Error::Connection(refused)))
        );
        assert!(
            !may_recover(&JoinError::Refused("no".into()))
                && !may_recover(&JoinError::Unreachable(hello::Error::Stranger))
        );
        assert!(!may_recover(&JoinError::Unreachable(hello::Error::NotTrusted(wire::AuthenticationError::KeyWanted))));
    }
}
