//! The executor: a graph in partitions, each on a thread of its own, with queues of blocks between
//! them.
//!
//! ```
//! use karoo_flow::{Builder, Executor, Interpreter, Settings, Type, Value};
//!
//! let g = Builder::new("two");
//! let x = g.input("x", Type::F32);
//! let slow = g.scope("first", || {
//!     g.partition(0);
//!     x.fir([0.25, 0.5, 0.25]).down(2)
//! });
//! let y = g.scope("second", || {
//!     g.partition(1);
//!     slow.gain(3)
//! });
//! g.output("y", y);
//! let graph = g.build().unwrap();
//!
//! let executor = Executor::new(&graph, Settings::default()).unwrap();
//! let samples: Vec<Value> = (0..5000).map(|n| Value::from(n as f32)).collect();
//! let out = executor.run_values(&[samples.clone()]).unwrap();
//! // The same bits as sample by sample.
//! assert_eq!(out, Interpreter::new(&graph).unwrap().run(&[samples]).unwrap());
//! ```
//!
//! What comes out does not depend on partitions, sizes of blocks, kinds of queues, or time: a
//! partition waits until all its queues have what it needs. Two things do differ from the
//! interpreter. Samples come out when the block that they are in is complete. And behind the end of
//! the inputs there are zeros until all is out: nodes of one's own see them, outputs do not. The
//! payload of a not-a-number is not kept.
//!
//! # Files
//!
//! In the order from a graph to a partition that runs:
//!
//! | file | what it does |
//! |---|---|
//! | `settings` | how a graph is to run |
//! | `layout`, `layout/build` | which partition has which node, and the queues between partitions |
//! | `copies` | copies of partitions without state, among which blocks go round |
//! | `absorb`, `initial` | delays beside a queue become what the queue holds at the start |
//! | `limits` | refuses what takes too much memory, and threads that cannot be |
//! | `deadlock` | refuses a layout that would stand still |
//! | `shape` | shows what was made of a graph |
//! | `schedule` | the order of a partition's nodes, and which of them go sample by sample |
//! | `code` | a partition as code, by the files of its folder, in this order: |
//! | `code/operations` | nodes become operations |
//! | `code/delays` | delays become views of memory |
//! | `code/groups`, `improve` | groups of operations, without what nobody reads; filters |
//! | `code/recur` | loops through one number become one operation |
//! | `code/formulas`, `code/choices` | choices become one, with what is for them alone |
//! | `code/chains`, `code/in_place` | operations in a row become one, which may work in place |
//! | `code/memory`, `lane` | runs of numbers, and thereby signals, get their memory |
//! | `prepare` | the threads of a run, and the queues between them |
//! | `link`, `block` | the two ends of a queue, and where signals lie in its blocks |
//! | `in_blocks` | which signals work in blocks, without a copy |
//! | `worker`, `bell` | the thread of a partition, and how it waits |
//! | `unit`, `bytes`, `slow` | run a step: operations, nodes on bytes, nodes by sample |
//! | `change`, `gate` | numbers of nodes that change at a tick, which no thread passes unseen |
//! | `outside` | the threads that read inputs and write outputs |
//! | `control` | where a run ends, and why |
//! | `telemetry`, `moment` | where the time goes, so far and between two moments |
//! | `bottleneck`, `show` | what holds the rate back; all of it in words and tables |

mod absorb;
mod bell;
// Signals work in memory of queues.
#[allow(unsafe_code)]
mod block;
mod bottleneck;
mod bytes;
mod change;
mod code;
mod control;
mod copies;
mod deadlock;
mod gate;
mod improve;
mod in_blocks;
mod initial;
mod lane;
mod layout;
mod limits;
mod link;
mod moment;
mod outside;
mod prepare;
mod schedule;
mod settings;
mod shape;
mod show;
mod slow;
mod telemetry;
mod unit;
mod worker;

use std::fmt;
use std::io::{Cursor, Read, Write};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

pub use bottleneck::Limit;
pub use change::ChangeError;
pub use control::Failure;
pub use layout::changeable;
pub use limits::MAX_RUN_BYTES;
pub use moment::Moment;
pub use settings::{Between, Patience, Settings, Transfer};
pub use shape::{PartitionShape, QueueShape, Shape};
pub use telemetry::{PartitionTelemetry, Quantiles, QueueTelemetry, Telemetry};

pub use crate::graph::UNMARKED;
pub(crate) use layout::MAX_BLOCK;

use crate::graph::Graph;
use crate::literal::Literals;
use crate::problem::Problems;
use crate::queue::sync;
use crate::types::Type;
use crate::value::Value;
use crate::words::counted;
use change::Changes;
use control::Control;
use layout::Layout;
use outside::{Inlet, Outlet};
use telemetry::Counts;
use worker::Worker;

