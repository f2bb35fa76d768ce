//! Ports on one end of a cable in a namespace of their own: what the kernel drops, and memberships
//! that we report ourselves to Linux's bridge, a switch that snoops and a router that asks.
//!
//! Needs root, for the namespaces; where there are none, says "no network namespaces" and passes.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use dpdk::{Device, Eal, MbufBatch, MbufPool, PoolConfig, PortConfig, StartedPort, pool_size};
use karoo::net::MacAddr;
use karoo::ports::{ControlQueues, IgmpThread};
use nix::libc;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Pid, gettid};

use crate::support::left_out;

/// Tests fail rather than hang.
const TOO_LONG: Duration = Duration::from_secs(180);

pub fn run(command: &str) -> Result<String, String> {
    let mut words = command.split(' ');
    let program = words.next().unwrap_or_default();
    match Command::new(program).args(words).output() {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Runs commands in a namespace of this thread's own; false where there are none.
pub fn in_namespace(commands: &[&str]) -> bool {
    if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
        left_out(&format!("no network namespaces: {error}"));
        return false;
    }
    for command in commands {
        if let Err(error) = run(command) {
            left_out(&format!("no network namespaces: {command}: {error}"));
            return false;
        }
    }
    true
}

fn pool(eal: &Eal, name: &str) -> MbufPool {
    let config = PoolConfig {
        mbufs: pool_size(512, 64),
        cache: 32,
        data_room: 9344,
        socket: None,
    };
    MbufPool::new(eal, name, config).unwrap()
}

/// A port on the interface k0, with a ring of 128 frames.
fn port(eal: &Eal, name: &str) -> StartedPort {
    let options = "iface=k0,qpairs=1,blocksz=36864,framesz=9216,framecnt=128";
    let device = Device::vdev(eal, &format!("net_af_packet_{name}"), options).unwrap();
    let config = PortConfig {
        rx_pools: vec![pool(eal, name)],
        rx_descriptors: 512,
        tx_descriptors: 512,
        promiscuous: false,
        ..PortConfig::default()
    };
    device.start(&config).unwrap()
}

/// Waits until a thread of this process waits for packets.
fn wait_until_asleep(id: Pid) {
    let syscall = format!("/proc/self/task/{id}/syscall");
    let waits = [libc::SYS_poll, libc::SYS_ppoll, libc::SYS_epoll_wait];
    let waits = waits.map(|call| format!("{call} "));
    let begun = Instant::now();
    loop {
        let call = fs::read_to_string(&syscall).unwrap();
        if waits.iter().any(|wait| call.starts_with(wait)) {
            return;
        }
        assert!(begun.elapsed() < TOO_LONG, "it never sleeps: {call}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// What finds no room in the ring is counted, once.
#[test]
fn packets_that_the_kernel_drops_are_counted() {
    let commands = [
        "ip link add k0 type veth peer name k1",
        // Nothing but what is sent here comes.
        "ip link set k0 addrgenmode none mtu 9000 up",
        "ip link set k1 addrgenmode none mtu 9000 up",
        "ip address add 10.88.1.1/24 dev k1",
        "ip route add 239.0.0.0/8 dev k1",
    ];
    if !in_namespace(&commands) {
        return;
    }
    let eal = Eal::for_tests();
    let mut port = port(eal, "drops");
    let socket = UdpSocket::bind((Ipv4Addr::new(10, 88, 1, 1), 0)).unwrap();
    let send = |count: u64| {
        for _ in 0..count {
            socket.send_to(&[1; 100], "239.1.2.3:7148").unwrap();
        }
    };
    send(1000);
    let first = port.port.stats().unwrap().rx_missed;
    assert!((800..1000).contains(&first), "{first}");
    assert_eq!(port.port.stats().unwrap().rx_missed, first);
    let mut batch: MbufBatch = MbufBatch::new();
    let mut received = 0;
    while port.rx[0].rx_burst(&mut batch) > 0 {
        received += batch.len() as u64;
        batch.clear();
    }
    let missed = port.port.stats().unwrap().rx_missed;
    assert_eq!((received + missed, missed), (1000, first));
    send(500);
    assert!(port.port.stats().unwrap().rx_missed > missed);
}

#[test]
fn a_packet_wakes_who_sleeps() {
    let commands = [
        "ip link add k0 type veth peer name k1",
        "ip link set k0 addrgenmode none mtu 9000 up",
        "ip link set k1 addrgenmode none mtu 9000 up",
        "ip address add 10.88.1.1/24 dev k1",
        "ip route add 239.0.0.0/8 dev k1",
    ];
    if !in_namespace(&commands) {
        return;
    }
    let mut port = port(Eal::for_tests(), "wakes");
    let queue = &mut port.rx[0];
    assert!(queue.wakes());
    let mut batch: MbufBatch = MbufBatch::new();
    // What came before, such as reports of memberships.
    while queue.sleep(&mut batch, Duration::from_millis(10)) > 0 {
        batch.clear();
    }
    let socket = UdpSocket::bind((Ipv4Addr::new(10, 88, 1, 1), 0)).unwrap();
    let begun = Instant::now();
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        let woken = scope.spawn(|| {
            tell.send(gettid()).unwrap();
            queue.sleep(&mut batch, 10 * TOO_LONG)
        });
        wait_until_asleep(told.recv().unwrap());
        socket.send_to(&[1; 100], "239.1.2.3:7148").unwrap();
        assert!(woken.join().unwrap() > 0);
    });
    assert!(begun.elapsed() < TOO_LONG);
    // A link that goes down is told once, and wakes nobody for ever.
    run("ip link set k0 down").expect("down");
    batch.clear();
    queue.sleep(&mut batch, Duration::from_millis(1));
    let begun = Instant::now();
    while queue.sleep(&mut batch, Duration::from_millis(50)) > 0 {
        batch.clear();
    }
    assert!(begun.elapsed() >= Duration::from_millis(50));
}

/// The groups that the bridge would forward to the port, and the seconds until it forgets them.
fn memberships() -> BTreeMap<String, f64> {
    let list = run("bridge -s mdb show dev br0").expect("the bridge's groups");
    let group = |line: &str| {
        let mut words = line.split_whitespace();
        words.find(|word| *word == "grp")?;
        Some((words.next()?.to_owned(), words.last()?.parse().ok()?))
    };
    let lines = list.lines().filter(|line| line.contains("port k1"));
    let groups = lines.filter_map(group);
    groups
        .filter(|(group, _)| group.starts_with("239."))
        .collect()
}

fn snooped() -> Vec<String> {
    memberships().into_keys().collect()
}

fn wait(what: &str, mut happened: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !happened() {
        assert!(begun.elapsed() < TOO_LONG, "{what}: {:?}", snooped());
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_switch_learns_of_groups_and_forgets_them() {
    // Queries come each second. A membership that nobody ends is forgotten after an hour: far
    // longer than the test waits.
    let commands = [
        "ip link add k0 type veth peer name k1",
        "ip link add br0 type bridge mcast_snooping 1 mcast_igmp_version 3 mcast_query_interval 100 \
         mcast_startup_query_interval 100 mcast_query_response_interval 20 mcast_membership_interval 360000 \
         mcast_last_member_interval 20",
        "ip link set k1 master br0",
        "ip link set k0 mtu 9000 up",
        "ip link set k1 mtu 9000 up",
        "ip address add 10.88.0.1/24 dev br0",
        "ip link set br0 type bridge mcast_querier 1",
        "ip link set br0 up",
    ];
    if !in_namespace(&commands) {
        return;
    }
    let eal = Eal::for_tests();
    let mut port = port(eal, "igmp");
    let mac = MacAddr(port.port.mac().unwrap());
    let queues = ControlQueues {
        rx: port.rx.pop().unwrap(),
        tx: port.tx.pop().unwrap(),
        pool: pool(eal, "reports"),
    };
    let igmp = IgmpThread::start(queues, mac, [10, 88, 0, 2].into()).unwrap();
    assert_eq!(snooped(), Vec::<String>::new());
    let groups: Vec<_> = (64..72).map(|last| format!("239.102.0.{last}")).collect();
    igmp.join(groups.iter().map(|group| group.parse().unwrap()));
    wait("joining", || snooped() == groups);
    // Each answer puts that off.
    let mut before = memberships();
    let mut answers: BTreeMap<_, _> = groups.iter().map(|group| (group, 0)).collect();
    wait("answering", || {
        let now = memberships();
        for (group, answers) in &mut answers {
            *answers += usize::from(now[*group] > before[*group]);
        }
        before = now;
        answers.values().all(|&answers| answers >= 3)
    });
    drop(igmp);
    wait("leaving", || snooped().is_empty());
}
