//! bpf(2), as far as a congestion control needs it; aya has no struct_ops.

use aya_obj::generated::{
    BPF_F_LINK, bpf_attach_type, bpf_attr, bpf_cmd, bpf_insn, bpf_map_info, bpf_map_type, bpf_prog_type,
};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Bytes of a verifier's log; what does not fit is cut at its front, where it matters least.
const LOG_BYTES: usize = 1 << 20;

fn call(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<i32> {
    // SAFETY: `attr` is a whole bpf_attr, every pointer in it was set by the callers below from memory that outlives the
    // call and has the length that is said beside it.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command as libc::c_long, std::ptr::from_mut(attr), size_of::<bpf_attr>())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

fn descriptor(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<OwnedFd> {
    let fd = call(command, attr)?;
    // SAFETY: these commands return a descriptor that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn empty() -> bpf_attr {
    // SAFETY: a union of plain integers, for which zero is a value.
    unsafe { std::mem::zeroed() }
}

/// At most 15 bytes and a NUL, as the kernel names its objects.
fn name16(name: &str) -> [libc::c_char; 16] {
    let mut out = [0; 16];
    for (to, from) in out.iter_mut().zip(name.bytes().take(15)) {
        *to = from as libc::c_char;
    }
    out
}

/// Loads a function as member number `member` of the kernel's struct `ops`. On refusal: the error and the verifier's log.
pub fn load_member(
    name: &str,
    code: &[bpf_insn],
    license: &CStr,
    ops: u32,
    member: u32,
) -> Result<OwnedFd, (io::Error, String)> {
    let load = |log: &mut [u8]| {
        let mut attr = empty();
        // SAFETY: writes to a union whose every field is plain integers.
        let program = unsafe { &mut attr.__bindgen_anon_3 };
        program.prog_type = bpf_prog_type::BPF_PROG_TYPE_STRUCT_OPS as u32;
        program.insns = code.as_ptr() as u64;
        program.insn_cnt = code.len() as u32;
        program.license = license.as_ptr() as u64;
        program.prog_name = name16(name);
        program.attach_btf_id = ops;
        program.expected_attach_type = member;
        if !log.is_empty() {
            program.log_level = 1;
            program.log_buf = log.as_mut_ptr() as u64;
            program.log_size = log.len() as u32;
        }
        descriptor(bpf_cmd::BPF_PROG_LOAD, &mut attr)
    };
    load(&mut []).map_err(|error| {
        let mut log = vec![0; LOG_BYTES];
        let _ = load(&mut log);
        let end = log.iter().position(|b| *b == 0).unwrap_or(log.len());
        (error, String::from_utf8_lossy(&log[..end]).into_owned())
    })
}

/// Loads a type section. Makers of a struct_ops map must show one, whatever is in it.
pub fn load_types(blob: &[u8]) -> io::Result<OwnedFd> {
    let mut attr = empty();
    // SAFETY: as in `load_member`.
    let types = unsafe { &mut attr.__bindgen_anon_7 };
    types.btf = blob.as_ptr() as u64;
    types.btf_size = blob.len() as u32;
    descriptor(bpf_cmd::BPF_BTF_LOAD, &mut attr)
}

/// A map that holds the struct `value_type` of `value_bytes`. With `link` it registers through [`link`] and no earlier (Linux
/// 6.4); without, with its value.
pub fn struct_ops_map(
    name: &str,
    value_type: u32,
    value_bytes: usize,
    types: &OwnedFd,
    link: bool,
) -> io::Result<OwnedFd> {
    let mut attr = empty();
    // SAFETY: as in `load_member`.
    let map = unsafe { &mut attr.__bindgen_anon_1 };
    map.map_type = bpf_map_type::BPF_MAP_TYPE_STRUCT_OPS as u32;
    map.key_size = 4;
    map.value_size = value_bytes as u32;
    map.max_entries = 1;
    map.map_flags = if link { BPF_F_LINK } else { 0 };
    map.map_name = name16(name);
    map.btf_fd = types.as_raw_fd() as u32;
    map.btf_vmlinux_value_type_id = value_type;
    descriptor(bpf_cmd::BPF_MAP_CREATE, &mut attr)
}

/// Sets the map's only value. `value` must have the map's size.
pub fn set(map: &OwnedFd, value: &[u8]) -> io::Result<()> {
    let key = 0u32;
    let mut attr = empty();
    // SAFETY: as in `load_member`.
    let element = unsafe { &mut attr.__bindgen_anon_2 };
    element.map_fd = map.as_raw_fd() as u32;
    element.key = std::ptr::from_ref(&key) as u64;
    element.__bindgen_anon_1.value = value.as_ptr() as u64;
    call(bpf_cmd::BPF_MAP_UPDATE_ELEM, &mut attr).map(drop)
}

/// Removes the map's only value, which unregisters what it registered.
pub fn clear(map: &OwnedFd) -> io::Result<()> {
    let key = 0u32;
    let mut attr = empty();
    // SAFETY: as in `load_member`.
    let element = unsafe { &mut attr.__bindgen_anon_2 };
    element.map_fd = map.as_raw_fd() as u32;
    element.key = std::ptr::from_ref(&key) as u64;
    call(bpf_cmd::BPF_MAP_DELETE_ELEM, &mut attr).map(drop)
}

/// Registers the map's value for as long as the descriptor is open.
pub fn link(map: &OwnedFd) -> io::Result<OwnedFd> {
    let mut attr = empty();
    // SAFETY: as in `load_member`.
    let link = unsafe { &mut attr.link_create };
    link.__bindgen_anon_1.map_fd = map.as_raw_fd() as u32;
    link.attach_type = bpf_attach_type::BPF_STRUCT_OPS as u32;
    descriptor(bpf_cmd::BPF_LINK_CREATE, &mut attr)
}

/// The values of all struct_ops maps of this machine that hold the type `value_type`.
///
/// # Errors
/// The kernel's: listing others' maps needs CAP_SYS_ADMIN.
pub fn values(value_type: u32) -> io::Result<Vec<(OwnedFd, Vec<u8>)>> {
    let mut found = Vec::new();
    let mut id = 0;
    loop {
        let mut attr = empty();
        // SAFETY: as in `load_member`.
        let query = unsafe { &mut attr.__bindgen_anon_6 };
        query.__bindgen_anon_1.start_id = id;
        match call(bpf_cmd::BPF_MAP_GET_NEXT_ID, &mut attr) {
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => return Ok(found),
            other => other?,
        };
        // SAFETY: the kernel wrote this field.
        id = unsafe { attr.__bindgen_anon_6.next_id };
        // A map may go between its number and its descriptor.
        let Ok(map) = open(id) else { continue };
        let Ok(info) = info(&map) else { continue };
        if info.type_ == bpf_map_type::BPF_MAP_TYPE_STRUCT_OPS as u32
            && info.btf_vmlinux_value_type_id == value_type
            && let Ok(value) = get(&map, info.value_size as usize)
        {
            found.push((map, value));
        }
    }
}

fn open(id: u32) -> io::Result<OwnedFd> {
    let mut attr = empty();
    // SAFETY: as in `load_member`.
    let query = unsafe { &mut attr.__bindgen_anon_6 };
    query.__bindgen_anon_1.map_id = id;
    descriptor(bpf_cmd::BPF_MAP_GET_FD_BY_ID, &mut attr)
}

fn info(map: &OwnedFd) -> io::Result<bpf_map_info> {
    // SAFETY: plain integers, for which zero is a value.
    let mut info: bpf_map_info = unsafe { std::mem::zeroed() };
    let mut attr = empty();
    // SAFETY: as in `load_member`.
    let query = unsafe { &mut attr.info };
    query.bpf_fd = map.as_raw_fd() as u32;
    query.info_len = size_of::<bpf_map_info>() as u32;
    query.info = std::ptr::from_mut(&mut info) as u64;
    call(bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, &mut attr)?;
    Ok(info)
}

fn get(map: &OwnedFd, bytes: usize) -> io::Result<Vec<u8>> {
    let key = 0u32;
    let mut value = vec![0; bytes];
    let mut attr = empty();
    // SAFETY: as in `load_member`.
    let element = unsafe { &mut attr.__bindgen_anon_2 };
    element.map_fd = map.as_raw_fd() as u32;
    element.key = std::ptr::from_ref(&key) as u64;
    element.__bindgen_anon_1.value = value.as_mut_ptr() as u64;
    call(bpf_cmd::BPF_MAP_LOOKUP_ELEM, &mut attr)?;
    Ok(value)
}
