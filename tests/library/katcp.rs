//! aiokatcp as an independent judge: it controls an engine without a data path, as a controller
//! would.
//!
//! Needs python3 with the packages of `scripts/requirements.txt`; `scripts/test` sees to that.

use std::env;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use dsp::SampleBits;
use ground::{SampleClock, Timestamp};
use karoo::config::{EngineConfig, NarrowbandOptions, RecvConfig, SendConfig, WidebandOptions};
use karoo::control::fgpu::{self, EngineControl};
use karoo::control::{Control, ControlEnd};
use karoo::engine::steer::{
    ActiveDelay, Change, ControlHandle, EngineEvent, PowerLevel, Received, RequestQueues, Sent,
};
use katcp::{ReservedAddress, Sensors};

use crate::support::python::python;

const STREAM: &str = "wideband";
const CHANNELS: usize = 32768;
const CHUNK: u64 = 1 << 25;
/// Set in the process that a test starts for itself.
const APART: &str = "KAROO_TEST_APART";

fn config() -> EngineConfig {
    let clock = SampleClock {
        adc_sample_rate: 1712e6,
        sync_time: 1_632_561_921.0,
    };
    let wideband = format!("name={STREAM},channels={CHANNELS},dst=239.10.1.0+63:7148");
    let wideband: WidebandOptions = wideband.parse().expect("an output");
    let narrowband = |keys: &str| {
        let options: NarrowbandOptions = keys.parse().expect("an output");
        let output = options.into_config(1 << 20, u64::MAX, clock);
        output.expect("a filter")
    };
    EngineConfig {
        clock,
        feng_id: 0,
        array_size: 64,
        recv: RecvConfig {
            packet_samples: 4096,
            sample_bits: SampleBits::new(10).expect("10 bits"),
            chunk_samples: CHUNK as usize,
            mask_timestamp: false,
        },
        send: SendConfig {
            packet_payload: 8192,
            chunk_jones: 1 << 23,
            ttl: 4,
        },
        max_delay_diff: 1 << 20,
        gain: 0.125,
        outputs: vec![
            wideband.into_config(1 << 20, u64::MAX),
            narrowband(
                "name=narrow0,channels=4096,dst=239.10.2.0+7:7148,centre_frequency=408e6,decimation=8",
            ),
            narrowband(
                "name=vlbi-1,channels=1024,dst=239.10.3.0:7148,centre_frequency=300e6,decimation=8,\
                 pass_bandwidth=64e6,taps=1,w_cutoff=0,window_function=rect",
            ),
        ],
        statistics_period: 0.0,
    }
}

