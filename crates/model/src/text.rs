//! Numbers in readable form, and texts that do not control a terminal: one set of formatters for every crate.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::path::Path;

/// Formats three significant digits, in usual notation: `0.0123`, `1.23`, `12.3`, `1234`.
pub fn digits(x: f64) -> String {
    if x == 0.0 {
        return "0".into();
    }
    // Rounded first, so that 9.996 is written as 10.0 and not as 10.00.
    let magnitude = |x: f64| x.abs().log10().floor() as i32;
    let step = 10_f64.powi(magnitude(x) - 2);
    let rounded = (x / step).round() * step;
    let decimals = (2 - magnitude(rounded)).clamp(0, 9) as usize;
    format!("{x:.decimals$}")
}

/// Formats a duration in the unit that leaves one to three digits before the point.
pub fn duration(ns: f64) -> String {
    let (unit, size) = match ns.abs() {
        x if x < 999.5 => ("ns", 1.0),
        x if x < 999.5e3 => ("us", 1e3),
        x if x < 999.5e6 => ("ms", 1e6),
        _ => ("s", 1e9),
    };
    format!("{} {unit}", digits(ns / size))
}

/// Returns the divisor for showing numbers of a unit, and the resulting unit: times are shown in the unit that leaves one to three digits
/// of `of` before the point, anything else unchanged.
pub fn scale(unit: &str, value: f64) -> (f64, String) {
    const TIME_UNITS: [(&str, f64); 4] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let Some((_, size)) = TIME_UNITS.iter().find(|(name, _)| *name == unit) else { return (1.0, unit.into()) };
    let ns = (value * size).abs();
    let (name, shown) = TIME_UNITS.iter().rev().find(|(_, size)| ns >= 0.9995 * size).unwrap_or(&TIME_UNITS[0]);
    (shown / size, (*name).into())
}

/// Formats a number of bytes, in binary units.
pub fn bytes(n: f64) -> String {
    let (unit, size) = match n.abs() {
        // A value that would be rounded to 1024 is shown in the next unit.
        x if x < 1023.5 => ("B", 1.0),
        x if x < 1023.5 * 1024.0 => ("KiB", 1024.0),
        x if x < 1023.5 * 1024.0 * 1024.0 => ("MiB", 1024.0 * 1024.0),
        _ => ("GiB", 1024.0 * 1024.0 * 1024.0),
    };
    format!("{} {unit}", digits(n / size))
}

/// Formats an exact size, such as a setting: whole in the largest unit that fits, else with three digits: `64 KiB`, `1.50
/// GiB`.
pub fn size(bytes: u64) -> String {
    let units = [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) if bytes.is_multiple_of(*unit) => format!("{} {name}", bytes / unit),
        Some(_) => self::bytes(bytes as f64),
        None => format!("{bytes} B"),
    }
}

/// Formats a rate in bits per second, in decimal units as usual for networks.
pub fn rate(bps: f64) -> String {
    let (unit, size) = match bps.abs() {
        // A value that would be rounded to a thousand is shown in the next unit.
        x if x < 999.5 => ("b/s", 1.0),
        x if x < 999.5e3 => ("kb/s", 1e3),
        x if x < 999.5e6 => ("Mb/s", 1e6),
        _ => ("Gb/s", 1e9),
    };
    format!("{} {unit}", digits(bps / size))
}

/// Formats how long something is likely to take: in seconds, minutes or hours, no finer than such an estimate is.
pub fn rough_duration(seconds: u64) -> String {
    match seconds {
        s @ 0..100 => format!("{s} s"),
        s @ 100..6000 => format!("{} min", (s + 30) / 60),
        s => format!("{:.1} h", s as f64 / 3600.0),
    }
}

/// Formats a mean count: whole if it is whole, and never zero unless it is zero.
pub fn count(x: f64) -> String {
    if x > 0.0 && x < 0.005 {
        return "<0.01".into();
    }
    if (x - x.round()).abs() < 1e-9 { format!("{x:.0}") } else { format!("{x:.2}") }
}

/// Formats a time in UTC, to the minute.
pub fn date(unix_ns: u64) -> String {
    let minutes = unix_ns / 60_000_000_000;
    let (year, month, day) = civil_date((minutes / 1440) as i64);
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", minutes / 60 % 24, minutes % 60)
}

/// Formats a time in UTC for names of files, in the basic format of ISO 8601: `20261129T052631Z`.
pub fn file_date(unix_s: u64) -> String {
    let (year, month, day) = civil_date((unix_s / 86_400) as i64);
    let s = unix_s % 86_400;
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", s / 3600, s / 60 % 60, s % 60)
}

/// Year, month and day, of days since 1970 (after Hinnant, "chrono-compatible low-level date algorithms").
fn civil_date(unix_days: i64) -> (i64, i64, i64) {
    let days = unix_days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Returns a text that cannot move the cursor, change colours or change the writing direction: such characters are written
/// as escapes, `\u{1b}`. A page must additionally escape it for HTML.
pub fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_steering(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

/// A path in a message: a name may contain anything except a slash and a zero byte, including characters that control a terminal,
/// and a line break, which would make it look like a separate message.
pub trait ShownPath {
    /// Returns the path in the form of [`shown`]. For people: a program gets the unchanged path.
    fn shown(&self) -> Shown<'_>;
}

impl ShownPath for Path {
    fn shown(&self) -> Shown<'_> {
        Shown(self)
    }
}

/// A path that is shown.
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a>(&'a Path);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&shown(&self.0.to_string_lossy()))
    }
}

