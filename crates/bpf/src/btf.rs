//! The kernel's type information (BTF): the offsets of its structs' members, and modules' types merged with its own.
//!
//! aya-obj relocates programs by it, but offers no access to structs, and reads only a single type section. The kernel
//! proper describes its types in [`VMLINUX_PATH`], a module only its own in a file next to it, as a continuation: its types are
//! numbered on from the kernel's, and its names follow the kernel's. The format: the kernel's Documentation/bpf/btf.rst.

use std::cell::RefCell;
use std::collections::BTreeMap;

/// The kernel's own types.
pub const VMLINUX_PATH: &str = "/sys/kernel/btf/vmlinux";

/// Little-endian, like every machine that the probes support.
const MAGIC: [u8; 2] = [0x9f, 0xeb];
/// `struct btf_header`: magic, version, flags, then five lengths and offsets.
const HEADER_BYTES: usize = 24;
const KIND_POINTER: u32 = 2;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
/// What has a name that a program can mean: integers, structs, unions, enumerations, forward declarations, typedefs, floats.
const NAMED_KINDS: [u32; 8] = [1, KIND_STRUCT, KIND_UNION, 6, 7, 8, 16, 19];

fn read_word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// Returns the parts of a type section: header length, types, names.
fn split_section(bytes: &[u8]) -> Option<(usize, &[u8], &[u8])> {
    if bytes.get(..2)? != MAGIC {
        return None;
    }
    let word = |at: usize| Some(read_word(bytes, at)? as usize);
    let header = word(4)?;
    let types = header.checked_add(word(8)?)?;
    let names = header.checked_add(word(16)?)?;
    Some((header, bytes.get(types..types.checked_add(word(12)?)?)?, bytes.get(names..names.checked_add(word(20)?)?)?))
}

/// Returns where a type's description, after its three words, refers to names and other types. `struct btf_type` of
/// include/uapi/linux/btf.h: (bytes that follow, their period, names at, types at) within each period.
fn kind_layout(kind: u32, members: usize) -> Option<(usize, usize, &'static [usize], &'static [usize])> {
    Some(match kind {
        // Integers, variables, declaration tags: a word of flags.
        1 | 14 | 17 => (4, 4, &[], &[]),
        // Pointers, forward declarations, typedefs, qualifiers, functions, floats, type tags.
        2 | 7..=12 | 16 | 18 => (0, 1, &[], &[]),
        // Arrays: element, index, count.
        3 => (12, 12, &[], &[0, 4]),
        // Structs and unions: name, type, offset.
        KIND_STRUCT | KIND_UNION => (12 * members, 12, &[0], &[4]),
        // Enumerations: name, value.
        6 => (8 * members, 8, &[0], &[]),
        // Prototypes: name, type.
        13 => (8 * members, 8, &[0], &[4]),
        // Sections: type, offset, bytes.
        15 => (12 * members, 12, &[], &[0]),
        // 64-bit enumerations: name, low, high.
        19 => (12 * members, 12, &[0], &[]),
        _ => return None,
    })
}

/// Whether the third word of a kind is a type rather than a size.
fn refers_to_type(kind: u32) -> bool {
    matches!(kind, 2 | 8..=14 | 17 | 18)
}

/// Walks over types. `name` and `ty` are applied to every reference to a name or type; returns the number of types.
fn rewrite_references(types: &mut [u8], name: impl Fn(u32) -> u32, ty: impl Fn(u32) -> u32) -> Option<u32> {
    fn change(types: &mut [u8], at: usize, f: impl Fn(u32) -> u32) -> Option<()> {
        let word = types.get_mut(at..at.checked_add(4)?)?;
        let new = f(u32::from_le_bytes(word.try_into().ok()?));
        word.copy_from_slice(&new.to_le_bytes());
        Some(())
    }
    let (mut at, mut count) = (0, 0u32);
    while at < types.len() {
        let info = u32::from_le_bytes(types.get(at + 4..at + 8)?.try_into().ok()?);
        let (kind, members) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
        let (bytes, period, names, others) = kind_layout(kind, members)?;
        change(types, at, &name)?;
        if refers_to_type(kind) {
            change(types, at + 8, &ty)?;
        }
        at += 12;
        types.get(at..at + bytes)?;
        for start in (at..at + bytes).step_by(period) {
            names.iter().try_for_each(|n| change(types, start + n, &name))?;
            others.iter().try_for_each(|t| change(types, start + t, &ty))?;
        }
        at += bytes;
        count += 1;
    }
    Some(count)
}

