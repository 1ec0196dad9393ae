//! Within a crate a file uses files below it: no two files of a crate use each other, not even by way of others.
//!
//! A module and the files in its directory form a unit, so a file may use items of the file above its directory (`super::X`), and that file
//! the files in its directory. Every other circle is an offence, unless the page of the architecture names it with a reason.
//!
//! **Uncertain.** Paths are read from the text: `use` trees, and paths that begin with `crate`, `self`, `super` or a module's own
//! child. A name that a file re-exports is followed to its definition. Uses by a macro or a method call are not seen.

use crate::markdown::table;
use crate::source::File;
use std::collections::{BTreeMap, BTreeSet};

/// A module's place in its crate: `["log", "reader"]`.
type Module = Vec<String>;

/// What a file uses, and what it re-exports.
#[derive(Default)]
struct Names {
    paths: Vec<Module>,
    /// Names that it re-exports, and their origin.
    exports: BTreeMap<String, Module>,
    /// Modules all of whose names it re-exports.
    globs: Vec<Module>,
    children: BTreeSet<String>,
    text: String,
}

/// The crates' circles that the page does not name, and those that it names but that no longer exist.
pub fn offences(page: &str, files: &[File]) -> Vec<String> {
    let header = ["circle", "why it stays"];
    let rows = table(page, &header).unwrap_or_default();
    let named = |cell: &&str| cell.split(',').map(|name| name.trim().trim_matches('`').to_string()).collect();
    let mut allowed: BTreeSet<BTreeSet<String>> = rows.iter().filter_map(|row| row.first()).map(named).collect();
    let mut crates: BTreeMap<&str, BTreeMap<Module, Names>> = BTreeMap::new();
    let mut paths: BTreeMap<(&str, Module), &str> = BTreeMap::new();
    for file in files {
        let Some(name) = file.crate_name() else { continue };
        let module = module_of(&file.path);
        paths.insert((name, module.clone()), &file.path);
        crates.entry(name).or_default().insert(module, read_names(file));
    }
    let mut found = Vec::new();
    for (name, modules) in &crates {
        for circle in find_circles(modules) {
            let files: BTreeSet<String> =
                circle.iter().filter_map(|m| paths.get(&(*name, m.clone()))).map(|path| path.to_string()).collect();
            if !allowed.remove(&files) {
                let list: Vec<String> = files.into_iter().collect();
                found.push(format!("{}: files use each other", list.join(", ")));
            }
        }
    }
    found.extend(allowed.into_iter().map(|files| {
        let list: Vec<String> = files.into_iter().collect();
        format!("docs/internals/architecture.md: names a circle that is none: {}", list.join(", "))
    }));
    found
}

/// `crates/a/src/log/reader.rs` is `log::reader`.
fn module_of(path: &str) -> Module {
    let inside = path.split_once("/src/").map_or(path, |(_, inside)| inside).trim_end_matches(".rs");
    let mut parts: Module = inside.split('/').map(str::to_string).collect();
    if parts.last().is_some_and(|last| last == "mod") || ["lib", "main"].contains(&inside) {
        parts.pop();
    }
    parts
}

fn read_names(file: &File) -> Names {
    let code: Vec<&str> = file.code().map(|(_, line)| line).collect();
    let mut names = Names { text: code.join("\n"), ..Names::default() };
    let mut rest = String::new();
    let mut lines = code.into_iter();
    while let Some(line) = lines.next() {
        let trimmed = line.trim_start();
        if let Some(child) = trimmed.split_once("mod ").and_then(|(_, name)| name.trim_end().strip_suffix(';')) {
            names.children.insert(child.to_string());
        }
        let bare = match trimmed.strip_prefix("pub") {
            Some(after) if after.starts_with('(') => after.split_once(") ").map_or(trimmed, |(_, bare)| bare),
            Some(after) => after.trim_start(),
            None => trimmed,
        };
        let Some(tree) = bare.strip_prefix("use ") else {
            rest.push_str(line);
            rest.push('\n');
            continue;
        };
        let mut tree = tree.to_string();
        while !tree.trim_end().ends_with(';') {
            let Some(more) = lines.next() else { break };
            tree.push_str(more);
        }
        let exported = bare.len() != trimmed.len();
        for (path, name) in use_paths(&[], tree.trim_end().trim_end_matches(';')) {
            match (exported, path.last().is_some_and(|last| last == "*")) {
                (true, true) => names.globs.push(path[..path.len() - 1].to_vec()),
                (true, false) => drop(names.exports.insert(name, path.clone())),
                (false, _) => {}
            }
            names.paths.push(path);
        }
    }
    let inline = inline_paths(&rest, &names.children);
    names.paths.extend(inline);
    names
}

