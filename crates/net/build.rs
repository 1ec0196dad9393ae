//! Compiles the congestion controls and the program that sees who opens connections: one object each, embedded in the
//! library.

use std::path::Path;

fn main() {
    let sources = Path::new("src/cc/bpf");
    bpf_build::rerun_if_changed(sources);
    for name in ["bic", "htcp", "westwood"] {
        // v3: comparisons and arithmetic of 32 bits. Every kernel that supports struct_ops (5.6) has it.
        bpf_build::compile(&sources.join(format!("{name}.bpf.c")), &format!("{name}.bpf.o"), "v3");
    }
    let sources = Path::new("src/flow/bpf");
    bpf_build::rerun_if_changed(sources);
    bpf_build::compile(&sources.join("openers.bpf.c"), "openers.bpf.o", "v3");
}
