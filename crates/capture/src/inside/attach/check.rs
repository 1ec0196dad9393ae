//! Checks from outside, while the process runs, whether the object can be loaded into it at all.

use super::super::error::ImplantError;
use super::{file_identity, threads};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub fn check_process(pid: u32, object: &Path) -> Result<(), ImplantError> {
    use ImplantError::Unsupported;
    let proc = |name: &str| PathBuf::from(format!("/proc/{pid}/{name}"));
    let ended = |_| Unsupported("it has ended");
    match threads::thread_state(pid, pid.cast_signed()) {
        None | Some('Z' | 'X') => return Err(Unsupported("it has ended")),
        Some('T') => return Err(Unsupported("it is stopped (SIGSTOP)")),
        Some(_) => {}
    }
    if pid == std::process::id() {
        return Err(Unsupported("it is Fathom itself"));
    }
    let status = fs::read_to_string(proc("status")).map_err(ended)?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    if field("TracerPid:") != Some("0") {
        return Err(Unsupported("another program traces it"));
    }
    if field("VmLck:") != Some("0 kB") {
        return Err(Unsupported("it locks its memory, which would include the object's records"));
    }
    if field("x86_Thread_features:").is_some_and(|all| all.contains("shstk")) {
        return Err(Unsupported("the processor compares its returns with a shadow stack"));
    }
    check_filters(pid)?;
    for (name, why) in [("pid", "it runs in another PID namespace"), ("time", "it runs in another time namespace")] {
        let of = |pid: &str| fs::metadata(format!("/proc/{pid}/ns/{name}")).map(|about| about.ino()).ok();
        if of(&pid.to_string()) != of("self") {
            return Err(Unsupported(why));
        }
    }
    let there = proc("root").join(object.strip_prefix("/").unwrap_or(object));
    if file_identity(&there).is_none() || file_identity(&there) != file_identity(object) {
        return Err(Unsupported("it runs in another root directory"));
    }
    let exe = proc("exe");
    let mut magic = [0; 20];
    let read = fs::File::open(&exe).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut magic));
    read.map_err(|e| ImplantError::Unreadable { what: "its program", source: Some(e) })?;
    if magic[..5] != *b"\x7fELF\x02" || magic[18..] != [62, 0] {
        return Err(Unsupported("it is not a 64-bit program"));
    }
    if crate::sqlite::program_loader(&exe).is_none() {
        return Err(Unsupported("it is linked statically"));
    }
    Ok(())
}

/// Checks that no thread has a filter of system calls.
pub fn check_filters(pid: u32) -> Result<(), ImplantError> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).map_err(|_| ImplantError::Unsupported("it has ended"))?;
    for task in tasks.flatten() {
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        if status.lines().any(|line| line.starts_with("Seccomp:") && !line.ends_with("\t0")) {
            return Err(ImplantError::Unsupported("a filter of system calls (seccomp) is in force"));
        }
    }
    Ok(())
}
