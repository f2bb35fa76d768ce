//! What ends a stream: options, signals, and who looks at it meanwhile.

use std::cell::Cell;
use std::thread;
use std::time::Duration;

use clap::Args;
use karoo_flow::adapters::Stop;

use crate::cli::Failure;
use crate::cli::log::{self, LogTo};
use crate::cli::serve::{Serving, Sockets};
use crate::config::units;
use crate::modem::{ModemPage, Watcher};

/// When receiving ends, if its samples do not.
#[derive(Debug, Args)]
#[command(next_help_heading = "End")]
pub struct EndOptions {
    /// Seconds after which it ends
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    seconds: Option<Duration>,
    /// Frames that come out, delivered or not, before it ends
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), allow_negative_numbers = true)]
    frames: Option<u64>,
}

impl EndOptions {
    /// How many frames are wanted, if not all.
    pub fn frames(&self) -> Option<u64> {
        self.frames
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let value = units::seconds(text).map_err(|error| error.to_string())?;
    match Duration::try_from_secs_f64(value) {
        Ok(time) if !time.is_zero() => Ok(time),
        _ => Err("it must be above 0 and below 1.8e19 seconds; try 60".to_owned()),
    }
}

/// Why a run failed, and what it had done until then.
pub fn after(failure: Failure, done: &str) -> Failure {
    match failure {
        Failure::Data(why) => Failure::data(format!("{why}; {done} until then")),
        other => other,
    }
}

/// Signals, heard as long as samples come or go.
pub struct Watch {
    serving: Serving,
    has_page: bool,
    stop: Stop,
    /// Whether somebody has wanted the end, rather than an option.
    is_told: Cell<bool>,
}

impl Watch {
    /// Listens from now on.
    pub fn start(http: Option<u16>) -> Result<Watch, Failure> {
        let level = log::start(LogTo::default());
        let sockets = Sockets::bind("--http", http)?;
        let serving = Serving::start(sockets, level)?;
        Ok(Watch {
            has_page: http.is_some(),
            stop: serving.told().clone(),
            is_told: Cell::new(false),
            serving,
        })
    }

    /// Ends it after the time that `end` names, also where an input waits for a peer.
    pub fn end_after(&self, end: &EndOptions) -> Result<(), Failure> {
        let Some(seconds) = end.seconds else {
            return Ok(());
        };
        let stop = self.stop.clone();
        let wait = move || {
            thread::sleep(seconds);
            stop.set();
        };
        let thread = thread::Builder::new().name("end".to_owned()).spawn(wait);
        thread.map(drop).map_err(Failure::data)
    }

    /// What the receiver of a stream, which decodes on so many threads, is to tell its page, if it
    /// has one: shown from now on.
    pub fn watcher(&mut self, name: &str, threads: usize) -> Option<Watcher> {
        self.has_page.then(|| {
            let watcher = Watcher::new(threads);
            self.serving.show(ModemPage::site(name, &watcher));
            watcher
        })
    }

    /// What ends inputs that wait for a peer.
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Whether somebody wants the end.
    pub fn has_ended(&self) -> bool {
        if let Some(why) = self.serving.told_to_end() {
            tracing::info!(%why, "ending");
            self.is_told.set(true);
            self.stop.set();
        }
        self.stop.is_set()
    }

    /// Fails a run between files, or pipes with an end, that somebody has ended before.
    pub fn whole(&self) -> Result<(), Failure> {
        self.has_ended();
        match self.is_told.get() {
            true => Err(Failure::data("ended by a signal before the input's end")),
            false => Ok(()),
        }
    }

    /// Ends it; a signal then ends the process.
    pub fn finish(self) {
        self.serving.stop();
    }
}
