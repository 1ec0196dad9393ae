//! The content of a file: every 8 bytes are computed from their offset and a seed, so that any byte can be checked
//! wherever a read begins, and a block from another offset or another run is distinguished from the right one.
//!
//! A word is mixed from its index as SplitMix64 mixes its state (Steele, Lea, Flood, OOPSLA 2014): nothing that compresses.
//! That costs nothing compared with a disk and too much compared with the page cache, where a block of 4 KiB takes a
//! microsecond. So a pattern may be *stamped*: only the first word of each granule depends on its offset, the others repeat
//! after a period, and a buffer is prepared for its next offset by writing only the stamps ([`Template`]). A file system
//! that compresses or deduplicates could profit from the repetition. A run states how much of each block it checked during
//! the measurement.
//!
//! Writers of overlapping ranges agree: a byte's value depends on its offset, not on the write that wrote it.

use super::buffer::Buffer;

/// Bytes after which the filler of a stamped pattern repeats, and the largest granule.
pub(crate) const PAGE_BYTES: usize = 4096;
const WORD_BYTES: usize = 8;

/// How a file's bytes are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pattern {
    seed: u64,
    /// Words from stamp to stamp: a power of two, at most a page.
    granule: u64,
    /// Words after which the filler repeats: a power of two, at least a page.
    period: u64,
}

impl Pattern {
    /// A pattern in which every word differs.
    pub(crate) fn full(seed: u64) -> Self {
        Self { seed, granule: 1, period: 1 << 60 }
    }

    /// A pattern with a stamp at every multiple of `granule` bytes (rounded down to a power of two, 8 to 4096), and
    /// filler that repeats after `period` bytes (rounded up to a power of two, at least 4096).
    pub(crate) fn stamped(seed: u64, granule: usize, period: usize) -> Self {
        let granule = granule.clamp(WORD_BYTES, PAGE_BYTES);
        let granule = 1 << granule.ilog2();
        let period = period.max(PAGE_BYTES).next_power_of_two();
        Self { seed, granule: granule as u64 / WORD_BYTES as u64, period: period as u64 / WORD_BYTES as u64 }
    }

