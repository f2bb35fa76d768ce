//! Raw complex samples.

use std::fmt;
use std::io::{self, Read, Write};
use std::str::FromStr;

use num_complex::Complex32;
use serde::Serialize;

/// Value that 32767 stands for, if nothing else is said.
pub const DEFAULT_FULL_SCALE: f32 = 4.0;
/// Samples that are read or written together.
const BLOCK: usize = 1 << 14;

/// How a complex sample is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleFormat {
    /// Two little-endian floats.
    Cf32,
    /// Two little-endian 16-bit integers.
    Ci16,
}

impl SampleFormat {
    /// All of them.
    pub const ALL: [SampleFormat; 2] = [SampleFormat::Cf32, SampleFormat::Ci16];

    /// Bytes of a sample.
    pub const fn bytes(self) -> usize {
        match self {
            SampleFormat::Cf32 => 8,
            SampleFormat::Ci16 => 4,
        }
    }

    /// Name of the format on a command line.
    pub const fn name(self) -> &'static str {
        match self {
            SampleFormat::Cf32 => "cf32",
            SampleFormat::Ci16 => "ci16",
        }
    }
}

impl fmt::Display for SampleFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A word that names no format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a format of samples: there are cf32 and ci16")]
pub struct UnknownFormat(String);

impl FromStr for SampleFormat {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<SampleFormat, UnknownFormat> {
        let named = |format: &SampleFormat| format.name() == text;
        let found = SampleFormat::ALL.into_iter().find(named);
        found.ok_or_else(|| UnknownFormat(text.to_owned()))
    }
}

/// The value that 32767 stands for in integer samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FullScale(f32);

/// A full scale that no samples can have.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("a full scale of {0}: it must be 1e-6 to 1e6; 4 leaves room above the waveform's peaks")]
pub struct FullScaleError(f32);

impl FullScale {
    /// A full scale from 10⁻⁶ to 10⁶.
    pub fn new(value: f32) -> Result<FullScale, FullScaleError> {
        match (1e-6..=1e6).contains(&value) {
            true => Ok(FullScale(value)),
            false => Err(FullScaleError(value)),
        }
    }

    /// The value itself.
    pub const fn value(self) -> f32 {
        self.0
    }
}

impl Default for FullScale {
    fn default() -> Self {
        FullScale(DEFAULT_FULL_SCALE)
    }
}

/// What a reader has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
pub struct ReadCounts {
    /// Samples.
    pub samples: u64,
    /// Samples that were infinite or not numbers; they are read as 0.
    pub not_finite: u64,
    /// Bytes of a sample that is cut at the end.
    pub cut_bytes: u64,
}

/// Samples out of bytes.
#[derive(Debug)]
pub struct SampleReader<R> {
    source: R,
    format: SampleFormat,
    scale: f32,
    /// What was read and is not given out: part of a sample before an error of the source.
    bytes: Vec<u8>,
    /// That error, if samples came before it.
    error: Option<io::Error>,
    counts: ReadCounts,
}

impl<R: Read> SampleReader<R> {
    /// A reader. The full scale matters to integers alone.
    pub fn new(source: R, format: SampleFormat, full_scale: FullScale) -> SampleReader<R> {
        SampleReader {
            source,
            format,
            scale: full_scale.0 / f32::from(i16::MAX),
            bytes: Vec::new(),
            error: None,
            counts: ReadCounts::default(),
        }
    }

    /// Appends the next samples, and returns how many: at most 16384, 0 at the end.
    ///
    /// # Errors
    ///
    /// Those of the source, behind the samples that came before. No bytes are lost: after an error
    /// that passes, the next call goes on.
    pub fn read(&mut self, samples: &mut Vec<Complex32>) -> io::Result<usize> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let size = self.format.bytes();
        let wanted = (BLOCK * size - self.bytes.len()) as u64;
        let mut source = (&mut self.source).take(wanted);
        let ended = match source.read_to_end(&mut self.bytes) {
            Ok(_) => true,
            Err(error) if self.bytes.len() < size => return Err(error),
            Err(error) => {
                self.error = Some(error);
                false
            }
        };
        let whole = self.bytes.chunks_exact(size);
        let (count, rest) = (whole.len(), whole.remainder().len());
        self.counts.samples += count as u64;
        match self.format {
            SampleFormat::Ci16 => samples.extend(whole.map(|bytes| {
                let part = |at: usize| i16::from_le_bytes([bytes[at], bytes[at + 1]]);
                Complex32::new(f32::from(part(0)), f32::from(part(2))) * self.scale
            })),
            SampleFormat::Cf32 => {
                let not_finite = &mut self.counts.not_finite;
                samples.extend(whole.map(|bytes| {
                    let part = |at: usize| {
                        f32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
                    };
                    let sample = Complex32::new(part(0), part(4));
                    let fine = sample.re.is_finite() && sample.im.is_finite();
                    *not_finite += u64::from(!fine);
                    if fine { sample } else { Complex32::default() }
                }));
            }
        }
        self.bytes.drain(..count * size);
        if ended {
            self.counts.cut_bytes += rest as u64;
            self.bytes.clear();
        }
        Ok(count)
    }

    /// What has been counted so far.
    pub fn counts(&self) -> ReadCounts {
        self.counts
    }
}

