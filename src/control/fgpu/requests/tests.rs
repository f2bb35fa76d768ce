//! Requests to an engine of which the test takes what was asked for.

mod applied;
mod delays;
mod gains;
mod levels;

use ground::Timestamp;
use katcp::sensor::Sensors;
use katcp::{Device, MessageKind};

use super::*;
use crate::config::tests::engine;
use crate::engine::steer::{Change, RequestQueues};

/// Of the engines here.
const CLOCK: SampleClock = SampleClock {
    adc_sample_rate: 1712e6,
    sync_time: 1_632_561_921.0,
};
const WIDEBAND: &str = "name=wideband,channels=64,dst=239.10.1.0,jones_per_batch=2048";

struct Bench {
    fgpu: super::super::Fgpu,
    sensors: Sensors,
    steered: RequestQueues,
}

impl Bench {
    fn new() -> Self {
        let config = engine(WIDEBAND, |config| {
            config.gain = 0.125;
            config.clock = CLOCK;
            config.statistics_period = 1.0;
        });
        let (steering, steered) = ControlHandle::new(&config, 4);
        let sensors = Sensors::default();
        let fgpu = super::super::Fgpu::new(&config, steering, &sensors);
        Self {
            fgpu,
            sensors,
            steered,
        }
    }

    /// The reply's arguments.
    fn ask(&self, line: &str) -> Vec<String> {
        let request = Message::parse(line.as_bytes()).expect(line).expect(line);
        let mut response = Response::to(&request);
        let outcome = self.fgpu.handle(&request, &mut response);
        let lines = response.finish(outcome);
        let reply = Message::parse(lines.strip_suffix(b"\n").expect("a line"));
        let reply = reply.expect("a reply").expect("a reply");
        assert_eq!(reply.kind(), MessageKind::Reply);
        let texts = reply
            .arguments()
            .map(|a| String::from_utf8(a.into_owned()).expect("UTF-8"));
        texts.collect()
    }

    fn fails(&self, line: &str, with: &str) {
        let reply = self.ask(line);
        assert_eq!(reply[0], "fail", "{line}");
        assert!(reply[1].contains(with), "{line}: {}", reply[1]);
        assert!(
            reply[1].len() < 300 && !reply[1].contains('\n'),
            "{}",
            reply[1]
        );
        assert_eq!(self.steered.outputs[0].take(), None, "{line}");
    }

    fn sensor(&self, name: &str) -> String {
        let mut values = Vec::new();
        self.sensors.visit(
            |other| other == name,
            |_, reading| values.push(reading.value.encode().into_owned()),
        );
        values.pop().expect("a sensor")
    }
}

/// Who asks for more than an engine has taken waits for it.
#[tokio::test]
async fn a_full_queue_is_waited_for() {
    let bench = Bench::new();
    let text = b"?gain-all wideband 2";
    let request = Message::parse(text).unwrap().unwrap();
    for _ in 0..4 {
        assert!(bench.fgpu.room(&request).is_none());
        assert_eq!(bench.ask("?gain-all wideband 2")[0], "ok");
    }
    let query = Message::parse(b"?gain wideband 0").unwrap().unwrap();
    assert!(bench.fgpu.room(&query).is_none());
    let room = bench.fgpu.room(&request).expect("a full queue");
    let engine = async {
        tokio::task::yield_now().await;
        bench.steered.outputs[0].take()
    };
    let ((), taken) = tokio::join!(room, engine);
    assert!(taken.is_some() && bench.fgpu.room(&request).is_none());
    assert_eq!(bench.ask("?gain-all wideband 2")[0], "ok");

    // One that takes none is given up.
    bench.fgpu.room(&request).expect("a full queue").await;
    let reply = bench.ask("?gain-all wideband 2");
    assert!(reply[0] == "fail" && reply[1].contains("4 requests waiting"));
}

#[test]
fn tests_have_a_pattern_and_an_end() {
    let bench = Bench::new();
    for (arguments, expected) in [
        ("ramp", Some((TestPattern::Ramp, 60.0))),
        ("constant 0.5", Some((TestPattern::Constant, 0.5))),
        ("feng 3600", Some((TestPattern::Feng, 3600.0))),
        ("off", None),
    ] {
        assert_eq!(
            bench.ask(&format!("?karoo-test wideband {arguments}")),
            ["ok"]
        );
        let request = bench.steered.outputs[0].take().expect("a request");
        let samples = |seconds: f64| (seconds * CLOCK.adc_sample_rate) as u64;
        let expected = expected.map(|(pattern, seconds)| TestRequest {
            pattern,
            samples: samples(seconds),
        });
        assert_eq!(request.change, Change::Test(expected), "{arguments}");
    }
    for (arguments, with) in [
        ("", "stream is missing"),
        ("wideband", "pattern is missing"),
        (
            "wideband noise",
            "'noise' is not ramp, constant, feng or off",
        ),
        ("wideband ramp 0", "more than 0 and at most 3600"),
        ("wideband ramp 3601", "more than 0 and at most 3600"),
        ("wideband ramp nan", "seconds"),
        ("wideband ramp 1 1", "1 argument too many"),
    ] {
        bench.fails(&format!("?karoo-test {arguments}"), with);
    }
}

#[test]
fn a_stuck_engine_is_told_of() {
    let bench = Bench::new();
    for _ in 0..4 {
        assert_eq!(bench.ask("?gain wideband 0 1"), ["ok"]);
    }
    let reply = bench.ask("?gain wideband 0 2");
    assert_eq!(reply[0], "fail");
    assert!(reply[1].contains("4 requests waiting"), "{}", reply[1]);
    assert_eq!(bench.ask("?gain wideband 0"), ["ok", "1+0j"]);
}

#[test]
fn other_requests_are_unknown() {
    let bench = Bench::new();
    bench.fails("?gains wideband", "unknown request gains");
}
