//! Which nodes hold the copies of each chunk of a mirrored disk. A pure function of the nodes' sizes and failure groups, so that every
//! coordinator finds the same places; a store keeps [`Placement::checksum`] of it, and refuses another one.
//!
//! The copies of a chunk are on nodes of different groups (shelves, power strips, rooms); a node without a group is one of its own.
//! Each chunk goes to the groups with the most room left, and there to the nodes with the most room left. This uses the most space that
//! is possible (McNaughton's wrap-around rule fills it as well), and spreads chunks in proportion to the nodes' sizes.

use super::record::{META_BYTES, NODES_MAX};
use super::regions::REGIONS_MAX;

/// Bytes of a region, the unit in which it is known what a copy lacks, unless the disk is so large that there would be more than
/// [`REGIONS_MAX`].
const REGION_BYTES_MIN: u64 = 1 << 20;
/// The usual bytes of a chunk; smaller on small nodes, so that each has at least [`CHUNKS_MIN`], and at least a region.
const CHUNK_BYTES: u64 = 64 << 20;
const CHUNKS_MIN: u64 = 16;
/// The permitted numbers of copies.
pub const COPIES: std::ops::RangeInclusive<u32> = 2..=3;

/// A node, as far as its place matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Bytes of its store.
    pub size_bytes: u64,
    /// The failure group; `None`: its own.
    pub group: Option<String>,
}

/// Why there is no placement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlacementError {
    #[error("a mirrored pool has 2 or 3 copies, not {0}")]
    Copies(u32),
    #[error(
        "{copies} copies need {copies} failure groups, and the nodes have {groups}; add nodes, or give them other groups"
    )]
    Groups { copies: u32, groups: usize },
    #[error("a mirrored pool has at most {NODES_MAX} nodes, not {0}")]
    Nodes(usize),
    #[error("node {nth} is too small for a mirrored pool: {size_bytes} bytes, and the least is {needed_bytes}")]
    Small {
        /// Its number, from 1.
        nth: usize,
        size_bytes: u64,
        needed_bytes: u64,
    },
}

/// One copy of a range of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub node: usize,
    /// Offset in the node's store.
    pub offset: u64,
}

/// The places of all chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    copies: usize,
    chunk_bytes: u64,
    region_bytes: u64,
    /// `copies` for each chunk: node, and number of the chunk there.
    places: Vec<(u32, u32)>,
    members: Vec<Member>,
}

impl Placement {
    /// Places the chunks.
    ///
    /// # Errors
    /// [`PlacementError`], if the nodes cannot hold copies in different groups.
    pub fn new(members: &[Member], copies: u32) -> Result<Self, PlacementError> {
        if !COPIES.contains(&copies) {
            return Err(PlacementError::Copies(copies));
        }
        if members.len() > NODES_MAX {
            return Err(PlacementError::Nodes(members.len()));
        }
        let needed_bytes = META_BYTES + REGION_BYTES_MIN;
        if let Some(nth) = members.iter().position(|member| member.size_bytes < needed_bytes) {
            return Err(PlacementError::Small { nth: nth + 1, size_bytes: members[nth].size_bytes, needed_bytes });
        }
        let usable = |member: &Member| member.size_bytes - META_BYTES;
        let smallest = members.iter().map(usable).min().unwrap_or(0);
        let total: u64 = members.iter().map(usable).sum();
        let region_bytes = (total / u64::from(copies)).div_ceil(REGIONS_MAX).next_power_of_two().max(REGION_BYTES_MIN);
        let fitting = (smallest / CHUNKS_MIN + 1).next_power_of_two() / 2;
        let chunk_bytes = fitting.clamp(REGION_BYTES_MIN, CHUNK_BYTES).max(region_bytes);
        let rooms: Vec<u64> = members.iter().map(|member| usable(member) / chunk_bytes).collect();
        let places = place(members, &rooms, copies as usize)?;
        Ok(Self { copies: copies as usize, chunk_bytes, region_bytes, places, members: members.to_vec() })
    }

    pub fn copies(&self) -> usize {
        self.copies
    }

    /// The number of copies that a write must have before it is answered.
    pub fn copies_needed(&self) -> usize {
        self.copies.div_ceil(2)
    }

    pub fn all_nodes(&self) -> u64 {
        u64::MAX >> (64 - self.members.len())
    }

    pub fn node_count(&self) -> usize {
        self.members.len()
    }

