//! Loads the object into a statically linked command, which has no loader: while it is stopped after its exec, before its first
//! instruction.
//!
//! The stopped program itself opens and maps the object's file (uprobes of the kernel side are on that), by system calls that it is
//! made to execute one at a time; the work of a loader is then done by writing to its memory. It resumes in the object, which writes
//! the jumps and returns to the program's own entry. Only known cases are touched: a libc that sets up its threads' memory from the
//! program headers (glibc and musl do, others are not known), no filter of system calls, this root. All checks come before the first
//! change; later failures are undone, and the program continues unchanged.

#[cfg(target_arch = "aarch64")]
#[path = "implant/aarch64.rs"]
mod processor;
#[cfg(target_arch = "x86_64")]
#[path = "implant/x86_64.rs"]
mod processor;

use super::error::ImplantError;
use crate::launch::Request;
use crate::sqlite;
use inside::image::{Image, PROGRAM_HEADER_BYTES, Tls, TlsSide, relocations};
use libc::{c_long, c_void, pid_t};
use processor::Registers;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// From linux/ptrace.h; the crate `libc` does not have them everywhere.
const PTRACE_GETSIGMASK: Request = 0x420a;
const PTRACE_SETSIGMASK: Request = 0x420b;
const PAGE_BYTES: u64 = 4096;
const AT_PHDR: u64 = 3;
const AT_PHENT: u64 = 4;
const AT_PHNUM: u64 = 5;
const AT_ENTRY: u64 = 9;
const AT_SECURE: u64 = 23;
/// Offset of the entry point in an ELF file.
const ELF_ENTRY_OFFSET: u64 = 24;

/// Makes the program of a process, which is traced by this thread and stopped at its exec, start in the object.
///
/// # Errors
/// The reason; the program is then unchanged.
pub fn implant(pid: u32, object: &Path) -> Result<(), ImplantError> {
    let image = Image::parse(::inside::OBJECT).ok_or(ImplantError::Object)?;
    let mut directory = object.parent().map(|f| f.as_os_str().as_bytes().to_vec()).unwrap_or_default();
    directory.push(b'/');
    let stopped = StoppedProgram::new(pid)?;
    let program = Program::check(&stopped, object, &image)?;
    let before = stopped.registers()?;
    let before = before.ok_or(ImplantError::Unsupported("it is not a 64-bit program"))?;
    let call_at =
        stopped.call_instruction().ok_or(ImplantError::Unsupported("its vDSO has no system call instruction"))?;
    let mask = stopped.block_signals()?;
    let mut hands = RemoteLoader { stopped: &stopped, before, call_at, mapped: Vec::new() };
    let done = hands.load_object(object, &directory, &image, &program);
    if done.is_err() {
        hands.unmap_all();
    }
    let after = before.outside_call(done.as_ref().ok().copied());
    let restored = stopped.set_registers(&after).and_then(|()| stopped.set_mask(mask));
    restored?;
    Ok(done.map(drop)?)
}

/// What is known of the stopped program.
struct Program {
    tls: Tls,
    /// The initial values of its own thread-local memory, after relocation.
    initial: Vec<u8>,
    headers_at: u64,
    entry: u64,
    bias: u64,
}

impl Program {
    /// Checks everything that could prevent touching it.
    fn check(stopped: &StoppedProgram, object: &Path, image: &Image) -> Result<Self, ImplantError> {
        let proc = |name: &str| format!("/proc/{}/{name}", stopped.pid);
        let unknown = |e: io::Error| ImplantError::Unreadable { what: "it", source: Some(e) };
        let status = fs::read_to_string(proc("status")).map_err(unknown)?;
        if !status.lines().any(|line| line.split_whitespace().eq(["Seccomp:", "0"])) {
            return Err(ImplantError::Unsupported("a filter of system calls (seccomp) is in force"));
        }
        let identity = |path: &Path| fs::metadata(path).ok().map(|about| (about.dev(), about.ino()));
        let there = Path::new(&proc("root")).join(object.strip_prefix("/").unwrap_or(object));
        if identity(&there).is_none() || identity(&there) != identity(object) {
            return Err(ImplantError::Unsupported("it runs in another root directory"));
        }
        let auxiliary = fs::read(proc("auxv")).map_err(unknown)?;
        let value = |kind: u64| {
            let mut words = auxiliary.chunks_exact(16).filter_map(|pair| {
                let word = |at: usize| Some(u64::from_le_bytes(*pair.get(at..)?.first_chunk()?));
                Some((word(0)?, word(8)?))
            });
            words.find(|(k, _)| *k == kind).map(|(_, value)| value)
        };
        if value(AT_SECURE) != Some(0) {
            return Err(ImplantError::Unsupported("it has more privileges than its caller (setuid)"));
        }
        let (Some(headers_at), Some(count), Some(entry)) = (value(AT_PHDR), value(AT_PHNUM), value(AT_ENTRY)) else {
            return Err(ImplantError::Unsupported("it has no program headers"));
        };
        if value(AT_PHENT) != Some(PROGRAM_HEADER_BYTES as u64) || count > 64 {
            return Err(ImplantError::Unsupported("it has unusual program headers"));
        }
        let exe = proc("exe");
        let has = |function: &str| sqlite::entry::find_entry(Path::new(&exe), function).is_ok();
        let musl = has("__init_tls") || has("static_init_tls");
        if !musl && !has("__libc_setup_tls") {
            return Err(ImplantError::Unsupported(
                "its C library is unknown: it has neither glibc's nor musl's symbols",
            ));
        }
        let mut headers = vec![0; count as usize * PROGRAM_HEADER_BYTES];
        stopped.memory.read_exact_at(&mut headers, headers_at).map_err(unknown)?;
        let tls = Tls::extend(&headers, image.tls(), TlsSide::OWN, musl)?;
        let mut own_entry = [0; 8];
        let file = File::open(&exe).map_err(unknown)?;
        file.read_exact_at(&mut own_entry, ELF_ENTRY_OFFSET).map_err(unknown)?;
        let bias = entry.wrapping_sub(u64::from_le_bytes(own_entry));
        let initial = initial_tls(stopped, &headers, &tls, bias)?;
        Ok(Self { tls, initial, headers_at, entry, bias })
    }
}

