//! One period of packed samples per polarisation, to be replayed.

use dsp::SampleBits;
use ground::StopFlag;

use super::config::{DigitiserConfig, lcm};
use super::evaluate::Evaluator;
use super::quantise::{DitherSource, pack, quantise, saturated};
use super::signal::{Signal, Term};
use crate::assembly::Demand;

/// The windows of all polarisations.
pub struct Windows(Vec<SignalWindow>);

impl Windows {
    /// Evaluates `signals`, one for all polarisations or one for each, as they repeat after
    /// `period` samples. Where all are zero there is no dither either, as from katgpucbf's `dsim`.
    pub fn new(config: &DigitiserConfig, signals: &[Signal], period: u64) -> Self {
        let mut making = Making::new(config, signals, period, &StopFlag::default());
        while making.step() {}
        making.finish()
    }

    /// Bytes of memory of windows that repeat after `period` samples.
    pub fn bytes(config: &DigitiserConfig, period: u64) -> u64 {
        let heaps = lcm(period, config.heap_samples as u64) / config.heap_samples as u64;
        let heap = (config.heap_bytes() + size_of::<u16>()) as u64;
        (config.dests.len() as u64).saturating_mul(heaps.saturating_mul(heap))
    }

    /// That memory, of which `option` tells the period.
    pub fn demand(config: &DigitiserConfig, period: u64, option: &str) -> Demand {
        Demand {
            what: format!("samples of {} polarisations", config.dests.len()),
            bytes: Self::bytes(config, period),
            option: option.to_owned(),
            value: period as usize,
        }
    }

    /// The sample of polarisation `pol` at timestamp `t`.
    pub fn sample(&self, pol: usize, t: u64) -> i32 {
        self.0[pol].sample(t)
    }

    /// Packed samples and saturation count of heap `heap` of polarisation `pol`, counted from
    /// timestamp 0.
    pub fn heap(&self, pol: usize, heap: u64) -> (&[u8], u16) {
        self.0[pol].heap(heap)
    }
}

/// Heaps of one polarisation that repeat.
pub struct SignalWindow {
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

impl WindowConfig {
    fn heaps(&self) -> u64 {
        self.samples / self.heap_samples as u64
    }
}

/// Windows under construction, one heap after another.
pub struct Making {
    config: WindowConfig,
    /// Signals of all polarisations.
    signals: Vec<Signal>,
    /// Of the polarisations before that under way.
    windows: Vec<SignalWindow>,
    filling: Option<Filling>,
    stop: StopFlag,
}

impl Making {
    /// What [`Windows::new`] makes, before the first heap. What is made after `stop` is of no use,
    /// and soon done.
    pub fn new(config: &DigitiserConfig, signals: &[Signal], period: u64, stop: &StopFlag) -> Self {
        let silent = signals.iter().all(|s| *s.term == Term::Constant(0.0));
        let signal = |pol| signals.get(pol).or(signals.first()).cloned();
        let mut signals: Vec<_> = (0..config.dests.len()).filter_map(signal).collect();
        for signal in &mut signals {
            signal.dither &= !silent;
        }
        let config = WindowConfig {
            period,
            samples: lcm(period, config.heap_samples as u64),
            heap_samples: config.heap_samples,
            bits: config.sample_bits,
            adc_sample_rate: config.clock.adc_sample_rate,
            dither_seed: config.dither_seed,
        };
        let first = signals.first();
        Self {
            filling: first.map(|signal| Filling::new(&config, signal, 0, stop)),
            stop: stop.clone(),
            config,
            signals,
            windows: Vec::new(),
        }
    }

    /// Heaps of all polarisations.
    pub fn heaps(&self) -> u64 {
        self.config.heaps() * self.signals.len() as u64
    }

    /// Makes one heap. Whether there are more.
    pub fn step(&mut self) -> bool {
        let Some(filling) = &mut self.filling else {
            return false;
        };
        if filling.heap(&self.config) {
            return true;
        }
        let pol = self.windows.len() + 1;
        let signal = self.signals.get(pol);
        let next = signal.map(|signal| Filling::new(&self.config, signal, pol, &self.stop));
        let full = std::mem::replace(&mut self.filling, next);
        self.windows.extend(full.map(|filling| filling.window));
        self.filling.is_some()
    }

