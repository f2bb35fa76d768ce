//! Replay of real captures against the golden model.

mod support;

use std::collections::BTreeSet;
use std::path::Path;

use karoo::config::SampleBits;
use karoo::dsp::delay::{DelayModels, LinearDelay};
use karoo::dsp::model::Model;
use karoo::net::capture::Precision;
use karoo::net::frame::{HEADERS_LEN, HeaderTemplate};
use karoo::net::{CaptureReader, CaptureWriter, Datagram, MacAddr};
use karoo::spead::{DigitiserRepr, Packet, SpectraRepr, StopRepr};
use karoo::units::Timestamp;
use rustfft::num_complex::Complex32;
use support::{
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

/// Gains change with the first batch at or after their timestamp, delays with the first spectrum, whatever the chunks.
#[test]
fn requests_apply_at_their_timestamps() {
    let capture = data("tones-10bit.pcap");
    let samples = Samples::read(&capture, 10, 4096);
    let wideband = "name=w,channels=256,dst=239.10.1.0,jones_per_batch=8192,dither=none,taps=8";
    let output = output_config(wideband);
    let batch = output.batch_samples() as u64;
    let (gains, delays) = (
        samples.first() + 3 * batch - 5000,
        samples.first() + 5 * batch + 700,
    );
    let folder = tempfile::tempdir().unwrap();
    let requests = folder.path().join("requests.txt");
    // Out of order, as merged logs are; the second one of one timestamp counts.
    let text = format!(
        "{delays} ?delays w 1763700000 0,0:1.5,0 2e-9,0:-1,0\n\n# gains\n{gains} ?gain-all w 7\n\
         {gains} ?gain-all w 0.05\n{gains} ?gain w 2\n{} ?gain w 0\n{} ?gain-all w 9\n",
        u64::MAX,
        samples.end() + (1 << 30)
    );
    std::fs::write(&requests, text).unwrap();
    let requests = requests.to_str().unwrap();
    let options = ["--gain", "0.2", "--requests", requests];
    let (stream, report) = replay_report(&capture, wideband, &options);
    assert!(stream.batches.len() as u64 >= 262144 / batch - 2);
    let changed = samples.first() + 3 * batch;
    let split = |from: u64, to: u64| {
        let range = stream.batches.range(from..to);
        range.map(|(&t, batch)| (t, batch.clone())).collect()
    };
    let mut models = [0, 1].map(|_| DelayModels::new());
    for (models, (delay, phase)) in models.iter_mut().zip([(0.0, 1.5), (2e-9 * 1712e6, -1.0)]) {
        models.add(LinearDelay::new(delays as i64, delay, 0.0, phase, 0.0).unwrap());
    }
    check_against_model(&samples, &output, &split(0, changed), &models, 0.2);
    check_against_model(&samples, &output, &split(changed, u64::MAX), &models, 0.05);

    let requests = &report["requests"];
    let replies: Vec<_> = requests["replies"].as_array().unwrap().iter().collect();
    let reply = |index: usize| replies[index]["reply"].as_str().unwrap();
    assert_eq!(replies.len(), 6);
    assert_eq!((reply(0), reply(3)), ("!gain-all ok", "!delays ok"));
    assert!(reply(2).starts_with("!gain fail input\\_2"), "{}", reply(2));
    assert_eq!(reply(5), "!gain ok 9+0j");
    // The last change is beyond the end.
    assert_eq!(
        (&requests["failed"], &requests["applied"]),
        (&1.into(), &3.into())
    );

    for sizes in [["16384", "8192"], ["28672", "65536"]] {
        let sizes = [
            "--recv-chunk-samples",
            sizes[0],
            "--send-chunk-jones",
            sizes[1],
        ];
        let (other, _) = replay_report(&capture, wideband, &[&options[..], &sizes].concat());
        assert!(other.batches == stream.batches, "{sizes:?}");
    }
}

/// Five seconds of sample time after the first batch for the first F-engine of one, and every five from then on.
#[test]
fn descriptors_are_repeated_in_front_of_batches() {
    const RATE: f64 = 1e4;
    let wideband = "name=w,channels=256,dst=239.10.1.0+1:7148,jones_per_batch=8192,taps=4";
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pcap");
    let options = ["--adc-sample-rate=1e4", "--feng-id=0", "--array-size=1"];
    replay(&data("tones-10bit.pcap"), &out, &[wideband], &options);

    // Timestamps of batches, and `None` for heaps of descriptors.
    let mut order = Vec::new();
    let mut reader = CaptureReader::open(&out).unwrap();
    while let Some(frame) = reader.next_frame().unwrap() {
        let datagram = Datagram::new_checked(frame.bytes).unwrap();
        let packet = Packet::new_checked(datagram.payload()).unwrap();
        if StopRepr::parse(&packet).is_none() {
            let spectra = SpectraRepr::parse(&packet).unwrap();
            order.push(spectra.map(|spectra| spectra.timestamp));
        }
    }
    order.dedup_by(|a, b| a.is_some() && a == b);
    let first = order.iter().flatten().next().copied().unwrap();
    let mut due = 5.0;
    let mut expected = vec![None; 2];
    for batch in order.iter().flatten() {
        if (batch - first) as f64 / RATE >= due {
            expected.extend([None; 2]);
            due += 5.0;
        }
        expected.push(Some(*batch));
    }
    assert_eq!(order, expected);
    assert_eq!(order.iter().filter(|heap| heap.is_none()).count(), 2 * 5);
}

/// Packets have 48 bits of a timestamp. Frames' times tell the others, if the digitisers kept the time that `--sync-time` says.
#[test]
fn times_of_frames_tell_which_timestamps_are_meant() {
    const RATE: f64 = 1712e6;
    const WIDEBAND: &str =
        "name=w,channels=256,dst=239.10.1.0,jones_per_batch=8192,dither=none,taps=8";
    let capture = data("tones-10bit.pcap");
    let samples = Samples::read(&capture, 10, 4096);
    let folder = tempfile::tempdir().unwrap();
    // The report, and what was sent.
    let run = |name: &str, sync_time: Option<f64>, request: u64| {
        let [out, requests, report] = ["pcap", "txt", "report"].map(|kind| {
            let path = folder.path().join(format!("{name}.{kind}"));
            path.to_str().unwrap().to_owned()
        });
        std::fs::write(&requests, format!("{request} ?gain-all w 0.2\n")).unwrap();
        let sync_time = sync_time.map(|time| format!("--sync-time={time}"));
        let args = [
            "replay",
            capture.to_str().unwrap(),
            "--adc-sample-rate=1712e6",
            "--quiet",
        ];
        let outputs = [
            "--output",
            &out,
            "--report",
            &report,
            "--requests",
            &requests,
        ];
        let mut args = [&args[..], &outputs, &["--wideband", WIDEBAND]].concat();
        args.extend(sync_time.as_deref());
        support::karoo_ok(args);
        let report = std::fs::read(Path::new(&report).join("report.json")).unwrap();
        let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
        (report, read_output(Path::new(&out)).remove(&49152).unwrap())
    };
    let first = |report: &serde_json::Value| report["input"]["first_timestamp"].as_u64();
    let at = samples.first() + 100_000;
    let (report, stream) = run("picked", None, at);
    assert_eq!(first(&report), Some(samples.first()));
    assert_eq!(
        (
            &report["requests"]["applied"],
            &report["requests"]["behind"]
        ),
        (&1.into(), &0.into())
    );
    let sync_time = report["config"]["clock"]["sync_time"].as_f64().unwrap();

    // Some seconds apart, as clocks are.
    let later = 3u64 << 48;
    let earlier = sync_time - later as f64 / RATE - 2.5;
    let (report, other) = run("later", Some(earlier), at + later);
    assert_eq!(first(&report), Some(samples.first() + later));
    assert_eq!(
        (
            &report["requests"]["applied"],
            &report["requests"]["behind"]
        ),
        (&1.into(), &0.into())
    );
    assert!(other.batches == stream.batches);

    // Digitisers that begin at 0 whenever they start.
    let (report, other) = run("own", Some(sync_time - 1e6), at + later);
    assert_eq!(first(&report), Some(samples.first()));
    assert_eq!(
        (
            &report["requests"]["applied"],
            &report["requests"]["behind"]
        ),
        (&0.into(), &1.into())
    );
    assert!(other.batches != stream.batches);
}

/// What is no request is refused before anything is written, with its line.
#[test]
fn files_that_hold_no_requests_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let requests = folder.path().join("requests.txt");
    let out = folder.path().join("out.pcap");
    let capture = data("tones-8bit.pcap");
    let run = |requests: &Path| {
        let output = support::karoo([
            "replay".as_ref(),
            capture.as_os_str(),
            "--output".as_ref(),
            out.as_os_str(),
            "--requests".as_ref(),
            requests.as_os_str(),
        ]);
        assert_eq!(output.status.code(), Some(2));
        assert!(!out.exists());
        String::from_utf8(output.stderr).unwrap()
    };
    std::fs::write(&requests, "5 ?gain w 0 1\nnow ?gain w 0 1\n").unwrap();
    let refusal = run(&requests);
    assert!(
        refusal.contains("line 2: 'now' is no ADC timestamp"),
        "{refusal}"
    );
    assert!(
        refusal.contains("TIMESTAMP ?request arguments"),
        "{refusal}"
    );
    let refusal = run(&folder.path().join("none.txt"));
    assert!(refusal.contains("none.txt: No such file"), "{refusal}");
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

/// Chunk ids and timestamps have an end; a digitiser that leaps by half of the wire's range again and
/// again gets there within a small file.
#[test]
fn a_digitiser_that_leaps_ahead_is_accounted_for() {
    const HEAP: u64 = 64;
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("leaps.pcap");
    let mut writer = CaptureWriter::create(&capture, Precision::Nanoseconds).unwrap();
    let (mut frames, mut timestamp) = (0u64, 0u64);
    for leap in 0..400 {
        // A few heaps in a row, so that the scan sees their step.
        for _ in 0..3 {
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
    let report = folder.path().join("report");
    replay(
        &capture,
        &folder.path().join("out.pcap"),
        &["name=w,channels=64,dst=239.10.1.0,jones_per_batch=2048,taps=1"],
        &[
            "--dig-sample-bits",
            "8",
            "--recv-chunk-samples",
            "192",
            "--max-delay-diff",
            "8",
            "--report",
            report.to_str().unwrap(),
        ],
    );
    let report = std::fs::read_to_string(report.join("report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let input = &report["input"];
    let sum = |values: &mut dyn Iterator<Item = &serde_json::Value>| -> u64 {
        values.map(|value| value.as_u64().unwrap()).sum()
    };
    let placed = sum(&mut (0..2).map(|pol| &input["pols"][pol]["heaps"]));
    let dropped = sum(&mut input["drops"].as_object().unwrap().values());
    assert_eq!(placed + dropped, frames, "{input}");
    assert!(input["drops"]["bad-timestamp"].as_u64() > Some(0));
}
