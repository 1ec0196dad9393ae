//! Differences between two machines, or between two days of one: the first thing to check when two results differ.

use model::{Environment, Fact};
use serde::Serialize;
use std::collections::BTreeMap;

/// A fact that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FactDifference {
    /// Its name, such as `kernel.release`.
    pub fact: String,
    /// Its value in the first, or why it is unknown there.
    pub a: String,
    /// In the second.
    pub b: String,
    /// `device`, `boot` or `run`: the scope of the fact.
    pub varies: String,
}

/// Returns the facts that differ, those of the device first. A fact known in only one differs; one known in neither does not.
pub fn differing_facts(a: &Environment, b: &Environment) -> Vec<FactDifference> {
    let named = |facts: &Environment| -> BTreeMap<String, (String, bool, String)> {
        let said = |f: &Fact| match (&f.value, &f.unknown) {
            (Some(value), _) => (with_unit(value, f.unit.as_deref()), true, f.varies.clone()),
            (None, why) => (format!("unknown: {}", why.as_deref().unwrap_or("not read")), false, f.varies.clone()),
        };
        facts.iter().map(|(name, f)| (name.clone(), said(f))).collect()
    };
    let (a, b) = (named(a), named(b));
    let none = ("not read".to_string(), false, String::new());
    let names: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let mut all: Vec<FactDifference> = names
        .into_iter()
        .filter_map(|name| {
            let (x, y) = (a.get(name).unwrap_or(&none), b.get(name).unwrap_or(&none));
            let varies = if x.2.is_empty() { &y.2 } else { &x.2 };
            ((x.1 || y.1) && x.0 != y.0).then(|| FactDifference {
                fact: name.clone(),
                a: x.0.clone(),
                b: y.0.clone(),
                varies: varies.clone(),
            })
        })
        .collect();
    let rank = |d: &FactDifference| ["device", "boot", "run"].iter().position(|v| *v == d.varies).unwrap_or(3);
    all.sort_by_key(rank);
    all
}

fn with_unit(value: &str, unit: Option<&str>) -> String {
    match unit {
        Some(unit) if !unit.is_empty() => format!("{value} {unit}"),
        _ => value.into(),
    }
}

/// The facts that distinguish one unit from another. Two phones of one model differ by up to a fifth (Srinivasa et al.,
/// HotMobile 2017), so a result holds for the unit it was measured on.
const UNIT_FACTS: &[&str] = &["device.vendor", "device.model", "cpu.model", "cpu.online", "memory.total", "disk.model"];

/// Returns the scope of a comparison, as a sentence.
pub fn scope(a: &Environment, b: &Environment) -> String {
    let name = |facts: &Environment| {
        let value = |name: &str| facts.get(name).and_then(|f| f.value.clone());
        let parts: Vec<String> = ["device.model", "cpu.model"].iter().filter_map(|n| value(n)).collect();
        if parts.is_empty() { "an unknown machine".into() } else { parts.join(", ") }
    };
    if differing_facts(a, b).iter().any(|d| UNIT_FACTS.contains(&d.fact.as_str())) {
        format!(
            "The result holds for these two units only: one {} (A) and one {} (B). Units of the same model differ \
             too.",
            name(a),
            name(b)
        )
    } else {
        format!("The result holds for this unit only: one {}.", name(a))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(name: &str, value: Option<&str>, varies: &str) -> (String, Fact) {
        let fact = Fact {
            value: value.map(Into::into),
            unknown: value.is_none().then(|| "no such file".into()),
            unit: (name == "memory.total").then(|| "byte".into()),
            source: "x".into(),
            varies: varies.into(),
        };
        (name.into(), fact)
    }

    #[test]
    fn differing_facts_are_listed_those_of_the_device_first() {
        let a = Environment::from([
            fact("load.one_minute", Some("0.1"), "run"),
            fact("memory.total", Some("1"), "device"),
            fact("kernel.release", Some("6.1"), "boot"),
            fact("os.sdk", None, "device"),
            fact("cpu.governor", Some("x"), "boot"),
        ]);
        let b = Environment::from([
            fact("load.one_minute", Some("0.2"), "run"),
            fact("memory.total", Some("2"), "device"),
            fact("kernel.release", Some("6.1"), "boot"),
            fact("os.sdk", None, "device"),
        ]);
        let found: Vec<(String, String, String)> =
            differing_facts(&a, &b).into_iter().map(|d| (d.fact, d.a, d.b)).collect();
        let expected = [
            ("memory.total", "1 byte", "2 byte"),
            ("cpu.governor", "x", "not read"),
            ("load.one_minute", "0.1", "0.2"),
        ];
        assert_eq!(found, expected.map(|(f, a, b)| (f.to_string(), a.to_string(), b.to_string())));
        assert!(scope(&a, &b).starts_with("The result holds for these two units only"));
        assert!(scope(&a, &a).starts_with("The result holds for this unit only"));
    }
}
