//! `karoo sink --interface`: output streams while they come.

use std::collections::HashSet;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use dpdk::{Eal, RxQueue};
use dsp::{OutputBits, SampleBits};
use ground::{IdlePolicy, SampleClock, StopFlag, Timestamp};
use katcp::reading::unix_now;
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::SinkArgs;
use super::metrics::SinkMetrics;
use crate::assembly::{Demand, Threads};
use crate::cli::frame::{self, StopReason};
use crate::cli::log::{self, LogTo};
use crate::cli::serve::{Serving, Sockets};
use crate::cli::{Failure, print_json};
use crate::config::units::{bytes, hertz, seconds};
use crate::config::{
    Cpu, JONES_PER_BATCH, NarrowbandOptions, OutputConfig, WidebandOptions, heading,
};
use crate::metrics::site;
use crate::net::{FlowTable, parse_endpoints};
use crate::page::{SinkPage, SinkPageParts};
use crate::ports::{Interface, Links, OpenPort, PortUse};
use crate::sim::{DigitiserConfig, Windows, parse};
use crate::sink::StreamReport;
use crate::sink::live::{
    Asked, Checker, LiveReport, Seen, Shape, Shown, SinkLcore, SinkParts, Tracker,
};

/// Options of a sink on an interface.
#[derive(Debug, Args)]
pub struct LiveArgs {
    /// Interface to receive on [required, or a capture]
    #[arg(long, value_name = "IFACE", help_heading = heading::RECEIVE)]
    pub interface: Option<String>,
    /// A wideband output to take in, as karoo fgpu was given it; of a capture, one whose name and
    /// frequencies stand beside the arrays
    #[arg(long, value_name = "KEY=VALUE,…", help_heading = heading::CHECK)]
    pub wideband: Vec<WidebandOptions>,
    /// A narrowband output to take in, as karoo fgpu was given it; of a capture, one whose name and
    /// frequencies stand beside the arrays
    #[arg(
        long,
        value_name = "KEY=VALUE,…",
        requires = "adc_sample_rate", help_heading = heading::CHECK)]
    pub narrowband: Vec<NarrowbandOptions>,
    /// Bits of each real and imaginary part of --wideband and --narrowband outputs: 4 or 8
    #[arg(
        long,
        value_name = "BITS",
        default_value_t = 8,
        conflicts_with = "capture", help_heading = heading::CHECK)]
    send_sample_bits: u32,
    /// Destinations of an output that its descriptors tell the shape of: a.b.c.d[+n][:port]
    #[arg(long, value_name = "DST", conflicts_with = "capture", help_heading = heading::CHECK)]
    dst: Vec<String>,
    /// End after so many seconds
    #[arg(long, value_name = "S", value_parser = seconds, conflicts_with = "capture", help_heading = heading::END)]
    duration: Option<f64>,
    /// End when every stream has had so many whole heaps
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "capture", help_heading = heading::END)]
    heaps: Option<u64>,
    /// End when a stop heap has come on every substream
    #[arg(long, conflicts_with = "capture", help_heading = heading::END)]
    until_stop: bool,
    /// Seconds between lines that say how it goes
    #[arg(
        long,
        value_name = "S",
        value_parser = seconds,
        default_value_t = 1.0,
        conflicts_with = "capture", help_heading = heading::RESULTS)]
    report_interval: f64,
    /// Bytes that packets may wait in
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 25, value_parser = bytes, conflicts_with = "capture", help_heading = heading::RECEIVE)]
    recv_buffer: usize,
    /// CPU of the lcore that receives, which then polls; -1: any
    #[arg(
        long,
        value_name = "CPU",
        default_value = "-1",
        allow_hyphen_values = true,
        conflicts_with = "capture", help_heading = heading::PLACE)]
    affinity: Cpu,
    /// Port of a page that shows what comes, http://HOST:PORT/, and of metrics for Prometheus at
    /// /metrics; none unless given
    #[arg(long, value_name = "PORT", visible_alias = "prometheus-port", conflicts_with = "capture", help_heading = heading::CONTROL)]
    http: Option<u16>,
    /// Where log messages go
    #[arg(long, value_enum, default_value_t, conflicts_with = "capture", help_heading = heading::CONTROL)]
    log: LogTo,
    /// Signals that karoo dsim sends: some heaps of every output given by --wideband or
    /// --narrowband are held against what follows from them
    #[arg(
        long,
        value_name = "SPEC",
        conflicts_with = "capture",
        requires = "adc_sample_rate", help_heading = heading::SIGNAL)]
    signals: Option<String>,
    /// ADC sample rate of the digitiser in hertz, or with a unit: 1712M; of a capture, for
    /// frequencies beside the arrays and in pictures
    #[arg(long, value_name = "HZ", value_parser = hertz, help_heading = heading::SIGNAL)]
    pub adc_sample_rate: Option<f64>,
    /// UNIX time of the digitiser's timestamp 0, for --signals if it is more than 2^48 samples ago
    /// (46 hours at 1712 MHz); of a capture, to stand beside the arrays
    #[arg(long, value_name = "UNIX", help_heading = heading::SIGNAL)]
    pub sync_time: Option<f64>,
    /// Samples per heap of the digitiser
    #[arg(
        long,
        value_name = "N",
        default_value_t = 4096,
        conflicts_with = "capture", help_heading = heading::SIGNAL)]
    heap_samples: usize,
    /// Bits per sample of the digitiser, 2 to 16
    #[arg(
        long,
        value_name = "B",
        default_value = "10",
        conflicts_with = "capture", help_heading = heading::SIGNAL)]
    sample_bits: SampleBits,
    /// Samples after which the signals repeat
    #[arg(long, value_name = "N", default_value_t = 1 << 27, conflicts_with = "capture", help_heading = heading::SIGNAL)]
    period: u64,
    /// Seed of the digitiser's dither
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        conflicts_with = "capture", help_heading = heading::SIGNAL)]
    dither_seed: u64,
    /// Seed of the digitiser's noise that gives none
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        conflicts_with = "capture", help_heading = heading::SIGNAL)]
    seed: u64,
    /// Gain of the F-engine
    #[arg(
        long,
        value_name = "X",
        default_value_t = 1.0,
        conflicts_with = "capture", help_heading = heading::SIGNAL)]
    gain: f64,
}

