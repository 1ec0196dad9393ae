//! Twenty example queries, to run as they are or to start from.
//!
//! The same text runs on every engine: embedded DataFusion, DuckDB, Spark, Ballista. [`offences`] checks that a query uses only what all of
//! these understand alike; the suite `engines` compares the rows.

use std::collections::BTreeSet;

#[derive(Debug, Clone, Copy)]
pub struct Question {
    /// Its number and name, such as `01-slowest-statements`.
    pub name: &'static str,
    /// The statement, with the question as its first line.
    pub sql: &'static str,
}

impl Question {
    /// The question in words.
    pub fn words(&self) -> &'static str {
        self.sql.lines().next().unwrap_or_default().trim_start_matches("-- ")
    }

    /// The statement without its comments.
    pub fn statement(&self) -> String {
        self.sql.lines().filter(|line| !line.starts_with("--")).collect::<Vec<_>>().join("\n")
    }

    /// The question of this number or name.
    pub fn find(wanted: &str) -> Option<&'static Self> {
        let number: Option<usize> = wanted.parse().ok();
        match number {
            Some(number) => QUESTIONS.get(number.checked_sub(1)?),
            None => QUESTIONS.iter().find(|one| one.name == wanted || one.name.get(3..) == Some(wanted)),
        }
    }
}

macro_rules! questions {
    ($($name:literal),* $(,)?) => {
        /// All of them, in order.
        pub const QUESTIONS: &[Question] =
            &[$(Question { name: $name, sql: include_str!(concat!("../questions/", $name, ".sql")) }),*];
    };
}

questions![
    "01-slowest-statements",
    "02-flushes-an-insert",
    "03-worse-this-week",
    "04-write-amplification",
    "05-setting-that-differs",
    "06-time-by-layer",
    "07-who-wrote",
    "08-files-most-written",
    "09-how-sure-causes-are",
    "10-losses",
    "11-kernel-counted-more",
    "12-blind-layers",
    "13-cost-of-probes",
    "14-longest-operations",
    "15-syncs-a-statement",
    "16-reads-from-disk",
    "17-slow-device-commands",
    "18-scores",
    "19-what-limits-networks",
    "20-what-is-there",
];

/// Functions with the same meaning in every engine.
const COMMON_FUNCTIONS: [&str; 13] = [
    "abs",
    "avg",
    "cast",
    "coalesce",
    "count",
    "lower",
    "max",
    "min",
    "nullif",
    "row_number",
    "sum",
    "upper",
    "length",
];

/// Words before a parenthesis that are not functions.
const NON_FUNCTION_WORDS: [&str; 8] = ["as", "in", "over", "by", "and", "or", "when", "values"];

/// Parts of a statement that some engine would misunderstand or refuse.
///
/// - Names of columns are quoted: `date`, `offset`, `rows` and others are keywords in some dialect.
/// - Sums are cast: a sum of integers is a HUGEINT in DuckDB. Quotients are floating-point, as `/` of integers truncates
///   in some engines and not in others; so the divisor is cast.
/// - No `::`, backtick, backslash, median or QUALIFY; only functions of a short list.
/// - No LIMIT within a subquery, and no window without PARTITION BY: with Ballista 55 the former returned rows other than the first ones,
///   and the latter never ended.
pub fn offences(statement: &str) -> Vec<String> {
    let mut found = Vec::new();
    let tokens = split_tokens(statement);
    let columns: BTreeSet<&str> = crate::tables()
        .flat_map(|table| table.columns.iter().chain(&crate::LEADING_COLUMNS))
        .map(|column| column.name)
        .chain([crate::DATE_COLUMN])
        .collect();
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        match token.as_str() {
            "(" => depth += 1,
            ")" => depth = depth.saturating_sub(1),
            word if depth > 0 && word.eq_ignore_ascii_case("limit") => {
                found.push("a LIMIT within a subquery; rank the rows instead".into());
            }
            _ => {}
        }
        let next = tokens.get(at + 1).map(String::as_str).unwrap_or_default();
        let before = at.checked_sub(1).and_then(|at| tokens.get(at)).map(String::as_str).unwrap_or_default();
        let before_that = at.checked_sub(2).and_then(|at| tokens.get(at)).map(String::as_str).unwrap_or_default();
        let word = token.to_lowercase();
        if token.starts_with(|c: char| c.is_alphabetic()) {
            if columns.contains(word.as_str()) && next != "(" && next != "." {
                found.push(format!("the column {token} is not quoted"));
            }
            if next == "(" && !COMMON_FUNCTIONS.contains(&word.as_str()) && !NON_FUNCTION_WORDS.contains(&word.as_str())
            {
                found.push(format!("{token} is not among the functions that every engine has"));
            }
            if word == "over" && next == "(" && !tokens.get(at + 2).is_some_and(|t| t.eq_ignore_ascii_case("partition"))
            {
                found.push("a window without PARTITION BY".into());
            }
            if word == "sum" && !(before == "(" && before_that.eq_ignore_ascii_case("cast")) {
                found.push("a sum is not cast".into());
            }
            if ["qualify", "median", "pivot", "exclude", "filter", "ilike"].contains(&word.as_str()) {
                found.push(format!("{token} is not in every dialect"));
            }
        }
        if token == "/" && !["cast", "nullif"].contains(&next.to_lowercase().as_str()) {
            found.push("a divisor is not cast to DOUBLE".into());
        }
        if ["::", "`", "\\", ";", "%", "//"].contains(&token.as_str()) {
            found.push(format!("{token} is not in every dialect"));
        }
    }
    found
}

