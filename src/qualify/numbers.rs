//! Decibels, and the line through points.

/// Decibels of a power; far down where there is none.
pub(super) fn decibels(power: f64) -> f64 {
    10.0 * power.max(1e-30).log10()
}

/// The largest of some errors; none if one of them is no number.
pub(super) fn largest(errors: impl IntoIterator<Item = f64>) -> f64 {
    let larger = |most: f64, error: f64| match most.is_nan() || error.is_nan() {
        true => f64::NAN,
        false => most.max(error.abs()),
    };
    errors.into_iter().fold(0.0, larger)
}

/// Slope of the line that fits points best.
pub(super) fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let (mut over, mut under) = (0.0, 0.0);
    for point in points {
        over += (point.0 - x) * (point.1 - y);
        under += (point.0 - x).powi(2);
    }
    over / under
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_number_is_no_small_error() {
        assert_eq!(largest([0.5, -2.0, 1.0]), 2.0);
        for errors in [[0.5, f64::NAN, 1.0], [f64::NAN, 1.0, 2.0], [f64::NAN; 3]] {
            assert!(largest(errors).is_nan(), "{errors:?}");
        }
    }

    #[test]
    fn lines_have_their_slopes() {
        let line: Vec<_> = (0..9)
            .map(|x| (f64::from(x), 3.0 - 0.25 * f64::from(x)))
            .collect();
        assert!((slope(&line) + 0.25).abs() < 1e-12);
    }
}
