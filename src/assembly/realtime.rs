//! Real-time scheduling, under which controllers may start engines.
//!
//! Before Linux 6.12 the kernel stops real-time threads that never sleep for a part of each period,
//! and lcores poll. Since then it lets others run on their CPU for that part, if there are any.

use std::fs;

use ground::os::leave_real_time;

/// How this process's real-time threads are stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttle {
    /// The policy that it was started under.
    pub policy: &'static str,
    /// Microseconds for which real-time threads may run in a period (`kernel.sched_rt_runtime_us`).
    pub runtime: i64,
    /// Microseconds of a period (`kernel.sched_rt_period_us`).
    pub period: i64,
}

impl Throttle {
    /// Microseconds of a stop that does no harm: NICs hold more.
    const HARMLESS: i64 = 1000;

    /// Finds how the kernel would stop this process's real-time threads; `None` if that does no
    /// harm.
    pub fn find() -> Option<Self> {
        let sysctl = |name| fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok();
        if !stops(&sysctl("osrelease")?) {
            return None;
        }
        Self::of(
            &fs::read_to_string("/proc/thread-self/stat").ok()?,
            &sysctl("sched_rt_runtime_us")?,
            &sysctl("sched_rt_period_us")?,
        )
    }

    fn of(stat: &str, runtime: &str, period: &str) -> Option<Self> {
        // Field 41 of proc_pid_stat(5); the second is a name in parentheses, which may have any
        // character.
        let (_, fields) = stat.rsplit_once(") ")?;
        let policy = match fields.split_ascii_whitespace().nth(41 - 3)? {
            "1" => "SCHED_FIFO",
            "2" => "SCHED_RR",
            _ => return None,
        };
        let [runtime, period] = [runtime, period].map(|text| text.trim().parse::<i64>().ok());
        let (runtime, period) = (runtime?, period?);
        let harmless = runtime < 0 || period.checked_sub(runtime)? <= Self::HARMLESS;
        (!harmless).then_some(Self {
            policy,
            runtime,
            period,
        })
    }

    /// Has this thread, and those that it starts from now on, be ordinary ones, and says so.
    pub fn evade(self) {
        let Self {
            policy,
            runtime,
            period,
        } = self;
        let (stop, enough) = (period - runtime, period - Self::HARMLESS);
        match leave_real_time() {
            Ok(()) => tracing::warn!(
                "started under {policy}, whose threads the kernel stops for {stop} of each {period} µs if they poll: running \
                 under SCHED_OTHER instead. It keeps {policy} with sysctl kernel.sched_rt_runtime_us={enough}, as karoo tune has it"
            ),
            Err(error) => tracing::warn!(
                %error,
                "under {policy} the kernel stops threads that poll for {stop} of each {period} µs, and packets are lost: \
                 sysctl kernel.sched_rt_runtime_us={enough}"
            ),
        }
    }
}

/// Whether a kernel of this release stops real-time threads.
fn stops(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next().and_then(|text| text.parse::<u32>().ok());
    (number(), number()) < (Some(6), Some(12))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(policy: u32) -> String {
        let fields: Vec<_> = (3..53)
            .map(|field| if field == 41 { policy } else { field })
            .map(|value| value.to_string())
            .collect();
        format!("17 (a) 2 (b)) {}\n", fields.join(" "))
    }

    #[test]
    fn real_time_threads_are_stopped_unless_they_have_nearly_all_time() {
        let of = |policy, runtime| Throttle::of(&stat(policy), runtime, "1000000\n");
        let throttle = of(2, "950000\n").expect("the kernel's default");
        assert_eq!(throttle.policy, "SCHED_RR");
        assert_eq!((throttle.runtime, throttle.period), (950_000, 1_000_000));
        assert_eq!(of(1, "0\n").expect("none at all").policy, "SCHED_FIFO");
        assert_eq!(of(2, "-1\n"), None);
        assert_eq!(of(2, "999000\n"), None);
        assert!(of(2, "998999\n").is_some());
        assert_eq!(of(0, "950000\n"), None);
        assert_eq!(of(3, "950000\n"), None);
        assert_eq!(Throttle::of("", "950000", "1000000"), None);
    }

    #[test]
    fn kernels_of_today_stop_nothing() {
        assert!(stops("5.15.0-91-generic\n") && stops("6.1.0-49-amd64") && stops("6.11"));
        assert!(!stops("6.12.0-rc1") && !stops("6.18.2") && !stops("7.0"));
    }
}
