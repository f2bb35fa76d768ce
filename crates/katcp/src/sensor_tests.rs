use super::*;
use crate::outbox::Backlogs;
use crate::reading::DEVICE_STATUS;
use crate::value::ValueType;

fn outbox(client: ClientId) -> Arc<Outbox> {
    Arc::new(Outbox::new(
        client,
        1 << 20,
        Arc::new(Backlogs::new(usize::MAX)),
    ))
}

/// What waits in an outbox, without timestamps.
fn told(outbox: &Outbox) -> Vec<String> {
    let mut batch = Vec::new();
    if outbox.backlog() > 0 {
        block_on(outbox.take(&mut batch));
    }
    let batch = batch.concat();
    outbox.written(batch.len());
    let text = String::from_utf8(batch).expect("UTF-8");
    let lines = text.lines().map(|line| {
        let words: Vec<_> = line.split(' ').collect();
        assert_eq!((words[0], words[2]), ("#sensor-status", "1"));
        words[3..].join(" ")
    });
    lines.collect()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(future)
}

fn add(sensors: &Sensors, name: &str, of: ValueType, value: Value) -> SensorId {
    sensors.add(SensorInfo::new(name, "", "", of), SensorReading::now(value))
}

fn integer(value: i64) -> SensorReading {
    SensorReading::now(Value::Integer(value))
}

const NO_PARAMETERS: [&str; 0] = [];

#[test]
fn subscribers_are_told_at_once_and_of_changes() {
    let sensors = Sensors::default();
    let [a, b] = ["a", "b"].map(|name| add(&sensors, name, ValueType::Integer, Value::Integer(7)));
    let (one, two) = (outbox(1), outbox(2));
    sensors
        .subscribe(&one, &["a", "b"], b"event", &NO_PARAMETERS)
        .expect("sensors");
    sensors
        .subscribe(&two, &["b"], b"auto", &NO_PARAMETERS)
        .expect("a sensor");
    assert_eq!(told(&one), ["a nominal 7", "b nominal 7"]);
    assert_eq!(told(&two), ["b nominal 7"]);
    sensors.set(a, integer(8));
    sensors.set(b, integer(7));
    assert_eq!(told(&one), ["a nominal 8"]);
    assert_eq!(told(&two), ["b nominal 7"]);
    assert_eq!(sensors.strategy(1, "b"), Ok(Strategy::Event));
    assert_eq!(sensors.strategy(2, "a"), Ok(Strategy::None));
    sensors
        .subscribe(&one, &["a"], b"none", &NO_PARAMETERS)
        .expect("a sensor");
    sensors.forget(2);
    sensors.set(a, integer(9));
    sensors.set(b, integer(9));
    assert_eq!(told(&one), ["b nominal 9"]);
    assert_eq!(told(&two), Vec::<String>::new());
}

/// Own sensors are slow, or not there at all: then nothing sums them up either.
#[test]
fn sensors_of_a_prefix_have_a_pace_of_their_own() {
    let slow = Sensors::paced("own.", Some(Duration::from_secs(10)));
    add(&slow, "own.a", ValueType::Integer, Value::Integer(1));
    add(&slow, "b", ValueType::Integer, Value::Integer(1));
    let mut periods = Vec::new();
    slow.visit(
        |_| true,
        |info, _| periods.push((info.name.clone(), info.auto_period.as_secs())),
    );
    assert_eq!(periods, [("b".to_owned(), 0), ("own.a".to_owned(), 10)]);

    let without = Sensors::paced("own.", None);
    let own = add(&without, "own.a", ValueType::Integer, Value::Integer(1));
    let other = add(&without, "b", ValueType::Integer, Value::Integer(1));
    let status = SensorInfo::new("status", "", "", DEVICE_STATUS);
    let status = without.add_aggregate(status, |_| true);
    assert!(without.find("own.a").is_err() && without.find("b").is_ok());
    let failed = |value| SensorReading {
        status: SensorStatus::Error,
        ..integer(value)
    };
    without.set(own, failed(2));
    assert_eq!(without.reading(status).value, Value::Discrete("ok"));
    without.set(other, failed(2));
    assert_eq!(without.reading(status).value, Value::Discrete("degraded"));
}

