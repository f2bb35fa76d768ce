//! `karoo dsim --interface`: a digitiser that sends in real time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime};

use crossbeam::queue::ArrayQueue;
use dpdk::{BURST, Eal, LcoreHandle, MbufPool, PoolConfig, TxQueue, pool_bytes, pool_size};
use ground::{IdlePolicy, StopFlag};
use katcp::reading::unix_now;
use prometheus::proto::MetricType;
use spead::digitiser::PREAMBLE_LEN;

use super::{DsimArgs, To};
use crate::assembly::Threads;
use crate::cli::frame::{self, StopReason};
use crate::cli::serve::Serving;
use crate::cli::{Failure, log};
use crate::control::dsim;
use crate::metrics::scrape::{Samples, counter, family, plain, text};
use crate::metrics::{Scrape, ports};
use crate::net::FlowTable;
use crate::ports::{Interface, Links, Membership, PortUse};
use crate::sim::live::{SimLcore, SimParts, SimStats, Start};
use crate::sim::stream::Origin;
use crate::sim::{DigitiserConfig, Windows, progress};

/// Packets between the sender and the port.
const QUEUE: usize = 512;

/// Sends until the command is told to end, or all that was asked for is sent.
pub fn run(args: &DsimArgs, mut config: DigitiserConfig, name: &str) -> Result<(), Failure> {
    let level = log::start(args.log);
    args.tell_doubts(&config);
    let (interface, heaps) = check(args, &config, name)?;
    let (katcp, sockets) = frame::bind(&args.serve)?;
    let mut serving = Serving::start(sockets, level)?;
    // Before the start is chosen, since it may take long.
    let Some(windows) = windows(&config, &serving) else {
        serving.stop();
        return Ok(());
    };
    let (port, sender) = open(args, &config, &interface)?;
    let (start, begin) = start(&config)?;
    config.first_timestamp = start.timestamp;

    let stop = StopFlag::default();
    let mut threads = Threads::new(&port.eal, stop.clone());
    let changes = Arc::new(ArrayQueue::new(1));
    let stats = Arc::new(SimStats::default());
    let parts = SimParts {
        origin: port.origin,
        begin,
        heaps,
        faults: (args.faults, args.fault_seed),
        queue: sender.queue,
        pool: sender.pool,
        clock: threads.clock(),
        changes: changes.clone(),
        stats: stats.clone(),
        idle: idle(args),
        stop: stop.clone(),
        config: config.clone(),
    };
    let lcore = SimLcore::new(parts, windows);
    serving.scrape(Arc::new(DsimMetrics {
        stats: stats.clone(),
        links: port.links.clone(),
        started: SystemTime::now(),
    }));
    let (sender, ended) = spawn(&mut threads, lcore)?;
    let original = args.signals_text(To::Interface);
    let seed = args.seed(To::Interface);
    let on_end = serving.on_control_end();
    let control = dsim::start(katcp, config.clone(), &original, seed, changes, on_end);
    let control = control.map_err(|error| {
        stop.set();
        Failure::usage(error)
    })?;
    say_up(&start, &config);

    let why = serving.wait(|| {
        port.links.look();
        // A panic sets the former.
        (stop.is_set() || ended.is_set()).then_some(StopReason::Done)
    });
    tracing::info!(%why, "ending");
    stop.set();
    let sent = sender.join().map_err(Failure::data);
    control.stop();
    serving.stop();
    sent?;
    say_sent(&stats, &port.links);
    why.outcome()
}

/// Starts the lcore that sends. The flag is set when it has ended by itself.
fn spawn(threads: &mut Threads, lcore: SimLcore) -> Result<(LcoreHandle<()>, StopFlag), Failure> {
    let ended = StopFlag::default();
    let at_end = ended.clone();
    let sender = threads.spawn("digitiser", move |timer| {
        lcore.run(timer);
        at_end.set();
    });
    Ok((sender.map_err(Failure::data)?, ended))
}

fn say_up(start: &Start, config: &DigitiserConfig) {
    tracing::info!(
        first_timestamp = start.timestamp,
        wait = start.wait.as_secs_f64(),
        sync_time = config.clock.sync_time,
        dither_seed = config.dither_seed,
        "up"
    );
}

fn say_sent(stats: &SimStats, links: &Links) {
    let ports = links.states().filter_map(|(port, ..)| port.stats().ok());
    tracing::info!(
        heaps = stats.heaps.load(Ordering::Relaxed),
        skipped = stats.skipped.load(Ordering::Relaxed),
        tx_errors = ports.map(|port| port.tx_errors).sum::<u64>(),
        faults = ?stats.faults(),
        "sent"
    );
}

