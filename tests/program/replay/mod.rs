//! Replay of real captures against the golden model.

mod auto_gain;
mod expected;
mod times;

use std::collections::BTreeSet;

use dsp::SampleBits;
use dsp::delay::{DelayModels, LinearDelay};
use ground::Timestamp;
use karoo::model::Model;
use karoo::net::capture::Precision;
use karoo::net::frame::{HEADERS_LEN, HeaderTemplate};
use karoo::net::{CaptureWriter, MacAddr};
use num_complex::Complex32;
use spead::DigitiserRepr;

use crate::support::{
    Samples, check_against_model, data, output_config, read_output, replay, replay_report,
};

fn tones(bits: u32, wideband: &str, gain: &str, batches: usize) {
    let capture = data(&format!("tones-{bits}bit.pcap"));
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pcap");
    replay(&capture, &out, &[wideband], &["--gain", gain]);
    let samples = Samples::read(&capture, bits, 4096);
    let output = output_config(wideband);
    let streams = read_output(&out);
    let stream = &streams[&49152];
    let expected = samples.whole_batches(
        output.batch_samples() as u64,
        output.window_samples() as u64,
        output.spectrum_samples() as u64,
    );
    assert_eq!(stream.batches.keys().copied().collect::<Vec<_>>(), expected);
    assert_eq!(stream.batches.len(), batches);
    let delays = Default::default();
    check_against_model(
        &samples,
        &output,
        &stream.batches,
        &delays,
        gain.parse().unwrap(),
    );
}

const TONES: &str = "name=w,channels=1024,dst=239.10.1.0+3,jones_per_batch=32768,dither=none";

#[test]
fn tones_of_10_bits_match_the_model() {
    tones(10, TONES, "0.045", 3);
}

#[test]
fn tones_of_8_bits_match_the_model() {
    tones(8, TONES, "1", 1);
}

#[test]
fn tones_of_12_bits_match_the_model() {
    tones(12, TONES, "0.01", 1);
}

#[test]
fn channel_counts_and_taps_match_the_model() {
    for wideband in [
        "name=w,channels=64,dst=239.10.1.0,jones_per_batch=8192,dither=none,taps=4",
        "name=w,channels=256,dst=239.10.1.0+1,jones_per_batch=8192,dither=none,taps=32",
        "name=w,channels=512,dst=239.10.1.0,jones_per_batch=32768,dither=none,w_cutoff=0.9,taps=7",
        "name=w,channels=128,dst=239.10.1.0,jones_per_batch=16384,dither=none,taps=1,w_cutoff=0,window_function=rect",
    ] {
        let output = output_config(wideband);
        let batches =
            (131072 - output.window_samples() + output.spectrum_samples()) / output.batch_samples();
        tones(8, wideband, "0.5", batches);
    }
}

#[test]
fn delays_and_phases_match_the_model() {
    let capture = data("tones-10bit.pcap");
    let samples = Samples::read(&capture, 10, 4096);
    let wideband = "name=w,channels=256,dst=239.10.1.0,jones_per_batch=8192,dither=none,taps=8";
    let output = output_config(wideband);
    let rate = 1712e6;
    for models in [
        [(42.4, 0.0, 0.3, 0.0), (0.0, 0.0, -1.25, 0.0)],
        [(-42.0, 0.0, 3.0, 0.0), (58.0, 0.0, 0.0, 0.0)],
        [(8192.0, 1e-5, 0.1, 30e-6), (234.5, -2e-5, 0.0, -10e-6)],
    ] {
        let text = models.map(|(delay, slope, phase, turn): (f64, f64, f64, f64)| {
            format!("{},{slope}:{phase},{}", delay / rate, turn * rate)
        });
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out.pcap");
        let options = ["--gain", "0.2", "--delays", "w", &text[0], &text[1]];
        replay(&capture, &out, &[wideband], &options);
        let delays = models.map(|(delay, slope, phase, turn)| {
            let mut list = DelayModels::new();
            let delay = delay / rate * rate;
            list.add(LinearDelay::new(0, delay, slope, phase, turn * rate / rate).unwrap());
            list
        });
        let streams = read_output(&out);
        let batches = &streams[&49152].batches;
        // At most two batches are lost at the ends to the delays and the window.
        assert!(
            batches.len() >= 262144 / output.batch_samples() - 2,
            "{}",
            batches.len()
        );
        check_against_model(&samples, &output, batches, &delays, 0.2);
    }
}

