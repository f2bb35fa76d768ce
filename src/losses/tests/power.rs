//! Levels out of range, and known values in place of spectra.

use ground::Timestamp;

use super::*;
use crate::engine::TestPattern;

/// A level in the middle of the range.
const GOOD: f64 = -20.0;

/// A second that is whole, with these levels of the input.
fn input(dbfs: Option<[f64; 2]>) -> impl FnMut(&mut LossCounts) {
    move |counts| {
        whole(counts);
        counts.input_dbfs = dbfs;
    }
}

/// A second that is whole, with this level of the input, and of an output below `least` counts
/// which has new statistics.
fn output(dbfs: f64, rms: [f64; 2], least: f64) -> impl FnMut(&mut LossCounts) {
    move |counts| {
        input(Some([dbfs; 2]))(counts);
        counts.outputs[0].level = Some(StreamLevel {
            start: Timestamp(counts.newest.unwrap().saturating_sub(RATE as u64)),
            rms,
            least,
            good: 12.3,
        });
    }
}

#[test]
fn a_polarisation_of_zeros_is_said_after_ten_seconds() {
    let mut engine = Engine::at_work();
    let mut said = engine.run(30, input(Some([GOOD; 2])));
    said.extend(engine.run(9, input(Some([GOOD, f64::MIN]))));
    assert_eq!(said, []);
    assert_eq!(
        engine.watch.status(),
        "Running: 500 heaps/s in, none lost, 500 heaps/s out"
    );
    said.extend(engine.run(6, input(Some([GOOD, f64::MIN]))));
    assert_eq!(
        engine.watch.status(),
        "Running: 500 heaps/s in, none lost, 500 heaps/s out, input-level"
    );
    said.extend(engine.run(1, input(Some([GOOD; 2]))));
    // Its end is said ten seconds after its begin.
    let what = shown(&engine, Cause::InputLevel);
    assert!(
        what.starts_with("all samples of polarisation 1 are 0"),
        "{what}"
    );
    said.extend(engine.run(20, input(Some([GOOD; 2]))));
    let cause = Cause::InputLevel;
    assert_eq!(
        stages(&said, cause),
        [(60, LossStage::Begins, 0), (70, LossStage::Ends, 0)]
    );
    assert_eq!(
        text(&said, cause, LossStage::Begins),
        "all samples of polarisation 1 are 0: input-level, -33 to -7 dBFS is good: is what is in front of the digitiser off, or \
         not connected?"
    );
    assert_eq!(
        text(&said, cause, LossStage::Ends),
        "input-level is over: the digitiser's level is good again, after 15.0 s"
    );
    assert_eq!(said.len(), 2, "{said:?}");
}

#[test]
fn levels_out_of_range_name_the_way_back() {
    for (dbfs, what) in [
        (-33.0, None),
        (-33.1, Some("polarisation 0 is at -33.1 dBFS: input-level")),
        (-7.0, None),
        (-6.9, Some("polarisation 0 is at -6.9 dBFS: input-level")),
    ] {
        let mut engine = Engine::at_work();
        let said = engine.run(12, input(Some([dbfs, GOOD])));
        assert_eq!(!said.is_empty(), what.is_some(), "{said:?}");
        if let Some(what) = what {
            let begins = text(&said, Cause::InputLevel, LossStage::Begins);
            let mends = if dbfs > GOOD {
                ": lower the"
            } else {
                ": raise the"
            };
            assert!(
                begins.starts_with(what) && begins.contains(mends),
                "{begins}"
            );
        }
    }
}

/// Attenuators that are set, and levels that are not known: none of them is a level out of range.
#[test]
fn a_level_that_is_out_of_range_for_a_moment_or_not_known_is_not_said() {
    let mut engine = Engine::at_work();
    for _ in 0..10 {
        assert_eq!(engine.run(9, input(Some([-50.0, f64::MIN]))), []);
        assert_eq!(engine.run(1, input(Some([GOOD; 2]))), []);
    }
    assert_eq!(engine.run(60, input(None)), []);
    // Single seconds before and behind a time in which nothing is known.
    assert_eq!(engine.run(2, output(-50.0, [0.0; 2], 0.5)), []);
    assert_eq!(engine.run(60, input(None)), []);
    assert_eq!(engine.run(1, output(-50.0, [0.0; 2], 0.5)), []);
    assert_eq!(engine.run(2, output(GOOD, [0.0; 2], 0.5)), []);
    assert_eq!(engine.run(60, input(None)), []);
    assert_eq!(engine.run(1, output(GOOD, [0.0; 2], 0.5)), []);
    assert_eq!(engine.run(1, output(GOOD, [10.0; 2], 0.5)), []);
    // What goes on while nothing is known is as it was.
    let mut said = engine.run(12, input(Some([-50.0; 2])));
    said.extend(engine.run(5, input(None)));
    assert_eq!(stages(&said, Cause::InputLevel).len(), 1, "{said:?}");
    assert!(shown(&engine, Cause::InputLevel).starts_with("polarisation 0 is at -50.0 dBFS"));
}

