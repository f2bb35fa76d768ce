//! `karoo dsim`, `karoo fgpu` and `karoo sink`, as docs/simulators.md has them: three processes and
//! two cables.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::cable::{Cable, User};
use super::rig::{ENGINE_OPTIONS, KATCP, METRICS, OUTPUT, SOURCE, TOO_LONG, get, scrape};
use crate::support::documents::check;

const RATE: &str = "--adc-sample-rate=1e6";
const SIGNALS: &str = "--signals=cw(0.3, 1.8e5) + wgn(0.05, 1); cw(0.2, 3.1e5) + wgn(0.05, 2);";
/// Samples after which the signals repeat.
const PERIOD: &str = "--period=65536";

/// Where the sink tells of itself.
const SINK_METRICS: u16 = 9101;

/// Another output, of which the sink knows the destination alone, and so checks no values.
const LEARNT: [&str; 2] = [
    "--wideband=name=learnt,channels=64,dst=239.10.20.0+1:7148,jones_per_batch=4096,taps=4",
    "--dst=239.10.20.0+1:7148",
];

/// What the sink compares with the signals.
const CHECK: [&str; 7] = [
    "--wideband",
    OUTPUT,
    "--until-stop",
    RATE,
    SIGNALS,
    PERIOD,
    "--gain=0.05",
];

/// A command of Karoo's in a namespace; killed when dropped.
pub struct Karoo {
    child: Child,
    log: tempfile::NamedTempFile,
    begun: Instant,
}

impl Karoo {
    /// With these variables in its environment.
    pub fn start_with(namespace: &str, args: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::start_as(User::Root, namespace, args, environment)
    }

    fn start_as(user: User, namespace: &str, args: &[&str], environment: &[(&str, &str)]) -> Self {
        let log = tempfile::NamedTempFile::new().unwrap();
        let child = user
            .within(namespace)
            .arg(env!("CARGO_BIN_EXE_karoo"))
            .args(args)
            .arg("--log=stderr")
            .env_remove("RUST_LOG")
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .stderr(log.reopen().unwrap())
            .spawn()
            .unwrap();
        Self {
            child,
            log,
            begun: Instant::now(),
        }
    }

    pub fn log(&self) -> String {
        let mut log = String::new();
        File::open(self.log.path())
            .and_then(|mut file| file.read_to_string(&mut log))
            .unwrap();
        log
    }

    pub fn wait(&mut self, mut happened: impl FnMut(&mut Self) -> bool) {
        while !happened(self) {
            assert!(self.begun.elapsed() < TOO_LONG, "{}", self.log());
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until it says that it is up.
    pub fn up(mut self) -> Self {
        self.wait(|karoo| {
            assert_eq!(karoo.child.try_wait().unwrap(), None, "{}", karoo.log());
            karoo.log().contains("INFO up")
        });
        self
    }

    /// Number of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn interrupt(&self) {
        let id = self.id().to_string();
        let status = Command::new("kill").args(["-s", "INT", &id]).status();
        assert!(status.unwrap().success());
    }

    /// What it printed, once it has ended.
    pub fn ended(&mut self) -> (ExitStatus, String) {
        let mut status = None;
        self.wait(|karoo| {
            status = karoo.child.try_wait().unwrap();
            status.is_some()
        });
        let mut text = String::new();
        let stdout = self.child.stdout.as_mut().unwrap();
        stdout.read_to_string(&mut text).unwrap();
        (status.unwrap(), text)
    }
}

impl Drop for Karoo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Multicast groups that the system has joined on an interface.
fn groups(namespace: &str, interface: &str) -> Vec<String> {
    let output = Command::new("ip")
        .args(["-n", namespace, "maddr", "show", "dev", interface])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let groups = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("inet "));
    let groups = groups.map(|group| group.trim().to_owned());
    groups.filter(|group| group.starts_with("239.")).collect()
}

/// The reply to one request of KATCP.
pub fn request(namespace: &str, port: u16, line: &str) -> String {
    Cable::within(namespace, || {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.set_read_timeout(Some(TOO_LONG)).unwrap();
        writeln!(stream, "{line}").unwrap();
        let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
        lines.find(|line| line.starts_with('!')).unwrap()
    })
}

