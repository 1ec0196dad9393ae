//! Counts with nouns: `1 process`, `2 processes`.

/// Returns `count` with the noun whose singular is `one`.
pub fn counted(count: usize, one: &str) -> String {
    let ending = if count == 1 {
        ""
    } else if one.ends_with(['s', 'x']) || one.ends_with("ch") {
        "es"
    } else {
        "s"
    };
    format!("{count} {one}{ending}")
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn plural_depends_on_count() {
        let said = [(0, "block"), (1, "process"), (2, "process"), (3, "cell")].map(|(n, one)| counted(n, one));
        assert_eq!(said, ["0 blocks", "1 process", "2 processes", "3 cells"]);
    }
}
