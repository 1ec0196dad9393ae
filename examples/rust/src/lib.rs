//! A shop that appends its orders to a file.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

pub struct Shop(File);

impl Shop {
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(File::options().append(true).create(true).open(path)?))
    }

    /// Saves orders durably: all of them with one sync.
    pub fn save(&mut self, orders: &[&str]) -> io::Result<()> {
        for order in orders {
            writeln!(self.0, "{order}")?;
        }
        self.0.sync_data()
    }
}
