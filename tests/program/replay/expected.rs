//! How many batches a capture should give, and how many of them it gave.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ground::SampleClock;
use karoo::config::{NarrowbandOptions, OutputConfig};
use karoo::net::capture::Precision;
use karoo::net::{CaptureReader, CaptureWriter, Datagram};
use serde_json::Value;
use spead::DigitiserHeap;

use crate::support::{data, karoo, karoo_ok, output_config, read_output};

const HEAP: u64 = 4096;
const RATE: f64 = 1712e6;
const WIDEBAND: &str =
    "name=w,channels=128,dst=239.10.1.0+1,jones_per_batch=4096,taps=8,dither=none";
const NARROWBAND: &str = "name=n,channels=64,dst=239.10.2.0,jones_per_batch=2048,taps=4,centre_frequency=4e8,decimation=4,dither=none";
/// Chunks of four heaps, and some that are not a multiple of anything else.
const CHUNKS: [u64; 2] = [16384, 77824];

/// A capture's heaps by polarisation and timestamp.
struct Capture {
    path: PathBuf,
    heaps: [BTreeSet<u64>; 2],
    _folder: tempfile::TempDir,
}

/// The heaps of the tones that `keep` says, by polarisation and number.
fn kept(keep: impl Fn(usize, u64) -> bool) -> Capture {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kept.pcap");
    let mut reader = CaptureReader::open(data("tones-10bit.pcap")).unwrap();
    let mut writer = CaptureWriter::create(&path, Precision::Nanoseconds).unwrap();
    let (mut first, mut heaps) = (None, [BTreeSet::new(), BTreeSet::new()]);
    while let Some(frame) = reader.next_frame().unwrap() {
        let Ok(datagram) = Datagram::new_checked(frame.bytes) else {
            continue;
        };
        let Ok(heap) = DigitiserHeap::new_checked(datagram.payload()) else {
            continue;
        };
        let timestamp = heap.timestamp().unwrap();
        let number = (timestamp - *first.get_or_insert(timestamp)) / HEAP;
        if keep(heap.pol(), number) {
            heaps[heap.pol()].insert(timestamp);
            writer.write_frame(frame.time_ns, &[frame.bytes]).unwrap();
        }
    }
    writer.finish().unwrap();
    Capture {
        path,
        heaps,
        _folder: folder,
    }
}

/// Samples of a delay, by polarisation and output timestamp.
type Delay<'a> = &'a dyn Fn(usize, u64) -> f64;

impl Capture {
    fn first(&self) -> u64 {
        *self.heaps.iter().flatten().min().unwrap()
    }

    fn end(&self) -> u64 {
        self.heaps.iter().flatten().max().unwrap() + HEAP
    }

    /// Batches from the first heap to the last, and those whose heaps are all there.
    fn batches(&self, output: &OutputConfig, delay: Delay<'_>) -> (u64, Vec<u64>) {
        let (grid, window) = (output.subsampling() as f64, output.window_samples() as u64);
        let step = output.batch_samples() as u64;
        let (mut within, mut whole) = (0, Vec::new());
        let before = (self.first() - (1 << 18)) / step * step;
        for batch in (before..self.end() + (1 << 18)).step_by(step as usize) {
            let spectra = (batch..batch + step).step_by(output.spectrum_samples());
            let places = spectra.flat_map(|t| (0..2).map(move |pol| (pol, t)));
            let windows = places.map(|(pol, t)| {
                let first = ((t as f64 - delay(pol, t)) / grid).round() * grid;
                (pol, first as u64, first as u64 + window)
            });
            let windows: Vec<_> = windows.collect();
            let inside =
                |&(_, from, to): &(usize, u64, u64)| from >= self.first() && to <= self.end();
            if !windows.iter().all(inside) {
                continue;
            }
            within += 1;
            let here = |&(pol, from, to): &(usize, u64, u64)| {
                let first = from / HEAP * HEAP;
                (first..to)
                    .step_by(HEAP as usize)
                    .all(|heap| self.heaps[pol].contains(&heap))
            };
            if windows.iter().all(here) {
                whole.push(batch);
            }
        }
        (within, whole)
    }

