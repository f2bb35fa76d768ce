//! What systemd is told about an engine that it started as a service of `Type=notify`; nothing, if
//! it did not.

use std::time::{Duration, Instant};

use ground::stats::Liveness;
use sd_notify::NotifyState;

use crate::fgpu::LiveEngine;

/// How often data threads are looked at where no watchdog says how often.
const LOOK: Duration = Duration::from_secs(5);
/// How often the status is renewed.
const STATUS: Duration = Duration::from_secs(5);
/// For what ends before and after the engine: clients of control, memory.
const CLOSING: Duration = Duration::from_secs(5);
/// Looks per period of the watchdog. A turn may take all of the period but one of them.
const LOOKS: u32 = 4;

/// Tells what is under way.
pub fn status(text: &str) {
    tell(&[NotifyState::Status(text)]);
}

/// Tells that the engine is to end, which may take so long. Where a unit's `TimeoutStopSec` is
/// longer, that counts.
pub fn stopping(why: &str, within: Duration) {
    let extended = within.saturating_add(CLOSING).as_micros();
    tell(&[
        NotifyState::Stopping,
        NotifyState::Status(why),
        NotifyState::ExtendTimeoutUsec(extended.try_into().unwrap_or(u32::MAX)),
    ]);
}

fn tell(state: &[NotifyState]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "systemd cannot be told");
    }
}

/// Feeds the watchdog as long as all data threads go on, and renews the status.
pub struct Service {
    liveness: Liveness,
    watchdog: bool,
    every: Duration,
    next_look: Instant,
    next_status: Instant,
    stuck: Vec<String>,
}

impl Service {
    /// Tells that `engine` is ready, and how it is.
    pub fn ready(engine: &LiveEngine, how: &str) -> Self {
        let watchdog = sd_notify::watchdog_enabled();
        let every = watchdog.map_or(LOOK, |period| period / LOOKS);
        let now = Instant::now();
        tell(&[NotifyState::Ready, NotifyState::Status(how)]);
        Self {
            liveness: Liveness::of(engine.threads().times()),
            watchdog: watchdog.is_some(),
            every,
            next_look: now + every,
            next_status: now + STATUS,
            stuck: Vec::new(),
        }
    }

    /// Looks whether it is time for anything; `how` it is, in one line, is for the status.
    pub fn tend(&mut self, now: Instant, how: impl FnOnce() -> String) {
        if now >= self.next_look {
            self.next_look = now + self.every;
            self.look();
        }
        if now >= self.next_status && self.stuck.is_empty() {
            self.next_status = now + STATUS;
            status(&how());
        }
    }

    fn look(&mut self) {
        let stuck = self.liveness.stuck();
        if stuck.is_empty() && self.watchdog {
            tell(&[NotifyState::Watchdog]);
        }
        if stuck == self.stuck {
            return;
        }
        let threads = stuck.join(", ");
        if stuck.is_empty() {
            tracing::info!("all data threads go on");
        } else {
            tracing::error!(
                threads,
                "no turn for {:?}: the watchdog is not fed",
                self.every
            );
            status(&format!("Stuck: {threads}"));
        }
        self.stuck = stuck.into_iter().map(String::from).collect();
    }
}
