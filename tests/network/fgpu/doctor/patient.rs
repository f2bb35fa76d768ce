//! A host with a mistake: two ends of a cable, what a digitiser sends from one, what the doctor
//! finds at the other.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use karoo::net::frame::HEADERS_LEN;
use karoo::net::{HeaderTemplate, MacAddr};
use katcp::reading::unix_now;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, bind, socket};
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};
use spead::DigitiserRepr;
use spead::digitiser::PREAMBLE_LEN;

use super::super::cable::{Cable, TEST};
use super::super::rig::TOO_LONG;
use crate::support::documents::check;

/// Samples a second: 100 heaps a second of each polarisation.
pub const RATE: f64 = 409_600.0;
pub const HEAP: u64 = 4096;
pub const BYTES: usize = 5120;
pub const SOURCE: &str = "239.102.0.64,239.102.1.64";
/// Seconds that the doctor looks.
pub const LOOK: &str = "--for=0.7";

/// What a digitiser sends.
#[derive(Clone)]
pub struct Stream {
    /// Interface of the test's end.
    pub interface: usize,
    /// Destination of each polarisation.
    pub to: [SocketAddrV4; 2],
    /// Digitiser numbers.
    pub ids: Vec<u64>,
    pub bytes: usize,
    pub samples: u64,
    /// Added to timestamps.
    pub offset: u64,
    /// Of each heap.
    pub copies: usize,
    /// By how much timestamps go on faster.
    pub faster: f64,
    /// Every second heap of each goes elsewhere.
    pub every_second: Option<[SocketAddrV4; 2]>,
    /// What becomes of a packet before it is sent.
    pub change: fn(Vec<u8>) -> Vec<u8>,
}

pub fn to(address: &str) -> SocketAddrV4 {
    address.parse().expect("an endpoint")
}

impl Default for Stream {
    fn default() -> Self {
        Self {
            interface: 0,
            to: [to("239.102.0.64:7148"), to("239.102.1.64:7148")],
            ids: vec![0, 1],
            bytes: BYTES,
            samples: HEAP,
            offset: 0,
            copies: 1,
            faster: 1.0,
            every_second: None,
            change: |packet| packet,
        }
    }
}

/// A digitiser that pauses for so long, on a busy machine, is one that the doctor may find to have
/// stopped.
const PAUSE: Duration = Duration::from_millis(200);

/// A digitiser at the test's end, until it is dropped.
pub struct Digitiser {
    end: Arc<AtomicBool>,
    /// How often it paused.
    pauses: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

/// The digitisers' sync time, by all tests here.
pub fn sync_time() -> f64 {
    1_763_700_000.0
}

impl Digitiser {
    /// Sends in real time by `send`, which may be a socket of whatever kind.
    pub fn start(
        stream: Stream,
        mut send: impl FnMut(SocketAddrV4, &[u8]) + Send + 'static,
    ) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let ended = end.clone();
        let pauses = Arc::new(AtomicU64::new(0));
        let paused = pauses.clone();
        let thread = thread::spawn(move || {
            let rate = RATE * stream.faster;
            let now = || ((unix_now() - sync_time()) * rate) as u64;
            let mut next = now() / stream.samples * stream.samples;
            let mut last = Instant::now();
            while !ended.load(Ordering::Relaxed) {
                if last.elapsed() > PAUSE {
                    paused.fetch_add(1, Ordering::Relaxed);
                }
                last = Instant::now();
                while next + stream.samples <= now() {
                    for (&id, to) in stream.ids.iter().zip(stream.to) {
                        let odd = next / stream.samples % 2;
                        let to = match stream.every_second {
                            Some(other) if odd == 1 => other[id as usize & 1],
                            _ => to,
                        };
                        let packet = (stream.change)(heap(&stream, next + stream.offset, id));
                        (0..stream.copies).for_each(|_| send(to, &packet));
                    }
                    next += stream.samples;
                }
                thread::sleep(Duration::from_millis(1));
            }
        });
        Self {
            end,
            pauses,
            thread: Some(thread),
        }
    }
}

pub fn heap(stream: &Stream, timestamp: u64, id: u64) -> Vec<u8> {
    let mut packet = vec![0; PREAMBLE_LEN + stream.bytes];
    DigitiserRepr {
        heap_count: timestamp / stream.samples,
        timestamp,
        digitiser_id: id,
        saturated: 0,
        payload_length: stream.bytes,
    }
    .emit(packet.first_chunk_mut().unwrap());
    packet
}

impl Drop for Digitiser {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("a digitiser that does not panic");
        }
    }
}

/// Two ends of a cable, and what they are told.
///
/// The digitiser is the first to be dropped: it sends until then, and a cable that is gone takes
/// nothing.
pub struct Patient {
    pub digitiser: Option<Digitiser>,
    pub cable: Cable,
}

impl Patient {
    /// One to whom nothing is sent yet; `None` without namespaces.
    pub fn new(name: &str) -> Option<Self> {
        let cable = Cable::new(&format!("doctor-{name}"))?;
        Some(Self {
            cable,
            digitiser: None,
        })
    }

    /// One who is sent this.
    pub fn hears(name: &str, stream: Stream) -> Option<Self> {
        let mut patient = Self::new(name)?;
        patient.send(stream);
        Some(patient)
    }

