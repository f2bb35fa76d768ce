//! What each kind of block is here.

use std::cell::Cell;
use std::sync::Arc;

use super::xml::Data;
use crate::literal::{Literals, MAX_LITERALS, ends_in_sign};
use crate::node::Node;
use crate::nodes::{self, FunctionOf, Order};
use crate::number::{Number, Rounding};
use crate::types::{Scalar, Type};

/// A block with its parameters, and what its arcs say about its ports.
pub(super) struct Block<'a> {
    pub function: &'a str,
    pub data: &'a Data,
    /// How many inputs have arcs.
    pub inputs: usize,
    pub input: Option<Type>,
    pub output: Option<Type>,
    /// Elements that selectors of a range may still have, in all of the file.
    pub ranges: &'a Cell<usize>,
}

/// What a block becomes.
pub(super) enum Made {
    Node(Arc<dyn Node>),
    /// Nothing: it has no part in the result.
    Nothing,
    /// No node of this library; why.
    Unknown(String),
}

pub(super) type Result<T> = std::result::Result<T, String>;

/// The most that a whole number of a parameter may be: above it not all of them are numbers of
/// double precision.
const MAX_WHOLE: u64 = 1 << 53;

/// A whole number of the parameter `key`.
fn whole(key: &str, value: f64) -> Result<u64> {
    match value >= 0.0 && value.fract() == 0.0 && value <= MAX_WHOLE as f64 {
        true => Ok(value as u64),
        false => Err(format!(
            "{key} {value} is not a whole number from 0 to {MAX_WHOLE}"
        )),
    }
}

pub(super) fn made(node: impl Node + 'static) -> Result<Made> {
    Ok(Made::Node(Arc::new(node)))
}

pub(super) fn unknown(why: impl Into<String>) -> Result<Made> {
    Ok(Made::Unknown(why.into()))
}

/// The numbers of `[1, 2; 3+4i]`, `[1 2 -3]`, `{[2, 4]}` or `5`; none of `[]`.
pub(super) fn numbers(text: &str) -> Option<Vec<(Number, Number)>> {
    let text = text.trim();
    let inner = text
        .trim_start_matches(['{', '['])
        .trim_end_matches(['}', ']']);
    if inner.trim().is_empty() {
        return Some(vec![]);
    }
    let listed = inner.len() < text.len();
    let mut parts = Vec::new();
    for part in inner.split([',', ';']) {
        let mut rest = part.trim();
        loop {
            let (one, behind) = match listed {
                true => first_element(rest),
                false => (rest, ""),
            };
            if parts.len() == MAX_LITERALS {
                return None;
            }
            parts.push(Literals::parse_one(one)?);
            if behind.is_empty() {
                break;
            }
            rest = behind;
        }
    }
    Some(parts)
}

/// The first element of a row in brackets, and the rest. As in MATLAB, spaces part elements, but
/// for those behind a sign, and those before a sign with a space behind it: `1 - 2i` is one
/// element and `1 -2i` are two.
fn first_element(row: &str) -> (&str, &str) {
    let mut end = 0;
    for word in row.split_whitespace() {
        let begin = end + row[end..].find(word).unwrap_or(0);
        let before = row[..end].trim_end();
        if end > 0 && !ends_in_sign(before) && !matches!(word, "+" | "-") {
            return (before, &row[begin..]);
        }
        end = begin + word.len();
    }
    (row, "")
}

/// A type as an arc has it: `single`, `ufix48` with complex flag and number of elements.
pub(super) fn kind(name: &str, complex: bool, len: usize) -> Result<(Type, Option<String>)> {
    let mut note = None;
    let scalar = match name {
        "boolean" | "bool" => Scalar::Bool,
        "single" => Scalar::F32,
        "double" => Scalar::F64,
        _ => {
            let (signed, bits) = match name.strip_prefix("uint").or(name.strip_prefix("ufix")) {
                Some(bits) => (false, bits),
                None => (
                    true,
                    name.strip_prefix("int")
                        .or(name.strip_prefix("sfix"))
                        .unwrap_or(""),
                ),
            };
            let wanted: usize = bits.parse().map_err(|_| {
                format!("`{name}` is not a type here: booleans, whole numbers up to 64 bits, single and double are")
            })?;
            let fits =
                |s: &Scalar| s.is_integer() && s.is_signed() == signed && 8 * s.bytes() >= wanted;
            let found = Scalar::ALL
                .into_iter()
                .filter(fits)
                .min_by_key(|s| s.bytes());
            let found = found
                .filter(|_| wanted > 0)
                .ok_or_else(|| format!("`{name}` has not 1 to 64 bits"))?;
            if 8 * found.bytes() != wanted {
                note = Some(format!(
                    "{name} is taken as {}, which wraps later",
                    found.name()
                ));
            }
            found
        }
    };
    let kind = Type {
        scalar,
        complex,
        len,
    };
    kind.check()?;
    Ok((kind, note))
}

