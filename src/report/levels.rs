//! Levels of a run: of its input, and of what was quantised.

use std::fmt::Write as _;

use dsp::level;
use dsp::power::dbfs_words;
use ground::N_POL;
use num_complex::Complex64;
use quick_xml::escape::escape;
use schemars::JsonSchema;
use serde::Serialize;

use super::MeasuredGains;
use super::spectra::SpectraAccumulator;
use crate::config::OutputConfig;
use crate::engine::{InputStatistics, OutputStatistics};

/// Levels of channels of which the efficiency is averaged, at most.
const CHANNELS: usize = 256;
/// Bars of a histogram at most.
const BARS: usize = 128;
/// Flagged channels that the page lists.
const LISTED: usize = 24;

/// Gains may be off by this factor before anything is said of them.
const FACTOR: f64 = 2.0;
/// A polarisation whose gains are too low and whose quantisation is less efficient is too weak.
const LEAST_EFFICIENCY: f64 = 0.9;

/// A polarisation with less than this share of the other's power has none: what is left is what the
/// rounding of single precision leaks from there, −144 dB at most as far as was seen. The
/// quantisation of a digitiser of 16 bits is 98 dB below a sine of full scale.
const LEAKED: f64 = 1e-12;

/// Levels of one output.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct OutputLevels {
    /// Name of the stream.
    pub name: String,
    /// Spectra that statistics count.
    pub spectra: u64,
    /// Per polarisation.
    pub pols: [PolLevels; N_POL],
    /// Magnitude of Σx·y* over all channels, of what full correlation would give.
    pub correlation: f64,
    /// Its phase in radians: by how much polarisation 0 is ahead.
    pub phase: f64,
}

/// Levels of one polarisation of an output.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PolLevels {
    /// Rms of real and imaginary parts before quantisation, in counts, over all channels.
    pub rms: f64,
    /// The rms that would be good for noise.
    pub best_rms: f64,
    /// What gains would have to be multiplied with for that; none does without power.
    pub gain_factor: Option<f64>,
    /// Share of the parts sent that are zero.
    pub zeros: f64,
    /// Share of complex samples that were clamped.
    pub clipped: f64,
    /// Efficiency of quantisation for noise of each channel's level, on the average.
    pub efficiency: f64,
    /// Channels that have something else than noise, if there were enough spectra to tell.
    pub flags: Option<Flags>,
}

/// Channels with an unusual spectral kurtosis.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Flags {
    /// Between which values 99.73 % of channels with noise alone are.
    pub thresholds: [f64; 2],
    /// The channels outside.
    pub channels: Vec<usize>,
    /// Their share.
    pub share: f64,
}

/// Levels of the input.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct InputLevels {
    /// Rms of the samples looked at, in counts of the digitiser; `None` without any.
    pub rms: [Option<f64>; N_POL],
    /// The same in dB relative to a sine of full scale.
    pub dbfs: [Option<f64>; N_POL],
    /// Share of samples at full scale.
    pub full_scale: [Option<f64>; N_POL],
    /// How often each value came, from the most negative one on.
    pub histogram: [Vec<u64>; N_POL],
}

impl PolLevels {
    /// Whether gains are so low, or power so absent, that quantisation left little of the signal.
    pub fn is_too_weak(&self) -> bool {
        match self.gain_factor {
            Some(factor) => factor > FACTOR && self.efficiency < LEAST_EFFICIENCY,
            None => true,
        }
    }

    /// Whether the rms is so far from the best one that gains should be others.
    pub fn is_off(&self) -> bool {
        let good = |factor| (1.0 / FACTOR..=FACTOR).contains(&factor);
        !self.gain_factor.is_some_and(good)
    }
}

impl InputLevels {
    /// What statistics of the input come to.
    pub fn of(statistics: &InputStatistics) -> Self {
        let each = |of: &dyn Fn(usize) -> Option<f64>| [of(0), of(1)];
        Self {
            rms: each(&|pol| statistics.rms(pol)),
            dbfs: each(&|pol| statistics.level_dbfs(pol)),
            full_scale: each(&|pol| statistics.full_scale_share(pol)),
            histogram: statistics.histogram.clone(),
        }
    }
}

