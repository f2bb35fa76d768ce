//! An engine that may do nothing: the kernel's UDP sockets are its ports.

use std::collections::BTreeSet;

use super::cable::User;
use super::rig::{Rig, total};

/// What an engine sends of the capture, with the UDP port that each datagram came from.
fn sent(user: User, name: &str) -> Option<BTreeSet<(u16, Vec<u8>)>> {
    let mut rig = Rig::live_as(user, name, &["--send-rate-factor=0"])?;
    assert_eq!(rig.groups(), [8, 8, 0, 0]);
    rig.send_all();
    rig.wait_for_all();
    let metrics = rig.metrics();
    assert_eq!(
        total(&metrics, "karoo_port_rx_missed"),
        0.0,
        "{}",
        rig.log()
    );
    rig.end();
    rig.check_all();
    let log = rig.log();
    let why = "AF_PACKET needs CAP_NET_RAW and CAP_NET_ADMIN";
    assert_eq!(log.contains(why), user == User::Nobody, "{log}");
    Some(std::mem::take(&mut rig.received.datagrams))
}

#[test]
fn without_rights_the_same_bytes_are_sent() {
    let Some(by_root) = sent(User::Root, "root") else {
        return;
    };
    let by_nobody = sent(User::Nobody, "nobody").unwrap();
    assert!(by_root.len() > 100, "{}", by_root.len());
    assert!(by_root == by_nobody);
}

/// Two queues of one interface: each polarisation's groups come to a socket of its own.
#[test]
fn groups_are_divided_over_sockets() {
    let options = [
        "--recv-interface=udp:k0,udp:k0",
        "--recv-affinity=-1,-1",
        "--send-interface=udp:k0",
        "--send-rate-factor=0",
    ];
    let Some(mut rig) = Rig::live_as(User::Root, "divided", &options) else {
        return;
    };
    assert_eq!(rig.groups(), [8, 8, 0, 0]);
    rig.send_all();
    rig.wait_for_all();
    let metrics = rig.metrics();
    rig.end();
    rig.check_all();
    // Each is asked for what is its own.
    assert_eq!(total(&metrics, "karoo_input_drops"), 0.0);
}
