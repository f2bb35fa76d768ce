//! What is wrong, rather than lost.

use ground::os::{ClockState, KernelClock};

use super::*;

fn lcore(name: &str, polls: bool) -> LcoreCounts {
    LcoreCounts {
        name: name.to_owned(),
        cpu: Some(3),
        receives: name.starts_with("rx"),
        polls,
        turns: Some(0),
        waited: Some(0.0),
        ..LcoreCounts::default()
    }
}

/// A second in which each lcore turns, works and waits for its CPU for these shares of the time.
fn lcores(counts: &mut LossCounts, works: f64, waits: f64) {
    for lcore in &mut counts.lcores {
        lcore.turns = lcore.turns.map(|turns| turns + 1000);
        lcore.worked += works;
        lcore.waited = lcore.waited.map(|waited| waited + waits);
    }
}

/// An engine with lcores that has been at work for a while.
fn engine(all: &[LcoreCounts]) -> Engine {
    let mut engine = Engine::new();
    engine.counts.lcores = all.to_vec();
    let said = engine.run(20, |counts| {
        whole(counts);
        lcores(counts, 0.5, 0.01);
    });
    assert_eq!(said, []);
    engine
}

#[test]
fn an_rx_lcore_that_stands_still_is_named_and_not_the_digitiser() {
    let mut engine = engine(&[lcore("rx0", false), lcore("engine", false)]);
    // The engine turns, and finds nothing.
    let mut said = engine.run(8, |counts| {
        lcores(&mut *counts, 0.0, 0.0);
        counts.lcores[0].turns = Some(20_000);
    });
    said.extend(engine.run(20, |counts| {
        whole(counts);
        lcores(counts, 0.5, 0.0);
    }));
    let cause = Cause::LcoreWithoutCpu;
    assert_eq!(
        lines(&said, cause),
        [(22, LossStage::Begins), (32, LossStage::Ends)]
    );
    let begins = text(&said, cause, LossStage::Begins);
    assert!(
        begins.starts_with("rx0 on CPU 3 has made no turn for 2.0 s: lcore-without-cpu")
            && begins.contains("`--recv-affinity`"),
        "{begins}"
    );
    assert_eq!(said.len(), 2, "{said:?}");
}

/// A thread that shares its CPU may wait for it, as long as nothing is lost by that.
#[test]
fn an_lcore_that_waits_for_its_cpu_is_named_where_that_matters() {
    for (polls, missed, named) in [(true, 0, true), (false, 0, false), (false, 5, true)] {
        let mut engine = engine(&[lcore("rx0", polls)]);
        let said = engine.run(6, |counts| {
            whole(counts);
            lcores(counts, 0.5, 0.4);
            counts.ports[0].1.rx_missed += missed;
        });
        let cause = Cause::LcoreWithoutCpu;
        assert_eq!(!stages(&said, cause).is_empty(), named, "{said:?}");
        if named {
            let begins = text(&said, cause, LossStage::Begins);
            let expected = "rx0 on CPU 3 waits for its CPU for 40 % of the time: lcore-without-cpu";
            assert!(begins.starts_with(expected), "{begins}");
        }
    }
}

/// It is not said to be at its limit yet, and what it takes in late is not of another time.
#[test]
fn heaps_are_late_where_an_rx_lcore_now_and_then_has_no_time() {
    let mut engine = engine(&[lcore("rx0", true), lcore("tx", true)]);
    let said = engine.run(30, |counts| {
        whole(counts);
        lcores(counts, [0.97, 0.5][counts.chunks as usize % 2], 0.0);
        counts.newest = counts.newest.map(|newest| newest - (1.1 * RATE) as u64);
    });
    assert_eq!(said, []);
}

#[test]
fn an_rx_lcore_near_its_limit_is_said_before_it_loses_anything() {
    let mut engine = engine(&[lcore("rx0", true), lcore("tx", true)]);
    let mut said = engine.run(5, |counts| {
        whole(counts);
        lcores(counts, 0.97, 0.0);
    });
    said.extend(engine.run(20, |counts| {
        whole(counts);
        lcores(counts, 0.5, 0.0);
    }));
    let cause = Cause::BusyLcore;
    assert_eq!(
        lines(&said, cause),
        [(22, LossStage::Begins), (32, LossStage::Ends)]
    );
    let begins = text(&said, cause, LossStage::Begins);
    assert_eq!(
        begins,
        "rx0 on CPU 3 works for 97 % of the time: busy-lcore, at its limit packets are lost: more rx lcores, by more entries of \
         `--recv-affinity`"
    );
    assert_eq!(said.len(), 2, "{said:?}");
}

