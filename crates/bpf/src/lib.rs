//! bpf(2) and the kernel's type information (BTF), as far as aya does not have them: uprobes by links, congestion controls,
//! the types of modules, and where a struct's members are.
//!
//! A room of its own because `capture` and `net` need it and must not know each other. It knows nothing of either. Programs
//! are compiled by `bpf-build`, which is a build script's and no part of the program.
//!
//! | file | what |
//! |---|---|
//! | [`btf`] | the kernel's types |
//! | [`program`] | programs and their types, loaded |
//! | [`uprobe`] | links of programs to places in a file |
//! | [`tracefs`] | where the kernel's trace events are |
//! | [`struct_ops`] | maps that register a struct of functions with the kernel |
//! | `call` | the system call itself |

pub mod btf;
mod call;
pub mod program;
pub mod struct_ops;
pub mod tracefs;
pub mod uprobe;
