//! Texts that came from a traced program, and numbers, as they are shown.

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

/// Whether a character steers a terminal, or what stands beside it, and shows nothing itself: controls, among them line breaks and
/// the one-character sequences of C1, and what turns or joins writing. Each is at most U+FFFF.
pub fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Three significant digits, as people write them: `0.0123`, `1.23`, `12.3`, `1234`.
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

/// A duration in the unit that leaves one to three digits before the point.
pub fn duration(ns: f64) -> String {
    let (unit, size) = match ns.abs() {
        x if x < 999.5 => ("ns", 1.0),
        x if x < 999.5e3 => ("us", 1e3),
        x if x < 999.5e6 => ("ms", 1e6),
        _ => ("s", 1e9),
    };
    format!("{} {unit}", digits(ns / size))
}

/// By what numbers of a unit are divided to be read, and the unit that they have then: times are shown in the unit that leaves one to three digits of
/// `of` before the point, anything else as it is.
pub fn scale(unit: &str, of: f64) -> (f64, String) {
    const UNITS: [(&str, f64); 4] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let Some((_, size)) = UNITS.iter().find(|(name, _)| *name == unit) else { return (1.0, unit.into()) };
    let ns = (of * size).abs();
    let (name, shown) = UNITS.iter().rev().find(|(_, size)| ns >= 0.9995 * size).unwrap_or(&UNITS[0]);
    (shown / size, (*name).into())
}

/// A number of bytes, in binary units.
pub fn bytes(n: f64) -> String {
    let (unit, size) = match n.abs() {
        // What would be rounded to 1024 is one of the next unit.
        x if x < 1023.5 => ("B", 1.0),
        x if x < 1023.5 * 1024.0 => ("KiB", 1024.0),
        x if x < 1023.5 * 1024.0 * 1024.0 => ("MiB", 1024.0 * 1024.0),
        _ => ("GiB", 1024.0 * 1024.0 * 1024.0),
    };
    format!("{} {unit}", digits(n / size))
}

/// A mean count: whole if it is whole, and never a zero that is none.
pub fn count(x: f64) -> String {
    if x > 0.0 && x < 0.005 {
        return "<0.01".into();
    }
    if (x - x.round()).abs() < 1e-9 { format!("{x:.0}") } else { format!("{x:.2}") }
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
        assert_eq!((count(3.0).as_str(), count(2.5).as_str()), ("3", "2.50"));
        assert_eq!((count(0.0).as_str(), count(0.004).as_str(), count(0.006).as_str()), ("0", "<0.01", "0.01"));
    }

    #[test]
    fn nothing_that_acts_on_a_terminal_comes_through() {
        assert_eq!(shown("a\u{1b}[31m\nb\u{202e}é"), "a\\u{1b}[31m\\u{a}b\\u{202e}é");
    }
}
