//! The location of files' blocks: a bio, whose pages ftrace does not record, is assigned those of a file.
//!
//! ext4 reports a location whenever it looks a block up or caches one (`ext4_es_…`). The last report for an address holds:
//! a block that is freed and reused by another file is reported again before it is written.
//!
//! *Uncertainty*: a file whose blocks were looked up before the trace began, and whose pages stayed in the cache, is not
//! reported again. Then a bio that is submitted while the file system writes pages of that file back ([`super::block`])
//! is assigned to the file, without an offset in it.

use std::collections::{BTreeMap, HashMap};

/// File system and inode.
pub type File = (u32, u64);

/// Blocks by their address, for each file system.
#[derive(Debug, Clone, Default)]
pub struct Extents {
    /// First block on the disk to: number of blocks, file, first block in the file.
    places: HashMap<u32, BTreeMap<u64, (u64, u64, u64)>>,
    /// Block size of each file system.
    sizes: HashMap<u32, u64>,
}

/// Extents of one file system that are remembered.
const EXTENTS_MAX: usize = 1 << 20;

impl Extents {
    /// A buffer of that size is on the file system: metadata, whose buffers have the file system's block size.
    pub fn set_block_size(&mut self, dev: u32, size: u64) {
        if (512..=65536).contains(&size) && size.is_power_of_two() {
            self.sizes.insert(dev, size);
        }
    }

    /// The `blocks` blocks of a file from `logical` on are located from `physical` on.
    pub fn learn(&mut self, (dev, ino): File, logical: u64, blocks: u64, physical: u64) {
        if physical == 0 || blocks == 0 || blocks > u64::from(u32::MAX) || physical > 1 << 48 {
            return;
        }
        let all = self.places.entry(dev).or_default();
        if all.len() >= EXTENTS_MAX {
            all.clear();
        }
        let end = physical + blocks;
        // Overlapping extents are outdated.
        let before = all.range(..physical).next_back().map(|(at, v)| (*at, *v));
        if let Some((at, (n, of, first))) = before.filter(|(at, v)| at + v.0 > physical) {
            all.insert(at, (physical - at, of, first));
            if at + n > end {
                all.insert(end, (at + n - end, of, first.saturating_add(end - at)));
            }
        }
        let inside: Vec<(u64, (u64, u64, u64))> = all.range(physical..end).map(|(at, v)| (*at, *v)).collect();
        for (at, (n, of, first)) in inside {
            all.remove(&at);
            if at + n > end {
                all.insert(end, (at + n - end, of, first.saturating_add(end - at)));
            }
        }
        all.insert(physical, (blocks, ino, logical));
    }

    /// Returns the file at byte `at` of a file system, and the offset in the file. `hint`: the expected file.
    pub fn find(&self, dev: u32, at: u64, hint: Option<u64>) -> Option<(u64, u64)> {
        let all = self.places.get(&dev)?;
        let known = self.sizes.get(&dev).copied();
        // If the block size is unknown, only an expected file is accepted.
        let sizes = known.map_or_else(|| vec![4096, 1024, 2048, 65536], |size| vec![size]);
        sizes.into_iter().find_map(|size| {
            let block = at / size;
            let (first, (blocks, ino, logical)) = all.range(..=block).next_back()?;
            let inside = block - first;
            let fits =
                inside < *blocks && if known.is_some() { hint.is_none_or(|h| h == *ino) } else { hint == Some(*ino) };
            fits.then(|| (*ino, logical.saturating_add(inside).saturating_mul(size).saturating_add(at % size)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_extent_at_an_address_wins() {
        let mut extents = Extents::default();
        extents.set_block_size(7, 1024);
        extents.learn((7, 12), 0, 10, 100);
        extents.learn((7, 13), 5, 2, 104);
        let find = |block: u64| extents.find(7, block * 1024 + 3, None);
        assert_eq!(find(103), Some((12, 3 * 1024 + 3)));
        assert_eq!(find(104), Some((13, 5 * 1024 + 3)));
        assert_eq!(find(106), Some((12, 6 * 1024 + 3)));
        assert_eq!(find(110), None);
        assert_eq!(extents.find(7, 104 * 1024, Some(12)), None, "it is expected to be another's");
        assert_eq!(extents.find(8, 104 * 1024, None), None);
    }

    #[test]
    fn an_unknown_block_size_finds_only_the_expected_file() {
        let mut extents = Extents::default();
        extents.learn((7, 12), 0, 10, 100);
        assert_eq!(extents.find(7, 102 * 4096, None), None);
        assert_eq!(extents.find(7, 102 * 4096, Some(12)), Some((12, 2 * 4096)));
        assert_eq!(extents.find(7, 102 * 2048, Some(12)), Some((12, 2 * 2048)));
    }

    #[test]
    fn extreme_extents_do_not_panic() {
        let mut extents = Extents::default();
        for physical in [0, 1, 5, u64::MAX, 1 << 48] {
            for blocks in [0, 1, 7, u64::from(u32::MAX), u64::MAX] {
                extents.learn((1, 2), u64::from(u32::MAX), blocks, physical);
            }
        }
        extents.find(1, u64::MAX, Some(2));
    }
}
