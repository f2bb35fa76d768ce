//! Which backend computes, and why.

use crate::engine::Pipeline;
use crate::gpu::{self, Gpu, GpuError};
use crate::monitor::report::Chosen;

use super::plan::Plan;

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

/// What was taken.
pub(super) struct Taken {
    /// One pipeline per output if it is the GPU.
    pub gpu: Option<Vec<Box<dyn Pipeline>>>,
    /// What to report if the choice was free.
    pub chosen: Option<Chosen>,
}

/// Opens the GPU if `wanted` asks for it, or allows it and all outputs can run there.
pub(super) fn take(wanted: Backend, plan: &Plan) -> Result<Taken, GpuError> {
    let chosen = |value: &str, why: String| {
        Some(Chosen {
            option: "--backend".into(),
            value: value.into(),
            why,
        })
    };
    Ok(match wanted {
        Backend::Cpu => Taken {
            gpu: None,
            chosen: None,
        },
        Backend::Cuda => Taken {
            gpu: Some(on_gpu(plan)?.1),
            chosen: None,
        },
        Backend::Auto => match on_gpu(plan) {
            Ok((name, pipelines)) => Taken {
                gpu: Some(pipelines),
                chosen: chosen("cuda", format!("{name} can be used")),
            },
            Err(error) => Taken {
                gpu: None,
                chosen: chosen("cpu", error.to_string()),
            },
        },
    })
}

fn on_gpu(plan: &Plan) -> Result<(String, Vec<Box<dyn Pipeline>>), GpuError> {
    let engine = &plan.engine;
    let gpu = Gpu::open()?;
    let samples = engine.recv.chunk_samples + engine.tail_samples();
    let input = gpu::Input::new(gpu.clone(), engine.recv.sample_bits, samples)?;
    let pipeline = |config| -> Result<Box<dyn Pipeline>, GpuError> {
        let config: &crate::config::OutputConfig = config;
        let batches = engine.send.chunk_jones / config.jones_per_batch;
        let pipeline =
            gpu::Wideband::new(config, input.clone(), batches, engine.feng_id, engine.gain)?;
        Ok(Box::new(pipeline))
    };
    let pipelines = engine.outputs.iter().map(pipeline);
    Ok((gpu.name(), pipelines.collect::<Result<_, _>>()?))
}
