//! Compiles BPF programs for a build script. Needs clang and libbpf's headers; no kernel headers and no BTF of the machine
//! it is built on, so that a build is the same everywhere.
//!
//! A build script gives cargo its instructions on standard output; so this crate prints.

use std::path::{Path, PathBuf};
use std::process::{Command, exit};
use std::{env, fs};

/// Tells cargo that `directory` and each file in it are what the objects are made of.
pub fn rerun_if_changed(directory: &Path) {
    println!("cargo::rerun-if-changed={}", directory.display());
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        println!("cargo::rerun-if-changed={}", entry.path().display());
    }
    println!("cargo::rerun-if-env-changed=CLANG");
}

/// Compiles `source` into `OUT_DIR/name`. `mcpu` is the instruction set (`v2`, `v3`: see clang's `-mcpu`). What fails ends
/// the build script with an error that says what to do.
pub fn compile(source: &Path, name: &str, mcpu: &str) {
    let clang = env::var_os("CLANG").map_or_else(|| PathBuf::from("clang"), PathBuf::from);
    let arch = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => "x86",
        Ok("aarch64") => "arm64",
        other => exit_with_error(&format!("the probes support x86_64 and aarch64 only, not {other:?}")),
    };
    let object = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo")).join(name);

    let compiler = Command::new(&clang)
        .args(["-target", "bpf", "-O2", "-g", "-Wall", "-Werror", "-Wno-unused-function", "-c"])
        .arg(format!("-mcpu={mcpu}"))
        .arg(format!("-D__TARGET_ARCH_{arch}"))
        // Without it the object would name the directory it was built in.
        .arg(format!("-fdebug-prefix-map={}=.", env::current_dir().expect("a working directory").display()))
        .arg(source)
        .arg("-o")
        .arg(&object)
        .output();
    match compiler {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => exit_with_error(&format!(
            "{} was not found. BPF programs are compiled by clang: `apt install clang libbpf-dev`, or name it in CLANG.",
            clang.display()
        )),
        Err(e) => exit_with_error(&format!("{}: {e}", clang.display())),
        Ok(out) if !out.status.success() => {
            let text = String::from_utf8_lossy(&out.stderr);
            if text.contains("bpf/bpf_helpers.h") && text.contains("not found") {
                exit_with_error("libbpf's headers were not found: `apt install libbpf-dev`");
            }
            exit_with_error(&format!("{} failed on {}:\n{text}", clang.display(), source.display()));
        }
        Ok(_) => {}
    }
    strip_debug_info(&clang, &object);
}

/// Takes the debug information out, of which only BTF is needed; that is two thirds of the object. Without llvm-strip the
/// object is only larger.
fn strip_debug_info(clang: &Path, object: &Path) {
    let name = clang.file_name().and_then(|n| n.to_str()).unwrap_or_default().replace("clang", "llvm-strip");
    let _ = Command::new(clang.with_file_name(name)).arg("-g").arg(object).output();
}

fn exit_with_error(why: &str) -> ! {
    for line in why.lines() {
        println!("cargo::error={line}");
    }
    exit(1)
}
