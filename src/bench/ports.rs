//! `karoo bench ports`: packets from one interface to another, at the highest rate without loss.
//!
//! Two lcores: one sends datagrams with numbers at the pace of a trial, the other counts what comes. What a trial costs
//! is what AF_PACKET, or a NIC and its cable, take; no engine is in between. The receiver also measures how
//! uneven the packets come: the depth of a bucket that leaks at the trial's rate, were it filled by them.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::search::{Found, Method, ladder};
use crate::dpdk::{
    Abort, BURST, DpdkError, Eal, EalConfig, EalError, Idle, IdlePolicy, LcoreHandle, LcorePanic,
    MbufBatch, MbufPool, PoolConfig, RxQueue, TscClock, TxQueue, allowed_cpus, pool_size, tsc,
};
use crate::live::{
    Interface, InterfaceError, Membership, PortError, PortUse, PresetError, Threads, devices,
};
use crate::monitor::phases::PhaseClock;
use crate::net::frame::HEADERS_LEN;
use crate::net::{Datagram, HeaderTemplate, Steering};
use crate::send::Pace;

/// Where the datagrams go: a group for experiments (RFC 2365's site-local scope), and the discard port.
const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 255, 75, 79), 9);
/// How long after the last packet of a trial nothing more is waited for.
const SILENCE: Duration = Duration::from_millis(100);
/// Packets between the sender and the port.
const QUEUE: usize = 512;
/// Trial and number in front of a datagram's payload.
const STAMP: usize = 16;
/// Chance that a trial says the opposite of what is so, for the noisy search.
const ERROR: f64 = 0.1;
/// Memory for DPDK beside mbuf pools, in bytes.
const DPDK_BYTES: usize = 32 << 20;

/// How to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Search {
    /// One trial at --rate
    None,
    /// Bayesian bisection, with its confidence
    Noisy,
    /// Each rate must pass --repeats trials in a row
    Rfc2544,
}

/// Options of the bench.
#[derive(Clone, Debug, clap::Args)]
pub struct PortsOptions {
    /// Interface to send through
    #[arg(long, value_name = "IFACE")]
    pub send_interface: String,
    /// Interface to receive on
    #[arg(long, value_name = "IFACE")]
    pub recv_interface: String,
    /// Rate in Gb/s of UDP payload; with a search the highest to try
    #[arg(long, value_name = "GBPS", default_value_t = 10.0)]
    pub rate: f64,
    /// Lowest rate of a search [default: a hundredth of --rate]
    #[arg(long, value_name = "GBPS")]
    pub lowest: Option<f64>,
    /// Step between the rates of a search, as a share
    #[arg(long, value_name = "SHARE", default_value_t = 0.05)]
    pub step: f64,
    /// How to look for the highest rate at which nothing is lost
    #[arg(long, value_enum, default_value_t = Search::Noisy)]
    pub search: Search,
    /// How sure the noisy search is to be
    #[arg(long, value_name = "P", default_value_t = 0.95)]
    pub confidence: f64,
    /// Trials of the noisy search at most
    #[arg(long, value_name = "N", default_value_t = 60)]
    pub trials: u32,
    /// Trials at each rate for RFC 2544
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub repeats: u32,
    /// Seconds of a trial
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    pub seconds: f64,
    /// Bytes of UDP payload of a packet; a digitiser's heap unless given
    #[arg(long, value_name = "BYTES", default_value_t = 5192)]
    pub payload: usize,
    /// Bytes that packets may wait in, at either end
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 25)]
    pub buffer: usize,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
}

