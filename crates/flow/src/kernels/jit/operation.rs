//! Operations as instructions.

use super::*;
use crate::quotient::{Quotient, Squares};

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
            Op::Quotient {
                imaginary, a, b, ..
            } if float => {
                let [a, b] = [a, b].map(|parts| parts.map(|part| self.read(part)));
                self.quotient(scalar, *imaginary, a, b)?
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

    /// A part of a quotient of floats: by the formula where that is right, otherwise by a call.
    fn quotient(
        &mut self,
        scalar: Scalar,
        imaginary: bool,
        a: [Value; 2],
        b: [Value; 2],
    ) -> Option<Value> {
        let [least, most] = match scalar {
            Scalar::F32 => [f32::LEAST, f32::MOST].map(|end| u64::from(end.to_bits())),
            _ => [f64::LEAST, f64::MOST].map(f64::to_bits),
        };
        let [least, most] = [least, most].map(|end| self.number(scalar, end));
        let zero = self.number(scalar, 0);
        let [dividend, divisor] = [a, b].map(|[re, im]| {
            let [re, im] = [re, im].map(|part| self.builder.ins().fmul(part, part));
            self.builder.ins().fadd(re, im)
        });
        let products = match imaginary {
            false => [(a[0], b[0]), (a[1], b[1])],
            true => [(a[1], b[0]), (a[0], b[1])],
        };
        let [x, y] = products.map(|(x, y)| self.builder.ins().fmul(x, y));
        let part = match imaginary {
            false => self.builder.ins().fadd(x, y),
            true => self.builder.ins().fsub(x, y),
        };
        let part = self.builder.ins().fdiv(part, divisor);
        let both = |making: &mut Self, conditions: [(Comparison, Value, Value); 2]| {
            let [x, y] = conditions.map(|(relation, x, y)| making.compare(scalar, relation, x, y));
            making.builder.ins().band(x, y)
        };
        let within = |making: &mut Self, square| {
            use Comparison::{GreaterEqual, LessEqual};
            both(
                making,
                [(GreaterEqual, square, least), (LessEqual, square, most)],
            )
        };
        let (of_a, of_b) = (within(self, dividend), within(self, divisor));
        let none = [a[0], a[1]].map(|part| (Comparison::Equal, part, zero));
        let none = both(self, none);
        let of_a = self.builder.ins().bor(of_a, none);
        let right = self.builder.ins().band(of_a, of_b);
        let [far, done] = [(); 2].map(|()| self.builder.create_block());
        self.builder.append_block_param(done, kind(scalar));
        self.builder.set_cold_block(far);
        let ins = self.builder.ins();
        ins.brif(right, done, &[BlockArg::from(part)], far, &[]);
        self.builder.switch_to_block(far);
        let mut arguments = Vec::new();
        for part in [a, b].concat() {
            arguments.push(self.double(part, scalar)?);
        }
        let function: extern "C" fn(f64, f64, f64, f64) -> f64 = match (scalar, imaginary) {
            (Scalar::F32, false) => quotient_single::<false>,
            (Scalar::F32, true) => quotient_single::<true>,
            (_, false) => quotient_double::<false>,
            (_, true) => quotient_double::<true>,
        };
        let part = self.call(function as *const () as usize, &arguments);
        let part = self.cast(part, Scalar::F64, scalar, Rounding::Zero)?;
        self.builder.ins().jump(done, &[BlockArg::from(part)]);
        self.builder.switch_to_block(done);
        Some(self.builder.block_params(done)[0])
    }
}

extern "C" fn quotient_single<const IMAGINARY: bool>(a: f64, b: f64, c: f64, d: f64) -> f64 {
    let [a, b, c, d] = [a, b, c, d].map(|part| part as f32);
    f32::quotient::<IMAGINARY>([a, b], [c, d]).into()
}

extern "C" fn quotient_double<const IMAGINARY: bool>(a: f64, b: f64, c: f64, d: f64) -> f64 {
    f64::quotient::<IMAGINARY>([a, b], [c, d])
}
