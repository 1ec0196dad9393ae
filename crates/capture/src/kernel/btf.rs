//! The kernel's type information (BTF), by which the probes find their fields.
//!
//! The kernel proper describes its types in `/sys/kernel/btf/vmlinux`, a module only its own in a file beside it, as a
//! continuation: its types are numbered on from the kernel's, its names stand behind the kernel's. The loader reads one
//! description only, so the two are written one after the other. That works for one module; jbd2 is the one whose types
//! the probes read.

use crate::Error;
use aya::{Btf, Endianness};
use std::fs;

const VMLINUX: &str = "/sys/kernel/btf/vmlinux";
const JBD2: &str = "/sys/kernel/btf/jbd2";

/// `struct btf_header`: magic, version, flags, then five lengths and offsets.
const HEADER: usize = 24;

/// The running kernel's types.
pub struct KernelTypes {
    /// Those of the kernel proper: the tracepoints that may be attached by type are among these.
    pub vmlinux: Btf,
    /// With jbd2's, where that is a module.
    pub all: Option<Btf>,
}

impl KernelTypes {
    /// Reads them.
    ///
    /// # Errors
    /// [`Error::NoBtf`] if the kernel has none, [`Error::Btf`] if it is not understood.
    pub fn read() -> Result<Self, Error> {
        let bytes = fs::read(VMLINUX).map_err(|source| Error::NoBtf { path: VMLINUX, source })?;
        let parse = |b: &[u8]| Btf::parse(b, Endianness::default()).map_err(|e| Error::Btf(crate::error::chain(&e)));
        let all = match fs::read(JBD2) {
            Ok(module) => match append(&bytes, &module) {
                Some(joined) => Some(parse(&joined)?),
                None => return Err(Error::Btf(format!("{JBD2} is no continuation of {VMLINUX}"))),
            },
            Err(_) => None,
        };
        Ok(Self { vmlinux: parse(&bytes)?, all })
    }

    /// What the fields are matched with.
    pub fn for_fields(&self) -> &Btf {
        self.all.as_ref().unwrap_or(&self.vmlinux)
    }
}

/// Types and names of one description: header length, types, names.
fn sections(bytes: &[u8]) -> Option<(usize, &[u8], &[u8])> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize);
    let header = word(4)?;
    let types = header.checked_add(word(8)?)?;
    let names = header.checked_add(word(16)?)?;
    Some((header, bytes.get(types..types.checked_add(word(12)?)?)?, bytes.get(names..names.checked_add(word(20)?)?)?))
}

/// A module's description appended to the kernel's. `None` if either is damaged.
fn append(base: &[u8], module: &[u8]) -> Option<Vec<u8>> {
    let (_, base_types, base_names) = sections(base)?;
    let (_, types, names) = sections(module)?;
    let type_len = base_types.len() + types.len();
    let mut out = base.get(..4)?.to_vec();
    for word in [HEADER, 0, type_len, type_len, base_names.len() + names.len()] {
        out.extend_from_slice(&u32::try_from(word).ok()?.to_le_bytes());
    }
    for part in [base_types, types, base_names, names] {
        out.extend_from_slice(part);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(types: &[u8], names: &[u8]) -> Vec<u8> {
        let mut out = vec![0x9f, 0xeb, 1, 0];
        // Names first in the file, to show that offsets are followed.
        for word in [24, names.len(), types.len(), 0, names.len()] {
            out.extend_from_slice(&(word as u32).to_le_bytes());
        }
        out.extend_from_slice(names);
        out.extend_from_slice(types);
        out
    }

    #[test]
    fn a_modules_types_and_names_follow_the_kernels() {
        let joined = append(&description(b"TTTT", b"\0int\0"), &description(b"tt", b"long\0")).unwrap();
        assert_eq!(sections(&joined), Some((24, &b"TTTTtt"[..], &b"\0int\0long\0"[..])));
        assert_eq!(&joined[..4], [0x9f, 0xeb, 1, 0]);
    }

    #[test]
    fn damage_is_refused() {
        let whole = description(b"TTTT", b"\0int\0");
        for cut in 0..whole.len() {
            assert_eq!(append(&whole[..cut], &whole), None);
            assert_eq!(append(&whole, &whole[..cut]), None);
        }
    }
}
