//! Clients that mean harm to control, while an engine is at work: the stream goes on without a lost
//! heap.

use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, TcpStream};
use std::thread;

use super::cable::Cable;
use super::rig::{BATCH, KATCP, METRICS, Rig, TOO_LONG, run_python};

#[test]
fn hostile_clients_cost_no_heap() {
    let options = ["--send-rate-factor=0", "--recv-spare-chunks=64"];
    let Some(mut rig) = Rig::live("hostile", &options) else {
        return;
    };
    let (first, end) = (rig.samples.first(), rig.samples.end());
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
            rig.send(sent, sent + BATCH);
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
    rig.wait_for_all();
    rig.end();
    rig.check_all();
}

#[test]
fn idle_connections_keep_no_scrape_out() {
    let Some(mut rig) = Rig::live("idle", &[]) else {
        return;
    };
    let mut idle = Cable::within(&rig.cable.engine, || {
        let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, METRICS)).unwrap();
        (0..300).map(|_| connect()).collect::<Vec<_>>()
    });
    assert!(rig.scrape().contains("karoo_build_info"));
    // All are closed: most to make room, the last in time.
    for connection in [0, 299] {
        idle[connection].set_read_timeout(Some(TOO_LONG)).unwrap();
        // Unlike `read`, `read_exact` goes on after a signal.
        let end = idle[connection].read_exact(&mut [0]);
        let end = end.map_err(|error| error.kind());
        let closed = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset].map(Err);
        assert!(closed.contains(&end), "connection {connection}: {end:?}");
    }
    rig.end();
}
