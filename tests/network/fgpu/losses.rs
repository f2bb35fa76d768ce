//! What an engine says of what goes wrong: each fault is made for real, named by a line, by
//! metrics, by the page's verdict and by a sensor, and so is its end.
//!
//! Lines about one cause are ten seconds apart, so that a fault's end takes a while to be said.
//! Several engines run side by side.

use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use super::rig::{METRICS, SOURCE, get};
use super::service::{Stopped, thread_of};
use super::telescope::{Digitiser, SPARE, Telescope, active, reason, verdict};
use crate::support::left_out;

/// A test that is told its own name.
pub type Named = (&'static str, fn(&str));

/// Whether some test takes much of all CPUs, or needs them: one at a time does.
static BUSY: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    BUSY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs them side by side. All are to end well.
pub fn side_by_side(tests: &[Named]) {
    let _alone = alone();
    thread::scope(|scope| {
        let spawned = tests.iter().map(|&(name, test)| {
            let thread = thread::Builder::new().name(name.to_owned());
            (
                name,
                thread.spawn_scoped(scope, move || test(name)).unwrap(),
            )
        });
        let spawned: Vec<_> = spawned.collect();
        let failed = spawned
            .into_iter()
            .filter_map(|(name, thread)| thread.join().err().map(|_| name));
        let failed: Vec<_> = failed.collect();
        assert!(failed.is_empty(), "{failed:?} failed, see above");
    });
}

/// The first line with all of these.
fn line<'a>(log: &'a str, parts: &[&str]) -> &'a str {
    let has = |line: &&str| parts.iter().all(|part| line.contains(part));
    let line = log.lines().find(has);
    line.unwrap_or_else(|| panic!("no line with {parts:?}:\n{log}"))
}

#[test]
fn faults_of_a_digitiser_are_named_and_so_is_their_end() {
    side_by_side(&[
        ("width", another_width),
        ("silence", no_input_at_first_and_later),
        ("time", another_time_and_a_jump),
        ("polarisation", one_polarisation),
        ("clipping", clipping),
        ("level", a_level_that_falls),
    ]);
}

#[test]
fn faults_of_network_and_host_are_named_and_so_is_their_end() {
    side_by_side(&[
        ("loss", lost_and_swapped_on_the_way),
        ("chunks", no_free_chunk),
        ("lcore", an_lcore_without_cpu),
        ("link", output_without_a_link),
        ("busy", an_rx_lcore_at_its_limit),
        ("port", an_rx_lcore_beyond_its_limit),
    ]);
}

fn another_width(name: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_nonblocking(true).unwrap();
    let environment = [("NOTIFY_SOCKET", path.to_str().unwrap())];
    let Some(mut telescope) = Telescope::start(name, 0.0, &[], &environment) else {
        return;
    };
    telescope.digitiser.bits = 8;
    let mends = "heaps have 4096 bytes where 5120 are expected: `--dig-sample-bits 8`?";
    let amount = "datagrams/s not placed: wrong-heap-length";
    telescope.send_until_said("wrong-heap-length", &[amount, mends]);
    telescope.send_until(|_| {
        let mut message = [0; 4096];
        let lost = "100.0 % lost (wrong-heap-length)";
        let mut told = std::iter::from_fn(|| {
            let bytes = manager.recv(&mut message).ok()?;
            Some(String::from_utf8_lossy(&message[..bytes]).into_owned())
        });
        told.any(|text| text.contains(lost))
    });
    telescope.digitiser.bits = 10;
    telescope.send_until_over(&["wrong-heap-length"]);
    let log = telescope.end();
    let over = [
        "INFO",
        "wrong-heap-length is over",
        "datagrams not placed in",
    ];
    line(&log, &over);
    line(&log, &["input: ", " wrong-heap-length"]);
    line(&log, &["output w: ", " heaps sent, "]);
}

fn no_input_at_first_and_later(name: &str) {
    let Some(mut telescope) = Telescope::start(name, 0.0, &[], &[]) else {
        return;
    };
    telescope.wait_until_said("no-input", &["no heap has come in", "k0", SOURCE]);
    telescope.send_until_over(&["no-input"]);
    telescope.wait_until_said("no-input", &["no heap comes, since", "nothing comes to k0"]);
    telescope.send_until_over(&["no-input"]);
    let log = telescope.end();
    line(&log, &["INFO", "no-input is over: heaps come again, after"]);
    // The gap is said by that alone.
    assert!(!log.contains("missing-heaps"), "{log}");
}

