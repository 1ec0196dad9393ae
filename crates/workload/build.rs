//! Builds everything that is not Rust: the compute kernels in C, once per level, and the jar of the same kernels in
//! Java.
//!
//! # The levels
//!
//! Each level is an object of its own, compiled by the same compiler with flags that differ in nothing else. The flags
//! of an object are read back from the object (`-frecord-gcc-switches`, which GCC and clang both have) and built into
//! the program as its proof: a compiler wrapper or an environment that changes the flags shows.
//!
//! # The jar
//!
//! It is made by `java/build` if there is a `javac`, and left empty otherwise: Fathom builds without a JDK, and explains
//! how to get the JVM modes when one is requested.

use object::{Object, ObjectSection};
use std::path::{Path, PathBuf};
use std::process::{Command, exit};
use std::{env, fs};

/// Level, optimisation for `cc`, further flags.
const OPTIMIZATION_LEVELS: [(&str, &str, &[&str]); 4] = [
    ("O0", "0", &["-ffp-contract=off"]),
    ("O2", "2", &["-ffp-contract=off"]),
    ("O3", "3", &["-ffp-contract=off"]),
    ("fast", "3", &["-ffast-math"]),
];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    build_kernels(&out);
    build_jar(&out);
    build_pragmas(&out);
    println!("cargo::rustc-env=FATHOM_OPT_LEVEL={}", env::var("OPT_LEVEL").expect("set by cargo"));
    println!("cargo::rustc-env=FATHOM_RUSTC={}", rustc_version());
}

/// The object that `fathom fix` preloads: shared, and without a libc of its own, since it is loaded into programs with any libc. It
/// exists only for x86-64; for other processors there is an empty file in its place.
fn build_pragmas(out: &Path) {
    let source = Path::new("pragmas/pragmas.c");
    println!("cargo::rerun-if-changed={}", source.display());
    println!("cargo::rerun-if-env-changed=CLANG");
    let object = out.join("pragmas.so");
    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() != Ok("x86_64") {
        return write(&object, &[]);
    }
    let clang = env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    let built = Command::new(&clang)
        .args(["--target=x86_64-unknown-linux-gnu", "-O2", "-g0", "-fPIC", "-Wall", "-Wextra", "-Werror"])
        .args(["-ffreestanding", "-fno-stack-protector", "-fvisibility=hidden", "-nostdlib", "-shared"])
        .args(["-Wl,-z,now,-z,noexecstack,--build-id=none,-soname,fathom-pragmas.so"])
        .arg(source)
        .arg("-o")
        .arg(&object)
        .output();
    match built {
        Ok(done) if done.status.success() => {}
        Ok(done) => fail(&format!("clang failed on {}:\n{}", source.display(), String::from_utf8_lossy(&done.stderr))),
        Err(e) => fail(&format!("{}: {e}: `apt install clang binutils`", clang.display())),
    }
}

fn build_kernels(out: &Path) {
    let sources = Path::new("src/cpu/c");
    println!("cargo::rerun-if-changed={}", sources.display());
    let mut objects = cc::Build::new();
    let mut table = String::from("&[\n");
    for (level, optimisation, flags) in OPTIMIZATION_LEVELS {
        let mut build = cc::Build::new();
        build.file(sources.join("kernels.c")).define("LEVEL", level).opt_level_str(optimisation).debug(false);
        // sqrt() as an instruction: the library's function only adds an errno that is never read.
        build.flag("-fno-math-errno").flag("-frecord-gcc-switches").warnings(true).extra_warnings(true);
        for flag in flags {
            build.flag(flag);
        }
        // Objects are named after their source; separate directories keep them apart.
        let directory = out.join(level);
        fs::create_dir_all(&directory).unwrap_or_else(|e| fail(&format!("{}: {e}", directory.display())));
        for object in build.out_dir(&directory).compile_intermediates() {
            let recorded = recorded_flags(&object);
            table.push_str(&format!("({level:?}, {recorded:?}),\n"));
            objects.object(object);
        }
    }
    objects.compile("fathom_kernels");
    table.push(']');
    write(&out.join("levels.rs"), table.as_bytes());
}

/// The flags that the compiler wrote into the object, without words that name files of the build machine.
fn recorded_flags(object: &Path) -> String {
    let bytes = fs::read(object).unwrap_or_else(|e| fail(&format!("{}: {e}", object.display())));
    let file = object::File::parse(&*bytes).unwrap_or_else(|e| fail(&format!("{}: {e}", object.display())));
    let section = file.section_by_name(".GCC.command.line");
    let data = section.and_then(|s| s.data().ok().map(<[u8]>::to_vec)).unwrap_or_default();
    let text = String::from_utf8_lossy(&data).replace('\0', " ");
    let tells = |word: &&str| ["-O", "-f", "-m", "--target="].iter().any(|p| word.starts_with(p));
    let flags: Vec<&str> = text.split_whitespace().filter(tells).filter(|w| !w.contains('/')).collect();
    if flags.is_empty() {
        fail(&format!("{}: the compiler recorded no flags in it; GCC and clang do", object.display()));
    }
    flags.join(" ")
}

fn build_jar(out: &Path) {
    let java = Path::new("../../java");
    println!("cargo::rerun-if-changed={}", java.join("build").display());
    println!("cargo::rerun-if-changed={}", java.join("src").display());
    println!("cargo::rerun-if-env-changed=JAVA_HOME");
    println!("cargo::rerun-if-env-changed=PATH");
    let jar = out.join("fathom.jar");
    let made = Command::new("sh").arg(java.join("build")).arg(&jar).output();
    match made {
        Ok(output) if output.status.success() => {}
        // This exit status means that there is no javac. The directory where distributions install one is watched, so that
        // the next build finds it.
        Ok(output) if output.status.code() == Some(3) => {
            println!("cargo::rerun-if-changed=/usr/bin");
            write(&jar, b"");
        }
        Ok(output) => fail(&format!("java/build failed:\n{}", String::from_utf8_lossy(&output.stderr))),
        Err(e) => fail(&format!("java/build: {e}")),
    }
}

fn rustc_version() -> String {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("--version").output();
    output.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_string()).unwrap_or_default()
}

fn write(path: &Path, content: &[u8]) {
    fs::write(path, content).unwrap_or_else(|e| fail(&format!("{}: {e}", path.display())));
}

fn fail(why: &str) -> ! {
    for line in why.lines() {
        println!("cargo::error={line}");
    }
    exit(1)
}
