//! Whether this processor reads entries of a table faster many at once than one by one.
//!
//! Both give the same. Which one is faster differs: many single reads are what some processors
//! make of a gather, and what microcode makes of it on others.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::simd::{self, Level, Width, Work};
use super::vector::{Choice, Float};

/// Entries that are read.
const COUNT: usize = 2048;
/// Entries of the table: small enough for the nearest cache.
const TABLE: usize = 256;
const ROUNDS: usize = 8;

/// Entries one by one, as bits in the low ends of words.
///
/// # Safety
///
/// `places` has `count` numbers, `table` has an entry for each of them, and `to` has room for
/// `count` numbers.
#[inline(always)]
pub(super) unsafe fn singly<T: Float>(
    places: *const i32,
    table: *const u64,
    to: *mut T,
    count: usize,
) {
    for number in 0..count {
        // SAFETY: the caller's.
        unsafe {
            let place = *places.add(number) as u32 as usize;
            to.add(number).write(T::from_bits(*table.add(place)));
        }
    }
}

/// As [`singly`], but a whole vector of entries at once; `count` is a multiple of a vector's lanes.
///
/// # Safety
///
/// The conditions of [`singly`], and those of [`Lanes`](super::vector::Lanes).
#[inline(always)]
pub(super) unsafe fn at_once<V: Choice>(
    places: *const i32,
    table: *const u64,
    to: *mut V::Real,
    count: usize,
) {
    let mut number = 0;
    while number < count {
        // SAFETY: the caller's.
        unsafe { V::entries(places.add(number), table).store(to.add(number)) };
        number += V::COUNT;
    }
}

struct Reads<'a> {
    at_once: bool,
    places: &'a [i32; COUNT],
    table: &'a [u64; TABLE],
    to: &'a mut [f32; COUNT],
}

impl Work for Reads<'_> {
    type Result = Duration;
    #[inline(always)]
    fn work(self, width: Width) -> Duration {
        let (places, table) = (self.places.as_ptr(), self.table.as_ptr());
        let to = self.to.as_mut_ptr();
        let begin = Instant::now();
        // SAFETY: places are within the table; the width says what the processor has.
        unsafe {
            if self.at_once && width == Width::Full {
                at_once::<<f32 as Float>::Full>(places, table, to, COUNT);
            } else {
                singly(places, table, to, COUNT);
            }
        }
        begin.elapsed()
    }
}

/// Whether to read at once with the widest vectors. Measured once, which takes some 20 µs: not when
/// a run has begun.
pub(super) fn pay(level: Level) -> bool {
    static PAY: OnceLock<bool> = OnceLock::new();
    *PAY.get_or_init(|| {
        let places = std::array::from_fn(|at| (at * 73 % TABLE) as i32);
        let table = std::array::from_fn(|at| u64::from((at as f32).to_bits()));
        let mut to = [0.0; COUNT];
        let mut least = [Duration::MAX; 2];
        for round in 0..2 * ROUNDS {
            let at_once = round % 2 == 1;
            let reads = Reads {
                at_once,
                places: &places,
                table: &table,
                to: &mut to,
            };
            let took = simd::at(level, reads);
            std::hint::black_box(&mut to);
            least[round % 2] = least[round % 2].min(took);
        }
        least[1] < least[0]
    })
}
