//! The congestion controls of this machine, as text and as JSON.

use crate::cc::{CongestionControl, Origin};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// A keyword for JSON, a phrase for text.
fn origin_words(origin: &Origin) -> (&'static str, String) {
    match origin {
        Origin::Kernel => ("kernel", "the kernel's".into()),
        Origin::Bpf => ("bpf", "registered through BPF now".into()),
        Origin::KernelOrBpf => ("available", "ready".into()),
        Origin::Module => ("module", "a kernel module, loaded on demand by root".into()),
        Origin::Supplied => ("supplied", "provided by Fathom on request (--load, or net's --cc)".into()),
        Origin::Missing(why) => ("missing", format!("missing: {why}")),
    }
}

/// As JSON.
pub fn json(known: &[CongestionControl]) -> Value {
    let one = |known: &CongestionControl| {
        let why = if let Origin::Missing(why) = &known.origin { Some(why) } else { None };
        json!({"name": known.name, "origin": origin_words(&known.origin).0, "missing_because": why})
    };
    json!({"version": 1, "congestion_controls": known.iter().map(one).collect::<Vec<_>>()})
}

/// As text, one line each.
pub fn text(known: &[CongestionControl]) -> String {
    let width = known.iter().map(|k| k.name.len()).max().unwrap_or(0);
    known.iter().fold(String::new(), |mut out, known| {
        let _ = writeln!(out, "{:width$}  {}", known.name, origin_words(&known.origin).1);
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_congestion_control_has_reason_in_both_forms() {
        let of = |name: &str, origin| CongestionControl { name: name.into(), origin };
        let known = [of("cubic", Origin::Kernel), of("bic", Origin::Missing("no BTF".into()))];
        assert_eq!(text(&known), "cubic  the kernel's\nbic    missing: no BTF\n");
        let all = &json(&known)["congestion_controls"];
        assert_eq!((&all[0]["missing_because"], &all[1]["missing_because"]), (&Value::Null, &json!("no BTF")));
        assert_eq!(all[1]["origin"], "missing");
    }
}
