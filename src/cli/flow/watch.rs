//! What looks after a run: its live page, its table of telemetry, and signals.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use karoo_flow::adapters::{Address, Stop};
use karoo_flow::run::Moment;

use crate::cli::serve::Serving;
use crate::cli::waits::{Way, tell_wait, wait_in_words};
use crate::cli::{Failure, NewFile, is_pipe};
use crate::flow::RunWatch;

/// How often signals are looked for.
const LOOK: Duration = Duration::from_millis(50);

/// What looks after a run: keeps its table, and ends it when a signal comes.
pub struct Watcher<'a, 't> {
    pub serving: Serving,
    pub table: Option<&'a mut Table<'t>>,
    pub stop: &'a Stop,
    pub run: &'a RunWatch,
}

impl Watcher<'_, '_> {
    /// Looks after the run until `done` is set; gives back what serves, and the end of a run that
    /// had begun.
    pub fn watch(mut self, done: &AtomicBool) -> (Serving, Option<Moment>) {
        let mut ends = false;
        let mut next = None;
        while !done.load(Ordering::Acquire) {
            let handle = self.run.handle();
            if let Some(why) = self.serving.told_to_end() {
                tracing::info!(%why, "ending");
                ends = true;
            }
            if ends {
                // Also a run that began later. It knows before its inputs end within a sample.
                handle.inspect(|handle| handle.quit());
                self.stop.set();
            }
            if let Some((table, handle)) = self.table.as_mut().zip(handle) {
                let now = Instant::now();
                // Also the first line is of a whole period of the run.
                let next = next.get_or_insert(now + table.period);
                if now >= *next {
                    table.add(handle.moment());
                    // Lines for which there was no time are left out.
                    *next += table.period;
                    if *next <= now {
                        *next = now + table.period;
                    }
                }
            }
            thread::sleep(LOOK);
        }
        let handle = self.run.handle();
        (self.serving, handle.map(|handle| handle.moment()))
    }
}

/// A table that has no line yet.
enum New {
    File(NewFile),
    /// A named pipe, whose reader has come.
    Pipe(Box<dyn Write + Send>),
}

/// The run at many moments, in a file.
pub struct Table<'a> {
    path: &'a PathBuf,
    /// Time from line to line.
    period: Duration,
    /// The run at the last line.
    before: Moment,
    /// The file before its first line, and behind it.
    new: Option<New>,
    file: Option<Box<dyn Write + Send>>,
    error: Option<io::Error>,
}

impl<'a> Table<'a> {
    /// Opens it, with lines for each `period`. A named pipe waits for its reader until `stop` is
    /// set.
    pub fn new(
        (path, period): (&'a PathBuf, Duration),
        stop: &Stop,
        run: &RunWatch,
    ) -> Result<Table<'a>, Failure> {
        let failed = |error| format!("--telemetry {}: {error}", path.display());
        let new = match is_pipe(path) {
            true => {
                let address = Address::File(path.clone());
                let text = wait_in_words("--telemetry", &address, Way::Out);
                let _waits = text.map(|text| (run.wait("--telemetry", &text), tell_wait(text)));
                let pipe = address.writer(stop);
                New::Pipe(pipe.map_err(|error| Failure::data(failed(error)))?)
            }
            false => {
                let file = NewFile::open(path);
                New::File(file.map_err(|error| Failure::usage(failed(error)))?)
            }
        };
        Ok(Table {
            path,
            period,
            before: Moment::default(),
            new: Some(new),
            file: None,
            error: None,
        })
    }

    /// Adds the run at this moment. What fails is told at the end, and the run goes on.
    pub fn add(&mut self, now: Moment) {
        // Behind its end the time of a run stands still.
        let is_new = self.new.is_some() || now.telemetry.elapsed != self.before.telemetry.elapsed;
        if is_new && let Err(error) = self.write(&now) {
            self.error.get_or_insert(error);
        }
        self.before = now;
    }

    fn write(&mut self, now: &Moment) -> io::Result<()> {
        if let Some(new) = self.new.take() {
            let mut file: Box<dyn Write + Send> = match new {
                New::File(file) => Box::new(file.begin()?),
                New::Pipe(pipe) => pipe,
            };
            writeln!(file, "{}", Moment::CSV)?;
            self.file = Some(file);
        }
        match &mut self.file {
            Some(file) => file.write_all(now.to_csv(&self.before).as_bytes()),
            None => Ok(()),
        }
    }

    /// Ends it; the first failure, if something could not be written.
    pub fn end(self) -> Result<(), Failure> {
        let failed = |error| Failure::data(format!("--telemetry {}: {error}", self.path.display()));
        self.error.map_or(Ok(()), |error| Err(failed(error)))
    }
}
