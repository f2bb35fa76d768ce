//! An engine and a digitiser that does whatever goes wrong with digitisers.
//!
//! With `KAROO_TEST_RECORD=FOLDER` what Prometheus would scrape of the engine of each test is kept,
//! one text a second: `FOLDER/FAULT/SECONDS.txt`.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dsp::SampleBits;
use dsp::unpack::pack;
use katcp::reading::unix_now;
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};
use spead::DigitiserRepr;
use spead::digitiser::PREAMBLE_LEN;

use super::cable::{Cable, TEST};
use super::chain::{Karoo, sensor};
use super::rig::{CHUNK, ENGINE_OPTIONS, KATCP, METRICS, OUTPUT, SOURCE, get};

/// So that a busy machine loses nothing.
pub const SPARE: [&str; 1] = ["--recv-spare-chunks=64"];

/// Slow enough that a busy machine loses none.
pub const RATE: f64 = 2e5;
const HEAP: u64 = 4096;
/// What was not sent for so many samples is sent late: tests, and the machine, take their time. An
/// engine misses input for longer before it says that nothing comes.
const PAUSE: u64 = (2.0 * RATE) as u64;
pub const POLS: [u64; 2] = [0, 1];

/// An engine, and a digitiser that never skips a heap by itself.
pub struct Telescope {
    recorder: Option<Recorder>,
    pub engine: Karoo,
    clock: PathBuf,
    slow: PathBuf,
    _folder: tempfile::TempDir,
    /// Last, so that the engine has ended before its namespace goes.
    pub digitiser: Digitiser,
}

/// A digitiser, and what is wrong with it.
pub struct Digitiser {
    socket: UdpSocket,
    sync_time: f64,
    next: u64,
    /// Whether it has been silent, or its time has jumped: then it does not make up for what it has
    /// not sent.
    silent: bool,
    /// Polarisations that it sends.
    pub pols: &'static [u64],
    /// Bits of a sample.
    pub bits: u32,
    /// Its samples are as much, or as much less than 0: noise, as good as white.
    pub amplitude: i32,
    /// Samples of a heap that it flags as at full scale.
    pub saturated: u16,
    /// Whether each heap comes twice.
    pub twice: bool,
    /// One heap in so many is lost on its way.
    pub loses: Option<u64>,
    /// One heap in so many comes as late as so many others.
    pub swaps: Option<(u64, usize)>,
    sent: u64,
    held: Vec<(usize, Vec<u8>, SocketAddrV4)>,
    pub cable: Cable,
}

impl Telescope {
    /// An engine whose `--sync-time` is so many seconds later than the digitiser's; `None` without
    /// namespaces.
    pub fn start(
        fault: &str,
        later: f64,
        options: &[&str],
        environment: &[(&str, &str)],
    ) -> Option<Self> {
        let cable = Cable::new(fault)?;
        let folder = tempfile::tempdir().unwrap();
        let clock = folder.path().join("synchronised");
        fs::write(&clock, "").unwrap();
        let (slow, library) = (folder.path().join("slow"), host_library(folder.path()));
        let mut variables = vec![
            ("LD_PRELOAD", library.to_str().unwrap()),
            ("KAROO_TEST_CLOCK", clock.to_str().unwrap()),
            ("KAROO_TEST_SLOW", slow.to_str().unwrap()),
        ];
        variables.extend(environment);
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
        let metrics = format!("--prometheus-port={METRICS}");
        // What a busy machine holds up for seconds is not lost, and goes out at once then: at the
        // pace of the input, what is held up next would come on top of it.
        let more = [
            &rate[..],
            &metrics,
            "--recv-spare-chunks=64",
            "--send-rate-factor=0",
        ];
        let args = [&own[..], &outputs, &ENGINE_OPTIONS, &more, options].concat();
        let engine = Karoo::start_with(&cable.engine, &args, &variables).up();
        Some(Self {
            recorder: Recorder::start(fault, &cable.engine),
            engine,
            clock,
            slow,
            _folder: folder,
            digitiser: Digitiser {
                socket,
                sync_time,
                next: 0,
                silent: true,
                pols: &POLS,
                bits: 10,
                // -11.2 dBFS.
                amplitude: 100,
                saturated: 0,
                twice: false,
                loses: None,
                swaps: None,
                sent: 0,
                held: Vec::new(),
                cable,
            },
        })
    }

