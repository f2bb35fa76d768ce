//! Datagrams that come and are not placed.

use super::*;

#[test]
fn a_single_datagram_is_counted_rather_than_given_a_rate() {
    let mut engine = Engine::at_work();
    let cause = Cause::Dropped(DropCause::BadChecksum);
    let mut said = engine.run(1, |counts| {
        whole(counts);
        dropped(DropCause::BadChecksum, 1)(counts);
    });
    said.extend(engine.run(30, whole));
    assert_eq!(
        stages(&said, cause),
        [(22, LossStage::Begins, 1), (32, LossStage::Ends, 1)]
    );
    let begins = text(&said, cause, LossStage::Begins);
    assert!(
        begins.starts_with("1 datagram not placed: bad-checksum"),
        "{begins}"
    );
}

#[test]
fn heaps_of_another_length_name_the_option_that_expects_them() {
    for (bytes, option) in [
        (
            4096,
            "4096 bytes where 5120 are expected: `--dig-sample-bits 8`?",
        ),
        (
            6144,
            "6144 bytes where 5120 are expected: `--dig-sample-bits 12`?",
        ),
        (
            2560,
            "2560 bytes where 5120 are expected: `--recv-packet-samples 2048` or `--dig-sample-bits 5`?",
        ),
        (10240, "`--recv-packet-samples 8192`?"),
        (4097, "`--dig-sample-bits`, or `--recv-packet-samples`?"),
    ] {
        let mut engine = Engine::new();
        let said = engine.run(10, |counts| {
            dropped(DropCause::WrongHeapLength, 502)(counts);
            counts.metadata += 2;
            counts.last.heap_length = Some(bytes);
        });
        // That nothing is placed needs no line of its own.
        let cause = Cause::Dropped(DropCause::WrongHeapLength);
        assert_eq!(stages(&said, cause), [(2, LossStage::Begins, 1000)]);
        assert_eq!(said.len(), 1, "{said:?}");
        let begins = text(&said, cause, LossStage::Begins);
        assert!(
            begins.starts_with("500 datagrams/s not placed: wrong-heap-length, heaps have"),
            "{begins}"
        );
        assert!(begins.contains(option), "{begins}");
        assert_eq!(
            engine.watch.status(),
            "Running: 0 heaps/s in, 100.0 % lost (wrong-heap-length), 0 heaps/s out"
        );
    }
}

#[test]
fn timestamps_that_are_no_multiples_and_heaps_that_are_late_are_shown() {
    let mut engine = Engine::at_work();
    let said = engine.run(3, |counts| {
        whole(counts);
        dropped(DropCause::BadTimestamp, 1)(counts);
        counts.last.timestamp = Some(4097);
        dropped(DropCause::TooOld, 1)(counts);
        counts.last.behind = Some(10 * RATE as u64);
    });
    let bad = text(
        &said,
        Cause::Dropped(DropCause::BadTimestamp),
        LossStage::Begins,
    );
    assert!(
        bad.contains("such as 4097")
            && bad.contains("4096 samples")
            && bad.contains("`--mask-timestamp`"),
        "{bad}"
    );
    let old = text(&said, Cause::Dropped(DropCause::TooOld), LossStage::Begins);
    assert!(
        old.contains("10.0 s behind the newest") && old.contains("`--sync-time`"),
        "{old}"
    );
}

#[test]
fn without_a_free_chunk_the_slow_part_is_named() {
    for (free, named) in [
        (2, "`--backend cuda`"),
        (0, "chunks of w wait to be sent: `--send-rate-factor`"),
    ] {
        let mut engine = Engine::at_work();
        let said = engine.run(3, |counts| {
            heaps(counts, [200; 2]);
            dropped(DropCause::NoFreeChunk, 100)(counts);
            counts.missing = counts.missing.map(|missing| missing + 50);
            counts.outputs[0].free_chunks = free;
        });
        let cause = Cause::Dropped(DropCause::NoFreeChunk);
        let begins = text(&said, cause, LossStage::Begins);
        assert!(begins.contains(named), "{begins}");
        let missing = text(&said, Cause::MissingHeaps, LossStage::Begins);
        assert!(
            missing.contains("20.0 % of polarisation 0 and 20.0 % of 1: they came and were lost here: see no-free-chunk"),
            "{missing}"
        );
        let status = engine.watch.status();
        // Each heap once: two seconds of five were whole.
        assert!(status.contains("12.0 % lost (no-free-chunk)"), "{status}");
    }
}

