//! Links that go down and come back.

use std::process::Command;

use super::rig::{BATCH, CHUNK, Cable, METRICS, OUTPUT, Rig};
use super::support::{Samples, check_against_model, data, output_config};

/// Samples that are sent at a time: what the engine takes before it sends.
const STRETCH: u64 = 4 * CHUNK;
/// Samples that are lost each time.
const GAP: u64 = CHUNK / 2;

fn set(namespace: &str, state: &str) {
    let status = Command::new("ip")
        .args(["-n", namespace, "link", "set", "k0", state])
        .status();
    assert!(status.unwrap().success());
}

/// What is lost meanwhile is counted as missing, and what comes behind it is channelised as before, whichever end of the cable
/// was pulled.
#[test]
fn a_link_that_comes_back_is_used_again() {
    let Some(cable) = Cable::new("link") else {
        return;
    };
    let capture = data("tones-10bit.pcap");
    let samples = Samples::read(&capture, 10, 4096);
    let metrics_port = METRICS.to_string();
    let options = [
        "--recv-interface=k0",
        "--recv-spare-chunks=8",
        "--send-rate-factor=0",
        "--prometheus-port",
        &metrics_port,
    ];
    let mut rig = Rig::start(cable, &options, "239.102.0.64+7,239.102.1.64+7").up();
    // What is behind a gap comes out later.
    rig.ahead = 8 * CHUNK;
    let (engine, test) = (rig.cable.engine.clone(), rig.cable.test.clone());
    let up = |rig: &Rig, value: &str| {
        let line = format!("karoo_port_link_up{{port=\"net_af_packet_k0\"}} {value}");
        rig.scrape().lines().any(|found| found == line)
    };
    assert!(up(&rig, "1"), "{}", rig.scrape());
    let mut from = samples.first();
    let mut lost = 0;
    for end in [&test, &engine] {
        let until = from + STRETCH;
        rig.send(&capture, from, until);
        rig.wait(|rig| {
            rig.received
                .end()
                .is_some_and(|end| end + 3 * CHUNK >= until)
        });
        set(end, "down");
        rig.wait(|rig| up(rig, "0"));
        // What is sent meanwhile, by either digitiser, finds no way.
        lost += 2 * GAP / 4096;
        set(end, "up");
        rig.wait(|rig| up(rig, "1"));
        from = until + GAP;
    }
    rig.send(&capture, from, from + STRETCH);
    rig.wait(|rig| rig.received.end().is_some_and(|end| end >= from + GAP));
    let metrics = rig.metrics();
    let total = |family: &str| {
        let samples = metrics[family][1].as_array().unwrap();
        let values = samples.iter().map(|sample| sample[2].as_f64().unwrap());
        values.sum::<f64>() as u64
    };
    assert_eq!(total("fgpu_input_missing_heaps"), lost);
    assert_eq!(total("karoo_port_link_downs"), 2);
    rig.signal("INT");
    assert_eq!(rig.ended().code(), Some(0), "{}", rig.log());
    let log = rig.log();
    assert_eq!(log.matches("link is down").count(), 2, "{log}");
    assert_eq!(log.matches("link is up again").count(), 2, "{log}");
    let batches = rig.received.batches();
    // Of three stretches all but what lies across their ends.
    let expected = 3 * (STRETCH / BATCH - 2);
    assert!(batches.len() as u64 >= expected, "{:?}", batches.keys());
    check_against_model(
        &samples,
        &output_config(OUTPUT),
        &batches,
        &Default::default(),
        0.05,
    );
}
