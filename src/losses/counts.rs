//! The counters of an engine at one moment.

use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::Instant;

use dpdk::{ExtPool, PortStats};
use dsp::OutputBits;
use ground::N_POL;
use ground::os::KernelClock;
use host::placement::EnginePlan;

use super::Cause;
use super::lcores::{LcoreCounts, Lcores};
use super::power::{LevelSource, StreamLevel};
use crate::assembly::{RunningEngine, Threads};
use crate::config::{EngineConfig, OutputConfig};
use crate::engine::{OutputStats, TestPattern};
use crate::memory::OutputMemory;
use crate::ports::Links;
use crate::recv::{DropCause, InputStats, LastDropped, ReceiveMemory, RxStats};

/// Where the counters of one engine are: written by its threads, which do not wait for who reads
/// them.
pub struct Counters {
    chunk_samples: u64,
    rx: Vec<Arc<RxStats>>,
    input: Arc<InputStats>,
    memory: Arc<ReceiveMemory>,
    outputs: Vec<Arc<OutputStats>>,
    pools: Vec<(String, ExtPool<OutputMemory>)>,
    links: Links,
    /// Batches of each output.
    batches: Vec<Batch>,
    lcores: Option<Lcores>,
    levels: Option<LevelSource>,
}

/// Batches of one output.
struct Batch {
    /// Complex values of a batch per polarisation.
    values: u64,
    /// Whether these have 4 bits.
    four_bits: bool,
    /// Heaps that are not sent for want of one input heap, at most.
    heaps_per_missing: u64,
}

impl Batch {
    fn of(output: &OutputConfig, packet_samples: usize) -> Self {
        // Spectra that lack a heap begin in it, or less than a window before it.
        let samples = packet_samples.saturating_add(output.window_samples());
        let batches = samples / output.batch_samples().max(1) + 2;
        Self {
            values: output.jones_per_batch as u64,
            four_bits: output.sample_bits == OutputBits::Four,
            heaps_per_missing: batches.saturating_mul(output.dst.len()) as u64,
        }
    }
}

/// What they were at a moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LossCounts {
    /// Datagrams looked at.
    pub datagrams: u64,
    /// Heaps placed.
    pub placed: u64,
    /// Datagrams not placed, in the order of [`DropCause::ALL`].
    pub drops: [u64; DropCause::ALL.len()],
    /// Those of [`DropCause::WrongHeapLength`] that were descriptors and stop heaps.
    pub metadata: u64,
    /// What the last datagrams dropped had.
    pub last: LastDropped<Option<u64>, Option<SocketAddrV4>>,
    /// Non-empty chunks.
    pub chunks: u64,
    /// First sample of the newest chunk that heaps came for.
    pub newest: Option<u64>,
    /// Heaps in chunks, per polarisation.
    pub heaps: [u64; N_POL],
    /// Heaps that chunks lacked, per polarisation.
    pub missing: [u64; N_POL],
    /// Samples that the digitiser flagged as at full scale, per polarisation.
    pub clipped: [u64; N_POL],
    /// Level of the last second of input that was whole, in dB relative to a sine of full scale,
    /// per polarisation; [`f64::MIN`] for no power at all. `None` if it is not known, or old.
    pub input_dbfs: Option<[f64; N_POL]>,
    /// Output streams.
    pub outputs: Vec<StreamCounts>,
    /// Ports, if their counters can be read.
    pub ports: Vec<(String, PortStats)>,
    /// Links of ports: whether they are up, and how often they went down.
    pub links: Vec<(String, bool, u64)>,
    /// Lcores, if they are watched.
    pub lcores: Vec<LcoreCounts>,
    /// This host's clock, if it tells.
    pub clock: Option<KernelClock>,
    /// Heaps whose loss no other cause explains. A watch counts these.
    pub unexplained: UnexplainedCounts,
}

/// Heaps whose loss no other cause explains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnexplainedCounts {
    /// Input heaps that are missing and were not lost on this host.
    pub missing: u64,
    /// Output heaps that were not sent although their input came.
    pub not_sent: u64,
}

/// The counters as a look found them.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// When that was.
    pub at: Instant,
    /// What they were.
    pub counts: &'a LossCounts,
}

