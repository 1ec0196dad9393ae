//! Output of facts about devices, and of commands left on one: as short text that is safe for a terminal, and as JSON.

use crate::check::Ability;
use crate::remote::adb::wire::ListedDevice;
use crate::remote::detached::Action;
use crate::remote::{check_usable, stop};
use model::text::shown;
use model::{Environment, Fact};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The maximum length of a displayed fact, characters.
const FACT_CHARS_MAX: usize = 1000;
/// The maximum width of the name column.
const NAME_WIDTH_MAX: usize = 44;

/// A line for each known fact, or for all facts if `all`.
pub fn facts(facts: &Environment, all: bool) -> String {
    let names = facts.iter().filter(|(_, f)| all || f.value.is_some()).map(|(n, _)| n.chars().count());
    let width = names.max().unwrap_or(0).min(NAME_WIDTH_MAX);
    facts.iter().filter_map(|(name, fact)| Some((name, fact_line(fact, all)?))).fold(
        String::new(),
        |mut out, (name, text)| {
            // Writing to a string does not fail.
            let _ = writeln!(out, "{:width$}  {text}", shown(name));
            out
        },
    )
}

fn fact_line(fact: &Fact, all: bool) -> Option<String> {
    let short = |text: &str| shown(&text.chars().take(FACT_CHARS_MAX).collect::<String>());
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

/// The device's name, and a line for each ability.
pub fn abilities(device: &str, facts: &Environment, table: &[Ability]) -> String {
    let fact = |name: &&str| facts.get(*name).and_then(|fact| fact.value.as_deref()).map(shown);
    let names = ["device.vendor", "device.model", "os.name", "kernel.release"];
    let mut out = format!("{device}: {}\n", names.iter().filter_map(fact).collect::<Vec<_>>().join(", "));
    let width = table.iter().map(|a| a.what.len()).max().unwrap_or(0);
    for Ability { what, can, why, remedy } in table {
        let _ = writeln!(out, "{what:width$}  {:7}  {}", can.name(), shown(why));
        if let Some(remedy) = remedy {
            let _ = writeln!(out, "{:width$}           {remedy}", "");
        }
    }
    out
}

/// The same as JSON.
pub fn abilities_json(device: &str, table: &[Ability]) -> Value {
    let row = |a: &Ability| json!({"what": a.what, "can": a.can.name(), "why": a.why, "remedy": a.remedy});
    json!({"version": 1, "device": device, "abilities": table.iter().map(row).collect::<Vec<_>>()})
}

/// This machine, and a line for each device of adb.
pub fn devices(listed: &[ListedDevice]) -> String {
    let names: Vec<String> = listed.iter().map(|d| format!("adb:{}", d.serial)).collect();
    let width = names.iter().map(String::len).max().unwrap_or(0).max(12);
    let mut out = format!("{:width$}  this machine\n", "local");
    for (name, device) in names.iter().zip(listed) {
        let _ = match check_usable(&device.state) {
            Ok(()) => writeln!(out, "{name:width$}  {}", device.get("model").unwrap_or("ready").replace('_', " ")),
            Err(why) => writeln!(out, "{name:width$}  {}: {why}", device.state),
        };
    }
    out
}

/// The same as JSON; `problem`: why adb lists nothing.
pub fn devices_json(listed: &[ListedDevice], problem: Option<&str>) -> Value {
    let of = |d: &ListedDevice| {
        let state = check_usable(&d.state);
        json!({"device": format!("adb:{}", d.serial), "state": d.state, "usable": state.is_ok(), "model": d.get("model"),
               "product": d.get("product"), "problem": state.err().map(|why| why.to_string())})
    };
    let local =
        json!({"device": "local", "state": "device", "usable": true, "model": null, "product": null, "problem": null});
    let all: Vec<_> = std::iter::once(local).chain(listed.iter().map(of)).collect();
    json!({"version": 1, "devices": all, "adb_problem": problem})
}

/// The maximum length of a displayed name, characters: it was not chosen by Fathom.
const LEFT_TEXT_CHARS_MAX: usize = 300;
/// The maximum width of the column of these names.
const LEFT_NAME_WIDTH_MAX: usize = 64;

/// A line for each command left on a device, with the action taken.
pub fn left_commands(document: &stop::Document) -> String {
    let short = |text: &str| shown(&text.chars().take(LEFT_TEXT_CHARS_MAX).collect::<String>());
    let device = short(&document.device);
    let mut out = String::new();
    if document.left.is_empty() {
        let _ = writeln!(out, "{device}: nothing was left there");
    }
    let width = document.left.iter().map(|l| l.name.chars().count().min(LEFT_NAME_WIDTH_MAX)).max().unwrap_or(0);
    for left in &document.left {
        let [name, kind, state, command] = [&left.name, &left.kind, &left.state, &left.command].map(|text| short(text));
        let action = left.action.name();
        let _ = writeln!(out, "{name:width$}  {kind:7}  {state:8}  {action:8}  {command}");
        if let Some(problem) = &left.problem {
            let _ = writeln!(out, "{:width$}  {}", "", short(problem));
        }
        if left.action == Action::Kept {
            let _ = writeln!(out, "{:width$}  fetch it: fathom device fetch {device} {name}", "");
        }
    }
    if document.program_removed == Some(true) {
        let _ = writeln!(out, "{device}: the program was removed");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_listed_device_has_a_line_and_a_reason() {
        let listed = crate::remote::adb::wire::parse_devices("R58\tdevice model:SM_A41\n192.0.2.3:5555\toffline\n");
        let text = devices(&listed);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..2], ["local               this machine", "adb:R58             SM A41"]);
        assert!(lines[2].starts_with("adb:192.0.2.3:5555  offline: it does not answer"), "{text}");
        let value = devices_json(&listed, Some("no adb"));
        assert_eq!((value["devices"].as_array().unwrap().len(), &value["adb_problem"]), (3, &json!("no adb")));
        assert_eq!(value["devices"][2]["usable"], false);
        assert!(value["devices"][2]["problem"].as_str().unwrap().contains("adb reconnect"));
    }

    #[test]
    fn kept_results_are_shown_with_the_command_to_fetch_them() {
        let one = crate::remote::detached::LeftCommand {
            name: "run-1".into(),
            kind: "run".into(),
            command: "bench run \u{1b}[2J".into(),
            state: "ended".into(),
            since_s: None,
            bytes: 5,
            action: Action::Kept,
            problem: None,
        };
        let document = |left| stop::Document { version: 1, device: "adb:X".into(), left, program_removed: Some(true) };
        let text = left_commands(&document(vec![one]));
        assert!(text.contains("fathom device fetch adb:X run-1\n") && !text.contains('\u{1b}'), "{text}");
        assert_eq!(left_commands(&document(vec![])), "adb:X: nothing was left there\nadb:X: the program was removed\n");
    }

    #[test]
    fn facts_are_shown_short_and_harmless() {
        let fact = |value: &str, unit: Option<&str>| Fact {
            value: Some(value.into()),
            unknown: None,
            unit: unit.map(Into::into),
            source: "s".into(),
            varies: "run".into(),
        };
        assert_eq!(fact_line(&fact("8053063680", Some("B")), false).as_deref(), Some("7680.0 MiB"));
        assert_eq!(fact_line(&fact("128000000000", Some("B")), false).as_deref(), Some("119.2 GiB"));
        assert_eq!(fact_line(&fact("12", Some("%")), true).as_deref(), Some("12 %  [s]"));
        assert!(!fact_line(&fact("\u{1b}[2J", None), false).unwrap().contains('\u{1b}'));
        assert!(fact_line(&fact(&"x".repeat(100_000), None), false).unwrap().len() <= FACT_CHARS_MAX);
        let unknown = Fact { value: None, unknown: Some("no".into()), ..fact("", None) };
        assert_eq!(
            (fact_line(&unknown, false), fact_line(&unknown, true).as_deref()),
            (None, Some("unknown: no  [s]"))
        );
    }
}
