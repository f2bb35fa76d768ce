//! Loops over samples as machine code.
//!
//! The operations of a loop depend on those of the sample before: there is nothing to do for many
//! samples at once, and to choose the next operation takes longer than the operation. So a loop is
//! compiled when its graph is. Cranelift makes the code; what it does not know here is left to
//! [`execute`](super::execute).
//!
//! Why this is sound: the code reads and writes whole numbers of a run, for as many samples as it
//! is called with, in lanes whose length was noted for the most samples that there can be;
//! [`Compiled::run`] refuses more samples and shorter lanes. Tables that it reads are kept with it.

mod operation;

use std::collections::HashMap;
use std::sync::Arc;

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{
    AbiParam, BlockArg, InstBuilder, MemFlags, Signature, Type, Value, types,
};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{Linkage, Module, default_libcall_names};

use super::execute::{Operation, View};
use super::formula::Lookup;
use super::lane::Lane;
use super::op::{Arithmetic, Op};
use super::places::Places;
use crate::number::Rounding;
use crate::operators::{BitwiseOp, Comparison, FunctionOf, ShiftKind};
use crate::types::Scalar;

/// The most taps that are written out one by one.
const MOST_TAPS: usize = 128;

type Entry = unsafe extern "C" fn(lanes: *const *mut u8, count: usize);

/// A loop that can be called.
pub(crate) struct Compiled {
    /// Taken when this is dropped.
    module: Option<JITModule>,
    entry: Entry,
    /// The lanes by their place in the table of pointers, with the bytes that must be there.
    lanes: Vec<(usize, usize)>,
    pointers: Vec<*mut u8>,
    /// The most samples.
    count: usize,
    /// What the code reads.
    _tables: Vec<Arc<[u64]>>,
}

// SAFETY: nothing else has the module, and the pointers are valid in `run` alone.
unsafe impl Send for Compiled {}

impl Drop for Compiled {
    fn drop(&mut self) {
        if let Some(module) = self.module.take() {
            // SAFETY: the code is called through `self` alone.
            unsafe { module.free_memory() };
        }
    }
}

impl Compiled {
    /// Runs the loop for so many samples. False if it was not made for them: then nothing is done.
    pub fn run(&mut self, lanes: &mut [Lane], count: usize) -> bool {
        if count > self.count {
            return false;
        }
        for (pointer, &(lane, bytes)) in self.pointers.iter_mut().zip(&self.lanes) {
            let Some(memory) = lanes.get_mut(lane).map(Lane::bytes_mut) else {
                return false;
            };
            if memory.len() < bytes {
                return false;
            }
            *pointer = memory.as_mut_ptr();
        }
        // SAFETY: the pointers are those of lanes that are long enough, borrowed here.
        unsafe { (self.entry)(self.pointers.as_ptr(), count) };
        true
    }
}

extern "C" fn sin(x: f64) -> f64 {
    x.sin()
}
extern "C" fn cos(x: f64) -> f64 {
    x.cos()
}
extern "C" fn atan(x: f64) -> f64 {
    x.atan()
}
extern "C" fn exp(x: f64) -> f64 {
    x.exp()
}
extern "C" fn ln(x: f64) -> f64 {
    x.ln()
}
extern "C" fn atan2(y: f64, x: f64) -> f64 {
    y.atan2(x)
}

fn kind(scalar: Scalar) -> Type {
    match scalar {
        Scalar::F32 => types::F32,
        Scalar::F64 => types::F64,
        other => match other.bytes() {
            1 => types::I8,
            2 => types::I16,
            4 => types::I32,
            _ => types::I64,
        },
    }
}

/// One number of one sample: its lane, and its place from the lane's beginning in the first sample.
type Place = (usize, usize);

struct Making<'a, 'f> {
    builder: &'a mut FunctionBuilder<'f>,
    /// The pointer to each lane.
    bases: HashMap<usize, Value>,
    /// Numbers that are known in this sample.
    known: HashMap<Place, Value>,
    sample: Value,
    tables: Vec<Arc<[u64]>>,
}

