//! What statistics come to: levels, clipping, unusual channels, and gains that would be right.

use dsp::kurtosis::{self, Thresholds};
use dsp::{SampleBits, pfb, power};
use ground::N_POL;
use num_complex::{Complex32, Complex64};

use super::{InputStatistics, OutputStatistics};
use crate::config::OutputConfig;

/// Spectra that a channel's power is averaged over before gains are made of it: 10⁴ have an error
/// of 1 %, 0.04 dB. Where a channel has fewer, its neighbours make up for it.
const SPECTRA_FOR_GAINS: u64 = 10_000;

/// Powers below this share of the mean are what the rounding of single precision leaves: −144 dB
/// were seen in a polarisation of zeros beside one with noise. The quantisation of a digitiser of
/// 16 bits is 98 dB below a sine of full scale.
const ROUNDING: f64 = 1e-12;
/// Where the estimate's variance is larger than that of independent spectra by more than this,
/// spectra have so much in common that noise alone has many channels flagged: at the limit, 0.005
/// of them and not 0.0027.
const MOST_GROWTH: f64 = 1.15;
/// Points of the prototype from which the growth is taken, per tap: it hardly depends on them.
const POINTS: usize = 64;

/// Channels of one polarisation whose kurtosis noise alone rarely has.
#[derive(Clone, Debug, PartialEq)]
pub struct KurtosisFlags {
    /// Between which values noise is, but for 0.13 % of all channels on either side.
    pub thresholds: Thresholds,
    /// The channels, in order.
    pub channels: Vec<usize>,
    /// How many were looked at.
    pub looked_at: usize,
}

impl KurtosisFlags {
    /// Share of the channels.
    pub fn share(&self) -> f64 {
        self.channels.len() as f64 / self.looked_at.max(1) as f64
    }
}

/// By how much the variance of the kurtosis of noise is larger than over independent spectra.
fn variance_growth(output: &OutputConfig) -> f64 {
    let ratio = output.oversampling;
    let step = ratio.numerator() * POINTS.div_ceil(ratio.numerator());
    let window = output.window_function;
    let weights = pfb::prototype(step, output.taps, output.w_cutoff, window, ratio);
    kurtosis::variance_growth(&weights, ratio.hop(step))
}

impl OutputStatistics {
    /// Whether all powers are finite. Backends add up in single precision, whose largest number is
    /// the fourth power of 4·10⁹ counts and the square of 2·10¹⁹: gains may be larger.
    pub fn are_known(&self) -> bool {
        let powers = self.channels.iter().flat_map(|sums| sums.power);
        powers.into_iter().all(f64::is_finite)
    }