    /// Sends heaps as their time comes, until something has happened.
    pub fn send_until(&mut self, happened: impl Fn(&str) -> bool) {
        let digitiser = &mut self.digitiser;
        digitiser.begin();
        self.engine.wait(|engine| {
            digitiser.send_due();
            happened(&engine.log())
        });
    }

    /// Sends heaps for so many seconds.
    pub fn send_for(&mut self, seconds: f64) {
        self.digitiser.begin();
        let end = self.digitiser.next + (seconds * RATE) as u64;
        let digitiser = &mut self.digitiser;
        self.engine.wait(|_| {
            digitiser.send_due();
            digitiser.next >= end
        });
    }

    /// Sends nothing until something has happened.
    pub fn wait(&mut self, happened: impl Fn(&str) -> bool) {
        self.engine.wait(|engine| happened(&engine.log()));
        self.digitiser.silent = true;
    }

    /// Sends until a cause is said in a line with all of these parts, and metrics, page and sensor
    /// name it.
    pub fn send_until_said(&mut self, cause: &str, parts: &[&str]) {
        let namespace = self.namespace();
        self.send_until(|log| is_said(log, cause, parts));
        self.send_until(|_| is_shown(&namespace, cause));
    }

    /// Sends nothing until then.
    pub fn wait_until_said(&mut self, cause: &str, parts: &[&str]) {
        let namespace = self.namespace();
        self.wait(|log| is_said(log, cause, parts));
        self.wait(|_| is_shown(&namespace, cause));
    }

    /// Sends until it is said that these causes are over, and neither metrics nor page name them.
    pub fn send_until_over(&mut self, causes: &[&str]) {
        let namespace = self.namespace();
        let over = |log: &str, cause: &str| {
            let name = cause.to_owned();
            is_over(log, cause)
                && !verdict(&namespace).contains(&name)
                && !active(&namespace).contains(&name)
        };
        self.send_until(|log| causes.iter().all(|cause| over(log, cause)));
    }

    /// The engine's.
    pub fn namespace(&self) -> String {
        self.digitiser.cable.engine.clone()
    }

    /// Whether somebody keeps the clock of the engine's host right.
    pub fn synchronise(&self, is_synchronised: bool) {
        match is_synchronised {
            true => fs::write(&self.clock, "").unwrap(),
            false => fs::remove_file(&self.clock).unwrap(),
        }
    }

    /// Makes each packet take rx0 so many milliseconds more; 0: none.
    pub fn slow_down(&self, milliseconds: u32) {
        // At once: rx0 may be reading.
        let next = self.slow.with_extension("next");
        fs::write(&next, milliseconds.to_string()).unwrap();
        fs::rename(&next, &self.slow).unwrap();
    }

