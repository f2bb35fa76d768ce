//! As many points as a screen has.

/// A curve of fewer points.
#[derive(Clone, Debug, PartialEq)]
pub struct Reduced {
    /// Values behind each point.
    pub each: usize,
    /// The mean of those that are known, if any is.
    pub means: Vec<Option<f64>>,
    /// The highest of them; empty where there is one value behind each point.
    pub highest: Vec<Option<f64>>,
}

/// Reduces `values` to `points` at most. Values that are not finite are not known.
///
/// The number of values behind each point is a power of two, and the same for all but the last.
pub fn reduce(values: &[f64], points: usize) -> Reduced {
    let each = values.len().div_ceil(points.max(1)).next_power_of_two();
    let known = |values: &[f64]| {
        let known = values.iter().copied().filter(|value| value.is_finite());
        known.collect::<Vec<_>>()
    };
    let known: Vec<_> = values.chunks(each).map(known).collect();
    let mean = |known: &Vec<f64>| {
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    };
    let highest = |known: &Vec<f64>| known.iter().copied().reduce(f64::max);
    Reduced {
        each,
        means: known.iter().map(mean).collect(),
        highest: match each {
            1 => Vec::new(),
            _ => known.iter().map(highest).collect(),
        },
    }
}

/// Powers in dB, to hundredths. There is none of zero.
pub fn decibels(powers: &[Option<f64>]) -> Vec<Option<f32>> {
    let one = |power: f64| {
        let decibels = (1000.0 * power.log10()).round() / 100.0;
        decibels.is_finite().then_some(decibels as f32)
    };
    let all = powers.iter();
    all.map(|power| power.and_then(one)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_line_is_seen_in_few_points() {
        let mut values = vec![1.0; 4096];
        values[1234] = 1000.0;
        let reduced = reduce(&values, 1024);
        assert_eq!((reduced.each, reduced.means.len()), (4, 1024));
        let highest = reduced.highest[308];
        assert_eq!(highest, Some(1000.0));
        assert_eq!(reduced.means[308], Some(1003.0 / 4.0));
        assert_eq!(reduced.means[309], Some(1.0));
    }

    #[test]
    fn few_values_stay_as_they_are() {
        let reduced = reduce(&[1.0, f64::NAN, 3.0], 1024);
        assert_eq!(reduced.means, [Some(1.0), None, Some(3.0)]);
        assert!(reduced.highest.is_empty());
        // A number that is no power of two.
        assert_eq!(reduce(&[1.0; 9], 4).means.len(), 3);
    }

    #[test]
    fn no_power_has_no_decibels() {
        let powers = [Some(100.0), Some(0.0), None, Some(0.5)];
        assert_eq!(decibels(&powers), [Some(20.0), None, None, Some(-3.01)]);
    }
}
