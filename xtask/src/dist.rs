//! `make dist`: one archive a target, with the program, its licences, the readme and the changelog.
//!
//! # The one C compiler for aarch64
//!
//! Fathom's only C besides its BPF programs is the bundled SQLite. For a foreign musl target that needs a compiler and
//! musl's headers, but no linker and no libc: Rust's musl targets bring their own `libc.a` and start files, and
//! `rust-lld` links them. The compiler is clang, which the BPF programs need anyway and which knows every target; the
//! headers are those of Debian's `musl-dev` for arm64, taken through apt's own state folder and only unpacked under
//! `target/`. Nothing is installed. See docs/internals/journal/2026-11-20-aarch64-compiler.md.

use crate::run::{cargo, output, run};
use anyhow::{Context, Result, ensure};
use lab::debian::Packages;
use std::path::{Path, PathBuf};
use std::process::Command;

const AARCH64: &str = "aarch64-unknown-linux-musl";

/// Builds and packs every target that can be built here.
pub fn all(root: &Path) -> Result<()> {
    let dist = root.join("target/dist");
    std::fs::create_dir_all(&dist).with_context(|| format!("cannot make {}", dist.display()))?;

    run(&mut Command::new(root.join("scripts/build")))?;
    let own = output(Command::new(root.join("scripts/toolchain")).arg("target"))?.trim().to_string();
    pack(root, &dist, &own, &root.join("target/release/fathom"))?;

    if own == AARCH64 {
        return Ok(());
    }
    let installed = output(Command::new("rustup").args(["target", "list", "--installed"])).unwrap_or_default();
    if !installed.lines().any(|t| t == AARCH64) {
        println!("SKIP dist {AARCH64}: this Rust has no such target (rustup target add {AARCH64})");
        return Ok(());
    }
    let built = build_aarch64(root)?;
    pack(root, &dist, AARCH64, &built)
}

fn build_aarch64(root: &Path) -> Result<PathBuf> {
    let cache = root.join("target/lab");
    let headers = Packages::new(&cache, "arm64")?.unpacked("musl-dev")?.join("usr/include/aarch64-linux-musl");
    ensure!(headers.join("stdio.h").exists(), "musl-dev has no headers in {}", headers.display());

    let mut build = cargo(root);
    build.args(["build", "--release", "--locked", "--package", "fathom", "--target", AARCH64]);
    build.env("CC_aarch64_unknown_linux_musl", "clang");
    // -nostdlibinc keeps this machine's own headers out, and clang's own (stddef.h and the like) in.
    let flags = format!("--target=aarch64-linux-musl -nostdlibinc -isystem {}", headers.display());
    build.env("CFLAGS_aarch64_unknown_linux_musl", flags);
    // The archiver must know ELF only; the host's does.
    build.env("AR_aarch64_unknown_linux_musl", "ar");
    build.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER", "rust-lld");
    run(&mut build)?;
    Ok(root.join("target").join(AARCH64).join("release/fathom"))
}

fn pack(root: &Path, dist: &Path, target: &str, program: &Path) -> Result<()> {
    let name = format!("fathom-{}-{target}", env!("CARGO_PKG_VERSION"));
    let folder = dist.join(&name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("cannot clear {}", folder.display()))?;
    }
    std::fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let documents = ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"].map(|d| root.join(d));
    for file in documents.iter().map(PathBuf::as_path).chain([program]) {
        let to = folder.join(file.file_name().unwrap_or_default());
        std::fs::copy(file, &to).with_context(|| format!("cannot copy {}", file.display()))?;
    }
    let archive = dist.join(format!("{name}.tar.gz"));
    // The same input gives the same archive: no owner, no time, a fixed order.
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(dist).args(["--use-compress-program", "gzip -n"]).arg("-cf").arg(&archive);
    tar.args(["--owner=0", "--group=0", "--numeric-owner", "--sort=name", "--mtime=@0", &name]);
    run(&mut tar)?;
    std::fs::remove_dir_all(&folder).with_context(|| format!("cannot clear {}", folder.display()))?;
    let size = std::fs::metadata(&archive).map(|m| m.len()).unwrap_or(0);
    println!("{} ({:.1} MB)", archive.display(), size as f64 / 1e6);
    Ok(())
}
