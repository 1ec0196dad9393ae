//! Errors in a statement, shown at their position.

use datafusion::arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::parser::ParserError;
use model::text::shown;

/// An error and its causes, some of which already contain the text of the next.
pub fn full_text(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |text, cause| {
        if text.is_empty() {
            cause
        } else if text.contains(&cause) {
            text
        } else {
            format!("{text}: {cause}")
        }
    })
}

/// Line and column in a statement, both counted from 1.
type Position = (usize, usize);

/// The message, with the statement's line and a mark under the position, if the engine reports one.
pub fn explain(error: &DataFusionError, sql: &str) -> String {
    let (message, position) = message_at(error);
    let mut text = shown_lines(&message);
    if let Some((line, from, to)) = position.and_then(|(start, end)| marked_line(sql, start, end)) {
        let before: String = line.chars().take(from).collect();
        let mark = "^".repeat(to.saturating_sub(from).max(1));
        text += &format!("\n  {}\n  {}{mark}", shown(&line), " ".repeat(shown(&before).chars().count()));
    }
    text
}

/// The line of a position, and its first and last character.
fn marked_line(sql: &str, start: Position, end: Option<Position>) -> Option<(String, usize, usize)> {
    let line = sql.lines().nth(start.0.checked_sub(1)?)?.to_string();
    let from = start.1.saturating_sub(1).min(line.chars().count());
    let to = match end {
        Some((row, column)) if row == start.0 => column.saturating_sub(1).min(line.chars().count()),
        Some(_) => line.chars().count(),
        None => from + 1,
    };
    Some((line, from, to))
}

/// How the standard library ends its text of ENOSPC; the engine passes on only the text.
const DISK_FULL_TEXT: &str = "(os error 28)";

type MessageAt = (String, Option<(Position, Option<Position>)>);

fn message_at(error: &DataFusionError) -> MessageAt {
    if let Some(found) = error.iter().find_map(|one| one.diagnostic()) {
        let mut message = found.message.clone();
        for help in &found.helps {
            message += &format!("; {}", help.message);
        }
        for note in &found.notes {
            message += &format!("; {}", note.message);
        }
        let position = found.span.map(|span| {
            let (start, end) = (span.start, span.end);
            ((start.line as usize, start.column as usize), Some((end.line as usize, end.column as usize)))
        });
        return (message, position);
    }
    let root = error.find_root();
    let message = match root {
        lacking if missing_file(&lacking.strip_backtrace()).is_some() => {
            let text = lacking.strip_backtrace();
            format!(
                "{} is missing: if `fathom fleet gc` removed it during the query, run the query again (a longer --grace avoids it); \
                 otherwise restore it from a copy",
                missing_file(&text).unwrap_or_default()
            )
        }
        DataFusionError::SQL(parser, _) => match &**parser {
            ParserError::TokenizerError(text) | ParserError::ParserError(text) => text.clone(),
            ParserError::RecursionLimitExceeded => "the statement is nested too deeply".into(),
        },
        DataFusionError::Plan(text) => refusal_text(text),
        full if full.strip_backtrace().contains(DISK_FULL_TEXT) => format!(
            "No space left in {} for the query's temporary files: raise --memory, set TMPDIR to a directory with more room, or \
             ask for less",
            std::env::temp_dir().display()
        ),
        DataFusionError::ResourcesExhausted(_) => {
            "the query needs more memory than it may use: raise --memory, or ask for less (fewer columns, groups or rows to sort)"
                .into()
        }
        DataFusionError::ArrowError(arrow, _) => match &**arrow {
            ArrowError::ArithmeticOverflow(text) => too_large(text),
            ArrowError::DivideByZero => "division by zero; NULLIF(x, 0) makes it NULL".into(),
            _ => root.strip_backtrace(),
        },
        DataFusionError::External(inner) => inner.to_string(),
        other => other.strip_backtrace(),
    };
    let position = parse_position(&message).map(|position| (position, None));
    let message = message.split(" at Line: ").next().unwrap_or_default().to_string();
    (message, position)
}

