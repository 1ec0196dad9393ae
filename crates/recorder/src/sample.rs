//! The recording that comes with the program: the output of `fathom demo`, made once by `make sample` on the machine named
//! here, so that a user without permission to trace sees a real result, clearly marked as not their own.

use crate::{ErrorContext as _, Result};
use archive::{Archive, Meta};
use model::text::ShownPath as _;
use std::path::Path;

/// The machine on which it was made.
pub const MACHINE_TEXT: &str = include_str!("../sample/machine.txt").trim_ascii_end();

/// Its metadata and its events. The tables are made from them.
const META_JSON: &[u8] = include_bytes!("../sample/meta.json");
const EVENT_LOG: &[u8] = include_bytes!("../sample/events.log");

/// Writes it to `to`, replacing an existing archive.
pub fn unpack(to: &Path) -> Result<()> {
    let meta = Meta::parse(Path::new("sample"), META_JSON)?;
    Archive::create(to, &meta, true)?;
    let log = to.join("events.log");
    std::fs::write(&log, EVENT_LOG).doing(|| format!("writing {}", log.shown()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_is_linked_without_losses() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("sample.fathom");
        unpack(&to).unwrap();
        let linked = crate::link::link(&to, &model::Context::silent(), &|_| ()).unwrap();
        assert!(linked.operations > 100, "{linked:?}");
        let summary = analysis::summarise_archive(&Archive::open(&to).unwrap()).unwrap();
        assert!(analysis::show::text(&summary).contains("\nNo losses"));
        assert!(
            META_JSON.windows(5).all(|w| w != b"/work" && w != b"/root"),
            "the sample names its machine's directories"
        );
    }
}