/// A part as an integer of so many steps to 1, half to even, and whether that is not it: it clips,
/// or is no number.
#[inline]
pub(crate) fn quantised(part: f32, steps: f32) -> (i16, bool) {
    // 1.5 · 2²³: floats around it have no fraction, so that adding rounds, in any instruction set.
    const WHOLE: f32 = 12_582_912.0;
    let wanted = ((part * steps).clamp(-1e5, 1e5) + WHOLE) - WHOLE;
    // A cast clips, and makes 0 of what is no number.
    let held = wanted as i16;
    (held, f32::from(held) != wanted)
}

/// What a writer has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
pub struct WriteCounts {
    /// Samples.
    pub samples: u64,
    /// Real and imaginary parts beyond what an integer can have, and what is no number. They are
    /// written as the nearest that it can have, and as 0.
    pub clipped: u64,
}

/// Samples to bytes.
#[derive(Debug)]
pub struct SampleWriter<W> {
    sink: W,
    format: SampleFormat,
    steps: f32,
    bytes: Vec<u8>,
    counts: WriteCounts,
}

impl<W: Write> SampleWriter<W> {
    /// A writer. The full scale matters to integers alone.
    pub fn new(sink: W, format: SampleFormat, full_scale: FullScale) -> SampleWriter<W> {
        SampleWriter {
            sink,
            format,
            steps: f32::from(i16::MAX) / full_scale.0,
            bytes: Vec::new(),
            counts: WriteCounts::default(),
        }
    }

    /// Writes samples. Integers are rounded, half to even.
    pub fn write(&mut self, samples: &[Complex32]) -> io::Result<()> {
        for samples in samples.chunks(BLOCK) {
            self.bytes.clear();
            let parts = samples.iter().flat_map(|sample| [sample.re, sample.im]);
            match self.format {
                SampleFormat::Cf32 => self.bytes.extend(parts.flat_map(f32::to_le_bytes)),
                SampleFormat::Ci16 => {
                    let steps = self.steps;
                    let clipped = &mut self.counts.clipped;
                    self.bytes.extend(parts.flat_map(|part| {
                        let (held, clips) = quantised(part, steps);
                        *clipped += u64::from(clips);
                        held.to_le_bytes()
                    }));
                }
            }
            self.sink.write_all(&self.bytes)?;
            self.counts.samples += samples.len() as u64;
        }
        Ok(())
    }

    /// What has been counted so far.
    pub fn counts(&self) -> WriteCounts {
        self.counts
    }