#[test]
fn the_same_bytes_come_out_however_the_work_is_split() {
    let capture = data("tones-10bit.pcap");
    let folder = tempfile::tempdir().unwrap();
    let wideband = "name=w,channels=256,dst=239.10.1.0+1,jones_per_batch=8192,taps=8";
    let run = |name: &str, options: &[&str]| {
        let out = folder.path().join(name);
        let common = ["--gain", "0.3", "--dither-seed", "7"];
        replay(
            &capture,
            &out,
            &[wideband],
            &[&common[..], options].concat(),
        );
        std::fs::read(out).unwrap()
    };
    let reference = run("reference", &[]);
    assert_eq!(run("again", &[]), reference);
    assert_eq!(run("one", &["--workers", "1"]), reference);
    assert_eq!(
        run("three", &["--workers", "3", "--rx-queues", "4"]),
        reference
    );
    let small = [
        "--recv-chunk-samples",
        "16384",
        "--send-chunk-jones",
        "8192",
    ];
    assert_eq!(
        run("small", &[&small[..], &["--rx-queues", "2"]].concat()),
        reference
    );
    assert_eq!(
        run(
            "odd",
            &[
                "--recv-chunk-samples",
                "28672",
                "--send-chunk-jones",
                "65536"
            ]
        ),
        reference
    );
}

#[test]
fn dither_moves_no_value_by_more_than_one() {
    let capture = data("tones-8bit.pcap");
    let folder = tempfile::tempdir().unwrap();
    let wideband = "name=w,channels=256,dst=239.10.1.0,jones_per_batch=8192,taps=8";
    let out = folder.path().join("out.pcap");
    replay(&capture, &out, &[wideband], &["--dither-seed", "99"]);
    let samples = Samples::read(&capture, 8, 4096);
    let mut output = output_config(wideband);
    output.dither_seed = 99;
    let model = Model::new(&output, 0);
    let gains = [0, 1].map(|_| vec![Complex32::from(1.0); output.channels]);
    let source = |pol: usize, t: u64| samples.at(pol, t);
    let streams = read_output(&out);
    let (mut differ, mut all) = (0, 0);
    for (&timestamp, got) in &streams[&49152].batches {
        let expected = model.batch(&source, Timestamp(timestamp), &Default::default(), &gains);
        for (&got, &expected) in got.iter().zip(&expected.data) {
            assert!((i32::from(got) - i32::from(expected)).abs() <= 1);
            differ += u64::from(got != expected);
            all += 1;
        }
    }
    assert!(
        all > 100_000 && differ * 1000 < all,
        "{differ} of {all} differ"
    );
}

#[test]
fn two_outputs_share_one_input() {
    let capture = data("tones-10bit.pcap");
    let samples = Samples::read(&capture, 10, 4096);
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pcap");
    let widebands = [
        "name=coarse,channels=64,dst=239.10.1.0+3,jones_per_batch=8192,dither=none,taps=4",
        "name=fine,channels=512,dst=239.10.2.0+1,jones_per_batch=16384,dither=none,taps=8",
    ];
    replay(
        &capture,
        &out,
        &widebands,
        &["--gain", "0.3", "--feng-id", "5", "--array-size", "64"],
    );
    let streams = read_output(&out);
    for (index, wideband) in widebands.iter().enumerate() {
        let output = output_config(wideband);
        let stream = &streams[&(49152 + index as u16)];
        assert_eq!(
            (stream.descriptor_heaps, stream.stop_heaps),
            (output.dst.len(), output.dst.len())
        );
        let counts: Vec<_> = (0..stream.heap_counts.len() as u64)
            .map(|i| 5 + 64 * i)
            .collect();
        let mut seen = stream.heap_counts.clone();
        seen.sort_unstable();
        assert_eq!(seen, counts);
        check_against_model(&samples, &output, &stream.batches, &Default::default(), 0.3);
    }
}

