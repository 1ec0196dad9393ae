//! Registers a congestion control with the kernel (BPF struct_ops, Linux 5.6).
//!
//! The kernel describes `struct tcp_congestion_ops` in its BTF. Each function of our object is loaded as the member of the
//! same name; a map of the kernel's type `bpf_struct_ops_tcp_congestion_ops` is filled with their descriptors and a name,
//! and registering that map adds the name to net.ipv4.tcp_available_congestion_control.
//!
//! From Linux 6.4 on the registration is a link: it ends when its descriptor is closed, however this process exits. Before
//! that it persists until the map's value is deleted, so a killed process leaves its algorithm behind;
//! [`registered_by_bpf`] finds those, and [`unregister`] removes them.

use super::{Algorithm, Error};
use aya_obj::Object;
use aya_obj::btf::{Btf, BtfType, Int, IntEncoding};
use bpf::btf::{Structs, Structure, VMLINUX_PATH};
use bpf::program::{self, Program, ProgramKind};
use bpf::struct_ops;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// The kernel's struct, and the map value that contains it.
const OPS_STRUCT_NAME: &str = "tcp_congestion_ops";
const MAP_VALUE_STRUCT_NAME: &str = "bpf_struct_ops_tcp_congestion_ops";
/// Bytes of a name with its NUL (TCP_CA_NAME_MAX).
pub const NAME_BYTES: usize = 16;
/// Any user may select it (TCP_CONG_NON_RESTRICTED): root has requested its registration.
const NON_RESTRICTED: u32 = 1;

/// A registered congestion control. Dropping it removes the name; connections that use it keep it until they end.
#[derive(Debug)]
pub struct Registration {
    /// What a socket calls it.
    pub name: String,
    map: OwnedFd,
    /// `None` before Linux 6.4.
    link: Option<OwnedFd>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        if self.link.is_none() {
            // An error cannot be reported here, and the kernel rejects only what is already gone.
            let _ = struct_ops::clear_value(&self.map);
        }
    }
}

/// Registers `algorithm` as `name`.
///
/// # Errors
/// What the kernel lacks or rejects, and how to fix it.
pub fn register(algorithm: Algorithm, name: &str) -> Result<Registration, Error> {
    let padded = padded_name(name)?;
    let (ops, value) = kernel_structs()?;
    let data = value.member("data").ok_or(Error::NoStructOps)?.1.offset;
    super::raise_locked_memory();

    let object = relocated_object(algorithm)?;
    let mut bytes = vec![0u8; value.size];
    let mut put = |member: &str, content: &[u8]| -> Result<(), Error> {
        let (_, found) = ops.member(member).ok_or_else(|| Error::NoMember(member.to_string()))?;
        let at = data + found.offset;
        bytes.get_mut(at..at + content.len()).ok_or(Error::NoBtf)?.copy_from_slice(content);
        Ok(())
    };
    let mut programs = Vec::new();
    for function in object.functions.values() {
        let (index, _) = ops.member(&function.name).ok_or_else(|| Error::NoMember(function.name.clone()))?;
        let program = program::load(&Program {
            name: &function.name,
            kind: ProgramKind::StructOps { ops: ops.id, member: index },
            code: &function.instructions,
            license: &object.license,
            functions: None,
        })
        .map_err(|refused| Error::refused(&function.name, refused.error, refused.log))?;
        // The map's value has a pointer in this place; the program's descriptor is written there instead.
        put(&function.name, &(program.as_raw_fd() as u64).to_ne_bytes())?;
        programs.push(program);
    }
    put("name", &padded)?;
    put("flags", &NON_RESTRICTED.to_ne_bytes())?;

    let types = program::load_types(&minimal_types()).map_err(Error::kernel)?;
    let make = |link| struct_ops::create_map(name, value.id, value.size, &types, link);
    let (map, by_link) = match make(true) {
        Ok(map) => (map, true),
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => (make(false).map_err(Error::kernel)?, false),
        Err(e) => return Err(Error::kernel(e)),
    };
    let exists = |e: std::io::Error| match e.raw_os_error() {
        Some(libc::EEXIST) => Error::Exists(name.to_string()),
        _ => Error::kernel(e),
    };
    struct_ops::set_value(&map, &bytes).map_err(exists)?;
    let link = if by_link { Some(struct_ops::link(&map).map_err(exists)?) } else { None };
    Ok(Registration { name: name.to_string(), map, link })
}

