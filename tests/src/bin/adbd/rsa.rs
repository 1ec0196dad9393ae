//! The keys of adb: which ones are admitted, and whether a signature is theirs.
//!
//! A public key is adb's own structure in base64 (crypto/rsa_2048_key.cpp): the number of its words, a Montgomery constant, the modulus and
//! a second constant, least significant byte first, and the exponent. The token itself is signed, in place of a SHA-1 digest (PKCS #1 1.5).
//! This is for a test: it does not run in constant time.

/// 32-bit words of a 2048-bit key.
const KEY_WORDS: usize = 64;
/// ASN.1 for "a SHA-1 digest follows".
const SHA1_PREFIX: [u8; 15] =
    [0x30, 0x21, 0x30, 0x09, 0x06, 0x05, 0x2b, 0x0e, 0x03, 0x02, 0x1a, 0x05, 0x00, 0x04, 0x14];

/// A public key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey {
    /// Least significant word first.
    modulus: Vec<u32>,
    exponent: u32,
}

impl PublicKey {
    /// Parses a line of `adbkey.pub`, or what a host sends.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let text = line.split(|b| b.is_ascii_whitespace() || *b == 0).next()?;
        let bytes = decode_base64(text)?;
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at * 4..at * 4 + 4)?.try_into().ok()?));
        if word(0)? != KEY_WORDS as u32 {
            return None;
        }
        let modulus: Vec<u32> = (2..2 + KEY_WORDS).map(word).collect::<Option<_>>()?;
        Some(Self { modulus, exponent: word(2 + 2 * KEY_WORDS)? })
    }

    /// Whether this key signed the token.
    pub fn verifies(&self, signature: &[u8], token: &[u8]) -> bool {
        let length = KEY_WORDS * 4;
        if signature.len() != length || token.len() != 20 {
            return false;
        }
        let signed: Vec<u32> =
            signature.rchunks(4).map(|c| c.iter().fold(0, |sum, b| sum << 8 | u32::from(*b))).collect();
        let plain = self.power(&signed);
        let plain: Vec<u8> = plain.iter().rev().flat_map(|w| w.to_be_bytes()).collect();
        let mut expected = vec![0, 1];
        expected.resize(length - SHA1_PREFIX.len() - token.len() - 1, 0xff);
        expected.push(0);
        expected.extend(SHA1_PREFIX);
        expected.extend(token);
        plain == expected
    }

    /// `base` to the exponent, modulo the modulus.
    fn power(&self, base: &[u32]) -> Vec<u32> {
        let mut result = vec![0; KEY_WORDS];
        result[0] = 1;
        for bit in (0..32).rev() {
            result = self.product(&result, &result);
            if self.exponent >> bit & 1 == 1 {
                result = self.product(&result, base);
            }
        }
        result
    }

    /// Bit by bit: double, add, subtract.
    fn product(&self, a: &[u32], b: &[u32]) -> Vec<u32> {
        let mut sum = vec![0_u32; KEY_WORDS + 1];
        for bit in (0..KEY_WORDS * 32).rev() {
            let mut carry = 0;
            for word in &mut sum {
                (*word, carry) = (*word << 1 | carry, *word >> 31);
            }
            self.reduce(&mut sum);
            if a[bit / 32] >> (bit % 32) & 1 == 1 {
                let mut carry = 0_u64;
                for (at, word) in sum.iter_mut().enumerate() {
                    let total = u64::from(*word) + u64::from(b.get(at).copied().unwrap_or(0)) + carry;
                    (*word, carry) = (total as u32, total >> 32);
                }
                self.reduce(&mut sum);
            }
        }
        sum.truncate(KEY_WORDS);
        sum
    }

    fn reduce(&self, number: &mut [u32]) {
        let modulus = |at: usize| self.modulus.get(at).copied().unwrap_or(0);
        let smaller =
            (0..number.len()).rev().find_map(|at| (number[at] != modulus(at)).then(|| number[at] < modulus(at)));
        if smaller == Some(true) {
            return;
        }
        let mut borrow = 0_i64;
        for (at, word) in number.iter_mut().enumerate() {
            let difference = i64::from(*word) - i64::from(modulus(at)) + borrow;
            (*word, borrow) = (difference as u32, difference >> 32);
        }
    }
}

fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    const BASE64_ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut count, mut all) = (0_u32, 0, Vec::new());
    for byte in text.iter().filter(|b| **b != b'=') {
        bits = bits << 6 | BASE64_ALPHABET.iter().position(|a| a == byte)? as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            all.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Some(all)
}
