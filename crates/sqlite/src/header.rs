//! The header in the first bytes of a database.

/// The first 100 bytes of a database (<https://sqlite.org/fileformat2.html#the_database_header>).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatabaseHeader {
    /// Page size in bytes.
    pub page_size: u32,
    /// Whether it is in WAL mode; if not, in one of the modes with a rollback journal, or without any.
    pub wal: bool,
    /// 1 to 4; 0: no table was ever created, as far as this file shows.
    pub schema_format: u32,
    /// 1 UTF-8, 2 UTF-16le, 3 UTF-16be; 0: not set yet.
    pub encoding: u32,
}

impl DatabaseHeader {
    /// Size of the header in bytes.
    pub const SIZE: usize = 100;

    /// Parses it; `None`: this is not a database, or its header is invalid.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.first_chunk::<{ Self::SIZE }>()?;
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let page_size = match u32::from(bytes[16]) << 8 | u32::from(bytes[17]) {
            1 => 65_536,
            size => size,
        };
        // The format's two versions: for writing and for reading.
        let wal = match (bytes[18], bytes[19]) {
            (1, 1) => false,
            (2, 2) => true,
            _ => return None,
        };
        let sound = bytes.starts_with(b"SQLite format 3\0") && page_size.is_power_of_two() && page_size >= 512;
        let header = Self { page_size, wal, schema_format: word(44), encoding: word(56) };
        (sound && header.schema_format <= 4 && header.encoding <= 3).then_some(header)
    }

    /// Returns its facts, by the name of their PRAGMA, without those that it leaves open.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let mode = if self.wal { "wal" } else { "not wal (delete, truncate, persist, memory or off)" };
        let mut facts = vec![("page_size", self.page_size.to_string()), ("journal_mode", mode.into())];
        facts.extend((self.schema_format > 0).then(|| ("schema_format", self.schema_format.to_string())));
        let encoding = ["", "UTF-8", "UTF-16le", "UTF-16be"][self.encoding as usize];
        facts.extend((!encoding.is_empty()).then(|| ("encoding", encoding.into())));
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_values_are_read_and_invalid_ones_unknown() {
        let mut bytes = [0; 100];
        bytes[..16].copy_from_slice(b"SQLite format 3\0");
        bytes[16..20].copy_from_slice(&[0x10, 0, 2, 2]);
        (bytes[47], bytes[59]) = (4, 1);
        let header = DatabaseHeader::parse(&bytes).unwrap();
        let facts =
            |header: DatabaseHeader| header.facts().into_iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>();
        assert_eq!(facts(header), ["page_size=4096", "journal_mode=wal", "schema_format=4", "encoding=UTF-8"]);
        // A new database in WAL mode: its schema and encoding are in the WAL.
        (bytes[47], bytes[59]) = (0, 0);
        bytes[16..20].copy_from_slice(&[0, 1, 1, 1]);
        let header = DatabaseHeader::parse(&bytes).unwrap();
        assert_eq!((header.page_size, header.facts().len()), (65_536, 2));
        for (at, value) in [(0, b'x'), (16, 3), (18, 3), (19, 2), (44, 9), (59, 4)] {
            let mut damaged = bytes;
            damaged[at] = value;
            assert_eq!(DatabaseHeader::parse(&damaged), None, "byte {at}");
        }
        assert_eq!(DatabaseHeader::parse(&bytes[..99]), None);
    }
}
