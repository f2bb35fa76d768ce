//! What stands beside the arrays of a stream: `NAME.json`, and the axis of its picture.

use std::path::Path;

use karoo::config::{JONES_PER_BATCH, NarrowbandOptions, OutputConfig, WidebandOptions};
use karoo::sink::{SinkError, SinkOptions};
use serde_json::{Value, json};

use super::{CHANNELS, FENG, FIRST, SPECTRA, STEP, SUBSTREAMS, Sender, read};

const RATE: f64 = 1712e6;

/// What stands beside the arrays of a whole capture, and its picture.
fn beside(folder: &Path, options: SinkOptions) -> (Value, String) {
    let options = SinkOptions {
        output_dir: Some(folder.to_owned()),
        ..options
    };
    let report = read(&Sender::new().followed().sent, options).unwrap();
    let text = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let path = folder.join("stream0.json").display().to_string();
    assert!(report.streams[0].files.contains(&path));
    let metadata = serde_json::from_str(&text("stream0.json")).unwrap();
    (metadata, text("stream0.spectrum.svg"))
}

fn wideband(keys: &str) -> OutputConfig {
    let options: WidebandOptions = keys.parse().unwrap();
    options.into_config(JONES_PER_BATCH, 0)
}

impl Sender {
    /// Descriptors, batches 0, 1 and 3, stop heaps: two batches follow one another.
    fn followed(mut self) -> Self {
        self.descriptors();
        [0, 1, 3].into_iter().for_each(|batch| self.batch(batch));
        self.stop();
        self
    }
}

#[test]
fn arrays_say_what_they_hold() {
    let folder = tempfile::tempdir().unwrap();
    let (found, svg) = beside(folder.path(), SinkOptions::default());
    assert_eq!(found["schema"], "karoo/sink-stream");
    assert_eq!(found["feng_id"], FENG);
    let times = json!([FIRST, FIRST + 3 * STEP, 2 * CHANNELS]);
    let names = ["first_timestamp", "last_timestamp", "spectrum_samples"];
    assert_eq!(json!(names.map(|name| &found[name])), times);
    for unknown in ["output", "adc_sample_rate", "sync_time", "band"] {
        assert!(found[unknown].is_null(), "{found}");
    }
    let axes = ["batch", "channel", "spectrum", "polarisation", "part"];
    assert_eq!(found["arrays"][0]["axes"], json!(axes));
    // As another reader finds them.
    let arrays = found["arrays"].as_array().unwrap();
    let files: Vec<_> = arrays.iter().map(|array| &array["file"]).collect();
    let names = [
        "stream0.npy",
        "stream0.present.npy",
        "stream0.timestamps.npy",
    ];
    assert_eq!(json!(files), json!(names));
    let shapes = [
        json!([3, CHANNELS, SPECTRA, 2, 2]),
        json!([3, SUBSTREAMS]),
        json!([3]),
    ];
    for (array, shape) in arrays.iter().zip(shapes) {
        let file = std::fs::read(folder.path().join(array["file"].as_str().unwrap())).unwrap();
        let npy = npyz::NpyFile::new(&file[..]).unwrap();
        assert_eq!(array["shape"], json!(npy.shape()));
        assert_eq!(array["shape"], shape);
        assert_eq!(
            json!(npy.dtype().descr().trim_matches('\'')),
            array["dtype"]
        );
    }
    assert!(svg.contains("channel") && !svg.contains("MHz"));
}

/// Channel k of C is centred on k · fs / 2C, or as far from the centre frequency as from the middle
/// channel.
#[test]
fn a_sample_rate_makes_channels_frequencies() {
    let folder = tempfile::tempdir().unwrap();
    let known = SinkOptions {
        adc_sample_rate: Some(RATE),
        sync_time: Some(1_763_700_000.0),
        ..SinkOptions::default()
    };
    let (found, svg) = beside(folder.path(), known.clone());
    let step = RATE / 2.0 / CHANNELS as f64;
    assert_eq!(found["band"], json!({"first": 0.0, "step": step}));
    assert_eq!(found["adc_sample_rate"], RATE);
    assert_eq!(found["sync_time"], 1_763_700_000.0);
    assert!(svg.contains("MHz") && svg.contains("stream0: F-engine 3"));

    let keys = "name=zoom,channels=16,dst=239.10.0.252+3,centre_frequency=284M,decimation=8,\
                jones_per_batch=128";
    let zoom: NarrowbandOptions = keys.parse().unwrap();
    let clock = ground::SampleClock {
        adc_sample_rate: RATE,
        sync_time: 0.0,
    };
    let zoom = zoom.into_config(JONES_PER_BATCH, 0, clock).unwrap();
    let other = wideband("name=other,channels=64,dst=239.10.9.0+3");
    let outputs = vec![other, zoom];
    let (found, svg) = beside(folder.path(), SinkOptions { outputs, ..known });
    assert_eq!(found["output"], "zoom");
    assert_eq!(found["spectrum_samples"], 2 * CHANNELS * 8);
    let first = found["band"]["first"].as_f64().unwrap();
    let step = step / 8.0;
    assert!((first - (284e6 - 8.0 * step)).abs() < 1e-3, "{found}");
    assert!((found["band"]["step"].as_f64().unwrap() - step).abs() < 1e-3);
    assert!(svg.contains("stream0: zoom, F-engine 3"));
}

/// One batch alone, and batches that do not follow one another, may be narrowband.
#[test]
fn what_may_be_narrowband_has_no_frequencies() {
    for batches in [&[2][..], &[0, 2, 4]] {
        let mut sender = Sender::new();
        sender.descriptors();
        batches.iter().for_each(|&batch| sender.batch(batch));
        let folder = tempfile::tempdir().unwrap();
        let options = SinkOptions {
            output_dir: Some(folder.path().to_owned()),
            adc_sample_rate: Some(RATE),
            ..SinkOptions::default()
        };
        read(&sender.sent, options).unwrap();
        let text = std::fs::read_to_string(folder.path().join("stream0.json")).unwrap();
        let found: Value = serde_json::from_str(&text).unwrap();
        assert!(found["band"].is_null() && found["spectrum_samples"].is_null());
    }
}

#[test]
fn outputs_that_the_capture_has_not_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let read_as = |keys: &str| {
        let options = SinkOptions {
            output_dir: Some(folder.path().to_owned()),
            outputs: vec![wideband(keys)],
            ..SinkOptions::default()
        };
        read(&Sender::whole().sent, options)
    };
    let other = read_as("name=w,channels=64,dst=239.10.0.252+3").unwrap_err();
    assert!(matches!(other, SinkError::OtherOutput { .. }), "{other}");
    assert!(other.to_string().contains("16 channels"), "{other}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let elsewhere = read_as("name=w,channels=16,dst=239.10.9.0+3").unwrap();
    let note = "no --wideband or --narrowband has its destinations";
    assert_eq!(elsewhere.streams[0].notes.last().unwrap(), note);
}

#[test]
fn rates_that_no_digitiser_has_are_refused() {
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let options = SinkOptions {
            adc_sample_rate: Some(rate),
            ..SinkOptions::default()
        };
        let error = read(&Sender::whole().sent, options).unwrap_err();
        assert!(error.to_string().contains("--adc-sample-rate"), "{error}");
    }
}
