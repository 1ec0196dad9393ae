//! The shape of an SQL statement: its text with everything private or accidental taken out.
//!
//! Two statements that differ only in their data are one shape, and a trace must not hold people's data. Both ask for
//! the same: find the literals, put `?` there. This is a tokenizer, not a parser: it knows SQLite's tokens
//! (<https://sqlite.org/lang_expr.html>, `sqlite3GetToken` in SQLite's `tokenize.c`) and a little about where names stand.
//! It is one pass over the text and a few over the tokens, so linear, and it accepts anything, SQL or not.
//!
//! # Decisions, privacy first
//!
//! - Numbers, strings (`''` inside included), blobs and bound parameters of every spelling become `?`. `NULL`, `TRUE`,
//!   `FALSE` and `CURRENT_TIMESTAMP` are words and stay.
//! - `"x"` is a name, but where SQLite finds no column of that name it silently takes it for a string, so from the text
//!   alone is ambiguous. It stays only where the grammar admits nothing but a name (after `FROM`, `INTO`, beside a
//!   dot, in a column list, before the `=` of `SET`, …); in an expression it becomes `?`. This costs some readability
//!   (`WHERE "id" = ?` becomes `WHERE ? = ?`) and never a secret. `` `x` `` and `[x]` are always names and stay.
//! - `IN (?, ?, ?)` becomes `IN (?…)` for any number of values, one included: the number is data.
//! - `VALUES (…), (…), (…)` becomes `VALUES (…), …` with the first row's form. One row stays apart from many, for they
//!   cost differently.
//! - A `PRAGMA` of the list below keeps its value: it is a setting of the database, not data, and without it
//!   `journal_mode=WAL` and `=DELETE` would be one shape. Any other pragma loses even bare words, for `PRAGMA key=secret`
//!   is how an encrypted database is opened.
//! - Names of savepoints are made up by libraries, a new one each time: they become `?`.
//! - After a quote that is never closed nothing is trusted: the rest is one `?`.
//!
//! What it cannot know: text in a dialect with other quoting rules (a backslash before a quote) is read as SQLite reads it.

/// Pragmas whose value is a setting of the engine that explains its speed.
const OPEN_PRAGMAS: &[&str] = &[
    "auto_vacuum",
    "automatic_index",
    "busy_timeout",
    "cache_size",
    "cache_spill",
    "cell_size_check",
    "checkpoint_fullfsync",
    "defer_foreign_keys",
    "foreign_keys",
    "fullfsync",
    "incremental_vacuum",
    "journal_mode",
    "journal_size_limit",
    "locking_mode",
    "mmap_size",
    "optimize",
    "page_size",
    "query_only",
    "read_uncommitted",
    "recursive_triggers",
    "secure_delete",
    "synchronous",
    "temp_store",
    "threads",
    "wal_autocheckpoint",
    "wal_checkpoint",
];

/// Words after which the grammar admits only a name.
const BEFORE_NAME: &[&str] = &[
    "from",
    "join",
    "into",
    "update",
    "table",
    "index",
    "view",
    "trigger",
    "references",
    "as",
    "collate",
    "reindex",
    "analyze",
    "column",
    "rename",
    "to",
    "add",
    "drop",
    "constraint",
    "pragma",
    "with",
    "recursive",
];

/// Marks that something was left out: `(?…)`, `VALUES (?, ?), …`.
const ELLIPSIS: &str = "…";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Keyword or bare name.
    Word,
    /// Literal or bound parameter.
    Value,
    /// `"x"`: a name or, by mistake, a string.
    DoubleQuoted,
    /// `` `x` `` or `[x]`.
    Name,
    /// Anything else, one character.
    Symbol,
}

#[derive(Debug, Clone, Copy)]
struct Token<'a> {
    kind: Kind,
    text: &'a str,
    /// Whether white space or a comment stood before it.
    spaced: bool,
}

