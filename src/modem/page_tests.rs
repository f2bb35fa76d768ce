use super::*;
use crate::modem::watch::LastFrame;
use crate::report::modem::InputMeter;
use karoo_modem::formats::FullScale;
use karoo_modem::rx::Correction;
use karoo_modem::vita::StreamCounts;
use num_complex::{Complex32, Complex64};
use std::time::Duration;

/// The page's document and the metrics of what a watcher saw.
fn told(watcher: &Watcher) -> (String, String) {
    let mut page = ModemPage::new("rx", watcher);
    page.note();
    let document = page.document();
    let metrics = ModemMetrics {
        shared: watcher.shared.clone(),
        started: SystemTime::UNIX_EPOCH,
    };
    let document = serde_json::to_string(&document).unwrap();
    (document, metrics.scrape().unwrap())
}

/// The page and the metrics of a receiver of these samples.
fn shown(samples: &[Complex32], full_scale: Option<FullScale>) -> (String, String) {
    let mut watcher = Watcher::new(0);
    let counts = Counts {
        delivered: 7,
        ..Counts::default()
    };
    watcher.counts(counts, 0, None, None);
    let mut meter = InputMeter::new(full_scale);
    meter.take(samples);
    let begun = Instant::now();
    watcher.level(&meter, begun);
    // Not yet a second later.
    meter.take(&[Complex32::ZERO; 100_000]);
    watcher.level(&meter, begun + Duration::from_millis(500));
    told(&watcher)
}

#[test]
fn rates_do_not_depend_on_a_clock_that_is_set() {
    let watcher = Watcher::new(0);
    for time in [0.0, 1e9] {
        let mut page = ModemPage::new("rx", &watcher);
        watcher.counts(Counts::default(), 0, None, None);
        page.note_at(1.0, 1000.0);
        let counts = Counts {
            delivered: 7,
            check: 1,
            not_acquired: 90,
            ..Counts::default()
        };
        watcher.counts(counts, 0, None, None);
        page.note_at(3.0, time);
        assert_eq!(page.rate, 4.0);
    }
}

#[test]
fn what_became_of_packets_and_the_newest_frame_are_metrics() {
    let watcher = Watcher::new(0);
    let (page, metrics) = told(&watcher);
    assert!(!metrics.contains("modem_gaps"), "{metrics}");
    assert!(!metrics.contains("modem_frame_"), "{metrics}");
    assert!(!metrics.contains("modem_missing_frames"), "{metrics}");
    assert!(!page.contains("missing by number"), "{page}");
    let stream = StreamCounts {
        packets: 1000,
        contexts: 10,
        lost_samples: 720,
        gaps: 2,
        out_of_sequence: 3,
        late: 4,
        restarts: 5,
        other_streams: 6,
        without_rate: 7,
        refused: 8,
        contexts_refused: 9,
        ..StreamCounts::default()
    };
    let packets = IntakeCounts {
        stream,
        port_missed: Some(11),
        ..IntakeCounts::default()
    };
    let counts = Counts {
        bad_samples: 12,
        equaliser: 13,
        ..Counts::default()
    };
    watcher.missing(Some(14));
    watcher.counts(counts, 0, Some(packets), Some(2e6));
    watcher.shared.seen().last = Some(LastFrame {
        evm: 0.125,
        snr_db: 20.5,
        frequency: 1e-3,
        clock_ppm: -3.5,
    });
    let (page, metrics) = told(&watcher);
    for line in [
        "modem_packets_total 1000\n",
        "modem_context_packets_total 10\n",
        "modem_lost_samples_total 720\n",
        "modem_gaps_total 2\n",
        "modem_out_of_sequence_packets_total 3\n",
        "modem_stream_restarts_total 5\n",
        "modem_packets_left_out_total{cause=\"late\"} 4\n",
        "modem_packets_left_out_total{cause=\"other-stream\"} 6\n",
        "modem_packets_left_out_total{cause=\"without-rate\"} 7\n",
        "modem_packets_left_out_total{cause=\"refused\"} 8\n",
        "modem_packets_left_out_total{cause=\"context-refused\"} 9\n",
        "modem_packets_left_out_total{cause=\"no-room\"} 11\n",
        "modem_bad_samples_total 12\n",
        "modem_frames_total{outcome=\"equaliser\"} 13\n",
        "modem_missing_frames_total 14\n",
        "modem_frame_snr_db 20.5\n",
        "modem_frame_evm 0.125\n",
        "modem_frame_carrier_hz 2000\n",
        "modem_frame_clock_ppm -3.5\n",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    assert!(page.contains("[\"missing by number\",\"14\"]"), "{page}");
    assert!(page.contains("packets left out\",\"value\":45.0"), "{page}");
}

#[test]
fn what_is_taken_off_is_shown_where_it_is_asked_for() {
    let watcher = Watcher::new(0);
    let (page, metrics) = told(&watcher);
    assert!(!page.contains("DC of I"), "{page}");
    assert!(!metrics.contains("modem_input_dc"), "{metrics}");
    let dc = Complex64::new(0.5, -0.25);
    let image = Complex64::new(-0.1, 0.0);
    watcher.correction(Some(Correction { dc, image }));
    let (page, metrics) = told(&watcher);
    for figure in [
        "DC of I\",\"value\":0.5",
        "DC of Q\",\"value\":-0.25",
        "IQ gain\",\"value\":1.74",
        "IQ phase\",\"value\":0.0",
        "image\",\"value\":-20.0",
    ] {
        assert!(page.contains(figure), "{figure}: {page}");
    }
    for line in [
        "modem_input_dc{part=\"i\"} 0.5\n",
        "modem_input_dc{part=\"q\"} -0.25\n",
        "modem_input_iq_gain_db 1.74",
        "modem_input_iq_phase_degrees 0\n",
        "modem_input_image_db -20\n",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    // No image that is believed.
    let image = Complex64::default();
    watcher.correction(Some(Correction { dc, image }));
    let (page, metrics) = told(&watcher);
    assert!(page.contains("image\",\"value\":null"), "{page}");
    assert!(metrics.contains("modem_input_image_db NaN"), "{metrics}");
}

#[test]
fn the_level_is_shown_and_clipping_is_warned_of() {
    let loud = vec![Complex32::new(1.0, 0.25); 2000];
    let (page, metrics) = shown(&loud, FullScale::new(1.0).ok());
    assert!(
        page.contains("50 % of the parts are at full scale"),
        "{page}"
    );
    assert!(page.contains("dBFS") && page.contains("at full scale\",\"value\":50.0"));
    for line in [
        "modem_input_clipped_parts_total 2000",
        "modem_input_power_db{to=\"full-scale\"} 0.26",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    let (page, metrics) = shown(&loud, None);
    assert!(
        page.contains("all of 7 frames of the last 10 s delivered"),
        "{page}"
    );
    assert!(!metrics.contains("modem_input_clipped"), "{metrics}");
    assert!(
        metrics.contains("modem_input_power_db{to=\"1\"} 0.26"),
        "{metrics}"
    );
}
