//! What the head of a capture tells about the digitisers behind it.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddrV4;
use std::path::Path;

use ground::{N_POL, SampleClock, Timestamp};
use spead::DigitiserHeap;

use crate::net::{CaptureError, CaptureReader, Datagram, is_read_once};
use crate::recv::DropCause;

/// Frames looked at.
const SCAN_FRAMES: u64 = 65536;

/// A capture that cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// The file itself.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// It can be read only once.
    #[error("{0} is not a regular file; a replay reads its capture twice: save it to a file first")]
    NotAFile(String),
    /// It holds files.
    #[error("{0} is a folder: give a capture in it")]
    Folder(String),
    /// Nothing in it comes from a digitiser.
    #[error(
        "{path}: no digitiser heaps in the first {frames} frames ({found}); \
         replay needs SPEAD heaps with timestamp, digitiser_id and adc_samples over UDP"
    )]
    NoHeaps {
        /// File.
        path: String,
        /// Frames looked at.
        frames: u64,
        /// What was there instead.
        found: String,
    },
}

/// The geometry of the first heaps of a capture.
#[derive(Clone, Debug, PartialEq)]
pub struct CaptureScan {
    /// Most frequent payload length of digitiser heaps, in bytes.
    pub heap_bytes: usize,
    /// Most frequent step between timestamps of one polarisation, in samples; `None` if only one
    /// came.
    pub heap_samples: Option<u64>,
    /// Low 48 bits of the first heap's timestamp.
    pub first_timestamp: u64,
    /// UNIX time of the frame with the first heap, in nanoseconds.
    pub first_time_ns: u64,
    /// Destinations with digitiser heaps, per polarisation, in order of address.
    pub sources: [Vec<SocketAddrV4>; N_POL],
    /// Heaps per polarisation in the whole file, by its size.
    pub estimated_heaps: u64,
}

/// One kind of heap seen.
#[derive(Default)]
struct Seen {
    /// First heap: timestamp and time of its frame.
    first: Option<(u64, u64)>,
    timestamps: [Vec<u64>; N_POL],
    destinations: BTreeMap<SocketAddrV4, [u64; N_POL]>,
}

impl CaptureScan {
    /// Reads the head of `path`.
    pub fn new(path: &Path) -> Result<Self, ScanError> {
        // A missing file is the reader's to name.
        let name = || path.display().to_string();
        if path.is_dir() {
            return Err(ScanError::Folder(name()));
        }
        if is_read_once(path) {
            return Err(ScanError::NotAFile(name()));
        }
        let mut reader = CaptureReader::open(path)?;
        let mut by_length: HashMap<usize, Seen> = HashMap::new();
        let mut causes: BTreeMap<&'static str, u64> = BTreeMap::new();
        let mut frames = 0;
        while let Some(frame) = reader.next_frame()? {
            let datagram = Datagram::new_checked(frame.bytes).map_err(|e| DropCause::from(&e));
            let heap = datagram.and_then(|datagram| {
                let heap = DigitiserHeap::new_checked(datagram.payload());
                heap.map(|heap| (datagram.dst(), heap))
                    .map_err(|e| DropCause::from(&e))
            });
            match heap {
                Ok((dst, heap)) => match (heap.timestamp(), heap.digitiser_id()) {
                    (Some(timestamp), Some(_)) => {
                        let seen = by_length.entry(heap.heap_length()).or_default();
                        seen.first.get_or_insert((timestamp, frame.time_ns));
                        seen.timestamps[heap.pol()].push(timestamp);
                        seen.destinations.entry(dst).or_default()[heap.pol()] += 1;
                    }
                    _ => {
                        *causes
                            .entry("heap without timestamp or digitiser_id")
                            .or_default() += 1
                    }
                },
                Err(cause) => *causes.entry(cause.name()).or_default() += 1,
            }
            frames += 1;
            if frames == SCAN_FRAMES {
                break;
            }
        }
        let most = by_length.into_iter().max_by_key(|(bytes, seen)| {
            (seen.timestamps.iter().map(Vec::len).sum::<usize>(), *bytes)
        });
        let Some((heap_bytes, mut seen)) = most else {
            let found: Vec<_> = causes
                .iter()
                .map(|(cause, count)| format!("{count} {cause}"))
                .collect();
            let found = if found.is_empty() {
                "it has no frames".into()
            } else {
                found.join(", ")
            };
            return Err(ScanError::NoHeaps {
                path: path.display().to_string(),
                frames,
                found,
            });
        };
        let (first_timestamp, first_time_ns) = seen.first.unwrap_or_default();
        let (read, total) = reader.progress();
        let scanned = seen.timestamps.iter().map(Vec::len).max().unwrap_or(0) as u64;
        Ok(Self {
            heap_bytes,
            heap_samples: usual_step(&mut seen.timestamps),
            first_timestamp,
            first_time_ns,
            estimated_heaps: scanned.saturating_mul(total.max(read)) / read.max(1),
            sources: [0, 1].map(|pol| {
                let of_pol = |(&dst, counts): (&SocketAddrV4, &[u64; N_POL])| {
                    (usize::from(counts[1] > counts[0]) == pol).then_some(dst)
                };
                seen.destinations.iter().filter_map(of_pol).collect()
            }),
        })
    }
}

impl CaptureScan {
    /// Timestamp of the first heap, of which packets have 48 bits: the one that agrees with its
    /// frame's time, if one does, else these bits as they are.
    pub fn first_whole(&self, clock: SampleClock) -> Timestamp {
        let moment = clock.at(self.first_time_ns as f64 * 1e-9);
        let whole = moment.and_then(|moment| clock.agreeing(self.first_timestamp, moment));
        whole.unwrap_or(Timestamp(self.first_timestamp))
    }
}

/// The most frequent distance between neighbouring timestamps.
fn usual_step(timestamps: &mut [Vec<u64>; N_POL]) -> Option<u64> {
    let mut steps: BTreeMap<u64, u64> = BTreeMap::new();
    for timestamps in timestamps {
        timestamps.sort_unstable();
        timestamps.dedup();
        for pair in timestamps.windows(2) {
            *steps.entry(pair[1] - pair[0]).or_default() += 1;
        }
    }
    steps
        .into_iter()
        .max_by_key(|&(step, count)| (count, std::cmp::Reverse(step)))
        .map(|s| s.0)
}
