use live::State;
use num_complex::Complex64;

use super::{board, spectra};
use crate::engine::{ChannelSums, InputStatistics, OutputStatistics};
use crate::losses::{Cause, LossEvent, LossRecord, LossStage, Words};
use ground::{SampleClock, Timestamp};

fn event(cause: Cause, stage: LossStage, text: &str) -> LossEvent {
    LossEvent {
        cause,
        stage,
        count: 7,
        text: text.to_owned(),
    }
}

#[test]
fn the_verdict_is_the_top_cause_since_it_began_with_what_mends_it() {
    let record = LossRecord::default();
    assert_eq!(board::verdict(&record, true).text, "all well");
    let before = board::verdict(&record, false);
    assert_eq!(
        (before.state, &before.text[..]),
        (State::Warning, "no heap yet")
    );
    let line = "no heap has come in 5 s: no-input, nothing comes to eth1: does the digitiser send?";
    let begins = event(Cause::NoInput, LossStage::Begins, line);
    let words = |seconds: u64| Words {
        what: format!("no heap has come in {seconds} s: no-input"),
        mends: "does the digitiser send?".to_owned(),
    };
    let (first, words) = (words(5), words(10));
    record.update(
        100.0,
        [(Cause::NoInput, 7, &first), (Cause::NotSent, 3, &first)].into_iter(),
        &[begins],
    );
    // What is shown is of the last look, whatever the last line said.
    record.update(
        105.0,
        [(Cause::NoInput, 7, &words), (Cause::NotSent, 3, &words)].into_iter(),
        &[],
    );
    let verdict = board::verdict(&record, true);
    assert_eq!((verdict.state, verdict.since), (State::Bad, Some(100.0)));
    assert_eq!(verdict.mends, "does the digitiser send?");
    assert_eq!(verdict.text, words.what);
    let names: Vec<_> = verdict.causes.iter().map(|cause| &cause.name[..]).collect();
    assert_eq!(names, ["no-input", "not-sent"]);
    let ends = event(Cause::NoInput, LossStage::Ends, "no-input is over");
    record.update(110.0, std::iter::empty(), &[ends]);
    assert_eq!(board::verdict(&record, true).state, State::Well);
    let log = board::log(&record);
    assert_eq!((log.len(), log[0].state), (2, State::Well));
    assert_eq!(log[1].text, line);
}

#[test]
fn spectra_have_a_panel_each_with_power_and_kurtosis_of_every_channel() {
    let options = "name=w,channels=4096,dst=239.10.1.0+1,jones_per_batch=8192";
    let output = crate::config::tests::engine(options, |_| {})
        .outputs
        .remove(0);
    // Noise of power 4, whose fourth moment is 2·4²; in channel 9 a steady tone of power 100.
    let spectra = 1000_u64;
    let sums = |channel: usize| {
        let (power, fourth) = if channel == 9 {
            (100.0, 1e4)
        } else {
            (4.0, 32.0)
        };
        ChannelSums {
            power: [power * spectra as f64; 2],
            power_squared: [fourth * spectra as f64; 2],
            cross: Complex64::default(),
            clipped: [0; 2],
        }
    };
    let statistics = OutputStatistics {
        start: Timestamp(0),
        end: Timestamp(1 << 20),
        spectra,
        channels: (0..4096).map(sums).collect(),
    };
    let kurtosis = spectra::kurtosis(&statistics, 1);
    assert!((kurtosis[8] - 1.0).abs() < 0.01 && kurtosis[9].abs() < 1e-9);
    let clock = SampleClock {
        adc_sample_rate: 1.712e9,
        sync_time: 0.0,
    };
    let outputs = std::slice::from_ref(&output);
    let panels = spectra::panels(&output, outputs, clock, &statistics);
    let kinds: Vec<_> = panels.iter().map(|panel| &panel.id[..]).collect();
    let expected = ["spectrum-w", "waterfall-w-0", "waterfall-w-1", "kurtosis-w"];
    assert_eq!(kinds, expected);
    let live::Body::Spectrum { x, series, .. } = &panels[0].body else {
        panic!("{:?}", panels[0]);
    };
    assert_eq!(series[0].values.len(), 1024);
    assert_eq!(series[0].highest[2], Some(20.0));
    assert_eq!(series[0].highest[3], Some(6.02));
    let link = |panel: &live::Panel| match &panel.body {
        live::Body::Spectrum { array, .. } => array.clone(),
        _ => None,
    };
    assert_eq!(link(&panels[0]).as_deref(), Some("arrays/w.npy"));
    assert_eq!(link(&panels[3]).as_deref(), Some("arrays/w.kurtosis.npy"));
    // The array of this name has the powers of another output.
    let mut other = output.clone();
    other.name = "w.kurtosis".to_owned();
    let panels = spectra::panels(&output, &[output.clone(), other], clock, &statistics);
    assert_eq!(link(&panels[3]), None);
    // The first point is the middle of its four channels.
    let channel = 856e6 / 4096.0;
    assert!((x.step - 4.0 * channel).abs() < 1e-3, "{x:?}");
}

/// Something that never came is not known to be whole.
#[test]
fn nothing_that_came_has_no_share_that_was_lost() {
    let shown = |came, lost| live::Figure::new("lost", super::lost_percent(came, lost), "%").value;
    assert_eq!(shown(0.0, 0.0), None);
    assert_eq!(shown(3.0, 0.0), Some(0.0));
    assert_eq!(shown(3.0, 1.0), Some(25.0));
    assert_eq!(shown(0.0, 2.0), Some(100.0));
}

