//! Words of a command line that is told to a user.

use std::path::Path;

/// A path within a command line that is told, so that a shell takes it as one word.
pub fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+:@%,=".contains(c);
    if !text.is_empty() && text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_path_is_one_shell_word() {
        for path in ["./demo.fathom", "/mnt/a b/ü's.fathom", "a;b", "$HOME", "x*"] {
            let line = format!("printf %s {}", shell_word(Path::new(path)));
            let said = std::process::Command::new("sh").args(["-c", &line]).output().unwrap().stdout;
            assert_eq!(String::from_utf8_lossy(&said), path);
        }
        assert_eq!(shell_word(Path::new("./demo.fathom")), "./demo.fathom");
    }
}