/// A graph that is ready to run on several threads, as often as wanted, each time from its initial
/// state.
#[derive(Debug)]
pub struct Executor {
    layout: Layout,
    settings: Settings,
    outputs: Vec<Type>,
    inputs: Vec<Type>,
}

/// A run that can begin.
pub struct Run<'a> {
    workers: Vec<Worker>,
    names: Vec<String>,
    cpus: Vec<Option<usize>>,
    inlet: Option<Inlet>,
    outlet: Outlet<'a>,
    control: Arc<Control>,
    counts: Arc<Counts>,
    changes: Arc<Changes>,
    real_time: Option<u8>,
}

/// A hold on a run from another thread.
#[derive(Clone)]
pub struct Handle {
    control: Arc<Control>,
    counts: Arc<Counts>,
    changes: Arc<Changes>,
}

/// What a run that came to its end has done.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Ticks up to the end.
    pub ticks: u64,
    /// Where the time went.
    pub telemetry: Telemetry,
}

impl Handle {
    /// Ends the run behind the block of inputs that is being read. All that has come in comes out.
    /// The first input ends with what its reader gives next. The others are read up to there, for
    /// about a second at most: readers that may wait longer are to end too.
    pub fn quit(&self) {
        self.control.quit();
    }

    /// Ends the run before a tick, if it does not end earlier. What has come in up to there comes
    /// out; a tick that has been passed already ends the run behind the present block.
    pub fn stop_at(&self, tick: u64) {
        self.control.stop_at(tick);
    }

    /// Gives a node of [`Settings::changeable`] other numbers from tick `at` on, or, without it,
    /// from the first tick that no partition has begun. Returns the tick.
    ///
    /// All samples before the tick are made with the old numbers and all from it on with the new
    /// ones, whatever partitions and blocks there are. Whoever needs a certain tick gives it ahead
    /// of time: partitions run ahead of outputs by what queues hold. Of two changes at one tick the
    /// second counts.
    pub fn change(
        &self,
        path: &str,
        numbers: impl Into<Literals>,
        at: impl Into<Option<u64>>,
    ) -> Result<u64, ChangeError> {
        self.changes.put(path, numbers.into(), at.into())
    }

    /// What the run has done so far.
    pub fn telemetry(&self) -> Telemetry {
        self.moment().telemetry
    }

    /// The run at this moment, to be told from an earlier one.
    pub fn moment(&self) -> Moment {
        self.counts.show()
    }
}

/// Refuses settings with which states and queues take more memory than a run may have.
pub(crate) fn check_memory(graph: &Graph, settings: &Settings) -> Result<(), Problems> {
    limits::memory(graph, &with_queues(graph, settings)?)
}

/// The layout of a run with its queues, whatever memory these take.
fn with_queues(graph: &Graph, settings: &Settings) -> Result<Layout, Problems> {
    let mut layout = Layout::of(graph, settings)?;
    absorb::absorb(&mut layout);
    layout.deepen();
    Ok(layout)
}

/// The same with the steps that its partitions take.
fn with_steps(mut layout: Layout) -> Layout {
    layout.cross();
    layout.stay_near();
    layout
}

impl Executor {
    /// The graph in partitions with queues between them, or why it cannot run so.
    pub fn new(graph: &Graph, settings: Settings) -> Result<Executor, Problems> {
        crate::interpreter::unknown(graph).unless(())?;
        let layout = with_queues(graph, &settings)?;
        limits::memory(graph, &layout)?;
        let layout = with_steps(layout);
        deadlock::check(&layout, graph.name(), &settings, |other| {
            with_queues(graph, other).map(with_steps).ok()
        })?;
        limits::threads(&settings, graph.name())?;
        let ports = |ids: &mut dyn Iterator<Item = crate::graph::NodeId>, input: bool| {
            ids.map(|id| {
                let node = graph.node(id);
                if input {
                    node.outputs[0]
                } else {
                    node.inputs[0]
                }
            })
            .collect()
        };
        Ok(Executor {
            inputs: ports(&mut graph.inputs(), true),
            outputs: ports(&mut graph.outputs(), false),
            layout,
            settings,
        })
    }

    /// Whether a node of [`Settings::changeable`] may get these numbers, or why not.
    pub fn takes(&self, path: &str, numbers: &Literals) -> Result<(), ChangeError> {
        let changes = Changes::new(&self.layout.parameters, 0);
        changes.find(path, numbers).map(drop)
    }

