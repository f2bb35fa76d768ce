//! What a delay model says of one output timestamp.

use std::f64::consts::FRAC_PI_2;

use super::wrap_angle;

/// Delay and phase of one output timestamp.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DelayPoint {
    /// Input sample that the output timestamp asks for: t − coarse. Negative before the first
    /// sample.
    pub orig: i64,
    /// Whole samples of delay.
    pub coarse: i64,
    /// Delay beyond `coarse`, in ADC samples: within ½, or half the alignment and a little.
    pub residual: f64,
    /// Phase at the band centre in radians, in [−π, π).
    pub phase: f64,
}

impl DelayPoint {
    /// The phase that a wideband spectrum needs.
    pub fn wideband_phase(&self) -> f64 {
        wrap_angle(self.phase + quarter_turns(self.coarse))
    }

    /// Moves the input sample to a multiple of `subsampling`, the direction of a tie chosen so that
    /// the residual shrinks. Delay (`coarse` + `residual`) and phase stay.
    pub fn aligned(self, subsampling: u32) -> Self {
        if subsampling <= 1 {
            return self;
        }
        let s = i128::from(subsampling);
        let orig = i128::from(self.orig);
        let aligned = if subsampling.is_multiple_of(2) {
            let sign = i128::from(self.residual > 0.0) - i128::from(self.residual < 0.0);
            (2 * orig + s - sign).div_euclid(2 * s) * s
        } else {
            (orig + s / 2).div_euclid(s) * s
        };
        let moved = (aligned - orig) as i64;
        Self {
            orig: self.orig.saturating_add(moved),
            coarse: self.coarse.saturating_sub(moved),
            residual: self.residual + moved as f64,
            phase: self.phase,
        }
    }
}

/// By which angle a wideband output is turned back after a coarse delay.
///
/// The centre of the band, a quarter of the sample rate, turns by π/2 per sample of coarse delay;
/// undoing that keeps the phase at the band centre what the model says.
pub(super) fn quarter_turns(coarse: i64) -> f64 {
    FRAC_PI_2 * coarse.rem_euclid(4) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coarse_delay_turns_the_band_centre_by_quarter_turns() {
        for (coarse, quarter) in [
            (0, 0.0),
            (1, 1.0),
            (2, -2.0),
            (3, -1.0),
            (-1, -1.0),
            (41, 1.0),
        ] {
            let point = DelayPoint {
                coarse,
                ..DelayPoint::default()
            };
            assert_eq!(point.wideband_phase(), quarter * FRAC_PI_2, "{coarse}");
        }
    }
}
