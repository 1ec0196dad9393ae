//! The rules for tests: their names, no sleep without a reason, and no mount or attached device that would survive a kill.
//!
//! A sleep that polls is in a loop that ends when the condition holds. Any other one makes a test slow where the machine is fast and
//! fail where it is slow, so a comment has to explain why nothing can be polled. Loops are recognised by indentation, as formatted
//! by rustfmt; a loop without an exit would not be recognised as polling.

use crate::source::File;

/// Longer names are hard to read.
const NAME_CHARS_MAX: usize = 60;

/// Where time is simulated: a sleep takes no time.
const SIMULATED_TESTS: &str = "crates/pool/tests/simulated/";

/// Where mounts and loop devices are made so that they are removed with their owner.
const LAB_DIRECTORY: &str = "crates/lab/";

/// What the comment above a sleep that does not poll must contain, with either case of the first letter.
const REASON_PHRASES: [&str; 2] = ["ixed wait: ", "ixed waits: "];

/// How many lines above the sleep the comment may be.
const REASON_DISTANCE_MAX: usize = 5;

/// A file's tests' violations of the rules, as `path:line: what`.
pub fn offences(file: &File) -> Vec<String> {
    if !file.is_rust() {
        return Vec::new();
    }
    let lines: Vec<&str> = file.text.lines().collect();
    let mut found = Vec::new();
    for (line, name) in test_names(&lines, file.path.starts_with("tests/tests/")) {
        if let Some(what) = check_name(name) {
            found.push(format!("{}:{}: the test {name} {what}", file.path, line + 1));
        }
    }
    if file.path.starts_with(SIMULATED_TESTS) {
        return found;
    }
    let from = if is_test(&file.path) { Some(0) } else { lines.iter().position(|l| *l == "mod tests {") };
    for at in from.into_iter().flat_map(|from| from..lines.len()) {
        if mounts(&lines, at) && !file.path.starts_with(LAB_DIRECTORY) {
            found.push(format!(
                "{}:{}: a mount or a loop device that a kill leaves; lab::kept and lab::loopdisk make them",
                file.path,
                at + 1
            ));
        }
        if sleeps(lines[at]) && !polls(&lines, at) && !has_reason(&lines, at) && !has_paused_clock(&lines, at) {
            found.push(format!("{}:{}: a sleep that polls nothing, without \"A fixed wait: why\"", file.path, at + 1));
        }
    }
    found
}

/// Whether a file consists only of tests.
fn is_test(path: &str) -> bool {
    path.split('/').any(|part| part == "tests" || part == "tests.rs")
}

/// The tests, with their lines from 0: functions with the attribute, and a suite's cases.
fn test_names<'a>(lines: &[&'a str], suite: bool) -> Vec<(usize, &'a str)> {
    let mut found = Vec::new();
    for (at, line) in lines.iter().map(|l| l.trim_start()).enumerate() {
        if ["#[test]", "#[tokio::test"].iter().any(|a| line.starts_with(a)) {
            let function = |l: &&'a str| {
                let l = l.trim_start().trim_start_matches("async ").strip_prefix("fn ")?;
                Some(&l[..l.find('(')?])
            };
            let next = lines.iter().enumerate().skip(at + 1).take(5);
            found.extend(next.filter_map(|(i, l)| Some((i, function(l)?))).next());
        }
        let opened = at > 0 && lines[at - 1].trim() == "(";
        let case = line.strip_prefix("(\"").or_else(|| line.strip_prefix('"').filter(|_| opened));
        if let Some((name, _)) = case.filter(|_| suite).and_then(|rest| rest.split_once("\",")) {
            let letters = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_:".contains(c));
            found.extend((letters && name.contains('_')).then_some((at, name)));
        }
    }
    found
}

/// Returns what is wrong with a name.
fn check_name(name: &str) -> Option<String> {
    let name = name.strip_prefix("long::").unwrap_or(name);
    let length = name.chars().count();
    (length > NAME_CHARS_MAX).then(|| format!("has {length} characters, more than {NAME_CHARS_MAX}"))
}

/// Whether this line sleeps; programs in other languages that a test contains as text do not count.
fn sleeps(line: &str) -> bool {
    let code = line.trim_start();
    let before = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    !code.starts_with("//") && code.match_indices("sleep(").any(|(at, _)| !code[..at].ends_with(before))
}

/// Whether this line runs a program that mounts or attaches. Changing an option of an existing mount does not count.
fn mounts(lines: &[&str], at: usize) -> bool {
    let call = |by: &str| ["mount", "losetup"].iter().any(|program| lines[at].contains(&format!("{by}(\"{program}\"")));
    let runs = ["new", "command", "run"].into_iter().any(call);
    runs && !lines[at].trim_start().starts_with("//")
        && !lines[at..].iter().take(3).any(|line| line.contains("remount"))
}

