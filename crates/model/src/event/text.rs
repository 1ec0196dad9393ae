//! An event as a line of text: what `fathom export --events` writes, and what tests of the linker are made of.

use super::{Event, Header, Record};

impl Event {
    /// The text form: `@TIME cpuN TGID/TID NAME field=value …`, fields that are zero left out. Read by [`Event::parse`].
    pub fn to_text(&self) -> String {
        let h = &self.header;
        let mut out = format!("@{} cpu{} {}/{} {}", h.time_ns, h.cpu, h.tgid, h.tid, self.record.name());
        self.record.show_fields(&mut out);
        out
    }

    /// Reads the text form. The CPU may be left out (0), and a thread that is its process's first may be given once.
    ///
    /// # Errors
    /// A sentence that names what could not be read.
    pub fn parse(line: &str) -> Result<Self, String> {
        let mut words = split_words(line)?.into_iter().peekable();
        let time = words.next().ok_or("an empty line")?;
        let time_ns = time.strip_prefix('@').and_then(|t| t.replace('_', "").parse().ok());
        let mut header =
            Header { time_ns: time_ns.ok_or(format!("{time}: not a time such as @1000"))?, ..Header::default() };
        if let Some(cpu) = words.peek().and_then(|w| w.strip_prefix("cpu")?.parse().ok()) {
            header.cpu = cpu;
            words.next();
        }
        let who = words.next().ok_or("no thread")?;
        let (tgid, tid) = who.split_once('/').unwrap_or((&who, &who));
        header.tgid = tgid.parse().map_err(|_| format!("{who}: not TGID/TID"))?;
        header.tid = tid.parse().map_err(|_| format!("{who}: not TGID/TID"))?;
        let name = words.next().ok_or("no record name")?;
        let fields: Vec<(String, String)> = words
            .map(|w| w.split_once('=').map(|(k, v)| (k.into(), v.into())).ok_or(format!("{w}: not field=value")))
            .collect::<Result<_, _>>()?;
        let record = Record::parse_fields(&name, &fields)?;
        header.kind = record.kind();
        Ok(Self { header, record })
    }
}

/// Splits at spaces, but not inside a double-quoted value, whose escapes are Rust's.
fn split_words(line: &str) -> Result<Vec<String>, String> {
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
                match chars.next().ok_or("a text without its closing quote")? {
                    '"' => break,
                    '\\' => word.push(match chars.next().ok_or("a backslash at the end")? {
                        'n' => '\n',
                        't' => '\t',
                        'r' => '\r',
                        '0' => '\0',
                        'u' => {
                            let code: String =
                                chars.by_ref().skip_while(|&c| c == '{').take_while(|&c| c != '}').collect();
                            u32::from_str_radix(&code, 16).ok().and_then(char::from_u32).ok_or("a bad \\u{…}")?
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
    fn text_survives_quotes_and_control_characters() {
        let text = "say \"hi\"\n\\ <b> \u{7f}\u{1}é".to_string();
        let record = Statement { stmt: 9, text, ..Statement::default() }.into();
        let mut bytes = Vec::new();
        Event { header: Header::default(), record }.encode(&mut bytes);
        let event = Event::decode(&bytes).unwrap();
        assert_eq!(Event::parse(&event.to_text()), Ok(event));
    }
}
