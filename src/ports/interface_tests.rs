//! Names of interfaces, what they come to, and memberships.

use super::*;

#[test]
fn the_loopback_interface_is_found_and_others_are_named() {
    let lo = Interface::find("lo").unwrap();
    assert_eq!(lo.ip, Ipv4Addr::LOCALHOST);
    assert_eq!(Interface::find("127.0.0.1").unwrap(), lo);
    let forced = |driver| Interface {
        driver,
        ..lo.clone()
    };
    let [packet, udp] = ["af_packet:lo", "udp:lo"].map(|name| Interface::find(name).unwrap());
    assert_eq!(packet, forced(Driver::AfPacket));
    assert_eq!(udp, forced(Driver::Udp));
    assert_eq!(without_driver("udp:lo"), "lo");
    assert_eq!(without_driver("0000:81:00.0"), "0000:81:00.0");
    let refused = |name: &str| Interface::find(name).unwrap_err().to_string();
    let error = refused("none0");
    assert!(error.contains("'none0'") && error.contains("lo"), "{error}");
    let error = refused("192.0.2.77");
    assert!(
        error.contains("192.0.2.77") && error.contains("lo with 127.0.0.1"),
        "{error}"
    );
    let error = refused("81:00.0@10.0.0");
    assert!(error.contains("\"10.0.0\""), "{error}");
}

/// Only DPDK has it: the user says what its address is.
#[test]
fn devices_without_an_interface_need_an_address() {
    let located = || LocatedInterface {
        netdev: None,
        pci: Some("0000:41:00.0".to_owned()),
        driver: Driver::Vfio,
        why: String::new(),
    };
    let error = Interface::of(located(), None).unwrap_err().to_string();
    assert!(error.contains("0000:41:00.0@ADDRESS"), "{error}");
    let found = Interface::of(located(), Some([10, 0, 0, 5].into())).unwrap();
    assert_eq!(
        (&found.name[..], found.index, found.mtu),
        ("0000:41:00.0", 0, Some(9000))
    );
    found.check_mtu(8972, "--send-packet-payload").unwrap();
    found.check_mtu(8973, "--send-packet-payload").unwrap_err();
}

#[test]
fn an_address_that_was_given_is_used() {
    let all = [[10, 1, 0, 2], [10, 1, 0, 3]].map(Ipv4Addr::from);
    assert_eq!(address_of("eth0", &all, None).unwrap(), all[0]);
    for ip in all {
        assert_eq!(address_of("eth0", &all, Some(ip)).unwrap(), ip);
    }
    let other = Some(Ipv4Addr::LOCALHOST);
    let error = address_of("eth0", &all, other).unwrap_err().to_string();
    let has = "'eth0' has 10.1.0.2, 10.1.0.3, not 127.0.0.1";
    assert!(error.contains(has), "{error}");
    let error = address_of("eth0", &[], other).unwrap_err().to_string();
    assert!(error.contains("'eth0' has no IPv4 address"), "{error}");
    assert_eq!((own_name("eth0:1"), own_name("eth0.5")), ("eth0", "eth0.5"));
}

/// What a name asks for is not left undone.
#[test]
fn kernel_drivers_need_an_interface_of_the_kernel() {
    let located = || LocatedInterface {
        netdev: None,
        pci: Some("0000:41:00.0".to_owned()),
        driver: Driver::Vfio,
        why: String::new(),
    };
    assert_eq!(driven(located(), None).unwrap(), located());
    for driver in [Driver::Udp, Driver::AfPacket] {
        let error = driven(located(), Some(driver)).unwrap_err().to_string();
        for part in ["0000:41:00.0", driver.label(), "no interface"] {
            assert!(error.contains(part), "{error}");
        }
    }
}

#[test]
fn packets_must_fit() {
    let lo = Interface {
        mtu: Some(1500),
        ..Interface::find("lo").unwrap()
    };
    lo.check_mtu(1472, "--send-packet-payload").unwrap();
    let error = lo
        .check_mtu(1473, "--send-packet-payload")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("1501") && error.contains("mtu 9000"),
        "{error}"
    );
    // Whatever the interface takes: longer frames would be lost on the way to it.
    let wide = Interface {
        mtu: Some(65535),
        ..lo
    };
    wide.check_mtu(LARGEST_PACKET - 28, "--send-packet-payload")
        .unwrap();
    let error = wide.check_mtu(LARGEST_PACKET - 27, "--send-packet-payload");
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("9089") && error.contains("--send-packet-payload"),
        "{error}"
    );
}

/// More groups than one socket takes by default, each in the system's own list.
#[test]
fn many_groups_are_joined_and_left() {
    let lo = Interface::find("lo").unwrap();
    let endpoints: Vec<_> = (0..45)
        .map(|i| SocketAddrV4::new([239, 77, 1, i].into(), 7148))
        .collect();
    let joined = || {
        let list = fs::read_to_string("/proc/self/net/igmp").unwrap();
        // Addresses there are in the machine's byte order.
        let ours = |e: &&SocketAddrV4| {
            list.contains(&format!("{:08X}", u32::from_ne_bytes(e.ip().octets())))
        };
        endpoints.iter().filter(ours).count()
    };
    let mut groups = Memberships::default();
    groups.join(&endpoints, &lo).unwrap();
    assert_eq!(joined(), 45);
    drop(groups);
    assert_eq!(joined(), 0);
}
