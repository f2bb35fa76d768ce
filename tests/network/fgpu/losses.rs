//! What an engine says of input that it loses, in its log and to a service manager.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use socket2::{Domain, Protocol, Socket, Type};
use spead::DigitiserRepr;
use spead::digitiser::PREAMBLE_LEN;

use super::cable::{Cable, TEST};
use super::chain::Karoo;
use super::rig::{CHUNK, ENGINE_OPTIONS, OUTPUT, SOURCE};

/// Slow enough that a busy machine loses none.
const RATE: f64 = 2e5;
const HEAP: u64 = 4096;
/// Bytes of a heap with 10 bits a sample, as the engine expects.
const BYTES: usize = 5120;
const POLS: [u64; 2] = [0, 1];

/// An engine, and a digitiser that never skips a heap.
struct Telescope {
    engine: Karoo,
    /// Last, so that the engine has ended before its namespace goes.
    digitiser: Digitiser,
}

struct Digitiser {
    socket: UdpSocket,
    sync_time: f64,
    next: u64,
    _cable: Cable,
}

fn unix_now() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    now.as_secs_f64()
}

impl Telescope {
    /// An engine whose `--sync-time` is so many seconds later than the digitiser's; `None` without
    /// namespaces.
    fn start(
        name: &str,
        later: f64,
        options: &[&str],
        environment: &[(&str, &str)],
    ) -> Option<Self> {
        let cable = Cable::new(name)?;
        let socket = Cable::within(&cable.test, || {
            let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).unwrap();
            socket.set_multicast_if_v4(&TEST[0]).unwrap();
            UdpSocket::from(socket)
        });
        let sync_time = unix_now().floor() - 100_000.0;
        let engine_time = format!("--sync-time={}", sync_time + later);
        let own = ["fgpu", "--recv-interface=k0", "--send-interface=k1"];
        let outputs = ["--wideband", OUTPUT, SOURCE, &engine_time];
        let rate = format!("--adc-sample-rate={RATE}");
        let args = [&own[..], &outputs, &ENGINE_OPTIONS, &[&rate], options].concat();
        let engine = Karoo::start_with(&cable.engine, &args, environment).up();
        Some(Self {
            engine,
            digitiser: Digitiser {
                socket,
                sync_time,
                next: 0,
                _cable: cable,
            },
        })
    }

    /// Sends heaps of so many bytes as their time comes, until something has happened.
    fn send_until(&mut self, pols: &[u64], bytes: usize, happened: impl Fn(&str) -> bool) {
        let digitiser = &mut self.digitiser;
        digitiser.begin();
        self.engine.wait(|engine| {
            digitiser.send_due(pols, bytes);
            happened(&engine.log())
        });
    }

    /// Sends what it should for so many samples.
    fn send(&mut self, samples: u64) {
        self.digitiser.begin();
        let end = self.digitiser.next + samples;
        let digitiser = &mut self.digitiser;
        self.engine.wait(|_| {
            digitiser.send_due(&POLS, BYTES);
            digitiser.next >= end
        });
    }

    /// Sends nothing until something has happened.
    fn wait(&mut self, happened: impl Fn(&str) -> bool) {
        self.engine.wait(|engine| happened(&engine.log()));
    }

    /// Ends the engine, which was not to fail. Returns its log.
    fn end(mut self) -> String {
        self.engine.interrupt();
        let (status, _) = self.engine.ended();
        assert_eq!(status.code(), Some(0), "{}", self.engine.log());
        self.engine.log()
    }
}

impl Digitiser {
    fn now(&self) -> u64 {
        ((unix_now() - self.sync_time) * RATE) as u64
    }

    /// Begins with the next chunk.
    fn begin(&mut self) {
        self.next = self.next.max(self.now().next_multiple_of(CHUNK));
    }

