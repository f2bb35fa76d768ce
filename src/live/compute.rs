//! What computes for engines, in which memory, and why.

use std::sync::Arc;

use crate::config::{EngineConfig, OutputConfig};
use crate::cpu::{self, Workers, WorkersError};
use crate::dpdk::{DpdkError, Eal, ExtPool};
use crate::engine::{self, OutputParts, OutputStats, Pipeline};
use crate::gpu::{self, Gpu, GpuError, Kernels, PinnedAllocator};
use crate::memory::{ChunkAllocator, HostAllocator, MemoryError, OutputMemory};
use crate::monitor::report::Chosen;

/// Output chunks per output: one under construction, two being sent, one spare.
pub const OUTPUT_CHUNKS: usize = 4;

/// What computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Backend {
    /// A GPU if there is one that can be used, else the CPU.
    Auto,
    /// The CPU.
    Cpu,
    /// A GPU, or nothing.
    Cuda,
}

/// What computes for one engine.
pub struct Compute {
    /// Intake and pipelines.
    pub backend: engine::Backend,
    /// Memory of receive chunks.
    pub recv_memory: Box<dyn ChunkAllocator>,
    /// Memory of output chunks.
    pub send_memory: Box<dyn ChunkAllocator>,
}

/// What was taken.
pub struct Taken {
    /// One per engine.
    pub engines: Vec<Compute>,
    /// What to report where the choice was free.
    pub chosen: Vec<Chosen>,
}

/// Why nothing computes.
#[derive(Debug, thiserror::Error)]
pub enum ComputeError {
    /// The GPU that was asked for cannot be used.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// Compute threads.
    #[error(transparent)]
    Workers(#[from] WorkersError),
}

/// Opens the GPU, shared by all `engines`, if `wanted` asks for it, or allows it and all outputs can run there; starts
/// `workers` for the CPU otherwise.
pub fn take(
    wanted: Backend,
    kernels: &Kernels,
    engines: &[EngineConfig],
    workers: impl FnOnce() -> Result<Workers, WorkersError>,
) -> Result<Taken, ComputeError> {
    let chosen = |value: &str, why: String| Chosen {
        option: "--backend".into(),
        value: value.into(),
        why,
    };
    let (taken, chosen) = match wanted {
        Backend::Cpu => (None, None),
        Backend::Cuda => (Some(on_gpu(engines, kernels)?.1), None),
        Backend::Auto => match on_gpu(engines, kernels) {
            Ok((name, taken)) => {
                let why = format!("{name} can be used");
                (Some(taken), Some(chosen("cuda", why)))
            }
            Err(error) => (None, Some(chosen("cpu", error.to_string()))),
        },
    };
    let engines = match taken {
        Some(taken) => taken,
        None => on_cpu(engines, &Arc::new(workers()?)),
    };
    let chosen = chosen.into_iter().collect();
    Ok(Taken { engines, chosen })
}

fn on_gpu(engines: &[EngineConfig], kernels: &Kernels) -> Result<(String, Vec<Compute>), GpuError> {
    let gpu = Gpu::open()?;
    let engine = |engine: &EngineConfig| -> Result<Compute, GpuError> {
        let recv_memory = Box::new(PinnedAllocator::new(&gpu));
        let send_memory = recv_memory.clone();
        let kind = recv_memory.kind();
        let backend = gpu::backend(gpu.clone(), engine, kind, OUTPUT_CHUNKS, kernels)?;
        Ok(Compute {
            backend,
            recv_memory,
            send_memory,
        })
    };
    let engines = engines.iter().map(engine);
    Ok((gpu.name(), engines.collect::<Result<_, _>>()?))
}

fn on_cpu(engines: &[EngineConfig], workers: &Arc<Workers>) -> Vec<Compute> {
    let engine = |engine: &EngineConfig| Compute {
        backend: cpu::backend(engine, workers),
        recv_memory: Box::new(HostAllocator::default()),
        send_memory: Box::new(HostAllocator::default()),
    };
    engines.iter().map(engine).collect()
}

/// Why an output has no chunks.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// Not enough memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// DPDK refused it.
    #[error(transparent)]
    Dpdk(#[from] DpdkError),
}

/// The outputs of an engine, one per pipeline, without delays and unobserved.
pub fn outputs(
    eal: &Eal,
    engine: &EngineConfig,
    pipelines: Vec<Box<dyn Pipeline>>,
    memory: &dyn ChunkAllocator,
) -> Result<Vec<OutputParts>, OutputError> {
    let output = |(config, pipeline): (&OutputConfig, _)| -> Result<_, OutputError> {
        let batches = engine.send.chunk_jones / config.jones_per_batch;
        let chunks = (0..OUTPUT_CHUNKS)
            .map(|_| OutputMemory::new(batches, config.batch_bytes(), memory))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(OutputParts {
            config: config.clone(),
            pipeline,
            delays: Default::default(),
            pool: ExtPool::new(eal, chunks)?,
            stats: Arc::new(OutputStats::new(&config.name)),
            observer: None,
        })
    };
    engine.outputs.iter().zip(pipelines).map(output).collect()
}
