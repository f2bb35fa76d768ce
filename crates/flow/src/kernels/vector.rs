//! Vectors of floats: those of the processor, and arrays where there are none.
//!
//! The compiler makes vectors of loops over arrays by itself, but not always the same ones; what
//! has to stay in registers is written with these.

use super::element::Real;
use super::places::Places;

/// Some floats side by side.
///
/// # Safety
///
/// Every function needs a processor that has the type's instructions: it is called only from
/// [`Work`](super::simd::Work) that was given the width of the type. Pointers are to as many
/// numbers as there are lanes, at any address.
pub(super) trait Lanes: Copy {
    type Real: Real;
    const COUNT: usize;
    unsafe fn all(number: Self::Real) -> Self;
    unsafe fn load(from: *const Self::Real) -> Self;
    unsafe fn store(self, to: *mut Self::Real);
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn sub(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    unsafe fn div(self, other: Self) -> Self;
    unsafe fn neg(self) -> Self;
    /// The product with `factor` and `sum`, rounded once.
    unsafe fn fused(self, factor: Self, sum: Self) -> Self;
}

/// Vectors that hold conditions as well: where one holds, all bits of its lane are set, and
/// otherwise none.
///
/// # Safety
///
/// The condition of [`Lanes`].
pub(super) trait Choice: Lanes {
    unsafe fn less(self, other: Self) -> Self;
    unsafe fn less_equal(self, other: Self) -> Self;
    unsafe fn equal(self, other: Self) -> Self;
    unsafe fn and(self, other: Self) -> Self;
    unsafe fn or(self, other: Self) -> Self;
    unsafe fn xor(self, other: Self) -> Self;
    unsafe fn not(self) -> Self;
    /// `a` where this condition holds, otherwise `b`.
    unsafe fn choose(self, a: Self, b: Self) -> Self;
    /// The places of as many numbers as go into `to`: whole vectors.
    unsafe fn places(from: *const Self::Real, places: &Places, to: &mut [i32]);
    /// The entries of a table, as bits in the low ends of words, at as many places as there are
    /// lanes.
    unsafe fn entries(places: *const i32, table: *const u64) -> Self;
}

/// A float with its vectors.
pub(super) trait Float: Real {
    type Half: Choice<Real = Self>;
    type Full: Choice<Real = Self>;
    fn wide(self) -> f64;
    /// A condition in a lane.
    fn condition(holds: bool) -> Self;
    /// What [`condition`](Float::condition) was told.
    fn holds(self) -> bool;
}

macro_rules! conditions {
    ($real:ident: $bits:ident) => {
        #[inline(always)]
        fn wide(self) -> f64 {
            self.into()
        }
        #[inline(always)]
        fn condition(holds: bool) -> Self {
            $real::from_bits(if holds { $bits::MAX } else { 0 })
        }
        #[inline(always)]
        fn holds(self) -> bool {
            self.to_bits() != 0
        }
    };
}

/// An array in the place of a vector.
#[derive(Clone, Copy)]
pub(super) struct Array<T, const N: usize = 8>([T; N]);

macro_rules! each {
    ($self:ident, $other:ident, $f:ident) => {
        Array(std::array::from_fn(|lane| $self.0[lane].$f($other.0[lane])))
    };
}

impl<T: Real, const N: usize> Lanes for Array<T, N> {
    type Real = T;
    const COUNT: usize = N;
    #[inline(always)]
    unsafe fn all(number: T) -> Self {
        Array([number; N])
    }
    #[inline(always)]
    unsafe fn load(from: *const T) -> Self {
        // SAFETY: the caller has so many numbers there.
        Array(unsafe { from.cast::<[T; N]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut T) {
        // SAFETY: as above.
        unsafe { to.cast::<[T; N]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        each!(self, other, add)
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        each!(self, other, sub)
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        each!(self, other, mul)
    }
    #[inline(always)]
    unsafe fn div(self, other: Self) -> Self {
        each!(self, other, div)
    }
    #[inline(always)]
    unsafe fn neg(self) -> Self {
        Array(self.0.map(Real::neg))
    }
    #[inline(always)]
    unsafe fn fused(self, factor: Self, sum: Self) -> Self {
        Array(std::array::from_fn(|lane| {
            self.0[lane].fused(factor.0[lane], sum.0[lane])
        }))
    }
}

impl<T: Float, const N: usize> Array<T, N> {
    #[inline(always)]
    fn conditions(self, other: Self, f: impl Fn(T, T) -> bool) -> Self {
        Array(std::array::from_fn(|lane| {
            T::condition(f(self.0[lane], other.0[lane]))
        }))
    }
}

impl<T: Float, const N: usize> Choice for Array<T, N> {
    #[inline(always)]
    unsafe fn less(self, other: Self) -> Self {
        self.conditions(other, |a, b| a < b)
    }
    #[inline(always)]
    unsafe fn less_equal(self, other: Self) -> Self {
        self.conditions(other, |a, b| a <= b)
    }
    #[inline(always)]
    unsafe fn equal(self, other: Self) -> Self {
        self.conditions(other, |a, b| a == b)
    }
    #[inline(always)]
    unsafe fn and(self, other: Self) -> Self {
        self.conditions(other, |a, b| a.holds() & b.holds())
    }
    #[inline(always)]
    unsafe fn or(self, other: Self) -> Self {
        self.conditions(other, |a, b| a.holds() | b.holds())
    }
    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        self.conditions(other, |a, b| a.holds() ^ b.holds())
    }
    #[inline(always)]
    unsafe fn not(self) -> Self {
        self.conditions(self, |a, _| !a.holds())
    }
    #[inline(always)]
    unsafe fn choose(self, a: Self, b: Self) -> Self {
        Array(std::array::from_fn(|lane| {
            if self.0[lane].holds() {
                a.0[lane]
            } else {
                b.0[lane]
            }
        }))
    }
    #[inline(always)]
    unsafe fn places(from: *const T, places: &Places, to: &mut [i32]) {
        for (number, to) in to.iter_mut().enumerate() {
            // SAFETY: the caller has so many numbers there.
            *to = places.of(unsafe { *from.add(number) }.wide());
        }
    }
    #[inline(always)]
    unsafe fn entries(places: *const i32, table: *const u64) -> Self {
        // SAFETY: the caller has places for all lanes, and entries at these.
        Array(std::array::from_fn(|lane| unsafe {
            T::from_bits(*table.add(*places.add(lane) as u32 as usize))
        }))
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl Float for f32 {
    type Half = Array<f32>;
    type Full = Array<f32>;
    conditions!(f32: u32);
}

#[cfg(not(target_arch = "x86_64"))]
impl Float for f64 {
    type Half = Array<f64>;
    type Full = Array<f64>;
    conditions!(f64: u64);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Choice, Float, Lanes, Places};

    macro_rules! lanes {
        ($name:ident, $vector:ident, $real:ident, $count:literal, $all:ident, $load:ident,
         $store:ident, $add:ident, $sub:ident, $mul:ident, $div:ident, $xor:ident, $fused:ident) => {
            #[derive(Clone, Copy)]
            pub struct $name($vector);

            // SAFETY of every call: the caller's promise, see the trait.
            #[allow(clippy::undocumented_unsafe_blocks)]
            impl Lanes for $name {
                type Real = $real;
                const COUNT: usize = $count;
                #[inline(always)]
                unsafe fn all(number: $real) -> Self {
                    $name(unsafe { $all(number) })
                }
                #[inline(always)]
                unsafe fn load(from: *const $real) -> Self {
                    $name(unsafe { $load(from) })
                }
                #[inline(always)]
                unsafe fn store(self, to: *mut $real) {
                    unsafe { $store(to, self.0) }
                }
                #[inline(always)]
                unsafe fn add(self, other: Self) -> Self {
                    $name(unsafe { $add(self.0, other.0) })
                }
                #[inline(always)]
                unsafe fn sub(self, other: Self) -> Self {
                    $name(unsafe { $sub(self.0, other.0) })
                }
                #[inline(always)]
                unsafe fn mul(self, other: Self) -> Self {
                    $name(unsafe { $mul(self.0, other.0) })
                }
                #[inline(always)]
                unsafe fn div(self, other: Self) -> Self {
                    $name(unsafe { $div(self.0, other.0) })
                }
                #[inline(always)]
                unsafe fn neg(self) -> Self {
                    $name(unsafe { $xor(self.0, $all(-0.0)) })
                }
                #[inline(always)]
                unsafe fn fused(self, factor: Self, sum: Self) -> Self {
                    $name(unsafe { $fused(self.0, factor.0, sum.0) })
                }
            }
        };
    }

    #[rustfmt::skip]
    lanes!(HalfF32, __m256, f32, 8, _mm256_set1_ps, _mm256_loadu_ps, _mm256_storeu_ps,
        _mm256_add_ps, _mm256_sub_ps, _mm256_mul_ps, _mm256_div_ps, _mm256_xor_ps, _mm256_fmadd_ps);
    #[rustfmt::skip]
    lanes!(HalfF64, __m256d, f64, 4, _mm256_set1_pd, _mm256_loadu_pd, _mm256_storeu_pd,
        _mm256_add_pd, _mm256_sub_pd, _mm256_mul_pd, _mm256_div_pd, _mm256_xor_pd, _mm256_fmadd_pd);
    #[rustfmt::skip]
    lanes!(FullF32, __m512, f32, 16, _mm512_set1_ps, _mm512_loadu_ps, _mm512_storeu_ps,
        _mm512_add_ps, _mm512_sub_ps, _mm512_mul_ps, _mm512_div_ps, _mm512_xor_ps, _mm512_fmadd_ps);
    #[rustfmt::skip]
    lanes!(FullF64, __m512d, f64, 8, _mm512_set1_pd, _mm512_loadu_pd, _mm512_storeu_pd,
        _mm512_add_pd, _mm512_sub_pd, _mm512_mul_pd, _mm512_div_pd, _mm512_xor_pd, _mm512_fmadd_pd);

    /// Doubles that become places.
    trait Doubles: Lanes<Real = f64> {
        /// These or `last`, whichever is less, cut to whole numbers from 0 on, into `to`.
        ///
        /// # Safety
        ///
        /// The condition of [`Lanes`].
        unsafe fn place(self, last: Self, to: *mut i32);
    }

    impl Doubles for HalfF64 {
        #[inline(always)]
        unsafe fn place(self, last: Self, to: *mut i32) {
            // SAFETY: the caller's. Not-a-number stays one here, and is a negative place.
            unsafe {
                let at = _mm256_cvttpd_epi32(_mm256_min_pd(last.0, self.0));
                _mm_storeu_si128(to.cast(), _mm_max_epi32(at, _mm_setzero_si128()));
            }
        }
    }

    impl Doubles for FullF64 {
        #[inline(always)]
        unsafe fn place(self, last: Self, to: *mut i32) {
            // SAFETY: as above.
            unsafe {
                let at = _mm512_cvttpd_epi32(_mm512_min_pd(last.0, self.0));
                _mm256_storeu_si256(to.cast(), _mm256_max_epi32(at, _mm256_setzero_si256()));
            }
        }
    }

    /// The places of as many numbers as go into `to`, of which `wide` gives a vector.
    ///
    /// # Safety
    ///
    /// The condition of [`Lanes`].
    #[inline(always)]
    unsafe fn places<D: Doubles>(wide: impl Fn(usize) -> D, places: &Places, to: &mut [i32]) {
        // SAFETY: the caller's; `to` has room for the places of each whole vector.
        unsafe {
            let (first, by) = (D::all(places.first), D::all(places.by));
            let (last, half) = (D::all(places.last), D::all(0.5));
            for (vector, to) in to.chunks_exact_mut(D::COUNT).enumerate() {
                let distance = wide(D::COUNT * vector).sub(first);
                let at = if places.divide {
                    distance.div(by)
                } else {
                    distance.mul(by)
                };
                let at = if places.nearest { at.add(half) } else { at };
                at.place(last, to.as_mut_ptr());
            }
        }
    }

    // Comparisons give masks with 512 bits: they are spread over the lanes.
    macro_rules! spread {
        ($compare:ident, $choose:ident, $vector:ident, $mask:ident, $spread:ident, $bits:ident,
         $real:ident, $by_bits:ident) => {
            /// # Safety
            ///
            /// The condition of [`Lanes`].
            #[inline(always)]
            unsafe fn $compare<const RELATION: i32>(a: $vector, b: $vector) -> $vector {
                // SAFETY: the caller's.
                unsafe { $real($spread($mask::<RELATION>(a, b))) }
            }
            /// `b` where all bits of `condition` are set, `a` where none is.
            ///
            /// # Safety
            ///
            /// The condition of [`Lanes`].
            #[inline(always)]
            unsafe fn $choose(a: $vector, b: $vector, condition: $vector) -> $vector {
                /// The second operand by the bits of the first, otherwise the third.
                const CHOOSE: i32 = 0xCA;
                // SAFETY: the caller's.
                unsafe { $real($by_bits::<CHOOSE>($bits(condition), $bits(b), $bits(a))) }
            }
        };
    }

    #[rustfmt::skip]
    spread!(compare_ps, choose_ps, __m512, _mm512_cmp_ps_mask, _mm512_movm_epi32,
        _mm512_castps_si512, _mm512_castsi512_ps, _mm512_ternarylogic_epi32);
    #[rustfmt::skip]
    spread!(compare_pd, choose_pd, __m512d, _mm512_cmp_pd_mask, _mm512_movm_epi64,
        _mm512_castpd_si512, _mm512_castsi512_pd, _mm512_ternarylogic_epi64);

    macro_rules! choice {
        ($name:ident, $real:ident, $compare:ident, $and:ident, $or:ident, $xor:ident,
         $choose:ident, $all:ident, |$from:ident| $wide:expr,
         |$places:ident, $table:ident| $entries:expr) => {
            // SAFETY of every call: the caller's promise, see the trait.
            #[allow(clippy::undocumented_unsafe_blocks)]
            impl Choice for $name {
                #[inline(always)]
                unsafe fn less(self, other: Self) -> Self {
                    $name(unsafe { $compare::<_CMP_LT_OQ>(self.0, other.0) })
                }
                #[inline(always)]
                unsafe fn less_equal(self, other: Self) -> Self {
                    $name(unsafe { $compare::<_CMP_LE_OQ>(self.0, other.0) })
                }
                #[inline(always)]
                unsafe fn equal(self, other: Self) -> Self {
                    $name(unsafe { $compare::<_CMP_EQ_OQ>(self.0, other.0) })
                }
                #[inline(always)]
                unsafe fn and(self, other: Self) -> Self {
                    $name(unsafe { $and(self.0, other.0) })
                }
                #[inline(always)]
                unsafe fn or(self, other: Self) -> Self {
                    $name(unsafe { $or(self.0, other.0) })
                }
                #[inline(always)]
                unsafe fn xor(self, other: Self) -> Self {
                    $name(unsafe { $xor(self.0, other.0) })
                }
                #[inline(always)]
                unsafe fn not(self) -> Self {
                    $name(unsafe { $xor(self.0, $all($real::from_bits(!0))) })
                }
                #[inline(always)]
                unsafe fn choose(self, a: Self, b: Self) -> Self {
                    $name(unsafe { $choose(b.0, a.0, self.0) })
                }
                #[inline(always)]
                unsafe fn places(from: *const $real, of: &Places, to: &mut [i32]) {
                    let wide = |at: usize| unsafe {
                        let $from = from.add(at);
                        $wide
                    };
                    unsafe { places(wide, of, to) }
                }
                #[inline(always)]
                unsafe fn entries($places: *const i32, $table: *const u64) -> Self {
                    $name(unsafe { $entries })
                }
            }
        };
    }

    /// An entry of a table, as bits in the low end of a word.
    macro_rules! entry {
        ($real:ident, $places:ident, $table:ident, $lane:literal) => {
            $real::from_bits(*$table.add(*$places.add($lane) as u32 as usize) as _)
        };
    }
    macro_rules! set {
        ($set:ident, $real:ident, $places:ident, $table:ident: $($lane:literal),*) => {
            $set($(entry!($real, $places, $table, $lane)),*)
        };
    }

    #[rustfmt::skip]
    choice!(HalfF32, f32, _mm256_cmp_ps, _mm256_and_ps, _mm256_or_ps, _mm256_xor_ps,
        _mm256_blendv_ps, _mm256_set1_ps, |from| HalfF64(_mm256_cvtps_pd(_mm_loadu_ps(from))),
        |places, table| set!(_mm256_setr_ps, f32, places, table: 0, 1, 2, 3, 4, 5, 6, 7));
    #[rustfmt::skip]
    choice!(HalfF64, f64, _mm256_cmp_pd, _mm256_and_pd, _mm256_or_pd, _mm256_xor_pd,
        _mm256_blendv_pd, _mm256_set1_pd, |from| HalfF64(_mm256_loadu_pd(from)),
        |places, table| set!(_mm256_setr_pd, f64, places, table: 0, 1, 2, 3));
    // Entries are gathered from the low ends of words of 8 bytes.
    #[rustfmt::skip]
    choice!(FullF32, f32, compare_ps, _mm512_and_ps, _mm512_or_ps, _mm512_xor_ps,
        choose_ps, _mm512_set1_ps, |from| FullF64(_mm512_cvtps_pd(_mm256_loadu_ps(from))),
        |places, table| _mm512_i32gather_ps::<8>(_mm512_loadu_si512(places.cast()), table.cast()));
    #[rustfmt::skip]
    choice!(FullF64, f64, compare_pd, _mm512_and_pd, _mm512_or_pd, _mm512_xor_pd,
        choose_pd, _mm512_set1_pd, |from| FullF64(_mm512_loadu_pd(from)),
        |places, table| _mm512_i32gather_pd::<8>(_mm256_loadu_si256(places.cast()), table.cast()));

    impl Float for f32 {
        type Half = HalfF32;
        type Full = FullF32;
        conditions!(f32: u32);
    }

    impl Float for f64 {
        type Half = HalfF64;
        type Full = FullF64;
        conditions!(f64: u64);
    }
}
