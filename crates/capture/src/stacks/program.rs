//! Converts the copy of a program's stack to its functions.
//!
//! Uses the files' unwind information (`.eh_frame`), if a function has any, else its frame pointer. An address found this way counts
//! as a function only if a call precedes it: otherwise a register that holds something else would mislead.
//!
//! *Uncertainty*: code that a program generates itself has no file: its frames are followed by frame pointers, and have no name.
//! Functions that were inlined, or that ended with a jump to another one, are not on the stack.

use super::code::{CodeFile, CodeFiles};
use super::maps::Maps;
use super::raw::CallStack;
use super::section::Bytes;
use framehop::{
    CacheNative, Error, ExplicitModuleSectionInfo, FrameAddress, MayAllocateDuringUnwind, Module, UnwindRegsNative,
    Unwinder as _, UnwinderNative,
};
use model::event::chain_end;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

/// Maximum number of functions kept per chain.
const FRAMES_MAX: usize = 64;
/// Size of the stubs that replace return addresses, and of the table of the originals behind them (`named.h` of the crate
/// `inside`).
const STUBS_BYTES: u64 = 0x4000;
/// Maximum number of functions that ended with a jump to one another, each with a replaced return address.
const STUB_CHAIN_MAX: usize = 8;

type NativeUnwinder = UnwinderNative<Bytes, MayAllocateDuringUnwind>;
type Cache = CacheNative<MayAllocateDuringUnwind>;

/// A function on a stack.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    /// Its name, and the offset in it.
    pub function: Option<(String, u64)>,
    /// The file, or the name of another mapping.
    pub file: String,
    /// Offset in the file.
    pub offset: u64,
    pub build_id: String,
}

impl Place {
    /// Returns the placeholder for functions that must exist and are not known.
    fn unknown() -> Self {
        Self { function: Some(("?".into(), 0)), file: String::new(), offset: 0, build_id: String::new() }
    }
}

/// Functions, the innermost first.
struct Chain {
    places: Vec<Place>,
    /// Why they end there.
    ended: u16,
    /// Whether it leads to an address without code at the time the process was read.
    unseen: bool,
}

/// An element of a chain.
enum Step {
    Found(FrameAddress),
    Unknown,
}

/// Where a process has its code, and what is derived from that when one of its stacks arrives: most processes have none.
struct Process {
    pid: u32,
    maps: Maps,
    code: Option<LoadedCode>,
    memory: Option<File>,
}

/// The code of a process.
struct LoadedCode {
    pid: u32,
    maps: Maps,
    code: HashMap<u64, Arc<CodeFile>>,
    unwinder: NativeUnwinder,
    originals: HashMap<u64, u64>,
}

#[derive(Default)]
pub struct Programs {
    files: CodeFiles,
    cache: Option<Box<Cache>>,
    processes: HashMap<u32, Process>,
}

/// Maximum number of processes whose code is kept.
const PROCESSES_MAX: usize = 256;

impl Programs {
    /// Reads where a process has its code now, if it exists.
    pub fn read_process(&mut self, tgid: u32) {
        let Some(pid) = crate::in_proc(tgid) else { return };
        let Some(maps) = Maps::read(pid) else { return };
        if self.processes.get(&tgid).is_some_and(|known| known.maps == maps && known.memory.is_some()) {
            return;
        }
        let memory = File::open(format!("/proc/{pid}/mem")).ok();
        self.insert_process(tgid, Process { pid, maps, code: None, memory });
    }

    /// Records that a process was forked from another one, and has its code in the same places.
    pub fn note_fork(&mut self, tgid: u32, parent: u32) {
        if let Some(Process { maps, .. }) = self.processes.get(&parent) {
            let (pid, maps) = (crate::in_proc(tgid).unwrap_or(tgid), maps.clone());
            self.insert_process(tgid, Process { pid, maps, code: None, memory: None });
        }
    }

    fn insert_process(&mut self, tgid: u32, process: Process) {
        if self.processes.len() >= PROCESSES_MAX {
            self.processes.clear();
        }
        self.processes.insert(tgid, process);
    }

