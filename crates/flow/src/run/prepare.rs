//! How a run is prepared: the threads of the outside, those of the partitions, and the queues
//! between all of them.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::change::{self, Changes, Follower};
use super::code::PartitionCode;
use super::control::{Control, Failure};
use super::lane::{self, Store};
use super::layout::{self, FIRST_PARTITION, IN, Layout, OUT, is_outside};
use super::outside::{self, Begins, Inlet, Outlet, OutsidePort};
use super::settings::Patience;
use super::telemetry::{Counts, Names, PartitionTimes, QueueTimes, Spread};
use super::worker::{Last, PartitionQueues, Worker};
use super::{Executor, Run, copies, in_blocks, link};
use crate::kernels::Level;

impl Executor {
    /// A run on raw little-endian samples, complex numbers interleaved: one reader for each of the
    /// graph's [`inputs`](crate::Graph::inputs), one writer for each of its
    /// [`outputs`](crate::Graph::outputs).
    ///
    /// Readers are read on a thread of their own. If something fails while one of them blocks, that
    /// thread ends when the reader returns; the run does not wait for it. Writers are written on
    /// the thread that runs, and in the end flushed twice: all, and all once more. What ends at the
    /// first time, as a connection does, may wait for its peer at the second.
    pub fn prepare<'a>(
        &self,
        readers: Vec<Box<dyn Read + Send>>,
        writers: Vec<Box<dyn Write + 'a>>,
    ) -> Result<Run<'a>, Failure> {
        let layout = &self.layout;
        let wrong = |what, given, wanted| {
            let text = format!("{given} {what} are given: there are {wanted}");
            Failure::node("run".into(), text)
        };
        if readers.len() != layout.inputs.len() {
            return Err(wrong("readers", readers.len(), layout.inputs.len()));
        }
        if writers.len() != layout.outputs.len() {
            return Err(wrong("writers", writers.len(), layout.outputs.len()));
        }
        let unneeded = layout.unneeded();
        let (partitions, ending) = (layout.partitions.len(), 1 + unneeded.len());
        let control = Arc::new(Control::new(partitions, self.settings.limit, ending));
        let level = self.settings.level.unwrap_or_else(Level::detect);
        let codes: Vec<PartitionCode> = layout
            .partitions
            .iter()
            .map(|partition| PartitionCode::new(partition, level, self.settings.compile))
            .collect();
        let counts = Arc::new(self.counts(&codes));
        let mut queues = self.queues(&control, &counts)?;
        let (inner, outer) = (queues.split_off(FIRST_PARTITION), queues);
        let [of_inlet, of_outlet] = <[PartitionQueues; 2]>::try_from(outer)
            .unwrap_or_else(|_| unreachable!("a layout has two partitions for the outside"));
        let begins = Arc::new(Begins::new());
        let inlet = inlet(layout, of_inlet, readers, &begins);
        let outlet = outlet(layout, of_outlet, writers, begins, inlet.is_some());
        let mut run = Run {
            workers: Vec::new(),
            names: Vec::new(),
            cpus: Vec::new(),
            inlet,
            outlet,
            control,
            counts,
            changes: Arc::new(Changes::new(&layout.parameters, layout.partitions.len())),
            real_time: self.settings.real_time,
        };
        for ((mut queues, code), partition) in inner
            .into_iter()
            .zip(codes.into_iter().skip(FIRST_PARTITION))
            .zip(&layout.partitions[FIRST_PARTITION..])
        {
            if queues.receivers.is_empty() && queues.senders.is_empty() {
                // Nothing that it does comes out.
                continue;
            }
            if self.settings.in_blocks {
                in_blocks::find(&mut queues, &code);
            }
            run.names.push(partition.name(queues.partition));
            run.cpus.push(copies::cpu(partition, &self.settings));
            let last = unneeded
                .iter()
                .find(|(partition, _)| *partition == queues.partition);
            let last = last.map(|&(_, free)| if free { Last::Free } else { Last::Bound });
            run.workers
                .push(self.worker(queues, code, last, &run.changes));
        }
        Ok(run)
    }

    /// The thread of a partition, which `queues` names.
    fn worker(
        &self,
        queues: PartitionQueues,
        code: PartitionCode,
        last: Option<Last>,
        changes: &Arc<Changes>,
    ) -> Worker {
        let layout = &self.layout;
        let partition = &layout.partitions[queues.partition];
        let path = |item: &Option<layout::PartitionNode>| {
            item.as_ref()
                .map_or(String::new(), |item| item.path.clone())
        };
        let follows = change::changes(&code, layout.parameters.len());
        let follower = follows.then(|| {
            let clock = copies::clock(layout, queues.partition);
            Follower::new(changes.clone(), queues.partition, clock)
        });
        Worker {
            clock: copies::clock(layout, queues.partition),
            queues,
            code,
            follower,
            last,
            telemetry: self.settings.telemetry,
            paths: partition.items.iter().map(path).collect(),
            step: partition.step,
            now: 0,
        }
    }

    fn counts(&self, codes: &[PartitionCode]) -> Counts {
        let partitions = &self.layout.partitions;
        let unit_names =
            |(partition, code): (&layout::PartitionLayout, &PartitionCode)| -> Vec<String> {
                let path =
                    |&item: &usize| partition.items[item].as_ref().map(|item| item.path.clone());
                code.units
                    .iter()
                    .map(|unit| {
                        unit.items
                            .iter()
                            .filter_map(path)
                            .collect::<Vec<_>>()
                            .join(", ")
                    })
                    .collect()
            };
        let name = |index: usize| partitions[index].name(index);
        let touches = |edge: &layout::Edge, index| edge.from == index || edge.to == index;
        let runs = |index| {
            let mut edges = self.layout.edges.iter();
            index == OUT || edges.any(|edge| touches(edge, index))
        };
        Counts {
            partitions: codes
                .iter()
                .enumerate()
                .map(|(index, code)| PartitionTimes::new(code.units.len(), runs(index)))
                .collect(),
            names: Names {
                partitions: partitions
                    .iter()
                    .zip(codes)
                    .enumerate()
                    .map(|(index, partition)| (name(index), unit_names(partition)))
                    .collect(),
                queues: self
                    .layout
                    .edges
                    .iter()
                    .map(|edge| (name(edge.from), name(edge.to), edge.capacity))
                    .collect(),
            },
            queues: self
                .layout
                .edges
                .iter()
                .map(|_| Arc::new(QueueTimes::new()))
                .collect(),
            latency: Spread::new(),
            made: Instant::now(),
            begin: Mutex::new(None),
            whole: Default::default(),
            notes: Default::default(),
        }
    }

    /// The queues of each partition.
    fn queues(
        &self,
        control: &Arc<Control>,
        counts: &Arc<Counts>,
    ) -> Result<Vec<PartitionQueues>, Failure> {
        let threads = self.layout.partitions.len();
        let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
        let none = Patience {
            spins: 1,
            pauses: 0,
        };
        let crowded = threads > cpus;
        let inner = self.settings.patience.unwrap_or(match crowded {
            true => none,
            false => Patience::default(),
        });
        // What reads and writes has little to do, and must not keep CPUs from those that compute.
        let patience = |partition: usize| {
            if crowded && is_outside(partition) {
                none
            } else {
                inner
            }
        };
        let mut queues: Vec<PartitionQueues> = (0..threads)
            .map(|partition| PartitionQueues {
                partition,
                receivers: vec![],
                senders: vec![],
                bell: control.bells[partition].clone(),
                patience: patience(partition),
                control: control.clone(),
                counts: counts.clone(),
            })
            .collect();
        for (edge, times) in self.layout.edges.iter().zip(&counts.queues) {
            let (sender, receiver) = link::link(&self.layout, edge, &control.bells, times)
                .map_err(|text| Failure::node("queue".into(), text))?;
            queues[edge.from].senders.push(sender);
            queues[edge.to].receivers.push(receiver);
        }
        Ok(queues)
    }
}

