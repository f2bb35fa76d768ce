use std::sync::Arc;

use ground::Timestamp;
use katcp::reading::unix_now;
use katcp::sensor::Sensors;
use katcp::{Device, MessageKind};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::config::tests::engine;
use crate::engine::steer::{Change, RequestQueues};
use crate::engine::{ChannelSums, OutputStatistics};

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

#[test]
fn gains_of_the_start_are_told() {
    let bench = Bench::new();
    assert_eq!(bench.ask("?gain wideband 0"), ["ok", "0.125+0j"]);
    assert_eq!(bench.sensor("wideband.input0.eq"), "[0.125+0j]");
    assert_eq!(bench.sensor("steady-state-timestamp"), "0");
}

#[test]
fn one_gain_is_for_all_channels() {
    let bench = Bench::new();
    bench.steered.outputs[0].publish_end(ground::Timestamp(4096));
    assert_eq!(bench.ask("?gain wideband 0 0.2-3j"), ["ok"]);
    assert_eq!(
        bench.ask("?gain wideband 0"),
        ["ok", "0.20000000298023224-3j"]
    );
    assert_eq!(
        bench.sensor("wideband.input0.eq"),
        "[0.20000000298023224-3j]"
    );
    assert_eq!(bench.sensor("wideband.input1.eq"), "[0.125+0j]");
    assert_eq!(bench.sensor("steady-state-timestamp"), "4096");
    let request = bench.steered.outputs[0].take().expect("a request");
    let gains = Gains::uniform(64, Complex32::new(0.2, -3.0));
    assert_eq!(request.change, Change::Gains([Some(gains), None]));
}

#[test]
fn each_channel_may_have_its_own_gain() {
    let bench = Bench::new();
    let values: Vec<_> = (0..64).map(|k| format!("{}+{}j", 2 * k, 3 * k)).collect();
    let line = format!("?gain wideband 1 {}", values.join(" "));
    assert_eq!(bench.ask(&line), ["ok"]);
    assert_eq!(bench.ask("?gain wideband 1")[1..], values);
    assert_eq!(
        bench.sensor("wideband.input1.eq"),
        format!("[{}]", values.join(", "))
    );
    let line = line.replace("gain wideband 1", "gain-all wideband");
    assert_eq!(bench.ask(&line), ["ok"]);
    assert_eq!(bench.ask("?gain wideband 0")[1..], values);
}

#[test]
fn both_inputs_are_set_and_put_back() {
    let bench = Bench::new();
    assert_eq!(bench.ask("?gain-all wideband (1+2J)"), ["ok"]);
    for input in 0..2 {
        assert_eq!(bench.sensor(&format!("wideband.input{input}.eq")), "[1+2j]");
    }
    assert_eq!(bench.ask("?gain-all wideband default"), ["ok"]);
    for input in 0..2 {
        assert_eq!(
            bench.ask(&format!("?gain wideband {input}")),
            ["ok", "0.125+0j"]
        );
    }
}

#[test]
fn gains_that_cannot_be_are_refused() {
    let bench = Bench::new();
    for (line, with) in [
        ("?gain", "stream is missing"),
        ("?gain wideband", "input is missing"),
        (
            "?gain nosuch 0",
            "no output stream called 'nosuch': there is wideband",
        ),
        ("?gain wideband 2", "input 2 is out of range"),
        ("?gain wideband -1", "input -1 is out of range"),
        ("?gain wideband x", "input: 'x' is not a whole number"),
        (
            "?gain wideband 0 text",
            "gain of channel 0: 'text' is not a complex number",
        ),
        ("?gain wideband 0 nan", "must be finite"),
        ("?gain wideband 0 inf+infj", "must be finite"),
        ("?gain wideband 0 1e39", "must be finite"),
        ("?gain wideband 0 1 2", "2 gains"),
        (r"?gain wideband 0 1\_+\_2j", "is not a complex number"),
        ("?gain-all wideband", "0 gains"),
        ("?gain-all wideband default default", "2 gains"),
        ("?gain-all nosuch 1", "'nosuch'"),
    ] {
        bench.fails(line, with);
    }
    let mut values = vec!["1"; 64];
    values[17] = "1,0";
    bench.fails(
        &format!("?gain wideband 0 {}", values.join(" ")),
        "gain of channel 17: '1,0'",
    );
    assert_eq!(bench.ask("?gain wideband 0"), ["ok", "0.125+0j"]);
    assert_eq!(bench.sensor("steady-state-timestamp"), "0");
}

