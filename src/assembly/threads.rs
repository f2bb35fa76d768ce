//! Data threads: each on an lcore of its own, with a name and a timer.

use std::sync::Arc;

use dpdk::{DpdkError, Eal, LcoreHandle};
use ground::stats::{PhaseTimer, PhaseTimes, ThreadReport};
use ground::{StopFlag, TscClock};

/// The data threads of a process: jobs take its worker lcores in order.
#[derive(Debug)]
pub struct Threads {
    eal: Eal,
    abort: StopFlag,
    times: Vec<Arc<PhaseTimes>>,
}

impl Threads {
    /// Nothing runs yet; `abort` ends everything that will.
    pub fn new(eal: &Eal, abort: StopFlag) -> Self {
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
    pub fn abort(&self) -> &StopFlag {
        &self.abort
    }

    /// Runs `job` on the next lcore; a panic there aborts all.
    ///
    /// Refuses more jobs than there are worker lcores.
    pub fn spawn<T: Send + 'static>(
        &mut self,
        name: &str,
        job: impl FnOnce(&mut PhaseTimer) -> T + Send + 'static,
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
            job(&mut PhaseTimer::start(job_times))
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
        self.eal.tsc_clock()
    }

    /// Where the time of each thread goes.
    pub fn times(&self) -> &[Arc<PhaseTimes>] {
        &self.times
    }

    /// Where the time of each thread went so far.
    pub fn reports(&self) -> Vec<ThreadReport> {
        let clock = self.clock();
        self.times.iter().map(|times| times.report(clock)).collect()
    }
}
