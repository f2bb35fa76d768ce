//! Clocks: the time-stamp counter, and what the kernel says of its own.

use std::io;
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

/// What the kernel says of its clock, which NTP or PTP keeps right.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KernelClock {
    /// UNIX time in seconds when it was read.
    pub unix_time: f64,
    /// Whether it is synchronised, and whether a leap second is near.
    pub state: ClockState,
    /// Estimated error in seconds.
    pub estimated_error: f64,
    /// Greatest possible error in seconds.
    pub maximum_error: f64,
}

/// States of the kernel's clock, as `adjtimex(2)` returns them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockState {
    /// Synchronised.
    Ok,
    /// A leap second will be added at the end of the day.
    InsertSecond,
    /// A leap second will be deleted at the end of the day.
    DeleteSecond,
    /// A leap second is in progress.
    LeapSecond,
    /// A leap second has just been.
    LeapOver,
    /// Not synchronised.
    Unsynchronised,
}

impl KernelClock {
    /// Reads it. Needs no privileges.
    pub fn read() -> io::Result<Self> {
        // SAFETY: all fields are integers, for which zero is a value; no mode is set, so the clock is only read.
        let (timex, state) = unsafe {
            let mut timex: libc::timex = std::mem::zeroed();
            let state = libc::adjtimex(&mut timex);
            (timex, state)
        };
        let state = match state {
            ..0 => return Err(io::Error::last_os_error()),
            libc::TIME_OK => ClockState::Ok,
            libc::TIME_INS => ClockState::InsertSecond,
            libc::TIME_DEL => ClockState::DeleteSecond,
            libc::TIME_OOP => ClockState::LeapSecond,
            libc::TIME_WAIT => ClockState::LeapOver,
            _ => ClockState::Unsynchronised,
        };
        let nanoseconds = timex.status & libc::STA_NANO != 0;
        let fraction = if nanoseconds { 1e-9 } else { 1e-6 };
        Ok(Self {
            unix_time: timex.time.tv_sec as f64 + timex.time.tv_usec as f64 * fraction,
            state,
            estimated_error: timex.esterror as f64 * 1e-6,
            maximum_error: timex.maxerror as f64 * 1e-6,
        })
    }
}
