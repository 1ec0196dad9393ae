//! Compiles the object that goes into the recorded programs. It needs clang, as the BPF programs do, and the linker that goes with
//! any C compiler; no libc. For other processors than x86-64 there is none yet: an empty file stands in its place.

use std::path::Path;
use std::process::{Command, exit};
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=object");
    println!("cargo::rerun-if-env-changed=CLANG");
    let object = Path::new(&env::var_os("OUT_DIR").expect("set by cargo")).join("inside.so");
    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() != Ok("x86_64") {
        fs::write(&object, []).expect("OUT_DIR can be written to");
        return;
    }
    let clang = env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    let built = Command::new(&clang)
        .args(["--target=x86_64-unknown-linux-gnu", "-O2", "-g0", "-fPIC", "-Wall", "-Wextra", "-Werror"])
        .args([
            "-ffreestanding",
            "-fno-builtin",
            "-fno-stack-protector",
            "-fvisibility=hidden",
            "-fcf-protection=branch",
            // A function that --op names may be called with any register in use, and return in any.
            "-mgeneral-regs-only",
        ])
        // Exceptions and cancellation pass through its functions on the way from a callback to the program.
        .args(["-fasynchronous-unwind-tables", "-fexceptions"])
        .args(["-nostdlib", "-shared", "-Wl,-z,now,-z,noexecstack,--build-id=none,-soname,fathom-inside.so"])
        .args(["object/inside.c", "-o"])
        .arg(&object)
        .output();
    match built {
        Ok(out) if out.status.success() => {}
        Ok(out) => fail(&format!("clang failed on object/inside.c:\n{}", String::from_utf8_lossy(&out.stderr))),
        Err(e) => fail(&format!(
            "{}: {e}. The object for recorded programs is compiled by clang and linked by ld: `apt install clang binutils`.",
            clang.display()
        )),
    }
}

fn fail(why: &str) -> ! {
    for line in why.lines() {
        println!("cargo::error={line}");
    }
    exit(1)
}