/// A sensor's value, as it is written.
pub fn sensor(namespace: &str, port: u16, name: &str) -> String {
    Cable::within(namespace, || {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.set_read_timeout(Some(TOO_LONG)).unwrap();
        writeln!(stream, "?sensor-value {name}").unwrap();
        let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
        let line = lines.find(|line| line.starts_with("#sensor-value"));
        line.unwrap().rsplit(' ').next().unwrap().to_owned()
    })
}

struct Chain {
    user: User,
    cable: Cable,
    sync_time: String,
    engine: Karoo,
    sink: Karoo,
}

impl Chain {
    /// An engine, with more options if need be, and a sink behind it; `None` without namespaces.
    fn start(name: &str, engine: &[&str], sink: &[&str]) -> Option<Self> {
        Self::start_as(User::Root, name, engine, sink)
    }

    fn start_as(user: User, name: &str, engine: &[&str], sink: &[&str]) -> Option<Self> {
        let cable = Cable::new(name)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let sync_time = format!("--sync-time={}", now.as_secs() - 100);
        let metrics = format!("--prometheus-port={METRICS}");
        let own = [
            "fgpu",
            &metrics,
            "--recv-interface=k0",
            "--send-interface=k1",
            "--recv-spare-chunks=64",
            // Else an engine that had no CPU for a while catches up by a tenth of its rate.
            "--send-rate-factor=0",
            "--wideband",
            OUTPUT,
            SOURCE,
            &sync_time,
        ];
        // Behind those of all engines, the rate is the digitiser's.
        let engine = [&own[..], &ENGINE_OPTIONS, &[RATE], engine].concat();
        let port = format!("--prometheus-port={SINK_METRICS}");
        let sink_args = ["sink", "--interface=k1", "--array-size=8", "--json", &port];
        let start = |namespace, args: &[&str]| Karoo::start_as(user, namespace, args, &[]).up();
        let sink = start(&cable.test, &[&sink_args, sink].concat());
        let engine = start(&cable.engine, &engine);
        Some(Self {
            user,
            cable,
            sync_time,
            engine,
            sink,
        })
    }

    /// Waits until a counter of the sink's has come so far.
    fn wait_for(&mut self, counter: &str, count: u64) {
        let namespace = self.cable.test.clone();
        self.sink.wait(|_| {
            let text = scrape(&namespace, SINK_METRICS);
            let samples = text.lines().filter_map(|line| {
                let (name, value) = line.rsplit_once(' ')?;
                name.starts_with(counter)
                    .then(|| value.parse::<f64>().unwrap())
            });
            samples.sum::<f64>() >= count as f64
        });
    }

    fn digitiser(&self, options: &[&str]) -> Karoo {
        let katcp = format!("--katcp-port={}", KATCP + 1);
        let args = [
            "dsim",
            "--interface=k0",
            RATE,
            &self.sync_time,
            PERIOD,
            "--dither-seed=1",
            &katcp,
            SIGNALS,
            "239.102.0.64+7:7148",
            "239.102.1.64+7:7148",
        ];
        let args = [&args, options].concat();
        Karoo::start_as(self.user, &self.cable.test, &args, &[]).up()
    }

    /// Ends the engine, and with it the sink; returns the stream of its report.
    fn end(&mut self) -> (ExitStatus, Value) {
        self.engine.interrupt();
        let (status, _) = self.engine.ended();
        assert_eq!(status.code(), Some(0), "{}", self.engine.log());
        let (status, report) = self.sink.ended();
        let log = self.sink.log();
        assert!(report.starts_with('{'), "{log}");
        check("sink-live-report", &report);
        let report: Value = serde_json::from_str(&report).unwrap();
        (status, report["streams"][0].clone())
    }
}

#[test]
fn three_commands_make_a_correlators_front() {
    make_a_correlators_front(User::Root, "chain", "net_af_packet_k0");
}

/// The same for anybody, through UDP sockets.
#[test]
fn three_commands_need_no_rights() {
    make_a_correlators_front(User::Nobody, "anybody", "udp_k0");
}

