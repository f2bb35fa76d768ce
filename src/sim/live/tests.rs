use super::*;
use dpdk::{Device, Eal, PoolConfig, PortConfig, mbuf_ring};
use dsp::SampleBits;
use ground::SampleClock;
use ground::stats::PhaseTimes;

pub(crate) fn config(sync_time: f64) -> DigitiserConfig {
    DigitiserConfig {
        clock: SampleClock {
            adc_sample_rate: 1e6,
            sync_time,
        },
        signals: crate::sim::parse("0;", || 0).unwrap(),
        dests: vec![vec!["239.102.0.64:7148".parse().unwrap()]],
        heap_samples: 4096,
        sample_bits: SampleBits::new(10).unwrap(),
        first_id: 0,
        period: 8192,
        max_period: 1 << 20,
        dither_seed: 1,
        ttl: 4,
        first_timestamp: 0,
    }
}

/// Heaps of more than a second are no later than others when their last sample is there.
#[test]
fn heaps_are_late_by_time() {
    let mut config = config(0.0);
    let due = |config: &_, seconds| due(config, Duration::from_secs_f64(seconds));
    assert_eq!(due(&config, 0.1), 0..24);
    assert_eq!(due(&config, 1.0), 122..244);
    config.clock.adc_sample_rate = 4000.0;
    for (seconds, expected) in [(1.02, 0..0), (1.03, 0..1), (1.52, 0..1), (1.53, 1..1)] {
        assert_eq!(due(&config, seconds), expected, "{seconds}");
    }
    assert_eq!(due(&config, 3.1), 2..3);
}

/// Heaps that are sent twice take twice the bytes.
#[test]
fn duplicates_have_their_part_of_the_pace() {
    let config = config(0.0);
    // Of 1e6 samples with 10 bits, and 72 bytes for each 4096.
    let bytes = 1e6 * (1.25 + 72.0 / 4096.0);
    for (plan, copies) in [("", 1.0), ("duplicate=0.5", 1.5), ("duplicate=1", 2.0)] {
        let rate = most_rate(&config, &plan.parse().unwrap());
        assert!(
            (rate / (copies * bytes) - 1.05).abs() < 1e-9,
            "{plan}: {rate}"
        );
    }
}

/// What is counted of so many heaps, the first of which is so late, where nobody takes what the
/// port sends: it has room for 15 packets.
fn unread(name: &str, heaps: u64, late: Duration, plan: FaultPlan) -> Arc<SimStats> {
    unread_behind(0, (name, 15), heaps, late, plan)
}

/// The same where the heaps before `next` were held back, and with room for so many packets.
fn unread_behind(
    next: u64,
    (name, room): (&str, usize),
    heaps: u64,
    late: Duration,
    plan: FaultPlan,
) -> Arc<SimStats> {
    let eal = Eal::for_tests();
    let (sender, _sink) = mbuf_ring(eal, &format!("{name}_out"), room).unwrap();
    let (_unused, end) = mbuf_ring(eal, &format!("{name}_in"), 15).unwrap();
    let port = Device::rings(eal, name, vec![end], vec![sender]).unwrap();
    let queue = port.start(&PortConfig::default()).unwrap().tx.remove(0);
    let config = config(unix_now() - late.as_secs_f64());
    let pool = PoolConfig {
        mbufs: 127,
        cache: 0,
        data_room: SimParts::data_room(&config),
        socket: None,
    };
    let stats = Arc::new(SimStats::default());
    let windows = Arc::new(Windows::new(&config, &config.signals, config.period));
    let parts = SimParts {
        config,
        origin: Origin::CAPTURE,
        begin: Instant::now().checked_sub(late).unwrap(),
        heaps: Some(heaps),
        faults: (plan, 1),
        queue,
        pool: MbufPool::new(eal, name, pool).unwrap(),
        clock: eal.tsc_clock(),
        changes: Arc::new(ArrayQueue::new(1)),
        stats: stats.clone(),
        idle: IdlePolicy::Share,
        stop: StopFlag::default(),
    };
    let mut timer = PhaseTimer::start(PhaseTimes::new("digitiser", None));
    let mut lcore = SimLcore::new(parts, windows);
    lcore.next = next;
    lcore.run(&mut timer);
    stats
}

/// Heaps that faults hold back are sent however late; those behind them are not.
#[test]
fn late_heaps_behind_those_that_faults_hold_back_are_skipped() {
    let late = Duration::from_secs(60);
    let sent = |name, room| {
        let stats = unread_behind(50, (name, room), 200, late, FaultPlan::default());
        [&stats.heaps, &stats.skipped].map(|count| count.load(Ordering::Relaxed))
    };
    assert_eq!(sent("dsim_held", 63), [50, 150]);
    // What the port does not take is skipped as well: it has room for descriptors and 14.
    assert_eq!(sent("dsim_held_full", 15), [14, 186]);
}

#[test]
fn duplicates_are_skipped_once() {
    let plan = "duplicate=1".parse().unwrap();
    let stats = unread("dsim", 20, Duration::from_secs(60), plan);
    assert_eq!(stats.heaps.load(Ordering::Relaxed), 0);
    assert_eq!(stats.skipped.load(Ordering::Relaxed), 20);
    assert_eq!(stats.faults()["duplicate"], 20);
}

/// As one whose link is down: what it does not take is late after a while: skipped.
#[test]
fn heaps_that_the_port_does_not_take_are_skipped() {
    let stats = unread("dsim_full", 200, Duration::ZERO, FaultPlan::default());
    let counts = [&stats.heaps, &stats.skipped].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(counts.iter().sum::<u64>(), 200);
    assert!((1..=15).contains(&counts[0]), "{counts:?}");
    let bytes = 5120 * counts[0];
    assert_eq!(stats.bytes.load(Ordering::Relaxed), bytes);
    // The newest that waited, some time after it was due.
    let error = stats.time_error();
    assert!((0.1..600.0).contains(&error), "{error}");
}

#[test]
fn heaps_that_are_late_on_purpose_say_nothing_of_the_clock() {
    // Both polarisations of a heap, then one that was held back.
    assert_eq!(newest(None, 7, 7), Some(7));
    assert_eq!(newest(Some(7), 7, 8), Some(7));
    assert_eq!(newest(Some(7), 3, 8), Some(7));
    assert_eq!(newest(None, 3, 8), None);
}
