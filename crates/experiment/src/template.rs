//! Expands words of a design to words of a command: `{name}` is a variable, `@name` a list.

use std::collections::BTreeMap;

/// Expands lists and replaces variables. An error names the unknown variable.
pub fn expand(
    words: &[String],
    lists: &BTreeMap<String, Vec<String>>,
    variables: &BTreeMap<String, String>,
) -> Result<Vec<String>, String> {
    let mut expanded = Vec::with_capacity(words.len());
    for word in words {
        match word.strip_prefix('@').and_then(|name| lists.get(name)) {
            Some(list) => {
                for word in list {
                    expanded.push(replace_variables(word, variables)?);
                }
            }
            None => expanded.push(replace_variables(word, variables)?),
        }
    }
    Ok(expanded)
}

/// Replaces the known variables in a word, whatever characters their names have, and leaves the others unchanged. A value is literal,
/// even if it contains another variable's name in braces.
pub fn fill(word: &str, variables: &BTreeMap<String, String>) -> String {
    let (mut filled, mut rest) = (String::with_capacity(word.len()), word);
    while let Some(open) = rest.find('{') {
        let inside = &rest[open + 1..];
        let known = variables.iter().find_map(|(name, value)| {
            let after = inside.strip_prefix(name.as_str())?.strip_prefix('}')?;
            Some((value.as_str(), after))
        });
        let (put, after) = known.unwrap_or(("{", inside));
        filled.push_str(&rest[..open]);
        filled.push_str(put);
        rest = after;
    }
    filled + rest
}

/// Yields the names of the variables in a word.
pub fn placeholders(word: &str) -> impl Iterator<Item = &str> {
    word.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name).filter(|name| is_name(name))
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
}

/// Only `{` followed by small letters and `}` is a variable, so that braces of shells and of JSON are unchanged.
fn replace_variables(word: &str, variables: &BTreeMap<String, String>) -> Result<String, String> {
    let mut result = String::with_capacity(word.len());
    let mut rest = word;
    while let Some(open) = rest.find('{') {
        result.push_str(&rest[..open]);
        rest = &rest[open + 1..];
        let name = rest.split('}').next().filter(|n| n.len() < rest.len());
        match name.filter(|n| is_name(n)) {
            Some(name) => {
                let value = variables.get(name);
                result.push_str(value.ok_or_else(|| format!("unknown variable {{{name}}}"))?);
                rest = &rest[name.len() + 1..];
            }
            None => result.push('{'),
        }
    }
    result.push_str(rest);
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_and_lists_are_expanded_and_other_braces_kept() {
        let lists = BTreeMap::from([("load".to_string(), vec!["w".to_string(), "--dir={disk}/x".into()])]);
        let variables = BTreeMap::from([("disk".to_string(), "/a b".to_string())]);
        let expand = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            super::expand(&words, &lists, &variables)
        };
        assert_eq!(expand(&["t", "@load", "@other"]).unwrap(), ["t", "w", "--dir=/a b/x", "@other"]);
        assert_eq!(expand(&[r#"printf '{"v":{}}' ${HOME} {"#]).unwrap(), [r#"printf '{"v":{}}' ${HOME} {"#]);
        assert_eq!(expand(&["{speed}"]), Err("unknown variable {speed}".into()));
    }

    #[test]
    fn value_that_names_another_variable_is_literal() {
        let variables =
            [("A", "{B}"), ("B", "{C}{A}"), ("C", "c"), ("a b", "{")].map(|(name, value)| (name.into(), value.into()));
        let variables = BTreeMap::from(variables);
        assert_eq!(fill("{A} {B} {C} {a b} {D} {{C} {C {} }{", &variables), "{B} {C}{A} c { {D} {c {C {} }{");
        assert_eq!((fill("", &variables).as_str(), fill("{A}", &BTreeMap::new()).as_str()), ("", "{A}"));
    }
}