    pub fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes
    }

    pub fn region_bytes(&self) -> u64 {
        self.region_bytes
    }

    /// Bytes of the disk.
    pub fn size_bytes(&self) -> u64 {
        (self.places.len() / self.copies) as u64 * self.chunk_bytes
    }

    pub fn region_count(&self) -> u32 {
        (self.size_bytes() / self.region_bytes) as u32
    }

    /// The region of a byte of the disk.
    pub fn region(&self, offset: u64) -> u32 {
        (offset / self.region_bytes) as u32
    }

    /// The places of a byte of the disk.
    pub fn places(&self, offset: u64) -> impl Iterator<Item = Place> + Clone {
        let chunk = (offset / self.chunk_bytes) as usize * self.copies;
        let within = offset % self.chunk_bytes;
        let copies = self.places.get(chunk..chunk + self.copies).unwrap_or_default();
        let chunk_bytes = self.chunk_bytes;
        copies
            .iter()
            .map(move |(node, slot)| Place { node: *node as usize, offset: u64::from(*slot) * chunk_bytes + within })
    }

    /// The nodes that hold a region, as a set.
    pub fn holders(&self, region: u32) -> u64 {
        self.places(u64::from(region) * self.region_bytes).fold(0, |set, place| set | 1 << place.node)
    }

    /// The offset on a node of a byte of the disk, if the node holds it.
    pub fn offset_on(&self, node: usize, offset: u64) -> Option<u64> {
        self.places(offset).find(|place| place.node == node).map(|place| place.offset)
    }

    /// The regions that these bytes of a node's store belong to.
    pub fn regions_of(&self, node: usize, range: std::ops::Range<u64>) -> Vec<u32> {
        let is_touched = |region: &u32| {
            let at = self.offset_on(node, u64::from(*region) * self.region_bytes);
            at.is_some_and(|at| at < range.end && range.start < at + self.region_bytes)
        };
        (0..self.region_count()).filter(is_touched).collect()
    }

    /// Where these bytes of a node's store are on the disk: offset and length, of those that are in the region of the first.
    pub fn range_of(&self, node: usize, range: std::ops::Range<u64>) -> Option<(u64, u64)> {
        let region = self.regions_of(node, range.start..range.start + 1).pop()?;
        let begin = u64::from(region) * self.region_bytes;
        let within = range.start - self.offset_on(node, begin)?;
        Some((begin + within, (range.end - range.start).min(self.region_bytes - within)))
    }

    /// The offset of the records in a node's store.
    pub fn meta_offset(&self, node: usize) -> u64 {
        self.members[node].size_bytes - META_BYTES
    }

    /// Another one for other places.
    pub fn checksum(&self) -> u32 {
        let bytes: Vec<u8> =
            self.places.iter().flat_map(|(node, slot)| [*node, *slot]).flat_map(u32::to_le_bytes).collect();
        crc32c::crc32c_append(crc32c::crc32c(&bytes), &self.region_bytes.to_le_bytes())
    }
}