    /// Whether a process was read itself, and not only its parent. Each new code mapping is reported in order, between the stacks before
    /// and after it, so that what was read is valid for the stacks until then: reading it again would include later changes, such as a
    /// library at the place of one that was closed since.
    pub fn knows(&self, tgid: u32) -> bool {
        self.processes.get(&tgid).is_some_and(|known| known.memory.is_some())
    }

    /// Returns the functions of a copied stack, the innermost first, and why they end there ([`chain_end`]).
    pub fn unwind(&mut self, call: &CallStack) -> (Vec<Place>, u16) {
        let Some(mut chain) = self.unwind_once(call) else { return (Vec::new(), chain_end::PROCESS_ENDED) };
        if chain.unseen {
            // Memory that became executable later (mprotect) is not reported.
            let known = |programs: &Self| programs.processes.get(&call.thread.0).map(|process| process.maps.clone());
            let before = known(self);
            self.read_process(call.thread.0);
            if known(self) != before {
                chain = self.unwind_once(call).unwrap_or(chain);
            }
        }
        let is_gone = || self.processes.get(&call.thread.0).is_none_or(|process| !is_running(process.pid));
        let ended = if chain.unseen && is_gone() { chain_end::PROCESS_ENDED } else { chain.ended };
        (chain.places, ended)
    }

    fn unwind_once(&mut self, call: &CallStack) -> Option<Chain> {
        let Self { files, cache, processes } = self;
        let (loaded, memory) = processes.get_mut(&call.thread.0)?.loaded(files);
        Some(loaded.unwind(call, memory, cache.get_or_insert_with(|| Box::new(Cache::new()))))
    }

    /// Returns the single function that a thread was in.
    pub fn function_at(&mut self, tgid: u32, ip: u64) -> Option<Place> {
        let (loaded, _) = self.processes.get_mut(&tgid)?.loaded(&mut self.files);
        loaded.place(FrameAddress::from_instruction_pointer(ip))
    }
}

impl Process {
    fn loaded(&mut self, files: &mut CodeFiles) -> (&mut LoadedCode, Option<&File>) {
        let Self { pid, maps, code, memory, .. } = self;
        (code.get_or_insert_with(|| LoadedCode::new(*pid, maps.clone(), files)), memory.as_ref())
    }
}

impl LoadedCode {
    fn new(pid: u32, maps: Maps, files: &mut CodeFiles) -> Self {
        let mut unwinder = NativeUnwinder::new();
        let mut all = HashMap::new();
        for mapping in maps.iter() {
            let Some(code) = files.for_mapping(pid, mapping) else { continue };
            let Some(linked) = code.address_of(mapping.offset) else { continue };
            // The address at which the file's address 0 is mapped.
            let Some(base) = mapping.from.checked_sub(linked) else { continue };
            let (frame, header) = (code.eh_frame.clone(), code.eh_frame_hdr.clone());
            let sections = ExplicitModuleSectionInfo {
                eh_frame_svma: frame.as_ref().map(|section| section.addresses.clone()),
                eh_frame: frame.map(|section| section.bytes),
                eh_frame_hdr_svma: header.as_ref().map(|section| section.addresses.clone()),
                eh_frame_hdr: header.map(|section| section.bytes),
                base_svma: 0,
                text_svma: None,
                text: None,
                stubs_svma: None,
                stub_helper_svma: None,
                got_svma: None,
                unwind_info: None,
                debug_frame: None,
                text_segment_svma: None,
                text_segment: None,
            };
            unwinder.add_module(Module::new(mapping.name.clone(), mapping.from..mapping.to, base, sections));
            all.insert(mapping.from, code);
        }
        Self { pid, maps, code: all, unwinder, originals: HashMap::new() }
    }

