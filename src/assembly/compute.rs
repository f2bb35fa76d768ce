//! What computes for engines, in which memory, and why.

use std::fmt;
use std::sync::Arc;

use dpdk::{Eal, ExtPool};

use crate::config::{Decision, EngineConfig, OutputConfig};
use crate::cpu::{self, Workers, WorkersError};
use crate::engine::{self, OutputParts, OutputStats, Pipeline};
use crate::gpu::{self, BarError, Gpu, GpuError, KernelChoice, MemoryChoice, PinnedAllocator};
use crate::memory::{
    ChunkAllocator, HostAllocator, MemoryError, MemoryKind, OUTPUT_CHUNKS, OutputMemory,
};
use crate::recv::{chunk_bytes, receive_bytes};

/// Samples per second and polarisation of one wideband output that one core computes: what
/// docs/performance.md has of up to 8192 channels, rounded.
const CORE_RATE: f64 = 0.3e9;

/// What computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum BackendKind {
    /// A GPU if there is one that can be used, else the CPU.
    Auto,
    /// The CPU.
    Cpu,
    /// A GPU, or an error.
    Cuda,
}

/// The backend that is asked for: what computes, and where its memory is.
#[derive(Clone, Debug)]
pub struct BackendRequest {
    /// What computes.
    pub backend: BackendKind,
    /// PCI address of the GPU, if it matters which.
    pub gpu: Option<String>,
    /// Where receive chunks are if a GPU computes.
    pub memory: MemoryChoice,
    /// Of mixed memory: the share of chunks that are in the GPU's.
    pub bar_share: f64,
    /// Receive chunks of each engine beside those that it needs.
    pub spare_chunks: usize,
    /// The kernels that compute on a GPU.
    pub kernels: KernelChoice,
    /// Whether packets come when they like, so that all memory is to be there before.
    pub live: bool,
}

/// What computes for one engine.
pub struct Compute {
    /// Intake and pipelines.
    pub backend: engine::Backend,
    /// The GPU, if one computes.
    pub gpu: Option<GpuName>,
    /// Memory of receive chunks.
    pub recv_memory: Arc<dyn ChunkAllocator>,
    /// Memory of output chunks.
    pub send_memory: Arc<dyn ChunkAllocator>,
}

/// The GPU that computes.
#[derive(Clone, Debug)]
pub struct GpuName {
    /// Name and architecture of the GPU.
    pub name: String,
    /// PCI address of the GPU.
    pub address: String,
}

impl fmt::Display for GpuName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.name, self.address)
    }
}

/// The backend that was opened, for each engine.
pub struct OpenedBackend {
    /// One per engine.
    pub engines: Vec<Compute>,
    /// What to report where the choice was free.
    pub chosen: Vec<Decision>,
}

