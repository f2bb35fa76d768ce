//! Spectra of one output under delays that change.

use dsp::delay::{DelayModels, LinearDelay};
use ground::SampleClock;
use proptest::prelude::*;

use super::*;
use crate::config::NarrowbandOptions;

/// A delay model is active, and told, once the first spectrum that it is for has been issued. A
/// block ends with its chunk, also where it has spectra of two models.
#[test]
fn models_take_over_with_their_first_spectrum() {
    for spectrum in [1, 10, SPECTRA - 1, SPECTRA, SPECTRA + 1] {
        let mut bench = Bench::new(1, 1);
        let phase_of =
            |at: usize, phase| LinearDelay::new((at * STEP) as i64, 0.0, 0.0, phase, 0.0).unwrap();
        let later = [phase_of(spectrum, 1.0); N_POL];
        bench.control.outputs()[0].set_delays(later).unwrap();
        bench.steps(0, 2);
        let issued: usize = bench
            .log
            .lock()
            .unwrap()
            .asked
            .iter()
            .map(|asked| match asked {
                Asked::Block(_, _, fine, _) => fine.len(),
                _ => 0,
            })
            .sum();
        assert_eq!(issued, SPECTRA);
        let mut told = Vec::new();
        while let Some(event) = bench.published.next_event() {
            if let EngineEvent::Delay(active) = event {
                told.push((active.pol, active.model));
            }
        }
        let expected: &[_] = match spectrum < SPECTRA {
            true => &[(0, later[0]), (1, later[1])],
            false => &[],
        };
        assert_eq!(told, expected, "{spectrum}");
    }
}

fn narrowband() -> OutputConfig {
    let options = "name=n,channels=64,taps=4,dst=239.10.1.0,jones_per_batch=2048,\
                   centre_frequency=4e8,decimation=8";
    let options: NarrowbandOptions = options.parse().unwrap();
    let clock = SampleClock {
        adc_sample_rate: 1712e6,
        sync_time: 0.0,
    };
    options.into_config(1 << 20, 0, clock).unwrap()
}

/// Delay in samples, its rate, phase and its rate of each polarisation.
fn models() -> impl Strategy<Value = [(f64, f64, f64, f64); N_POL]> {
    let turns = (-3.0..3.0, -1e-4..1e-4);
    let model = ((-600.0..600.0, -1e-3..1e-3), turns);
    let model =
        model.prop_map(|((delay, rate), (phase, phase_rate))| (delay, rate, phase, phase_rate));
    proptest::array::uniform2(model)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// All spectra whose windows the input has are issued, from a batch's first on, each with what
    /// its own delay leaves to be done.
    #[test]
    fn every_spectrum_has_its_own_delay(
        is_narrowband: bool,
        first in models(),
        second in models(),
        later in 1_300..60_000i64,
    ) {
        const BATCHES: usize = 3;
        const START: u64 = 1 << 20;
        let wideband = "name=w,channels=64,taps=4,dst=239.10.1.0,jones_per_batch=2048";
        let mut config = crate::config::tests::engine(wideband, |_| {});
        if is_narrowband {
            config.outputs = vec![narrowband()];
        }
        let of = config.outputs[0].clone();
        let mut bench = Bench::of(config, 1, BATCHES + 1);
        // The second begins amid the input, too late to ask for samples before it.
        let asked = [(first, START as i64), (second, START as i64 + later)].map(|(models, start)| {
            models.map(|(delay, rate, phase, phase_rate)| {
                LinearDelay::new(start, delay, rate, phase, phase_rate).unwrap()
            })
        });
        for models in asked {
            bench.control.outputs()[0].set_delays(models).unwrap();
        }
        let (step, window) = (of.spectrum_samples(), of.window_samples());
        let length = (window + (BATCHES * of.spectra_per_heap() - 1) * step).next_multiple_of(HEAP);
        let steps = bench.steps_over(START, &samples(length));
        prop_assert_eq!(steps.last(), Some(&Step::NeedsInput));

        let mut lists = [0; 2].map(|_| DelayModels::with_subsampling(of.subsampling() as u32));
        for (pol, list) in lists.iter_mut().enumerate() {
            asked.iter().for_each(|models| {
                list.add(models[pol]);
            });
        }
        let at = |t: u64| [0, 1].map(|pol| lists[pol].at(Timestamp(t)));
        let end = START as i64 + length as i64;
        let has = |t: &u64| {
            let mut windows = at(*t).into_iter().map(|point| point.orig);
            windows.all(|first| first >= START as i64 && first + window as i64 <= end)
        };
        let batch = of.batch_samples() as u64;
        let first = (0..).map(|i| START / batch * batch - 4 * batch + i * batch).find(has).unwrap();
        let expected = (0..).map(|i| first + i * step as u64).take_while(has);

        let mut issued = Vec::new();
        for asked in &bench.log.lock().unwrap().asked {
            let Asked::Block(number, offset, fine, _) = asked else {
                prop_assert!(false, "{:?}", asked);
                continue;
            };
            prop_assert_eq!(*number, issued.len());
            for (i, fine) in fine.iter().enumerate() {
                let t = first + (issued.len() * step) as u64;
                for (pol, point) in at(t).into_iter().enumerate() {
                    let begins = START as i64 + (offset[pol] + i * step) as i64;
                    prop_assert_eq!(begins, point.orig);
                    let (delay, phase) = match is_narrowband {
                        true => (point.residual / 8.0, point.phase),
                        false => (point.residual, point.wideband_phase()),
                    };
                    prop_assert!((f64::from(fine.delay[pol]) - delay).abs() < 1e-4);
                    let turn = f64::from(fine.phase[pol]) - phase;
                    prop_assert!((turn / 2.0).sin().abs() < 1e-4, "{}", turn);
                }
                issued.push(t);
            }
        }
        let batches = issued.len() / of.spectra_per_heap();
        prop_assert_eq!(issued, expected.collect::<Vec<_>>());
        let told = bench.output.expected_batches(&(START..end as u64));
        prop_assert_eq!(told, Some(batches as u64));
    }
}
