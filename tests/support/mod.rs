//! What the integration tests share: running the binary, and reading captures independently of its receivers.
#![allow(dead_code, missing_docs)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use karoo::config::SampleBits;
use karoo::dsp::unpack::unpack;
use karoo::net::{CaptureReader, Datagram};
use karoo::spead::{DigitiserHeap, Packet, SpectraRepr, StopRepr, descriptor};

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

pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

/// Digitiser samples of a capture, per polarisation by heap timestamp; the first of duplicates counts.
pub struct Samples {
    heap_samples: u64,
    heaps: [BTreeMap<u64, Vec<i32>>; 2],
}

impl Samples {
    pub fn read(path: &Path, bits: u32, heap_samples: u64) -> Self {
        let bits = SampleBits::new(bits).expect("a valid width");
        let mut reader = CaptureReader::open(path).expect("a capture");
        let mut heaps: [BTreeMap<u64, Vec<i32>>; 2] = Default::default();
        while let Some(frame) = reader.next_frame().expect("whole frames") {
            let Ok(datagram) = Datagram::new_checked(frame.bytes) else {
                continue;
            };
            let Ok(heap) = DigitiserHeap::new_checked(datagram.payload()) else {
                continue;
            };
            let Some(timestamp) = heap.timestamp() else {
                continue;
            };
            if heap.heap_length() == bits.bytes(heap_samples as usize) {
                heaps[heap.pol()]
                    .entry(timestamp)
                    .or_insert_with(|| unpack(heap.payload(), bits).collect());
            }
        }
        Self {
            heap_samples,
            heaps,
        }
    }

    /// The sample, zero where there is none.
    pub fn at(&self, pol: usize, t: u64) -> i32 {
        let start = t / self.heap_samples * self.heap_samples;
        self.heaps[pol]
            .get(&start)
            .map_or(0, |heap| heap[(t - start) as usize])
    }

    /// Whether all samples of `first .. first + count` are there.
    pub fn present(&self, pol: usize, first: u64, count: u64) -> bool {
        let start = first / self.heap_samples * self.heap_samples;
        (start..first + count)
            .step_by(self.heap_samples as usize)
            .all(|t| self.heaps[pol].contains_key(&t))
    }

    pub fn first(&self) -> u64 {
        self.heaps
            .iter()
            .filter_map(|heaps| heaps.keys().next())
            .min()
            .copied()
            .expect("heaps")
    }

    pub fn end(&self) -> u64 {
        let last = self
            .heaps
            .iter()
            .filter_map(|heaps| heaps.keys().last())
            .max();
        last.expect("heaps") + self.heap_samples
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
