//! One guest shared by the cases that need no special one: booting is most of the time of a small case. A case leaves the guest as it
//! found it; a case that fails ends it, and the next one boots another.

use super::find_program;
use anyhow::Result;
use fathom_tests::fathom;
use lab::guest::{Bus, Config, Disk, Guest};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

static STOCK_GUEST: Mutex<Option<Guest>> = Mutex::new(None);

/// Modules of the disks and file systems that cases create in the guest.
const MODULE_NAMES: [&str; 7] =
    ["scsi_debug", "nbd", "xfs", "btrfs", "crc32_generic", "xxhash_generic", "blake2b_generic"];

/// How long a case may work on the host without sending a command to the guest.
const IDLE_TIMEOUT: Duration = Duration::from_secs(900);

/// Runs the case in the guest, which has `/fathom`, the programs of the case of `attach.rs` if they are installed, and two empty disks with
/// ext4, `virtio` and `data` (SCSI). The cases run one after the other, on one thread; QEMU ends with that thread.
pub fn with_stock_guest(case: impl FnOnce(&mut Guest) -> Result<()>) -> Result<()> {
    let kept = STOCK_GUEST.lock().map_or(None, |mut stock| stock.take());
    let mut guest = kept.map_or_else(boot, Ok)?;
    case(&mut guest)?;
    if let Ok(mut stock) = STOCK_GUEST.lock() {
        *stock = Some(guest);
    }
    Ok(())
}

fn boot() -> Result<Guest> {
    let disk = |name: &str, bus| Disk { name: name.into(), bus, bytes: 128 << 20, ext4: true };
    let config = Config {
        memory_mb: 2048,
        disks: vec![disk("virtio", Bus::Virtio), disk("data", Bus::Scsi)],
        modules: MODULE_NAMES.map(str::to_string).to_vec(),
        programs: super::attach::GUEST_PROGRAMS.iter().filter_map(|name| find_program(name).ok()).collect(),
        files: vec![(fathom(), "/fathom".into())],
        idle: IDLE_TIMEOUT,
        ..Config::default()
    };
    Ok(Guest::boot(&config, &Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/lab"))?)
}
