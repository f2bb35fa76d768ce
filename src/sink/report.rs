//! What reading a capture back found out.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddrV4;

use dsp::OutputBits;
use ground::counted;
use schemars::JsonSchema;
use serde::Serialize;

use crate::report::Documented;

/// Everything that was read.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct SinkReport {
    /// Path as given.
    pub capture: String,
    /// Kind of file.
    pub format: String,
    /// The file ends within a frame.
    pub truncated: bool,
    /// Frames in the file.
    pub frames: u64,
    /// Frames that are no heaps of an F-engine, by cause.
    pub ignored: BTreeMap<String, u64>,
    /// One per output stream.
    pub streams: Vec<StreamReport>,
}

impl Documented for SinkReport {
    const NAME: &'static str = "sink-report";
    const TITLE: &'static str = "What karoo sink --json read of a capture";
}

impl SinkReport {
    /// Everything that is wrong, over all streams and the file.
    pub fn problems(&self) -> impl Iterator<Item = String> + '_ {
        let truncated = self
            .truncated
            .then(|| "the capture ends within a frame".to_owned());
        truncated
            .into_iter()
            .chain(self.streams.iter().flat_map(StreamReport::problems))
    }
}

/// Frames that are no heaps of an F-engine, by cause, if there are any.
pub(super) fn write_ignored<K: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    ignored: &BTreeMap<K, u64>,
) -> fmt::Result {
    if ignored.is_empty() {
        return Ok(());
    }
    let causes: Vec<_> = ignored.iter().map(|(k, n)| format!("{n} {k}")).collect();
    writeln!(f, "  ignored: {}", causes.join(", "))
}

/// The last line: what came of these streams.
pub(super) fn write_verdict<'a>(
    f: &mut fmt::Formatter<'_>,
    problems: usize,
    streams: impl Iterator<Item = &'a StreamReport>,
) -> fmt::Result {
    let (mut came, mut not_sent) = (0, 0);
    let mut doubts = String::new();
    for stream in streams {
        came += stream.batches;
        not_sent += stream.batches_not_sent;
        if let Some(all) = stream.batches_if_wideband() {
            let (name, batches) = (&stream.name, stream.batches);
            doubts.push_str(&format!(
                "; {name} is narrowband, or {batches} of its {all} batches came"
            ));
        }
        if let Some(zeros) = stream.zeros() {
            doubts.push_str(&format!("; {zeros}"));
        }
    }
    match problems {
        0 if came == 0 => write!(f, "no spectra came, so that nothing can be said of them")?,
        0 => write!(f, "clean: what came is whole and right")?,
        1 => write!(f, "1 problem")?,
        n => write!(f, "{n} problems")?,
    }
    if not_sent > 0 {
        write!(f, "; {came} of {} batches came", came + not_sent)?;
    }
    f.write_str(&doubts)
}

