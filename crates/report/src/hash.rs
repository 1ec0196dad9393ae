//! SHA-256 of the page's own script and style, for its Content-Security-Policy: the browser then runs exactly these two
//! and nothing that a traced program could have smuggled into the data.

use sha2::{Digest as _, Sha256};

/// Returns the policy's source expression for this text: `'sha256-…'`.
pub fn csp_source(text: &str) -> String {
    format!("'sha256-{}'", encode_base64(&Sha256::digest(text)))
}

/// Encodes Base64 with padding (RFC 4648, section 4), as required for a policy's hash source.
fn encode_base64(bytes: &[u8]) -> String {
    const BASE64_ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for i in 0..4 {
            let six = (bits >> (18 - 6 * i)) as usize & 63;
            text.push(if i <= three.len() { char::from(BASE64_ALPHABET[six]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digest is the first example of FIPS 180-4.
    #[test]
    fn csp_source_is_a_sha256_digest() {
        assert_eq!(csp_source("abc"), "'sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0='");
    }

    #[test]
    fn base64_matches_rfc_4648() {
        assert_eq!(
            ["", "f", "fo", "foo", "foob"].map(|s| encode_base64(s.as_bytes())),
            ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="]
        );
    }
}
