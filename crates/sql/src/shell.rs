//! The interactive shell: a statement ends with `;`, Tab completes tables, columns and SQL keywords, the history is
//! saved.

use crate::engine::Engine;
use crate::errors;
use crate::output::{self, Format, OutputError, print};
use crate::stop::until_stopped;
use anyhow::Result;
use fleet::questions::{QUESTIONS, Question};
use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{CompletionType, Config, Context, Editor, Helper};
use std::path::PathBuf;

const HELP_TEXT: &str = "\
  \\d          the tables          \\d TABLE   its columns and what they mean
  \\e          the examples        \\e N       ask one of them
  \\q          leave (Ctrl-D)      Ctrl-C     stop a query
A statement ends with `;`. Tab completes tables and columns.";

/// Words that a statement may begin or continue with.
const SQL_WORDS: [&str; 30] = [
    "SELECT", "FROM", "WHERE", "GROUP", "ORDER", "BY", "HAVING", "LIMIT", "JOIN", "LEFT", "ON", "AND", "OR", "NOT",
    "NULL", "IS", "IN", "LIKE", "AS", "WITH", "CASE", "WHEN", "THEN", "ELSE", "END", "DESC", "DISTINCT", "CAST",
    "EXPLAIN", "OVER",
];

struct Names {
    tables: Vec<(String, Vec<String>)>,
}

impl Names {
    /// The completions where `line` ends at `pos`, and where the word being typed starts.
    fn complete(&self, line: &str, pos: usize) -> (usize, Vec<String>) {
        let before = &line[..pos];
        let start = before
            .rfind(|c: char| !(c.is_alphanumeric() || c == '_'))
            .map_or(0, |at| at + before[at..].chars().next().map_or(0, char::len_utf8));
        let begun = before[start..].to_lowercase();
        let quoted = before[..start].ends_with('"');
        // After `table.` only its columns; otherwise the columns of tables that the statement names come first.
        let owner = before[..start].trim_end_matches('"').strip_suffix('.').map(|rest| {
            let at = rest.rfind(|c: char| !(c.is_alphanumeric() || c == '_')).map_or(0, |at| at + 1);
            rest[at..].to_string()
        });
        let columns_of = |table: &str| self.tables.iter().find(|(name, _)| name == table).map(|(_, columns)| columns);
        let mut found: Vec<String> = Vec::new();
        if let Some(owner) = owner {
            let table = aliased_table(line, &owner).unwrap_or(owner);
            found.extend(columns_of(&table).into_iter().flatten().cloned());
        } else {
            let words = || line.split(|c: char| !(c.is_alphanumeric() || c == '_'));
            let named = |table: &str| words().any(|word| word == table);
            // Before FROM is typed, a column of any table may be meant.
            let all = !words().any(|word| word.eq_ignore_ascii_case("from"));
            found.extend(self.tables.iter().map(|(table, _)| table.clone()));
            for (table, columns) in &self.tables {
                if all || named(table) {
                    found.extend(columns.iter().cloned());
                }
            }
            if !quoted {
                found.extend(SQL_WORDS.iter().map(|word| (*word).to_string()));
            }
        }
        found.retain(|name| name.to_lowercase().starts_with(&begun));
        found.sort();
        found.dedup();
        (start, found)
    }
}

/// The table that `alias` stands for: the word before it, after FROM or JOIN.
fn aliased_table(line: &str, alias: &str) -> Option<String> {
    let words: Vec<&str> =
        line.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty()).collect();
    words.windows(2).find_map(|pair| {
        let behind = words.iter().position(|word| std::ptr::eq(*word, pair[0])).and_then(|at| at.checked_sub(1));
        let opens = behind.is_some_and(|at| ["from", "join"].contains(&words[at].to_lowercase().as_str()));
        (opens && pair[1] == alias).then(|| pair[0].to_string())
    })
}

impl Completer for Names {
    type Candidate = Pair;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (start, found) = Names::complete(self, line, pos);
        Ok((start, found.into_iter().map(|name| Pair { display: name.clone(), replacement: name }).collect()))
    }
}