    /// Mean power of each channel, in squared counts.
    pub fn powers(&self, pol: usize) -> impl Iterator<Item = f64> + '_ {
        let spectra = self.spectra as f64;
        self.channels
            .iter()
            .map(move |sums| sums.power[pol] / spectra)
    }

    /// Mean power of all channels, in squared counts.
    pub fn mean_power(&self, pol: usize) -> f64 {
        self.powers(pol).sum::<f64>() / self.channels.len() as f64
    }

    /// Rms of real and imaginary parts before quantisation, in counts, over all channels.
    pub fn rms(&self, pol: usize) -> f64 {
        (0.5 * self.mean_power(pol)).sqrt()
    }

    /// Share of complex samples that quantisation clamped.
    pub fn clipped_share(&self, pol: usize) -> f64 {
        let clipped: u64 = self.channels.iter().map(|sums| sums.clipped[pol]).sum();
        clipped as f64 / (self.spectra as f64 * self.channels.len() as f64)
    }

    /// Spectral kurtosis of each channel; nothing without power, or with one spectrum.
    pub fn kurtosis(&self, pol: usize) -> impl Iterator<Item = Option<f64>> + '_ {
        self.channels.iter().map(move |sums| {
            kurtosis::estimate(sums.power[pol], sums.power_squared[pol], self.spectra)
        })
    }

    /// Channels with something else than noise. `None` for fewer spectra than
    /// [`kurtosis::LEAST_SPECTRA`], and where gains are so large that Σ|x|⁴ is not finite. Also of
    /// outputs whose spectra have too much in common for thresholds of independent ones: those that
    /// are oversampled by some 3/2 or more, and those whose channels are narrower than they are
    /// apart, by `w_cutoff` and window.
    ///
    /// Channel 0 of a wideband output is left out: its numbers are real, and so is its noise.
    pub fn kurtosis_flags(&self, pol: usize, output: &OutputConfig) -> Option<KurtosisFlags> {
        if variance_growth(output) > MOST_GROWTH {
            return None;
        }
        let squared = self.channels.iter().map(|sums| sums.power_squared[pol]);
        if !squared.into_iter().all(f64::is_finite) {
            return None;
        }
        let thresholds = Thresholds::new(self.spectra, kurtosis::THREE_SIGMA)?;
        let first = usize::from(output.narrowband.is_none());
        let estimates = self.kurtosis(pol).enumerate().skip(first);
        let flagged = estimates.filter(|(_, of)| of.is_some_and(|of| thresholds.flags(of)));
        Some(KurtosisFlags {
            thresholds,
            channels: flagged.map(|(channel, _)| channel).collect(),
            looked_at: self.channels.len() - first,
        })
    }

    /// What the polarisations have in common, over all channels: Σx·y* over the root of
    /// Σ|x|²·Σ|y|². Its argument is by how much polarisation 0 is ahead. 0 without power.
    pub fn correlation(&self) -> Complex64 {
        let cross: Complex64 = self.channels.iter().map(|sums| sums.cross).sum();
        let all = |pol: usize| {
            self.channels
                .iter()
                .map(|sums| sums.power[pol])
                .sum::<f64>()
        };
        let scale = (all(0) * all(1)).sqrt();
        if scale > 0.0 {
            cross / scale
        } else {
            Complex64::default()
        }
    }

    /// Gains with which the parts of each channel would have this rms, per polarisation, if it had
    /// `gains` while these statistics were taken. Phases of gains stay. Channels without power, and
    /// those whose gain is zero, keep what they have. `None` of a polarisation where all do.
    pub fn level_gains(
        &self,
        gains: [&[Complex32]; N_POL],
        rms: f64,
    ) -> [Option<Vec<Complex32>>; N_POL] {
        // Power before gains.
        let before = [0, 1].map(|pol: usize| {
            let before = self.powers(pol).zip(gains[pol]);
            let before = before.map(|(power, gain)| power / norm(gain).powi(2));
            before.collect::<Vec<_>>()
        });
        let means = before.iter().map(|before| {
            let known = before.iter().filter(|power| power.is_finite());
            known.sum::<f64>() / before.len() as f64
        });
        let floor = ROUNDING * means.fold(0.0, f64::max);
        [0, 1].map(|pol: usize| {
            let powers = before[pol].iter().copied();
            let powers = powers.map(|power| if power > floor { power } else { f64::NAN });
            self.levelled(&powers.collect::<Vec<_>>(), gains[pol], rms)
        })
    }

    /// The same of one polarisation with these powers before gains, which are not finite where
    /// there is none.
    fn levelled(&self, before: &[f64], gains: &[Complex32], rms: f64) -> Option<Vec<Complex32>> {
        if !before.iter().any(|power| power.is_finite()) {
            return None;
        }
        let wanted = SPECTRA_FOR_GAINS.div_ceil(self.spectra.max(1)) as usize;
        let reach = wanted.min(before.len() / 16) / 2;
        let around = |channel: usize| {
            let near = channel.saturating_sub(reach)..(channel + reach + 1).min(before.len());
            let near = before[near].iter().filter(|power| power.is_finite());
            let (sum, count) = near.fold((0.0, 0.0), |(sum, n), power| (sum + power, n + 1.0));
            sum / count
        };
        let gain = |(channel, gain): (usize, &Complex32)| {
            if !before[channel].is_finite() {
                return *gain;
            }
            let size = rms * (2.0 / around(channel)).sqrt() / norm(gain);
            let levelled = gain * size as f32;
            // A gain of 0 must not come out of this: no later levelling could raise it again.
            if levelled.is_finite() && norm(&levelled) > 0.0 {
                levelled
            } else {
                *gain
            }
        };
        Some(gains.iter().enumerate().map(gain).collect())
    }
}