fn another_time_and_a_jump(name: &str) {
    let Some(mut telescope) = Telescope::start(name, -1000.0, &SPARE, &[]) else {
        return;
    };
    let sync_time = telescope.digitiser.sync_time();
    telescope.send_until_said("wrong-time", &["16 min 4", "behind this host's clock"]);
    // It is set right, and is not late any more.
    telescope.digitiser.jump(1000.0);
    let jumped = ["the heaps' time jumped 16 min ", "`--sync-time`"];
    telescope.send_until_said("time-jumped", &jumped);
    telescope.send_until_over(&["wrong-time", "time-jumped"]);
    let log = telescope.end();
    let begins = line(&log, &["WARN", "wrong-time: `--sync-time"]);
    let (_, about) = begins.split_once("should be about ").unwrap();
    let about: f64 = about[..about.find(',').unwrap()].parse().unwrap();
    assert!((about - sync_time).abs() < 10.0, "{begins}");
    // Nothing was sampled in between.
    assert!(!log.contains("missing-heaps"), "{log}");
}

fn one_polarisation(name: &str) {
    let Some(mut telescope) = Telescope::start(name, 0.0, &[], &[]) else {
        return;
    };
    telescope.digitiser.pols = &[0];
    let said = ["no heap of polarisation 1 comes", "the other comes", SOURCE];
    telescope.send_until_said("one-polarisation", &said);
    telescope.digitiser.pols = &[0, 1];
    telescope.send_until_over(&["one-polarisation"]);
    telescope.end();
}

fn clipping(name: &str) {
    let Some(mut telescope) = Telescope::start(name, 0.0, &["--gain=1000"], &[]) else {
        return;
    };
    (telescope.digitiser.amplitude, telescope.digitiser.saturated) = (511, 41);
    telescope.send_until_said(
        "input-clipping",
        &[
            "1.0 % of polarisation 0 and 1.0 % of 1",
            "in front of the digitiser",
        ],
    );
    telescope.send_until_said(
        "output-clipping",
        &["of w, where 1.0 %", "`?karoo-auto-gain`"],
    );
    (telescope.digitiser.amplitude, telescope.digitiser.saturated) = (0, 0);
    telescope.send_until_over(&["input-clipping", "output-clipping"]);
    telescope.end();
}

/// No loss, but what is sent is worth less.
fn a_level_that_falls(name: &str) {
    let Some(mut telescope) = Telescope::start(name, 0.0, &[], &[]) else {
        return;
    };
    let namespace = telescope.namespace();
    let level = || {
        let text = get(&namespace, METRICS, "/metrics");
        let name = "karoo_input_power_dbfs{pol=\"0\"} ";
        let mut of = text.lines().filter_map(|line| line.strip_prefix(name));
        of.next().unwrap().parse::<f64>().unwrap()
    };
    // 100 of 511 counts, to a sine of full scale.
    telescope.send_until(|_| (level() + 11.2).abs() < 0.1);
    telescope.send_for(3.0);
    telescope.digitiser.amplitude = 5;
    telescope.send_until(|_| (level() + 37.2).abs() < 0.1);
    let said = ["polarisation 0 is at -37.2 dBFS", "raise the level"];
    telescope.send_until_said("input-level", &said);
    telescope.send_for(3.0);
    // What a busy machine has cost is over some time, what a level might be taken for is not.
    telescope.send_until(|_| active(&namespace) == ["input-level"]);
    telescope.end();
}

/// Lets the kernel do something to what the digitiser sends; false where it cannot.
fn netem(digitiser: &Digitiser, action: &[&str]) -> bool {
    let qdisc = |words: &[&str]| {
        let output = Command::new("tc")
            .args(["-n", &digitiser.cable.test, "qdisc"])
            .args(words)
            .output();
        output.is_ok_and(|output| output.status.success())
    };
    let _ = qdisc(&["del", "dev", "k0", "root"]);
    action.is_empty() || qdisc(&[&["add", "dev", "k0", "root", "netem"], action].concat())
}

