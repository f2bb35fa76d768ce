//! Links that go down and come back.

use std::process::Command;

use super::rig::{BATCH, CHUNK, Rig, total};

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

/// What is lost meanwhile is counted as missing, and what comes behind it is channelised as before,
/// whichever end of the cable was pulled.
#[test]
fn a_link_that_comes_back_is_used_again() {
    let options = ["--send-rate-factor=0", "--recv-spare-chunks=16"];
    let Some(mut rig) = Rig::live("link", &options) else {
        return;
    };
    // What is behind a gap comes out later.
    rig.ahead = 8 * CHUNK;
    let (engine, test) = (rig.cable.engine.clone(), rig.cable.test.clone());
    let up = |rig: &Rig, value: &str| {
        let line = format!("karoo_port_link_up{{port=\"net_af_packet_k0\"}} {value}");
        rig.scrape().lines().any(|found| found == line)
    };
    assert!(up(&rig, "1"), "{}", rig.scrape());
    let mut from = rig.samples.first();
    let mut lost = 0;
    for end in [&test, &engine] {
        let until = from + STRETCH;
        rig.send(from, until);
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
    rig.send(from, from + STRETCH);
    rig.wait(|rig| rig.received.end().is_some_and(|end| end >= from + GAP));
    let metrics = rig.metrics();
    assert_eq!(total(&metrics, "fgpu_input_missing_heaps"), lost as f64);
    assert_eq!(total(&metrics, "karoo_port_link_downs"), 2.0);
    rig.end();
    let log = rig.log();
    let summary = "port net_af_packet_k0: its link went down 2 times";
    assert!(log.contains(summary), "{log}");
    let batches = rig.received.batches();
    // Of three stretches all but what lies across their ends.
    let expected = 3 * (STRETCH / BATCH - 2);
    assert!(batches.len() as u64 >= expected, "{:?}", batches.keys());
    rig.check(&batches);
}
