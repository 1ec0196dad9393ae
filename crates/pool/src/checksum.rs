//! CRC-32C, faster than by the CPU's own instruction where it can multiply polynomials in vectors.
//!
//! Every byte that is read or written is summed once, so this is a tenth of the time of a large request. The instruction
//! `crc32` takes 8 bytes each cycle at most (the crate `crc32c`, which does everything else). VPCLMULQDQ folds a vector of
//! 32 bytes into one that follows with two multiplications: Gopal et al., *Fast CRC Computation for Generic Polynomials
//! Using PCLMULQDQ Instruction*, Intel 2009. Four vectors are folded independently, so that the multiplications overlap.
//!
//! The bits of a CRC are reflected: the product of two reflected factors is the reflected product, shifted by one bit, and
//! the constants are at the low end of their words. So the constant that moves the first half of a lane forward by `n` bits is
//! x^(n + 31) modulo the polynomial, and that of the second half x^(n - 33).

pub(crate) fn crc32c(data: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if data.len() >= vector::DATA_BYTES_MIN && vector::is_available() {
        // SAFETY: the CPU has the instructions.
        return unsafe { vector::crc32c(data) };
    }
    ::crc32c::crc32c(data)
}

#[cfg(target_arch = "x86_64")]
mod vector {
    use std::arch::x86_64::{
        __m128i, __m256i, _mm_clmulepi64_si128, _mm_crc32_u64, _mm_cvtsi128_si64, _mm_extract_epi64, _mm_set_epi64x,
        _mm_xor_si128, _mm256_castsi256_si128, _mm256_clmulepi64_epi128, _mm256_extracti128_si256, _mm256_loadu_si256,
        _mm256_set_epi64x, _mm256_xor_si256,
    };

    /// Bytes of a vector, and of all that are folded independently.
    const VECTOR_BYTES: usize = 32;
    const STRIDE_BYTES: usize = 4 * VECTOR_BYTES;
    /// Less is not worth the start and the end.
    pub const DATA_BYTES_MIN: usize = 2 * STRIDE_BYTES;

    /// x^n modulo the polynomial of CRC-32C, reflected.
    const fn power_of_x(n: u32) -> i64 {
        let (mut remainder, mut nth) = (0x8000_0000_u32, 0);
        while nth < n {
            remainder = (remainder >> 1) ^ if remainder & 1 == 0 { 0 } else { 0x82f6_3b78 };
            nth += 1;
        }
        remainder as i64
    }

    /// The constants that move a lane forward by so many bytes: of its first half, and of its second.
    const fn shift_constants(bytes: usize) -> (i64, i64) {
        let bits = 8 * bytes as u32;
        (power_of_x(bits + 31), power_of_x(bits - 33))
    }

    pub fn is_available() -> bool {
        is_x86_feature_detected!("vpclmulqdq") && is_x86_feature_detected!("avx2") && is_x86_feature_detected!("sse4.2")
    }

    /// # Safety
    /// The CPU must have VPCLMULQDQ, AVX2 and SSE 4.2; the data must have [`DATA_BYTES_MIN`].
    #[target_feature(enable = "vpclmulqdq,pclmulqdq,avx2,sse4.2")]
    pub unsafe fn crc32c(data: &[u8]) -> u32 {
        let (strides, rest) = data.as_chunks::<STRIDE_BYTES>();
        let (first, strides) = strides.split_at(1);
        let load = |stride: &[u8; STRIDE_BYTES], nth: usize| -> __m256i {
            // SAFETY: the vector is within the stride; it need not be aligned.
            unsafe { _mm256_loadu_si256(stride.as_ptr().add(nth * VECTOR_BYTES).cast()) }
        };
        let (front, back) = const { shift_constants(STRIDE_BYTES) };
        let by_stride = _mm256_set_epi64x(back, front, back, front);
        let mut sums: [__m256i; 4] = std::array::from_fn(|nth| load(&first[0], nth));
        // The initial value, all ones, is added to the first bytes.
        sums[0] = _mm256_xor_si256(sums[0], _mm256_set_epi64x(0, 0, 0, 0xffff_ffff));
        for stride in strides {
            for (nth, sum) in sums.iter_mut().enumerate() {
                *sum = fold(*sum, by_stride, load(stride, nth));
            }
        }
        let (front, back) = const { shift_constants(VECTOR_BYTES) };
        let by_vector = _mm256_set_epi64x(back, front, back, front);
        let one = fold(fold(fold(sums[0], by_vector, sums[1]), by_vector, sums[2]), by_vector, sums[3]);
        let (front, back) = const { shift_constants(VECTOR_BYTES / 2) };
        let (low, high) = (_mm256_castsi256_si128(one), _mm256_extracti128_si256::<1>(one));
        let lane = fold_lane(low, _mm_set_epi64x(back, front), high);
        let sum = _mm_crc32_u64(0, _mm_cvtsi128_si64(lane) as u64);
        let sum = _mm_crc32_u64(sum, _mm_extract_epi64::<1>(lane) as u64) as u32;
        ::crc32c::crc32c_append(!sum, rest)
    }

    /// Moves the sum of earlier bytes forward to `next`, and adds it.
    #[target_feature(enable = "vpclmulqdq,avx2")]
    fn fold(sum: __m256i, by: __m256i, next: __m256i) -> __m256i {
        let front = _mm256_clmulepi64_epi128::<0x00>(sum, by);
        let back = _mm256_clmulepi64_epi128::<0x11>(sum, by);
        _mm256_xor_si256(_mm256_xor_si256(front, back), next)
    }

    #[target_feature(enable = "pclmulqdq,sse2")]
    fn fold_lane(sum: __m128i, by: __m128i, next: __m128i) -> __m128i {
        let (front, back) = (_mm_clmulepi64_si128::<0x00>(sum, by), _mm_clmulepi64_si128::<0x11>(sum, by));
        _mm_xor_si128(_mm_xor_si128(front, back), next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_match_the_instruction_at_any_length_and_alignment() {
        let data: Vec<u8> = (0..20_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let lengths = (0..700).chain([4095, 4096, 4097, 8192, 19_000]);
        for length in lengths {
            for begin in [0, 1, 7, 31, 64, 129] {
                let part = &data[begin..begin + length];
                assert_eq!(crc32c(part), ::crc32c::crc32c(part), "{length} bytes from {begin}");
            }
        }
        assert_eq!(crc32c(&[0; 4096]), ::crc32c::crc32c(&[0; 4096]));
        assert_eq!(crc32c(&[0xff; 4096]), ::crc32c::crc32c(&[0xff; 4096]));
    }
}
