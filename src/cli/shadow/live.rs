//! One run of a shadow: an engine that sends nowhere, what hears the other, and what compares.

use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dpdk::{Eal, RxQueue};
use ground::StopFlag;

use super::ShadowArgs;
use crate::assembly::{Threads, drain};
use crate::cli::fgpu::launch::{Launch, ended_early, failure, finish, give_up};
use crate::cli::frame::StopReason;
use crate::cli::losses::Losses;
use crate::cli::serve::Serving;
use crate::cli::{Failure, colour, print_json};
use crate::engine::ChunkObserver;
use crate::engine::steer::{ControlHandle, REQUESTS};
use crate::fgpu::{LiveEngine, LiveParts};
use crate::losses::LossRecord;
use crate::net::FlowTable;
use crate::ports::OpenPort;
use crate::shadow::{
    ComparedStream, Comparer, ComparerHandle, Followed, Follower, Heard, Inlet, Listener,
    OurBatches, Selection, ShadowReport, Target, queue,
};

/// A shadow whose configuration and placement are settled.
pub struct Shadow<'a> {
    /// Options.
    pub args: &'a ShadowArgs,
    /// The engine's.
    pub launch: Launch<'a>,
    /// One batch in so many is compared.
    pub every: u64,
    /// How often to say how it goes.
    pub report_interval: Duration,
    /// After what time to end.
    pub duration: Option<Duration>,
}

/// What hears the running engine.
struct Ears {
    thread: JoinHandle<Heard>,
    stop: StopFlag,
    /// Members of the outputs' groups.
    _ports: Vec<OpenPort>,
}

impl Shadow<'_> {
    /// Runs until told to end.
    pub fn run(&self, serving: Serving, follower: Follower) -> Result<(), Failure> {
        let (compute, eal) = match self.launch.prepare(&serving)? {
            Ok(prepared) => prepared,
            Err(why) => {
                ended_early(serving, &why);
                return Ok(());
            }
        };
        let config = self.launch.config;
        let (steering, steered) = ControlHandle::new(&config.engine, REQUESTS);
        follower.take_over(&steering).map_err(Failure::data)?;
        let (inlet, outlet) = queue();
        let followed = Arc::<Followed>::default();
        let parts = LiveParts {
            compute,
            steered,
            spare_chunks: self.launch.spare_chunks,
            observers: self.observers(&inlet),
        };
        let threads = Threads::new(&eal, StopFlag::default());
        let (interfaces, placement) = (self.launch.interfaces, self.launch.placement);
        let engine = LiveEngine::start(config, interfaces, threads, parts, placement);
        let engine = engine.map_err(failure)?;
        let following = StopFlag::default();
        let comparer = Comparer::start(&config.engine, self.every, outlet, followed.clone());
        let begun = comparer.map_err(Failure::data).and_then(|comparer| {
            let ears = self.listen(&eal, inlet, |newest| {
                let target = Target {
                    steering,
                    newest,
                    followed: followed.clone(),
                    follow: !self.args.no_follow,
                };
                let stop = following.clone();
                let work = move || follower.run(&target, &stop);
                thread::Builder::new().name("follow".to_owned()).spawn(work)
            })?;
            Ok((comparer, ears))
        });
        let (comparer, ears) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                following.set();
                return Err(give_up(engine, error));
            }
        };
        tracing::info!("up");

        let begun = Instant::now();
        let why = self.wait(&serving, &engine, &comparer);
        tracing::info!(%why, "ending");
        let ended = finish(engine, drain(&config.engine, 0.0, self.launch.spare_chunks));
        ears.stop.set();
        let heard = ears.thread.join();
        let heard = heard.map_err(|_| Failure::data("the thread that listens panicked"))?;
        let compared = comparer.finish();
        // It may be connecting: nobody waits for it.
        following.set();
        serving.stop();
        let changes = [&followed.gains, &followed.delays].map(|n| n.load(Ordering::Relaxed));
        let seconds = begun.elapsed().as_secs_f64();
        let changes = (changes[0], changes[1]);
        let report = ShadowReport::new(&self.args.running, seconds, changes, compared, heard);
        // What was compared is told also if the engine did not end well.
        print(&report, self.args.json)?;
        ended?;
        why.outcome()?;
        outcome(&report)
    }

    fn selections(&self) -> Vec<Selection> {
        let outputs = self.launch.config.engine.outputs.iter();
        outputs
            .map(|output| Selection::new(output, self.every))
            .collect()
    }

    fn observers(&self, inlet: &Inlet) -> Vec<Box<dyn ChunkObserver>> {
        let outputs = self.launch.config.engine.outputs.iter().enumerate();
        let observer =
            |((stream, output), selection): ((usize, &crate::config::OutputConfig), _)| {
                let observer = OurBatches {
                    stream,
                    batch_samples: output.batch_samples() as u64,
                    selection,
                    inlet: inlet.clone(),
                };
                Box::new(observer) as Box<dyn ChunkObserver>
            };
        outputs.zip(self.selections()).map(observer).collect()
    }

    /// Opens the ports to which output comes, and starts to listen. `begin` starts what goes by the
    /// newest timestamps.
    fn listen(
        &self,
        eal: &Eal,
        inlet: Inlet,
        begin: impl FnOnce(crate::shadow::Newest) -> std::io::Result<JoinHandle<()>>,
    ) -> Result<Ears, Failure> {
        let engine = &self.launch.config.engine;
        let (mut ports, mut queues) = (Vec::new(), Vec::<RxQueue>::new());
        let all = self.launch.interfaces.beside();
        for (index, (interface, port_use)) in all.iter().enumerate() {
            // Each interface of an engine's takes a block of every output's destinations.
            let block = |dst: &Vec<SocketAddrV4>| {
                let each = dst.len() / all.len();
                dst[index * each..(index + 1) * each].to_vec()
            };
            let destinations: Vec<_> = engine
                .outputs
                .iter()
                .flat_map(|output| block(&output.dst))
                .collect();
            let table = FlowTable::from_sources(&destinations, 1);
            let mut port = port_use
                .open(eal, interface, &table)
                .map_err(Failure::usage)?;
            let joined = port.membership.join(&destinations, interface);
            joined.map_err(Failure::usage)?;
            queues.append(&mut port.rx);
            ports.push(port);
        }
        let listener = Listener::new(queues, engine, self.selections(), inlet);
        begin(listener.newest()).map_err(Failure::data)?;
        let stop = StopFlag::default();
        let stopped = stop.clone();
        let thread = thread::Builder::new().name("listen".to_owned());
        let thread = thread.spawn(move || listener.run(&stopped));
        Ok(Ears {
            thread: thread.map_err(Failure::data)?,
            stop,
            _ports: ports,
        })
    }

    /// Waits until it is to end, and says how it goes.
    fn wait(
        &self,
        serving: &Serving,
        engine: &LiveEngine,
        comparer: &ComparerHandle,
    ) -> StopReason {
        let source = self
            .args
            .engine
            .options()
            .src
            .as_deref()
            .unwrap_or_default();
        let (config, placement) = (self.launch.config, self.launch.placement);
        let lost = Arc::<LossRecord>::default();
        let mut losses = Losses::watch(config, source, engine, placement, lost);
        let begun = Instant::now();
        let mut said = (begun, Vec::new());
        let why = serving.wait(|| {
            let now = Instant::now();
            losses.tend(now);
            if now.duration_since(said.0) >= self.report_interval {
                let streams = comparer.compared().streams;
                streams
                    .iter()
                    .enumerate()
                    .for_each(|(i, stream)| say(said.1.get(i), stream));
                said = (now, streams);
            }
            match () {
                () if engine.is_aborted() => Some(StopReason::Stage),
                () if !engine.is_running() => Some(StopReason::Input),
                () if self.duration.is_some_and(|end| begun.elapsed() >= end) => {
                    Some(StopReason::Done)
                }
                () => None,
            }
        });
        losses.sum_up();
        why
    }
}

