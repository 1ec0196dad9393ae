//! The JSON contracts: the fields of each verb's `--json`. A verb's output is compared with `tests/contracts/VERB.txt`, and a field that is
//! added, removed or renamed fails until the file agrees: then check whether `version` must be raised, and describe the field in
//! docs/reference/json.md. FATHOM_ACCEPT=1 rewrites the files.
//!
//! Only names: other suites compare the numbers with the truth. Names that are data (a disk's, a fact's) count as `*`. The suite `json`
//! checks most verbs; those that need a device, a guest, a link or `fathom-sql` are checked by the suite that has one.
//!
//! A null, an empty list or an empty object does not show its possible content, and on another machine there is some: an event is lost, a
//! fact differs. So a contract describes it nevertheless: accepting keeps what the file has about such a field, and marks a field about
//! which nothing is known `: nothing seen`, which is refused until somebody has read the type and either written the fields below it or,
//! for a scalar or a list of scalars, removed the mark. A field that its object may lack (`skip_serializing_if`, a variant) ends with `?`.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Objects whose names are data.
const MAP_OBJECTS: &[&str] = &[
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
    "results",
    "sizes",
    "sources",
    "times",
];

/// Objects that depend on the machine, and describe themselves.
const OPAQUE_OBJECTS: &[&str] = &["gates"];

/// Marks a field whose content is unknown to a contract.
const NOTHING_SEEN_MARK: &str = ": nothing seen";

/// The fields found in a document.
#[derive(Default)]
struct DocumentFields {
    /// The paths of all fields, each once.
    fields: BTreeSet<String>,
    /// Paths of nulls and empty values: the fields below them are unknown.
    open: BTreeSet<String>,
    /// Fields that hold a scalar or a list with one.
    scalars: BTreeSet<String>,
}

impl DocumentFields {
    fn from_document(document: &Value) -> Self {
        let mut found = Self::default();
        found.look(document, "", "");
        found.fields.insert(format!("version {}", document["version"]));
        found
    }

    fn look(&mut self, value: &Value, way: &str, name: &str) {
        match value {
            _ if OPAQUE_OBJECTS.contains(&name) => drop(self.scalars.insert(way.into())),
            Value::Object(object) if object.is_empty() => drop(self.open.insert(way.into())),
            Value::Object(object) => {
                let data = MAP_OBJECTS.contains(&name);
                for (name, value) in object {
                    let way = format!("{way}.{}", if data { "*" } else { name });
                    self.fields.insert(way.clone());
                    self.look(value, &way, if data { "" } else { name });
                }
            }
            Value::Array(values) if values.is_empty() => drop(self.open.insert(way.into())),
            Value::Array(values) => values.iter().for_each(|value| self.look(value, &format!("{way}[]"), "")),
            Value::Null => drop(self.open.insert(way.into())),
            _ => drop(self.scalars.insert(way.trim_end_matches("[]").into())),
        }
    }

    /// Whether the field would be below something that is null or empty here.
    fn hides(&self, field: &str) -> bool {
        self.open.iter().any(|way| is_below(field, way))
    }
}

fn is_below(field: &str, way: &str) -> bool {
    field.strip_prefix(way).is_some_and(|rest| rest.starts_with(['.', '[']))
}

/// A contract as in its file.
#[derive(Debug, Default, PartialEq)]
struct Contract {
    fields: BTreeSet<String>,
    /// Fields that their object may lack.
    optional: BTreeSet<String>,
    /// Fields whose content was never seen.
    unknown: BTreeSet<String>,
}

impl Contract {
    fn parse(text: &str) -> Self {
        let mut contract = Self::default();
        for line in text.lines() {
            let (field, unknown) = line.strip_suffix(NOTHING_SEEN_MARK).map_or((line, false), |field| (field, true));
            let (field, optional) = field.strip_suffix('?').map_or((field, false), |field| (field, true));
            contract.fields.insert(field.into());
            if optional {
                contract.optional.insert(field.into());
            }
            if unknown {
                contract.unknown.insert(field.into());
            }
        }
        contract
    }

    fn text(&self) -> String {
        let line = |field: &String| {
            let optional = if self.optional.contains(field) { "?" } else { "" };
            let unknown = if self.unknown.contains(field) { NOTHING_SEEN_MARK } else { "" };
            format!("{field}{optional}{unknown}\n")
        };
        self.fields.iter().map(line).collect()
    }

    /// The fields that were found and, below null or empty values, those of the contract.
    fn accepted(&self, found: &DocumentFields) -> Self {
        let kept =
            |field: &&String| found.fields.contains(*field) || found.hides(field) || self.optional.contains(*field);
        let of = |fields: &BTreeSet<String>| fields.iter().filter(kept).cloned().collect::<BTreeSet<_>>();
        let fields: BTreeSet<String> = found.fields.union(&of(&self.fields)).cloned().collect();
        let is_unknown = |field: &&String| {
            let is_open = found.open.iter().any(|way| way.trim_end_matches("[]") == field.as_str());
            let known = self.fields.contains(*field) && !self.unknown.contains(*field);
            is_open && !known && !found.scalars.contains(*field) && !fields.iter().any(|other| is_below(other, field))
        };
        Self { unknown: fields.iter().filter(is_unknown).cloned().collect(), optional: of(&self.optional), fields }
    }

