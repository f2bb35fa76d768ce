use super::*;
use crate::reading::SensorStatus;
use crate::value::Value;

fn reading(value: i64, status: SensorStatus) -> SensorReading {
    SensorReading {
        timestamp: 0.0,
        status,
        value: Value::Integer(value),
    }
}

fn nominal(value: i64) -> SensorReading {
    reading(value, SensorStatus::Nominal)
}

fn sensor(of: ValueType, rate_limited: bool) -> SensorInfo {
    let info = SensorInfo::new("s", "a sensor", "", of);
    if rate_limited {
        info.rate_limited()
    } else {
        info
    }
}

fn strategy(text: &str) -> Result<Strategy, StrategyError> {
    let words: Vec<_> = text.split(' ').collect();
    Strategy::parse(
        words[0].as_bytes(),
        &words[1..],
        &sensor(ValueType::Integer, false),
    )
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Reports until `end`, as (milliseconds, value), of a sensor that starts at 0 and is set at times.
fn reports(sampler: &mut Sampler, sets: &[(u64, i64)], end: u64) -> Vec<(u64, i64)> {
    let mut reports = Vec::new();
    let mut value = 0;
    let mut sets = sets.iter().copied().peekable();
    loop {
        let set = sets.peek().map(|(at, _)| ms(*at));
        let due = sampler.deadline().filter(|due| *due <= ms(end));
        match (due, set) {
            (Some(due), set) if set.is_none_or(|set| due <= set) => {
                assert!(!sampler.tick(due - ms(1), &nominal(value)), "too early");
                assert!(
                    sampler.tick(due, &nominal(value)),
                    "nothing at the deadline"
                );
                reports.push((due.as_millis() as u64, value));
            }
            (_, Some(set)) => {
                value = sets.next().expect("peeked").1;
                if sampler.update(set, &nominal(value)) {
                    reports.push((set.as_millis() as u64, value));
                }
            }
            _ => return reports,
        }
    }
}

fn sampled(text: &str, rate_limited: bool, sets: &[(u64, i64)], end: u64) -> Vec<(u64, i64)> {
    let strategy = strategy(text).expect("a strategy");
    let sensor = sensor(ValueType::Integer, rate_limited);
    let mut sampler = Sampler::new(strategy, &sensor, &nominal(0), ms(0)).expect("a sampler");
    assert_eq!(sampler.strategy(), strategy);
    reports(&mut sampler, sets, end)
}

/// A sensor's own pace holds where it is the longer one, and for `auto` alone.
#[test]
fn a_sensor_may_be_slower_than_once_a_second() {
    let slow = sensor(ValueType::Integer, true).at_most_every(ms(5000));
    let faster = slow.clone().at_most_every(ms(10));
    for (sensor, text, expected) in [
        (&slow, "auto", vec![(5000, 6)]),
        (&faster, "auto", vec![(5000, 6)]),
        (
            &slow,
            "event",
            vec![(100, 1), (300, 2), (1100, 5), (1200, 6)],
        ),
    ] {
        let strategy = strategy(text).expect("a strategy");
        let mut sampler = Sampler::new(strategy, sensor, &nominal(0), ms(0)).expect("a sampler");
        assert_eq!(reports(&mut sampler, &STEPS, 9000), expected, "{text}");
    }
}

const STEPS: [(u64, i64); 6] = [
    (100, 1),
    (200, 1),
    (300, 2),
    (1100, 5),
    (1200, 6),
    (3000, 6),
];

#[test]
fn auto_reports_every_assignment() {
    assert_eq!(sampled("auto", false, &STEPS, 9000), STEPS);
}

#[test]
fn auto_of_a_rate_limited_sensor_reports_once_a_second_and_the_last_value() {
    let expected = [(1000, 2), (2000, 6)];
    assert_eq!(sampled("auto", true, &STEPS, 9000), expected);
    // The second after the start was quiet, so the first change is reported at once.
    let expected = [(1500, 1), (2500, 3)];
    assert_eq!(
        sampled("auto", true, &[(1500, 1), (1600, 2), (1700, 3)], 9000),
        expected
    );
}

#[test]
fn event_reports_changes() {
    let expected = [(100, 1), (300, 2), (1100, 5), (1200, 6)];
    assert_eq!(sampled("event", false, &STEPS, 9000), expected);
}

#[test]
fn differential_reports_changes_beyond_the_difference() {
    assert_eq!(
        sampled("differential 1", false, &STEPS, 9000),
        [(300, 2), (1100, 5)]
    );
    // Each is compared with the last one reported, not with the one before it.
    let creep = [(100, 2), (200, 4), (300, 2), (400, -3)];
    assert_eq!(
        sampled("differential 3", false, &creep, 9000),
        [(200, 4), (400, -3)]
    );
}

#[test]
fn period_reports_in_rhythm() {
    let expected = [(500, 2), (1000, 2), (1500, 6), (2000, 6)];
    assert_eq!(sampled("period 0.5", false, &STEPS, 2400), expected);
}

#[test]
fn event_rate_keeps_both_bounds() {
    let expected = [(400, 2), (1100, 5), (1500, 6), (3500, 6)];
    assert_eq!(sampled("event-rate 0.4 2", false, &STEPS, 5000), expected);
}

#[test]
fn differential_rate_keeps_both_bounds() {
    let expected = [(500, 2), (1100, 5), (3100, 6)];
    assert_eq!(
        sampled("differential-rate 1 0.5 2", false, &STEPS, 5000),
        expected
    );
}

#[test]
fn a_change_of_status_is_always_news() {
    for text in ["event", "differential 100", "event-rate 0 10"] {
        let strategy = strategy(text).expect("a strategy");
        let info = sensor(ValueType::Integer, false);
        let mut sampler = Sampler::new(strategy, &info, &nominal(0), ms(0)).expect("a sampler");
        assert!(!sampler.update(ms(1), &nominal(0)), "{text}");
        assert!(
            sampler.update(ms(2), &reading(0, SensorStatus::Warn)),
            "{text}"
        );
        assert!(
            !sampler.update(ms(3), &reading(0, SensorStatus::Warn)),
            "{text}"
        );
    }
}

#[test]
fn a_stalled_period_does_not_catch_up() {
    let info = sensor(ValueType::Integer, false);
    let mut sampler =
        Sampler::new(Strategy::Period(0.1), &info, &nominal(0), ms(0)).expect("a sampler");
    assert!(sampler.tick(ms(1234), &nominal(0)));
    assert_eq!(sampler.deadline(), Some(ms(1334)));
}

#[test]
fn tiny_periods_are_served_every_ten_milliseconds() {
    let counts = sampled("period 1e-9", false, &[], 100);
    assert_eq!(counts.len(), 10);
}

/// A sensor that changes every millisecond. Only 0 stands for no limit.
#[test]
fn changes_are_reported_every_ten_milliseconds_at_most() {
    let sets: Vec<_> = (1..=100).map(|at| (at, at as i64)).collect();
    let every = |step: u64| -> Vec<_> {
        let times = (1..).map(|k| k * step).take_while(|at| *at <= 100);
        times.map(|at| (at, at as i64 - 1)).collect()
    };
    for (shortest, step) in [
        ("1e-300", 10),
        ("0.001", 10),
        ("0.009", 10),
        ("0.01", 10),
        ("0.02", 20),
    ] {
        for text in [
            format!("event-rate {shortest} inf"),
            format!("event-rate {shortest} 1e-300"),
            format!("differential-rate 0 {shortest} 10"),
        ] {
            assert_eq!(sampled(&text, false, &sets, 100), every(step), "{text}");
        }
    }
    assert_eq!(sampled("event-rate 0 inf", false, &sets, 100), sets);
}

#[test]
fn a_tiny_longest_period_is_ten_milliseconds() {
    for text in ["event-rate 0 1e-300", "differential-rate 5 0 0.001"] {
        let times: Vec<_> = sampled(text, false, &[], 50);
        assert_eq!(times, [10, 20, 30, 40, 50].map(|at| (at, 0)), "{text}");
    }
}

/// A Duration holds less than 2⁶⁴ seconds. Longer periods are accepted, and never end.
#[test]
fn longer_periods_than_can_be_told_never_end() {
    const MOST: u64 = 18_446_744_073_709_549_568;
    let info = sensor(ValueType::Integer, false);
    for now in [Duration::ZERO, ms(1)] {
        let sampler = |text: &str| {
            let strategy = strategy(text).expect(text);
            Sampler::new(strategy, &info, &nominal(0), now).expect(text)
        };
        for last in ["period", "event-rate 0", "differential-rate 1 0"] {
            let deadline = sampler(&format!("{last} {MOST}")).deadline();
            assert_eq!(deadline, Some(now + Duration::from_secs(MOST)), "{last}");
            for longer in ["18446744073709551616", "1e300", "1e400", "inf"] {
                let text = format!("{last} {longer}");
                let mut sampler = sampler(&text);
                assert_eq!(sampler.deadline(), None, "{text}");
                assert!(!sampler.tick(Duration::MAX, &nominal(0)), "{text}");
            }
        }
        // Whoever asks for no more than one report in so long a time has had it.
        let mut sampler = sampler("event-rate 1e300 inf");
        assert!(!sampler.update(now + ms(1), &nominal(1)));
        let never = |deadline: Option<Duration>| deadline.is_none_or(|at| at == Duration::MAX);
        assert!(never(sampler.deadline()), "{:?}", sampler.deadline());
        assert!(!sampler.tick(Duration::MAX - ms(1), &nominal(1)));
    }
}

#[test]
fn none_is_no_subscription() {
    let info = sensor(ValueType::Integer, false);
    assert!(Sampler::new(Strategy::None, &info, &nominal(0), ms(0)).is_none());
}

#[test]
fn strategies_are_read_and_written() {
    for (text, written) in [
        ("none", "none"),
        ("auto", "auto"),
        ("event", "event"),
        ("period 500", "period 500.0"),
        ("period inf", "period inf"),
        ("differential 3", "differential 3"),
        ("event-rate 1 inf", "event-rate 1.0 inf"),
        (
            "differential-rate 3 0 1e-3",
            "differential-rate 3 0.0 0.001",
        ),
    ] {
        let words = strategy(text).expect(text).encode();
        assert_eq!(words.join(" "), written);
    }
    let float = sensor(ValueType::Float, false);
    let by = Strategy::parse(b"differential", &["0.5"], &float).expect("a difference");
    assert_eq!(by.encode(), ["differential", "0.5"]);
}

#[test]
fn what_is_no_strategy_is_refused() {
    for (text, message) in [
        ("often", "there is no strategy 'often'"),
        (
            "period",
            "period takes the period in seconds, not 0 parameters",
        ),
        ("auto 1", "auto takes no parameters, not 1 parameters"),
        ("period x", "period: 'x' is not a number"),
        ("period 0", "period 0.0 must be positive (seconds)"),
        ("period -1", "period -1.0 must be positive"),
        ("period nan", "period: 'nan' is not a number"),
        ("event-rate 1 0", "longest period 0.0 must be positive"),
        ("event-rate -1 1", "shortest period -1.0 must be 0 or more"),
        (
            "event-rate inf inf",
            "shortest period inf must be 0 or more, and finite",
        ),
        (
            "differential 0.5",
            "difference: '0.5' is not a whole number",
        ),
    ] {
        let error = strategy(text).expect_err(text).to_string();
        assert!(error.starts_with(message), "{text}: {error}");
    }
    for of in [ValueType::String, ValueType::Timestamp, ValueType::Boolean] {
        let error = Strategy::parse(b"differential", &["1"], &sensor(of, false));
        assert!(matches!(error, Err(StrategyError::NoDifference { .. })));
    }
}
