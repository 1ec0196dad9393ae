//! A set of regions: a bit each.

/// The maximum number of regions of a disk.
pub const REGIONS_MAX: u64 = 8192;

#[derive(Debug, Clone, Default)]
pub struct RegionSet(Vec<u64>);

/// Trailing zeroes do not count.
impl PartialEq for RegionSet {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}
impl Eq for RegionSet {}

impl RegionSet {
    /// True if it was not in the set.
    pub fn insert(&mut self, region: u32) -> bool {
        let (word, bit) = (region as usize / 64, 1 << (region % 64));
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        let is_new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        is_new
    }

    /// True if it was in the set.
    pub fn remove(&mut self, region: u32) -> bool {
        let (word, bit) = (region as usize / 64, 1 << (region % 64));
        let was = self.contains(region);
        if was {
            self.0[word] &= !bit;
        }
        was
    }

    pub fn contains(&self, region: u32) -> bool {
        self.0.get(region as usize / 64).is_some_and(|word| word & 1 << (region % 64) != 0)
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// In ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().enumerate().flat_map(|(nth, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros();
                left &= left.wrapping_sub(1);
                (bit < 64).then_some(nth as u32 * 64 + bit)
            })
        })
    }

    /// The first `bytes` bytes.
    pub fn to_bytes(&self, bytes: usize) -> Vec<u8> {
        let mut all: Vec<u8> = self.0.iter().flat_map(|word| word.to_le_bytes()).collect();
        all.resize(bytes, 0);
        all
    }

    pub fn from_bytes(bytes: &[u8]) -> Self {
        let word = |part: &[u8]| part.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        Self(bytes.chunks(8).map(word).collect())
    }
}

impl Extend<u32> for RegionSet {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, regions: I) {
        regions.into_iter().for_each(|region| {
            self.insert(region);
        });
    }
}