/// The loop as machine code, for at most `count` samples; none if an operation is not known here,
/// or if no code can be made on this machine.
pub(crate) fn compile(
    ops: &[Operation],
    stored: &dyn Fn(View) -> bool,
    count: usize,
) -> Option<Compiled> {
    let known = ops.iter().all(|op| {
        let ends = op.reaches();
        ends.iter().all(|(view, _)| view.len == 1)
    });
    if !known || cfg!(target_endian = "big") {
        return None;
    }
    let mut flags = settings::builder();
    flags.set("opt_level", "speed").ok()?;
    let isa = cranelift_native::builder().ok()?;
    let isa = isa.finish(settings::Flags::new(flags)).ok()?;
    let mut module = JITModule::new(JITBuilder::with_isa(isa, default_libcall_names()));
    let pointer = module.target_config().pointer_type();
    let mut context = module.make_context();
    let parameters = [AbiParam::new(pointer), AbiParam::new(pointer)];
    context.func.signature.params.extend(parameters);
    // The bytes of each lane that are touched.
    let mut bytes: Vec<(usize, usize)> = Vec::new();
    for (view, more) in ops.iter().flat_map(Op::reaches) {
        let end = (view.first + count + more) * view.scalar.bytes();
        // Places in a lane become parts of instructions, which have 32 bits for them and a sign.
        i32::try_from(end).ok()?;
        match bytes.iter_mut().find(|(lane, _)| *lane == view.lane) {
            Some((_, bytes)) => *bytes = end.max(*bytes),
            None => bytes.push((view.lane, end)),
        }
    }
    let mut scratch = FunctionBuilderContext::new();
    let mut builder = FunctionBuilder::new(&mut context.func, &mut scratch);
    let tables = function(&mut builder, ops, stored, &bytes, pointer);
    let tables = match tables {
        Some(tables) => {
            builder.seal_all_blocks();
            builder.finalize();
            tables
        }
        None => return None,
    };
    let id = module
        .declare_function("loop", Linkage::Export, &context.func.signature)
        .ok()?;
    module.define_function(id, &mut context).ok()?;
    module.clear_context(&mut context);
    module.finalize_definitions().ok()?;
    let code = module.get_finalized_function(id);
    // SAFETY: the function has been made with this signature, by the machine's convention.
    let entry = unsafe { std::mem::transmute::<*const u8, Entry>(code) };
    Some(Compiled {
        module: Some(module),
        entry,
        pointers: vec![std::ptr::null_mut(); bytes.len()],
        lanes: bytes,
        count,
        _tables: tables,
    })
}

/// The body: for each sample all operations. What is read of the sample before goes from one turn
/// to the next in a register.
fn function(
    builder: &mut FunctionBuilder,
    ops: &[Operation],
    stored: &dyn Fn(View) -> bool,
    lanes: &[(usize, usize)],
    pointer: Type,
) -> Option<Vec<Arc<[u64]>>> {
    let [enter, turn, body, leave] = [(); 4].map(|()| builder.create_block());
    builder.append_block_params_for_function_params(enter);
    builder.switch_to_block(enter);
    let (table, count) = (
        builder.block_params(enter)[0],
        builder.block_params(enter)[1],
    );
    let flags = MemFlags::trusted();
    let mut bases = HashMap::new();
    for (index, &(lane, _)) in lanes.iter().enumerate() {
        let base = builder.ins().load(pointer, flags, table, 8 * index as i32);
        bases.insert(lane, base);
    }
    // Runs that are written here and read one sample later.
    let written: Vec<View> = ops.iter().filter_map(|op| op.operands().0).collect();
    let mut carried: Vec<View> = Vec::new();
    for (view, _) in ops.iter().flat_map(Op::reaches) {
        let next = |d: &&View| d.lane == view.lane && d.first == view.first + 1;
        if let Some(d) = written.iter().find(next)
            && !carried
                .iter()
                .any(|known| known.lane == d.lane && known.first == d.first)
        {
            carried.push(*d);
        }
    }
    let zero = builder.ins().iconst(pointer, 0);
    let mut arguments = vec![BlockArg::from(zero)];
    for d in &carried {
        let at = ((d.first - 1) * d.scalar.bytes()) as i32;
        let before = builder
            .ins()
            .load(kind(d.scalar), flags, bases[&d.lane], at);
        arguments.push(before.into());
    }
    builder.ins().jump(turn, &arguments);
    builder.append_block_param(turn, pointer);
    for d in &carried {
        builder.append_block_param(turn, kind(d.scalar));
    }
    builder.switch_to_block(turn);
    let parameters = builder.block_params(turn).to_vec();
    let sample = parameters[0];
    let more = builder.ins().icmp(IntCC::UnsignedLessThan, sample, count);
    builder.ins().brif(more, body, &[], leave, &[]);
    builder.switch_to_block(body);
    let known = carried
        .iter()
        .zip(&parameters[1..])
        .map(|(d, &value)| ((d.lane, d.first - 1), value))
        .collect();
    let mut making = Making {
        builder,
        bases,
        known,
        sample,
        tables: Vec::new(),
    };
    for op in ops {
        let d = op.operands().0?;
        let value = making.operation(op, d)?;
        making.write(d, value, stored(d));
    }
    let Making { known, tables, .. } = making;
    let next = builder.ins().iadd_imm(sample, 1);
    let mut arguments = vec![BlockArg::from(next)];
    for d in &carried {
        arguments.push((*known.get(&(d.lane, d.first))?).into());
    }
    builder.ins().jump(turn, &arguments);
    builder.switch_to_block(leave);
    builder.ins().return_(&[]);
    Some(tables)
}

