//! From spectra of an oversampled output back to samples.
//!
//! Overlap and add: each spectrum's inverse transform, repeated, goes through the window that
//! inverts the bank ([`SynthesisWindow`]) to its place in time. What the bank did not keep is
//! missing: of wideband what lies within a channel of half the sample rate, of narrowband what is
//! outside of its band.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use dsp::synthesis::{SynthesisError, SynthesisWindow};
use ground::N_POL;
use ground::files::WholeFile;
use karoo_fft::{Fft, forward_f64};
use num_complex::Complex64;

use super::files::npy_header;
use super::layout::Layout;
use super::report::SynthesisReport;
use crate::config::SynthesisOptions;

/// One sample of both polarisations; of wideband, imaginary parts are 0.
pub type Sample = [Complex64; N_POL];

/// Inverts one output's filter bank, spectrum by spectrum.
pub struct Synthesiser {
    options: SynthesisOptions,
    channels: usize,
    step: usize,
    hop: usize,
    window: SynthesisWindow,
    fft: Arc<dyn Fft<f64>>,
    /// Number of the next spectrum, counted from time 0; none has come before the first.
    next: Option<u64>,
    /// Samples to come, from the first of the next spectrum's window on.
    sums: VecDeque<Sample>,
    /// Of the first samples to leave, those that spectra before the first would have a part in.
    partial: usize,
    transforms: [Vec<Complex64>; N_POL],
    scratch: Vec<Complex64>,
}

impl Synthesiser {
    /// For an output of so many channels.
    ///
    /// # Errors
    ///
    /// If its bank has no inverse.
    pub fn new(options: &SynthesisOptions, channels: usize) -> Result<Self, SynthesisError> {
        let step = options.points(channels);
        let oversampling = options.prototype.oversampling;
        let window = SynthesisWindow::new(&options.weights(channels), step, oversampling)?;
        let (hop, fft) = (oversampling.hop(step), forward_f64(step));
        let zero = Complex64::default();
        Ok(Self {
            options: *options,
            channels,
            step,
            hop,
            next: None,
            sums: vec![[zero; N_POL]; window.window.len()].into(),
            partial: window.window.len() - hop,
            transforms: [0; N_POL].map(|_| vec![zero; step]),
            scratch: vec![zero; fft.get_inplace_scratch_len()],
            window,
            fft,
        })
    }

    /// By how much noise of the spectra comes out stronger, as [`SynthesisWindow::noise`].
    pub fn noise(&self) -> f64 {
        self.window.noise
    }

    /// Sample (of the PFB's input, counted from time 0) that comes out first if spectrum `number`
    /// is the first to go in. Those before it would need spectra before that one.
    pub fn first_sample(&self, number: u64) -> i64 {
        let begin = number as i64 * self.hop as i64 - self.window.lead as i64;
        begin + (self.window.window.len() - self.hop) as i64
    }

    /// Takes spectrum `number` in, channels in ascending order; the next one must have the next
    /// number. Without a spectrum, all samples that it has a part in are not numbers. Whole samples
    /// go to `out`.
    pub fn push(
        &mut self,
        number: u64,
        spectrum: Option<[&[Complex64]; N_POL]>,
        mut out: impl FnMut(Sample),
    ) {
        debug_assert!(self.next.is_none_or(|next| next == number));
        self.next = Some(number + 1);
        match spectrum {
            None => {
                let nan = Complex64::new(f64::NAN, f64::NAN);
                self.sums.iter_mut().for_each(|sum| *sum = [nan; N_POL]);
            }
            Some(spectrum) => {
                self.transform(spectrum);
                self.add(number);
            }
        }
        for _ in 0..self.hop {
            let whole = self.sums.pop_front().unwrap_or_default();
            self.sums.push_back(Sample::default());
            match self.partial {
                0 => out(whole),
                _ => self.partial -= 1,
            }
        }
    }

    /// The inverse transforms, backwards: element −q is what belongs to time q, modulo the
    /// transform's length. Of wideband, the first has both polarisations, as real and imaginary
    /// part.
    fn transform(&mut self, [x, y]: [&[Complex64]; N_POL]) {
        let (step, channels) = (self.step, self.channels);
        let [first, second] = &mut self.transforms;
        first.fill(Complex64::default());
        let turned = |z: Complex64| Complex64::new(-z.im, z.re);
        if self.options.decimation.is_none() {
            first[0] = Complex64::new(x[0].re, y[0].re);
            for (k, (x, y)) in x.iter().zip(y).enumerate().skip(1) {
                first[k] = x + turned(*y);
                first[step - k] = x.conj() + turned(y.conj());
            }
            return self.fft.process_with_scratch(first, &mut self.scratch);
        }
        second.fill(Complex64::default());
        for (to, from) in [(first, x), (second, y)] {
            for (c, &value) in from.iter().enumerate() {
                to[(c + step - channels / 2) % step] = value;
            }
            self.fft.process_with_scratch(to, &mut self.scratch);
        }
    }

