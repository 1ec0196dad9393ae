//! A key: 32 random bytes that seed an Ed25519 key pair, in a file of two lines.
//!
//! ```text
//! # A key of Fathom, …
//! fathom-key-1 SEED FINGERPRINT
//! ```
//!
//! The seed has 64 hexadecimal digits. The fingerprint is that of the public key, so that two people can compare keys
//! without revealing them, and a mistyped digit is detected when the file is read rather than as a failed authentication.

use crate::pinned::{self, Configs};
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// The prefix of the line with the key; the number is the version of the format.
const KEY_LINE_PREFIX: &str = "fathom-key-1";
/// The maximum size of a key file.
const KEY_FILE_BYTES_MAX: u64 = 4096;

/// Formats a path for a message: a name may contain line breaks.
fn show_path(path: &Path) -> String {
    path.to_string_lossy().replace(char::is_control, "\u{fffd}")
}

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file exists; an existing key would be lost.
    #[error("{} exists; keys are never overwritten, so choose another name or remove it first", show_path(path))]
    Exists { path: PathBuf },
    /// The file is readable by others.
    #[error("{} is readable by others (mode {mode:03o}); restrict it: chmod 600 {}", show_path(path), show_path(path))]
    Open { path: PathBuf, mode: u32 },
    #[error("cannot {action} the key file {}: {source}", show_path(path))]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    /// The content is not a key.
    #[error("{} is not a key: {why}; `fathom pool keygen FILE` makes one", show_path(path))]
    Malformed { path: PathBuf, why: KeyFormatError },
    /// There are no random numbers, or a cryptographic self-check fails.
    #[error("cannot create a key: {0}")]
    Unusable(String),
}

/// Why a text is not a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyFormatError {
    /// It has no line with a key.
    #[error("it has no line that begins with {KEY_LINE_PREFIX}")]
    NoKey,
    #[error("it has more than one key")]
    Several,
    #[error("the key has a newer format than this version supports")]
    Newer,
    /// The seed does not have 64 hexadecimal digits.
    #[error("a key has 64 hexadecimal digits")]
    Digits,
    /// The fingerprint does not match the digits.
    #[error("its digits do not match its fingerprint, so one of them was changed")]
    Fingerprint,
}

/// A key. Clones share the TLS configurations made from it.
#[derive(Clone)]
pub struct Key {
    seed: [u8; 32],
    fingerprint: String,
    pub(crate) configs: Configs,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({})", self.fingerprint)
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.seed == other.seed
    }
}

impl Eq for Key {}

impl Key {
    /// Generates a new key.
    pub fn generate() -> Result<Self, KeyError> {
        let mut seed = [0; 32];
        let drawn = SystemRandom::new().fill(&mut seed);
        drawn.map_err(|_| KeyError::Unusable("the system provides no random numbers".into()))?;
        Self::from_seed(seed)
    }

    /// Creates the key of these 32 bytes.
    pub fn from_seed(seed: [u8; 32]) -> Result<Self, KeyError> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|e| KeyError::Unusable(e.to_string()))?;
        let configs = pinned::derive_configs(&seed).map_err(|e| KeyError::Unusable(e.to_string()))?;
        Ok(Self { seed, fingerprint: pinned::fingerprint(pair.public_key().as_ref()), configs })
    }

    /// Its fingerprint, which is public: four groups of four hexadecimal digits.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The content of a key file. Secret.
    pub fn to_text(&self) -> String {
        let digits: String = self.seed.iter().map(|byte| format!("{byte:02x}")).collect();
        let advice = "This key is the only credential: keep it secret, and copy it only over a trusted channel.";
        format!("# A Fathom key. {advice}\n{KEY_LINE_PREFIX} {digits} {}\n", self.fingerprint)
    }

    /// Parses the output of [`Key::to_text`]: the format, the seed, and the claimed fingerprint.
    pub fn parse(text: &str) -> Result<([u8; 32], &str), KeyFormatError> {
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let (Some(line), more) = (lines.next(), lines.next()) else { return Err(KeyFormatError::NoKey) };
        if more.is_some() {
            return Err(KeyFormatError::Several);
        }
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some(KEY_LINE_PREFIX) => {}
            Some(word) if word.starts_with("fathom-key-") => return Err(KeyFormatError::Newer),
            _ => return Err(KeyFormatError::NoKey),
        }
        let seed = words.next().and_then(parse_seed).ok_or(KeyFormatError::Digits)?;
        match (words.next(), words.next()) {
            (Some(claimed), None) => Ok((seed, claimed)),
            _ => Err(KeyFormatError::Fingerprint),
        }
    }

    /// Parses a key from text.
    ///
    /// # Errors
    /// [`KeyError::Malformed`], which names `path`, or [`KeyError::Unusable`].
    pub fn from_text(text: &str, path: &Path) -> Result<Self, KeyError> {
        let malformed = |why| KeyError::Malformed { path: path.into(), why };
        let (seed, claimed) = Self::parse(text).map_err(malformed)?;
        let key = Self::from_seed(seed)?;
        if key.fingerprint == claimed { Ok(key) } else { Err(malformed(KeyFormatError::Fingerprint)) }
    }

    /// Reads a key file.
    ///
    /// # Errors
    /// [`KeyError`]; a file readable by others is refused.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let tried = |source| KeyError::Io { action: "read", path: path.into(), source };
        let file = File::open(path).map_err(tried)?;
        let mode = file.metadata().map_err(tried)?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(KeyError::Open { path: path.into(), mode });
        }
        let mut bytes = Vec::new();
        file.take(KEY_FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(tried)?;
        Self::from_text(&String::from_utf8_lossy(&bytes), path)
    }

    /// Writes a file that only its owner can read; an existing file is not changed.
    ///
    /// # Errors
    /// [`KeyError`]; nothing is left behind then.
    pub fn write(&self, path: &Path) -> Result<(), KeyError> {
        let file = File::options().write(true).create_new(true).mode(0o600).open(path);
        let mut file = file.map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => KeyError::Exists { path: path.into() },
            _ => KeyError::Io { action: "create", path: path.into(), source },
        })?;
        file.write_all(self.to_text().as_bytes()).and_then(|()| file.sync_all()).map_err(|source| {
            // A partial key is useless; if it cannot be removed, the first error is the one to report.
            let _ = std::fs::remove_file(path);
            KeyError::Io { action: "write", path: path.into(), source }
        })
    }
}

