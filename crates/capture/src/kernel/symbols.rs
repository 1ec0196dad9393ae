//! Addresses of some kernel functions: those called at a bio's end, by which the probes classify the bio, and those that
//! wait, by which they determine what a thread sleeps for.

use model::{BioEnd, Wait};
use std::fs;

/// Number of entries that the kernel side compares; as in `common.h`.
pub const END_FUNCTIONS: usize = 16;

/// Ordered by frequency, since the kernel side compares them one after the other.
const BIO_END_FUNCTIONS: &[(&str, BioEnd)] = &[
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

/// Called at the end of a block of ext4's fast commits (fs/ext4/fast_commit.c).
const LOG_BLOCK_END_FUNCTION: &str = "ext4_end_buffer_io_sync";

/// Number of entries that the kernel side compares; as in `waits.h`.
pub const WAIT_FUNCTIONS: usize = 48;

/// Kernel functions that wait for something known, as found on the stack of a thread that sleeps in them. Outer functions need
/// not come before the inner functions that they call: the innermost counts.
const WAIT_FUNCTION_NAMES: &[(&str, Wait)] = &[
    ("balance_dirty_pages", Wait::DirtyThrottling),
    ("try_to_free_pages", Wait::Reclaim),
    ("try_to_free_mem_cgroup_pages", Wait::Reclaim),
    ("reclaim_throttle", Wait::Reclaim),
    ("mem_cgroup_handle_over_high", Wait::Reclaim),
    ("wait_transaction_locked", Wait::Transaction),
    ("wait_transaction_switching", Wait::Transaction),
    ("add_transaction_credits", Wait::Transaction),
    ("start_this_handle", Wait::Transaction),
    ("do_get_write_access", Wait::Transaction),
    ("__jbd2_log_wait_for_space", Wait::JournalSpace),
    ("jbd2_log_do_checkpoint", Wait::JournalSpace),
    ("jbd2_log_wait_commit", Wait::Commit),
    ("down_read", Wait::KernelLock),
    ("down_read_killable", Wait::KernelLock),
    ("down_write", Wait::KernelLock),
    ("down_write_killable", Wait::KernelLock),
    ("rwsem_down_read_slowpath", Wait::KernelLock),
    ("rwsem_down_write_slowpath", Wait::KernelLock),
    ("__mutex_lock", Wait::KernelLock),
    ("blk_mq_get_tag", Wait::RequestTag),
    ("rq_qos_wait", Wait::WriteThrottling),
    ("__blkcg_maybe_throttle_current", Wait::IoQuota),
    ("blkcg_maybe_throttle_current", Wait::IoQuota),
    ("folio_wait_writeback", Wait::Writeback),
    ("__filemap_fdatawait_range", Wait::Writeback),
    ("__wait_on_buffer", Wait::Buffer),
    ("__sync_dirty_buffer", Wait::Buffer),
    ("fsync_buffers_list", Wait::Buffer),
    ("f2fs_issue_checkpoint", Wait::F2fsCheckpoint),
    ("f2fs_write_checkpoint", Wait::F2fsCheckpoint),
    ("f2fs_balance_fs", Wait::F2fsCleaning),
];

/// Addresses and classes, in the kernel side's format.
type EndTable = ([u64; END_FUNCTIONS], [u8; END_FUNCTIONS]);
/// Where functions begin and end, and what each waits for; zeroes after the last.
type WaitTable = ([u64; WAIT_FUNCTIONS], [u64; WAIT_FUNCTIONS], [u8; WAIT_FUNCTIONS]);

/// The kernel's functions, in the form that the kernel side needs. Empty if addresses are hidden from this user.
pub struct KernelFunctions {
    /// Those called at a bio's end.
    pub ends: EndTable,
    /// The one called at the end of a block of ext4's fast commits; 0: unknown.
    pub log_block_end: u64,
    /// Those that wait.
    pub waits: WaitTable,
}

impl KernelFunctions {
    /// Reads those of the running kernel.
    pub fn read() -> Self {
        Self::parse(&fs::read_to_string("/proc/kallsyms").unwrap_or_default())
    }

    fn parse(kallsyms: &str) -> Self {
        let (mut ends, mut waits, mut symbol_addresses) = (Vec::new(), Vec::new(), Vec::new());
        let mut log_block_end = 0;
        for line in kallsyms.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(address), Some(_), Some(name)) = (words.next(), words.next(), words.next()) else { continue };
            // A bio without such a function must not match an empty entry of ours, nor a hidden address.
            let Some(address) = u64::from_str_radix(address, 16).ok().filter(|address| *address != 0) else { continue };
            symbol_addresses.push(address);
            if let Some(rank) = BIO_END_FUNCTIONS.iter().position(|(n, _)| *n == name) {
                ends.push((rank, address));
            }
            if name == LOG_BLOCK_END_FUNCTION {
                log_block_end = address;
            }
            let function = without_suffix(name);
            if let Some((_, wait)) = WAIT_FUNCTION_NAMES.iter().find(|(n, _)| *n == function) {
                waits.push((address, wait.number() as u8));
            }
        }
        symbol_addresses.sort_unstable();
        Self { ends: table_of_ends(ends), log_block_end, waits: table_of_waits(waits, &symbol_addresses) }
    }
}

