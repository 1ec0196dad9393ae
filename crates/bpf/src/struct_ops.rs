//! Maps of type `BPF_MAP_TYPE_STRUCT_OPS` (Linux 5.6), which register a struct of functions with the kernel; aya does not
//! support them.

use crate::call::{bpf_syscall, call_for_fd, object_name, zeroed_attr};
use aya_obj::generated::{BPF_F_LINK, bpf_attach_type, bpf_cmd, bpf_map_info, bpf_map_type};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Creates a map that holds the struct `value_type` of `value_bytes`. With `link` it is registered only through [`link`]
/// (Linux 6.4); without, when its value is set. The kernel requires some `types`, whatever they contain.
///
/// # Errors
/// The kernel's error; EINVAL if it does not support such links.
pub fn create_map(name: &str, value_type: u32, value_bytes: usize, types: &OwnedFd, link: bool) -> io::Result<OwnedFd> {
    let mut attr = zeroed_attr();
    // SAFETY: writes to a union whose every field is plain integers.
    let map = unsafe { &mut attr.__bindgen_anon_1 };
    map.map_type = bpf_map_type::BPF_MAP_TYPE_STRUCT_OPS as u32;
    map.key_size = 4;
    map.value_size = value_bytes as u32;
    map.max_entries = 1;
    map.map_flags = if link { BPF_F_LINK } else { 0 };
    map.map_name = object_name(name);
    map.btf_fd = types.as_raw_fd() as u32;
    map.btf_vmlinux_value_type_id = value_type;
    call_for_fd(bpf_cmd::BPF_MAP_CREATE, &mut attr)
}

/// Sets the map's only value. `value` must have the map's size.
pub fn set_value(map: &OwnedFd, value: &[u8]) -> io::Result<()> {
    let key = 0u32;
    let mut attr = zeroed_attr();
    // SAFETY: as in `create_map`.
    let element = unsafe { &mut attr.__bindgen_anon_2 };
    element.map_fd = map.as_raw_fd() as u32;
    element.key = std::ptr::from_ref(&key) as u64;
    element.__bindgen_anon_1.value = value.as_ptr() as u64;
    bpf_syscall(bpf_cmd::BPF_MAP_UPDATE_ELEM, &mut attr).map(drop)
}

/// Removes the map's only value, which unregisters what it registered.
pub fn clear_value(map: &OwnedFd) -> io::Result<()> {
    let key = 0u32;
    let mut attr = zeroed_attr();
    // SAFETY: as in `create_map`.
    let element = unsafe { &mut attr.__bindgen_anon_2 };
    element.map_fd = map.as_raw_fd() as u32;
    element.key = std::ptr::from_ref(&key) as u64;
    bpf_syscall(bpf_cmd::BPF_MAP_DELETE_ELEM, &mut attr).map(drop)
}

/// Registers the map's value for as long as the descriptor is open.
pub fn link(map: &OwnedFd) -> io::Result<OwnedFd> {
    let mut attr = zeroed_attr();
    // SAFETY: as in `create_map`.
    let link = unsafe { &mut attr.link_create };
    link.__bindgen_anon_1.map_fd = map.as_raw_fd() as u32;
    link.attach_type = bpf_attach_type::BPF_STRUCT_OPS as u32;
    call_for_fd(bpf_cmd::BPF_LINK_CREATE, &mut attr)
}

/// Returns the values of all struct_ops maps on this machine with the type `value_type`.
///
/// # Errors
/// The kernel's error: listing others' maps needs CAP_SYS_ADMIN.
pub fn list_values(value_type: u32) -> io::Result<Vec<(OwnedFd, Vec<u8>)>> {
    let mut found = Vec::new();
    let mut id = 0;
    loop {
        let mut attr = zeroed_attr();
        // SAFETY: as in `create_map`.
        let query = unsafe { &mut attr.__bindgen_anon_6 };
        query.__bindgen_anon_1.start_id = id;
        match bpf_syscall(bpf_cmd::BPF_MAP_GET_NEXT_ID, &mut attr) {
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => return Ok(found),
            other => other?,
        };
        // SAFETY: the kernel wrote this field.
        id = unsafe { attr.__bindgen_anon_6.next_id };
        // A map may disappear between getting its number and its descriptor.
        let Ok(map) = open_map(id) else { continue };
        let Ok(info) = map_info(&map) else { continue };
        if info.type_ == bpf_map_type::BPF_MAP_TYPE_STRUCT_OPS as u32
            && info.btf_vmlinux_value_type_id == value_type
            && let Ok(value) = get_value(&map, info.value_size as usize)
        {
            found.push((map, value));
        }
    }
}

fn open_map(id: u32) -> io::Result<OwnedFd> {
    let mut attr = zeroed_attr();
    // SAFETY: as in `create_map`.
    let query = unsafe { &mut attr.__bindgen_anon_6 };
    query.__bindgen_anon_1.map_id = id;
    call_for_fd(bpf_cmd::BPF_MAP_GET_FD_BY_ID, &mut attr)
}

fn map_info(map: &OwnedFd) -> io::Result<bpf_map_info> {
    // SAFETY: plain integers, for which zero is valid.
    let mut info: bpf_map_info = unsafe { std::mem::zeroed() };
    let mut attr = zeroed_attr();
    // SAFETY: as in `create_map`.
    let query = unsafe { &mut attr.info };
    query.bpf_fd = map.as_raw_fd() as u32;
    query.info_len = size_of::<bpf_map_info>() as u32;
    query.info = std::ptr::from_mut(&mut info) as u64;
    bpf_syscall(bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, &mut attr)?;
    Ok(info)
}

fn get_value(map: &OwnedFd, bytes: usize) -> io::Result<Vec<u8>> {
    let key = 0u32;
    let mut value = vec![0; bytes];
    let mut attr = zeroed_attr();
    // SAFETY: as in `create_map`.
    let element = unsafe { &mut attr.__bindgen_anon_2 };
    element.map_fd = map.as_raw_fd() as u32;
    element.key = std::ptr::from_ref(&key) as u64;
    element.__bindgen_anon_1.value = value.as_mut_ptr() as u64;
    bpf_syscall(bpf_cmd::BPF_MAP_LOOKUP_ELEM, &mut attr)?;
    Ok(value)
}