/// Finds the interface and the number of heaps to send, and refuses what cannot be sent.
fn check(
    args: &DsimArgs,
    config: &DigitiserConfig,
    name: &str,
) -> Result<(Interface, Option<u64>), Failure> {
    args.faults.check_live().map_err(Failure::usage)?;
    let mut destinations = config.dests.iter().flatten();
    if let Some(dst) = destinations.find(|dst| !dst.ip().is_multicast()) {
        let text = format!("DEST {dst} is not a multicast group; try 239.102.0.64:7148");
        return Err(Failure::usage(text));
    }
    let interface = Interface::find(name).map_err(Failure::usage)?;
    let packet = PREAMBLE_LEN + config.heap_bytes();
    interface
        .check_mtu(packet, "--heap-samples")
        .map_err(Failure::usage)?;
    let heaps = args.heaps(config.clock.adc_sample_rate)?;
    Ok((interface, heaps))
}

/// Computes the signals' windows; `None` if the command was told to end meanwhile.
fn windows(config: &DigitiserConfig, serving: &Serving) -> Option<Arc<Windows>> {
    let mut why = None;
    let windows = progress::windows(config, &config.signals, config.period, || {
        why = serving.told_to_end();
        why.is_some()
    });
    if let Some(why) = why.or_else(|| serving.told_to_end()) {
        tracing::info!(%why, "ended before it was up");
        return None;
    }
    windows.map(Arc::new)
}

/// The port that digitiser packets leave by.
struct SendingPort {
    origin: Origin,
    links: Links,
    /// Kept while the port is used: its thread empties the port's control queue.
    _membership: Membership,
    eal: Eal,
}

/// What the sending lcore takes of it.
struct Sender {
    queue: TxQueue,
    pool: MbufPool,
}

/// Starts DPDK and opens the interface's port.
fn open(
    args: &DsimArgs,
    config: &DigitiserConfig,
    interface: &Interface,
) -> Result<(SendingPort, Sender), Failure> {
    let (mbufs, data_room) = (pool_size(QUEUE, 2 * BURST), SimParts::data_room(config));
    let pools = pool_bytes(mbufs, data_room);
    let eal = frame::start_dpdk(interface, pools, args.affinity.0, args.main_affinity.0)?;
    let port_use = PortUse {
        tx: true,
        tx_bytes: args.send_buffer,
        ..PortUse::default()
    };
    let mut port = port_use
        .open(&eal, interface, &FlowTable::default())
        .map_err(Failure::usage)?;
    let queue = port
        .tx
        .pop()
        .ok_or_else(|| Failure::data("the port has no transmit queue"))?;
    let pool = PoolConfig {
        mbufs,
        cache: BURST,
        data_room,
        socket: None,
    };
    let pool = MbufPool::new(&eal, "digitiser", pool).map_err(Failure::data)?;
    let origin = Origin {
        mac: port.mac,
        ip: interface.ip,
        step: 0,
    };
    let links = Links::new([(port.port, interface)]);
    let _membership = port.membership;
    Ok((
        SendingPort {
            origin,
            links,
            _membership,
            eal,
        },
        Sender { queue, pool },
    ))
}

fn start(config: &DigitiserConfig) -> Result<(Start, Instant), Failure> {
    let (now, clock) = (unix_now(), Instant::now());
    let start = Start::after(config, now).map_err(Failure::usage)?;
    Ok((start, clock + start.wait))
}

/// An lcore that has a CPU by name polls.
fn idle(args: &DsimArgs) -> IdlePolicy {
    match args.affinity.0 {
        Some(cpu) if args.main_affinity.0 != Some(cpu) => IdlePolicy::Poll,
        _ => IdlePolicy::Share,
    }
}

/// What is scraped: katgpucbf's metrics by name, and Karoo's own.
struct DsimMetrics {
    stats: Arc<SimStats>,
    links: Links,
    started: SystemTime,
}

impl Scrape for DsimMetrics {
    fn scrape(&self) -> Result<String, prometheus::Error> {
        let stats = &self.stats;
        let mut families = Vec::new();
        let mut add = |name: &str, help: &str, samples: Samples| {
            counter(&mut families, self.started, name, help, samples);
        };
        let plainly = |count: &std::sync::atomic::AtomicU64| plain(count.load(Ordering::Relaxed));
        add(
            "dsim_output_heaps",
            "digitiser heaps handed to the port",
            plainly(&stats.heaps),
        );
        add(
            "dsim_output_bytes",
            "bytes of samples handed to the port",
            plainly(&stats.bytes),
        );
        let skipped = "digitiser heaps not sent, because the port did not take them in time";
        add("karoo_dsim_skipped_heaps", skipped, plainly(&stats.skipped));
        let faults = stats.faults().into_iter();
        let faults = faults.map(|(kind, n)| (vec![("kind", kind.to_owned())], n as f64));
        add(
            "karoo_dsim_faults",
            "faults injected, by kind",
            faults.collect(),
        );
        families.extend(family(
            "dsim_time_error_s",
            "wall clock less nominal time when a heap was handed over",
            MetricType::GAUGE,
            vec![(Vec::new(), stats.time_error())],
        ));
        ports(&mut families, self.started, &self.links);
        text(families)
    }
}
