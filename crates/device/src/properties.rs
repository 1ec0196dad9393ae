//! Android's properties: the output of `getprop`, read once.

use crate::{Reader, RunError};
use std::collections::BTreeMap;

/// All properties that could be read.
pub(crate) struct Properties<'a> {
    reader: &'a dyn Reader,
    all: Result<BTreeMap<String, String>, RunError>,
}

/// Whether this is Android: only Android has this program. It can be run even where the directory cannot be listed.
pub(crate) fn is_android(reader: &dyn Reader) -> bool {
    match reader.list("/system/bin") {
        Ok(names) => names.iter().any(|n| n == "getprop"),
        Err(_) => reader.run(&["getprop"]).is_ok_and(|text| !parse(&text).is_empty()),
    }
}

impl<'a> Properties<'a> {
    /// Reads all properties of the device.
    pub fn read(reader: &'a dyn Reader) -> Self {
        Self { reader, all: reader.run(&["getprop"]).map(|text| parse(&text)) }
    }

    /// The value of a property; an error tells that it is not set, or why it is unknown.
    pub fn get(&self, name: &str) -> Result<String, String> {
        let value = match self.all.as_ref().map(|all| all.get(name).cloned()) {
            Ok(Some(value)) => value,
            Ok(None) => String::new(),
            Err(RunError::BeyondLimits(why)) => return Err(why.clone()),
            // A directory of files may have some of them separately.
            Err(_) => self.reader.run(&["getprop", name])?,
        };
        if value.trim().is_empty() { Err("not set".into()) } else { Ok(value.trim().into()) }
    }

    /// The first property of the list that is set, with its name.
    pub fn first(&self, names: &[&'static str]) -> (&'static str, Result<String, String>) {
        let found = names.iter().find_map(|name| self.get(name).ok().map(|value| (*name, Ok(value))));
        found.unwrap_or_else(|| {
            let name = names.first().copied().unwrap_or_default();
            (name, self.get(name))
        })
    }
}

/// Parses lines of `[name]: [value]`; a value may span several lines.
pub(crate) fn parse(text: &str) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut open: Option<(String, String)> = None;
    for line in text.lines().map(|l| l.trim_end_matches('\r')) {
        let begun = line.strip_prefix('[').and_then(|rest| rest.split_once("]: ["));
        let (name, value) = match (open.take(), begun) {
            (_, Some((name, value))) => (name.to_owned(), value.to_owned()),
            (Some((name, value)), None) => (name, format!("{value}\n{line}")),
            (None, None) => continue,
        };
        match value.strip_suffix(']') {
            Some(whole) => drop(all.insert(name, whole.to_owned())),
            None => open = Some((name, value)),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn properties_are_parsed_with_values_of_several_lines() {
        let text = "[ro.a]: [1]\r\n[ro.b]: []\nnoise\n[ro.c]: [x\ny]\n[ro.d]: [a]: [b]\n[ro.e]: [never ends\n";
        let all = parse(text);
        let get = |name: &str| all.get(name).map(String::as_str);
        assert_eq!((get("ro.a"), get("ro.b"), get("ro.c")), (Some("1"), Some(""), Some("x\ny")));
        assert_eq!((get("ro.d"), get("ro.e"), all.len()), (Some("a]: [b"), None, 4));
    }

    /// A tool that hangs, or never ends, would do so for each of some dozens of properties.
    #[test]
    fn tool_beyond_limits_is_asked_once() {
        struct Hanging(std::cell::Cell<u32>, RunError);
        impl Reader for Hanging {
            fn run(&self, _: &[&str]) -> Result<String, RunError> {
                self.0.set(self.0.get() + 1);
                Err(self.1.clone())
            }
            fn read(&self, _: &str) -> Result<String, String> {
                Err("no".into())
            }
            fn list(&self, _: &str) -> Result<Vec<String>, String> {
                Err("no".into())
            }
            fn canonical(&self, _: &str) -> Result<String, String> {
                Err("no".into())
            }
            fn identity(&self, _: &str) -> Result<(model::Dev, u64), String> {
                Err("no".into())
            }
        }
        // Whatever the sentence says.
        let why = "no answer within";
        for (error, asked) in [(RunError::BeyondLimits(why.into()), 1), (RunError::Failed(why.into()), 4)] {
            let reader = Hanging(0.into(), error.clone());
            let properties = Properties::read(&reader);
            assert_eq!(properties.get("a").unwrap_err(), why);
            assert!(properties.first(&["b"]).1.is_err());
            assert_eq!(reader.0.get(), asked, "{error:?}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_input_does_not_panic(text in "(\\[[a-z]{0,3}\\]: \\[.{0,5}\\]?\n?){0,4}.{0,20}") {
            parse(&text);
        }
    }
}
