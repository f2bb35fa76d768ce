//! Links that go down and come back.

use std::process::Command;

use super::cable::Cable;
use super::chain::Karoo;
use super::rig::{BATCH, CHUNK, METRICS as ENGINE_METRICS, Rig, scrape, total};
use super::telescope::Telescope;

/// Samples that are sent at a time: what the engine takes before it sends.
const STRETCH: u64 = 4 * CHUNK;
/// Samples that are lost each time.
const GAP: u64 = CHUNK / 2;

fn set(namespace: &str, state: &str) {
    set_link(namespace, "k0", state);
}

fn set_link(namespace: &str, interface: &str, state: &str) {
    let status = Command::new("ip")
        .args(["-n", namespace, "link", "set", interface, state])
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

/// Packets of a port, of its lowest number of descriptors many times over: what does not take them
/// has no room for so many.
const MANY: u64 = 4000;

/// Input is taken in, the other output goes on, and the engine ends, whichever end of the cable was
/// pulled.
#[test]
fn an_output_without_a_link_holds_up_nothing() {
    let options = [
        "--send-interface=k0,k1",
        "--send-buffer=128",
        "--send-packet-payload=256",
    ];
    let Some(mut telescope) = Telescope::start("one-of-two", 0.0, &options, &[]) else {
        return;
    };
    let (engine, test) = (
        telescope.namespace(),
        telescope.digitiser.cable.test.clone(),
    );
    let count = |family: &str, label: &str| -> u64 {
        let text = scrape(&engine, ENGINE_METRICS);
        let wanted = format!("{family}{{{label}}} ");
        let mut counts = text.lines().filter_map(|line| line.strip_prefix(&wanted));
        counts.next().expect(&text).parse().unwrap()
    };
    let sent = |port: u8| {
        let label = format!("port=\"net_af_packet_k{port}\"");
        let errors = count("karoo_port_tx_errors_total", &label);
        (count("karoo_port_tx_packets_total", &label), errors)
    };
    telescope.send_until(|_| sent(0).0 > 100 && sent(1).0 > 100);
    for end in [&test, &engine] {
        set_link(end, "k1", "down");
        let (good, dead) = (sent(0), sent(1));
        telescope.send_until(|log| {
            assert!(!log.contains("no-free-chunk"), "{log}");
            sent(0).0 > good.0 + MANY && sent(1).1 > dead.1 + MANY
        });
        set_link(end, "k1", "up");
        let back = sent(1).0;
        telescope.send_until(|_| sent(1).0 > back + MANY);
    }
    assert_eq!(sent(0).1, 0);
    set_link(&test, "k1", "down");
    telescope.send_for(3.0);
    let log = telescope.end();
    assert!(
        log.contains("port net_af_packet_k1: its link went down 3 times"),
        "{log}"
    );
}

/// Where a digitiser tells of itself.
const METRICS: u16 = 9101;

/// Heaps that were handed to the port, and that the kernel refused.
#[test]
fn a_digitiser_tells_what_its_port_could_not_send() {
    let Some(cable) = Cable::new("refused") else {
        return;
    };
    let metrics = format!("--prometheus-port={METRICS}");
    let args = [
        "dsim",
        "--interface=udp:k0",
        "--adc-sample-rate=1e6",
        "--period=65536",
        "--signals=0;",
        "--katcp-port=0",
        &metrics,
        "239.102.0.64:7148",
    ];
    let mut digitiser = Karoo::start_with(&cable.test, &args, &[]).up();
    set(&cable.test, "down");
    let mut counted = 0;
    digitiser.wait(|_| {
        let text = scrape(&cable.test, METRICS);
        let mut lines = text.lines();
        let count = lines.find_map(|line| {
            let (name, count) = line.rsplit_once(' ')?;
            name.starts_with("karoo_port_tx_errors_total")
                .then_some(count)
        });
        counted = count.map_or(0, |count| count.parse().unwrap());
        counted > 0
    });
    digitiser.interrupt();
    let (status, _) = digitiser.ended();
    let log = digitiser.log();
    assert_eq!(status.code(), Some(0), "{log}");
    let sent = log.lines().rfind(|line| line.contains("INFO sent"));
    let words = sent.expect(&log).split(' ');
    let told = words.filter_map(|word| word.strip_prefix("tx_errors="));
    let told: Vec<u64> = told.map(|count| count.parse().unwrap()).collect();
    assert!(told.len() == 1 && told[0] >= counted, "{counted}: {log}");
}
