//! The cluster of paper 001 as it was built, for comparison with our pool.
//!
//! One main thread moves requests from the main queue to a queue for each node. Each node has several transfer threads at
//! the coordinator, each with its own TCP connection to its own process at the node. A request consists of the 5 bytes of
//! its address; a reply is the byte at that address. A transfer thread takes all requests from its queue, up to the limit
//! (1, 10 or 100), and sends them in one write; the node's process reads all that have arrived, serves one after the other,
//! and replies in one write. Nagle's algorithm is off. Without I/O the same bytes are transmitted, but nothing is read.
//!
//! The space is concatenated: node `i` has the addresses from `i * s`. docs/papers/cluster.md lists what the paper leaves
//! open, and the choices made here. Threads and processes are used, as in the paper: nothing here is asynchronous.

pub mod coordinator;
pub mod node;
mod queue;

/// Bytes of a request: an address, least significant byte first.
pub const ADDRESS_BYTES: usize = 5;

/// The space that 5 bytes can address.
pub const SPACE_BYTES_MAX: u64 = 1 << (8 * ADDRESS_BYTES);

/// The content at an address of the cluster's space where a node has filled its memory, so that each reply can be checked,
/// including that it comes from the right node.
pub fn pattern(address: u64) -> u8 {
    // The upper bits of a product with an odd number depend on all lower bits (Fibonacci hashing).
    (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

fn decode_address(bytes: [u8; ADDRESS_BYTES]) -> u64 {
    let [a, b, c, d, e] = bytes;
    u64::from_le_bytes([a, b, c, d, e, 0, 0, 0])
}

fn encode_address(address: u64) -> [u8; ADDRESS_BYTES] {
    let [a, b, c, d, e, ..] = address.to_le_bytes();
    [a, b, c, d, e]
}
