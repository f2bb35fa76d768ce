//! `karoo dsim --interface`: a digitiser that sends in real time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant, SystemTime};

use crossbeam::queue::ArrayQueue;
use dpdk::{BURST, Eal, EalConfig, MbufPool, PoolConfig, memory_mib, pool_bytes, pool_size};
use ground::os::{allowed_cpus, run_on};
use ground::{IdlePolicy, StopFlag};
use prometheus::proto::MetricType;

use super::{DsimArgs, To};
use crate::assembly::Threads;
use crate::cli::serve::{End, Serving, Sockets, katcp_address};
use crate::cli::{Failure, log};
use crate::control::katcp::Reserved;
use crate::control::katcp::reading::unix_now;
use crate::control::{ControlEnd, dsim};
use crate::metrics::scrape::{Samples, counter, family, plain, text};
use crate::metrics::{Scrape, ports};
use crate::net::FlowTable;
use crate::ports::{Interface, Links, PortUse, devices};
use crate::sim::live::{SimLcore, SimParts, SimStats, Start};
use crate::sim::stream::Origin;
use crate::sim::{DigitiserConfig, progress};
use crate::spead::digitiser::PREAMBLE_LEN;

/// How often the main thread looks whether the sender has ended.
const LOOK: Duration = Duration::from_millis(50);
/// Packets between the sender and the port.
const QUEUE: usize = 512;

/// Runs it until it is told to end, or all that was asked for is sent.
pub fn run(args: &DsimArgs, mut config: DigitiserConfig, name: &str) -> Result<(), Failure> {
    let level = log::start(args.log);
    args.faults.check_live().map_err(Failure::usage)?;
    if let Some(dst) = config
        .dests
        .iter()
        .flatten()
        .find(|dst| !dst.ip().is_multicast())
    {
        let text = format!("DEST {dst} is not a multicast group; try 239.102.0.64:7148");
        return Err(Failure::usage(text));
    }
    let interface = Interface::find(name).map_err(Failure::usage)?;
    let packet = PREAMBLE_LEN + config.heap_bytes();
    interface
        .check_mtu(packet, "--heap-samples")
        .map_err(Failure::usage)?;
    let heaps = args.heaps(config.clock.adc_sample_rate)?;
    let address = katcp_address(&args.serve)?;
    let katcp = Reserved::bind(address).map_err(Failure::usage)?;
    let sockets = Sockets::bind(args.serve.prometheus_port)?;
    let mut serving = Serving::start(sockets, level)?;
    // Before the start is chosen, since it may take long.
    let mut end = None;
    let windows = progress::windows(&config, &config.signals, config.period, || {
        end = serving.told_to_end();
        end.is_some()
    });
    let end = end.or_else(|| serving.told_to_end());
    let (Some(windows), None) = (windows, &end) else {
        if let Some(end) = end {
            tracing::info!(why = %end, "ended before it was up");
        }
        serving.stop();
        return Ok(());
    };
    let windows = Arc::new(windows);

    let eal = start_dpdk(args, &config, &interface)?;
    let port_use = PortUse {
        tx: true,
        tx_bytes: args.send_buffer,
        ..PortUse::default()
    };
    let mut port = port_use
        .open(&eal, &interface, &FlowTable::default())
        .map_err(Failure::usage)?;
    let queue = port
        .tx
        .pop()
        .ok_or_else(|| Failure::data("the port has no transmit queue"))?;
    let pool = PoolConfig {
        mbufs: pool_size(QUEUE, 2 * BURST),
        cache: BURST,
        data_room: SimParts::data_room(&config),
        socket: None,
    };
    let pool = MbufPool::new(&eal, "digitiser", pool).map_err(Failure::data)?;
    let mac = port.mac;
    let (start, begin) = start(&config)?;
    config.first_timestamp = start.timestamp;

    let abort = StopFlag::default();
    let mut threads = Threads::new(&eal, abort.clone());
    let changes = Arc::new(ArrayQueue::new(1));
    let stats = Arc::new(SimStats::default());
    let lcore = SimLcore::new(SimParts {
        windows,
        origin: Origin {
            mac,
            ip: interface.ip,
            step: 0,
        },
        begin,
        heaps,
        faults: (args.faults, args.fault_seed),
        queue,
        pool,
        clock: threads.clock(),
        changes: changes.clone(),
        stats: stats.clone(),
        idle: idle(args),
        stop: abort.clone(),
        config: config.clone(),
    });
    let links = Links::new([(port.port, &interface)]);
    let metrics = Arc::new(Metrics {
        stats: stats.clone(),
        links: links.clone(),
        started: SystemTime::now(),
    });
    serving.scrape(metrics);
    let ended = StopFlag::default();
    let at_end = ended.clone();
    let sender = threads.spawn("digitiser", move |clock| {
        lcore.run(clock);
        at_end.set();
    });
    let sender = sender.map_err(Failure::data)?;
    let ender = serving.ender();
    let on_end = move |end| {
        let end = match end {
            ControlEnd::Halt => End::Halt,
            ControlEnd::Failed => End::Failed("control".to_owned()),
        };
        _ = ender.try_send(end);
    };
    let original = args.signals_text(To::Interface);
    let seed = args.seed(To::Interface);
    let control = dsim::start(katcp, config.clone(), original, seed, changes, on_end);
    let control = match control {
        Ok(control) => control,
        Err(error) => {
            abort.set();
            return Err(Failure::usage(error));
        }
    };
    tracing::info!(
        first_timestamp = start.timestamp,
        wait = start.wait.as_secs_f64(),
        sync_time = config.clock.sync_time,
        dither_seed = config.dither_seed,
        "up"
    );

    // A panic sets the former.
    let end = wait(&serving, &links, || abort.is_set() || ended.is_set());
    tracing::info!(why = %end, "ending");
    abort.set();
    let sent = sender.join().map_err(Failure::data);
    control.stop();
    serving.stop();
    sent?;
    tracing::info!(
        heaps = stats.heaps.load(Ordering::Relaxed),
        skipped = stats.skipped.load(Ordering::Relaxed),
        faults = ?stats.faults(),
        "sent"
    );
    match end {
        End::Failed(what) => Err(Failure::data(format!("{what} failed: see the log"))),
        _ => Ok(()),
    }
}