impl Making<'_, '_> {
    fn address(&mut self, lane: usize, scalar: Scalar) -> Value {
        let shift = scalar.bytes().trailing_zeros();
        let offset = self.builder.ins().ishl_imm(self.sample, i64::from(shift));
        self.builder.ins().iadd(self.bases[&lane], offset)
    }

    fn read(&mut self, view: View) -> Value {
        if let Some(&value) = self.known.get(&(view.lane, view.first)) {
            return value;
        }
        let address = self.address(view.lane, view.scalar);
        let at = (view.first * view.scalar.bytes()) as i32;
        let flags = MemFlags::trusted();
        self.builder
            .ins()
            .load(kind(view.scalar), flags, address, at)
    }

    fn write(&mut self, view: View, value: Value, store: bool) {
        self.known.insert((view.lane, view.first), value);
        if !store {
            return;
        }
        let address = self.address(view.lane, view.scalar);
        let at = (view.first * view.scalar.bytes()) as i32;
        self.builder
            .ins()
            .store(MemFlags::trusted(), value, address, at);
    }

    fn number(&mut self, scalar: Scalar, bits: u64) -> Value {
        match scalar {
            Scalar::F32 => self.builder.ins().f32const(f32::from_bits(bits as u32)),
            Scalar::F64 => self.builder.ins().f64const(f64::from_bits(bits)),
            other => {
                let bits = match other.bytes() {
                    1 => i64::from(bits as u8),
                    2 => i64::from(bits as u16),
                    4 => i64::from(bits as u32),
                    _ => bits as i64,
                };
                self.builder.ins().iconst(kind(other), bits)
            }
        }
    }

    fn compare(&mut self, scalar: Scalar, relation: Comparison, a: Value, b: Value) -> Value {
        use Comparison::*;
        if scalar.is_float() {
            let code = match relation {
                Less => FloatCC::LessThan,
                LessEqual => FloatCC::LessThanOrEqual,
                Greater => FloatCC::GreaterThan,
                GreaterEqual => FloatCC::GreaterThanOrEqual,
                Equal => FloatCC::Equal,
                Unequal => FloatCC::NotEqual,
            };
            return self.builder.ins().fcmp(code, a, b);
        }
        let code = match (relation, scalar.is_signed()) {
            (Less, true) => IntCC::SignedLessThan,
            (Less, false) => IntCC::UnsignedLessThan,
            (LessEqual, true) => IntCC::SignedLessThanOrEqual,
            (LessEqual, false) => IntCC::UnsignedLessThanOrEqual,
            (Greater, true) => IntCC::SignedGreaterThan,
            (Greater, false) => IntCC::UnsignedGreaterThan,
            (GreaterEqual, true) => IntCC::SignedGreaterThanOrEqual,
            (GreaterEqual, false) => IntCC::UnsignedGreaterThanOrEqual,
            (Equal, _) => IntCC::Equal,
            (Unequal, _) => IntCC::NotEqual,
        };
        self.builder.ins().icmp(code, a, b)
    }

    fn fused(&mut self, scalar: Scalar, a: Value, b: Value, sum: Value) -> Value {
        if scalar.is_float() {
            return self.builder.ins().fma(a, b, sum);
        }
        let product = self.builder.ins().imul(a, b);
        self.builder.ins().iadd(product, sum)
    }

