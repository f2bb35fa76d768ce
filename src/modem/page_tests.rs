use super::*;
use crate::report::modem::InputMeter;
use karoo_modem::formats::FullScale;
use karoo_modem::rx::Correction;
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