/// Splits a statement into words and symbols; comments are omitted, and each text or quoted name is one token.
fn split_tokens(statement: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut chars = statement.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '-' if chars.peek() == Some(&'-') => while chars.next_if(|&c| c != '\n').is_some() {},
            '\'' | '"' => {
                let text: String = chars.by_ref().take_while(|&other| other != c).collect();
                tokens.push(format!("{c}{text}{c}"));
            }
            c if c.is_alphanumeric() || c == '_' => {
                let mut word = c.to_string();
                while let Some(c) = chars.next_if(|&c| c.is_alphanumeric() || c == '_') {
                    word.push(c);
                }
                tokens.push(word);
            }
            ':' | '/' if chars.next_if_eq(&c).is_some() => tokens.push(format!("{c}{c}")),
            c if c.is_whitespace() => {}
            c => tokens.push(c.into()),
        }
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shipped_questions_keep_the_rules_of_the_dialect() {
        for question in QUESTIONS {
            assert_eq!(offences(question.sql), [""; 0], "{}", question.name);
        }
    }

    #[test]
    fn each_offence_is_found() {
        for (statement, what) in [
            ("SELECT device FROM archives", "the column device is not quoted"),
            ("SELECT sum(\"bytes\") FROM spans", "a sum is not cast"),
            ("SELECT median(\"bytes\") FROM spans", "median is not among the functions"),
            ("SELECT \"bytes\"::DOUBLE FROM spans", ":: is not in every dialect"),
            ("SELECT \"bytes\" / 2 FROM spans", "a divisor is not cast"),
            ("SELECT 1 QUALIFY 1", "QUALIFY is not in every dialect"),
            ("SELECT `device`", "` is not in every dialect"),
            ("SELECT * FROM (SELECT \"id\" FROM spans ORDER BY \"id\" LIMIT 3)", "a LIMIT within a subquery"),
            ("SELECT row_number() OVER (ORDER BY \"id\") FROM spans", "a window without PARTITION BY"),
        ] {
            let found = offences(statement);
            assert!(found.iter().any(|one| one.starts_with(what)), "{statement}: {found:?}");
        }
        assert_eq!(offences("SELECT CAST(sum(\"bytes\") AS BIGINT) FROM spans -- sum(device)"), [""; 0]);
    }

    #[test]
    fn questions_are_numbered_asked_and_found() {
        assert_eq!(QUESTIONS.len(), 20);
        for (at, question) in QUESTIONS.iter().enumerate() {
            assert!(question.name.starts_with(&format!("{:02}-", at + 1)), "{}", question.name);
            assert!(question.words().contains('?') && question.sql.starts_with("-- "), "{}", question.name);
            assert_eq!(Question::find(&(at + 1).to_string()).map(|one| one.name), Some(question.name));
            assert_eq!(Question::find(&question.name[3..]).map(|one| one.name), Some(question.name));
        }
        assert!(Question::find("0").is_none() && Question::find("21").is_none() && Question::find("x").is_none());
    }
}