/// A name as the kernel stores it. Its end is the first NUL.
fn padded_name(name: &str) -> Result<[u8; NAME_BYTES], Error> {
    if name.is_empty() || name.len() >= NAME_BYTES || name.contains('\0') {
        return Err(Error::BadName(name.to_string()));
    }
    let mut padded = [0; NAME_BYTES];
    padded[..name.len()].copy_from_slice(name.as_bytes());
    Ok(padded)
}

/// The kernel's struct, and the map value that contains it.
fn kernel_structs() -> Result<(Structure, Structure), Error> {
    let blob = std::fs::read(VMLINUX_PATH).map_err(|_| Error::NoBtf)?;
    let structs = Structs::from_sections(&blob, None).ok_or(Error::NoBtf)?;
    Ok((
        structs.get(OPS_STRUCT_NAME).ok_or(Error::NoBtf)?,
        structs.get(MAP_VALUE_STRUCT_NAME).ok_or(Error::NoStructOps)?,
    ))
}

/// The object of an algorithm, relocated to this kernel's structs.
fn relocated_object(algorithm: Algorithm) -> Result<Object, Error> {
    let broken = |e: &dyn std::fmt::Display| Error::Object { algorithm: algorithm.name(), why: e.to_string() };
    let mut object = Object::parse(algorithm.object()).map_err(|e| broken(&e))?;
    let kernel = Btf::from_sys_fs().map_err(|e| broken(&e))?;
    object.relocate_btf(&kernel).map_err(|e| broken(&e))?;
    Ok(object)
}

/// The smallest type section: an `int`.
fn minimal_types() -> Vec<u8> {
    let mut types = Btf::new();
    let name = types.add_string("int");
    types.add_type(BtfType::Int(Int::new(name, 4, IntEncoding::Signed, 0)));
    types.to_bytes()
}

/// Whether this kernel supports loading an algorithm, checked without loading one.
pub fn check_support() -> Result<(), Error> {
    if !Path::new(VMLINUX_PATH).exists() {
        return Err(Error::NoBtf);
    }
    kernel_structs().map(drop)
}

/// The congestion controls that are registered through BPF on this machine, by anyone.
///
/// # Errors
/// `NotPermitted` without CAP_SYS_ADMIN.
pub fn registered_by_bpf() -> Result<Vec<String>, Error> {
    Ok(registered_maps()?.into_iter().map(|(name, _)| name).collect())
}

/// Removes a congestion control that was registered through BPF without a link and left behind. `false`: there is none.
///
/// # Errors
/// `NotPermitted`, or the kernel's error.
pub fn unregister(name: &str) -> Result<bool, Error> {
    let Some((_, map)) = registered_maps()?.into_iter().find(|(found, _)| found == name) else { return Ok(false) };
    struct_ops::clear_value(&map).map_err(Error::kernel)?;
    Ok(true)
}

fn registered_maps() -> Result<Vec<(String, OwnedFd)>, Error> {
    let (ops, value) = kernel_structs()?;
    let offset = |in_struct: &Structure, member: &str| in_struct.member(member).map(|(_, m)| m.offset);
    let at = offset(&value, "data").zip(offset(&ops, "name")).map(|(a, b)| a + b).ok_or(Error::NoStructOps)?;
    let values = struct_ops::list_values(value.id).map_err(Error::kernel)?;
    let named = values.into_iter().filter_map(|(map, bytes)| {
        let name = bytes.get(at..at + NAME_BYTES)?.split(|b| *b == 0).next()?;
        Some((String::from_utf8_lossy(name).into_owned(), map)).filter(|(name, _)| !name.is_empty())
    });
    Ok(named.collect())
}
