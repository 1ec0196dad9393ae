//! One metric has one unit in a design, whatever its processes print: 2000 us and 2 ms give a ratio of 1, not of 1000.
//!
//! Times are converted. Other units cannot be, and the process fails.

use crate::process::Line;

/// Returns the nanoseconds in a unit of time.
fn unit_nanoseconds(unit: &str) -> Option<f64> {
    match unit {
        "ns" => Some(1.0),
        "us" | "µs" => Some(1e3),
        "ms" => Some(1e6),
        "s" => Some(1e9),
        _ => None,
    }
}

/// Returns the unit that a score of `declared` expects of its metric, if both are times: one with `ms` and the factor 1e-6
/// expects `ns`. `None` if the scale changes the quantity.
pub(crate) fn expected_unit(declared: &str, scale: f64) -> Option<&'static str> {
    let wanted = unit_nanoseconds(declared)? * scale;
    let is = |unit: &&&str| unit_nanoseconds(unit).is_some_and(|ns| (wanted / ns - 1.0).abs() < 1e-9);
    ["ns", "us", "ms", "s"].iter().find(is).copied()
}

/// Converts the values of `metric` to the unit `wanted_unit`; to the first printed one, if that is `None`.
///
/// # Errors
/// The unit that cannot be converted, as a sentence about the process.
pub(crate) fn unify_units(lines: &mut [Line], metric: &str, wanted_unit: Option<&str>) -> Result<(), String> {
    let mut lines = lines.iter_mut().filter(|line| line.metric == metric).peekable();
    let Some(wanted) = wanted_unit.map(String::from).or_else(|| lines.peek().map(|line| line.unit.clone())) else {
        return Ok(());
    };
    for line in lines.filter(|line| line.unit != wanted) {
        let (Some(from), Some(to)) = (unit_nanoseconds(&line.unit), unit_nanoseconds(&wanted)) else {
            return Err(format!("it printed {metric} in {:?}, but its unit is {wanted:?}", line.unit));
        };
        line.v *= from / to;
        line.unit.clone_from(&wanted);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(printed: &[(&str, f64, &str)]) -> Vec<Line> {
        let line = |(metric, v, unit): &(&str, f64, &str)| Line {
            metric: (*metric).into(),
            unit: (*unit).into(),
            t: None,
            v: *v,
            labels: String::new(),
        };
        printed.iter().map(line).collect()
    }

    #[test]
    fn durations_in_any_unit_are_unified() {
        let mut printed = lines(&[("x", 2_000_000.0, "ns"), ("x", 2.0, "ms"), ("y", 3.0, "row"), ("x", 0.002, "s")]);
        unify_units(&mut printed, "x", None).expect("all are times");
        let all: Vec<(f64, &str)> = printed.iter().map(|l| (l.v, l.unit.as_str())).collect();
        assert_eq!(all, [(2e6, "ns"), (2e6, "ns"), (3.0, "row"), (2e6, "ns")]);
        unify_units(&mut printed, "x", Some("ms")).expect("all are times");
        assert!(printed.iter().filter(|l| l.metric == "x").all(|l| l.unit == "ms" && (l.v - 2.0).abs() < 1e-12));
    }

    #[test]
    fn only_times_are_converted() {
        let mut printed = lines(&[("x", 1.0, "row"), ("x", 1.0, "byte")]);
        let why = unify_units(&mut printed, "x", None).expect_err("rows are no bytes");
        assert_eq!(why, "it printed x in \"byte\", but its unit is \"row\"");
        assert!(unify_units(&mut lines(&[("x", 1.0, "ms")]), "x", Some("row")).is_err());
        assert!(unify_units(&mut lines(&[("x", 1.0, "row")]), "x", Some("row")).is_ok());
        assert!(unify_units(&mut lines(&[("y", 1.0, "ms")]), "x", Some("row")).is_ok(), "that is not asked about");
    }

    #[test]
    fn scale_of_the_score_determines_the_expected_unit() {
        assert_eq!(expected_unit("ms", 1e-6), Some("ns"));
        assert_eq!(expected_unit("s", 1.0), Some("s"));
        assert_eq!(expected_unit("us", 1e-3), Some("ns"));
        assert_eq!(expected_unit("ms", 0.5), None);
        assert_eq!(expected_unit("MB/s", 1e-6), None);
    }
}