    fn add(&mut self, number: u64) {
        let (step, scale) = (self.step, 1.0 / self.options.gain);
        let first = self.options.prototype.oversampling.rotation(step, number);
        // The window begins `lead`, whole transforms, before the spectrum's first sample or not.
        let first = (first + step - self.window.lead % step) % step;
        let wideband = self.options.decimation.is_none();
        for (i, (sum, g)) in self.sums.iter_mut().zip(&self.window.window).enumerate() {
            let at = (step - (first + i) % step) % step;
            let g = g * scale;
            if wideband {
                let both = self.transforms[0][at];
                sum[0].re += g * both.re;
                sum[1].re += g * both.im;
            } else {
                sum[0] += self.transforms[0][at] * g;
                sum[1] += self.transforms[1][at] * g;
            }
        }
    }
}

/// Why there are no samples.
pub(super) enum Failure {
    Bank(SynthesisError),
    Io(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Batches of the longest run without gaps: the first, and how many.
fn longest_run(batches: &[u64], step: u64) -> (usize, usize) {
    let (mut best, mut first) = ((0, 0), 0);
    for i in 0..batches.len() {
        if i > 0 && batches[i] - batches[i - 1] != step {
            first = i;
        }
        if i + 1 - first > best.1 {
            best = (first, i + 1 - first);
        }
    }
    best
}

/// Samples as numpy writes their type: real of wideband, complex of narrowband.
pub(super) fn dtype(options: &SynthesisOptions) -> &'static str {
    match options.decimation {
        None => "<f4",
        Some(_) => "<c8",
    }
}

/// Writes the samples of a stream's longest run of batches, into a file that is to be finished.
///
/// `from` has the spectra as [`super`] writes them, from byte `header` on; `whole` says whether all
/// heaps of a batch are there.
pub(super) fn write(
    layout: &Layout,
    options: &SynthesisOptions,
    (from, header): (&Path, u64),
    whole: impl Fn(usize) -> bool,
    to: &Path,
) -> Result<(SynthesisReport, WholeFile), Failure> {
    let channels = layout.channels as usize;
    let spectra = layout.spectra_per_heap as usize;
    let mut bank = Synthesiser::new(options, channels).map_err(Failure::Bank)?;
    let spectrum_samples = options.spectrum_samples(channels) as u64;
    let step = spectrum_samples * spectra as u64;
    let (first, count) = longest_run(&layout.batches, step);
    let number = layout
        .batches
        .get(first)
        .map_or(0, |t| t / spectrum_samples);
    let all = (count * spectra * bank.hop) as u64;
    let samples = all.saturating_sub(bank.partial as u64);
    let subsampling = options.subsampling() as i64;
    let report = SynthesisReport {
        file: to.display().to_string(),
        samples,
        first_timestamp: bank.first_sample(number) * subsampling,
        step: subsampling as u64,
        batches: count as u64,
        noise_db: 10.0 * bank.noise().log10(),
    };
    let mut file = BufWriter::new(WholeFile::create(to)?);
    file.write_all(&npy_header(dtype(options), &[samples, N_POL as u64]))?;
    let mut input = File::open(from)?;
    let bytes = channels * spectra * N_POL * 2;
    input.seek(SeekFrom::Start(header + (first * bytes) as u64))?;
    let mut batch = vec![0; bytes];
    let mut values = [0; N_POL].map(|_| vec![Complex64::default(); channels]);
    let mut failed = Ok(());
    for index in 0..count {
        input.read_exact(&mut batch)?;
        let whole = whole(first + index);
        for s in 0..spectra {
            for (pol, values) in values.iter_mut().enumerate() {
                for (k, value) in values.iter_mut().enumerate() {
                    let at = ((k * spectra + s) * N_POL + pol) * 2;
                    let part = |at: usize| f64::from(batch[at] as i8);
                    *value = Complex64::new(part(at), part(at + 1));
                }
            }
            let spectrum = whole.then(|| values.each_ref().map(|values| &values[..]));
            let number = number + (index * spectra + s) as u64;
            bank.push(number, spectrum, |sample| {
                let parts = sample.iter().flat_map(|x| match options.decimation {
                    None => [Some(x.re), None],
                    Some(_) => [Some(x.re), Some(x.im)],
                });
                for part in parts.flatten() {
                    if failed.is_ok() {
                        failed = file.write_all(&(part as f32).to_le_bytes());
                    }
                }
            });
        }
    }
    failed?;
    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    Ok((report, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_run_has_no_gap() {
        assert_eq!(longest_run(&[], 4), (0, 0));
        assert_eq!(longest_run(&[8], 4), (0, 1));
        assert_eq!(longest_run(&[0, 4, 12, 16, 20, 28], 4), (2, 3));
    }
}