/// Returns a text that keeps its lines and columns but controls nothing else: such characters are written as JSON escapes, so that the
/// text means the same in JSON.
pub fn escape_controls(text: &str) -> Cow<'_, str> {
    let steers = |c: char| is_steering(c) && !matches!(c, '\n' | '\t');
    if !text.contains(steers) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        // Lines of CSV end with both.
        let ends_line = c == '\r' && chars.peek() == Some(&'\n');
        if steers(c) && !ends_line {
            // Writing to a string cannot fail.
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out.into()
}

/// Formats an error with its causes, each once: a library's message often contains its cause's already. Quoted text may come from
/// an untrusted archive, and must not control a terminal.
pub fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string);
    let whole = causes.fold(String::new(), |said, cause| {
        if said.is_empty() {
            cause
        } else if said.contains(&cause) {
            said
        } else {
            format!("{said}: {cause}")
        }
    });
    whole.lines().map(shown).collect::<Vec<_>>().join("\n")
}

/// Whether a character controls a terminal or its neighbours, and is not visible itself: control characters, including line breaks
/// and the one-character sequences of C1, and characters that reverse or join text. Each is at most U+FFFF.
pub fn is_steering(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Maximum number of characters in a line of a page, except in tables.
pub const LINE_CHARS_MAX: usize = 140;

/// Wraps Markdown to that width, except for tables and for words that are longer by themselves. List items continue indented.
pub fn wrap_markdown(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let indent = if line.starts_with("- ") { "  " } else { "" };
        let mut width = 0;
        for (nth, word) in line.split(' ').enumerate() {
            let length = word.chars().count();
            if nth > 0 && !line.starts_with('|') && width + 1 + length > LINE_CHARS_MAX {
                out.extend(["\n", indent]);
                width = indent.len();
            } else if nth > 0 {
                out.push(' ');
                width += 1;
            }
            out.push_str(word);
            width += length;
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_significant_digits() {
        for (x, text) in
            [(0.0, "0"), (1.0, "1.00"), (9.996, "10.0"), (99.96, "100"), (0.01234, "0.0123"), (123_456.0, "123456")]
        {
            assert_eq!(digits(x), text, "{x}");
        }
        for (ns, text) in [(0.0, "0 ns"), (999.0, "999 ns"), (999.6, "1.00 us"), (1.5e6, "1.50 ms"), (2e9, "2.00 s")] {
            assert_eq!(duration(ns), text, "{ns}");
        }
        for (unit, of, divisor, shown) in [
            ("ns", 104_500_000.0, 1e6, "ms"),
            ("ns", 12.0, 1.0, "ns"),
            ("us", 3_376.0, 1e3, "ms"),
            ("s", 0.002, 1e-3, "ms"),
            ("ns", 0.0, 1.0, "ns"),
            ("row/s", 1e9, 1.0, "row/s"),
        ] {
            let (found, name) = scale(unit, of);
            assert!((found / divisor - 1.0).abs() < 1e-12 && name == shown, "{of} {unit}: {found} {name}");
        }
        assert_eq!(bytes(4096.0), "4.00 KiB");
        assert_eq!(bytes(1_048_500.0), "1.00 MiB");
        assert_eq!(
            [1, 1 << 20, 10 << 30, 1536, 212_992].map(size),
            ["1 B", "1 MiB", "10 GiB", "1.50 KiB", "208 KiB"].map(String::from)
        );
        assert_eq!(
            [900.0, 999_600.0, 52e6, 999.6e6, 1.5e9].map(rate),
            ["900 b/s", "1.00 Mb/s", "52.0 Mb/s", "1.00 Gb/s", "1.50 Gb/s"].map(String::from)
        );
        assert_eq!([59, 150, 9000].map(rough_duration), ["59 s", "3 min", "2.5 h"].map(String::from));
        assert_eq!((count(3.0).as_str(), count(2.5).as_str()), ("3", "2.50"));
        assert_eq!((count(0.0).as_str(), count(0.004).as_str(), count(0.006).as_str()), ("0", "<0.01", "0.01"));
    }

    /// Values of `date -u -d @SECONDS`.
    #[test]
    fn dates_match_date_command() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_827_696, "2000-02-29 12:34 UTC"),
            (1_709_164_799, "2024-02-28 23:59 UTC"),
            (4_107_542_399, "2100-02-28 23:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
        ] {
            assert_eq!(date(seconds * 1_000_000_000), text);
        }
    }

    #[test]
    fn output_has_no_terminal_control_sequences() {
        assert_eq!(escape_controls("a\tb\r\nü"), "a\tb\r\nü");
        assert_eq!(escape_controls("\u{1b}[2J\r\u{9b}1A\u{202e}x\u{7f}"), "\\u001b[2J\\u000d\\u009b1A\\u202ex\\u007f");
        assert!(matches!(escape_controls("{\"a\": 1}"), Cow::Borrowed(_)));
        assert!(!escape_controls("\u{feff}\u{2028}").contains(is_steering));
    }

    #[test]
    fn a_path_in_a_message_is_one_line() {
        for (name, text) in
            [("a b/ü's.fathom", "a b/ü's.fathom"), ("a\nfathom: ok\u{1b}[2J", "a\\u{a}fathom: ok\\u{1b}[2J")]
        {
            assert_eq!(Path::new(name).shown().to_string(), text);
        }
        assert_eq!(format!("{:<4}|", Path::new("a").shown()), "a   |");
    }

    #[test]
    fn terminal_control_sequences_are_escaped() {
        assert_eq!(shown("a\u{1b}[31m\nb\u{202e}é"), "a\\u{1b}[31m\\u{a}b\\u{202e}é");
    }
}
