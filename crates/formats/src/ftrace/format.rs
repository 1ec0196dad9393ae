//! The kernel's description of the layout of its events: `events/*/*/format`, `header_page` and `header_event`.
//!
//! Offsets differ between kernels, and fields come and go, so nothing is read at an offset that the kernel of the trace
//! did not give itself. A field that is missing is missing ([`Format::field`] is `None`), never zero by accident.

/// One field of an event or of a page's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its name, without the brackets of an array.
    pub name: String,
    /// Its type as the kernel writes it.
    pub of: String,
    /// Bytes from the event's start.
    pub offset: usize,
    /// Bytes; 0 for an array that extends to the event's end.
    pub size: usize,
    /// Whether it is signed.
    pub signed: bool,
}

impl Field {
    /// Whether it holds the location of the data: a length and an offset from the event's start, or from the field's
    /// own end.
    pub fn location(&self) -> Option<Location> {
        match self.of.split(' ').next() {
            Some("__data_loc") => Some(Location::FromEvent),
            Some("__rel_loc") => Some(Location::FromField),
            _ => None,
        }
    }
}

/// What the offset of a dynamic array is relative to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location {
    /// `__data_loc`.
    FromEvent,
    /// `__rel_loc`.
    FromField,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Format {
    /// Its subsystem, such as `block`; empty if unknown.
    pub system: String,
    pub name: String,
    /// The number at the start of each such event (`common_type`).
    pub id: u16,
    /// Its fields, those common to all events first.
    pub fields: Vec<Field>,
}

impl Format {
    /// Parses the text of a `format` file; `None` if it has no name or no number.
    pub fn parse(system: &str, text: &str) -> Option<Self> {
        let line = |key: &str| text.lines().find_map(|l| l.strip_prefix(key)).map(str::trim);
        Some(Self {
            system: system.into(),
            name: line("name:").filter(|n| !n.is_empty())?.into(),
            id: line("ID:")?.parse().ok()?,
            fields: parse_fields(text),
        })
    }

    /// The field of that name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|f| f.name == name)
    }
}

/// The fields that a text declares, one per line.
pub fn parse_fields(text: &str) -> Vec<Field> {
    text.lines().filter_map(|line| parse_field(line.trim())).collect()
}

/// `field:unsigned short common_type; offset:0; size:2; signed:0;`
fn parse_field(line: &str) -> Option<Field> {
    let mut parts = line.split(';').map(str::trim);
    let declared = parts.next()?.strip_prefix("field:").or_else(|| line.strip_prefix("field special:"))?.trim();
    let (mut offset, mut size, mut signed) = (None, None, false);
    for part in parts {
        match part.split_once(':') {
            Some(("offset", n)) => offset = n.parse().ok(),
            Some(("size", n)) => size = n.parse().ok(),
            Some(("signed", n)) => signed = n == "1",
            _ => {}
        }
    }
    // The brackets of an array follow the name, those of a dynamic one are in the type.
    let (of, name) = declared.rsplit_once([' ', '*'])?;
    let name = name.split('[').next().filter(|n| !n.is_empty())?;
    Some(Field { name: name.into(), of: of.trim().into(), offset: offset?, size: size?, signed })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BIO_QUEUE_FORMAT: &str = "name: block_bio_queue\nID: 2097\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:char rwbs[10];\toffset:28;\tsize:10;\tsigned:0;\n\
        \tfield:__data_loc char[] cmd;\toffset:60;\tsize:4;\tsigned:0;\n\
        \tfield:const char * filename;\toffset:24;\tsize:8;\tsigned:0;\n\
        \nprint fmt: \"%d,%d\", REC->dev\n";

    #[test]
    fn event_format_fields_are_parsed() {
        let format = Format::parse("block", BIO_QUEUE_FORMAT).unwrap();
        assert_eq!((format.name.as_str(), format.id), ("block_bio_queue", 2097));
        let names: Vec<&str> = format.fields.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["common_type", "common_pid", "dev", "rwbs", "cmd", "filename"]);
        let rwbs = format.field("rwbs").unwrap();
        assert_eq!((rwbs.offset, rwbs.size, rwbs.of.as_str(), rwbs.location()), (28, 10, "char", None));
        assert!(format.field("common_pid").unwrap().signed);
        assert_eq!(format.field("cmd").unwrap().location(), Some(Location::FromEvent));
        assert_eq!(format.field("sector"), None);
    }

    #[test]
    fn invalid_format_is_rejected() {
        for text in ["", "name: x\n", "ID: 5\n", "name:\nID: 5\n", "name: x\nID: 70000\n"] {
            assert_eq!(Format::parse("", text), None, "{text}");
        }
        assert_eq!(parse_fields("\tfield:int x;\n\tfield:;offset:0;size:1;\n"), []);
    }
}