/// Of any gain, as its square need not fit single precision.
fn norm(gain: &Complex32) -> f64 {
    f64::from(gain.re).hypot(f64::from(gain.im))
}

impl InputStatistics {
    /// Samples that count of one polarisation.
    pub fn samples(&self, pol: usize) -> u64 {
        self.histogram[pol].iter().sum()
    }

    /// Whether there are any: copies may have none in a short period.
    pub fn has_samples(&self) -> bool {
        [0, 1].iter().any(|&pol| self.samples(pol) > 0)
    }

    /// Σx² of these samples.
    fn square_sum(&self, pol: usize) -> u128 {
        let counts = self.histogram[pol].iter().enumerate();
        let half = (self.histogram[pol].len() / 2) as u64;
        let squares = counts.map(|(bin, &count)| {
            let value = u128::from(half.abs_diff(bin as u64));
            value * value * u128::from(count)
        });
        squares.sum()
    }

    /// Level in dB relative to a sine of full scale; `None` before the first sample.
    pub fn level_dbfs(&self, pol: usize) -> Option<f64> {
        let bits = SampleBits::new(self.histogram[pol].len().max(2).ilog2())?;
        let samples = self.samples(pol);
        (samples > 0).then(|| power::dbfs(self.square_sum(pol), samples, bits))
    }

    /// Rms of the samples, in counts of the digitiser; `None` before the first.
    pub fn rms(&self, pol: usize) -> Option<f64> {
        let samples = self.samples(pol);
        (samples > 0).then(|| (self.square_sum(pol) as f64 / samples as f64).sqrt())
    }

    /// Share of samples with the largest magnitude or one more: a digitiser that clips has many.
    pub fn full_scale_share(&self, pol: usize) -> Option<f64> {
        let counts = &self.histogram[pol];
        let all = self.samples(pol);
        let ends = [0, 1, counts.len().saturating_sub(1)];
        let extreme: u64 = ends.iter().filter_map(|&bin| counts.get(bin)).sum();
        (all > 0).then(|| extreme as f64 / all as f64)
    }
}

#[cfg(test)]
mod tests {
    use ground::Timestamp;
    use proptest::prelude::*;

    use super::*;
    use crate::engine::ChannelSums;

    fn statistics(spectra: u64, channels: Vec<ChannelSums>) -> OutputStatistics {
        OutputStatistics {
            start: Timestamp(0),
            end: Timestamp(1 << 20),
            spectra,
            channels,
        }
    }

    /// What spectra of this power add up to in both polarisations.
    fn steady(power: f64, spectra: u64) -> ChannelSums {
        let n = spectra as f64;
        ChannelSums {
            power: [power * n, 4.0 * power * n],
            power_squared: [power * power * n, 16.0 * power * power * n],
            cross: Complex64::new(0.0, power * n),
            clipped: [1, 3],
        }
    }

    #[test]
    fn sums_come_to_levels() {
        let of = statistics(10, vec![steady(2.0, 10), steady(6.0, 10)]);
        assert_eq!(of.mean_power(0), 4.0);
        assert!((of.rms(1) - 8f64.sqrt()).abs() < 1e-12);
        assert_eq!((of.clipped_share(0), of.clipped_share(1)), (0.1, 0.3));
        let correlation = of.correlation();
        assert!((correlation - Complex64::new(0.0, 0.5)).norm() < 1e-12);
        assert_eq!(
            statistics(1, vec![ChannelSums::default()])
                .correlation()
                .norm(),
            0.0
        );
    }

