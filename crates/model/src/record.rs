//! The memory layout of records with fixed fields, declared once for Rust, for C and for the manual.
//!
//! A record is its fields in the order they are declared, little-endian, each at a multiple of its own size (the
//! declaration must leave no gap; a test in [`crate::event`] checks that), then an optional tail of bytes whose length is
//! the field `len`. Nothing is cast: fields are read and written one by one, so a damaged file can at worst decode to
//! nonsense, never cause undefined behaviour.

use std::fmt::Write as _;

/// One field, as described to every language.
#[derive(Debug, Clone, Copy)]
pub struct FieldInfo {
    /// Name, the same in Rust, C and text.
    pub name: &'static str,
    /// Its type in the C header.
    pub c_type: &'static str,
    /// Number of elements, 1 for a plain field.
    pub count: usize,
    /// Size in bytes of all elements together.
    pub size: usize,
    /// Its meaning, with its unit.
    pub doc: &'static str,
}

/// One kind of record.
#[derive(Debug, Clone, Copy)]
pub struct RecordInfo {
    /// Name in text and, with the prefix `fathom_`, in C.
    pub name: &'static str,
    /// The number in the header's `kind`.
    pub kind: u8,
    /// What a record of this kind reports.
    pub doc: &'static str,
    /// The fields in order.
    pub fields: &'static [FieldInfo],
    /// Whether a tail of `len` bytes follows.
    pub tail: bool,
}

impl RecordInfo {
    /// Size of the fixed part in bytes.
    pub fn size(&self) -> usize {
        self.fields.iter().map(|f| f.size).sum()
    }
}

/// A type that a field may have.
pub trait Field: Sized + Copy + Default + PartialEq {
    /// Its name in C.
    const C_TYPE: &'static str;
    /// Number of elements.
    const COUNT: usize;
    /// Size in bytes.
    const SIZE: usize;
    /// Reads it from the start of `bytes`, which the caller has checked to hold [`Self::SIZE`].
    fn get(bytes: &[u8]) -> Self;
    /// Appends it.
    fn put(self, out: &mut Vec<u8>);
    /// Appends its text form.
    fn show(self, out: &mut String);
    /// Reads its text form.
    fn parse(text: &str) -> Option<Self>;
}

fn parse_int(text: &str) -> Option<i128> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |t| (true, t));
    let (digits, radix) = digits.strip_prefix("0x").map_or((digits, 10), |hex| (hex, 16));
    // A second sign, which the standard library would accept, could make the negation overflow.
    let value =
        digits.bytes().all(|b| b.is_ascii_alphanumeric()).then(|| i128::from_str_radix(digits, radix).ok())??;
    Some(if negative { -value } else { value })
}

