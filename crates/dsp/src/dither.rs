//! Counter-based dither: the same seed, engine, timestamp and channel give the same numbers,
//! whatever the backend, the number of threads or the chunk size.
//!
//! The generator is Philox4x32-7 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy
//! as 1, 2, 3", SC 2011). Its key is the 64-bit dither seed, low word first. Its counter is the
//! spectrum's timestamp (low word, high word), the channel number modulo a quarter of the number of
//! channels, and the engine's number. The 128 bits of one block serve the four channels that are a
//! quarter of the band apart: sixteen draws of 16 bits. The four upper bytes of a channel's draws
//! are the bytes of its own word, from the lowest up; the lower ones are those of the next two
//! words, added bit by bit (the word behind the last is the first). All draws of any two channels
//! are independent: for each part they have four combinations of words, none of which follows from
//! the others. Draws of the same part in three or four channels of a block are not.

use std::array::from_fn;

/// What is added before quantisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Dither {
    /// Nothing.
    None,
    /// Uniform in the open interval (−0.5, 0.5), independent per component.
    Uniform,
}

/// Uniform numbers in (−0.5, 0.5) for one Jones vector: pol 0 re, pol 0 im, pol 1 re, pol 1 im.
///
/// `timestamp` is that of the spectrum (not of its batch); `channel` is one of all `channels` of
/// the stream, a multiple of four.
pub fn dither(
    seed: u64,
    feng_id: u64,
    timestamp: u64,
    channel: usize,
    channels: usize,
) -> [f32; 4] {
    let quarter = channels / 4;
    block(seed, feng_id, timestamp, channel % quarter)[channel / quarter]
}

/// [`dither`] of `channel`, in the lowest quarter of the band, and of the channels one, two and
/// three quarters above it, from a single block of the generator.
pub fn block(seed: u64, feng_id: u64, timestamp: u64, channel: usize) -> [[f32; 4]; 4] {
    let counter = [
        timestamp as u32,
        (timestamp >> 32) as u32,
        channel as u32,
        feng_id as u32,
    ];
    let words = philox4x32_7(counter, [seed as u32, (seed >> 32) as u32]);
    draws(words).map(|channel| channel.map(uniform))
}

/// The draws that a block's words make, by quarter of the band.
fn draws(words: [u32; 4]) -> [[u16; 4]; 4] {
    from_fn(|quarter| {
        let upper = words[quarter].to_le_bytes();
        let lower = (words[(quarter + 1) % 4] ^ words[(quarter + 2) % 4]).to_le_bytes();
        from_fn(|part| u16::from_le_bytes([lower[part], upper[part]]))
    })
}

/// (d + ½)/2¹⁶ − ½: symmetric about zero, exact in `f32`, never ±½.
fn uniform(d: u16) -> f32 {
    (f32::from(d) + 0.5) / 65536.0 - 0.5
}

