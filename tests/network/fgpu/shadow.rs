//! `karoo shadow` beside `karoo fgpu`: both hear `karoo dsim`, and the shadow hears the engine.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::cable::Cable;
use super::chain::{self, Karoo, request};
use super::rig::{ENGINE_OPTIONS, KATCP, SOURCE};
use crate::support::documents::check;

const OUTPUT: &str = "name=w,channels=64,dst=239.10.10.0+3:7148,jones_per_batch=4096,taps=4";
const HZ: f64 = 1e6;
const RATE: &str = "--adc-sample-rate=1e6";
/// Noise of some ten counts behind the gain.
const SIGNALS: &str = "--signals=wgn(0.1, 1); wgn(0.1, 2);";
const GAIN: &str = "--gain=0.5";
/// Paced, an engine that had no CPU for a while catches up by a tenth of its rate.
const UNPACED: &str = "--send-rate-factor=0";
/// Samples of a short window: of 0.2 s, in whole batches.
const WINDOW: u64 = 25 * 8192;
const CHANNELS: usize = 64;

/// An engine and a shadow in one namespace, a digitiser in the other. The engine's output comes
/// back by a cable whose ends are in the same namespace.
struct Pair {
    cable: Cable,
    _digitiser: Karoo,
    _engine: Karoo,
    shadow: Karoo,
    /// UNIX time of sample 0.
    sync_time: u64,
}

