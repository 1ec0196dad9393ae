//! The object's headers include what they use: each compiles alone, for each processor that it is for. A header that needs a function of
//! one that includes it fails here, as does one that declares such a function (`-Wundefined-internal`). That the includes form no circle
//! is a rule of `cargo xtask tidy`.

use std::fs;
use std::path::Path;

#[path = "../compile.rs"]
#[allow(dead_code, reason = "the rest is for the build script")]
mod compile;

/// What a header defines for others is unused in it.
const HEADER_FLAGS: [&str; 5] =
    ["-fsyntax-only", "-Wno-unused-function", "-Wno-unused-variable", "-Wno-unused-const-variable", "-include"];

/// Included only where this is the processor; the others are for both.
const ONLY_X86_64: [&str; 6] = ["x86_64.h", "x86_64_code.h", "x86_64_start.h", "named.h", "unwind.h", "attach.h"];
const ONLY_AARCH64: [&str; 4] = ["aarch64.h", "aarch64_code.h", "aarch64_start.h", "unnamed.h"];

/// Returns what the compiler says of a file that includes only this header; empty if it accepts it.
fn complaint(machine: &str, header: &Path) -> String {
    let mut compiler = compile::compiler(machine).unwrap();
    let out = compiler.args(HEADER_FLAGS).arg(header).args(["-x", "c", "/dev/null"]).output().unwrap();
    if out.status.success() { String::new() } else { String::from_utf8_lossy(&out.stderr).into_owned() }
}

#[test]
fn each_header_of_the_object_compiles_alone() {
    let mut names: Vec<String> = fs::read_dir("object")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".h"))
        .collect();
    names.sort();
    assert!(names.len() > 25, "{names:?}");
    for (machine, of_other) in [("x86_64", &ONLY_AARCH64[..]), ("aarch64", &ONLY_X86_64[..])] {
        for name in names.iter().filter(|name| !of_other.contains(&name.as_str())) {
            assert_eq!(complaint(machine, &Path::new("object").join(name)), "", "{name} for {machine}");
        }
    }
}

#[test]
fn header_that_calls_upwards_does_not_compile_alone() {
    let header = Path::new(env!("CARGO_TARGET_TMPDIR")).join("upwards.h");
    let said = |text: &str| {
        fs::write(&header, text).unwrap();
        complaint("x86_64", &header)
    };
    assert_eq!(said("static int below(void)\n{\n\treturn 1;\n}\n"), "");
    assert!(said("static int f(void)\n{\n\treturn above();\n}\n").contains("above"));
    assert!(said("static int above(void);\nstatic int f(void)\n{\n\treturn above();\n}\n").contains("above"));
}