/// An engine that has no data, but takes requests and publishes as if it had.
struct Engine {
    running: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Engine {
    fn start(steered: RequestQueues) -> Self {
        let running = Arc::new(AtomicBool::new(true));
        let still = running.clone();
        let thread = std::thread::spawn(move || {
            let (mut start, mut requests) = (CHUNK, 0);
            while still.load(Ordering::Relaxed) {
                chunk(&steered, start, &mut requests);
                start += CHUNK;
                std::thread::sleep(Duration::from_millis(10));
            }
            requests
        });
        Self { running, thread }
    }

    /// How many requests it took.
    fn end(self) -> u64 {
        self.running.store(false, Ordering::Relaxed);
        self.thread.join().expect("no panic")
    }
}

fn chunk(steered: &RequestQueues, start: u64, requests: &mut u64) {
    let (start, end) = (Timestamp(start), Timestamp(start + CHUNK));
    for (index, output) in steered.outputs.iter().enumerate() {
        output.publish_end(end);
        while let Some(request) = output.take() {
            *requests += 1;
            if let Change::Delays { models, .. } = &request.change {
                for (pol, model) in models.iter().copied().enumerate() {
                    let output = index;
                    steered
                        .published
                        .tell(EngineEvent::Delay(ActiveDelay { output, pol, model }));
                }
            }
            output.spend(request);
        }
        steered.published.tell(EngineEvent::Sent(Sent {
            output: index,
            start,
            end,
            batches: 1,
            nominal_end: end,
            clipped_samples: [0, start.0 / 2000],
        }));
    }
    steered.published.tell(EngineEvent::Received(Received {
        start,
        end,
        clipped_samples: [start.0 / 1000, 0],
        missing_heaps: [0, 0],
    }));
    steered.published.tell(EngineEvent::Power(PowerLevel {
        end,
        dbfs: Some([-20.0, -5.0]),
    }));
}

struct Running {
    control: Control,
    engine: Engine,
    halted: mpsc::Receiver<ControlEnd>,
}

fn start() -> Running {
    let config = config();
    let (steering, steered) = ControlHandle::new(&config, 256);
    let published = steered.published.clone();
    let engine = Engine::start(steered);
    let (halt, halted) = mpsc::channel();
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let any = ReservedAddress::bind(any).expect("a free port");
    let on_end = move |end| halt.send(end).expect("a test that waits");
    let control = EngineControl {
        config: &config,
        steering,
        published,
        constants: Vec::new(),
        busy: &[],
        record: Arc::default(),
        losses: Arc::default(),
        sensors: Sensors::default(),
    };
    let control = fgpu::start(any, control, on_end);
    Running {
        control: control.expect("it listens"),
        engine,
        halted,
    }
}

#[test]
fn aiokatcp_controls_an_engine() {
    let running = start();
    let address = running.control.address();
    let config = config();
    let mut args = vec![
        address.ip().to_string(),
        address.port().to_string(),
        config.clock.sync_time.to_string(),
        config.clock.adc_sample_rate.to_string(),
    ];
    let outputs = config.outputs.iter();
    args.extend(outputs.map(|output| format!("{}={}", output.name, output.channels)));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let report = python("check_aiokatcp.py", &args);
    let halted = running.halted.recv_timeout(Duration::from_secs(20));
    assert_eq!(halted, Ok(ControlEnd::Halt), "{report}");
    assert!(std::net::TcpStream::connect(address).is_err());
    running.control.stop();
    assert!(running.engine.end() > 100, "{report}");
}

/// Requests that wait for their place in the queue of an engine that takes none, while another
/// client says `?halt`: each is answered, as done or as failed, and those that are answered as done
/// are in the queue.
#[test]
fn a_halt_leaves_no_request_without_a_reply() {
    const PLACES: usize = 2;
    const REQUESTS: usize = 20;
    let config = config();
    let (steering, steered) = ControlHandle::new(&config, PLACES);
    let (halt, halted) = mpsc::channel();
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let any = ReservedAddress::bind(any).expect("a free port");
    let on_end = move |end| halt.send(end).expect("a test that waits");
    let published = steered.published.clone();
    let control = EngineControl {
        config: &config,
        steering,
        published,
        constants: Vec::new(),
        busy: &[],
        record: Arc::default(),
        losses: Arc::default(),
        sensors: Sensors::default(),
    };
    let control = fgpu::start(any, control, on_end);
    let control = control.expect("it listens");
    let address = control.address();
    let args = [
        &*address.ip().to_string(),
        &address.port().to_string(),
        STREAM,
        &REQUESTS.to_string(),
    ];
    let replies = python("halt_katcp.py", &args);
    let waiting = std::iter::from_fn(|| steered.outputs[0].take()).count();
    assert_eq!(waiting, PLACES);
    assert_eq!(replies["ok"], PLACES, "{replies}");
    let refusals = replies["fail"].as_array().expect("texts");
    assert_eq!(refusals.len(), REQUESTS - PLACES, "{replies}");
    let why = "server shutting down: the request was not carried out";
    assert_eq!(refusals.last().expect("a refusal"), why, "{replies}");
    assert_eq!(
        halted.recv_timeout(Duration::from_secs(20)),
        Ok(ControlEnd::Halt)
    );
    control.stop();
}

#[test]
fn hostile_clients_cost_only_themselves() {
    // Its memory is measured: other tests have theirs in another process.
    if env::var_os(APART).is_none() {
        let path = env::current_exe().expect("path");
        let name = "katcp::hostile_clients_cost_only_themselves";
        let apart = Command::new(path)
            .args(["--exact", name, "--nocapture"])
            .env(APART, "1")
            .output()
            .expect("runs");
        let [told, wrong] =
            [apart.stdout, apart.stderr].map(|of| String::from_utf8_lossy(&of).into_owned());
        assert!(
            apart.status.success() && told.contains("1 passed"),
            "{told}\n{wrong}"
        );
        return;
    }
    let running = start();
    let address = running.control.address();
    let [port, pid] = [u32::from(address.port()), std::process::id()].map(|n| n.to_string());
    let (host, channels) = (address.ip().to_string(), CHANNELS.to_string());
    let mut args = vec![&*host, &port, STREAM, &channels, &pid];
    args.extend(["many", "endless", "deaf", "subscribed"]);
    let report = python("hostile_katcp.py", &args);
    println!("{report}");
    assert_eq!(report["connected"], 1000, "{report}");
    for (deed, grown) in report["grown"].as_object().expect("deeds") {
        assert!(
            grown.as_u64().is_some_and(|grown| grown < 500 << 20),
            "{deed}: {report}"
        );
    }
    running.control.stop();
    running.engine.end();
}
