//! Locates tracefs: the kernel's trace events, their formats, and the buffers of ftrace.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::OnceLock;

/// Its usual mount points.
pub const MOUNT_POINTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Returns where it is mounted and readable.
pub fn mount_point() -> Option<PathBuf> {
    MOUNT_POINTS.iter().map(PathBuf::from).find(|dir| dir.join("instances").is_dir())
}

/// Mounts tracefs if nobody has mounted it: outside the file system tree, visible to this process alone, and removed when it
/// ends (fsmount(2), Linux 5.2, root).
pub fn mount_privately() -> Option<PathBuf> {
    static PRIVATE_MOUNT: OnceLock<Option<OwnedFd>> = OnceLock::new();
    // include/uapi/linux/mount.h: FSOPEN_CLOEXEC and FSMOUNT_CLOEXEC; FSCONFIG_CMD_CREATE.
    const CLOEXEC: libc::c_long = 1;
    const FSCONFIG_CMD_CREATE: libc::c_long = 6;
    let descriptor = |fd: libc::c_long| {
        // SAFETY: the system call returned this descriptor, which has no other owner.
        (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
    };
    let mount = PRIVATE_MOUNT.get_or_init(|| {
        // SAFETY: the name is a zero-terminated string; the other arguments are numbers.
        let context = descriptor(unsafe { libc::syscall(libc::SYS_fsopen, c"tracefs".as_ptr(), CLOEXEC) })?;
        // SAFETY: only numbers, and no key and value.
        let configured =
            unsafe { libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), FSCONFIG_CMD_CREATE, 0_usize, 0_usize, 0) };
        // SAFETY: only numbers.
        (configured == 0)
            .then(|| unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), CLOEXEC, 0) })
            .and_then(descriptor)
    });
    mount.as_ref().map(|mount| format!("/proc/self/fd/{}", mount.as_raw_fd()).into())
}
