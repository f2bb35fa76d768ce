//! A follower of a server that has an engine's sensors, as katgpucbf writes them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use katcp::{
    SensorId, SensorInfo, SensorReading, Sensors, ServerThread, SimpleDevice, Value, ValueType,
};

use super::*;
use crate::config::tests::engine;

const DELAY: &str = "(1000, 1e-09, 0.0, 0.5, 0.0)";
const TOO_LONG: Duration = Duration::from_secs(60);

struct Fake {
    sensors: Sensors,
    gains: SensorId,
    steady: SensorId,
    server: ServerThread,
    config: EngineConfig,
}

fn text(text: &str) -> SensorReading {
    SensorReading::now(Value::String(text.to_owned().into()))
}

impl Fake {
    /// An engine with an output of 16 channels, and one that nobody names.
    fn start() -> Self {
        let sensors = Sensors::default();
        let add = |name: &str, value: &str| {
            let info = SensorInfo::new(name, "", "", ValueType::String);
            sensors.add(info, text(value))
        };
        let gains = add("w.input0.eq", "[0.5+0j]");
        add("w.input1.eq", "[2+1j]");
        add("w.input0.delay", "(-1, 0.0, 0.0, 0.0, 0.0)");
        add("w.input1.delay", DELAY);
        add("other.input0.eq", "[1+0j]");
        let info = SensorInfo::new(STEADY, "", "", ValueType::Integer);
        let steady = sensors.add(info, SensorReading::now(Value::Integer(0)));
        let device = SimpleDevice::new("katgpucbf-fgpu-1.0", "fake-1.0");
        let address = ([127, 0, 0, 1], 0).into();
        let server = ServerThread::start(address, device, sensors.clone()).unwrap();
        let options = "name=w,channels=16,dst=239.1.2.0+1:7148,jones_per_batch=64,taps=4";
        Self {
            sensors,
            gains,
            steady,
            server,
            config: engine(options, |_| {}),
        }
    }

    fn address(&self) -> String {
        self.server.address().to_string()
    }
}

