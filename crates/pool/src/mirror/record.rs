//! What survives of a mirror's state: which copy lacks which region. Each node keeps it, in two slots at the end of its store that are
//! written in turn, so that one torn write does no harm.
//!
//! A record is valid once a **quorum** has it on the medium ([`Record::is_quorum`]): a majority of the nodes. With two nodes it is all
//! that are not out, so that one can go on alone; the other, whose record does not tell that, cannot.
//!
//! ```text
//!   0 magic        "FPM1"      u32     28 region_bytes u64
//!   4 version      1           u32     36 regions      u32
//!   8 length       whole bytes u32     40 placement    u32  checksum of the places
//!  12 epoch                    u64     44 nodes        u32
//!  20 sequence                 u64     48 for each node: length of its name u16, name, out u8
//!  ...  active: a bit for each region; for each node: lacks, a bit for each region; CRC-32C u32
//! ```

use super::regions::{REGIONS_MAX, RegionSet};
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Bytes of a slot, and of both. A multiple of a block.
pub const SLOT_BYTES: u64 = 128 << 10;
pub const META_BYTES: u64 = 2 * SLOT_BYTES;
/// The maximum number of nodes: a set of them is a word.
pub const NODES_MAX: usize = 64;
const MAGIC: u32 = u32::from_le_bytes(*b"FPM1");
/// 1: the first.
const VERSION: u32 = 1;
/// The maximum length of a node's name.
const NAME_BYTES_MAX: usize = 256;

const _: () = assert!(
    48 + NODES_MAX * (3 + NAME_BYTES_MAX) + (NODES_MAX + 1) * (REGIONS_MAX as usize / 8) + 4 <= SLOT_BYTES as usize
);

/// Constant parts of the record: a record with others is of another pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The nodes' own names, in order.
    pub names: Vec<String>,
    pub region_bytes: u64,
    pub region_count: u32,
    pub placement: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    pub epoch: u64,
    pub sequence: u64,
    /// The nodes that the disk goes on without.
    pub out: u64,
    /// Regions that may differ between copies: written, and not yet known to be on all media.
    pub active: RegionSet,
    /// What each node's copies lack.
    pub lacks: Vec<RegionSet>,
}

/// Why a slot has no usable record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Never written, or torn.
    #[error("no record")]
    Absent,
    #[error(
        "its record has version {0}, which this release does not know; use the release that wrote it, or a later one"
    )]
    Newer(u32),
    #[error("its record is of another pool, or of other nodes")]
    Foreign,
}

impl Record {
    /// A new disk: all copies are equal.
    pub fn new(nodes: usize) -> Self {
        Self { lacks: vec![RegionSet::default(); nodes], ..Self::default() }
    }

    /// Whether a record is valid if these nodes have it.
    pub fn is_quorum(&self, nodes: u64) -> bool {
        let count = self.lacks.len() as u32;
        if count <= 2 {
            let needed = ((1_u64 << count) - 1) & !self.out;
            return needed != 0 && nodes & needed == needed;
        }
        nodes.count_ones() * 2 > count
    }

    /// Whether no two coordinators can begin, one with each of these records.
    pub fn meets(&self, other: &Self) -> bool {
        let count = self.lacks.len();
        count > 2 || !(self.out | other.out) & ((1 << count) - 1) != 0
    }

    /// Puts nodes out. Those whose copies together are needed, as each lacks something, stay: one of them is not enough.
    pub fn put_out(&mut self, nodes: u64) {
        self.out |= nodes;
        let all = u64::MAX >> (64 - self.lacks.len());
        if self.out & all == all {
            let whole =
                (0..self.lacks.len()).filter(|node| self.lacks[*node].is_empty()).fold(0, |set, node| set | 1 << node);
            self.out = if whole == 0 { 0 } else { all & !whole };
        }
    }

    /// What orders records.
    pub fn generation(&self) -> (u64, u64) {
        (self.epoch, self.sequence)
    }

