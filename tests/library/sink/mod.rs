//! `sink`: reading output streams back from captures.

mod beside;
mod shapes;

use std::net::SocketAddrV4;
use std::ops::Range;
use std::path::Path;

use karoo::net::{CaptureWriter, HeaderTemplate, MacAddr, capture::Precision};
use karoo::sink::{self, SinkError, SinkOptions, SinkReport};
use spead::{Descriptor, SpectraRepr, StopRepr, descriptor, spectra, stop};

use crate::support::array;

const CHANNELS: u64 = 16;
const SUBSTREAMS: u64 = 4;
const SPECTRA: u64 = 8;
const STEP: u64 = 2 * CHANNELS * SPECTRA;
const PER: u64 = CHANNELS / SUBSTREAMS;
const HEAP: u64 = PER * SPECTRA * 4;
const PACKET: u64 = 48;
const ARRAY: u64 = 8;
const FENG: u64 = 3;
const FIRST: u64 = 1 << 20;

/// A sample that tells its place.
fn value(batch: u64, channel: u64, spectrum: u64, pol: u64, part: u64) -> i8 {
    let hash =
        (batch * 31 + channel * 7 + spectrum * 5 + pol * 3 + part).wrapping_mul(2_654_435_761);
    (hash >> 7) as i8
}

/// One UDP payload and the substream that it goes to.
#[derive(Clone)]
struct Datagram {
    sub: u64,
    payload: Vec<u8>,
}

/// Heap counts and packets of one engine's output stream.
struct Sender {
    feng_id: u64,
    /// Timestamp of batch 0.
    first: u64,
    next: u64,
    /// Substreams whose spectra it sends.
    block: Range<u64>,
    sent: Vec<Datagram>,
}

impl Sender {
    fn new() -> Self {
        Self::of(FENG)
    }

    fn of(feng_id: u64) -> Self {
        Self {
            feng_id,
            first: FIRST,
            next: feng_id,
            block: 0..SUBSTREAMS,
            sent: Vec::new(),
        }
    }

    fn count(&mut self) -> u64 {
        self.next += ARRAY;
        self.next - ARRAY
    }

    fn descriptors(&mut self) {
        for sub in 0..SUBSTREAMS {
            let payload =
                descriptor::emit_heap(self.count(), &Descriptor::spectra(PER, SPECTRA, 8));
            self.sent.push(Datagram { sub, payload });
        }
    }

    fn batch(&mut self, batch: u64) {
        let counts: Vec<u64> = self.block.clone().map(|_| self.count()).collect();
        for offset in (0..HEAP).step_by(PACKET as usize) {
            for sub in self.block.clone() {
                let length = PACKET.min(HEAP - offset);
                let repr = SpectraRepr {
                    heap_count: counts[(sub - self.block.start) as usize],
                    heap_length: HEAP,
                    payload_offset: offset,
                    payload_length: length,
                    timestamp: self.first + batch * STEP,
                    feng_id: self.feng_id,
                    first_channel: sub * PER,
                };
                let mut payload = vec![0; spectra::PREAMBLE_LEN];
                repr.emit(payload.first_chunk_mut().unwrap());
                payload.extend((offset..offset + length).map(|at| {
                    let (jones, part) = (at / 4, at % 4);
                    let channel = sub * PER + jones / SPECTRA;
                    value(batch, channel, jones % SPECTRA, part / 2, part % 2) as u8
                }));
                self.sent.push(Datagram { sub, payload });
            }
        }
    }

    fn stop(&mut self) {
        for sub in 0..SUBSTREAMS {
            let mut payload = [0; stop::STOP_LEN];
            StopRepr {
                heap_count: self.count(),
            }
            .emit(&mut payload);
            let payload = payload.to_vec();
            self.sent.push(Datagram { sub, payload });
        }
    }

    /// Descriptors, batches 0, 3 and 5, stop heaps.
    fn whole() -> Self {
        Self::new().all()
    }

    fn all(mut self) -> Self {
        let sender = &mut self;
        sender.descriptors();
        for batch in [0, 3, 5] {
            sender.batch(batch);
        }
        sender.stop();
        self
    }
}