impl Token<'_> {
    fn is_word(&self, word: &str) -> bool {
        self.kind == Kind::Word && self.text.eq_ignore_ascii_case(word)
    }

    fn is_any(&self, words: &[&str]) -> bool {
        words.iter().any(|w| self.is_word(w))
    }

    fn is(&self, symbol: &str) -> bool {
        self.kind == Kind::Symbol && self.text == symbol
    }

    fn is_name(&self) -> bool {
        matches!(self.kind, Kind::Word | Kind::DoubleQuoted | Kind::Name)
    }
}

/// The shape of `sql`. Idempotent: the shape of a shape is itself.
///
/// ```
/// assert_eq!(
///     sqlite::normalise("INSERT INTO t(a, b) VALUES (17, 'it''s me') -- by hand\n;"),
///     "INSERT INTO t(a, b) VALUES (?, ?)"
/// );
/// ```
pub fn normalise(sql: &str) -> String {
    let mut tokens = tokens(sql);
    hide_names(&mut tokens);
    let tokens = collapse(&tokens);
    let mut out = String::with_capacity(sql.len().min(1 << 16));
    for (i, token) in tokens.iter().enumerate() {
        if token.spaced && i > 0 {
            out.push(' ');
        }
        match token.kind {
            Kind::Value => out.push('?'),
            // A name may hold control characters; nothing that shows a shape may have to think of them.
            Kind::DoubleQuoted | Kind::Name => out.extend(token.text.chars().filter(|&c| !separates(c) || c == ' ')),
            Kind::Word | Kind::Symbol => out.push_str(token.text),
        }
    }
    out
}

/// White space, and what no text that is shown should hold: control characters and those that turn the direction of
/// writing or are invisible.
fn separates(c: char) -> bool {
    c.is_ascii_whitespace()
        || c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// What a bare name may hold: SQLite's `IdChar`, but for the mark of what we left out, which stays apart from its
/// neighbours.
fn in_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '$' || (!c.is_ascii() && !separates(c) && !ELLIPSIS.contains(c))
}

/// Where the comments of a text begin and end; none after a quote that is never closed.
pub(crate) fn comments(sql: &str) -> impl Iterator<Item = (usize, usize)> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        while let Some(c) = sql[at..].chars().next() {
            let from = at;
            if let Some(after) = skip_comment(&sql[at..]) {
                at = sql.len() - after.len();
                return Some((from, at));
            }
            // After a quote that is never closed nothing is trusted.
            let length = if separates(c) { Some(c.len_utf8()) } else { token(&sql[at..], c).map(|(_, length)| length) };
            at = length.map_or(sql.len(), |length| at + length);
        }
        None
    })
}

/// Cuts the text into tokens; stops at a quote that is never closed.
fn tokens(sql: &str) -> Vec<Token<'_>> {
    let mut out = Vec::new();
    let mut rest = sql;
    let mut spaced = false;
    while let Some(c) = rest.chars().next() {
        if separates(c) {
            rest = &rest[c.len_utf8()..];
            spaced = true;
            continue;
        }
        if let Some(after) = skip_comment(rest) {
            rest = after;
            spaced = true;
            continue;
        }
        let Some((kind, length)) = token(rest, c) else {
            out.push(Token { kind: Kind::Value, text: "?", spaced });
            break;
        };
        let (text, after) = rest.split_at(length);
        out.push(Token { kind, text, spaced });
        rest = after;
        spaced = false;
    }
    while out.last().is_some_and(|t| t.is(";")) {
        out.pop();
    }
    out
}

/// What follows the comment that `text` begins with, if it does.
fn skip_comment(text: &str) -> Option<&str> {
    if let Some(body) = text.strip_prefix("--") {
        return Some(body.find('\n').map_or("", |end| &body[end..]));
    }
    let body = text.strip_prefix("/*")?;
    Some(body.find("*/").map_or("", |end| &body[end + 2..]))
}