    pub fn encode(&self, identity: &Identity) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u32_le(MAGIC);
        out.put_u32_le(VERSION);
        out.put_u32_le(0);
        out.put_u64_le(self.epoch);
        out.put_u64_le(self.sequence);
        out.put_u64_le(identity.region_bytes);
        out.put_u32_le(identity.region_count);
        out.put_u32_le(identity.placement);
        out.put_u32_le(identity.names.len() as u32);
        for (nth, name) in identity.names.iter().enumerate() {
            let name = &name.as_bytes()[..name.len().min(NAME_BYTES_MAX)];
            out.put_u16_le(name.len() as u16);
            out.put_slice(name);
            out.put_u8((self.out >> nth & 1) as u8);
        }
        let bytes = identity.region_count.div_ceil(8) as usize;
        for set in std::iter::once(&self.active).chain(&self.lacks) {
            out.put_slice(&set.to_bytes(bytes));
        }
        let length = out.len() as u32 + 4;
        out[8..12].copy_from_slice(&length.to_le_bytes());
        let sum = crc32c::crc32c(&out);
        out.put_u32_le(sum);
        out.freeze()
    }

    /// The nodes' names in a slot with a whole record, to complete an [`Identity`] of which not all nodes are there.
    pub fn names(slot: &[u8]) -> Option<Vec<String>> {
        let length = slot.get(8..12).map(|mut bytes| bytes.get_u32_le() as usize)?;
        let (text, mut sum) = slot.get(..length)?.split_last_chunk::<4>().map(|(text, sum)| (text, &sum[..]))?;
        let is_whole = slot.starts_with(&MAGIC.to_le_bytes()) && crc32c::crc32c(text) == sum.get_u32_le();
        let count = text.get(44..48).filter(|_| is_whole).map(|mut bytes| bytes.get_u32_le())? as usize;
        let mut at = 48;
        (0..count.min(NODES_MAX))
            .map(|_| {
                let length = text.get(at..at + 2).map(|mut bytes| bytes.get_u16_le())? as usize;
                let name = text.get(at + 2..at + 2 + length)?;
                at += 3 + length;
                String::from_utf8(name.to_vec()).ok()
            })
            .collect()
    }

    /// Reads a slot.
    pub fn decode(slot: &[u8], identity: &Identity) -> Result<Self, RecordError> {
        let mut head = slot.get(..48).ok_or(RecordError::Absent)?;
        if head.get_u32_le() != MAGIC {
            return Err(RecordError::Absent);
        }
        let (version, length) = (head.get_u32_le(), head.get_u32_le() as usize);
        let (text, mut sum) = slot
            .get(..length)
            .and_then(|whole| whole.split_last_chunk::<4>())
            .map(|(text, sum)| (text, &sum[..]))
            .ok_or(RecordError::Absent)?;
        if crc32c::crc32c(text) != sum.get_u32_le() {
            return Err(RecordError::Absent);
        }
        if version != VERSION {
            return Err(RecordError::Newer(version));
        }
        let (epoch, sequence) = (head.get_u64_le(), head.get_u64_le());
        let mut out = 0;
        // What is not of this pool differs in its text from what this pool writes.
        let mut at = 48;
        for nth in 0..identity.names.len() {
            let name = text.get(at..at + 2).map(|mut bytes| bytes.get_u16_le() as usize).ok_or(RecordError::Foreign)?;
            at += 2 + name;
            out |= u64::from(*text.get(at).ok_or(RecordError::Foreign)? == 1) << nth;
            at += 1;
        }
        let bytes = identity.region_count.div_ceil(8) as usize;
        let set = |nth: usize| text.get(at + nth * bytes..at + (nth + 1) * bytes).map(RegionSet::from_bytes);
        let active = set(0).ok_or(RecordError::Foreign)?;
        let lacks = (1..=identity.names.len()).map(set).collect::<Option<Vec<_>>>().ok_or(RecordError::Foreign)?;
        let record = Self { epoch, sequence, out, active, lacks };
        if record.encode(identity)[..] == slot[..length] { Ok(record) } else { Err(RecordError::Foreign) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn identity(nodes: usize, regions: u32) -> Identity {
        let names = (0..nodes).map(|nth| format!("node-{nth}")).collect();
        Identity { names, region_bytes: 1 << 20, region_count: regions, placement: 77 }
    }

    proptest! {
        #[test]
        fn records_round_trip_and_torn_ones_are_absent(
            nodes in 2_usize..6,
            regions in 1_u32..200,
            marks in proptest::collection::vec((0_usize..7, 0_u32..200), 0..40),
            out in 0_u64..64,
            cut in any::<prop::sample::Index>(),
        ) {
            let identity = identity(nodes, regions);
            let mut record = Record { epoch: 3, sequence: 9, out: out % (1 << nodes), ..Record::new(nodes) };
            for (set, region) in marks.into_iter().filter(|(_, region)| *region < regions) {
                record.lacks.get_mut(set).unwrap_or(&mut record.active).insert(region);
            }
            let bytes = record.encode(&identity);
            prop_assert_eq!(Record::decode(&bytes, &identity), Ok(record));
            let mut torn = bytes.to_vec();
            torn[cut.index(bytes.len())] ^= 1;
            prop_assert_eq!(Record::decode(&torn, &identity), Err(RecordError::Absent));
        }
    }

    #[test]
    fn foreign_and_newer_records_are_refused() {
        let (ours, record) = (identity(3, 20), Record::new(3));
        let theirs = Identity { names: vec!["x".into(), "node-1".into(), "node-2".into()], ..ours.clone() };
        assert_eq!(Record::decode(&record.encode(&theirs), &ours), Err(RecordError::Foreign));
        let other = Identity { placement: 78, ..ours.clone() };
        assert_eq!(Record::decode(&record.encode(&other), &ours), Err(RecordError::Foreign));
        let mut newer = record.encode(&ours).to_vec();
        newer[4] = 2;
        let end = newer.len() - 4;
        let sum = crc32c::crc32c(&newer[..end]).to_le_bytes();
        newer[end..].copy_from_slice(&sum);
        assert_eq!(Record::decode(&newer, &ours), Err(RecordError::Newer(2)));
    }

    #[test]
    fn two_nodes_need_both_unless_one_is_out() {
        let mut record = Record::new(2);
        assert!(record.is_quorum(3) && !record.is_quorum(1) && !record.is_quorum(2));
        record.out = 2;
        assert!(record.is_quorum(1) && !record.is_quorum(2));
        let three = Record::new(3);
        assert!(three.is_quorum(3) && three.is_quorum(6) && !three.is_quorum(4));
    }
}
