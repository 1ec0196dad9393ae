//! The kernel's type information (BTF), by which the probes find their fields. The loader reads only a single one, so those
//! of the modules whose types the probes read are appended to the kernel's.

use crate::Error;
use aya::{Btf, Endianness};
use bpf::btf::{VMLINUX, append};
use std::fs;

/// Modules whose types the probes read; a module that is not loaded has none, and nothing to record.
const MODULES: [&str; 6] = ["jbd2", "dm_mod", "dm_crypt", "scsi_mod", "nvme_core", "mmc_core"];

/// The running kernel's types.
pub struct KernelTypes {
    /// Those of the kernel proper: they include the tracepoints that may be attached by type.
    pub vmlinux: Btf,
    /// With those of modules, if there are any.
    pub all: Option<Btf>,
}

impl KernelTypes {
    /// Reads the type information.
    ///
    /// # Errors
    /// [`Error::NoBtf`] if the kernel has none, [`Error::Btf`] if it cannot be parsed.
    pub fn read() -> Result<Self, Error> {
        let bytes = fs::read(VMLINUX).map_err(|source| Error::NoBtf { path: VMLINUX, source })?;
        let parse = |b: &[u8]| Btf::parse(b, Endianness::default()).map_err(|e| Error::Btf(crate::error::chain(&e)));
        let modules: Vec<Vec<u8>> =
            MODULES.iter().filter_map(|m| fs::read(format!("/sys/kernel/btf/{m}")).ok()).collect();
        let all = match append(&bytes, &modules) {
            _ if modules.is_empty() => None,
            Some(joined) => Some(parse(&joined)?),
            None => return Err(Error::Btf(format!("a module's types do not continue those of {VMLINUX}"))),
        };
        Ok(Self { vmlinux: parse(&bytes)?, all })
    }

    /// Returns the types that fields are matched with.
    pub fn for_fields(&self) -> &Btf {
        self.all.as_ref().unwrap_or(&self.vmlinux)
    }
}