    /// Sends from a socket of the kernel's at the test's end.
    pub fn send(&mut self, stream: Stream) {
        let from = TEST[stream.interface];
        let socket = Cable::within(&self.cable.test, || {
            let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).unwrap();
            socket.set_multicast_if_v4(&from).unwrap();
            UdpSocket::from(socket)
        });
        let send = move |to: SocketAddrV4, packet: &[u8]| {
            // Interfaces that go down refuse.
            let _ = socket.send_to(packet, to);
        };
        self.digitiser = Some(Digitiser::start(stream, send));
    }

    /// Changes something at one end: `engine` or `test`.
    pub fn ip(&self, end: &str, command: &str) {
        run(&format!("ip -n {} {command}", self.name(end)));
    }

    pub fn name(&self, end: &str) -> &str {
        match end {
            "engine" => &self.cable.engine,
            _ => &self.cable.test,
        }
    }

    /// What the doctor finds with these options, and its exit code. It looks again if the digitiser
    /// paused meanwhile.
    pub fn examine_by(&self, program: &[&str], options: &[&str]) -> (Value, Option<i32>) {
        let pauses = || {
            let digitiser = self.digitiser.as_ref();
            digitiser.map(|digitiser| digitiser.pauses.load(Ordering::Relaxed))
        };
        let begun = Instant::now();
        loop {
            let before = pauses();
            let found = self.examine_once(program, options);
            if pauses() == before || begun.elapsed() > TOO_LONG {
                return found;
            }
        }
    }

    fn examine_once(&self, program: &[&str], options: &[&str]) -> (Value, Option<i32>) {
        let sync_time = format!("--sync-time={}", sync_time());
        let rate = format!("--adc-sample-rate={RATE}");
        let usual = [
            ("--recv-interface", "--recv-interface=k0"),
            ("--send-interface", "--send-interface=k1"),
            ("--sync-time", &sync_time[..]),
            ("--adc-sample-rate", &rate[..]),
            (
                "--wideband",
                "--wideband=name=w,channels=64,dst=239.10.10.0+3,jones_per_batch=4096,taps=4",
            ),
            ("--recv-chunk", "--recv-chunk-samples=32768"),
            ("--max-delay-diff", "--max-delay-diff=1024"),
            ("--for", LOOK),
        ];
        let given = |key: &str| options.iter().any(|option| option.starts_with(key));
        let narrowband = given("--narrowband");
        let usual = usual.iter().filter(|(key, _)| !given(key));
        let usual = usual.filter(|(key, _)| !(narrowband && *key == "--wideband"));
        let source = options.iter().any(|option| !option.starts_with("--"));
        let output = Command::new("ip")
            .args(["netns", "exec", &self.cable.engine])
            .args(program)
            .args([env!("CARGO_BIN_EXE_karoo"), "doctor", "--json"])
            .args(usual.map(|(_, option)| option))
            .args(options)
            .args((!source).then_some(SOURCE))
            .env_remove("RUST_LOG")
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        let report = serde_json::from_slice(&output.stdout);
        let report = report.unwrap_or_else(|error| panic!("{error}: {stderr}"));
        (report, output.status.code())
    }

    /// Insists that the doctor finds this first. Returns the finding.
    pub fn has(&self, code: &str, options: &[&str]) -> Value {
        let (report, status) = self.examine_by(&[], options);
        let first = &report["findings"][0];
        assert_eq!(first["code"], code, "{report:#}");
        assert_eq!(status, Some(1));
        check("doctor", &report.to_string());
        first.clone()
    }
}

/// Runs a command that may not fail.
pub fn run(command: &str) {
    let mut words = command.split(' ');
    let output = Command::new(words.next().unwrap())
        .args(words)
        .output()
        .unwrap_or_else(|error| panic!("{command}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {stderr}");
}

pub fn text(value: &Value) -> &str {
    value.as_str().expect("text")
}

pub fn tagged(to: SocketAddrV4, packet: &[u8]) -> Vec<u8> {
    let from = SocketAddrV4::new(TEST[0], 5000);
    let mut headers = [0; HEADERS_LEN];
    let template = HeaderTemplate::multicast(MacAddr([2, 0, 0, 0, 0, 9]), from, to, 4);
    template.unwrap().emit(packet.len(), &mut headers);
    let tag = [0x81, 0x00, 0x00, 0x05];
    [&headers[..12], &tag, &headers[12..], packet].concat()
}

/// A socket whose frames go out through an interface as they are.
pub fn wire(interface: &str) -> OwnedFd {
    let wire = socket(
        AddressFamily::Packet,
        SockType::Raw,
        SockFlag::empty(),
        None,
    );
    let wire = wire.expect("a packet socket");
    let mut all = getifaddrs()
        .unwrap()
        .filter(|a| a.interface_name == interface);
    let link = all.find_map(|a| a.address?.as_link_addr().copied());
    bind(wire.as_raw_fd(), &link.expect("a link's address")).expect("an interface");
    wire
}

/// An IGMPv3 query for all groups.
pub const QUERY: [u8; 12] = [0x11, 1, 0xec, 0x81, 0, 0, 0, 0, 2, 125, 0, 0];

/// Asks as a querier at the test's end, until it is dropped.
pub fn querier(patient: &Patient, from: Ipv4Addr) -> Digitiser {
    let socket = Cable::within(&patient.cable.test, || {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(2))).unwrap();
        let address = SocketAddrV4::new(from, 0);
        socket.bind(&address.into()).unwrap();
        socket.set_multicast_if_v4(&TEST[0]).unwrap();
        socket
    });
    // As often as a digitiser's heaps.
    let all = SocketAddrV4::new(Ipv4Addr::new(224, 0, 0, 1), 0);
    let send = move |_: SocketAddrV4, _: &[u8]| {
        socket
            .send_to(&QUERY, &all.into())
            .expect("a query is sent");
    };
    Digitiser::start(Stream::default(), send)
}
