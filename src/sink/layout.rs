//! The first pass: which streams a capture holds.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;

use dsp::OutputBits;
use ground::Timestamp;
use spead::descriptor::ElementType;

use super::grid::{Grid, Known};
use super::group::{self, Arrived, Group};
use super::{Kind, Route, SinkError, SinkOptions, SinkReport, counts, walk};

/// More channels than any F-engine has: the shape is wrong.
pub(super) const MAX_CHANNELS: u64 = 1 << 20;
/// More bytes than any heap has: the shape is wrong.
const MAX_HEAP_BYTES: u64 = 1 << 32;

/// One output stream: a run of destinations that share the channels of one F-engine's output.
#[derive(Clone, Debug)]
pub struct Layout {
    /// `stream0`, `stream1`, … in the order of source and destination.
    pub name: String,
    /// F-engine number.
    pub feng_id: u64,
    /// Channels of the whole stream.
    pub channels: u64,
    /// Channels of one substream.
    pub channels_per_substream: u64,
    /// Spectra in one heap.
    pub spectra_per_heap: u64,
    /// Width of real and imaginary parts.
    pub bits: OutputBits,
    /// By substream number; None where nothing was captured.
    pub destinations: Vec<Option<SocketAddrV4>>,
    /// By substream number, where its packets come from and go to.
    pub routes: Vec<Vec<Route>>,
    /// Timestamps of all batches of which there is anything, ascending, also where those on the
    /// wire wrap; the least that are multiples of the batch.
    pub batches: Vec<u64>,
    /// Step of heap counts, unless there is a single heap.
    pub array_size: Option<u64>,
    /// Heap counts of descriptor and stop heaps.
    pub control_counts: Vec<u64>,
    /// What timestamps are multiples of: ADC samples of a wideband batch, as those of narrowband
    /// streams are; of an oversampled stream, of its batch.
    pub batch_samples: u64,
    /// Whether it is of the output whose filter bank is to be inverted, by its timestamps.
    pub synthesised: bool,
    /// Descriptor heaps by substream.
    pub descriptor_heaps: Vec<u64>,
    /// Stop heaps by substream.
    pub stop_heaps: Vec<u64>,
}

impl Layout {
    /// Bytes of one heap.
    pub fn heap_bytes(&self) -> u64 {
        self.channels_per_substream * self.spectra_per_heap * self.bits.jones_bytes() as u64
    }

    /// Bytes of one batch, all substreams.
    pub fn batch_bytes(&self) -> u64 {
        self.channels * self.spectra_per_heap * self.bits.jones_bytes() as u64
    }

