//! One period of packed samples per polarisation, to be replayed.

use crate::config::SampleBits;

use super::config::{DigitiserConfig, lcm};
use super::evaluate::Evaluator;
use super::quantise::{DitherSource, pack, quantise, saturated};
use super::signal::{Signal, Term};

/// The windows of all polarisations.
pub struct Windows(Vec<Window>);

impl Windows {
    /// Evaluates `signals`, one for all polarisations or one for each, as they repeat after `period` samples. Where all
    /// are zero there is no dither either, as from the peer's `dsim`.
    pub fn new(config: &DigitiserConfig, signals: &[Signal], period: u64) -> Self {
        let silent = signals.iter().all(|s| *s.term == Term::Constant(0.0));
        let window = WindowConfig {
            period,
            samples: lcm(period, config.heap_samples as u64),
            heap_samples: config.heap_samples,
            bits: config.sample_bits,
            adc_sample_rate: config.clock.adc_sample_rate,
            dither_seed: config.dither_seed,
        };
        let signal = |pol| signals.get(pol).or(signals.first());
        let window = |pol| {
            let mut signal = signal(pol)?.clone();
            signal.dither &= !silent;
            Some(Window::new(&window, &signal, pol))
        };
        Self((0..config.dests.len()).filter_map(window).collect())
    }

    /// The sample of polarisation `pol` at timestamp `t`.
    pub fn sample(&self, pol: usize, t: u64) -> i32 {
        self.0[pol].sample(t)
    }

    /// Packed samples and saturation count of heap `heap` of polarisation `pol`, counted from timestamp 0.
    pub fn heap(&self, pol: usize, heap: u64) -> (&[u8], u16) {
        self.0[pol].heap(heap)
    }
}

/// Heaps of one polarisation that repeat.
pub struct Window {
    heap_bytes: usize,
    bits: SampleBits,
    packed: Vec<u8>,
    saturated: Vec<u16>,
}

/// What a window is made of, common to all polarisations.
#[derive(Clone, Copy, Debug)]
pub struct WindowConfig {
    /// Samples after which signals and dither repeat.
    pub period: u64,
    /// Samples in the window; a multiple of `period` and of `heap_samples`.
    pub samples: u64,
    /// Samples per heap; they fill whole bytes.
    pub heap_samples: usize,
    /// Bits per sample.
    pub bits: SampleBits,
    /// In hertz.
    pub adc_sample_rate: f64,
    /// Seed of the dither.
    pub dither_seed: u64,
}

impl Window {
    /// Evaluates, quantises and packs the signal of polarisation `pol`.
    pub fn new(config: &WindowConfig, signal: &Signal, pol: usize) -> Self {
        let heap_bytes = config.bits.bytes(config.heap_samples);
        let heaps = config.samples / config.heap_samples as u64;
        let mut evaluator = Evaluator::new(config.period, config.adc_sample_rate);
        let mut source = signal
            .dither
            .then(|| DitherSource::new(config.dither_seed, pol));
        let mut values = vec![0.0; config.heap_samples];
        let mut dither = vec![0.0; config.heap_samples];
        let mut samples = vec![0; config.heap_samples];
        let mut window = Self {
            heap_bytes,
            bits: config.bits,
            packed: Vec::with_capacity(heaps as usize * heap_bytes),
            saturated: Vec::with_capacity(heaps as usize),
        };
        for heap in 0..heaps {
            let start = heap * config.heap_samples as u64;
            evaluator.evaluate(&signal.term, start, &mut values);
            if let Some(source) = &mut source {
                fill_circular(source, start, config.period, &mut dither);
            }
            for ((sample, value), dither) in samples.iter_mut().zip(&values).zip(&dither) {
                *sample = quantise(*value, *dither, config.bits);
            }
            let count = saturated(&samples, config.bits);
            window
                .saturated
                .push(u16::try_from(count).unwrap_or(u16::MAX));
            pack(&samples, config.bits, &mut window.packed);
        }
        window
    }

    /// The sample at timestamp `t`.
    pub fn sample(&self, t: u64) -> i32 {
        let bits = self.bits.get() as usize;
        let samples = self.packed.len() * 8 / bits;
        let first = (t % samples as u64) as usize * bits;
        // Most significant bit first; at most 16 bits begin anywhere in a byte.
        let bytes = self.packed[first / 8..].iter().take(3);
        let word = bytes
            .zip([24, 16, 8])
            .fold(0u32, |word, (byte, shift)| word | u32::from(*byte) << shift);
        (word << (first % 8)).cast_signed() >> (32 - bits)
    }

    /// Packed samples and saturation count of heap `heap`, counted from timestamp 0.
    pub fn heap(&self, heap: u64) -> (&[u8], u16) {
        let place = (heap % self.saturated.len() as u64) as usize;
        let bytes = &self.packed[place * self.heap_bytes..][..self.heap_bytes];
        (bytes, self.saturated[place])
    }
}

/// Dither repeats with the signal.
fn fill_circular(source: &mut DitherSource, start: u64, period: u64, out: &mut [f64]) {
    let mut index = start % period;
    let mut rest = out;
    while !rest.is_empty() {
        let len = rest.len().min((period - index) as usize);
        let (head, tail) = rest.split_at_mut(len);
        source.fill(index, head);
        index = (index + len as u64) % period;
        rest = tail;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::parse;

    fn config(bits: u32) -> WindowConfig {
        WindowConfig {
            period: 1 << 16,
            samples: 1 << 16,
            heap_samples: 4096,
            bits: SampleBits::new(bits).unwrap(),
            adc_sample_rate: 1e9,
            dither_seed: 1,
        }
    }

    fn window(config: &WindowConfig, program: &str) -> Window {
        Window::new(config, &parse(program, || 0).unwrap()[0], 0)
    }

    #[test]
    fn overdriven_tone_saturates_two_thirds() {
        let window = window(&config(10), "cw(2, 123456789.0);");
        let total: u64 = (0..16).map(|heap| u64::from(window.heap(heap).1)).sum();
        let fraction = total as f64 / 65536.0;
        assert!((fraction - 2.0 / 3.0).abs() < 0.01, "{fraction}");
    }

    #[test]
    fn half_a_step_is_dithered_unless_told_not_to() {
        let config = config(8);
        let half = 0.5 / 127.0;
        let ones = |window: &Window| window.heap(0).0.iter().filter(|byte| **byte == 1).count();
        let dithered = ones(&window(&config, &format!("{half};")));
        // Binomial(4096, ½), five standard deviations.
        assert!(dithered.abs_diff(2048) < 160, "{dithered}");
        let plain = window(&config, &format!("nodither({half} * 1.01);"));
        assert_eq!(ones(&plain), 4096);
    }

    #[test]
    fn everything_repeats_with_the_period() {
        let mut long = config(10);
        long.period = 1024 * 5;
        long.samples = 4096 * 5;
        let window = window(&long, "wgn(0.1, 4) + cw(0.3, 3e8);");
        assert_eq!(window.heap(0), window.heap(5));
        let bytes = 10 * 1024 / 8;
        let all: Vec<u8> = (0..5)
            .flat_map(|heap| window.heap(heap).0.to_vec())
            .collect();
        let (first, rest) = all.split_at(5 * bytes);
        assert_eq!(first, &rest[..5 * bytes]);
        assert_ne!(&first[..bytes], &first[bytes..2 * bytes]);
    }
}