/// Those of an output stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamCounts {
    /// Its name.
    pub name: String,
    /// Heaps sent.
    pub sent: u64,
    /// Heaps not sent.
    pub not_sent: u64,
    /// Complex values sent, of each polarisation.
    pub values: u64,
    /// How many of them quantisation clipped.
    pub clipped: [u64; N_POL],
    /// Whether they have 4 bits.
    pub four_bits: bool,
    /// Output chunks that nothing is in.
    pub free_chunks: usize,
    /// Heaps that are not sent for want of one input heap, at most.
    pub heaps_per_missing: u64,
    /// Its level in the last statistics, if there were any.
    pub level: Option<StreamLevel>,
    /// Known values that are sent in place of spectra, if they are.
    pub test: Option<TestPattern>,
}

impl LossCounts {
    /// Datagrams not placed for this cause.
    pub fn dropped(&self, cause: DropCause) -> u64 {
        self.drops[cause as usize]
    }

    /// Those of them that should have been placed, if they are of a cause that data has.
    pub fn lost(&self, cause: DropCause) -> u64 {
        match cause {
            DropCause::WrongHeapLength => self.dropped(cause).saturating_sub(self.metadata),
            cause if cause.is_other_traffic() => 0,
            cause => self.dropped(cause),
        }
    }

    /// Heaps, and packets that may have been heaps, that were lost on this host.
    pub(super) fn lost_here(&self) -> u64 {
        let dropped = DropCause::ALL.iter().copied();
        let dropped = dropped.filter(|&cause| Cause::Dropped(cause).is_lost_heap());
        let dropped = dropped.map(|cause| self.lost(cause)).sum::<u64>();
        let port = |port: &PortStats| port.rx_missed + port.rx_no_mbuf + port.rx_errors;
        dropped + self.ports.iter().map(|(_, stats)| port(stats)).sum::<u64>()
    }

    /// Output heaps that were not sent since `last`, but for what a start costs: batches before the
    /// first that is sent.
    pub(super) fn not_sent_since(&self, last: &Self) -> u64 {
        let outputs = last.outputs.iter().zip(&self.outputs);
        let started =
            outputs.filter(|(last, now)| last.sent > 0 || last.not_sent > 0 && now.sent == 0);
        let new = started.map(|(last, now)| now.not_sent.saturating_sub(last.not_sent));
        new.sum()
    }

    /// Output heaps that cannot be sent for want of the input heaps that were found missing since
    /// `last`, at most.
    pub(super) fn not_sent_for_missing(&self, last: &Self) -> u64 {
        let new = |pol: usize| self.missing[pol].saturating_sub(last.missing[pol]);
        let missing: u64 = (0..N_POL).map(new).sum();
        let outputs = self.outputs.iter().map(|output| output.heaps_per_missing);
        missing.saturating_mul(outputs.sum())
    }

    /// Heaps sent of all outputs.
    pub fn sent(&self) -> u64 {
        self.outputs.iter().map(|output| output.sent).sum()
    }

    /// Takes ports that could not be read at this moment to be as they were: all that they have
    /// counted would be new when they can be read again.
    pub(super) fn keep_ports(&mut self, last: &Self) {
        for (name, stats) in &last.ports {
            if self.ports.iter().all(|(other, _)| other != name) {
                self.ports.push((name.clone(), *stats));
            }
        }
    }

    /// Packets that ports have received.
    pub fn rx_packets(&self) -> u64 {
        self.ports.iter().map(|(_, port)| port.rx_packets).sum()
    }
}

impl Counters {
    /// Those of `engine` behind these ports, and of a capture's reader if there is one.
    pub fn of(
        config: &EngineConfig,
        engine: &RunningEngine,
        capture: Option<&Arc<RxStats>>,
        links: &Links,
    ) -> Self {
        let stages = &engine.stages;
        let batch = |output: &OutputConfig| Batch::of(output, config.recv.packet_samples);
        let mut rx = stages.rx_stats().to_vec();
        rx.extend(capture.cloned());
        Self {
            chunk_samples: config.recv.chunk_samples as u64,
            rx,
            input: stages.input_stats().clone(),
            memory: engine.memory.clone(),
            outputs: stages.output_stats().to_vec(),
            pools: engine.output_pools.clone(),
            links: links.clone(),
            batches: config.outputs.iter().map(batch).collect(),
            lcores: None,
            levels: None,
        }
    }

