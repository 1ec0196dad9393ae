//! `make dist`: an archive and a Debian package per target, with the program, its manual pages, completions and licences, those of the
//! crates in it, the readme and the changelog.
//!
//! # The one C compiler for aarch64
//!
//! Fathom's only C apart from its BPF programs is the bundled SQLite. For a foreign musl target that needs a compiler and
//! musl's headers, but no linker and no libc: Rust's musl targets bring their own `libc.a` and start files, and
//! `rust-lld` links them. The compiler is clang, which the BPF programs need anyway and which supports every target;
//! the headers are those of Debian's `musl-dev` for arm64, fetched through our own apt state directory and only unpacked
//! under `target/`. Nothing is installed. See docs/internals/journal/2026-11-20-aarch64-compiler.md.

use crate::licences;
use crate::run::{cargo, output, run};
use anyhow::{Context, Result, ensure};
use lab::debian::Packages;
use std::path::{Path, PathBuf};
use std::process::Command;

const AARCH64_TARGET: &str = "aarch64-unknown-linux-musl";

/// Builds and packs every target that can be built here.
pub fn all(root: &Path) -> Result<()> {
    let dist = root.join("target/dist");
    std::fs::create_dir_all(&dist).with_context(|| format!("cannot create {}", dist.display()))?;

    run(Command::new(root.join("scripts/build")).arg("--dist"))?;
    let own = output(Command::new(root.join("scripts/toolchain")).arg("target"))?.trim().to_string();
    let runs = root.join("target").join(&own).join("dist/fathom");
    run(&mut Command::new(root.join("scripts/build-sql")))?;
    let sql = root.join("target/release/fathom-sql");
    pack(root, &dist, &own, &runs, &runs, Some(&sql))?;

    if own == AARCH64_TARGET {
        return Ok(());
    }
    let installed = output(Command::new("rustup").args(["target", "list", "--installed"])).unwrap_or_default();
    if !installed.lines().any(|t| t == AARCH64_TARGET) {
        println!("SKIP dist {AARCH64_TARGET}: this Rust has no such target (rustup target add {AARCH64_TARGET})");
        return Ok(());
    }
    let version = output(Command::new(&runs).arg("--version"))?;
    let version = format!("env.FATHOM_VERSION={:?}", version.trim().trim_start_matches("fathom "));
    cross(root, &["--profile", "dist", "--package", "fathom", "--config", &version])?;
    let built = root.join("target").join(AARCH64_TARGET).join("dist/fathom");
    let sql = cross(root, &["--release", "--manifest-path", "crates/sql/Cargo.toml", "--target-dir", "target/sql"]);
    if let Err(why) = &sql {
        println!("SKIP dist fathom-sql for {AARCH64_TARGET}: {why:#}; `make build-sql` builds it on such a machine");
    }
    let sql = sql.is_ok().then(|| root.join("target/sql").join(AARCH64_TARGET).join("release/fathom-sql"));
    pack(root, &dist, AARCH64_TARGET, &built, &runs, sql.as_deref())
}

/// Builds the program for aarch64, on any machine; returns its path.
pub fn build_aarch64(root: &Path) -> Result<PathBuf> {
    cross(root, &["--release", "--package", "fathom"])?;
    Ok(root.join("target").join(AARCH64_TARGET).join("release/fathom"))
}

/// Builds the program, and the device daemon of the tests.
pub fn build_adbd_aarch64(root: &Path) -> Result<()> {
    build_aarch64(root)?;
    cross(root, &["--release", "--package", "fathom-tests", "--bin", "adbd"])
}

/// Builds for aarch64 with clang and musl's headers.
fn cross(root: &Path, words: &[&str]) -> Result<()> {
    let cache = root.join("target/lab");
    let headers = Packages::new(&cache, "arm64")?.unpack("musl-dev")?.join("usr/include/aarch64-linux-musl");
    ensure!(headers.join("stdio.h").exists(), "musl-dev has no headers in {}", headers.display());

    // -nostdlibinc keeps this machine's own headers out, and keeps clang's own (stddef.h etc.).
    let flags = format!("--target=aarch64-linux-musl -nostdlibinc -isystem {}", headers.display());
    let mut build = cargo(root);
    build.args(["build", "--locked", "--target", AARCH64_TARGET]).args(words);
    build.env("CC_aarch64_unknown_linux_musl", "clang").env("CFLAGS_aarch64_unknown_linux_musl", &flags);
    // The archiver needs to support only ELF; the host's does.
    build.env("AR_aarch64_unknown_linux_musl", "ar");
    build.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER", "rust-lld");
    run(&mut build)
}