/// Appends modules' type sections to the kernel's. Each continues only the kernel's, so all except the first have their own
/// types and names shifted past the ones before. `None` if one is damaged.
pub fn append_modules(base: &[u8], modules: &[Vec<u8>]) -> Option<Vec<u8>> {
    let (_, base_types, base_names) = split_section(base)?;
    let (mut types, mut names) = (base_types.to_vec(), base_names.to_vec());
    let kernel_count = rewrite_references(&mut types, |n| n, |t| t)?;
    let kernel_name_bytes = u32::try_from(names.len()).ok()?;
    let mut count = kernel_count;
    for module in modules {
        let (_, module_types, module_names) = split_section(module)?;
        let mut moved = module_types.to_vec();
        let (type_shift, name_shift) = (count - kernel_count, u32::try_from(names.len()).ok()? - kernel_name_bytes);
        // Type 0 is `void` and has no description, so the kernel's last type has the number `kernel_count`.
        let shift = |n: u32, after: u32, by: u32| if n >= after { n.saturating_add(by) } else { n };
        count += rewrite_references(
            &mut moved,
            |n| shift(n, kernel_name_bytes, name_shift),
            |t| shift(t, kernel_count + 1, type_shift),
        )?;
        types.extend_from_slice(&moved);
        names.extend_from_slice(module_names);
    }
    build_section(base, &types, &names)
}

/// Returns a section with these types and names, and the version of another.
fn build_section(like: &[u8], types: &[u8], names: &[u8]) -> Option<Vec<u8>> {
    let mut out = like.get(..4)?.to_vec();
    for word in [HEADER_BYTES, 0, types.len(), types.len(), names.len()] {
        out.extend_from_slice(&u32::try_from(word).ok()?.to_le_bytes());
    }
    out.extend_from_slice(types);
    out.extend_from_slice(names);
    Some(out)
}

pub fn type_names(bytes: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    let (_, _, names) = split_section(bytes)?;
    Some(names.split(|byte| *byte == 0))
}

/// Returns a section of the types with these names, and of what they consist of, numbered anew; pointers point to nothing. A loader that
/// searches all types for each name it needs then has few. `None` if the section is damaged.
pub fn subset(bytes: &[u8], wanted: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
    let (_, types, names) = split_section(bytes)?;
    // Where each type begins, by its number; 0 is `void`, which has no description.
    let mut starts = vec![0];
    let (mut at, mut needed) = (0, Vec::new());
    while at < types.len() {
        let (name, info) = (read_word(types, at)? as usize, read_word(types, at + 4)?);
        let kind = info >> 24 & 0x1f;
        if NAMED_KINDS.contains(&kind) && wanted(names.get(name..)?.split(|byte| *byte == 0).next()?) {
            needed.push(u32::try_from(starts.len()).ok()?);
        }
        starts.push(at);
        at += 12 + kind_layout(kind, (info & 0xffff) as usize)?.0;
    }
    starts.push(at);
    let description = |number: u32| types.get(*starts.get(number as usize)?..*starts.get(number as usize + 1)?);

    let mut kept = BTreeMap::from([(0, 0)]);
    while let Some(number) = needed.pop() {
        if kept.insert(number, 0).is_none() && read_word(description(number)?, 4)? >> 24 & 0x1f != KIND_POINTER {
            let refers_to = RefCell::new(&mut needed);
            let note = |ty| {
                refers_to.borrow_mut().push(ty);
                ty
            };
            rewrite_references(&mut description(number)?.to_vec(), |name| name, note)?;
        }
    }
    kept.values_mut().zip(0..).for_each(|(new, number)| *new = number);
    let mut few = Vec::new();
    for number in kept.keys().skip(1) {
        few.extend_from_slice(description(*number)?);
    }
    rewrite_references(&mut few, |name| name, |ty| kept.get(&ty).copied().unwrap_or(0))?;
    build_section(bytes, &few, names)
}