/// Kind and length of the token at the start of `text`, whose first character is `c`; `None` if its quote is never closed.
fn token(text: &str, c: char) -> Option<(Kind, usize)> {
    let word = |from: usize| text[from..].find(|c| !in_word(c)).map_or(text.len(), |n| from + n);
    let next = text[c.len_utf8()..].chars().next();
    Some(match c {
        '\'' => (Kind::Value, quoted(text, '\'')?),
        '"' => (Kind::DoubleQuoted, quoted(text, '"')?),
        '`' => (Kind::Name, quoted(text, '`')?),
        '[' => (Kind::Name, text.find(']')? + 1),
        'x' | 'X' if next == Some('\'') => (Kind::Value, 1 + quoted(&text[1..], '\'')?),
        '0'..='9' => (Kind::Value, number(text)),
        '.' if next.is_some_and(|n| n.is_ascii_digit()) => (Kind::Value, number(text)),
        '?' => (Kind::Value, text[1..].find(|c: char| !c.is_ascii_digit()).map_or(text.len(), |n| 1 + n)),
        ':' | '@' | '#' if next.is_some_and(in_word) => (Kind::Value, word(1)),
        '$' => (Kind::Value, tcl_variable(text)),
        c if in_word(c) => (Kind::Word, word(0)),
        c => (Kind::Symbol, c.len_utf8()),
    })
}

/// Length of what is quoted at the start of `text`; a doubled quote is a quote within.
fn quoted(text: &str, quote: char) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 1;
    loop {
        at += text[at..].find(quote)? + 1;
        if bytes.get(at) != Some(&(quote as u8)) {
            return Some(at);
        }
        at += 1;
    }
}

/// Length of a number and of whatever is glued to it: `1e-5`, `0xff`, `1_000`, and the nonsense `12abc`.
fn number(text: &str) -> usize {
    let mut previous = ' ';
    let hex = text.starts_with("0x") || text.starts_with("0X");
    text.find(|c: char| {
        let sign = !hex && matches!(c, '+' | '-') && matches!(previous, 'e' | 'E');
        previous = c;
        !(in_word(c) || c == '.' || sign)
    })
    .unwrap_or(text.len())
}

/// Length of `$name`, `$name::part` and `$name(index)`, as the Tcl interface has them.
fn tcl_variable(text: &str) -> usize {
    let mut at = 1;
    loop {
        let rest = &text[at..];
        if let Some(c) = rest.chars().next().filter(|&c| in_word(c)) {
            at += c.len_utf8();
        } else if rest.starts_with("::") {
            at += 2;
        } else if at > 1 && rest.starts_with('(') {
            // An opening parenthesis ends the search, so that no text is searched twice.
            let end = rest[1..].find(|c: char| matches!(c, ')' | '(') || separates(c)).map(|n| n + 1);
            return at + end.filter(|&n| rest[n..].starts_with(')')).map_or(0, |n| n + 1);
        } else {
            return at;
        }
    }
}

/// Turns into values the double-quoted names that may be strings, the names of savepoints, and what a closed pragma is
/// set to; turns the value of an open pragma into a word, which stays.
fn hide_names(tokens: &mut [Token]) {
    let mut at = 0;
    while at < tokens.len() {
        let end = tokens[at..].iter().position(|t| t.is(";")).map_or(tokens.len(), |n| at + n);
        let statement = &mut tokens[at..end];
        let head = statement.iter().position(|t| !t.is_any(&["explain", "query", "plan"])).unwrap_or(0);
        let statement = &mut statement[head..];
        match statement.first() {
            Some(t) if t.is_word("pragma") => hide_pragma(statement),
            Some(t) if t.is_any(&["savepoint", "release", "rollback"]) => hide_savepoint(statement),
            Some(_) => hide_strings(statement),
            None => {}
        }
        at = end + 1;
    }
}

fn hide_savepoint(statement: &mut [Token]) {
    for token in statement {
        if token.is_name() && !token.is_any(&["savepoint", "release", "rollback", "to", "transaction"]) {
            token.kind = Kind::Value;
        }
    }
}

