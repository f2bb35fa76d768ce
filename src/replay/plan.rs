//! Options and what the capture tells, to a validated configuration.

use std::net::SocketAddrV4;

use dpdk::{FlowRule, QueueId};
use dsp::SampleBits;
use ground::{N_POL, SampleClock, Timestamp};

use super::requests::Requests;
use crate::assembly::CaptureScan;
use crate::config::{
    CaptureOptions, ConfigError, Decision, EngineConfig, EngineOptions, GainOption, InitialDelays,
    JONES_PER_BATCH, OutputConfig, RecvConfig, SendConfig, WidebandOptions, check_capture_end,
    parse_delays,
};
use crate::net::{FlowTable, parse_endpoints};
use crate::report::MeasuredGains;

/// Defaults of katgpucbf.
const DEFAULT_RATE: f64 = 1712e6;
const DEFAULT_HEAP_SAMPLES: u64 = 4096;
const DEFAULT_MAX_DELAY_DIFF: usize = 1 << 20;
const DEFAULT_OUTPUT: &str = "name=wideband,channels=1024,dst=239.10.10.0+7:7148";
/// Smallest receive chunk and usual output chunk: large enough to keep every worker busy.
const CHUNK: usize = 1 << 20;
/// A capture should give at least this many batches.
const WANTED_BATCHES: u64 = 8;

/// What a replay will do.
#[derive(Clone, Debug)]
pub struct ReplayPlan {
    /// The engine.
    pub engine: EngineConfig,
    /// Delays from the start.
    pub delays: Vec<InitialDelays>,
    /// Gains are to be measured.
    pub auto_gain: Option<AutoGain>,
    /// Those that were, one of each output; none otherwise.
    pub gains: Vec<MeasuredGains>,
    /// Requests to the engine.
    pub requests: Requests,
    /// Which frame goes to which rx queue.
    pub steering: FlowTable,
    /// Polarisation and number within it, per rx queue.
    pub queues: Vec<(usize, usize)>,
    /// Timestamp of the [first heap](CaptureScan::first_whole).
    pub first_timestamp: Timestamp,
    /// What was picked from the capture.
    pub chosen: Vec<Decision>,
}

/// Gains by the level of a capture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AutoGain {
    /// Rms of real and imaginary parts to have, in counts; `None`: what is best for noise.
    pub rms: Option<f64>,
}

/// A replay that cannot be planned; both are the user's to mend on the command line.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct PlanError(#[from] ConfigError);

struct Picks(Vec<Decision>);

impl Picks {
    /// The option's value, or `value` and a note of it.
    fn or<T: ToString>(&mut self, given: Option<T>, option: &str, value: T, why: &str) -> T {
        given.unwrap_or_else(|| {
            self.0.push(Decision {
                option: option.to_owned(),
                value: value.to_string(),
                why: why.to_owned(),
            });
            value
        })
    }
}

/// Fills the gaps of `options` from `scan` and checks the result; there are no requests.
/// `queues_per_pol` is at least 1.
pub fn plan(
    options: &EngineOptions,
    capture: &CaptureOptions,
    scan: &CaptureScan,
    queues_per_pol: usize,
) -> Result<ReplayPlan, PlanError> {
    let mut picks = Picks(Vec::new());
    let clock = pick_clock(options, scan, &mut picks);
    let (packet_samples, sample_bits) = pick_heap(options, scan, &mut picks)?;
    let samples = scan.estimated_heaps.saturating_mul(packet_samples as u64);
    let outputs = pick_outputs(options, clock, samples, &mut picks)?;
    let window = outputs
        .iter()
        .map(OutputConfig::window_samples)
        .max()
        .unwrap_or(0);
    let mut recv = RecvConfig {
        packet_samples,
        sample_bits,
        chunk_samples: 0,
        mask_timestamp: options.mask_timestamp,
    };
    let grid = recv.chunk_grid(&outputs);
    let (chunk_samples, max_delay_diff) = pick_chunk(options, window, grid, &mut picks);
    recv.chunk_samples = chunk_samples;
    let chunk_jones = pick_send_chunk(options, &outputs, &mut picks)?;
    let engine = EngineConfig {
        clock,
        feng_id: options.feng_id,
        array_size: options.array_size,
        recv,
        send: SendConfig {
            packet_payload: options.send_packet_payload,
            chunk_jones,
            ttl: options.send_ttl,
        },
        max_delay_diff,
        // Those that are measured take its place.
        gain: match options.gain {
            GainOption::Fixed(gain) => gain,
            GainOption::Auto { .. } => 1.0,
        },
        statistics_period: options.statistics_period,
        outputs,
    };
    engine.validate()?;
    check_heap(&engine.recv, scan)?;
    let auto_gain = match options.gain {
        GainOption::Fixed(_) => None,
        GainOption::Auto { rms } => Some(AutoGain { rms }),
    };
    check_rms(auto_gain, &engine.outputs)?;
    let first_timestamp = scan.first_whole(clock);
    check_end(clock, first_timestamp, samples)?;
    let delays = parse_delays(&capture.delays, clock.adc_sample_rate)?;
    let names: Vec<_> = engine.outputs.iter().map(|of| &of.name[..]).collect();
    if let Some(delay) = delays.iter().find(|of| !names.contains(&&of.stream[..])) {
        let way_out = format!("the outputs are {}", names.join(", "));
        let error = ConfigError::new("--delays", &delay.stream, "no such output", way_out);
        return Err(error.into());
    }
    let (steering, queues) = match &capture.sources {
        Some(sources) => steer_given(sources, queues_per_pol)?,
        None => steer(&scan.sources, queues_per_pol),
    };
    Ok(ReplayPlan {
        engine,
        delays,
        auto_gain,
        gains: Vec::new(),
        requests: Requests::default(),
        steering,
        queues,
        first_timestamp,
        chosen: picks.0,
    })
}

