//! The Golay pair of 32, and the preamble that is made of it.
//!
//! Source: IEEE 802.11ad-2012, 21.11, with 32 instead of 128 symbols. Symbols are ±1.

use std::sync::LazyLock;

use super::{CEF_SYMBOLS, PREAMBLE_SYMBOLS, STF_SYMBOLS};

/// Length of each sequence of the pair.
pub const GOLAY_LENGTH: usize = 32;
/// Delays D of the recursion's stages, in symbols.
pub const GOLAY_DELAYS: [usize; 5] = [1, 4, 8, 2, 16];
/// Weights W of the recursion's stages.
pub const GOLAY_WEIGHTS: [i8; 5] = [-1, 1, -1, 1, -1];
/// Repetitions of Gb at the head of the STF.
pub const STF_REPETITIONS: usize = 60;
/// Pairs of Gu and Gv in the CEF.
pub const CEF_PAIRS: usize = 7;

/// The pair (Ga, Gb).
///
/// A₀ = B₀ = δ; Aₖ(n) = Wₖ Aₖ₋₁(n) + Bₖ₋₁(n − Dₖ); Bₖ(n) = Wₖ Aₖ₋₁(n) − Bₖ₋₁(n − Dₖ);
/// Ga(n) = A₅(31 − n), Gb(n) = B₅(31 − n). Their autocorrelations add up to 64 δ.
pub fn golay_pair() -> ([i8; GOLAY_LENGTH], [i8; GOLAY_LENGTH]) {
    let (mut a, mut b) = ([0i8; GOLAY_LENGTH], [0i8; GOLAY_LENGTH]);
    (a[0], b[0]) = (1, 1);
    for (delay, weight) in GOLAY_DELAYS.into_iter().zip(GOLAY_WEIGHTS) {
        let before = (a, b);
        for n in 0..GOLAY_LENGTH {
            let late = n.checked_sub(delay).map_or(0, |n| before.1[n]);
            let here = weight * before.0[n];
            (a[n], b[n]) = (here + late, here - late);
        }
    }
    a.reverse();
    b.reverse();
    (a, b)
}

/// Signs of the CEF's two parts: Gu = (−Gb, −Ga, +Gb, −Ga), Gv = (−Gb, +Ga, −Gb, −Ga).
const CEF_SIGNS: [[i8; 4]; 2] = [[-1, -1, 1, -1], [-1, 1, -1, -1]];

static PREAMBLE: LazyLock<[i8; PREAMBLE_SYMBOLS]> = LazyLock::new(|| {
    let (ga, gb) = golay_pair();
    let mut symbols = Vec::with_capacity(PREAMBLE_SYMBOLS);
    let mut add = |sign: i8, sequence: &[i8]| symbols.extend(sequence.iter().map(|s| sign * s));
    for _ in 0..STF_REPETITIONS {
        add(1, &gb);
    }
    add(-1, &gb);
    add(-1, &ga);
    for part in [0, 1].repeat(CEF_PAIRS) {
        for (place, sign) in CEF_SIGNS[part].into_iter().enumerate() {
            add(sign, if place % 2 == 0 { &gb } else { &ga });
        }
    }
    let mut preamble = [0; PREAMBLE_SYMBOLS];
    preamble.copy_from_slice(&symbols);
    preamble
});

/// The preamble as ±1: STF, then CEF. As bits, −1 is 1.
pub fn preamble() -> &'static [i8; PREAMBLE_SYMBOLS] {
    &PREAMBLE
}

/// Short training field: Gb sixty times, −Gb, −Ga.
pub fn stf() -> &'static [i8] {
    &PREAMBLE[..STF_SYMBOLS]
}

/// Channel estimation field: (Gu, Gv) seven times. It repeats every 256 symbols, and like the STF
/// it ends with (−Gb, −Ga), so that it begins as if it had gone on before.
pub fn cef() -> &'static [i8] {
    let cef = &PREAMBLE[STF_SYMBOLS..];
    debug_assert_eq!(cef.len(), CEF_SYMBOLS);
    cef
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waveform::pack_bits;

    fn signs(sequence: &[i8]) -> String {
        let sign = |s: &i8| if *s > 0 { '+' } else { '-' };
        sequence.iter().map(sign).collect()
    }

    #[test]
    fn the_pair_is_that_of_the_original() {
        let (ga, gb) = golay_pair();
        assert_eq!(signs(&ga), "+++++-+---+++--+++--+--+----+-+-");
        assert_eq!(signs(&gb), "-----+-+++---++-++--+--+----+-+-");
    }

    #[test]
    fn autocorrelations_of_the_pair_add_up_to_a_pulse() {
        let (ga, gb) = golay_pair();
        for lag in 0..GOLAY_LENGTH {
            let at = |s: &[i8], n: usize| i32::from(s[n]) * i32::from(s[n + lag]);
            let sum: i32 = (0..GOLAY_LENGTH - lag)
                .map(|n| at(&ga, n) + at(&gb, n))
                .sum();
            assert_eq!(sum, if lag == 0 { 64 } else { 0 });
        }
    }

    #[test]
    fn the_preamble_has_the_golden_checksum() {
        let bits: Vec<u8> = preamble().iter().map(|&s| u8::from(s < 0)).collect();
        assert_eq!(bits.iter().filter(|&&bit| bit == 1).count(), 2068);
        let mut bytes = Vec::new();
        pack_bits(&bits, 1, &mut bytes);
        assert_eq!(bytes.len(), 472);
        assert_eq!(crc32fast::hash(&bytes), 0xd46f_b84b);
    }

    #[test]
    fn the_estimation_field_repeats_and_begins_as_if_it_had_gone_on() {
        assert!(cef().windows(257).all(|w| w[0] == w[256]));
        assert_eq!(stf()[STF_SYMBOLS - 64..], cef()[CEF_SYMBOLS - 64..]);
    }
}
