use ground::Timestamp;
use katcp::sensor::Sensors;
use katcp::{SensorInfo, ValueType};

use super::*;
use crate::config::tests::engine;
use crate::engine::steer::ControlHandle;

const WIDEBAND: &str = "name=w,channels=64,dst=239.10.1.0,jones_per_batch=2048";

struct Bench {
    feed: SensorFeed,
    sensors: Sensors,
    published: Arc<Published>,
}

impl Bench {
    /// Timestamps are milliseconds; chunks are half a second, so that sensors time out after 5 s.
    fn new() -> Self {
        let config = engine(WIDEBAND, |config| {
            config.clock = SampleClock {
                adc_sample_rate: 1000.0,
                sync_time: 100.0,
            };
            config.recv.chunk_samples = 500;
        });
        let (steering, steered) = ControlHandle::new(&config, 1);
        let sensors = Sensors::default();
        let fgpu = FgpuSensors::add(&sensors, &config, &steering);
        let published = steered.published.clone();
        let feed = SensorFeed::new(&config, published.clone(), fgpu);
        Self {
            feed,
            sensors,
            published,
        }
    }

    fn tell(&mut self, event: EngineEvent, now: Instant) {
        self.published.tell(event);
        self.feed.update(now);
    }

    /// Value, status and timestamp of a sensor.
    fn sensor(&self, name: &str) -> (String, SensorStatus, f64) {
        let mut found = None;
        self.sensors.visit(
            |other| other == name,
            |_, r| found = Some((r.value.encode().into_owned(), r.status, r.timestamp)),
        );
        found.expect(name)
    }

    fn expect(&self, name: &str, value: &str, status: SensorStatus, timestamp: f64) {
        let expected = (value.to_owned(), status, timestamp);
        assert_eq!(self.sensor(name), expected, "{name}");
    }
}

fn chunk(start: u64, clipped_samples: [u64; 2], missing_heaps: [u64; 2]) -> EngineEvent {
    EngineEvent::Received(Received {
        start: Timestamp(start),
        end: Timestamp(start + 500),
        clipped_samples,
        missing_heaps,
    })
}

#[test]
fn sensors_begin_as_katgpucbfs() {
    let bench = Bench::new();
    for (name, value, status) in [
        ("steady-state-timestamp", "0", SensorStatus::Nominal),
        ("karoo.w.pfb-group-delay", "-1023.5", SensorStatus::Nominal),
        (
            "karoo.w.filter-group-delay",
            "-1023.5",
            SensorStatus::Nominal,
        ),
        ("input0.dig-clip-cnt", "0", SensorStatus::Nominal),
        ("input1.dig-rms-dbfs", "0.0", SensorStatus::Unknown),
        ("input0.rx.timestamp", "-1", SensorStatus::Error),
        ("input1.rx.unixtime", "-1.0", SensorStatus::Error),
        ("input0.rx.missing-unixtime", "-1.0", SensorStatus::Nominal),
        ("rx.device-status", "degraded", SensorStatus::Warn),
        ("device-status", "degraded", SensorStatus::Warn),
        ("w.dither-seed", "0", SensorStatus::Nominal),
        ("w.input0.eq", "[1+0j]", SensorStatus::Nominal),
        (
            "w.input1.delay",
            "(-1, 0.0, 0.0, 0.0, 0.0)",
            SensorStatus::Nominal,
        ),
        ("w.input1.feng-clip-cnt", "0", SensorStatus::Nominal),
    ] {
        let found = bench.sensor(name);
        assert_eq!((found.0.as_str(), found.1), (value, status), "{name}");
    }
}

#[test]
fn chunks_set_the_receive_sensors() {
    let mut bench = Bench::new();
    let now = Instant::now();
    bench.tell(chunk(2000, [5, 0], [0, 0]), now);
    bench.expect("input0.rx.timestamp", "2000", SensorStatus::Nominal, 102.0);
    bench.expect("input1.rx.unixtime", "102.0", SensorStatus::Nominal, 102.0);
    bench.expect("input0.dig-clip-cnt", "5", SensorStatus::Nominal, 102.5);
    bench.expect("input1.dig-clip-cnt", "0", SensorStatus::Nominal, 102.5);
    assert_eq!(bench.sensor("rx.device-status").0, "ok");
    assert_eq!(
        bench.sensor("input0.rx.missing-unixtime").1,
        SensorStatus::Nominal
    );

    bench.tell(chunk(4000, [5, 9], [0, 3]), now);
    bench.expect(
        "input1.rx.missing-unixtime",
        "104.0",
        SensorStatus::Error,
        104.0,
    );
    assert_eq!(bench.sensor("input0.rx.missing-unixtime").0, "-1.0");
    assert_eq!(bench.sensor("rx.device-status").0, "degraded");
    bench.expect("input1.dig-clip-cnt", "9", SensorStatus::Nominal, 104.5);
    // What was missing before is not missing again.
    bench.tell(chunk(4500, [5, 9], [0, 3]), now);
    bench.expect(
        "input1.rx.missing-unixtime",
        "104.0",
        SensorStatus::Error,
        104.0,
    );
}

