//! What alerts are about beside the losses of [`super::losses`]: made for real, seen in metrics.

use super::chain::request;
use super::losses::side_by_side;
use super::rig::{KATCP, METRICS, get};
use super::telescope::{SPARE, Telescope, active};

#[test]
fn faults_of_output_and_doubled_input_are_seen_in_metrics() {
    side_by_side(&[
        ("twice", heaps_that_come_twice),
        ("pattern", known_values_in_place_of_spectra),
        ("gains", gains_of_zero),
        ("delays", delays_that_jump),
    ]);
}

fn heaps_that_come_twice(name: &str) {
    let Some(mut telescope) = Telescope::start(name, 0.0, &SPARE, &[]) else {
        return;
    };
    telescope.send_for(3.0);
    telescope.digitiser.twice = true;
    telescope.send_until_said("duplicate", &[]);
    telescope.digitiser.twice = false;
    telescope.send_until_over(&["duplicate"]);
    let namespace = telescope.namespace();
    telescope.send_until(|_| active(&namespace).is_empty());
    telescope.end();
}

fn known_values_in_place_of_spectra(name: &str) {
    let Some(mut telescope) = Telescope::start(name, 0.0, &SPARE, &[]) else {
        return;
    };
    telescope.send_for(3.0);
    let namespace = telescope.namespace();
    let is = |value: &str| {
        let line = format!("karoo_output_test_pattern{{stream=\"w\"}} {value}");
        get(&namespace, METRICS, "/metrics").contains(&line)
    };
    assert!(is("0"));
    let reply = request(&namespace, KATCP, "?karoo-test w ramp 60");
    assert!(reply.starts_with("!karoo-test ok"), "{reply}");
    telescope.send_until(|_| is("1"));
    let said = ["ramp as w", "`?karoo-test w off`"];
    telescope.send_until_said("test-pattern", &said);
    telescope.send_for(3.0);
    let reply = request(&namespace, KATCP, "?karoo-test w off");
    assert!(reply.starts_with("!karoo-test ok"), "{reply}");
    telescope.send_until_over(&["test-pattern"]);
    telescope.send_until(|_| is("0") && active(&namespace).is_empty());
    telescope.end();
}

/// Everything comes and is sent, and nothing is in it.
fn gains_of_zero(name: &str) {
    let Some(mut telescope) = Telescope::start(name, 0.0, &SPARE, &[]) else {
        return;
    };
    telescope.send_for(3.0);
    let namespace = telescope.namespace();
    let reply = request(&namespace, KATCP, "?gain-all w 0");
    assert!(reply.starts_with("!gain-all ok"), "{reply}");
    let said = [
        "w: polarisation 0 has no power, polarisation 1 has no power",
        "`?gain-all w default`",
    ];
    telescope.send_until_said("output-level", &said);
    telescope.send_for(3.0);
    let reply = request(&namespace, KATCP, "?gain-all w default");
    assert!(reply.starts_with("!gain-all ok"), "{reply}");
    telescope.send_until_over(&["output-level"]);
    telescope.send_until(|_| active(&namespace).is_empty());
    let log = telescope.end();
    assert!(
        log.contains("gain 0: all that is sent will be zero"),
        "{log}"
    );
}

/// By more than `--max-delay-diff`, so that input is gone when it is its turn.
fn delays_that_jump(name: &str) {
    let Some(mut telescope) = Telescope::start(name, 0.0, &SPARE, &[]) else {
        return;
    };
    telescope.send_for(3.0);
    let namespace = telescope.namespace();
    // Of 40 000 samples, and back: more than two chunks, wherever in its chunk a request comes.
    let from = telescope.digitiser.sync_time();
    for delay in ["0.2", "0", "0.2", "0", "0.2", "0", "0.2", "0"] {
        let line = format!("?delays w {from} {delay},0:0,0 {delay},0:0,0");
        let reply = request(&namespace, KATCP, &line);
        assert!(reply.starts_with("!delays ok"), "{reply}");
        telescope.send_for(1.0);
    }
    telescope.send_until_over(&["not-sent"]);
    let log = telescope.end();
    assert!(log.contains("delays that jump"), "{log}");
    assert!(!log.contains("missing-heaps"), "{log}");
}
