//! Delay and sample clock: samples between samples.

use std::f64::consts::PI;
use std::sync::Arc;

use num_complex::Complex64;

/// Samples that an interpolated one is made of.
pub const INTERPOLATOR_TAPS: usize = 40;
/// Samples at and before the wanted time.
const BEFORE: usize = INTERPOLATOR_TAPS / 2;
/// Rows of the table between two samples.
const PHASES: usize = 1024;
/// Shape of the Kaiser window: aliases below −90 dB.
const KAISER_BETA: f64 = 9.0;

type Row = [f64; INTERPOLATOR_TAPS];

/// A sinc under a Kaiser window, at 1024 phases between two samples, with linear interpolation
/// between phases: y(t) = Σₘ x(m) sinc(t − m) w(t − m).
///
/// Errors are below −80 dB for frequencies up to 0.4 of the sample rate; the waveform ends at 0.25.
#[derive(Clone, Debug)]
struct Kernel(Arc<[Row]>);

/// The modified Bessel function I₀, by its series.
fn bessel_i0(x: f64) -> f64 {
    let quarter = x * x / 4.0;
    let (mut sum, mut term, mut k) = (1.0, 1.0, 1.0);
    while term > sum * 1e-17 {
        term *= quarter / (k * k);
        sum += term;
        k += 1.0;
    }
    sum
}

impl Kernel {
    fn new() -> Kernel {
        let half = BEFORE as f64;
        let tap = |distance: f64| {
            let edge = 1.0 - (distance / half).powi(2);
            if edge < 0.0 {
                return 0.0;
            }
            let window = bessel_i0(KAISER_BETA * edge.sqrt()) / bessel_i0(KAISER_BETA);
            let angle = PI * distance;
            let sinc = if distance.abs() < 1e-9 {
                1.0
            } else {
                angle.sin() / angle
            };
            sinc * window
        };
        let row = |phase: usize| {
            let fraction = phase as f64 / PHASES as f64;
            // Tap i stands for the sample at ⌊t⌋ − 19 + i.
            std::array::from_fn(|i| tap(fraction + (BEFORE - 1) as f64 - i as f64))
        };
        Kernel((0..=PHASES).map(row).collect())
    }

    /// The value `fraction` (0 to 1) behind sample 19 of `samples`.
    fn value(&self, samples: &[Complex64], fraction: f64) -> Complex64 {
        let place = fraction * PHASES as f64;
        let phase = (place as usize).min(PHASES - 1);
        let share = place - phase as f64;
        let (low, high) = (&self.0[phase], &self.0[phase + 1]);
        let mut sum = Complex64::default();
        for (i, sample) in samples[..INTERPOLATOR_TAPS].iter().enumerate() {
            sum += sample * (low[i] + share * (high[i] - low[i]));
        }
        sum
    }
}

/// Samples of a clock that is wrong by o and late by a delay: y(n) = x(n − delay − o n). Before the
/// first input there is silence, as there is behind the last.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    kernel: Kernel,
    delay: f64,
    error: f64,
    /// Number of the next output.
    next: u64,
    /// Inputs that are still needed, and the place of the first of them; 40 zeros stand before
    /// input 0.
    held: Vec<Complex64>,
    first: i64,
}

impl Clock {
    /// A clock, or none if it would change nothing.
    pub(super) fn new(delay: f64, clock_ppm: f64) -> Option<Clock> {
        (delay != 0.0 || clock_ppm != 0.0).then(|| Clock {
            kernel: Kernel::new(),
            delay,
            error: clock_ppm * 1e-6,
            next: 0,
            held: vec![Complex64::default(); INTERPOLATOR_TAPS],
            first: -(INTERPOLATOR_TAPS as i64),
        })
    }

    /// Appends the outputs that `samples` complete.
    pub(super) fn push(&mut self, samples: &[Complex64], out: &mut Vec<Complex64>) {
        self.held.extend_from_slice(samples);
        let end = self.first + self.held.len() as i64;
        loop {
            let time = self.next as f64 - self.delay - self.error * self.next as f64;
            let floor = time.floor();
            let from = floor as i64 - (BEFORE as i64 - 1);
            if from + INTERPOLATOR_TAPS as i64 > end {
                break;
            }
            // All of them stand before the stream.
            let value = match usize::try_from(from - self.first) {
                Ok(place) => self.kernel.value(&self.held[place..], time - floor),
                Err(_) => Complex64::default(),
            };
            out.push(value);
            self.next += 1;
        }
        let time = self.next as f64 - self.delay - self.error * self.next as f64;
        let wanted = time.floor() as i64 - (BEFORE as i64 - 1);
        let used = (wanted - self.first).clamp(0, self.held.len() as i64);
        self.held.drain(..used as usize);
        self.first += used;
    }

    /// Appends the outputs up to the time of the last input.
    pub(super) fn finish(&mut self, out: &mut Vec<Complex64>) {
        self.push(&[Complex64::default(); BEFORE], out);
    }
}
