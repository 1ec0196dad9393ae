//! What an emulated link did, beside what was measured over it: as lines, as JSON, for people, and in the archive. A link that was not
//! the one asked for takes the result back, since the number is then nobody's.

use super::link::{document, summary};
use ::net::link::schedule::{DOWN, UP};
use ::net::link::{Outcome, Spec};
use anyhow::{Context as _, Result};
use archive::runs::{Entry, Runs};
use archive::{RunsWriter, SignalCleanup};
use model::table::{MarkRow, Sample};
use serde_json::{Value, json};
use std::path::Path;

/// What a link told: metrics of a whole run, with their units.
fn metrics(spec: &Spec, outcome: &Outcome) -> Vec<(String, &'static str, f64)> {
    let (lateness, [low, high]) = (outcome.lateness(), outcome.effect(spec).rate);
    let late = |q| lateness.quantile(q) as f64 / 1e3;
    let mut all = vec![("link.late.p50".into(), "us", late(0.5)), ("link.late.p99".into(), "us", late(0.99))];
    all.extend([("link.effect.low".into(), "1", low), ("link.effect.high".into(), "1", high)]);
    for (d, way) in [(UP, "up"), (DOWN, "down")] {
        let c = &outcome.counts[d];
        let share = |n: u64| n as f64 / c.offered.max(1) as f64;
        all.push((format!("link.lost.{way}"), "1", share(c.lost)));
        all.push((format!("link.queue_full.{way}"), "1", share(c.dropped)));
        all.push((format!("link.queue_max.{way}"), "packet", c.queue_max as f64));
    }
    all
}

/// The run's lines with the link's, and whether the result counts.
pub fn with_link(said: &[String], spec: &Spec, outcome: &Outcome) -> (Vec<String>, bool) {
    let is_verdict = |line: &&String| line.starts_with('{') && parsed(line).get("verified").is_some();
    let verdict = said.iter().find(is_verdict).map(|line| parsed(line)).unwrap_or_default();
    let mut lines: Vec<String> = said.iter().filter(|l| !is_verdict(l)).cloned().collect();
    let figures = metrics(spec, outcome).into_iter();
    lines.extend(figures.map(|(name, unit, v)| json!({"metric": name, "unit": unit, "v": v}).to_string()));
    let own = verdict["within"].as_f64();
    lines.push(json!({"mark": "link", "text": document(spec, outcome, own, None).to_string()}).to_string());
    let invalid = outcome.invalid(spec, own);
    let by = verdict["by"].as_str().unwrap_or("the run reported no result");
    let by = match invalid.is_empty() {
        true => format!("{by}; lateness {}", late(spec, outcome)),
        false => format!("{by}; but {}", not_the_one(&invalid)),
    };
    let verified = invalid.is_empty() && verdict["verified"] == true;
    lines.push(json!({"verified": verified, "by": by}).to_string());
    (lines, verified)
}

/// How late packets were and what that did, in a few words.
fn late(spec: &Spec, outcome: &Outcome) -> String {
    let lateness = outcome.lateness();
    let us = |q| lateness.quantile(q) as f64 / 1e3;
    format!("p50 {:.0} us, p99 {:.0} us: {}", us(0.5), us(0.99), outcome.effect(spec).text())
}

/// Why a result does not count.
pub fn not_the_one(invalid: &[String]) -> String {
    format!("the link differed from what was requested: {}", invalid.join("; "))
}

pub fn parsed(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_default()
}

/// What a run of two devices printed, in whatever form, with the link's part of it. `own` is how far its interval reaches to either
/// side, as a share.
pub fn printed(said: &str, own: Option<f64>, form: Form, spec: &Spec, outcome: &Outcome) -> String {
    match form {
        Form::Text => format!("{said}{}", summary(spec, outcome, own)),
        Form::Lines => {
            let lines: Vec<String> = said.lines().map(str::to_string).collect();
            with_link(&lines, spec, outcome).0.join("\n") + "\n"
        }
        Form::Json => {
            let mut value = parsed(said);
            if !value.is_object() {
                return said.into();
            }
            let link = document(spec, outcome, own, None);
            let late = &link["lateness_us"];
            value["lateness_us"] = json!({"p50": late["p50"], "p99": late["p99"]});
            let invalid = outcome.invalid(spec, own);
            if !invalid.is_empty() {
                value["valid"] = false.into();
                let own = value["invalid"].as_str().map(str::to_string);
                value["invalid"] = own.into_iter().chain([not_the_one(&invalid)]).collect::<Vec<_>>().join("; ").into();
            }
            value["link"] = link;
            format!("{value:#}\n")
        }
    }
}

/// The form in which a run is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// For people.
    Text,
    /// A line of JSON a sample.
    Lines,
    /// One object.
    Json,
}