    /// Returns how a document violates the contract.
    fn failure(&self, found: &DocumentFields) -> Option<String> {
        let new: Vec<_> = found.fields.difference(&self.fields).collect();
        let missing = self.fields.difference(&found.fields);
        let gone: Vec<_> = missing.filter(|field| !found.hides(field) && !self.optional.contains(*field)).collect();
        if !new.is_empty() || !gone.is_empty() {
            return Some(format!(
                "has {new:?} and lacks {gone:?}; if that is meant, FATHOM_ACCEPT=1 writes the contract"
            ));
        }
        self.incomplete()
    }

    fn incomplete(&self) -> Option<String> {
        (!self.unknown.is_empty()).then(|| {
            format!(
                "has {:?}, which were null or empty when the contract was accepted: see what their types hold, write the fields below \
                 them, and take `{NOTHING_SEEN_MARK}` away",
                self.unknown
            )
        })
    }
}

/// Compares a verb's output with its contract.
///
/// # Errors
/// A field was added, removed or renamed; or the output is not JSON.
pub fn hold_text(name: &str, printed: &str) -> Result<()> {
    check_contract(name, &serde_json::from_str(printed).with_context(|| format!("{name}: {printed}"))?)
}

/// The same for a parsed document.
///
/// # Errors
/// A field was added, removed or renamed.
pub fn check_contract(name: &str, value: &Value) -> Result<()> {
    ensure!(value["version"].is_u64(), "{name} has no version: {value}");
    let found = DocumentFields::from_document(value);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("contracts/{name}.txt"));
    if std::env::var_os("FATHOM_ACCEPT").is_some() {
        let known = fs::read_to_string(&file).unwrap_or_default();
        fs::write(&file, Contract::parse(&known).accepted(&found).text())?;
    }
    let known = fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?;
    match Contract::parse(&known).failure(&found) {
        None => Ok(()),
        Some(why) => bail!("`{name}` ({}) {why}", file.display()),
    }
}

/// Refuses a contract with fields whose content is unknown.
pub fn check_documented(name: &str, contract: &str) -> Result<()> {
    match Contract::parse(contract).incomplete() {
        None => Ok(()),
        Some(why) => bail!("`{name}` {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn accepted(known: &str, document: &Value) -> String {
        Contract::parse(known).accepted(&DocumentFields::from_document(document)).text()
    }

    fn failure(known: &str, document: &Value) -> Option<String> {
        Contract::parse(known).failure(&DocumentFields::from_document(document))
    }

    #[test]
    fn empty_list_is_refused_until_its_content_is_described() {
        let empty = json!({"version": 1, "losses": [], "why": null, "names": ["a"], "pairs": [[], [1]]});
        let contract = accepted("", &empty);
        assert_eq!(contract, ".losses: nothing seen\n.names\n.pairs\n.version\n.why: nothing seen\nversion 1\n");
        let refused = failure(&contract, &empty).expect("what the lists hold is not known");
        assert!(refused.contains(".losses") && refused.contains(".why") && !refused.contains(".pairs"), "{refused}");
        assert!(check_documented("x", &contract).is_err(), "without the document too");
        let said = ".losses\n.losses[].source\n.names\n.pairs\n.version\n.why\nversion 1\n";
        assert_eq!(failure(said, &empty), None);
        assert_eq!(accepted(said, &empty), said, "accepting keeps what somebody said");
        let full = json!({"version": 1, "losses": [{"source": "ring"}], "why": "", "names": [], "pairs": []});
        assert_eq!(failure(said, &full), None, "the same on a machine that lost something");
        assert_eq!(accepted(&contract, &full), said, "seeing it says it too");
    }

    #[test]
    fn added_and_removed_fields_are_reported() {
        let contract = ".a\n.a[].b\n.a[].c?\n.version\nversion 1\n";
        assert_eq!(failure(contract, &json!({"version": 1, "a": [{"b": 1}]})), None, "an optional field may lack");
        assert_eq!(failure(contract, &json!({"version": 1, "a": [{"b": 1}, {"b": 1, "c": 1}]})), None);
        let gone = failure(contract, &json!({"version": 1, "a": [{"c": 1}]})).expect("`b` is gone");
        assert!(gone.contains("lacks [\".a[].b\"]"), "{gone}");
        let new = failure(contract, &json!({"version": 2, "a": [{"b": 1, "d": 1}]})).expect("`d` is new");
        assert!(new.contains(".a[].d") && new.contains("version 2"), "{new}");
        let rewritten = accepted(contract, &json!({"version": 2, "a": [{"d": 1}]}));
        assert_eq!(rewritten, ".a\n.a[].c?\n.a[].d\n.version\nversion 2\n");
    }

    #[test]
    fn names_that_are_data_count_as_one_field() {
        let document = json!({"version": 1, "disks": {"vda": {"size": 1}, "vdb": {"size": 2}}, "gates": {"load": {}}});
        assert_eq!(accepted("", &document), ".disks\n.disks.*\n.disks.*.size\n.gates\n.version\nversion 1\n");
    }
}
