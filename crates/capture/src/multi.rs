//! Probes on functions by links of type `BPF_TRACE_UPROBE_MULTI` (Linux 6.6).
//!
//! The alternative is a perf event per function. A link needs only CAP_BPF and CAP_PERFMON, while perf's uprobes need
//! CAP_SYS_ADMIN; it takes many functions of a file at once, and is removed with a single wait in the kernel; and the trap
//! bypasses perf's layer.
//!
//! A program must be loaded for one or the other. The loader of the other programs supports only perf's uprobes, so those
//! are loaded here, from the same object, with the maps that it created. If any part of this is refused, at once or later
//! for one function, perf's way remains.

use crate::error::chain;
use crate::probes::load_error;
use crate::refusal::AttachError;
use aya::maps::{Map, MapData};
use aya::{Btf, Ebpf};
use aya_obj::generated::bpf_insn;
use aya_obj::{Function, Object, ProgramSection};
use bpf::program::{self, Functions, LoadError, Program, ProgramKind};
use bpf::uprobe;
pub use bpf::uprobe::ProbePoint;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Attached probes, as long as it lives.
#[derive(Debug)]
pub struct UprobeLinks {
    _descriptor: OwnedFd,
}

/// The programs for uprobes, relocated for this kernel and for the maps of the other programs.
#[derive(Debug)]
pub struct MultiUprobes {
    programs: BTreeMap<String, ProgramSource>,
    loaded: BTreeMap<String, OwnedFd>,
    /// The object's own types.
    types: OwnedFd,
    /// The programs contain their descriptors.
    _maps: Vec<OwnedFd>,
}

/// A program that can be loaded.
#[derive(Debug)]
struct ProgramSource {
    code: Vec<bpf_insn>,
    license: CString,
    /// The start and type of its functions within the code: records of `function_size` bytes.
    functions: Vec<u8>,
    function_size: usize,
    /// Whether it runs at the function's return.
    at_return: bool,
}

/// The program that is loaded to test whether the kernel accepts such programs.
const TRIAL_PROGRAM: &str = "sqlite_step";

impl MultiUprobes {
    /// Prepares the uprobes of an object whose maps `ebpf` has created, for a kernel with these types.
    pub fn open(object: &[u8], ebpf: &Ebpf, kernel: &Btf) -> Result<Self, AttachError> {
        let mut object = Object::parse(object).map_err(|e| chain(&e))?;
        let features = aya::features().btf().ok_or("the kernel has no BTF")?;
        let types = object.fixup_and_sanitize_btf(features).map_err(|e| chain(&e))?;
        let types = program::load_types(&types.ok_or("the object has no BTF")?.to_bytes()).map_err(|e| chain(&e))?;
        object.relocate_btf(kernel).map_err(|e| chain(&e))?;
        let maps = relocate_maps_and_calls(&mut object, ebpf)?;
        let programs = object.programs.iter().filter_map(|(name, program)| {
            let at_return = match program.section {
                ProgramSection::UProbe { .. } => false,
                ProgramSection::URetProbe { .. } => true,
                _ => return None,
            };
            let function = object.functions.get(&program.function_key())?;
            Some((name.clone(), ProgramSource::new(function, &program.license, at_return)))
        });
        let mut multi = Self { programs: programs.collect(), loaded: BTreeMap::new(), types, _maps: maps };
        multi.load(TRIAL_PROGRAM)?;
        let program = multi.loaded.get(TRIAL_PROGRAM).ok_or("not in this build")?;
        uprobe::check_support(program).map_err(|e| AttachError::from_error(&e))?;
        Ok(multi)
    }

    /// Attaches a program to places of a file, all or none.
    pub fn attach(&mut self, name: &str, path: &Path, places: &[ProbePoint]) -> Result<UprobeLinks, AttachError> {
        self.load(name)?;
        let (Some(source), Some(program)) = (self.programs.get(name), self.loaded.get(name)) else {
            return Err("not in this build".into());
        };
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|e| chain(&e))?;
        let link = uprobe::link(program, &path, places, source.at_return);
        link.map(|descriptor| UprobeLinks { _descriptor: descriptor })
            .map_err(|e| AttachError::with_reason(format!("the kernel refused the link: {}", chain(&e)), &e))
    }

    fn load(&mut self, name: &str) -> Result<(), AttachError> {
        if !self.loaded.contains_key(name) {
            let source = self.programs.get(name).ok_or("not in this build")?;
            let program = program::load(&source.program(name, &self.types))
                .map_err(|LoadError { error, log }| load_error(&error, &log))?;
            self.loaded.insert(name.into(), program);
        }
        Ok(())
    }

    /// Simulates that the kernel refuses a program.
    #[cfg(test)]
    pub fn refuse(&mut self, name: &str) {
        self.programs.remove(name);
    }

    /// Returns the loaded programs, by name.
    pub fn programs(&self) -> impl Iterator<Item = (String, RawFd)> {
        self.loaded.iter().map(|(name, program)| (name.clone(), program.as_raw_fd()))
    }
}

impl ProgramSource {
    fn new(function: &Function, license: &CStr, at_return: bool) -> Self {
        Self {
            code: function.instructions.clone(),
            license: license.to_owned(),
            functions: function.func_info.func_info_bytes(),
            function_size: function.func_info_rec_size,
            at_return,
        }
    }

    fn program<'a>(&'a self, name: &'a str, types: &'a OwnedFd) -> Program<'a> {
        let functions = Functions { types, records: &self.functions, record_size: self.function_size };
        let (code, license) = (&self.code[..], &*self.license);
        Program { name, kind: ProgramKind::UprobeMulti, code, license, functions: Some(functions) }
    }
}

/// Relocates the maps' descriptors and the called functions in the programs. Returns the maps.
fn relocate_maps_and_calls(object: &mut Object, ebpf: &Ebpf) -> Result<Vec<OwnedFd>, String> {
    let described = std::mem::take(&mut object.maps);
    let mut maps = Vec::new();
    for name in described.keys() {
        let map = ebpf.map(name).and_then(map_data).ok_or_else(|| format!("the table {name} is missing"))?;
        maps.push(map.fd().as_fd().try_clone_to_owned().map_err(|e| chain(&e))?);
    }
    let numbered = described.iter().zip(&maps).map(|((name, map), fd)| (name.as_str(), fd.as_raw_fd(), map));
    let texts = object.functions.keys().map(|(section, _)| *section).collect();
    object.relocate_maps(numbered, &texts).map_err(|e| chain(&e))?;
    object.relocate_calls(&texts).map_err(|e| chain(&e))?;
    Ok(maps)
}

/// Returns the map itself, for any of the kinds in the object.
fn map_data(map: &Map) -> Option<&MapData> {
    match map {
        Map::Array(data)
        | Map::HashMap(data)
        | Map::LruHashMap(data)
        | Map::PerCpuArray(data)
        | Map::ProgramArray(data)
        | Map::RingBuf(data) => Some(data),
        _ => None,
    }
}