fn hide_pragma(statement: &mut [Token]) {
    // PRAGMA [schema .] name [= value | (value)]
    let name = if statement.get(2).is_some_and(|t| t.is(".")) { 3 } else { 1 };
    let open = statement.get(name).is_some_and(|t| t.is_any(OPEN_PRAGMAS));
    for at in name + 1..statement.len() {
        // What is glued to something is no setting; behind a `?` its digits would be read as a parameter's number.
        let apart = statement[at].spaced || statement[at - 1].kind == Kind::Symbol;
        let token = &mut statement[at];
        let plain = |text: &str| text.len() <= 24 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        match token.kind {
            Kind::Value if open && apart && plain(token.text.trim_matches('\'')) => token.kind = Kind::Word,
            Kind::DoubleQuoted | Kind::Name if open && plain(&token.text[1..token.text.len() - 1]) => {}
            Kind::Word if open => {}
            Kind::Word | Kind::DoubleQuoted | Kind::Name => token.kind = Kind::Value,
            Kind::Value | Kind::Symbol => {}
        }
    }
}

/// Which list a parenthesis opened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Paren {
    /// Of column names, or of column definitions, which begin with one.
    Columns,
    Other,
}

fn hide_strings(statement: &mut [Token]) {
    let creates = statement[0].is_word("create");
    let mut open: Vec<Paren> = Vec::new();
    // Depth of parentheses at which `SET a = …, b = …` is going on.
    let mut set: Option<usize> = None;
    for i in 0..statement.len() {
        let before = |n: usize| i.checked_sub(n).map(|at| &statement[at]);
        let is_before = |n: usize, words: &[&str]| before(n).is_some_and(|t| t.is_any(words));
        let token = &statement[i];
        if token.is("(") {
            open.push(if opens_columns(&statement[..i], creates) { Paren::Columns } else { Paren::Other });
        } else if token.is(")") {
            open.pop();
            set = set.filter(|&depth| depth <= open.len());
        } else if token.is_word("set") {
            set = Some(open.len());
        } else if token.is_any(&["where", "from", "returning"]) && set == Some(open.len()) {
            set = None;
        }
        if token.kind != Kind::DoubleQuoted {
            continue;
        }
        let beside_dot = before(1).is_some_and(|t| t.is("."))
            || statement.get(i + 1).is_some_and(|t| t.is("."))
                && statement.get(i + 2).is_some_and(|t| t.is_name() || t.is("*"));
        let after_word = is_before(1, BEFORE_NAME) && !is_before(2, &["distinct"])
            || creates && is_before(1, &["on", "exists"])
            || is_before(1, &["exists"]) && is_before(2, &["if"])
            || is_before(1, &["by"]) && is_before(2, &["indexed"]);
        let after_comma = before(1).is_some_and(|t| t.is(","));
        let in_columns = open.last() == Some(&Paren::Columns) && (after_comma || before(1).is_some_and(|t| t.is("(")));
        let in_set = set == Some(open.len())
            && (after_comma || is_before(1, &["set"]))
            && statement.get(i + 1).is_some_and(|t| t.is("="));
        if !(beside_dot || after_word || in_columns || in_set) {
            statement[i].kind = Kind::Value;
        }
    }
}

/// Whether a parenthesis after these tokens opens a list of columns.
fn opens_columns(before: &[Token], creates: bool) -> bool {
    let Some((last, head)) = before.split_last() else { return false };
    if last.is_any(&["key", "unique", "using", "conflict"]) {
        return true;
    }
    if !last.is_name() {
        return false;
    }
    let head = match head {
        [head @ .., schema, dot] if dot.is(".") && schema.is_name() => head,
        head => head,
    };
    head.last().is_some_and(|t| t.is_any(&["into", "references"]) || creates && t.is_any(&["table", "exists"]))
}