/// Noise beyond -7 dBFS clips.
#[test]
fn an_input_that_clips_is_not_said_to_be_too_strong_as_well() {
    let mut engine = Engine::at_work();
    let said = engine.run(60, |counts| {
        input(Some([-3.0; 2]))(counts);
        counts.clipped[0] += 100_000;
    });
    assert!(!stages(&said, Cause::InputClipping).is_empty());
    assert_eq!(stages(&said, Cause::InputLevel), []);
}

#[test]
fn an_output_of_gain_0_is_said_after_ten_seconds() {
    let mut engine = Engine::at_work();
    let mut said = engine.run(20, output(GOOD, [10.0, 0.5], 0.5));
    assert_eq!(said, []);
    said.extend(engine.run(15, output(GOOD, [0.0, 0.43], 0.5)));
    said.extend(engine.run(20, output(GOOD, [10.0; 2], 0.5)));
    let cause = Cause::OutputLevel;
    assert_eq!(
        stages(&said, cause),
        [(50, LossStage::Begins, 0), (60, LossStage::Ends, 0)]
    );
    assert_eq!(
        text(&said, cause, LossStage::Begins),
        "w: polarisation 0 has no power, polarisation 1 has 0.43 counts rms, where 12.3 is good: output-level, little else than \
         zeros is sent: raise the gains, with `?karoo-auto-gain w`, `?gain-all w default`, `?gain` or `--gain`"
    );
    assert_eq!(said.len(), 2, "{said:?}");
}

#[test]
fn gains_are_not_blamed_for_what_is_not_theirs() {
    // The input is weak, or strong: that is said instead.
    for dbfs in [f64::MIN, -34.0, -6.0] {
        let mut engine = Engine::at_work();
        let said = engine.run(30, output(dbfs, [0.0; 2], 0.5));
        assert_eq!(lines(&said, Cause::InputLevel).len(), 2, "{said:?}");
        assert_eq!(stages(&said, Cause::OutputLevel), []);
    }
    // An empty band.
    let mut engine = Engine::at_work();
    assert_eq!(engine.run(60, output(GOOD, [0.03, 0.001], 1e-4)), []);
    // Statistics that no others have followed: they may be those of another input.
    let mut engine = Engine::at_work();
    let mut first = None;
    let said = engine.run(60, |counts| {
        output(GOOD, [0.0; 2], 0.5)(counts);
        let level = counts.outputs[0].level;
        counts.outputs[0].level = *first.get_or_insert(level);
    });
    assert_eq!(said, []);
    // None at all.
    let mut engine = Engine::at_work();
    assert_eq!(engine.run(60, input(Some([GOOD; 2]))), []);
}

/// Its begin and its end are known, so that nothing waits for them.
#[test]
fn known_values_in_place_of_spectra_are_said_at_once() {
    let mut engine = Engine::at_work();
    let mut said = engine.run(12, |counts| {
        whole(counts);
        counts.outputs[0].test = Some(TestPattern::Ramp);
    });
    let what = "known values are sent in place of spectra, ramp as w: test-pattern";
    assert_eq!(shown(&engine, Cause::TestPattern), what);
    said.extend(engine.run(20, |counts| {
        whole(counts);
        counts.outputs[0].test = None;
    }));
    let cause = Cause::TestPattern;
    let stages = lines(&said, cause);
    assert_eq!(stages.first(), Some(&(21, LossStage::Begins)));
    assert_eq!(stages.last().unwrap().1, LossStage::Ends);
    let begins = text(&said, cause, LossStage::Begins);
    assert_eq!(
        begins,
        format!("{what}: `?karoo-test w off` ends that, as the end of its time does")
    );
    assert_eq!(Cause::TestPattern.severity(), Severity::Warning);
}
