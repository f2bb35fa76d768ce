//! Every bench counts what it sent, and gets all of it.

use std::time::Duration;

use karoo_modem::rx::RxConfig;

use super::*;

const TIME: Duration = Duration::from_millis(20);

fn config(threads: usize) -> RxConfig {
    RxConfig {
        threads,
        ..RxConfig::default()
    }
}

#[test]
fn a_receiver_gets_all_frames_in_any_blocks_by_any_number_of_threads() {
    let rows = [
        (Way::Pool, 120, 0, 1),
        (Way::Pool, 4096, 1, 2),
        (Way::Pool, 100_000, 2, 1),
        (Way::Graph, 4096, 2, 2),
    ];
    for (way, block, threads, instances) in rows {
        let row = measure_receiver(&RxBench {
            way,
            modulation: Modulation::Qam256,
            duty: 0.8,
            block,
            instances,
            config: config(threads),
            time: TIME,
            rounds: 2,
        })
        .unwrap();
        assert_eq!(row.lost, 0, "{row:?}");
        // At least the stream's 16 frames for each receiver and round.
        assert!(row.frames >= 32 * instances as u64 && row.frames.is_multiple_of(16));
        assert!(row.wall.best >= row.wall.median && row.wall.median > 0.0);
        let cpu = row.core.zip(row.finder);
        assert_eq!(cpu.is_some(), way == Way::Pool);
        assert!(
            cpu.is_none_or(|(core, finder)| core.median <= finder.median),
            "{row:?}"
        );
    }
}

#[test]
fn transmitters_say_what_a_thread_makes() {
    let row = measure_transmitter(&TxBench {
        modulation: Modulation::Qpsk,
        duty: 1.0,
        threads: 2,
        time: TIME,
        rounds: 1,
    })
    .unwrap();
    assert!(row.wall.median > 0.0 && row.core.median > 0.0);
    // 24 480 bits of payload in 48 360 samples.
    let share = row.goodput / (row.symbols * 3.0);
    assert!((share - 24_480.0 / 48_360.0).abs() < 1e-9, "{share}");
}

#[test]
fn frames_go_round_by_every_kind_of_queue() {
    let transfers = [
        Transfer::InPlace,
        Transfer::Copying,
        Transfer::Marked,
        Transfer::MarkedCopying,
    ];
    for (transfer, telemetry) in transfers.into_iter().zip([false, true, false, true]) {
        let row = measure_loop(&LoopBench {
            modulation: Modulation::Bpsk,
            duty: 1.0,
            block: 1000,
            transfer,
            rate: None,
            config: config(1),
            time: TIME,
            telemetry,
        })
        .unwrap();
        assert!(row.sent > 0, "{row:?}");
        assert_eq!((row.lost, row.delivered), (0, row.sent));
        assert_eq!(row.threads.len(), 4);
        for thread in &row.threads[..3] {
            assert_eq!(thread.phases.is_some(), telemetry);
            let phases = thread.phases.unwrap_or_default();
            let all = phases.wait_in + phases.compute + phases.wait_out + phases.write;
            assert!(all <= 1.001, "{thread:?}");
        }
    }
}

#[test]
fn a_converter_keeps_its_rate() {
    let row = measure_loop(&LoopBench {
        modulation: Modulation::Qam16,
        duty: 0.5,
        block: 120,
        transfer: Transfer::InPlace,
        rate: Some(2e6),
        config: config(0),
        time: Duration::from_millis(49),
        telemetry: false,
    })
    .unwrap();
    // One frame, its pause and the tail take 50 ms at this rate.
    assert!(row.rate <= 2.01e6 && row.lost == 0, "{row:?}");
}

#[test]
fn latency_is_that_of_every_frame() {
    let row = measure_latency(&LatencyBench {
        modulation: Modulation::Qam16,
        rate: 20e6,
        block: 1024,
        config: config(0),
        time: Duration::from_millis(40),
    })
    .unwrap();
    // Passes of 16 frames, of which one takes 39 ms at this rate.
    assert!(row.frames >= 16 && row.frames.is_multiple_of(16), "{row:?}");
    assert_eq!(row.lost, 0);
    // A receiver that looks past a frame's last symbol cannot be done with it earlier.
    assert!(0.0 < row.least && row.least <= row.median && row.median <= row.most);
    assert!(row.without_cpu >= 0.0, "{row:?}");
}

#[test]
fn rates_that_take_longer_than_a_run_may_are_refused_with_the_least() {
    let config = config(0);
    let bench = LatencyBench {
        modulation: Modulation::Qpsk,
        rate: 1.0,
        block: 120,
        config: config.clone(),
        time: TIME,
    };
    let error = measure_latency(&bench).unwrap_err().to_string();
    assert!(error.starts_with("--rate 1: "), "{error}");
    let loops = |rate, block| {
        let bench = LoopBench {
            modulation: Modulation::Qpsk,
            duty: 1.0,
            block,
            transfer: Transfer::InPlace,
            rate: Some(rate),
            config: config.clone(),
            time: TIME,
            telemetry: false,
        };
        measure_loop(&bench).map_err(|error| error.to_string())
    };
    // A frame, of 48 360 samples, or 120 blocks that are more.
    let error = loops(2_417_999.0, 120).unwrap_err();
    assert!(
        error.ends_with("--seconds 0.02; try 2418000, or longer --seconds"),
        "{error}"
    );
    assert!(loops(2_418_000.0, 120).unwrap().sent > 0);
    let error = loops(2_418_000.0, 1000).unwrap_err();
    assert!(
        error.ends_with("try 6000000, or longer --seconds"),
        "{error}"
    );
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let bench = LoopBench {
        modulation: Modulation::Bpsk,
        duty: 0.0,
        block: 1000,
        transfer: Transfer::InPlace,
        rate: None,
        config: config(0),
        time: TIME,
        telemetry: false,
    };
    let error = measure_loop(&bench).unwrap_err().to_string();
    assert!(error.contains("--duty"), "{error}");
    let taps = RxConfig {
        taps: 7,
        ..config(0)
    };
    let bench = LoopBench {
        duty: 1.0,
        config: taps,
        ..bench
    };
    assert!(measure_loop(&bench).is_err());
}