/// How a stream goes, and why not if it does not.
fn say(before: Option<&ComparedStream>, now: &ComparedStream) {
    let since = |count: fn(&ComparedStream) -> u64| count(now) - before.map_or(0, count);
    let (stream, heaps) = (&now.name, since(|s| s.heaps));
    if heaps == 0 {
        let why = match (
            since(|s| s.heaps_only_sent),
            since(|s| s.heaps_only_computed),
        ) {
            (0, 0) => "neither comes anything of the engine's, nor is anything computed here",
            (0, _) => {
                "nothing comes of the engine's output: see --send-interface, dst= and --feng-id"
            }
            (_, 0) => "nothing is computed here: see --recv-interface and SRC",
            _ => {
                "no heap that came has the timestamp of one that was computed here: see --sync-time and the outputs' keys"
            }
        };
        tracing::warn!(stream, "nothing was compared: {why}");
        return;
    }
    tracing::info!(
        stream,
        heaps,
        unequal = since(|s| s.samples_unequal),
        of = since(|s| s.samples),
        judged = since(|s| s.windows_judged),
        excused = since(|s| s.windows_excused),
        differs = now.differs,
        "compared"
    );
}

fn print(report: &ShadowReport, json: bool) -> Result<(), Failure> {
    if json {
        print_json(report)?;
        return Ok(());
    }
    let style = match report.count() == 0 && report.unjudged().is_empty() {
        true => colour::GOOD,
        false => colour::BAD,
    };
    let text = report.to_string();
    println!("{}", colour::last_line(&text, style, colour::on_stdout()));
    Ok(())
}

fn outcome(report: &ShadowReport) -> Result<(), Failure> {
    match (report.count(), report.unjudged()) {
        (0, unjudged) if unjudged.is_empty() => Ok(()),
        (0, unjudged) => Err(Failure::data(format!(
            "nothing could be compared of {}",
            unjudged.join(", ")
        ))),
        (1, _) => Err(Failure::data("1 difference")),
        (n, _) => Err(Failure::data(format!("{n} differences"))),
    }
}
