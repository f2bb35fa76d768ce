//! Vectors of floats: those of the processor, and arrays where there are none.
//!
//! The compiler makes vectors of loops over arrays by itself, but not always the same ones; what
//! has to stay in registers is written with these.

use super::element::Real;

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

/// A float with its vectors.
pub(super) trait Float: Real {
    type Half: Lanes<Real = Self>;
    type Full: Lanes<Real = Self>;
}

/// An array in the place of a vector.
#[derive(Clone, Copy)]
pub(super) struct Array<T>([T; 8]);

macro_rules! each {
    ($self:ident, $other:ident, $f:ident) => {
        Array(std::array::from_fn(|lane| $self.0[lane].$f($other.0[lane])))
    };
}

impl<T: Real> Lanes for Array<T> {
    type Real = T;
    const COUNT: usize = 8;
    #[inline(always)]
    unsafe fn all(number: T) -> Self {
        Array([number; 8])
    }
    #[inline(always)]
    unsafe fn load(from: *const T) -> Self {
        // SAFETY: the caller has so many numbers there.
        Array(unsafe { from.cast::<[T; 8]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut T) {
        // SAFETY: as above.
        unsafe { to.cast::<[T; 8]>().write_unaligned(self.0) }
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

#[cfg(not(target_arch = "x86_64"))]
impl Float for f32 {
    type Half = Array<f32>;
    type Full = Array<f32>;
}

#[cfg(not(target_arch = "x86_64"))]
impl Float for f64 {
    type Half = Array<f64>;
    type Full = Array<f64>;
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Float, Lanes};

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

    impl Float for f32 {
        type Half = HalfF32;
        type Full = FullF32;
    }

    impl Float for f64 {
        type Half = HalfF64;
        type Full = FullF64;
    }
}