    /// Flushes twice, and returns what has been counted. What ends at the first time, as an output
    /// of flow's addresses may, waits for its peer at the second.
    pub fn finish(mut self) -> io::Result<WriteCounts> {
        self.sink.flush()?;
        self.sink.flush()?;
        Ok(self.counts)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(samples: &[Complex32], format: SampleFormat) -> (Vec<u8>, WriteCounts) {
        let mut bytes = Vec::new();
        let mut writer = SampleWriter::new(&mut bytes, format, FullScale::default());
        writer.write(samples).unwrap();
        let counts = writer.finish().unwrap();
        (bytes, counts)
    }

    fn read(bytes: &[u8], format: SampleFormat) -> (Vec<Complex32>, ReadCounts) {
        let mut samples = Vec::new();
        let mut reader = SampleReader::new(bytes, format, FullScale::default());
        while reader.read(&mut samples).unwrap() > 0 {}
        (samples, reader.counts())
    }

    #[test]
    fn integers_are_little_endian_and_clip() {
        let samples = [
            Complex32::new(4.0, -4.0),
            Complex32::new(4.001, -4.001),
            Complex32::new(f32::NAN, f32::INFINITY),
            Complex32::new(4.0 / 32767.0 * 256.0, 0.0),
        ];
        let (bytes, counts) = written(&samples, SampleFormat::Ci16);
        let parts = [32767i16, -32767, 32767, -32768, 0, 32767, 256, 0];
        let expected: Vec<u8> = parts.into_iter().flat_map(i16::to_le_bytes).collect();
        assert_eq!(bytes, expected);
        // −4.001 is the step −32775; the scale's lower end is −32768.
        assert_eq!((counts.samples, counts.clipped), (4, 4));
    }

    #[test]
    fn what_is_cut_or_no_number_is_counted() {
        let samples = [Complex32::new(f32::NAN, 1.0), Complex32::new(1.0, 2.0)];
        let (mut bytes, _) = written(&samples, SampleFormat::Cf32);
        bytes.extend([1, 2, 3]);
        let (back, counts) = read(&bytes, SampleFormat::Cf32);
        assert_eq!(back, [Complex32::default(), samples[1]]);
        let expected = ReadCounts {
            samples: 2,
            not_finite: 1,
            cut_bytes: 3,
        };
        assert_eq!(counts, expected);
    }

    /// A source that times out after so many bytes, once in each of its parts.
    #[derive(Debug)]
    pub(crate) struct Faltering<'a>(pub Vec<&'a [u8]>);

    impl Read for Faltering<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.0.first_mut() {
                None => Ok(0),
                Some([]) => {
                    self.0.remove(0);
                    Err(io::ErrorKind::TimedOut.into())
                }
                Some(part) => part.read(buffer),
            }
        }
    }

    #[test]
    fn an_error_of_the_source_costs_no_bytes() {
        let expected: Vec<_> = (0..9u8).map(|n| Complex32::new(n.into(), 1.0)).collect();
        let (bytes, _) = written(&expected, SampleFormat::Cf32);
        for cut in [0, 6, 8, 35] {
            let (before, behind) = bytes.split_at(cut);
            let source = Faltering(vec![before, behind]);
            let mut reader = SampleReader::new(source, SampleFormat::Cf32, FullScale::default());
            let (mut samples, mut errors) = (Vec::new(), Vec::new());
            while errors.len() < 2 {
                match reader.read(&mut samples) {
                    Ok(_) => {}
                    Err(error) => {
                        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
                        errors.push(samples.len());
                    }
                }
            }
            assert_eq!((samples, errors), (expected.clone(), vec![cut / 8, 9]));
            assert_eq!(reader.counts().samples, 9);
            assert_eq!(reader.counts().cut_bytes, 0);
            assert_eq!(reader.read(&mut Vec::new()).unwrap(), 0);
        }
    }

    #[test]
    fn full_scales_that_no_samples_can_have_are_refused() {
        for value in [0.0, -1.0, f32::NAN, f32::INFINITY, 1e-30] {
            assert!(FullScale::new(value).is_err(), "{value}");
        }
    }

    proptest! {
        #[test]
        fn integers_are_the_nearest(part in prop_oneof![-6f32..6.0, any::<f32>()]) {
            let wanted = (part * 8000.0).round_ties_even();
            let (held, clips) = quantised(part, 8000.0);
            prop_assert_eq!(held, wanted as i16);
            prop_assert_eq!(clips, f32::from(held) != wanted);
        }

        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for format in SampleFormat::ALL {
                let (samples, counts) = read(&bytes, format);
                prop_assert_eq!(samples.len(), bytes.len() / format.bytes());
                prop_assert_eq!(counts.cut_bytes as usize, bytes.len() % format.bytes());
                let finite = samples.iter().all(|x| x.re.is_finite() && x.im.is_finite());
                prop_assert!(finite);
            }
        }

        #[test]
        fn integers_come_back(parts in prop::collection::vec(any::<i16>(), 0..100)) {
            let parts = &parts[..parts.len() / 2 * 2];
            let bytes: Vec<u8> = parts.iter().flat_map(|part| part.to_le_bytes()).collect();
            let (samples, _) = read(&bytes, SampleFormat::Ci16);
            let (back, counts) = written(&samples, SampleFormat::Ci16);
            prop_assert_eq!(back, bytes);
            prop_assert_eq!(counts.clipped, 0);
        }
    }
}