/// Returns a name without the suffixes that the compiler appended for a part or a variant of the function. Called for each of
/// 200,000 symbols before every recording, so the common case, without a dot, is handled first.
fn without_suffix(name: &str) -> &str {
    if !name.contains('.') {
        return name;
    }
    [".constprop", ".isra", ".part", ".cold"].iter().find_map(|s| name.find(s)).map_or(name, |at| &name[..at])
}

fn table_of_ends(mut found: Vec<(usize, u64)>) -> EndTable {
    // Several local functions may have the same name; each has its entry.
    found.sort_unstable();
    let mut addresses = [u64::MAX; END_FUNCTIONS];
    let mut classes = [BioEnd::Unknown as u8; END_FUNCTIONS];
    for (i, (rank, address)) in found.into_iter().take(END_FUNCTIONS).enumerate() {
        addresses[i] = address;
        classes[i] = BIO_END_FUNCTIONS[rank].1 as u8;
    }
    (addresses, classes)
}

/// Builds the table; a function ends where the next symbol begins. `places`: the addresses of all symbols, in order.
fn table_of_waits(mut found: Vec<(u64, u8)>, places: &[u64]) -> WaitTable {
    found.sort_unstable();
    found.dedup_by_key(|(address, _)| *address);
    let mut all = ([0; WAIT_FUNCTIONS], [0; WAIT_FUNCTIONS], [0; WAIT_FUNCTIONS]);
    for (i, (address, what)) in found.into_iter().take(WAIT_FUNCTIONS).enumerate() {
        let next = places.get(places.partition_point(|place| *place <= address));
        (all.0[i], all.1[i], all.2[i]) = (address, next.copied().unwrap_or(address + 1), what);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_sorted_and_hidden_addresses_ignored() {
        let functions = KernelFunctions::parse(
            "ffffffff00000030 t mpage_end_io\nffffffff00000010 t ext4_end_bio\t[ext4]\nffffffff00000020 t mpage_end_io\n\
             0000000000000000 t clone_endio\n damaged\nffffffff00000040 T __pfx_ext4_end_bio\n",
        );
        let (addresses, classes) = functions.ends;
        assert_eq!(addresses[..4], [0xffff_ffff_0000_0010, 0xffff_ffff_0000_0020, 0xffff_ffff_0000_0030, u64::MAX]);
        assert_eq!(classes[..4], [BioEnd::Ext4 as u8, BioEnd::PageRead as u8, BioEnd::PageRead as u8, 0]);
        assert_eq!(functions.waits.1, [0; WAIT_FUNCTIONS]);
        assert_eq!(functions.log_block_end, 0);
        let functions = KernelFunctions::parse("ffffffff00000050 t ext4_end_buffer_io_sync\t[ext4]\n");
        assert_eq!(functions.log_block_end, 0xffff_ffff_0000_0050);
    }

    #[test]
    fn waiting_function_ends_at_next_symbol() {
        let functions = KernelFunctions::parse(
            "ffffffff00000080 t other\nffffffff00000100 t __mutex_lock.constprop.0\nffffffff00000010 t down_write\n\
             ffffffff00000040 t down_write_of_another\n",
        );
        let (from, to, what) = functions.waits;
        assert_eq!(from[..3], [0xffff_ffff_0000_0010, 0xffff_ffff_0000_0100, 0]);
        assert_eq!(to[..3], [0xffff_ffff_0000_0040, 0xffff_ffff_0000_0101, 0]);
        assert_eq!(what[..3], [Wait::KernelLock.number() as u8, Wait::KernelLock.number() as u8, 0]);
    }

    #[test]
    fn table_holds_every_waiting_function() {
        assert!(WAIT_FUNCTION_NAMES.len() <= WAIT_FUNCTIONS);
        assert_eq!(without_suffix("shrink.part.0.cold"), "shrink");
    }
}
