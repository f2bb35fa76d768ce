//! Several outputs of one engine, wideband and narrowband, through `karoo replay` and `karoo sink`.

use std::path::Path;

use dsp::OutputBits;
use dsp::delay::{DelayModels, LinearDelay};
use ground::SampleClock;
use karoo::config::{NarrowbandOptions, OutputConfig};

use crate::support::{Samples, Stream, check_against_model, data, karoo_ok, read_output};

const WIDEBAND: &str = "name=wide,channels=256,dst=239.10.1.0+1,jones_per_batch=8192,taps=8";
const DISCARD: &str = "name=nb0,channels=64,dst=239.11.1.0+1,jones_per_batch=2048,taps=4,\
                       centre_frequency=408173015.5944824,decimation=4";
const VLBI: &str = "name=nb1,channels=64,dst=239.12.1.0,jones_per_batch=2048,taps=1,w_cutoff=0,window_function=rect,\
                    centre_frequency=300e6,decimation=3,pass_bandwidth=170e6";
/// The mixer and the filter of [`DISCARD`], and other channels.
const TWIN: &str = "name=nb2,channels=128,dst=239.13.1.0,jones_per_batch=4096,taps=2,\
                    centre_frequency=408173015.5944824,decimation=4";
/// A multiple of 4 and of 6 samples, and of heaps.
const CHUNK: &str = "--recv-chunk-samples=98304";

fn replay(capture: &Path, out: &Path, options: &[&str]) {
    let fixed = [
        "replay",
        capture.to_str().unwrap(),
        "--output",
        out.to_str().unwrap(),
        "--backend=cpu",
        "--sync-time=1763700000",
        "--max-delay-diff=16384",
        CHUNK,
        "--quiet",
    ];
    karoo_ok([&fixed[..], options].concat());
}

fn output_config(narrowband: &str, undithered: bool) -> (String, OutputConfig) {
    let text = match undithered {
        true => format!("{narrowband},dither=none"),
        false => narrowband.to_owned(),
    };
    let clock = SampleClock {
        adc_sample_rate: 1712e6,
        sync_time: 0.0,
    };
    let options: NarrowbandOptions = text.parse().expect("options");
    let output = options.into_config(1 << 20, 0, clock).expect("an output");
    (text, output)
}

fn assert_same(together: &Stream, alone: &Stream, name: &str) {
    assert!(
        alone.batches.len() >= 4,
        "{name}: {} batches",
        alone.batches.len()
    );
    assert!(together.batches == alone.batches, "{name}");
    assert_eq!(together.heap_counts, alone.heap_counts, "{name}");
    assert_eq!(together.descriptor_heaps, alone.descriptor_heaps, "{name}");
}

/// Outputs share the input and nothing else.
#[test]
fn together_they_send_what_each_sends_alone() {
    let folder = tempfile::tempdir().unwrap();
    let capture = data("tones-10bit.pcap");
    for bits in ["--send-sample-bits=8", "--send-sample-bits=4"] {
        let outputs = [
            ("--wideband", WIDEBAND),
            ("--narrowband", DISCARD),
            ("--narrowband", VLBI),
            ("--narrowband", TWIN),
        ];
        let delays = ["--delays", "nb0", "2e-7,1e-7:0.5,300", "-1e-8,0:0,0"];
        let path = folder.path().join("together.pcap");
        let all = outputs.map(|(option, value)| [option, value]).concat();
        replay(
            &capture,
            &path,
            &[&all[..], &delays, &["--gain=0.1", bits]].concat(),
        );
        let together = read_output(&path);
        assert_eq!(together.len(), outputs.len());
        for (i, (option, value)) in outputs.into_iter().enumerate() {
            let path = folder.path().join("alone.pcap");
            // The dither of an output is that of its place.
            let seed = format!("--dither-seed={i}");
            let mut options = vec![option, value, "--gain=0.1", bits, &seed];
            if i == 1 {
                options.extend(delays);
            }
            replay(&capture, &path, &options);
            let alone = read_output(&path);
            let ours = together.values().nth(i).expect("a stream");
            assert_same(ours, &alone[&49152], value);
        }
        // What reads them back finds nothing wrong, and the width in the descriptors.
        let report = karoo_ok(["sink", "--json", path.to_str().unwrap()]);
        let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
        for stream in report["streams"].as_array().expect("streams") {
            assert_eq!(
                format!("--send-sample-bits={}", stream["sample_bits"]),
                bits
            );
            assert_eq!(
                stream["problems"].as_array().map(Vec::len),
                Some(0),
                "{stream}"
            );
        }
    }
}

