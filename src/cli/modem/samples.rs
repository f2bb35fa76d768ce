//! Files of samples: raw by their option or name, SigMF by their name.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use ground::files::write_whole;
use karoo_flow::adapters::{Address, Awaited, Stop};
use karoo_modem::formats::{
    Annotation, FullScale, MOST_META_BYTES, ReadCounts, Recording, RecordingPaths, SampleFormat,
    SampleReader, SampleWriter, WriteCounts,
};
use num_complex::Complex32;

use crate::cli::numbers::number_within;
use crate::cli::{Failure, Files, is_stdout};
use crate::config::units::hertz;

/// Labels in metadata, at most.
const MOST_ANNOTATIONS: usize = 100_000;

/// Whether a path stands for standard input or output.
pub fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Whether what is written to a path goes to standard output, by whatever name.
pub fn goes_to_stdout(path: &Path) -> bool {
    is_standard(path) || is_stdout(path)
}

/// A path that stands for a file.
pub fn file(path: &Path) -> Option<&Path> {
    (!is_standard(path)).then_some(path)
}

/// Opens a file of samples, or standard input.
pub fn read(
    path: &Path,
    format: Option<SampleFormat>,
    scale: Option<FullScale>,
    stop: &Stop,
) -> Result<Input, Failure> {
    if !is_standard(path) {
        return Input::open(path, format, scale, stop);
    }
    let source = Address::Standard.reader(stop);
    let source = source.map_err(|error| Failure::data(format!("--input -: {error}")))?;
    Ok(Input::raw("-", source, format, scale))
}

/// What waits for the writer of an input that is a named pipe.
pub fn awaited(input: Option<&Path>) -> Result<Awaited, Failure> {
    let mut awaited = Awaited::default();
    if let Some(path) = input {
        let failed = |error| Failure::data(format!("--input {}: {error}", path.display()));
        awaited.add(path).map_err(failed)?;
    }
    Ok(awaited)
}

/// Waits for it, before files that are written lose what they had.
pub fn wait(awaited: Awaited, stop: &Stop) -> Result<(), Failure> {
    let failed = |error| Failure::data(format!("--input {error}"));
    awaited.wait(stop).map_err(failed)
}

/// Opens a file of samples, or standard output.
pub fn write(
    path: &Path,
    format: Option<SampleFormat>,
    scale: FullScale,
    stop: &Stop,
) -> Result<Output, Failure> {
    if !is_standard(path) {
        return Output::create(path, format, scale, stop);
    }
    let sink = Address::Standard.writer(stop);
    let sink = sink.map_err(|error| Failure::data(format!("--output -: {error}")))?;
    Ok(Output::raw(
        "-",
        Box::new(BufWriter::new(sink)),
        format,
        scale,
    ))
}

/// The format that an option names, or else the end of the name.
fn format_of(path: &Path, option: Option<SampleFormat>) -> Option<SampleFormat> {
    let end = path.extension().and_then(|end| end.to_str());
    let by_name = end.and_then(|end| match end {
        "cs16" | "sc16" => Some(SampleFormat::Ci16),
        "fc32" | "cfile" => Some(SampleFormat::Cf32),
        _ => end.parse().ok(),
    });
    option.or(by_name)
}

/// Refuses an archive, which has metadata and samples in one file.
fn not_an_archive(option: &str, path: &Path) -> Result<(), Failure> {
    match path.extension().is_some_and(|end| end == "sigmf") {
        false => Ok(()),
        true => Err(Failure::usage(format!(
            "{option} {}: .sigmf is an archive, which is neither read nor written: name the \
             .sigmf-meta beside its .sigmf-data, which tar makes of an archive",
            path.display()
        ))),
    }
}

/// Parses a rate of samples.
pub fn rate(text: &str) -> Result<f64, String> {
    let value = hertz(text).map_err(|error| error.to_string())?;
    // With others, times of samples are no times that a clock has.
    match (1e-3..=1e15).contains(&value) {
        true => Ok(value),
        false => Err("it must be 0.001 to 1e15 Hz; try 80M".to_owned()),
    }
}

/// Parses a full scale of integer samples.
pub fn full_scale(text: &str) -> Result<FullScale, String> {
    let rule = "it must be 1e-6 to 1e6; 4 leaves room above the waveform's peaks";
    // In double precision, in which it is what was written.
    let value = number_within(text, 1e-6..=1e6, rule)?;
    FullScale::new(value as f32).map_err(|error| error.to_string())
}

