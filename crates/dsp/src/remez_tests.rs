use super::*;
use proptest::prelude::*;

fn band(low: f64, high: f64, desired: f64, weight: f64) -> Band {
    Band {
        low,
        high,
        desired,
        weight,
    }
}

/// A(f) by its definition.
fn amplitude(filter: &[f64], f: f64) -> f64 {
    let centre = (filter.len() - 1) as f64 / 2.0;
    let terms = (0..).zip(filter);
    terms
        .map(|(n, h)| h * (2.0 * PI * f * (f64::from(n) - centre)).cos())
        .sum()
}

prop_compose! {
    /// A band between two others that want something else, with room for the response to change.
    fn three_bands()(
        edges in (0.05f64..0.12, 0.05f64..0.1, 0.05f64..0.12, 0.05f64..0.1),
        inner in any::<bool>(),
        log_weight in -1.0f64..1.0
    ) -> [Band; 3] {
        let (first, (low, high)) = (edges.0, (edges.0 + edges.1, edges.0 + edges.1 + edges.2));
        let (inside, outside) = (f64::from(u8::from(inner)), f64::from(u8::from(!inner)));
        [
            band(0.0, first, outside, 1.0),
            band(low, high, inside, 10f64.powf(log_weight)),
            band(high + edges.3, 0.5, outside, 1.0),
        ]
    }
}

proptest! {
    /// By the alternation theorem nothing else is optimal: the weighted error is extremal,
    /// equal, and of alternating sign on one point more than there are functions.
    #[test]
    fn the_error_alternates(taps in 3usize..48, pass in 0.02f64..0.2, gap in 0.05f64..0.2, log_weight in -2.0f64..2.0) {
        let weight = 10f64.powf(log_weight);
        let bands = [band(0.0, pass, 1.0, weight), band(pass + gap, 0.5, 0.0, 1.0)];
        let filter = remez(taps, &bands).unwrap();
        let points = 200 * taps;
        let mut runs: Vec<f64> = Vec::new();
        for band in &bands {
            for i in 0..=points {
                let f = band.low + (band.high - band.low) * i as f64 / points as f64;
                let error = band.weight * (amplitude(&filter, f) - band.desired);
                match runs.last_mut() {
                    Some(last) if *last * error > 0.0 => *last = last.signum() * last.abs().max(error.abs()),
                    _ => runs.push(error),
                }
            }
        }
        let largest = runs.iter().fold(0.0f64, |most, e| most.max(e.abs()));
        // Between its points, the grid lets the error grow by half where it turns fast; SciPy's
        // does the same.
        let extremal = runs.iter().filter(|e| e.abs() > 0.5 * largest).count();
        prop_assert!(largest < 1e-9 || extremal > taps.div_ceil(2), "{} of {:?}", extremal, runs);
        prop_assert!(filter.iter().zip(filter.iter().rev()).all(|(a, b)| a == b));
    }

    #[test]
    fn whatever_is_asked_for_is_answered(taps in 0usize..70, edges in prop::collection::vec(-0.1f64..0.6, 0..8), weight in -0.5f64..2.0) {
        let bands: Vec<Band> = edges.chunks_exact(2).map(|e| band(e[0], e[1], e[0], weight)).collect();
        if let Ok(filter) = remez(taps, &bands) {
            prop_assert_eq!(filter.len(), taps);
            prop_assert!(filter.iter().all(|h| h.is_finite()));
        }
    }

    #[test]
    fn bands_in_order_have_a_filter(taps in 2usize..48, bands in three_bands()) {
        let filter = remez(taps, &bands);
        prop_assert!(filter.is_ok(), "{:?} of {:?}", filter, bands);
        let filter = filter.unwrap_or_default();
        prop_assert_eq!(filter.len(), taps);
        // No filter at all errs by what is wanted: the best errs by no more.
        let most = bands.iter().map(|band| band.weight * band.desired).fold(0.0, f64::max);
        for band in &bands {
            for f in [band.low, band.high] {
                let error = band.weight * (amplitude(&filter, f) - band.desired).abs();
                prop_assert!(error <= 1.001 * most, "{} at {} of {:?}", error, f, bands);
            }
        }
    }

    /// The response of three taps is linear in cos 2πf, so that errors are largest at edges. There
    /// the least error is what the worst three edges ask for (de la Vallée Poussin).
    #[test]
    fn three_taps_err_as_little_as_three_edges_allow(bands in three_bands()) {
        let filter = remez(3, &bands);
        prop_assert!(filter.is_ok(), "{:?} of {:?}", filter, bands);
        let filter = filter.unwrap_or_default();
        let edges: Vec<(f64, Band)> = bands.iter().flat_map(|b| [(b.low, *b), (b.high, *b)]).collect();
        let error = |(f, band): &(f64, Band)| band.weight * (amplitude(&filter, *f) - band.desired).abs();
        let largest = edges.iter().map(error).fold(0.0, f64::max);
        let mut least = 0.0f64;
        for (i, a) in edges.iter().enumerate() {
            for (j, b) in edges.iter().enumerate().skip(i + 1) {
                for c in &edges[j + 1..] {
                    let x = [a, b, c].map(|(f, _)| (2.0 * PI * f).cos());
                    // What is left of a linear function: x₁ less the mean of x₀ and x₂ by distance.
                    let parts = [(x[1] - x[2]) / (x[0] - x[2]), -1.0, (x[0] - x[1]) / (x[0] - x[2])];
                    let three = || parts.iter().zip([a.1, b.1, c.1]);
                    let wanted: f64 = three().map(|(part, band)| part * band.desired).sum();
                    let shares: f64 = three().map(|(part, band)| part.abs() / band.weight).sum();
                    least = least.max(wanted.abs() / shares);
                }
            }
        }
        prop_assert!((largest / least - 1.0).abs() < 1e-9, "{} for {} of {:?}", largest, least, bands);
    }
}

#[test]
fn impossible_designs_are_refused() {
    let good = [band(0.0, 0.1, 1.0, 1.0), band(0.2, 0.5, 0.0, 1.0)];
    assert_eq!(remez(0, &good), Err(RemezError::Taps));
    assert_eq!(remez(16, &[]), Err(RemezError::NoBands));
    let endless = remez(16, &[good[0], band(0.2, 0.5, f64::INFINITY, 1.0)]);
    let endless = endless.unwrap_err().to_string();
    assert!(endless.contains("response inf"), "{endless}");
    for bad in [
        vec![band(0.0, 0.2, f64::NAN, 1.0)],
        vec![band(0.2, 0.1, 1.0, 1.0)],
        vec![band(0.0, 0.6, 1.0, 1.0)],
        vec![band(0.0, 0.2, 1.0, 0.0)],
        vec![band(0.0, 0.2, 1.0, f64::NAN)],
        vec![good[1], good[0]],
        vec![band(0.0, 0.2, 1.0, 1.0), band(0.2, 0.5, 0.0, 1.0)],
    ] {
        let refused = remez(16, &bad);
        assert!(matches!(refused, Err(RemezError::Band { .. })), "{bad:?}");
    }
}

/// What is asked for is less than the last digits of what is computed.
#[test]
fn filters_beyond_all_digits_are_refused() {
    let bands = [
        band(0.0, 1.0 / 32.0, 1.0, 0.005),
        band(3.0 / 32.0, 0.5, 0.0, 1.0),
    ];
    assert!(remez(128, &bands).is_ok());
    let refused = remez(1024, &bands);
    assert!(matches!(refused, Err(RemezError::NotConverged { .. })));
}