/// Returns the initial values of the program's own thread-local memory, with the addresses that it would relocate later (a
/// static-pie).
fn initial_tls(stopped: &StoppedProgram, headers: &[u8], tls: &Tls, bias: u64) -> Result<Vec<u8>, ImplantError> {
    let unreadable = |what| ImplantError::Unreadable { what, source: None };
    let read = |at: u64, size: u64| {
        let mut bytes = vec![0; size as usize];
        stopped.memory.read_exact_at(&mut bytes, at.wrapping_add(bias)).ok().map(|()| bytes)
    };
    let (from, count, _) = tls.own;
    let mut bytes = read(from, count).ok_or_else(|| unreadable("its thread-local memory"))?;
    let dynamic = match inside::image::dynamic_section(headers) {
        Some((at, size)) => read(at, size).ok_or_else(|| unreadable("its dynamic section"))?,
        None => Vec::new(),
    };
    for (at, addend) in relocations(&dynamic, from..from + count, read)? {
        let Some(word) = bytes.get_mut(at as usize..).and_then(|rest| rest.first_chunk_mut::<8>()) else { continue };
        *word = addend.unwrap_or(u64::from_le_bytes(*word)).wrapping_add(bias).to_le_bytes();
    }
    Ok(bytes)
}

/// Does a loader's work in the stopped program.
struct RemoteLoader<'a> {
    stopped: &'a StoppedProgram,
    before: Registers,
    call_at: u64,
    mapped: Vec<(u64, u64)>,
}