/// What reads the inputs, if there are any.
fn inlet(
    layout: &Layout,
    queues: PartitionQueues,
    readers: Vec<Box<dyn Read + Send>>,
    begins: &Arc<Begins>,
) -> Option<Inlet> {
    let partition = &layout.partitions[IN];
    (!layout.inputs.is_empty()).then(|| Inlet {
        queues,
        ports: layout
            .inputs
            .iter()
            .map(|(path, signal)| port(&partition.shapes, path, *signal))
            .collect(),
        readers,
        store: Store::new(&partition.shapes, partition.step),
        step: partition.step,
        begins: begins.clone(),
    })
}

/// What writes the outputs; `bound` if there are inputs.
fn outlet<'a>(
    layout: &Layout,
    queues: PartitionQueues,
    writers: Vec<Box<dyn Write + 'a>>,
    begins: Arc<Begins>,
    bound: bool,
) -> Outlet<'a> {
    let partition = &layout.partitions[OUT];
    let mut shapes = partition.shapes.clone();
    let outputs = layout.outputs.iter().map(|(path, signal, period)| {
        if shapes[*signal].constant.is_none() {
            return port(&shapes, path, *signal);
        }
        shapes.push(outside::spread(&shapes[*signal], *period));
        port(&shapes, path, shapes.len() - 1)
    });
    let ports: Vec<OutsidePort> = outputs.collect();
    Outlet {
        queues,
        ports,
        writers,
        store: Store::new(&shapes, partition.step),
        step: partition.step,
        begins,
        bound,
    }
}

fn port(shapes: &[lane::SignalShape], path: &str, signal: usize) -> OutsidePort {
    OutsidePort {
        path: path.into(),
        signal,
        kind: shapes[signal].kind,
        period: shapes[signal].period,
    }
}