/// Why nothing computes.
#[derive(Debug, thiserror::Error)]
pub enum ComputeError {
    /// The GPU that was asked for cannot be used.
    #[error("{0}; or use --backend cpu, which needs no GPU")]
    Gpu(#[from] GpuError),
    /// The chunk memory that was asked for cannot be had.
    #[error(transparent)]
    Bar(#[from] BarError),
    /// Compute threads.
    #[error(transparent)]
    Workers(#[from] WorkersError),
}

/// Opens the GPU, shared by all `engines`, if that is wanted, or allowed and all outputs can run
/// there; starts `workers` for the CPU otherwise. Memory or kernels that were asked for by name are
/// had, where there is a GPU, or refused.
pub fn open_backend(
    wanted: &BackendRequest,
    engines: &[EngineConfig],
    workers: impl FnOnce() -> Result<Workers, WorkersError>,
) -> Result<OpenedBackend, ComputeError> {
    let chosen = |value: &str, why: String| Decision {
        option: "--backend".into(),
        value: value.into(),
        why,
    };
    let on_gpu = || on_gpu(wanted, engines);
    let on_cpu = || Ok::<_, WorkersError>(on_cpu(engines, &Arc::new(workers()?), wanted.live));
    Ok(match wanted.backend {
        BackendKind::Cpu => OpenedBackend {
            engines: on_cpu()?,
            chosen: Vec::new(),
        },
        BackendKind::Cuda => on_gpu()?.1,
        BackendKind::Auto => match on_gpu() {
            Ok((name, mut opened)) => {
                let why = format!("{name} can be used");
                opened.chosen.push(chosen("cuda", why));
                opened
            }
            Err(error @ (ComputeError::Bar(_) | ComputeError::Gpu(GpuError::Shape { .. }))) => {
                return Err(error);
            }
            Err(error) => {
                // The way out has been taken.
                let why = match &error {
                    ComputeError::Gpu(error) => error.to_string(),
                    error => error.to_string(),
                };
                if let Some(warning) = fallback(&error, engines, wanted.live) {
                    tracing::warn!(why, "{warning}");
                }
                OpenedBackend {
                    engines: on_cpu()?,
                    chosen: vec![chosen("cpu", why)],
                }
            }
        },
    })
}

/// The warning where a GPU cannot be used and the CPU computes in its place. A replay takes its
/// time, and has none where there is no driver.
fn fallback(error: &ComputeError, engines: &[EngineConfig], live: bool) -> Option<String> {
    if !live {
        let has_driver = !matches!(error, ComputeError::Gpu(GpuError::NoDriver));
        return has_driver.then(|| "the GPU is not used".to_owned());
    }
    let rates = engines.iter().map(|engine| engine.clock.adc_sample_rate);
    let rate: f64 = rates.sum();
    Some(format!(
        "the GPU is not used, the CPU computes: {} Msample/s are asked, and one core takes about {} of one wideband output; with `--backend cuda` this ends at the start instead",
        rate * 1e-6,
        CORE_RATE * 1e-6
    ))
}

fn on_gpu(
    wanted: &BackendRequest,
    engines: &[EngineConfig],
) -> Result<(String, OpenedBackend), ComputeError> {
    let gpu = open(wanted.gpu.as_deref())?;
    let demand = |engine: &EngineConfig| {
        let (recv, tail) = (&engine.recv, engine.tail_samples());
        let spare = (wanted.spare_chunks as u64).saturating_mul(chunk_bytes(recv, tail));
        receive_bytes(recv, tail, MemoryKind::Bar).saturating_add(spare)
    };
    let demand = engines.iter().map(demand).fold(0, u64::saturating_add);
    let (recv_memory, chosen) = wanted.memory.open(&gpu, demand, wanted.bar_share)?;
    let recv_memory: Arc<dyn ChunkAllocator> = recv_memory.into();
    let send_memory = Arc::new(PinnedAllocator::new(&gpu));
    let name = GpuName {
        name: gpu.name(),
        address: gpu.address().to_owned(),
    };
    let engine = |engine: &EngineConfig| -> Result<Compute, GpuError> {
        let (kind, kernels) = (recv_memory.kind(), &wanted.kernels);
        Ok(Compute {
            backend: gpu::backend(gpu.clone(), engine, kind, OUTPUT_CHUNKS, kernels)?,
            gpu: Some(name.clone()),
            recv_memory: recv_memory.clone(),
            send_memory: send_memory.clone(),
        })
    };
    let engines = engines.iter().map(engine).collect::<Result<_, _>>()?;
    let chosen = chosen.into_iter().collect();
    Ok((name.to_string(), OpenedBackend { engines, chosen }))
}

/// The GPU at a PCI address; the first one where CUDA does not show that, or it is too old, or
/// there is no wish.
fn open(address: Option<&str>) -> Result<Arc<Gpu>, GpuError> {
    let gpu = match address.map(Gpu::open_at) {
        None => Gpu::open(),
        Some(Err(error @ (GpuError::Unseen { .. } | GpuError::TooOld { .. }))) => {
            tracing::warn!(%error, "the first GPU is taken");
            Gpu::open()
        }
        Some(opened) => opened,
    }?;
    tracing::info!(gpu = gpu.name(), pci = gpu.address(), "opened");
    Ok(gpu)
}

fn on_cpu(engines: &[EngineConfig], workers: &Arc<Workers>, live: bool) -> Vec<Compute> {
    let memory = HostAllocator {
        pages_first: live,
        ..HostAllocator::default()
    };
    let engine = |engine: &EngineConfig| Compute {
        backend: cpu::backend(engine, workers),
        gpu: None,
        recv_memory: Arc::new(memory),
        send_memory: Arc::new(memory),
    };
    engines.iter().map(engine).collect()
}

/// The outputs of an engine, one per pipeline, unobserved.
pub fn outputs(
    eal: &Eal,
    engine: &EngineConfig,
    pipelines: Vec<Box<dyn Pipeline>>,
    memory: &dyn ChunkAllocator,
) -> Result<Vec<OutputParts>, MemoryError> {
    let output = |(config, pipeline): (&OutputConfig, _)| -> Result<_, MemoryError> {
        let batches = engine.send.chunk_jones / config.jones_per_batch;
        let chunks = (0..OUTPUT_CHUNKS)
            .map(|_| OutputMemory::new(batches, config.batch_bytes(), memory))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(OutputParts {
            config: config.clone(),
            pipeline,
            pool: ExtPool::new(eal, chunks),
            stats: Arc::new(OutputStats::new(&config.name)),
            observer: None,
            keeps_delays: false,
        })
    };
    engine.outputs.iter().zip(pipelines).map(output).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A container into which the driver was not mounted has none, and no GPU is missed more.
    #[test]
    fn a_live_engine_on_the_cpu_is_warned_of_whatever_the_cause() {
        let options = "name=w,channels=16,dst=239.1.2.0+1:7148,jones_per_batch=64,taps=4";
        let engine = crate::config::tests::engine(options, |config| {
            config.clock.adc_sample_rate = 1712e6;
        });
        let engines = [engine];
        for error in [GpuError::NoDriver, GpuError::NoDevice("none".to_owned())] {
            let driver = !matches!(error, GpuError::NoDriver);
            let error = ComputeError::Gpu(error);
            let live = fallback(&error, &engines, true).expect("a warning");
            for words in ["1712 Msample/s", "300", "`--backend cuda`"] {
                assert!(live.contains(words), "{live}");
            }
            assert_eq!(fallback(&error, &engines, false).is_some(), driver);
        }
    }
}