#[test]
fn the_device_is_never_well_while_the_first_chunk_lacks_data() {
    let before = unix_now();
    let mut bench = Bench::new();
    let made = before..=unix_now();
    bench.tell(chunk(0, [0, 0], [1, 1]), Instant::now());
    // Still of the start: it never changed.
    let status = bench.sensor("rx.device-status");
    assert_eq!(status.0, "degraded");
    assert!(made.contains(&status.2), "{made:?}");
}

#[test]
fn received_sensors_time_out() {
    let mut bench = Bench::new();
    let start = Instant::now();
    let after = |milliseconds| start + Duration::from_millis(milliseconds);
    bench.feed.update(after(20_000));
    assert_eq!(bench.sensor("input0.rx.timestamp").0, "-1");
    bench.tell(chunk(2000, [0, 0], [1, 0]), start);
    bench.tell(chunk(2500, [0, 0], [1, 0]), after(1000));
    bench.feed.update(after(4999));
    assert_eq!(
        bench.sensor("input0.rx.missing-unixtime").1,
        SensorStatus::Error
    );
    bench.feed.update(after(5000));
    bench.expect(
        "input0.rx.missing-unixtime",
        "102.0",
        SensorStatus::Nominal,
        107.0,
    );
    bench.feed.update(after(5999));
    assert_eq!(bench.sensor("input0.rx.timestamp").1, SensorStatus::Nominal);
    bench.feed.update(after(6000));
    bench.expect("input0.rx.timestamp", "2500", SensorStatus::Error, 107.5);
    bench.expect("input1.rx.unixtime", "102.5", SensorStatus::Error, 107.5);
    // Once, not again and again.
    bench.feed.update(after(60_000));
    bench.expect("input0.rx.timestamp", "2500", SensorStatus::Error, 107.5);
    bench.tell(chunk(9000, [0, 0], [1, 0]), after(70_000));
    bench.expect("input0.rx.timestamp", "9000", SensorStatus::Nominal, 109.0);
}

#[test]
fn sent_chunks_count_clipped_samples_at_their_nominal_end() {
    let mut bench = Bench::new();
    let sent = |output, batches| {
        EngineEvent::Sent(Sent {
            output,
            batches,
            start: Timestamp(1000),
            // Cut short.
            end: Timestamp(2000),
            nominal_end: Timestamp(3000),
            clipped_samples: [1, 1000],
        })
    };
    let unknown = bench.sensor("karoo.w.latency");
    bench.tell(sent(0, 0), Instant::now());
    bench.expect("w.input0.feng-clip-cnt", "1", SensorStatus::Nominal, 103.0);
    assert_eq!(bench.sensor("karoo.w.latency"), unknown);
    let before = unix_now();
    bench.tell(sent(0, 1), Instant::now());
    let told = before..=unix_now();
    bench.tell(sent(1, 1), Instant::now());
    bench.expect("w.input0.feng-clip-cnt", "1", SensorStatus::Nominal, 103.0);
    bench.expect(
        "w.input1.feng-clip-cnt",
        "1000",
        SensorStatus::Nominal,
        103.0,
    );
    let (age, status, timestamp) = bench.sensor("karoo.w.latency");
    assert_eq!((status, timestamp), (SensorStatus::Nominal, 102.0));
    let age: f64 = age.parse().expect("a number");
    // As text it is rounded.
    assert!(
        told.contains(&(age + 102.0)) || (told.start() - age - 102.0).abs() < 1e-3,
        "{age}"
    );
}

