//! A delay that varies, by cubic interpolation.

use num_complex::Complex32;

/// Samples of the delay line.
const LINE: usize = 45;

/// Taps of the original's cubic Farrow interpolator for a delay of 1 + `mu` samples, the newest
/// sample's first: y = ((c₃ μ + c₂) μ + c₁) μ + c₀.
pub fn farrow_taps(mu: f64) -> [f64; 4] {
    const C: [[f64; 4]; 4] = [
        [0.0, 1.0, 0.0, 0.0],
        [-0.48124, -0.33413, 1.02020, -0.25639],
        [0.70609, -1.31155, 0.62547, 0.03154],
        [-0.22485, 0.64567, -0.64567, 0.22485],
    ];
    std::array::from_fn(|i| ((C[3][i] * mu + C[2][i]) * mu + C[1][i]) * mu + C[0][i])
}

/// The original's variable delay.
#[derive(Clone, Debug)]
pub struct VariableDelay {
    /// The last samples, twice, so that any of them with those before lie in a row.
    line: [Complex32; 2 * LINE],
    /// Where the newest is; older ones follow.
    newest: usize,
}

impl Default for VariableDelay {
    fn default() -> VariableDelay {
        VariableDelay {
            line: [Complex32::ZERO; 2 * LINE],
            newest: 0,
        }
    }
}

impl VariableDelay {
    /// Largest delay, in samples. The smallest that is not rounded up is 1, the largest that is not
    /// rounded down 42.
    pub const MOST: f32 = 44.0;

    /// Takes a sample in; the signal as it was `delay` samples ago.
    pub fn next(&mut self, x: Complex32, delay: f32) -> Complex32 {
        self.newest = (self.newest + LINE - 1) % LINE;
        (self.line[self.newest], self.line[self.newest + LINE]) = (x, x);
        let behind_one = (delay - 1.0).clamp(0.0, (LINE - 4) as f32);
        let whole = behind_one as usize;
        let taps = farrow_taps(f64::from(behind_one - whole as f32));
        let samples = &self.line[self.newest + whole..];
        let products = samples.iter().zip(taps).map(|(x, tap)| x * tap as f32);
        products.sum()
    }
}
