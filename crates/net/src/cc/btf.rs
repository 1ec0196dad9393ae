//! The kernel's own types: where the members of a struct are.
//!
//! aya-obj relocates the programs, but lets nobody look into a struct; and the value that registers a congestion control is a
//! struct of the running kernel's, whose members move between versions. So the type section is read here, as far as
//! structs go. The format: the kernel's Documentation/bpf/btf.rst.

/// A struct: which type it is, how large, and its members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Structure {
    /// Its number among the kernel's types.
    pub id: u32,
    /// Bytes.
    pub size: usize,
    /// In the kernel's order, which is how `expected_attach_type` counts them.
    pub members: Vec<Member>,
}

/// A member of a struct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name; empty if it has none.
    pub name: String,
    /// Bytes from the struct's start.
    pub offset: usize,
}

impl Structure {
    /// The member of this name, with its number.
    pub fn member(&self, name: &str) -> Option<(u32, &Member)> {
        self.members.iter().zip(0..).find(|(member, _)| member.name == name).map(|(member, index)| (index, member))
    }
}

const MAGIC: u16 = 0xeb9f;
const STRUCT: u32 = 4;

/// The struct of this name in a BTF blob of this machine's byte order; `None` if there is none or the blob is damaged.
pub fn structure(blob: &[u8], name: &str) -> Option<Structure> {
    if u16::from_ne_bytes(blob.get(..2)?.try_into().ok()?) != MAGIC {
        return None;
    }
    let section = |at: usize| -> Option<&[u8]> {
        let start = (word(blob, 4)? as usize).checked_add(word(blob, at)? as usize)?;
        blob.get(start..start.checked_add(word(blob, at + 4)? as usize)?)
    };
    let (types, strings) = (section(8)?, section(16)?);
    let mut at = 0;
    let mut id = 0;
    while at < types.len() {
        id += 1;
        let (name_at, info, size) = (word(types, at)?, word(types, at + 4)?, word(types, at + 8)?);
        let (count, kind, has_bitfields) = (info as usize & 0xffff, (info >> 24) & 0x1f, info >> 31 == 1);
        at += 12;
        if kind == STRUCT && string(strings, name_at)? == name.as_bytes() {
            let members = (0..count).map(|n| member(types, strings, at + 12 * n, has_bitfields));
            return Some(Structure { id, size: size as usize, members: members.collect::<Option<_>>()? });
        }
        at += match kind {
            1 | 14 | 17 => 4,
            3 => 12,
            STRUCT | 5 | 15 | 19 => 12 * count,
            6 | 13 => 8 * count,
            2 | 7..=12 | 16 | 18 => 0,
            _ => return None,
        };
    }
    None
}

fn member(types: &[u8], strings: &[u8], at: usize, has_bitfields: bool) -> Option<Member> {
    let bits = word(types, at + 8)?;
    // Where a struct has bit fields the upper byte is the width.
    let bits = if has_bitfields { bits & 0xff_ffff } else { bits };
    let name = String::from_utf8_lossy(string(strings, word(types, at)?)?).into_owned();
    Some(Member { name, offset: bits as usize / 8 })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn string(strings: &[u8], at: u32) -> Option<&[u8]> {
    strings.get(at as usize..)?.split(|b| *b == 0).next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `int`, then `struct ops { int a; int (bits) b; }` with or without the flag for bit fields.
    fn blob(has_bitfields: bool) -> Vec<u8> {
        let strings = b"\0int\0ops\0a\0b\0";
        let flag = u32::from(has_bitfields) << 31;
        let wide = if has_bitfields { 3 << 24 } else { 0 };
        let types: Vec<u32> = vec![1, 1 << 24, 4, 32, 5, STRUCT << 24 | 2 | flag, 8, 9, 1, 0, 11, 1, 32 | wide];
        let mut blob = MAGIC.to_ne_bytes().to_vec();
        blob.extend([1, 0]);
        let length = 4 * types.len() as u32;
        for word in [24, 0, length, length, strings.len() as u32].iter().chain(&types) {
            blob.extend(word.to_ne_bytes());
        }
        blob.extend(strings);
        blob
    }

    #[test]
    fn members_are_found_by_name() {
        for has_bitfields in [false, true] {
            let found = structure(&blob(has_bitfields), "ops").expect("it is there");
            assert_eq!((found.id, found.size), (2, 8));
            assert_eq!(found.member("b"), Some((1, &Member { name: "b".into(), offset: 4 })));
            assert_eq!(found.member("c"), None);
        }
        assert_eq!(structure(&blob(false), "int"), None);
    }

    #[test]
    fn this_kernel_is_read() {
        let Ok(kernel) = std::fs::read("/sys/kernel/btf/vmlinux") else {
            return println!("SKIP this_kernel_is_read: the kernel has no BTF");
        };
        let list = structure(&kernel, "list_head").expect("every kernel has lists");
        assert_eq!(list.size, 2 * size_of::<usize>());
        assert_eq!(list.member("prev").map(|(index, m)| (index, m.offset)), Some((1, size_of::<usize>())));
    }

    proptest! {
        #[test]
        fn damaged_types_are_no_panic(cut in 0usize..100, at in 0usize..100, value: u8) {
            let mut bytes = blob(true);
            bytes.truncate(bytes.len().saturating_sub(cut));
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
            let _ = structure(&bytes, "ops");
        }
    }
}
