//! Counts with nouns: `1 process`, `2 processes`.

/// Returns `count` with the noun whose singular is `one`.
pub fn counted(count: usize, one: &str) -> String {
    if count == 1 {
        return format!("1 {one}");
    }
    match one.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'i', 'o', 'u']) => format!("{count} {stem}ies"),
        _ if one.ends_with(['s', 'x']) || one.ends_with("ch") => format!("{count} {one}es"),
        _ => format!("{count} {one}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn plural_depends_on_count() {
        let said = [(0, "block"), (1, "process"), (2, "process"), (3, "directory"), (4, "day")];
        let said = said.map(|(n, one)| counted(n, one));
        assert_eq!(said, ["0 blocks", "1 process", "2 processes", "3 directories", "4 days"]);
    }
}