    /// A steady tone in one channel, and pulses in another, amid channels whose kurtosis is 1.
    #[test]
    fn tones_and_pulses_are_flagged() {
        let spectra = 1000;
        let noise = ChannelSums {
            power: [1000.0; 2],
            power_squared: [2e6 / 1001.0; 2],
            ..ChannelSums::default()
        };
        let mut channels = vec![noise; 64];
        channels[17] = steady(3.0, spectra);
        channels[40].power_squared = [4000.0; 2];
        let wideband = "name=w,channels=64,dst=239.10.1.0,jones_per_batch=2048";
        let config = crate::config::tests::engine(wideband, |_| {});
        let flags = statistics(spectra, channels.clone());
        let flags = flags.kurtosis_flags(1, &config.outputs[0]).unwrap();
        assert_eq!((&flags.channels[..], flags.looked_at), (&[17, 40][..], 63));
        assert_eq!(flags.share(), 2.0 / 63.0);
        let flags = |spectra, keys: &str| {
            let wideband = format!("{wideband},{keys}");
            let config = crate::config::tests::engine(&wideband, |_| {});
            statistics(spectra, channels.clone()).kurtosis_flags(1, &config.outputs[0])
        };
        assert_eq!(flags(2, "taps=16"), None);
        for (keys, are_told) in [
            ("taps=16", true),
            ("taps=16,w_cutoff=0.9", true),
            ("window_function=kaiser,oversampling=8/7", true),
            ("oversampling=4/3", true),
            ("oversampling=3/2", true),
            ("oversampling=2", false),
            ("oversampling=16", false),
            ("taps=4,w_cutoff=0", false),
            ("taps=16,w_cutoff=0.5", false),
            ("window_function=kaiser,taps=8,w_cutoff=0.25", false),
            ("oversampling=8/7,w_cutoff=0.4", false),
        ] {
            assert_eq!(flags(spectra, keys).is_some(), are_told, "{keys}");
        }
    }

    /// Fourth powers of 10¹⁰ counts are too large for single precision, and squares of 10²⁰.
    #[test]
    fn sums_that_overflowed_flag_nothing() {
        let wideband = "name=w,channels=64,dst=239.10.1.0,jones_per_batch=2048";
        let config = crate::config::tests::engine(wideband, |_| {});
        let summed = |rms: f64| {
            let single = |power: f64| f64::from(power as f32);
            let mut sums = steady(rms * rms, 1000);
            sums.power = sums.power.map(single);
            sums.power_squared = sums.power_squared.map(single);
            statistics(1000, vec![sums; 64])
        };
        let of = |rms| {
            let statistics = summed(rms);
            let estimates = statistics.kurtosis(0).flatten().count();
            let flags = statistics.kurtosis_flags(0, &config.outputs[0]);
            (statistics.are_known(), estimates, flags.is_some())
        };
        assert_eq!(of(1e3), (true, 64, true));
        assert_eq!(of(1e10), (true, 0, false));
        assert_eq!(of(1e20), (false, 0, false));
    }

    #[test]
    fn histograms_come_to_levels() {
        let bits = SampleBits::new(10).unwrap();
        // A square wave at half of full scale.
        let mut histogram = vec![0; 1024];
        histogram[512 + 256] = 55;
        histogram[512 - 256] = 45;
        let of = InputStatistics {
            start: Timestamp(0),
            end: Timestamp(1),
            histogram: [histogram, vec![0; 1024]],
            snapshot_start: Timestamp(0),
            snapshot: [Vec::new(), Vec::new()],
        };
        assert!(of.has_samples());
        let level = of.level_dbfs(0).unwrap();
        assert!(
            (level - power::dbfs(256 * 256, 1, bits)).abs() < 1e-9,
            "{level}"
        );
        assert_eq!(
            (of.rms(0), of.full_scale_share(0)),
            (Some(256.0), Some(0.0))
        );
        assert_eq!(
            (of.level_dbfs(1), of.rms(1), of.full_scale_share(1)),
            (None, None, None)
        );
        let of = InputStatistics {
            histogram: [vec![0; 1024], vec![0; 1024]],
            ..of
        };
        assert!(!of.has_samples());
    }

    #[test]
    fn samples_of_the_largest_magnitudes_are_a_share() {
        let mut histogram = vec![0; 16];
        // -8, -7, 7, and two of others.
        (histogram[0], histogram[1], histogram[15]) = (1, 2, 3);
        (histogram[2], histogram[8]) = (10, 8);
        let of = InputStatistics {
            start: Timestamp(0),
            end: Timestamp(1),
            histogram: [histogram, vec![0; 16]],
            snapshot_start: Timestamp(0),
            snapshot: [Vec::new(), Vec::new()],
        };
        assert_eq!(of.full_scale_share(0), Some(0.25));
    }