/// Where the kernel has no netem, the digitiser does it itself.
fn lost_and_swapped_on_the_way(name: &str) {
    let Some(mut telescope) = Telescope::start(name, 0.0, &[], &[]) else {
        return;
    };
    if !netem(&telescope.digitiser, &["loss", "1%"]) {
        left_out("the kernel has no netem");
        telescope.digitiser.loses = Some(100);
    }
    telescope.send_until_said("missing-heaps", &["look at the digitiser, at cables"]);
    // An alert waits for three seconds whether something else explains that.
    telescope.send_for(5.0);
    telescope.digitiser.loses = None;
    // By more than the window has.
    if !netem(&telescope.digitiser, &["delay", "800ms", "reorder", "99%"]) {
        telescope.digitiser.swaps = Some((100, 80));
    }
    telescope.send_until_said("too-old", &["behind the newest", "late on their way"]);
    telescope.digitiser.swaps = None;
    netem(&telescope.digitiser, &[]);
    telescope.send_until_over(&["too-old", "missing-heaps"]);
    telescope.end();
}

/// Output that is sent far too slowly: what waits for it has all chunks.
fn no_free_chunk(name: &str) {
    let options = ["--send-rate-factor=1e-3", "--recv-spare-chunks=0"];
    let Some(mut telescope) = Telescope::start(name, 0.0, &options, &[]) else {
        return;
    };
    let slow = "w wait to be sent: `--send-rate-factor`";
    telescope.send_until_said("no-free-chunk", &["not placed", slow]);
    // Only an end of the input ends it.
    telescope.wait(|log| log.contains("no-free-chunk is over"));
}

fn an_lcore_without_cpu(name: &str) {
    let Some(mut telescope) = Telescope::start(name, 0.0, &[], &[]) else {
        return;
    };
    telescope.send_for(3.0);
    let stopped = Stopped::anywhere(telescope.engine.id(), "rx0");
    let said = ["rx0", "has made no turn for", "`--recv-affinity`"];
    telescope.send_until_said("lcore-without-cpu", &said);
    // It is not that nothing comes.
    assert!(
        !telescope.engine.log().contains("no-input"),
        "{}",
        telescope.engine.log()
    );
    drop(stopped);
    telescope.send_until_over(&["lcore-without-cpu"]);
    telescope.end();
}

/// It falls behind slowly: nothing is lost, and what comes late is not of another time.
fn an_rx_lcore_at_its_limit(name: &str) {
    let Some(mut telescope) = Telescope::start(name, 0.0, &[], &[]) else {
        return;
    };
    telescope.send_for(3.0);
    telescope.slow_down(12);
    let said = ["rx0", "works for", "more rx lcores", "`--recv-affinity`"];
    telescope.send_until_said("busy-lcore", &said);
    // An alert waits for three seconds whether packets are lost by that.
    telescope.send_for(5.0);
    telescope.slow_down(0);
    telescope.send_until_over(&["busy-lcore"]);
    let log = telescope.end();
    assert!(!log.contains("wrong-time"), "{log}");
    assert!(!log.contains("missing-heaps"), "{log}");
}

/// Its ring has room for 128 packets.
fn an_rx_lcore_beyond_its_limit(name: &str) {
    let Some(mut telescope) = Telescope::start(name, 0.0, &["--recv-buffer=1M"], &[]) else {
        return;
    };
    telescope.send_for(3.0);
    telescope.slow_down(30);
    let port = "port net_af_packet_k0: nobody took them in time";
    let said = [
        "lost at this host's port: rx-missed",
        port,
        "`--recv-buffer`",
    ];
    telescope.send_until_said("rx-missed", &said);
    telescope.send_for(5.0);
    telescope.slow_down(0);
    telescope.send_until_over(&["rx-missed", "missing-heaps", "busy-lcore"]);
    let log = telescope.end();
    // A busy machine may lose some for want of free chunks as well.
    line(&log, &["missing-heaps", "lost here: see", "rx-missed"]);
    assert!(!log.contains("wrong-time"), "{log}");
}

