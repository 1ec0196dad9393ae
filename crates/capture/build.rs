//! Compiles the BPF programs, all into one object that is embedded in the library.

use std::path::Path;

fn main() {
    let sources = Path::new("src/bpf");
    bpf_build::watch(sources);
    // v3 (Linux 5.12): atomic operations that return the old value number the records.
    bpf_build::compile(&sources.join("fathom.bpf.c"), "fathom.bpf.o", "v3");
}
