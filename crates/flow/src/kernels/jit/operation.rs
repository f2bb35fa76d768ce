//! Operations as instructions.

use super::*;

impl Making<'_, '_> {
    /// The number that an operation makes; none if it is not known here.
    pub(super) fn operation(&mut self, op: &Operation, d: View) -> Option<Value> {
        let scalar = d.scalar;
        let float = scalar.is_float();
        Some(match op {
            Op::Copy { a, .. }
            | Op::Spread { a, .. }
            | Op::Gather { a, .. }
            | Op::Put { a, .. } => self.read(*a),
            Op::Cast { a, rounding, .. } => {
                let value = self.read(*a);
                self.cast(value, a.scalar, scalar, *rounding)?
            }
            Op::Calculate { with, a, b, .. } => {
                let (a, b) = (self.read(*a), self.read(*b));
                let ins = self.builder.ins();
                match (with, float) {
                    (Arithmetic::Add, true) => ins.fadd(a, b),
                    (Arithmetic::Subtract, true) => ins.fsub(a, b),
                    (Arithmetic::Multiply, true) => ins.fmul(a, b),
                    (Arithmetic::Divide, true) => ins.fdiv(a, b),
                    (Arithmetic::Add, false) => ins.iadd(a, b),
                    (Arithmetic::Subtract, false) => ins.isub(a, b),
                    (Arithmetic::Multiply, false) => ins.imul(a, b),
                    (Arithmetic::Divide, false) => return None,
                }
            }
            Op::Negate { a, .. } => {
                let a = self.read(*a);
                if float {
                    self.builder.ins().fneg(a)
                } else {
                    self.builder.ins().ineg(a)
                }
            }
            Op::Compare { relation, a, b, .. } => {
                let (x, y) = (self.read(*a), self.read(*b));
                self.compare(a.scalar, *relation, x, y)
            }
            Op::Bits { with, a, b, .. } => {
                let (a, b) = (self.read(*a), self.read(*b));
                match with {
                    BitwiseOp::And => self.builder.ins().band(a, b),
                    BitwiseOp::Or => self.builder.ins().bor(a, b),
                    BitwiseOp::Xor => self.builder.ins().bxor(a, b),
                    BitwiseOp::Not => return None,
                }
            }
            Op::Not { a, .. } => {
                let a = self.read(*a);
                if scalar == Scalar::Bool {
                    self.builder.ins().bxor_imm(a, 1)
                } else {
                    self.builder.ins().bnot(a)
                }
            }
            Op::Shift {
                direction, by, a, ..
            } => {
                let bits = 8 * scalar.bytes() as u32;
                let a = self.read(*a);
                let arithmetic = *direction == ShiftKind::RightArithmetic && scalar.is_signed();
                let by = if arithmetic {
                    *by.min(&(bits - 1))
                } else {
                    *by
                };
                if by >= bits {
                    self.number(scalar, 0)
                } else if *direction == ShiftKind::Left {
                    self.builder.ins().ishl_imm(a, i64::from(by))
                } else if arithmetic {
                    self.builder.ins().sshr_imm(a, i64::from(by))
                } else {
                    self.builder.ins().ushr_imm(a, i64::from(by))
                }
            }
            Op::Choose { c, a, b, .. } => {
                let (c, a, b) = (self.read(*c), self.read(*a), self.read(*b));
                self.builder.ins().select(c, a, b)
            }
            Op::Clamp { a, low, high, .. } => {
                let (a, low, high) = (self.read(*a), self.read(*low), self.read(*high));
                let above = self.compare(scalar, Comparison::Greater, a, high);
                let value = self.builder.ins().select(above, high, a);
                let below = self.compare(scalar, Comparison::Less, a, low);
                self.builder.ins().select(below, low, value)
            }
            Op::Fir {
                terms,
                newest_first,
                fused: true,
                ..
            } => {
                let taps = terms[0].count;
                if taps > MOST_TAPS {
                    return None;
                }
                let mut sum = self.number(scalar, 0);
                for tap in 0..taps {
                    let at = if *newest_first { taps - 1 - tap } else { tap };
                    for term in terms {
                        let bytes: &[u8] = bytemuck::cast_slice(&term.taps);
                        let size = scalar.bytes();
                        let mut word = [0; 8];
                        word[..size].copy_from_slice(&bytes[tap * size..][..size]);
                        let factor = self.number(scalar, u64::from_le_bytes(word));
                        let first = term.a.first + at;
                        let sample = self.read(View { first, ..term.a });
                        sum = self.fused(scalar, factor, sample, sum);
                    }
                }
                sum
            }
            Op::Dot { terms, .. } => {
                let mut sum = self.number(scalar, 0);
                for &(a, b, minus) in terms {
                    let (a, b) = (self.read(a), self.read(b));
                    let a = match (minus, float) {
                        (false, _) => a,
                        (true, true) => self.builder.ins().fneg(a),
                        (true, false) => self.builder.ins().ineg(a),
                    };
                    sum = self.fused(scalar, a, b, sum);
                }
                sum
            }
            Op::Map { a, function, .. } => {
                let value = self.read(*a);
                let value = self.double(value, a.scalar)?;
                let result = match function {
                    FunctionOf::Sqrt => self.builder.ins().sqrt(value),
                    FunctionOf::Sin => self.call(sin as *const () as usize, &[value]),
                    FunctionOf::Cos => self.call(cos as *const () as usize, &[value]),
                    FunctionOf::Atan => self.call(atan as *const () as usize, &[value]),
                    FunctionOf::Exp => self.call(exp as *const () as usize, &[value]),
                    FunctionOf::Ln => self.call(ln as *const () as usize, &[value]),
                };
                self.cast(result, Scalar::F64, scalar, Rounding::Zero)?
            }
            Op::Atan2 { y, x, .. } => {
                let (y_value, x_value) = (self.read(*y), self.read(*x));
                let y = self.double(y_value, y.scalar)?;
                let x = self.double(x_value, x.scalar)?;
                let result = self.call(atan2 as *const () as usize, &[y, x]);
                self.cast(result, Scalar::F64, scalar, Rounding::Zero)?
            }
            Op::Lut { a, lookup, .. } => {
                let Lookup { table, places } = lookup;
                let Places {
                    nearest,
                    first,
                    by,
                    divide,
                    ..
                } = places;
                let value = self.read(*a);
                let value = self.double(value, a.scalar)?;
                let first = self.builder.ins().f64const(*first);
                let from = self.builder.ins().fsub(value, first);
                let by = self.builder.ins().f64const(*by);
                let mut at = if *divide {
                    self.builder.ins().fdiv(from, by)
                } else {
                    self.builder.ins().fmul(from, by)
                };
                if *nearest {
                    let half = self.builder.ins().f64const(0.5);
                    at = self.builder.ins().fadd(at, half);
                }
                let index = self.builder.ins().fcvt_to_uint_sat(types::I64, at);
                let last = self
                    .builder
                    .ins()
                    .iconst(types::I64, table.len() as i64 - 1);
                let index = self.builder.ins().umin(index, last);
                self.entry(table, index, scalar)
            }
            Op::Table { a, table, .. } => {
                let index = self.read(*a);
                let zero = self.builder.ins().iconst(types::I64, 0);
                let last = self
                    .builder
                    .ins()
                    .iconst(types::I64, table.len() as i64 - 1);
                let index = self.builder.ins().smax(index, zero);
                let index = self.builder.ins().smin(index, last);
                self.entry(table, index, scalar)
            }
            Op::Accumulate { a, mask, .. } => {
                let before = self.read(View {
                    first: d.first - 1,
                    ..d
                });
                let a = self.read(*a);
                let sum = self.builder.ins().iadd(before, a);
                let mask = self.number(scalar, *mask);
                self.builder.ins().band(sum, mask)
            }
            _ => return None,
        })
    }
}
