//! DC and IQ imbalance of a receiver's front end, found blindly and taken off ahead of all else.
//!
//! A mixer whose branches differ makes x = A y + B y* + dc of the signal y. A signal that is
//! proper, E y² = 0, as noise and the QPSK and QAM of bodies are, or that turns with a carrier
//! offset, tells both: dc = E x, and with c = E (x − dc)² and p = E |x − dc|² the image goes with
//!
//! x′ = (x − dc) − w (x − dc)*, w = c / (p + √(p² − |c|²)), for which E x′² = 0
//!
//! (L. Anttila, M. Valkama, M. Renfors, IEEE Trans. Veh. Technol. 57(4), 2008; the solution by
//! moments of second order). What is left is a gain A − w B*, which the equaliser takes.
//!
//! BPSK without a carrier offset is not proper: |c| = p, and at full duty the preambles and headers
//! of frames alone make |c| = 0.24 p. So |c| beyond 0.2 p, an image of more than −20 dB, is not
//! believed, and the image stays.

use num_complex::{Complex32, Complex64};

use super::acquirer::LIMIT;
use super::simd::{self, Level};
use crate::channel::IqImbalance;

/// Samples that are mended together.
const UNIT: usize = 1024;
/// Units from one estimate to the next. The first block waits for its own; a later one has that of
/// the blocks before.
const UNITS: usize = 32;
/// Part of the older sums that goes with each block, once there are as many: 22 frames are looked
/// at, by which a mean of them is within −55 dB of their power.
const FORGET: f64 = 1.0 / 32.0;
/// Samples whose power is looked at together.
const GROUP: usize = 64;
/// Power of a group, by that of the one in its unit that three others exceed, above which it is
/// left out of the sums. 64 samples of noise or of a body are within a factor of 2 of their mean. A
/// single sample that stays in has at most 16 · 64 times the mean power, 3 % of that of a block of
/// 32 768. Each unit is measured by itself: of a signal that becomes stronger three groups at most
/// are left out.
const OUTLIER: f64 = 16.0;
/// Largest |c| / p that is believed.
const BELIEVED: f64 = 0.2;

/// What a receiver takes off its input.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Correction {
    /// Offset of both parts.
    pub dc: Complex64,
    /// The image's amplitude w by the signal's.
    pub image: Complex64,
}

impl Correction {
    /// The imbalance that makes such an image.
    ///
    /// ```
    /// use karoo_modem::rx::Correction;
    /// use num_complex::Complex64;
    ///
    /// let image = Complex64::new(-0.0575, 0.0348);
    /// let found = Correction { image, ..Correction::default() }.imbalance();
    /// assert!((found.gain_db - 1.0).abs() < 0.01);
    /// assert!((found.phase_degrees - 4.0).abs() < 0.01);
    /// ```
    pub fn imbalance(&self) -> IqImbalance {
        // A* = (1 + g e^(−jφ)) / 2 and B = (1 − g e^(−jφ)) / 2; w is B / A*.
        let branch = (1.0 - self.image) / (1.0 + self.image);
        IqImbalance {
            gain_db: 20.0 * branch.norm().log10(),
            // Adding 0 leaves no minus before it.
            phase_degrees: -branch.arg().to_degrees() + 0.0,
        }
    }
}

/// Takes DC and image off a stream. Estimates stand at places that count from the stream's begin,
/// so that samples do not depend on how it is cut.
pub(crate) struct Corrector {
    level: Level,
    /// Samples that wait: of the first block, or of a unit.
    raw: Vec<f32>,
    /// Units of the present block that are in `block`.
    units: usize,
    /// Sums of the present block, without what stands far above it: number, I, Q, I², Q², I·Q.
    block: [f64; 6],
    /// Sums of the blocks before, older ones less.
    sums: [f64; 6],
    now: Option<Correction>,
}

impl Corrector {
    pub fn new(level: Level) -> Corrector {
        Corrector {
            level,
            raw: Vec::new(),
            units: 0,
            block: [0.0; 6],
            sums: [0.0; 6],
            now: None,
        }
    }

    /// What is taken off now.
    pub fn correction(&self) -> Correction {
        self.now.unwrap_or_default()
    }

