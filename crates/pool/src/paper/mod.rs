//! The cluster of paper 001 as it was built, to be measured beside ours.
//!
//! One main thread moves requests from the main queue to a queue for each node. Each node has so many transfer threads at the
//! coordinator, each with its own TCP connection to its own process at the node. A request is the 5 bytes of its
//! address; an answer is the byte that stands there. A transfer thread takes as many requests from its queue as there are,
//! up to the limit (1, 10 or 100), and sends them in one write; the node's process reads all there is, serves one after the
//! other, and answers in one write. Nagle's algorithm is off. Without I/O the same bytes travel, and nothing is read.
//!
//! The space is concatenated: node `i` has the addresses from `i * s`. What the paper leaves open, and what was chosen, is in
//! docs/papers/cluster.md. Threads and processes, as in the paper: nothing here is asynchronous.

pub mod coordinator;
pub mod node;
mod queue;

/// Bytes of a request: an address, least significant byte first.
pub const ADDRESS_BYTES: usize = 5;

/// The space that 5 bytes can address.
pub const MOST_BYTES: u64 = 1 << (8 * ADDRESS_BYTES);

/// The content of an address of the cluster's space where a node has filled its memory, so that each answer can be
/// checked, the way to the right node included.
pub fn pattern(address: u64) -> u8 {
    // The upper bits of a product with an odd number change with all lower ones (Fibonacci hashing).
    (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

fn address(bytes: [u8; ADDRESS_BYTES]) -> u64 {
    let [a, b, c, d, e] = bytes;
    u64::from_le_bytes([a, b, c, d, e, 0, 0, 0])
}

fn bytes(address: u64) -> [u8; ADDRESS_BYTES] {
    let [a, b, c, d, e, ..] = address.to_le_bytes();
    [a, b, c, d, e]
}