/// The missing file, if a store reports one; the engine passes on only the text.
fn missing_file(text: &str) -> Option<&str> {
    let (_, at) = text.split_once("Object at location ")?;
    Some(at.split_once(" not found")?.0)
}

/// Rewords the engine's message about a statement that is not allowed.
fn refusal_text(text: &str) -> String {
    if ["DDL not supported", "DML not supported", "Statement not supported"].iter().any(|words| text.contains(words)) {
        let what = text.rsplit(": ").next().unwrap_or_default();
        return format!("only queries can be run, and this is {what}");
    }
    text.to_string()
}

/// A number that is too large, and the remedy.
fn too_large(text: &str) -> String {
    let what = text.trim_start_matches("Overflow happened on: ");
    // An operand has more digits than a 64-bit integer; so it was a decimal.
    let digits = |word: &str| word.bytes().filter(u8::is_ascii_digit).count();
    if what.split_whitespace().any(|word| digits(word) > 19) && !what.starts_with("a sum of ") {
        return format!("decimal overflow: {what}; CAST to DOUBLE first");
    }
    format!("integer overflow (64 bits): {what}; CAST to DOUBLE or DECIMAL(38, 0) first")
}

/// Parses `… at Line: 1, Column: 8`, as the parser reports it.
fn parse_position(message: &str) -> Option<Position> {
    let (_, position) = message.rsplit_once("Line: ")?;
    let (line, column) = position.split_once(", Column: ")?;
    let digits: String = column.chars().take_while(char::is_ascii_digit).collect();
    Some((line.trim().parse().ok()?, digits.parse().ok()?))
}

/// A message of several lines, none of which can control the terminal.
fn shown_lines(text: &str) -> String {
    text.lines().map(shown).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_is_taken_from_the_parsers_message() {
        assert_eq!(parse_position("Expected: an expression, found: FROM at Line: 2, Column: 8"), Some((2, 8)));
        assert_eq!(parse_position("nothing"), None);
    }

    #[test]
    fn missing_file_is_named_with_remedy() {
        let text =
            "Parquet error: Object Store error: Object at location /fleet/spans/a.parquet not found: No such file";
        let message = explain(&DataFusionError::External(text.into()), "SELECT 1");
        assert!(message.starts_with("/fleet/spans/a.parquet is missing: if `fathom fleet gc`"), "{message}");
    }

    #[test]
    fn cause_is_named_once() {
        use anyhow::Context as _;
        let io = || std::io::Error::from_raw_os_error(28);
        let action = archive::Error::Io { action: "read", path: "a".into(), source: io() };
        assert_eq!(full_text(&action.into()).matches("(os error 28)").count(), 1);
        assert!(full_text(&Err::<(), _>(io()).context("adding").unwrap_err()).starts_with("adding: No space left"));
    }

    #[test]
    fn full_disk_is_named_with_remedy() {
        let io = std::io::Error::from_raw_os_error(28);
        let error = DataFusionError::from(ArrowError::IoError(format!("IO error: {io}"), io));
        let message = explain(&error, "SELECT 1");
        assert!(message.contains("No space left in ") && message.contains("TMPDIR"), "{message}");
    }

    #[test]
    fn overflow_names_type() {
        assert!(
            too_large("Overflow happened on: 9223372036854775807 + 1").starts_with("integer overflow (64 bits): 9")
        );
        assert!(too_large("Overflow happened on: a sum of 92233720368547758070").starts_with("integer overflow (64"));
        let decimal = too_large("Overflow happened on: 99999999999999999999999999999999999999 * 10");
        assert!(decimal.starts_with("decimal overflow: 9"), "{decimal}");
    }

    #[test]
    fn position_outside_the_statement_is_not_marked() {
        assert_eq!(marked_line("SELECT", (2, 1), None), None);
        assert_eq!(marked_line("SELECT", (0, 0), None), None);
        assert_eq!(marked_line("SELECT x", (1, 8), Some((1, 9))), Some(("SELECT x".into(), 7, 8)));
        assert_eq!(marked_line("ä", (1, 99), None).map(|(_, from, _)| from), Some(1));
    }
}
