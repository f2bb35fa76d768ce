//! Clients that mean harm to control, while an engine is at work: the stream goes on without a lost heap.

use std::io::Read;
use std::net::{Ipv4Addr, TcpStream};
use std::thread;

use super::rig::{BATCH, Cable, KATCP, METRICS, OUTPUT, Rig, TOO_LONG, WINDOW, run_python};
use super::support::{Samples, check_against_model, data, output_config};

#[test]
fn hostile_clients_cost_no_heap() {
    let Some(cable) = Cable::new("hostile") else {
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
    let (first, end) = (samples.first(), samples.end());
    let (namespace, pid) = (rig.cable.engine.clone(), rig.id().to_string());
    let report = thread::scope(|scope| {
        let attack = scope.spawn(move || {
            let katcp = KATCP.to_string();
            let to = ["127.0.0.1", &katcp, "w", "64", &pid];
            let args = [&to[..], &["many", "endless"]].concat();
            run_python(&namespace, "hostile_katcp.py", &args, "")
        });
        // A little data at a time, so that there are some all the while.
        let mut sent = first;
        while sent < end {
            rig.send(&capture, sent, sent + BATCH);
            sent += BATCH;
            let mut rounds = 0;
            rig.wait(|_| {
                rounds += 1;
                rounds > 200 || attack.is_finished()
            });
        }
        attack.join().unwrap().unwrap()
    });
    assert_eq!(report["connected"], 1000, "{report}");
    let expected = samples.whole_batches(BATCH, WINDOW, 128);
    rig.wait_for_all(first, end);
    rig.signal("INT");
    let status = rig.ended();
    assert_eq!(status.code(), Some(0), "{}", rig.log());
    let batches = rig.received.batches();
    let received: Vec<_> = batches.keys().copied().collect();
    assert_eq!(received, expected, "{}", rig.log());
    check_against_model(
        &samples,
        &output_config(OUTPUT),
        &batches,
        &Default::default(),
        0.05,
    );
}

#[test]
fn idle_connections_keep_no_scrape_out() {
    let Some(cable) = Cable::new("idle") else {
        return;
    };
    let metrics_port = METRICS.to_string();
    let options = ["--recv-interface=k0", "--prometheus-port", &metrics_port];
    let mut rig = Rig::start(cable, &options, "239.102.0.64+7").up();
    let mut idle = Cable::within(&rig.cable.engine, || {
        let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, METRICS)).unwrap();
        (0..300).map(|_| connect()).collect::<Vec<_>>()
    });
    assert!(rig.scrape().contains("karoo_build_info"));
    // All are closed: most to make room, the last in time.
    for connection in [0, 299] {
        idle[connection].set_read_timeout(Some(TOO_LONG)).unwrap();
        assert!(matches!(idle[connection].read(&mut [0]), Ok(0)));
    }
    rig.signal("INT");
    assert_eq!(rig.ended().code(), Some(0), "{}", rig.log());
}
