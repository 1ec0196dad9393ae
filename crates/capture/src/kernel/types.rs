//! The kernel's type information (BTF), by which the probes find their fields. The loader reads only a single one, so those
//! of the modules whose types the probes read are appended to the kernel's.

use crate::Error;
use aya::{Btf, Endianness};
use bpf::btf::{VMLINUX_PATH, append_modules, subset, type_names};
use object::{Object as _, ObjectSection as _};
use std::collections::HashSet;
use std::fs;

/// Modules whose types the probes read; a module that is not loaded has none, and nothing to record.
const MODULE_NAMES: [&str; 6] = ["jbd2", "dm_mod", "dm_crypt", "scsi_mod", "nvme_core", "mmc_core"];

pub struct KernelTypes {
    /// Those of the kernel proper: they include the tracepoints that may be attached by type.
    pub vmlinux: Btf,
    /// Those that fields are matched with: modules' too, but only those whose names the object has. The loader searches all types
    /// for each name that it needs, which took a fifth of a recording's start with all of Linux 6.18.
    pub for_fields: Btf,
}

impl KernelTypes {
    /// Reads the type information that an object needs.
    ///
    /// # Errors
    /// [`Error::NoBtf`] if the kernel has none, [`Error::Btf`] if it or the object's cannot be parsed.
    pub fn read(object: &[u8]) -> Result<Self, Error> {
        let bytes = fs::read(VMLINUX_PATH).map_err(|source| Error::NoBtf { path: VMLINUX_PATH, source })?;
        let parse = |b: &[u8]| Btf::parse(b, Endianness::default()).map_err(|e| Error::Btf(crate::error::chain(&e)));
        let vmlinux = parse(&bytes)?;
        let modules: Vec<Vec<u8>> =
            MODULE_NAMES.iter().filter_map(|m| fs::read(format!("/sys/kernel/btf/{m}")).ok()).collect();
        let all = if modules.is_empty() { Some(bytes) } else { append_modules(&bytes, &modules) };
        let all = all.ok_or_else(|| Error::Btf(format!("a module's types do not continue those of {VMLINUX_PATH}")))?;
        let needed = names_in_object(object).ok_or_else(|| Error::Btf("the object has no BTF".into()))?;
        let fields = subset(&all, |name| needed.contains(without_flavor(name)));
        let fields = fields.ok_or_else(|| Error::Btf(format!("{VMLINUX_PATH} is damaged")))?;
        Ok(Self { vmlinux, for_fields: parse(&fields)? })
    }
}

/// Every name in an object's types. `None` if it has none, or they are damaged.
fn names_in_object(object: &[u8]) -> Option<HashSet<&[u8]>> {
    let types = object::File::parse(object).ok()?.section_by_name(".BTF")?.data().ok()?;
    Some(type_names(types)?.map(without_flavor).collect())
}

/// A type's name without its flavor: `task_struct___old` is matched with the kernel's `task_struct`.
fn without_flavor(name: &[u8]) -> &[u8] {
    let flavor = name.windows(3).position(|three| three == b"___");
    &name[..flavor.unwrap_or(name.len())]
}
