//! Compiles the object for recorded programs. Included by `build.rs`, and by tests, which compile it for aarch64 on any machine.
//!
//! It needs clang, like the BPF programs, and no libc. On x86-64 the linker is that of any C compiler; for a processor other than the
//! building machine's it is the one shipped with Rust, or lld.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// For both processors.
const COMMON_FLAGS: [&str; 10] = [
    "-O2",
    "-g0",
    "-fPIC",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-ffreestanding",
    "-fno-builtin",
    "-fno-stack-protector",
    "-fvisibility=hidden",
];

/// Further flags for one processor. A function that --op names may be called with any register in use, and may return in any, hence
/// `-mgeneral-regs-only`.
fn machine_flags(machine: &str) -> Option<&'static [&'static str]> {
    match machine {
        "x86_64" => Some(&["--target=x86_64-unknown-linux-gnu", "-fcf-protection=branch", "-mgeneral-regs-only"]),
        // x18 may be a program's shadow call stack; helpers from another library (outline atomics) are not available.
        "aarch64" => Some(&[
            "--target=aarch64-unknown-linux-gnu",
            "-mgeneral-regs-only",
            "-ffixed-x18",
            "-mno-outline-atomics",
            "-fno-omit-frame-pointer",
        ]),
        _ => None,
    }
}

/// Returns the compiler with the flags for a processor, as named by cargo; `None` if there is no object for it.
pub fn compiler(machine: &str) -> Option<Command> {
    let machine_flags = machine_flags(machine)?;
    let mut command = Command::new(env::var_os("CLANG").unwrap_or_else(|| "clang".into()));
    command.args(COMMON_FLAGS).args(machine_flags);
    Some(command)
}

/// Compiles `object/inside.c` of the crate in that directory for a processor, as named by cargo, into a file. Returns `false` if there is
/// no object for that processor.
pub fn compile(crate_directory: &Path, machine: &str, extra_flags: &[&str], output: &Path) -> Result<bool, String> {
    let Some(mut command) = compiler(machine) else { return Ok(false) };
    command.args(extra_flags);
    // Exceptions and cancellation pass through its functions on the way from a callback to the program.
    command.args(["-fasynchronous-unwind-tables", "-fexceptions"]);
    let source = crate_directory.join("object/inside.c");
    if machine == env::consts::ARCH {
        command.args(["-nostdlib", "-shared", "-Wl,-z,now,-z,noexecstack,--build-id=none,-soname,fathom-inside.so"]);
        return run(command.arg(source).arg("-o").arg(output)).map(|()| true);
    }
    let part = output.with_extension("o");
    run(command.arg("-c").arg(source).arg("-o").arg(&part))?;
    let mut link = linker()?;
    // The recorder refuses other page sizes, so the file need not be laid out for them.
    link.args(["-shared", "-z", "now", "-z", "noexecstack", "-z", "max-page-size=4096", "--eh-frame-hdr"]);
    run(link.args(["--build-id=none", "-soname", "fathom-inside.so"]).arg(&part).arg("-o").arg(output)).map(|()| true)
}

/// Returns a linker for any processor.
pub fn linker() -> Result<Command, String> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let target_libdir = Command::new(rustc).args(["--print", "target-libdir"]).output();
    let libraries = target_libdir.ok().filter(|out| out.status.success()).map(|out| out.stdout).unwrap_or_default();
    let rust_lld = PathBuf::from(String::from_utf8_lossy(&libraries).trim()).join("../bin/rust-lld");
    if rust_lld.exists() {
        let mut link = Command::new(rust_lld);
        link.args(["-flavor", "gnu"]);
        return Ok(link);
    }
    match Command::new("ld.lld").arg("--version").output() {
        Ok(_) => Ok(Command::new("ld.lld")),
        Err(_) => {
            Err("there is no linker for another processor: neither Rust's own (rust-lld) nor `apt install lld`".into())
        }
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.output() {
        Ok(out) if out.status.success() => Ok(()),
        Ok(out) => Err(format!("{program} failed:\n{}", String::from_utf8_lossy(&out.stderr))),
        Err(e) => Err(format!(
            "{program}: {e}. The object for recorded programs is compiled by clang and linked by ld: `apt install clang binutils`."
        )),
    }
}
