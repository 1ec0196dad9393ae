//! What is known of a device, for people: short, and harmless to a terminal.

use model::text::shown;
use model::{Environment, Fact};
use std::fmt::Write as _;

/// A fact is not longer when it is shown, characters.
const LONGEST: usize = 1000;
/// Names are not longer than the column for them.
const WIDEST: usize = 44;

/// A line for each fact that is known, or for `all`.
pub fn facts(facts: &Environment, all: bool) -> String {
    let names = facts.iter().filter(|(_, f)| all || f.value.is_some()).map(|(n, _)| n.chars().count());
    let width = names.max().unwrap_or(0).min(WIDEST);
    facts.iter().filter_map(|(name, fact)| Some((name, line(fact, all)?))).fold(
        String::new(),
        |mut out, (name, text)| {
            // Writing to a string does not fail.
            let _ = writeln!(out, "{:width$}  {text}", shown(name));
            out
        },
    )
}

fn line(fact: &Fact, all: bool) -> Option<String> {
    let short = |text: &str| shown(&text.chars().take(LONGEST).collect::<String>());
    let source = || if all { format!("  [{}]", short(&fact.source)) } else { String::new() };
    match (&fact.value, &fact.unknown) {
        (Some(value), _) => {
            let unit = fact.unit.as_deref().unwrap_or_default();
            let value =
                if unit == "B" { bytes(value) } else { format!("{} {unit}", short(value)).trim_end().to_owned() };
            Some(value + &source())
        }
        (None, why) => all.then(|| format!("unknown: {}{}", short(why.as_deref().unwrap_or("no reason")), source())),
    }
}

fn bytes(value: &str) -> String {
    match value.parse::<u64>() {
        Ok(n) if n >= 10 << 30 => format!("{:.1} GiB", n as f64 / (1_u64 << 30) as f64),
        Ok(n) if n >= 10 << 20 => format!("{:.1} MiB", n as f64 / (1_u64 << 20) as f64),
        _ => format!("{value} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_shown_short_and_harmless() {
        let fact = |value: &str, unit: Option<&str>| Fact {
            value: Some(value.into()),
            unknown: None,
            unit: unit.map(Into::into),
            source: "s".into(),
            varies: "run".into(),
        };
        assert_eq!(line(&fact("8053063680", Some("B")), false).as_deref(), Some("7680.0 MiB"));
        assert_eq!(line(&fact("128000000000", Some("B")), false).as_deref(), Some("119.2 GiB"));
        assert_eq!(line(&fact("12", Some("%")), true).as_deref(), Some("12 %  [s]"));
        assert!(!line(&fact("\u{1b}[2J", None), false).unwrap().contains('\u{1b}'));
        assert!(line(&fact(&"x".repeat(100_000), None), false).unwrap().len() <= LONGEST);
        let unknown = Fact { value: None, unknown: Some("no".into()), ..fact("", None) };
        assert_eq!((line(&unknown, false), line(&unknown, true).as_deref()), (None, Some("unknown: no  [s]")));
    }
}