impl RemoteLoader<'_> {
    /// Returns the address at which the program resumes.
    fn load_object(&mut self, object: &Path, directory: &[u8], image: &Image, program: &Program) -> io::Result<u64> {
        let memory = &self.stopped.memory;
        // On its way out of the exec the kernel sets the result's register to 0, which spoils the first call.
        let _ = self.system_call(processor::FIRST_CALL, [u64::MAX, 0, 0, 0, 0, 0]);
        let path = [object.as_os_str().as_bytes(), &[0]].concat();
        // Below the stack, which has not started to grow.
        let path_at = (self.before.stack() - 1024 - path.len() as u64) & !15;
        memory.write_all_at(&path, path_at)?;
        let fd = self.system_call(
            libc::SYS_openat,
            [libc::AT_FDCWD as u64, path_at, (libc::O_RDONLY | libc::O_CLOEXEC) as u64, 0, 0, 0],
        )?;
        let mapped = self.map_object(fd, image);
        self.system_call(libc::SYS_close, [fd, 0, 0, 0, 0, 0])?;
        let base = mapped?;
        let tls = &program.tls;
        let size = tls.size.next_multiple_of(PAGE_BYTES);
        let initial = self.map(0, size, libc::PROT_READ | libc::PROT_WRITE, PRIVATE_ANONYMOUS, u64::MAX, 0)?;
        memory.write_all_at(&program.initial, initial + tls.own.2)?;
        for (at, word) in image.relocated_words(base, tls.offset()) {
            memory.write_all_at(&word.to_le_bytes(), at)?;
        }
        let (at, bytes) = image.parameters(base, program.entry, program.bias, directory);
        memory.write_all_at(&bytes, at)?;
        // Last: from here on nothing may fail.
        let header = tls.header(initial.wrapping_sub(program.bias));
        memory.write_all_at(&header, program.headers_at + tls.header_at as u64)?;
        Ok(image.start(base))
    }

    fn map_object(&mut self, fd: u64, image: &Image) -> io::Result<u64> {
        let base = self.map(0, image.size, libc::PROT_NONE, PRIVATE_ANONYMOUS, u64::MAX, 0)?;
        for s in &image.segments {
            let page = s.address & !(PAGE_BYTES - 1);
            let before = s.address - page;
            let protection = s.protection as i32;
            let fixed = libc::MAP_PRIVATE | libc::MAP_FIXED;
            self.map(base + page, before + s.file_size, protection, fixed, fd, s.offset - before)?;
            let filled = (s.address + s.file_size).next_multiple_of(PAGE_BYTES);
            if s.size > s.file_size {
                let rest = filled.min(s.address + s.size) - (s.address + s.file_size);
                self.stopped.memory.write_all_at(&vec![0; rest as usize], base + s.address + s.file_size)?;
            }
            if s.address + s.size > filled {
                let more = s.address + s.size - filled;
                self.map(base + filled, more, protection, PRIVATE_ANONYMOUS | libc::MAP_FIXED, u64::MAX, 0)?;
            }
        }
        Ok(base)
    }

    fn map(&mut self, at: u64, size: u64, protection: i32, flags: i32, fd: u64, offset: u64) -> io::Result<u64> {
        let size = size.next_multiple_of(PAGE_BYTES);
        let got = self.system_call(libc::SYS_mmap, [at, size, protection as u64, flags as u64, fd, offset])?;
        if flags & libc::MAP_FIXED == 0 {
            self.mapped.push((got, size));
        }
        Ok(got)
    }

    fn unmap_all(&mut self) {
        for (at, size) in std::mem::take(&mut self.mapped) {
            let _ = self.system_call(libc::SYS_munmap, [at, size, 0, 0, 0, 0]);
        }
    }

    /// Executes one system call in the program.
    fn system_call(&self, number: c_long, a: [u64; 6]) -> io::Result<u64> {
        let registers = self.before.calling(self.call_at, number, a);
        self.stopped.set_registers(&registers)?;
        // The first step may end before the instruction: with the exec in which the program is stopped.
        for _ in 0..4 {
            self.stopped.single_step()?;
            let now = self.stopped.registers()?.ok_or_else(|| io::Error::other("it is a 32-bit program now"))?;
            if now.at() != self.call_at {
                let result = now.result().cast_signed();
                let failed = (-4095..0).contains(&result);
                return if failed { Err(io::Error::from_raw_os_error(-result as i32)) } else { Ok(now.result()) };
            }
        }
        Err(io::Error::other("it does not move"))
    }
}

const PRIVATE_ANONYMOUS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

/// A process that this thread traces, stopped.
struct StoppedProgram {
    pid: pid_t,
    memory: File,
}

impl StoppedProgram {
    fn new(pid: u32) -> io::Result<Self> {
        let memory = OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem"))?;
        Ok(Self { pid: pid.cast_signed(), memory })
    }

    fn ptrace(&self, request: Request, address: usize, data: *mut c_void) -> io::Result<()> {
        // SAFETY: every request in this file reads or writes what `data` points to, which the caller holds, or nothing.
        let done = unsafe { libc::ptrace(request, self.pid, address as *mut c_void, data) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Returns `None` for a 32-bit program.
    fn registers(&self) -> io::Result<Option<Registers>> {
        Registers::read(|request, address, data| self.ptrace(request, address, data))
    }

    fn set_registers(&self, all: &Registers) -> io::Result<()> {
        all.write(|request, address, data| self.ptrace(request, address, data))
    }

    /// Blocks all signals that can be blocked; returns the previous mask.
    fn block_signals(&self) -> io::Result<u64> {
        let mut mask = 0u64;
        self.ptrace(PTRACE_GETSIGMASK, 8, (&raw mut mask).cast())?;
        self.set_mask(u64::MAX)?;
        Ok(mask)
    }

    fn set_mask(&self, mut mask: u64) -> io::Result<()> {
        self.ptrace(PTRACE_SETSIGMASK, 8, (&raw mut mask).cast())
    }

    /// Executes one instruction.
    fn single_step(&self) -> io::Result<()> {
        self.ptrace(libc::PTRACE_SINGLESTEP, 0, std::ptr::null_mut())?;
        let mut status = 0;
        // SAFETY: waits for a process that this thread traces; the status is valid memory.
        while unsafe { libc::waitpid(self.pid, &raw mut status, libc::__WALL) } < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        let stepped = libc::WIFSTOPPED(status) && libc::WSTOPSIG(status) == libc::SIGTRAP;
        if stepped {
            Ok(())
        } else {
            Err(io::Error::other(format!("it stopped for another reason (status {status:#x})")))
        }
    }

    /// Returns the address of a system call instruction in the vDSO.
    fn call_instruction(&self) -> Option<u64> {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid)).ok()?;
        let range = maps.lines().find(|line| line.ends_with("[vdso]"))?.split(' ').next()?;
        let (from, to) = range.split_once('-')?;
        let (from, to) = (u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?);
        let mut code = vec![0; usize::try_from(to.checked_sub(from)?).ok().filter(|size| *size <= 1 << 16)?];
        self.memory.read_exact_at(&mut code, from).ok()?;
        processor::call_instruction(&code).map(|at| from + at as u64)
    }
}
