//! An engine in one of two network namespaces, the test in the other.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use karoo::net::{CaptureReader, Datagram};
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};
use spead::DigitiserHeap;

use super::cable::{Cable, ENGINE, TEST, User};
use super::received::Received;
use crate::support::{Samples, check_against_model, data, output_config};

/// Tests fail rather than hang.
pub const TOO_LONG: Duration = Duration::from_secs(180);
pub const OUTPUT: &str =
    "name=w,channels=64,dst=239.10.10.0+3:7148,jones_per_batch=4096,taps=4,dither=none";
pub const SUBSTREAMS: u64 = 4;
pub const BATCH: u64 = 8192;
pub const WINDOW: u64 = 512;
pub const CHUNK: u64 = 16384;
pub const RATE: f64 = 4e6;
pub const SYNC_TIME: f64 = 1_763_700_000.0;
/// The digitisers' groups: 8 for each polarisation.
pub const SOURCE: &str = "239.102.0.64+7,239.102.1.64+7";
pub const GAIN: f32 = 0.05;
/// Options of all engines here, with which a replay gives the same output.
pub const ENGINE_OPTIONS: [&str; 8] = [
    "--adc-sample-rate=4e6",
    "--recv-chunk-samples=16384",
    "--max-delay-diff=1024",
    "--send-chunk-jones=4096",
    "--gain=0.05",
    "--feng-id=3",
    "--array-size=8",
    "--backend=cpu",
];
pub const KATCP: u16 = 7147;
pub const METRICS: u16 = 9100;

/// An engine at one end of a cable, and the test's sockets at the other.
pub struct Rig {
    pub cable: Cable,
    engine: Child,
    log: tempfile::NamedTempFile,
    socket: UdpSocket,
    /// One at each interface.
    digitiser: [UdpSocket; 2],
    pub received: Received,
    /// Whether polarisation 1 goes through the other interface.
    pub split: bool,
    /// Samples that may be on their way through the engine.
    pub ahead: u64,
    /// What there is to send, and what is in it.
    pub capture: PathBuf,
    pub samples: Samples,
    begun: Instant,
}

impl Rig {
    /// An engine that is up and receives on k0, unless `options` say otherwise; `None` without
    /// namespaces.
    pub fn live(name: &str, options: &[&str]) -> Option<Self> {
        Some(Self::starting(name, options, &[])?.up())
    }

    /// The same, run by somebody.
    pub fn live_as(user: User, name: &str, options: &[&str]) -> Option<Self> {
        let cable = Cable::new(name)?;
        let metrics = format!("--prometheus-port={METRICS}");
        let usual = ["--recv-interface=k0", "--recv-spare-chunks=8", &metrics];
        let options = [&usual, options].concat();
        let engine = command(user, &cable, &options, SOURCE);
        Some(Self::run(engine, cable).up())
    }

    /// The same while it is starting, with variables of its environment.
    pub fn starting(name: &str, options: &[&str], environment: &[(&str, &str)]) -> Option<Self> {
        let metrics = format!("--prometheus-port={METRICS}");
        let usual = ["--recv-interface=k0", "--recv-spare-chunks=8", &metrics];
        let options = [&usual, options].concat();
        Some(Self::start(
            Cable::new(name)?,
            &options,
            SOURCE,
            environment,
        ))
    }

    /// An engine that is starting, and takes its input from a capture.
    pub fn from_file(name: &str, options: &[&str], capture: &Path) -> Option<Self> {
        let source = capture.to_str().unwrap();
        Some(Self::start(Cable::new(name)?, options, source, &[]))
    }

    /// An engine that is starting, with these options beside those of all engines here.
    pub fn start(
        cable: Cable,
        options: &[&str],
        source: &str,
        environment: &[(&str, &str)],
    ) -> Self {
        let mut engine = command(User::Root, &cable, options, source);
        engine.envs(environment.iter().copied());
        Self::run(engine, cable)
    }