#[test]
fn samples_at_full_scale_beyond_a_share_are_said() {
    let second = |clipped: u64| {
        move |counts: &mut LossCounts| {
            whole(counts);
            counts.clipped[1] += clipped;
        }
    };
    let samples = HEAPS * 4096;
    let mut engine = Engine::at_work();
    assert_eq!(engine.run(20, second(samples / 1001)), []);
    // One second of interference is none.
    assert_eq!(engine.run(1, second(samples / 10)), []);
    assert_eq!(engine.run(20, second(0)), []);
    let mut said = engine.run(5, second(samples / 50));
    said.extend(engine.run(20, second(0)));
    let cause = Cause::InputClipping;
    let begins = text(&said, cause, LossStage::Begins);
    assert_eq!(
        begins,
        "20 480 samples/s at full scale: input-clipping, 0.0 % of polarisation 0 and 2.0 % of 1, where 0.1 % is too much: lower \
         the level in front of the digitiser, or look for interference"
    );
    let stages: Vec<_> = lines(&said, cause)
        .iter()
        .map(|(_, stage)| *stage)
        .collect();
    assert_eq!(stages, [LossStage::Begins, LossStage::Ends]);
    assert_eq!(said.len(), 2, "{said:?}");
}

#[test]
fn output_values_that_are_clipped_name_the_gains() {
    for (four_bits, share, named) in [(false, 0.02, true), (true, 0.02, false), (true, 0.06, true)]
    {
        let mut engine = Engine::at_work();
        let said = engine.run(5, |counts| {
            whole(counts);
            let output = &mut counts.outputs[0];
            output.four_bits = four_bits;
            output.values += 100_000;
            output.clipped[0] += (share * 100_000.0) as u64;
        });
        let cause = Cause::OutputClipping;
        assert_eq!(!said.is_empty(), named, "{said:?}");
        if named {
            let begins = text(&said, cause, LossStage::Begins);
            assert!(
                begins.contains("output values/s clipped: output-clipping")
                    && begins.contains(" of polarisation 0 and 0.0 % of 1 of w, where")
                    && begins.contains("`?karoo-auto-gain`"),
                "{begins}"
            );
        }
    }
}

/// Over all of a loss that comes and goes the share may be a good one.
#[test]
fn clipping_that_comes_and_goes_names_its_output() {
    let mut engine = Engine::at_work();
    let second = |clipped: u64| {
        move |counts: &mut LossCounts| {
            whole(counts);
            counts.outputs[0].values += 100_000;
            counts.outputs[0].clipped[1] += clipped;
        }
    };
    engine.run(3, second(1200));
    engine.run(2, second(0));
    let (_, _, words) = engine.watch.active().next().unwrap();
    assert!(
        words
            .what
            .ends_with("0.0 % of polarisation 0 and 0.6 % of 1 of w, where 1.0 % is too much"),
        "{words:?}"
    );
}

#[test]
fn a_clock_that_nobody_keeps_right_is_said() {
    let mut engine = Engine::at_work();
    let clock = |state, maximum_error| {
        move |counts: &mut LossCounts| {
            whole(counts);
            counts.clock = Some(KernelClock {
                unix_time: 0.0,
                state,
                estimated_error: 1e-4,
                maximum_error,
            });
        }
    };
    assert_eq!(engine.run(10, clock(ClockState::Ok, 1e-3)), []);
    let mut said = engine.run(10, clock(ClockState::Unsynchronised, 16.0));
    said.extend(engine.run(20, clock(ClockState::Ok, 1e-3)));
    let cause = Cause::ClockNotSynchronised;
    assert_eq!(
        lines(&said, cause),
        [(34, LossStage::Begins), (44, LossStage::Ends)]
    );
    let begins = text(&said, cause, LossStage::Begins);
    assert!(
        begins.starts_with(
            "this host's clock is not synchronised, it may be wrong by 16.0 s: clock-not-synchronised"
        ),
        "{begins}"
    );
    assert_eq!(said.len(), 2, "{said:?}");
}