/// Refuses a folder, which can be opened, and not read.
fn not_a_folder(path: &Path) -> io::Result<()> {
    match path.is_dir() {
        true => Err(io::ErrorKind::IsADirectory.into()),
        false => Ok(()),
    }
}

/// Opens a file to read.
pub fn open(path: &Path) -> io::Result<File> {
    not_a_folder(path)?;
    File::open(path)
}

/// The files of samples by a name: of a recording, metadata and data.
fn parts(path: &Path) -> Vec<PathBuf> {
    RecordingPaths::of(path).map_or(vec![path.to_owned()], |paths| vec![paths.meta, paths.data])
}

/// Adds the input, if it is a file.
pub fn reads(files: Files, input: Option<&Path>) -> Files {
    let parts = input.into_iter().flat_map(parts);
    parts.fold(files, |files, part| files.reads("--input", Some(&part)))
}

/// Adds the output, if it is a file.
pub fn writes(files: Files, output: Option<&Path>) -> Files {
    let parts = output.into_iter().flat_map(parts);
    parts.fold(files, |files, part| files.writes("--output", Some(&part)))
}

/// Refuses to write over what is read.
pub fn not_the_same(input: Option<&Path>, output: Option<&Path>) -> Result<(), Failure> {
    writes(reads(Files::default(), input), output).check()
}

/// The full scale of samples, if it is known.
fn known(format: SampleFormat, said: Option<FullScale>) -> Option<FullScale> {
    match format {
        SampleFormat::Ci16 => Some(said.unwrap_or_default()),
        SampleFormat::Cf32 => said,
    }
}

/// Samples that come in.
pub struct Input {
    path: PathBuf,
    reader: SampleReader<Box<dyn Read + Send>>,
    /// Full scale: of integers always known, of floats where somebody says it.
    pub full_scale: Option<FullScale>,
    /// Whether neither option nor name nor metadata said the format.
    pub is_guessed: bool,
    /// Samples per second and frequency, where metadata say them.
    pub recording: Option<Recording>,
}

impl Input {
    /// Reads what is no file: samples of floats, if nothing else is said.
    pub fn raw(
        name: &str,
        source: Box<dyn Read + Send>,
        format: Option<SampleFormat>,
        scale: Option<FullScale>,
    ) -> Input {
        let is_guessed = format.is_none();
        let format = format.unwrap_or(SampleFormat::Cf32);
        Input {
            is_guessed,
            path: name.into(),
            reader: SampleReader::new(source, format, scale.unwrap_or_default()),
            full_scale: known(format, scale),
            recording: None,
        }
    }

    /// Opens a file of samples. A named pipe ends when `stop` is set.
    pub fn open(
        path: &Path,
        format: Option<SampleFormat>,
        scale: Option<FullScale>,
        stop: &Stop,
    ) -> Result<Input, Failure> {
        let failed = |path: &Path, error: io::Error| {
            Failure::data(format!("--input {}: {error}", path.display()))
        };
        not_an_archive("--input", path)?;
        let Some(paths) = RecordingPaths::of(path) else {
            let file = || Address::File(path.to_owned()).reader(stop);
            let source = not_a_folder(path).and_then(|()| file());
            let source = source.map_err(|error| failed(path, error))?;
            let format = format_of(path, format);
            let is_guessed = format.is_none();
            let format = format.unwrap_or(SampleFormat::Cf32);
            return Ok(Input {
                is_guessed,
                path: path.to_owned(),
                reader: SampleReader::new(source, format, scale.unwrap_or_default()),
                full_scale: known(format, scale),
                recording: None,
            });
        };
        let mut text = String::new();
        let meta = File::open(&paths.meta).map_err(|error| failed(&paths.meta, error))?;
        meta.take(MOST_META_BYTES)
            .read_to_string(&mut text)
            .map_err(|error| failed(&paths.meta, error))?;
        let recording = Recording::from_json(&text)
            .map_err(|error| Failure::data(format!("{}: {error}", paths.meta.display())))?;
        if let Some(wanted) = format.filter(|format| *format != recording.format) {
            return Err(Failure::usage(format!(
                "--format {wanted}: {} says {}; leave the option out",
                paths.meta.display(),
                recording.format
            )));
        }
        let mut data = File::open(&paths.data).map_err(|error| failed(&paths.data, error))?;
        let length = data
            .metadata()
            .map_err(|error| failed(&paths.data, error))?
            .len();
        let around = recording
            .header_bytes
            .saturating_add(recording.trailing_bytes);
        let Some(bytes) = length.checked_sub(around) else {
            return Err(Failure::data(format!(
                "{}: {length} bytes, of which {around} are to be skipped by its metadata",
                paths.data.display()
            )));
        };
        let skipped = &mut (&mut data).take(recording.header_bytes);
        io::copy(skipped, &mut io::sink()).map_err(|error| failed(&paths.data, error))?;
        let source: Box<dyn Read + Send> = Box::new(data.take(bytes));
        let scale = scale.or(recording.full_scale);
        Ok(Input {
            is_guessed: false,
            path: paths.data,
            reader: SampleReader::new(source, recording.format, scale.unwrap_or_default()),
            full_scale: known(recording.format, scale),
            recording: Some(recording),
        })
    }

