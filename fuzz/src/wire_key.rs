//! Key files.

use std::path::Path;
use wire::Key;

pub fn key_seeds() -> Vec<Vec<u8>> {
    let keys = [[0; 32], [0xab; 32]].map(|seed| Key::from_seed(seed).map(|key| key.to_text().into_bytes()));
    // Without seeds a target would test nothing, so this must be loud.
    assert!(keys.iter().all(Result::is_ok), "the seeds cannot be made");
    keys.into_iter().flatten().collect()
}

/// A key that is read is read the same from the text that it writes.
pub fn check_key(bytes: &[u8]) {
    let path = Path::new("key");
    if let Ok(key) = Key::from_text(&String::from_utf8_lossy(bytes), path) {
        assert_eq!(Key::from_text(&key.to_text(), path).ok(), Some(key));
    }
}
