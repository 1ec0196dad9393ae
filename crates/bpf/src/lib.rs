//! bpf(2) and the kernel's type information (BTF), as far as aya lacks them: uprobes by links, congestion controls, the
//! types of modules, and the offsets of a struct's members.
//!
//! A crate of its own because `capture` and `net` need it and must not depend on each other. It depends on neither.
//! Programs are compiled by `bpf-build`, which is used by build scripts and is not part of the program.
//!
//! | file | purpose |
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
