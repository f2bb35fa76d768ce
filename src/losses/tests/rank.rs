//! Which cause comes first, and what other causes do not explain.

use super::*;

/// Causes at work, the top cause first.
fn order(engine: &Engine) -> Vec<Cause> {
    engine.watch.active().map(|(cause, ..)| cause).collect()
}

/// So many heaps of each polarisation are missing in a second.
fn lossy(missing: u64) -> impl FnMut(&mut LossCounts) {
    move |counts| {
        heaps(counts, [HEAPS - missing; 2]);
        counts.missing = counts.missing.map(|all| all + missing);
    }
}

const TOO_OLD: Cause = Cause::Dropped(DropCause::TooOld);
const NO_FREE_CHUNK: Cause = Cause::Dropped(DropCause::NoFreeChunk);

/// One heap in twenty does not come, and now and then one comes too late.
#[test]
fn a_trifle_is_not_told_before_what_loses_most() {
    let mut engine = Engine::at_work();
    engine.run(20, |counts| {
        lossy(13)(counts);
        dropped(DropCause::TooOld, 1)(counts);
        counts.outputs[0].sent += 400;
        counts.outputs[0].not_sent += 100;
    });
    let expected = [Cause::MissingHeaps, TOO_OLD, Cause::NotSent];
    assert_eq!(order(&engine), expected);
    assert_eq!(
        engine.watch.status(),
        "Running: 474 heaps/s in, 5.2 % lost (missing-heaps), 400 heaps/s out, 20.0 % not sent"
    );
    // Those missing until two seconds ago, but for the late ones.
    let unexplained = engine.watch.unexplained();
    assert_eq!(
        (unexplained.missing, unexplained.not_sent),
        (18 * 26 - 20, 0)
    );
}

#[test]
fn a_loss_that_is_over_is_told_behind_one_that_goes_on() {
    let mut engine = Engine::at_work();
    engine.run(3, |counts| {
        lossy(50)(counts);
        dropped(DropCause::NoFreeChunk, 100)(counts);
    });
    assert_eq!(order(&engine)[0], NO_FREE_CHUNK);
    engine.run(3, lossy(5));
    assert_eq!(order(&engine), [Cause::MissingHeaps, NO_FREE_CHUNK]);
    let status = engine.watch.status();
    assert!(status.contains("(missing-heaps)"), "{status}");
    let over = shown(&engine, NO_FREE_CHUNK);
    let known = "300 datagrams were not placed in 3.0 s, none for 3.0 s: no-free-chunk";
    assert!(over.starts_with(known), "{over}");
}

#[test]
fn what_explains_others_is_told_before_them() {
    let mut engine = Engine::at_work();
    engine.counts.links = vec![("k1".to_owned(), true, 0)];
    engine.run(5, |counts| {
        lossy(50)(counts);
        dropped(DropCause::NoFreeChunk, 100)(counts);
        counts.outputs[0].not_sent += 500;
        counts.links[0].1 = false;
    });
    let expected = [
        Cause::LinkDown,
        NO_FREE_CHUNK,
        Cause::MissingHeaps,
        Cause::NotSent,
    ];
    assert_eq!(order(&engine), expected);
    assert_eq!(engine.watch.unexplained(), UnexplainedCounts::default());
}

#[test]
fn losses_are_told_before_warnings() {
    let mut engine = Engine::at_work();
    engine.run(5, |counts| {
        lossy(1)(counts);
        dropped(DropCause::Duplicate, 400)(counts);
    });
    let duplicates = Cause::Dropped(DropCause::Duplicate);
    assert_eq!(order(&engine), [Cause::MissingHeaps, duplicates]);
}

/// A late heap every ten seconds spoils a batch or two, and delays that jump spoil many.
#[test]
fn output_is_not_blamed_on_input_that_came() {
    let mut engine = Engine::at_work();
    let mut second = 0;
    engine.run(21, |counts| {
        let late = u64::from(second % 10 == 0);
        second += 1;
        heaps(counts, [HEAPS - late, HEAPS]);
        counts.missing[0] += late;
        dropped(DropCause::TooOld, late)(counts);
        counts.outputs[0].sent += 200;
        counts.outputs[0].not_sent += 300;
    });
    assert_eq!(order(&engine)[0], Cause::NotSent);
    let not_sent = shown(&engine, Cause::NotSent);
    let known = "the input of most of them came, and is gone when it is their turn";
    assert!(not_sent.ends_with(known), "{not_sent}");
    let unexplained = engine.watch.unexplained();
    assert_eq!(unexplained.missing, 0);
    // But for a batch or two for each of three late heaps.
    assert_eq!(unexplained.not_sent, 19 * 300 - 3 * 8);
}

/// What is missing in a gap is counted at its end, however long it was.
#[test]
fn a_long_gap_is_explained_by_what_was_dropped_in_it() {
    let mut engine = Engine::at_work();
    engine.run(90, dropped(DropCause::WrongHeapLength, 2 * HEAPS));
    engine.run(1, |counts| {
        whole(counts);
        counts.missing = counts.missing.map(|missing| missing + 90 * HEAPS);
    });
    engine.run(5, whole);
    assert_eq!(engine.watch.unexplained(), UnexplainedCounts::default());
}
