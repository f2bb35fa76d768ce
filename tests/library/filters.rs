//! SciPy as an independent judge: it designs the filters of narrowband outputs as katgpucbf does.
//!
//! Needs python3 with the packages of `scripts/requirements.txt`; `scripts/test` sees to that.

use dsp::ddc::FilterSpec;
use serde_json::json;

use crate::support::python::python;

fn spec(subsampling: usize, taps: usize, pass_fraction: Option<f64>) -> FilterSpec {
    FilterSpec {
        taps,
        subsampling,
        weight_pass: 0.005,
        pass_fraction,
    }
}

fn scipy(specs: &[FilterSpec]) -> Vec<Option<Vec<f64>>> {
    let specs: Vec<_> = specs
        .iter()
        .map(|spec| {
            json!({
                "taps": spec.taps, "subsampling": spec.subsampling, "weight_pass": spec.weight_pass,
                "pass_fraction": spec.pass_fraction,
            })
        })
        .collect();
    let designed = python("design_filters.py", &[&json!(specs).to_string()]);
    serde_json::from_value(designed).expect("filters")
}

/// To a millionth of the largest coefficient.
#[test]
fn filters_are_scipys() {
    let specs = [
        spec(3, 48, None),
        spec(8, 128, None),
        spec(7, 113, None),
        spec(5, 60, Some(0.8)),
        spec(16, 256, Some(0.598131)),
        spec(64, 1024, None),
        spec(64, 1024, Some(0.598131)),
        spec(128, 2048, None),
        spec(128, 2048, Some(0.6)),
        spec(256, 4096, None),
    ];
    for (spec, theirs) in specs.iter().zip(scipy(&specs)) {
        let (ours, theirs) = (spec.design().expect("a filter"), theirs.expect("a filter"));
        assert_eq!(ours.len(), theirs.len());
        let largest = theirs.iter().fold(0.0f64, |most, h| most.max(h.abs()));
        let differences = ours.iter().zip(&theirs);
        let worst = differences.fold(0.0f64, |most, (a, b)| most.max((f64::from(*a) - b).abs()));
        assert!(worst < 1e-6 * largest, "{spec:?}: {:e}", worst / largest);
    }
}

/// A pass band of almost half of the band: SciPy gives up.
#[test]
fn a_narrow_transition_is_found_where_scipy_fails() {
    let narrow = spec(3, 2048, Some(0.99));
    assert_eq!(scipy(&[narrow]), [None]);
    let filter = narrow.design().expect("a filter");
    // Cosine series of a symmetric filter, at frequencies in units of the subsampled rate.
    let step = std::f64::consts::TAU / narrow.subsampling as f64;
    let gain = |frequency: f64| {
        let centre = (filter.len() - 1) as f64 / 2.0;
        let at =
            |(n, &h): (usize, &f32)| f64::from(h) * (step * frequency * (n as f64 - centre)).cos();
        filter.iter().enumerate().map(at).sum::<f64>() / (narrow.subsampling as f64).sqrt()
    };
    let worst = |from: f64, to: f64, wanted: f64| {
        let grid = (0..=1000).map(|i| from + (to - from) * f64::from(i) / 1000.0);
        grid.map(|f| (gain(f) - wanted).abs()).fold(0.0, f64::max)
    };
    let (pass, stop) = (worst(0.0, 0.495, 1.0), worst(0.505, 1.5, 0.0));
    println!("{pass:e} {stop:e}");
    assert!(pass < 1e-4 && stop < 1e-6, "{pass:e} {stop:e}");
}