    fn run(mut engine: Command, cable: Cable) -> Self {
        let capture = tones();
        let socket = Cable::within(&cable.test, || {
            let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).unwrap();
            // What the system does not grant, closed loops do without.
            let _ = socket.set_recv_buffer_size(16 << 20);
            // Others may listen as well.
            socket.set_reuse_address(true).unwrap();
            socket
                .bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, 7148)).into())
                .unwrap();
            for group in 0..SUBSTREAMS as u8 {
                let group = Ipv4Addr::new(239, 10, 10, group);
                for interface in TEST {
                    socket.join_multicast_v4(&group, &interface).unwrap();
                }
            }
            socket
                .set_read_timeout(Some(Duration::from_millis(2)))
                .unwrap();
            UdpSocket::from(socket)
        });
        let digitiser = TEST.map(|address| {
            Cable::within(&cable.test, || {
                let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).unwrap();
                socket.set_multicast_if_v4(&address).unwrap();
                UdpSocket::from(socket)
            })
        });
        let log = tempfile::NamedTempFile::new().unwrap();
        let engine = engine.stderr(log.reopen().unwrap()).spawn().unwrap();
        Self {
            cable,
            engine,
            log,
            socket,
            digitiser,
            received: Received::default(),
            split: false,
            ahead: 4 * CHUNK,
            samples: Samples::read(&capture, 10, 4096),
            capture,
            begun: Instant::now(),
        }
    }

    /// Names and CPUs of the lcores as `--print-plan` has them, each as JSON writes it.
    pub fn planned(&self) -> Vec<(String, String)> {
        let options = ["--recv-interface=k0", "--print-plan"];
        let output = command(User::Root, &self.cable, &options, SOURCE)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let lcore = |line: &str| {
            let words: Vec<_> = line.split_whitespace().collect();
            let (name, cpu) = match words[..] {
                [name, "CPU", cpu, "polls" | "naps", ..] => (name, cpu),
                _ => return None,
            };
            Some((format!("{name:?}"), format!("{cpu:?}")))
        };
        text.lines().filter_map(lcore).collect()
    }

    /// Waits until the engine is up: its KATCP port answers.
    pub fn up(mut self) -> Self {
        let namespace = self.cable.engine.clone();
        self.wait(|_| {
            Cable::within(&namespace, || {
                TcpStream::connect((Ipv4Addr::LOCALHOST, KATCP)).is_ok()
            })
        });
        self
    }

    /// Groups that the engine's system has joined: on k0 those of either polarisation, then on k1.
    pub fn groups(&self) -> [usize; 4] {
        let read = || std::fs::read_to_string("/proc/thread-self/net/igmp").unwrap();
        let list = Cable::within(&self.cable.engine, read);
        let mut groups = [0; 4];
        let mut interface = None;
        for line in list.lines() {
            // A line per interface, behind it an indented one per group, in the machine's byte
            // order.
            if !line.starts_with('\t') {
                interface = ["k0", "k1"].iter().position(|name| line.contains(name));
            } else if let (Some(interface), Some(group)) =
                (interface, line.split_whitespace().next())
            {
                let octets = u32::from_str_radix(group, 16).unwrap().to_ne_bytes();
                if let [239, 102, pol @ (0 | 1), _] = octets {
                    groups[2 * interface + usize::from(pol)] += 1;
                }
            }
        }
        groups
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log.path()).unwrap()
    }

    /// Takes in what has come; waits a little if nothing has. Returns whether something had.
    fn receive(&mut self) -> bool {
        let mut buffer = [0; 10_000];
        match self.socket.recv_from(&mut buffer) {
            Ok((bytes, from)) => {
                let interface = ENGINE.iter().position(|&address| from.ip() == address);
                let interface = interface.unwrap_or_else(|| panic!("from {from}"));
                self.received.packet(interface, &buffer[..bytes]);
                let sent = (from.port(), buffer[..bytes].to_vec());
                self.received.datagrams.insert(sent);
                true
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                false
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Takes in what comes until something has happened.
    pub fn wait(&mut self, mut happened: impl FnMut(&mut Self) -> bool) {
        while !happened(self) {
            // What an engine sent before it ended is here by then.
            let ended = self.engine.try_wait().unwrap().is_some();
            let over = !self.receive() && ended && self.received.stops < SUBSTREAMS;
            assert!(!over && self.begun.elapsed() < TOO_LONG, "{}", self.log());
        }
    }

    /// Sends the heaps from `from` on until `to`, none so early that the engine has to hold more
    /// than it can.
    pub fn send(&mut self, from: u64, to: u64) {
        self.send_each(from, to, |_, _| 1);
    }

    /// The same, each so many times as `times` says of its timestamp and polarisation.
    pub fn send_each(&mut self, from: u64, to: u64, times: impl Fn(u64, usize) -> usize) {
        let (split, first) = (self.split, self.samples.first());
        let mut reader = CaptureReader::open(&self.capture).unwrap();
        while let Some(frame) = reader.next_frame().unwrap() {
            let datagram = Datagram::new_checked(frame.bytes).unwrap();
            let heap = DigitiserHeap::new_checked(datagram.payload()).unwrap();
            let timestamp = heap.timestamp().unwrap();
            if (from..to).contains(&timestamp) {
                self.wait(|rig| timestamp < rig.received.end().unwrap_or(first) + rig.ahead);
                let interface = if split { heap.pol() } else { 0 };
                let socket = &self.digitiser[interface];
                for _ in 0..times(timestamp, heap.pol()) {
                    socket.send_to(datagram.payload(), datagram.dst()).unwrap();
                }
            }
        }
    }

    /// Sends the first heap, changed.
    pub fn send_first(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        let mut reader = CaptureReader::open(&self.capture).unwrap();
        let frame = reader.next_frame().unwrap().unwrap();
        let datagram = Datagram::new_checked(frame.bytes).unwrap();
        let mut bytes = datagram.payload().to_vec();
        change(&mut bytes);
        self.digitiser[0].send_to(&bytes, datagram.dst()).unwrap();
    }

    /// Sends all heaps.
    pub fn send_all(&mut self) {
        self.send(0, u64::MAX);
    }

    /// Waits until the engine has taken in all heaps, and sent what it could of them. What is on
    /// its way to an rx lcore when the engine is told to end is lost.
    pub fn wait_for_all(&mut self) {
        let (first, end) = (self.samples.first(), self.samples.end());
        let heaps = 2 * (end - first) / 4096;
        // Two chunks are open until the next begins.
        let chunks = (end - first) / CHUNK - 2;
        self.wait(|rig| {
            let metrics = rig.metrics();
            let total = |family: &str| total(&metrics, family) as i64;
            let placed = total("karoo_input_datagrams") - total("karoo_input_drops");
            let sent = total("fgpu_output_samples") / 8192 * SUBSTREAMS as i64;
            placed == heaps as i64
                && total("fgpu_input_chunks") == chunks as i64
                && total("fgpu_output_heaps") == sent
        });
    }

    /// Tells the engine of a signal.
    pub fn signal(&self, name: &str) {
        let id = self.id().to_string();
        let status = Command::new("kill")
            .args(["-s", name, &id])
            .status()
            .unwrap();
        assert!(status.success());
    }

    /// Takes in what comes until the stop heaps, then until the engine has ended.
    pub fn ended(&mut self) -> ExitStatus {
        self.wait(|rig| rig.received.stops == SUBSTREAMS);
        self.died()
    }

    /// Tells the engine to end, and insists that it does so well.
    pub fn end(&mut self) {
        // Else what comes at the end may find the socket full.
        while self.receive() {}
        self.signal("INT");
        assert_eq!(self.ended().code(), Some(0), "{}", self.log());
    }

    /// Timestamp behind the last batch that can be made of the capture.
    pub fn last_end(&self) -> u64 {
        let batches = self.samples.whole_batches(BATCH, WINDOW, 128);
        batches.last().unwrap() + BATCH
    }

    /// Insists that what was received is all that can be made of the capture, and what the model
    /// makes of it.
    pub fn check_all(&self) {
        let batches = self.received.batches();
        let received: Vec<_> = batches.keys().copied().collect();
        let expected = self.samples.whole_batches(BATCH, WINDOW, 128);
        assert_eq!(received, expected, "{}", self.log());
        self.check(&batches);
    }

    /// Insists that these batches are the model's, without delays and with the gain of all engines
    /// here.
    pub fn check(&self, batches: &BTreeMap<u64, Vec<i8>>) {
        let (output, delays) = (output_config(OUTPUT), Default::default());
        check_against_model(&self.samples, &output, batches, &delays, GAIN);
    }

    /// Waits until the engine has ended, in whatever way.
    pub fn died(&mut self) -> ExitStatus {
        loop {
            self.receive();
            if let Some(status) = self.engine.try_wait().unwrap() {
                return status;
            }
            assert!(self.begun.elapsed() < TOO_LONG, "{}", self.log());
        }
    }

    /// The text of a scrape.
    pub fn scrape(&self) -> String {
        scrape(&self.cable.engine, METRICS)
    }

    /// Runs a script of `tests/judges` where the engine is.
    pub fn python(&self, script: &str, args: &[&str], input: &str) -> Value {
        run_python(&self.cable.engine, script, args, input)
            .unwrap_or_else(|error| panic!("{error}\n{}", self.log()))
    }

    /// Number of the engine's process.
    pub fn id(&self) -> u32 {
        self.engine.id()
    }

    /// A scrape, as Prometheus's own parser reads it.
    pub fn metrics(&self) -> Value {
        self.python("check_metrics.py", &[], &self.scrape())
    }
}

/// Runs a script of `tests/judges` in a namespace. What it prints is JSON, or it failed.
pub fn run_python(
    namespace: &str,
    script: &str,
    args: &[&str],
    input: &str,
) -> Result<Value, String> {
    let python = std::env::var("KAROO_PYTHON").unwrap_or_else(|_| "python3".into());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/judges");
    let mut child = Command::new("ip")
        .args(["netns", "exec", namespace, &python])
        .arg(folder.join(script))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        !stderr.contains("ModuleNotFoundError"),
        "{python} lacks the packages of scripts/requirements.txt: run scripts/test\n{stderr}"
    );
    if !output.status.success() {
        return Err(stderr.into_owned());
    }
    Ok(serde_json::from_slice(&output.stdout).unwrap())
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = self.engine.kill();
        let _ = self.engine.wait();
    }
}

