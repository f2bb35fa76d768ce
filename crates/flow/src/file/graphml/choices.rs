//! Blocks that choose, compare, look up and work on bits.

use super::kinds::{Block, Made, Result, made, unknown};
use super::translate::MAX_RANGES;
use crate::nodes::{self, BitwiseOp, Comparison, Criterion, LogicOp, Lookup, ShiftKind};
use crate::types::{MAX_LEN, Scalar};

impl Block<'_> {
    pub(super) fn switch(&self) -> Result<Made> {
        let criterion = match self.text("Criteria") {
            Some("u2 > Threshold") => Criterion::Above,
            Some("u2 >= Threshold") => Criterion::AtLeast,
            Some("u2 ~= 0") => Criterion::NotZero,
            Some(other) => return Err(format!("Criteria `{other}` is not known")),
            None => return Err("the parameter Criteria is missing".into()),
        };
        let threshold = if criterion == Criterion::NotZero {
            0.0
        } else {
            self.real("Threshold")?
        };
        made(nodes::Switch {
            criterion,
            threshold,
            output: self.scalar(),
        })
    }

    pub(super) fn multi_port_switch(&self) -> Result<Made> {
        let first = match self.text("DataPortOrder") {
            Some("One-based contiguous") => 1,
            Some("Zero-based contiguous") => 0,
            other => {
                return unknown(format!(
                    "MultiPortSwitch with {}",
                    other.unwrap_or("indices")
                ));
            }
        };
        made(nodes::Mux {
            choices: self.inputs.saturating_sub(1),
            first,
            output: self.scalar(),
        })
    }

    pub(super) fn compare(&self) -> Result<Made> {
        let relation = match self.text("Operator").or(self.text("CompareOp")) {
            Some("<") => Comparison::Less,
            Some("<=") => Comparison::LessEqual,
            Some(">") => Comparison::Greater,
            Some(">=") => Comparison::GreaterEqual,
            Some("==") => Comparison::Equal,
            Some("~=" | "!=") => Comparison::Unequal,
            other => return unknown(format!("RelationalOperator {}", other.unwrap_or(""))),
        };
        made(nodes::Compare { relation })
    }

    pub(super) fn logic(&self) -> Result<Made> {
        let operation = match self.text("Operator") {
            Some("AND") => LogicOp::And,
            Some("OR") => LogicOp::Or,
            Some("NAND") => LogicOp::Nand,
            Some("NOR") => LogicOp::Nor,
            Some("XOR") => LogicOp::Xor,
            Some("NXOR") => LogicOp::Nxor,
            Some("NOT") => LogicOp::Not,
            other => return unknown(format!("Logic {}", other.unwrap_or(""))),
        };
        let wide = self.input.is_some_and(|kind| kind.len > 1);
        if self.inputs == 1 && operation != LogicOp::Not && wide {
            return unknown("Logic over the elements of a vector");
        }
        made(nodes::Logic {
            operation,
            inputs: self.inputs,
        })
    }

    pub(super) fn lookup(&self) -> Result<Made> {
        let between = match self.text("InterpMethod") {
            Some("Flat") => Lookup::Below,
            Some("Nearest") => Lookup::Nearest,
            Some("Linear" | "Linear point-slope") => Lookup::Linear,
            other => {
                return unknown(format!(
                    "Lookup_n-D with {}",
                    other.unwrap_or("no InterpMethod")
                ));
            }
        };
        if let (Lookup::Linear, Some(beyond)) = (between, self.text("ExtrapMethod"))
            && beyond != "Clip"
        {
            return unknown(format!("Lookup_n-D with ExtrapMethod {beyond}"));
        }
        if self.real("NumberOfTableDimensions")? != 1.0 {
            return unknown("Lookup_n-D with more dimensions than one");
        }
        let points = self.some("BreakpointsForDimension1")?;
        let table = self.some("Table")?;
        if points.len() < 2 || points.len() != table.len() {
            return Err(format!(
                "{} breakpoints and {} entries: there must be as many, and two",
                points.len(),
                table.len()
            ));
        }
        let at = |index: usize| points.at(index).0.to_f64();
        let last = points.len() - 1;
        let step = (at(last) - at(0)) / last as f64;
        // The exporter may have written five digits only; more than that is not forgiven.
        let digits = 1e-4 * at(0).abs().max(at(last).abs());
        let allowed = digits.min(0.05 * step.abs()) + 1e-6 * step.abs();
        let even =
            (0..=last).all(|index| (at(index) - at(0) - step * index as f64).abs() <= allowed);
        if !even {
            return unknown("Lookup_n-D with breakpoints that are not evenly spaced");
        }
        let output = self
            .scalar()
            .or(self.input.map(|kind| kind.scalar))
            .unwrap_or(Scalar::F64);
        made(nodes::Lut {
            first: at(0),
            step,
            table,
            between,
            output,
        })
    }

    pub(super) fn select(&self) -> Result<Made> {
        if self.real("NumberOfDimensions")? != 1.0 {
            return unknown("Selector of more dimensions than one");
        }
        let base = self.whole("index_mode")?.min(1);
        let mode = self
            .text("IndexOption1st")
            .or(self.text("IndexOptionArray"))
            .unwrap_or("");
        let key = if self.literals("IndexParam1st")?.is_some() {
            "IndexParam1st"
        } else {
            "IndexParamArray"
        };
        let size = if self.literals("OutputSize1st")?.is_some() {
            "OutputSize1st"
        } else {
            "OutputSizeArray"
        };
        let length = || -> Result<usize> { Ok(self.whole(size)?.min(MAX_LEN as u64 + 1) as usize) };
        let below = |index: u64| {
            index
                .checked_sub(base)
                .ok_or("an index of 0 counted from 1")
                .map(|i| i as usize)
        };
        match mode.trim_matches(['{', '}']) {
            "Index vector (dialog)" => {
                let indices: std::result::Result<Vec<usize>, _> =
                    self.indices(key)?.into_iter().map(below).collect();
                made(nodes::Select { indices: indices? })
            }
            "Starting index (dialog)" => {
                let (first, length) = (below(self.whole(key)?)?, length()?);
                // Without an arc its input is as its output.
                let of = self.input.or(self.output).map_or(0, |kind| kind.len);
                if first + length > of {
                    return Err(format!(
                        "{size} {length} from the element {first} on, counted from 0: its input \
                         has {of} elements"
                    ));
                }
                let Some(left) = self.ranges.get().checked_sub(length) else {
                    return Err(format!(
                        "{size} {length}: the selectors of a file have at most {MAX_RANGES} \
                         elements; use fewer of them"
                    ));
                };
                self.ranges.set(left);
                made(nodes::Select {
                    indices: (first..first + length).collect(),
                })
            }
            "Index vector (port)" => made(nodes::SelectAt {
                first: base as i64,
                length: None,
            }),
            "Starting index (port)" => {
                // Its arcs say how many elements it gives; the parameter may be left from another
                // mode.
                let length = match self.output {
                    Some(kind) => kind.len,
                    None => length()?,
                };
                made(nodes::SelectAt {
                    first: base as i64,
                    length: Some(length),
                })
            }
            other => unknown(format!("Selector by {other}")),
        }
    }

    pub(super) fn bitwise(&self) -> Result<Made> {
        let operation = match self.text("logicop") {
            Some("AND") => BitwiseOp::And,
            Some("OR") => BitwiseOp::Or,
            Some("XOR") => BitwiseOp::Xor,
            Some("NOT") => BitwiseOp::Not,
            other => return unknown(format!("BitwiseOperator {}", other.unwrap_or(""))),
        };
        let mask = if self.text("UseBitMask") == Some("on") {
            Some(self.whole("BitMask")? as i64)
        } else {
            None
        };
        made(nodes::Bitwise {
            operation,
            inputs: self.inputs,
            mask,
        })
    }

    /// A shift whose right one is arithmetic for types with a sign.
    pub(super) fn arithmetic_shift(&self) -> Result<Made> {
        if let Some(other) = self
            .text("BitShiftNumberSource")
            .filter(|of| *of != "Dialog")
        {
            return unknown(format!("ArithShift with BitShiftNumberSource {other}"));
        }
        if self.literals("BinPtShiftNumber")?.is_some() && self.real("BinPtShiftNumber")? != 0.0 {
            return unknown("ArithShift with BinPtShiftNumber");
        }
        let kind = self.input.or(self.output);
        let direction = match self.text("BitShiftDirection") {
            Some("Left") => ShiftKind::Left,
            Some("Right") if kind.is_some_and(|kind| !kind.scalar.is_signed()) => {
                ShiftKind::RightLogical
            }
            Some("Right") => ShiftKind::RightArithmetic,
            other => {
                let other = other.unwrap_or("missing");
                return unknown(format!("ArithShift with BitShiftDirection {other}"));
            }
        };
        made(nodes::Shift {
            direction,
            by: self.whole("BitShiftNumber")?.min(u32::MAX.into()) as u32,
        })
    }

    pub(super) fn shift(&self) -> Result<Made> {
        let direction = match self.text("mode") {
            Some("Shift Left Logical") => ShiftKind::Left,
            Some("Shift Right Logical") => ShiftKind::RightLogical,
            Some("Shift Right Arithmetic") => ShiftKind::RightArithmetic,
            other => return unknown(format!("BitShift {}", other.unwrap_or(""))),
        };
        made(nodes::Shift {
            direction,
            by: self.whole("N")?.min(u32::MAX.into()) as u32,
        })
    }
}