impl Block<'_> {
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.data.get(key).map(String::as_str)
    }

    /// The number or numbers of a parameter, evaluated if the exporter has done so.
    pub(super) fn literals(&self, key: &str) -> Result<Option<Literals>> {
        let evaluated = format!("Numeric.{key}");
        let Some((key, text)) = [evaluated.as_str(), key]
            .into_iter()
            .find_map(|key| Some((key, self.text(key)?)))
        else {
            return Ok(None);
        };
        let numbers = numbers(text)
            .ok_or_else(|| format!("{key} `{text}` is not a list of numbers such as [1, 2]"))?;
        Ok(Literals::new(numbers))
    }

    pub(super) fn some(&self, key: &str) -> Result<Literals> {
        self.literals(key)?
            .ok_or_else(|| format!("the parameter {key} is missing or empty"))
    }

    pub(super) fn real(&self, key: &str) -> Result<f64> {
        let value = self.some(key)?;
        match value.len() {
            1 if !value.is_complex() => Ok(value.at(0).0.to_f64()),
            1 => Err(format!("{key} is complex: it must be one real number")),
            many => Err(format!("{key} has {many} numbers: it must be one number")),
        }
    }

    pub(super) fn whole(&self, key: &str) -> Result<u64> {
        whole(key, self.real(key)?)
    }

    pub(super) fn indices(&self, key: &str) -> Result<Vec<u64>> {
        let value = self.some(key)?;
        if value.is_complex() {
            return Err(format!("{key} is complex: indices are whole numbers"));
        }
        let parts = value.parts().iter();
        parts.map(|(re, _)| whole(key, re.to_f64())).collect()
    }

    pub(super) fn scalar(&self) -> Option<Scalar> {
        self.output.map(|kind| kind.scalar)
    }

    /// Signs or operations: `|+-`, `*/`, or a count of the first of `all`.
    fn operations(&self, all: &str) -> Result<String> {
        let text = self
            .text("Inputs")
            .or(self.text("InputSigns"))
            .unwrap_or("");
        let text: String = text
            .chars()
            .filter(|c| !c.is_whitespace() && *c != '|')
            .collect();
        let first = &all[..1];
        if let Ok(count) = text.parse::<usize>() {
            return if count <= nodes::MAX_INPUTS {
                Ok(first.repeat(count))
            } else {
                Err(format!(
                    "Inputs {count} are too many: at most {}",
                    nodes::MAX_INPUTS
                ))
            };
        }
        if text.is_empty() {
            Ok(first.repeat(self.inputs))
        } else {
            Ok(text)
        }
    }

    pub(super) fn make(&self) -> Result<Made> {
        match self.function {
            "Sum" => made(nodes::Sum {
                signs: self.operations("+-")?,
                output: self.scalar(),
            }),
            "Product" => match self.text("Multiplication") {
                None | Some("Element-wise(.*)") => made(nodes::Product {
                    operations: self.operations("*/")?,
                    output: self.scalar(),
                }),
                Some(other) => unknown(format!("Product with {other}")),
            },
            "Gain" => match self.text("Multiplication") {
                None | Some("Element-wise(K.*u)") => made(nodes::Gain {
                    gain: self.some("Gain")?,
                    output: self.scalar(),
                }),
                Some(other) => unknown(format!("Gain with {other}")),
            },
            "Delay" | "UnitDelay" => self.delay(),
            "TappedDelay" => self.tapped_delay(),
            "VectorTappedDelay" | "TappedDelayWithReset" => self.tapped_with_current(),
            "Constant" => match self.output {
                Some(of) => made(nodes::Constant {
                    of,
                    value: self.some("Value")?,
                }),
                None => Ok(Made::Nothing),
            },
            "Switch" | "ThresholdSwitch" => self.switch(),
            "MultiPortSwitch" => self.multi_port_switch(),
            "DataTypeConversion" => self.conversion(),
            "RelationalOperator" | "Compare" => self.compare(),
            "Logic" => self.logic(),
            "Lookup_n-D" | "LUT" => self.lookup(),
            "DiscreteFir" => self.fir(),
            "DotProduct" | "DotProductNoConj" => made(nodes::Dot {
                conjugate: self.function == "DotProduct",
                output: self.scalar(),
            }),
            "Selector" => self.select(),
            "Concatenate" => made(nodes::Concat {
                inputs: self.inputs,
            }),
            "ComplexToRealImag" if self.text("Output") == Some("Real and imag") => {
                made(nodes::RealImag {})
            }
            // Its one output is the first of two.
            "ComplexToRealImag" if self.text("Output") == Some("Real") => made(nodes::RealImag {}),
            "ComplexToRealImag" => unknown(format!(
                "ComplexToRealImag with Output {}",
                self.text("Output").unwrap_or("missing")
            )),
            "RealImagToComplex" if self.inputs == 2 => made(nodes::Complex {}),
            "BitwiseOperator" => self.bitwise(),
            "BitShift" => self.shift(),
            "ArithShift" => self.arithmetic_shift(),
            "NCO" => self.oscillator(),
            "BPSK_ModulatorBaseband"
            | "QPSK_ModulatorBaseband"
            | "RectangularQAM_ModulatorBaseband" => self.modulator(),
            "BPSK_DemodulatorBaseband"
            | "QPSK_DemodulatorBaseband"
            | "RectangularQAM_DemodulatorBaseband" => self.demodulator(),
            // Samples have no dimensions here but their length.
            "Reshape" if self.inputs <= 1 => made(nodes::Pass {}),
            "Reshape" => unknown("Reshape by a reference input"),
            "Saturate" => made(nodes::Saturate {
                low: self.real("LowerLimit")?,
                high: self.real("UpperLimit")?,
            }),
            "Trigonometry" | "Math" => self.function(),
            "DataTypeDuplicate" | "DataTypePropagation" => Ok(Made::Nothing),
            "SignalSpecification" => made(nodes::Pass {}),
            "DownSample" | "UpSample" | "Repeat" => self.rate_change(),
            _ => unknown(self.function),
        }
    }

    fn delay(&self) -> Result<Made> {
        let usual = [
            ("ExternalReset", "None"),
            ("ShowEnablePort", "off"),
            ("DelayLengthSource", "Dialog"),
            ("InitialConditionSource", "Dialog"),
        ];
        for (key, usual) in usual {
            if let Some(other) = self.text(key).filter(|text| *text != usual) {
                return unknown(format!("{} with {key} {other}", self.function));
            }
        }
        // Delays that come of an expanded block carry only what they start with: they are of one
        // sample.
        let length = if self.literals("DelayLength")?.is_some() {
            self.whole("DelayLength")?
        } else {
            1
        };
        let initial = match self.literals("InitialCondition")? {
            Some(initial) => Some(initial),
            None => self.literals("vinit")?,
        };
        let initial = initial.filter(|_| length > 0).unwrap_or(0.into());
        made(nodes::Delay {
            length: length as usize,
            initial,
            of: self.output.or(self.input),
        })
    }

    fn tapped_delay(&self) -> Result<Made> {
        let order = match self.text("DelayOrder") {
            Some("Newest") => Order::Newest,
            _ => Order::Oldest,
        };
        let current = self.text("includeCurrent") == Some("on");
        let initial = self.literals("vinit")?.unwrap_or(0.into());
        made(nodes::TappedDelay {
            length: self.whole("NumDelays")? as usize,
            current,
            order,
            reset: false,
            initial,
            of: self.input,
        })
    }

    /// A tapped delay whose depth counts the present sample.
    fn tapped_with_current(&self) -> Result<Made> {
        let length = self.whole("Depth")?.saturating_sub(1);
        // Without an arc there is nothing that resets it.
        let reset = self.function == "TappedDelayWithReset" && self.inputs > 1;
        if length == 0 {
            return unknown(format!("{} with Depth below 2", self.function));
        }
        made(nodes::TappedDelay {
            length: usize::try_from(length).unwrap_or(usize::MAX),
            current: true,
            order: Order::Oldest,
            reset,
            initial: self.literals("InitCond")?.unwrap_or(0.into()),
            of: self.input,
        })
    }

    fn conversion(&self) -> Result<Made> {
        let named = || {
            kind(self.text("OutDataTypeStr")?, false, 1)
                .ok()
                .map(|(kind, _)| kind.scalar)
        };
        let Some(to) = self.scalar().or_else(named) else {
            return Ok(Made::Nothing);
        };
        let rounding = match self.text("RndMeth") {
            Some("Floor") => Rounding::Floor,
            Some("Nearest" | "Convergent" | "Round") => Rounding::Nearest,
            None | Some("Zero" | "Simplest") => Rounding::Zero,
            Some(other) => return unknown(format!("DataTypeConversion with RndMeth {other}")),
        };
        made(nodes::Convert { to, rounding })
    }

    fn fir(&self) -> Result<Made> {
        let initial = self.literals("InitialStates")?.unwrap_or(0.into());
        if initial
            .parts()
            .iter()
            .any(|(re, im)| re.is_true() || im.is_true())
        {
            return unknown("DiscreteFir with initial states");
        }
        match self.text("CoefSource") {
            Some("Input port") => made(nodes::FirFromPort {
                output: self.scalar(),
            }),
            _ => made(nodes::Fir {
                taps: self.some("Coefficients")?,
                initial: 0.into(),
                output: self.scalar(),
            }),
        }
    }

    fn function(&self) -> Result<Made> {
        let of = match self.text("Operator") {
            Some("sin") => FunctionOf::Sin,
            Some("cos") => FunctionOf::Cos,
            Some("atan") => FunctionOf::Atan,
            Some("exp") => FunctionOf::Exp,
            Some("log") => FunctionOf::Ln,
            Some("atan2") => return made(nodes::Atan2 {}),
            other => return unknown(format!("{} {}", self.function, other.unwrap_or(""))),
        };
        made(nodes::Function { of })
    }

    fn rate_change(&self) -> Result<Made> {
        if self
            .literals("phase")?
            .is_some_and(|phase| phase.at(0).0.is_true())
        {
            return unknown(format!("{} with a phase", self.function));
        }
        let by = self.whole("N")?;
        match self.function {
            "DownSample" => made(nodes::Down { by }),
            "UpSample" => made(nodes::Up { by }),
            _ => made(nodes::Repeat { by }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::numbers;
    use crate::number::Number;

    fn read(text: &str) -> Option<Vec<(f64, f64)>> {
        let both = |(re, im): &(Number, Number)| (re.to_f64(), im.to_f64());
        Some(numbers(text)?.iter().map(both).collect())
    }

    #[test]
    fn spaces_part_numbers_as_in_matlab() {
        let real = |all: &[f64]| Some(all.iter().map(|&re| (re, 0.0)).collect::<Vec<_>>());
        assert_eq!(read("[1 2]"), real(&[1.0, 2.0]));
        assert_eq!(
            read("[1 2 3; -4 5\t6]"),
            real(&[1.0, 2.0, 3.0, -4.0, 5.0, 6.0])
        );
        assert_eq!(read("{[ 2, 4 ]}"), real(&[2.0, 4.0]));
        assert_eq!(read("[1 -2]"), real(&[1.0, -2.0]));
        assert_eq!(read("[1e3 +2]"), real(&[1000.0, 2.0]));
        assert_eq!(read("[1 - 2i]"), Some(vec![(1.0, -2.0)]));
        assert_eq!(read("[1 -2i]"), Some(vec![(1.0, 0.0), (0.0, -2.0)]));
        assert_eq!(read("1 -2i"), Some(vec![(1.0, -2.0)]));
        assert_eq!(read("[- 2 3+4i]"), Some(vec![(-2.0, 0.0), (3.0, 4.0)]));
        assert_eq!(read("[]"), Some(vec![]));
        for wrong in [
            "1 2", "1 2 3", "[1 - 2]", "[1 x]", "[1,, 2]", "[1 2;]", "[1e 5]", "{1 + }",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn lists_have_the_numbers_that_were_written(
            all in proptest::collection::vec((any::<i32>(), any::<i32>(), any::<bool>()), 1..20),
            gap in "( |, ?|; ?|  )",
            outer in any::<bool>(),
        ) {
            let one = |&(re, im, complex): &(i32, i32, bool)| match complex {
                true => format!("{re}{im:+}i"),
                false => re.to_string(),
            };
            let texts: Vec<String> = all.iter().map(one).collect();
            let text = format!("[{}]", texts.join(&gap));
            let text = if outer { format!("{{{text}}}") } else { text };
            let part = |complex: bool, im: i32| if complex { f64::from(im) } else { 0.0 };
            let wanted: Vec<(f64, f64)> =
                all.iter().map(|&(re, im, complex)| (f64::from(re), part(complex, im))).collect();
            prop_assert_eq!(read(&text), Some(wanted));
        }
    }
}