impl Validator for Names {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let text = context.input().trim();
        let is_complete = text.is_empty() || text.starts_with('\\') || ends_statement(text);
        Ok(if is_complete { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}

/// Whether a statement ends here, outside texts and comments.
fn ends_statement(text: &str) -> bool {
    statements(text).1.trim().is_empty()
}

impl Highlighter for Names {}
impl Hinter for Names {
    type Hint = String;
}
impl Helper for Names {}

/// The statements of a text, and what follows the last `;`. A `;` within a text, a quoted name or a comment ends
/// nothing.
pub fn statements(text: &str) -> (Vec<String>, String) {
    let (mut whole, mut begin, mut says, mut at) = (Vec::new(), 0, false, 0);
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        at += match c {
            '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => comment_length(rest).unwrap_or_else(|| {
                // The engine's error names what is missing.
                says = true;
                rest.len()
            }),
            ';' => {
                if std::mem::take(&mut says) {
                    whole.push(text[begin..at].to_string());
                }
                begin = at + 1;
                1
            }
            _ => {
                says |= !c.is_whitespace();
                quoted_length(&text[begin..at], rest).unwrap_or(c.len_utf8())
            }
        };
    }
    (whole, if says { text[begin..].to_string() } else { String::new() })
}

/// The length of the text or quoted name that `rest` begins with, if it does: `'…'`, `E'…\'…'`, `"…"`, `$$…$$` or `$tag$…$tag$`.
fn quoted_length(before: &str, rest: &str) -> Option<usize> {
    let in_word = |text: &str| text.ends_with(|c: char| c.is_alphanumeric() || c == '_');
    let c = rest.chars().next()?;
    match c {
        '\'' if before.ends_with(['E', 'e']) && !in_word(&before[..before.len() - 1]) => {
            let mut escaped = false;
            let end = rest.char_indices().skip(1).find(|&(_, c)| {
                let ends = c == '\'' && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            });
            Some(end.map_or(rest.len(), |(at, _)| at + 1))
        }
        '\'' | '"' => Some(rest[1..].find(c).map_or(rest.len(), |end| end + 2)),
        '$' if !in_word(before) => {
            let tag = rest[1..].find('$').map(|end| &rest[..end + 2])?;
            let named = tag[1..tag.len() - 1].chars().all(|c| c.is_alphanumeric() || c == '_');
            let end = rest[tag.len()..].find(tag).map_or(rest.len(), |end| end + 2 * tag.len());
            named.then_some(end)
        }
        _ => None,
    }
}

/// The length of the comment that a text begins with, if it ends; they nest, as in the engine.
fn comment_length(text: &str) -> Option<usize> {
    let (mut depth, mut at) = (0_usize, 0);
    loop {
        let rest = text.get(at..)?;
        let step = match (rest.starts_with("/*"), rest.starts_with("*/")) {
            (true, _) => {
                depth += 1;
                2
            }
            (_, true) => {
                depth -= 1;
                2
            }
            _ => rest.chars().next()?.len_utf8(),
        };
        at += step;
        if depth == 0 {
            return Some(at);
        }
    }
}

fn history_path() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let state = state.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state")))?;
    let directory = state.join("fathom");
    std::fs::create_dir_all(&directory).ok()?;
    Some(directory.join("sql_history"))
}

/// Reads statements from the terminal until Ctrl-D.
pub fn run(engine: &Engine, runtime: &tokio::runtime::Runtime, greeting: &str) -> Result<()> {
    let config = Config::builder().completion_type(CompletionType::List).auto_add_history(true).build();
    let mut editor: Editor<Names, DefaultHistory> = Editor::with_config(config)?;
    editor.set_helper(Some(Names { tables: runtime.block_on(engine.names()) }));
    let history = history_path();
    if let Some(path) = &history {
        // There is no history the first time.
        let _ = editor.load_history(path);
    }
    print(&format!("{greeting}\n{HELP_TEXT}\n"))?;
    loop {
        match editor.readline("fathom> ") {
            Ok(line) => {
                let line = line.trim();
                if line == "\\q" {
                    break;
                }
                let result = if line.starts_with('\\') {
                    run_command(engine, runtime, line)
                } else {
                    run_line(engine, runtime, line)
                };
                result?;
            }
            Err(ReadlineError::Interrupted) => print("(Ctrl-D or \\q to leave)\n")?,
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(error.into()),
        }
    }
    if let Some(path) = &history {
        // The history is only a convenience.
        let _ = editor.save_history(path);
    }
    Ok(())
}

fn run_command(engine: &Engine, runtime: &tokio::runtime::Runtime, line: &str) -> Result<()> {
    let mut words = line.split_whitespace();
    match (words.next(), words.next()) {
        (Some("\\d"), None) => {
            for table in fleet::tables() {
                print(&format!("  {:<16} {}\n", table.name, table.doc.trim()))?;
            }
            Ok(())
        }
        (Some("\\d"), Some(name)) => match fleet::tables().find(|table| table.name == name) {
            Some(table) => {
                print(&format!("{}\n", table.doc.trim()))?;
                for column in fleet::LEADING_COLUMNS.iter().chain(table.columns) {
                    print(&format!("  {:<16} {}\n", column.name, column.doc.trim()))?;
                }
                print(&format!("  {:<16} The day on which the archive was made (UTC).\n", fleet::DATE_COLUMN))
            }
            None => print(&format!("no such table: {}\n", model::text::shown(name))),
        },
        (Some("\\e"), None) => {
            for question in QUESTIONS {
                print(&format!("  {:<26} {}\n", question.name, question.words()))?;
            }
            Ok(())
        }
        (Some("\\e"), Some(wanted)) => match Question::find(wanted) {
            Some(question) => {
                print(&format!("{}\n", question.sql))?;
                run_line(engine, runtime, &question.statement())
            }
            None => print("there is no such example; \\e lists them\n"),
        },
        _ => print(&format!("{HELP_TEXT}\n")),
    }
}