#[test]
fn exactly_the_batches_that_touch_a_lost_heap_are_absent() {
    let capture = data("faults-10bit.pcap");
    let truth: serde_json::Value =
        serde_json::from_slice(&std::fs::read(data("faults-10bit.json")).unwrap()).unwrap();
    let first = truth["first_timestamp"].as_u64().unwrap();
    let of_kind = |kind: &str| -> Vec<(u64, usize)> {
        let faults = truth["faults"].as_array().unwrap().iter();
        faults
            .filter(|fault| fault[0] == kind)
            .map(|fault| {
                (
                    fault[1].as_u64().unwrap(),
                    fault[2].as_u64().unwrap() as usize,
                )
            })
            .collect()
    };
    let dropped: BTreeSet<u64> = of_kind("drop")
        .iter()
        .map(|(heap, _)| first + heap * 4096)
        .collect();
    let wideband = "name=w,channels=64,dst=239.10.1.0+1,jones_per_batch=2048,dither=none,taps=16";
    let output = output_config(wideband);
    let (step, window) = (
        output.batch_samples() as u64,
        output.window_samples() as u64,
    );
    let union = step - output.spectrum_samples() as u64 + window;
    let expected: Vec<u64> = (first..first + 1048576 - union + 1)
        .step_by(step as usize)
        .filter(|t| {
            !dropped
                .iter()
                .any(|heap| heap < &(t + union) && *t < heap + 4096)
        })
        .collect();

    for chunk in ["16384", "65536", "4194304"] {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out.pcap");
        let report = folder.path().join("report");
        let options = [
            "--gain",
            "0.2",
            "--recv-chunk-samples",
            chunk,
            "--report",
            report.to_str().unwrap(),
        ];
        replay(&capture, &out, &[wideband], &options);
        let streams = read_output(&out);
        let stream = &streams[&49152];
        assert_eq!(
            stream.batches.keys().copied().collect::<Vec<_>>(),
            expected,
            "chunk {chunk}"
        );
        let samples = Samples::read(&capture, 10, 4096);
        check_against_model(&samples, &output, &stream.batches, &Default::default(), 0.2);

        let report: serde_json::Value =
            serde_json::from_slice(&std::fs::read(report.join("report.json")).unwrap()).unwrap();
        let input = &report["input"];
        let heaps: Vec<u64> = (0..2)
            .map(|pol| input["pols"][pol]["heaps"].as_u64().unwrap())
            .collect();
        let missing: Vec<u64> = (0..2)
            .map(|pol| input["pols"][pol]["missing_heaps"].as_u64().unwrap())
            .collect();
        let lost =
            [0, 1].map(|p| of_kind("drop").iter().filter(|(_, pol)| *pol == p).count() as u64);
        assert_eq!(missing, lost);
        assert_eq!(heaps, lost.map(|lost| 256 - lost));
        let drops = input["drops"].as_object().unwrap();
        let total: u64 = drops.values().map(|count| count.as_u64().unwrap()).sum();
        assert_eq!(
            input["datagrams"].as_u64().unwrap(),
            heaps[0] + heaps[1] + total
        );
        assert_eq!(
            drops["duplicate"].as_u64().unwrap(),
            of_kind("dup").len() as u64
        );
        assert_eq!(
            report["outputs"][0]["batches"].as_u64().unwrap(),
            expected.len() as u64
        );
        let skipped = (expected.last().unwrap() - expected[0]) / step + 1 - expected.len() as u64;
        assert_eq!(
            report["outputs"][0]["skipped_heaps"].as_u64().unwrap(),
            2 * skipped
        );
        assert_eq!(SampleBits::new(10).unwrap().bytes(4096), 5120);
    }
}

/// Chunk ids and timestamps have an end; a digitiser that leaps by half of the wire's range again
/// and again gets there within a small file.
#[test]
fn a_digitiser_that_leaps_ahead_is_accounted_for() {
    const HEAP: u64 = 64;
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("leaps.pcap");
    let mut writer = CaptureWriter::create(&capture, Precision::Nanoseconds).unwrap();
    let (mut frames, mut timestamp) = (0u64, 0u64);
    for leap in 0..400 {
        // So many heaps in a row that they count as a leap.
        for _ in 0..16 {
            for pol in 0..2u8 {
                let heap = DigitiserRepr {
                    heap_count: frames,
                    timestamp: timestamp % Timestamp::WIRE_RANGE,
                    digitiser_id: pol.into(),
                    saturated: 0,
                    payload_length: HEAP as usize,
                };
                let (mut headers, mut preamble) = ([0; HEADERS_LEN], [0; 72]);
                heap.emit(&mut preamble);
                let template = HeaderTemplate::multicast(
                    MacAddr([2, 0, 0, 0, 0, 1]),
                    "10.0.0.1:7148".parse().unwrap(),
                    format!("239.1.0.{pol}:7148").parse().unwrap(),
                    4,
                );
                let template = template.expect("a multicast group");
                template.emit(preamble.len() + HEAP as usize, &mut headers);
                let parts: [&[u8]; 3] = [&headers, &preamble, &[1; HEAP as usize]];
                writer.write_frame(frames, &parts).unwrap();
                frames += 1;
            }
            timestamp += HEAP;
        }
        timestamp += Timestamp::WIRE_RANGE / 2 - 4096 * (leap % 2 + 1);
    }
    writer.finish().unwrap();
    let (_, report) = replay_report(
        &capture,
        "name=w,channels=64,dst=239.10.1.0,jones_per_batch=2048,taps=1",
        &[
            "--dig-sample-bits=8",
            "--recv-chunk-samples=192",
            "--max-delay-diff=8",
        ],
    );
    let input = &report["input"];
    let sum = |values: &mut dyn Iterator<Item = &serde_json::Value>| -> u64 {
        values.map(|value| value.as_u64().unwrap()).sum()
    };
    let placed = sum(&mut (0..2).map(|pol| &input["pols"][pol]["heaps"]));
    let dropped = sum(&mut input["drops"].as_object().unwrap().values());
    assert_eq!(placed + dropped, frames, "{input}");
    assert!(input["drops"]["bad-timestamp"].as_u64() > Some(0));
}
