//! Two devices that are measured with the same cells: which of SQLite's settings each has, and what makes the cells of both.

use crate::{Error, Result};
use analysis::bench::apart::Setting;
use model::Environment;

/// SQLite's settings that devices differ in, in the order in which they are changed.
pub const FACTORS: [&str; 2] = ["journal_mode", "synchronous"];

/// Whether each of `asked` is a setting that can be taken apart.
///
/// # Errors
/// One is not.
pub fn known(asked: &[(String, String)]) -> Result<()> {
    match asked.iter().find(|(name, _)| !FACTORS.contains(&name.as_str())) {
        Some((wrong, _)) => {
            Err(Error::Usage(format!("{wrong} is no setting that is taken apart: {}", FACTORS.join(", "))))
        }
        None => Ok(()),
    }
}

/// SQLite's settings on both: as asked for, as the device's facts say, or as its system comes.
pub fn settings(asked: [&[(String, String)]; 2], facts: [&Environment; 2]) -> Vec<Setting> {
    let of = |factor: &str| {
        let [(a, why_a), (b, why_b)] = [0, 1].map(|side| value(factor, asked[side], facts[side]));
        Setting { factor: factor.into(), a, b, source: format!("A: {why_a}; B: {why_b}") }
    };
    FACTORS.into_iter().map(of).collect()
}

/// A factor's value on a device, and how it is known.
fn value(factor: &str, asked: &[(String, String)], facts: &Environment) -> (String, String) {
    if let Some((_, value)) = asked.iter().find(|(name, _)| name == factor) {
        return (value.clone(), "as asked for".into());
    }
    let fact = facts.get(&format!("sqlite.{factor}"));
    if let Some(value) = fact.and_then(|f| f.value.as_deref()).filter(|v| !v.is_empty()) {
        return (value.to_lowercase(), fact.map_or_else(String::new, |f| f.source.clone()));
    }
    match (factor, facts.contains_key("os.sdk")) {
        // frameworks/base/core/res/res/values/config.xml: db_default_journal_mode, db_default_sync_mode.
        ("journal_mode", true) => ("truncate".into(), "assumed: AOSP's db_default_journal_mode".into()),
        (_, true) => ("full".into(), "assumed: AOSP's db_default_sync_mode".into()),
        ("journal_mode", false) => ("delete".into(), "SQLite's default".into()),
        (_, false) => ("full".into(), "SQLite's default".into()),
    }
}

/// The words of `fathom bench run` that make SQLite's cells of both devices.
pub fn cells(settings: &[Setting]) -> Vec<String> {
    let word = |s: &Setting| {
        let values = if s.a == s.b { s.a.clone() } else { format!("{},{}", s.a, s.b) };
        format!("--param=sqlite.{}={values}", s.factor)
    };
    settings.iter().map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Fact;

    #[test]
    fn setting_is_asked_for_or_known_or_assumed() {
        let asked = [("synchronous".to_owned(), "off".to_owned())];
        let mut phone = Environment::new();
        let fact = |value: &str| Fact {
            value: Some(value.into()),
            unknown: None,
            unit: None,
            source: "getprop".into(),
            varies: "boot".into(),
        };
        phone.insert("os.sdk".into(), fact("35"));
        let of = |facts: &Environment| {
            let all = settings([&[], &asked], [facts, &Environment::new()]);
            all.into_iter().map(|s| (s.a, s.b, s.source)).collect::<Vec<_>>()
        };
        let [(mode, pc_mode, _), (sync, pc_sync, why)] = &of(&phone)[..] else { panic!("two settings") };
        assert_eq!([mode, pc_mode, sync, pc_sync], ["truncate", "delete", "full", "off"]);
        assert!(why.contains("A: assumed") && why.contains("B: as asked for"), "{why}");
        phone.insert("sqlite.journal_mode".into(), fact("WAL"));
        assert_eq!(of(&phone)[0].0, "wal");
        assert!(known(&asked).is_ok() && known(&[("page_size".into(), "1".into())]).is_err());
    }

    #[test]
    fn cells_have_each_value_once() {
        let all = settings([&[], &[]], [&Environment::new(), &Environment::new()]);
        assert_eq!(cells(&all), ["--param=sqlite.journal_mode=delete", "--param=sqlite.synchronous=full"]);
        let other = [("journal_mode".to_owned(), "wal".to_owned())];
        let all = settings([&[], &other], [&Environment::new(), &Environment::new()]);
        assert_eq!(cells(&all)[0], "--param=sqlite.journal_mode=delete,wal");
    }
}