/// Runs each statement of a line; errors are printed, and the shell continues.
fn run_line(engine: &Engine, runtime: &tokio::runtime::Runtime, line: &str) -> Result<()> {
    let (mut all, rest) = statements(line);
    if !rest.is_empty() {
        all.push(rest);
    }
    for statement in all {
        let (engine, asked) = (engine.clone(), statement.clone());
        let answered = until_stopped(runtime, move || async move {
            let (_, rows) = engine.run(&asked).await.map_err(OutputError::Query)?;
            output::write(rows, Format::Table, &mut std::io::stdout()).await
        });
        match answered? {
            None => print("stopped\n")?,
            Some(Ok(_)) => {}
            Some(Err(OutputError::Query(error))) => print(&format!("{}\n", errors::explain(&error, &statement)))?,
            Some(Err(OutputError::Output(error))) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let own = |columns: &[&str]| columns.iter().map(|name| (*name).to_string()).collect();
        Names {
            tables: vec![
                ("operations".into(), own(&["device", "id", "start_ns"])),
                ("shapes".into(), own(&["device", "id", "text"])),
            ],
        }
    }

    fn completed(line: &str) -> Vec<String> {
        names().complete(line, line.len()).1
    }

    #[test]
    fn completion_knows_tables_columns_and_aliases() {
        assert_eq!(completed("SELECT * FROM op"), ["operations"]);
        assert_eq!(completed("SELECT * FROM operations WHERE st"), ["start_ns"]);
        assert_eq!(completed("SELECT * FROM shapes s WHERE s.\"te"), ["text"]);
        assert_eq!(completed("SELECT * FROM shapes WHERE shapes."), ["device", "id", "text"]);
        assert_eq!(completed("SELECT start"), ["start_ns"]);
        assert_eq!(completed("SEL"), ["SELECT"]);
        assert_eq!(names().complete("SELECT ä", 9).0, 7);
    }

    #[test]
    fn semicolon_ends_statement_outside_quotes_and_comments() {
        let (whole, rest) = statements("SELECT ';' AS \";\"; -- a;b\nSELECT 2;\n");
        assert_eq!(whole.len(), 2);
        assert!(rest.is_empty(), "{rest}");
        assert_eq!(statements("SELECT 1").1, "SELECT 1");
        assert!(!ends_statement("SELECT ';"));
        assert!(ends_statement("SELECT 1;"));
        for (text, expected) in [
            ("SELECT /* a;b */ 1; SELECT 2", vec!["SELECT /* a;b */ 1", " SELECT 2"]),
            ("/* /* ; */ ; */ SELECT 'ä' /*/;*/;", vec!["/* /* ; */ ; */ SELECT 'ä' /*/;*/"]),
            ("/* only this */; -- and; this", vec![]),
            ("SELECT 1 /* ; no end", vec!["SELECT 1 /* ; no end"]),
            ("/* ; no end", vec!["/* ; no end"]),
            ("SELECT 'it''s; so'; SELECT - 1", vec!["SELECT 'it''s; so'", " SELECT - 1"]),
            (";;", vec![]),
            (r"SELECT E'a\';b', 'c\'; SELECT 2", vec![r"SELECT E'a\';b', 'c\'", " SELECT 2"]),
            (r"SELECT e'\\'; SELECT E';", vec![r"SELECT e'\\'", " SELECT E';"]),
            ("SELECT $$a;'$$; SELECT $t$ ; $$ ; $t$ ;x", vec!["SELECT $$a;'$$", " SELECT $t$ ; $$ ; $t$ ", "x"]),
            (
                "SELECT $1; SELECT a$b; SELECT '$'; SELECT $$;",
                vec!["SELECT $1", " SELECT a$b", " SELECT '$'", " SELECT $$;"],
            ),
        ] {
            let (mut found, rest) = statements(text);
            found.extend(Some(rest).filter(|rest| !rest.is_empty()));
            assert_eq!(found, expected, "{text}");
        }
    }
}
