//! Decodes the recipes of all functions of real libraries: a trampoline must do the same as the code it replaces, wherever it is, and
//! nothing in the function may lead into the moved part.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind};
use inside::hook::Recipe;
use inside::hook::x86_64::recipe;
use object::{Object, ObjectSection, ObjectSymbol};
use std::path::Path;

/// SQLite, both C libraries, and two larger ones, not prepared for this; as installed by Debian.
const LIBRARY_PATHS: [&str; 5] = [
    "/usr/lib/x86_64-linux-gnu/libsqlite3.so.0",
    "/usr/lib/x86_64-linux-gnu/libc.so.6",
    "/usr/lib/x86_64-linux-gnu/libpq.so.5",
    "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
    "/usr/lib/x86_64-linux-musl/libc.so",
];
const JUMP_BYTES: u64 = 5;
/// The address of the trampolines: within reach of a jump.
const TRAMPOLINE_DISTANCE: u64 = 1 << 30;

fn decode(code: &[u8], at: u64) -> Vec<Instruction> {
    Decoder::with_ip(64, code, at, DecoderOptions::NONE).into_iter().collect()
}

/// Builds the trampoline as the object does (`build` of object/patch.h).
fn build_trampoline(recipe: &Recipe, at: u64, entry: u64) -> Vec<u8> {
    let mut code = recipe.code.clone();
    for fixup in &recipe.fixups {
        let from = at + u64::from(fixup.end);
        let target = entry.wrapping_add_signed(fixup.target.into());
        if fixup.absolute {
            code[fixup.at.into()..usize::from(fixup.at) + 8].copy_from_slice(&target.to_le_bytes());
            continue;
        }
        let distance = i32::try_from(target.wrapping_sub(from).cast_signed()).expect("in reach");
        code[fixup.at.into()..usize::from(fixup.at) + 4].copy_from_slice(&distance.to_le_bytes());
    }
    code
}

fn is_near_branch(instruction: &Instruction) -> bool {
    instruction.op_count() > 0 && instruction.op0_kind() == OpKind::NearBranch64
}

/// Returns the position-dependent address that an instruction names, if any.
fn named_address(instruction: &Instruction) -> Option<u64> {
    if is_near_branch(instruction) {
        return Some(instruction.near_branch_target());
    }
    instruction.is_ip_rel_memory_operand().then(|| instruction.ip_rel_memory_address())
}

/// Describes an instruction without its position, length, and what it names relative to its position.
fn meaning(instruction: &Instruction) -> String {
    let mut text = format!("{:?} {:?}", instruction.mnemonic(), instruction.condition_code());
    for n in 0..instruction.op_count() {
        let kind = instruction.op_kind(n);
        text += &match kind {
            OpKind::NearBranch64 => " branch".into(),
            OpKind::Register => format!(" {:?}", instruction.op_register(n)),
            OpKind::Memory => {
                let (base, index) = (instruction.memory_base(), instruction.memory_index());
                let (scale, size) = (instruction.memory_index_scale(), instruction.memory_size());
                let named = instruction.is_ip_rel_memory_operand();
                let at = if named { 0 } else { instruction.memory_displacement64() };
                format!(" {:?}:{base:?}+{index:?}*{scale}+{at:x} {size:?}", instruction.memory_segment())
            }
            _ => format!(" {kind:?} {:x}", instruction.immediate(n)),
        };
    }
    let prefixes = [instruction.has_lock_prefix(), instruction.has_rep_prefix(), instruction.has_repne_prefix()];
    format!("{text} {prefixes:?}")
}

