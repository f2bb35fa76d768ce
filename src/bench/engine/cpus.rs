//! Which thread of a bench runs on which CPU.

use ground::os::allowed_cpus;

use super::options::BenchOptions;
use crate::assembly::BackendKind;
use crate::config::ConfigError;

/// Which CPU is whose.
pub struct Cpus {
    /// All that may be used.
    pub all: Vec<usize>,
    /// The main thread's, unless it shares one.
    pub main: Option<usize>,
    pub lcores: Vec<usize>,
    pub workers: Vec<usize>,
    /// Those that are left, for who looks at the engines.
    pub clients: Vec<usize>,
}

impl Cpus {
    pub fn assign(options: &BenchOptions) -> Result<Self, ConfigError> {
        let cpus = if options.cpus.is_empty() {
            allowed_cpus()
        } else {
            options.cpus.clone()
        };
        let lcores = options.lcores();
        let workers = match options.backend {
            BackendKind::Cuda => 0,
            BackendKind::Auto | BackendKind::Cpu => options.workers,
        };
        let needed = 1 + lcores + workers;
        if needed > cpus.len() && !options.oversubscribe {
            let rule = format!(
                "are too few: the main thread, {lcores} lcores and {workers} compute threads take {needed}"
            );
            let way_out =
                "ask for fewer queues, generators, sinks or engines, or give --oversubscribe";
            return Err(ConfigError::new("--cpus", cpus.len(), rule, way_out));
        }
        if needed > cpus.len() {
            tracing::warn!(
                "{needed} threads share {} CPUs: figures mean little",
                cpus.len()
            );
        }
        let mut turn = cpus.iter().copied().cycle().skip(1);
        Ok(Self {
            clients: cpus.iter().copied().skip(needed).collect(),
            all: cpus.clone(),
            main: (needed <= cpus.len()).then(|| cpus[0]),
            lcores: turn.by_ref().take(lcores).collect(),
            workers: turn.take(workers.max(1)).collect(),
        })
    }
}