fn parse_seed(digits: &str) -> Option<[u8; 32]> {
    let digits = digits.as_bytes();
    let mut seed = [0; 32];
    if digits.len() != 64 {
        return None;
    }
    for (byte, pair) in seed.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |c: u8| char::from(c).to_digit(16);
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    Some(seed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key() -> Key {
        Key::from_seed([7; 32]).expect("any seed is a key")
    }

    /// The seed, the public key and so the fingerprint follow from RFC 8032: the third is the SHA-256 of its first test's
    /// public key, computed with sha256sum.
    #[test]
    fn fingerprint_is_a_hash_of_the_public_key() {
        let digits = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
        let seed = parse_seed(digits).expect("64 digits");
        let key = Key::from_seed(seed).expect("a key");
        assert_eq!(key.fingerprint(), "21fe-31df-a154-a261");
    }

    #[test]
    fn key_file_is_mode_600_and_never_overwritten() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("key");
        key().write(&path).expect("written");
        assert_eq!(path.metadata().expect("there").permissions().mode() & 0o777, 0o600);
        assert_eq!(Key::read(&path).expect("read"), key());
        let other = Key::generate().expect("a key");
        assert!(matches!(other.write(&path), Err(KeyError::Exists { .. })));
        assert_eq!(Key::read(&path).expect("as it was"), key());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("mine");
        let refused = Key::read(&path).expect_err("others can read it").to_string();
        assert!(refused.contains("mode 640") && refused.contains("chmod 600"), "{refused}");
        assert!(matches!(Key::read(&directory.path().join("none")), Err(KeyError::Io { .. })));
        assert!(!format!("{:?}", key()).contains("0707"), "a key is not shown");
    }

    #[test]
    fn mistakes_in_a_key_file_have_their_own_errors() {
        let text = key().to_text();
        let path = Path::new("k");
        let why = |text: &str| match Key::from_text(text, path) {
            Err(KeyError::Malformed { why, .. }) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(why(""), KeyFormatError::NoKey);
        assert_eq!(why("-----BEGIN OPENSSH PRIVATE KEY-----"), KeyFormatError::NoKey);
        assert_eq!(why(&text.replace("key-1", "key-2")), KeyFormatError::Newer);
        assert_eq!(why(&format!("{text}{text}")), KeyFormatError::Several);
        assert_eq!(why(&text.replace("0707", "07")), KeyFormatError::Digits);
        assert_eq!(why(&text.replace("0707 ", "070x ")), KeyFormatError::Digits);
        assert_eq!(why(&text.replace("0707 ", "0708 ")), KeyFormatError::Fingerprint);
        assert_eq!(why(&text[..text.len() - 20]), KeyFormatError::Fingerprint);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn key_round_trips_through_text(seed: [u8; 32]) {
            let key = Key::from_seed(seed).expect("any seed is a key");
            prop_assert_eq!(Key::from_text(&key.to_text(), Path::new("k")).expect("read"), key);
        }

        #[test]
        fn arbitrary_text_is_an_error_or_a_seed(text: String, word in "fathom-key-1 [0-9a-f]{60,68} .{0,20}") {
            for text in [text, word] {
                if let Ok((_, claimed)) = Key::parse(&text) {
                    prop_assert!(text.contains(claimed));
                }
            }
        }
    }
}