/// Packs a target's program. `runs` is one of the same version that runs here, and prints the manual pages.
fn pack(root: &Path, dist: &Path, target: &str, program: &Path, runs: &Path, sql: Option<&Path>) -> Result<()> {
    let name = format!("fathom-{}-{target}", env!("CARGO_PKG_VERSION"));
    let directory = fresh(&dist.join(&name))?;
    let documents = ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"].map(|d| root.join(d));
    for file in documents.iter().map(PathBuf::as_path).chain([program]).chain(sql) {
        let to = directory.join(file.file_name().unwrap_or_default());
        std::fs::copy(file, &to).with_context(|| format!("cannot copy {}", file.display()))?;
    }
    write_licences(root, target, &directory, sql.is_some())?;
    install(root, program, runs, &directory, "/")?;
    // The program is at the top, for people who only want to try it.
    std::fs::remove_dir_all(directory.join("bin")).context("cannot remove bin")?;
    let archive = dist.join(format!("{name}.tar.gz"));
    // The same input gives the same archive: no owner, no time, a fixed order.
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(dist).args(["--use-compress-program", "gzip -n"]).arg("-cf").arg(&archive);
    tar.args(["--owner=0", "--group=0", "--numeric-owner", "--sort=name", "--mtime=@0", &name]);
    run(&mut tar)?;
    std::fs::remove_dir_all(&directory).with_context(|| format!("cannot clear {}", directory.display()))?;
    print_size(&archive);
    debian(root, dist, target, program, runs, sql)
}

/// Makes the Debian package of a target.
fn debian(root: &Path, dist: &Path, target: &str, program: &Path, runs: &Path, sql: Option<&Path>) -> Result<()> {
    let architecture = if target.starts_with("aarch64") { "arm64" } else { "amd64" };
    let (version, name) = (env!("CARGO_PKG_VERSION"), format!("fathom_{}_{architecture}", env!("CARGO_PKG_VERSION")));
    let directory = fresh(&dist.join(&name))?;
    install(root, program, runs, &directory, "/usr")?;
    if let Some(sql) = sql {
        std::fs::copy(sql, directory.join("usr/bin/fathom-sql")).context("cannot copy fathom-sql")?;
    }
    let (control, documents) = (directory.join("DEBIAN"), directory.join("usr/share/doc/fathom"));
    for made in [&control, &documents] {
        std::fs::create_dir_all(made).with_context(|| format!("cannot create {}", made.display()))?;
    }
    for file in ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"] {
        std::fs::copy(root.join(file), documents.join(file)).with_context(|| format!("cannot copy {file}"))?;
    }
    write_licences(root, target, &documents, sql.is_some())?;
    let size: u64 =
        [program].into_iter().chain(sql).map(|file| std::fs::metadata(file).map_or(0, |m| m.len() / 1024)).sum();
    let help = output(Command::new(runs).arg("--help"))?;
    let about: Vec<&str> = help.lines().take_while(|line| !line.trim().is_empty()).collect();
    let text = format!(
        "Package: fathom\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: The Fathom authors <fathom@localhost>\n\
         Installed-Size: {size}\nSection: utils\nPriority: optional\nDescription: performance of Linux and Android devices, \
         explained\n {}\n",
        about.join("\n ")
    );
    std::fs::write(control.join("control"), text).context("cannot write the package's control file")?;
    let package = dist.join(format!("{name}.deb"));
    let mut build = Command::new("dpkg-deb");
    build.args(["--build", "--root-owner-group", "-Zxz"]).arg(&directory).arg(&package).env("SOURCE_DATE_EPOCH", "0");
    output(&mut build)?;
    std::fs::remove_dir_all(&directory).with_context(|| format!("cannot clear {}", directory.display()))?;
    print_size(&package);
    Ok(())
}

fn install(root: &Path, program: &Path, runs: &Path, directory: &Path, prefix: &str) -> Result<()> {
    let mut install = Command::new(root.join("scripts/install"));
    run(install.arg(program).env("RUN", runs).env("DESTDIR", directory).env("PREFIX", prefix))
}

/// Writes the licences of the programs' content to a directory.
fn write_licences(root: &Path, target: &str, directory: &Path, sql: bool) -> Result<()> {
    let mut texts = vec![("THIRD-PARTY-LICENSES.txt", licences::third_party(root, target)?)];
    if sql {
        texts.push(("THIRD-PARTY-LICENSES-fathom-sql.txt", licences::third_party_of_sql(root, target)?));
    }
    texts.into_iter().try_for_each(|(name, text)| {
        let file = directory.join(name);
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    })
}

/// Creates an empty directory in place of an existing one.
fn fresh(directory: &Path) -> Result<PathBuf> {
    if directory.exists() {
        std::fs::remove_dir_all(directory).with_context(|| format!("cannot clear {}", directory.display()))?;
    }
    std::fs::create_dir(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    Ok(directory.to_path_buf())
}

fn print_size(made: &Path) {
    let size = std::fs::metadata(made).map(|m| m.len()).unwrap_or(0);
    println!("{} ({:.1} MB)", made.display(), size as f64 / 1e6);
}
