//! The header of a store, stored twice at its end: see [`super`] for where and why.

use super::medium::MediumId;
use super::regions::{REGIONS_MAX, RegionSet, region_bytes};
use super::{BLOCK_BYTES, Error};
use crate::protocol::{DiskPosition, Loss, LossCause, StorePosition};
use crate::unique_name::new_name;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of a header; two are at the end.
pub(super) const HEADER_BYTES: u64 = 4096;
/// The value of `format`.
const FORMAT_NAME: &str = "fathom-pool-store";
/// 1: the first. 2: the map of marked regions, ranges that may be lost. 3: marked regions have no sums. A store of an older
/// version is upgraded when it is first claimed.
pub(super) const FORMAT_VERSION: u32 = 3;
/// 4: the store belongs to a mirrored pool, which older releases would take for a concatenated one.
const MIRROR_FORMAT_VERSION: u32 = 4;
/// The maximum number of ranges that may be lost: beyond it, the closest are merged.
const LOST_RANGES_MAX: usize = 12;

/// The contents of a header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    format: String,
    version: u32,
    /// The pool that it belongs to; empty until a coordinator has claimed it.
    pub pool: String,
    /// Its position there; `None` until then.
    pub place: Option<StorePosition>,
    /// Its own name, unique.
    pub node: String,
    /// Bytes of data, a multiple of [`BLOCK_BYTES`].
    pub size_bytes: u64,
    block_bytes: u64,
    /// The highest epoch of a coordinator that has claimed it.
    pub epoch: u64,
    /// The name of that coordinator.
    pub coordinator: String,
    pub(super) sequence: u64,
    /// Whether it was closed cleanly.
    pub(super) clean: bool,
    /// Bytes of a region; 0 in version 1.
    #[serde(default)]
    pub(super) region_bytes: u64,
    /// The regions that may contain unflushed data.
    #[serde(default)]
    pub(super) marked: RegionSet,
    /// The boot of the machine that last wrote this.
    #[serde(default)]
    pub(super) boot: String,
    /// The file or device, and the disk and mount that it is on, where these marks were made; `None` where that is unknown.
    #[serde(default)]
    pub(super) medium: Option<MediumId>,
    /// Where acknowledged writes may be lost: offset and length.
    #[serde(default)]
    pub lost: Vec<(u64, u64)>,
    /// Why; empty in the header of an older release, which only knew restarts of the machine.
    #[serde(default)]
    pub(super) loss_causes: Vec<LossCause>,
    /// Changes with every loss.
    #[serde(default)]
    pub(super) loss_id: String,
    /// Its place on the disk of its pool; `None` in a store that only older releases have served.
    #[serde(default)]
    pub disk: Option<DiskPosition>,
    /// Pool and position are recorded, and the pool may not have all its nodes yet.
    #[serde(default)]
    pub reserved: bool,
}

impl Header {
    pub(super) fn new(node: String, size_bytes: u64) -> Self {
        Self {
            format: FORMAT_NAME.into(),
            version: FORMAT_VERSION,
            pool: String::new(),
            place: None,
            node,
            size_bytes,
            block_bytes: BLOCK_BYTES,
            epoch: 0,
            coordinator: String::new(),
            sequence: 0,
            clean: true,
            region_bytes: region_bytes(size_bytes),
            marked: RegionSet::default(),
            boot: String::new(),
            medium: None,
            lost: Vec::new(),
            loss_causes: Vec::new(),
            loss_id: String::new(),
            disk: None,
            reserved: false,
        }
    }

    /// Whether unflushed data may exist.
    pub fn is_marked(&self) -> bool {
        !self.marked.is_empty()
    }

    /// Whether the region of this byte is marked: its data is accepted, whatever the sums on the medium are.
    pub fn is_marked_at(&self, offset: u64) -> bool {
        offset.checked_div(self.region_bytes).is_some_and(|region| self.marked.iter().any(|m| m as u64 == region))
    }

    /// The header in the current version, as it is written.
    pub(super) fn in_current_version(self) -> Self {
        let is_mirrored = self.place.as_ref().is_some_and(|place| place.mirror.is_some());
        Self { version: if is_mirrored { MIRROR_FORMAT_VERSION } else { FORMAT_VERSION }, ..self }
    }

    /// Whether it is of version 1, which has no marks.
    pub(super) fn is_version_1(&self) -> bool {
        self.version == 1
    }

    /// Where acknowledged writes may be lost, and why.
    pub fn loss(&self) -> Loss {
        Loss { ranges: self.lost.clone(), causes: self.loss_causes.clone(), id: self.loss_id.clone() }
    }

    /// The ranges that may be lost, as a text: "1048576 bytes from offset 0".
    pub(super) fn shown_loss(&self) -> String {
        let ranges: Vec<String> =
            self.lost.iter().map(|(begin, bytes)| format!("{bytes} bytes from offset {begin}")).collect();
        ranges.join(", ")
    }

