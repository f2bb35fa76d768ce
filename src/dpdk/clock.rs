//! Reading the time-stamp counter.

use std::time::Duration;

use super::Eal;

/// The CPU's time-stamp counter, in ticks.
#[inline]
pub fn tsc() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: RDTSC is part of every x86-64 CPU and has no side effects.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        // SAFETY: reads a counter register, with no side effects.
        unsafe { dpdk_sys::karoo_rdtsc() }
    }
}

/// Relation of TSC ticks to seconds, as EAL measured or read it at start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TscClock {
    hz: u64,
}

impl TscClock {
    /// The clock of this machine; EAL calibrates it at start.
    pub fn new(_eal: &Eal) -> Self {
        // SAFETY: EAL is initialised, which `_eal` proves.
        let hz = unsafe { dpdk_sys::rte_get_tsc_hz() };
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

    /// Ticks in `duration`, rounded down.
    pub fn ticks(self, duration: Duration) -> u64 {
        (duration.as_nanos() * u128::from(self.hz) / 1_000_000_000) as u64
    }
}