fn write(
    path: &Path,
    base: &str,
    sent: &[Datagram],
    writer: Option<CaptureWriter>,
) -> CaptureWriter {
    let mut writer =
        writer.unwrap_or_else(|| CaptureWriter::create(path, Precision::Nanoseconds).unwrap());
    let base: SocketAddrV4 = base.parse().unwrap();
    for datagram in sent {
        let ip = (base.ip().to_bits() + datagram.sub as u32).into();
        let dst = SocketAddrV4::new(ip, base.port());
        // Send interfaces count from 2^40 times their number on.
        let src = SocketAddrV4::new([10, 0, 0, 1 + datagram.payload[10]].into(), 5000);
        let template = HeaderTemplate::multicast(MacAddr([2, 0, 0, 0, 0, 1]), src, dst, 4).unwrap();
        let mut headers = [0; karoo::net::frame::HEADERS_LEN];
        template.emit(datagram.payload.len(), &mut headers);
        writer
            .write_frame(0, &[&headers, &datagram.payload])
            .unwrap();
    }
    writer
}

fn read(sent: &[Datagram], options: SinkOptions) -> Result<SinkReport, SinkError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("output.pcap");
    write(&path, "239.10.0.252:7148", sent, None)
        .finish()
        .unwrap();
    sink::read(&path, &options)
}

fn problems(sent: &[Datagram]) -> Vec<String> {
    read(sent, SinkOptions::default())
        .unwrap()
        .problems()
        .collect()
}

/// Index of the first packet of batch 3, substream 2.
fn victim(sent: &[Datagram]) -> usize {
    let wanted = (FIRST + 3 * STEP).to_be_bytes();
    let found = |d: &Datagram| d.sub == 2 && d.payload[42..48] == wanted[2..];
    sent.iter().position(found).unwrap()
}

#[test]
fn a_whole_capture_gives_its_spectra() {
    let dir = tempfile::tempdir().unwrap();
    let options = SinkOptions {
        output_dir: Some(dir.path().join("spectra")),
        ..SinkOptions::default()
    };
    let report = read(&Sender::whole().sent, options).unwrap();
    assert_eq!(report.problems().collect::<Vec<_>>(), Vec::<String>::new());
    let stream = &report.streams[0];
    assert_eq!(report.streams.len(), 1);
    assert_eq!((stream.feng_id, stream.array_size), (FENG, Some(ARRAY)));
    assert_eq!(
        (stream.channels, stream.spectra_per_heap),
        (CHANNELS, SPECTRA)
    );
    assert_eq!(
        (stream.batches, stream.batches_not_sent, stream.heaps),
        (3, 3, 12)
    );
    assert_eq!(stream.batch_samples, STEP);
    assert_eq!((stream.descriptor_heaps, stream.stop_heaps), (4, 4));
    assert!(stream.notes.is_empty(), "{:?}", stream.notes);

    let file = |name: &str| dir.path().join("spectra").join(name);
    let (shape, spectra) = array::<i8>(&file("stream0.npy"));
    assert_eq!(shape, [3, CHANNELS, SPECTRA, 2, 2]);
    let mut at = spectra.into_iter();
    let mut power = [0u64; 2];
    for batch in [0, 3, 5] {
        for channel in 0..CHANNELS {
            for spectrum in 0..SPECTRA {
                for (pol, part) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                    let x = value(batch, channel, spectrum, pol, part);
                    assert_eq!(at.next(), Some(x));
                    power[pol as usize] += u64::from(x.unsigned_abs()).pow(2);
                }
            }
        }
    }
    for (pol, power) in power.into_iter().enumerate() {
        let mean = power as f64 / (3 * CHANNELS * SPECTRA) as f64;
        assert!((stream.mean_power_db[pol].unwrap() - 10.0 * mean.log10()).abs() < 1e-9);
    }
    let (shape, present) = array::<bool>(&file("stream0.present.npy"));
    assert_eq!((shape, present), (vec![3, SUBSTREAMS], vec![true; 12]));
    let (_, timestamps) = array::<u64>(&file("stream0.timestamps.npy"));
    assert_eq!(timestamps, [FIRST, FIRST + 3 * STEP, FIRST + 5 * STEP]);
    let svg = std::fs::read_to_string(file("stream0.spectrum.svg")).unwrap();
    assert!(svg.contains("channel") && svg.contains("dB"));
}