/// Heaps of an engine that is too slow are behind, and catch up with the host's time.
#[test]
fn an_engine_that_is_slow_for_a_while_has_no_other_time() {
    let mut engine = Engine::at_work();
    let mut second = 0;
    let said = engine.run(60, |counts| {
        heaps(counts, [200; 2]);
        second += 1;
        if second < 30 {
            // Ever further behind, then all at once there again.
            counts.ports[0].1.rx_missed += 100;
            let behind = second as f64 * 0.2 * RATE;
            counts.newest = counts.newest.map(|newest| newest - behind as u64);
        }
    });
    let time = |(_, event): &Said| matches!(event.cause, Cause::WrongTime | Cause::TimeJumped);
    assert!(!said.iter().any(time), "{said:?}");
}

/// What an engine at work says where heaps' time jumps ahead, and goes on, and all in between
/// is missing; with what else happens in that second.
fn jumped(seconds: u64, mut also: impl FnMut(&mut LossCounts)) -> Vec<Said> {
    let mut engine = Engine::at_work();
    let ahead = |counts: &mut LossCounts| {
        whole(counts);
        let jump = (seconds as f64 * RATE) as u64;
        counts.newest = counts.newest.map(|newest| newest + jump);
    };
    let mut said = engine.run(1, |counts| {
        ahead(counts);
        counts.missing = counts.missing.map(|missing| missing + seconds * HEAPS);
        also(counts);
    });
    said.extend(engine.run(20, ahead));
    said
}

/// Who was slow for a moment has not a quarter of an hour to catch up with.
#[test]
fn time_that_jumps_far_ahead_is_told_while_this_host_is_slow() {
    let said = jumped(1000, dropped(DropCause::NoFreeChunk, 70));
    let begins = text(&said, Cause::TimeJumped, LossStage::Begins);
    assert!(
        begins.starts_with("the heaps' time jumped 16 min 40 s ahead"),
        "{begins}"
    );
    assert_eq!(stages(&said, Cause::MissingHeaps), []);
}

/// The heaps of the time that was jumped over were never sampled.
#[test]
fn time_that_jumps_ahead_is_told_from_missing_heaps() {
    let said = jumped(10, |_| ());
    let cause = Cause::TimeJumped;
    assert_eq!(
        stages(&said, cause),
        [(22, LossStage::Begins, 1), (32, LossStage::Ends, 1)]
    );
    let begins = text(&said, cause, LossStage::Begins);
    assert!(
        begins.starts_with("the heaps' time jumped 10.0 s ahead: time-jumped")
            && begins.contains("`--sync-time`"),
        "{begins}"
    );
    assert_eq!(stages(&said, Cause::MissingHeaps), []);
    // What has jumped is not the host's time any more.
    assert_eq!(stages(&said, Cause::WrongTime)[0].1, LossStage::Begins);
}

/// So what would have come of them was not lost by missing input.
#[test]
fn output_of_time_that_was_jumped_over_lacks_no_input() {
    let said = jumped(10, |counts| counts.outputs[0].not_sent += 5000);
    let not_sent = text(&said, Cause::NotSent, LossStage::Begins);
    let expected = "5 000 of w: nothing was sampled for most of their time: see time-jumped";
    assert!(not_sent.ends_with(expected), "{not_sent}");
}

