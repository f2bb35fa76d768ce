//! The kernel's clock, which NTP or PTP keeps right.

use std::io;

/// The state of the kernel's clock, as `adjtimex(2)` reports it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KernelClock {
    /// UNIX time in seconds at which the clock was read.
    pub unix_time: f64,
    /// Whether the clock is synchronised, and whether a leap second is near.
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
    /// Estimated error in seconds from which on the clock does not count as synchronised, and the
    /// same of the greatest possible error: katgpucbf's limits.
    pub const ERROR_LIMITS: [f64; 2] = [5e-3, 0.1];

    /// Whether something keeps the clock right.
    pub fn is_synchronised(&self) -> bool {
        let [estimated, maximum] = Self::ERROR_LIMITS;
        self.state != ClockState::Unsynchronised
            && (0.0..estimated).contains(&self.estimated_error)
            && (0.0..maximum).contains(&self.maximum_error)
    }

    /// Reads the clock. Needs no privileges.
    pub fn read() -> io::Result<Self> {
        // SAFETY: all fields are integers, for which zero is a value; no mode is set, so the clock
        // is only read.
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
