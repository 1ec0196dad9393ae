//! Licences: checks that every crate has a licence and a source that `deny.toml` allows, and collects the texts to ship with
//! the program, since its binary contains those crates.
//!
//! cargo-deny does the former and more, but takes longer to build than Fathom. So that every machine checks, the two lists are
//! read here; if cargo-deny is installed, it is run as well. Advisories are left to the caller, as they need a network.

use crate::metadata::SQL_WORKSPACE;
use crate::run::{cargo, output, run};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// The introduction to the texts: parts of the program that are not crates.
const INTRODUCTION: &str = "\
The binary is linked with these crates and holds no other library, but for
- SQLite, which its authors have put into the public domain (https://sqlite.org/copyright.html),
- Rust's standard library (MIT OR Apache-2.0; https://github.com/rust-lang/rust, with the notices in its COPYRIGHT-library.html),
- musl's C library (MIT; Copyright 2005-2020 Rich Felker and others; https://musl.libc.org).
Its BPF programs include inline functions of libbpf's headers (LGPL-2.1 OR BSD-2-Clause). The script and the style of its pages are
Fathom's own.
";

/// Texts for crates that ship none, from their repositories.
const LICENCE_TEXTS: [(&str, &str); 3] = [
    ("alloc-stdlib", include_str!("../licences/alloc-stdlib.txt")),
    ("flatbuffers", include_str!("../../LICENSE-APACHE")),
    ("iced-x86", include_str!("../licences/iced-x86.txt")),
];

/// Prefixes of a crate's files that hold a licence.
const LICENCE_FILE_PREFIXES: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

/// Fails on a crate with another licence, or from another source, than `deny.toml` allows, and on one whose licence has no text here.
pub fn check(root: &Path) -> Result<()> {
    let file = std::fs::read_to_string(root.join("deny.toml")).context("cannot read deny.toml")?;
    let (licences, sources) = (list(&file, "allow")?, list(&file, "allow-registry")?);
    let target = output(Command::new(root.join("scripts/toolchain")).arg("target"))?;
    let mut all = vec![metadata(root, target.trim(), "Cargo.toml", "--locked")?];
    // A machine that never builds the SQL engine does not download its crates for this, and cargo's error about that is of no use.
    let apart = metadata_command(root, target.trim(), &format!("{SQL_WORKSPACE}/Cargo.toml"), "--offline").output()?;
    if apart.status.success() {
        all.push(serde_json::from_slice(&apart.stdout).context("cargo metadata's output")?);
    } else {
        println!("SKIP lint licences of {SQL_WORKSPACE}: its crates are not here (`make build-sql` brings them)");
    }
    let packages = all.iter().flat_map(|metadata| array(&metadata["packages"]));
    let offences: Vec<String> = packages.filter_map(|package| offence(package, &licences, &sources)).collect();
    ensure!(offences.is_empty(), "{}", offences.join("\n"));
    for (metadata, program) in all.iter().zip(["fathom", "fathom-sql"]) {
        texts(metadata, target.trim(), program)?;
    }

    let deny = || cargo(root).args(["deny", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if deny().is_ok_and(|status| status.success()) {
        run(cargo(root).args(["deny", "--offline", "check", "licenses", "bans", "sources"]))?;
    }
    Ok(())
}

/// Prints the licences of the program that is built here.
pub fn print(root: &Path) -> Result<()> {
    let target = output(Command::new(root.join("scripts/toolchain")).arg("target"))?;
    print!("{}", third_party(root, target.trim())?);
    Ok(())
}

/// The licences of the content of this target's program, with their texts.
pub fn third_party(root: &Path, target: &str) -> Result<String> {
    texts(&metadata(root, target, "Cargo.toml", "--locked")?, target, "fathom")
}

/// The same for `fathom-sql`.
pub fn third_party_of_sql(root: &Path, target: &str) -> Result<String> {
    texts(&metadata(root, target, &format!("{SQL_WORKSPACE}/Cargo.toml"), "--locked")?, target, "fathom-sql")
}

fn metadata(root: &Path, target: &str, manifest: &str, option: &str) -> Result<Value> {
    let mut command = metadata_command(root, target, manifest, option);
    serde_json::from_str(&output(&mut command)?).context("cargo metadata's output")
}

fn metadata_command(root: &Path, target: &str, manifest: &str, option: &str) -> Command {
    let mut command = cargo(root);
    command.args(["metadata", "--format-version", "1", option, "--filter-platform", target]);
    command.arg("--manifest-path").arg(root.join(manifest));
    command
}

/// The words of a list on one line of a TOML file.
fn list(file: &str, name: &str) -> Result<BTreeSet<String>> {
    let line = file.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_prefix('='));
    let words = line.and_then(|line| line.trim().strip_prefix('[')?.strip_suffix(']'));
    let words = words.with_context(|| format!("deny.toml has no list {name} on one line"))?;
    Ok(words.split(',').map(|word| word.trim().trim_matches('"').to_string()).collect())
}

fn offence(package: &Value, licences: &BTreeSet<String>, sources: &BTreeSet<String>) -> Option<String> {
    let (name, version) = (text(&package["name"]), text(&package["version"]));
    let licence = text(&package["license"]);
    if !allowed(licence, licences) {
        return Some(format!("{name} {version} is under {licence:?}, which deny.toml does not allow"));
    }
    // Crates of the workspace have no source.
    let source = package["source"].as_str()?;
    let known = source.strip_prefix("registry+").is_some_and(|registry| sources.contains(registry));
    (!known).then(|| format!("{name} {version} is from {source}, which deny.toml does not allow"))
}

/// Whether the allowed licences satisfy an SPDX expression. Older crates write `/` for OR.
fn allowed(expression: &str, licences: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    let kept = either(&mut words, licences);
    kept == Some(true) && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn either(words: &mut Words<'_>, licences: &BTreeSet<String>) -> Option<bool> {
    let mut kept = both(words, licences)?;
    while words.next_if_eq(&"OR").is_some() {
        kept |= both(words, licences)?;
    }
    Some(kept)
}

fn both(words: &mut Words<'_>, licences: &BTreeSet<String>) -> Option<bool> {
    let mut kept = one(words, licences)?;
    while words.next_if_eq(&"AND").is_some() {
        kept &= one(words, licences)?;
    }
    Some(kept)
}

fn one(words: &mut Words<'_>, licences: &BTreeSet<String>) -> Option<bool> {
    let word = words.next()?;
    if word == "(" {
        let kept = either(words, licences);
        return (words.next() == Some(")")).then_some(kept).flatten();
    }
    let name = match words.next_if_eq(&"WITH") {
        Some(_) => format!("{word} WITH {}", words.next()?),
        None => word.to_string(),
    };
    Some(licences.contains(&name))
}

fn texts(metadata: &Value, target: &str, program: &str) -> Result<String> {
    let mut packages_held: Vec<&Value> =
        packages_held(metadata, program).into_iter().filter(|p| p["source"].is_string()).collect();
    packages_held.sort_by_key(|p| (text(&p["name"]), text(&p["version"])));
    let mut all =
        format!("Third-party software in {program} {} for {target}\n\n{INTRODUCTION}\n", env!("CARGO_PKG_VERSION"));
    // Many crates have the same text: it is printed once.
    let mut by_text: BTreeMap<String, (String, Vec<String>)> = BTreeMap::new();
    for package in packages_held {
        let name = format!("{} {}", text(&package["name"]), text(&package["version"]));
        let from = package["repository"].as_str().map(|at| format!(", {at}")).unwrap_or_default();
        writeln!(all, "- {name}: {}{from}", text(&package["license"]))?;
        for one in licence_files(package).with_context(|| name.clone())? {
            let key = one.split_whitespace().collect::<Vec<_>>().join(" ");
            by_text.entry(key).or_insert_with(|| (one, Vec::new())).1.push(name.clone());
        }
    }
    let mut by_text: Vec<(String, Vec<String>)> = by_text.into_values().collect();
    by_text.sort_by(|a, b| a.1.cmp(&b.1));
    for (one, names) in by_text {
        write!(all, "\n{}\n{}\n\n{}\n", "=".repeat(80), names.join(", "), one.trim_end())?;
    }
    Ok(all)
}

/// The packages that are linked into the program: its dependencies, without those that only build or test it.
fn packages_held<'a>(metadata: &'a Value, program: &str) -> Vec<&'a Value> {
    let packages: BTreeMap<&str, &Value> = array(&metadata["packages"]).iter().map(|p| (text(&p["id"]), p)).collect();
    let nodes: BTreeMap<&str, &Value> =
        array(&metadata["resolve"]["nodes"]).iter().map(|n| (text(&n["id"]), n)).collect();
    let mut ahead: Vec<&str> =
        packages.iter().filter(|(_, p)| p["name"] == program && p["source"].is_null()).map(|(id, _)| *id).collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = ahead.pop() {
        let runs = packages.get(id).is_some_and(|p| !is_macro(p));
        if !runs || !seen.insert(id) {
            continue;
        }
        let needs = nodes.get(id).map(|node| array(&node["deps"])).unwrap_or_default();
        let linked = |need: &&Value| array(&need["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
        ahead.extend(needs.iter().filter(linked).map(|need| text(&need["pkg"])));
    }
    seen.into_iter().filter_map(|id| packages.get(id).copied()).collect()
}

/// Whether it runs only in the compiler.
fn is_macro(package: &Value) -> bool {
    array(&package["targets"]).iter().any(|target| array(&target["kind"]).iter().any(|kind| kind == "proc-macro"))
}

/// The texts of a crate's licences. For a crate available under MIT the longer alternatives are omitted.
fn licence_files(package: &Value) -> Result<Vec<String>> {
    let directory = Path::new(text(&package["manifest_path"])).parent().context("no directory")?;
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if LICENCE_FILE_PREFIXES.iter().any(|begin| name.to_uppercase().starts_with(begin))
            && directory.join(&name).is_file()
        {
            names.push(name);
        }
    }
    names.sort();
    let is = |name: &String, what: &str| name.to_uppercase().contains(what);
    if names.iter().any(|name| is(name, "MIT")) && allowed(text(&package["license"]), &["MIT".to_string()].into()) {
        names.retain(|name| !is(name, "APACHE") && !is(name, "UNLICENSE"));
    }
    let shipped = LICENCE_TEXTS.iter().find(|(name, _)| *name == text(&package["name"]));
    if let (true, Some((_, licence))) = (names.is_empty(), shipped) {
        return Ok(vec![(*licence).into()]);
    }
    ensure!(!names.is_empty(), "it brings no text of its licence: add one to LICENCE_TEXTS in xtask/src/licences.rs");
    let read = |name: &String| {
        let file = directory.join(name);
        std::fs::read(&file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).context(name.clone())
    };
    names.iter().map(read).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn licences() -> BTreeSet<String> {
        ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].map(String::from).into()
    }

    #[test]
    fn licence_expression_is_checked_against_the_list() {
        for kept in ["MIT", "MIT/Apache-2.0", "GPL-3.0 OR (MIT AND ISC)", "Apache-2.0 WITH LLVM-exception", "(MIT)"] {
            assert!(allowed(kept, &licences()), "{kept}");
        }
        let broken =
            ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT OR GPL-3.0) AND GPL-2.0", "Apache-2.0", "(MIT", "MIT ISC"];
        for expression in broken {
            assert!(!allowed(expression, &licences()), "{expression}");
        }
    }

    #[test]
    fn unlisted_licence_or_source_is_an_offence() {
        let sources = list("allow-registry = [\"https://a\", \"https://b\"]\n", "allow-registry").unwrap();
        let of = |licence: &str, source: Value| {
            offence(&json!({"name": "x", "version": "1", "license": licence, "source": source}), &licences(), &sources)
        };
        assert_eq!(of("MIT", json!("registry+https://b")), None);
        assert_eq!(of("MIT", Value::Null), None);
        assert!(of("GPL-3.0", Value::Null).unwrap().contains("GPL-3.0"));
        assert!(of("MIT", json!("git+https://b")).unwrap().contains("git+https://b"));
        assert!(list("allow = [\n", "allow").is_err());
    }

    #[test]
    fn linked_crates_are_listed_with_each_licence_text_once() {
        let directory = tempfile::tempdir().unwrap();
        let package = |name: &str, kind: &str, files: &[(&str, &str)]| {
            let at = directory.path().join(name);
            std::fs::create_dir(&at).unwrap();
            for (file, text) in files {
                std::fs::write(at.join(file), text).unwrap();
            }
            let source = (name != "fathom").then_some("registry+https://a");
            json!({"id": name, "name": name, "version": "1", "license": "MIT OR Apache-2.0", "source": source,
                   "manifest_path": at.join("Cargo.toml"), "targets": [{"kind": [kind]}]})
        };
        let linked = |pkg: &str, kind: Option<&str>| json!({"pkg": pkg, "dep_kinds": [{"kind": kind}]});
        let metadata = json!({
            "packages": [
                package("fathom", "bin", &[]),
                package("one", "lib", &[("LICENSE-MIT", "Be kind.\n"), ("LICENSE-APACHE", "At length.\n")]),
                package("two", "lib", &[("license-mit", "Be  kind.")]),
                package("derive", "proc-macro", &[]),
                package("builder", "lib", &[]),
            ],
            "resolve": {"nodes": [
                {"id": "fathom", "deps": [linked("one", None), linked("derive", None), linked("builder", Some("build"))]},
                {"id": "one", "deps": [linked("two", None)]},
            ]},
        });
        let all = texts(&metadata, "here", "fathom").unwrap();
        assert_eq!(all.matches("kind.").count(), 1, "{all}");
        assert!(all.contains("\none 1, two 1\n") && !all.contains("At length"), "{all}");
        assert!(!all.contains("derive") && !all.contains("builder"), "{all}");
    }
}
