//! The window that inverts an oversampled filter bank.
//!
//! With z_s\[q\] = Σₖ X_s\[k\]·e^(2πi·k·q/K) of spectrum s, whose phases count from time 0, a
//! window g gives the samples back:
//!
//! x\[n\] = Σ_s g\[n − s·H\]·z_s\[n mod K\]
//!
//! z_s repeats the weighted window with period K, z_s\[n\] = K·Σⱼ w\[n + jK − sH\]·x\[n + jK\], so
//! that bank and inverse together are
//!
//! x̂\[n\] = Σⱼ x\[n + jK\]·(K·Σ_s g\[n − sH\]·w\[n + jK − sH\])
//!
//! and the bracket must be 1 for j = 0 and 0 elsewhere. Of the many g for which it is, the shortest
//! in energy is S⁻¹w (the dual window of frame theory), where S is the same sum with w in the
//! place of g, as a matrix. S is symmetric and positive, and for a good prototype filter not far
//! from 1 in condition, so that conjugate gradients have g in some twenty products.

use crate::Oversampling;

/// A bank that cannot be inverted.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum SynthesisError {
    /// Spectra are too few.
    #[error("a bank without oversampling has no inverse; give oversampling, such as 32/27")]
    Critical,
    /// The numbers do not fit each other.
    #[error("oversampling {of} needs a transform of a multiple of {} points, not {step}", of.numerator())]
    Step {
        /// M/N.
        of: Oversampling,
        /// Points of the transform.
        step: usize,
    },
    /// Channels lose too much at their edges.
    #[error(
        "the filter's channels leave gaps between them: no inverse was found; \
         make w_cutoff larger or taps more"
    )]
    Gaps,
}

/// What inverts a bank.
#[derive(Clone, Debug, PartialEq)]
pub struct SynthesisWindow {
    /// g, from `lead` samples before a spectrum's window begins.
    pub window: Vec<f64>,
    /// Samples of g before the begin of a spectrum's window.
    pub lead: usize,
    /// By how much noise of the spectra comes out stronger or weaker: with noise of variance σ² in
    /// every number of a spectrum, x has variance `noise`·σ².
    pub noise: f64,
}

/// Lengths of the bank's window on either side that g is computed over.
const MARGIN: usize = 4;
/// What is cut off at g's ends, of its energy.
const CUT: f64 = 1e-13;
/// Of the residue of conjugate gradients, to the first one.
const RESIDUE: f64 = 1e-11;
/// Products, at most.
const PRODUCTS: usize = 400;

impl SynthesisWindow {
    /// For a bank of `step` points with the prototype filter `weights`.
    ///
    /// # Errors
    ///
    /// If the bank is not oversampled, or its channels leave gaps.
    pub fn new(
        weights: &[f32],
        step: usize,
        oversampling: Oversampling,
    ) -> Result<Self, SynthesisError> {
        if oversampling.is_none() {
            return Err(SynthesisError::Critical);
        }
        if step == 0 || !step.is_multiple_of(oversampling.numerator()) {
            let of = oversampling;
            return Err(SynthesisError::Step { of, step });
        }
        let w: Vec<f64> = weights.iter().map(|&w| w.into()).collect();
        let taps = w.len() / step;
        let frame = Frame::new(&w, step, oversampling.hop(step));
        let lead = MARGIN * w.len();
        let mut right = vec![0.0; lead + w.len() + lead];
        right[lead..lead + w.len()].copy_from_slice(&w);
        let g = frame.solve(&right, lead).ok_or(SynthesisError::Gaps)?;
        // Whole transforms from either end, as many as do not matter.
        let energy: f64 = g.iter().map(|g| g * g).sum();
        let matters = |block: &[f64]| block.iter().map(|g| g * g).sum::<f64>() > CUT * energy;
        let blocks = || g.chunks(step);
        let first = blocks().position(matters).unwrap_or(0);
        let last = blocks().rposition(matters).unwrap_or(0);
        // Where even the ends matter, g goes on behind them.
        if taps > 0 && (first == 0 || last + 1 == g.len() / step) {
            return Err(SynthesisError::Gaps);
        }
        let window = g[first * step..(last + 1) * step].to_vec();
        let energy: f64 = window.iter().map(|g| g * g).sum();
        Ok(Self {
            lead: lead - first * step,
            noise: energy * step as f64 / oversampling.hop(step) as f64,
            window,
        })
    }
}

/// S, whose rows repeat every hop.
struct Frame {
    /// Per j from −(taps − 1) on, K·Σ_s w\[n − sH\]·w\[n + jK − sH\] for n below the hop.
    diagonals: Vec<Vec<f64>>,
    taps: usize,
    step: usize,
    hop: usize,
}

