//! Words of a command line shown to a user.

use crate::text::is_steering;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Quotes a path in a displayed command line, so that a shell takes it as one word. Characters that control a terminal, or
/// invalid UTF-8, become escapes within `$'…'`, which bash, ksh and zsh support, and POSIX since 2024.
pub fn shell_word(path: &Path) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+:@%,=".contains(c);
    match path.to_str() {
        Some(text) if !text.is_empty() && text.chars().all(plain) => text.into(),
        Some(text) if !text.contains(is_steering) => format!("'{}'", text.replace('\'', r"'\''")),
        _ => escaped_word(path.as_os_str().as_bytes()),
    }
}

/// Returns a word with escapes; each has the maximum number of digits, so that none includes what follows.
fn escaped_word(bytes: &[u8]) -> String {
    let mut word = String::from("$'");
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\'' | '\\' => word.extend(['\\', c]),
                c if is_steering(c) => c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| push_octal(&mut word, byte)),
                c => word.push(c),
            }
        }
        chunk.invalid().iter().for_each(|byte| push_octal(&mut word, *byte));
    }
    word + "'"
}

fn push_octal(word: &mut String, byte: u8) {
    // Writing to a string cannot fail.
    let _ = write!(word, "\\{byte:03o}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_with_line_breaks_or_invalid_bytes_is_escaped() {
        for bytes in [&b"a\nfathom: 1'\\x"[..], b"\x1b[2J\xff7", "\u{202e}ü".as_bytes()] {
            let word = shell_word(Path::new(std::ffi::OsStr::from_bytes(bytes)));
            assert!(word.starts_with("$'") && !word.contains(is_steering), "{word}");
            let done = std::process::Command::new("bash").args(["-c", &format!("printf %s {word}")]).output();
            // bash is not installed on every machine.
            assert!(done.is_err() || done.is_ok_and(|done| done.stdout == bytes), "{word}");
        }
    }

    #[test]
    fn a_quoted_path_is_one_shell_word() {
        for path in ["./demo.fathom", "/mnt/a b/ü's.fathom", "a;b", "$HOME", "x*"] {
            let line = format!("printf %s {}", shell_word(Path::new(path)));
            let said = std::process::Command::new("sh").args(["-c", &line]).output().unwrap().stdout;
            assert_eq!(String::from_utf8_lossy(&said), path);
        }
        assert_eq!(shell_word(Path::new("./demo.fathom")), "./demo.fathom");
    }
}
