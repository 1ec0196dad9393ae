//! Parsing of parameters, settings and verdicts from a command line.

/// Why a text cannot be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QuantityError {
    /// Not a parameter.
    #[error("expected NAME=VALUE, such as -p rows=1000")]
    Parameter,
    /// A parameter without a name, or with an empty value.
    #[error("expected NAME=VALUE or NAME=VALUE,VALUE")]
    EmptyValue,
    /// Not a setting.
    #[error("expected NAME=VALUE, such as journal_mode=truncate")]
    Setting,
    /// Not a verdict.
    #[error("expected slower or slower:PERCENT, such as slower:5")]
    Slower,
}

/// Parses `NAME=VALUE,VALUE`.
pub fn parameter(text: &str) -> Result<(String, Vec<String>), QuantityError> {
    let (name, values) = text.split_once('=').ok_or(QuantityError::Parameter)?;
    let values: Vec<String> = values.split(',').map(ToString::to_string).collect();
    if name.is_empty() || values.iter().any(String::is_empty) {
        return Err(QuantityError::EmptyValue);
    }
    Ok((name.into(), values))
}

/// Parses `NAME=VALUE`.
pub fn setting(text: &str) -> Result<(String, String), QuantityError> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => Ok((name.into(), value.into())),
        _ => Err(QuantityError::Setting),
    }
}

/// Parses `slower` or `slower:5`: percent.
pub fn slower(text: &str) -> Result<f64, QuantityError> {
    let percent = match text.strip_prefix("slower") {
        Some("") => Some(0.0),
        Some(rest) => rest.strip_prefix(':').and_then(|p| p.trim_end_matches('%').parse::<f64>().ok()),
        None => None,
    };
    percent.filter(|p| p.is_finite() && *p >= 0.0).ok_or(QuantityError::Slower)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slower_takes_a_percentage_or_none() {
        assert_eq!((slower("slower"), slower("slower:5"), slower("slower:2.5%")), (Ok(0.0), Ok(5.0), Ok(2.5)));
        for text in ["", "faster", "slower:", "slower:x", "slower:-1", "slower5", "slower:inf"] {
            assert_eq!(slower(text), Err(QuantityError::Slower), "{text}");
        }
    }

    #[test]
    fn parameter_has_a_name_and_no_empty_value() {
        assert_eq!(parameter("rows=1,2"), Ok(("rows".into(), vec!["1".into(), "2".into()])));
        assert_eq!(parameter("rows"), Err(QuantityError::Parameter));
        assert!(["=1", "rows=", "rows=1,"].iter().all(|text| parameter(text) == Err(QuantityError::EmptyValue)));
        assert_eq!(setting("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert!(["a", "=b", "a="].iter().all(|text| setting(text).is_err()));
    }
}
