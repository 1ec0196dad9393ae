//! Formatting of numbers, and of texts that came from a traced program.

pub use model::text::{bytes, count, date, digits, duration, is_steering, scale, shown, size};

/// Formats a text for a Markdown table: markup characters are escaped.
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
