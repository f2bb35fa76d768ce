//! What an engine takes of memory, of the host's and of a GPU's: told and compared with what there
//! is before anything starts.

use std::fmt;

use clap::ArgMatches;
use clap::parser::ValueSource;

use super::FgpuArgs;
use crate::assembly::{Available, BackendKind, Demand, DemandError};
use crate::config::{Decision, EngineConfig, FgpuConfig, SendConfig};
use crate::fgpu::Interfaces;
use crate::gpu::MemoryChoice;
use crate::memory::MemoryKind;

/// Spare chunks, and Jones vectors of an output chunk, below which defaults are not lowered.
const FEWEST_SPARES: usize = 1;
const FEWEST_JONES: usize = 1 << 20;

/// How an engine is to be run, as far as memory depends on it.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Of receive chunks, as the host's memory counts them.
    kind: MemoryKind,
    /// As the GPU's memory counts them, one of these.
    on_gpu: &'static [MemoryKind],
}

impl Setting {
    /// What the options ask for, on a host that has a GPU or not. Where the choice is free, receive
    /// chunks are counted as the host's, and of a GPU's memory what takes more.
    pub fn of(args: &FgpuArgs, has_gpu: bool) -> Self {
        let on_gpu = match args.backend {
            BackendKind::Cpu => false,
            BackendKind::Cuda => true,
            BackendKind::Auto => has_gpu,
        };
        let memory = match args.options.use_vkgdr {
            true => MemoryChoice::Bar,
            false => args.memory,
        };
        Self::new(memory, on_gpu)
    }

    fn new(memory: MemoryChoice, on_gpu: bool) -> Self {
        let (kind, on_gpu): (_, &[_]) = match memory {
            _ if !on_gpu => (MemoryKind::Host, &[]),
            MemoryChoice::Bar => (MemoryKind::Bar, &[MemoryKind::Bar]),
            MemoryChoice::Mixed => (MemoryKind::Mixed, &[MemoryKind::Mixed]),
            MemoryChoice::Pinned => (MemoryKind::Pinned, &[MemoryKind::Pinned]),
            MemoryChoice::Auto => (MemoryKind::Pinned, &[MemoryKind::Pinned, MemoryKind::Bar]),
        };
        Self { kind, on_gpu }
    }

    /// What is taken of a GPU's memory, at most; `None` where the CPU computes.
    fn demands_on_gpu(self, engine: &EngineConfig, spare_chunks: usize) -> Option<Vec<Demand>> {
        let kinds = self.on_gpu.iter();
        let demands = kinds.map(|&kind| Demand::on_gpu(engine, spare_chunks, kind));
        demands.max_by_key(|demands| Demand::sum(demands))
    }
}

/// Memory that an engine takes.
#[derive(Clone, Debug)]
pub struct Footprint {
    host: Vec<Demand>,
    /// `None` where the CPU computes.
    gpu: Option<Vec<Demand>>,
    available: Option<Available>,
}

impl Footprint {
    /// That of an engine, and of what stands `beside` it.
    pub fn of(
        setting: Setting,
        config: &FgpuConfig,
        (interfaces, beside): (&Interfaces, &[Demand]),
        spare_chunks: usize,
        workers: usize,
    ) -> Self {
        let engine = &config.engine;
        let mut host = Demand::on_host(engine, spare_chunks, workers, setting.kind);
        host.extend(interfaces.demands(config));
        host.extend_from_slice(beside);
        let gpu = setting.demands_on_gpu(engine, spare_chunks);
        host.extend(Demand::of_process(gpu.is_some()));
        Self {
            host,
            gpu,
            available: Available::now(),
        }
    }

    fn fits(&self) -> bool {
        let there = self.available.as_ref();
        there.is_none_or(|available| Demand::sum(&self.host) <= available.bytes)
    }

    /// What the engine keeps where its threads are, for the plan.
    pub fn host(&self) -> &[Demand] {
        &self.host
    }