/// Refuses output whose frames have times that its format has not.
fn check_end(clock: SampleClock, first: Timestamp, samples: u64) -> Result<(), ConfigError> {
    let end = first.unix(clock) + samples as f64 / clock.adc_sample_rate;
    let by = "the timestamps of the one that is read and --adc-sample-rate";
    let way_out = "give an earlier --sync-time, or a higher rate";
    check_capture_end(end, clock.sync_time, by, way_out)
}

/// A level that values have room for.
fn check_rms(auto: Option<AutoGain>, outputs: &[OutputConfig]) -> Result<(), ConfigError> {
    let Some(rms) = auto.and_then(|auto| auto.rms) else {
        return Ok(());
    };
    let limits = outputs
        .iter()
        .map(|output| f64::from(output.sample_bits.limit()));
    match limits.min_by(f64::total_cmp) {
        Some(limit) if rms >= limit => {
            let rule = format!("must be less than the {limit} that values reach");
            let value = format!("auto:{rms}");
            Err(ConfigError::new("--gain", value, rule, "try auto"))
        }
        _ => Ok(()),
    }
}

fn pick_clock(options: &EngineOptions, scan: &CaptureScan, picks: &mut Picks) -> SampleClock {
    let adc_sample_rate = picks.or(
        options.adc_sample_rate,
        "--adc-sample-rate",
        DEFAULT_RATE,
        "the L band's",
    );
    let first = scan.first_timestamp as f64 / adc_sample_rate;
    let sync_time = scan.first_time_ns as f64 * 1e-9 - first;
    let why = "so that the first heap has the time of its frame";
    SampleClock {
        adc_sample_rate,
        sync_time: picks.or(options.sync_time, "--sync-time", sync_time, why),
    }
}

fn pick_heap(
    options: &EngineOptions,
    scan: &CaptureScan,
    picks: &mut Picks,
) -> Result<(usize, SampleBits), ConfigError> {
    if let Some(bits) = options.dig_sample_bits
        && SampleBits::new(bits).is_none()
    {
        let rule = "must be 2 to 16";
        return Err(ConfigError::new(
            "--dig-sample-bits",
            bits,
            rule,
            "leave it out",
        ));
    }
    let heap_bits = 8 * scan.heap_bytes;
    let from_bits = options
        .dig_sample_bits
        .map(|bits| heap_bits / bits as usize);
    let step = scan.heap_samples.unwrap_or(DEFAULT_HEAP_SAMPLES) as usize;
    let (samples, why) = match from_bits {
        Some(samples) => (samples, "heap bytes over --dig-sample-bits"),
        None => (step, "the usual step between timestamps"),
    };
    let samples = picks.or(
        options.recv_packet_samples,
        "--recv-packet-samples",
        samples,
        why,
    );
    let refused = |rule: String| match (options.recv_packet_samples, options.dig_sample_bits) {
        (Some(given), _) => ConfigError::new("--recv-packet-samples", given, rule, "leave it out"),
        (None, given) => {
            let given = given.map_or_else(String::new, |bits| bits.to_string());
            ConfigError::new("--dig-sample-bits", given, rule, "leave it out")
        }
    };
    // Not all destinations of a polarisation need be in the capture.
    let apart = scan.heap_samples.is_some() && !step.is_multiple_of(samples);
    if samples == 0 || apart {
        let heap = format!(
            "heaps of {} bytes would have {samples} samples",
            scan.heap_bytes
        );
        return Err(refused(format!("{heap}, but begin {step} samples apart")));
    }
    let bits = (heap_bits / samples) as u32;
    let why = format!("heaps have {} bytes for {samples} samples", scan.heap_bytes);
    let bits = picks.or(options.dig_sample_bits, "--dig-sample-bits", bits, &why);
    let sample_bits = SampleBits::new(bits).ok_or_else(|| {
        let heap = format!("heaps have {} bytes", scan.heap_bytes);
        match options.recv_packet_samples {
            Some(_) => refused(format!(
                "{heap}: {bits} bits a sample, but 2 to 16 can be had"
            )),
            None => {
                let way_out = format!("{heap}: give --recv-packet-samples too");
                ConfigError::new("--dig-sample-bits", bits, "must be 2 to 16", way_out)
            }
        }
    })?;
    Ok((samples, sample_bits))
}