    /// Appends the next samples; 0 at the end.
    pub fn read(&mut self, samples: &mut Vec<Complex32>) -> Result<usize, Failure> {
        let path = &self.path;
        let failed = |error| Failure::data(format!("{}: {error}", path.display()));
        self.reader.read(samples).map_err(failed)
    }

    /// What has been read.
    pub fn counts(&self) -> ReadCounts {
        self.reader.counts()
    }
}

/// Samples that go out.
pub struct Output {
    path: PathBuf,
    writer: SampleWriter<Box<dyn Write>>,
    meta: Option<PathBuf>,
    /// What metadata are to say, if any are written.
    pub recording: Recording,
}

impl Output {
    /// Writes to what is no file.
    pub fn raw(
        name: &str,
        sink: Box<dyn Write>,
        format: Option<SampleFormat>,
        scale: FullScale,
    ) -> Output {
        let format = format.unwrap_or(SampleFormat::Cf32);
        Output {
            path: name.into(),
            writer: SampleWriter::new(sink, format, scale),
            meta: None,
            recording: Recording::new(format),
        }
    }

    /// Opens a file of samples. A named pipe waits for its reader until `stop` is set.
    pub fn create(
        path: &Path,
        format: Option<SampleFormat>,
        scale: FullScale,
        stop: &Stop,
    ) -> Result<Output, Failure> {
        not_an_archive("--output", path)?;
        let paths = RecordingPaths::of(path);
        let format = match &paths {
            Some(_) => format,
            None => format_of(path, format),
        };
        let format = format.unwrap_or(SampleFormat::Cf32);
        let data = paths.as_ref().map_or(path, |paths| &paths.data);
        let failed = |error| Failure::data(format!("--output {}: {error}", data.display()));
        let sink = Address::File(data.to_owned()).writer(stop);
        let sink: Box<dyn Write> = sink.map_err(failed)?;
        let full_scale = (format == SampleFormat::Ci16).then_some(scale);
        Ok(Output {
            path: data.to_owned(),
            writer: SampleWriter::new(sink, format, scale),
            meta: paths.map(|paths| paths.meta),
            recording: Recording {
                full_scale,
                ..Recording::new(format)
            },
        })
    }

    /// Labels the next samples in metadata, if any are written.
    pub fn annotate(&mut self, label: &str, samples: u64) {
        let annotations = &mut self.recording.annotations;
        if self.meta.is_some() && annotations.len() < MOST_ANNOTATIONS {
            annotations.push(Annotation {
                sample_start: self.writer.counts().samples,
                sample_count: Some(samples),
                label: Some(label.to_owned()),
            });
        }
    }

    /// Writes samples.
    pub fn write(&mut self, samples: &[Complex32]) -> Result<(), Failure> {
        let path = &self.path;
        let failed = |error| Failure::data(format!("{}: {error}", path.display()));
        self.writer.write(samples).map_err(failed)
    }

    /// Ends the file, and writes its metadata.
    pub fn finish(self) -> Result<WriteCounts, Failure> {
        let path = self.path;
        let failed = |error| Failure::data(format!("{}: {error}", path.display()));
        let counts = self.writer.finish().map_err(failed)?;
        if let Some(meta) = self.meta {
            let failed = |error| Failure::data(format!("{}: {error}", meta.display()));
            write_whole(&meta, self.recording.to_json()).map_err(failed)?;
        }
        Ok(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_samples_are_such_that_clocks_have_their_times() {
        assert_eq!(rate("80M"), Ok(80e6));
        assert_eq!(rate("0.001"), Ok(1e-3));
        for text in ["0", "-1", "1e-300", "1e16", "NaN"] {
            assert!(rate(text).is_err(), "{text}");
        }
    }
}
