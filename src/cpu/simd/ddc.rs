//! Mixer and filter of the digital down-conversion: dot products of samples and mixed taps.

use num_complex::Complex64;

use super::{Level, Supported};

/// Lanes of one dot product: sums are taken lane by lane, then of halves of the lanes, at every
/// level.
pub(super) const LANES: usize = 16;

/// Coefficients g\[l\] of a down-conversion (see [`dsp::ddc`](dsp::ddc)), followed by zeros up to
/// whole vectors.
#[derive(Clone, Debug)]
pub struct DdcTaps {
    re: Vec<f32>,
    im: Vec<f32>,
}

impl DdcTaps {
    /// Rounds `taps` to single precision.
    pub fn new(taps: &[Complex64]) -> Self {
        let part = |part: fn(&Complex64) -> f64| {
            let mut taps: Vec<f32> = taps.iter().map(|g| part(g) as f32).collect();
            taps.resize(taps.len().next_multiple_of(LANES), 0.0);
            taps
        };
        Self {
            re: part(|g| g.re),
            im: part(|g| g.im),
        }
    }

    /// Samples that one output reads: the taps and the zeros behind them.
    pub fn span(&self) -> usize {
        self.re.len()
    }

    /// Σ g\[l\]·`samples`\[i·`subsampling` + l\] for each output i.
    ///
    /// # Panics
    /// If a slice is too short for the shape; shapes come from configuration, not from input.
    pub fn apply(
        &self,
        at: Supported,
        samples: &[f32],
        subsampling: usize,
        re: &mut [f32],
        im: &mut [f32],
    ) {
        assert!(re.len() == im.len());
        let Some(last) = re.len().checked_sub(1) else {
            return;
        };
        assert!(super::holds(samples, last, subsampling, self.span()));
        let taps = [&self.re[..], &self.im[..]];
        #[cfg(target_arch = "x86_64")]
        match at.level() {
            Level::Avx512 => {
                // SAFETY: `Supported` proves the instruction set; the assertions above are the
                // bounds that the form relies on.
                return unsafe { super::avx512::ddc(taps, samples, subsampling, re, im) };
            }
            // SAFETY: `Supported` proves the instruction set; the form is plain Rust.
            Level::Avx2 => return unsafe { super::avx2::ddc(taps, samples, subsampling, re, im) },
            Level::Portable => {}
        }
        let _ = at;
        super::portable::ddc(taps, samples, subsampling, re, im);
    }
}

/// (`re` + i·`im`)·`base`·`table`, element by element, in place.
///
/// # Panics
/// If the lengths differ.
pub fn rotate(at: Supported, base: [f32; 2], table: [&[f32]; 2], re: &mut [f32], im: &mut [f32]) {
    let n = re.len();
    assert!(im.len() == n && table.iter().all(|part| part.len() == n));
    #[cfg(target_arch = "x86_64")]
    match at.level() {
        // SAFETY: `Supported` proves the instruction set; the forms are plain Rust.
        Level::Avx512 => return unsafe { super::avx512::rotate(base, table, re, im) },
        // SAFETY: as above.
        Level::Avx2 => return unsafe { super::avx2::rotate(base, table, re, im) },
        Level::Portable => {}
    }
    let _ = at;
    super::portable::rotate(base, table, re, im);
}

#[cfg(test)]
mod tests {
    use super::*;
    use num_complex::Complex32;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_level_is_the_sum(
            taps in 1usize..80, subsampling in 1usize..40, count in 0usize..40, seed in any::<u32>(),
        ) {
            let noise = |i: usize| ((seed.wrapping_add(i as u32 + 1).wrapping_mul(2_654_435_761) >> 8) as f64 / 8_388_608.0) - 1.0;
            let g: Vec<Complex64> = (0..taps).map(|l| Complex64::new(noise(2 * l), noise(2 * l + 1))).collect();
            let filter = DdcTaps::new(&g);
            let samples: Vec<f32> = (0..count * subsampling + filter.span()).map(|i| (500.0 * noise(i + 99)) as f32).collect();
            let mut first = None;
            for level in Level::available() {
                let (mut re, mut im) = (vec![0.0; count], vec![0.0; count]);
                filter.apply(Supported::new(level), &samples, subsampling, &mut re, &mut im);
                for i in 0..count {
                    let x = samples[i * subsampling..].iter().map(|&x| f64::from(x));
                    let products: Vec<Complex64> = g.iter().zip(x).map(|(g, x)| g * x).collect();
                    let expected: Complex64 = products.iter().sum();
                    // Each coefficient and each of the first additions is rounded once.
                    let bound = 2.0 * f64::from(f32::EPSILON) * products.iter().map(|x| x.norm()).sum::<f64>();
                    let error = (Complex64::new(re[i].into(), im[i].into()) - expected).norm();
                    prop_assert!(error <= bound, "{}: {} off by {}", level, expected, error);
                }
                let base = Complex64::cis(noise(7));
                let base = [base.re as f32, base.im as f32];
                let table: Vec<Complex32> = (0..count).map(|i| Complex32::cis(0.3 * i as f32)).collect();
                let parts = [table.iter().map(|z| z.re).collect::<Vec<_>>(), table.iter().map(|z| z.im).collect()];
                let before: Vec<Complex32> = re.iter().zip(&im).map(|(&re, &im)| Complex32::new(re, im)).collect();
                rotate(Supported::new(level), base, [&parts[0], &parts[1]], &mut re, &mut im);
                for i in 0..count {
                    let expected = before[i] * Complex32::new(base[0], base[1]) * table[i];
                    prop_assert!((Complex32::new(re[i], im[i]) - expected).norm() < 1e-6 * (1.0 + expected.norm()));
                }
                // The same bits at every level.
                let got = (re, im);
                prop_assert_eq!(first.get_or_insert_with(|| got.clone()), &got, "{}", level);
            }
        }
    }
}