impl OutputLevels {
    /// What statistics of `output` come to, of which `spectra` has what was sent. `None` where
    /// gains are so large that [powers are not known](OutputStatistics::are_known).
    pub fn of(
        output: &OutputConfig,
        statistics: &OutputStatistics,
        spectra: &SpectraAccumulator,
    ) -> Option<Self> {
        if !statistics.are_known() {
            return None;
        }
        let (bits, dither) = (output.sample_bits, output.dither);
        let best_rms = level::best_rms(bits, dither);
        let power = [0, 1].map(|pol| statistics.mean_power(pol));
        let has_power = |pol: usize| power[pol] > LEAKED * power[1 - pol];
        let pol = |pol: usize| {
            let rms = statistics.rms(pol);
            let mut levels: Vec<f64> = statistics.powers(pol).map(|p| (0.5 * p).sqrt()).collect();
            levels.sort_by(f64::total_cmp);
            let some = levels.len().min(CHANNELS);
            let efficiency = (0..some).map(|i| {
                let rms = levels[(2 * i + 1) * levels.len() / (2 * some)];
                level::quantised_noise(rms, bits, dither).efficiency
            });
            let flags = statistics.kurtosis_flags(pol, output);
            let flags = flags.filter(|_| has_power(pol));
            PolLevels {
                rms,
                best_rms,
                gain_factor: has_power(pol).then_some(best_rms / rms),
                zeros: spectra.zero_share(pol),
                clipped: statistics.clipped_share(pol),
                efficiency: efficiency.sum::<f64>() / some as f64,
                flags: flags.map(|flags| Flags {
                    thresholds: [flags.thresholds.low, flags.thresholds.high],
                    share: flags.share(),
                    channels: flags.channels,
                }),
            }
        };
        let correlation = match has_power(0) && has_power(1) {
            true => statistics.correlation(),
            false => Complex64::default(),
        };
        Some(Self {
            name: output.name.clone(),
            spectra: statistics.spectra,
            pols: [pol(0), pol(1)],
            correlation: correlation.norm(),
            phase: correlation.arg(),
        })
    }

    /// A sentence on each polarisation of which something is to be done.
    pub fn advice(&self) -> Vec<String> {
        let of = |(number, pol): (usize, &PolLevels)| {
            let name = format!("{}, polarisation {number}", self.name);
            pol.is_off().then(|| match pol.gain_factor {
                None => format!("{name}, has no power."),
                Some(factor) => format!(
                    "{name}: {:.2} counts rms, where {:.1} are good: gains should be {factor:.3} \
                     times what they are.",
                    pol.rms, pol.best_rms
                ),
            })
        };
        self.pols.iter().enumerate().filter_map(of).collect()
    }

    /// Whether both polarisations have power.
    fn has_power(&self) -> bool {
        self.pols.iter().all(|pol| pol.gain_factor.is_some())
    }
}

fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "none".to_owned(),
        p if p < 0.01 => format!("{p:.1e} %"),
        p => format!("{p:.2} %"),
    }
}

/// The section of the page.
pub(super) fn section(out: &mut String, input: Option<&InputLevels>, outputs: &[OutputLevels]) {
    if input.is_none() && outputs.is_empty() {
        return;
    }
    out.push_str("<h2 id=\"levels\">Levels</h2>");
    if !outputs.is_empty() {
        table(out, outputs);
    }
    for of in outputs {
        notes(out, of);
    }
    if let Some(input) = input {
        input_section(out, input);
    }
}

/// A row for each output and polarisation.
fn table(out: &mut String, outputs: &[OutputLevels]) {
    out.push_str(
        "<div class=\"scroll\"><table><tr><th>stream</th><th>pol</th><th class=\"num\">counts rms</th>\
         <th class=\"num\">good</th><th class=\"num\">gain ×</th><th class=\"num\">zeros</th>\
         <th class=\"num\">clipped</th><th class=\"num\">efficiency</th><th class=\"num\">not noise</th></tr>",
    );
    for of in outputs {
        for (pol, levels) in of.pols.iter().enumerate() {
            let flags = levels.flags.as_ref();
            let flags = flags.map_or("–".to_owned(), |flags| percent(flags.share));
            let gain = levels.gain_factor;
            let gain = gain.map_or("–".to_owned(), |gain| format!("{gain:.3}"));
            let _ = write!(
                out,
                "<tr><td>{}</td><td>{pol}</td><td class=\"num\">{:.2}</td><td class=\"num\">{:.1}</td>\
                 <td class=\"num\">{gain}</td><td class=\"num\">{}</td><td class=\"num\">{}</td>\
                 <td class=\"num\">{:.4}</td><td class=\"num\">{flags}</td></tr>",
                escape(&of.name),
                levels.rms,
                levels.best_rms,
                percent(levels.zeros),
                percent(levels.clipped),
                levels.efficiency,
            );
        }
    }
    out.push_str(
        "</table></div><p class=\"soft\">Rms of real and imaginary parts before quantisation, over all channels; \
         the rms that is good for noise, and what gains would have to be multiplied with; zeros among the parts \
         sent; channels whose kurtosis noise rarely has (0.27 % of them by chance).</p>",
    );
}