fn wait(what: &str, mut happened: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !happened() {
        assert!(begun.elapsed() < TOO_LONG, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Where changes go, before any heap came.
fn target(steering: ControlHandle) -> Target {
    Target {
        steering,
        newest: Arc::new(vec![AtomicU64::new(0)]),
        followed: Arc::default(),
        follow: true,
    }
}

#[test]
fn what_an_engine_has_is_taken_over_and_followed() {
    let fake = Fake::start();
    let mut follower = Follower::connect(&fake.address(), &fake.config).unwrap();
    assert_eq!(follower.dither_seeds(&fake.config).unwrap(), None);
    let (steering, _queues) = ControlHandle::new(&fake.config, 16);
    follower.take_over(&steering).unwrap();
    let output = steering.outputs()[0].clone();
    let gain = |pol: usize| output.gains(pol).unwrap().values().to_vec();
    let complex = num_complex::Complex32::new;
    assert_eq!(
        [gain(0), gain(1)],
        [[complex(0.5, 0.0)], [complex(2.0, 1.0)]]
    );

    let (target, stop) = (target(steering), StopFlag::default());
    let (followed, ended) = (target.followed.clone(), stop.clone());
    let thread = thread::spawn(move || follower.run(&target, &ended));
    wait("an answer", || followed.told().is_some());
    assert!(!followed.changes.excuses(0, (0, u64::MAX)));
    let now = (unix_now() - fake.config.clock.sync_time) * fake.config.clock.adc_sample_rate;
    let now = now as u64;
    fake.sensors.set(fake.gains, text("[0.75+0j]"));
    wait("gains", || gain(0) == [complex(0.75, 0.0)]);
    // Nobody knows up to where, until the engine has had time to say so.
    let steady = now + (1 << 32);
    let reading = SensorReading::now(Value::Integer(steady as i64));
    fake.sensors.set(fake.steady, reading);
    wait("its end", || {
        !followed.changes.excuses(0, (steady, u64::MAX))
    });
    assert!(followed.changes.excuses(0, (steady - 1, steady)));
    assert!(!followed.changes.excuses(0, (0, 1)));
    assert_eq!(followed.gains.load(Ordering::Relaxed), 1);
    stop.set();
    thread.join().unwrap();
}

#[test]
fn engines_of_other_outputs_and_no_engines_are_refused() {
    let mut fake = Fake::start();
    fake.config.outputs[0].name = "wide".to_owned();
    let refused = |fake: &Fake| match Follower::connect(&fake.address(), &fake.config) {
        Ok(_) => panic!("not refused"),
        Err(error) => error.to_string(),
    };
    let error = refused(&fake);
    assert!(
        error.contains("no output stream called 'wide': there is other, w"),
        "{error}"
    );
    // As many gains as the output has no channels.
    fake.config.outputs[0].name = "w".to_owned();
    fake.sensors.set(fake.gains, text("[1, 2, 3]"));
    let error = refused(&fake);
    assert!(error.contains("sensor w.input0.eq: 3 gains"), "{error}");
}

#[test]
fn a_change_for_which_there_was_no_room_is_given_again() {
    let fake = Fake::start();
    let mut follower = Follower::connect(&fake.address(), &fake.config).unwrap();
    // Full of what it begins with.
    let (steering, queues) = ControlHandle::new(&fake.config, 2);
    follower.take_over(&steering).unwrap();
    let target = target(steering);
    let (followed, output) = (&target.followed, &target.steering.outputs()[0]);
    let gain = || output.gains(0).unwrap().values().to_vec();
    let given = num_complex::Complex32::new(0.75, 0.0);
    for (number, gain) in ["[3+0j]", "[0.75+0j]"].into_iter().enumerate() {
        fake.sensors.set(fake.gains, text(gain));
        wait("a change", || {
            follower.look(&target).unwrap();
            followed.gains.load(Ordering::Relaxed) > number as u64
        });
    }
    let told = followed.told();
    follower.look(&target).unwrap();
    assert_eq!(followed.told(), told, "it has not told what was not taken");
    assert_ne!(gain(), [given]);
    assert!(!followed.changes.excuses(0, (0, u64::MAX)));

    while queues.outputs[0].take().is_some() {}
    follower.look(&target).unwrap();
    assert_eq!(gain(), [given]);
    assert!(followed.told() > told);
    assert!(followed.changes.excuses(0, (0, u64::MAX)));
    assert_eq!(queues.outputs[0].take().iter().count(), 1);
    follower.look(&target).unwrap();
    assert!(queues.outputs[0].take().is_none(), "given once");
}

#[test]
fn a_reading_that_cannot_be_used_is_not_taken_to_be_told() {
    let fake = Fake::start();
    let mut follower = Follower::connect(&fake.address(), &fake.config).unwrap();
    let (steering, _queues) = ControlHandle::new(&fake.config, 16);
    let mut target = target(steering);
    follower.look(&target).unwrap();
    fake.sensors.set(fake.gains, text("[1, 2, 3]"));
    wait("a reading", || {
        follower.look(&target).unwrap();
        !follower.unusable.is_empty()
    });
    let told = target.followed.told();
    assert!(told.is_some());
    follower.look(&target).unwrap();
    assert_eq!(target.followed.told(), told);
    // Where nothing is followed it makes no difference.
    target.follow = false;
    follower.look(&target).unwrap();
    assert!(target.followed.told() > told);
    target.follow = true;

    let told = target.followed.told();
    fake.sensors.set(fake.gains, text("[0.75+0j]"));
    wait("a reading", || {
        follower.look(&target).unwrap();
        target.followed.told() > told
    });
    let gains = target.steering.outputs()[0].gains(0).unwrap();
    let given = num_complex::Complex32::new(0.75, 0.0);
    assert_eq!(gains.values(), [given]);
}

/// The client's next connection to an engine that is about to say something.
fn accept(engine: &TcpListener) -> BufReader<TcpStream> {
    let (mut client, _) = engine.accept().unwrap();
    let greeting = b"#version-connect katcp-protocol 5.1-MI\n";
    client.write_all(greeting).unwrap();
    BufReader::new(client)
}

/// What it had before it was lost may have changed.
#[test]
fn an_engine_that_refuses_its_sensors_is_not_taken_to_have_told_everything() {
    let fake = Fake::start();
    let follower = Follower::connect(&fake.address(), &fake.config).unwrap();
    let (steering, _queues) = ControlHandle::new(&fake.config, 16);
    let (target, stop) = (target(steering), StopFlag::default());
    let (followed, ended) = (target.followed.clone(), stop.clone());
    let thread = thread::spawn(move || follower.run(&target, &ended));
    wait("an answer", || followed.told().is_some());
    let address = fake.server.address();
    drop(fake.server);
    let engine = TcpListener::bind(address).unwrap();
    let mut first = accept(&engine);
    let mut asked = String::new();
    first.read_line(&mut asked).unwrap();
    assert!(asked.starts_with("?sensor-sampling[1] "), "{asked}");
    let refusal = b"!sensor-sampling[1] fail no\n";
    first.get_mut().write_all(refusal).unwrap();
    // It comes again for its sensors, and asks nothing else meanwhile.
    let second = accept(&engine);
    asked.clear();
    first.read_to_string(&mut asked).unwrap();
    assert_eq!(asked, "");
    assert!(followed.lost.load(Ordering::Relaxed));
    stop.set();
    drop(second);
    thread.join().unwrap();
}

/// Seeds have 64 bits; one that cannot be read is told rather than passed over.
#[test]
fn seeds_of_dither_are_taken_over() {
    let fake = Fake::start();
    let info = |name: &str| SensorInfo::new(name, "", "", ValueType::String);
    fake.sensors.add(info("karoo.backend"), text("cpu"));
    let seed = fake.sensors.add(info("w.dither-seed"), text(""));
    let mut follower = Follower::connect(&fake.address(), &fake.config).unwrap();
    for known in [0, 1 << 63, u64::MAX] {
        fake.sensors.set(seed, text(&known.to_string()));
        assert_eq!(
            follower.dither_seeds(&fake.config).unwrap(),
            Some(vec![known])
        );
    }
    fake.sensors.set(seed, text("many"));
    let error = follower.dither_seeds(&fake.config).unwrap_err().to_string();
    assert!(
        error.contains("w.dither-seed: 'many' is no seed"),
        "{error}"
    );
}
