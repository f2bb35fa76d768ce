//! Kernels: what nodes compute, on flat arrays of many samples.
//!
//! A node describes itself by [`Code`]: operations on runs of real numbers of one type, so many for
//! each sample. Whoever runs the code lays the runs out in memory and works on many samples with
//! each operation, or on all operations of one sample where a loop demands it. Either way the
//! arithmetic of each number is the same, and so are the bits.
//!
//! Loops over samples are plain Rust, compiled once for any machine and once for AVX2 and FMA; the
//! better one is chosen when the program runs. What has to keep numbers in registers is written
//! with vectors, also those of AVX-512.
//!
//! # Files
//!
//! In the order from what a node says to what a processor does:
//!
//! | file | what it does |
//! |---|---|
//! | `code` | what nodes compute, as operations on runs |
//! | `op`, `op/operands` | the operations, and the runs that they read and write |
//! | `links` | the parts of operations that do several things to one number |
//! | `lane` | the memory of a run |
//! | `execute` | does operations on lanes, by the files that follow |
//! | `element` | each number by itself |
//! | `rearrange` | numbers that only move |
//! | `table`, `places`, `gathers` | tables with the ways to read them, functions, long delays |
//! | `fir`, `columns` | filters, sample by sample and by columns of taps |
//! | `chain` | operations in a row on one number |
//! | `formula` | operations with conditions |
//! | `recur`, `limited` | loops through one number, and sums in them that have limits |
//! | `sample_loop` | other loops, one sample after the other, on words |
//! | `jit`, `jit/operation`, `no_jit` | the same loops as machine code, where that can be made |
//! | `simd`, `vector` | what the processor has: levels, and vectors of floats |

mod code;
mod element;
mod execute;
mod fir;
// Lanes that have been lent memory.
#[allow(unsafe_code)]
pub(crate) mod lane;
// Machine code that was made here is called here.
#[allow(unsafe_code)]
#[cfg(feature = "jit")]
mod jit;
#[cfg(not(feature = "jit"))]
#[path = "no_jit.rs"]
mod jit;
mod limited;
mod links;
mod op;
mod places;
mod rearrange;
mod recur;
mod sample_loop;
mod table;

// Modules with unsafe code: functions for instruction sets that the processor was asked for, their
// vectors, and filters that keep sums in vectors.
#[allow(unsafe_code)]
mod chain;
#[allow(unsafe_code)]
mod columns;
#[allow(unsafe_code)]
mod formula;
#[allow(unsafe_code)]
mod gathers;
#[allow(unsafe_code)]
mod simd;
#[allow(unsafe_code)]
mod vector;

pub(crate) use chain::{HELD, LINKS};
pub(crate) use code::{Changeable, Changing, Making};
pub use code::{Code, Initial, Planes, Reg};
pub(crate) use execute::{Memory, Operation, View, execute};
pub(crate) use fir::scratch;
pub(crate) use formula::{FormulaOperand, FormulaPart, Lookup, PARTS};
pub(crate) use jit::{Compiled, compile};
pub(crate) use links::{Link, Operand, Turn, With};
pub(crate) use op::{Arithmetic, Fold, Op, Term};
pub(crate) use places::Places;
pub(crate) use recur::TURNS;
pub(crate) use sample_loop::SampleLoop;
pub use simd::Level;
pub(crate) use table::Line;

/// Measures what kernels of this level need to know, the first time.
pub(crate) fn prepare(level: Level) {
    if level.is_full() {
        gathers::pay(level);
    }
}
