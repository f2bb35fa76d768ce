//! Interfaces with several addresses, and one address on several interfaces.
//!
//! Needs root, for the namespaces; where there are none, says "no network namespaces" and passes.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::{Command, Output};
use std::thread;

use dpdk::{Eal, MbufBatch, MbufPool, PoolConfig, SocketConfig, SocketPort, pool_size};
use karoo::net::{HeaderTemplate, MacAddr};
use karoo::ports::Interface;
use nix::net::if_::if_nametoindex;
use nix::sched::{CloneFlags, unshare};
use serde_json::Value;

use super::veth::{in_namespace, run};

/// Runs a test on a thread whose end takes its namespaces along.
fn apart(test: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let test = scope.spawn(test);
        if let Err(panic) = test.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// What is there of interfaces is that of the namespace in which it was mounted.
fn own_sysfs() {
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    for command in ["mount --make-rprivate /", "mount -t sysfs karoo /sys"] {
        run(command).unwrap();
    }
}

/// Whatever the label, of which the system speaks as if it were the interface.
#[test]
fn an_interface_is_used_with_the_address_that_was_given() {
    apart(|| {
        let commands = [
            "ip link add k0 type veth peer name k1",
            "ip link set k0 up",
            "ip address add 10.88.5.2/24 label k0:1 dev k0",
            "ip address add 10.88.5.3/24 dev k0",
            "ip address add 10.88.5.4/24 label k0:2 dev k0",
        ];
        if !in_namespace(&commands) {
            return;
        }
        own_sysfs();
        for (name, last) in [
            ("k0", 2),
            ("10.88.5.2", 2),
            ("10.88.5.3", 3),
            ("udp:10.88.5.4", 4),
        ] {
            let found = Interface::find(name).unwrap();
            let ip = Ipv4Addr::new(10, 88, 5, last);
            assert_eq!((&found.name[..], found.ip), ("k0", ip), "{name}");
        }
        let error = Interface::find("10.88.5.5").unwrap_err().to_string();
        assert!(error.contains("k0 with 10.88.5.4"), "{error}");
        let own = doctor("k0", "10.88.5.2:7148");
        assert!(!own.contains(&"foreign-address".to_owned()), "{own:?}");
        let other = doctor("k0", "10.88.5.5:7148");
        assert!(other.contains(&"foreign-address".to_owned()), "{other:?}");
    });
}

/// A command of this thread's namespace.
fn karoo(args: &[&str]) -> Output {
    let mut karoo = Command::new(env!("CARGO_BIN_EXE_karoo"));
    karoo.args(args).env_remove("RUST_LOG").output().unwrap()
}

/// Codes of what the doctor finds.
fn doctor(interface: &str, src: &str) -> Vec<String> {
    let args = [
        "doctor",
        "--json",
        "--for=0.1",
        "--recv-interface",
        interface,
        src,
    ];
    let output = karoo(&args);
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let findings = report["findings"].as_array().unwrap();
    let code = |finding: &Value| finding["code"].as_str().unwrap().to_owned();
    findings.iter().map(code).collect()
}

/// Packets that an interface has sent.
fn sent(interface: &str) -> u64 {
    let table = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let mut lines = table.lines().map(str::trim);
    let line = lines.find_map(|line| line.strip_prefix(&format!("{interface}:")[..]));
    // Behind eight numbers of what was received, and the bytes.
    let packets = line.unwrap().split_whitespace().nth(9);
    packets.unwrap().parse().unwrap()
}

/// Two interfaces with one address.
const ALIKE: [&str; 8] = [
    "ip link add k0 type veth peer name k1",
    "ip link add k2 type veth peer name k3",
    // Nothing but what is sent here goes.
    "ip link set k0 addrgenmode none up",
    "ip link set k1 addrgenmode none up",
    "ip link set k2 addrgenmode none up",
    "ip link set k3 addrgenmode none up",
    "ip address add 10.88.6.1/32 dev k0",
    "ip address add 10.88.6.1/32 dev k2",
];

/// Also the doctor, whose query to this host came to the other interface.
#[test]
fn the_modem_sends_through_the_interface_that_is_meant() {
    apart(|| {
        if !in_namespace(&ALIKE) {
            return;
        }
        own_sysfs();
        for (through, other) in [("k0", "k2"), ("k2", "k0")] {
            let before = [through, other].map(sent);
            let args = ["modem", "tx", "--input", "/dev/null", "--sample-rate", "2M"];
            let to = ["--output", "udp:239.88.6.1:4991", "--interface", through];
            let output = karoo(&[&args[..], &to].concat());
            assert!(output.status.success(), "{output:?}");
            let behind = [through, other].map(sent);
            assert!(
                behind[0] > before[0] && behind[1] == before[1],
                "{behind:?}"
            );
        }
        for interface in ["k0", "k2"] {
            let found = doctor(interface, "239.88.6.1:7148");
            assert!(!found.contains(&"firewall".to_owned()), "{found:?}");
        }
    });
}

#[test]
fn udp_sockets_send_through_the_interface_that_is_meant() {
    const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 88, 6, 1);
    apart(|| {
        if !in_namespace(&ALIKE) {
            return;
        }
        let eal = Eal::for_tests();
        let pool = PoolConfig {
            mbufs: pool_size(512, 64),
            cache: 0,
            data_room: 2048,
            socket: None,
        };
        let pool = MbufPool::new(eal, "one_address", pool).unwrap();
        let (from, to) = (
            SocketAddrV4::new(ADDRESS, 50_000),
            SocketAddrV4::new([239, 88, 6, 1].into(), 7148),
        );
        let template = HeaderTemplate::multicast(MacAddr::default(), from, to, 4).unwrap();
        for (through, other) in [("k0", "k2"), ("k2", "k0")] {
            let config = SocketConfig {
                name: through,
                interface: if_nametoindex(through).unwrap(),
                ip: ADDRESS,
                rx: Vec::new(),
                rx_bytes: 0,
                tx_queues: 1,
                tx_bytes: 1 << 20,
            };
            let mut port = SocketPort::open(eal, config).unwrap().started;
            let mut frame = pool.alloc().unwrap();
            let headers = frame.append(42).unwrap();
            template.emit(0, headers.first_chunk_mut().unwrap());
            let mut batch: MbufBatch = MbufBatch::new();
            batch.push(frame).unwrap();
            let before = [through, other].map(sent);
            assert_eq!(port.tx[0].tx_burst(&mut batch), 1);
            assert_eq!(port.port.stats().unwrap().tx_packets, 1);
            assert_eq!([through, other].map(sent), [before[0] + 1, before[1]]);
        }
    });
}
