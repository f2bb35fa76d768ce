//! Worker threads shared by the pipelines of a process.

use ground::os::{allowed_cpus, run_on};
use rayon::{ThreadPool, ThreadPoolBuilder};

/// Why worker threads could not be started.
#[derive(Debug, thiserror::Error)]
pub enum WorkersError {
    /// A pool without threads could never finish a block.
    #[error("compute workers: 0 given; at least one is needed")]
    None,
    /// A core that this process may not run on.
    #[error(
        "compute core {core}: not among the cores this process may use {allowed:?}; pick one of those"
    )]
    Core {
        /// The core asked for.
        core: usize,
        /// Cores in the process's affinity mask.
        allowed: Vec<usize>,
    },
    /// The operating system refused a thread.
    #[error("compute workers: {0}")]
    Start(#[from] rayon::ThreadPoolBuildError),
}

/// A pool of compute threads, one per core given.
#[derive(Debug)]
pub struct Workers {
    pool: ThreadPool,
    cores: Vec<Option<usize>>,
}

impl Workers {
    /// Starts one thread per core, pinned to it.
    ///
    /// # Errors
    /// [`WorkersError::Core`] if a core is outside the process's affinity mask.
    pub fn pinned(cores: &[usize]) -> Result<Self, WorkersError> {
        let allowed = allowed_cpus();
        if let Some(&core) = cores.iter().find(|c| !allowed.contains(c)) {
            return Err(WorkersError::Core { core, allowed });
        }
        Self::start(cores.iter().copied().map(Some).collect())
    }

    /// Starts `count` threads that the operating system may place anywhere.
    ///
    /// # Errors
    /// [`WorkersError::None`] if `count` is 0.
    pub fn unpinned(count: usize) -> Result<Self, WorkersError> {
        Self::start(vec![None; count])
    }

    fn start(cores: Vec<Option<usize>>) -> Result<Self, WorkersError> {
        if cores.is_empty() {
            return Err(WorkersError::None);
        }
        let pins = cores.clone();
        let pool = ThreadPoolBuilder::new()
            .num_threads(cores.len())
            .thread_name(|i| format!("cpu-{i}"))
            .start_handler(move |i| {
                if let Some(core) = pins[i]
                    && let Err(error) = run_on([core])
                {
                    tracing::warn!(worker = i, core, %error, "worker could not be pinned");
                }
            })
            .build()?;
        Ok(Self { pool, cores })
    }

    /// Number of threads.
    pub fn count(&self) -> usize {
        self.cores.len()
    }

    /// CPU of a worker, if it is pinned.
    pub fn core(&self, worker: usize) -> Option<usize> {
        self.cores.get(worker).copied().flatten()
    }

    /// Runs `work` once on every worker, with its index, and waits for all of them.
    pub fn run(&self, work: impl Fn(usize) + Sync) {
        self.pool.broadcast(|ctx| work(ctx.index()));
    }
}
