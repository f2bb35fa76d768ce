//! Coarse carrier frequency over the short training field.

use std::collections::VecDeque;
use std::f64::consts::TAU;

use num_complex::Complex32;

use crate::waveform::GOLAY_LENGTH;

/// Bits of the oscillator's phase, and of those that look its table up.
const BITS: (u32, u32) = (22, 12);

/// The original's estimate of the carrier frequency, and the oscillator that takes it off.
///
/// φ adds up arg(C C'*) of correlations 32 symbols apart, N counts them; the frequency is
/// φ / (32 N) radians per symbol. All is 32 symbols late, so that the end of the field stops it
/// before the block that is turned over is used.
#[derive(Clone, Debug)]
pub struct CoarseCarrier {
    /// Correlations of the last 32 symbols, the oldest first.
    late: VecDeque<Complex32>,
    /// Symbols until the next correlation that counts, while there are any.
    next: Option<usize>,
    before: Option<Complex32>,
    angle: f64,
    count: u32,
    /// Phase, and what it grows by, in 2²² of a turn.
    phase: u32,
    step: u32,
    table: Vec<Complex32>,
}

impl Default for CoarseCarrier {
    fn default() -> CoarseCarrier {
        let entries = 1 << BITS.1;
        let entry = |i: u32| Complex32::cis((TAU * f64::from(i) / f64::from(entries)) as f32);
        CoarseCarrier {
            late: VecDeque::from([Complex32::ZERO; GOLAY_LENGTH]),
            next: None,
            before: None,
            angle: 0.0,
            count: 0,
            phase: 0,
            step: 0,
            table: (0..entries).map(entry).collect(),
        }
    }
}

impl CoarseCarrier {
    /// Takes a symbol's correlation with Gb in.
    pub fn take(&mut self, correlation: Complex32) {
        self.late.push_back(correlation);
        let late = self.late.pop_front().unwrap_or_default();
        let Some(next) = &mut self.next else {
            return;
        };
        *next -= 1;
        if *next > 0 {
            return;
        }
        *next = GOLAY_LENGTH;
        if let Some(before) = self.before.replace(late) {
            self.angle += f64::from((late * before.conj()).arg());
            self.count += 1;
            let turns = -self.frequency() / TAU;
            let whole = f64::from(1u32 << BITS.0);
            self.step = (turns * whole) as i32 as u32;
        }
    }

    /// Begins with the correlation that was taken in last.
    pub fn begin(&mut self) {
        self.reset();
        self.next = Some(GOLAY_LENGTH);
    }

    /// Leaves the frequency as it is.
    pub fn freeze(&mut self) {
        self.next = None;
    }

    /// Forgets the frequency. The phase runs on.
    pub fn reset(&mut self) {
        (self.next, self.before) = (None, None);
        (self.angle, self.count, self.step) = (0.0, 0, 0);
    }

    /// The frequency in radians per symbol.
    pub fn frequency(&self) -> f64 {
        self.angle / (GOLAY_LENGTH as f64 * f64::from(self.count.max(1)))
    }

    /// A symbol without the frequency.
    pub fn turn(&mut self, z: Complex32) -> Complex32 {
        let place = (self.phase >> (BITS.0 - BITS.1)) as usize;
        self.phase = self.phase.wrapping_add(self.step) & ((1 << BITS.0) - 1);
        z * self.table[place]
    }
}