    /// The windows of the polarisations that are complete.
    pub fn finish(self) -> Windows {
        Windows(self.windows)
    }
}

/// The window of one polarisation under construction.
struct Filling {
    signal: Signal,
    evaluator: Evaluator,
    source: Option<DitherSource>,
    values: Vec<f64>,
    dither: Vec<f64>,
    samples: Vec<i32>,
    window: SignalWindow,
}

impl Filling {
    fn new(config: &WindowConfig, signal: &Signal, pol: usize, stop: &StopFlag) -> Self {
        let heap_bytes = config.bits.bytes(config.heap_samples);
        let heaps = config.heaps() as usize;
        Self {
            signal: signal.clone(),
            evaluator: Evaluator::new(config.period, config.adc_sample_rate, stop.clone()),
            source: signal
                .dither
                .then(|| DitherSource::new(config.dither_seed, pol)),
            values: vec![0.0; config.heap_samples],
            dither: vec![0.0; config.heap_samples],
            samples: vec![0; config.heap_samples],
            window: SignalWindow {
                heap_bytes,
                bits: config.bits,
                packed: Vec::with_capacity(heaps * heap_bytes),
                saturated: Vec::with_capacity(heaps),
            },
        }
    }

    /// Evaluates, quantises and packs the next heap. Whether there are more.
    fn heap(&mut self, config: &WindowConfig) -> bool {
        let window = &mut self.window;
        let start = (window.saturated.len() * config.heap_samples) as u64;
        self.evaluator
            .evaluate(&self.signal.term, start, &mut self.values);
        if let Some(source) = &mut self.source {
            fill_circular(source, start, config.period, &mut self.dither);
        }
        let values = self.values.iter().zip(&self.dither);
        for (sample, (value, dither)) in self.samples.iter_mut().zip(values) {
            *sample = quantise(*value, *dither, config.bits);
        }
        let count = saturated(&self.samples, config.bits);
        window
            .saturated
            .push(u16::try_from(count).unwrap_or(u16::MAX));
        pack(&self.samples, config.bits, &mut window.packed);
        (window.saturated.len() as u64) < config.heaps()
    }
}

impl SignalWindow {
    /// Evaluates, quantises and packs the signal of polarisation `pol`.
    pub fn new(config: &WindowConfig, signal: &Signal, pol: usize) -> Self {
        let mut filling = Filling::new(config, signal, pol, &StopFlag::default());
        while filling.heap(config) {}
        filling.window
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
    use ground::SampleClock;

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

    fn window(config: &WindowConfig, program: &str) -> SignalWindow {
        SignalWindow::new(config, &parse(program, || 0).unwrap()[0], 0)
    }

    #[test]
    fn windows_take_the_bytes_that_were_foretold() {
        let clock = SampleClock {
            adc_sample_rate: 1e9,
            sync_time: 0.0,
        };
        let dests = vec![vec!["239.1.1.1:7148".parse().unwrap()]; 3];
        let mut config = DigitiserConfig {
            clock,
            signals: parse("0.5;", || 0).unwrap(),
            dests,
            heap_samples: 4096,
            sample_bits: SampleBits::new(10).unwrap(),
            first_id: 0,
            period: 1 << 14,
            max_period: 1 << 14,
            dither_seed: 1,
            ttl: 4,
            first_timestamp: 0,
        };
        // The second takes five heaps to repeat.
        for (period, heaps) in [(1 << 14, 4), (5 << 10, 5)] {
            config.period = period;
            let windows = Windows::new(&config, &config.signals, period);
            let bytes = windows.0.iter().map(|window| {
                assert_eq!(window.saturated.len(), heaps);
                window.packed.len() + 2 * window.saturated.len()
            });
            let bytes = bytes.sum::<usize>() as u64;
            assert_eq!(Windows::bytes(&config, period), bytes);
        }
        let stop = StopFlag::default();
        let making = Making::new(&config, &config.signals, config.period, &stop);
        assert_eq!(making.heaps(), 15);
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
        let ones =
            |window: &SignalWindow| window.heap(0).0.iter().filter(|byte| **byte == 1).count();
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