    /// Of one spectrum, a channel's power is that of five channels around, fewer at the edges.
    #[test]
    fn neighbours_share_an_estimate_of_few_spectra() {
        let powers: Vec<f64> = (0..64).map(|k| f64::from(1 + k * k % 7)).collect();
        let sums = powers.iter().map(|&power| steady(power, 1)).collect();
        let gains = vec![Complex32::new(1.0, 0.0); 64];
        let levelled = statistics(1, sums).level_gains([&gains; 2], 8.0);
        let levelled = levelled[0].as_ref().unwrap();
        for (k, gain) in levelled.iter().enumerate() {
            let near = &powers[k.saturating_sub(2)..(k + 3).min(64)];
            let mean = near.iter().sum::<f64>() / near.len() as f64;
            // Two parts have half of the power each.
            let expected = 8.0 / (mean / 2.0).sqrt();
            assert!((f64::from(gain.re) / expected - 1.0).abs() < 1e-6, "{k}");
        }
    }

    /// Nothing that a digitiser tells from nothing: 98 dB are those of 16 bits.
    #[test]
    fn a_channel_100_db_below_the_others_is_levelled() {
        let mut sums = vec![steady(1.0, 10_000); 64];
        sums[9] = steady(1e-10, 10_000);
        let gains = vec![Complex32::new(1.0, 0.0); 64];
        let levelled = statistics(10_000, sums).level_gains([&gains; 2], 8.0);
        let gain = levelled[0].as_ref().unwrap()[9].re;
        assert!((gain / (8.0 * (2.0f32 / 1e-10).sqrt()) - 1.0).abs() < 1e-5);
    }

    /// What rounding leaves of one polarisation in the other is not made noise of.
    #[test]
    fn a_polarisation_of_zeros_keeps_its_gains() {
        let gains = vec![Complex32::new(0.5, 0.0); 64];
        let mut sums = vec![steady(1.0, 10_000); 64];
        for (k, sums) in sums.iter_mut().enumerate() {
            sums.power[1] = 4e-15 * (1 + k) as f64;
        }
        let levelled = statistics(10_000, sums).level_gains([&gains; 2], 8.0);
        assert_eq!(levelled.map(|gains| gains.is_some()), [true, false]);
    }

    proptest! {
        /// With the new gains, the same input has the rms that was wanted, and the old phases.
        #[test]
        fn gains_level_every_channel(
            powers in prop::collection::vec(1e-3..1e3f64, 64),
            // With f32, proptest itself panics once in some millions of numbers.
            sizes in prop::collection::vec(0.01..100f64, 64),
            rms in 0.5..30.0f64,
        ) {
            let spectra = SPECTRA_FOR_GAINS;
            let gains = sizes.iter().enumerate();
            let gains: Vec<_> = gains.map(|(k, size)| Complex32::from_polar(*size as f32, k as f32)).collect();
            let sums = powers.iter().zip(&gains).map(|(power, gain)| {
                steady(power * f64::from(gain.norm_sqr()), spectra)
            });
            let levelled = statistics(spectra, sums.collect()).level_gains([&gains; 2], rms);
            let levelled = levelled[0].as_ref().unwrap();
            for ((power, old), new) in powers.iter().zip(&gains).zip(levelled) {
                let got = (0.5 * power * f64::from(new.norm_sqr())).sqrt();
                prop_assert!((got / rms - 1.0).abs() < 1e-4, "{} {}", got, rms);
                prop_assert!((new / old).im.abs() <= 1e-4 * (new / old).re);
            }
        }

        /// With few spectra, neighbours share an estimate; no gain is ever not finite, or zero for
        /// good.
        #[test]
        fn gains_stay_finite(power in prop::sample::select(vec![0.0, 1e-30, 1.0, 1e30, 1e60]), gain in prop::sample::select(vec![0.0f32, 1e-30, 1.0, 1e30])) {
            let gains = vec![Complex32::new(gain, 0.0); 64];
            let levelled = statistics(10, vec![steady(power, 10); 64]).level_gains([&gains; 2], 8.0);
            prop_assert!(levelled.iter().flatten().flatten().all(|gain| gain.is_finite()));
            prop_assert!(levelled.iter().flatten().flatten().all(|gain| gain.re > 0.0));
            let nothing = power == 0.0 || gain == 0.0;
            prop_assert_eq!(levelled.map(|gains| gains.is_none()), [nothing; 2]);
        }
    }
}
