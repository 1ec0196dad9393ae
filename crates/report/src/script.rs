//! The page's script: the modules of `web/src` combined into one.
//!
//! The files are ES modules, so that editors and linters understand them and each declares its dependencies. The page must
//! be one file, though, and a module inside it cannot be imported by name without `data:` URLs, which the page's policy
//! would then have to allow. So the modules are concatenated in the order of their dependencies, with their import lines
//! left out and `export` removed. This is correct as long as each import is on one line and names only earlier modules, and
//! no two modules declare the same top-level name; the tests below verify both.
//!
//! Types are in JSDoc tags, which only the type checker reads: they are left out too, while the text of comments stays.

/// File name and text, each module after those that it imports.
pub const SCRIPT_MODULES: &[(&str, &str)] = &[
    ("format.js", include_str!("../../../web/src/format.js")),
    ("scale.js", include_str!("../../../web/src/scale.js")),
    ("unpack.js", include_str!("../../../web/src/unpack.js")),
    ("data.js", include_str!("../../../web/src/data.js")),
    ("parts.js", include_str!("../../../web/src/parts.js")),
    ("dom.js", include_str!("../../../web/src/dom.js")),
    ("theme.js", include_str!("../../../web/src/theme.js")),
    ("tip.js", include_str!("../../../web/src/tip.js")),
    ("lanes.js", include_str!("../../../web/src/lanes.js")),
    ("chain.js", include_str!("../../../web/src/chain.js")),
    ("timeline.js", include_str!("../../../web/src/timeline.js")),
    ("overview.js", include_str!("../../../web/src/overview.js")),
    ("gestures.js", include_str!("../../../web/src/gestures.js")),
    ("panel.js", include_str!("../../../web/src/panel.js")),
    ("beside.js", include_str!("../../../web/src/beside.js")),
    ("scatter.js", include_str!("../../../web/src/scatter.js")),
    ("search.js", include_str!("../../../web/src/search.js")),
    ("list.js", include_str!("../../../web/src/list.js")),
    ("times.js", include_str!("../../../web/src/times.js")),
    ("tables.js", include_str!("../../../web/src/tables.js")),
    ("findings.js", include_str!("../../../web/src/findings.js")),
    ("difference.js", include_str!("../../../web/src/difference.js")),
    ("method.js", include_str!("../../../web/src/method.js")),
    ("plot.js", include_str!("../../../web/src/plot.js")),
    ("flows.js", include_str!("../../../web/src/flows.js")),
    ("together.js", include_str!("../../../web/src/together.js")),
    ("main.js", include_str!("../../../web/src/main.js")),
];

/// The modules of a benchmark's page, likewise.
pub const BENCH_MODULES: &[(&str, &str)] = &[
    ("format.js", include_str!("../../../web/src/format.js")),
    ("scale.js", include_str!("../../../web/src/scale.js")),
    ("dom.js", include_str!("../../../web/src/dom.js")),
    ("theme.js", include_str!("../../../web/src/theme.js")),
    ("tip.js", include_str!("../../../web/src/tip.js")),
    ("plot.js", include_str!("../../../web/src/plot.js")),
    ("bars.js", include_str!("../../../web/src/bars.js")),
    ("lines.js", include_str!("../../../web/src/lines.js")),
    ("curves.js", include_str!("../../../web/src/curves.js")),
    ("flows.js", include_str!("../../../web/src/flows.js")),
    ("words.js", include_str!("../../../web/src/words.js")),
    ("bench.js", include_str!("../../../web/src/bench.js")),
];

/// Combines all modules into one script.
pub fn join_modules(modules: &[(&str, &str)]) -> String {
    let mut script = String::from("'use strict';\n");
    for (name, text) in modules {
        script.push_str(&format!("// {name}\n"));
        for line in strip_types(text).into_iter().filter(|line| !line.starts_with("import ")) {
            script.push_str(line.strip_prefix("export ").unwrap_or(line));
            script.push('\n');
        }
    }
    script
}

