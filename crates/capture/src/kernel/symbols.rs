//! Where the kernel's functions that hear of a bio's end are: by them the probes tell what kind of bio it is.

use model::BioEnd;
use std::fs;

/// Entries that the kernel side compares; as in `common.h`.
pub const END_FUNCTIONS: usize = 16;

/// By how often they are met, since the kernel side compares one after the other.
const NAMES: &[(&str, BioEnd)] = &[
    ("end_bio_bh_io_sync", BioEnd::BufferHead),
    ("ext4_end_bio", BioEnd::Ext4),
    ("submit_bio_wait_endio", BioEnd::Wait),
    ("mpage_end_io", BioEnd::PageRead),
    ("mpage_read_end_io", BioEnd::PageRead),
    ("iomap_read_end_io", BioEnd::PageRead),
    ("f2fs_read_end_io", BioEnd::PageRead),
    ("iomap_dio_bio_end_io", BioEnd::Direct),
    ("blkdev_bio_end_io", BioEnd::Direct),
    ("blkdev_bio_end_io_async", BioEnd::Direct),
    ("dio_bio_end_io", BioEnd::Direct),
    ("dio_bio_end_aio", BioEnd::Direct),
    ("clone_endio", BioEnd::Clone),
    ("crypt_endio", BioEnd::Crypt),
];

/// Addresses and classes, as the kernel side wants them. All zero if addresses are hidden from this user.
pub fn bio_ends() -> ([u64; END_FUNCTIONS], [u8; END_FUNCTIONS]) {
    parse(&fs::read_to_string("/proc/kallsyms").unwrap_or_default())
}

fn parse(kallsyms: &str) -> ([u64; END_FUNCTIONS], [u8; END_FUNCTIONS]) {
    let mut found = Vec::new();
    for line in kallsyms.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(address), Some(_), Some(name)) = (words.next(), words.next(), words.next()) else { continue };
        let Some(rank) = NAMES.iter().position(|(n, _)| *n == name) else { continue };
        match u64::from_str_radix(address, 16) {
            // A bio without such a function must not match an empty entry of ours, nor a hidden address.
            Ok(address) if address != 0 => found.push((rank, address)),
            _ => {}
        }
    }
    // Local functions of one name may exist several times; each has its entry.
    found.sort_unstable();
    let mut addresses = [u64::MAX; END_FUNCTIONS];
    let mut classes = [BioEnd::Unknown as u8; END_FUNCTIONS];
    for (i, (rank, address)) in found.into_iter().take(END_FUNCTIONS).enumerate() {
        addresses[i] = address;
        classes[i] = NAMES[rank].1 as u8;
    }
    (addresses, classes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_sorted_and_hidden_addresses_ignored() {
        let (addresses, classes) = parse(
            "ffffffff00000030 t mpage_end_io\nffffffff00000010 t ext4_end_bio\t[ext4]\nffffffff00000020 t mpage_end_io\n\
             0000000000000000 t clone_endio\n damaged\nffffffff00000040 T __pfx_ext4_end_bio\n",
        );
        assert_eq!(addresses[..4], [0xffff_ffff_0000_0010, 0xffff_ffff_0000_0020, 0xffff_ffff_0000_0030, u64::MAX]);
        assert_eq!(classes[..4], [BioEnd::Ext4 as u8, BioEnd::PageRead as u8, BioEnd::PageRead as u8, 0]);
    }
}
