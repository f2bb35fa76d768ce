//! Membership in groups on ports that the kernel has no interface for: a thread that reports and
//! answers queries.

use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dpdk::{MbufBatch, MbufPool, RxQueue, TxQueue};

use crate::net::MacAddr;
use crate::net::igmp::Host;

/// How often it looks for queries, and for what is due.
const LOOK: Duration = Duration::from_millis(20);
/// Between what is said twice at the end.
const FAREWELL: Duration = Duration::from_millis(5);

/// What a port has for traffic that is not data.
#[derive(Debug)]
pub struct ControlQueues {
    /// Where queries come, if the port could be told to bring them.
    pub rx: RxQueue,
    /// Where reports go.
    pub tx: TxQueue,
    /// Their buffers.
    pub pool: MbufPool,
}

/// One port's memberships, which end when this is dropped.
#[derive(Debug)]
pub struct IgmpThread {
    groups: Arc<Mutex<Vec<Ipv4Addr>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl IgmpThread {
    /// Starts it, a member of nothing, on the caller's CPUs.
    pub fn start(queues: ControlQueues, mac: MacAddr, ip: Ipv4Addr) -> io::Result<Self> {
        let (groups, stop) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let worker = Worker {
            queues,
            host: Host::new(mac, ip),
            groups: Arc::clone(&groups),
            stop: Arc::clone(&stop),
            begun: Instant::now(),
        };
        let thread = thread::Builder::new().name("igmp".to_owned());
        Ok(Self {
            groups,
            stop,
            thread: Some(thread.spawn(move || worker.run())?),
        })
    }

    /// Becomes a member of these groups as well.
    pub fn join(&self, groups: impl IntoIterator<Item = Ipv4Addr>) {
        let mut all = ground::lock(&self.groups);
        all.extend(groups.into_iter().filter(Ipv4Addr::is_multicast));
    }
}

impl Drop for IgmpThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that reports memberships panicked");
        }
    }
}

struct Worker {
    queues: ControlQueues,
    host: Host,
    groups: Arc<Mutex<Vec<Ipv4Addr>>>,
    stop: Arc<AtomicBool>,
    begun: Instant,
}

impl Worker {
    fn run(mut self) {
        let mut batch: MbufBatch = MbufBatch::new();
        while !self.stop.load(Ordering::Relaxed) {
            let now = self.begun.elapsed();
            {
                let groups = ground::lock(&self.groups);
                groups.iter().for_each(|&group| self.host.join(group, now));
            }
            if self.queues.rx.rx_burst(&mut batch) > 0 {
                for mbuf in batch.iter() {
                    // Whatever else comes here is nobody's.
                    let _ = self.host.receive(mbuf.data(), now, rand::random());
                }
                batch.clear();
            }
            self.say(now);
            thread::sleep(LOOK);
        }
        self.host.leave_all(self.begun.elapsed());
        // Nobody is here for what is due later.
        let mut now = self.begun.elapsed();
        while self.host.next().is_some_and(|at| at <= now) {
            self.say(now);
            thread::sleep(FAREWELL);
            now = self.begun.elapsed();
        }
    }

    fn say(&mut self, now: Duration) {
        let spread = if self.stop.load(Ordering::Relaxed) {
            0.0
        } else {
            rand::random()
        };
        let mut batch: MbufBatch = MbufBatch::new();
        for frame in self.host.poll(now, spread) {
            // What finds no buffer is said again.
            if let Some(mut mbuf) = self.queues.pool.alloc()
                && let Some(data) = mbuf.append(frame.len())
            {
                data.copy_from_slice(&frame);
                let _ = batch.push(mbuf);
            }
            if batch.room() == 0 {
                self.queues.tx.tx_burst(&mut batch);
            }
        }
        self.queues.tx.tx_burst(&mut batch);
    }
}

#[cfg(test)]
mod tests {
    use dpdk::{Device, Eal, PoolConfig, PortConfig, RingReceiver, mbuf_ring};

    use super::*;

    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
    /// Records of version 3 (RFC 3376, 4.2.12).
    const CHANGE_TO_INCLUDE: u8 = 3;
    const CHANGE_TO_EXCLUDE: u8 = 4;

    /// Types of the records of [`GROUP`] in all reports that were sent by now.
    fn records(sent: &mut RingReceiver) -> Vec<u8> {
        const RECORD: usize = 14 + 24 + 8;
        let mut batch: MbufBatch = MbufBatch::new();
        let mut records = Vec::new();
        while sent.dequeue(&mut batch) > 0 {
            for mbuf in batch.iter() {
                let report = mbuf.data();
                assert_eq!(report[RECORD + 4..][..4], GROUP.octets());
                records.push(report[RECORD]);
            }
            batch.clear();
        }
        records
    }

    #[test]
    fn a_member_joins_and_leaves_before_it_ends() {
        const TOO_LONG: Duration = Duration::from_secs(60);
        let eal = Eal::for_tests();
        let config = PoolConfig {
            mbufs: 31,
            cache: 0,
            data_room: 256,
            socket: None,
        };
        let pool = MbufPool::new(eal, "igmp_thread", config).unwrap();
        let (_queries, rx) = mbuf_ring(eal, "igmp_thread_in", 31).unwrap();
        let (tx, mut sent) = mbuf_ring(eal, "igmp_thread_out", 31).unwrap();
        let device = Device::rings(eal, "igmp_thread", vec![rx], vec![tx]).unwrap();
        let ports = PortConfig {
            rx_pools: vec![pool.clone()],
            ..PortConfig::default()
        };
        let mut port = device.start(&ports).unwrap();
        let queues = ControlQueues {
            rx: port.rx.remove(0),
            tx: port.tx.remove(0),
            pool,
        };
        let (mac, ip) = (MacAddr([2, 0, 0, 0, 0, 1]), Ipv4Addr::new(192, 0, 2, 1));
        let member = IgmpThread::start(queues, mac, ip).unwrap();
        member.join([GROUP]);
        let (begun, mut said) = (Instant::now(), Vec::new());
        while said.len() < 2 && begun.elapsed() < TOO_LONG {
            said.extend(records(&mut sent));
            thread::yield_now();
        }
        assert_eq!(said, [CHANGE_TO_EXCLUDE; 2]);
        drop(member);
        assert_eq!(records(&mut sent), [CHANGE_TO_INCLUDE; 2]);
    }
}
