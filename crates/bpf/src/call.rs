//! bpf(2) itself.

use aya_obj::generated::{bpf_attr, bpf_cmd};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Issues a command. Every pointer in `attr` must be set from memory that outlives the call and has the length given next
/// to it; each caller in this crate ensures that.
pub fn bpf_syscall(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<i32> {
    // SAFETY: `attr` is a whole bpf_attr, with pointers as promised above.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command as libc::c_long, std::ptr::from_mut(attr), size_of::<bpf_attr>())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

/// Issues a command that returns a descriptor.
pub fn call_for_fd(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<OwnedFd> {
    let fd = bpf_syscall(command, attr)?;
    // SAFETY: these commands return a descriptor that has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns an attribute of zeros.
pub fn zeroed_attr() -> bpf_attr {
    // SAFETY: a union of plain integers, for which zero is valid.
    unsafe { std::mem::zeroed() }
}

/// Returns a name of at most 15 bytes and a NUL, as the kernel stores object names.
pub fn object_name(name: &str) -> [libc::c_char; 16] {
    let mut out = [0; 16];
    for (to, from) in out.iter_mut().zip(name.bytes().take(15)) {
        *to = from as libc::c_char;
    }
    out
}
