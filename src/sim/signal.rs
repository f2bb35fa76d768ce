//! Signals as values.

use std::fmt;
use std::sync::Arc;

/// Operators between signals, sample by sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// Sum.
    Add,
    /// Difference.
    Subtract,
    /// Product.
    Multiply,
}

/// A signal without regard to dither. Amplitudes are relative to full scale, frequencies in hertz.
#[derive(Clone, Debug, PartialEq)]
pub enum Term {
    /// A value that is always the same.
    Constant(f64),
    /// Cosine of a whole number of cycles per period.
    Cw {
        /// Amplitude.
        amplitude: f64,
        /// Frequency.
        frequency: f64,
    },
    /// Sum of cosines in arithmetic progression.
    MultiCw {
        /// Number of cosines.
        tones: u64,
        /// Amplitude of the first, and step.
        amplitude: (f64, f64),
        /// Frequency of the first, and step.
        frequency: (f64, f64),
    },
    /// Impulses at even distances.
    Comb {
        /// Height.
        amplitude: f64,
        /// Impulses per second.
        frequency: f64,
    },
    /// White Gaussian noise.
    Wgn {
        /// Standard deviation.
        std: f64,
        /// Two signals of one seed differ by their standard deviation alone.
        seed: u64,
    },
    /// Another signal later, circularly within the period.
    Delay(Arc<Term>, i64),
    /// Two signals combined.
    Combine(Operator, Arc<Term>, Arc<Term>),
}

/// One output of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Signal {
    /// What is quantised.
    pub term: Arc<Term>,
    /// Whether dither is added before.
    pub dither: bool,
}

impl Term {
    /// Number of terms, repetitions counted.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Delay(term, _) => 1 + term.size(),
            Self::Combine(_, a, b) => 1 + a.size() + b.size(),
            _ => 1,
        }
    }
}

/// Text that parses to the same signal.
impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant(value) => write!(f, "{value:?}"),
            Self::Cw {
                amplitude,
                frequency,
            } => write!(f, "cw({amplitude:?}, {frequency:?})"),
            Self::MultiCw {
                tones,
                amplitude: (a, da),
                frequency: (nu, dnu),
            } => write!(f, "multicw({tones}, {a:?}, {da:?}, {nu:?}, {dnu:?})"),
            Self::Comb {
                amplitude,
                frequency,
            } => write!(f, "comb({amplitude:?}, {frequency:?})"),
            Self::Wgn { std, seed } => write!(f, "wgn({std:?}, {seed})"),
            Self::Delay(term, samples) => write!(f, "delay({term}, {samples})"),
            Self::Combine(operator, a, b) => {
                let sign = match operator {
                    Operator::Add => '+',
                    Operator::Subtract => '-',
                    Operator::Multiply => '*',
                };
                write!(f, "({a} {sign} {b})")
            }
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.dither {
            true => write!(f, "{};", self.term),
            false => write!(f, "nodither({});", self.term),
        }
    }
}