/// Checks a trampoline that ends in a call: it pushes the address of the code after the call in the function, and jumps.
/// Removes that part.
fn check_call(name: &str, bytes: &mut Vec<u8>, at: u64, call: Instruction) {
    let back = u64::from_le_bytes(*bytes.last_chunk().unwrap());
    assert_eq!(back, call.next_ip(), "{name}: returns behind the call");
    bytes.truncate(bytes.len() - 8);
    let end = at + bytes.len() as u64;
    let both = decode(&bytes[bytes.len() - 11..], end - 11);
    assert!(both[0].mnemonic() == Mnemonic::Push && both[0].ip_rel_memory_address() == end, "{name}: {both:?}");
    assert!(both[1].mnemonic() == Mnemonic::Jmp && both[1].next_ip() == end, "{name}: {both:?}");
    assert_eq!(both[1].near_branch_target(), call.near_branch_target(), "{name}");
    bytes.truncate(bytes.len() - 11);
}

fn check_recipe(name: &str, entry: u64, code: &[u8], recipe: &Recipe) {
    let moved = recipe.original.len();
    assert_eq!(recipe.original, code[..moved], "{name}");
    let original = decode(&code[..moved], entry);
    let length: usize = original.iter().map(Instruction::len).sum();
    assert!(length == moved && original.iter().all(|i| !i.is_invalid()), "{name}: whole instructions");
    assert_eq!(original[0].len(), usize::from(recipe.first), "{name}");
    assert!(moved as u64 >= u64::from(recipe.first) + JUMP_BYTES, "{name}: room for the jump");
    let at = entry + TRAMPOLINE_DISTANCE;
    let mut bytes = build_trampoline(recipe, at, entry);
    let mut original = original;
    if original.last().is_some_and(|last| last.mnemonic() == Mnemonic::Call) {
        check_call(name, &mut bytes, at, original.pop().unwrap());
    }
    let trampoline = decode(&bytes, at);
    assert_eq!(trampoline.len(), original.len(), "{name}");
    for (ours, theirs) in trampoline.iter().zip(&original) {
        assert_eq!(meaning(ours), meaning(theirs), "{name}: {theirs:?}");
        assert_eq!(named_address(ours), named_address(theirs), "{name}: {theirs:?}");
    }
    // What the stub undoes of the first instruction.
    let lowered = match original[0].mnemonic() {
        Mnemonic::Sub if original[0].op0_register() == iced_x86::Register::RSP => original[0].immediate(1) as i64,
        _ => -i64::from(original[0].stack_pointer_increment()),
    };
    assert_eq!(i64::from(recipe.undo), lowered, "{name}");
    let taken = entry + 1..entry + moved as u64;
    for instruction in decode(code, entry) {
        let into = is_near_branch(&instruction) && taken.contains(&instruction.near_branch_target());
        assert!(!into, "{name}: {instruction:?} leads into what was moved");
    }
}

#[test]
fn trampolines_of_real_functions_do_the_same() {
    let mut any = false;
    for path in LIBRARY_PATHS.map(Path::new).into_iter().filter(|path| path.exists()) {
        any = true;
        let bytes = std::fs::read(path).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let (mut hooked, mut all) = (0, 0);
        for symbol in file.dynamic_symbols().chain(file.symbols()) {
            let is_function = symbol.is_definition() && symbol.kind() == object::SymbolKind::Text && symbol.size() > 0;
            let section = symbol.section_index().filter(|_| is_function);
            let Some(section) = section.and_then(|index| file.section_by_index(index).ok()) else { continue };
            let Some(at) = symbol.address().checked_sub(section.address()) else { continue };
            let Some(code) = section.data().ok().and_then(|d| d.get(at as usize..(at + symbol.size()) as usize)) else {
                continue;
            };
            all += 1;
            if let Ok(recipe) = recipe(code, &[0, 1, 2]) {
                check_recipe(symbol.name().unwrap_or("?"), symbol.address(), code, &recipe);
                hooked += 1;
            }
        }
        println!("{}: {hooked} of {all} functions can be hooked", path.display());
        assert!(all > 100 && hooked * 4 > all, "{}: {hooked} of {all}", path.display());
    }
    if !any {
        println!("SKIP trampolines_of_real_functions_do_the_same: none of the libraries of x86-64 is here");
    }
}