/// Files of an earlier run are made anew, as other commands do; the capture is not.
#[test]
fn the_capture_is_not_written_over() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let capture = file("output.pcap");
    write(&capture, "239.10.0.252:7148", &Sender::whole().sent, None)
        .finish()
        .unwrap();
    let before = std::fs::read(&capture).unwrap();
    let options = SinkOptions {
        output_dir: Some(dir.path().to_owned()),
        ..SinkOptions::default()
    };
    for name in [
        "stream0.npy",
        "stream0.present.npy",
        "stream0.timestamps.npy",
        "stream0.spectrum.svg",
        "stream0.json",
    ] {
        std::fs::hard_link(&capture, file(name)).unwrap();
        for read in [&capture, &file(name)] {
            let error = sink::read(read, &options).unwrap_err();
            assert!(matches!(error, SinkError::OverCapture { .. }), "{error}");
            let text = error.to_string();
            assert!(
                text.contains(name) && text.contains("would be lost"),
                "{text}"
            );
        }
        std::fs::remove_file(file(name)).unwrap();
        let files = std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(
            (files, std::fs::read(&capture).unwrap() == before),
            (1, true)
        );
    }
    // What no stream of this capture is written to, or no run without a synthesis.
    for name in ["stream1.npy", "stream0.samples.npy"] {
        std::fs::hard_link(&capture, file(name)).unwrap();
    }
    for _ in 0..2 {
        sink::read(&capture, &options).unwrap();
    }
    assert!(std::fs::read(&capture).unwrap() == before);
}

/// Batches before and after the wrap of timestamps on the wire are one ascending sequence,
/// whichever comes first.
#[test]
fn timestamps_go_on_where_those_on_the_wire_wrap() {
    let first = (1 << 48) - 2 * STEP;
    let sender = Sender {
        first,
        ..Sender::new()
    };
    let mut sent = sender.all().sent;
    for _ in 0..2 {
        let report = read(&sent, SinkOptions::default()).unwrap();
        let stream = &report.streams[0];
        assert_eq!((stream.batches, stream.heaps), (3, 12));
        let ends = (stream.first_timestamp, stream.last_timestamp);
        assert_eq!(ends, (Some(first), Some(first + 5 * STEP)));
        assert_eq!(stream.batches_not_sent, 3);
        assert_eq!(stream.bad_timestamp_packets, 0);
        // Again with the packets the other way round.
        sent.reverse();
    }
}

#[test]
fn packet_order_does_not_matter() {
    let mut sent = Sender::whole().sent;
    // Stop heaps stay last; everything else backwards.
    let end = sent.len() - SUBSTREAMS as usize;
    sent[..end].reverse();
    assert_eq!(problems(&sent), Vec::<String>::new());
}

#[test]
fn a_lost_packet_costs_its_heap() {
    let mut sent = Sender::whole().sent;
    sent.remove(victim(&sent));
    let dir = tempfile::tempdir().unwrap();
    let options = SinkOptions {
        output_dir: Some(dir.path().to_owned()),
        ..SinkOptions::default()
    };
    let report = read(&sent, options).unwrap();
    let stream = &report.streams[0];
    assert_eq!(stream.problems, ["1 heap lacks packets"]);
    assert_eq!((stream.heaps, stream.incomplete_heaps), (11, 1));
    let (_, present) = array::<bool>(&dir.path().join("stream0.present.npy"));
    let absent: Vec<usize> = (0..12).filter(|&i| !present[i]).collect();
    assert_eq!(absent, [6]);
    let (_, spectra) = array::<i8>(&dir.path().join("stream0.npy"));
    let heap = HEAP as usize;
    assert!(spectra[6 * heap..7 * heap].iter().all(|&x| x == 0));
    assert!(spectra[5 * heap..6 * heap].iter().any(|&x| x != 0));
}

