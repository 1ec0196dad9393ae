//! An event as a line of text: the output of `fathom export --events`, and the input of the linker's tests.

use super::{Event, Header, ParseError, Record};

impl Event {
    /// Returns the text form: `@TIME cpuN TGID/TID NAME field=value …`, without fields that are zero. Parsed by
    /// [`Event::parse`].
    pub fn to_text(&self) -> String {
        let h = &self.header;
        let mut out = format!("@{} cpu{} {}/{} {}", h.time_ns, h.cpu, h.tgid, h.tid, self.record.name());
        self.record.show_fields(&mut out);
        out
    }

    /// Parses the text form. The CPU may be omitted (0), and the number of a process's first thread may be given once.
    ///
    /// # Errors
    /// The part that could not be parsed.
    pub fn parse(line: &str) -> Result<Self, ParseError> {
        let mut words = split_words(line)?.into_iter().peekable();
        let time = words.next().ok_or(ParseError::Empty)?;
        let time_ns = time.strip_prefix('@').and_then(|t| t.replace('_', "").parse().ok());
        let mut header = Header { time_ns: time_ns.ok_or(ParseError::Time(time))?, ..Header::default() };
        if let Some(cpu) = words.peek().and_then(|w| w.strip_prefix("cpu")?.parse().ok()) {
            header.cpu = cpu;
            words.next();
        }
        let who = words.next().ok_or(ParseError::NoThread)?;
        let (tgid, tid) = who.split_once('/').unwrap_or((&who, &who));
        header.tgid = tgid.parse().map_err(|_| ParseError::Thread(who.clone()))?;
        header.tid = tid.parse().map_err(|_| ParseError::Thread(who.clone()))?;
        let name = words.next().ok_or(ParseError::NoRecord)?;
        let fields: Vec<(String, String)> = words
            .map(|w| w.split_once('=').map(|(k, v)| (k.into(), v.into())).ok_or(ParseError::NotAField(w.clone())))
            .collect::<Result<_, _>>()?;
        let record = Record::parse_fields(&name, &fields)?;
        header.kind = record.kind();
        Ok(Self { header, record })
    }
}

/// Splits at spaces, but not inside a double-quoted value, whose escapes are Rust's.
fn split_words(line: &str) -> Result<Vec<String>, ParseError> {
    let mut words = Vec::new();
    let mut chars = line.trim().chars().peekable();
    while let Some(&c) = chars.peek() {
        if c.is_whitespace() {
            chars.next();
            continue;
        }
        let mut word = String::new();
        while let Some(&c) = chars.peek() {
            if c.is_whitespace() {
                break;
            }
            chars.next();
            if c != '"' {
                word.push(c);
                continue;
            }
            loop {
                match chars.next().ok_or(ParseError::OpenQuote)? {
                    '"' => break,
                    '\\' => word.push(match chars.next().ok_or(ParseError::OpenEscape)? {
                        'n' => '\n',
                        't' => '\t',
                        'r' => '\r',
                        '0' => '\0',
                        'u' => {
                            let code: String =
                                chars.by_ref().skip_while(|&c| c == '{').take_while(|&c| c != '}').collect();
                            u32::from_str_radix(&code, 16).ok().and_then(char::from_u32).ok_or(ParseError::Character)?
                        }
                        other => other,
                    }),
                    other => word.push(other),
                }
            }
        }
        words.push(word);
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Statement;

    #[test]
    fn invalid_lines_are_refused_with_reason() {
        let why = |line: &str| Event::parse(line).unwrap_err();
        assert_eq!(why("  "), ParseError::Empty);
        assert_eq!(why("@x 7 file"), ParseError::Time("@x".into()));
        assert_eq!(why("@1 cpu3"), ParseError::NoThread);
        assert_eq!(why("@1 7/x file"), ParseError::Thread("7/x".into()));
        assert_eq!(why("@1 7"), ParseError::NoRecord);
        assert_eq!(why("@1 7 phile"), ParseError::UnknownRecord("phile".into()));
        assert_eq!(why("@1 7 file dev"), ParseError::NotAField("dev".into()));
        assert_eq!(why("@1 7 file dve=1").to_string(), "file has no field dve");
        assert_eq!(why("@1 7 file dev=x").to_string(), "dev=x: not a u32");
        assert_eq!(why("@1 7 file text=\"a"), ParseError::OpenQuote);
        assert_eq!(why("@1 7 file text=\"a\\"), ParseError::OpenEscape);
        assert_eq!(why("@1 7 file text=\"\\u{d800}\""), ParseError::Character);
    }

    #[test]
    fn text_survives_quotes_and_control_characters() {
        let text = "say \"hi\"\n\\ <b> \u{7f}\u{1}é".to_string();
        let record = Statement { stmt: 9, text, ..Statement::default() }.into();
        let mut bytes = Vec::new();
        Event { header: Header::default(), record }.encode(&mut bytes);
        let event = Event::decode(&bytes).unwrap();
        assert_eq!(Event::parse(&event.to_text()), Ok(event));
    }
}