    /// Refuses what does not fit the host.
    pub fn check(&self) -> Result<(), DemandError> {
        Demand::check(self.host.clone())
    }
}

/// Lowers defaults until an engine fits: first the spare chunks, then the output chunks. What was
/// given stays as it is. Returns what was lowered.
pub fn fit(
    matches: &ArgMatches,
    config: &mut FgpuConfig,
    spare_chunks: &mut usize,
    footprint: impl Fn(&FgpuConfig, usize) -> Footprint,
) -> Vec<Decision> {
    let is_default = |id: &str| {
        let source = matches.value_source(id);
        source.is_none_or(|source| source == ValueSource::DefaultValue)
    };
    let (jones, spares) = (config.engine.send.chunk_jones, *spare_chunks);
    loop {
        let taken = footprint(config, *spare_chunks);
        if taken.fits() {
            break;
        }
        let send = &mut config.engine.send;
        if is_default("recv_spare_chunks") && *spare_chunks > FEWEST_SPARES {
            *spare_chunks -= 1;
        } else if is_default("send_chunk_jones")
            && send.chunk_jones / 2 >= FEWEST_JONES
            && let Ok(fewer) =
                SendConfig::whole_batches(send.chunk_jones / 2, &config.engine.outputs)
            && fewer < send.chunk_jones
        {
            send.chunk_jones = fewer;
        } else {
            // Nothing is left to lower: restore the defaults, and let the check refuse them.
            (config.engine.send.chunk_jones, *spare_chunks) = (jones, spares);
            return Vec::new();
        }
    }
    let lowered = |option: &str, before: usize, now: usize| {
        (now < before).then(|| Decision {
            option: option.to_owned(),
            value: now.to_string(),
            why: format!("memory is short: {before} would not fit"),
        })
    };
    let now = config.engine.send.chunk_jones;
    let spares = lowered("--recv-spare-chunks", spares, *spare_chunks);
    let jones = lowered("--send-chunk-jones", jones, now);
    spares.into_iter().chain(jones).collect()
}

impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nmemory")?;
        list(f, "host", &self.host)?;
        match &self.available {
            Some(available) => writeln!(f, "    {available}")?,
            None => writeln!(f, "    the system does not say what is available")?,
        }
        match &self.gpu {
            Some(gpu) => list(f, "GPU, at most", gpu),
            None => Ok(()),
        }
    }
}

fn list(f: &mut fmt::Formatter<'_>, place: &str, demands: &[Demand]) -> fmt::Result {
    writeln!(f, "  {place}: {} MiB", mib(Demand::sum(demands)))?;
    for Demand {
        what,
        bytes,
        option,
        value,
    } in demands.iter().filter(|demand| demand.bytes > 0)
    {
        let option = match &option[..] {
            "" => String::new(),
            option => format!("  {option} {value}"),
        };
        let mib = mib(*bytes);
        writeln!(f, "    {mib:>5} MiB  {what}{option}")?;
    }
    Ok(())
}

fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A free choice may come to either kind of memory, and is told by the one that takes more.
    #[test]
    fn a_gpu_has_room_for_either_choice() {
        for chunk_samples in [1 << 20, 1 << 25] {
            let config = crate::config::tests::engine("name=w,channels=1024,dst=239.10.1.0", |c| {
                c.recv.chunk_samples = chunk_samples;
            });
            let most = |memory| {
                let demands = Setting::new(memory, true).demands_on_gpu(&config, 3);
                Demand::sum(&demands.unwrap())
            };
            let [auto, bar, pinned] =
                [MemoryChoice::Auto, MemoryChoice::Bar, MemoryChoice::Pinned].map(most);
            assert_eq!(auto, bar.max(pinned), "{chunk_samples}");
            assert_ne!(bar, pinned);
        }
        let config = crate::config::tests::engine("name=w,channels=1024,dst=239.10.1.0", |_| {});
        let on_cpu = Setting::new(MemoryChoice::Auto, false).demands_on_gpu(&config, 3);
        assert!(on_cpu.is_none());
    }
}
