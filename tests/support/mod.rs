//! What the integration tests share: running the binary, and reading captures independently of its
//! receivers.
#![allow(dead_code, missing_docs)]

pub mod browser;
pub mod documents;
pub mod gpu;
pub mod host;
pub mod python;
pub mod rig;

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use dsp::delay::DelayModels;
use dsp::unpack::{pack, unpack};
use dsp::{Dither, OutputBits, SampleBits, WindowFunction};
use ground::Timestamp;
use karoo::config::{OutputConfig, WidebandOptions};
use karoo::engine::OutputChunk;
use karoo::gpu::{Gpu, GpuError};
use karoo::memory::{BatchStats, ChunkAllocator, HostAllocator, OutputMemory, SampleView};
use karoo::model::Model;
use karoo::net::{CaptureReader, Datagram};
use num_complex::Complex32;
use serde_json::Value;
use spead::{DigitiserHeap, Packet, SpectraRepr, StopRepr, descriptor};

/// Runs the binary.
pub fn karoo<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Output {
    Command::new(env!("CARGO_BIN_EXE_karoo"))
        .args(args)
        .env_remove("RUST_LOG")
        .output()
        .expect("the binary starts")
}

/// Runs the binary and insists on success. Returns standard output.
pub fn karoo_ok<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> String {
    let output = karoo(args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

/// Shape and numbers of an array in a file of numpy's.
pub fn array<T: npyz::Deserialize>(path: &Path) -> (Vec<u64>, Vec<T>) {
    let bytes = std::fs::read(path).unwrap();
    let npy = npyz::NpyFile::new(&bytes[..]).unwrap();
    (npy.shape().to_vec(), npy.into_vec().unwrap())
}

/// Says what a test lacks that passes without it. The words of tests that pass are not shown, so
/// `scripts/run-tests` also has a line of each, in the file that KAROO_TEST_LEFT_OUT names.
pub fn left_out(what: &str) {
    println!("{what}");
    let Some(path) = std::env::var_os("KAROO_TEST_LEFT_OUT") else {
        return;
    };
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a thread");
    let words: Vec<&str> = what.split_whitespace().collect();
    let line = format!(
        "{}\t{test}\t{}\n",
        env!("CARGO_CRATE_NAME"),
        words.join(" ")
    );
    // One write, so that lines of several processes do not mix.
    let file = OpenOptions::new().append(true).create(true).open(path);
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    if let Err(error) = written {
        println!("KAROO_TEST_LEFT_OUT: {error}");
    }
}

/// What the binary said in JSON.
pub fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Insists on this exit code, and on `wanted` in what the binary said.
pub fn refused(output: &Output, code: i32, wanted: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{wanted}: {said}");
    assert!(said.contains(wanted), "{wanted}: {said}");
}

/// Both polarisations' packed samples, the first of which is number `start`.
pub fn view(start: Timestamp, samples: usize, packed: &[Vec<u8>; 2]) -> SampleView<'_> {
    SampleView {
        start,
        samples,
        pol: [&packed[0], &packed[1]],
        device: None,
    }
}

/// Distance from a tie below which either neighbour is right.
const TIE: f64 = 0.01;

/// Replays a capture without summary, and insists on success.
pub fn replay(capture: &Path, output: &Path, wideband: &[&str], options: &[&str]) {
    karoo_ok(replay_args(capture, output, wideband, options));
}

fn replay_args<'a>(
    capture: &'a Path,
    output: &'a Path,
    wideband: &[&'a str],
    options: &[&'a str],
) -> Vec<&'a str> {
    let mut args = vec![
        "replay",
        capture.to_str().unwrap(),
        "--output",
        output.to_str().unwrap(),
    ];
    for wideband in wideband {
        args.extend(["--wideband", wideband]);
    }
    args.extend(["--sync-time", "1763700000", "--quiet"]);
    args.extend(options);
    args
}

/// Replays a capture with one output. Returns the output and `report.json`. Insists on success if
/// anything came out, and that a replay of which nothing came out says so.
pub fn replay_report(
    capture: &Path,
    wideband: &str,
    options: &[&str],
) -> (Stream, serde_json::Value) {
    let folder = tempfile::tempdir().expect("a folder");
    let (out, report) = (folder.path().join("out.pcap"), folder.path().join("report"));
    let options = [options, &["--report", report.to_str().expect("text")]].concat();
    let ended = karoo(replay_args(capture, &out, &[wideband], &options));
    let mut streams = read_output(&out);
    let report = std::fs::read(report.join("report.json")).expect("a report");
    let report = serde_json::from_slice(&report).expect("JSON");
    let stream = streams.remove(&49152).expect("the stream");
    let (nothing, errors) = (
        stream.batches.is_empty(),
        String::from_utf8_lossy(&ended.stderr),
    );
    assert_eq!(ended.status.code(), Some(nothing.into()), "{errors}");
    assert_eq!(errors.contains("no batch came out"), nothing, "{errors}");
    (stream, report)
}

/// The output that a `--wideband` value asks for.
pub fn output_config(wideband: &str) -> OutputConfig {
    wideband
        .parse::<WidebandOptions>()
        .expect("options")
        .into_config(1 << 20, 0)
}

/// Every byte of every batch is the model's value rounded half to even, but near ties.
pub fn check_against_model(
    samples: &Samples,
    output: &OutputConfig,
    batches: &BTreeMap<u64, Vec<i8>>,
    delays: &[DelayModels; 2],
    gain: f32,
) {
    let model = Model::new(output, 0);
    let gains = [0, 1].map(|_| vec![Complex32::from(gain); output.channels]);
    let source = |pol: usize, t: u64| samples.at(pol, t);
    let limit = f64::from(output.sample_bits.limit());
    let mut exact = 0u64;
    let mut all = 0u64;
    for (&timestamp, batch) in batches {
        for s in 0..output.spectra_per_heap() {
            let t = Timestamp(timestamp + (s * output.spectrum_samples()) as u64);
            let spectrum = model.spectrum(&source, t, delays, &gains);
            for k in 0..output.channels {
                for (pol, bins) in spectrum.iter().enumerate() {
                    for (part, value) in [bins[k].re, bins[k].im].into_iter().enumerate() {
                        let at = ((k * output.spectra_per_heap() + s) * 2 + pol) * 2 + part;
                        let value = value.clamp(-limit, limit);
                        let expected = value.round_ties_even();
                        let got = f64::from(batch[at]);
                        let tie = (value - value.floor() - 0.5).abs() <= TIE;
                        let right = got == expected || tie && (got - value).abs() <= 0.5 + TIE;
                        assert!(right, "t {t}, channel {k}, pol {pol}: {got}, model {value}");
                        exact += u64::from(got == expected);
                        all += 1;
                    }
                }
            }
        }
    }
    assert!(exact as f64 > 0.99 * all as f64, "{exact} of {all}");
}

pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

/// Range of timestamps on the wire.
pub const WIRE_RANGE: u64 = 1 << 48;

/// Digitiser samples of a capture, per polarisation and heap. Timestamps go on where the wire's
/// wrap; the first of duplicates counts.
pub struct Samples {
    heap_samples: u64,
    /// The first heap's.
    first: u64,
    heaps: [Vec<Option<Vec<i32>>>; 2],
}

impl Samples {
    pub fn read(path: &Path, bits: u32, heap_samples: u64) -> Self {
        let bits = SampleBits::new(bits).expect("a valid width");
        let mut reader = CaptureReader::open(path).expect("a capture");
        let mut heaps: [BTreeMap<u64, Vec<i32>>; 2] = Default::default();
        let mut newest = 0;
        while let Some(frame) = reader.next_frame().expect("whole frames") {
            let Ok(datagram) = Datagram::new_checked(frame.bytes) else {
                continue;
            };
            let Ok(heap) = DigitiserHeap::new_checked(datagram.payload()) else {
                continue;
            };
            let Some(mut timestamp) = heap.timestamp() else {
                continue;
            };
            if timestamp + WIRE_RANGE / 2 < newest {
                timestamp += WIRE_RANGE;
            }
            newest = newest.max(timestamp);
            let whole = heap.heap_length() == bits.bytes(heap_samples as usize);
            if whole && timestamp % heap_samples == 0 {
                heaps[heap.pol()]
                    .entry(timestamp)
                    .or_insert_with(|| unpack(heap.payload(), bits).collect());
            }
        }
        let first = heaps.iter().filter_map(|heaps| heaps.keys().next());
        let first = *first.min().expect("heaps");
        let heaps = heaps.map(|heaps| {
            let mut dense = Vec::new();
            for (timestamp, samples) in heaps {
                dense.resize(((timestamp - first) / heap_samples) as usize, None);
                dense.push(Some(samples));
            }
            dense
        });
        Self {
            heap_samples,
            first,
            heaps,
        }
    }

    /// The heap that has sample `t`, and the sample's place in it.
    fn heap(&self, pol: usize, t: u64) -> Option<(&[i32], usize)> {
        let after = t.checked_sub(self.first)?;
        let heap = self.heaps[pol].get((after / self.heap_samples) as usize)?;
        Some((heap.as_deref()?, (after % self.heap_samples) as usize))
    }

    /// The sample, zero where there is none.
    pub fn at(&self, pol: usize, t: u64) -> i32 {
        self.heap(pol, t).map_or(0, |(heap, place)| heap[place])
    }

    /// Whether all samples of `first .. first + count` are there.
    pub fn present(&self, pol: usize, first: u64, count: u64) -> bool {
        let start = first / self.heap_samples * self.heap_samples;
        (start..first + count)
            .step_by(self.heap_samples as usize)
            .all(|t| self.heap(pol, t).is_some())
    }

    pub fn first(&self) -> u64 {
        self.first
    }

    pub fn end(&self) -> u64 {
        let heaps = self.heaps.iter().map(Vec::len).max();
        self.first + heaps.unwrap_or(0) as u64 * self.heap_samples
    }

    /// Output timestamps at zero delay of the batches whose whole input is there.
    pub fn whole_batches(&self, batch_samples: u64, window: u64, spectrum: u64) -> Vec<u64> {
        let union = batch_samples - spectrum + window;
        (self.first().next_multiple_of(batch_samples)..self.end())
            .step_by(batch_samples as usize)
            .filter(|&t| (0..2).all(|pol| self.present(pol, t, union)))
            .collect()
    }
}

/// One output stream of a capture.
#[derive(Default)]
pub struct Stream {
    /// Timestamp to the batch in wire layout, heaps in order of first channel.
    pub batches: BTreeMap<u64, Vec<i8>>,
    /// Heap counts in order of appearance, descriptors and stop heaps included.
    pub heap_counts: Vec<u64>,
    pub descriptor_heaps: usize,
    pub stop_heaps: usize,
}

/// Reads output streams back, keyed by source port; panics on anything incomplete.
pub fn read_output(path: &Path) -> BTreeMap<u16, Stream> {
    let mut reader = CaptureReader::open(path).expect("a capture");
    let mut streams: BTreeMap<u16, Stream> = BTreeMap::new();
    let mut heaps: BTreeMap<(u16, u64, u64), Vec<Option<i8>>> = BTreeMap::new();
    while let Some(frame) = reader.next_frame().expect("whole frames") {
        let datagram = Datagram::new_checked(frame.bytes).expect("UDP");
        let packet = Packet::new_checked(datagram.payload()).expect("SPEAD");
        let port = datagram.src().port();
        let stream = streams.entry(port).or_default();
        if stream.heap_counts.last() != Some(&packet.heap_count())
            && !stream.heap_counts.contains(&packet.heap_count())
        {
            stream.heap_counts.push(packet.heap_count());
        }
        if let Some(repr) = SpectraRepr::parse(&packet).expect("consistent") {
            let heap = heaps
                .entry((port, repr.timestamp, repr.first_channel))
                .or_insert_with(|| vec![None; repr.heap_length as usize]);
            let offset = repr.payload_offset as usize;
            for (byte, &value) in heap[offset..].iter_mut().zip(packet.payload()) {
                assert!(byte.replace(value as i8).is_none(), "payload sent twice");
            }
        } else if StopRepr::parse(&packet).is_some() {
            stream.stop_heaps += 1;
        } else {
            assert_eq!(
                descriptor::parse_heap(&packet)
                    .filter(Result::is_ok)
                    .count(),
                4
            );
            stream.descriptor_heaps += 1;
        }
    }
    for ((port, timestamp, _), heap) in heaps {
        let batch = streams
            .entry(port)
            .or_default()
            .batches
            .entry(timestamp)
            .or_default();
        batch.extend(heap.into_iter().map(|byte| byte.expect("a whole heap")));
    }
    streams
}

/// An output with the usual filter and one destination.
pub fn output(
    channels: usize,
    taps: usize,
    spectra_per_heap: usize,
    dither: Dither,
) -> OutputConfig {
    OutputConfig {
        name: "wideband".into(),
        channels,
        dst: vec!["239.1.2.3:7148".parse().expect("an endpoint")],
        jones_per_batch: channels * spectra_per_heap,
        taps,
        w_cutoff: 1.0,
        window_function: WindowFunction::Hann,
        oversampling: dsp::Oversampling::NONE,
        dither,
        dither_seed: 0x0123_4567_89AB_CDEF,
        sample_bits: OutputBits::Eight,
        narrowband: None,
    }
}

/// An empty output chunk of `batches` batches from timestamp `start`.
pub fn output_chunk(config: &OutputConfig, batches: usize, start: Timestamp) -> OutputChunk {
    output_chunk_in(&HostAllocator::default(), config, batches, start)
}

/// The same in other memory.
pub fn output_chunk_in(
    allocator: &dyn ChunkAllocator,
    config: &OutputConfig,
    batches: usize,
    start: Timestamp,
) -> OutputChunk {
    let memory = OutputMemory::new(batches, config.batch_bytes(), allocator);
    let mut memory = memory.expect("memory");
    memory.begin(start);
    OutputChunk::lone(memory)
}

/// Bytes and counts of the batches of a chunk.
pub fn contents(chunk: &OutputMemory) -> (Vec<u8>, Vec<BatchStats>) {
    let batches = 0..chunk.batches();
    let data = batches
        .clone()
        .flat_map(|batch| chunk.batch(batch))
        .copied();
    (
        data.collect(),
        batches.map(|batch| *chunk.stats(batch)).collect(),
    )
}

/// Samples as a backend reads them: packed, with the padding behind them.
pub fn packed(samples: impl IntoIterator<Item = i32>, bits: u32) -> Vec<u8> {
    let bits = SampleBits::new(bits).expect("a sample width");
    let mut packed = pack(samples, bits);
    packed.resize(packed.len() + SampleView::PADDING, 0);
    packed
}

/// The GPU; where there is none, says so.
pub fn device() -> Option<Arc<Gpu>> {
    match Gpu::open() {
        Ok(gpu) => Some(gpu),
        Err(error @ (GpuError::NoDriver | GpuError::NoDevice(_))) => {
            left_out(&format!("no CUDA device: {error}"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}
