//! The trace context that an application passed with a statement, in a comment as written by sqlcommenter
//! (<https://google.github.io/sqlcommenter/spec/>): `SELECT 1 /*traceparent='00-…-…-01'*/`. It makes what happened below a
//! statement part of the application's own trace.
//!
//! Only a `traceparent` of W3C's Trace Context, version 00, is used: an identity of two numbers, which reveals nothing else. All
//! other comments may contain anything, and are dropped.

use crate::shape::comments;

/// A text separated from the context in it.
#[derive(Debug, PartialEq, Eq)]
pub struct SqlAndContext<'a> {
    /// The text without the comment that contains the context.
    pub text: String,
    /// The context, if it has one.
    pub traceparent: Option<&'a str>,
}

/// Returns the `traceparent` of a statement; the last one, since the layer nearest to the database writes last.
pub fn traceparent(sql: &str) -> Option<&str> {
    comments(sql).filter_map(|(at, end)| traceparent_in_comment(&sql[at..end])).last()
}

/// Appends to a shape the context of its statement, as stored in a log.
pub fn with_traceparent(shape: &str, traceparent: &str) -> String {
    format!("{shape} /*traceparent='{traceparent}'*/")
}

/// Separates text and context.
pub fn without_traceparent(sql: &str) -> SqlAndContext<'_> {
    let (mut text, mut from, mut traceparent) = (String::new(), 0, None);
    for (at, end) in comments(sql) {
        if let Some(found) = traceparent_in_comment(&sql[at..end]) {
            text.push_str(sql[from..at].trim_end());
            (from, traceparent) = (end, Some(found));
        }
    }
    text.push_str(&sql[from..]);
    SqlAndContext { text, traceparent }
}

/// Returns the context in a comment: `key='value'` pairs separated by commas.
fn traceparent_in_comment(comment: &str) -> Option<&str> {
    let body = comment.strip_prefix("/*")?.strip_suffix("*/")?;
    body.split(',').find_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        let value = value.trim().strip_prefix('\'')?.strip_suffix('\'')?;
        (key.trim() == "traceparent" && is_traceparent(value)).then_some(value)
    })
}

/// Whether a text is version 00 of a `traceparent`, with valid identities.
pub fn is_traceparent(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let hex = |part: &str, length: usize| {
        part.len() == length && part.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_nonzero = |part: &str| part.bytes().any(|c| c != b'0');
    matches!(parts[..], ["00", trace, span, flags]
        if hex(trace, 32) && is_nonzero(trace) && hex(span, 16) && is_nonzero(span) && hex(flags, 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn context_is_found_in_comments_only() {
        let found = |sql: &str| traceparent(sql).map(str::to_string);
        assert_eq!(found(&format!("SELECT 1 /*traceparent='{TRACEPARENT}'*/")).as_deref(), Some(TRACEPARENT));
        assert_eq!(
            found(&format!("SELECT 1 /* action='x%2Cy', traceparent='{TRACEPARENT}',tracestate='a%3D1' */;"))
                .as_deref(),
            Some(TRACEPARENT)
        );
        for other in [
            format!("SELECT '/*traceparent=''{TRACEPARENT}''*/'"),
            format!("SELECT \"/*traceparent='{TRACEPARENT}'*/\""),
            format!("SELECT 1 -- traceparent='{TRACEPARENT}'"),
            format!("SELECT 1 /*traceparent='{TRACEPARENT}'"),
            format!("SELECT 'open /*traceparent='{TRACEPARENT}'*/"),
            format!("SELECT 1 /*xtraceparent='{TRACEPARENT}'*/"),
            format!("SELECT 1 /*traceparent={TRACEPARENT}*/"),
            String::new(),
        ] {
            assert_eq!(found(&other), None, "{other}");
        }
    }

    #[test]
    fn identity_of_zeros_or_another_version_is_none() {
        assert!(is_traceparent(TRACEPARENT));
        for wrong in [
            TRACEPARENT.replacen("00", "01", 1),
            TRACEPARENT.replacen("00", "ff", 1),
            TRACEPARENT.to_uppercase(),
            format!("{TRACEPARENT}-x"),
            TRACEPARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            TRACEPARENT.replace("00f067aa0ba902b7", &"0".repeat(16)),
            TRACEPARENT[..54].into(),
            String::new(),
        ] {
            assert!(!is_traceparent(&wrong), "{wrong}");
        }
    }

    #[test]
    fn shape_and_context_come_back() {
        let sql = format!("INSERT INTO t VALUES (1, 'a') /*traceparent='{TRACEPARENT}'*/");
        let kept = with_traceparent(&crate::normalise(&sql), traceparent(&sql).unwrap());
        let parsed = without_traceparent(&kept);
        assert_eq!((parsed.text.as_str(), parsed.traceparent), ("INSERT INTO t VALUES (?, ?)", Some(TRACEPARENT)));
        let raw = without_traceparent(&sql);
        assert_eq!((raw.text.as_str(), raw.traceparent), ("INSERT INTO t VALUES (1, 'a')", Some(TRACEPARENT)));
        let plain = without_traceparent("SELECT 1 /* by hand */");
        assert_eq!((plain.text.as_str(), plain.traceparent), ("SELECT 1 /* by hand */", None));
    }
}