/// What to do, how the polarisations are to each other, and which channels are not noise.
fn notes(out: &mut String, of: &OutputLevels) {
    for advice in of.advice() {
        let _ = write!(out, "<p><strong>{}</strong></p>", escape(&advice));
    }
    if of.has_power() {
        let _ = write!(
            out,
            "<p>Polarisations of {}: {:.1} % correlated; polarisation 0 is {:+.1}° ahead.</p>",
            escape(&of.name),
            100.0 * of.correlation,
            of.phase.to_degrees()
        );
    }
    for (pol, levels) in of.pols.iter().enumerate() {
        let flagged = levels.flags.iter().flat_map(|flags| &flags.channels);
        let listed: Vec<_> = flagged.clone().take(LISTED).map(usize::to_string).collect();
        if listed.is_empty() {
            continue;
        }
        let more = match flagged.count() - listed.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let _ = write!(
            out,
            "<p class=\"soft\">{}, polarisation {pol}, not noise: channels {}{more}.</p>",
            escape(&of.name),
            listed.join(", ")
        );
    }
}

/// What gains were made of levels.
pub(super) fn measured(out: &mut String, gains: &[MeasuredGains]) {
    for of in gains {
        let _ = write!(
            out,
            "<p>Gains were made of {} spectra of {}, samples {} to {}: {:.1} counts rms in every channel, an efficiency \
             of {:.4}.</p>",
            of.spectra,
            escape(&of.name),
            of.span[0],
            of.span[1],
            of.rms,
            of.efficiency
        );
    }
}

fn input_section(out: &mut String, input: &InputLevels) {
    out.push_str("<h3>Samples of the digitiser</h3><div class=\"pair\">");
    for pol in 0..N_POL {
        let known = input.dbfs[pol]
            .zip(input.rms[pol])
            .zip(input.full_scale[pol]);
        let Some(((dbfs, rms), full_scale)) = known else {
            continue;
        };
        let _ = write!(
            out,
            "<figure class=\"plot\"><figcaption>Polarisation {pol}: {}, {rms:.1} counts rms, {} at full scale</figcaption>{}</figure>",
            dbfs_words(dbfs, 1),
            percent(full_scale),
            histogram(&input.histogram[pol])
        );
    }
    out.push_str("</div>");
}

/// Bars over the values that came.
fn histogram(counts: &[u64]) -> String {
    let half = counts.len() / 2;
    let last = counts.iter().rposition(|count| *count > 0).unwrap_or(half);
    let first = counts.iter().position(|count| *count > 0).unwrap_or(half);
    let reach = last.abs_diff(half).max(half.abs_diff(first)).max(1);
    // An odd number of values in each, so that zero is in the middle of one.
    let width = (2 * reach + 1).div_ceil(BARS) | 1;
    let side = reach.div_ceil(width);
    let bar = |i: usize| -> u64 {
        let from = (half + i * width) as i64 - (side * width + width / 2) as i64;
        let values = from.max(0)..(from + width as i64).min(counts.len() as i64);
        values.map(|bin| counts[bin as usize]).sum()
    };
    let bars: Vec<u64> = (0..=2 * side).map(bar).collect();
    let highest = bars.iter().max().copied().unwrap_or(0).max(1);
    let mut svg = format!(
        "<svg class=\"histogram\" viewBox=\"0 0 {} 100\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"histogram\">",
        bars.len()
    );
    for (i, count) in bars.iter().enumerate() {
        let height = 100.0 * *count as f64 / highest as f64;
        let _ = write!(
            svg,
            "<rect x=\"{i}\" y=\"{:.2}\" width=\"0.92\" height=\"{height:.2}\"/>",
            100.0 - height
        );
    }
    let end = side * width + width / 2;
    let _ = write!(
        svg,
        "</svg><div class=\"axis\"><span>−{end}</span><span>0</span><span>{end}</span></div>"
    );
    svg
}

