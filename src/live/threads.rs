//! Data threads: each on an lcore of its own, with a name and a stopwatch.

use std::sync::Arc;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::dpdk::{Abort, DpdkError, Eal, LcoreHandle, TscClock};
use crate::monitor::phases::{PhaseClock, PhaseTimes};
use crate::monitor::report::LcoreReport;

/// The data threads of a process: jobs take its worker lcores in order.
#[derive(Debug)]
pub struct Threads {
    eal: Eal,
    abort: Abort,
    times: Vec<Arc<PhaseTimes>>,
}

impl Threads {
    /// Nothing runs yet; `abort` ends everything that will.
    pub fn new(eal: &Eal, abort: Abort) -> Self {
        Self {
            eal: eal.clone(),
            abort,
            times: Vec::new(),
        }
    }

    /// DPDK.
    pub fn eal(&self) -> &Eal {
        &self.eal
    }

    /// Ends all jobs.
    pub fn abort(&self) -> &Abort {
        &self.abort
    }

    /// Runs `job` on the next lcore; a panic there aborts all.
    ///
    /// Refuses more jobs than there are worker lcores.
    pub fn spawn<T: Send + 'static>(
        &mut self,
        name: &str,
        job: impl FnOnce(&mut PhaseClock) -> T + Send + 'static,
    ) -> Result<LcoreHandle<T>, DpdkError> {
        let workers = self.eal.workers();
        let lcore = workers.get(self.times.len()).ok_or(DpdkError::Value {
            what: "data threads",
            value: (self.times.len() + 1).to_string(),
            rule: "must not exceed the worker lcores that EAL was started with",
        })?;
        let times = PhaseTimes::new(name, Some(lcore.cpu));
        let (abort, job_times) = (self.abort.clone(), times.clone());
        let handle = self.eal.launch(lcore.id, name, move || {
            let _guard = abort.on_panic();
            job(&mut PhaseClock::start(job_times))
        })?;
        self.times.push(times);
        Ok(handle)
    }

    /// Starts to look for each thread's longest turn anew.
    pub fn forget_longest_turns(&self) {
        for times in &self.times {
            times.forget_longest_turn();
        }
    }

    /// What their ticks are.
    pub fn clock(&self) -> TscClock {
        TscClock::new(&self.eal)
    }

    /// Where the time of each thread goes.
    pub fn times(&self) -> &[Arc<PhaseTimes>] {
        &self.times
    }

    /// Where the time of each thread went so far.
    pub fn reports(&self) -> Vec<LcoreReport> {
        let clock = self.clock();
        self.times.iter().map(|times| times.report(clock)).collect()
    }
}

/// Lets this thread, and those that it starts from now on, run on `cpus`.
pub fn run_on(cpus: impl IntoIterator<Item = usize>) -> nix::Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(cpu)?;
    }
    sched_setaffinity(Pid::from_raw(0), &set)
}
