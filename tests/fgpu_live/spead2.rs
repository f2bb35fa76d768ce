//! spead2 as digitiser and X-engine of a live engine: 16 groups in, every substream out.

use std::collections::BTreeMap;
use std::fs;

use karoo::net::{CaptureReader, Datagram};
use karoo::spead::DigitiserHeap;
use serde_json::json;

use super::rig::{BATCH, CHUNK, Cable, OUTPUT, Rig};
use super::support::{Samples, check_against_model, data, output_config};

#[test]
fn spead2_sends_sixteen_groups_and_receives_every_substream() {
    let Some(cable) = Cable::new("spead2") else {
        return;
    };
    let capture = data("tones-10bit.pcap");
    let samples = Samples::read(&capture, 10, 4096);
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("input"), folder.path().join("output"));
    let mut heaps = Vec::new();
    let mut reader = CaptureReader::open(&capture).unwrap();
    while let Some(frame) = reader.next_frame().unwrap() {
        let datagram = Datagram::new_checked(frame.bytes).unwrap();
        let heap = DigitiserHeap::new_checked(datagram.payload()).unwrap();
        heaps.extend(heap.timestamp().unwrap().to_le_bytes());
        heaps.extend((heap.pol() as u64).to_le_bytes());
        heaps.extend(heap.payload());
    }
    fs::write(&input, heaps).unwrap();

    let options = [
        "--recv-interface=k0",
        "--recv-spare-chunks=8",
        "--send-rate-factor=0",
    ];
    let mut rig = Rig::start(cable, &options, "239.102.0.64+7,239.102.1.64+7").up();
    assert_eq!(rig.groups(), [8, 8, 0, 0]);
    let group = |base: &str, n: usize| (0..n).map(|i| format!("{base}{}", 64 + i)).collect();
    let sources: [Vec<String>; 2] = ["239.102.0.", "239.102.1."].map(|base| group(base, 8));
    let expectation = json!({
        "interface": "10.77.0.2",
        "sources": sources,
        "dst": (0..4).map(|i| format!("239.10.10.{i}")).collect::<Vec<_>>(),
        "port": 7148,
        "heap_samples": 4096,
        "sample_bits": 10,
        "ahead": 4 * CHUNK,
        // Timestamp of the last batch: two chunks are open until the next begins, and one waits for what is behind it.
        "end": samples.end() - 2 * CHUNK - 3 * BATCH,
    });
    let [input, output] = [&input, &output].map(|path| path.to_str().unwrap());
    let test = rig.cable.test.clone();
    let args = [&expectation.to_string()[..], input, output];
    let report = super::rig::run_python(&test, "live_spead2.py", &args, "")
        .unwrap_or_else(|error| panic!("{error}\n{}", rig.log()));
    assert_eq!(report["incomplete"], json!([0, 0, 0, 0]), "{report}");
    rig.signal("INT");
    assert_eq!(rig.ended().code(), Some(0), "{}", rig.log());

    // Substreams by timestamp, in order of their channels.
    let bytes = fs::read(output).unwrap();
    let mut found: BTreeMap<u64, BTreeMap<u64, Vec<i8>>> = BTreeMap::new();
    let mut rest = &bytes[..];
    while let Some((head, behind)) = rest.split_first_chunk::<24>() {
        let number = |i: usize| u64::from_le_bytes(*head[8 * i..].first_chunk().unwrap());
        let (data, next) = behind.split_at(number(2) as usize);
        let data = data.iter().map(|&byte| byte as i8).collect();
        let twice = found.entry(number(0)).or_default().insert(number(1), data);
        assert!(
            twice.is_none(),
            "heap {} of channel {} twice",
            number(0),
            number(1)
        );
        rest = next;
    }
    let batches: BTreeMap<_, Vec<i8>> = found
        .into_iter()
        .map(|(timestamp, heaps)| {
            assert_eq!(heaps.keys().copied().collect::<Vec<_>>(), [0, 16, 32, 48]);
            (timestamp, heaps.into_values().flatten().collect())
        })
        .collect();
    let expected = (samples.end() - samples.first()) / BATCH - 2 * CHUNK / BATCH - 2;
    assert!(
        batches.len() as u64 >= expected,
        "{} batches",
        batches.len()
    );
    check_against_model(
        &samples,
        &output_config(OUTPUT),
        &batches,
        &Default::default(),
        0.05,
    );
}