#[test]
fn every_fault_is_named() {
    let whole = Sender::whole().sent;
    let edit = |change: &dyn Fn(&mut Vec<Datagram>, usize)| {
        let mut sent = whole.clone();
        let victim = victim(&sent);
        change(&mut sent, victim);
        problems(&sent)
    };
    let heap = |d: &Datagram, like: &Datagram| d.payload[8..16] == like.payload[8..16];
    let lacks = "stream0: 1 heap lacks packets";

    let twice = edit(&|sent, i| sent.insert(i + 9, sent[i].clone()));
    assert_eq!(twice, ["stream0: 1 packet came twice"]);
    let no_heap = edit(&|sent, i| {
        let like = sent[i].clone();
        sent.retain(|d| !heap(d, &like));
    });
    assert_eq!(
        no_heap,
        [
            "stream0: 1 heap of a captured batch is missing",
            "stream0: 1 heap count is left out"
        ]
    );
    let timestamp = edit(&|sent, i| sent[i].payload[47] += 1);
    assert_eq!(
        timestamp,
        [
            lacks,
            "stream0: 1 packet has a timestamp that is no multiple of the batch"
        ]
    );
    let frequency = edit(&|sent, i| sent[i].payload[63] += 1);
    assert_eq!(
        frequency,
        [
            lacks,
            "stream0: 1 packet has another F-engine number or first channel than its destination"
        ]
    );
    let size = edit(&|sent, i| sent[i].payload[22] += 1);
    assert_eq!(
        size,
        [
            lacks,
            "stream0: 1 packet belongs to a heap of the wrong size"
        ]
    );
    let residue = edit(&|sent, i| {
        let like = sent[i].clone();
        for d in sent.iter_mut().filter(|d| heap(d, &like)) {
            d.payload[15] += 1;
        }
    });
    // The others tell the step.
    let one = "stream0: 1 heap count does not leave 3 when divided by 8";
    assert_eq!(residue, [one]);
    let no_stop = edit(&|sent, _| drop(sent.pop()));
    assert_eq!(no_stop, ["stream0: 1 of 4 substreams have no stop heaps"]);
    let late = edit(&|sent, i| {
        let late = sent.remove(i);
        sent.push(late);
    });
    assert_eq!(late, ["stream0: 1 packet follows the stop heap"]);
}

/// A pipe has nothing more for whoever reads it twice.
#[test]
fn what_can_be_read_only_once_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let error = sink::read(&pipe, &SinkOptions::default()).unwrap_err();
    assert!(matches!(error, SinkError::NotAFile(_)), "{error}");
    assert!(
        error.to_string().contains("reads its capture twice"),
        "{error}"
    );
}

/// Else they would seem to be of this run.
#[test]
fn files_that_are_not_made_this_time_do_not_stay() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    for name in ["stream0.samples.npy", "stream1.samples.npy"] {
        std::fs::write(file(name), "old").unwrap();
    }
    let options = SinkOptions {
        output_dir: Some(dir.path().to_owned()),
        ..SinkOptions::default()
    };
    read(&Sender::whole().sent, options).unwrap();
    assert!(!file("stream0.samples.npy").exists() && file("stream0.npy").exists());
    // This capture has no such stream.
    assert!(file("stream1.samples.npy").exists());
}

#[test]
fn other_captures_are_refused_with_what_they_hold() {
    let junk = [Datagram {
        sub: 0,
        payload: vec![0; 100],
    }];
    let error = read(&junk, SinkOptions::default()).unwrap_err().to_string();
    assert!(error.contains("1 bad-magic"), "{error}");
    let error = sink::read(Path::new("/nonexistent.pcap"), &SinkOptions::default()).unwrap_err();
    assert!(error.to_string().contains("/nonexistent.pcap"), "{error}");
}

/// Of six batches three came: that is told. Of those before the first and behind the last, that
/// nothing can be known.
#[test]
fn a_capture_tells_what_is_missing_in_between_and_not_at_its_ends() {
    let text = |batches: &[u64]| {
        let mut sender = Sender::new();
        sender.descriptors();
        batches.iter().for_each(|&batch| sender.batch(batch));
        sender.stop();
        let report = read(&sender.sent, SinkOptions::default()).unwrap();
        assert_eq!(report.problems().count(), 0);
        report.to_string()
    };
    let gaps = text(&[0, 3, 5]);
    let last = FIRST + 5 * STEP;
    let line = format!("3 of 6 from timestamp {FIRST} to {last}, 3 in between did not come\n");
    assert!(gaps.contains(&line), "{gaps}");
    assert!(gaps.ends_with("; 3 of 6 batches came"), "{gaps}");
    let whole = text(&[2, 3, 4]);
    assert!(whole.contains("3 of 3 from timestamp"), "{whole}");
    assert!(
        whole.ends_with("\nclean: what came is whole and right"),
        "{whole}"
    );
    for text in [&gaps, &whole] {
        let unknown = "of batches before or after these, nothing can be known";
        assert!(text.contains(unknown), "{text}");
        assert!(!text.contains("note"), "{text}");
    }
    // Every second one: nothing but the shape speaks for more.
    let even = text(&[0, 2, 4]);
    assert!(even.contains("3 of 3 from timestamp"), "{even}");
    let note = format!("a wideband batch has {STEP} samples");
    assert!(even.contains(&note), "{even}");
}
