//! The disk compared to a plain array: for any sequence of requests to eight nodes, while nodes are killed and coordinators
//! replaced, every reply is one that the array could have given. A failing scenario is minimised.
//!
//! Steps are groups of concurrent requests. No fault here makes a request fail: nodes are back long before the deadline, so
//! every error counts.

use crate::world::{self, Fault, NODE_BYTES, NODE_COUNT, Oracle, STRIPE_BYTES, World, check_disk};
use bytes::Bytes;
use futures_util::future::join_all;
use nbd::Export as _;
use pool::layout::Arrangement;
use pool::volume::Volume;
use proptest::prelude::*;

const DISK_BYTES: u64 = NODE_COUNT as u64 * NODE_BYTES;

/// A request at the disk's interface.
#[derive(Debug, Clone, Copy)]
enum ModelRequest {
    Read,
    Write { value: u8, durable: bool },
    Trim { durable: bool },
    Zero { allocate: bool },
    Flush,
}

#[derive(Debug, Clone)]
enum ModelStep {
    /// Concurrent requests.
    Together(Vec<(ModelRequest, u64, u32)>),
    /// These nodes are killed during the next step, and are back after this many ms.
    Kill(Vec<usize>, u64),
    /// A new coordinator takes over. The old one vanishes without closing its connections if `silent`: they stay half-open.
    Replace { silent: bool },
}

fn ask() -> impl Strategy<Value = (ModelRequest, u64, u32)> {
    let kind = prop_oneof![
        4 => Just(ModelRequest::Read),
        4 => (1_u8..64, any::<bool>()).prop_map(|(value, durable)| ModelRequest::Write { value, durable }),
        1 => any::<bool>().prop_map(|durable| ModelRequest::Trim { durable }),
        1 => any::<bool>().prop_map(|allocate| ModelRequest::Zero { allocate }),
        1 => Just(ModelRequest::Flush),
    ];
    // Few offsets, so that requests overlap; lengths that end within blocks, at them, and beyond a node's border.
    let offset =
        prop_oneof![0..DISK_BYTES, (0..DISK_BYTES / 4096).prop_map(|block| block * 4096), Just(NODE_BYTES - 700)];
    let length = prop_oneof![1_u32..300, Just(4096), 1_u32..20_000, 60_000_u32..90_000];
    (kind, offset, length).prop_map(|(kind, offset, length)| (kind, offset, length.min((DISK_BYTES - offset) as u32)))
}

fn step() -> impl Strategy<Value = ModelStep> {
    prop_oneof![
        8 => proptest::collection::vec(ask(), 1..12).prop_map(ModelStep::Together),
        2 => (proptest::collection::vec(0..NODE_COUNT, 1..4), 1_u64..3000).prop_map(|(nodes, ms)| ModelStep::Kill(nodes, ms)),
        1 => any::<bool>().prop_map(|silent| ModelStep::Replace { silent }),
    ]
}

/// The value that a request writes, if any.
fn writes(ask: ModelRequest) -> Option<u8> {
    match ask {
        ModelRequest::Write { value, .. } => Some(value),
        ModelRequest::Trim { .. } | ModelRequest::Zero { .. } => Some(0),
        ModelRequest::Read | ModelRequest::Flush => None,
    }
}

async fn carry_out(volume: &Volume, ask: ModelRequest, offset: u64, length: u32) -> Result<Option<Bytes>, nbd::Error> {
    match ask {
        ModelRequest::Read => volume.read(offset, length).await.map(Some),
        ModelRequest::Write { value, durable } => {
            volume.write(offset, Bytes::from(vec![value; length as usize]), durable).await.map(|()| None)
        }
        ModelRequest::Trim { durable } => volume.trim(offset, length, durable).await.map(|()| None),
        ModelRequest::Zero { allocate } => {
            volume.write_zeroes(offset, length, false, allocate, false).await.map(|()| None)
        }
        ModelRequest::Flush => volume.flush().await.map(|()| None),
    }
}

async fn together(volume: &Volume, oracle: &mut Oracle, asks: &[(ModelRequest, u64, u32)]) -> Result<(), String> {
    for (ask, offset, length) in asks {
        if let Some(value) = writes(*ask) {
            oracle.record_begin(*offset, *length, value);
        }
    }
    let answers = join_all(asks.iter().map(|(ask, offset, length)| carry_out(volume, *ask, *offset, *length))).await;
    let alone = |nth: usize| {
        let (_, offset, length) = asks[nth];
        let meets = |(ask, at, len): &(ModelRequest, u64, u32)| {
            writes(*ask).is_some() && *at < offset + u64::from(length) && offset < at + u64::from(*len)
        };
        asks.iter().enumerate().all(|(other, ask)| other == nth || !meets(ask))
    };
    let mut written = Vec::new();
    for (nth, ((ask, offset, length), answer)) in asks.iter().zip(answers).enumerate() {
        let context = |why: String| format!("{ask:?} at {offset}, {length} bytes: {why}");
        match answer.map_err(|e| context(e.to_string()))? {
            Some(data) => {
                oracle.check_read(*offset, &data).map_err(context)?;
                if alone(nth) {
                    oracle.record_read(*offset, &data);
                }
            }
            None => written.extend(writes(*ask).filter(|_| alone(nth)).map(|value| (*offset, *length, value))),
        }
    }
    // Only now, since a concurrent read may have seen the older value.
    written.into_iter().for_each(|(offset, length, value)| oracle.record_write(offset, length, value));
    Ok(())
}

async fn play(world: World, arrangement: Arrangement, steps: Vec<ModelStep>) -> Result<(), String> {
    let join = || async { world.join(arrangement).await.map_err(|e| e.to_string()) };
    let mut volume = join().await?;
    let mut oracle = Oracle::new(volume.size_bytes());
    for step in &steps {
        match step {
            ModelStep::Together(asks) => together(&volume, &mut oracle, asks).await?,
            ModelStep::Kill(nodes, ms) => nodes.iter().for_each(|node| world.inject_fault(Fault::Restart(*node, *ms))),
            ModelStep::Replace { silent } => {
                if *silent {
                    (0..NODE_COUNT).for_each(|node| world.inject_fault(Fault::Cut(node)));
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                }
                drop(volume);
                (0..NODE_COUNT).for_each(|node| world.inject_fault(Fault::Mend(node)));
                // Nodes that were just killed are back after 3 s.
                tokio::time::sleep(std::time::Duration::from_secs(4)).await;
                volume = join().await?;
            }
        }
    }
    check_disk(&volume, &mut oracle).await
}

/// A model takes seconds: a few by default.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn eight_nodes_behave_as_a_byte_array(
        seed in any::<u64>(),
        striped in any::<bool>(),
        steps in proptest::collection::vec(step(), 1..40),
    ) {
        let arrangement =
            if striped { Arrangement::Striped { stripe_bytes: STRIPE_BYTES } } else { Arrangement::Concatenated };
        let result = world::run(seed, 0.0, move |world| play(world, arrangement, steps));
        prop_assert_eq!(result, Ok(()));
    }
}