/// What there is to scrape at a port in a namespace.
pub fn scrape(namespace: &str, port: u16) -> String {
    let (head, body) = fetch(namespace, port, "/metrics");
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    String::from_utf8(body).unwrap()
}

/// What is at an address of a port in a namespace.
pub fn get(namespace: &str, port: u16, path: &str) -> String {
    String::from_utf8(fetch(namespace, port, path).1).unwrap()
}

/// Head and body of what is at an address.
pub fn fetch(namespace: &str, port: u16, path: &str) -> (String, Vec<u8>) {
    Cable::within(namespace, || {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.set_read_timeout(Some(TOO_LONG)).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let body = bytes.split_off(end.unwrap() + 4);
        let head = String::from_utf8(bytes).unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        (head, body)
    })
}

/// The capture that all tests here send.
pub fn tones() -> PathBuf {
    data("tones-10bit.pcap")
}

/// Sum over a family of metrics.
pub fn total(metrics: &Value, family: &str) -> f64 {
    let samples = metrics[family][1].as_array().unwrap().iter();
    samples.map(|sample| sample[2].as_f64().unwrap()).sum()
}

/// The engine's command line, in its namespace.
fn command(user: User, cable: &Cable, options: &[&str], source: &str) -> Command {
    let given = options
        .iter()
        .any(|option| option.starts_with("--wideband"));
    let output = ["--wideband", OUTPUT].into_iter().filter(|_| !given);
    let mut command = user.within(&cable.engine);
    command
        .args([env!("CARGO_BIN_EXE_karoo"), "fgpu"])
        .args(["--send-interface=k0", "--sync-time=1763700000"])
        .args(output)
        .args(ENGINE_OPTIONS)
        .arg("--log=stderr")
        .args(options)
        .arg(source)
        .env_remove("RUST_LOG");
    command
}
