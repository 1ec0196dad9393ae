//! A hash for small integer keys: kernel addresses, thread and inode numbers.
//!
//! The standard hash resists chosen keys at some 20 ns each; the linker looks up several keys per event and has 500 ns in
//! all. This one multiplies and rotates (the rotation moves the well-mixed high bits to where the table looks, since kernel
//! addresses end in zeros). A log crafted to collide would be linked slowly, not wrongly.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map with small integer keys. Its iteration order must never affect the output.
pub(crate) type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<FastHasher>>;

#[derive(Default)]
pub(crate) struct FastHasher(u64);

impl FastHasher {
    fn add(&mut self, n: u64) {
        // The golden ratio's digits: odd, and without a structure that addresses could share.
        self.0 = (self.0.rotate_left(5) ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for FastHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&b| self.add(b.into()));
    }
    fn write_u32(&mut self, n: u32) {
        self.add(n.into());
    }
    fn write_u64(&mut self, n: u64) {
        self.add(n);
    }
    fn finish(&self) -> u64 {
        self.0.rotate_left(26)
    }
}