/// The nodes and chunk numbers of each chunk in turn.
fn place(members: &[Member], rooms: &[u64], copies: usize) -> Result<Vec<(u32, u32)>, PlacementError> {
    let mut groups: Vec<(Option<&str>, Vec<usize>)> = Vec::new();
    for (nth, member) in members.iter().enumerate() {
        let name = member.group.as_deref();
        match groups.iter_mut().find(|(other, _)| name.is_some() && *other == name) {
            Some((_, nodes)) => nodes.push(nth),
            None => groups.push((name, vec![nth])),
        }
    }
    if groups.len() < copies {
        return Err(PlacementError::Groups { copies: copies as u32, groups: groups.len() });
    }
    let mut left = rooms.to_vec();
    let (mut places, mut turn) = (Vec::new(), 0);
    loop {
        // Groups with equal room take turns, so that not always the same ones are together.
        let mut order: Vec<(u64, usize)> = groups
            .iter()
            .enumerate()
            .map(|(nth, (_, nodes))| (nodes.iter().map(|node| left[*node]).sum(), (nth + turn) % groups.len()))
            .zip(0..)
            .map(|((room, rank), nth): ((u64, usize), usize)| (room, rank * groups.len() + nth))
            .collect();
        order.sort_unstable_by_key(|(room, rank)| (std::cmp::Reverse(*room), *rank));
        let chosen: Vec<usize> =
            order[..copies].iter().filter(|(room, _)| *room > 0).map(|(_, rank)| rank % groups.len()).collect();
        if chosen.len() < copies {
            return Ok(places);
        }
        for group in chosen {
            let node = groups[group].1.iter().copied().max_by_key(|node| (left[*node], std::cmp::Reverse(*node)));
            // The group has room, so one of its nodes has.
            let Some(node) = node else { return Ok(places) };
            places.push((node as u32, (rooms[node] - left[node]) as u32));
            left[node] -= 1;
        }
        turn += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn members() -> impl Strategy<Value = Vec<Member>> {
        let member = (2_u64..60, proptest::option::of(0_u8..4)).prop_map(|(mib, group)| Member {
            size_bytes: META_BYTES + (mib << 20),
            group: group.map(|group| group.to_string()),
        });
        proptest::collection::vec(member, 1..7)
    }

    fn group_of(members: &[Member], node: usize) -> String {
        members[node].group.clone().unwrap_or_else(|| format!("own {node}"))
    }

    proptest! {
        /// Each byte has exactly as many places as there are copies, in different groups, and no two bytes share a place.
        #[test]
        fn every_byte_has_its_places_in_different_groups(members in members(), copies in 2_u32..=3) {
            let groups: BTreeSet<String> = (0..members.len()).map(|node| group_of(&members, node)).collect();
            let placed = Placement::new(&members, copies);
            if groups.len() < copies as usize {
                prop_assert_eq!(placed, Err(PlacementError::Groups { copies, groups: groups.len() }));
                return Ok(());
            }
            let placement = placed.expect("there are enough groups");
            let mut used = BTreeSet::new();
            for region in 0..placement.region_count() {
                let at = u64::from(region) * placement.region_bytes();
                let places: Vec<Place> = placement.places(at).collect();
                prop_assert_eq!(places.len(), copies as usize);
                let of: BTreeSet<String> = places.iter().map(|place| group_of(&members, place.node)).collect();
                prop_assert_eq!(of.len(), copies as usize);
                for place in places {
                    prop_assert!(used.insert((place.node, place.offset)), "used twice");
                    prop_assert!(place.offset + placement.region_bytes() <= placement.meta_offset(place.node));
                    prop_assert_eq!(placement.regions_of(place.node, place.offset..place.offset + 1), vec![region]);
                    prop_assert_eq!(placement.range_of(place.node, place.offset + 9..place.offset + 19), Some((at + 9, 10)));
                }
            }
        }

        /// As much space as possible is used: no larger disk fits into the groups, each of which can hold a chunk only once.
        #[test]
        fn placement_uses_all_possible_space(members in members(), copies in 2_u32..=3) {
            let Ok(placement) = Placement::new(&members, copies) else { return Ok(()) };
            let mut rooms = BTreeMap::<String, u64>::new();
            for (node, member) in members.iter().enumerate() {
                let room = (member.size_bytes - META_BYTES) / placement.chunk_bytes();
                *rooms.entry(group_of(&members, node)).or_default() += room;
            }
            let fits = |chunks: u64| rooms.values().map(|room| room.min(&chunks)).sum::<u64>() >= u64::from(copies) * chunks;
            let chunks = placement.size_bytes() / placement.chunk_bytes();
            prop_assert!(fits(chunks) && !fits(chunks + 1), "{} chunks", chunks);
        }

        /// Equal nodes of groups of their own hold equally many chunks, up to one.
        #[test]
        fn equal_nodes_hold_equally_many_chunks(count in 2_usize..9, mib in 2_u64..80, copies in 2_u32..=3) {
            let members = vec![Member { size_bytes: META_BYTES + (mib << 20), group: None }; count.max(copies as usize)];
            let placement = Placement::new(&members, copies).expect("there are enough");
            let mut held = vec![0; members.len()];
            for region in 0..placement.region_count() {
                placement.places(u64::from(region) * placement.region_bytes()).for_each(|place| held[place.node] += 1);
            }
            let regions = placement.chunk_bytes() / placement.region_bytes();
            let (least, most) = (held.iter().min().copied(), held.iter().max().copied());
            prop_assert!(most.unwrap_or(0) - least.unwrap_or(0) <= regions, "{:?}", held);
        }
    }

    #[test]
    fn impossible_placements_say_why() {
        let shelf = |name: &str| Member { size_bytes: 64 << 20, group: Some(name.into()) };
        let why = |members: &[Member], copies| Placement::new(members, copies).expect_err("impossible").to_string();
        let two = [shelf("a"), shelf("a"), shelf("b")];
        assert!(why(&two, 3).contains("3 copies need 3 failure groups, and the nodes have 2"), "{}", why(&two, 3));
        assert!(why(&two, 1).contains("2 or 3 copies, not 1"));
        let small = [shelf("a"), Member { size_bytes: 1 << 20, group: None }];
        assert!(why(&small, 2).contains("node 2 is too small"), "{}", why(&small, 2));
    }

    #[test]
    fn placement_of_large_nodes_has_few_regions() {
        let members = vec![Member { size_bytes: 1 << 40, group: None }; 3];
        let placement = Placement::new(&members, 3).expect("a placement");
        assert!(u64::from(placement.region_count()) <= REGIONS_MAX && placement.region_bytes() == 128 << 20);
        assert_eq!(placement.chunk_bytes(), 128 << 20);
    }
}