    fn unwind(&mut self, call: &CallStack, memory: Option<&File>, cache: &mut Cache) -> Chain {
        let Self { maps, unwinder, originals, .. } = self;
        let mut unseen = false;
        let mut read = |at: u64| {
            let word = call.word(at).ok_or(())?;
            if let Some(original) = original_word(maps, call, at, word) {
                return Ok(original);
            }
            Ok(through_stubs(memory, originals, call.stubs, word))
        };
        let mut registers = registers(call);
        let mut address = FrameAddress::from_instruction_pointer(call.at.ip);
        let mut found = vec![Step::Found(address)];
        let ended = loop {
            if found.len() >= FRAMES_MAX {
                break chain_end::TOO_LONG;
            }
            if !can_unwind_at(maps, &self.code, address) {
                break chain_end::NO_CALLER;
            }
            match unwinder.unwind_frame(address, &mut registers, cache, &mut read) {
                Ok(Some(caller)) => {
                    let Some(next) = FrameAddress::from_return_address(caller) else { break chain_end::NO_CALLER };
                    if !is_return_address(maps, &self.code, caller) {
                        unseen = maps.find(caller.wrapping_sub(1)).is_none();
                        break chain_end::NO_CALLER;
                    }
                    if let Some(entered) = skipped_function(maps, &self.code, address, caller) {
                        found.extend([Step::Unknown, Step::Found(FrameAddress::from_instruction_pointer(entered))]);
                    }
                    found.push(Step::Found(next));
                    address = next;
                }
                Ok(None) => {
                    let whole = is_outermost(maps, &self.code, address);
                    break if whole { chain_end::WHOLE } else { chain_end::NO_CALLER };
                }
                Err(Error::CouldNotReadStack(at)) if call.is_beyond(at) => break chain_end::BEYOND_COPY,
                Err(_) => {
                    let whole = is_outermost(maps, &self.code, address);
                    break if whole { chain_end::WHOLE } else { chain_end::NO_CALLER };
                }
            }
        };
        let place = |step| match step {
            Step::Found(address) => self.place(address),
            Step::Unknown => Some(Place::unknown()),
        };
        Chain { places: found.into_iter().filter_map(place).collect(), ended, unseen }
    }

    fn place(&self, address: FrameAddress) -> Option<Place> {
        let (at, within) = (address.address(), address.address_for_lookup());
        let mapping = self.maps.find(within)?;
        let offset = at - mapping.from + mapping.offset;
        let code = self.code.get(&mapping.from);
        let linked = code.and_then(|code| code.address_of(within - mapping.from + mapping.offset));
        let function = code.zip(linked).and_then(|(code, linked)| code.function(linked));
        let file =
            if mapping.name.is_empty() { format!("[code made by process {}]", self.pid) } else { mapping.name.clone() };
        Some(Place {
            function: function.map(|(name, offset)| (name, offset + (at - within))),
            file: super::names::clean_text(&file),
            offset,
            build_id: code.map(|code| code.build_id.clone()).unwrap_or_default(),
        })
    }
}

#[cfg(target_arch = "x86_64")]
fn registers(call: &CallStack) -> UnwindRegsNative {
    UnwindRegsNative::new(call.at.ip, call.at.sp, call.at.fp)
}

#[cfg(target_arch = "aarch64")]
fn registers(call: &CallStack) -> UnwindRegsNative {
    use framehop::aarch64::PtrAuthMask;
    // Bits above those of an address may be its signature.
    UnwindRegsNative::new_with_ptr_auth_mask(PtrAuthMask::new_24_40(), call.at.lr, call.at.sp, call.at.fp)
}

/// Whether a process still has its code.
fn is_running(pid: u32) -> bool {
    std::fs::metadata(format!("/proc/{pid}/exe")).is_ok()
}

/// Whether a place is a valid return address.
fn is_return_address(maps: &Maps, code: &HashMap<u64, Arc<CodeFile>>, address: u64) -> bool {
    let Some(mapping) = maps.find(address.wrapping_sub(1)) else { return false };
    code.get(&mapping.from).is_none_or(|code| code.follows_call(address - mapping.from + mapping.offset))
}

/// Returns the function that a caller called, according to its call, if it is not the one from which the caller was found. Without unwind
/// information for that one, its frame pointer was followed, which is its caller's, or that one's, if it has none itself: those between
/// are missing. Alternatively the called function ended with a jump to another one, and none is missing.
fn skipped_function(maps: &Maps, code: &HashMap<u64, Arc<CodeFile>>, from: FrameAddress, caller: u64) -> Option<u64> {
    let at = |address: u64| {
        let mapping = maps.find(address)?;
        let code = code.get(&mapping.from)?;
        Some((code, address - mapping.from + mapping.offset))
    };
    let function = |address: u64| {
        let (code, offset) = at(address)?;
        Some(code.function(code.address_of(offset)?)?.0)
    };
    let from = from.address_for_lookup();
    let (own, offset) = at(from)?;
    if own.has_unwind_info(own.address_of(offset)?) {
        return None;
    }
    let (calling, offset) = at(caller.wrapping_sub(1))?;
    let entered = caller.checked_add_signed(calling.called_before(offset + 1)?)?;
    // A stub that leads to another file has no name. Parts of one function have its name and a suffix.
    let (entered_name, from_name) = (function(entered)?, function(from)?);
    let base = |name: &str| name.split('.').next().unwrap_or_default().to_string();
    (base(&entered_name) != base(&from_name)).then_some(entered)
}