    /// Replays it, and insists that the report says what there should be, what came and what did
    /// not. Returns the first two.
    fn check(&self, outputs: &[&str], options: &[&str], delay: Delay<'_>) -> Vec<(u64, u64)> {
        let mut counts = Vec::new();
        for chunk in CHUNKS {
            let folder = tempfile::tempdir().unwrap();
            let [out, report] = ["out.pcap", "report"].map(|name| folder.path().join(name));
            let mut args: Vec<String> = ["replay", "--gain=0.05", "--adc-sample-rate=1712e6"]
                .map(str::to_owned)
                .to_vec();
            args.extend([
                "--sync-time=1763700000".to_owned(),
                "--max-delay-diff=8192".to_owned(),
            ]);
            args.push(format!("--recv-chunk-samples={chunk}"));
            for output in outputs {
                let kind = match output.contains("decimation") {
                    true => "narrowband",
                    false => "wideband",
                };
                args.push(format!("--{kind}={output}"));
            }
            let [capture, out_arg, report_arg] =
                [&self.path, &out, &report].map(|path| path.to_str().unwrap().to_owned());
            args.extend([
                capture,
                format!("--output={out_arg}"),
                format!("--report={report_arg}"),
            ]);
            args.extend(options.iter().map(|&option| option.to_owned()));
            let ended = karoo(&args);
            let [summary, errors] =
                [&ended.stdout, &ended.stderr].map(|text| String::from_utf8_lossy(text));
            let page = std::fs::read_to_string(report.join("report.html")).unwrap();
            let report = std::fs::read(report.join("report.json")).unwrap();
            let report: Value = serde_json::from_slice(&report).unwrap();
            assert_eq!(
                report["input"]["span"],
                serde_json::json!([self.first(), self.end()])
            );
            let streams = read_output(Path::new(&out));
            counts.clear();
            let mut sums = (0, 0);
            for (index, text) in outputs.iter().enumerate() {
                let output = configured(text);
                let (within, whole) = self.batches(&output, delay);
                let sent = streams.get(&(49152 + index as u16));
                let sent = sent.map_or(Vec::new(), |s| s.batches.keys().copied().collect());
                assert_eq!(sent, whole, "{text}, chunk {chunk}");
                let (sent, substreams) = (whole.len() as u64, output.dst.len() as u64);
                let counted = &report["outputs"][index];
                let fields = [
                    ("batches", sent),
                    ("expected_batches", within),
                    ("not_sent_batches", within - sent),
                    ("heaps", sent * substreams),
                    ("skipped_heaps", (within - sent) * substreams),
                ];
                for (field, expected) in fields {
                    assert_eq!(counted[field], expected, "{field} of {text}, chunk {chunk}");
                }
                let line = format!("{:10} {sent} of {within} batches, ", output.name);
                assert!(summary.lines().any(|l| l.starts_with(&line)), "{summary}");
                if sent < within && sent > 0 {
                    let reason = format!("{sent} of {within} batches of {} were sent", output.name);
                    assert!(page.contains(&reason), "{reason}");
                }
                counts.push((sent, within));
                sums = (sums.0 + sent, sums.1 + within);
            }
            // Nothing came out: whoever waits for the output is told.
            let nothing = sums.0 == 0;
            assert_eq!(ended.status.code(), Some(nothing.into()), "{errors}");
            assert_eq!(errors.contains("no batch came out"), nothing, "{errors}");
            let tile = format!("<b>{} of {}</b><span>batches sent", sums.0, sums.1);
            assert!(page.contains(&tile), "{tile}");
        }
        counts
    }
}

fn configured(text: &str) -> OutputConfig {
    if !text.contains("decimation") {
        return output_config(text);
    }
    let clock = SampleClock {
        adc_sample_rate: RATE,
        sync_time: 0.0,
    };
    let options: NarrowbandOptions = text.parse().unwrap();
    options.into_config(1 << 20, 0, clock).unwrap()
}

/// No delay.
fn none(_: usize, _: u64) -> f64 {
    0.0
}

#[test]
fn a_whole_capture_gives_all_of_its_batches() {
    let counts = kept(|_, _| true).check(&[WIDEBAND, NARROWBAND], &[], &none);
    let all = |&(sent, expected): &(u64, u64)| sent == expected && sent > 5;
    assert!(counts.iter().all(all), "{counts:?}");
}

#[test]
fn batches_that_lack_a_heap_are_not_sent() {
    let counts =
        kept(|pol, heap| (pol, heap) != (1, 30)).check(&[WIDEBAND, NARROWBAND], &[], &none);
    let some = |&(sent, expected): &(u64, u64)| 0 < sent && sent < expected;
    assert!(counts.iter().all(some), "{counts:?}");
}

