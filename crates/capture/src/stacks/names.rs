//! Names of functions as written in the source.

use std::borrow::Cow;

/// Longer symbols are not demangled, and longer names are cut: some C++ names have thousands of letters.
const LONGEST_SYMBOL: usize = 4096;
const LONGEST_NAME: usize = 300;
/// Maximum recursion depth of the demangler; names are untrusted.
const DEPTH: u32 = 96;

/// Returns a function's name from its symbol.
pub fn demangled(symbol: &str) -> String {
    let name = if symbol.len() > LONGEST_SYMBOL { Cow::Borrowed(symbol) } else { readable(symbol) };
    clean(&name)
}

fn readable(symbol: &str) -> Cow<'_, str> {
    // Rust's older symbols look like those of C++, so Rust is tried first.
    if let Ok(name) = rustc_demangle::try_demangle(symbol) {
        return format!("{name:#}").into();
    }
    if !symbol.starts_with("_Z") {
        return symbol.into();
    }
    let parsing = cpp_demangle::ParseOptions::default().recursion_limit(DEPTH);
    let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type().recursion_limit(DEPTH);
    let name = cpp_demangle::Symbol::new_with_options(symbol, &parsing).ok();
    name.and_then(|name| name.demangle_with_options(&options).ok()).map_or(symbol.into(), Cow::Owned)
}

/// Returns the text on one line, without control characters for terminals, and not too long.
pub fn clean(text: &str) -> String {
    let shown = text.chars().map(|c| if c.is_control() { '?' } else { c });
    let mut short: String = shown.take(LONGEST_NAME).collect();
    if text.chars().nth(LONGEST_NAME).is_some() {
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
            assert_eq!(demangled(symbol), name);
        }
        assert_eq!(demangled(&"x".repeat(5000)).chars().count(), LONGEST_NAME + 1);
    }
}
