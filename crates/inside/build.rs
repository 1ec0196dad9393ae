//! Compiles the object for the recorded programs, for x86-64 or aarch64; for others an empty file takes its place.

use std::path::Path;
use std::process::exit;
use std::{env, fs};

#[path = "compile.rs"]
mod compile;

fn main() {
    println!("cargo::rerun-if-changed=object");
    println!("cargo::rerun-if-changed=compile.rs");
    println!("cargo::rerun-if-env-changed=CLANG");
    let object = Path::new(&env::var_os("OUT_DIR").expect("set by cargo")).join("inside.so");
    let machine = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    match compile::compile(Path::new("."), &machine, &[], &object) {
        Ok(true) => {}
        Ok(false) => fs::write(&object, []).expect("OUT_DIR can be written to"),
        Err(why) => exit_with_error(&why),
    }
}

fn exit_with_error(why: &str) -> ! {
    for line in why.lines() {
        println!("cargo::error={line}");
    }
    exit(1)
}