/// One output stream.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct StreamReport {
    /// Name of its files.
    pub name: String,
    /// F-engine number.
    pub feng_id: u64,
    /// Step of heap counts.
    pub array_size: Option<u64>,
    /// Destinations by substream number; None where nothing was captured.
    pub destinations: Vec<Option<SocketAddrV4>>,
    /// Channels.
    pub channels: u64,
    /// Channels in one heap.
    pub channels_per_substream: u64,
    /// Spectra in one heap.
    pub spectra_per_heap: u64,
    /// Bits of each real and imaginary part.
    pub sample_bits: OutputBits,
    /// ADC samples in a batch: of the output's options, or else what steps between timestamps have
    /// in common, or a wideband one as long as there is one batch.
    pub batch_samples: u64,
    /// Whether that is of the output's options.
    pub batch_is_known: bool,
    /// Timestamp of the first batch.
    pub first_timestamp: Option<u64>,
    /// Timestamp of the last batch.
    pub last_timestamp: Option<u64>,
    /// Batches of which there is anything.
    pub batches: u64,
    /// Batches between the first and the last of which nothing came. As a rule they were not sent,
    /// because their input was missing; those that this receiver missed count as well.
    pub batches_not_sent: u64,
    /// Data packets used.
    pub packets: u64,
    /// Payload bytes used.
    pub bytes: u64,
    /// Heaps that are whole.
    pub heaps: u64,
    /// Heaps of which some packets are missing.
    pub incomplete_heaps: u64,
    /// Heaps of which everything is missing, though others of their batch are there.
    pub missing_heaps: u64,
    /// Packets whose bytes were there already.
    pub duplicate_packets: u64,
    /// Packets of a second heap with the same timestamp and substream.
    pub duplicate_heap_packets: u64,
    /// Packets of heaps that disagree with the shape.
    pub wrong_size_packets: u64,
    /// Packets with a timestamp that is no multiple of the batch, or on an interface is far ahead
    /// of all others.
    pub bad_timestamp_packets: u64,
    /// Packets with another F-engine number, first channel or heap count than their destination's.
    pub misplaced_packets: u64,
    /// Packets of batches that later ones had closed already, on an interface.
    pub late_packets: u64,
    /// Packets after the stop heap of their substream. On an interface, those of an engine that
    /// begins again with descriptors are none.
    pub packets_after_stop: u64,
    /// Heap counts used more than once.
    pub repeated_heap_counts: u64,
    /// Heap counts that are left out between the lowest and the highest.
    pub missing_heap_counts: u64,
    /// Descriptor heaps.
    pub descriptor_heaps: u64,
    /// Stop heaps.
    pub stop_heaps: u64,
    /// Substreams that had one, on an interface since the engine was last started again.
    pub stopped_substreams: u64,
    /// Mean power per polarisation in dB relative to one count, over all channels.
    pub mean_power_db: [Option<f64>; 2],
    /// Files written.
    pub files: Vec<String>,
    /// What the inverse of its filter bank came to, if that was asked for.
    pub synthesis: Option<SynthesisReport>,
    /// What is wrong, in words.
    pub problems: Vec<String>,
    /// What is worth knowing.
    pub notes: Vec<String>,
}

/// Samples that spectra were made of.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SynthesisReport {
    /// The array: (sample, polarisation), real for wideband, complex for narrowband. Samples that
    /// depend on heaps which did not come are no numbers.
    pub file: String,
    /// Samples per polarisation: all that successive batches have every spectrum of.
    pub samples: u64,
    /// Timestamp of the first, in delayed time; before the first batch's by what the filter needs.
    pub first_timestamp: i64,
    /// ADC samples from sample to sample.
    pub step: u64,
    /// Batches that they are of: the longest run without gaps.
    pub batches: u64,
    /// By how much noise of the spectra, such as that of quantisation, is stronger in the samples,
    /// relative to white noise that went through both.
    pub noise_db: f64,
}

impl fmt::Display for SinkReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {}, {}",
            self.capture,
            self.format,
            counted(self.frames, "frame")
        )?;
        write_ignored(f, &self.ignored)?;
        for stream in &self.streams {
            write!(f, "{stream}")?;
        }
        if self.truncated {
            writeln!(f, "the capture ends within a frame")?;
        }
        write_verdict(f, self.problems().count(), self.streams.iter())
    }
}

impl StreamReport {
    /// How many batches there would be from the first to the last if the stream were wideband,
    /// where nothing says that it is not and batches are longer: one in so many may be missing.
    pub fn batches_if_wideband(&self) -> Option<u64> {
        let batch = 2 * self.channels * self.spectra_per_heap;
        let span = self.last_timestamp? - self.first_timestamp?;
        let longer = !self.batch_is_known && batch > 0 && self.batch_samples > batch;
        longer.then(|| span / batch + 1)
    }

    /// Which of it is nothing but zeros, if any is: whole, and of no use.
    fn zeros(&self) -> Option<String> {
        let name = &self.name;
        match self.mean_power_db {
            _ if self.heaps == 0 => None,
            [Some(_), Some(_)] => None,
            [None, None] => Some(format!("{name} is all zeros")),
            [first, _] => {
                let pol = usize::from(first.is_some());
                Some(format!("polarisation {pol} of {name} is all zeros"))
            }
        }
    }

    /// What is wrong with it, under its name.
    pub fn problems(&self) -> impl Iterator<Item = String> + '_ {
        self.problems.iter().map(|p| format!("{}: {p}", self.name))
    }
}

impl fmt::Display for StreamReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, true)
    }
}

