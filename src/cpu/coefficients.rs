//! Delay, phase and gain of one spectrum as one complex coefficient per channel and polarisation.

use std::f64::consts::PI;

use ground::N_POL;
use num_complex::{Complex32, Complex64};

use super::simd::{Supported, phasors};
use crate::engine::{FineDelay, steer};

/// Channels per entry of the coarse level of the phasor table, at most.
const FINE: usize = 64;

/// Coefficients of both polarisations, kept while delay, phase and gains stay the same.
#[derive(Clone, Debug)]
pub(super) struct Coefficients {
    table: [Vec<Complex32>; N_POL],
    /// Factors that the transform leaves to be applied.
    factors: [Complex64; N_POL],
    coarse: Vec<Complex32>,
    fine: Vec<Complex32>,
    of: Option<(FineDelay, u64)>,
}

/// Factors of a joint transform's separation: 1/2 for polarisation 0, 1/(2i) for polarisation 1.
pub(super) const SEPARATION: [Complex64; N_POL] =
    [Complex64::new(0.5, 0.0), Complex64::new(0.0, -0.5)];

/// Gains of both polarisations.
#[derive(Clone, Debug)]
pub(super) struct Gains {
    of: [steer::Gains; N_POL],
    version: u64,
}

impl Gains {
    /// The same gain for all channels.
    pub fn new(channels: usize, gain: f64) -> Self {
        let gains = steer::Gains::uniform(channels, Complex32::new(gain as f32, 0.0));
        Self {
            of: [gains.clone(), gains],
            version: 0,
        }
    }

    /// Exchanges the gains of one polarisation.
    pub fn swap(&mut self, pol: usize, other: &mut steer::Gains) {
        std::mem::swap(&mut self.of[pol], other);
        self.version += 1;
    }
}

impl Coefficients {
    pub fn new(channels: usize, factors: [Complex64; N_POL]) -> Self {
        let fine = FINE.min(channels);
        Self {
            table: [
                vec![Complex32::default(); channels],
                vec![Complex32::default(); channels],
            ],
            factors,
            coarse: vec![Complex32::default(); channels.div_ceil(fine)],
            fine: vec![Complex32::default(); fine],
            of: None,
        }
    }

    /// Coefficients for `at`; computed only if something changed since the last call.
    pub fn update(
        &mut self,
        level: Supported,
        at: FineDelay,
        gains: &Gains,
    ) -> [&[Complex32]; N_POL] {
        if self.of != Some((at, gains.version)) {
            for pol in 0..N_POL {
                self.compute(
                    level,
                    pol,
                    f64::from(at.delay[pol]),
                    f64::from(at.phase[pol]),
                    gains.of[pol].each(),
                );
            }
            self.of = Some((at, gains.version));
        }
        [&self.table[0], &self.table[1]]
    }

    /// e^{i(phase − π·(delay/C)·(k − C/2))} · gain\[k\], times the polarisation's factor.
    ///
    /// Both levels of the table are powers of a rotation, in `f64`: errors stay below 1e-12.
    fn compute(
        &mut self,
        level: Supported,
        pol: usize,
        delay: f64,
        phase: f64,
        gains: &[Complex32],
    ) {
        let channels = gains.len() as f64;
        let slope = -PI * delay / channels;
        let single = |z: Complex64| Complex32::new(z.re as f32, z.im as f32);
        let mut z = Complex64::new(1.0, 0.0);
        let step = Complex64::cis(slope);
        for fine in &mut self.fine {
            *fine = single(z);
            z *= step;
        }
        let mut z = Complex64::cis(phase - slope * channels / 2.0) * self.factors[pol];
        let step = Complex64::cis(slope * self.fine.len() as f64);
        for coarse in &mut self.coarse {
            *coarse = single(z);
            z *= step;
        }
        phasors(level, gains, &self.coarse, &self.fine, &mut self.table[pol]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Level;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn as_accurate_as_the_formula(
            log in 2u32..=15, delay in -0.5f32..0.5, phase in -3.2f32..3.2, level in prop::sample::select(Level::available().collect::<Vec<_>>()),
        ) {
            let channels = 1usize << log;
            let mut coefficients = Coefficients::new(channels, SEPARATION);
            let at = FineDelay { delay: [delay, -delay], phase: [phase, 0.0] };
            let got = coefficients.update(Supported::new(level), at, &Gains::new(channels, 2.0));
            for k in 0..channels {
                let slope = PI * (k as f64 - channels as f64 / 2.0) / channels as f64;
                let x = Complex64::cis(f64::from(phase) - f64::from(delay) * slope);
                let y = Complex64::cis(f64::from(delay) * slope) * Complex64::new(0.0, -1.0);
                for (got, want) in [(got[0][k], x), (got[1][k], y)] {
                    let got = Complex64::new(got.re.into(), got.im.into());
                    prop_assert!((got - want).norm() < 3e-7, "channel {}: {} is not {}", k, got, want);
                }
            }
        }
    }
}