impl LiveArgs {
    /// The outputs of the options.
    pub fn outputs(&self) -> Result<Vec<OutputConfig>, Failure> {
        let Some(bits) = OutputBits::new(self.send_sample_bits) else {
            let text = format!(
                "--send-sample-bits {}: must be 4 or 8",
                self.send_sample_bits
            );
            return Err(Failure::usage(text));
        };
        let clock = SampleClock {
            adc_sample_rate: self.adc_sample_rate.unwrap_or(1.0),
            sync_time: 0.0,
        };
        let wideband = self.wideband.iter().cloned();
        let wideband = wideband.map(|output| Ok(output.into_config(JONES_PER_BATCH, 0)));
        let narrowband = self.narrowband.iter().cloned();
        let narrowband = narrowband.map(|output| output.into_config(JONES_PER_BATCH, 0, clock));
        let outputs = wideband.chain(narrowband).collect::<Result<Vec<_>, _>>();
        let mut outputs = outputs.map_err(Failure::usage)?;
        for output in &outputs {
            output.check_heaps().map_err(Failure::usage)?;
        }
        outputs
            .iter_mut()
            .for_each(|output| output.sample_bits = bits);
        Ok(outputs)
    }

    /// The digitiser's timestamp now, if that can be known.
    fn now(&self) -> Result<Option<Timestamp>, Failure> {
        if self.sync_time.is_some() && self.signals.is_none() {
            let text = "--sync-time: on an interface, is for --signals; give them, or leave it out";
            return Err(Failure::usage(text));
        }
        let (Some(sync_time), Some(rate)) = (self.sync_time, self.adc_sample_rate) else {
            return Ok(None);
        };
        let now = (unix_now() - sync_time) * rate;
        if !(0.0..Timestamp::END as f64).contains(&now) {
            let text = format!(
                "--sync-time {sync_time}: must be a UNIX time that is over; give it as karoo dsim has it"
            );
            return Err(Failure::usage(text));
        }
        Ok(Some(Timestamp(now as u64)))
    }

    fn trackers(
        &self,
        outputs: &[OutputConfig],
        array_size: Option<u64>,
    ) -> Result<Vec<Tracker>, Failure> {
        let now = self.now()?;
        let known = outputs.iter().map(|output| {
            let shape = Shape {
                channels: output.channels_per_substream() as u64,
                spectra: output.spectra_per_heap() as u64,
                bits: output.sample_bits,
            };
            let (name, dst) = (&output.name, output.dst.clone());
            let tracker = Tracker::new(name, dst, Some(shape), array_size);
            let tracker = tracker.with_batch_samples(output.batch_samples() as u64);
            Ok(tracker.with_time(now))
        });
        let unknown = self.dst.iter().map(|list| {
            let endpoints = parse_endpoints(list).map_err(Failure::usage)?;
            Ok(Tracker::new(list, endpoints, None, array_size))
        });
        let trackers = known.chain(unknown).collect::<Result<Vec<_>, Failure>>()?;
        if trackers.is_empty() {
            let text = "give the outputs to take in: --wideband or --narrowband as karoo fgpu has it, or --dst";
            return Err(Failure::usage(text));
        }
        let mut known = HashSet::new();
        let mut destinations = trackers.iter().flat_map(|t| t.destinations());
        if let Some(dst) = destinations.find(|&dst| !known.insert(dst)) {
            let text = format!(
                "--wideband, --narrowband and --dst: two streams have the destination {dst}, and its heaps are of one; give each stream once"
            );
            return Err(Failure::usage(text));
        }
        Ok(trackers)
    }

