//! Loops over samples and symbols, compiled for the instruction sets that there are.
//!
//! Each kernel is written once. It is compiled three times: plainly, for AVX2 with fused
//! multiply-add, and for AVX-512; a [`Level`] says which one runs. Levels differ in the last bits
//! of a sum, never in anything else. The calls of functions that are compiled for a processor's
//! features are the only `unsafe` of the receiver.
#![allow(unsafe_code)]

mod front;
mod interpolate;
mod samples;
mod symbols;

use std::fmt;

pub(crate) use front::*;
pub(crate) use interpolate::interpolate;
pub(crate) use samples::*;
pub(crate) use symbols::*;

/// An instruction set that the receiver's loops are compiled for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Level {
    /// Plain Rust, on any machine.
    pub const PORTABLE: Level = Level(Kind::Portable);

    /// All that this machine has, the lowest first.
    pub fn available() -> Vec<Level> {
        #[allow(unused_mut)]
        let mut levels = vec![Level::PORTABLE];
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            if avx2 {
                levels.push(Level(Kind::Avx2));
            }
            if avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
            {
                levels.push(Level(Kind::Avx512));
            }
        }
        levels
    }

    /// The highest of this machine.
    pub fn detect() -> Level {
        Level::available().pop().unwrap_or(Level::PORTABLE)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self.0 {
            Kind::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => "AVX-512",
        })
    }
}

impl fmt::Debug for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// a·b + c, fused where the processor does that.
#[inline(always)]
fn mac<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// Defines a function that runs its body as compiled for a level. `FMA` says in the body whether
/// multiply-add is fused.
macro_rules! kernel {
    ($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block) => {
        $(#[$doc])*
        #[allow(clippy::too_many_arguments)]
        pub(crate) fn $name(level: Level, $($arg: $type),*) $(-> $result)? {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn body<const FMA: bool>($($arg: $type),*) $(-> $result)? $body
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            #[allow(clippy::too_many_arguments)]
            fn avx2($($arg: $type),*) $(-> $result)? { body::<true>($($arg),*) }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
            #[allow(clippy::too_many_arguments)]
            fn avx512($($arg: $type),*) $(-> $result)? { body::<true>($($arg),*) }
            match level.0 {
                Kind::Portable => body::<false>($($arg),*),
                // SAFETY: only `available` makes such a level, after asking the processor.
                #[cfg(target_arch = "x86_64")]
                Kind::Avx2 => unsafe { avx2($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                Kind::Avx512 => unsafe { avx512($($arg),*) },
            }
        }
    };
}

use kernel;
