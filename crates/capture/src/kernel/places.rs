//! Offsets of fields of btrfs, f2fs and XFS, from the type information of the kernel, or of the module.
//!
//! Other fields are found by the loader when the probes are loaded. These file systems may be modules that are loaded
//! later, as soon as such a disk is mounted, so the offsets of their fields are looked up then and passed to the probes in
//! a table.

use bpf::btf::{Structs, VMLINUX_PATH};
use std::fs;

/// The fields, in the order of `enum place` in `checkpoints.bpf.c`: file system, struct, field.
const FILE_SYSTEM_FIELDS: [(&str, &str, &str); 13] = [
    ("xfs", "xfs_mount", "m_super"),
    ("xfs", "xfs_mount", "m_log"),
    ("xfs", "xlog", "l_mp"),
    ("xfs", "xlog", "l_cilp"),
    ("xfs", "xfs_cil", "xc_current_sequence"),
    ("xfs", "xlog_in_core", "ic_log"),
    ("xfs", "xlog_in_core", "ic_callbacks"),
    ("xfs", "xfs_cil_ctx", "iclog_entry"),
    ("xfs", "xfs_cil_ctx", "sequence"),
    ("btrfs", "btrfs_fs_info", "sb"),
    ("btrfs", "btrfs_fs_info", "last_trans_committed"),
    ("f2fs", "f2fs_sb_info", "ckpt"),
    ("f2fs", "f2fs_checkpoint", "checkpoint_ver"),
];

/// Returns the table's indices for this file system, each with its value: bytes from the struct's start.
///
/// # Errors
/// As a sentence: the kernel lacks the file system's types, or they differ.
pub fn field_offsets(file_system: &str) -> Result<Vec<(u32, u32)>, String> {
    let kernel = fs::read(VMLINUX_PATH).map_err(|e| format!("{VMLINUX_PATH}: {e}"))?;
    // If built in, the kernel's own type information has them.
    let module = fs::read(format!("/sys/kernel/btf/{file_system}")).ok();
    let structs = Structs::from_sections(&kernel, module.as_deref()).ok_or("cannot parse the kernel's types (BTF)")?;
    let wanted = FILE_SYSTEM_FIELDS.iter().enumerate().filter(|(_, (owner, ..))| *owner == file_system);
    wanted
        .map(|(place, (_, of, field))| {
            let offset = structs.offset(of, field).ok_or_else(|| format!("this kernel's {of} has no {field}"))?;
            Ok((place as u32, offset))
        })
        .collect()
}
