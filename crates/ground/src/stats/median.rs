//! The middle of measured values.

/// The median of `values`: the upper one of two in the middle; not a number if there are none.
///
/// ```
/// use ground::stats::median;
/// assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
/// assert_eq!(median(vec![1.0, 2.0]), 2.0);
/// assert!(median(Vec::new()).is_nan());
/// ```
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