impl StreamReport {
    /// Writes it as text; without heap counts where nobody has looked for those that are left out.
    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>, counts: bool) -> fmt::Result {
        let ends: Vec<_> = self.destinations.iter().flatten().collect();
        let range = match ends[..] {
            [] => "nowhere".to_owned(),
            [one] => one.to_string(),
            [first, .., last] => format!("{first} to {last}"),
        };
        writeln!(f, "{}: F-engine {}, {range}", self.name, self.feng_id)?;
        writeln!(
            f,
            "  shape      {} in {}, {} spectra per heap of {} bits, batches of {} samples",
            counted(self.channels, "channel"),
            counted(self.destinations.len() as u64, "substream"),
            self.spectra_per_heap,
            self.sample_bits.get(),
            self.batch_samples
        )?;
        if let (Some(first), Some(last)) = (self.first_timestamp, self.last_timestamp) {
            writeln!(
                f,
                "  batches    {} of {} from timestamp {first} to {last}, {} in between did not come",
                self.batches,
                self.batches + self.batches_not_sent,
                self.batches_not_sent
            )?;
            writeln!(
                f,
                "             of batches before or after these, nothing can be known"
            )?;
        }
        writeln!(
            f,
            "  heaps      {} whole, {} incomplete, {} missing; {}, {}",
            self.heaps,
            self.incomplete_heaps,
            self.missing_heaps,
            counted(self.packets, "packet"),
            counted(self.bytes, "byte")
        )?;
        let step = self
            .array_size
            .map_or("unknown".to_owned(), |a| a.to_string());
        if counts {
            writeln!(
                f,
                "  counts     step {step}, {} left out, {} repeated",
                self.missing_heap_counts, self.repeated_heap_counts
            )?;
        }
        writeln!(
            f,
            "  control    {} descriptor heaps, {} stop heaps",
            self.descriptor_heaps, self.stop_heaps
        )?;
        let [p0, p1] = self
            .mean_power_db
            .map(|db| db.map_or("none".to_owned(), |db| format!("{db:.2} dB")));
        writeln!(
            f,
            "  mean power pol 0 {p0}, pol 1 {p1} (relative to one count)"
        )?;
        for file in &self.files {
            writeln!(f, "  wrote      {file}")?;
        }
        if let Some(of) = &self.synthesis {
            writeln!(
                f,
                "  samples    {} per polarisation, {} ADC samples apart, from timestamp {}, of {} batches; noise of quantisation {:+.1} dB",
                of.samples, of.step, of.first_timestamp, of.batches, of.noise_db
            )?;
        }
        for note in &self.notes {
            writeln!(f, "  note       {note}")?;
        }
        for problem in &self.problems {
            writeln!(f, "  PROBLEM    {problem}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Line<'a>(&'a StreamReport);

    impl fmt::Display for Line<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write_verdict(f, 0, std::iter::once(self.0))
        }
    }

    #[test]
    fn the_verdict_doubts_batches_that_are_longer_than_wideband_ones() {
        let mut stream = StreamReport {
            name: "s0".to_owned(),
            channels: 64,
            spectra_per_heap: 8,
            batch_samples: 2048,
            first_timestamp: Some(10 * 2048),
            last_timestamp: Some(15 * 2048),
            batches: 6,
            ..StreamReport::default()
        };
        let clean = "clean: what came is whole and right";
        let doubt = "; s0 is narrowband, or 6 of its 11 batches came";
        assert_eq!(Line(&stream).to_string(), format!("{clean}{doubt}"));
        stream.batch_is_known = true;
        assert_eq!(Line(&stream).to_string(), clean);
        (stream.batch_samples, stream.batches_not_sent) = (1024, 5);
        let known = format!("{clean}; 6 of 11 batches came");
        assert_eq!(Line(&stream).to_string(), known);
    }

    #[test]
    fn the_verdict_says_what_is_all_zeros() {
        let mut stream = StreamReport {
            name: "s0".to_owned(),
            batches: 1,
            heaps: 4,
            ..StreamReport::default()
        };
        let clean = "clean: what came is whole and right";
        for (power, zeros) in [
            ([None, None], "; s0 is all zeros"),
            ([None, Some(1.0)], "; polarisation 0 of s0 is all zeros"),
            ([Some(1.0), None], "; polarisation 1 of s0 is all zeros"),
            ([Some(1.0), Some(1.0)], ""),
        ] {
            stream.mean_power_db = power;
            assert_eq!(Line(&stream).to_string(), format!("{clean}{zeros}"));
        }
        // Of what did not come, nothing is known.
        (stream.heaps, stream.mean_power_db) = (0, [None, None]);
        assert_eq!(Line(&stream).to_string(), clean);
    }
}
