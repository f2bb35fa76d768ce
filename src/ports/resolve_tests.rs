//! Trees of sysfs as machines have them: names, links and the files that are read.

use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

/// Makes a tree: `path -> target` is a link, `path = text` a file, `path/` a folder.
fn tree(lines: &str) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (path, what) = line.split_once(' ').unwrap_or((line, ""));
        let path = root.path().join("sys").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match what.split_at_checked(2) {
            Some(("->", target)) => symlink(target.trim(), path).unwrap(),
            Some(("= ", text)) => fs::write(path, format!("{text}\n")).unwrap(),
            _ => fs::create_dir_all(path).unwrap(),
        }
    }
    root
}

/// A server with a ConnectX-6, as `/sys` of Linux 6.1 has it, a management NIC, and an Intel NIC
/// that DPDK has.
const SERVER: &str = "
    class/net/ens1f0np0 -> ../../devices/pci0000:80/0000:80:01.1/0000:81:00.0/net/ens1f0np0
    class/net/eno1 -> ../../devices/pci0000:c0/0000:c0:05.0/0000:c4:00.0/net/eno1
    class/net/lo -> ../../devices/virtual/net/lo
    class/net/bond0 -> ../../devices/virtual/net/bond0
    devices/virtual/net/lo/
    devices/virtual/net/bond0/
    devices/pci0000:80/0000:80:01.1/0000:81:00.0/net/ens1f0np0/device -> ../../../0000:81:00.0
    devices/pci0000:80/0000:80:01.1/0000:81:00.0/driver -> ../../../../bus/pci/drivers/mlx5_core
    devices/pci0000:80/0000:80:01.1/0000:81:00.0/infiniband/mlx5_0/
    devices/pci0000:80/0000:80:01.1/0000:81:00.0/class = 0x020000
    devices/pci0000:80/0000:80:01.1/0000:81:00.0/vendor = 0x15b3
    devices/pci0000:c0/0000:c0:05.0/0000:c4:00.0/net/eno1/device -> ../../../0000:c4:00.0
    devices/pci0000:c0/0000:c0:05.0/0000:c4:00.0/driver -> ../../../../bus/pci/drivers/tg3
    devices/pci0000:c0/0000:c0:05.0/0000:c4:00.0/class = 0x020000
    devices/pci0000:40/0000:41:00.0/driver -> ../../../bus/pci/drivers/vfio-pci
    devices/pci0000:40/0000:41:00.0/class = 0x020000
    devices/pci0000:40/0000:41:00.0/vendor = 0x8086
    devices/pci0000:40/0000:42:00.0/class = 0x020000
    devices/pci0000:40/0000:43:00.0/driver -> ../../../bus/pci/drivers/nvidia
    devices/pci0000:40/0000:43:00.0/class = 0x030200
    bus/pci/devices/0000:81:00.0 -> ../../../devices/pci0000:80/0000:80:01.1/0000:81:00.0
    bus/pci/devices/0000:c4:00.0 -> ../../../devices/pci0000:c0/0000:c0:05.0/0000:c4:00.0
    bus/pci/devices/0000:41:00.0 -> ../../../devices/pci0000:40/0000:41:00.0
    bus/pci/devices/0000:42:00.0 -> ../../../devices/pci0000:40/0000:42:00.0
    bus/pci/devices/0000:43:00.0 -> ../../../devices/pci0000:40/0000:43:00.0
";

/// A virtual machine with two virtio NICs, one of them DPDK's.
const GUEST: &str = "
    class/net/enp1s0 -> ../../devices/pci0000:00/0000:01:00.0/virtio0/net/enp1s0
    devices/pci0000:00/0000:01:00.0/virtio0/net/enp1s0/device -> ../../../virtio0
    devices/pci0000:00/0000:01:00.0/virtio0/driver -> ../../../../bus/virtio/drivers/virtio_net
    devices/pci0000:00/0000:01:00.0/driver -> ../../../bus/pci/drivers/virtio-pci
    devices/pci0000:00/0000:01:00.0/class = 0x020000
    devices/pci0000:00/0000:01:00.0/vendor = 0x1af4
    devices/pci0000:00/0000:02:00.0/driver -> ../../../bus/pci/drivers/vfio-pci
    devices/pci0000:00/0000:02:00.0/class = 0x020000
    devices/pci0000:00/0000:02:00.0/vendor = 0x1af4
    bus/pci/devices/0000:01:00.0 -> ../../../devices/pci0000:00/0000:01:00.0
    bus/pci/devices/0000:02:00.0 -> ../../../devices/pci0000:00/0000:02:00.0