/// Seven rounds of Philox4x32.
pub fn philox4x32_7(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    // Multipliers and Weyl increments of the paper.
    const M: [u64; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const W: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    for _ in 0..7 {
        let p0 = M[0] * u64::from(counter[0]);
        let p1 = M[1] * u64::from(counter[2]);
        counter = [
            (p1 >> 32) as u32 ^ counter[1] ^ key[0],
            p1 as u32,
            (p0 >> 32) as u32 ^ counter[3] ^ key[1],
            p0 as u32,
        ];
        key = [key[0].wrapping_add(W[0]), key[1].wrapping_add(W[1])];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_known_answers() {
        let all = u32::MAX;
        let cases = [
            (
                [0; 4],
                [0; 2],
                [0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48],
            ),
            (
                [all; 4],
                [all; 2],
                [0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662],
            ),
            (
                [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344],
                [0xa4093822, 0x299f31d0],
                [0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a],
            ),
        ];
        for (counter, key, expected) in cases {
            assert_eq!(philox4x32_7(counter, key), expected);
        }
    }

    /// Of the third known answer's words 4dfccaba, 190a87f0, c47362ba and b6b5242a.
    #[test]
    fn draws_have_a_byte_of_their_own_and_one_of_two_others() {
        let (seed, feng_id) = (0x299f31d0_a4093822, 0x03707344);
        let timestamp = 0x85a308d3_243f6a88;
        let (channel, channels) = (0x13198a2e_usize, 0x8000_0000);
        let expect = |d: [u32; 4]| d.map(|d| ((f64::from(d) + 0.5) / 65536.0 - 0.5) as f32);
        let quarters = [
            [0xba4a, 0xcae5, 0xfc79, 0x4ddd],
            [0xf090, 0x8746, 0x0ac6, 0x1972],
            [0xba90, 0x62ee, 0x7349, 0xc4fb],
            [0x2a4a, 0x244d, 0xb5f6, 0xb654],
        ];
        for (quarter, draws) in quarters.into_iter().enumerate() {
            let channel = channel + quarter * channels / 4;
            let of_channel = dither(seed, feng_id, timestamp, channel, channels);
            assert_eq!(of_channel, expect(draws), "{quarter}");
        }
    }

    /// Each bit of a draw is a sum of bits of the block. All 128 bits of two channels' draws are
    /// independent and fair if no sum of some of them is zero: then each block gives others.
    #[test]
    fn draws_of_any_two_channels_are_independent() {
        let bits = |block: u128, channels: [usize; 2]| {
            let words = from_fn(|i| (block >> (32 * i)) as u32);
            let draws = draws(words);
            let parts = channels.into_iter().flat_map(|channel| draws[channel]);
            parts.fold(0u128, |bits, draw| bits << 16 | u128::from(draw))
        };
        for a in 0..4 {
            for b in 0..a {
                assert_eq!(bits(0, [a, b]), 0);
                // Those found so far, by their highest bit.
                let mut by_highest = [0u128; 128];
                for bit in 0..128 {
                    let mut rest = bits(1 << bit, [a, b]);
                    while rest != 0 && by_highest[rest.ilog2() as usize] != 0 {
                        rest ^= by_highest[rest.ilog2() as usize];
                    }
                    assert_ne!(rest, 0, "quarters {a} and {b}, bit {bit} of the block");
                    by_highest[rest.ilog2() as usize] = rest;
                }
            }
        }
    }

    #[test]
    fn draws_stay_inside_half() {
        assert_eq!(uniform(0), -uniform(u16::MAX));
        assert!(uniform(0) > -0.5);
        // An integer stays what it is after rounding, at the largest magnitude that can be sent
        // too.
        assert_eq!((127.0 + uniform(u16::MAX)).round_ties_even(), 127.0);
        assert_eq!((-127.0 + uniform(0)).round_ties_even(), -127.0);
    }

    /// Mean 0, variance 1/12, no correlation between components, neighbouring channels, those of
    /// one block, spectra or engines: each within five standard deviations of its estimator.
    #[test]
    fn statistics() {
        let n = 1 << 15;
        let draw = |i: usize| dither(12345, 7, (i / 256) as u64 * 512, i % 256, 256);
        let mut columns: Vec<Vec<f64>> = vec![Vec::new(); 28];
        for i in 0..n {
            let t = (i / 256) as u64 * 512;
            let rows = [
                draw(i),
                dither(12345, 8, t, i % 256, 256),
                dither(12346, 7, t, i % 256, 256),
                dither(12345, 7, t + 512 * 4096, i % 256, 256),
                dither(12345, 7, t, (i + 64) % 256, 256),
                dither(12345, 7, t, (i + 128) % 256, 256),
                dither(12345, 7, t, (i + 192) % 256, 256),
            ];
            for (j, x) in rows.into_iter().flatten().enumerate() {
                columns[j].push(f64::from(x));
            }
        }
        let root = (n as f64).sqrt();
        for (j, a) in columns.iter().enumerate() {
            let mean = a.iter().sum::<f64>() / n as f64;
            assert!(mean.abs() < 5.0 * (1.0f64 / 12.0).sqrt() / root, "mean {j}");
            let variance = a.iter().map(|x| x * x).sum::<f64>() / n as f64;
            // Fourth moment of a uniform distribution: 1/80.
            let sigma = (1.0f64 / 80.0 - 1.0 / 144.0).sqrt() / root;
            assert!((variance - 1.0 / 12.0).abs() < 5.0 * sigma, "variance {j}");
            for (k, b) in columns.iter().enumerate().skip(j + 1) {
                let product: f64 = a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>() / n as f64;
                assert!(product.abs() < 5.0 / 12.0 / root, "columns {j} and {k}");
            }
            let lag: f64 = a.windows(2).map(|w| w[0] * w[1]).sum::<f64>() / n as f64;
            assert!(lag.abs() < 5.0 / 12.0 / root, "neighbours of {j}");
        }
    }
}
