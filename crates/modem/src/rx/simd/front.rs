//! Loops over samples as they come in: their level, their moments, their mending.

use num_complex::Complex32;

use super::{Kind, Level, kernel, mac};

/// Lanes of [`measure`]: the number of samples is a multiple of it.
pub(crate) const METERED: usize = 16;

kernel! {
    /// Sum of |x|², and how many parts reach `edge`; a sample with a part beyond `limit`, or that
    /// is no number, is 0.
    measure(limit: f32, edge: f32, samples: &[Complex32]) -> (f64, u64) {
        let (mut power, mut clipped) = ([0.0f32; METERED], [0u32; METERED]);
        for samples in samples.as_chunks::<METERED>().0 {
            for i in 0..METERED {
                let [re, im] = [samples[i].re, samples[i].im];
                let good = (re.abs() <= limit) & (im.abs() <= limit);
                let square = mac::<FMA>(re, re, im * im);
                power[i] += if good { square } else { 0.0 };
                let parts = u32::from(re.abs() >= edge) + u32::from(im.abs() >= edge);
                clipped[i] += if good { parts } else { 0 };
            }
        }
        let power: f64 = power.iter().copied().map(f64::from).sum();
        (power, clipped.iter().copied().map(u64::from).sum())
    }
}

/// Parts of samples that [`measure_good`] takes side by side.
const PARTS: usize = 2 * METERED;

kernel! {
    /// The same where no sample counts as 0, else nothing: it takes a fraction of the time, since
    /// parts need not be told apart.
    measure_good(limit: f32, edge: f32, samples: &[Complex32]) -> Option<(f64, u64)> {
        let (mut power, mut clipped, mut most) = ([0.0f32; PARTS], [0u32; PARTS], [0.0f32; PARTS]);
        for samples in samples.as_chunks::<METERED>().0 {
            let x = samples.map(|x| [x.re, x.im]);
            let x = x.as_flattened();
            for i in 0..PARTS {
                power[i] = mac::<FMA>(x[i], x[i], power[i]);
                let size = x[i].abs();
                clipped[i] += u32::from(size >= edge);
                most[i] = if size > most[i] { size } else { most[i] };
            }
        }
        let power: f64 = power.iter().copied().map(f64::from).sum();
        // What is no number makes the power none.
        let good = power.is_finite() && most.iter().all(|most| *most <= limit);
        good.then(|| (power, clipped.iter().copied().map(u64::from).sum()))
    }
}

/// Lanes of [`moments`]: the number of samples is a multiple of it.
const LANES: usize = 8;

kernel! {
    /// Sums of I, Q, I², Q² and I·Q of interleaved complex numbers.
    moments(x: &[f32]) -> [f64; 5] {
        let mut sums = [[0.0f32; LANES]; 5];
        for x in x.as_chunks::<{ 2 * LANES }>().0 {
            for i in 0..LANES {
                let [re, im] = [x[2 * i], x[2 * i + 1]];
                sums[0][i] += re;
                sums[1][i] += im;
                sums[2][i] = mac::<FMA>(re, re, sums[2][i]);
                sums[3][i] = mac::<FMA>(im, im, sums[3][i]);
                sums[4][i] = mac::<FMA>(re, im, sums[4][i]);
            }
        }
        sums.map(|lanes| lanes.iter().copied().map(f64::from).sum())
    }
}

kernel! {
    /// out = y − w y* with y = x − dc, of interleaved complex numbers; no part beyond `limit`.
    mend(limit: f32, dc: [f32; 2], w: [f32; 2], x: &[f32], out: &mut [f32]) {
        for (x, out) in x.as_chunks::<2>().0.iter().zip(out.as_chunks_mut::<2>().0) {
            let [re, im] = [x[0] - dc[0], x[1] - dc[1]];
            out[0] = mac::<FMA>(1.0 - w[0], re, -(w[1] * im)).clamp(-limit, limit);
            out[1] = mac::<FMA>(1.0 + w[0], im, -(w[1] * re)).clamp(-limit, limit);
        }
    }
}
