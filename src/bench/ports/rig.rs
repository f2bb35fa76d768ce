//! Ports, lcores, and the trials that are run on them.

use std::cell::RefCell;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dpdk::{
    BURST, DpdkError, Eal, EalConfig, LcoreHandle, MbufPool, PoolConfig, RxQueue, TxQueue,
    memory_mib, pool_bytes, pool_size,
};
use ground::os::allowed_cpus;
use ground::{IdlePolicy, StopFlag};

use super::lcores::{Receiver, Sender, Shared};
use super::options::{PortsOptions, Search};
use super::report::PortTrial;
use super::{GROUP, PortsError};
use crate::assembly::Threads;
use crate::bench::search::{FoundRate, Method, ladder};
use crate::net::frame::HEADERS_LEN;
use crate::net::{FlowTable, HeaderTemplate, MacAddr};
use crate::ports::{Interface, Membership, PortUse, devices};

/// How long after the last packet of a trial nothing more is waited for.
const SILENCE: Duration = Duration::from_millis(100);
/// Packets between the sender and the port.
const QUEUE: usize = 512;
/// Chance that a trial says the opposite of what is so, for the noisy search.
const ERROR: f64 = 0.1;

/// Two ports and the lcores on them.
pub(super) struct Rig {
    threads: Threads,
    shared: Arc<Shared>,
    lcores: [LcoreHandle<()>; 2],
    trials: RefCell<Vec<PortTrial>>,
    _membership: Membership,
}

/// The way from the sender to the receiver: a port each, or one port where both are the same.
struct Path {
    mac: MacAddr,
    tx: TxQueue,
    rx: RxQueue,
    membership: Membership,
}

impl Path {
    /// Starts DPDK with `pools` bytes for the sender's packets, and opens the ports.
    fn open(
        options: &PortsOptions,
        send: &Interface,
        recv: &Interface,
        pools: usize,
    ) -> Result<(Eal, Self), PortsError> {
        let mut tx_use = PortUse {
            tx: true,
            tx_bytes: options.buffer,
            ..PortUse::default()
        };
        let rx_use = PortUse {
            rx_queues: 1,
            rx_bytes: options.buffer,
            ..PortUse::default()
        };
        let (pci, huge_pages) = devices([send, recv])?;
        let cpus = allowed_cpus();
        let bytes = pools + rx_use.mbuf_bytes(recv) + tx_use.mbuf_bytes(send);
        let eal = Eal::init(&EalConfig {
            worker_cpus: (0..2).map(|i| cpus[(i + 1) % cpus.len()]).collect(),
            memory_mib: memory_mib(bytes),
            devices: pci,
            huge_pages,
            ..EalConfig::default()
        })?;
        let table = FlowTable::from_sources(&[GROUP], 1);
        // Rules are for the port that has the receive queue.
        let same = send.name == recv.name;
        let mut tx_table = FlowTable::default();
        if same {
            tx_use.rx_queues = 1;
            tx_use.rx_bytes = options.buffer;
            tx_table = table.clone();
        }
        let mut tx_port = tx_use.open(&eal, send, &tx_table)?;
        let mut rx_port = None;
        if !same {
            rx_port = Some(rx_use.open(&eal, recv, &table)?);
        }
        let (mac, tx) = (tx_port.mac, tx_port.tx.pop());
        let receiving = rx_port.as_mut().unwrap_or(&mut tx_port);
        let rx = receiving.rx.pop();
        receiving.membership.join(&[GROUP], recv)?;
        let path = Self {
            mac,
            tx: tx.ok_or(missing("transmit queues"))?,
            rx: rx.ok_or(missing("receive queues"))?,
            membership: std::mem::take(&mut receiving.membership),
        };
        Ok((eal, path))
    }
}

fn missing(what: &'static str) -> DpdkError {
    DpdkError::Value {
        what,
        value: "0".to_owned(),
        rule: "the port has none",
    }
}

