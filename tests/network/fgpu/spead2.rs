//! spead2 as digitiser and X-engine of a live engine: 16 groups in, every substream of every output
//! out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use dsp::OutputBits;
use dsp::delay::DelayModels;
use ground::SampleClock;
use karoo::config::{NarrowbandOptions, OutputConfig};
use karoo::net::{CaptureReader, Datagram};
use serde_json::json;
use spead::DigitiserHeap;

use super::rig::{CHUNK, GAIN, OUTPUT, RATE, Rig, SYNC_TIME, run_python};
use crate::support::{check_against_model, output_config};

/// Another port than the wideband output's, to which the test itself listens.
const NARROWBAND: &str = "name=n,channels=64,dst=239.10.20.0+1:7149,jones_per_batch=4096,taps=4,dither=none,\
                          centre_frequency=1e6,decimation=4";

#[test]
fn spead2_sends_sixteen_groups_and_receives_every_substream() {
    let Some(mut rig) = Rig::live("spead2", &["--send-rate-factor=0"]) else {
        return;
    };
    assert_eq!(rig.groups(), [8, 8, 0, 0]);
    through_spead2(&mut rig, &[output_config(OUTPUT)], GAIN);
}

#[test]
fn spead2_receives_wideband_and_narrowband_of_four_bits() {
    let gain = 0.02;
    let options = [
        "--send-rate-factor=0",
        "--send-sample-bits=4",
        &format!("--gain={gain}"),
        "--narrowband",
        NARROWBAND,
    ];
    let Some(mut rig) = Rig::live("four", &options) else {
        return;
    };
    let clock = SampleClock {
        adc_sample_rate: RATE,
        sync_time: SYNC_TIME,
    };
    let narrowband: NarrowbandOptions = NARROWBAND.parse().unwrap();
    let narrowband = narrowband.into_config(1 << 20, 0, clock).unwrap();
    let outputs = [output_config(OUTPUT), narrowband].map(|output| OutputConfig {
        sample_bits: OutputBits::Four,
        ..output
    });
    through_spead2(&mut rig, &outputs, gain);
}

/// Sends the capture, and insists that what spead2 receives of each output is the model's.
fn through_spead2(rig: &mut Rig, outputs: &[OutputConfig], gain: f32) {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("input"), folder.path().join("output"));
    let mut heaps = Vec::new();
    let mut reader = CaptureReader::open(&rig.capture).unwrap();
    while let Some(frame) = reader.next_frame().unwrap() {
        let datagram = Datagram::new_checked(frame.bytes).unwrap();
        let heap = DigitiserHeap::new_checked(datagram.payload()).unwrap();
        heaps.extend(heap.timestamp().unwrap().to_le_bytes());
        heaps.extend((heap.pol() as u64).to_le_bytes());
        heaps.extend(heap.payload());
    }
    fs::write(&input, heaps).unwrap();

    let group = |base: &str| (0..8).map(|i| format!("{base}{}", 64 + i)).collect();
    let sources: [Vec<String>; 2] = ["239.102.0.", "239.102.1."].map(group);
    // Two chunks are open until the next begins, and one waits for what is behind it.
    let ahead = outputs
        .iter()
        .map(|output| 4 * output.batch_samples() as u64);
    let dst = outputs.iter().flat_map(|output| {
        let last = rig.samples.end() - 2 * CHUNK - 3 * output.batch_samples() as u64;
        output
            .dst
            .iter()
            .map(move |dst| (dst.ip().to_string(), dst.port(), last))
    });
    let expectation = json!({
        "interface": "10.77.0.2",
        "sources": sources,
        "dst": dst.collect::<Vec<_>>(),
        "port": 7148,
        "heap_samples": 4096,
        "sample_bits": 10,
        "ahead": ahead.max().unwrap().max(rig.ahead),
    });
    let paths = [&input, &output].map(|path| path.to_str().unwrap());
    let args = [&expectation.to_string()[..], paths[0], paths[1]];
    let report = run_python(&rig.cable.test, "live_spead2.py", &args, "")
        .unwrap_or_else(|error| panic!("{error}\n{}", rig.log()));
    let incomplete = report["incomplete"].as_array().unwrap();
    assert!(incomplete.iter().all(|count| *count == 0), "{report}");
    rig.end();

    let received = read(&fs::read(output).unwrap());
    let mut substreams = received.into_iter();
    for output in outputs {
        let substreams = substreams.by_ref().take(output.dst.len());
        check(
            rig,
            output,
            substreams.map(|(_, heaps)| heaps).collect(),
            gain,
        );
    }
}

/// Heaps by timestamp, and the first channel that all of a substream have.
type Substream = BTreeMap<u64, (u64, Vec<u8>)>;

/// What the script wrote, by its numbers of substreams.
fn read(mut bytes: &[u8]) -> BTreeMap<u64, Substream> {
    let mut substreams: BTreeMap<u64, Substream> = BTreeMap::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<32>() {
        let number = |i: usize| u64::from_le_bytes(*head[8 * i..].first_chunk().unwrap());
        let (data, next) = rest.split_at(number(3) as usize);
        let heaps = substreams.entry(number(0)).or_default();
        let twice = heaps.insert(number(1), (number(2), data.to_vec()));
        assert!(twice.is_none(), "heap {} of {} twice", number(1), number(0));
        bytes = next;
    }
    substreams
}

fn check(rig: &Rig, output: &OutputConfig, substreams: Vec<Substream>, gain: f32) {
    assert_eq!(substreams.len(), output.dst.len());
    let mut batches: BTreeMap<u64, Vec<i8>> = BTreeMap::new();
    for (substream, first) in substreams
        .iter()
        .zip((0..).step_by(output.channels_per_substream()))
    {
        for (timestamp, (channel, data)) in substream {
            assert_eq!(*channel, first);
            let batch = batches.entry(*timestamp).or_default();
            match output.sample_bits {
                OutputBits::Eight => batch.extend(data.iter().map(|&byte| byte as i8)),
                // Real parts are in the high halves.
                OutputBits::Four => batch.extend(
                    data.iter()
                        .flat_map(|&byte| [byte as i8 >> 4, (byte << 4) as i8 >> 4]),
                ),
            }
        }
    }
    // At the end some substreams are a heap ahead.
    let whole = 4 * output.jones_per_batch;
    while batches
        .last_entry()
        .is_some_and(|last| last.get().len() < whole)
    {
        batches.pop_last();
    }
    let (first, end) = (rig.samples.first(), rig.samples.end());
    let expected = (end - first - 2 * CHUNK) / output.batch_samples() as u64 - 2;
    assert!(
        batches.len() as u64 >= expected,
        "{} batches",
        batches.len()
    );
    let values: BTreeSet<_> = batches.values().flatten().collect();
    assert!(values.len() > 8, "{values:?}");
    let delays = [0; 2].map(|_| DelayModels::with_subsampling(output.subsampling() as u32));
    check_against_model(&rig.samples, output, &batches, &delays, gain);
}