impl Pair {
    /// With more options of the engine and of the shadow; `None` without namespaces.
    fn start(name: &str, both: &[&str], shadow: &[&str]) -> Option<Self> {
        let cable = Cable::new(name)?;
        let namespace = &cable.engine;
        let commands = [
            format!("-n {namespace} link add k2 type veth peer name k3"),
            format!("-n {namespace} link set k2 mtu 9000 up"),
            format!("-n {namespace} link set k3 mtu 9000 up"),
            format!("-n {namespace} address add 10.77.2.1/24 dev k2"),
            format!("-n {namespace} address add 10.77.2.2/24 dev k3"),
        ];
        for command in commands {
            let done = Command::new("ip").args(command.split(' ')).status();
            assert!(done.unwrap().success(), "{command}");
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let sync_time = now.as_secs() - 100;
        let sync = format!("--sync-time={sync_time}");
        let own = ["--recv-interface=k0", "--recv-spare-chunks=64", UNPACED];
        // Behind those of all engines, the rate and the gain are these.
        let more = ["--wideband", OUTPUT, &sync, RATE, GAIN];
        let line = [&own[..], &ENGINE_OPTIONS, &more, both, &[SOURCE]].concat();
        let engine = [&["fgpu", "--send-interface=k2"][..], &line].concat();
        let engine = Karoo::start_with(namespace, &engine, &[]).up();
        let address = format!("127.0.0.1:{KATCP}");
        let first = ["shadow", &address, "--send-interface=k3", "--json"];
        let line = [&first[..], &["--report-interval=0.5"], &line, shadow].concat();
        let shadow = Karoo::start_with(namespace, &line, &[]).up();
        let katcp = format!("--katcp-port={}", KATCP + 1);
        let digitiser = [
            "dsim",
            "--interface=k0",
            RATE,
            &sync,
            "--period=1048576",
            "--dither-seed=1",
            &katcp,
            SIGNALS,
            "239.102.0.64+7:7148",
            "239.102.1.64+7:7148",
        ];
        let digitiser = Karoo::start_with(&cable.test, &digitiser, &[]).up();
        let mut pair = Self {
            cable,
            _digitiser: digitiser,
            _engine: engine,
            shadow,
            sync_time,
        };
        pair.judge(3);
        Some(pair)
    }

    /// The engine's reply to a request.
    fn ask(&self, line: &str) -> String {
        let reply = request(&self.cable.engine, KATCP, line);
        assert!(reply.contains(" ok"), "{line}: {reply}");
        reply
    }

    /// A sample that the engine names in a sensor.
    fn sample_of(&self, sensor: &str) -> u64 {
        chain::sensor(&self.cable.engine, KATCP, sensor)
            .parse()
            .unwrap()
    }

    /// A gain of each channel of an input, of which one is louder.
    fn set_gains(&self, channel: usize, factor: f64) {
        let gain = |k: usize| 0.5 * if k == channel { factor } else { 1.0 };
        let gains: Vec<_> = (0..CHANNELS).map(|k| gain(k).to_string()).collect();
        self.ask(&format!("?gain w 0 {}", gains.join(" ")));
    }

    /// A model of input 1 from two seconds from now on. Returns its first sample.
    fn set_delays(&self, model: &str) -> u64 {
        let start = self.now() + 2 * HZ as u64;
        let unix = self.sync_time as f64 + start as f64 / HZ;
        self.ask(&format!("?delays w {unix} 0,0:0,0 {model}"));
        start
    }

    /// Waits until so many more windows were judged.
    fn judge(&mut self, windows: u64) {
        let until = judged(&self.shadow) + windows;
        self.shadow.wait(|shadow| judged(shadow) >= until);
    }

    /// Which sample it is now, by this host's clock.
    fn now(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        ((now.as_secs_f64() - self.sync_time as f64) * HZ) as u64
    }

    /// Waits until it says so much.
    fn says(&mut self, text: &str) {
        self.shadow.wait(|shadow| shadow.log().contains(text));
    }

    /// Ends the shadow, which ends with this code. Returns its report.
    fn end(&mut self, code: i32) -> Value {
        self.shadow.interrupt();
        let (status, report) = self.shadow.ended();
        let log = self.shadow.log();
        assert_eq!(status.code(), Some(code), "{log}");
        check("shadow-report", &report);
        let report: Value = serde_json::from_str(&report).unwrap();
        let stream = &report["streams"][0];
        assert!(stream["heaps"].as_u64().unwrap() > 100, "{report}\n{log}");
        report
    }
}

/// How many windows a shadow has judged so far.
fn judged(shadow: &Karoo) -> u64 {
    let log = shadow.log();
    let counts = log.split(" judged=").skip(1);
    let count = |rest: &str| rest.split(' ').next()?.parse::<u64>().ok();
    counts.filter_map(count).sum()
}

/// Dither too, for the engine is one of Karoo's.
#[test]
fn gains_and_delays_are_followed_without_a_word() {
    let Some(mut pair) = Pair::start("followed", &["--dither-seed=77"], &["--dither-seed=1"])
    else {
        return;
    };
    pair.set_gains(11, 1.5);
    pair.set_delays("3.3e-6,1e-9:0.5,0.1");
    pair.says(" unequal=0 ");
    pair.judge(20);
    pair.ask("?gain-all w default");
    pair.judge(10);
    let report = pair.end(0);
    assert_eq!(
        report["differences"].as_array().unwrap().len(),
        0,
        "{report}"
    );
    assert_eq!(report["gain_changes"], 2, "{report}");
    assert!(report["delay_changes"].as_u64() >= Some(1), "{report}");
    let stream = &report["streams"][0];
    assert!(stream["windows_excused"].as_u64() > Some(0), "{report}");
    assert_eq!(stream["windows_unjudged"], 0, "{report}");
}

/// Other dither, as that of an engine that is not Karoo's.
#[test]
fn a_gain_of_one_percent_that_is_not_followed_is_told() {
    let Some(mut pair) = Pair::start("hidden", &[], &["--no-follow"]) else {
        return;
    };
    let received = pair.sample_of("input0.rx.timestamp");
    pair.set_gains(11, 1.01);
    let steady = pair.sample_of("steady-state-timestamp");
    pair.says("differs: w input 0 channel 11: from ");
    // Over again.
    pair.ask("?gain-all w default");
    pair.says("differs no longer: w input 0 channel 11: ");
    let report = pair.end(1);
    let differences = report["differences"].as_array().unwrap();
    assert_eq!(differences.len(), 1, "{report}");
    let found = &differences[0];
    assert_eq!(
        (found["pol"].as_u64(), &found["guess"]),
        (Some(0), &"gain".into())
    );
    assert_eq!(
        found["channels"][0],
        serde_json::json!({ "first": 11, "last": 11 })
    );
    // Said of the window in which it began, or of the next. By the engine's samples, for on a busy
    // host these are late; some are between receiver and sender.
    let from = found["from"]["timestamp"].as_u64().unwrap();
    assert!(
        (received - 4 * WINDOW..steady + 2 * WINDOW).contains(&from),
        "{received} {steady} {report}"
    );
    let ratio = found["ratio"].as_f64().unwrap();
    assert!((1.002..1.02).contains(&ratio), "{found}");
    assert!(found["until"]["timestamp"].as_u64() > found["from"]["timestamp"].as_u64());
}

/// As much as a picosecond is of 1712 MHz, in as many samples.
#[test]
fn a_delay_that_grows_by_a_picosecond_in_a_million_samples_is_told() {
    let Some(mut pair) = Pair::start("drifts", &[], &["--no-follow"]) else {
        return;
    };
    let samples = 1712e6 * 1e-12;
    let start = pair.set_delays(&format!("0,{:e}:0,0", samples / f64::from(1 << 20)));
    pair.says("differs: w input 1 ");
    let report = pair.end(1);
    let found = &report["differences"][0];
    assert_eq!(
        (found["pol"].as_u64(), &found["guess"]),
        (Some(1), &"delay".into())
    );
    let from = found["from"]["timestamp"].as_u64().unwrap();
    assert!(from + WINDOW > start, "{found}");
    // Within some seconds, of which each has a million samples.
    assert!(from < start + 5 * (1 << 20), "{found}");
    let delay = found["delay_ps"].as_f64().unwrap() * 1e-12;
    assert!(delay > 0.0 && delay < 6.0 * samples / HZ, "{found}");
}

/// The engine is steered by it, which the shadow follows.
#[test]
fn an_engine_that_runs_is_qualified() {
    let Some(mut pair) = Pair::start("qualified", &[], &[]) else {
        return;
    };
    let karoo = env!("CARGO_BIN_EXE_karoo");
    let namespace = &pair.cable.engine;
    let command = format!("netns exec {namespace} {karoo} qualify --json --live 127.0.0.1:{KATCP}");
    let ran = Command::new("ip")
        .args(command.split(' '))
        .output()
        .unwrap();
    let report = String::from_utf8(ran.stdout).unwrap();
    assert_eq!(
        ran.status.code(),
        Some(0),
        "{report}{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    check("qualification", &report);
    let report: Value = serde_json::from_str(&report).unwrap();
    assert!(report["adc_sample_rate"].is_null(), "{report}");
    let requirements = report["requirements"].as_array().unwrap();
    let names = requirements.iter().map(|of| of["name"].as_str().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["request-time", "delay-sensors"]);
    assert!(
        report["program_version"]
            .as_str()
            .unwrap()
            .contains("karoo"),
        "{report}"
    );
    pair.judge(1);
    let report = pair.end(0);
    // A phase, a delay, two models, and none after each.
    assert!(report["delay_changes"].as_u64() >= Some(4), "{report}");
}
