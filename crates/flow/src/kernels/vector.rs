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
/// That of [`Lanes`].
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

    macro_rules! choice {
        ($name:ident, $real:ident, $compare:ident, $and:ident, $or:ident, $xor:ident,
         $choose:ident, $all:ident, $set:ident($($lane:literal),*),
         |$from:ident| $wide:expr) => {
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
                unsafe fn places(from: *const $real, places: &Places, to: &mut [i32]) {
                    unsafe {
                        let first = _mm256_set1_pd(places.first);
                        let by = _mm256_set1_pd(places.by);
                        let last = _mm256_set1_pd(places.last);
                        let half = _mm256_set1_pd(0.5);
                        for (four, to) in to.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                            let $from = from.add(4 * four);
                            let distance = _mm256_sub_pd($wide, first);
                            let at = if places.divide {
                                _mm256_div_pd(distance, by)
                            } else {
                                _mm256_mul_pd(distance, by)
                            };
                            let at = if places.nearest {
                                _mm256_add_pd(at, half)
                            } else {
                                at
                            };
                            // Not-a-number stays one here, and is a negative place.
                            let at = _mm256_cvttpd_epi32(_mm256_min_pd(last, at));
                            let at = _mm_max_epi32(at, _mm_setzero_si128());
                            _mm_storeu_si128(to.as_mut_ptr().cast(), at);
                        }
                    }
                }
                #[inline(always)]
                unsafe fn entries(places: *const i32, table: *const u64) -> Self {
                    let entry = |lane: usize| unsafe {
                        $real::from_bits(*table.add(*places.add(lane) as u32 as usize) as _)
                    };
                    $name(unsafe { $set($(entry($lane)),*) })
                }
            }
        };
    }

    #[rustfmt::skip]
    choice!(HalfF32, f32, _mm256_cmp_ps, _mm256_and_ps, _mm256_or_ps, _mm256_xor_ps,
        _mm256_blendv_ps, _mm256_set1_ps, _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7),
        |from| _mm256_cvtps_pd(_mm_loadu_ps(from)));
    #[rustfmt::skip]
    choice!(HalfF64, f64, _mm256_cmp_pd, _mm256_and_pd, _mm256_or_pd, _mm256_xor_pd,
        _mm256_blendv_pd, _mm256_set1_pd, _mm256_setr_pd(0, 1, 2, 3),
        |from| _mm256_loadu_pd(from));

    macro_rules! full_choice {
        ($name:ident, $real:ident, $compare:ident, $spread:ident, $bits:ident, $real_of:ident,
         $choose:ident, $and:ident, $or:ident, $xor:ident, $all:ident, $gather:ident,
         |$of_places:ident| $index:expr, |$from:ident| $wide:expr) => {
            // SAFETY of every call: the caller's promise, see the trait.
            #[allow(clippy::undocumented_unsafe_blocks)]
            impl Choice for $name {
                #[inline(always)]
                unsafe fn less(self, other: Self) -> Self {
                    $name(unsafe { $real_of($spread($compare::<_CMP_LT_OQ>(self.0, other.0))) })
                }
                #[inline(always)]
                unsafe fn less_equal(self, other: Self) -> Self {
                    $name(unsafe { $real_of($spread($compare::<_CMP_LE_OQ>(self.0, other.0))) })
                }
                #[inline(always)]
                unsafe fn equal(self, other: Self) -> Self {
                    $name(unsafe { $real_of($spread($compare::<_CMP_EQ_OQ>(self.0, other.0))) })
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
                    // By bits: those of `a` where those of the condition are set.
                    const CHOOSE: i32 = 0xCA;
                    $name(unsafe {
                        $real_of($choose::<CHOOSE>($bits(self.0), $bits(a.0), $bits(b.0)))
                    })
                }
                #[inline(always)]
                unsafe fn places(from: *const $real, places: &Places, to: &mut [i32]) {
                    unsafe {
                        let first = _mm512_set1_pd(places.first);
                        let by = _mm512_set1_pd(places.by);
                        let last = _mm512_set1_pd(places.last);
                        let half = _mm512_set1_pd(0.5);
                        for (eight, to) in to.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                            let $from = from.add(8 * eight);
                            let distance = _mm512_sub_pd($wide, first);
                            let at = if places.divide {
                                _mm512_div_pd(distance, by)
                            } else {
                                _mm512_mul_pd(distance, by)
                            };
                            let at = if places.nearest {
                                _mm512_add_pd(at, half)
                            } else {
                                at
                            };
                            // Not-a-number stays one here, and is a negative place.
                            let at = _mm512_cvttpd_epi32(_mm512_min_pd(last, at));
                            let at = _mm256_max_epi32(at, _mm256_setzero_si256());
                            _mm256_storeu_si256(to.as_mut_ptr().cast(), at);
                        }
                    }
                }
                #[inline(always)]
                unsafe fn entries($of_places: *const i32, table: *const u64) -> Self {
                    // Entries are in the low ends of words of 8 bytes.
                    $name(unsafe { $gather::<8>($index, table.cast()) })
                }
            }
        };
    }

    #[rustfmt::skip]
    full_choice!(FullF32, f32, _mm512_cmp_ps_mask, _mm512_movm_epi32, _mm512_castps_si512,
        _mm512_castsi512_ps, _mm512_ternarylogic_epi32, _mm512_and_ps, _mm512_or_ps,
        _mm512_xor_ps, _mm512_set1_ps, _mm512_i32gather_ps,
        |places| _mm512_loadu_si512(places.cast()),
        |from| _mm512_cvtps_pd(_mm256_loadu_ps(from)));
    #[rustfmt::skip]
    full_choice!(FullF64, f64, _mm512_cmp_pd_mask, _mm512_movm_epi64, _mm512_castpd_si512,
        _mm512_castsi512_pd, _mm512_ternarylogic_epi64, _mm512_and_pd, _mm512_or_pd,
        _mm512_xor_pd, _mm512_set1_pd, _mm512_i32gather_pd,
        |places| _mm256_loadu_si256(places.cast()),
        |from| _mm512_loadu_pd(from));

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
