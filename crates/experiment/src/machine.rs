//! Facts about the machine under a benchmark, and their differences when it is resumed later.

use model::Environment;
use std::path::PathBuf;

/// Returns facts about the machine, about what may be benchmarked on it, and about the storage under each directory. The
/// first directory's facts have plain names; with several, every directory's are also under `storage.NAME.`.
pub fn facts(dirs: &[(String, PathBuf)]) -> Environment {
    let path = |dir: &PathBuf| std::path::absolute(dir).ok().and_then(|p| p.to_str().map(ToString::to_string));
    let first = dirs.first().map_or_else(|| PathBuf::from("."), |(_, dir)| dir.clone());
    let mut all = device::collect(&device::Local, path(&first).as_deref());
    all.append(&mut device::versions(&device::Local));
    if dirs.len() > 1 {
        for (name, dir) in dirs {
            let under = device::storage(&device::Local, path(dir).as_deref().unwrap_or("/"));
            all.extend(under.into_iter().map(|(fact, value)| (format!("storage.{name}.{fact}"), value)));
        }
    }
    all
}

/// Describes what should be the same when a run is resumed, but is not, in a sentence.
pub fn differences(before: &Environment, now: &Environment) -> Option<String> {
    let lasting = now.iter().filter(|(_, fact)| fact.varies != "run");
    let changed = lasting.filter_map(|(name, fact)| {
        let old = before.get(name)?;
        let said = |f: &model::Fact| f.value.clone().unwrap_or_else(|| "unknown".into());
        (old.value != fact.value).then(|| format!("{name} was {} and is {}", said(old), said(fact)))
    });
    let all: Vec<String> = changed.collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// Describes whether a directory is on other storage than before, so that a run must not be resumed, in a sentence. Disks get other
/// names when a machine starts; their models and contents stay.
pub fn other_storage(before: &Environment, now: &Environment) -> Option<String> {
    let storage = |name: &str| {
        let own = name.strip_prefix("storage.").and_then(|rest| Some(rest.split_once('.')?.1)).unwrap_or(name);
        ["fs.type", "disk.model", "disk.size"].contains(&own)
    };
    let of = |all: &Environment| -> Environment {
        all.iter().filter(|(name, _)| storage(name)).map(|(name, fact)| (name.clone(), fact.clone())).collect()
    };
    differences(&of(before), &of(now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Fact;

    #[test]
    fn only_stable_facts_are_compared() {
        let fact = |value: &str, varies: &str| Fact {
            value: Some(value.into()),
            unknown: None,
            unit: None,
            source: String::new(),
            varies: varies.into(),
        };
        let of = |kernel: &str, load: &str| {
            Environment::from([
                ("kernel.release".to_string(), fact(kernel, "boot")),
                ("load".to_string(), fact(load, "run")),
            ])
        };
        assert_eq!(differences(&of("6.1", "0"), &of("6.1", "9")), None);
        assert_eq!(differences(&of("6.1", "0"), &of("6.2", "0")).unwrap(), "kernel.release was 6.1 and is 6.2");
        let of = |kernel: &str, kind: &str, name: &str| {
            Environment::from([
                ("kernel.release".to_string(), fact(kernel, "boot")),
                ("storage.card.fs.type".to_string(), fact(kind, "device")),
                ("storage.card.disk.name".to_string(), fact(name, "boot")),
            ])
        };
        assert_eq!(other_storage(&of("6.1", "vfat", "sda"), &of("6.2", "vfat", "sdb")), None);
        let other = other_storage(&of("6.1", "vfat", "sda"), &of("6.1", "ext4", "vda")).unwrap();
        assert_eq!(other, "storage.card.fs.type was vfat and is ext4");
    }
}