    /// What spectra are held against, if anything.
    fn asked(&self, outputs: Vec<OutputConfig>) -> Result<Option<Asked>, Failure> {
        let (Some(signals), Some(adc_sample_rate)) = (&self.signals, self.adc_sample_rate) else {
            return Ok(None);
        };
        if outputs.is_empty() {
            let text = "--signals: only outputs given by --wideband or --narrowband can be held against them; give those of --dst so";
            return Err(Failure::usage(text));
        }
        let mut seeds = ChaCha8Rng::seed_from_u64(self.seed);
        let signals = parse(signals, || seeds.next_u64())
            .map_err(|error| Failure::usage(error.shown(signals)))?;
        // Two polarisations, wherever they go.
        let nowhere = SocketAddrV4::new([239, 0, 0, 0].into(), 7148);
        let digitiser = DigitiserConfig {
            clock: SampleClock {
                adc_sample_rate,
                sync_time: 0.0,
            },
            signals,
            dests: vec![vec![nowhere]; 2],
            heap_samples: self.heap_samples,
            sample_bits: self.sample_bits,
            first_id: 0,
            period: self.period,
            max_period: self.period,
            dither_seed: self.dither_seed,
            ttl: 1,
            first_timestamp: 0,
        };
        digitiser.check().map_err(Failure::usage)?;
        Demand::check(vec![Windows::demand(
            &digitiser,
            digitiser.period,
            "--period",
        )])
        .map_err(Failure::usage)?;
        if !self.gain.is_finite() {
            let text = format!("--gain {}: must be a finite number; try 1", self.gain);
            return Err(Failure::usage(text));
        }
        Ok(Some(Asked {
            digitiser,
            outputs,
            gain: self.gain,
        }))
    }

    /// An lcore that has a CPU by name polls.
    fn idle(&self) -> IdlePolicy {
        match self.affinity.0 {
            Some(_) => IdlePolicy::Poll,
            None => IdlePolicy::Share,
        }
    }

    /// How often to say how it goes, and after what time to end.
    fn times(&self) -> Result<(Duration, Option<Duration>), Failure> {
        let every = frame::positive_seconds("--report-interval", self.report_interval)?;
        let duration = self.duration;
        let duration = duration.map(|s| frame::positive_seconds("--duration", s));
        Ok((every, duration.transpose()?))
    }
}

/// Receives until the command is told to end, or has what was asked for; the summary goes to
/// standard output.
pub fn run(args: &SinkArgs, name: &str) -> Result<(), Failure> {
    let live = &args.live;
    let level = log::start(live.log);
    let (every, duration) = live.times()?;
    let outputs = live.outputs()?;
    let trackers = live.trackers(&outputs, args.array_size)?;
    let asked = live.asked(outputs.clone())?;
    let interface = Interface::find(name).map_err(Failure::usage)?;
    let sockets = Sockets::bind("--http", live.http)?;

    let (eal, port, queue) = open(live, &trackers, &interface)?;
    let checker = asked.map(Checker::start).transpose();
    let checker = checker.map_err(Failure::data)?;
    let (stop, shown) = (StopFlag::default(), Shown::default());
    let mut threads = Threads::new(&eal, stop.clone());
    let lcore = SinkLcore::new(SinkParts {
        queue,
        trackers,
        check: checker.as_ref().map(Checker::inlet),
        shown: shown.clone(),
        stop: stop.clone(),
        clock: threads.clock(),
        idle: live.idle(),
    });
    let links = Links::new([(port.port.clone(), &interface)]);
    let metrics = Arc::new(SinkMetrics::new(shown.clone(), links));
    let mut serving = Serving::start(sockets, level)?;
    let receiver = threads.spawn("sink", move |timer| lcore.run(timer));
    let receiver = receiver.map_err(Failure::data)?;
    let page = SinkPage::new(SinkPageParts {
        interface: name.to_owned(),
        shown: shown.clone(),
        checked: metrics.checked.clone(),
        outputs,
        adc_sample_rate: live.adc_sample_rate,
        port: port.port.clone(),
        links: metrics.links.clone(),
        times: threads.times().to_vec(),
        clock: threads.clock(),
    });
    serving.show(site(metrics.clone()).source(page));
    tracing::info!(interface = name, "up");

    let begun = Instant::now();
    let mut watch = Watch {
        live,
        shown: &shown,
        metrics: &metrics,
        checker: checker.as_ref(),
        every,
        end: duration.map(|duration| begun + duration),
        said: (begun, Seen::default()),
    };
    // A panic sets the flag.
    let failed = || stop.is_set().then_some(StopReason::Stage);
    let why = serving.wait(|| failed().or_else(|| watch.look()));
    tracing::info!(%why, "ending");
    stop.set();
    let seen = receiver.join().map_err(Failure::data)?;
    let seconds = begun.elapsed().as_secs_f64();
    let missed = close(port);
    let checked = checker.map(Checker::finish);
    serving.stop();
    let report = LiveReport::new(name, seconds, seen, missed, checked);
    print(&report, args.json)?;
    why.outcome()?;
    let what = match report.missed {
        0 => "streams",
        _ => "streams and in what this host missed",
    };
    super::problems(report.problems().count(), what)
}

