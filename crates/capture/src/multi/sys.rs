//! bpf(2), as far as uprobes by links need it.

use super::{Place, Source};
use aya_obj::generated::{BPF_F_UPROBE_MULTI_RETURN, bpf_attach_type, bpf_attr, bpf_cmd, bpf_prog_type};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Bytes of a verifier's log; it is cut at its front, and its end says what was wrong.
const LOG_BYTES: usize = 1 << 20;

fn descriptor(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<OwnedFd> {
    // SAFETY: `attr` is a whole bpf_attr; every pointer in it was set by the callers below from memory that outlives the
    // call and has the length that is said beside it.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command as libc::c_long, std::ptr::from_mut(attr), size_of::<bpf_attr>())
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the commands used here return a descriptor that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(result as i32) })
}

fn empty() -> bpf_attr {
    // SAFETY: a union of plain integers, for which zero is a value.
    unsafe { std::mem::zeroed() }
}

/// Loads a type section.
pub fn load_types(blob: &[u8]) -> io::Result<OwnedFd> {
    let mut attr = empty();
    // SAFETY: writes to a union whose every field is plain integers.
    let types = unsafe { &mut attr.__bindgen_anon_7 };
    types.btf = blob.as_ptr() as u64;
    types.btf_size = blob.len() as u32;
    descriptor(bpf_cmd::BPF_BTF_LOAD, &mut attr)
}

/// Loads a program that [`link`] attaches. On refusal: the error and the verifier's log.
pub fn load(name: &str, source: &Source, types: &OwnedFd) -> Result<OwnedFd, (io::Error, String)> {
    let load = |log: &mut [u8]| {
        let mut attr = empty();
        // SAFETY: as in `load_types`.
        let program = unsafe { &mut attr.__bindgen_anon_3 };
        program.prog_type = bpf_prog_type::BPF_PROG_TYPE_KPROBE as u32;
        program.expected_attach_type = bpf_attach_type::BPF_TRACE_UPROBE_MULTI as u32;
        program.insns = source.code.as_ptr() as u64;
        program.insn_cnt = source.code.len() as u32;
        program.license = source.license.as_ptr() as u64;
        // At most 15 bytes and a NUL.
        for (to, from) in program.prog_name.iter_mut().zip(name.bytes().take(15)) {
            *to = from as libc::c_char;
        }
        program.prog_btf_fd = types.as_raw_fd() as u32;
        program.func_info = source.functions.as_ptr() as u64;
        program.func_info_rec_size = source.function_size as u32;
        program.func_info_cnt = source.functions.len().checked_div(source.function_size).unwrap_or(0) as u32;
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

/// Attaches a program to places of a file, in every process, until the descriptor is closed.
pub fn link(program: &OwnedFd, path: &CStr, places: &[Place], at_return: bool) -> io::Result<OwnedFd> {
    let offsets: Vec<u64> = places.iter().map(|p| p.offset).collect();
    let cookies: Vec<u64> = places.iter().map(|p| p.cookie).collect();
    let mut attr = empty();
    // SAFETY: as in `load_types`.
    let link = unsafe { &mut attr.link_create };
    link.__bindgen_anon_1.prog_fd = program.as_raw_fd() as u32;
    link.attach_type = bpf_attach_type::BPF_TRACE_UPROBE_MULTI as u32;
    // SAFETY: as in `load_types`.
    let probes = unsafe { &mut link.__bindgen_anon_3.uprobe_multi };
    probes.path = path.as_ptr() as u64;
    probes.offsets = offsets.as_ptr() as u64;
    probes.cookies = cookies.as_ptr() as u64;
    probes.cnt = places.len() as u32;
    probes.flags = if at_return { BPF_F_UPROBE_MULTI_RETURN } else { 0 };
    descriptor(bpf_cmd::BPF_LINK_CREATE, &mut attr)
}

/// Whether the kernel has such links, and lets this process make them. It is asked for one into a folder: who knows them
/// says EBADF to that.
///
/// # Errors
/// What it said instead.
pub fn links_exist(program: &OwnedFd) -> io::Result<()> {
    match link(program, c"/", &[Place { offset: 0, cookie: 0 }], false) {
        Err(e) if e.raw_os_error() == Some(libc::EBADF) => Ok(()),
        Err(e) => Err(e),
        Ok(_) => Err(io::Error::other("it probes folders")),
    }
}