/// A struct: its type number, size, and members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Structure {
    /// Its number among the types of its section.
    pub id: u32,
    /// Size in bytes.
    pub size: usize,
    /// In the kernel's order, by which `expected_attach_type` counts them.
    pub members: Vec<Member>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name; empty if it has none.
    pub name: String,
    /// Offset in the struct, in bytes.
    pub offset: usize,
}

impl Structure {
    /// Returns the member with this name, and its index.
    pub fn member(&self, name: &str) -> Option<(u32, &Member)> {
        self.members.iter().zip(0..).find(|(member, _)| member.name == name).map(|(member, index)| (index, member))
    }
}

/// The structs of the kernel, or of a module and the kernel.
pub struct Structs<'a> {
    /// Types of the module, if there is one, then of the kernel.
    types: Vec<&'a [u8]>,
    /// Names of the kernel, then of the module.
    names: [&'a [u8]; 2],
}

impl<'a> Structs<'a> {
    /// Creates it from these type sections; `None` if one is damaged.
    pub fn from_sections(kernel: &'a [u8], module: Option<&'a [u8]>) -> Option<Self> {
        let (_, types, names) = split_section(kernel)?;
        let (more, more_names) = match module {
            Some(module) => split_section(module).map(|(_, types, names)| (types, names))?,
            None => (&[][..], &[][..]),
        };
        Some(Self { types: vec![more, types], names: [names, more_names] })
    }

    /// Returns the first struct with this name; `None` if there is none or the section is damaged.
    pub fn get(&self, name: &str) -> Option<Structure> {
        self.types.iter().find_map(|types| self.find(types, name, |_| true))
    }

    /// Returns the offset, in bytes, of a field in the first struct of that name that has it.
    pub fn offset(&self, struct_name: &str, field: &str) -> Option<u32> {
        let has = |found: &Structure| found.member(field).is_some();
        let found = self.types.iter().find_map(|types| self.find(types, struct_name, has))?;
        found.member(field).and_then(|(_, member)| u32::try_from(member.offset).ok())
    }

    fn find(&self, types: &[u8], name: &str, wanted: impl Fn(&Structure) -> bool) -> Option<Structure> {
        let (mut at, mut id) = (0, 0);
        while at < types.len() {
            id += 1;
            let info = read_word(types, at + 4)?;
            let (kind, members) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
            if kind == KIND_STRUCT && self.name(read_word(types, at)?)? == name.as_bytes() {
                let found = Structure {
                    id,
                    size: read_word(types, at + 8)? as usize,
                    members: (0..members)
                        .map(|n| self.member(types, at + 12 + 12 * n, info >> 31 == 1))
                        .collect::<Option<_>>()?,
                };
                if wanted(&found) {
                    return Some(found);
                }
            }
            at += 12 + kind_layout(kind, members)?.0;
        }
        None
    }

    fn member(&self, types: &[u8], at: usize, has_bit_fields: bool) -> Option<Member> {
        let name = String::from_utf8_lossy(self.name(read_word(types, at)?)?).into_owned();
        // If a struct has bit fields, the upper byte is the width.
        let bits = read_word(types, at + 8)? & if has_bit_fields { 0xff_ffff } else { u32::MAX };
        Some(Member { name, offset: bits as usize / 8 })
    }

