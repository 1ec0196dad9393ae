//! No two C files of a directory include each other, not even by way of others: with include guards the second sees only half of the first.
//!
//! A use without an include is not seen here. Each header of `inside/object` compiles alone (`crates/inside/tests/headers.rs`), so those
//! include all that they use.

use super::circles::circles_among;
use crate::source::File;
use std::collections::{BTreeMap, BTreeSet};

/// The C files that include each other.
pub fn offences(files: &[File]) -> Vec<String> {
    let is_c = |file: &&File| [".h", ".c"].iter().any(|ending| file.path.ends_with(ending));
    let uses: BTreeMap<&str, BTreeSet<&str>> =
        files.iter().filter(is_c).map(|file| (&*file.path, BTreeSet::new())).collect();
    let uses = files.iter().filter(is_c).map(|file| {
        let included = included_paths(file).filter_map(|path| uses.get_key_value(&*path).map(|(path, _)| *path));
        (&*file.path, included.collect())
    });
    let list = |circle: BTreeSet<&str>| circle.into_iter().collect::<Vec<_>>().join(", ");
    circles_among(uses.collect())
        .into_iter()
        .map(|circle| format!("{}: C files include each other", list(circle)))
        .collect()
}

/// What a C file includes in quotes: the names are relative to its directory.
fn included_paths(file: &File) -> impl Iterator<Item = String> {
    let directory = file.path.rsplit_once('/').map_or("", |(directory, _)| directory);
    file.text.lines().filter_map(move |line| {
        let name = line
            .trim_start()
            .strip_prefix('#')?
            .trim_start()
            .strip_prefix("include")?
            .trim_start()
            .strip_prefix('"')?;
        Some(format!("{directory}/{}", name.split('"').next()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offences_of(files: &[(&str, &str)]) -> Vec<String> {
        let file = |(name, text): &(&str, &str)| File { path: format!("crates/x/object/{name}"), text: (*text).into() };
        offences(&files.iter().map(file).collect::<Vec<_>>())
    }

    #[test]
    fn headers_that_include_each_other_are_an_offence() {
        let (top, system) = (("x.c", "#include \"a.h\"\n#include \"b.h\"\n"), ("b.h", "#include <stddef.h>\n"));
        assert_eq!(offences_of(&[top, ("a.h", "#include \"b.h\"\n"), system]), [""; 0]);
        let middle = ("b.h", "int b;\n#if X\n# include \"c.h\"\n#endif\n");
        assert_eq!(
            offences_of(&[top, ("a.h", "#include \"b.h\"\n"), middle, ("c.h", "#include \"a.h\" /* why */\n")]),
            ["crates/x/object/a.h, crates/x/object/b.h, crates/x/object/c.h: C files include each other"]
        );
        assert_eq!(offences_of(&[("a.h", "#include \"a.h\"\n")]).len(), 1);
    }

    #[test]
    fn headers_of_other_directories_are_not_the_same() {
        let other = File { path: "crates/y/object/b.h".into(), text: "#include \"a.h\"\n".into() };
        let own = File { path: "crates/x/object/a.h".into(), text: "#include \"b.h\"\n".into() };
        assert_eq!(offences(&[other, own]), [""; 0]);
    }
}
