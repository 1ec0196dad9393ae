//! The JSON contracts: which fields `--json` of each verb has. What a verb printed is compared with `tests/contracts/VERB.txt`, and a field
//! that comes, goes or changes its name fails until the file says the same: then see whether `version` must rise, and describe the field in
//! docs/reference/json.md. FATHOM_ACCEPT=1 writes the files anew.
//!
//! Names only: other lanes compare the numbers with the truth. Names that are data (a disk's, a fact's) count as `*`. The lane `json` holds
//! most verbs; what needs a device, a guest, a link or `fathom-sql` is held by the lane that has one.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Objects whose names are data.
const MAPS: &[&str] = &[
    "by_disk",
    "calls",
    "counts",
    "disk",
    "disks",
    "environment",
    "facts",
    "filesystem_reads",
    "filesystem_writes",
    "inside",
    "kinds",
    "layers",
    "marks",
    "metrics",
    "needs",
    "parameters",
    "parts",
    "reasons",
    "request_sizes",
    "sizes",
    "sources",
    "times",
];

/// Objects that are as the machine is, and say so themselves.
const OPAQUE: &[&str] = &["gates"];

/// What was found in a document.
#[derive(Default)]
struct Found {
    /// The names of all fields, each once, with the way to it.
    fields: BTreeSet<String>,
    /// Ways to what is null or empty: what would stand below is not known.
    open: BTreeSet<String>,
}

impl Found {
    fn look(&mut self, value: &Value, way: &str, name: &str) {
        match value {
            Value::Object(object) if object.is_empty() => drop(self.open.insert(way.into())),
            Value::Object(object) => {
                let data = MAPS.contains(&name);
                for (name, value) in object.iter().filter(|_| !OPAQUE.contains(&name)) {
                    let way = format!("{way}.{}", if data { "*" } else { name });
                    self.fields.insert(way.clone());
                    self.look(value, &way, if data { "" } else { name });
                }
            }
            Value::Array(values) if values.is_empty() => drop(self.open.insert(way.into())),
            Value::Array(values) => values.iter().for_each(|value| self.look(value, &format!("{way}[]"), "")),
            Value::Null => drop(self.open.insert(way.into())),
            _ => {}
        }
    }

    fn is_open(&self, field: &str) -> bool {
        self.open.iter().any(|way| field.strip_prefix(way.as_str()).is_some_and(|rest| rest.starts_with(['.', '['])))
    }
}

/// Compares what a verb printed with its contract.
///
/// # Errors
/// A field came, went, or changed its name; or what was printed is no JSON.
pub fn hold_text(name: &str, printed: &str) -> Result<()> {
    hold(name, &serde_json::from_str(printed).with_context(|| format!("{name}: {printed}"))?)
}

/// The same of what is parsed already.
///
/// # Errors
/// A field came, went, or changed its name.
pub fn hold(name: &str, value: &Value) -> Result<()> {
    ensure!(value["version"].is_u64(), "{name} has no version: {value}");
    let mut found = Found::default();
    found.look(value, "", "");
    found.fields.insert(format!("version {}", value["version"]));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("contracts/{name}.txt"));
    if std::env::var_os("FATHOM_ACCEPT").is_some() {
        fs::write(&file, found.fields.iter().map(|field| format!("{field}\n")).collect::<String>())?;
    }
    let known = fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?;
    let known: BTreeSet<String> = known.lines().map(Into::into).collect();
    let new: Vec<_> = found.fields.difference(&known).collect();
    let gone: Vec<_> = known.difference(&found.fields).filter(|field| !found.is_open(field)).collect();
    ensure!(
        new.is_empty() && gone.is_empty(),
        "`{name}` has {new:?} and lacks {gone:?}; if that is meant, FATHOM_ACCEPT=1 writes {}",
        file.display()
    );
    Ok(())
}
