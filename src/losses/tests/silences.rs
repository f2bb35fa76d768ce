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
