//! Gains that bring channels to a level.

use std::sync::Arc;

use super::*;
use crate::engine::{ChannelSums, OutputStatistics};

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
