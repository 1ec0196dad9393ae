//! Where a process has code: its executable mappings, from `/proc/PID/maps`.

use std::fs;

/// A file, or anonymous memory, mapped as code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeMapping {
    /// First address.
    pub from: u64,
    /// End address, exclusive.
    pub to: u64,
    /// Offset of its start in the file.
    pub offset: u64,
    /// The file's device and inode, as written there; zeroes: no file.
    pub file: (String, u64),
    /// The file's path, or a name in brackets; empty: none.
    pub name: String,
}

impl CodeMapping {
    /// Whether it maps a file.
    pub fn is_file(&self) -> bool {
        self.file.1 != 0
    }
}

/// Mappings by address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Maps(Vec<CodeMapping>);

impl Maps {
    /// Reads those of a process in `/proc`; `None` if it has ended.
    pub fn read(pid: u32) -> Option<Self> {
        let text = fs::read(format!("/proc/{pid}/maps")).ok()?;
        let maps = Self::parse(&String::from_utf8_lossy(&text));
        // Those of a zombie are empty.
        (!maps.0.is_empty()).then_some(maps)
    }

    /// Parses lines of the form `FROM-TO PERMISSIONS OFFSET MAJOR:MINOR INODE  NAME`. Invalid lines are skipped.
    pub fn parse(text: &str) -> Self {
        let mut all: Vec<CodeMapping> = text.lines().filter_map(parse_mapping).collect();
        all.sort_by_key(|m| m.from);
        all.dedup_by(|later, earlier| later.from < earlier.to);
        Self(all)
    }

    /// Returns the mapping that contains an address.
    pub fn find(&self, address: u64) -> Option<&CodeMapping> {
        let at = self.0.partition_point(|m| m.to <= address);
        self.0.get(at).filter(|m| m.from <= address)
    }

    pub fn iter(&self) -> impl Iterator<Item = &CodeMapping> {
        self.0.iter()
    }
}

fn parse_mapping(line: &str) -> Option<CodeMapping> {
    let mut rest = line;
    let mut word = || {
        let trimmed = rest.trim_start_matches(' ');
        let (word, after) = trimmed.split_once(' ').unwrap_or((trimmed, ""));
        rest = after;
        (!word.is_empty()).then_some(word)
    };
    let (from, to) = word()?.split_once('-')?;
    let permissions = word()?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let (offset, device, inode) = (hex(word()?)?, word()?, word()?.parse().ok()?);
    let (from, to) = (hex(from)?, hex(to)?);
    if from >= to || permissions.as_bytes().get(2) != Some(&b'x') {
        return None;
    }
    let name = rest.trim_start_matches(' ');
    let name = name.strip_suffix(" (deleted)").unwrap_or(name).to_string();
    Some(CodeMapping { from, to, offset, file: (device.to_string(), inode), name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_is_found_by_address() {
        let text = "\
55d0c0000000-55d0c0001000 r--p 00000000 fe:01 4242                       /usr/bin/a b
55d0c0001000-55d0c0005000 r-xp 00001000 fe:01 4242                       /usr/bin/a b
7f0000000000-7f0000002000 rwxp 00000000 00:00 0
7f0000010000-7f0000020000 r-xp 00002000 fe:01 77                         /tmp/libx.so (deleted)
7ffff7fc1000-7ffff7fc3000 r-xp 00000000 00:00 0                          [vdso]
damaged
7ffff7fd1000-7ffff7fc3000 r-xp 00000000 00:00 0                          [backwards]
";
        let maps = Maps::parse(text);
        let name = |address| maps.find(address).map(|m| (m.name.as_str(), m.is_file()));
        assert_eq!(maps.iter().count(), 4);
        assert_eq!(name(0x55d0_c000_0fff), None, "not executable");
        assert_eq!(name(0x55d0_c000_1000), Some(("/usr/bin/a b", true)));
        assert_eq!(name(0x55d0_c000_5000), None);
        assert_eq!(name(0x7f00_0000_1000), Some(("", false)));
        assert_eq!(name(0x7f00_0001_0000), Some(("/tmp/libx.so", true)));
        assert_eq!(name(0x7fff_f7fc_1000), Some(("[vdso]", false)));
        assert_eq!(Maps::parse("").find(0), None);
    }
}
