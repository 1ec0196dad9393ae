//! Compiles the BPF programs: those that record into one object, the one that lists tasks into another. Both are embedded in the
//! library.

use std::path::Path;

fn main() {
    let sources = Path::new("src/bpf");
    bpf_build::rerun_if_changed(sources);
    // v3 (Linux 5.12): atomic operations that return the old value number the records.
    bpf_build::compile(&sources.join("fathom.bpf.c"), "fathom.bpf.o", "v3");
    bpf_build::compile(&sources.join("namespace.bpf.c"), "namespace.bpf.o", "v3");
}
