//! The mathematics, written once, in `f64`.
