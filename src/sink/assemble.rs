//! The second pass: every packet to its place.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use dsp::OutputBits;
use dsp::quantise::nibbles;
use ground::files::WholeFile;
use ground::{N_POL, Timestamp};
use num_integer::gcd;
use spead::SpectraRepr;

use super::files::write_npy;
use super::layout::Layout;
use super::metadata::{ArrayMetadata, Known, StreamMetadata};
use super::output::{JONES, Output, Unfinished, widening, write_error};
use super::problems::Medium;
use super::ranges::Ranges;
use super::{
    Kind, Route, SinkError, SinkOptions, StreamReport, counts, metadata, spectrum, synthesis,
};
use crate::report::to_json;

/// A heap of which something arrived.
enum Heap {
    /// Heap count, and the byte ranges that arrived.
    Open(u64, Ranges),
    /// Heap count.
    Whole(u64),
}

/// One stream's heaps on their way into the output file.
pub(super) struct Assembler {
    layout: Layout,
    output: Option<Output>,
    options: SinkOptions,
    /// Arrays that were written, and what is known of their time and frequency.
    arrays: Vec<ArrayMetadata>,
    known: Known,
    /// By batch and substream.
    heaps: HashMap<(usize, usize), Heap>,
    counts: HashSet<u64>,
    /// Those of descriptor and stop heaps.
    control: HashSet<u64>,
    stopped: Vec<bool>,
    /// Σ |x|² per polarisation and channel.
    power: [Vec<u64>; N_POL],
    /// Jones vectors per channel.
    jones: Vec<u64>,
    report: StreamReport,
}

impl Assembler {
    /// Creates the output file, all zeros, if there is a folder for it.
    pub(super) fn new(layout: Layout, options: &SinkOptions) -> Result<Self, SinkError> {
        let dir = options.output_dir.as_deref();
        let output = dir.map(|dir| Output::create(&layout, dir)).transpose()?;
        let channels = layout.channels as usize;
        let mut stream = Self {
            output,
            heaps: HashMap::new(),
            counts: HashSet::new(),
            control: layout.control_counts.iter().copied().collect(),
            stopped: vec![false; layout.destinations.len()],
            power: [vec![0; channels], vec![0; channels]],
            jones: vec![0; channels],
            report: StreamReport::default(),
            arrays: Vec::new(),
            known: Known::default(),
            options: options.clone(),
            layout,
        };
        for count in &stream.layout.control_counts {
            stream.report.repeated_heap_counts += u64::from(!stream.counts.insert(*count));
        }
        Ok(stream)
    }

