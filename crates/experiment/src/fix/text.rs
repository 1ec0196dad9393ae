//! The results of the remedies, as text for people.

use super::contract::{FixOutcome, TriedRemedy};
use super::remedies::{Durability, Remedy};
use model::FindingCode;
use model::text::ShownPath as _;
use model::text::shown;

fn join_codes(codes: &[FindingCode]) -> String {
    codes.iter().map(|code| code.name()).collect::<Vec<_>>().join(", ")
}

pub fn text(fixed: &FixOutcome) -> String {
    let mut out = String::new();
    let mut line = |text: &str| {
        out.push_str(text.trim_end());
        out.push('\n');
    };
    if !fixed.findings.is_empty() {
        line(&format!("Findings that name remedies: {}", join_codes(&fixed.findings)));
    }
    if let Some(wall) = fixed.as_it_is_s {
        line(&format!("As it is: {} in the median, {} blocks", model::text::duration(wall * 1e9), fixed.blocks));
    }
    let row = |t: &TriedRemedy| {
        let ratio = t.ratio.map_or("-".into(), |r| format!("x {r:.3}"));
        let interval = t.ci95.map_or(String::new(), |[low, high]| format!("{low:.3} to {high:.3}"));
        let verdict = t.failure.as_ref().map_or_else(|| t.verdict.to_string(), |why| format!("failed: {}", shown(why)));
        format!("  {:<22} {ratio:>8}  {interval:<16} {verdict:<13}", t.remedy.name)
    };
    for (head, same) in [("Durability stays the same:", true), ("Durability is given up:", false)] {
        let of: Vec<&TriedRemedy> =
            fixed.tried.iter().filter(|t| (t.remedy.durability == Durability::Same) == same).collect();
        if of.is_empty() {
            continue;
        }
        line(&format!("\n{head}"));
        for t in of {
            line(&row(t));
            if !same {
                line(&format!("  {:<22} {}", "", t.remedy.gives_up));
            }
        }
    }
    if !fixed.not_tried.is_empty() {
        line("\nNot tried:");
        fixed.not_tried.iter().for_each(|one| line(&format!("  {:<22} {}", one.name, shown(&one.why))));
    }
    if let Some(control) = &fixed.control {
        let [low, high] = control.ci95;
        let noise = 100.0 * fixed.margin;
        line(&format!(
            "\nA/A control: x {:.3} ({low:.3} to {high:.3}); a verdict needs more than {noise:.1} %",
            control.ratio
        ));
    }
    if let Some(why) = &fixed.withheld {
        line(&format!("\nNo verdict: {why}"));
        return out;
    }
    match fixed.best() {
        Some(best) => {
            line(&format!("\nBest, with durability {}: {}", fixed.allowed.name(), best.name));
            describe_settings(best).iter().for_each(|setting| line(&format!("  {setting}")));
        }
        None if fixed.tried.iter().all(|tried| tried.ratio.is_none()) => {
            line("\nNo remedy was measured: none is known to be faster, or not to be.");
        }
        None if fixed.allowed < Durability::Corruption => {
            line("\nNo remedy whose durability is allowed is faster (--allow last-commits or corruption allows more).");
        }
        None => line("\nNo remedy is faster."),
    }
    out
}

/// Explains that nothing could be tried, and why.
pub fn untried(fixed: &FixOutcome) -> String {
    let head = match &fixed.findings[..] {
        [] => "No finding names a remedy.\n".to_owned(),
        codes => format!("Findings: {}; none of their remedies can be tried here.\n", join_codes(codes)),
    };
    fixed.not_tried.iter().fold(head, |text, one| text + &format!("  {}: {}\n", one.name, shown(&one.why)))
}

/// Lists remedies, with what each sets and gives up.
pub fn list(remedies: &[Remedy]) -> String {
    let one = |remedy: &Remedy| {
        let settings: String = describe_settings(remedy).iter().map(|setting| format!("  {setting}\n")).collect();
        format!("{}\n{settings}  gives up: {}\n", remedy.name, remedy.gives_up)
    };
    remedies.iter().map(one).collect()
}

/// Lists what to set, and where.
pub fn describe_settings(remedy: &Remedy) -> Vec<String> {
    let mut all = Vec::new();
    all.extend(remedy.persistent.iter().map(|sql| format!("once, in the database: {sql}")));
    all.extend(remedy.connection.iter().map(|sql| format!("in the program, after each open: {sql}")));
    all.extend(remedy.machine.iter().map(|(file, value)| format!("echo {value} > {}", file.shown())));
    all.extend(
        remedy.mount.iter().map(|(directory, option)| format!("mount -o remount,{option} {}", directory.shown())),
    );
    all
}
