//! Batches of a span, counted one spectrum at a time.

use dsp::delay::LinearDelay;
use ground::SampleClock;
use proptest::prelude::*;

use super::*;
use crate::config::NarrowbandOptions;

fn wideband(keys: &str) -> OutputConfig {
    let text = format!("name=w,channels=64,dst=239.10.1.0,{keys}");
    let options: crate::config::WidebandOptions = text.parse().unwrap();
    options.into_config(2048, 0)
}

fn narrowband(keys: &str) -> OutputConfig {
    let text = format!("name=n,channels=64,dst=239.10.1.0,centre_frequency=4e8,{keys}");
    let options: NarrowbandOptions = text.parse().unwrap();
    let clock = SampleClock {
        adc_sample_rate: 1712e6,
        sync_time: 0.0,
    };
    options.into_config(2048, 0, clock).unwrap()
}

/// A model, and when it was asked for.
type Asked = (u64, LinearDelay);

/// Batches of `span`, found by looking at every spectrum from the first timestamp on.
fn by_looking(
    output: &OutputConfig,
    subsampling: i64,
    asked: &[Vec<Asked>; N_POL],
    span: &Range<u64>,
) -> u64 {
    let window = output.window_samples() as i64;
    let (from, to) = (span.start as i64, span.end as i64);
    let mut count = 0;
    // Far enough behind the span for the delays that are asked for here.
    for batch in (0..span.end + (1 << 21)).step_by(output.batch_samples()) {
        let spectra =
            (batch..batch + output.batch_samples() as u64).step_by(output.spectrum_samples());
        let mut whole = true;
        for (t, asked) in spectra.flat_map(|t| asked.iter().map(move |asked| (t, asked))) {
            // The last request that holds wins.
            let held = |(next, model): &&Asked| t >= *next && t as i64 >= model.start();
            let model = asked.iter().rev().find(held).map(|(_, model)| model);
            let delay = model.map_or(0.0, |m| {
                m.delay() + (t as i64 - m.start()) as f64 * m.rate()
            });
            let first = (t as f64 - delay) / subsampling as f64;
            // Ties are not asked for here.
            let first = first.round() as i64 * subsampling;
            whole &= first >= from && first + window <= to;
        }
        count += u64::from(whole);
    }
    count
}

fn counted(output: &OutputConfig, asked: &[Vec<Asked>; N_POL], span: &Range<u64>) -> u64 {
    let delays = asked.each_ref().map(|asked| {
        let mut history = DelayHistory::with_subsampling(output.subsampling() as u32);
        for (next, model) in asked {
            history.add(Timestamp(*next), *model);
        }
        history
    });
    expected_batches(output, &delays, span)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Requests that are late, early, or of the same time, with delays that grow and shrink.
    #[test]
    fn batches_of_a_span_are_those_that_it_has_all_samples_of(
        kind in 0usize..3,
        from in 0u64..1 << 19,
        length in 0u64..1 << 19,
        asked in prop::collection::vec((0usize..3, 0u64..1 << 20, -60_000i64..60_000, -40_000i64..40_000, -3i32..4), 0..6),
    ) {
        let output = match kind {
            0 => wideband("jones_per_batch=2048,taps=4"),
            1 => wideband("jones_per_batch=8192,taps=16"),
            _ => narrowband("jones_per_batch=2048,taps=4,decimation=4"),
        };
        let mut asked = asked;
        asked.sort_by_key(|request| request.1);
        let mut models: [Vec<Asked>; N_POL] = Default::default();
        for (which, next, ahead, delay, rate) in asked {
            let start = (next as i64 + ahead).max(0);
            // A quarter is no tie on any grid, and the rates' steps of a batch are whole numbers.
            let (delay, rate) = (delay as f64 + 0.25, f64::from(rate) / 8.0);
            // Ends of a change, not only of what was there before: later starts are dropped, as the
            // engine drops them.
            for pol in (0..N_POL).filter(|&pol| which == 2 || which == pol) {
                let from = next.max(start as u64);
                models[pol].retain(|(n, m): &Asked| (*n).max(m.start() as u64) < from);
                let model = LinearDelay::new(start, delay, rate, 0.0, 0.0).unwrap();
                models[pol].push((next, model));
            }
        }
        let span = from..from + length;
        let subsampling = output.subsampling() as i64;
        let expected = by_looking(&output, subsampling, &models, &span);
        prop_assert_eq!(counted(&output, &models, &span), expected);
    }
}

/// A delay that grows in the midst of a batch: its first half asks for the latest samples, its
/// second for the earliest, and with the longer delay beyond those of the batches beside it.
#[test]
fn a_batch_with_a_change_asks_for_what_either_model_does() {
    let output = wideband("jones_per_batch=8192,taps=16");
    let batch = output.batch_samples() as u64;
    let change = 5 * batch + batch / 2;
    for delay in [12_000.25, 30_000.25] {
        let model = LinearDelay::new(change as i64, delay, 0.0, 0.0, 0.0).unwrap();
        let asked: [Vec<Asked>; N_POL] = [0, 1].map(|_| vec![(change, model)]);
        let ends = (5 * batch..8 * batch).step_by(256).map(|end| 0..end);
        let starts = (3 * batch..6 * batch).step_by(256);
        for span in ends.chain(starts.map(|start| start..9 * batch)) {
            let counted = counted(&output, &asked, &span);
            assert_eq!(
                counted,
                by_looking(&output, 1, &asked, &span),
                "{delay} {span:?}"
            );
        }
    }
}

#[test]
fn a_span_as_long_as_time_is_counted_at_once() {
    let output = wideband("jones_per_batch=2048,taps=4");
    let (step, end) = (output.batch_samples() as u64, Timestamp::END);
    let none: [Vec<Asked>; N_POL] = Default::default();
    let tail = (output.window_samples() - output.spectrum_samples()) as u64;
    let whole = (end - tail - 1) / step;
    assert_eq!(counted(&output, &none, &(1..end)), whole - 1);
    assert_eq!(counted(&output, &none, &(5..5)), 0);
    let least = output.span_samples(1) as u64;
    assert_eq!(counted(&output, &none, &(step..step + least)), 1);
    assert_eq!(counted(&output, &none, &(step..step + least - 1)), 0);
    assert_eq!(counted(&output, &none, &(step + 1..step + least + 1)), 0);
}
