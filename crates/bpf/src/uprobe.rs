//! Links of type `BPF_TRACE_UPROBE_MULTI` (Linux 6.6): one program at many places of a file.

use crate::call::{call_for_fd, zeroed_attr};
use aya_obj::generated::{BPF_F_UPROBE_MULTI_RETURN, bpf_attach_type, bpf_cmd};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// A place within a file, and the cookie that the program gets there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbePoint {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// The value that `bpf_get_attach_cookie` returns.
    pub cookie: u64,
}

/// Attaches a program to places of a file, in every process, until the descriptor is closed.
pub fn link(program: &OwnedFd, path: &CStr, places: &[ProbePoint], at_return: bool) -> io::Result<OwnedFd> {
    let offsets: Vec<u64> = places.iter().map(|p| p.offset).collect();
    let cookies: Vec<u64> = places.iter().map(|p| p.cookie).collect();
    let mut attr = zeroed_attr();
    // SAFETY: writes to a union whose every field is plain integers.
    let link = unsafe { &mut attr.link_create };
    link.__bindgen_anon_1.prog_fd = program.as_raw_fd() as u32;
    link.attach_type = bpf_attach_type::BPF_TRACE_UPROBE_MULTI as u32;
    // SAFETY: as above.
    let probes = unsafe { &mut link.__bindgen_anon_3.uprobe_multi };
    probes.path = path.as_ptr() as u64;
    probes.offsets = offsets.as_ptr() as u64;
    probes.cookies = cookies.as_ptr() as u64;
    probes.cnt = places.len() as u32;
    probes.flags = if at_return { BPF_F_UPROBE_MULTI_RETURN } else { 0 };
    call_for_fd(bpf_cmd::BPF_LINK_CREATE, &mut attr)
}

/// Whether the kernel supports such links, and lets this process create them. Tests this with a link to a directory, for which
/// a kernel with support returns EBADF.
pub fn check_support(program: &OwnedFd) -> io::Result<()> {
    match link(program, c"/", &[ProbePoint { offset: 0, cookie: 0 }], false) {
        Err(e) if e.raw_os_error() == Some(libc::EBADF) => Ok(()),
        Err(e) => Err(e),
        Ok(_) => Err(io::Error::other("it probes directories")),
    }
}