";

fn found(root: &TempDir, name: &str) -> (Option<String>, Option<String>, Driver) {
    let located = locate(root.path(), name).unwrap();
    assert!(!located.why.is_empty());
    (located.netdev, located.pci, located.driver)
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn a_server_has_the_best_driver_for_each() {
    let root = tree(SERVER);
    let mellanox = (some("ens1f0np0"), some("0000:81:00.0"), Driver::Mlx5);
    for name in ["ens1f0np0", "0000:81:00.0", "81:00.0"] {
        assert_eq!(found(&root, name), mellanox, "{name}");
    }
    let onboard = (some("eno1"), some("0000:c4:00.0"), Driver::AfPacket);
    assert_eq!(found(&root, "eno1"), onboard);
    assert_eq!(found(&root, "C4:00.0"), onboard);
    assert_eq!(
        found(&root, "bond0"),
        (some("bond0"), None, Driver::AfPacket)
    );
    assert_eq!(
        found(&root, "41:00.0"),
        (None, some("0000:41:00.0"), Driver::Vfio)
    );
}

#[test]
fn a_guest_has_virtio() {
    let root = tree(GUEST);
    let kernel = (some("enp1s0"), some("0000:01:00.0"), Driver::AfPacket);
    assert_eq!(found(&root, "01:00.0"), kernel);
    assert_eq!(found(&root, "enp1s0").2, Driver::AfPacket);
    assert_eq!(
        found(&root, "02:00.0"),
        (None, some("0000:02:00.0"), Driver::Virtio)
    );
}

/// Without verbs DPDK cannot share the NIC.
#[test]
fn mlx5_needs_verbs() {
    let without: String = SERVER
        .lines()
        .filter(|line| !line.contains("infiniband"))
        .fold(String::new(), |text, line| text + line + "\n");
    let located = locate(tree(&without).path(), "ens1f0np0").unwrap();
    assert_eq!(located.driver, Driver::AfPacket);
    assert!(located.why.contains("modprobe mlx5_ib"), "{}", located.why);
}

#[test]
fn refusals_say_what_there_is() {
    let root = tree(SERVER);
    let refused = |name: &str| locate(root.path(), name).unwrap_err().to_string();
    let error = refused("eth7");
    assert!(
        error.contains("'eth7'") && error.contains("ens1f0np0"),
        "{error}"
    );
    let error = refused("82:00.0");
    assert!(
        error.contains("0000:82:00.0") && error.contains("0000:81:00.0"),
        "{error}"
    );
    let error = refused("43:00.0");
    assert!(
        error.contains("0x030200") && !error.contains("0000:43:00.0,"),
        "{error}"
    );
    let error = refused("42:00.0");
    assert!(
        error.contains("no driver") && error.contains("dpdk-devbind"),
        "{error}"
    );
    for name in ["../net/lo", "", ".", ".."] {
        assert!(refused(name).contains("there is none"), "{name}");
    }
}

#[test]
fn addresses_are_read_in_full_and_in_short() {
    assert_eq!(pci_address("81:00.1"), some("0000:81:00.1"));
    assert_eq!(pci_address("0001:AF:1f.7"), some("0001:af:1f.7"));
    for wrong in [
        "eth0.1",
        "81:00.8",
        "81:00",
        "1:81:00.0",
        "0000:0000:81:00.0",
        "10.0.0.1",
        "é1:00.0",
    ] {
        assert_eq!(pci_address(wrong), None, "{wrong}");
    }
}
