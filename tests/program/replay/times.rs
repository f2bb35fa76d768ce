//! What happens at its time: requests, descriptors.

use std::path::Path;

use dsp::delay::{DelayModels, LinearDelay};
use karoo::net::{CaptureReader, Datagram};
use spead::{Packet, SpectraRepr, StopRepr};

use crate::support::{
    self, Samples, check_against_model, data, output_config, read_output, replay, replay_report,
};

/// Gains change with the first batch at or after their timestamp, delays with the first spectrum,
/// whatever the chunks.
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

/// Five seconds of sample time after the first batch for the first F-engine of one, and every five
/// from then on.
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

/// Packets have 48 bits of a timestamp. Frames' times tell the others, if the digitisers kept the
/// time that `--sync-time` says.
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

/// The format of what is written has 32 bits for seconds.
#[test]
fn times_beyond_those_of_captures_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pcap");
    let output = support::karoo([
        "replay",
        data("tones-8bit.pcap").to_str().unwrap(),
        "--output",
        out.to_str().unwrap(),
        "--sync-time",
        "4294967396",
    ]);
    support::refused(&output, 2, "--sync-time 4294967396");
    assert!(!out.exists());
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