    /// Runs on samples in memory: as [`Interpreter::run`](crate::Interpreter::run) from the initial
    /// state, or, without inputs, up to the limit of the settings.
    pub fn run_values(&self, inputs: &[Vec<Value>]) -> Result<Vec<Vec<Value>>, Failure> {
        if inputs.len() != self.inputs.len() {
            let (given, wanted) = (inputs.len(), self.inputs.len());
            let text = format!("{given} input streams are given: there are {wanted} inputs");
            return Err(Failure::node("run".into(), text));
        }
        let mut readers: Vec<Box<dyn Read + Send>> = Vec::new();
        for (stream, (kind, (path, _))) in inputs
            .iter()
            .zip(self.inputs.iter().zip(&self.layout.inputs))
        {
            let mut bytes = Vec::new();
            for value in stream {
                if value.kind() != *kind {
                    let text = format!("a sample is {}: the input is {kind}", value.kind());
                    return Err(Failure::node(path.clone(), text));
                }
                value.write(&mut bytes);
            }
            readers.push(Box::new(Cursor::new(bytes)));
        }
        if inputs.is_empty() && self.settings.limit.is_none() {
            let text = "the graph has no inputs that could end: give `limit`";
            return Err(Failure::node("run".into(), text.into()));
        }
        let mut out = vec![Vec::new(); self.outputs.len()];
        let writers = out
            .iter_mut()
            .map(|bytes| Box::new(bytes) as Box<dyn Write>)
            .collect();
        self.prepare(readers, writers)?.run()?;
        let values = self.outputs.iter().zip(&out);
        Ok(values
            .map(|(&kind, bytes)| Value::read_all(kind, bytes).0)
            .collect())
    }
}

/// Gives the calling thread a real-time priority: first come, first served.
fn raise(priority: u8) -> Result<(), String> {
    use thread_priority::unix::{
        RealtimeThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy,
        thread_native_id,
    };
    let value = thread_priority::ThreadPriorityValue::try_from(priority)?;
    let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    let priority = thread_priority::ThreadPriority::Crossplatform(value);
    set_thread_priority_and_policy(thread_native_id(), priority, policy)
        .map_err(|error| error.to_string())
}

impl Run<'_> {
    /// A hold on the run, to look at it or to end it from another thread.
    pub fn handle(&self) -> Handle {
        Handle {
            control: self.control.clone(),
            counts: self.counts.clone(),
            changes: self.changes.clone(),
        }
    }

    /// Runs to the end. Outputs are written on the calling thread.
    pub fn run(self) -> Result<Outcome, Failure> {
        let Run {
            workers,
            names,
            cpus,
            inlet,
            mut outlet,
            control,
            counts,
            real_time,
            ..
        } = self;
        let begin = Instant::now();
        *counts.begin.lock().unwrap_or_else(PoisonError::into_inner) = Some(begin);
        let mut threads: Vec<JoinHandle<()>> = Vec::new();
        let spawn = |name: String, work: Box<dyn FnOnce() + Send>| {
            let spawned = Builder::new().name(name.clone()).spawn(work);
            spawned.map_err(|error| {
                control.fail(Failure::node(
                    name,
                    format!("no thread can be started: {error}"),
                ));
            })
        };
        for ((worker, name), cpu) in workers.into_iter().zip(names).zip(cpus) {
            let told = counts.clone();
            let work = move || {
                if let Some(id) = cpu {
                    core_affinity::set_for_current(core_affinity::CoreId { id });
                    if let Some(priority) = real_time
                        && let Err(error) = raise(priority)
                    {
                        let text =
                            format!("no real-time priority {priority} for a thread: {error}");
                        told.note(text);
                    }
                }
                worker.work();
            };
            threads.extend(spawn(name, Box::new(work)));
        }
        let reading =
            inlet.and_then(|inlet| spawn("inputs".into(), Box::new(|| inlet.work())).ok());
        let ticks = outlet.work();
        for thread in threads {
            // A thread that panics has said so by itself.
            let _ = thread.join();
        }
        let elapsed = begin.elapsed().as_nanos() as u64;
        counts.whole.store(elapsed.max(1), Ordering::Relaxed);
        // Peers may take long to end, which says nothing of the graph's rate.
        if ticks.is_some()
            && let Err(failure) = outlet.flush()
        {
            control.fail(failure);
        }
        if let Some(failure) = control.failure() {
            return Err(failure);
        }
        if let Some(thread) = reading {
            let _ = thread.join();
        }
        Ok(Outcome {
            ticks: ticks.unwrap_or(0),
            telemetry: counts.show().telemetry,
        })
    }
}

impl fmt::Display for Executor {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Layout {
            partitions, edges, ..
        } = &self.layout;
        for (index, partition) in partitions.iter().enumerate() {
            let nodes = partition.items.iter().flatten().count();
            writeln!(
                f,
                "{}: {}, {} at once",
                partition.name(index),
                counted(nodes as u64, "node"),
                counted(partition.step, "tick")
            )?;
        }
        for edge in edges {
            writeln!(
                f,
                "{} -> {}: {}, {} of {}, {} at the start",
                partitions[edge.from].name(edge.from),
                partitions[edge.to].name(edge.to),
                counted(edge.crossings.len() as u64, "signal"),
                counted(edge.capacity as u64, "block"),
                counted(edge.block, "tick"),
                edge.initial
            )?;
        }
        Ok(())
    }
}
