//! A checksum of numbers by their bits, the same in every language: equal checksums mean results equal to the last bit.

/// FNV-1a's two steps on whole words. If a single word differs, so does the sum, since each step is invertible.
pub fn sum_of_bits(words: impl Iterator<Item = u64>) -> u64 {
    words.fold(0xcbf2_9ce4_8422_2325, |sum, word| (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3))
}

/// The checksum of double-precision numbers.
pub fn checksum(values: &[f64]) -> u64 {
    sum_of_bits(values.iter().map(|v| v.to_bits()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_changes_checksum() {
        let values = [0.5_f64, -1.25, 3.0];
        for i in 0..values.len() {
            for bit in 0..64 {
                let mut other = values;
                other[i] = f64::from_bits(other[i].to_bits() ^ (1 << bit));
                assert_ne!(checksum(&other), checksum(&values));
            }
        }
    }
}
