//! The page's script: the modules of `web/src` as one.
//!
//! The files are ES modules, so that editors and linters understand them and each says what it needs. The page must be one
//! file, though, and a module inside it cannot be imported by name without `data:` URLs, which the page's policy would then
//! have to allow. So the modules are concatenated in the order of their dependencies, with their import lines left out and
//! `export` removed. That is sound as long as each import stands on one line and names only earlier modules, and no two
//! modules declare the same top-level name; the tests below hold both.

/// File name and text, each module after those it imports.
pub const MODULES: &[(&str, &str)] = &[
    ("format.js", include_str!("../../../web/src/format.js")),
    ("scale.js", include_str!("../../../web/src/scale.js")),
    ("data.js", include_str!("../../../web/src/data.js")),
    ("dom.js", include_str!("../../../web/src/dom.js")),
    ("theme.js", include_str!("../../../web/src/theme.js")),
    ("tip.js", include_str!("../../../web/src/tip.js")),
    ("lanes.js", include_str!("../../../web/src/lanes.js")),
    ("chain.js", include_str!("../../../web/src/chain.js")),
    ("timeline.js", include_str!("../../../web/src/timeline.js")),
    ("overview.js", include_str!("../../../web/src/overview.js")),
    ("gestures.js", include_str!("../../../web/src/gestures.js")),
    ("panel.js", include_str!("../../../web/src/panel.js")),
    ("scatter.js", include_str!("../../../web/src/scatter.js")),
    ("list.js", include_str!("../../../web/src/list.js")),
    ("tables.js", include_str!("../../../web/src/tables.js")),
    ("method.js", include_str!("../../../web/src/method.js")),
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

/// All modules as one script.
pub fn script(modules: &[(&str, &str)]) -> String {
    let mut script = String::from("'use strict';\n");
    for (name, text) in modules {
        script.push_str(&format!("// {name}\n"));
        for line in text.lines().filter(|line| !line.starts_with("import ")) {
            script.push_str(line.strip_prefix("export ").unwrap_or(line));
            script.push('\n');
        }
    }
    script
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Top-level names: declarations in the first column.
    fn declared(text: &str) -> Vec<&str> {
        text.lines()
            .map(|line| line.strip_prefix("export ").unwrap_or(line))
            .filter_map(|line| {
                ["const ", "let ", "function ", "function* ", "class "].iter().find_map(|k| line.strip_prefix(k))
            })
            .map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(rest))
            .collect()
    }

    #[test]
    fn modules_declare_distinct_names() {
        for modules in [MODULES, BENCH_MODULES] {
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
        for modules in [MODULES, BENCH_MODULES] {
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
    fn joined_script_has_no_module_syntax_and_no_end_tag() {
        for modules in [MODULES, BENCH_MODULES] {
            plain(&script(modules));
        }
    }

    fn plain(script: &str) {
        assert!(!script.lines().any(|line| line.starts_with("import ") || line.starts_with("export ")));
        assert!(!script.to_ascii_lowercase().contains("</script"));
        assert!(!script.contains("<!--"));
    }
}