#[test]
fn delays_are_models() {
    let bench = Bench::new();
    bench.steered.outputs[0].publish_end(ground::Timestamp(512));
    let line =
        "?delays wideband 1632561931.0 3.76e-9,0.12e-9:7.322,1.91 2.67e-9,0.02e-9:5.678,-1.81";
    assert_eq!(bench.ask(line), ["ok"]);
    let request = bench.steered.outputs[0].take().expect("a request");
    let Change::Delays { models, .. } = request.change else {
        panic!("{request:?}");
    };
    assert_eq!(models.map(|m| m.start()), [17_120_000_000; 2]);
    assert!((models[0].delay() - 3.76e-9 * 1712e6).abs() < 1e-12);
    assert_eq!(models[1].rate(), 0.02e-9);
    assert!((models[0].phase() - (7.322 - std::f64::consts::TAU)).abs() < 1e-12);
    assert!((models[1].phase_rate() + 1.81 / 1712e6).abs() < 1e-20);
    assert_eq!(bench.sensor("steady-state-timestamp"), "512");
    // Shown when it is active, not when it is asked for.
    assert_eq!(
        bench.sensor("wideband.input0.delay"),
        "(-1, 0.0, 0.0, 0.0, 0.0)"
    );
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

/// Statistics are there, but no place.
#[tokio::test]
async fn gains_by_level_wait_for_a_place_too() {
    let bench = Bench::new();
    let board = bench.steered.published.statistics();
    board.publish_output(0, statistics(0));
    for _ in 0..4 {
        assert_eq!(bench.ask("?karoo-test wideband off")[0], "ok");
    }
    let text = "?karoo-auto-gain wideband 16";
    let request = Message::parse(text.as_bytes()).unwrap().unwrap();
    let mut room = bench.fgpu.room(&request).expect("a period of statistics");
    tokio::select! {
        biased;
        () = &mut room => panic!("a full queue"),
        () = async {} => {}
    }
    assert!(bench.steered.outputs[0].take().is_some());
    room.await;
    assert_eq!(bench.ask(text)[0], "ok");
}

/// As katgpucbf does: sensors then show what was asked for.
#[test]
fn models_that_begin_between_samples_begin_at_the_nearest_as_they_are() {
    let bench = Bench::new();
    // 2⁻²² s, the finest that UNIX times resolve, are 408.17 samples.
    let line = "?delays wideband 1632561921.0000002384185791015625 1e-6,0.5:1,1e9 0,0:0,0";
    assert_eq!(bench.ask(line), ["ok"]);
    let request = bench.steered.outputs[0].take().expect("a request");
    let Change::Delays { models, .. } = request.change else {
        panic!("{request:?}");
    };
    let model = models[0];
    assert_eq!(
        (model.start(), model.delay(), model.phase()),
        (408, 1712.0, 1.0)
    );
}

/// Lines for replays ask for the very same, to the last bit.
#[test]
fn what_was_applied_can_be_asked_for_again() {
    let bench = Bench::new();
    let mut random = StdRng::seed_from_u64(1);
    let mut number = || {
        let number = random.random_range(-1.0..1.0_f64);
        number * 10f64.powi(random.random_range(-12..4))
    };
    for _ in 0..1000 {
        let start = 1_632_561_921.0 + 1e6 * number().abs();
        let mut model = || {
            let rate = number() / 1e4;
            format!("{},{rate}:{},{}", number() / 20.0, number(), number())
        };
        let delays = format!("?delays wideband {start} {} {}", model(), model());
        let mut gain = || format!("{}{:+}j", number(), number());
        let each: Vec<_> = (0..64).map(|_| gain()).collect();
        let gains = format!("?gain wideband 1 {}", each.join(" "));
        let all = format!("?gain-all wideband {}", gain());
        let test = format!("?karoo-test wideband ramp {}", 1.0 + number().abs());
        let off = "?karoo-test wideband off".to_owned();
        for line in [delays, gains, all, test, off] {
            assert_eq!(bench.ask(&line)[0], "ok", "{line}");
            let change = bench.steered.outputs[0].take().expect("a request").change;
            let applied = Applied {
                output: 0,
                from: Timestamp(1 << 47),
                change,
            };
            let lines = replay_lines("wideband", &applied, CLOCK);
            let [again] = &lines[..] else {
                panic!("{lines:?}");
            };
            let (at, again) = again.split_once(' ').expect("a timestamp");
            assert_eq!(at, "140737488355328");
            assert_eq!(again.split(' ').next(), line.split(' ').next());
            bench.ask(again);
            let asked = bench.steered.outputs[0].take().expect("a request");
            assert_eq!(asked.change, applied.change, "{line}: {again}");
        }
    }
}

#[test]
fn gains_that_were_applied_together_are_asked_for_by_input() {
    let [x, y] = [1.0, 0.5].map(|gain| Some(Gains::uniform(64, Complex32::from(gain))));
    let lines = |gains| {
        let applied = Applied {
            output: 0,
            from: Timestamp(7),
            change: Change::Gains(gains),
        };
        replay_lines("a b", &applied, CLOCK)
    };
    let each = ["7 ?gain a\\_b 0 1+0j", "7 ?gain a\\_b 1 0.5+0j"];
    assert_eq!(lines([x.clone(), y.clone()]), each);
    assert_eq!(lines([None, y]), each[1..]);
    assert_eq!(lines([x.clone(), x]), ["7 ?gain-all a\\_b 1+0j"]);
}

#[test]
fn delays_that_cannot_be_are_refused() {
    let bench = Bench::new();
    for (arguments, with) in [
        ("", "stream is missing"),
        ("nosuch 1632561921 0,0:0,0 0,0:0,0", "'nosuch'"),
        ("wideband", "start-time is missing"),
        (
            "wideband 0,0:0,0 0,0:0,0",
            "start-time: '0,0:0,0' is not a number",
        ),
        ("wideband 1632561921 0,0:0,0", "model of input 1 is missing"),
        (
            "wideband 1632561921 0,0:0,0 0,0:0,0 0,0:0,0",
            "1 argument too many",
        ),
        (
            "wideband 1632561920 0,0:0,0 0,0:0,0",
            "start time 1632561920.0 (UNIX seconds) must be between 1632561921.0, the sync time",
        ),
        (
            "wideband 1e300 0,0:0,0 0,0:0,0",
            "start time 1e300 (UNIX seconds) must be between",
        ),
        ("wideband nan 0,0:0,0 0,0:0,0", "start-time: 'nan'"),
        ("wideband inf 0,0:0,0 0,0:0,0", "finite"),
        (
            "wideband 1632561921 0,00,0 0,0:0,0",
            "model of input 0: '0,00,0' is not delay,rate:phase,phase-rate",
        ),
        (
            "wideband 1632561921 0,0:0,0 00:0,0",
            "model of input 1: '00:0,0'",
        ),
        ("wideband 1632561921 0,0:00 0,0:0,0", "model of input 0"),
        ("wideband 1632561921 0,0:x,0 0,0:0,0", "'x' is not a number"),
        (
            "wideband 1632561921 0,0:0,0 0,0,0:0,0",
            "'0,0' is not a number",
        ),
        (
            "wideband 1632561921 0,0:0,0:0 0,0:0,0",
            "'0:0' is not a number",
        ),
        ("wideband 1632561921 0,1:0,0 0,0:0,0", "rate"),
        (
            "wideband 1632561921 0,0:0,0 0,-1:0,0",
            "delay rate -1 must be between -1 and 1 s/s",
        ),
        (
            "wideband 1632561921 nan,0:0,0 0,0:0,0",
            "'nan' is not a number",
        ),
        (
            "wideband 1632561921 0,0:0,0 0,-inf:0,0",
            "must be a finite number",
        ),
    ] {
        bench.fails(&format!("?delays {arguments}"), with);
    }
    assert_eq!(bench.sensor("steady-state-timestamp"), "0");
}

/// Statistics of an engine whose channel k has a power of k + 1 in polarisation 0 and twice that in
/// 1, from this timestamp on.
fn statistics(start: u64) -> Arc<OutputStatistics> {
    let channel = |k: usize| {
        let power = 20_000.0 * (k + 1) as f64;
        ChannelSums {
            power: [power, 2.0 * power],
            ..ChannelSums::default()
        }
    };
    Arc::new(OutputStatistics {
        start: Timestamp(start),
        end: Timestamp(start + 1000),
        spectra: 20_000,
        channels: (0..64).map(channel).collect(),
    })
}

#[test]
fn levels_are_made_of_statistics_with_the_present_gains() {
    let bench = Bench::new();
    let board = bench.steered.published.statistics();
    bench.fails(
        "?karoo-auto-gain wideband 16",
        "no statistics of 'wideband'",
    );
    board.publish_output(0, statistics(0));
    let reply = bench.ask("?karoo-auto-gain wideband 16");
    assert_eq!((&reply[0][..], &reply[1][..]), ("ok", "16.0"));
    let efficiency: f64 = reply[2].parse().unwrap();
    assert!((0.999..1.0).contains(&efficiency), "{efficiency}");
    let request = bench.steered.outputs[0].take().expect("a request");
    let Change::Gains([Some(x), Some(y)]) = request.change else {
        panic!("{request:?}");
    };
    for (pol, gains) in [&x, &y].into_iter().enumerate() {
        for (k, gain) in gains.each().iter().enumerate() {
            // Power had been made with a gain of 1/8.
            let before = ((pol + 1) * (k + 1) * 64) as f32;
            let rms = (0.5 * before * gain.norm_sqr()).sqrt();
            assert!((rms / 16.0 - 1.0).abs() < 1e-5, "{k}: {rms}");
        }
    }
    let eq = bench.sensor("wideband.input1.eq");
    assert!(eq.split(',').count() == 64, "{eq}");
    // Gains asked for at 5000 take effect there: what was measured before is of others.
    bench.steered.outputs[0].publish_end(Timestamp(5000));
    assert_eq!(bench.ask("?gain wideband 0 1"), ["ok"]);
    bench.steered.outputs[0].take().expect("a request");
    board.publish_output(0, statistics(4999));
    bench.fails("?karoo-auto-gain wideband", "with its present gains");
    board.publish_output(0, statistics(5000));
    let reply = bench.ask("?karoo-auto-gain wideband");
    let rms: f64 = reply[1].parse().unwrap();
    assert!((10.0..16.0).contains(&rms), "{rms}");
}

/// Such a request would change nothing, and must not say that all is as it was asked for.
#[test]
fn gains_of_zero_are_not_levelled() {
    let bench = Bench::new();
    bench.steered.outputs[0].publish_end(Timestamp(5000));
    assert_eq!(bench.ask("?gain wideband 1 0"), ["ok"]);
    bench.steered.outputs[0].take().expect("a request");
    let board = bench.steered.published.statistics();
    board.publish_output(0, statistics(5000));
    // The other input has its level still.
    assert_eq!(bench.ask("?karoo-auto-gain wideband 16")[0], "ok");
    let request = bench.steered.outputs[0].take().expect("a request");
    assert!(
        matches!(request.change, Change::Gains([Some(_), None])),
        "{request:?}"
    );
    assert_eq!(bench.ask("?gain-all wideband 0"), ["ok"]);
    bench.steered.outputs[0].take().expect("a request");
    board.publish_output(0, statistics(5000));
    bench.fails("?karoo-auto-gain wideband", "?gain-all wideband default");
}

#[test]
fn levels_that_cannot_be_are_refused() {
    let bench = Bench::new();
    for (arguments, with) in [
        ("", "stream is missing"),
        ("nosuch 16", "'nosuch'"),
        ("wideband x", "rms: 'x' is not a number"),
        ("wideband 0", "must be at least 0.1 and below 127"),
        ("wideband -1", "must be at least 0.1"),
        ("wideband 1e-300", "must be at least 0.1"),
        ("wideband 127", "below 127"),
        ("wideband nan", "rms"),
        ("wideband 16 16", "1 argument too many"),
    ] {
        bench.fails(&format!("?karoo-auto-gain {arguments}"), with);
    }
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

/// It may have nothing else that tells it.
#[test]
fn delays_tell_an_engine_what_time_it_is() {
    let bench = Bench::new();
    let now = || bench.steered.outputs[0].now();
    assert_eq!(now(), Timestamp(0));
    assert_eq!(bench.ask("?gain wideband 0"), ["ok", "0.125+0j"]);
    assert_eq!(now(), Timestamp(0));
    let before = unix_now();
    let reply = bench.ask("?delays wideband 1632561921.5 0,0:0,0 0,0:0,0");
    assert_eq!(reply, ["ok"]);
    let told = now().0 as f64 / 1712e6 + 1_632_561_921.0;
    assert!(
        (before - 0.001..unix_now() + 0.001).contains(&told),
        "{told}"
    );
}