    /// The same with the lcores of `engine`, which are where `plan` has them.
    #[must_use]
    pub fn with_lcores(self, threads: &Threads, plan: &EnginePlan) -> Self {
        let lcores = Lcores::new(threads.times(), threads.clock(), plan);
        Self {
            lcores: Some(lcores),
            ..self
        }
    }

    /// The same with what `levels` tells.
    #[must_use]
    pub fn with_levels(self, levels: LevelSource) -> Self {
        Self {
            levels: Some(levels),
            ..self
        }
    }

    /// What they are now, with levels and what is to be read of the host.
    pub fn read(&self) -> LossCounts {
        let ports = self.links.states();
        let ports = ports.filter_map(|(port, ..)| Some((port.name().into(), port.stats().ok()?)));
        self.links.look();
        let mut counts = LossCounts {
            lcores: self.lcores.as_ref().map_or(Vec::new(), Lcores::read),
            clock: KernelClock::read().ok(),
            ports: ports.collect(),
            ..self.read_without_ports()
        };
        if let Some(levels) = &self.levels {
            counts.input_dbfs = levels.input();
            for (index, output) in counts.outputs.iter_mut().enumerate() {
                output.level = levels.output(index);
                output.test = levels.test(index);
            }
        }
        counts
    }

    /// The counters alone: ports may have gone.
    pub fn read_without_ports(&self) -> LossCounts {
        // Consequences are read before their causes, so that no heap seems to have been sent, or
        // lost, before it came.
        let outputs = self.outputs.iter().zip(&self.pools).zip(&self.batches);
        let outputs = outputs.map(|((stats, (name, pool)), batch)| {
            let counts = stats.counts();
            StreamCounts {
                name: name.clone(),
                sent: counts.heaps,
                not_sent: stats.not_sent_heaps(),
                values: counts.batches * batch.values,
                clipped: counts.clipped_samples,
                four_bits: batch.four_bits,
                free_chunks: pool.available(),
                heaps_per_missing: batch.heaps_per_missing,
                level: None,
                test: None,
            }
        });
        let outputs = outputs.collect();
        let (missing, heaps) = (self.input.missing_heaps(), self.input.heaps());
        let newest = self.memory.newest_chunk();
        LossCounts {
            outputs,
            missing,
            heaps,
            clipped: self.input.clipped_samples(),
            chunks: self.input.chunks(),
            newest: newest.map(|chunk| chunk.saturating_mul(self.chunk_samples)),
            last: self.last_dropped(),
            metadata: self.rx.iter().map(|rx| rx.metadata()).sum(),
            drops: std::array::from_fn(|cause| self.dropped(DropCause::ALL[cause])),
            placed: self.rx.iter().map(|rx| rx.placed()).sum(),
            datagrams: self.rx.iter().map(|rx| rx.datagrams()).sum(),
            links: self.links(),
            ports: Vec::new(),
            lcores: Vec::new(),
            clock: None,
            unexplained: UnexplainedCounts::default(),
            input_dbfs: None,
        }
    }

    /// As they were looked at last.
    fn links(&self) -> Vec<(String, bool, u64)> {
        let links = self.links.states();
        let links = links.map(|(port, up, downs)| (port.name().into(), up, downs));
        links.collect()
    }

    fn dropped(&self, cause: DropCause) -> u64 {
        self.rx.iter().map(|rx| rx.drops(cause)).sum()
    }

    /// Each of the queue that dropped most for that cause.
    fn last_dropped(&self) -> LastDropped<Option<u64>, Option<SocketAddrV4>> {
        let most = |cause| {
            let rx = self.rx.iter().max_by_key(|rx| rx.drops(cause));
            rx.map(|rx| rx.last_dropped()).unwrap_or_default()
        };
        LastDropped {
            heap_length: most(DropCause::WrongHeapLength).heap_length,
            timestamp: most(DropCause::BadTimestamp).timestamp,
            behind: most(DropCause::TooOld).behind,
            ahead: most(DropCause::StrayTime).ahead,
            destination: most(DropCause::NotOurs).destination,
        }
    }
}