/// The paths of a `use` tree, each with its local name.
fn use_paths(prefix: &[String], tree: &str) -> Vec<(Module, String)> {
    let segments = |text: &str| text.split("::").map(|s| s.trim().to_string()).filter(|s| !s.is_empty()).collect();
    let tree = tree.trim();
    let Some((head, body)) = tree.split_once('{') else {
        let (path, alias) = tree.split_once(" as ").unwrap_or((tree, ""));
        let own: Module = segments(path);
        let mut path = [prefix, &own].concat();
        if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
            path.pop();
        }
        let name = if alias.is_empty() { path.last().cloned().unwrap_or_default() } else { alias.trim().to_string() };
        return vec![(path, name)];
    };
    let own: Module = segments(head);
    let prefix = [prefix, &own].concat();
    let (mut depth, mut part, mut found) = (0, String::new(), Vec::new());
    for c in body.trim_end().strip_suffix('}').unwrap_or(body).chars() {
        match c {
            ',' if depth == 0 => found.extend(use_paths(&prefix, &std::mem::take(&mut part))),
            _ => {
                depth += i32::from(c == '{') - i32::from(c == '}');
                part.push(c);
            }
        }
    }
    if !part.trim().is_empty() {
        found.extend(use_paths(&prefix, &part));
    }
    found
}

/// Paths used in the code itself.
fn inline_paths(code: &str, children: &BTreeSet<String>) -> Vec<Module> {
    let word = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let begins = |path: &&str| {
        let first = path.split("::").next().unwrap_or_default();
        ["crate", "self", "super"].contains(&first) || children.contains(first)
    };
    let paths = code.split(|c: char| !word(c)).filter(|path| path.contains("::")).filter(begins);
    paths.map(|path| path.split("::").filter(|s| !s.is_empty()).map(str::to_string).collect()).collect()
}

/// Resolves a path in the module `of` to the module that defines its item. `None`: in another crate.
fn resolve(modules: &BTreeMap<Module, Names>, of: &[String], path: &[String], depth: u32) -> Option<Module> {
    let (mut at, mut rest) = match path.first()?.as_str() {
        "crate" => (Vec::new(), &path[1..]),
        "self" => (of.to_vec(), &path[1..]),
        "super" => {
            let up = path.iter().take_while(|s| *s == "super").count();
            (of[..of.len().saturating_sub(up)].to_vec(), &path[up..])
        }
        first if modules.get(of)?.children.contains(first) => (of.to_vec(), path),
        _ => return None,
    };
    while let Some(next) = rest.first() {
        let child = [&at[..], std::slice::from_ref(next)].concat();
        if !modules.contains_key(&child) {
            break;
        }
        (at, rest) = (child, &rest[1..]);
    }
    let names = modules.get(&at)?;
    let Some(name) = rest.first().filter(|_| depth > 0) else { return Some(at) };
    if let Some(from) = names.exports.get(name) {
        return resolve(modules, &at, &[from, &rest[1..]].concat(), depth - 1);
    }
    let defined = ["struct ", "enum ", "fn ", "trait ", "type ", "const ", "static "];
    let here = defined.iter().any(|kind| names.text.contains(&format!("{kind}{name}")));
    let mut globs = names.globs.iter().filter(|_| !here);
    Some(globs.find_map(|glob| resolve(modules, &at, &[glob, rest].concat(), depth - 1)).unwrap_or(at))
}