#[cfg(test)]
mod tests {
    use ground::Timestamp;

    use super::*;
    use crate::engine::ChannelSums;

    /// Levels of an output whose polarisation 1 has this share of the power of polarisation 0.
    fn levels(share: f64) -> OutputLevels {
        known_levels(share).unwrap()
    }

    /// The same, if it is finite.
    fn known_levels(share: f64) -> Option<OutputLevels> {
        let options = "name=w,channels=16,dst=239.1.2.0+1:7148,jones_per_batch=64,taps=4";
        let engine = crate::config::tests::engine(options, |config| {
            config.outputs[0].dither = dsp::Dither::None;
        });
        const SPECTRA: u64 = 1000;
        let n = SPECTRA as f64;
        // Of noise: <|x|⁴> is twice the square of <|x|²>.
        let sums = ChannelSums {
            power: [200.0 * n, 200.0 * share * n],
            power_squared: [2.0 * 200f64.powi(2) * n, 9.0 * (200.0 * share).powi(2) * n],
            cross: Complex64::new(20.0 * share.sqrt() * n, 0.0),
            clipped: [0; N_POL],
        };
        let statistics = OutputStatistics {
            start: Timestamp(0),
            end: Timestamp(1 << 20),
            spectra: SPECTRA,
            channels: vec![sums; 16],
        };
        let output = &engine.outputs[0];
        OutputLevels::of(output, &statistics, &SpectraAccumulator::of(output))
    }

    /// JSON has no numbers for what is not finite.
    #[test]
    fn powers_that_are_not_known_have_no_levels() {
        assert!(known_levels(1.0).is_some());
        for share in [f64::INFINITY, f64::NAN] {
            assert!(known_levels(share).is_none());
        }
    }

    /// What rounding leaks from the other polarisation says nothing of a dead one.
    #[test]
    fn a_polarisation_without_power_has_no_gain_correlation_or_flags() {
        for share in [0.0, 1e-15] {
            let levels = levels(share);
            assert_eq!(levels.pols[1].gain_factor, None);
            assert!(levels.pols[1].flags.is_none() && levels.pols[0].flags.is_some());
            assert_eq!((levels.correlation, levels.phase), (0.0, 0.0));
            let advice = levels.advice();
            assert!(advice.contains(&"w, polarisation 1, has no power.".to_owned()));
            let mut page = String::new();
            section(&mut page, None, &[levels]);
            assert!(
                !page.contains("inf") && !page.contains("correlated"),
                "{page}"
            );
        }
    }

    #[test]
    fn advice_names_its_polarisation() {
        let levels = levels(1e-9);
        let factor = levels.pols[1].gain_factor.unwrap();
        assert!(factor > 1e3, "{factor}");
        assert!((levels.correlation - 0.1).abs() < 1e-9);
        let advice = levels.advice();
        assert!(
            advice
                .iter()
                .any(|text| text.starts_with("w, polarisation 1: 0.00 counts rms"))
        );
        assert!(advice.iter().all(|text| !text.contains("no power")));
    }

    #[test]
    fn histograms_show_what_came() {
        let mut counts = vec![0; 1024];
        counts[512] = 50;
        counts[512 - 3] = 100;
        counts[512 + 2] = 25;
        let svg = histogram(&counts);
        let rects: Vec<_> = svg.match_indices("<rect").collect();
        assert_eq!(rects.len(), 7);
        assert!(svg.contains("<rect x=\"0\" y=\"0.00\" width=\"0.92\" height=\"100.00\"/>"));
        assert!(svg.contains("<rect x=\"3\" y=\"50.00\" width=\"0.92\" height=\"50.00\"/>"));
        assert!(svg.contains("<rect x=\"5\" y=\"75.00\" width=\"0.92\" height=\"25.00\"/>"));
        assert!(svg.contains("−3</span>"));
        // As many bars as there are at most, whatever the width; an empty one does not fail.
        let full = vec![1; 65536];
        assert!(histogram(&full).matches("<rect").count() <= BARS + 1);
        assert!(histogram(&[0; 4]).contains("<svg"));
    }
}