impl Frame {
    fn new(w: &[f64], step: usize, hop: usize) -> Self {
        let taps = w.len() / step;
        let diagonal = |j: isize| {
            let mut sums = vec![0.0; hop];
            for (n, w0) in w.iter().enumerate() {
                let other = n as isize + j * step as isize;
                let other = usize::try_from(other).ok().and_then(|i| w.get(i));
                sums[n % hop] += step as f64 * w0 * other.unwrap_or(&0.0);
            }
            sums
        };
        let most = taps as isize - 1;
        Self {
            diagonals: (-most..=most).map(diagonal).collect(),
            taps,
            step,
            hop,
        }
    }

    /// S·f, where element 0 is `lead` samples before time 0.
    fn times(&self, f: &[f64], lead: usize) -> Vec<f64> {
        let mut out = vec![0.0; f.len()];
        let phase = self.hop - lead % self.hop;
        for (d, diagonal) in self.diagonals.iter().enumerate() {
            let shift = (d as isize - (self.taps as isize - 1)) * self.step as isize;
            let (to, from) = match shift {
                0.. => (0, shift as usize),
                _ => (shift.unsigned_abs(), 0),
            };
            let count = f.len().saturating_sub(to + from);
            let mut n = (to + phase) % self.hop;
            let (mut to, mut from, end) = (to, from, to + count);
            while to < end {
                let run = (self.hop - n).min(end - to);
                let terms = diagonal[n..n + run].iter().zip(&f[from..from + run]);
                for (out, (d, f)) in out[to..to + run].iter_mut().zip(terms) {
                    *out += d * f;
                }
                (to, from, n) = (to + run, from + run, 0);
            }
        }
        out
    }

    /// The x with S·x = `right`, by conjugate gradients.
    fn solve(&self, right: &[f64], lead: usize) -> Option<Vec<f64>> {
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let mut x = vec![0.0; right.len()];
        let mut residue = right.to_vec();
        let mut direction = residue.clone();
        let first = dot(&residue, &residue);
        let mut now = first;
        for _ in 0..PRODUCTS {
            let product = self.times(&direction, lead);
            let along = now / dot(&direction, &product);
            let steps = direction.iter().zip(&product);
            for ((x, residue), (d, p)) in x.iter_mut().zip(&mut residue).zip(steps) {
                *x += along * d;
                *residue -= along * p;
            }
            let next = dot(&residue, &residue);
            if !next.is_finite() {
                return None;
            }
            if next <= first * RESIDUE * RESIDUE {
                return Some(x);
            }
            for (direction, residue) in direction.iter_mut().zip(&residue) {
                *direction = residue + next / now * *direction;
            }
            now = next;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WindowFunction::{Hann, Kaiser};
    use crate::pfb;

    /// The bracket, for every n of a hop and every j.
    fn worst(weights: &[f32], step: usize, hop: usize, g: &SynthesisWindow) -> f64 {
        let mut worst = 0.0f64;
        let reach = (g.window.len() + weights.len()) as i64;
        for n in 0..hop as i64 {
            for j in -(reach / step as i64)..=reach / step as i64 {
                let mut sum = 0.0;
                // Spectra whose windows have n.
                for s in -reach / hop as i64..=reach / hop as i64 {
                    let at = |n: i64| usize::try_from(n - s * hop as i64).ok();
                    let g = at(n + g.lead as i64).and_then(|i| g.window.get(i));
                    let w = at(n + j * step as i64).and_then(|i| weights.get(i));
                    if let (Some(g), Some(&w)) = (g, w) {
                        sum += g * f64::from(w);
                    }
                }
                let want = if j == 0 { 1.0 } else { 0.0 };
                worst = worst.max((sum * step as f64 - want).abs());
            }
        }
        worst
    }

    #[test]
    fn bank_and_inverse_are_one() {
        for (step, taps, m, n, window) in [
            (32, 16, 32, 27, Kaiser),
            (16, 16, 4, 3, Kaiser),
            (16, 16, 8, 7, Kaiser),
            (16, 8, 2, 1, Hann),
            (64, 16, 32, 27, Hann),
        ] {
            let of = Oversampling::new(m, n).unwrap();
            let w = pfb::prototype(step, taps, window.cutoff(taps, of), window, of);
            let g = SynthesisWindow::new(&w, step, of).unwrap();
            let worst = worst(&w, step, of.hop(step), &g);
            assert!(worst < 1e-6, "{of}, {taps} taps, {window:?}: {worst:e}");
        }
    }

    #[test]
    fn what_has_no_inverse_is_refused() {
        let w = pfb::weights(32, 4, 1.0, Hann);
        let none = SynthesisWindow::new(&w, 32, Oversampling::NONE);
        assert_eq!(none, Err(SynthesisError::Critical));
        let of = Oversampling::new(33, 27).unwrap();
        let uneven = SynthesisWindow::new(&w, 32, of);
        assert_eq!(uneven, Err(SynthesisError::Step { of, step: 32 }));
        let narrow = pfb::weights(32, 16, 0.3, Hann);
        let gaps = SynthesisWindow::new(&narrow, 32, Oversampling::new(8, 7).unwrap());
        assert_eq!(gaps, Err(SynthesisError::Gaps));
    }
}
