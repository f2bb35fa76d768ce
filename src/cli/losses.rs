//! What a live engine loses, in its log and for `systemctl status`.

use std::sync::Arc;
use std::time::Instant;

use host::placement::EnginePlan;
use katcp::reading::unix_now;

use crate::config::{FgpuConfig, InputConfig};
use crate::fgpu::LiveEngine;
use crate::losses::{Counters, LossEvent, LossRecord, LossStage, Moment, Setup, Watch, summary};

/// Watches an engine, and logs what begins, goes on and ends.
pub struct Losses {
    counters: Counters,
    watch: Watch,
    record: Arc<LossRecord>,
}

impl Losses {
    /// Watches `engine`, which is placed as `plan` has it, and whose input is `source` as the
    /// operator gave it.
    ///
    /// What is lost is kept on `record` as well.
    pub fn watch(
        config: &FgpuConfig,
        source: &str,
        engine: &LiveEngine,
        plan: &EnginePlan,
        record: Arc<LossRecord>,
    ) -> Self {
        let counters = Counters::of(&config.engine, engine).with_lcores(engine, plan);
        let mut interfaces = match &config.input {
            InputConfig::Live { interfaces, .. } => interfaces.clone(),
            InputConfig::Capture { .. } => Vec::new(),
        };
        interfaces.sort();
        interfaces.dedup();
        let setup = Setup {
            recv: config.engine.recv.clone(),
            clock: config.engine.clock,
            source: source.to_owned(),
            interfaces,
        };
        Self {
            watch: Watch::new(setup, Instant::now(), counters.read()),
            counters,
            record,
        }
    }

    /// Looks whether it is time for a look.
    pub fn tend(&mut self, now: Instant) {
        if !self.watch.is_due(now) {
            return;
        }
        let moment = Moment {
            at: now,
            unix: unix_now(),
        };
        let events = self.watch.look(moment, self.counters.read());
        self.record
            .update(moment.unix, self.watch.active(), &events);
        events.iter().for_each(tell);
    }

    /// One line on the last seconds.
    pub fn status(&self) -> String {
        self.watch.status()
    }

    /// Logs what the run came to. Ports may have gone by then.
    pub fn sum_up(self) {
        for line in summary(&self.counters.read_without_ports()) {
            tracing::info!("{line}");
        }
    }
}

fn tell(event: &LossEvent) {
    let (cause, count, text) = (event.cause.name(), event.count, &event.text);
    match event.stage {
        LossStage::Begins | LossStage::GoesOn => tracing::warn!(cause, count, "{text}"),
        LossStage::Ends => tracing::info!(cause, count, "{text}"),
    }
}
