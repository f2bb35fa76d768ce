//! How far a simulator is, for who waits: a bar on a terminal, lines in the log elsewhere.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use ground::StopFlag;
use indicatif::{ProgressBar, ProgressStyle};

use super::config::DigitiserConfig;
use super::signal::Signal;
use super::window::{Making, Windows};

/// Between two lines of the log.
const EVERY: Duration = Duration::from_secs(10);

/// Says how much of some work is done.
pub struct SimProgress {
    what: &'static str,
    total: u64,
    done: u64,
    bar: ProgressBar,
    /// When the next line is due; `None` on a terminal.
    due: Option<Instant>,
}

impl SimProgress {
    /// Of `total` steps of `what`, of which none is done.
    pub fn new(what: &'static str, total: u64) -> Self {
        let style = ProgressStyle::with_template("{msg} {bar:40} {percent:>3}%  {eta} left");
        let bar = ProgressBar::new(total)
            .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
            .with_message(what);
        let due = (!stderr().is_terminal()).then(|| Instant::now() + EVERY);
        Self {
            what,
            total,
            done: 0,
            bar,
            due,
        }
    }

    /// One more step is done.
    pub fn step(&mut self) {
        self.done += 1;
        match &mut self.due {
            None => self.bar.inc(1),
            Some(due) if self.done.is_multiple_of(64) && Instant::now() >= *due => {
                *due += EVERY;
                let percent = self.done as f64 / self.total.max(1) as f64 * 100.0;
                tracing::info!(percent = percent.floor(), "{}", self.what);
            }
            Some(_) => {}
        }
    }
}

impl Drop for SimProgress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// What [`Windows::new`] makes, saying how far it is; `None` where `stop` ends it before.
pub fn windows(
    config: &DigitiserConfig,
    signals: &[Signal],
    period: u64,
    mut stop: impl FnMut() -> bool,
) -> Option<Windows> {
    let mut making = Making::new(config, signals, period, &StopFlag::default());
    let heaps = making.heaps();
    tracing::info!(
        polarisations = config.dests.len(),
        period,
        "computing signals"
    );
    let begun = Instant::now();
    let mut progress = SimProgress::new("computing signals", heaps);
    while making.step() {
        progress.step();
        if stop() {
            return None;
        }
    }
    drop(progress);
    let seconds = begun.elapsed().as_secs_f64();
    tracing::info!(seconds, "signals computed");
    Some(making.finish())
}