/// One polarisation begins later and ends earlier than the other: nothing is missing between the
/// first batch sent and the last.
#[test]
fn batches_before_the_first_sent_and_behind_the_last_count() {
    let keep = |pol, heap| pol == 0 || (9..47).contains(&heap);
    let counts = kept(keep).check(&[WIDEBAND, NARROWBAND], &[], &none);
    let some = |&(sent, expected): &(u64, u64)| 0 < sent && sent + 4 < expected;
    assert!(counts.iter().all(some), "{counts:?}");
}

#[test]
fn batches_of_chunks_that_never_came_count() {
    let counts =
        kept(|_, heap| !(11..45).contains(&heap)).check(&[WIDEBAND, NARROWBAND], &[], &none);
    let some = |&(sent, expected): &(u64, u64)| 0 < sent && sent + 8 < expected;
    assert!(counts.iter().all(some), "{counts:?}");
}

#[test]
fn a_polarisation_that_never_came_leaves_none_of_the_batches() {
    let counts = kept(|pol, _| pol == 0).check(&[WIDEBAND], &[], &none);
    assert!(counts[0].0 == 0 && counts[0].1 > 5, "{counts:?}");
}

/// Delays move what a batch needs, which the ends of the capture cut off.
#[test]
fn delays_move_the_batches_that_a_capture_should_give() {
    let lost = kept(|pol, heap| (pol, heap) != (0, 40));
    for output in [WIDEBAND, NARROWBAND] {
        let name = &output[5..6];
        for delays in [
            [5000.25, -3000.25],
            [-7001.25, -7001.25],
            [70_000.25, 66_000.25],
        ] {
            // These are what they have grown to when the capture begins.
            let at_zero = delays.map(|delay: f64| delay - (lost.first() as f64 * 1e-3).round());
            let models = at_zero.map(|delay| format!("{:e},1e-3:0,0", delay / RATE));
            let options = ["--delays", name, &models[0], &models[1]];
            let delay = |pol: usize, t: u64| at_zero[pol] + t as f64 * 1e-3;
            let counts = lost.check(&[output], &options, &delay);
            assert!(0 < counts[0].0 && counts[0].0 < counts[0].1, "{counts:?}");
        }
    }
}

/// A delay that shrinks and one that grows in the middle, the latter by more than the engine keeps.
#[test]
fn requests_move_the_batches_that_a_capture_should_give() {
    let whole = kept(|_, _| true);
    let folder = tempfile::tempdir().unwrap();
    let requests = folder.path().join("requests.txt");
    let (a, b) = (whole.first() + 60_007, whole.first() + 150_001);
    let start = 1_763_700_000;
    let text = format!(
        "{a} ?delays w {start} {:e},0:0,0 {:e},0:0,0\n{b} ?delays w {start} {:e},0:0,0 {:e},0:0,0\n",
        -9000.25 / RATE,
        -9500.25 / RATE,
        90_000.25 / RATE,
        91_000.25 / RATE
    );
    std::fs::write(&requests, text).unwrap();
    let delay = |pol: usize, t: u64| match t {
        t if t < a => 0.0,
        t if t < b => [-9000.25, -9500.25][pol],
        _ => [90_000.25, 91_000.25][pol],
    };
    let option = format!("--requests={}", requests.display());
    let output = configured(WIDEBAND);
    let (expected, _) = whole.batches(&output, &delay);
    let mut seen = BTreeMap::new();
    for chunk in CHUNKS {
        let folder = tempfile::tempdir().unwrap();
        let report = folder.path().join("report");
        karoo_ok([
            "replay",
            whole.path.to_str().unwrap(),
            "--output",
            folder.path().join("out.pcap").to_str().unwrap(),
            "--report",
            report.to_str().unwrap(),
            "--wideband",
            WIDEBAND,
            "--adc-sample-rate=1712e6",
            "--sync-time=1763700000",
            "--max-delay-diff=8192",
            &format!("--recv-chunk-samples={chunk}"),
            &option,
            "--quiet",
        ]);
        let report = std::fs::read(report.join("report.json")).unwrap();
        let report: Value = serde_json::from_slice(&report).unwrap();
        let output = &report["outputs"][0];
        assert_eq!(output["expected_batches"], expected, "chunk {chunk}");
        let number = |field: &str| output[field].as_u64().unwrap();
        assert_eq!(number("batches") + number("not_sent_batches"), expected);
        seen.insert(chunk, number("not_sent_batches"));
    }
    // How much is still there when the delay grows depends on the chunks; what there should be does
    // not.
    assert!(seen.values().all(|&lost| lost > 0), "{seen:?}");
}
