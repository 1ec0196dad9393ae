//! Names of functions as written in the source.

use std::borrow::Cow;

/// Longer symbols are not demangled, and longer names are cut: some C++ names have thousands of letters.
const SYMBOL_BYTES_MAX: usize = 4096;
const NAME_CHARS_MAX: usize = 300;
/// Maximum recursion depth of the demangler; names are untrusted.
const RECURSION_DEPTH_MAX: u32 = 96;

/// Returns a function's name from its symbol.
pub fn demangle(symbol: &str) -> String {
    let name = if symbol.len() > SYMBOL_BYTES_MAX { Cow::Borrowed(symbol) } else { try_demangle(symbol) };
    clean_text(&name)
}

fn try_demangle(symbol: &str) -> Cow<'_, str> {
    // Rust's older symbols look like those of C++, so Rust is tried first.
    if let Ok(name) = rustc_demangle::try_demangle(symbol) {
        return format!("{name:#}").into();
    }
    if !symbol.starts_with("_Z") {
        return symbol.into();
    }
    let parsing = cpp_demangle::ParseOptions::default().recursion_limit(RECURSION_DEPTH_MAX);
    let options =
        cpp_demangle::DemangleOptions::new().no_params().no_return_type().recursion_limit(RECURSION_DEPTH_MAX);
    let name = cpp_demangle::Symbol::new_with_options(symbol, &parsing).ok();
    name.and_then(|name| name.demangle_with_options(&options).ok()).map_or(symbol.into(), Cow::Owned)
}

/// Returns the text on one line, without control characters for terminals, and not too long.
pub fn clean_text(text: &str) -> String {
    let shown = text.chars().map(|c| if c.is_control() { '?' } else { c });
    let mut short: String = shown.take(NAME_CHARS_MAX).collect();
    if text.chars().nth(NAME_CHARS_MAX).is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_source() {
        for (symbol, name) in [
            ("fdatasync", "fdatasync"),
            (
                "_ZN4core3ptr85drop_in_place$LT$std..rt..lang_start$LT$$LP$$RP$$GT$..$u7b$$u7b$closure$u7d$$u7d$$GT$17h0123456789abcdefE",
                "core::ptr::drop_in_place<std::rt::lang_start<()>::{{closure}}>",
            ),
            ("_ZN3app6commitERKSsi", "app::commit"),
            ("_RNvCs4fqI2P2rA04_3app4main", "app::main"),
            ("_Znonsense", "_Znonsense"),
            ("a\tb\u{1b}[31m", "a?b?[31m"),
        ] {
            assert_eq!(demangle(symbol), name);
        }
        assert_eq!(demangle(&"x".repeat(5000)).chars().count(), NAME_CHARS_MAX + 1);
    }
}