fn output_without_a_link(name: &str) {
    let Some(mut telescope) = Telescope::start(name, 0.0, &[], &[]) else {
        return;
    };
    let set = |telescope: &Telescope, state: &str| {
        let status = Command::new("ip")
            .args([
                "-n",
                &telescope.digitiser.cable.test,
                "link",
                "set",
                "k1",
                state,
            ])
            .status();
        assert!(status.unwrap().success());
    };
    telescope.send_for(3.0);
    set(&telescope, "down");
    telescope.send_until_said("link-down", &["port net_af_packet_k1 has no link, since"]);
    set(&telescope, "up");
    telescope.send_until_over(&["link-down"]);
    let log = telescope.end();
    line(&log, &["port net_af_packet_k1: its link went down 1 time"]);
}

/// A program that takes the CPU of an lcore that polls. That it is all well without is not held:
/// other programs of a busy machine take as much. No other engine is robbed: this lcore alone
/// gives way to the thief.
#[test]
fn an_lcore_that_is_robbed_of_its_cpu_is_named() {
    let _alone = alone();
    let cpus: Vec<_> = ground::os::allowed_cpus().into_iter().collect();
    let [first, .., last] = cpus[..] else {
        left_out("no second CPU");
        return;
    };
    let options = [
        format!("--recv-affinity={last}"),
        format!("--send-affinity={first}"),
    ];
    let options = options.each_ref().map(|option| &option[..]);
    let Some(mut telescope) = Telescope::start("hog", 0.0, &options, &[]) else {
        return;
    };
    let rx = thread_of(telescope.engine.id(), "rx0").to_string();
    let gives_way = Command::new("renice")
        .args(["-n", "19", "-p", &rx])
        .output();
    assert!(gives_way.unwrap().status.success());
    let _hog = Hog::on(last);
    let title = format!("rx0 on CPU {last} waits for its CPU for ");
    telescope.send_until_said("lcore-without-cpu", &[&title, "`karoo tune check`"]);
}

struct Hog(Child);

impl Hog {
    fn on(cpu: usize) -> Self {
        let mut hog = Command::new("nice");
        let on = ["-n", "10", "taskset", "-c", &cpu.to_string()];
        hog.args(on).args(["sh", "-c", "while :; do :; done"]);
        Self(hog.spawn().unwrap())
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_run_without_faults_says_nothing_and_then_that_nobody_keeps_the_clock() {
    let _alone = alone();
    let Some(mut telescope) = Telescope::start("none", 0.0, &[], &[]) else {
        return;
    };
    telescope.send_for(7.0);
    // Swapped by less than a chunk: nothing is lost by that.
    if !netem(&telescope.digitiser, &["delay", "30ms", "reorder", "99%"]) {
        telescope.digitiser.swaps = Some((100, 2));
    }
    telescope.send_for(5.0);
    netem(&telescope.digitiser, &[]);
    telescope.digitiser.swaps = None;
    let namespace = telescope.namespace();
    assert!(
        !telescope.engine.log().contains("cause="),
        "{}",
        telescope.engine.log()
    );
    assert!(verdict(&namespace).is_empty() && active(&namespace).is_empty());
    let why = reason(&namespace);
    assert!(!why.contains(':'), "{why}");
    telescope.synchronise(false);
    let said = ["this host's clock is not synchronised", "16.0 s", "chrony"];
    telescope.send_until_said("clock-not-synchronised", &said);
    telescope.synchronise(true);
    telescope.send_until_over(&["clock-not-synchronised"]);
    let log = telescope.end();
    line(&log, &["input: ", "heaps placed"]);
    let said: Vec<_> = log.lines().filter(|line| line.contains("cause=")).collect();
    assert_eq!(said.len(), 2, "{log}");
}

/// It is said once, where it begins.
#[test]
fn an_interface_without_a_receive_queue_is_named_at_the_start() {
    let options = ["--recv-interface=k0,k1"];
    let Some(telescope) = Telescope::start("unused", 0.0, &options, &[]) else {
        return;
    };
    let log = telescope.end();
    line(
        &log,
        &[
            "WARN",
            "nothing is received through k1, only through k0",
            "--recv-affinity -1,-1",
        ],
    );
}