macro_rules! integer_field {
    ($($t:ty => $c:literal),*) => {$(
        impl Field for $t {
            const C_TYPE: &'static str = $c;
            const COUNT: usize = 1;
            const SIZE: usize = size_of::<$t>();
            #[inline]
            fn get(bytes: &[u8]) -> Self {
                // Not `copy_from_slice`: without link-time optimisation, that is a call of memcpy for each field of each record.
                bytes.first_chunk().map_or(0, |raw| <$t>::from_le_bytes(*raw))
            }
            fn put(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn show(self, out: &mut String) {
                // Kernel addresses are shown in hexadecimal; everything else here is small.
                if size_of::<$t>() == 8 && (self as u64) > 1 << 48 && (self as i128) > 0 {
                    let _ = write!(out, "{:#x}", self);
                } else {
                    let _ = write!(out, "{}", self);
                }
            }
            fn parse(text: &str) -> Option<Self> {
                <$t>::try_from(parse_int(text)?).ok()
            }
        }
    )*};
}
integer_field!(u8 => "__u8", u16 => "__u16", u32 => "__u32", u64 => "__u64", i32 => "__s32", i64 => "__s64");

impl<T: Field, const N: usize> Field for [T; N]
where
    [T; N]: Default,
{
    const C_TYPE: &'static str = T::C_TYPE;
    const COUNT: usize = N;
    const SIZE: usize = T::SIZE * N;
    #[inline]
    fn get(bytes: &[u8]) -> Self {
        std::array::from_fn(|i| T::get(&bytes[i * T::SIZE..]))
    }
    fn put(self, out: &mut Vec<u8>) {
        for x in self {
            x.put(out);
        }
    }
    fn show(self, out: &mut String) {
        for (i, x) in self.into_iter().enumerate() {
            if i > 0 {
                out.push(',');
            }
            x.show(out);
        }
    }
    fn parse(text: &str) -> Option<Self> {
        let mut all = Self::default();
        let mut parts = text.split(',');
        for slot in &mut all {
            // If fewer elements are given than the array has, the rest are zeros: a test line names only what matters.
            match parts.next() {
                Some(part) => *slot = T::parse(part)?,
                None => break,
            }
        }
        parts.next().is_none().then_some(all)
    }
}

/// Declares the kinds of records: one struct each, the enum of them all, and their description.
///
/// `tail` marks a record that ends in a text of `len` bytes, kept in the field `text`.
#[macro_export]
macro_rules! records {
    ($(
        $(#[doc = $doc:literal])+
        $kind:literal $name:ident $Type:ident $([$tail:ident : $len:ident])? {
            $( $(#[doc = $fdoc:literal])+ $field:ident : $ty:ty ),* $(,)?
        }
    )*) => {
        $(
            $(#[doc = $doc])+
            #[derive(Debug, Clone, Default, PartialEq)]
            pub struct $Type {
                $( $(#[doc = $fdoc])+ pub $field: $ty, )*
                $(
                    #[doc = concat!("The ", stringify!($tail), " that follows the fixed part.")]
                    pub $tail: String,
                )?
            }
            impl $Type {
                /// Its layout.
                pub const INFO: $crate::record::RecordInfo = $crate::record::RecordInfo {
                    name: stringify!($name),
                    kind: $kind,
                    doc: concat!($($doc),+),
                    fields: &[$(
                        $crate::record::FieldInfo {
                            name: stringify!($field),
                            c_type: <$ty as $crate::record::Field>::C_TYPE,
                            count: <$ty as $crate::record::Field>::COUNT,
                            size: <$ty as $crate::record::Field>::SIZE,
                            doc: concat!($($fdoc),+),
                        },
                    )*],
                    tail: false $( || { let _ = stringify!($tail); true } )?,
                };
            }
        )*

        /// What happened: one variant per kind.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Record { $( $(#[doc = $doc])+ $Type($Type), )* }

        $( impl From<$Type> for Record { fn from(x: $Type) -> Self { Self::$Type(x) } } )*

        impl Record {
            /// Every kind, in the order of declaration.
            pub const KINDS: &'static [$crate::record::RecordInfo] = &[$($Type::INFO),*];

            /// The number in the header.
            pub fn kind(&self) -> u8 {
                match self { $( Self::$Type(_) => $kind, )* }
            }

            /// The name in text.
            pub fn name(&self) -> &'static str {
                match self { $( Self::$Type(_) => stringify!($name), )* }
            }

            /// Decodes the body of a record of `kind`. `None` if the kind is unknown or the body too short. Bytes after the
            /// fields (and the tail) are padding, or fields of a newer minor version, and are skipped.
            #[allow(unused_assignments, unused_variables, unused_mut)]
            pub fn decode(kind: u8, body: &[u8]) -> Option<Self> {
                match kind {
                    $( $kind => {
                        if body.len() < $Type::INFO.size() {
                            return None;
                        }
                        let mut at = 0;
                        $( let $field = <$ty as $crate::record::Field>::get(&body[at..]);
                           at += <$ty as $crate::record::Field>::SIZE; )*
                        Some(Self::$Type($Type {
                            $( $field, )*
                            $( $tail: String::from_utf8_lossy(body.get(at..at + usize::from($len))?).into_owned(), )?
                        }))
                    } )*
                    _ => None,
                }
            }

            /// Appends the body. A tail longer than `len` can express is cut at a character boundary.
            pub fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $( Self::$Type(x) => {
                        #[allow(unused_mut)]
                        let mut x = x.clone();
                        $( $crate::record::cut_to_u16(&mut x.$tail); x.$len = x.$tail.len() as u16; )?
                        $( $crate::record::Field::put(x.$field, out); )*
                        $( out.extend_from_slice(x.$tail.as_bytes()); )?
                    } )*
                }
            }

            /// Appends ` field=value` for every field that is not zero.
            pub fn show_fields(&self, out: &mut String) {
                match self {
                    $( Self::$Type(x) => {
                        $( if x.$field != <$ty>::default() && stringify!($field) != "len" {
                            out.push(' ');
                            out.push_str(stringify!($field));
                            out.push('=');
                            $crate::record::Field::show(x.$field, out);
                        } )*
                        $( out.push_str(concat!(" ", stringify!($tail), "="));
                           out.push_str(&format!("{:?}", x.$tail)); )?
                    } )*
                }
            }

            /// Parses the fields of text: `name=value` pairs; fields that are not named are zero.
            pub fn parse_fields(name: &str, fields: &[(String, String)]) -> Result<Self, $crate::event::ParseError> {
                use $crate::event::ParseError as E;
                match name {
                    $( stringify!($name) => {
                        #[allow(unused_mut)]
                        let mut x = $Type::default();
                        for (key, value) in fields {
                            match key.as_str() {
                                $( stringify!($field) => {
                                    x.$field = <$ty as $crate::record::Field>::parse(value)
                                        .ok_or_else(|| E::Value {
                                            field: key.clone(),
                                            value: value.clone(),
                                            expected: stringify!($ty),
                                        })?;
                                } )*
                                $( stringify!($tail) => x.$tail = value.clone(), )?
                                _ => return Err(E::UnknownField { record: name.into(), field: key.clone() }),
                            }
                        }
                        $( x.$len = x.$tail.len() as u16; )?
                        Ok(Self::$Type(x))
                    } )*
                    _ => Err(E::UnknownRecord(name.into())),
                }
            }
        }
    };
}

/// Cuts a text so that its length fits in a `u16`, at a character boundary.
pub fn cut_to_u16(text: &mut String) {
    let mut end = text.len().min(usize::from(u16::MAX));
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}

/// Returns the header that BPF programs include: one struct for a record's body and one constant per kind. Generated into
/// `crates/capture/src/bpf/events.h` by `cargo xtask gen`; lint fails if that file is stale.
pub fn c_header(constants: &[(&str, u64)], kinds: &[RecordInfo]) -> String {
    let mut out = String::from(
        "/* Generated from crates/model by `cargo xtask gen`. Do not edit. */\n\
         /* SPDX-License-Identifier: Apache-2.0 OR MIT */\n#ifndef FATHOM_EVENTS_H\n#define FATHOM_EVENTS_H\n\n",
    );
    let line = |f: &FieldInfo| {
        let dimension = if f.count > 1 { format!("[{}]", f.count) } else { String::new() };
        format!("\t{} {}{}; /* {} */\n", f.c_type, f.name, dimension, f.doc.trim())
    };
    for (name, value) in constants {
        let _ = writeln!(out, "#define FATHOM_{name} {value}");
    }
    out.push('\n');
    for k in kinds {
        let _ = writeln!(out, "#define FATHOM_KIND_{} {}", k.name.to_uppercase(), k.kind);
    }
    for k in kinds {
        let _ = write!(out, "\n/* {} */\nstruct fathom_{} {{\n", k.doc.trim(), k.name);
        k.fields.iter().for_each(|f| out.push_str(&line(f)));
        out.push_str("};\n");
    }
    out.push_str("\n#endif\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_parsed_in_decimal_and_hex() {
        assert_eq!(u64::parse("0xff"), Some(255));
        assert_eq!(i64::parse("-5"), Some(-5));
        assert_eq!(u8::parse("256"), None);
        for signs in ["--5", "-+5", "0x-5", "", "-", "0x", &format!("-{}", i128::MIN)] {
            assert_eq!(i64::parse(signs), None, "{signs}");
        }
        assert_eq!(<[u64; 4]>::parse("1,2"), Some([1, 2, 0, 0]));
        assert_eq!(<[u64; 2]>::parse("1,2,3"), None);
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        let mut text = "é".repeat(40_000);
        cut_to_u16(&mut text);
        assert_eq!(text.len(), 65_534);
    }
}
