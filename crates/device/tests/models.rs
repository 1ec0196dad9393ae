//! Facts of real models, from public sources: `fixtures/models`, each with its source. Every fact is known or contains a
//! reason, whatever is missing.

use device::check::abilities;
use device::{Fixture, Reader as _, all_facts};
use std::path::{Path, PathBuf};

fn models() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/models");
    let mut all: Vec<PathBuf> = std::fs::read_dir(directory).unwrap().map(|e| e.unwrap().path()).collect();
    all.sort();
    all
}

/// One line for each: the row in a table of devices.
#[test]
fn models_are_recognised() {
    let mut lines = Vec::new();
    for directory in models() {
        let facts = all_facts(&Fixture::new(&directory));
        for (name, fact) in &facts {
            assert!(fact.value.is_some() != fact.unknown.is_some(), "{}: {name}: {fact:?}", directory.display());
        }
        let known = |name: &str| facts.get(name).and_then(|f| f.value.clone()).unwrap_or_else(|| "?".into());
        let names = ["device.model", "os.name", "device.soc", "kernel.release", "cpu.clusters", "thermal.status"];
        let name = directory.file_name().unwrap().to_string_lossy().into_owned();
        lines.push(format!("{name}: {}", names.map(known).join(" | ")));
        let rows = abilities(&facts);
        assert!(rows.iter().all(|r| !r.why.is_empty()), "{name}");
    }
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn every_model_names_its_public_source() {
    let all = models();
    assert!(all.len() >= 12, "{}", all.len());
    for directory in all {
        let source = std::fs::read_to_string(directory.join("SOURCE")).unwrap();
        assert!(
            source.contains("From https://") && source.contains("Partial") && source.contains("Not in the source:"),
            "{source}"
        );
        // Data that identifies an owner's device is not stored.
        let properties = Fixture::new(&directory).run(&["getprop"]).unwrap_or_default();
        assert!(!properties.contains("serialno") && !properties.contains("imei"), "{}", directory.display());
    }
}