    /// Descriptor heaps by substream, and stop heaps, each with their name.
    pub fn control_heaps(&self) -> [(&[u64], &'static str); 2] {
        [
            (&self.descriptor_heaps, "descriptor heaps"),
            (&self.stop_heaps, "stop heaps"),
        ]
    }

    /// ADC samples in a wideband batch.
    pub fn wideband_samples(&self) -> u64 {
        2 * self.channels * self.spectra_per_heap
    }

    /// Takes what came to each destination, timestamps as they came; returns all heap counts.
    fn fill(&mut self, group: Group) -> Vec<u64> {
        let mut counts = Vec::new();
        let mut next = 0;
        for ((port, ip), sub) in group {
            let dst = SocketAddrV4::new(ip, port);
            let index = match sub.first_channel {
                Some(first) => (first / self.channels_per_substream) as usize,
                None => next,
            };
            next = index + 1;
            if index < self.destinations.len() {
                self.destinations[index] = Some(dst);
                let routes = sub.sources.iter().map(|&source| (source, dst));
                self.routes[index] = routes.collect();
                self.descriptor_heaps[index] = sub.descriptor_heaps;
                self.stop_heaps[index] = sub.stop_heaps;
            }
            counts.extend(sub.counts);
            counts.extend(&sub.control_counts);
            self.control_counts.extend(sub.control_counts);
            self.batches.extend(sub.timestamps);
        }
        counts
    }
}

/// Finds the streams of a capture. The report has everything but the streams.
pub fn survey(
    capture: &Path,
    options: &SinkOptions,
) -> Result<(Vec<Layout>, SinkReport), SinkError> {
    let mut found: BTreeMap<Route, Arrived> = BTreeMap::new();
    let mut report = SinkReport {
        capture: capture.display().to_string(),
        ..SinkReport::default()
    };
    let walked = walk(capture, |heap| {
        report.frames += 1;
        match heap {
            Ok((_, Kind::Other)) => *report.ignored.entry("other-spead".into()).or_default() += 1,
            Ok((route, kind)) => found.entry(route).or_default().add(&kind),
            Err(cause) => *report.ignored.entry(cause.into()).or_default() += 1,
        }
        Ok(())
    })?;
    report.format = walked.format.into();
    report.truncated = walked.truncated;

    // Descriptors of other senders, digitisers for instance, are not streams of ours.
    let mut merged = group::merge(group::by_engine(found, options.array_size));
    merged.retain(|_, s| {
        if !s.is_ours() {
            *report.ignored.entry("other-spead".into()).or_default() +=
                s.descriptor_heaps + s.stop_heaps;
        }
        s.is_ours()
    });
    if merged.is_empty() {
        let seen: Vec<_> = report
            .ignored
            .iter()
            .map(|(k, n)| format!("{n} {k}"))
            .collect();
        return Err(SinkError::NoSpectra {
            path: report.capture,
            frames: report.frames,
            seen: if seen.is_empty() {
                "it is empty".into()
            } else {
                seen.join(", ")
            },
        });
    }
    let streams = group::split(merged)
        .into_iter()
        .enumerate()
        .map(|(i, group)| layout(format!("stream{i}"), group, options))
        .collect::<Result<_, _>>()?;
    Ok((streams, report))
}

/// What the heaps of a stream are made of, and their place in it.
struct StreamShape {
    /// Channels of the whole stream.
    channels: u64,
    /// Channels of one substream.
    channels_per_substream: u64,
    /// Spectra in one heap.
    spectra_per_heap: u64,
    /// Width of real and imaginary parts.
    bits: OutputBits,
}

impl StreamShape {
    /// The shape that descriptors, options and the heaps themselves say; an error where no stream
    /// can have it.
    fn of(group: &Group, options: &SinkOptions) -> Result<Self, SinkError> {
        let first = group.keys().next().copied();
        let (port, ip) = first.unwrap_or((0, Ipv4Addr::UNSPECIFIED));
        let dst = SocketAddrV4::new(ip, port);
        let firsts: Vec<u64> = group.values().filter_map(|s| s.first_channel).collect();
        let described = group.values().find_map(|s| s.described.as_ref());
        let (channels_per_substream, spectra_per_heap, bits) = match described {
            Some((shape, element)) => shape_of(dst, shape, element)?,
            None => guess_shape(dst, group, &firsts, options)?,
        };
        let asked = options.of_shape();
        let wrong = |what: String, rule| match described {
            None if !asked.is_empty() => SinkError::AskedShape {
                options: asked.clone(),
                dst,
                what,
                rule,
            },
            _ => SinkError::Shape { dst, what, rule },
        };
        let too_big = channels_per_substream > MAX_CHANNELS
            || spectra_per_heap > MAX_HEAP_BYTES
            || channels_per_substream * spectra_per_heap * 4 > MAX_HEAP_BYTES;
        if channels_per_substream == 0 || spectra_per_heap == 0 || too_big {
            return Err(wrong(
                format!("heaps of {channels_per_substream} channels by {spectra_per_heap} spectra"),
                "a heap has at least one of both and at most 4 GiB",
            ));
        }
        // The last substreams may be missing: a stream has a power of two of channels.
        let end = match firsts.last() {
            Some(first) => first.saturating_add(channels_per_substream),
            None => channels_per_substream.saturating_mul(group.len() as u64),
        };
        let channels = match (described, options.channels) {
            (None, Some(channels)) => channels,
            _ => end.checked_next_power_of_two().unwrap_or(u64::MAX),
        };
        if channels > MAX_CHANNELS || end > channels || channels % channels_per_substream != 0 {
            return Err(wrong(
                format!("{channels} channels, its heaps reach channel {end}"),
                "a stream has at most 2^20 channels, a whole number of heaps side by side",
            ));
        }
        if let Some(first) = firsts.iter().find(|&&f| f % channels_per_substream != 0) {
            return Err(wrong(
                format!(
                    "heaps that begin at channel {first} and have {channels_per_substream} channels"
                ),
                "heaps begin at multiples of their number of channels",
            ));
        }
        Ok(Self {
            channels,
            channels_per_substream,
            spectra_per_heap,
            bits,
        })
    }
}

fn layout(name: String, group: Group, options: &SinkOptions) -> Result<Layout, SinkError> {
    let shape = StreamShape::of(&group, options)?;
    let substreams = (shape.channels / shape.channels_per_substream) as usize;
    let mut layout = Layout {
        name,
        feng_id: group.values().find_map(|s| s.feng_id).unwrap_or(0),
        channels: shape.channels,
        channels_per_substream: shape.channels_per_substream,
        spectra_per_heap: shape.spectra_per_heap,
        bits: shape.bits,
        destinations: vec![None; substreams],
        routes: vec![Vec::new(); substreams],
        batches: Vec::new(),
        array_size: None,
        batch_samples: 0,
        synthesised: false,
        control_counts: Vec::new(),
        descriptor_heaps: vec![0; substreams],
        stop_heaps: vec![0; substreams],
    };
    let counts = layout.fill(group);
    unwrap(&mut layout.batches);
    layout.batches.sort_unstable();
    layout.batches.dedup();
    let asked = options.synthesis.map(|synthesis| {
        let samples = synthesis.spectrum_samples(layout.channels as usize) as u64;
        (samples * layout.spectra_per_heap).max(1)
    });
    let known = Known {
        wideband: layout.wideband_samples(),
        spectra: layout.spectra_per_heap,
        asked,
    };
    let (grid, synthesised) = Grid::find(&layout.batches, known);
    grid.keep(&mut layout.batches);
    (layout.batch_samples, layout.synthesised) = (grid.samples, synthesised);
    layout.array_size = options.array_size.or_else(|| counts::step(&counts));
    Ok(layout)
}

/// Makes timestamps go on where those on the wire wrap; a capture takes less than half of their
/// range.
fn unwrap(timestamps: &mut [u64]) {
    let Some(&first) = timestamps.first() else {
        return;
    };
    // A range later, so that those before the first are not before 0.
    let near = Timestamp(first + Timestamp::WIRE_RANGE);
    for timestamp in timestamps.iter_mut() {
        *timestamp = Timestamp::unwrap(*timestamp, near).0;
    }
    if timestamps.iter().all(|&t| t >= Timestamp::WIRE_RANGE) {
        timestamps
            .iter_mut()
            .for_each(|t| *t -= Timestamp::WIRE_RANGE);
    }
}

/// Channels and spectra of a heap, and their width, as its descriptor says.
pub(super) fn shape_of(
    dst: SocketAddrV4,
    shape: &[Option<u64>],
    element: &ElementType,
) -> Result<(u64, u64, OutputBits), SinkError> {
    let wrong = |what: String, rule| SinkError::Shape { dst, what, rule };
    let bits = match element {
        ElementType::Numpy { descr, .. } if descr.ends_with("i1") => Some(OutputBits::Eight),
        ElementType::Format(fields) => match fields[..] {
            [('i', bits)] => OutputBits::new(bits.into()),
            _ => None,
        },
        ElementType::Numpy { .. } => None,
    };
    let Some(bits) = bits else {
        return Err(wrong(
            format!("feng_raw of type {element:?}"),
            "only spectra of 8 and of 4 bits can be read",
        ));
    };
    match *shape {
        [Some(channels), Some(spectra), Some(2), Some(2)] => Ok((channels, spectra, bits)),
        _ => Err(wrong(
            format!("feng_raw of shape {shape:?}"),
            "its axes are channels, spectra, 2 polarisations, and real and imaginary part",
        )),
    }
}

/// Channels and spectra of a heap, from options and from what the heaps themselves say. They have 8
/// bits, unless the options leave room for 4 only.
fn guess_shape(
    dst: SocketAddrV4,
    group: &Group,
    firsts: &[u64],
    options: &SinkOptions,
) -> Result<(u64, u64, OutputBits), SinkError> {
    let heap_bytes = group.values().map(|s| s.heap_bytes).max().unwrap_or(0);
    let jones = heap_bytes / 4;
    let per_substream = match (options.channels, options.substreams) {
        (Some(channels), Some(substreams)) => channels.checked_div(substreams),
        _ => firsts.windows(2).map(|w| w[1] - w[0]).min(),
    };
    let per_substream = per_substream
        .or_else(|| jones.checked_div(options.spectra_per_heap?))
        .ok_or(SinkError::Unknown {
            dst,
            option: "--spectra-per-heap, or --channels and --substreams",
        })?;
    let spectra = options
        .spectra_per_heap
        .or_else(|| jones.checked_div(per_substream))
        .unwrap_or(0);
    let bits = match per_substream.checked_mul(spectra) == Some(2 * jones) {
        true => OutputBits::Four,
        false => OutputBits::Eight,
    };
    Ok((per_substream, spectra, bits))
}
