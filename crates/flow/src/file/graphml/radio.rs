//! Oscillators, and the points of modulations.

use super::kinds::{Block, Made, Result, made, unknown};
use crate::literal::Literals;
use crate::nodes;
use crate::number::Number;
use crate::types::Scalar;

/// A phase offset that is none: exporters write few digits.
const NO_PHASE: f64 = 1e-3;

impl Block<'_> {
    pub(super) fn oscillator(&self) -> Result<Made> {
        if let Some(other) = self
            .text("Formula")
            .filter(|of| *of != "Complex exponential")
        {
            return unknown(format!("NCO with Formula {other}"));
        }
        if self.text("HasDither") == Some("on") {
            return unknown("NCO with HasDither on");
        }
        let bits = self.whole("AccumWL")?;
        if bits > 32 {
            return unknown(format!("NCO with AccumWL {bits}, above 32"));
        }
        made(nodes::Nco {
            bits: bits as u32,
            address_bits: self.whole("TableDepth")?.min(u32::MAX.into()) as u32,
            initial: 0,
            output: self.scalar().unwrap_or(Scalar::F32),
        })
    }

    pub(super) fn modulator(&self) -> Result<Made> {
        let points = match self.points("InType", "Enc")? {
            Ok(points) => points,
            Err(why) => return unknown(why),
        };
        if self.output.is_some_and(|kind| !kind.complex) {
            return unknown(format!("{} with real points", self.function));
        }
        if self.input.is_some_and(|kind| kind.scalar.is_float()) {
            return unknown(format!("{} of floating-point symbols", self.function));
        }
        made(nodes::Modulate {
            points,
            output: self.scalar().unwrap_or(Scalar::F64),
        })
    }

    pub(super) fn demodulator(&self) -> Result<Made> {
        let points = match self.points("OutType", "Dec")? {
            Ok(points) => points,
            Err(why) => return unknown(why),
        };
        made(nodes::Demodulate {
            points,
            output: self.scalar().unwrap_or(Scalar::U8),
        })
    }

    /// The point of each symbol, or what of the block is not known. `form` is the parameter that
    /// says whether symbols are whole numbers, `code` the one that says how points are numbered.
    fn points(&self, form: &str, code: &str) -> Result<std::result::Result<Literals, String>> {
        let not = |key: &str, text: &str| Ok(Err(format!("{} with {key} {text}", self.function)));
        if let Some(other) = self.text(form).filter(|of| *of != "Integer") {
            return not(form, other);
        }
        let phase = match self.literals("Ph")? {
            Some(_) => self.real("Ph")?,
            None => 0.0,
        };
        let is_binary = self.text(code) == Some("Binary");
        let real = |re: f64, im: f64| (Number::F64(re), Number::F64(im));
        let points = if self.function.starts_with("BPSK") {
            if phase.abs() > NO_PHASE {
                return not("Ph", &phase.to_string());
            }
            vec![real(1.0, 0.0), real(-1.0, 0.0)]
        } else if self.function.starts_with("QPSK") {
            if (phase - std::f64::consts::FRAC_PI_4).abs() > NO_PHASE {
                return not("Ph", &phase.to_string());
            }
            let part = std::f64::consts::FRAC_1_SQRT_2;
            // By quadrants: Gray codes go 0, 1, 3, 2.
            let (third, fourth) = (real(-part, -part), real(part, -part));
            let rest = if is_binary {
                [third, fourth]
            } else {
                [fourth, third]
            };
            vec![real(part, part), real(-part, part), rest[0], rest[1]]
        } else {
            if phase.abs() > NO_PHASE {
                return not("Ph", &phase.to_string());
            }
            if is_binary {
                return not(code, "Binary");
            }
            let count = self.whole("M")?;
            let half_bits = match count {
                16 => 2,
                64 => 3,
                256 => 4,
                other => return not("M", &other.to_string()),
            };
            let apart = match self.text("PowType") {
                Some("Min. distance between symbols") => self.real("MinDist")?,
                Some("Average Power") if self.real("AvgPow")? == 1.0 => {
                    (6.0 / (count as f64 - 1.0)).sqrt()
                }
                Some("Average Power") => return not("AvgPow", "other than 1"),
                other => return not("PowType", other.unwrap_or("missing")),
            };
            square(half_bits, apart)
        };
        Literals::new(points)
            .map(Ok)
            .ok_or_else(|| "it has no points".into())
    }
}

/// The points of a square of 2^`half_bits` columns and rows that are so far apart, Gray coded on
/// both axes: columns from the left by the upper half of a symbol's bits, rows from the top by the
/// lower.
fn square(half_bits: u32, apart: f64) -> Vec<(Number, Number)> {
    let lines = 1u32 << half_bits;
    let place = |code: u32| {
        // The place of a Gray code is the running exclusive or of its bits.
        let line = (0..half_bits).fold(0, |line, shift| line ^ (code >> shift));
        (f64::from(line) - f64::from(lines - 1) / 2.0) * apart
    };
    let point = |symbol: u32| {
        let (column, row) = (symbol >> half_bits, symbol & (lines - 1));
        (Number::F64(place(column)), Number::F64(-place(row)))
    };
    (0..lines * lines).map(point).collect()
}