    fn name(&self, at: u32) -> Option<&[u8]> {
        let (at, kernels) = (at as usize, self.names[0].len());
        let rest = if at < kernels { self.names[0].get(at..) } else { self.names[1].get(at - kernels..) };
        rest?.split(|b| *b == 0).next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aya_obj::btf::Btf;
    use proptest::prelude::*;

    fn section_of(types: &[u8], names: &[u8]) -> Vec<u8> {
        let mut out = vec![0x9f, 0xeb, 1, 0];
        // Names come first in the file, to show that offsets are followed.
        for word in [24, names.len(), types.len(), 0, names.len()] {
            out.extend_from_slice(&(word as u32).to_le_bytes());
        }
        out.extend_from_slice(names);
        out.extend_from_slice(types);
        out
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    /// The kernel has `int` (1); a module has a struct of that name (2) with one `int`, and a pointer to it (3).
    fn kernel_and_module(name: &str) -> (Vec<u8>, Vec<u8>) {
        let kernel = section_of(&words(&[1, 1 << 24, 4, 32]), b"\0int\0");
        let of_struct = [5, 4 << 24 | 1, 4, 5 + name.len() as u32 + 1, 1, 0, 0, 2 << 24, 2];
        (kernel, section_of(&words(&of_struct), format!("{name}\0m\0").as_bytes()))
    }

    #[test]
    fn module_types_are_renumbered_consecutively() {
        let (kernel, one) = kernel_and_module("one");
        let (_, other) = kernel_and_module("other");
        let joined = append_modules(&kernel, &[one, other]).unwrap();
        let (_, types, names) = split_section(&joined).unwrap();
        assert_eq!(names, b"\0int\0one\0m\0other\0m\0");
        let seen: Vec<u32> = types.chunks(4).map(|w| u32::from_le_bytes(w.try_into().unwrap())).collect();
        let int = [1, 1 << 24, 4, 32];
        let first = [5, 4 << 24 | 1, 4, 9, 1, 0, 0, 2 << 24, 2];
        let second = [11, 4 << 24 | 1, 4, 17, 1, 0, 0, 2 << 24, 4];
        assert_eq!(seen, [&int[..], &first, &second].concat());
        assert!(Btf::parse(&joined, Default::default()).is_ok());
    }

    #[test]
    fn fields_are_found_in_kernel_and_module() {
        let (kernel, _) = kernel_and_module("one");
        // A struct with bit fields: `m`, 3 bits wide, begins at bit 64.
        let module = section_of(&words(&[5, 1 << 31 | 4 << 24 | 1, 16, 9, 1, 3 << 24 | 64]), b"one\0m\0");
        let structs = Structs::from_sections(&kernel, Some(&module)).unwrap();
        assert_eq!(structs.offset("one", "m"), Some(8));
        assert_eq!(structs.offset("one", "int"), None);
        assert_eq!(structs.offset("on", "m"), None);
        let own = section_of(&words(&[1, 1 << 24, 4, 32, 5, 4 << 24 | 1, 8, 9, 1, 32]), b"\0int\0one\0m\0");
        assert_eq!(Structs::from_sections(&own, None).unwrap().offset("one", "m"), Some(4));
        for cut in 0..module.len() {
            let _ = Structs::from_sections(&kernel, Some(&module[..cut])).map(|s| s.offset("one", "m"));
        }
    }

    #[test]
    fn subset_has_wanted_types_and_their_parts() {
        let (kernel, one) = kernel_and_module("one");
        let (_, other) = kernel_and_module("other");
        let joined = append_modules(&kernel, &[one, other]).unwrap();
        let few = subset(&joined, |name| name == b"other").unwrap();
        let structs = Structs::from_sections(&few, None).unwrap();
        assert_eq!(structs.get("other").map(|found| (found.id, found.size)), Some((2, 4)));
        assert_eq!((structs.offset("other", "m"), structs.get("one")), (Some(0), None));
        let (_, types, _) = split_section(&few).unwrap();
        assert_eq!(types, words(&[1, 1 << 24, 4, 32, 11, 4 << 24 | 1, 4, 17, 1, 0]), "`int`, and the struct with one");
        let all: Vec<&[u8]> = type_names(&joined).unwrap().collect();
        assert_eq!(all, [&b""[..], b"int", b"one", b"m", b"other", b"m", b""]);
        assert!(Btf::parse(&few, Default::default()).is_ok());
    }

    #[test]
    fn subset_of_running_kernel_has_same_offsets() {
        let Ok(kernel) = std::fs::read(VMLINUX_PATH) else {
            return println!("SKIP subset_of_running_kernel_has_same_offsets: the kernel has no BTF");
        };
        let wanted = ["task_struct", "bio", "request", "inode"];
        let few = subset(&kernel, |name| wanted.iter().any(|wanted| wanted.as_bytes() == name)).unwrap();
        assert!(few.len() < kernel.len() && Btf::parse(&few, Default::default()).is_ok());
        for name in wanted {
            let of = |section| get(section, name).map(|found| (found.size, found.members));
            assert!(of(&few).is_some() && of(&few) == of(&kernel), "{name}");
        }
    }

    #[test]
    fn truncated_btf_is_refused() {
        let (kernel, module) = kernel_and_module("one");
        for cut in 0..module.len() {
            assert_eq!(append_modules(&kernel, &[module[..cut].to_vec()]), None, "cut at {cut}");
        }
        for cut in 0..kernel.len() {
            assert_eq!(append_modules(&kernel[..cut], std::slice::from_ref(&module)), None, "cut at {cut}");
            assert_eq!(subset(&kernel[..cut], |_| true), None, "cut at {cut}");
        }
    }

    fn get(kernel: &[u8], name: &str) -> Option<Structure> {
        Structs::from_sections(kernel, None)?.get(name)
    }

    /// `int`, then `struct ops { int a; int (bits) b; }` with or without the flag for bit fields.
    fn blob(has_bitfields: bool) -> Vec<u8> {
        let strings = b"\0int\0ops\0a\0b\0";
        let flag = u32::from(has_bitfields) << 31;
        let wide = if has_bitfields { 3 << 24 } else { 0 };
        let types: Vec<u32> = vec![1, 1 << 24, 4, 32, 5, KIND_STRUCT << 24 | 2 | flag, 8, 9, 1, 0, 11, 1, 32 | wide];
        let mut blob = MAGIC.to_vec();
        blob.extend([1, 0]);
        let length = 4 * types.len() as u32;
        for word in [24, 0, length, length, strings.len() as u32].iter().chain(&types) {
            blob.extend(word.to_le_bytes());
        }
        blob.extend(strings);
        blob
    }

    #[test]
    fn members_are_found_by_name() {
        for has_bitfields in [false, true] {
            let found = get(&blob(has_bitfields), "ops").expect("it is there");
            assert_eq!((found.id, found.size), (2, 8));
            assert_eq!(found.member("b"), Some((1, &Member { name: "b".into(), offset: 4 })));
            assert_eq!(found.member("c"), None);
        }
        assert_eq!(get(&blob(false), "int"), None);
    }

    #[test]
    fn btf_of_running_kernel_is_read() {
        let Ok(kernel) = std::fs::read(VMLINUX_PATH) else {
            return println!("SKIP btf_of_running_kernel_is_read: the kernel has no BTF");
        };
        let list = get(&kernel, "list_head").expect("every kernel has lists");
        assert_eq!(list.size, 2 * size_of::<usize>());
        assert_eq!(list.member("prev").map(|(index, m)| (index, m.offset)), Some((1, size_of::<usize>())));
    }

    proptest! {
        #[test]
        fn damaged_types_do_not_panic(cut in 0usize..100, at in 0usize..100, value: u8) {
            let mut bytes = blob(true);
            bytes.truncate(bytes.len().saturating_sub(cut));
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
            let _ = get(&bytes, "ops");
            let _ = subset(&bytes, |_| true);
        }
    }
}