    /// Adds ranges where acknowledged writes may be lost.
    pub(super) fn add_loss(&mut self, ranges: impl IntoIterator<Item = std::ops::Range<u64>>, cause: LossCause) {
        let before = (self.lost.clone(), self.loss_causes.clone());
        ranges.into_iter().for_each(|range| self.add_lost_range(range));
        if !self.loss_causes.contains(&cause) {
            self.loss_causes.push(cause);
        }
        if before != (self.lost.clone(), self.loss_causes.clone()) {
            self.loss_id = new_name();
        }
    }

    /// Nothing counts as lost any more.
    pub(super) fn accept_loss(&mut self) {
        (self.lost, self.loss_causes, self.loss_id) = (Vec::new(), Vec::new(), String::new());
    }

    fn add_lost_range(&mut self, range: std::ops::Range<u64>) {
        self.lost.push((range.start, range.end - range.start));
        self.lost.sort_unstable();
        let gap = |pair: &[(u64, u64)]| pair[1].0.saturating_sub(pair[0].0.saturating_add(pair[0].1));
        loop {
            let closest = self.lost.windows(2).enumerate().min_by_key(|(_, pair)| gap(pair));
            let Some((nth, closest)) = closest.map(|(nth, pair)| (nth, gap(pair))) else { return };
            if closest > 0 && self.lost.len() <= LOST_RANGES_MAX {
                return;
            }
            let (begin, bytes) = self.lost.remove(nth + 1);
            let first = &mut self.lost[nth];
            first.1 = first.1.max((begin - first.0).saturating_add(bytes));
        }
    }

    /// The encoded header, with its checksum.
    pub(super) fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec(&self.clone().in_current_version())?;
        if bytes.len() as u64 > HEADER_BYTES - 4 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the names are too long for the header"));
        }
        bytes.resize(HEADER_BYTES as usize - 4, b' ');
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        Ok(bytes)
    }
}

fn table_bytes(size_bytes: u64) -> u64 {
    (size_bytes / BLOCK_BYTES * 8).next_multiple_of(BLOCK_BYTES)
}

/// The total bytes of a store with `size_bytes` of data.
pub fn store_bytes(size_bytes: u64) -> u64 {
    size_bytes + table_bytes(size_bytes) + 2 * HEADER_BYTES
}

/// The bytes of data that fit into `whole` bytes.
pub fn data_bytes(whole: u64) -> u64 {
    // Each block needs 8 additional bytes, and up to a block is lost to rounding.
    let blocks = whole.saturating_sub(2 * HEADER_BYTES + BLOCK_BYTES) / (BLOCK_BYTES + 8);
    blocks * BLOCK_BYTES
}

pub(super) fn read_header(path: &Path, file: &File, there: u64) -> Result<Header, Error> {
    let unformatted = || Error::Unformatted { path: path.into() };
    let mut best: Option<Header> = None;
    for nth in [1, 2] {
        let Some(at) = there.checked_sub(nth * HEADER_BYTES) else { continue };
        let mut bytes = vec![0; HEADER_BYTES as usize];
        file.read_exact_at(&mut bytes, at).map_err(|source| Error::Io { action: "read", path: path.into(), source })?;
        let (text, sum) = bytes.split_at(HEADER_BYTES as usize - 4);
        if crc32c::crc32c(text).to_le_bytes() != sum {
            continue;
        }
        let value: serde_json::Value = serde_json::from_slice(text).map_err(|_| unformatted())?;
        if value["format"] != FORMAT_NAME {
            continue;
        }
        let version = value["version"].as_u64().and_then(|v| u32::try_from(v).ok()).unwrap_or(u32::MAX);
        if version > MIRROR_FORMAT_VERSION {
            return Err(Error::Newer { path: path.into(), version, known: MIRROR_FORMAT_VERSION });
        }
        let header: Header = serde_json::from_value(value).map_err(|_| unformatted())?;
        if best.as_ref().is_none_or(|b| b.sequence < header.sequence) {
            best = Some(header);
        }
    }
    let mut header = best.ok_or_else(unformatted)?;
    let (size, block) = (header.size_bytes, header.block_bytes);
    if header.is_version_1() {
        header.region_bytes = region_bytes(size);
    }
    let region = header.region_bytes;
    if region == 0 || region % BLOCK_BYTES != 0 || size.div_ceil(region) > REGIONS_MAX {
        return Err(unformatted());
    }
    header.marked.truncate(size.div_ceil(region) as usize);
    header.lost.retain(|(begin, bytes)| *bytes > 0 && begin.checked_add(*bytes).is_some_and(|end| end <= size));
    if block != BLOCK_BYTES || size == 0 || size % BLOCK_BYTES != 0 {
        return Err(unformatted());
    }
    // A device may be longer than the store.
    if size > there || store_bytes(size) > there {
        let why = format!("it has {there} bytes, too few for the {size} bytes of data in its header");
        return Err(Error::Size { path: path.into(), why });
    }
    Ok(header)
}
