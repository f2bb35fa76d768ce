//! How fast an output's packets leave.

use std::time::Duration;

use ground::TscClock;

/// Bytes that may leave at once after a pause (as katgpucbf's library has it).
const BURST_BYTES: f64 = 65536.0;

/// A token bucket over the time-stamp counter; bytes are those of UDP payloads.
#[derive(Clone, Debug)]
pub struct Pace {
    /// 0: unlimited.
    ticks_per_byte: f64,
    /// Ticks that the bytes sent may be ahead of their time.
    depth: f64,
    start: u64,
    /// When, in ticks after `start`, the bytes sent so far would have left at the exact rate.
    due: f64,
}

impl Pace {
    /// As fast as the port takes packets.
    pub const UNLIMITED: Self = Self {
        ticks_per_byte: 0.0,
        depth: 0.0,
        start: 0,
        due: 0.0,
    };

    /// `rate` bytes per second, which is positive, from `now` on. A sender that may sleep for `nap`
    /// catches up with that much of the rate at once.
    pub fn new(clock: TscClock, rate: f64, nap: Duration, now: u64) -> Self {
        let ticks_per_byte = clock.hz() as f64 / rate;
        Self {
            ticks_per_byte,
            depth: (BURST_BYTES * ticks_per_byte).max(clock.ticks(nap) as f64),
            start: now,
            due: 0.0,
        }
    }

    /// Whether there is a limit.
    pub fn is_limited(&self) -> bool {
        self.ticks_per_byte > 0.0
    }

    /// Whether another packet may leave.
    #[inline]
    pub fn allows(&self, now: u64) -> bool {
        self.due <= self.after_start(now) + self.depth
    }

    /// Books a packet of `bytes`.
    #[inline]
    pub fn sent(&mut self, bytes: usize, now: u64) {
        self.due = self.due.max(self.after_start(now)) + bytes as f64 * self.ticks_per_byte;
    }

    fn after_start(&self, now: u64) -> f64 {
        now.saturating_sub(self.start) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dpdk::Eal;

    /// Sends whenever it may, looking every `step` ticks; returns bytes sent by the time of each
    /// look.
    fn run(pace: &mut Pace, from: u64, to: u64, step: usize) -> u64 {
        let mut bytes = 0;
        for now in (from..to).step_by(step) {
            while pace.allows(now) {
                pace.sent(8264, now);
                bytes += 8264;
            }
        }
        bytes
    }

    #[test]
    fn the_rate_is_kept_and_pauses_are_not_made_up_for() {
        let clock = Eal::for_tests().tsc_clock();
        let (hz, rate) = (clock.hz(), 1e9);
        let second = |seconds: f64| (seconds * hz as f64) as u64;
        let start = 1 << 50;
        let mut pace = Pace::new(clock, rate, Duration::ZERO, start);
        let most = |seconds: f64| seconds * rate + BURST_BYTES + 8264.0;
        let bytes = run(
            &mut pace,
            start,
            start + second(0.1),
            hz as usize / 1_000_000,
        ) as f64;
        assert!(bytes <= most(0.1) && bytes > 0.1 * rate, "{bytes}");
        // Half a second without packets earns one burst, no more.
        let again = start + second(0.6);
        let bytes = run(
            &mut pace,
            again,
            again + second(0.1),
            hz as usize / 1_000_000,
        ) as f64;
        assert!(bytes <= most(0.1) && bytes > 0.1 * rate, "{bytes}");
    }

    /// However seldom it looks: a bucket that leaks at the rate never holds more than ours and one
    /// packet.
    #[test]
    fn no_stretch_of_time_has_more_than_the_bucket() {
        let clock = Eal::for_tests().tsc_clock();
        let (hz, rate, packet) = (clock.hz() as f64, 1e9, 8264.0);
        let mut pace = Pace::new(clock, rate, Duration::ZERO, 0);
        let (mut level, mut most, mut last): (f64, f64, u64) = (0.0, 0.0, 0);
        let mut now = 0;
        for look in 0..20_000u64 {
            // From a fraction of a packet's time to that of several buckets.
            now += (hz * packet / rate * (0.1 + (look * look % 97) as f64 / 4.0)) as u64;
            while pace.allows(now) {
                pace.sent(packet as usize, now);
                level = (level - (now - last) as f64 * rate / hz).max(0.0) + packet;
                most = most.max(level);
                last = now;
            }
        }
        assert!(most <= BURST_BYTES + packet && most > BURST_BYTES, "{most}");
    }

    #[test]
    fn a_sender_that_naps_keeps_the_rate() {
        let clock = Eal::for_tests().tsc_clock();
        let (hz, rate) = (clock.hz(), 4e9);
        let nap = Duration::from_millis(1);
        let bytes = |nap| {
            let mut pace = Pace::new(clock, rate, nap, 0);
            run(&mut pace, 0, hz / 10, hz as usize / 2000) as f64
        };
        assert!(bytes(nap) > 0.1 * rate);
        assert!(bytes(Duration::ZERO) < 0.05 * rate);
    }

    #[test]
    fn no_limit_is_no_limit() {
        let mut pace = Pace::UNLIMITED;
        pace.sent(usize::MAX, 5);
        assert!(pace.allows(5) && !pace.is_limited());
    }
}
