//! Input that stops, and comes back.

use super::*;

#[test]
fn input_that_stops_and_comes_back_is_said_once_each() {
    let mut engine = Engine::at_work();
    let mut said = engine.run(4, |_| ());
    assert_eq!(
        engine.watch.status(),
        "Running: no heaps in for 4.0 s (no-input), 100 heaps/s out"
    );
    // What came before, and what never came, is counted with the first chunk.
    said.extend(engine.run(1, |counts| {
        whole(counts);
        counts.missing = [1000, 1000];
    }));
    said.extend(engine.run(30, whole));
    assert_eq!(
        stages(&said, Cause::NoInput),
        [(22, LossStage::Begins, 0), (32, LossStage::Ends, 0)]
    );
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(
        text(&said, Cause::NoInput, LossStage::Begins)
            .starts_with("no heap comes, since 2.0 s: no-input"),
        "{said:?}"
    );
    assert!(
        text(&said, Cause::NoInput, LossStage::Ends).contains("after 4.0 s without"),
        "{said:?}"
    );
}

/// What the log says of a silence lasts longer than the silence, so that lines stay few. The status
/// does not.
#[test]
fn the_status_is_of_this_moment_when_heaps_come_again() {
    let mut engine = Engine::at_work();
    engine.run(4, |_| {});
    assert!(engine.watch.status().contains("no heaps in for 4.0 s"));
    engine.run(1, whole);
    let status = engine.watch.status();
    assert!(!status.contains("no-input"), "{status}");
}

#[test]
fn a_digitiser_that_comes_and_goes_is_told_with_the_silence_of_this_moment() {
    let mut engine = Engine::at_work();
    let mut said = Vec::new();
    for _ in 0..5 {
        said.extend(engine.run(4, |_| {}));
        said.extend(engine.run(4, whole));
        assert!(!engine.watch.status().contains("no-input"));
    }
    said.extend(engine.run(200, whole));
    let silences = said
        .iter()
        .filter(|(_, event)| event.cause == Cause::NoInput && event.stage != LossStage::Ends);
    for (second, event) in silences {
        let known = ["since 2.0 s", "since 3.0 s", "since 4.0 s", "come and go"];
        let right = known.iter().any(|words| event.text.contains(words));
        assert!(right, "{second}: {}", event.text);
    }
    let end = text(&said, Cause::NoInput, LossStage::Ends);
    assert!(end.contains("after 3 silences in 20.0 s"), "{end}");
}

/// While nothing that is a heap comes, the chunks of nothing are not whole either.
#[test]
fn missing_heaps_are_not_over_because_none_come() {
    let mut engine = Engine::at_work();
    let half = |counts: &mut LossCounts| {
        heaps(counts, [HEAPS / 2; 2]);
        counts.missing = counts.missing.map(|missing| missing + HEAPS / 2);
        counts.outputs[0].sent += 500;
    };
    let mut said = engine.run(15, half);
    said.extend(engine.run(4, |_| {}));
    said.extend(engine.run(2, half));
    let over = stages(&said, Cause::MissingHeaps);
    assert!(
        over.iter().all(|(_, stage, _)| *stage != LossStage::Ends),
        "{over:?}"
    );
}

/// Heaps that come and are dropped are no silence: it begins behind them.
#[test]
fn a_silence_is_counted_from_the_last_heap_that_came_though_it_was_dropped() {
    let mut engine = Engine::at_work();
    let late = || dropped(DropCause::TooOld, HEAPS);
    let mut said = engine.run(7, late());
    said.extend(engine.run(18, |_| ()));
    let begins = text(&said, Cause::NoInput, LossStage::Begins);
    assert!(
        begins.starts_with("no heap comes, since 2.0 s: no-input"),
        "{begins}"
    );
    assert_eq!(
        engine.watch.status(),
        "Running: no heaps in for 18.0 s (no-input), 0 heaps/s out"
    );
    said.extend(engine.run(12, whole));
    assert_eq!(
        text(&said, Cause::NoInput, LossStage::Ends),
        "no-input is over: heaps come again, after 18.0 s without"
    );
}

#[test]
fn a_silence_between_heaps_that_are_dropped_is_one_of_its_own() {
    let mut engine = Engine::at_work();
    let late = || dropped(DropCause::TooOld, HEAPS);
    let mut said = engine.run(4, |_| ());
    said.extend(engine.run(3, late()));
    let status = engine.watch.status();
    assert!(status.contains("100.0 % lost (too-old)"), "{status}");
    said.extend(engine.run(5, |_| ()));
    assert!(
        shown(&engine, Cause::NoInput).starts_with("no heap comes, since 5.0 s: no-input"),
        "{}",
        shown(&engine, Cause::NoInput)
    );
    said.extend(engine.run(40, whole));
    assert_eq!(
        text(&said, Cause::NoInput, LossStage::Ends),
        "no-input is over: heaps come again, after 2 silences in 12.0 s"
    );
}

/// What is shown when both come again, or none does, is what was, and of the same polarisation.
#[test]
fn the_polarisation_that_was_absent_is_named_when_both_come_and_when_none_does() {
    let mut engine = Engine::at_work();
    let one = |counts: &mut LossCounts| {
        heaps(counts, [0, HEAPS]);
        counts.missing[0] += HEAPS;
    };
    let cause = Cause::OnePolarisation;
    let said = engine.run(5, one);
    let begins = text(&said, cause, LossStage::Begins);
    let known = "no heap of polarisation 0 comes, since 2.0 s: one-polarisation, the other comes";
    assert!(begins.starts_with(known), "{begins}");
    let was = "no heap of polarisation 0 came for 5.0 s: one-polarisation, the other came";
    engine.run(3, whole);
    assert_eq!(shown(&engine, cause), was);
    engine.run(60, whole);
    engine.run(5, one);
    engine.run(4, |_| ());
    assert_eq!(shown(&engine, cause), was);
    let none = shown(&engine, Cause::NoInput);
    assert!(none.starts_with("no heap comes, since 4.0 s"), "{none}");
}
