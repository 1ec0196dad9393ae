//! Rules for a single file.

use crate::source::File;

/// Crates that compute: no clock, no files, so that they run on stored events, anywhere, always the same.
const PURE_CRATES: [&str; 5] = ["model", "sqlite", "stats", "causal", "formats"];

/// What a pure crate may not use.
const IMPURE_PATHS: [&str; 6] = ["Instant::now", "SystemTime", "std::fs", "File::open", "File::create", "std::net"];

/// Longer files hold more than one idea.
const LINES_MAX: usize = 800;

/// Tests and generated files may be longer.
const TEST_LINES_MAX: usize = 1_500;

/// Everyone who clones the repository has every file forever, even a removed one: nothing made from its sources has to be this large.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Words that must not be published: unfinished work, and paths that exist on one machine only. Written in two halves,
/// so that this file may be checked like any other.
const BANNED_WORDS: [(&str, &str); 7] = [
    ("TO", "DO"),
    ("FIX", "ME"),
    ("to", "do!("),
    ("unimple", "mented!("),
    ("/wo", "rk/"),
    ("/ro", "ot/"),
    ("db", "g!("),
];

/// This file's violations of the rules, as `path:line: what`.
pub fn offences(file: &File) -> Vec<String> {
    let mut found = Vec::new();
    if file.path.starts_with("LICENSE") || file.path == "Cargo.lock" || file.path.ends_with("package-lock.json") {
        return found;
    }
    if let Some(name) = file.crate_name() {
        found.extend(check_prints(file, name));
        found.extend(check_purity(file, name));
        found.extend(check_paths(file, name));
        found.extend(check_decisions(file));
    }
    found.extend(check_length(file));
    found.extend(check_words(file));
    found.extend(check_ignores(file));
    found
}

/// A file's violation of the size limit, text or not.
pub fn too_large(path: &str, bytes: u64) -> Option<String> {
    (bytes > FILE_BYTES_MAX)
        .then(|| format!("{path}: {bytes} bytes, more than {FILE_BYTES_MAX}: a picture, a store or a recording?"))
}

