//! The kernel's functions by address, from `/proc/kallsyms`. Read when the first stack arrives: it has some 200,000 lines.

use std::collections::HashMap;
use std::fs;

/// The start of a function: positions of its name and its module's in the text.
#[derive(Debug)]
struct Symbol {
    address: u64,
    name: (u32, u32),
    module: (u32, u32),
}

/// The functions of the running kernel.
#[derive(Debug, Default)]
pub struct KernelNames {
    text: String,
    symbols: Vec<Symbol>,
    known: HashMap<u64, Option<usize>>,
}

/// A function and the offset in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelFunction<'a> {
    pub name: &'a str,
    /// Offset in the function.
    pub offset: u64,
    /// The module; `kernel` if it is in none.
    pub module: &'a str,
}

impl KernelNames {
    /// Reads them; empty if addresses are hidden from this user.
    pub fn read() -> Self {
        Self::parse(
            fs::read("/proc/kallsyms").map(|text| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default(),
        )
    }

    /// Parses lines of the form `ADDRESS TYPE NAME [MODULE]`.
    pub fn parse(text: String) -> Self {
        let mut symbols = Vec::new();
        let place = |part: &str| {
            let at = part.as_ptr() as usize - text.as_ptr() as usize;
            Some((u32::try_from(at).ok()?, part.len() as u32))
        };
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next()) else { continue };
            let Some(address) = u64::from_str_radix(address, 16).ok().filter(|address| *address != 0) else { continue };
            if !matches!(kind, "t" | "T" | "w" | "W") {
                continue;
            }
            let module = words.next().and_then(|module| place(module.trim_matches(['[', ']']))).unwrap_or_default();
            let Some(name) = place(name) else { continue };
            symbols.push(Symbol { address, name, module });
        }
        symbols.sort_by_key(|symbol| symbol.address);
        Self { text, symbols, known: HashMap::new() }
    }

    /// Returns the function that contains a return address.
    pub fn find(&mut self, address: u64) -> Option<KernelFunction<'_>> {
        // A call may be a function's last instruction.
        let within = address.wrapping_sub(1);
        let symbols = &self.symbols;
        let at = *self.known.entry(address).or_insert_with(|| {
            let last = symbols.partition_point(|symbol| symbol.address <= within).checked_sub(1)?;
            // Among several at one address, the first one listed.
            Some(symbols.partition_point(|symbol| symbol.address < symbols[last].address))
        });
        let symbol = self.symbols.get(at?)?;
        let part = |(from, len): (u32, u32)| self.text.get(from as usize..(from + len) as usize).unwrap_or_default();
        let module = Some(part(symbol.module)).filter(|module| !module.is_empty()).unwrap_or("kernel");
        Some(KernelFunction { name: part(symbol.name), offset: address - symbol.address, module })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn function_of_address_is_nearest_before_it() {
        let text = "ffffffff81000000 T _stext\nffffffff81000100 t schedule\nffffffff81000100 T schedule_alias\n\
                    ffffffff81000140 D data\nffffffffc0000000 t ext4_sync_file\t[ext4]\nzz\n0 T hidden\n";
        let mut names = KernelNames::parse(text.into());
        let mut find = |address| names.find(address).map(|f| (f.name.to_string(), f.offset, f.module.to_string()));
        let found = |name: &str, offset, module: &str| Some((name.to_string(), offset, module.to_string()));
        assert_eq!(find(0xffff_ffff_8100_0110), found("schedule", 0x10, "kernel"));
        // A return address at a function's first byte belongs to a call in the function before it.
        assert_eq!(find(0xffff_ffff_8100_0100), found("_stext", 0x100, "kernel"));
        assert_eq!(find(0xffff_ffff_c000_0004), found("ext4_sync_file", 4, "ext4"));
        assert_eq!(find(0x1000), None);
        assert_eq!(KernelNames::parse(String::new()).find(5), None);
    }
}
