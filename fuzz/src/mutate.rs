//! Making broken inputs out of good ones, the same from the same numbers.

/// A small generator of pseudo-random numbers (SplitMix64; Steele, Lea and Flood 2014), enough to choose what to break.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The generator of that number.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `n`; 0 if there is none.
    pub fn below(&mut self, n: usize) -> usize {
        if n == 0 { 0 } else { (self.number() % n as u64) as usize }
    }
}

/// Numbers at which readers go wrong: around nothing, and around the ends of each width.
const EDGE_NUMBERS: [u64; 10] =
    [0, 1, 0x7f, 0x80, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 0x7fff_ffff_ffff_ffff, 0xffff_ffff_ffff_ffff];

/// Breaks one of `seeds` (or, now and then, leaves it as it is).
pub fn mutate(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let Some(mut bytes) = seeds.get(random.below(seeds.len())).cloned() else { return Vec::new() };
    for _ in 0..random.below(5) {
        let (at, to) = (random.below(bytes.len() + 1), random.below(bytes.len() + 1));
        let (at, to) = (at.min(to), at.max(to));
        match random.below(8) {
            0 | 1 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            2 if at < bytes.len() => bytes[at] = random.number() as u8,
            3 => {
                let width = 1 << random.below(4);
                let edge = EDGE_NUMBERS[random.below(EDGE_NUMBERS.len())].to_le_bytes();
                for (byte, new) in bytes.iter_mut().skip(at).zip(&edge[..width]) {
                    *byte = *new;
                }
            }
            4 => bytes.truncate(to),
            5 => drop(bytes.drain(at..to.min(at + 64))),
            6 => {
                let part = bytes[at..to.min(at + 64)].to_vec();
                bytes.splice(at..at, part);
            }
            _ => {
                let other = &seeds[random.below(seeds.len())];
                let from = random.below(other.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutations_are_reproducible() {
        let seeds = [b"some bytes".to_vec(), b"others".to_vec()];
        let make = |seed: u64| (0..100).map(|i| mutate(&seeds, &mut Random::new(seed ^ i))).collect::<Vec<_>>();
        assert_eq!(make(7), make(7));
        assert_ne!(make(7), make(1 << 40));
    }
}
