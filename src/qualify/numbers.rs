//! Decibels, and the line through points.

/// Decibels of a power; far down where there is none.
pub(super) fn decibels(power: f64) -> f64 {
    10.0 * power.max(1e-30).log10()
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
    fn lines_have_their_slopes() {
        let line: Vec<_> = (0..9)
            .map(|x| (f64::from(x), 3.0 - 0.25 * f64::from(x)))
            .collect();
        assert!((slope(&line) + 0.25).abs() < 1e-12);
    }
}
