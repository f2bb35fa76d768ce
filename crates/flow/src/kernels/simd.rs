//! Work compiled for the processors that there are.

use std::fmt;

/// An instruction set that kernels are compiled for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(Kind);

// A whole word (u32), not a byte: a load of a word cannot take its value from a byte that was just
// stored. It would wait until all earlier stores are done, also those of a block on its way to
// another core (decision 89).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
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
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2");
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

    /// Whether it has the widest vectors, those of [`Width::Full`].
    pub(crate) fn is_full(self) -> bool {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => true,
            _ => false,
        }
    }

    /// The level for work that gains nothing from the widest vectors.
    pub(crate) fn narrow(self) -> Level {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => Level(Kind::Avx2),
            _ => self,
        }
    }

    /// The highest of this machine.
    pub fn detect() -> Level {
        Level::available().pop().unwrap_or(Level::PORTABLE)
    }
}

impl fmt::Debug for Level {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => "AVX-512",
        })
    }
}

/// The vectors of a level. Whoever is given one other than `Any` may use its instructions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Width {
    /// Whatever the compiler makes of arrays.
    Any,
    /// 256 bits: AVX2 and FMA.
    Half,
    /// 512 bits: AVX-512.
    Full,
}

/// Something to be compiled for each level: all that it calls is to be inlined.
pub(crate) trait Work {
    type Result;
    fn work(self, width: Width) -> Self::Result;
}

/// Does the work as compiled for a level.
pub(crate) fn at<W: Work>(level: Level, work: W) -> W::Result {
    match level.0 {
        Kind::Portable => work.work(Width::Any),
        // SAFETY: there is no such level without the processor having been asked, see `available`.
        #[cfg(target_arch = "x86_64")]
        Kind::Avx2 => unsafe { avx2(work) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Kind::Avx512 => unsafe { avx512(work) },
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2")]
fn avx2<W: Work>(work: W) -> W::Result {
    work.work(Width::Half)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,avx512f,avx512bw,avx512dq,avx512vl")]
fn avx512<W: Work>(work: W) -> W::Result {
    work.work(Width::Full)
}