/// Shortens lists of values and rows, whose length is data.
fn collapse<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    let closing = closing(tokens);
    let ellipsis = |spaced| Token { kind: Kind::Symbol, text: ELLIPSIS, spaced };
    let mut out: Vec<Token> = Vec::with_capacity(tokens.len());
    let mut i = 0;
    while i < tokens.len() {
        out.push(tokens[i]);
        if tokens[i].is_word("in") && tokens.get(i + 1).is_some_and(|t| t.is("(")) {
            if let Some(end) = values_until(tokens, i + 2) {
                out.push(tokens[i + 1]);
                out.push(Token { kind: Kind::Value, text: "?", spaced: false });
                out.push(ellipsis(false));
                out.push(Token { spaced: false, ..tokens[end] });
                i = end;
            }
        } else if tokens[i].is(")") {
            // The end of a first row? Then the next rows add nothing.
            let first = closing.opening[i].is_some_and(|open| open > 0 && tokens[open - 1].is_word("values"));
            let mut end = i;
            while first
                && tokens.get(end + 1).is_some_and(|t| t.is(","))
                && tokens.get(end + 2).is_some_and(|t| t.is("("))
                && let Some(close) = closing.close[end + 2]
            {
                end = close;
            }
            if end > i {
                out.push(Token { spaced: false, ..tokens[i + 1] });
                out.push(ellipsis(true));
                i = end;
            }
        }
        i += 1;
    }
    out
}

/// For each parenthesis, the index of its partner.
struct Partners {
    close: Vec<Option<usize>>,
    opening: Vec<Option<usize>>,
}

fn closing(tokens: &[Token]) -> Partners {
    let mut partners = Partners { close: vec![None; tokens.len()], opening: vec![None; tokens.len()] };
    let mut open = Vec::new();
    for (i, token) in tokens.iter().enumerate() {
        if token.is("(") {
            open.push(i);
        } else if token.is(")")
            && let Some(start) = open.pop()
        {
            partners.close[start] = Some(i);
            partners.opening[i] = Some(start);
        }
    }
    partners
}