/// Why the bench gave no result.
#[derive(Debug, thiserror::Error)]
pub enum PortsError {
    /// An option.
    #[error("{option} {value} {rule}")]
    Option {
        /// Its name.
        option: &'static str,
        /// As given.
        value: f64,
        /// What holds, and what would do.
        rule: &'static str,
    },
    /// An interface.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// A port.
    #[error(transparent)]
    Port(#[from] PortError),
    /// What a driver is to be told.
    #[error(transparent)]
    Preset(#[from] PresetError),
    /// DPDK did not start.
    #[error(transparent)]
    Eal(#[from] EalError),
    /// DPDK refused something.
    #[error(transparent)]
    Dpdk(#[from] DpdkError),
    /// An lcore failed.
    #[error(transparent)]
    Lcore(#[from] LcorePanic),
    /// The user asked.
    #[error("interrupted")]
    Interrupted,
}

/// One trial.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Trial {
    /// Gb/s of UDP payload that were asked for.
    pub rate: f64,
    /// Gb/s at which the port took them.
    pub reached: f64,
    /// Packets that the port took.
    pub sent: u64,
    /// Packets that came.
    pub received: u64,
    /// Bytes by which the packets that came were ahead of the rate, at most: the depth of a bucket that leaks at it.
    pub burst_bytes: u64,
}

impl Trial {
    /// Nothing was lost, and the rate was reached but for one in a hundred.
    pub fn passed(&self) -> bool {
        self.received == self.sent && self.reached >= 0.99 * self.rate
    }
}

/// What the bench found.
#[derive(Debug, Serialize)]
pub struct PortsReport {
    /// Names of the ports: sending, receiving.
    pub ports: [String; 2],
    /// Bytes of UDP payload.
    pub payload: usize,
    /// Seconds of a trial.
    pub seconds: f64,
    /// What the search found, if there was one.
    pub found: Option<Found>,
    /// Every trial, in order.
    pub trials: Vec<Trial>,
}

impl fmt::Display for PortsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [from, to] = &self.ports;
        writeln!(
            f,
            "{from} to {to}: {} bytes of UDP payload, trials of {} s",
            self.payload, self.seconds
        )?;
        for trial in &self.trials {
            let verdict = if trial.passed() { "passed" } else { "failed" };
            writeln!(
                f,
                "  {:.4} Gb/s: {verdict}, {:.4} reached, {} of {} packets, {} bytes ahead of the rate at most",
                trial.rate, trial.reached, trial.received, trial.sent, trial.burst_bytes
            )?;
        }
        let Some(found) = &self.found else {
            return Ok(());
        };
        for tried in &found.tried {
            writeln!(
                f,
                "  {:.4} Gb/s: {} of {} trials passed",
                tried.rate, tried.passed, tried.trials
            )?;
        }
        let sure = found
            .confidence
            .map(|p| format!(" with confidence {p:.3}"))
            .unwrap_or_default();
        match found.rate {
            Some(rate) => writeln!(f, "highest rate without loss: {rate:.4} Gb/s{sure}"),
            None => writeln!(f, "no rate without loss{sure}: try a lower --lowest"),
        }
    }
}

/// Runs the bench.
pub fn run(options: &PortsOptions) -> Result<PortsReport, PortsError> {
    check(options)?;
    let send = Interface::find(&options.send_interface)?;
    let recv = Interface::find(&options.recv_interface)?;
    for interface in [&send, &recv] {
        interface.check_mtu(options.payload, "--payload")?;
    }
    let abort = Abort::default();
    let handler = abort.clone();
    if let Err(error) = ctrlc::set_handler(move || handler.set()) {
        tracing::warn!(%error, "an interrupt will end the process without a report");
    }
    let rig = Rig::start(options, &send, &recv, abort)?;
    let outcome = rig.measure(options);
    let trials = rig.end()?;
    Ok(PortsReport {
        ports: [send.name, recv.name],
        payload: options.payload,
        seconds: options.seconds,
        found: outcome?,
        trials,
    })
}

fn check(options: &PortsOptions) -> Result<(), PortsError> {
    let refuse = |option, value, rule| {
        Err(PortsError::Option {
            option,
            value,
            rule,
        })
    };
    for (option, value) in [
        ("--rate", options.rate),
        ("--lowest", options.lowest.unwrap_or(1.0)),
        ("--step", options.step),
        ("--seconds", options.seconds),
    ] {
        if !(value.is_finite() && value > 0.0 && value <= 1e5) {
            return refuse(option, value, "must be positive: try 1");
        }
    }
    if options.lowest.is_some_and(|lowest| lowest > options.rate) {
        let rule = "must not be above --rate: leave it out";
        return refuse("--lowest", options.lowest.unwrap_or(0.0), rule);
    }
    if !(0.5..1.0).contains(&options.confidence) {
        return refuse(
            "--confidence",
            options.confidence,
            "must be from 0.5 to below 1: try 0.95",
        );
    }
    if options.payload < STAMP {
        return refuse(
            "--payload",
            options.payload as f64,
            "must be 16 bytes at least: try 5192",
        );
    }
    if options.repeats == 0 {
        return refuse("--repeats", 0.0, "must be 1 at least: try 3");
    }
    Ok(())
}

/// What both lcores and the main thread share.
#[derive(Default)]
struct Shared {
    /// The trial that is to run, or runs; 0: none yet.
    trial: AtomicU64,
    /// Bytes per second, as bits of an `f64`.
    rate: AtomicU64,
    /// Packets to send.
    packets: AtomicU64,
    /// Packets that the port took, and the ticks that it took for them; the trial when it is over.
    sent: AtomicU64,
    ticks: AtomicU64,
    over: AtomicU64,
    /// The trial that the receiver is ready for.
    ready: AtomicU64,
    /// Packets that came of this trial, and how far they were ahead.
    received: AtomicU64,
    burst: AtomicU64,
}

struct Rig {
    threads: Threads,
    shared: Arc<Shared>,
    lcores: [LcoreHandle<()>; 2],
    trials: std::cell::RefCell<Vec<Trial>>,
    _membership: Membership,
}

impl Rig {
    fn start(
        options: &PortsOptions,
        send: &Interface,
        recv: &Interface,
        abort: Abort,
    ) -> Result<Self, PortsError> {
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
        let room = HEADERS_LEN + options.payload;
        let mbufs = pool_size(QUEUE, 2 * BURST);
        let bytes =
            DPDK_BYTES + mbufs * (room + 512) + rx_use.mbuf_bytes(recv) + tx_use.mbuf_bytes(send);
        let (pci, huge_pages) = devices([send, recv])?;
        let cpus = allowed_cpus();
        let eal = Eal::init(&EalConfig {
            worker_cpus: (0..2).map(|i| cpus[(i + 1) % cpus.len()]).collect(),
            memory_mib: bytes.div_ceil(1 << 20),
            devices: pci,
            huge_pages,
            ..EalConfig::default()
        })?;
        // One port where both are the same.
        let steering = Steering::from_sources(&[GROUP], 1);
        let same = send.name == recv.name;
        if same {
            tx_use.rx_queues = 1;
            tx_use.rx_bytes = options.buffer;
        }
        let mut tx_port = tx_use.open(&eal, send, &steering)?;
        let mut rx_port = None;
        if !same {
            rx_port = Some(rx_use.open(&eal, recv, &steering)?);
        }
        let (mac, tx) = (tx_port.mac, tx_port.tx.pop());
        let receiving = rx_port.as_mut().unwrap_or(&mut tx_port);
        let rx = receiving.rx.pop();
        receiving.membership.join(&[GROUP], recv)?;
        let membership = std::mem::take(&mut receiving.membership);
        let missing = |what| DpdkError::Value {
            what,
            value: "0".to_owned(),
            rule: "the port has none",
        };
        let (tx, rx) = (
            tx.ok_or(missing("transmit queues"))?,
            rx.ok_or(missing("receive queues"))?,
        );
        let pool = PoolConfig {
            mbufs,
            cache: BURST,
            data_room: room,
            socket: None,
        };
        let pool = MbufPool::new(&eal, "bench_ports", pool)?;
        let source = SocketAddrV4::new(send.ip, 49152);
        let template = HeaderTemplate::multicast(mac, source, GROUP, 1);
        let template = template.ok_or(missing("multicast addresses"))?;
        let idle = if cpus.len() > 2 {
            IdlePolicy::Poll
        } else {
            IdlePolicy::Share
        };
        let shared = Arc::new(Shared::default());
        let mut threads = Threads::new(&eal, abort.clone());
        let clock = threads.clock();
        let sender = Sender {
            queue: tx,
            pool,
            template,
            payload: options.payload,
            shared: shared.clone(),
            clock,
            idle,
            abort: abort.clone(),
        };
        let receiver = Receiver {
            queue: rx,
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
            trials: std::cell::RefCell::default(),
            _membership: membership,
        })
    }

    fn measure(&self, options: &PortsOptions) -> Result<Option<Found>, PortsError> {
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
        shared.rate.store(bytes.to_bits(), Ordering::Relaxed);
        shared.packets.store(packets as u64, Ordering::Relaxed);
        let number = shared.trial.fetch_add(1, Ordering::Release) + 1;
        let deadline = Instant::now() + Duration::from_secs_f64(10.0 + 20.0 * options.seconds);
        self.wait(|| shared.over.load(Ordering::Acquire) == number || Instant::now() > deadline)?;
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
        let trial = Trial {
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

    fn wait(&self, mut happened: impl FnMut() -> bool) -> Result<(), PortsError> {
        while !happened() {
            if self.threads.abort().is_set() {
                return Err(PortsError::Interrupted);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn end(self) -> Result<Vec<Trial>, PortsError> {
        self.threads.abort().set();
        for lcore in self.lcores {
            lcore.join()?;
        }
        Ok(self.trials.into_inner())
    }
}

/// The lcore that sends.
struct Sender {
    queue: TxQueue,
    pool: MbufPool,
    template: HeaderTemplate,
    payload: usize,
    shared: Arc<Shared>,
    clock: TscClock,
    idle: IdlePolicy,
    abort: Abort,
}

impl Sender {
    fn run(mut self, phases: &mut PhaseClock) {
        let mut idle = Idle::new(self.idle);
        let mut done = 0;
        while !self.abort.is_set() {
            phases.turn();
            let trial = self.shared.trial.load(Ordering::Acquire);
            if trial == done {
                idle.wait();
                continue;
            }
            self.send(trial, &mut idle);
            done = trial;
            self.shared.over.store(trial, Ordering::Release);
        }
    }

    /// Sends the packets of a trial.
    fn send(&mut self, trial: u64, idle: &mut Idle) {
        let shared = self.shared.clone();
        let rate = f64::from_bits(shared.rate.load(Ordering::Relaxed));
        let packets = shared.packets.load(Ordering::Relaxed);
        while shared.ready.load(Ordering::Acquire) != trial && !self.abort.is_set() {
            idle.wait();
        }
        let start = tsc();
        let mut pace = Pace::new(self.clock, rate, self.idle.longest_nap(), start);
        let mut batch: MbufBatch = MbufBatch::new();
        let (mut made, mut taken) = (0, 0);
        while taken < packets && !self.abort.is_set() {
            while made < packets && batch.room() > 0 && pace.allows(tsc()) {
                let Some(mut mbuf) = self.pool.alloc() else {
                    break;
                };
                let Some(data) = mbuf.append(HEADERS_LEN + self.payload) else {
                    break;
                };
                if let Some(headers) = data.first_chunk_mut() {
                    self.template.emit(self.payload, headers);
                }
                let stamp = &mut data[HEADERS_LEN..][..STAMP];
                stamp[..8].copy_from_slice(&trial.to_be_bytes());
                stamp[8..].copy_from_slice(&u64::to_be_bytes(made));
                let _ = batch.push(mbuf);
                pace.sent(self.payload, tsc());
                made += 1;
            }
            match self.queue.tx_burst(&mut batch) {
                0 => idle.wait(),
                sent => {
                    taken += sent as u64;
                    idle.reset();
                }
            }
        }
        shared.sent.store(taken, Ordering::Relaxed);
        shared
            .ticks
            .store((tsc() - start).max(1), Ordering::Relaxed);
    }
}

/// The lcore that counts what comes.
struct Receiver {
    queue: RxQueue,
    shared: Arc<Shared>,
    clock: TscClock,
    idle: IdlePolicy,
    abort: Abort,
}

impl Receiver {
    fn run(mut self, phases: &mut PhaseClock) {
        let mut idle = Idle::new(self.idle);
        let mut batch: MbufBatch = MbufBatch::new();
        let mut trial = 0;
        let mut bucket = Bucket::default();
        while !self.abort.is_set() {
            phases.turn();
            let current = self.shared.trial.load(Ordering::Acquire);
            if current != trial {
                trial = current;
                let rate = f64::from_bits(self.shared.rate.load(Ordering::Relaxed));
                bucket = Bucket::new(rate / self.clock.hz() as f64);
                self.shared.received.store(0, Ordering::Relaxed);
                self.shared.burst.store(0, Ordering::Relaxed);
                self.shared.ready.store(trial, Ordering::Release);
            }
            if self.queue.rx_burst(&mut batch) == 0 {
                idle.wait();
                continue;
            }
            idle.reset();
            let now = tsc();
            let mut received = 0;
            for mbuf in batch.iter() {
                let Ok(datagram) = Datagram::new_checked(mbuf.data()) else {
                    continue;
                };
                let stamp = datagram
                    .payload()
                    .first_chunk()
                    .copied()
                    .map(u64::from_be_bytes);
                if datagram.dst() == GROUP && stamp == Some(trial) {
                    bucket.add(datagram.payload().len(), now);
                    received += 1;
                }
            }
            batch.clear();
            self.shared.received.fetch_add(received, Ordering::Relaxed);
            self.shared
                .burst
                .store(bucket.most as u64, Ordering::Relaxed);
        }
    }
}

/// A bucket that leaks.
#[derive(Debug, Default)]
struct Bucket {
    bytes_per_tick: f64,
    level: f64,
    most: f64,
    last: Option<u64>,
}

impl Bucket {
    fn new(bytes_per_tick: f64) -> Self {
        Self {
            bytes_per_tick,
            ..Self::default()
        }
    }

    fn add(&mut self, bytes: usize, now: u64) {
        let leaked = self.last.map_or(0, |last| now.saturating_sub(last)) as f64;
        self.last = Some(now);
        self.level = (self.level - leaked * self.bytes_per_tick).max(0.0) + bytes as f64;
        self.most = self.most.max(self.level);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_tells_how_uneven_packets_are() {
        let mut even = Bucket::new(10.0);
        (0..100).for_each(|i| even.add(100, 10 * i));
        assert_eq!(even.most, 100.0);
        // Ten at once, each hundred ticks.
        let mut bursts = Bucket::new(10.0);
        (0..100).for_each(|i| bursts.add(100, i / 10 * 100));
        assert_eq!(bursts.most, 1000.0);
    }
}
