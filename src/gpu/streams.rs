//! The streams of one engine, and what is common to all that uses them.

use std::collections::VecDeque;
use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaEvent, CudaStream, DriverError, result};
use ground::stats::ThreadReport;
use ground::stats::counter::add;

use super::launch::TableCopy;
use super::{Gpu, GpuError};
use crate::engine::PipelineError;

/// The streams of one engine on a GPU: copying in, computing and copying out go on side by side.
#[derive(Debug)]
pub struct Streams {
    gpu: Arc<Gpu>,
    pub(super) copy_in: Arc<CudaStream>,
    pub(super) compute: Arc<CudaStream>,
    pub(super) copy_out: Arc<CudaStream>,
    pub(super) table_copy: TableCopy,
}

impl Streams {
    /// Streams of their own for one engine; any number of engines share a GPU.
    pub fn new(gpu: Arc<Gpu>) -> Result<Arc<Self>, GpuError> {
        let stream = || {
            gpu.context.new_stream().map_err(|source| GpuError::Driver {
                what: "make a stream",
                source,
            })
        };
        Ok(Arc::new(Self {
            copy_in: stream()?,
            compute: stream()?,
            copy_out: stream()?,
            table_copy: TableCopy::new(&gpu)?,
            gpu,
        }))
    }

    /// The GPU.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// An event that only orders.
    pub(super) fn event(&self) -> Result<CudaEvent, DriverError> {
        self.gpu.context.new_event(None)
    }

    /// Waits until nothing is under way, before memory is given up. A GPU that failed has nothing
    /// under way.
    pub(super) fn settle(&self) {
        for stream in [&self.copy_in, &self.compute, &self.copy_out] {
            settle(stream);
        }
    }
}

/// Waits until nothing is under way on a stream. cudarc's way returns without waiting if something
/// else has failed before.
pub(super) fn settle(stream: &CudaStream) {
    let context = stream.context();
    let _ = context.check_err();
    let _ = context.bind_to_thread();
    // SAFETY: the stream is there.
    let _ = unsafe { result::stream::synchronize(stream.cu_stream()) };
}

/// What an error of the driver in the middle of a run means.
pub(super) fn failed(stage: &'static str) -> impl Fn(DriverError) -> PipelineError {
    let way_out = "look for the driver's Xid messages in dmesg, or use --backend cpu";
    move |error| PipelineError::new(stage, error, way_out)
}

/// How long a stream was busy with what was marked, read from time stamps long after they have
/// passed.
#[derive(Debug, Default)]
pub(super) struct Stopwatch {
    /// Least time from one timed piece of work to the next; zero: all are timed.
    pause: Duration,
    /// When the last timed piece began.
    timed: Option<Instant>,
    /// Pieces begun since then.
    begun: u64,
    /// Whether the piece that was begun last is timed.
    timing: bool,
    /// Events before and after each timed piece that has not been read, and how many pieces it
    /// stands for.
    running: VecDeque<([CudaEvent; 2], u64)>,
    /// Events for the next.
    spare: Vec<[CudaEvent; 2]>,
    /// Nanoseconds that the last piece that was read took.
    last: u64,
    /// Nanoseconds of all pieces that have been read; this has one writer.
    busy: Arc<AtomicU64>,
}

impl Stopwatch {
    /// A stopwatch for work that loses time with each time stamp: after each pause what begins next
    /// is timed, and stands for all that began meanwhile.
    pub fn with_pauses(pause: Duration) -> Self {
        Self {
            pause,
            ..Self::default()
        }
    }

    /// Marks the begin of work.
    pub fn start(&mut self, stream: &CudaStream) -> Result<(), DriverError> {
        self.begun += 1;
        self.timing = self.timed.is_none_or(|at| at.elapsed() >= self.pause);
        if !self.timing {
            return Ok(());
        }
        self.timed = Some(Instant::now());
        let stands_for = take(&mut self.begun);
        let event = || {
            let flags = CUevent_flags::CU_EVENT_DEFAULT;
            stream.context().new_event(Some(flags))
        };
        let marks = match self.spare.pop() {
            Some(marks) => marks,
            None => [event()?, event()?],
        };
        marks[0].record(stream)?;
        self.running.push_back((marks, stands_for));
        Ok(())
    }

    /// Marks the end of the work that was begun last.
    pub fn stop(&mut self, stream: &CudaStream) -> Result<(), DriverError> {
        match self.running.back() {
            Some((marks, _)) if self.timing => marks[1].record(stream),
            _ => Ok(()),
        }
    }

    /// Nanoseconds that the stream was busy so far.
    pub fn busy(&self) -> &Arc<AtomicU64> {
        &self.busy
    }

    /// The time since `begun`, split into `phase` and the rest. What began since the last was timed
    /// took as long as that one.
    pub fn report(&self, name: &str, phase: &str, begun: Instant) -> ThreadReport {
        let busy = self.busy.load(Ordering::Relaxed) + self.begun * self.last;
        let busy = Duration::from_nanos(busy);
        let idle = begun.elapsed().saturating_sub(busy);
        ThreadReport {
            name: name.to_owned(),
            core: None,
            phases: vec![
                (phase.to_owned(), busy.as_secs_f64()),
                ("idle".to_owned(), idle.as_secs_f64()),
            ],
            longest_turn: None,
        }
    }

    /// Adds up the timed pieces that the stream has passed.
    pub fn read(&mut self) -> Result<(), DriverError> {
        while let Some((marks, stands_for)) = self.running.front()
            && marks[1].try_is_complete()?
        {
            let milliseconds = f64::from(marks[0].elapsed_ms(&marks[1])?.max(0.0));
            self.last = (milliseconds * 1e6) as u64;
            add(&self.busy, self.last * stands_for);
            self.spare
                .extend(self.running.pop_front().map(|(marks, _)| marks));
        }
        Ok(())
    }
}
