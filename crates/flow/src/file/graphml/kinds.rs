//! What each kind of block is here.

use std::sync::Arc;

use super::xml::Data;
use crate::literal::{Literals, MAX_LITERALS};
use crate::node::Node;
use crate::nodes::{self, FunctionOf, Order};
use crate::number::Rounding;
use crate::types::{Scalar, Type};

/// A block with its parameters, and what its arcs say about its ports.
pub(super) struct Block<'a> {
    pub function: &'a str,
    pub data: &'a Data,
    /// How many inputs have arcs.
    pub inputs: usize,
    pub input: Option<Type>,
    pub output: Option<Type>,
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

pub(super) fn made(node: impl Node + 'static) -> Result<Made> {
    Ok(Made::Node(Arc::new(node)))
}

pub(super) fn unknown(why: impl Into<String>) -> Result<Made> {
    Ok(Made::Unknown(why.into()))
}

/// The numbers of `[1, 2; 3+4i]`, `{[2, 4]}` or `5`; none of `[]`.
pub(super) fn numbers(text: &str) -> Option<Vec<(crate::Number, crate::Number)>> {
    let inner = text
        .trim()
        .trim_start_matches(['{', '['])
        .trim_end_matches(['}', ']']);
    if inner.trim().is_empty() {
        return Some(vec![]);
    }
    let parts: Option<Vec<_>> = inner
        .split([',', ';'])
        .take(MAX_LITERALS + 1)
        .map(Literals::parse_one)
        .collect();
    parts.filter(|parts| parts.len() <= MAX_LITERALS)
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
                format!("`{name}` is no type here: booleans, whole numbers up to 64 bits, single and double are")
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
        let numbers =
            numbers(text).ok_or_else(|| format!("{key} `{text}` is no list of numbers"))?;
        Ok(Literals::new(numbers))
    }

    pub(super) fn some(&self, key: &str) -> Result<Literals> {
        self.literals(key)?
            .ok_or_else(|| format!("the parameter {key} is missing or empty"))
    }

    pub(super) fn real(&self, key: &str) -> Result<f64> {
        let value = self.some(key)?;
        if value.len() == 1 {
            Ok(value.at(0).0.to_f64())
        } else {
            Err(format!("{key} must be one number"))
        }
    }

    pub(super) fn whole(&self, key: &str) -> Result<u64> {
        let value = self.real(key)?;
        if value >= 0.0 && value.fract() == 0.0 && value < 9e15 {
            return Ok(value as u64);
        }
        Err(format!("{key} {value} is no whole number from 0 up"))
    }

    pub(super) fn indices(&self, key: &str) -> Result<Vec<u64>> {
        let value = self.some(key)?;
        value
            .parts()
            .iter()
            .map(|(re, _)| re.to_f64())
            .map(|re| {
                if (0.0..9e15).contains(&re) {
                    Ok(re as u64)
                } else {
                    Err(format!("{key} has the index {re}"))
                }
            })
            .collect()
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
                Err(format!("Inputs {count} are too many"))
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
            "DotProduct" => made(nodes::Dot {
                conjugate: true,
                output: self.scalar(),
            }),
            "Selector" => self.select(),
            "Concatenate" => made(nodes::Concat {
                inputs: self.inputs,
            }),
            "ComplexToRealImag" if self.text("Output") == Some("Real and imag") => {
                made(nodes::RealImag {})
            }
            "RealImagToComplex" if self.inputs == 2 => made(nodes::Complex {}),
            "BitwiseOperator" => self.bitwise(),
            "BitShift" => self.shift(),
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
            initial,
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