/// Adds the link to the archive of a run: its words to the factors, its figures to the samples and marks, and its verdict.
pub fn keep(archive: &Path, words: &str, spec: &Spec, outcome: &Outcome, own: Option<f64>) -> Result<()> {
    let mut runs = Runs::read(archive)?;
    for cell in &mut runs.cells {
        let mut factors = parsed(&cell.factors);
        factors["link"] = words.into();
        cell.factors = factors.to_string();
    }
    let invalid = outcome.invalid(spec, own);
    for run in &mut runs.runs {
        let replicate = Some(run.replicate.id);
        let figures = metrics(spec, outcome).into_iter();
        run.samples.extend(figures.map(|(metric, unit, value)| Sample {
            replicate,
            metric,
            unit: unit.into(),
            labels: String::new(),
            time_ns: None,
            value,
        }));
        let text = document(spec, outcome, own, None).to_string();
        run.marks.push(MarkRow { replicate, name: "link".into(), text });
        if !invalid.is_empty() {
            run.replicate.verified = Some(false);
            let own = run.replicate.failure.take();
            run.replicate.failure = Some(own.into_iter().chain([not_the_one(&invalid)]).collect::<Vec<_>>().join("; "));
        }
    }
    // The log is written once more, whole: a line of it cannot be changed. The folder is one that is still coming: if this fails it goes.
    let log = archive::runs::path(archive);
    std::fs::remove_file(&log).with_context(|| format!("rewriting {}", log.display()))?;
    rewrite(archive, runs)
}

fn rewrite(archive: &Path, runs: Runs) -> Result<()> {
    let mut writer = RunsWriter::create(archive)?;
    let machines = runs.machines.into_iter().map(Entry::Machine);
    let designs = runs.designs.into_iter().map(Entry::Design);
    let cells = runs.cells.into_iter().map(Entry::Cell);
    let all = runs.runs.into_iter().map(|run| Entry::Replicate(Box::new(run)));
    let marks = runs.marks.into_iter().map(Entry::Mark);
    for entry in machines.chain(designs).chain(cells).chain(all).chain(marks) {
        writer.push(entry)?;
    }
    let _cleanup = SignalCleanup::tables(archive)?;
    Ok(writer.runs().make_tables(archive)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::net::link::Way as OneWay;

    fn lines(run: &[&str], late_ns: u64) -> (Vec<String>, bool) {
        let spec = Spec::both(OneWay { delay_ns: 10_000_000, ..OneWay::default() });
        let mut outcome = Outcome::default();
        outcome.late.iter_mut().for_each(|way| way.record(0, (late_ns, late_ns), 0));
        outcome.passing_ns = 10_000_000_000;
        with_link(&run.iter().map(ToString::to_string).collect::<Vec<_>>(), &spec, &outcome)
    }

    #[test]
    fn run_over_late_link_has_no_score() {
        let run = [r#"{"metric":"throughput","unit":"bit/s","v":1}"#, r#"{"verified":true,"by":"7 counted"}"#];
        let verdict = |lines: &[String]| parsed(lines.last().unwrap());
        let (on_time, good) = lines(&run, 20_000);
        assert!(good && verdict(&on_time)["verified"] == true);
        assert!(verdict(&on_time)["by"].as_str().unwrap().starts_with("7 counted; "));
        assert_eq!(on_time.iter().filter(|l| l.contains("verified")).count(), 1);
        let (late, bad) = lines(&run, 700_000);
        assert!(!bad && verdict(&late)["by"].as_str().unwrap().contains("5 % are allowed"), "{late:?}");
        assert!(
            verdict(&on_time)["by"].as_str().unwrap().contains("p50 20 us, p99 20 us: effect on a rate -0.20 to"),
            "{on_time:?}"
        );
        // A late link matters little next to a wider confidence interval of the run itself.
        let wide = [run[0], r#"{"verified":true,"by":"7 counted","within":0.1}"#];
        assert!(lines(&wide, 700_000).1 && !lines(&wide, 7_000_000).1);
        // Whatever the link did, a run without output has no result.
        assert!(!lines(&[], 20_000).1);
        assert!(!lines(&[r#"{"verified":false,"by":"nothing arrived"}"#], 20_000).1);
    }

    #[test]
    fn json_run_has_lateness_and_verdict() {
        let spec = Spec::both(OneWay { delay_ns: 10_000_000, ..OneWay::default() });
        let run = r#"{"lateness_us":null,"valid":true,"invalid":null,"throughput_bps":{"estimate":5.0}}"#;
        let json = |late_ns| {
            let mut outcome = Outcome::default();
            outcome.late.iter_mut().for_each(|way| way.record(0, (late_ns, late_ns), 0));
            parsed(&printed(run, None, Form::Json, &spec, &outcome))
        };
        let good = json(20_000);
        assert!(
            good["valid"] == true && good["invalid"].is_null() && good["throughput_bps"]["estimate"] == 5.0,
            "{good}"
        );
        assert!(good["lateness_us"]["p99"].as_f64().is_some_and(|us| (19.0..21.0).contains(&us)), "{good}");
        assert_eq!(good["link"]["up"]["delay_ms"], 10.0);
        let late = json(700_000);
        assert!(late["valid"] == false && late["invalid"].as_str().unwrap().contains("5 % are allowed"), "{late}");
        // A failed run has no JSON object.
        assert_eq!(printed("", None, Form::Json, &spec, &Outcome::default()), "");
    }
}
