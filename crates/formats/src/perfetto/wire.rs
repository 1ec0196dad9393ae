//! The protobuf encoding: a message is its fields, each a tag (number and wire type) and a value; a nested message is a
//! field of bytes. <https://protobuf.dev/programming-guides/encoding/>

/// Appends fields to a message.
pub trait Encode {
    /// A number.
    fn varint(&mut self, field: u32, value: u64);
    /// A number of 8 bytes, for numbers that are rarely small (`fixed64`, `double`).
    fn fixed64(&mut self, field: u32, value: u64);
    /// A text, or bytes.
    fn bytes(&mut self, field: u32, value: &[u8]);
    /// A nested message.
    fn message(&mut self, field: u32, fill: impl FnOnce(&mut Vec<u8>));
}

impl Encode for Vec<u8> {
    fn varint(&mut self, field: u32, value: u64) {
        put_varint(self, u64::from(field) << 3);
        put_varint(self, value);
    }

    fn fixed64(&mut self, field: u32, value: u64) {
        put_varint(self, u64::from(field) << 3 | 1);
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn bytes(&mut self, field: u32, value: &[u8]) {
        put_varint(self, u64::from(field) << 3 | 2);
        put_varint(self, value.len() as u64);
        self.extend_from_slice(value);
    }

    fn message(&mut self, field: u32, fill: impl FnOnce(&mut Vec<u8>)) {
        put_varint(self, u64::from(field) << 3 | 2);
        let start = self.len();
        fill(self);
        // The length comes first and is known last. Our messages are short, so moving them costs less than a pass
        // that only counts.
        let mut length = Vec::with_capacity(5);
        put_varint(&mut length, (self.len() - start) as u64);
        self.splice(start..start, length);
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// A number, also of the types `fixed32` and `fixed64` (their bits).
    Number(u64),
    /// A text, bytes, or a message.
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    /// As a number; 0 if it is not one, which is protobuf's value for a missing field.
    pub fn number(self) -> u64 {
        match self {
            Self::Number(x) => x,
            Self::Bytes(_) => 0,
        }
    }

    /// As bytes; empty if it is a number.
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Self::Bytes(x) => x,
            Self::Number(_) => &[],
        }
    }

    /// As text, with invalid UTF-8 replaced.
    pub fn text(self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }
}

/// The fields of an untrusted message: ends at the first byte that cannot be parsed.
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    rest: &'a [u8],
    failed: bool,
}

impl<'a> Fields<'a> {
    /// Iterates over the message in `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, failed: false }
    }

    /// Bytes not yet read. Whatever is left when the iterator has ended could not be parsed.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Whether a field could not be parsed.
    pub fn failed(&self) -> bool {
        self.failed
    }

    fn field(rest: &mut &'a [u8]) -> Option<(u32, Value<'a>)> {
        let tag = take_varint(rest)?;
        let field = u32::try_from(tag >> 3).ok().filter(|&f| f > 0 && f < 1 << 29)?;
        let value = match tag & 7 {
            0 => Value::Number(take_varint(rest)?),
            1 => Value::Number(u64::from_le_bytes(take(rest, 8)?.try_into().ok()?)),
            2 => {
                let len = usize::try_from(take_varint(rest)?).ok()?;
                Value::Bytes(take(rest, len)?)
            }
            5 => Value::Number(u32::from_le_bytes(take(rest, 4)?.try_into().ok()?).into()),
            // Groups, which Perfetto never used, and invalid types.
            _ => return None,
        };
        Some((field, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u32, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.rest.is_empty() {
            return None;
        }
        let mut rest = self.rest;
        let field = Self::field(&mut rest);
        match field {
            Some(_) => self.rest = rest,
            None => self.failed = true,
        }
        field
    }
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(len)?;
    *rest = after;
    Some(taken)
}

pub(crate) fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for (i, &byte) in rest.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7f);
        if i == 9 && bits > 1 {
            return None;
        }
        value |= bits << (7 * i);
        if byte < 0x80 {
            *rest = &rest[i + 1..];
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The examples of the documentation of the encoding.
    #[test]
    fn protobuf_documentation_examples_match() {
        let mut out = Vec::new();
        out.varint(1, 150);
        out.bytes(2, b"testing");
        assert_eq!(out, b"\x08\x96\x01\x12\x07testing");
        let mut out = Vec::new();
        out.message(3, |m| m.varint(1, 150));
        assert_eq!(out, b"\x1a\x03\x08\x96\x01");
    }

    #[test]
    fn undecodable_input_ends_reading_with_error() {
        // Truncated in a tag, a varint, a length, a text; field 0; a group; a varint of 11 bytes.
        for bytes in [&b"\x80"[..], b"\x08\x96", b"\x12", b"\x12\x05ab", b"\x00\x00", b"\x0b", &[0x08; 1], &[0xff; 12]]
        {
            let mut fields = Fields::new(bytes);
            assert_eq!(fields.next(), None, "{bytes:x?}");
            assert!(fields.failed(), "{bytes:x?}");
        }
    }

    proptest! {
        #[test]
        fn fields_round_trip(numbers in prop::collection::vec((1_u32..1000, any::<u64>(), any::<bool>()), 0..20), text: Vec<u8>) {
            let mut out = Vec::new();
            for (field, value, fixed) in &numbers {
                if *fixed { out.fixed64(*field, *value) } else { out.varint(*field, *value) }
            }
            out.message(7, |m| m.bytes(1, &text));
            let mut fields = Fields::new(&out);
            for (field, value, _) in numbers {
                prop_assert_eq!(fields.next(), Some((field, Value::Number(value))));
            }
            let (_, inner) = fields.next().unwrap();
            prop_assert_eq!(Fields::new(inner.bytes()).next(), Some((1, Value::Bytes(&text))));
            prop_assert!(fields.next().is_none() && !fields.failed());
        }
    }
}