/// Of what is missing, some was lost here, and more did not come.
#[test]
fn what_was_lost_here_is_told_from_what_did_not_come() {
    let mut engine = Engine::at_work();
    let said = engine.run(3, |counts| {
        heaps(counts, [HEAPS - 50; 2]);
        counts.missing = counts.missing.map(|missing| missing + 50);
        dropped(DropCause::NoFreeChunk, 30)(counts);
    });
    let missing = text(&said, Cause::MissingHeaps, LossStage::Begins);
    let here = "60 came and were lost here, the others did not reach this host's port: see no-free-chunk; for the others";
    assert!(missing.contains(here), "{missing}");
}

/// Batches whose input was dropped are not blamed on delays.
#[test]
fn delays_are_not_blamed_while_heaps_are_dropped() {
    let mut engine = Engine::at_work();
    let said = engine.run(3, |counts| {
        whole(counts);
        dropped(DropCause::NoFreeChunk, 30)(counts);
        counts.outputs[0].not_sent += 15;
    });
    let not_sent = text(&said, Cause::NotSent, LossStage::Begins);
    assert!(
        not_sent.ends_with("a part of their input is missing"),
        "{not_sent}"
    );
}

/// A loss that was over before its line was due is said as it was, not as it is by then.
#[test]
fn a_late_line_tells_what_was() {
    let mut engine = Engine::at_work();
    let lossy = |counts: &mut LossCounts| {
        whole(counts);
        dropped(DropCause::NoFreeChunk, 100)(counts);
    };
    let mut said = engine.run(2, lossy);
    said.extend(engine.run(12, whole));
    let full = |counts: &mut LossCounts| {
        lossy(counts);
        counts.outputs[0].free_chunks = 0;
    };
    // Again within ten seconds of the line that says that it is over.
    said.extend(engine.run(2, full));
    said.extend(engine.run(20, |counts| {
        whole(counts);
        counts.outputs[0].free_chunks = 2;
    }));
    let begins = |event: &&Said| event.1.stage == LossStage::Begins;
    let of = |event: &&Said| event.1.cause == Cause::Dropped(DropCause::NoFreeChunk);
    let texts: Vec<_> = said.iter().filter(of).filter(begins).collect();
    assert_eq!(texts.len(), 2, "{said:?}");
    assert!(
        texts[1]
            .1
            .text
            .contains("all output chunks of w wait to be sent"),
        "{texts:?}"
    );
}

/// What held up the engine when heaps were dropped, not what is so when the line is due.
#[test]
fn a_loss_for_want_of_chunks_keeps_its_cause_when_the_link_is_up_again() {
    let mut engine = Engine::at_work();
    engine.counts.links = vec![("k1".to_owned(), true, 0)];
    let second = |up: bool, free_chunks: usize, lost: u64| {
        move |counts: &mut LossCounts| {
            whole(counts);
            dropped(DropCause::NoFreeChunk, lost)(counts);
            counts.outputs[0].free_chunks = free_chunks;
            counts.links[0].1 = up;
        }
    };
    let mut said = engine.run(3, second(false, 0, 100));
    said.extend(engine.run(10, second(true, 2, 1)));
    let cause = Cause::Dropped(DropCause::NoFreeChunk);
    let begins = text(&said, cause, LossStage::Begins);
    let goes_on = text(&said, cause, LossStage::GoesOn);
    let known = "all output chunks of w wait to be sent: see link-down";
    assert!(begins.ends_with(known), "{begins}");
    let known = "all output chunks of w waited to be sent: see link-down";
    assert!(goes_on.ends_with(known), "{goes_on}");
    // It has another cause by the time that most were lost for that.
    engine.run(10, second(true, 2, 100));
    let shown = shown(&engine, cause);
    assert!(shown.contains("the engine does not keep up"), "{shown}");
}

/// A digitiser that was started with a wrong time, then with the right one, is no two digitisers.
#[test]
fn heaps_behind_a_jump_tell_both_and_when_it_was() {
    let mut engine = Engine::at_work();
    engine.run(22, |counts| {
        whole(counts);
        counts.newest = counts.newest.map(|newest| newest + (30.0 * RATE) as u64);
    });
    let newest = engine.counts.newest;
    let said = engine.run(2, |counts| {
        counts.newest = newest;
        dropped(DropCause::TooOld, HEAPS)(counts);
        counts.last.behind = Some((15.1 * RATE) as u64);
    });
    let cause = Cause::Dropped(DropCause::TooOld);
    let old = text(&said, cause, LossStage::Begins);
    let known = "heaps come 15.1 s behind the newest, which jumped 30.0 s ahead 23.0 s ago: if that time was set right \
                 again, start the engine again; if digitisers have different times";
    assert!(old.contains(known), "{old}");
}
