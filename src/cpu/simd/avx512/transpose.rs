//! Rows of spectra to rows of channels.

use std::arch::x86_64::*;

/// Two bytes per word: of the signed bytes re0 im0 re1 im1, the low nibbles, re0 on top of im0, re1
/// on top of im1.
#[inline]
#[target_feature(enable = "avx512f")]
fn nibbles(x: __m512i) -> __m256i {
    // Within each 16 bits: the low byte's nibble to bits 4 to 7, the high byte's to bits 0 to 3.
    let re = _mm512_and_si512(_mm512_slli_epi32::<4>(x), _mm512_set1_epi32(0x00F0_00F0));
    let im = _mm512_and_si512(_mm512_srli_epi32::<8>(x), _mm512_set1_epi32(0x000F_000F));
    let pairs = _mm512_or_si512(re, im);
    // Byte 0 and byte 2 of each word.
    let low = _mm512_and_si512(pairs, _mm512_set1_epi32(0xFF));
    let high = _mm512_srli_epi32::<8>(pairs);
    _mm512_cvtepi32_epi16(_mm512_or_si512(low, high))
}

/// Transposes `spectra` rows of `channels` words into lines of 16 words at `to + k·stride`, or of
/// 16 half words if `NARROW`: the [`nibbles`] of the words.
///
/// # Safety
/// `rows` has `spectra` rows of `channels` words at `pitch`, both multiples of 16;
/// `4·spectra` bytes at each `to + k·stride` are writable, or half of that if `NARROW`.
#[target_feature(enable = "avx512f")]
pub(in crate::cpu::simd) unsafe fn transpose<const NARROW: bool>(
    rows: *const u32,
    pitch: usize,
    spectra: usize,
    channels: usize,
    to: *mut u8,
    stride: usize,
) {
    let aligned = (to as usize).is_multiple_of(64) && stride.is_multiple_of(64);
    for k in (0..channels).step_by(16) {
        for s in (0..spectra).step_by(16) {
            // SAFETY: by the contract; a line is stored past the caches only if it is aligned.
            unsafe {
                let from = rows.add(s * pitch + k);
                let x = transpose16(std::array::from_fn(|i| {
                    _mm512_loadu_si512(from.add(i * pitch).cast())
                }));
                for (i, x) in x.into_iter().enumerate() {
                    let line = to.add((k + i) * stride);
                    if NARROW {
                        _mm256_storeu_si256(line.add(2 * s).cast(), nibbles(x));
                        continue;
                    }
                    let line = line.add(4 * s);
                    if aligned {
                        _mm512_stream_si512(line.cast(), x);
                    } else {
                        _mm512_storeu_si512(line.cast(), x);
                    }
                }
            }
        }
    }
    // Streaming stores are weakly ordered: make them visible before the group counts as done.
    _mm_sfence();
}

/// Transpose of a 16 × 16 matrix of words.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose16(r: [__m512i; 16]) -> [__m512i; 16] {
    let zero = _mm512_setzero_si512();
    let (mut t, mut u) = ([zero; 16], [zero; 16]);
    for i in (0..16).step_by(2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    // u[4q + c], 128-bit lane l: column 4l + c of rows 4q .. 4q + 4.
    for q in (0..16).step_by(4) {
        u[q] = _mm512_unpacklo_epi64(t[q], t[q + 2]);
        u[q + 1] = _mm512_unpackhi_epi64(t[q], t[q + 2]);
        u[q + 2] = _mm512_unpacklo_epi64(t[q + 1], t[q + 3]);
        u[q + 3] = _mm512_unpackhi_epi64(t[q + 1], t[q + 3]);
    }
    let mut out = [zero; 16];
    for c in 0..4 {
        let a = _mm512_shuffle_i32x4::<0b10_00_10_00>(u[c], u[4 + c]);
        let b = _mm512_shuffle_i32x4::<0b11_01_11_01>(u[c], u[4 + c]);
        let d = _mm512_shuffle_i32x4::<0b10_00_10_00>(u[8 + c], u[12 + c]);
        let e = _mm512_shuffle_i32x4::<0b11_01_11_01>(u[8 + c], u[12 + c]);
        out[c] = _mm512_shuffle_i32x4::<0b10_00_10_00>(a, d);
        out[8 + c] = _mm512_shuffle_i32x4::<0b11_01_11_01>(a, d);
        out[4 + c] = _mm512_shuffle_i32x4::<0b10_00_10_00>(b, e);
        out[12 + c] = _mm512_shuffle_i32x4::<0b11_01_11_01>(b, e);
    }
    out
}