/// As the verdict and the sensor judge it.
#[test]
fn a_clock_with_too_great_an_error_is_not_synchronised() {
    use ground::os::{ClockState, KernelClock};
    let mut clock = KernelClock {
        unix_time: 0.0,
        state: ClockState::Ok,
        estimated_error: 1e-4,
        maximum_error: 0.02,
    };
    let text = super::tables::clock_text;
    assert_eq!(text(&clock), "synchronised, right within 20.000 ms");
    clock.maximum_error = 0.25;
    assert_eq!(text(&clock), "not synchronised, may be wrong by 250.000 ms");
    clock.state = ClockState::Unsynchronised;
    clock.maximum_error = 0.02;
    assert_eq!(text(&clock), "not synchronised, may be wrong by 20.000 ms");
}

#[test]
fn the_level_of_a_full_square_is_three_decibels() {
    let mut histogram = vec![0; 1024];
    (histogram[1], histogram[1023]) = (50, 50);
    let statistics = InputStatistics {
        start: Timestamp(0),
        end: Timestamp(1),
        histogram: [histogram.clone(), histogram],
        snapshot_start: Timestamp(0),
        snapshot: Default::default(),
    };
    let levels = spectra::levels(&statistics, false);
    let level = levels[0].value.unwrap();
    assert!((level - 3.0).abs() < 0.05, "{level}");
    assert_eq!(levels[1].value, Some(100.0));
    // A digitiser without power has no number of decibels.
    let mut zeros = statistics;
    zeros.histogram[0] = vec![0; 1024];
    zeros.histogram[0][512] = 100;
    let levels = spectra::levels(&zeros, false);
    assert_eq!(
        levels[0],
        live::Figure::in_words("level, pol 0", "all zeros")
    );
    // What is not measured any more is not known.
    let old = spectra::levels(&zeros, true);
    assert!(
        old.iter()
            .all(|figure| figure.value.is_none() && figure.words.is_none())
    );
}

/// Of a digitiser of 10 bits each value has a bar, of one of 16 bits each 64 values.
#[test]
fn a_histogram_has_as_many_bars_as_a_screen_shows() {
    let clock = SampleClock {
        adc_sample_rate: 1e9,
        sync_time: 0.0,
    };
    for (bits, each) in [(10, 1), (16, 64)] {
        let mut histogram = vec![1; 1 << bits];
        histogram[0] = 1000;
        let statistics = InputStatistics {
            start: Timestamp(0),
            end: Timestamp(1),
            histogram: [histogram.clone(), histogram.clone()],
            snapshot_start: Timestamp(0),
            snapshot: Default::default(),
        };
        let live::Body::Histogram {
            first,
            step,
            series,
            ..
        } = spectra::histogram(&statistics, clock).body
        else {
            panic!("no histogram");
        };
        let counts = &series[1].counts;
        assert_eq!((counts.len(), step), (1024, f64::from(each)));
        assert_eq!(counts.iter().sum::<u64>(), histogram.iter().sum::<u64>());
        assert_eq!((counts[0], counts[1]), (999 + each as u64, each as u64));
        // The mean of the values in the first bar.
        let lowest = -f64::from(1 << (bits - 1));
        assert_eq!(first, lowest + f64::from(each - 1) / 2.0);
    }
}

#[test]
fn raw_samples_are_shown_in_part_and_whole_as_an_array() {
    let statistics = InputStatistics {
        start: Timestamp(0),
        end: Timestamp(1 << 20),
        histogram: [vec![0; 1024], vec![0; 1024]],
        snapshot_start: Timestamp(8192),
        snapshot: [
            (0..4096).map(|n| (n % 1000 - 500) as i16).collect(),
            Vec::new(),
        ],
    };
    let clock = SampleClock {
        adc_sample_rate: 4096.0,
        sync_time: 100.0,
    };
    let panel = spectra::snapshot(&statistics, &[], clock);
    let live::Body::Trace {
        x, series, time, ..
    } = &panel.body
    else {
        panic!("{panel:?}");
    };
    assert_eq!((x.step, *time), (1.0 / 4096.0, Some(102.0)));
    let lengths: Vec<_> = series.iter().map(|of| of.values.len()).collect();
    assert_eq!(
        (&lengths[..], series[0].values[7]),
        (&[512, 0][..], Some(-493.0))
    );
    let link = |outputs: &[crate::config::OutputConfig]| match spectra::snapshot(
        &statistics,
        outputs,
        clock,
    )
    .body
    {
        live::Body::Trace { array, .. } => array,
        _ => None,
    };
    assert_eq!(link(&[]).as_deref(), Some("arrays/input.npy"));
    // The array of this name has the powers of the output.
    let named = "name=input,channels=64,dst=239.10.1.0";
    assert_eq!(
        link(&crate::config::tests::engine(named, |_| {}).outputs),
        None
    );
    let array = spectra::snapshot_array(&statistics);
    assert_eq!(array.shape, [2, 4096]);
    assert_eq!((array.values[0], array.values[4095]), (-500.0, -405.0));
    assert!(array.values[4096..].iter().all(|value| value.is_nan()));
}
