//! The CPU's time-stamp counter.

use std::time::Duration;

/// Reads the CPU's time-stamp counter, in ticks.
#[inline]
#[allow(unsafe_code)]
pub fn tsc() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: RDTSC is part of every x86-64 CPU and has no side effects.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(target_arch = "aarch64")]
    {
        let ticks: u64;
        // SAFETY: every AArch64 CPU lets programs read its virtual counter; nothing else is
        // touched.
        unsafe {
            core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack));
        }
        ticks
    }
}

/// Where a thread reads the time, in ticks of the time-stamp counter.
pub trait Ticks: Clone + Send + 'static {
    /// Ticks since any start.
    fn now(&self) -> u64;
}

/// The time-stamp counter itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tsc;

impl Ticks for Tsc {
    #[inline]
    fn now(&self) -> u64 {
        tsc()
    }
}

/// The relation of time-stamp counter ticks to seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TscClock {
    hz: u64,
}

impl TscClock {
    /// A counter of `hz` ticks per second, at least one.
    pub fn new(hz: u64) -> Self {
        Self { hz: hz.max(1) }
    }

    /// Ticks per second.
    pub fn hz(self) -> u64 {
        self.hz
    }

    /// Seconds in `ticks`.
    pub fn seconds(self, ticks: u64) -> f64 {
        ticks as f64 / self.hz as f64
    }

    /// Ticks in `duration`, rounded down; if there are too many, as many as fit.
    pub fn ticks(self, duration: Duration) -> u64 {
        let ticks = duration.as_nanos().saturating_mul(u128::from(self.hz)) / 1_000_000_000;
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_as_many_ticks_as_fit() {
        let clock = TscClock::new(3_000_000_000);
        assert_eq!(clock.ticks(Duration::from_nanos(7)), 21);
        assert_eq!(clock.ticks(Duration::from_nanos(u64::MAX)), u64::MAX);
        // 2³³ s would be 3·10⁹·2³³ ticks, more than 2⁶⁴.
        assert_eq!(clock.ticks(Duration::from_secs(1 << 33)), u64::MAX);
        let fastest = TscClock::new(u64::MAX);
        assert_eq!(fastest.ticks(Duration::MAX), u64::MAX);
        assert_eq!(fastest.ticks(Duration::from_secs(1)), u64::MAX);
    }
}