/// A jump takes no blame for what is lost behind it.
#[test]
fn output_without_a_polarisation_lacks_input_also_behind_a_jump() {
    let mut engine = Engine::at_work();
    let jump = |counts: &mut LossCounts| {
        counts.newest = counts.newest.map(|newest| newest + (10.0 * RATE) as u64);
    };
    let mut said = engine.run(1, |counts| {
        whole(counts);
        jump(counts);
        counts.missing = counts.missing.map(|missing| missing + 10 * HEAPS);
    });
    let one = |counts: &mut LossCounts| {
        heaps(counts, [HEAPS, 0]);
        jump(counts);
        counts.missing[1] += HEAPS;
    };
    said.extend(engine.run(5, one));
    said.extend(engine.run(3, |counts| {
        one(counts);
        counts.outputs[0].not_sent += 5000;
    }));
    let jumped = stages(&said, Cause::TimeJumped);
    assert_eq!(jumped.len(), 1, "{jumped:?}");
    let not_sent = text(&said, Cause::NotSent, LossStage::Begins);
    assert!(
        not_sent.contains("a part of their input is missing"),
        "{not_sent}"
    );
}

#[test]
fn a_digitiser_that_another_one_jumped_away_from_is_not_late() {
    let mut engine = Engine::at_work();
    let said = engine.run(6, |counts| {
        heaps(counts, [HEAPS, 0]);
        counts.missing[1] += HEAPS;
        counts.newest = counts.newest.map(|newest| newest + (10.0 * RATE) as u64);
        dropped(DropCause::TooOld, HEAPS)(counts);
        counts.last.behind = Some((10.2 * RATE) as u64);
    });
    let old = text(&said, Cause::Dropped(DropCause::TooOld), LossStage::Begins);
    let expected = "heaps come 10.2 s behind the newest, which jumped 10.0 s ahead 1.0 s ago: ";
    assert!(old.contains(expected), "{old}");
}

#[test]
fn the_status_names_what_has_no_share_of_the_loss() {
    let mut engine = engine(&[lcore("rx0", true)]);
    engine.run(5, |counts| {
        whole(counts);
        lcores(counts, 0.97, 0.0);
    });
    assert_eq!(
        engine.watch.status(),
        "Running: 500 heaps/s in, none lost, 500 heaps/s out, busy-lcore"
    );
}

/// What is not over goes on being shown, and says of whom.
#[test]
fn an_lcore_that_was_in_trouble_a_moment_ago_is_named() {
    let trouble = [
        (Cause::LcoreWithoutCpu, 0.5, 0.4, "without its CPU"),
        (Cause::BusyLcore, 0.97, 0.0, "near its limit"),
    ];
    for (cause, works, waits, what) in trouble {
        let mut engine = engine(&[lcore("rx0", true)]);
        engine.run(6, |counts| {
            whole(counts);
            lcores(counts, works, waits);
        });
        engine.run(2, |counts| {
            whole(counts);
            lcores(counts, 0.5, 0.0);
        });
        let shown = shown(&engine, cause);
        let expected = format!("rx0 on CPU 3 was {what} until 2.0 s ago: {}", cause.name());
        assert!(shown.starts_with(&expected), "{shown}");
    }
}

/// Of a rate that is wrong, another sync time mends nothing.
#[test]
fn heaps_of_another_rate_name_the_rate_and_no_sync_time() {
    for (pace, rate) in [(0.8, "819000"), (1.25, "1280000")] {
        let mut engine = Engine::new();
        let said = engine.run(20, |counts| {
            whole(counts);
            let newest = counts.newest.unwrap() as f64;
            counts.newest = Some(((1.0 - pace) * RATE + pace * newest) as u64);
        });
        let begins = text(&said, Cause::WrongTime, LossStage::Begins);
        let known = format!(
            "it goes on by {rate} samples/s, not the 1024000 of `--adc-sample-rate`: should it be about {rate}?"
        );
        assert!(
            begins.contains(&known) && !begins.contains("`--sync-time 1763700000`"),
            "{begins}"
        );
    }
}

#[test]
fn a_digitiser_that_is_set_back_twice_has_no_other_rate() {
    let mut engine = Engine::at_work();
    let mut second = 20;
    engine.run(8, |counts| {
        second += 1;
        let behind = if second < 26 { 2.0 } else { 2.3 };
        whole(counts);
        counts.newest = counts.newest.map(|newest| newest - (behind * RATE) as u64);
    });
    let active = engine.watch.active();
    let mut wrong = active.filter(|(cause, ..)| *cause == Cause::WrongTime);
    let (.., words) = wrong.next().unwrap();
    assert!(
        words.mends.starts_with("`--sync-time 1763700000`"),
        "{words:?}"
    );
}
