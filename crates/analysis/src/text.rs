//! Texts that came from a traced program, and numbers, as they are shown.

pub use model::text::{bytes, count, date, digits, duration, scale, size};

/// A text that cannot move the cursor, change colours or turn the direction of writing: what could is written as an
/// escape, `\u{1b}`. A page must escape it for HTML besides.
pub fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if steers(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

/// A text inside a Markdown table: what could be markup is escaped.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in shown(text).chars() {
        if matches!(c, '|' | '`' | '<' | '*' | '_' | '[' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// Whether a character steers a terminal, or what stands beside it, and shows nothing itself: controls, among them line breaks and
/// the one-character sequences of C1, and what turns or joins writing. Each is at most U+FFFF.
pub fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_control_sequences_are_escaped() {
        assert_eq!(shown("a\u{1b}[31m\nb\u{202e}é"), "a\\u{1b}[31m\\u{a}b\\u{202e}é");
    }
}