impl Rig {
    pub fn start(
        options: &PortsOptions,
        send: &Interface,
        recv: &Interface,
        abort: StopFlag,
    ) -> Result<Self, PortsError> {
        let room = HEADERS_LEN + options.payload;
        let mbufs = pool_size(QUEUE, 2 * BURST);
        let (eal, path) = Path::open(options, send, recv, pool_bytes(mbufs, room))?;
        let pool = PoolConfig {
            mbufs,
            cache: BURST,
            data_room: room,
            socket: None,
        };
        let pool = MbufPool::new(&eal, "bench_ports", pool)?;
        let source = SocketAddrV4::new(send.ip, 49152);
        let template = HeaderTemplate::multicast(path.mac, source, GROUP, 1);
        let template = template.ok_or(missing("multicast addresses"))?;
        let idle = if allowed_cpus().len() > 2 {
            IdlePolicy::Poll
        } else {
            IdlePolicy::Share
        };
        let shared = Arc::new(Shared::default());
        let mut threads = Threads::new(&eal, abort.clone());
        let clock = threads.clock();
        let sender = Sender {
            queue: path.tx,
            pool,
            template,
            payload: options.payload,
            shared: shared.clone(),
            clock,
            idle,
            abort: abort.clone(),
        };
        let receiver = Receiver {
            queue: path.rx,
            shared: shared.clone(),
            clock,
            idle,
            abort,
        };
        let lcores = [
            threads.spawn("sender", move |phases| sender.run(phases))?,
            threads.spawn("receiver", move |phases| receiver.run(phases))?,
        ];
        Ok(Self {
            threads,
            shared,
            lcores,
            trials: RefCell::default(),
            _membership: path.membership,
        })
    }

    pub fn measure(&self, options: &PortsOptions) -> Result<Option<FoundRate>, PortsError> {
        let method = match options.search {
            Search::None => {
                self.trial(options, options.rate)?;
                return Ok(None);
            }
            Search::Noisy => Method::Noisy {
                confidence: options.confidence,
                error: ERROR,
                trials: options.trials,
            },
            Search::Rfc2544 => Method::Rfc2544 {
                repeats: options.repeats,
            },
        };
        let lowest = options.lowest.unwrap_or(options.rate / 100.0);
        let rates = ladder(lowest, options.rate, options.step);
        method
            .search(&rates, |rate| self.trial(options, rate))
            .map(Some)
    }

    /// Whether nothing is lost at a rate.
    fn trial(&self, options: &PortsOptions, rate: f64) -> Result<bool, PortsError> {
        let shared = &self.shared;
        let bytes = rate * 1e9 / 8.0;
        let packets = (bytes * options.seconds / options.payload as f64)
            .ceil()
            .max(1.0);
        let number = self.begin(bytes, packets as u64);
        let over = || shared.over.load(Ordering::Acquire);
        let deadline = Instant::now() + Duration::from_secs_f64(10.0 + 20.0 * options.seconds);
        self.wait(|| over() == number || Instant::now() > deadline)?;
        if over() != number {
            tracing::warn!(rate, "the port did not take the packets of a trial in time");
            // An empty trial makes the sender give up the late one. When the empty trial is over,
            // no packet of the late one is counted any more.
            let empty = self.begin(bytes, 0);
            self.wait(|| over() == empty)?;
            self.trials.borrow_mut().push(PortTrial::unsent(rate));
            return Ok(false);
        }
        // Until all is there, or nothing has come for a while.
        let (mut last, mut since) = (0, Instant::now());
        self.wait(|| {
            let received = shared.received.load(Ordering::Relaxed);
            if received != last {
                (last, since) = (received, Instant::now());
            }
            received >= shared.sent.load(Ordering::Relaxed) || since.elapsed() > SILENCE
        })?;
        let sent = shared.sent.load(Ordering::Relaxed);
        let seconds = self
            .threads
            .clock()
            .seconds(shared.ticks.load(Ordering::Relaxed));
        let trial = PortTrial {
            rate,
            reached: (sent as usize * options.payload) as f64 * 8e-9 / seconds,
            sent,
            received: shared.received.load(Ordering::Relaxed),
            burst_bytes: shared.burst.load(Ordering::Relaxed),
        };
        tracing::info!(
            rate,
            reached = trial.reached,
            sent,
            received = trial.received,
            "trial"
        );
        self.trials.borrow_mut().push(trial);
        Ok(trial.passed())
    }

    /// Tells the lcores of the next trial; its number.
    fn begin(&self, bytes: f64, packets: u64) -> u64 {
        let shared = &self.shared;
        shared.rate.store(bytes.to_bits(), Ordering::Relaxed);
        shared.packets.store(packets, Ordering::Relaxed);
        shared.trial.fetch_add(1, Ordering::Release) + 1
    }

    fn wait(&self, mut happened: impl FnMut() -> bool) -> Result<(), PortsError> {
        while !happened() {
            if self.threads.abort().is_set() {
                return Err(PortsError::Interrupted);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    pub fn end(self) -> Result<Vec<PortTrial>, PortsError> {
        self.threads.abort().set();
        for lcore in self.lcores {
            lcore.join()?;
        }
        Ok(self.trials.into_inner())
    }
}