fn pick_outputs(
    options: &EngineOptions,
    clock: SampleClock,
    samples: u64,
    picks: &mut Picks,
) -> Result<Vec<OutputConfig>, ConfigError> {
    let mut options = options.clone();
    if options.wideband.is_empty() && options.narrowband.is_empty() {
        let default: WidebandOptions = DEFAULT_OUTPUT.parse()?;
        let why = "no output was asked for".to_owned();
        let (option, value) = ("--wideband".to_owned(), DEFAULT_OUTPUT.to_owned());
        picks.0.push(Decision { option, value, why });
        options.wideband.push(default);
    }
    options.outputs(clock, |output, kind, decimation| {
        let option = format!("{kind} jones_per_batch of '{}'", output.name);
        let least = output.channels.saturating_mul(32).max(1);
        let fit = samples / WANTED_BATCHES / 2 / decimation as u64;
        let fit = 1usize << fit.max(1).ilog2().min(62);
        let fit = fit.clamp(least, JONES_PER_BATCH.max(least));
        let why = "a whole number of batches that the capture fills several times";
        picks.or(output.jones_per_batch, &option, fit, why)
    })
}

/// Receive chunk, a multiple of `grid`, and largest delay difference: either follows from the
/// other.
fn pick_chunk(
    options: &EngineOptions,
    window: usize,
    grid: usize,
    picks: &mut Picks,
) -> (usize, usize) {
    let option = "--max-delay-diff";
    let max_delay_diff = match options.recv_chunk_samples {
        Some(chunk)
            if chunk
                < DEFAULT_MAX_DELAY_DIFF
                    .saturating_add(window)
                    .saturating_add(8) =>
        {
            let room = chunk.saturating_sub(window) / 8 * 8;
            picks.or(
                options.max_delay_diff,
                option,
                room,
                "what --recv-chunk-samples leaves",
            )
        }
        _ => {
            let why = "the usual value";
            picks.or(options.max_delay_diff, option, DEFAULT_MAX_DELAY_DIFF, why)
        }
    };
    let tail = max_delay_diff.saturating_add(window);
    let room = tail
        .checked_next_power_of_two()
        .unwrap_or(usize::MAX / 4)
        .saturating_mul(2);
    let chunk = room
        .max(CHUNK)
        .checked_next_multiple_of(grid)
        .unwrap_or(room);
    let why = "twice what the tail needs";
    (
        picks.or(
            options.recv_chunk_samples,
            "--recv-chunk-samples",
            chunk,
            why,
        ),
        max_delay_diff,
    )
}

fn pick_send_chunk(
    options: &EngineOptions,
    outputs: &[OutputConfig],
    picks: &mut Picks,
) -> Result<usize, ConfigError> {
    let given = options.send_chunk_jones;
    let chunk = SendConfig::whole_batches(given.unwrap_or(CHUNK), outputs)?;
    let why = "whole batches of every output";
    Ok(picks.or(given.map(|_| chunk), "--send-chunk-jones", chunk, why))
}

/// A capture whose heaps have another length than the options say would be dropped to the last
/// heap.
fn check_heap(recv: &RecvConfig, scan: &CaptureScan) -> Result<(), ConfigError> {
    if recv.heap_bytes() == scan.heap_bytes {
        return Ok(());
    }
    let value = format!("{} at {} bits", recv.packet_samples, recv.sample_bits.get());
    let rule = format!(
        "makes heaps of {} bytes, but those of the capture have {}",
        recv.heap_bytes(),
        scan.heap_bytes
    );
    let way_out = "leave out --recv-packet-samples or --dig-sample-bits";
    Err(ConfigError::new(
        "--recv-packet-samples",
        value,
        rule,
        way_out,
    ))
}

/// The given destinations over all queues, in contiguous slices, as katgpucbf divides them.
fn steer_given(
    sources: &str,
    queues_per_pol: usize,
) -> Result<(FlowTable, Vec<(usize, usize)>), ConfigError> {
    let list = parse_endpoints(sources).map_err(|error| {
        let way_out = "try 239.102.0.64+7:7148,239.102.1.64+7:7148";
        ConfigError::new("--sources", sources, error.to_string(), way_out)
    })?;
    let queues = (N_POL * queues_per_pol).min(list.len());
    let names = (0..queues).map(|queue| (queue * N_POL / queues, queue % queues.div_ceil(N_POL)));
    Ok((FlowTable::from_sources(&list, queues), names.collect()))
}

/// Each polarisation's destinations over its own queues, in contiguous slices.
fn steer(
    sources: &[Vec<SocketAddrV4>; N_POL],
    queues_per_pol: usize,
) -> (FlowTable, Vec<(usize, usize)>) {
    let mut rules = Vec::new();
    let mut queues = Vec::new();
    for (pol, sources) in sources.iter().enumerate() {
        let count = queues_per_pol.min(sources.len());
        for rule in FlowTable::from_sources(sources, count).rules() {
            let queue = QueueId(queues.len() + rule.queue.0);
            rules.push(FlowRule {
                queue,
                ..rule.clone()
            });
        }
        queues.extend((0..count).map(|number| (pol, number)));
    }
    (FlowTable::new(rules), queues)
}
