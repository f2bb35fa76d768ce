//! The figures of an output: power over frequency, and over time.

use std::fmt::Write as _;
use std::ops::Range;

use ground::N_POL;
use quick_xml::escape::escape;

use super::data::RunReport;
use super::html::seconds;
use super::spectra::SpectraAccumulator;
use super::{gaps, picture};

/// The first output's waterfalls have the marks that gaps of the input lead to.
pub(super) fn section(
    out: &mut String,
    report: &RunReport,
    name: &str,
    spectra: &SpectraAccumulator,
    is_first: bool,
) {
    let _ = write!(out, "<h2>Spectra of {}</h2>", escape(name));
    if spectra.batches() == 0 {
        out.push_str("<p>No batch was sent, so there is nothing to draw.</p>");
        return;
    }
    let rate = report.config.clock.adc_sample_rate;
    let mut outputs = report.config.outputs.iter();
    let config = outputs.find(|output| output.name == name);
    let band = config.map_or(0.0..rate / 2.0, |output| output.band(rate));
    let mhz = band.start / 1e6..band.end / 1e6;
    curves(out, spectra, &mhz);
    let marks = match is_first {
        true => gaps::marks(report, spectra),
        false => Vec::new(),
    };
    waterfalls(out, spectra, &mhz, rate, &marks);
}

/// Mean and largest power of either polarisation.
fn curves(out: &mut String, spectra: &SpectraAccumulator, mhz: &Range<f64>) {
    let _ = write!(
        out,
        "<p class=\"soft\">Power of the quantised output; 0 dB is one component at {}.\
         <span class=\"key\" style=\"background:var(--mean)\"></span>mean\
         <span class=\"key\" style=\"background:var(--peak)\"></span>largest of all spectra</p><div class=\"pair\">",
        spectra.full_scale()
    );
    let axis = picture::power_axis(spectra);
    for pol in 0..N_POL {
        let _ = write!(
            out,
            "<figure class=\"plot\"><figcaption>Polarisation {pol}</figcaption>"
        );
        let svg = axis.as_ref();
        match svg.and_then(|axis| picture::spectrum(spectra, pol, mhz, axis)) {
            Some(svg) => out.push_str(&svg),
            None => out.push_str("<p>Every value that was sent is zero.</p>"),
        }
        out.push_str("</figure>");
    }
    out.push_str("</div>");
}

/// Power of either polarisation over time, with marks where input is missing.
fn waterfalls(
    out: &mut String,
    spectra: &SpectraAccumulator,
    mhz: &Range<f64>,
    rate: f64,
    marks: &[gaps::Mark],
) {
    let row_time = seconds(spectra.row_samples() as f64 / rate);
    let _ = write!(
        out,
        "<h3>Over time</h3><p class=\"soft\">Both polarisations have the same scale. Frequency runs to the right, time runs down: {} rows of {row_time}. \
         Stripes: nothing was sent.</p><div class=\"pair\">",
        spectra.rows()
    );
    let scale = picture::colour_scale(spectra).unwrap_or(0.0..1.0);
    for pol in 0..N_POL {
        let _ = write!(out, "<figure><figcaption>Polarisation {pol}</figcaption>");
        match picture::waterfall(spectra, pol, &scale) {
            Some(picture) => {
                let marks = gaps::marked(marks, pol);
                let _ = write!(
                    out,
                    "<div class=\"over\"><img class=\"waterfall\" alt=\"power over time and frequency, polarisation {pol}\" src=\"{picture}\">{marks}</div>\
                     <div class=\"axis\"><span>channel 0</span><span>{:.1} MHz</span><span>channel {}</span></div>\
                     <div class=\"scale\" style=\"background:{}\"></div>\
                     <div class=\"axis\"><span>{:.1} dB</span><span>{:.1} dB</span></div>",
                    (mhz.start + mhz.end) / 2.0,
                    spectra.channels().saturating_sub(1),
                    picture::colour_gradient(),
                    scale.start,
                    scale.end
                );
            }
            None => out.push_str("<p>Every value that was sent is zero.</p>"),
        }
        out.push_str("</figure>");
    }
    out.push_str("</div>");
}