/// Whether a loop around this line ends on a condition.
fn polls(lines: &[&str], at: usize) -> bool {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut inner = indent(lines[at]) + 1;
    for head in (0..=at).rev() {
        let (line, depth) = (lines[head].trim_start(), indent(lines[head]));
        if line.is_empty() || depth >= inner {
            continue;
        }
        inner = depth;
        if line.starts_with("fn ") || line.contains(" fn ") {
            return false;
        }
        let ends = || {
            let body = lines[head + 1..].iter().take_while(|l| l.trim().is_empty() || indent(l) > depth);
            body.clone().any(|l| l.contains("return") || l.contains("break"))
        };
        let word = |word: &str| line.starts_with(word) || line.contains(&format!(" {word}"));
        if word("while ") || line.contains(".any(|") || (word("loop {") || word("for ")) && ends() {
            return true;
        }
    }
    false
}

fn has_reason(lines: &[&str], at: usize) -> bool {
    lines[at.saturating_sub(REASON_DISTANCE_MAX)..=at].iter().any(|l| REASON_PHRASES.iter().any(|r| l.contains(r)))
}

/// Whether the test's clock is paused.
fn has_paused_clock(lines: &[&str], at: usize) -> bool {
    lines[..at].iter().rev().find(|l| l.contains("#[tokio::test")).is_some_and(|l| l.contains("start_paused"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, text: &str) -> Vec<String> {
        offences(&File { path: path.into(), text: text.into() })
    }

    #[test]
    fn names_that_are_too_long_are_offences() {
        let long = "x_".repeat(30) + "x";
        let test = |name: &str| check("crates/x/src/y.rs", &format!("#[test]\nfn {name}() {{}}\n"));
        assert_eq!(test("log_is_read_by_the_linker"), [""; 0]);
        assert_eq!(test(&long), [format!("crates/x/src/y.rs:2: the test {long} has 61 characters, more than 60")]);
        let suite =
            format!("    (\"{long}\", root(), read),\n    (\n        \"long::{long}\",\n        root(),\n    ),\n");
        assert_eq!(check("tests/tests/x.rs", &suite).len(), 2);
        assert_eq!(check("crates/x/tests/x.rs", &suite), [""; 0]);
    }

    #[test]
    fn mounts_that_a_kill_would_leave_are_offences() {
        let of = |path: &str, body: &str| check(path, &format!("fn f() {{\n    {body}\n}}\n")).len();
        for (body, offences) in [
            ("run(Command::new(\"mount\").arg(at));", 1),
            ("command(\"losetup\", &[\"--find\"]);", 1),
            ("run(Command::new(\"mount\")\n        .args([\"-o\", \"remount,ro\"]));", 0),
            ("let mounted = Kept::mount(\"tmpfs\", \"size=1m\", at);", 0),
        ] {
            assert_eq!(of("tests/tests/x.rs", body), offences, "{body}");
        }
        assert_eq!(of("crates/lab/src/tests.rs", "run(Command::new(\"mount\"));"), 0);
        assert_eq!(of("crates/x/src/y.rs", "run(Command::new(\"mount\"));"), 0, "no test");
    }

    #[test]
    fn sleeps_without_a_loop_or_reason_are_offences() {
        let of = |body: &str| check("crates/x/tests/y.rs", &format!("fn f() {{\n{body}\n}}\n")).len();
        for (body, offences) in [
            ("    thread::sleep(X);", 1),
            ("    // A fixed wait: the kernel has no event for it.\n    thread::sleep(X);", 0),
            ("    while !done() {\n        thread::sleep(X);\n    }", 0),
            ("    loop {\n        if done() {\n            break;\n        }\n        sleep(X).await;\n    }", 0),
            ("    for _ in 0..9 {\n        sleep(X).await;\n    }", 1),
            ("    while !done() {}\n    sleep(X).await;", 1),
            ("    let so = (0..9).any(|_| {\n        thread::sleep(X);\n        done()\n    });", 0),
            ("    let python = \"time.sleep(1)\";", 0),
        ] {
            assert_eq!(of(body), offences, "{body}");
        }
        let unit =
            "fn f() {\n    thread::sleep(X);\n}\nmod tests {\n    fn g() {\n        thread::sleep(X);\n    }\n}\n";
        assert_eq!(check("crates/x/src/y.rs", unit).len(), 1);
        let still = "#[tokio::test(start_paused = true)]\nasync fn x() {\n    sleep(X).await;\n}\n";
        assert_eq!(check("crates/x/tests/y.rs", still), [""; 0]);
    }
}