/// Modules that use each other, ignoring the file above a directory for those in the directory.
fn find_circles(modules: &BTreeMap<Module, Names>) -> Vec<BTreeSet<Module>> {
    let mut uses: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for (module, names) in modules {
        let targets = names.paths.iter().filter_map(|path| resolve(modules, module, path, 8));
        uses.insert(module.clone(), targets.filter(|target| !module.starts_with(target)).collect());
    }
    circles_among(uses)
}

/// Sets of nodes that reach each other, given what each uses directly.
pub fn circles_among<N: Clone + Ord>(uses: BTreeMap<N, BTreeSet<N>>) -> Vec<BTreeSet<N>> {
    let mut reaches = uses;
    // Everything that is reached indirectly, too.
    loop {
        let more: Vec<(N, BTreeSet<N>)> = reaches
            .iter()
            .map(|(from, to)| {
                (from.clone(), to.iter().filter_map(|next| reaches.get(next)).flatten().cloned().collect())
            })
            .collect();
        let mut grown = false;
        for (from, to) in more {
            let known = reaches.entry(from).or_default();
            let before = known.len();
            known.extend(to);
            grown |= known.len() > before;
        }
        if !grown {
            break;
        }
    }
    let on_circle = |node: &&N| reaches[*node].contains(*node);
    let both = |a: &N, b: &N| reaches[a].contains(b) && reaches.get(b).is_some_and(|to| to.contains(a));
    let all: BTreeSet<BTreeSet<N>> =
        reaches.keys().filter(on_circle).map(|a| reaches.keys().filter(|b| both(a, b)).cloned().collect()).collect();
    all.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offences_of(files: &[(&str, &str)]) -> Vec<String> {
        offences("", &read(files))
    }

    fn read(files: &[(&str, &str)]) -> Vec<File> {
        let file = |(name, text): &(&str, &str)| File { path: format!("crates/x/src/{name}.rs"), text: (*text).into() };
        files.iter().map(file).collect()
    }

    #[test]
    fn files_that_use_each_other_are_an_offence() {
        let (lib, down) = (("lib", "mod a;\nmod b;\npub use a::A;\n"), ("b", "fn b(_: crate::c::C) {}\n"));
        assert_eq!(offences_of(&[lib, ("a", "use crate::b::{self, b};\n"), down]), [""; 0]);
        let found = offences_of(&[lib, ("a", "use crate::{b::b};\npub struct A;\n"), ("b", "use super::A;\n")]);
        assert_eq!(found, ["crates/x/src/a.rs, crates/x/src/b.rs: files use each other"]);
        let round =
            [("a", "use crate::b;\n"), ("b", "fn f() { crate::c::g(); }\n"), ("c/mod", "use crate::a::h as k;\n")];
        assert_eq!(
            offences_of(&round),
            ["crates/x/src/a.rs, crates/x/src/b.rs, crates/x/src/c/mod.rs: files use each other"]
        );
    }

    #[test]
    fn module_and_its_directory_may_use_each_other() {
        assert_eq!(
            offences_of(&[("a", "mod b;\nuse b::c;\npub struct A;\n"), ("a/b", "use super::A;\npub fn c() {}\n")]),
            [""; 0]
        );
    }

    #[test]
    fn comments_tests_and_other_crates_do_not_count() {
        let tests = "// crate::b::x\nuse b::Other;\n#[cfg(test)]\nmod tests {\n use crate::b;\n}\n";
        assert_eq!(offences_of(&[("a", tests), ("b", "use crate::a::x;\n")]), [""; 0]);
    }

    #[test]
    fn circle_on_the_page_is_allowed_and_must_exist() {
        let page = "| circle | why it stays |\n|---|---|\n| `crates/x/src/a.rs`, `crates/x/src/b.rs` | halves |\n";
        let both = [("a", "use crate::b;\n"), ("b", "use crate::a;\n")];
        assert_eq!(offences(page, &read(&both)), [""; 0]);
        assert_eq!(offences(page, &read(&both[..1])).len(), 1);
    }
}