    /// Ends the engine, which was not to fail. Returns its log.
    pub fn end(mut self) -> String {
        if self.recorder.is_some() {
            // The ends of alerts are to be seen as well.
            self.send_for(3.0);
        }
        self.recorder = None;
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

    /// UNIX time of its first sample.
    pub fn sync_time(&self) -> f64 {
        self.sync_time
    }

    /// From now on its time is so many seconds later.
    pub fn jump(&mut self, seconds: f64) {
        self.sync_time -= seconds;
        self.silent = true;
    }

    /// Goes on if it has only paused or was held up, else begins with the next chunk.
    fn begin(&mut self) {
        let now = self.now();
        if std::mem::take(&mut self.silent) && now > self.next + PAUSE {
            self.next = now.next_multiple_of(CHUNK);
        }
    }

    /// Sends the heaps whose last sample has been taken.
    fn send_due(&mut self) {
        while self.next + HEAP <= self.now() {
            for &pol in self.pols {
                self.send(pol);
            }
            self.next += HEAP;
        }
        thread::sleep(Duration::from_millis(2));
    }

    fn send(&mut self, pol: u64) {
        let samples = (0..HEAP).map(|t| self.amplitude * sign(self.next + t));
        let payload = pack(samples, SampleBits::new(self.bits).unwrap());
        let repr = DigitiserRepr {
            heap_count: self.next / HEAP,
            timestamp: self.next,
            digitiser_id: pol,
            saturated: self.saturated,
            payload_length: payload.len(),
        };
        let mut packet = vec![0; PREAMBLE_LEN];
        repr.emit(packet.first_chunk_mut().unwrap());
        packet.extend(payload);
        let group = Ipv4Addr::new(239, 102, pol as u8, 64);
        let to = SocketAddrV4::new(group, 7148);
        self.sent += 1;
        let is_one_in = |of: u64| self.sent.is_multiple_of(of);
        if self.loses.is_some_and(is_one_in) {
            return;
        }
        match self.swaps {
            Some((of, behind)) if is_one_in(of) => self.held.push((behind, packet, to)),
            _ => self.emit(&packet, to),
        }
        for held in &mut self.held {
            held.0 = held.0.saturating_sub(1);
        }
        let due = self.held.extract_if(.., |held| held.0 == 0);
        for (_, packet, to) in due.collect::<Vec<_>>() {
            self.emit(&packet, to);
        }
    }

    fn emit(&self, packet: &[u8], to: SocketAddrV4) {
        // Where a link is down there is no way.
        for _ in 0..1 + usize::from(self.twice) {
            let _ = self.socket.send_to(packet, to);
        }
    }
}

/// Which side of 0 a sample is on: a hash of its number (SplitMix64).
fn sign(t: u64) -> i32 {
    let mut hash = t.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    if (hash ^ (hash >> 31)) & 1 == 0 {
        1
    } else {
        -1
    }
}

/// Whether a log has a warning of a cause with all of these parts.
fn is_said(log: &str, cause: &str, parts: &[&str]) -> bool {
    let field = format!("cause=\"{cause}\"");
    let parts = [&["WARN", &field[..]], parts].concat();
    let has = |line: &str| parts.iter().all(|part| line.contains(part));
    log.lines().any(has)
}

/// Whether the last word on a cause is that it is over.
fn is_over(log: &str, cause: &str) -> bool {
    let field = format!("cause=\"{cause}\"");
    let last = log.lines().rev().find(|line| line.contains(&field));
    last.is_some_and(|line| line.contains(&format!("{cause} is over")))
}

/// Whether page, metrics and sensor name a cause.
fn is_shown(namespace: &str, cause: &str) -> bool {
    let name = cause.to_owned();
    verdict(namespace).contains(&name)
        && active(namespace).contains(&name)
        && reason(namespace).contains(cause)
}

/// Causes that the page's verdict has.
pub fn verdict(namespace: &str) -> Vec<String> {
    let text = get(namespace, METRICS, "/live.json");
    let page: Value = serde_json::from_str(&text).unwrap();
    let mut panels = page["panels"].as_array().unwrap().iter();
    let verdict = panels.find(|panel| panel["kind"] == "verdict").unwrap();
    let causes = verdict["causes"].as_array().unwrap().iter();
    let causes: Vec<_> = causes
        .map(|cause| cause["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(verdict["state"] == "well", causes.is_empty(), "{verdict}");
    causes
}

/// Causes that are at work by the metrics.
pub fn active(namespace: &str) -> Vec<String> {
    let text = get(namespace, METRICS, "/metrics");
    let lines = text.lines();
    let of_causes = lines.filter_map(|line| line.strip_prefix("karoo_loss_active{cause=\""));
    let at_work = of_causes.filter_map(|line| line.strip_suffix("\"} 1"));
    at_work.map(str::to_owned).collect()
}

/// Why the device is degraded, by its sensor.
pub fn reason(namespace: &str) -> String {
    sensor(namespace, KATCP, "karoo.device-status-reason").replace("\\_", " ")
}

/// What stands in for the kernel's word on its clock, and makes rx0 slow.
fn host_library(folder: &Path) -> PathBuf {
    let library = folder.join("host.so");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/network");
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .args(["clock.c", "slow.c"].map(|source| sources.join(source)))
        .arg("-ldl")
        .status();
    assert!(status.unwrap().success());
    library
}

/// Keeps what there is to scrape each second.
struct Recorder {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Recorder {
    fn start(fault: &str, namespace: &str) -> Option<Self> {
        let folder = Path::new(&std::env::var_os("KAROO_TEST_RECORD")?).join(fault);
        fs::create_dir_all(&folder).unwrap();
        let (ends, namespace) = (Arc::<AtomicBool>::default(), namespace.to_owned());
        let ended = ends.clone();
        let thread = thread::spawn(move || {
            let begun = Instant::now();
            for second in 0.. {
                let due = begun + Duration::from_secs(second);
                while Instant::now() < due && !ended.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(10));
                }
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                let text = get(&namespace, METRICS, "/metrics");
                fs::write(folder.join(format!("{second:03}.txt")), text).unwrap();
            }
        });
        Some(Self {
            ends,
            thread: Some(thread),
        })
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        // What it could not scrape any more is no failure of the test.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