/// Real packets in, every value the model's, with delays on the subsampled grid that change during
/// the capture.
#[test]
fn narrowband_matches_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let capture = data("tones-10bit.pcap");
    let samples = Samples::read(&capture, 10, 4096);
    for narrowband in [DISCARD, VLBI] {
        let (text, output) = output_config(narrowband, true);
        let models = [(342.4, 1e-4, 0.3, 3e-6), (-42.8, -2e-5, -1.25, 0.0)];
        let rate = 1712e6;
        let words = models.map(|(delay, slope, phase, turn): (f64, f64, f64, f64)| {
            format!("{},{slope}:{phase},{}", delay / rate, turn * rate)
        });
        let path = folder.path().join("out.pcap");
        let delays = ["--delays", &output.name, &words[0], &words[1]];
        replay(
            &capture,
            &path,
            &[&["--narrowband", &text, "--gain=0.1"], &delays[..]].concat(),
        );
        let delays = models.map(|(delay, slope, phase, turn)| {
            let mut list = DelayModels::with_subsampling(output.subsampling() as u32);
            let model = LinearDelay::new(0, delay / rate * rate, slope, phase, turn * rate / rate);
            list.add(model.expect("a model"));
            list
        });
        let streams = read_output(&path);
        let batches = &streams[&49152].batches;
        assert!(
            batches.len() >= 262144 / output.batch_samples() - 2,
            "{}",
            batches.len()
        );
        check_against_model(&samples, &output, batches, &delays, 0.1);
    }
}

/// A batch of which any sample is missing, those that only the filter reaches included, is not
/// sent; the others are whole.
#[test]
fn nothing_is_sent_of_what_lacks_samples() {
    let folder = tempfile::tempdir().unwrap();
    let capture = data("faults-10bit.pcap");
    let samples = Samples::read(&capture, 10, 4096);
    let (text, output) = output_config(DISCARD, true);
    let path = folder.path().join("out.pcap");
    replay(&capture, &path, &["--narrowband", &text, "--gain=0.1"]);
    let streams = read_output(&path);
    let batches = &streams[&49152].batches;
    let expected = samples.whole_batches(
        output.batch_samples() as u64,
        output.window_samples() as u64,
        output.spectrum_samples() as u64,
    );
    let all = 1_048_576 / output.batch_samples();
    assert!(
        expected.len() > 3 && expected.len() < all - 3,
        "{} of {all}",
        expected.len()
    );
    assert_eq!(batches.keys().copied().collect::<Vec<_>>(), expected);
    let delays = [0; 2].map(|_| DelayModels::with_subsampling(output.subsampling() as u32));
    check_against_model(&samples, &output, batches, &delays, 0.1);
}

/// The level of the digitisers is measured whichever output comes first.
#[test]
fn power_needs_no_wideband_output() {
    let folder = tempfile::tempdir().unwrap();
    let capture = data("tones-10bit.pcap");
    let power = |output: [&str; 2]| {
        let (path, report) = (folder.path().join("out.pcap"), folder.path().join("report"));
        let report_option = format!("--report={}", report.display());
        replay(&capture, &path, &[&output[..], &[&report_option]].concat());
        let report = std::fs::read(report.join("report.json")).expect("a report");
        let report: serde_json::Value = serde_json::from_slice(&report).expect("JSON");
        [0, 1].map(|pol| {
            report["input"]["pols"][pol]["power_dbfs"]
                .as_f64()
                .expect("a level")
        })
    };
    let wideband = power(["--wideband", WIDEBAND]);
    for output in [DISCARD, VLBI] {
        let narrowband = power(["--narrowband", output]);
        // Over batches that do not begin and end alike.
        for pol in 0..2 {
            assert!(
                (narrowband[pol] - wideband[pol]).abs() < 0.1,
                "{narrowband:?} {wideband:?}"
            );
        }
    }
}

#[test]
fn heaps_of_four_bits_are_half_as_long() {
    let (_, output) = output_config(DISCARD, false);
    let four = OutputConfig {
        sample_bits: OutputBits::Four,
        ..output.clone()
    };
    assert_eq!((output.heap_bytes(), four.heap_bytes()), (4096, 2048));
}