#[test]
fn power_is_judged_as_katgpucbf_does() {
    let mut bench = Bench::new();
    for (dbfs, status) in [
        (-10.0, SensorStatus::Nominal),
        (-30.0, SensorStatus::Nominal),
        (-9.999999, SensorStatus::Warn),
        (-30.000001, SensorStatus::Warn),
        (-32.999999, SensorStatus::Warn),
        (-33.0, SensorStatus::Error),
        (-7.0, SensorStatus::Error),
        (f64::MIN, SensorStatus::Error),
    ] {
        let level = PowerLevel {
            end: Timestamp(7000),
            dbfs: Some([dbfs, -20.0]),
        };
        bench.tell(EngineEvent::Power(level), Instant::now());
        let text = katcp::number::format_float(dbfs);
        bench.expect("input0.dig-rms-dbfs", &text, status, 107.0);
        bench.expect("input1.dig-rms-dbfs", "-20.0", SensorStatus::Nominal, 107.0);
    }
    let level = PowerLevel {
        end: Timestamp(8000),
        dbfs: None,
    };
    bench.tell(EngineEvent::Power(level), Instant::now());
    let least = "-1.7976931348623157e+308";
    bench.expect("input1.dig-rms-dbfs", least, SensorStatus::Failure, 108.0);
}

#[test]
fn active_models_are_shown_and_none_is_missed() {
    let mut bench = Bench::new();
    let model = |start| {
        let model = LinearDelay::new(start, 2.5, 0.5, 7.0, 0.25).expect("a model");
        ActiveDelay {
            output: 0,
            pol: 1,
            model,
        }
    };
    bench.tell(EngineEvent::Delay(model(500)), Instant::now());
    let phase = katcp::number::format_float(7.0 - std::f64::consts::TAU);
    let text = format!("(500, 0.0025, 0.5, {phase}, 250.0)");
    assert_eq!(bench.sensor("w.input1.delay").0, text);
    // The same again is news too, as katgpucbf's.
    let (.., before) = bench.sensor("w.input1.delay");
    while SensorReading::now(Value::Integer(0)).timestamp <= before {}
    bench.tell(EngineEvent::Delay(model(500)), Instant::now());
    let (again, _, after) = bench.sensor("w.input1.delay");
    assert!(again == text && after > before, "{before} {after}");
    // A model whose event is displaced by others is shown all the same.
    bench.published.tell(EngineEvent::Delay(model(900)));
    for _ in 0..5000 {
        bench.published.tell(chunk(0, [0, 0], [0, 0]));
    }
    bench.feed.update(Instant::now());
    assert!(bench.sensor("w.input1.delay").0.starts_with("(900, "));
    assert_eq!(bench.sensor("w.input0.delay").0, "(-1, 0.0, 0.0, 0.0, 0.0)");
}

/// Begin and end of a test are shown also where control was too slow to hear of them.
#[test]
fn tests_are_shown_though_other_events_displace_theirs() {
    let mut bench = Bench::new();
    let shown = |bench: &Bench| bench.sensor("karoo.w.test-pattern").0;
    let patterns = [Some(TestPattern::Ramp), Some(TestPattern::Feng), None];
    for (pattern, expected) in patterns.into_iter().zip(["ramp", "feng", "off"]) {
        let output = 0;
        let from = Timestamp(0);
        let change = TestChange {
            output,
            from,
            pattern,
        };
        bench.published.tell(EngineEvent::Test(change));
        for _ in 0..5000 {
            bench.published.tell(chunk(0, [0, 0], [0, 0]));
        }
        bench.feed.update(Instant::now());
        assert_eq!(shown(&bench), expected);
    }
}

#[test]
fn a_device_is_busy_for_a_share_of_the_last_second() {
    let mut bench = Bench::new();
    let info = SensorInfo::new("karoo.gpu-w.busy", "", "", ValueType::Float);
    let sensor = bench
        .sensors
        .add(info, SensorReading::now(Value::Float(0.0)));
    let nanoseconds = Arc::new(AtomicU64::new(7_000_000_000));
    let begun = Instant::now();
    bench.feed.watch(sensor, nanoseconds.clone(), begun);
    let mut after = |milliseconds: u64, busy: u64| {
        nanoseconds.fetch_add(busy * 1_000_000, Ordering::Relaxed);
        bench
            .feed
            .update(begun + Duration::from_millis(milliseconds));
        bench.sensor("karoo.gpu-w.busy").0
    };
    assert_eq!(after(900, 300), "0.0", "the window is not over");
    assert_eq!(after(2000, 200), "0.25");
    assert_eq!(after(3000, 0), "0.0");
}