/// Returns the lines without the tags of JSDoc comments, from the first tag of a comment to its end. Affects only comments
/// on lines of their own: a cast inside an expression stays.
fn strip_types(text: &str) -> Vec<&str> {
    let mut kept = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let begins = line.trim_start().starts_with("/**");
        if !begins || line.contains("*/") {
            if !(line.trim_start().starts_with("/** @") && line.ends_with("*/")) {
                kept.push(line);
            }
            continue;
        }
        let mut said = vec![line];
        let mut tagged = line.trim_start().starts_with("/** @");
        for line in lines.by_ref() {
            tagged |= line.trim_start().starts_with("* @");
            if line.contains("*/") {
                said.push(line);
                break;
            }
            if !tagged {
                said.push(line);
            }
        }
        // Only its first and last line are left: all of it was types.
        if !(tagged && said.len() <= 2) {
            kept.append(&mut said);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Returns top-level names: declarations in the first column.
    fn declared(text: &str) -> Vec<&str> {
        text.lines()
            .map(|line| line.strip_prefix("export ").unwrap_or(line))
            .filter_map(|line| {
                ["const ", "let ", "function ", "async function ", "function* ", "async function* ", "class "]
                    .iter()
                    .find_map(|k| line.strip_prefix(k))
            })
            .map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(rest))
            .collect()
    }

    #[test]
    fn modules_declare_distinct_names() {
        for modules in [SCRIPT_MODULES, BENCH_MODULES] {
            distinct(modules);
        }
    }

    fn distinct(modules: &[(&str, &str)]) {
        let mut seen = BTreeMap::new();
        for (file, text) in modules {
            for name in declared(text) {
                assert!(!name.is_empty(), "{file}: a top-level pattern cannot be checked; declare names one by one");
                if let Some(other) = seen.insert(name, file) {
                    panic!("{name} is declared in {other} and in {file}");
                }
            }
        }
    }

    #[test]
    fn imports_name_exports_of_earlier_modules() {
        for modules in [SCRIPT_MODULES, BENCH_MODULES] {
            resolved(modules);
        }
    }

    fn resolved(modules: &[(&str, &str)]) {
        let mut exports: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (file, text) in modules {
            for line in text.lines().filter(|line| line.starts_with("import ")) {
                let (names, from) = line
                    .strip_prefix("import { ")
                    .and_then(|rest| rest.strip_suffix("';"))
                    .and_then(|rest| rest.split_once(" } from './"))
                    .unwrap_or_else(|| panic!("{file}: write {line:?} as import {{ a, b }} from './x.js';"));
                let offered =
                    exports.get(from).unwrap_or_else(|| panic!("{file} imports {from}, which is not before it"));
                for name in names.split(", ") {
                    assert!(offered.contains(&name), "{file} imports {name}, which {from} does not export");
                }
            }
            let exported: Vec<_> = text.lines().filter(|line| line.starts_with("export ")).flat_map(declared).collect();
            exports.insert(file, exported);
        }
    }

    #[test]
    fn types_are_stripped_and_other_words_stay() {
        let text = "/** @type {Map<string, number>} */\nconst a = 1;\n/**\n * Said.\n * @param {number} b of a\n *   kind\n */\n\
                    /**\n * @returns {number}\n */\n/** Said too. */\nconst c = /** @type {D} */ (d);\n/** Of\n * two. */";
        assert_eq!(
            strip_types(text),
            [
                "const a = 1;",
                "/**",
                " * Said.",
                " */",
                "/** Said too. */",
                "const c = /** @type {D} */ (d);",
                "/** Of",
                " * two. */"
            ]
        );
        for modules in [SCRIPT_MODULES, BENCH_MODULES] {
            for line in join_modules(modules).lines() {
                assert!(!line.trim_start().starts_with("* @") && !line.trim_start().starts_with("/** @"), "{line}");
            }
        }
    }

    #[test]
    fn joined_script_has_no_module_syntax_and_no_end_tag() {
        for modules in [SCRIPT_MODULES, BENCH_MODULES] {
            plain(&join_modules(modules));
        }
    }

    fn plain(script: &str) {
        assert!(!script.lines().any(|line| line.starts_with("import ") || line.starts_with("export ")));
        assert!(!script.to_ascii_lowercase().contains("</script"));
        assert!(!script.contains("<!--"));
    }
}