    /// Substream numbers and where their packets come from and go to.
    pub(super) fn routes(&self) -> impl Iterator<Item = (usize, Route)> + '_ {
        let all = self.layout.routes.iter().enumerate();
        all.flat_map(|(i, routes)| routes.iter().map(move |&route| (i, route)))
    }

    /// Whether its engine sent this, by F-engine number or by the counts that the first pass found.
    pub(super) fn is_of(&self, kind: &Kind<'_>) -> bool {
        match kind {
            Kind::Spectra(spectra, _) => spectra.feng_id == self.layout.feng_id,
            Kind::Descriptors(count, _) | Kind::Stop(count) => self.control.contains(count),
            Kind::Other => false,
        }
    }

    /// Takes a datagram that went to substream `sub`.
    pub(super) fn add(&mut self, sub: usize, kind: &Kind<'_>) -> Result<(), SinkError> {
        match kind {
            Kind::Spectra(spectra, payload) => return self.add_spectra(sub, spectra, payload),
            Kind::Descriptors(..) => self.report.descriptor_heaps += 1,
            Kind::Stop(_) => {
                self.report.stop_heaps += 1;
                self.report.stopped_substreams += u64::from(!self.stopped[sub]);
                self.stopped[sub] = true;
            }
            Kind::Other => {}
        }
        Ok(())
    }

    fn add_spectra(
        &mut self,
        sub: usize,
        spectra: &SpectraRepr,
        payload: &[u8],
    ) -> Result<(), SinkError> {
        let layout = &self.layout;
        let report = &mut self.report;
        let first_channel = sub as u64 * layout.channels_per_substream;
        report.packets_after_stop += u64::from(self.stopped[sub]);
        if spectra.feng_id != layout.feng_id || spectra.first_channel != first_channel {
            report.misplaced_packets += 1;
            return Ok(());
        }
        if spectra.heap_length != layout.heap_bytes() {
            report.wrong_size_packets += 1;
            return Ok(());
        }
        // No batch is before the first one.
        let first = Timestamp(layout.batches.first().copied().unwrap_or(0));
        let timestamp = Timestamp::unwrap(spectra.timestamp, first).0;
        let Ok(batch) = layout.batches.binary_search(&timestamp) else {
            report.bad_timestamp_packets += 1;
            return Ok(());
        };
        let heap = self.heaps.entry((batch, sub)).or_insert_with(|| {
            report.repeated_heap_counts += u64::from(!self.counts.insert(spectra.heap_count));
            Heap::Open(spectra.heap_count, Ranges::default())
        });
        let (Heap::Open(count, _) | Heap::Whole(count)) = heap;
        if *count != spectra.heap_count {
            report.duplicate_heap_packets += 1;
            return Ok(());
        }
        let Heap::Open(count, ranges) = heap else {
            report.duplicate_packets += 1;
            return Ok(());
        };
        let range = (
            spectra.payload_offset,
            spectra.payload_offset + payload.len() as u64,
        );
        if !ranges.add(range.0, range.1) {
            report.duplicate_packets += 1;
            return Ok(());
        }
        if ranges.bytes() == layout.heap_bytes() {
            *heap = Heap::Whole(*count);
        }
        report.packets += 1;
        report.bytes += payload.len() as u64;

        // From here on a real or imaginary part is a byte, as it is in the file.
        let widening = widening(layout.bits);
        let at = first_channel * layout.spectra_per_heap * JONES as u64 + range.0 * widening;
        let payload = &*widened(payload, layout.bits);
        add_power(
            payload,
            at as usize,
            layout.spectra_per_heap as usize,
            &mut self.power,
            &mut self.jones,
        );
        match &self.output {
            Some(output) => {
                output.write(payload, batch as u64 * layout.batch_bytes() * widening + at)
            }
            None => Ok(()),
        }
    }

    /// Zeroes what is incomplete, writes the other files, and says what was found. The files are
    /// to be finished once those of all streams are there.
    pub(super) fn finish(mut self) -> Result<(StreamReport, Unfinished), SinkError> {
        let heap_bytes = self.layout.heap_bytes();
        for (&(batch, sub), heap) in &self.heaps {
            let Heap::Open(_, ranges) = heap else {
                self.report.heaps += 1;
                continue;
            };
            self.report.incomplete_heaps += 1;
            if let Some(output) = &self.output {
                let base = batch as u64 * self.layout.batch_bytes() + sub as u64 * heap_bytes;
                let widening = widening(self.layout.bits);
                for (begin, end) in ranges.parts() {
                    output.clear((base + begin) * widening, (base + end) * widening)?;
                }
            }
        }
        self.fill_totals();
        self.find_problems();
        self.find_notes();
        self.known = Known::of(&self.layout, self.report.batch_samples, &self.options);
        let mut files = Unfinished::default();
        self.write_tables(&mut files)?;
        self.synthesise(&mut files)?;
        self.write_metadata(&mut files)?;
        if let Some(output) = self.output {
            files.push(output.into_file());
        }
        Ok((self.report, files))
    }

    /// Fills in the report's totals.
    fn fill_totals(&mut self) {
        let layout = &self.layout;
        let report = &mut self.report;
        let batches = layout.batches.len() as u64;
        report.name.clone_from(&layout.name);
        report.feng_id = layout.feng_id;
        report.array_size = layout.array_size;
        report.destinations.clone_from(&layout.destinations);
        report.channels = layout.channels;
        report.channels_per_substream = layout.channels_per_substream;
        report.spectra_per_heap = layout.spectra_per_heap;
        report.sample_bits = layout.bits;
        report.first_timestamp = layout.batches.first().copied();
        report.last_timestamp = layout.batches.last().copied();
        report.batches = batches;
        // What all steps have in common: the batch, which is longer than a wideband one in
        // narrowband streams.
        let steps = layout.batches.windows(2).map(|w| w[1] - w[0]);
        report.batch_samples = match steps.fold(0, gcd) {
            0 => layout.batch_samples,
            step => step,
        };
        if let (Some(first), Some(last)) = (report.first_timestamp, report.last_timestamp) {
            report.batches_not_sent = (last - first) / report.batch_samples + 1 - batches;
        }
        let expected = batches * layout.destinations.len() as u64;
        report.missing_heaps = expected - self.heaps.len() as u64;
        if let Some(step) = layout.array_size {
            report.missing_heap_counts = counts::left_out(&self.counts, step);
        }
        let jones: u64 = self.jones.iter().sum();
        report.mean_power_db = std::array::from_fn(|pol| {
            let power: u64 = self.power[pol].iter().sum();
            (power > 0).then(|| 10.0 * (power as f64 / jones as f64).log10())
        });
    }

    /// Says what is wrong; [`Self::fill_totals`] comes before.
    fn find_problems(&mut self) {
        let layout = &self.layout;
        let report = &mut self.report;
        let missing = layout.destinations.iter().filter(|d| d.is_none()).count();
        report.push_problem(
            missing as u64,
            "substream",
            ["has no packets at all", "have no packets at all"],
        );
        report.push_count_problems(Medium::Capture);
        if let Some(step) = layout.array_size.filter(|&step| step > 0) {
            let wrong = |count: &&u64| !counts::is_of(**count, layout.feng_id, step);
            let wrong = self.counts.iter().filter(wrong).count();
            let rest = format!("leave {} when divided by {step}", layout.feng_id);
            let [one, many] = ["does", "do"].map(|verb| format!("{verb} not {rest}"));
            report.push_problem(wrong as u64, "heap count", [&one, &many]);
        }
        for (heaps, what) in layout.control_heaps() {
            let without = heaps.iter().filter(|&&n| n == 0).count();
            if without > 0 && without < heaps.len() {
                report.problems.push(format!(
                    "{without} of {} substreams have no {what}",
                    heaps.len()
                ));
            }
        }
    }

    /// Says what is unusual but not wrong; [`Self::fill_totals`] comes before.
    fn find_notes(&mut self) {
        let layout = &self.layout;
        let report = &mut self.report;
        for (heaps, what) in layout.control_heaps() {
            if heaps.iter().all(|&n| n == 0) {
                report.notes.push(format!("there are no {what}"));
            }
        }
        let wideband = layout.wideband_samples();
        // One batch alone does not tell how long it is.
        let elsewhere = |t: &u64| !t.is_multiple_of(wideband);
        if !layout.batch_samples.is_multiple_of(wideband) || layout.batches.iter().any(elsewhere) {
            report.notes.push(format!(
                "a wideband batch has {wideband} samples without oversampling: this is an oversampled stream"
            ));
        } else if report.batch_samples > wideband {
            report.notes.push(format!(
                "a wideband batch has {wideband} samples: this is a narrowband stream, or batches are missing at even distances"
            ));
        }
        if layout.batches.is_empty() {
            report.notes.push("there are no spectra".to_owned());
        }
        let asked = !self.options.outputs.is_empty();
        if asked && !metadata::is_named(layout, &self.options) {
            let note = "no --wideband or --narrowband has its destinations";
            report.notes.push(note.to_owned());
        }
    }

    /// Samples, if they are asked for.
    fn synthesise(&mut self, files: &mut Unfinished) -> Result<(), SinkError> {
        let (Some(output), Some(options)) = (&self.output, &self.options.synthesis) else {
            return Ok(());
        };
        let layout = &self.layout;
        if !layout.synthesised {
            let note = "its batches are not those that --synthesis is for: there are no samples";
            self.report.notes.push(note.to_owned());
            return Ok(());
        }
        let to = output.dir.join(format!("{}.samples.npy", layout.name));
        let substreams = 0..layout.destinations.len();
        let whole = |batch: usize| {
            let mut heaps = substreams.clone().map(|sub| self.heaps.get(&(batch, sub)));
            heaps.all(|heap| matches!(heap, Some(Heap::Whole(_))))
        };
        let from = (output.current_path(), output.header);
        let written = synthesis::write(layout, options, from, whole, &to);
        let (written, file) = written.map_err(|failure| match failure {
            synthesis::Failure::Io(source) => write_error(&to, source),
            synthesis::Failure::Bank(source) => SinkError::Synthesis {
                channels: layout.channels,
                source,
            },
        })?;
        files.push(file);
        let dtype = synthesis::dtype(options);
        let axes = [("sample", written.samples), ("polarisation", N_POL as u64)];
        let element = "sample before the filter bank; not a number where heaps are missing";
        let array = ArrayMetadata::new(&to, dtype, &axes, element);
        self.arrays.push(array);
        self.report.files.push(written.file.clone());
        self.report.synthesis = Some(written);
        Ok(())
    }

    /// Presence, timestamps, picture.
    fn write_tables(&mut self, unfinished: &mut Unfinished) -> Result<(), SinkError> {
        let Some(output) = &self.output else {
            return Ok(());
        };
        let layout = &self.layout;
        let batches = layout.batches.len();
        let substreams = layout.destinations.len();
        let mut files = vec![output.path.clone()];
        let (by_batch, by_substream) =
            (("batch", batches as u64), ("substream", substreams as u64));
        let axes = [
            by_batch,
            ("channel", layout.channels),
            ("spectrum", layout.spectra_per_heap),
            ("polarisation", N_POL as u64),
            ("part", 2),
        ];
        let element = "real or imaginary part in counts; zero where nothing came";
        let array = ArrayMetadata::new(&output.path, "|i1", &axes, element);
        self.arrays.push(array);

        let path = output.dir.join(format!("{}.present.npy", layout.name));
        let present = (0..batches).flat_map(|batch| (0..substreams).map(move |sub| (batch, sub)));
        let present = present.map(|at| [matches!(self.heaps.get(&at), Some(Heap::Whole(_))) as u8]);
        let axes = [by_batch, by_substream];
        let element = "whether the whole heap came";
        let array = ArrayMetadata::new(&path, "|b1", &axes, element);
        let file = write_npy(&path, &array.dtype, &array.shape, present);
        self.arrays.push(array);
        unfinished.push(file.map_err(|e| write_error(&path, e))?);
        files.push(path);

        let path = output.dir.join(format!("{}.timestamps.npy", layout.name));
        let timestamps = layout.batches.iter().map(|t| t.to_le_bytes());
        let element = "timestamp of the first sample that contributes";
        let array = ArrayMetadata::new(&path, "<u8", &[by_batch], element);
        let file = write_npy(&path, &array.dtype, &array.shape, timestamps);
        self.arrays.push(array);
        unfinished.push(file.map_err(|e| write_error(&path, e))?);
        files.push(path);

        if self.jones.iter().any(|&n| n > 0) {
            let mean = |power: &Vec<u64>| -> Vec<f64> {
                let pairs = power.iter().zip(&self.jones);
                pairs.map(|(&p, &n)| p as f64 / n.max(1) as f64).collect()
            };
            let path = output.dir.join(format!("{}.spectrum.svg", layout.name));
            let title = match &self.known.output {
                Some(output) => format!("{}: {output}, F-engine {}", layout.name, layout.feng_id),
                None => format!("{}: F-engine {}", layout.name, layout.feng_id),
            };
            let [x, y] = [0, 1].map(|pol| mean(&self.power[pol]));
            let svg = spectrum::svg(&title, [&x, &y], self.known.band.as_ref());
            let file = WholeFile::create(&path).and_then(|mut file| {
                file.write_all(svg.as_bytes())?;
                Ok(file)
            });
            unfinished.push(file.map_err(|e| write_error(&path, e))?);
            files.push(path);
        }
        let names = files.iter().map(|path| path.display().to_string());
        self.report.files = names.collect();
        Ok(())
    }

    /// What the arrays are, once all of them are there.
    fn write_metadata(&mut self, unfinished: &mut Unfinished) -> Result<(), SinkError> {
        let Some(output) = &self.output else {
            return Ok(());
        };
        let report = &self.report;
        let metadata = StreamMetadata {
            name: report.name.clone(),
            output: self.known.output.clone(),
            feng_id: report.feng_id,
            array_size: report.array_size,
            destinations: report.destinations.clone(),
            sample_bits: report.sample_bits,
            first_timestamp: report.first_timestamp,
            last_timestamp: report.last_timestamp,
            spectrum_samples: self.known.spectrum_samples,
            adc_sample_rate: self.options.adc_sample_rate,
            sync_time: self.options.sync_time,
            band: self.known.band,
            arrays: std::mem::take(&mut self.arrays),
            synthesis: report.synthesis.clone(),
        };
        let path = output.dir.join(format!("{}.json", self.layout.name));
        let file = to_json(&metadata).map_err(io::Error::other);
        let file = file.and_then(|text| {
            let mut file = WholeFile::create(&path)?;
            writeln!(file, "{text}")?;
            Ok(file)
        });
        unfinished.push(file.map_err(|e| write_error(&path, e))?);
        self.report.files.push(path.display().to_string());
        Ok(())
    }
}

/// Real and imaginary parts of a payload, a byte each.
fn widened(payload: &[u8], bits: OutputBits) -> Cow<'_, [u8]> {
    match bits {
        OutputBits::Eight => payload.into(),
        OutputBits::Four => {
            let parts = payload.iter().flat_map(|&byte| nibbles(byte));
            parts.map(|part| part as u8).collect()
        }
    }
}

/// Adds |x|² of bytes that begin at byte `at` of a batch. A Jones vector that packets share counts
/// with its first byte.
fn add_power(
    payload: &[u8],
    at: usize,
    spectra: usize,
    power: &mut [Vec<u64>; N_POL],
    jones: &mut [u64],
) {
    let mut done = 0;
    while done < payload.len() {
        let channel = (at + done) / (spectra * JONES);
        let end = payload.len().min((channel + 1) * spectra * JONES - at);
        for (i, &byte) in payload[done..end].iter().enumerate() {
            let place = (at + done + i) % JONES;
            power[place / 2][channel] += u64::from((byte as i8).unsigned_abs()).pow(2);
            jones[channel] += u64::from(place == 0);
        }
        done = end;
    }
}