/// Only the cli prints: a library returns its messages. cargo reads the output of a build script.
fn check_prints(file: &File, name: &str) -> Vec<String> {
    if ["cli", "bpf-build"].contains(&name) {
        return Vec::new();
    }
    let macros = ["print!(", "println!(", "eprint!(", "eprintln!("];
    at_lines(file, |code| {
        let whole = |m: &&str| {
            code.match_indices(*m).any(|(at, _)| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
        };
        macros.iter().find(|m| whole(m)).map(|m| format!("{m}…) outside crates/cli"))
    })
}

fn check_purity(file: &File, name: &str) -> Vec<String> {
    if !PURE_CRATES.contains(&name) {
        return Vec::new();
    }
    at_lines(file, |code| {
        IMPURE_PATHS.iter().find(|i| code.contains(*i)).map(|i| format!("{i} in the pure crate {name}"))
    })
}

/// A decision on the text of an error breaks when the text is reworded: errors have variants. Only what is visible in a line is found: an
/// error made into text and compared at once.
fn check_decisions(file: &File) -> Vec<String> {
    const TESTS: [&str; 4] = ["contains(", "starts_with(", "ends_with(", "find("];
    at_lines(file, |code| {
        let (_, compared) = code.split_once(".to_string().")?;
        let test = TESTS.iter().find(|test| compared.starts_with(**test))?;
        let literal = compared[test.len()..].starts_with('"');
        literal.then(|| "a decision on a message's text: match the error's variant".to_string())
    })
}

/// A path in a message may contain line breaks and terminal control sequences; `to_string_lossy` marks it as data. `model` has the helper,
/// and the output of a build script is only for developers.
fn check_paths(file: &File, name: &str) -> Vec<String> {
    if ["bpf-build", "sql"].contains(&name) || file.path.ends_with("/build.rs") {
        return Vec::new();
    }
    let helper = "a path by .display(): use model::text::ShownPath in a message, to_string_lossy elsewhere";
    at_lines(file, |code| code.contains(".display()").then(|| helper.into()))
}

fn at_lines(file: &File, rule: impl Fn(&str) -> Option<String>) -> Vec<String> {
    file.code().filter_map(|(line, code)| rule(code).map(|what| format!("{}:{line}: {what}", file.path))).collect()
}

fn check_length(file: &File) -> Option<String> {
    let code = [".rs", ".c", ".h", ".js", ".css", ".sh", ".py"].iter().any(|e| file.path.ends_with(e));
    let generated = file.text.lines().next().is_some_and(|l| l.contains("Generated"));
    let tests = file.path.split('/').any(|part| part == "tests" || part == "tests.rs");
    let limit = if generated || tests { TEST_LINES_MAX } else { LINES_MAX };
    let lines = file.text.lines().count();
    (code && lines > limit).then(|| format!("{}: {lines} lines, more than {limit}", file.path))
}

fn check_words(file: &File) -> Vec<String> {
    let words: Vec<String> = BANNED_WORDS.iter().map(|(a, b)| format!("{a}{b}")).collect();
    let mut found = Vec::new();
    for (i, line) in file.text.lines().enumerate() {
        for word in words.iter().filter(|w| line.contains(w.as_str())) {
            found.push(format!("{}:{}: the word {word}", file.path, i + 1));
        }
    }
    found
}

/// A test that is not run by default needs root, and states for what (the suite `privileged` runs those), or is long, and states
/// why (`cargo xtask long`). A test detects other missing requirements itself, and prints `SKIP name: reason`.
fn check_ignores(file: &File) -> Vec<String> {
    let marked = |line: &str| line.trim_start().starts_with(concat!("#[ig", "nore"));
    let reasoned = |line: &str| line.contains("= \"root: ") || line.contains("= \"long: ");
    let lines = file.text.lines().enumerate().filter(|(_, line)| file.is_rust() && marked(line) && !reasoned(line));
    lines
        .map(|(i, _)| format!("{}:{}: ignored without a reason \"root: …\" or \"long: …\"", file.path, i + 1))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, text: &str) -> Vec<String> {
        offences(&File { path: path.into(), text: text.into() })
    }

    #[test]
    fn only_the_cli_and_tests_may_print() {
        let text = "fn f() { println!(\"x\"); }\n";
        assert_eq!(check("crates/stats/src/a.rs", text), ["crates/stats/src/a.rs:1: println!(…) outside crates/cli"]);
        assert_eq!(check("crates/cli/src/a.rs", text).len(), 0);
        assert_eq!(check("crates/stats/tests/a.rs", text).len(), 0);
        assert_eq!(check("crates/stats/src/a.rs", "writeln!(out, \"print it\")?; // println!(\n").len(), 0);
    }

    #[test]
    fn pure_crates_use_no_clock_or_files() {
        for line in ["let t = Instant::now();", "use std::fs;", "let f = File::open(p)?;"] {
            assert_eq!(check("crates/causal/src/a.rs", line).len(), 1, "{line}");
            assert_eq!(check("crates/archive/src/a.rs", line).len(), 0, "{line}");
        }
        assert_eq!(check("crates/causal/src/a.rs", "#[cfg(test)]\nmod tests {\nuse std::fs;\n}\n").len(), 0);
    }

    #[test]
    fn paths_in_messages_are_escaped() {
        let text = "fn f(path: &Path) -> String { format!(\"{}\", path.display()) }\n";
        assert_eq!(check("crates/archive/src/a.rs", text).len(), 1);
        assert_eq!(check("crates/archive/build.rs", text).len(), 0);
        assert_eq!(check("crates/archive/tests/a.rs", text).len(), 0);
        assert_eq!(check("crates/archive/src/a.rs", &text.replace("display", "shown")).len(), 0);
    }

    #[test]
    fn long_files_are_offences_except_tests() {
        let text = "x\n".repeat(801);
        assert_eq!(check("crates/report/src/a.rs", &text).len(), 1);
        assert_eq!(check("tests/tests/root.rs", &text).len(), 0);
        assert_eq!(check("crates/capture/src/bpf/e.h", &format!("/* Generated */\n{text}")).len(), 0);
        assert_eq!(check("docs/long.md", &text).len(), 0);
    }

    #[test]
    fn files_over_1_mib_are_offences() {
        assert_eq!(too_large("docs/images/report.png", 1 << 20), None);
        let store = too_large("a.img", (1 << 20) + 1).unwrap_or_default();
        assert!(store.starts_with("a.img: 1048577 bytes, more than 1048576"), "{store}");
    }

    #[test]
    fn banned_words_are_offences_in_every_file() {
        for (a, b) in BANNED_WORDS {
            assert_eq!(check("docs/a.md", &format!("see {a}{b} here\n")).len(), 1, "{a}{b}");
        }
        assert_eq!(check("docs/a.md", "to do it, work/ around a mastodon\n").len(), 0);
    }

    #[test]
    fn decision_on_a_text_is_found() {
        let file = |code: &str| File { path: "crates/pool/src/link.rs".into(), text: code.into() };
        let found = |code: &str| check_decisions(&file(code)).len();
        assert_eq!(found("if error.to_string().contains(\"fenced\") {"), 1);
        assert_eq!(found("let name = id.to_string(); list.contains(\"a\");"), 0);
        assert_eq!(found("if matches!(error, Error::Fenced) {"), 0);
    }

    #[test]
    fn ignore_needs_a_reason() {
        let bare = concat!("#[ig", "nore]\nfn a() {}\n");
        assert_eq!(check("crates/x/tests/a.rs", bare).len(), 1);
        assert_eq!(check("crates/x/tests/a.rs", "#[ignore = \"later\"]\nfn a() {}\n").len(), 1);
        assert_eq!(check("crates/x/tests/a.rs", "#[ignore = \"root: makes a disk\"]\nfn a() {}\n").len(), 0);
    }
}