fn make_a_correlators_front(user: User, name: &str, port: &str) {
    let (learnt, destination) = (&LEARNT[..1], &LEARNT[1..]);
    let sink = [&CHECK, destination].concat();
    let Some(mut chain) = Chain::start_as(user, name, learnt, &sink) else {
        return;
    };
    let (engine, test) = (chain.cable.engine.clone(), chain.cable.test.clone());
    assert_eq!(groups(&engine, "k0").len(), 16);
    assert_eq!(groups(&test, "k1").len(), 4 + 2);

    let mut digitiser = chain.digitiser(&[]);
    chain.wait_for("karoo_sink_heaps_total", 4 * 400);
    for (namespace, port) in [(&engine, METRICS), (&test, SINK_METRICS)] {
        check("live", &get(namespace, port, "/live.json"));
    }
    let metrics = scrape(&engine, METRICS);
    let up = format!("karoo_port_link_up{{port=\"{port}\"}} 1");
    assert!(metrics.lines().any(|line| line == up), "{metrics}");
    digitiser.interrupt();
    let (status, _) = digitiser.ended();
    assert_eq!(status.code(), Some(0), "{}", digitiser.log());
    let (status, stream) = chain.end();
    assert_eq!(status.code(), Some(0), "{stream}\n{}", chain.sink.log());

    let count = |name: &str| stream[name].as_u64().unwrap();
    // Some are what a busy machine has cost: a digitiser does not wait.
    let log = chain.engine.log();
    assert!(
        count("batches") > count("batches_not_sent"),
        "{stream}\n{log}"
    );
    assert_eq!(count("stop_heaps"), 4, "{stream}");
    assert!(stream["checked"]["heaps"].as_u64().unwrap() > 3, "{stream}");
    assert_eq!(stream["checked"]["wrong"], 0, "{stream}");
    // Groups are left.
    assert_eq!(groups(&engine, "k0"), Vec::<String>::new());
    assert_eq!(groups(&test, "k1"), Vec::<String>::new());
}

/// Other signals: the digitiser tells from when on, and the sink notices that they are not those
/// asked for.
#[test]
fn signals_are_changed_while_they_are_sent() {
    let Some(mut chain) = Chain::start("change", &[], &CHECK) else {
        return;
    };
    let digitiser = chain.digitiser(&[]);
    let test = chain.cable.test.clone();
    let ask = |line: &str| request(&test, KATCP + 1, line);
    assert_eq!(
        ask("?signals cw(0.1,1e5);"),
        "!signals fail expected\\_2\\_signals,\\_received\\_1"
    );
    let unknown = ask("?signals a;1;");
    assert!(
        unknown.starts_with("!signals fail") && unknown.contains("'a'"),
        "{unknown}"
    );
    let period = ask("?signals 0;0; 3");
    assert!(
        period.starts_with("!signals fail") && period.contains("65536"),
        "{period}"
    );
    let time: f64 = ask("?time")
        .strip_prefix("!time ok ")
        .unwrap()
        .parse()
        .unwrap();
    let reply = ask("?signals cw(0.4,\\_2.5e5);0.1; 8192");
    let from: u64 = reply.strip_prefix("!signals ok ").unwrap().parse().unwrap();
    let sync_time: f64 = chain
        .sync_time
        .strip_prefix("--sync-time=")
        .unwrap()
        .parse()
        .unwrap();
    let elapsed = from as f64 / 1e6 - (time - sync_time);
    assert!(
        (-2.0..TOO_LONG.as_secs_f64()).contains(&elapsed),
        "{elapsed}"
    );
    assert_eq!(ask("?sensor-value period"), "!sensor-value ok 1");
    chain.wait_for("karoo_sink_wrong_values_total", 1);
    digitiser.interrupt();
    let (status, stream) = chain.end();
    assert_eq!(status.code(), Some(1), "{stream}");
    assert!(stream["checked"]["wrong"].as_u64().unwrap() > 0, "{stream}");
    let problems = stream["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 1, "{stream}");
}

/// The shape of a stream is in its descriptors.
#[test]
fn a_sink_learns_the_shape_from_descriptors() {
    let sink = ["--dst=239.10.10.0+3:7148", "--heaps=40"];
    let Some(mut chain) = Chain::start("shape", &[], &sink) else {
        return;
    };
    let digitiser = chain.digitiser(&[]);
    let (status, report) = chain.sink.ended();
    assert_eq!(status.code(), Some(0), "{report}\n{}", chain.sink.log());
    let report: Value = serde_json::from_str(&report).unwrap();
    let stream = &report["streams"][0];
    assert_eq!(
        (&stream["channels"], &stream["feng_id"]),
        (&64.into(), &3.into())
    );
    assert_eq!(stream["descriptor_heaps"], 4);
    assert!(stream["heaps"].as_u64().unwrap() >= 40, "{stream}");
    drop(digitiser);
}