#[test]
fn all_sensors_are_subscribed_to_or_none() {
    let sensors = Sensors::default();
    let a = add(&sensors, "a", ValueType::Integer, Value::Integer(0));
    add(
        &sensors,
        "text",
        ValueType::String,
        Value::String("x".into()),
    );
    let one = outbox(1);
    let unknown = sensors.subscribe(&one, &["a", "z"], b"auto", &NO_PARAMETERS);
    let unknown = unknown.expect_err("no sensor z").to_string();
    assert!(unknown.starts_with("Unknown sensor 'z'"), "{unknown}");
    assert!(
        sensors
            .subscribe(&one, &["a", "text"], b"differential", &["1"])
            .is_err()
    );
    sensors.set(a, integer(5));
    assert_eq!(told(&one), Vec::<String>::new());
    assert_eq!(sensors.strategy(1, "a"), Ok(Strategy::None));
}

#[test]
fn aggregates_show_the_worst() {
    let sensors = Sensors::default();
    let aggregate = |name: &str| SensorInfo::new(name, "", "", DEVICE_STATUS);
    let all = sensors.add_aggregate(aggregate("all"), |_| true);
    let some = sensors.add_aggregate(aggregate("some"), |info| info.name.starts_with("x"));
    let ids = ["x", "y"].map(|name| add(&sensors, name, ValueType::Integer, Value::Integer(0)));
    let both = || [all, some].map(|id| sensors.reading(id).value.encode().into_owned());
    let set = |index: usize, status| {
        let reading = SensorReading {
            status,
            ..integer(1)
        };
        sensors.set(ids[index], reading);
    };
    assert_eq!(both(), ["ok", "ok"]);
    set(1, SensorStatus::Warn);
    assert_eq!(both(), ["degraded", "ok"]);
    assert_eq!(sensors.reading(all).status, SensorStatus::Warn);
    set(0, SensorStatus::Inactive);
    assert_eq!(both(), ["degraded", "degraded"]);
    set(1, SensorStatus::Nominal);
    set(0, SensorStatus::Unknown);
    assert_eq!(both(), ["ok", "ok"]);
    assert_eq!(sensors.reading(all).status, SensorStatus::Nominal);
    // Told once per change, not for each sensor that changes.
    let one = outbox(1);
    sensors
        .subscribe(&one, &["all"], b"auto", &NO_PARAMETERS)
        .expect("a sensor");
    set(0, SensorStatus::Error);
    set(1, SensorStatus::Error);
    set(0, SensorStatus::Nominal);
    set(1, SensorStatus::Nominal);
    assert_eq!(
        told(&one),
        ["all nominal ok", "all warn degraded", "all nominal ok"]
    );
}

#[test]
fn an_added_sensor_counts_at_once() {
    let sensors = Sensors::default();
    let info = SensorInfo::new("all", "", "", DEVICE_STATUS);
    let all = sensors.add_aggregate(info, |_| true);
    let bad = SensorReading {
        status: SensorStatus::Error,
        ..integer(0)
    };
    sensors.add(SensorInfo::new("bad", "", "", ValueType::Integer), bad);
    assert_eq!(sensors.reading(all).value, Value::Discrete("degraded"));
}

/// A report that an added sensor makes due is not that of the deadline before.
#[tokio::test]
async fn an_added_sensor_brings_reports_forward() {
    let sensors = Sensors::default();
    let info = SensorInfo::new("all", "", "", DEVICE_STATUS);
    sensors.add_aggregate(info, |_| true);
    let one = outbox(1);
    // A century without a change.
    sensors
        .subscribe(&one, &["all"], b"event-rate", &["0.05", "3e9"])
        .expect("a sensor");
    let mut batch = Vec::new();
    let told = async {
        // That it is nominal, at once; then the timer waits for the century.
        one.take(&mut batch).await;
        one.written(batch.concat().len());
        tokio::task::yield_now().await;
        let bad = SensorReading {
            status: SensorStatus::Error,
            ..integer(0)
        };
        sensors.add(SensorInfo::new("bad", "", "", ValueType::Integer), bad);
        one.take(&mut batch).await;
    };
    tokio::select! {
        () = sensors.run() => {}
        told = tokio::time::timeout(Duration::from_secs(20), told) => told.expect("in time"),
    }
    let text = String::from_utf8(batch.concat()).expect("UTF-8");
    assert!(text.contains("all warn degraded"), "{text}");
}