    /// A number of another type, as `as` makes it.
    fn cast(
        &mut self,
        value: Value,
        from: Scalar,
        to: Scalar,
        rounding: Rounding,
    ) -> Option<Value> {
        let ins = |making: &mut Self, f: &dyn Fn(&mut FunctionBuilder) -> Value| f(making.builder);
        if from == to {
            return Some(value);
        }
        if to == Scalar::Bool {
            let zero = self.number(from, 0);
            return Some(self.compare(from, Comparison::Unequal, value, zero));
        }
        let (before, after) = (kind(from), kind(to));
        Some(match (from.is_float(), to.is_float()) {
            (true, true) if from == Scalar::F32 => {
                ins(self, &|b| b.ins().fpromote(types::F64, value))
            }
            (true, true) => ins(self, &|b| b.ins().fdemote(types::F32, value)),
            (false, true) => {
                let wide = if before == types::I64 {
                    value
                } else if from.is_signed() {
                    ins(self, &|b| b.ins().sextend(types::I64, value))
                } else {
                    ins(self, &|b| b.ins().uextend(types::I64, value))
                };
                if from == Scalar::U64 {
                    ins(self, &|b| b.ins().fcvt_from_uint(after, wide))
                } else {
                    ins(self, &|b| b.ins().fcvt_from_sint(after, wide))
                }
            }
            (true, false) => {
                let rounded = match rounding {
                    Rounding::Zero => value,
                    Rounding::Floor => ins(self, &|b| b.ins().floor(value)),
                    Rounding::Nearest => ins(self, &|b| b.ins().nearest(value)),
                };
                self.whole(rounded, to)
            }
            (false, false) if before.bits() > after.bits() => {
                ins(self, &|b| b.ins().ireduce(after, value))
            }
            (false, false) if before == after => value,
            (false, false) if from.is_signed() => ins(self, &|b| b.ins().sextend(after, value)),
            (false, false) => ins(self, &|b| b.ins().uextend(after, value)),
        })
    }

    /// A float as a whole number within the range of its type.
    fn whole(&mut self, value: Value, to: Scalar) -> Value {
        let bits = 8 * to.bytes() as u32;
        if to.is_signed() {
            let wide = self.builder.ins().fcvt_to_sint_sat(types::I64, value);
            if bits == 64 {
                return wide;
            }
            let most = self.builder.ins().iconst(types::I64, (1 << (bits - 1)) - 1);
            let least = self.builder.ins().iconst(types::I64, -(1 << (bits - 1)));
            let wide = self.builder.ins().smin(wide, most);
            let wide = self.builder.ins().smax(wide, least);
            return self.builder.ins().ireduce(kind(to), wide);
        }
        let wide = self.builder.ins().fcvt_to_uint_sat(types::I64, value);
        if bits == 64 {
            return wide;
        }
        let most = self.builder.ins().iconst(types::I64, (1 << bits) - 1);
        let wide = self.builder.ins().umin(wide, most);
        self.builder.ins().ireduce(kind(to), wide)
    }

    /// The entry of a table, whose words lie side by side.
    fn entry(&mut self, table: &Arc<[u64]>, index: Value, scalar: Scalar) -> Value {
        let address = table.as_ptr() as i64;
        self.tables.push(table.clone());
        let base = self.builder.ins().iconst(types::I64, address);
        let offset = self.builder.ins().ishl_imm(index, 3);
        let at = self.builder.ins().iadd(base, offset);
        self.builder
            .ins()
            .load(kind(scalar), MemFlags::trusted(), at, 0)
    }

    /// Calls a function of doubles.
    fn call(&mut self, function: usize, arguments: &[Value]) -> Value {
        let convention = self.builder.func.signature.call_conv;
        let mut signature = Signature::new(convention);
        signature.params = vec![AbiParam::new(types::F64); arguments.len()];
        signature.returns.push(AbiParam::new(types::F64));
        let signature = self.builder.import_signature(signature);
        let address = self.builder.ins().iconst(types::I64, function as i64);
        let call = self
            .builder
            .ins()
            .call_indirect(signature, address, arguments);
        self.builder.inst_results(call)[0]
    }

    fn double(&mut self, value: Value, scalar: Scalar) -> Option<Value> {
        self.cast(value, scalar, Scalar::F64, Rounding::Zero)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_beyond_what_an_instruction_holds_are_left_to_others() {
        let compiled = |first: usize| {
            let view = |lane, first| View {
                lane,
                first,
                len: 1,
                scalar: Scalar::F32,
            };
            let copy = Op::Copy {
                d: view(0, 0),
                a: view(1, first),
            };
            compile(&[copy], &|_| true, 16).is_some()
        };
        assert!(compiled((1 << 29) - 17));
        assert!(!compiled((1 << 29) - 16));
        assert!(!compiled(1 << 30));
    }
}
