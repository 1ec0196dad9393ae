//! SHA-256 of the page's own script and style, for its Content-Security-Policy: the browser then runs exactly these two
//! and nothing that a traced program could have smuggled into the data.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

/// Returns the policy's source expression for this text: `'sha256-…'`.
pub fn csp_source(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digest is the first example of FIPS 180-4.
    #[test]
    fn csp_source_is_a_sha256_digest() {
        assert_eq!(csp_source("abc"), "'sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0='");
    }
}