    /// Sends the heaps whose last sample has been taken.
    fn send_due(&mut self, pols: &[u64], bytes: usize) {
        while self.next + HEAP <= self.now() {
            for &pol in pols {
                let repr = DigitiserRepr {
                    heap_count: self.next / HEAP,
                    timestamp: self.next,
                    digitiser_id: pol,
                    saturated: 0,
                    payload_length: bytes,
                };
                let mut packet = vec![0; PREAMBLE_LEN + bytes];
                repr.emit(packet.first_chunk_mut().unwrap());
                let group = Ipv4Addr::new(239, 102, pol as u8, 64);
                let to = SocketAddrV4::new(group, 7148);
                self.socket.send_to(&packet, to).unwrap();
            }
            self.next += HEAP;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// The first line with all of these.
fn line<'a>(log: &'a str, parts: &[&str]) -> &'a str {
    let has = |line: &&str| parts.iter().all(|part| line.contains(part));
    let line = log.lines().find(has);
    line.unwrap_or_else(|| panic!("no line with {parts:?}:\n{log}"))
}

#[test]
fn heaps_of_another_width_are_said_in_the_log_the_status_and_the_summary() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_nonblocking(true).unwrap();
    let environment = [("NOTIFY_SOCKET", path.to_str().unwrap())];
    let Some(mut telescope) = Telescope::start("width", 0.0, &[], &environment) else {
        return;
    };
    let status = std::cell::RefCell::new(Vec::new());
    telescope.send_until(&POLS, 4096, |log| {
        let mut message = [0; 4096];
        while let Ok(bytes) = manager.recv(&mut message) {
            let text = String::from_utf8_lossy(&message[..bytes]).into_owned();
            status.borrow_mut().push(text);
        }
        let lost = "100.0 % lost (wrong-heap-length)";
        log.contains("wrong-heap-length") && status.borrow().iter().any(|text| text.contains(lost))
    });
    telescope.wait(|log| log.contains("wrong-heap-length is over"));
    let log = telescope.end();
    let begins = line(&log, &["WARN", "datagrams/s not placed: wrong-heap-length"]);
    let mends = "heaps have 4096 bytes where 5120 are expected: `--dig-sample-bits 8`?";
    assert!(begins.contains(mends), "{begins}");
    line(
        &log,
        &[
            "INFO",
            "wrong-heap-length is over",
            "datagrams not placed in",
        ],
    );
    line(&log, &["input: ", " 0 heaps placed", " wrong-heap-length"]);
    line(&log, &["output w: 0 heaps sent, 0 skipped"]);
}

#[test]
fn input_that_never_came_is_said_and_that_it_comes() {
    let Some(mut telescope) = Telescope::start("never", 0.0, &[], &[]) else {
        return;
    };
    telescope.wait(|log| log.contains("no-input"));
    telescope.send_until(&POLS, BYTES, |log| log.contains("no-input is over"));
    let log = telescope.end();
    let begins = line(&log, &["WARN", "no heap has come in"]);
    assert!(begins.contains("k0") && begins.contains(SOURCE), "{begins}");
    line(&log, &["INFO", "no-input is over: heaps come again"]);
}

#[test]
fn input_that_stops_is_said_and_that_it_is_back() {
    let Some(mut telescope) = Telescope::start("stops", 0.0, &[], &[]) else {
        return;
    };
    telescope.send(8 * CHUNK);
    telescope.wait(|log| log.contains("no heap comes, since"));
    telescope.send_until(&POLS, BYTES, |log| log.contains("no-input is over"));
    let log = telescope.end();
    line(
        &log,
        &["WARN", "no heap comes, since", "nothing comes to k0"],
    );
    line(&log, &["INFO", "no-input is over: heaps come again, after"]);
    // The gap is said by that alone.
    assert!(!log.contains("missing-heaps"), "{log}");
}

#[test]
fn heaps_of_another_time_name_the_sync_time_that_agrees() {
    let Some(mut telescope) = Telescope::start("time", -1000.0, &[], &[]) else {
        return;
    };
    let sync_time = telescope.digitiser.sync_time;
    telescope.send_until(&POLS, BYTES, |log| log.contains("wrong-time"));
    let log = telescope.end();
    let begins = line(
        &log,
        &["WARN", "16 min 4", "behind this host's clock: wrong-time"],
    );
    let (_, about) = begins.split_once("should be about ").unwrap();
    let about: f64 = about[..about.find(',').unwrap()].parse().unwrap();
    assert!((about - sync_time).abs() < 10.0, "{begins}");
}

#[test]
fn one_polarisation_alone_is_said() {
    let Some(mut telescope) = Telescope::start("one", 0.0, &[], &[]) else {
        return;
    };
    telescope.send_until(&POLS[..1], BYTES, |log| log.contains("one-polarisation"));
    let log = telescope.end();
    let begins = line(
        &log,
        &["WARN", "no heap of polarisation 1 comes", "the other comes"],
    );
    assert!(begins.contains(SOURCE), "{begins}");
}

/// Output that is sent far too slowly: what waits for it has all chunks.
#[test]
fn an_engine_without_a_free_chunk_says_what_is_slow() {
    let options = ["--send-rate-factor=1e-3", "--recv-spare-chunks=0"];
    let Some(mut telescope) = Telescope::start("chunks", 0.0, &options, &[]) else {
        return;
    };
    telescope.send_until(&POLS, BYTES, |log| log.contains("no-free-chunk"));
    let log = telescope.engine.log();
    line(
        &log,
        &[
            "WARN",
            "not placed: no-free-chunk",
            "w wait to be sent: `--send-rate-factor`",
        ],
    );
}

#[test]
fn a_run_without_faults_says_nothing() {
    let Some(mut telescope) = Telescope::start("faultless", 0.0, &[], &[]) else {
        return;
    };
    let samples = (12.0 * RATE) as u64;
    telescope.send(samples);
    let log = telescope.end();
    let said: Vec<_> = log.lines().filter(|line| line.contains("cause=")).collect();
    assert!(said.is_empty(), "{log}");
    line(&log, &["input: ", "heaps placed"]);
}