/// Starts DPDK, opens the interface's port, and joins the streams' groups.
fn open(
    live: &LiveArgs,
    trackers: &[Tracker],
    interface: &Interface,
) -> Result<(Eal, OpenPort, RxQueue), Failure> {
    let port_use = PortUse {
        rx_queues: 1,
        rx_bytes: live.recv_buffer,
        ..PortUse::default()
    };
    let pools = port_use.mbuf_bytes(interface);
    let eal = frame::start_dpdk(interface, pools, live.affinity.0, None)?;
    let destinations = trackers.iter().flat_map(|t| t.destinations());
    let destinations: Vec<_> = destinations.copied().collect();
    let table = FlowTable::from_sources(&destinations, 1);
    let mut port = port_use
        .open(&eal, interface, &table)
        .map_err(Failure::usage)?;
    let joined = port.membership.join(&destinations, interface);
    joined.map_err(Failure::usage)?;
    let queue = port.rx.pop();
    let queue = queue.ok_or_else(|| Failure::data("the port has no receive queue"))?;
    Ok((eal, port, queue))
}

/// Leaves the groups. Returns how many packets the port missed.
fn close(port: OpenPort) -> u64 {
    drop(port.membership);
    port.port.stats().map_or(0, |stats| stats.rx_missed)
}

fn print(report: &LiveReport, json: bool) -> Result<(), Failure> {
    if json {
        print_json(report)?;
    } else {
        println!("{}", super::coloured(report, report.problems().count()));
    }
    Ok(())
}

/// What the main thread does while packets come.
struct Watch<'a> {
    live: &'a LiveArgs,
    shown: &'a Shown,
    metrics: &'a SinkMetrics,
    checker: Option<&'a Checker>,
    every: Duration,
    end: Option<Instant>,
    /// When it last said how it goes, and what it had seen by then.
    said: (Instant, Seen),
}

impl Watch<'_> {
    /// Says how it goes when it is time to; gives a reason when it is over.
    fn look(&mut self) -> Option<StopReason> {
        self.metrics.links.look();
        let seen = self.shown.get();
        if let Some(checker) = self.checker
            && let Ok(mut checked) = self.metrics.checked.lock()
        {
            *checked = checker.checked();
        }
        let late = self.end.is_some_and(|end| Instant::now() >= end);
        if late || self.has_enough(&seen.streams) {
            return Some(StopReason::Done);
        }
        let since = self.said.0.elapsed();
        if since >= self.every {
            say(&self.said.1, &seen, since.as_secs_f64());
            self.said = (Instant::now(), seen);
        }
        None
    }

    fn has_enough(&self, streams: &[StreamReport]) -> bool {
        let all =
            |done: &dyn Fn(&StreamReport) -> bool| !streams.is_empty() && streams.iter().all(done);
        let substreams = |s: &StreamReport| s.destinations.len() as u64;
        self.live.heaps.is_some_and(|n| all(&|s| s.heaps >= n))
            || self.live.until_stop && all(&|s| s.stopped_substreams >= substreams(s))
    }
}

/// One line for each stream.
fn say(before: &Seen, now: &Seen, seconds: f64) {
    for (i, stream) in now.streams.iter().enumerate() {
        let since = |count: fn(&StreamReport) -> u64| {
            count(stream) - before.streams.get(i).map_or(0, count)
        };
        let power = now
            .views
            .get(i)
            .map_or_else(Default::default, |view| view.power_db);
        let power = power.map(|db| db.map_or("none".to_owned(), |db| format!("{db:.2}")));
        tracing::info!(
            stream = stream.name,
            heaps_per_second = format!("{:.1}", since(|s| s.heaps) as f64 / seconds),
            gbps = format!("{:.4}", since(|s| s.bytes) as f64 * 8e-9 / seconds),
            incomplete = since(|s| s.incomplete_heaps),
            missing = since(|s| s.missing_heaps),
            not_sent = stream.batches_not_sent,
            power_db = power.join(" "),
            "heaps"
        );
    }
}