/// Whether the unwind information for an address can be evaluated safely; the unwinder, which relies on it, counts from the start of the
/// mapping.
fn can_unwind_at(maps: &Maps, code: &HashMap<u64, Arc<CodeFile>>, address: FrameAddress) -> bool {
    let within = address.address_for_lookup();
    let find = || {
        let mapping = maps.find(within)?;
        let code = code.get(&mapping.from)?;
        let linked = code.address_of(mapping.offset)?.checked_add(within - mapping.from)?;
        Some(code.is_safe_to_unwind(linked))
    };
    find().unwrap_or(true)
}

/// Whether the function has no caller: according to its unwind information, or by its name if there is none.
fn is_outermost(maps: &Maps, code: &HashMap<u64, Arc<CodeFile>>, address: FrameAddress) -> bool {
    let within = address.address_for_lookup();
    let find = || {
        let mapping = maps.find(within)?;
        let code = code.get(&mapping.from)?;
        let linked = code.address_of(within - mapping.from + mapping.offset)?;
        let named = || {
            let name = code.function(linked).map(|(name, _)| name).unwrap_or_default();
            matches!(
                &*name,
                "_start" | "__clone" | "__clone3" | "clone" | "clone3" | "runtime.goexit" | "runtime.goexit.abi0"
            )
        };
        Some(code.is_outermost(linked).unwrap_or(false) || named())
    };
    find().unwrap_or(false)
}

/// Returns the word of the stack before a probe replaced it. For a uretprobe the kernel records where the stack ended when the function
/// was entered, which is the place of the return address on x86-64; on arm64 the function saves it below. The object inside the program
/// records the place. Such a record may belong to a function that was left some other way, so the word there must be a probe's: a stub,
/// or the trampoline, which the kernel maps when needed, at an unused address.
fn original_word(maps: &Maps, call: &CallStack, at: u64, word: u64) -> Option<u64> {
    let stub = call.stubs != 0 && word.wrapping_sub(call.stubs) < STUBS_BYTES;
    if !stub && maps.find(word).is_some_and(|mapping| mapping.name != "[uprobes]") {
        return None;
    }
    let exact = call.returns.iter().find(|(place, _)| *place == at).map(|(_, original)| *original);
    exact.or_else(|| saved_below(maps, call, at, word))
}

#[cfg(target_arch = "x86_64")]
fn saved_below(_: &Maps, _: &CallStack, _: u64, _: u64) -> Option<u64> {
    None
}

#[cfg(target_arch = "aarch64")]
fn saved_below(maps: &Maps, call: &CallStack, at: u64, word: u64) -> Option<u64> {
    // Other words of the stack are read too, and few of them are near code.
    let near = maps.iter().any(|mapping| mapping.from >> 32 == word >> 32);
    let above = call.returns.iter().filter(|(place, _)| near && *place > at);
    above.min_by_key(|(place, _)| *place).map(|(_, original)| *original)
}

/// Returns the original of a return address that functions probed inside have replaced; the same word if it was not
/// replaced.
fn through_stubs(memory: Option<&File>, known: &mut HashMap<u64, u64>, stubs: u64, mut word: u64) -> u64 {
    for _ in 0..STUB_CHAIN_MAX {
        if stubs == 0 || word.wrapping_sub(stubs) >= STUBS_BYTES {
            return word;
        }
        let read = || {
            let mut bytes = [0; 8];
            memory?.read_exact_at(&mut bytes, word + STUBS_BYTES).ok()?;
            Some(u64::from_le_bytes(bytes))
        };
        let Some(original) = known.get(&word).copied().or_else(read) else { return word };
        known.insert(word, original);
        word = original;
    }
    word
}
