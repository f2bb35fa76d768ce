//! Windows of heaps of two engines, of which one differs for a while.

use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::config::tests::engine;
use crate::shadow::Guess;

/// A stream of 16 channels in batches of 4 spectra, at 1000 batches a second.
struct Bench {
    windows: Windows,
    changes: Changes,
    now: Instant,
    news: Vec<News>,
    batch: u64,
}

impl Bench {
    fn new() -> Self {
        let options = "name=w,channels=16,dst=239.1.2.0+1:7148,jones_per_batch=64,taps=4";
        let config = engine(options, |config| config.clock.adc_sample_rate = 128e3);
        Self {
            windows: Windows::new(&config.outputs[0], config.clock, 1),
            changes: Changes::default(),
            now: Instant::now(),
            news: Vec::new(),
            batch: 0,
        }
    }

    /// So many batches of samples of 2 counts; what came has `more` counts in channel 5.
    fn pass(&mut self, batches: u64, more: u8) {
        for _ in 0..batches {
            let timestamp = self.batch * 128;
            self.batch += 1;
            self.now += Duration::from_millis(1);
            let Some(sums) = self.windows.sums_of(timestamp, self.now) else {
                panic!("late");
            };
            for k in 0..16 {
                let (ours, mut theirs) = ([2u8; 16], [2u8; 16]);
                if k == 5 {
                    theirs.iter_mut().step_by(4).for_each(|re| *re += more);
                }
                sums.add_heap((k, 4), dsp::OutputBits::Eight, &ours, &theirs);
            }
            self.look();
        }
    }

    /// The engine has told everything up to half a second ago.
    fn look(&mut self) {
        let told = Some(self.now);
        let news = self.windows.look((0, &self.changes), told, self.now);
        self.news.extend(news);
    }

    fn end(&mut self) {
        self.windows.close(self.now);
        self.now += Duration::from_secs(1);
        self.look();
    }
}

#[test]
fn equal_streams_make_no_news() {
    let mut bench = Bench::new();
    bench.pass(20_000, 0);
    bench.end();
    assert_eq!(bench.news, []);
    let counts = bench.windows.counts();
    assert_eq!((counts.judged, counts.excused, counts.late), (100, 0, 0));
}

/// Of two engines that draw dither of their own, at a level of two counts.
#[test]
fn an_hour_of_engines_with_other_dither_makes_no_news() {
    let mut bench = Bench::new();
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let hour = 3600 * 128_000;
    let window = bench.windows.samples();
    for timestamp in (0..hour).step_by(window as usize) {
        bench.now += Duration::from_millis(200);
        let Some(sums) = bench.windows.sums_of(timestamp, bench.now) else {
            panic!("late");
        };
        let (mut ours, mut theirs) = ([0; 256], [0; 256]);
        for k in 0..16 {
            for (ours, theirs) in ours.iter_mut().zip(&mut theirs) {
                let value = random.random_range(-3.5..3.5f32);
                let mut dithered = || (value + random.random_range(-0.5..0.5)).round() as i8 as u8;
                (*ours, *theirs) = (dithered(), dithered());
            }
            sums.add_heap((k, 64), dsp::OutputBits::Eight, &ours, &theirs);
        }
        bench.look();
    }
    bench.end();
    assert_eq!(bench.news, []);
    assert_eq!(bench.windows.counts().judged, 18_000);
}

#[test]
fn a_difference_is_told_when_it_begins_when_it_grows_and_when_it_ends() {
    let mut bench = Bench::new();
    bench.pass(3_050, 0);
    bench.pass(2_000, 1);
    bench.pass(2_000, 2);
    bench.pass(3_000, 0);
    bench.end();
    let [News::Begins(begun), News::Grows(grown), News::Ends(ended)] = &bench.news[..] else {
        panic!("{:?}", bench.news);
    };
    // In the window of 200 batches in which it began.
    assert_eq!(
        (begun.from.timestamp, begun.seen_until.timestamp),
        (3000 * 128, 3200 * 128)
    );
    assert_eq!((begun.channels[0].first, begun.channels.len()), (5, 1));
    assert_eq!(
        (begun.stream.as_str(), begun.pol, begun.guess),
        ("w", 0, Guess::Gain)
    );
    assert!(grown.ratio > begun.ratio, "{grown}");
    let until = ended.until.as_ref().map(|until| until.timestamp);
    assert_eq!(until, Some(7200 * 128));
}

/// Heaps are lost on the way: what is left is too little to show the difference, and no sign that
/// it is over.
#[test]
fn too_few_samples_are_no_end_of_a_difference() {
    let mut bench = Bench::new();
    bench.pass(1_000, 1);
    for _ in 0..10 {
        bench.batch += 190;
        bench.pass(10, 1);
    }
    bench.pass(1_000, 1);
    bench.end();
    assert!(
        matches!(bench.news[..], [News::Begins(_)]),
        "{:?}",
        bench.news
    );
}

#[test]
fn what_changes_is_excused() {
    let mut bench = Bench::new();
    bench.changes.begin(0, 3_050 * 128, 3_400 * 128, bench.now);
    bench
        .changes
        .steady(3_300 * 128, bench.now + Duration::from_millis(1));
    bench.pass(3_050, 0);
    bench.pass(350, 9);
    bench.pass(3_000, 0);
    bench.end();
    assert_eq!(bench.news, []);
    assert_eq!(bench.windows.counts().excused, 2);
}

/// While the engine does not answer, nothing is told: it may have other gains by now.
#[test]
fn nothing_is_told_before_the_engine_has_told_everything() {
    let mut bench = Bench::new();
    let begun = bench.now;
    bench.pass(1_000, 0);
    let windows = &mut bench.windows;
    windows.close(bench.now);
    let before = windows.counts().judged;
    let told = Some(begun);
    assert_eq!(windows.look((0, &bench.changes), told, bench.now), []);
    assert_eq!(windows.counts().judged, before);
    bench.now += Duration::from_secs(1);
    bench.look();
    assert_eq!(bench.windows.counts().judged, 5);
}

/// Each window of 200 batches has one sample that is louder: too few to be no chance, until eight
/// times eight of them are together.
#[test]
fn long_windows_find_what_short_ones_do_not() {
    let mut bench = Bench::new();
    for _ in 0..80 {
        bench.pass(199, 0);
        bench.pass(1, 1);
    }
    bench.end();
    let [News::Begins(begun)] = &bench.news[..] else {
        panic!("{:?}", bench.news);
    };
    assert_eq!(begun.from.timestamp, 0);
    assert_eq!(begun.channels[0].first, 5);
    let long = 64 * bench.windows.samples();
    assert_eq!(begun.seen_until.timestamp, long);
}
