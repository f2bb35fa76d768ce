//! What a live engine loses, in its log and for `systemctl status`.

mod patience;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ground::StopFlag;
use host::placement::EnginePlan;
use katcp::reading::unix_now;

use crate::config::{FgpuConfig, InputConfig};
use crate::doctor::{Asked, Look, Report, examine};
use crate::fgpu::LiveEngine;
use crate::losses::{
    Counters, LevelSource, LossEvent, LossRecord, LossStage, Moment, Watch, WatchedEngine,
};
use patience::Patience;

/// Findings of the doctor that are logged.
const FINDINGS: usize = 3;
/// How long the doctor looks beside an engine.
const LOOK: Duration = Duration::from_secs(1);

/// Watches an engine, and logs what begins, goes on and ends.
pub struct Losses {
    counters: Counters,
    watch: Watch,
    record: Arc<LossRecord>,
    /// What the doctor is told, and when; nothing where there is nothing to look at.
    patient: Option<(Asked, Patience)>,
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
        let counters = Counters::of(
            &config.engine,
            engine.engine(),
            engine.capture_stats(),
            engine.links(),
        );
        let counters = counters.with_lcores(engine.threads(), plan);
        let mut interfaces = match &config.input {
            InputConfig::Live { interfaces, .. } => interfaces.clone(),
            InputConfig::Capture { .. } => Vec::new(),
        };
        interfaces.sort();
        interfaces.dedup();
        let watched = WatchedEngine {
            recv: config.engine.recv.clone(),
            clock: config.engine.clock,
            source: source.to_owned(),
            interfaces,
        };
        let now = Instant::now();
        let patience = Patience::new(watched.patience(), now);
        let patient = Asked::of_engine(config).map(|asked| (asked, patience));
        Self {
            patient,
            watch: Watch::new(watched, now, counters.read()),
            counters,
            record,
        }
    }

    /// Watches `levels` as well: those of an engine that sends.
    #[must_use]
    pub fn with_levels(self, levels: LevelSource) -> Self {
        Self {
            counters: self.counters.with_levels(levels),
            ..self
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
        let counts = self.counters.read();
        let has_come = counts.placed > 0;
        let events = self.watch.look(moment, counts);
        self.record
            .update(moment.unix, self.watch.active(), &events);
        self.record.note_unexplained(self.watch.unexplained());
        events.iter().for_each(tell);
        if let Some((asked, patience)) = &mut self.patient
            && patience.ends(now, has_come, self.watch.silence(now))
        {
            ask(asked.clone());
        }
    }

    /// One line on the last seconds.
    pub fn status(&self) -> String {
        self.watch.status()
    }

    /// Logs what the run came to. Ports may have gone by then: they count as at the last look.
    pub fn sum_up(self) {
        for line in self.watch.summary(self.counters.read_without_ports()) {
            tracing::info!("{line}");
        }
    }
}

/// Has the doctor look for a moment, and logs what it finds. Nobody waits for it.
fn ask(asked: Asked) {
    let look = Look {
        time: LOOK,
        beside_engine: true,
    };
    let work = move || match examine(&asked, look, &StopFlag::default()) {
        Ok(report) => tell_findings(&report),
        Err(error) => tracing::info!(%error, "cannot look why no heap comes"),
    };
    if let Err(error) = thread::Builder::new().name("doctor".to_owned()).spawn(work) {
        tracing::info!(%error, "cannot look why no heap comes");
    }
}

fn tell_findings(report: &Report) {
    for found in report.findings.iter().take(FINDINGS) {
        let finding = found.code.name();
        tracing::warn!(finding, "{}: {}", found.what, found.way_out);
    }
    let what = match report.findings.len() {
        0 => "nothing wrong found on the wire",
        _ => "looking at the wire",
    };
    for note in &report.notes {
        tracing::info!("{what}: {note}");
    }
}

fn tell(event: &LossEvent) {
    let (cause, text) = (event.cause.name(), &event.text);
    // A wrong clock and the like have no number.
    let count = (event.count > 0).then_some(event.count);
    match event.stage {
        LossStage::Begins | LossStage::GoesOn => tracing::warn!(cause, count, "{text}"),
        LossStage::Ends => tracing::info!(cause, count, "{text}"),
    }
}