    fn word(&self, index: u64) -> u64 {
        let stamp = index & (self.granule - 1) == 0;
        // A stamp's number is above those of all filler words.
        let at = if stamp { index | 1 << 61 } else { index & (self.period - 1) };
        let mut z = (self.seed ^ at.rotate_left(32)).wrapping_add(at.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The word that contains `place`, and the offset in it.
    fn part(&self, place: u64) -> ([u8; WORD_BYTES], usize) {
        (self.word(place / WORD_BYTES as u64).to_le_bytes(), (place % WORD_BYTES as u64) as usize)
    }

    /// Bytes of a range before its first whole word, at most the whole range.
    fn head(offset: u64, length: usize) -> usize {
        ((offset.next_multiple_of(WORD_BYTES as u64) - offset) as usize).min(length)
    }

    /// Writes the bytes from `offset` on.
    pub(crate) fn fill(&self, offset: u64, buffer: &mut [u8]) {
        let (head, rest) = buffer.split_at_mut(Self::head(offset, buffer.len()));
        let (word, skip) = self.part(offset);
        head.iter_mut().zip(&word[skip..]).for_each(|(to, from)| *to = *from);
        let first = (offset + head.len() as u64) / WORD_BYTES as u64;
        for (index, to) in (first..).zip(rest.chunks_mut(WORD_BYTES)) {
            let word = self.word(index).to_le_bytes();
            // A chunk of known length is one store.
            match <&mut [u8; WORD_BYTES]>::try_from(&mut *to) {
                Ok(to) => *to = word,
                Err(_) => to.copy_from_slice(&word[..to.len()]),
            }
        }
    }

    /// Turns a buffer with the bytes of another offset, a multiple of the period away, into those of `offset`: only the
    /// stamps are written.
    pub(crate) fn stamp(&self, offset: u64, buffer: &mut [u8]) {
        for at in self.stamps(offset, buffer.len()) {
            let word = self.word((offset + at as u64) / WORD_BYTES as u64).to_le_bytes();
            let end = (at + WORD_BYTES).min(buffer.len());
            buffer[at..end].copy_from_slice(&word[..end - at]);
        }
        // A stamp that began before the buffer.
        let head = (offset % (self.granule * WORD_BYTES as u64)) as usize;
        if head != 0 && head < WORD_BYTES {
            let n = (WORD_BYTES - head).min(buffer.len());
            self.fill(offset, &mut buffer[..n]);
        }
    }

    fn stamps(&self, offset: u64, length: usize) -> impl Iterator<Item = usize> + use<> {
        let granule = self.granule * WORD_BYTES as u64;
        let first = offset.next_multiple_of(granule) - offset;
        (first as usize..length).step_by(granule as usize)
    }

    /// The offset of the first wrong byte.
    pub(crate) fn wrong(&self, offset: u64, buffer: &[u8]) -> Option<u64> {
        let (head, rest) = buffer.split_at(Self::head(offset, buffer.len()));
        let differs = |place: u64, found: &[u8]| {
            let (word, skip) = self.part(place);
            found.iter().zip(&word[skip..]).position(|(a, b)| a != b).map(|at| place + at as u64)
        };
        let first = offset + head.len() as u64;
        let wrong = |(nth, found): &(usize, &[u8])| match <[u8; WORD_BYTES]>::try_from(*found) {
            Ok(found) => u64::from_le_bytes(found) != self.word(first / WORD_BYTES as u64 + *nth as u64),
            Err(_) => differs(first + (nth * WORD_BYTES) as u64, found).is_some(),
        };
        let in_rest = || rest.chunks(WORD_BYTES).enumerate().find(wrong);
        differs(offset, head)
            .or_else(|| in_rest().and_then(|(nth, found)| differs(first + (nth * WORD_BYTES) as u64, found)))
    }

    /// As [`Pattern::wrong`], checking only the first and the last 8 bytes.
    pub(crate) fn wrong_edge(&self, offset: u64, buffer: &[u8]) -> Option<u64> {
        let last = buffer.len().saturating_sub(WORD_BYTES);
        self.wrong(offset, &buffer[..buffer.len().min(WORD_BYTES)])
            .or_else(|| self.wrong(offset + last as u64, &buffer[last..]))
    }

    /// As [`Pattern::wrong`], checking only the stamps.
    pub(crate) fn wrong_stamp(&self, offset: u64, buffer: &[u8]) -> Option<u64> {
        self.stamps(offset, buffer.len())
            .find_map(|at| self.wrong(offset + at as u64, &buffer[at..(at + WORD_BYTES).min(buffer.len())]))
    }
}

/// A buffer that can be prepared for any offset by writing its stamps.
#[derive(Debug)]
pub(crate) struct Template {
    pattern: Pattern,
    block: usize,
    /// One period and one block, so that it contains a block at any offset modulo the period.
    memory: Buffer,
}

impl Template {
    /// Creates a template for blocks of this length.
    pub(crate) fn new(pattern: Pattern, block: usize) -> Self {
        let period = pattern.period as usize * WORD_BYTES;
        let mut memory = Buffer::new(period + block);
        pattern.fill(0, &mut memory);
        Self { pattern, block, memory }
    }

    /// The block at an offset. Its address is as aligned as the offset, up to a page.
    pub(crate) fn at(&mut self, offset: u64) -> &[u8] {
        let skip = (offset % (self.pattern.period * WORD_BYTES as u64)) as usize;
        let block = &mut self.memory[skip..skip + self.block];
        // Stamps left by earlier blocks are where this one has its own: a granule divides the period.
        self.pattern.stamp(offset, block);
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_pattern() -> impl Strategy<Value = Pattern> {
        prop_oneof![
            any::<u64>().prop_map(Pattern::full),
            (any::<u64>(), 1_usize..10_000, 1_usize..20_000).prop_map(|(s, g, p)| Pattern::stamped(s, g, p)),
        ]
    }

    proptest! {
        /// However a range is split, its bytes are the same.
        #[test]
        fn byte_depends_only_on_offset(p in any_pattern(), offset in 0_u64..1 << 40, n in 1_usize..9000, cut in 0_usize..9000) {
            let (mut whole, mut parts) = (vec![0; n], vec![0; n]);
            p.fill(offset, &mut whole);
            let (a, b) = parts.split_at_mut(cut.min(n));
            p.fill(offset, a);
            p.fill(offset + a.len() as u64, b);
            prop_assert_eq!(&whole, &parts);
            prop_assert_eq!(p.wrong(offset, &whole).or(p.wrong_edge(offset, &whole)).or(p.wrong_stamp(offset, &whole)), None);
        }

        /// The check finds any single flipped bit, and its location.
        #[test]
        fn flipped_bit_is_located(p in any_pattern(), offset in 0_u64..1 << 40, n in 1_usize..9000, at: usize, bit in 0_u32..8) {
            let mut block = vec![0; n];
            p.fill(offset, &mut block);
            let at = at % n;
            block[at] ^= 1_u8 << bit;
            prop_assert_eq!(p.wrong(offset, &block), Some(offset + at as u64));
        }

        /// A buffer stamped for another offset equals the pattern there.
        #[test]
        fn stamping_equals_refilling(seed: u64, granule in 8_usize..5000, n in 1_usize..20_000, offset in 0_u64..1 << 30, by in 0_u64..100) {
            let p = Pattern::stamped(seed, granule, 8192);
            let (mut moved, mut filled) = (vec![0; n], vec![0; n]);
            p.fill(offset, &mut moved);
            p.stamp(offset + by * 8192, &mut moved);
            p.fill(offset + by * 8192, &mut filled);
            prop_assert_eq!(moved, filled);
        }
    }

    proptest! {
        #[test]
        fn template_matches_pattern_at_any_offset(seed: u64, granule in 1_usize..5000, n in 1_usize..9000, places in proptest::collection::vec(0_u64..1 << 40, 1..20)) {
            let p = Pattern::stamped(seed, granule, 8192);
            let mut template = Template::new(p, n);
            for place in places {
                prop_assert_eq!(p.wrong(place, template.at(place)), None);
            }
        }
    }

    #[test]
    fn block_of_other_offset_or_seed_is_wrong() {
        for p in [Pattern::full(1), Pattern::stamped(1, 512, PAGE_BYTES)] {
            let mut block = vec![0; 512];
            p.fill(512, &mut block);
            assert_eq!(p.wrong_edge(512 + PAGE_BYTES as u64, &block), Some(512 + PAGE_BYTES as u64));
            assert_eq!(p.wrong_stamp(512 + (1 << 30), &block), Some(512 + (1 << 30)));
            assert_eq!(Pattern { seed: 2, ..p }.wrong(512, &block), Some(512));
        }
    }
}