fn start(config: &DigitiserConfig) -> Result<(Start, Instant), Failure> {
    let (now, clock) = (unix_now(), Instant::now());
    let start = Start::after(config, now).ok_or_else(|| {
        let sync_time = config.clock.sync_time;
        let text = format!("--sync-time {sync_time} must not be later than now, which is {now}");
        Failure::usage(text)
    })?;
    Ok((start, clock + start.wait))
}

/// An lcore that has a CPU by name polls.
fn idle(args: &DsimArgs) -> IdlePolicy {
    match args.affinity.0 {
        Some(cpu) if args.main_affinity.0 != Some(cpu) => IdlePolicy::Poll,
        _ => IdlePolicy::Share,
    }
}

/// Starts DPDK, and leaves this thread where everything else is to run.
fn start_dpdk(
    args: &DsimArgs,
    config: &DigitiserConfig,
    interface: &Interface,
) -> Result<Eal, Failure> {
    let allowed = allowed_cpus();
    let sender = args.affinity.0.or(allowed.last().copied()).unwrap_or(0);
    let all: Vec<_> = allowed.iter().copied().chain([sender]).collect();
    run_on(all).map_err(Failure::usage)?;
    let bytes = pool_bytes(pool_size(QUEUE, 2 * BURST), SimParts::data_room(config));
    let (devices, huge_pages) = devices([interface]).map_err(Failure::usage)?;
    let eal = Eal::init(&EalConfig {
        devices,
        huge_pages,
        worker_cpus: vec![sender],
        memory_mib: memory_mib(bytes),
        ..EalConfig::default()
    });
    let eal = eal.map_err(Failure::usage)?;
    let main = args.main_affinity.0.map_or(allowed, |cpu| vec![cpu]);
    run_on(main).map_err(Failure::usage)?;
    Ok(eal)
}

fn wait(serving: &Serving, links: &Links, ended: impl Fn() -> bool) -> End {
    loop {
        match serving.ended().recv_timeout(LOOK) {
            Ok(end) => return end,
            Err(RecvTimeoutError::Disconnected) => return End::Failed("control".to_owned()),
            Err(RecvTimeoutError::Timeout) if ended() => return End::Done,
            Err(RecvTimeoutError::Timeout) => links.look(),
        }
    }
}

/// What is scraped: the peer's metrics by name, and Karoo's own.
struct Metrics {
    stats: Arc<SimStats>,
    links: Links,
    started: SystemTime,
}

impl Scrape for Metrics {
    fn scrape(&self) -> Result<String, prometheus::Error> {
        let stats = &self.stats;
        let mut families = Vec::new();
        let mut add = |name: &str, help: &str, samples: Samples| {
            counter(&mut families, self.started, name, help, samples);
        };
        let plainly = |count: &std::sync::atomic::AtomicU64| plain(count.load(Ordering::Relaxed));
        add(
            "dsim_output_heaps",
            "digitiser heaps sent",
            plainly(&stats.heaps),
        );
        add(
            "dsim_output_bytes",
            "bytes of samples sent",
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