/// Whoever is shown sensors may use them.
#[test]
fn sensors_are_free_while_they_are_visited() {
    let sensors = Sensors::default();
    let a = add(&sensors, "a", ValueType::Integer, Value::Integer(7));
    let (of, mut seen) = (sensors.clone(), Vec::new());
    let visitor = std::thread::spawn(move || {
        let wanted = |name: &str| of.find(name).is_ok();
        of.visit(wanted, |info, reading| {
            of.set(a, integer(8));
            add(&of, "b", ValueType::Integer, Value::Integer(9));
            seen.push((info.name.clone(), reading.value.clone()));
        });
        seen
    });
    // A thread that waits for itself never ends.
    let until = Instant::now() + Duration::from_secs(20);
    while !visitor.is_finished() {
        assert!(Instant::now() < until, "locked");
        std::thread::yield_now();
    }
    let seen = visitor.join().expect("no panic");
    assert_eq!(seen, [("a".to_owned(), Value::Integer(7))]);
    assert_eq!(sensors.reading(a).value, Value::Integer(8));
}

#[tokio::test]
async fn periods_are_kept_by_the_clock() {
    let sensors = Sensors::default();
    add(&sensors, "a", ValueType::Integer, Value::Integer(0));
    let one = outbox(1);
    sensors
        .subscribe(&one, &["a"], b"period", &["0.02"])
        .expect("a sensor");
    let mut batch = Vec::new();
    tokio::select! {
        () = sensors.run() => {}
        () = async {
            for _ in 0..5 {
                one.take(&mut batch).await;
                one.written(batch.concat().len());
            }
        } => {}
    }
    // The last one is on its way already.
    let next = sensors.state().next_deadline().expect("a period");
    assert!(next >= Duration::from_millis(80), "{next:?}");
}

/// tokio's timers do not take the last time of an Instant, and later times are no Instants.
#[test]
fn no_deadline_is_too_far_away() {
    let start = Instant::now();
    let mut last = Duration::ZERO;
    let steps = (0..64).map(|bit| Duration::from_secs(1 << bit));
    let steps = steps
        .rev()
        .chain((0..30).rev().map(|bit| Duration::from_nanos(1 << bit)));
    for step in steps {
        let longer = last.checked_add(step);
        last = longer
            .filter(|&longer| start.checked_add(longer).is_some())
            .unwrap_or(last);
    }
    let moment = Duration::from_nanos(1);
    assert!(start.checked_add(last + moment).is_none());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    runtime.expect("a runtime").block_on(async {
        for deadline in [
            FAR,
            FAR + moment,
            last - moment,
            last,
            last + moment,
            Duration::MAX,
        ] {
            tokio::select! {
                biased;
                () = until(start, Some(deadline)) => panic!("{deadline:?} are not over"),
                () = tokio::task::yield_now() => {}
            }
        }
    });
}

/// Whatever ends a subscription: the client asks for it, leaves, or its sensor is replaced.
#[test]
fn who_has_subscribed_is_known_until_the_last_subscription_ends() {
    let sensors = Sensors::default();
    let add = |name| add(&sensors, name, ValueType::Integer, Value::Integer(7));
    for name in ["a", "b"] {
        add(name);
    }
    let one = outbox(1);
    let subscribe = |names: &[&str], strategy: &[u8]| {
        let subscribed = sensors.subscribe(&one, names, strategy, &NO_PARAMETERS);
        subscribed.expect("sensors");
    };
    let has = || [1, 2].map(|client| sensors.has_subscribed(client));
    assert_eq!(has(), [false, false]);
    subscribe(&["a", "b"], b"auto");
    subscribe(&["a"], b"event");
    assert_eq!(has(), [true, false]);
    subscribe(&["a"], b"none");
    assert_eq!(has(), [true, false]);
    add("b");
    assert_eq!(has(), [false, false]);
    subscribe(&["a", "b"], b"auto");
    sensors.forget(1);
    assert_eq!(has(), [false, false]);
    for name in ["a", "b"] {
        let strategy = sensors.strategy(1, name).expect("a sensor");
        assert_eq!(strategy, Strategy::None);
    }
}
