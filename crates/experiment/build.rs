//! Embeds the designs of `experiments/suite` and `experiments/net` into the program: every file there is a workload, and
//! none can be forgotten.

use std::fmt::Write;
use std::path::Path;

fn main() {
    for name in ["suite", "net"] {
        embed_designs(name);
    }
}

fn embed_designs(name: &str) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments").join(name);
    println!("cargo::rerun-if-changed={}", directory.display());
    let entries = std::fs::read_dir(&directory).expect("the directory is there");
    let mut files: Vec<_> = entries.map(|e| e.expect("the directory can be read").path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "toml"));
    files.sort();
    let mut list = String::from("&[\n");
    for file in &files {
        println!("cargo::rerun-if-changed={}", file.display());
        let name = file.file_name().expect("a file has a name").to_string_lossy();
        writeln!(list, "({name:?}, include_str!({:?})),", file.display().to_string()).expect("a string takes text");
    }
    list.push(']');
    let out = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    std::fs::write(Path::new(&out).join(format!("{name}.rs")), list).expect("OUT_DIR can be written");
}