/// If from `at` there are only values and commas up to a closing parenthesis: where that is.
fn values_until(tokens: &[Token], mut at: usize) -> Option<usize> {
    loop {
        while tokens.get(at)?.is("-") || tokens.get(at)?.is("+") {
            at += 1;
        }
        if tokens.get(at)?.kind != Kind::Value {
            return None;
        }
        at += 1;
        if tokens.get(at)?.is(")") {
            return Some(at);
        }
        if !tokens.get(at)?.is(",") {
            return None;
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(cases: &[(&str, &str)]) {
        for (sql, shape) in cases {
            assert_eq!(normalise(sql), *shape, "{sql}");
        }
    }

    #[test]
    fn literals_and_parameters_become_question_marks() {
        check(&[
            ("SELECT 1, 1.5, .5, 1e-5, 0xFF, 1_000, -7", "SELECT ?, ?, ?, ?, ?, ?, -?"),
            ("SELECT 'a', 'it''s', '', x'00ff', X'', 'é\n'", "SELECT ?, ?, ?, ?, ?, ?"),
            ("SELECT ?, ?12, :a, @b_1, $c, $ns::d(x)", "SELECT ?, ?, ?, ?, ?, ?"),
            ("SELECT NULL, true, 12abc", "SELECT NULL, true, ?"),
            ("SELECT a1, _2, t.c3 FROM t4", "SELECT a1, _2, t.c3 FROM t4"),
            ("SELECT a->>'$.secret' || 'x'", "SELECT a->>? || ?"),
        ]);
    }

    #[test]
    fn space_comments_and_control_characters_collapse() {
        check(&[
            ("  SELECT\t1 -- 'quote\n /* two */ ;; ", "SELECT ?"),
            ("SELECT/**/a\u{1b}[31m]\0FROM\u{202e}t", "SELECT a [31m] FROM t"),
            ("SELECT 1 /* never closed 'x'", "SELECT ?"),
            ("-- nothing", ""),
            ("SELECT `a\u{7}b`", "SELECT `ab`"),
            ("select A From B", "select A From B"),
        ]);
    }

    #[test]
    fn list_length_does_not_change_shape() {
        check(&[
            ("SELECT a FROM t WHERE b IN (1, 'x', -3) AND c IN(?)", "SELECT a FROM t WHERE b IN (?…) AND c IN(?…)"),
            ("SELECT a FROM t WHERE b IN (SELECT 1)", "SELECT a FROM t WHERE b IN (SELECT ?)"),
            ("SELECT a FROM t WHERE b IN ()", "SELECT a FROM t WHERE b IN ()"),
            ("INSERT INTO t VALUES (1,'a'),(2,'b'), (3, 'c')", "INSERT INTO t VALUES (?,?), …"),
            ("INSERT INTO t VALUES (1,'a')", "INSERT INTO t VALUES (?,?)"),
            (
                "INSERT INTO t VALUES (f(1)), (2) ON CONFLICT DO NOTHING",
                "INSERT INTO t VALUES (f(?)), … ON CONFLICT DO NOTHING",
            ),
        ]);
    }

    #[test]
    fn double_quoted_text_stays_only_where_it_is_identifier() {
        check(&[
            (r#"INSERT INTO "t" ("a", "b") VALUES ("secret", 1)"#, r#"INSERT INTO "t" ("a", "b") VALUES (?, ?)"#),
            (r#"SELECT "t"."a", "t".* FROM "t" AS "u""#, r#"SELECT "t"."a", "t".* FROM "t" AS "u""#),
            (r#"SELECT "secret" FROM t WHERE a = "secret""#, "SELECT ? FROM t WHERE a = ?"),
            (r#"UPDATE "t" SET "a" = "s", "b" = 2 WHERE "c" = 3"#, r#"UPDATE "t" SET "a" = ?, "b" = ? WHERE ? = ?"#),
            (r#"SELECT 1 WHERE a IS DISTINCT FROM "secret""#, "SELECT ? WHERE a IS DISTINCT FROM ?"),
            (
                r#"CREATE TABLE IF NOT EXISTS "t" ("a" TEXT DEFAULT "secret", "b" INT, PRIMARY KEY ("a", "b"))"#,
                r#"CREATE TABLE IF NOT EXISTS "t" ("a" TEXT DEFAULT ?, "b" INT, PRIMARY KEY ("a", "b"))"#,
            ),
            (r#"SELECT [a b], `c` FROM "x""y""#, r#"SELECT [a b], `c` FROM "x""y""#),
        ]);
    }

    #[test]
    fn pragma_settings_stay_and_keys_are_replaced() {
        check(&[
            ("PRAGMA journal_mode=WAL", "PRAGMA journal_mode=WAL"),
            ("pragma main.journal_mode = 'wal';", "pragma main.journal_mode = 'wal'"),
            ("PRAGMA cache_size=-2000", "PRAGMA cache_size=-2000"),
            ("PRAGMA wal_checkpoint(TRUNCATE)", "PRAGMA wal_checkpoint(TRUNCATE)"),
            ("PRAGMA key=hunter2", "PRAGMA key=?"),
            ("EXPLAIN PRAGMA key = \"x'2DD29CA8'\"", "EXPLAIN PRAGMA key = ?"),
            ("PRAGMA user_version=42", "PRAGMA user_version=?"),
            ("SAVEPOINT \"s140_x1\"", "SAVEPOINT ?"),
            ("ROLLBACK TO SAVEPOINT s140", "ROLLBACK TO SAVEPOINT ?"),
        ]);
    }

    #[test]
    fn text_after_open_quote_is_replaced() {
        check(&[
            ("SELECT a, 'secret, b FROM c", "SELECT a, ?"),
            ("SELECT a, \"secret, b FROM c", "SELECT a, ?"),
            ("SELECT x'12", "SELECT ?"),
            ("SELECT [a, b", "SELECT ?"),
        ]);
    }

    #[test]
    fn deep_nesting_and_long_lists_take_linear_time() {
        // Quadratic behaviour would take minutes here, so that this test would not end.
        for piece in ["VALUES((", "IN(?,", "$a(", "(", "\"a\".", "1,", "'a',", "SET \"a\"=", "/*", "--", "x'"] {
            normalise(&piece.repeat(200_000));
        }
    }

    /// Pieces of valid and invalid SQL that are hard to tokenize.
    fn pieces() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            prop::sample::select(vec![
                "SELECT",
                "INSERT INTO",
                "VALUES",
                "(",
                ")",
                ",",
                "IN",
                "'",
                "''",
                "\"",
                "\"\"",
                "x'",
                "`",
                "[",
                "]",
                ".",
                "--",
                "/*",
                "*/",
                "\n",
                " ",
                ";",
                "=",
                "?",
                ":",
                "$",
                "@",
                "#",
                "…",
                "1",
                "0x",
                "1e",
                "e",
                "+",
                "-",
                "SET",
                "FROM",
                "DISTINCT",
                "PRAGMA",
                "journal_mode",
                "key",
                "SAVEPOINT",
                "TO",
                "CREATE TABLE",
                "AS",
                "*",
                "a",
                "é",
                "\u{1}",
                "\u{202e}",
                "::",
                "\"n\"",
                "'v'",
                "UPDATE",
                "WHERE",
                "BY",
                "INDEXED",
                "ON",
                "IF",
                "EXISTS",
            ])
            .prop_map(String::from),
            ".{0,3}",
        ];
        prop::collection::vec(piece, 0..24).prop_map(|all| all.concat())
    }

    /// A literal that cannot occur by chance, and its text as the literal's owner knows it.
    fn secret() -> impl Strategy<Value = (String, String)> {
        prop_oneof![
            "[A-Z]{8}Q[0-9]{4}".prop_map(|s| (format!("'{s}'"), s)),
            "[A-Z]{8}Q[0-9]{4}".prop_map(|s| (format!("'it''s {s} \"or\" -- so'"), s)),
            "[A-Z]{8}Q[0-9]{4}".prop_map(|s| (format!("\"{s}\""), s)),
            "[1-9][0-9]{9}".prop_map(|s| (s.clone(), s)),
            "[1-9][0-9]{9}".prop_map(|s| (format!("-{s}.5e3"), s)),
            "[0-9A-F]{16}".prop_map(|s| (format!("x'{s}'"), s)),
        ]
    }

    proptest! {
        #[test]
        fn shapes_never_panic_and_are_idempotent(sql in pieces()) {
            let once = normalise(&sql);
            prop_assert_eq!(normalise(&once), once.clone());
            prop_assert!(!once.chars().any(char::is_control));
        }

        #[test]
        fn no_literal_remains(a in secret(), b in secret(), form in 0usize..12) {
            let form = [
                "INSERT INTO \"t\"(\"k\", v) VALUES ({A}, {B})",
                "INSERT INTO t VALUES({A},{B}),({B},{A}),(NULL,{A})",
                "SELECT \"t\".k FROM t WHERE k={A} AND v IN ({B}, {A}, 3)",
                "SELECT {A} AS x, f({B}) FROM t ORDER BY {A} LIMIT 5",
                "UPDATE t SET v={A}, \"w\" = {B} WHERE k LIKE {B} ESCAPE {A}",
                "DELETE FROM t WHERE k BETWEEN {A} AND {B} OR k IS NOT DISTINCT FROM {A}",
                "CREATE TABLE t(a TEXT DEFAULT {A}, b CHECK(b <> {B}))",
                "WITH c(a) AS (VALUES({A}),({B})) SELECT CASE a WHEN {A} THEN {B} ELSE {A} END FROM c",
                "SELECT json_extract(v, {A}) FROM t GROUP BY k HAVING max(v) > {B}",
                "INSERT INTO t(k) VALUES ({A}) ON CONFLICT(k) DO UPDATE SET v = {B} RETURNING {A}",
                "PRAGMA key = {A}; PRAGMA rekey({B})",
                "ATTACH {A} AS aux; SELECT a/*{A}*/ MATCH {B} -- {A}",
            ][form];
            let shape = normalise(&form.replace("{A}", &a.0).replace("{B}", &b.0));
            prop_assert!(!shape.contains(&a.1) && !shape.contains(&b.1), "{}", shape);
        }
    }
}
