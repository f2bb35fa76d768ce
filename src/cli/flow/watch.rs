//! What looks after a run: its live page, its table of telemetry, and signals.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

use karoo_flow::adapters::{Address, Stop};
use karoo_flow::run::{Handle, Shape, Telemetry};
use live::Site;

use crate::cli::serve::Serving;
use crate::cli::{Failure, NewFile, is_pipe};
use crate::flow::FlowPage;

/// How often a table of telemetry gets lines.
const EVERY: Duration = Duration::from_secs(1);
/// How often signals are looked for.
const LOOK: Duration = Duration::from_millis(50);

/// What looks after a run: shows it, keeps its table, and ends it when a signal comes.
pub struct Watcher<'a, 't> {
    pub serving: Serving,
    pub table: Option<&'a mut Table<'t>>,
    pub stop: &'a Stop,
    /// Brings a hold on the run, before it begins.
    pub newest: Receiver<Handle>,
    pub graph: &'a str,
    pub shape: Shape,
}

impl Watcher<'_, '_> {
    /// Looks after the run until `done` is set; gives back what serves, and the telemetry at the
    /// end of a run that had begun.
    pub fn watch(mut self, done: &AtomicBool) -> (Serving, Option<Telemetry>) {
        let (mut handle, mut ends): (Option<Handle>, bool) = (None, false);
        let mut next = Instant::now() + EVERY;
        while !done.load(Ordering::Acquire) {
            if let Ok(new) = self.newest.try_recv() {
                self.show(&new);
                handle = Some(new);
            }
            if let Some(why) = self.serving.told_to_end() {
                tracing::info!(%why, "ending");
                ends = true;
            }
            if ends {
                // Also a run that began later. It knows before its inputs end within a sample.
                handle.as_ref().inspect(|handle| handle.quit());
                self.stop.set();
            }
            if let Some((table, handle)) = self.table.as_mut().zip(handle.as_ref())
                && Instant::now() >= next
            {
                table.add(&handle.telemetry());
                next += EVERY;
            }
            thread::sleep(LOOK);
        }
        // A run that ended before it was looked at.
        let handle = handle.or_else(|| self.newest.try_recv().ok());
        (self.serving, handle.map(|handle| handle.telemetry()))
    }

    /// Lets browsers and Prometheus see the run.
    fn show(&mut self, handle: &Handle) {
        let page = FlowPage::new(self.graph, self.shape.clone(), handle.clone());
        let told = handle.clone();
        let metrics = move || Ok(told.telemetry().to_prometheus());
        self.serving
            .show(Site::default().metrics(metrics).source(page));
    }
}

/// A table that has no line yet.
enum New {
    File(NewFile),
    /// A named pipe, whose reader has come.
    Pipe(Box<dyn Write + Send>),
}

/// The telemetry of many moments, in a file.
pub struct Table<'a> {
    path: &'a PathBuf,
    /// The file before its first line, and behind it.
    new: Option<New>,
    file: Option<Box<dyn Write + Send>>,
    error: Option<io::Error>,
}

impl<'a> Table<'a> {
    /// Opens it. A named pipe waits for its reader until `stop` is set.
    pub fn new(path: &'a PathBuf, stop: &Stop) -> Result<Table<'a>, Failure> {
        let failed = |error| format!("--telemetry {}: {error}", path.display());
        let new = match is_pipe(path) {
            true => {
                let pipe = Address::File(path.clone()).writer(stop);
                New::Pipe(pipe.map_err(|error| Failure::data(failed(error)))?)
            }
            false => {
                let file = NewFile::open(path);
                New::File(file.map_err(|error| Failure::usage(failed(error)))?)
            }
        };
        Ok(Table {
            path,
            new: Some(new),
            file: None,
            error: None,
        })
    }

    /// Adds what is so now. What fails is told at the end, and the run goes on.
    pub fn add(&mut self, telemetry: &Telemetry) {
        if let Err(error) = self.write(telemetry) {
            self.error.get_or_insert(error);
        }
    }

    fn write(&mut self, telemetry: &Telemetry) -> io::Result<()> {
        if let Some(new) = self.new.take() {
            let mut file: Box<dyn Write + Send> = match new {
                New::File(file) => Box::new(file.begin()?),
                New::Pipe(pipe) => pipe,
            };
            writeln!(file, "{}", Telemetry::CSV)?;
            self.file = Some(file);
        }
        match &mut self.file {
            Some(file) => file.write_all(telemetry.to_csv().as_bytes()),
            None => Ok(()),
        }
    }

    /// Ends it; the first failure, if something could not be written.
    pub fn end(self) -> Result<(), Failure> {
        let failed = |error| Failure::data(format!("--telemetry {}: {error}", self.path.display()));
        self.error.map_or(Ok(()), |error| Err(failed(error)))
    }
}
