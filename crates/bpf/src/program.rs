//! Loads programs and the types that describe them.

use crate::call::{call_for_fd, object_name, zeroed_attr};
use aya_obj::generated::{bpf_attach_type, bpf_cmd, bpf_insn, bpf_prog_type};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Size of a verifier log in bytes; it is cut at its front, and its end contains the error.
const LOG_BYTES: usize = 1 << 20;

/// A program to be loaded, relocated for this kernel.
#[derive(Debug, Clone, Copy)]
pub struct Program<'a> {
    /// Its name; the kernel keeps 15 bytes.
    pub name: &'a str,
    pub kind: ProgramKind,
    pub code: &'a [bpf_insn],
    /// License, as in its object.
    pub license: &'a CStr,
    /// Types of its functions. Without them, it may not call any of its own.
    pub functions: Option<Functions<'a>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramKind {
    /// To be attached by [`crate::uprobe::link`].
    UprobeMulti,
    /// A member of one of the kernel's structs.
    StructOps {
        /// The struct's number among the kernel's types.
        ops: u32,
        /// The member's number in it.
        member: u32,
    },
}

/// Where functions begin in the code, and their types.
#[derive(Debug, Clone, Copy)]
pub struct Functions<'a> {
    pub types: &'a OwnedFd,
    /// Records of `record_size` bytes.
    pub records: &'a [u8],
    /// Size of a record in bytes.
    pub record_size: usize,
}

/// Why the kernel rejected a program.
#[derive(Debug)]
pub struct LoadError {
    pub error: io::Error,
    /// The verifier's log; empty if the verifier did not run.
    pub log: String,
}

/// Loads a type section.
pub fn load_types(blob: &[u8]) -> io::Result<OwnedFd> {
    let mut attr = zeroed_attr();
    // SAFETY: writes to a union whose every field is plain integers.
    let types = unsafe { &mut attr.__bindgen_anon_7 };
    types.btf = blob.as_ptr() as u64;
    types.btf_size = blob.len() as u32;
    call_for_fd(bpf_cmd::BPF_BTF_LOAD, &mut attr)
}

/// Loads a program.
pub fn load(program: &Program<'_>) -> Result<OwnedFd, LoadError> {
    try_load(program, &mut []).map_err(|error| {
        let mut log = vec![0; LOG_BYTES];
        let _ = try_load(program, &mut log);
        let end = log.iter().position(|b| *b == 0).unwrap_or(log.len());
        LoadError { error, log: String::from_utf8_lossy(&log[..end]).into_owned() }
    })
}

fn try_load(program: &Program<'_>, log: &mut [u8]) -> io::Result<OwnedFd> {
    let mut attr = zeroed_attr();
    // SAFETY: as in `load_types`.
    let load = unsafe { &mut attr.__bindgen_anon_3 };
    match program.kind {
        ProgramKind::UprobeMulti => {
            load.prog_type = bpf_prog_type::BPF_PROG_TYPE_KPROBE as u32;
            load.expected_attach_type = bpf_attach_type::BPF_TRACE_UPROBE_MULTI as u32;
        }
        ProgramKind::StructOps { ops, member } => {
            load.prog_type = bpf_prog_type::BPF_PROG_TYPE_STRUCT_OPS as u32;
            load.attach_btf_id = ops;
            load.expected_attach_type = member;
        }
    }
    load.insns = program.code.as_ptr() as u64;
    load.insn_cnt = program.code.len() as u32;
    load.license = program.license.as_ptr() as u64;
    load.prog_name = object_name(program.name);
    if let Some(functions) = program.functions {
        load.prog_btf_fd = functions.types.as_raw_fd() as u32;
        load.func_info = functions.records.as_ptr() as u64;
        load.func_info_rec_size = functions.record_size as u32;
        load.func_info_cnt = functions.records.len().checked_div(functions.record_size).unwrap_or(0) as u32;
    }
    if !log.is_empty() {
        load.log_level = 1;
        load.log_buf = log.as_mut_ptr() as u64;
        load.log_size = log.len() as u32;
    }
    call_for_fd(bpf_cmd::BPF_PROG_LOAD, &mut attr)
}
