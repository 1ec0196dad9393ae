//! A device number in the kernel's text format.

use model::Dev;

/// Reads `MAJOR:MINOR`.
pub(crate) fn parse_dev(text: &str) -> Option<Dev> {
    let (major, minor) = text.split_once(':')?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    (major < 1 << 12 && minor < 1 << 20).then(|| Dev::new(major, minor))
}
