//! How many threads the nodes get.

use std::cell::Cell;
use std::time::Instant;

use karoo_flow::place::{Cores, Cost, Costs, Wishes, plan};
use karoo_flow::{Graph, Settings};

use super::run::{Copies, GraphError};
use super::send::SendFrames;
use crate::rx::{Acquirer, Decoder, RxConfig};
use crate::tx::Transmitter;
use crate::waveform::{BLANK_SYMBOLS, Frame, Header, Modulation};

/// Blocks that a queue holds: they are long.
const CAPACITY: usize = 3;

/// Nanoseconds of a tick, by the node's path.
type NodeCosts = Vec<(&'static str, f64)>;

/// How long a node takes for a tick, the best of three times, in nanoseconds.
fn nanoseconds(mut work: impl FnMut()) -> f64 {
    let times = (0..3).map(|_| {
        let begin = Instant::now();
        work();
        begin.elapsed().as_nanos() as f64
    });
    times.fold(f64::MAX, f64::min)
}

/// What the receiver's nodes cost where frames follow one another. On noise, as graphs are measured
/// otherwise, there would be nothing to decode.
pub(super) fn receiving(config: &RxConfig) -> NodeCosts {
    let modulation = Modulation::Qam256;
    let payload = vec![0x5a; modulation.payload_bytes()];
    let frame = Frame::new(Header::new(modulation), &payload, config.check);
    let mut samples = Vec::new();
    let mut transmitter = Transmitter::new(1.0);
    if let Ok(frame) = frame {
        transmitter.frame(&frame, &mut samples);
    }
    transmitter.blanks(20 * BLANK_SYMBOLS, &mut samples);
    let mut decoder = Decoder::new(config);
    let decoding = Cell::new(0.0);
    let both = nanoseconds(|| {
        let mut acquirer = Acquirer::new(config.level, config.correct);
        acquirer.push(&samples, |samples, start| {
            decoding.set(nanoseconds(|| drop(decoder.decode(samples, start))));
        });
    });
    // The frame was decoded three times.
    let decode = decoding.get();
    let search = (both - 3.0 * decode).max(0.0);
    vec![("finding/search", search), ("decoding/decode", decode)]
}

/// What the transmitter's node costs.
pub(super) fn sending(node: &SendFrames) -> NodeCosts {
    let (mut transmitter, mut samples) = (Transmitter::new(1.0), Vec::new());
    let send = nanoseconds(|| {
        samples.clear();
        transmitter.frame(&node.frame(&[0x5a; 8]), &mut samples);
    });
    vec![("sending/send", send)]
}

/// Settings of a run, with the nanoseconds of each node's tick if a placement needs them.
pub(super) fn settings(
    graph: &Graph,
    copies: Copies,
    costs: impl Fn() -> NodeCosts,
) -> Result<Settings, GraphError> {
    let own = Settings {
        block: 1,
        capacity: CAPACITY,
        step: 1,
        ..Settings::default()
    };
    let cores = match copies {
        Copies::Number(number) => {
            let more = vec![None; number.saturating_sub(1)];
            return Ok(Settings {
                copies: [(1, more)].into(),
                ..own
            });
        }
        Copies::Placed(cores) => cores.max(1),
    };
    let mut guessed = Costs::guessed(graph);
    for (path, per_tick) in costs() {
        let cost = Cost {
            per_tick,
            per_step: 0.0,
        };
        guessed.nodes.insert(path.into(), cost);
    }
    let wishes = Wishes {
        block: Some(1),
        longest_block: 1,
        capacity: CAPACITY as u64,
        step: 1,
        ..Wishes::default()
    };
    let cores = Cores::alike((0..cores).collect(), 100.0, 8.0);
    let plan = plan(graph, &guessed, &cores, &wishes).map_err(GraphError::Plan)?;
    let mut settings = plan.settings(graph).map_err(GraphError::Plan)?;
    // The kernel knows better where there is something else to do.
    settings.cpus.clear();
    settings
        .copies
        .values_mut()
        .for_each(|cpus| cpus.fill(None));
    Ok(settings)
}
