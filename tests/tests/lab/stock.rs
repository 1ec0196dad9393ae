//! One guest for the cases that need nothing of their own: booting is most of what a small one takes. A case leaves it as it found it;
//! one that fails ends it, and the next boots another.

use super::program;
use anyhow::Result;
use fathom_tests::fathom;
use lab::guest::{Bus, Config, Disk, Guest};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

static STOCK: Mutex<Option<Guest>> = Mutex::new(None);

/// Modules of the disks and file systems that cases make in it.
const MODULES: [&str; 7] = ["scsi_debug", "nbd", "xfs", "btrfs", "crc32_generic", "xxhash_generic", "blake2b_generic"];

/// A case may do for as long on the host without asking the guest anything.
const IDLE: Duration = Duration::from_secs(900);

/// Runs it in the guest, which has `/fathom`, the programs of the case of `attach.rs` as far as they are installed, and two empty disks with
/// ext4, `virtio` and `data` (SCSI). The cases run one after the other, on one thread, with which QEMU ends.
pub fn with(case: impl FnOnce(&mut Guest) -> Result<()>) -> Result<()> {
    let kept = STOCK.lock().map_or(None, |mut stock| stock.take());
    let mut guest = kept.map_or_else(boot, Ok)?;
    case(&mut guest)?;
    if let Ok(mut stock) = STOCK.lock() {
        *stock = Some(guest);
    }
    Ok(())
}

fn boot() -> Result<Guest> {
    let disk = |name: &str, bus| Disk { name: name.into(), bus, bytes: 128 << 20, ext4: true };
    let config = Config {
        memory_mb: 2048,
        disks: vec![disk("virtio", Bus::Virtio), disk("data", Bus::Scsi)],
        modules: MODULES.map(str::to_string).to_vec(),
        programs: super::attach::PROGRAMS.iter().filter_map(|name| program(name).ok()).collect(),
        files: vec![(fathom(), "/fathom".into())],
        idle: IDLE,
        ..Config::default()
    };
    Ok(Guest::boot(&config, &Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/lab"))?)
}