    /// Takes samples in, and appends mended ones to `values`; tells how many were bad.
    pub fn push(&mut self, samples: &[Complex32], values: &mut Vec<f32>) -> u64 {
        let bad = simd::take_in(self.level, LIMIT, samples, &mut self.raw);
        let (mut seen, mut done) = (0, 0);
        if self.now.is_none() {
            // The first block waits for its own means: what waits has been summed already.
            seen = self.units * UNIT;
        }
        while self.raw.len() / 2 - seen >= UNIT {
            self.see(seen, seen + UNIT);
            seen += UNIT;
            if self.now.is_some() {
                self.mend(done, seen, values);
                done = seen;
            }
            if self.units == UNITS {
                self.estimate();
                self.mend(done, seen, values);
                done = seen;
            }
        }
        self.raw.drain(..2 * done);
        bad
    }

    /// Ends the stream: what waits is mended too.
    pub fn finish(&mut self, values: &mut Vec<f32>) {
        let all = self.raw.len() / 2;
        if self.now.is_none() {
            // Whole groups of 8 are summed; the block is all that there is.
            self.see(self.units * UNIT, all - all % 8);
            self.estimate();
        }
        self.mend(0, all, values);
        self.raw.clear();
    }

    /// Adds a unit, or the end of the stream, to the block; without groups that stand far above
    /// it: one sample of 10⁵ would outweigh all others for as long as sums remember it.
    fn see(&mut self, from: usize, to: usize) {
        self.units += 1;
        let groups = self.raw[2 * from..2 * to].chunks(2 * GROUP);
        let mut found = [[0.0; 6]; UNIT / GROUP];
        let mut powers = [0.0; UNIT / GROUP];
        let all = groups.len().min(found.len());
        if all == 0 {
            return;
        }
        for ((found, power), group) in found.iter_mut().zip(&mut powers).zip(groups) {
            let count = group.len() as f64 / 2.0;
            let [re, im, re2, im2, product] = simd::moments(self.level, group);
            *found = [count, re, im, re2, im2, product];
            *power = (re2 + im2) / count;
        }
        let mut sorted = powers;
        let (_, usual, _) = sorted[..all].select_nth_unstable_by(all * 3 / 4, f64::total_cmp);
        let most = OUTLIER * *usual;
        for (found, power) in found[..all].iter().zip(powers) {
            if power <= most {
                for (sum, more) in self.block.iter_mut().zip(found) {
                    *sum += more;
                }
            }
        }
    }

    fn mend(&self, from: usize, to: usize, values: &mut Vec<f32>) {
        let Correction { dc, image } = self.correction();
        let part = |z: Complex64| [z.re as f32, z.im as f32];
        let behind = values.len();
        values.resize(behind + 2 * (to - from), 0.0);
        let (x, out) = (&self.raw[2 * from..2 * to], &mut values[behind..]);
        simd::mend(self.level, LIMIT, part(dc), part(image), x, out);
    }

    /// An estimate of all blocks so far.
    fn estimate(&mut self) {
        let whole = (UNIT * UNITS) as f64;
        // Until there are as many, all blocks count the same.
        let forget = f64::from(u8::from(self.sums[0] + whole > whole / FORGET)) * FORGET;
        for (sum, more) in self.sums.iter_mut().zip(self.block) {
            *sum += more - forget * *sum;
        }
        (self.block, self.units) = ([0.0; 6], 0);
        self.now = Some(correction(self.sums));
    }
}

/// What sums say.
fn correction([count, re, im, re2, im2, product]: [f64; 6]) -> Correction {
    if count <= 0.0 {
        return Correction::default();
    }
    let dc = Complex64::new(re, im) / count;
    let (re2, im2) = (re2 / count - dc.re * dc.re, im2 / count - dc.im * dc.im);
    let c = Complex64::new(re2 - im2, 2.0 * (product / count - dc.re * dc.im));
    let p = re2 + im2;
    let image = match p > 0.0 && c.norm() <= BELIEVED * p {
        true => c / (p + (p * p - c.norm_sqr()).max(0.0).sqrt()),
        false => Complex64::default(),
    };
    Correction { dc, image }
}
