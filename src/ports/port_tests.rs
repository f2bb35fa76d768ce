//! Ports: their memory, their rules, and why there is none.

use std::error::Error;

use super::*;
use crate::net::parse_endpoints;

/// Else nobody would hear of memberships after some hours.
#[test]
fn reports_find_a_buffer_while_the_driver_keeps_what_was_sent() {
    let eal = Eal::for_tests();
    for keeps in [64, 1024] {
        let pool = report_pool(eal, keeps).unwrap();
        let kept: Vec<_> = std::iter::repeat_with(|| pool.alloc())
            .take(keeps)
            .collect();
        assert!(kept.iter().all(Option::is_some) && pool.available() >= BURST);
    }
}

/// Only where nobody else sees to memberships.
#[test]
fn queues_for_reports_count_where_there_are_any() {
    let bytes = |driver| {
        let interface = Interface {
            driver,
            ..Interface::find("lo").unwrap()
        };
        PortUse::default().mbuf_bytes(&interface)
    };
    let control = bytes(Driver::Vfio);
    assert!(control >= 1024 * (DATA_ROOM + REPORT_ROOM), "{control}");
    for driver in [Driver::AfPacket, Driver::Udp, Driver::Mlx5, Driver::Virtio] {
        assert_eq!(bytes(driver), 0, "{driver:?}");
    }
}

/// A port without rules: software can make up for them as long as packets come at all.
#[test]
fn refused_rules_end_the_start_where_nothing_else_lets_packets_in() {
    let eal = Eal::for_tests();
    let device = Device::vdev(eal, "net_null_rules", "size=64").unwrap();
    let port = device.start(&PortConfig::default()).unwrap().port;
    let sources = parse_endpoints("239.102.0.64+7").unwrap();
    let steering = FlowTable::from_sources(&sources, 1);
    assert!(steer(&port, &steering, None, false).unwrap().is_none());
    let refused = steer(&port, &steering, None, true).unwrap_err();
    let refused = refused.of("eth1", Driver::Mlx5);
    let text = format!("{refused}: {}", refused.source().unwrap());
    for part in ["'eth1'", "af_packet:eth1", "239.102.0.64/29 UDP Some(7148)"] {
        assert!(text.contains(part), "{text}");
    }
    // Where nothing is received, nothing is missed.
    let nothing = steer(&port, &FlowTable::default(), None, true);
    assert!(nothing.unwrap().is_some());
}

/// A NIC that DPDK does not take after all: what is used in its place fails as well, for there
/// is no such interface, or its UDP port is another's alone.
#[test]
fn a_port_that_fails_names_the_needs_of_the_driver_that_was_used() {
    let taken = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let sources = parse_endpoints(&format!("239.102.0.64+7:{port}")).unwrap();
    let interface = Interface {
        name: "none0".to_owned(),
        index: 1,
        ip: [10, 0, 0, 1].into(),
        mtu: None,
        driver: Driver::Mlx5,
        pci: Some("0000:ff:1f.7".to_owned()),
    };
    let port = PortUse {
        rx_queues: 1,
        ..PortUse::default()
    };
    let steering = FlowTable::from_sources(&sources, 1);
    let opened = port.open(Eal::for_tests(), &interface, &steering);
    let error = opened.unwrap_err().to_string();
    let (driver, _) = Rights::of_this_process().choose(Driver::AfPacket);
    assert!(
        error.contains(&format!("({}, need", driver.label())),
        "{error}"
    );
}
