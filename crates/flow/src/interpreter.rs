//! The reference interpreter: one sample after the other, node after node.
//!
//! What an executor puts out is right if it equals this, bit for bit. Nothing here is fast.

use std::sync::Arc;

use num_integer::{gcd, lcm};

use crate::graph::{Graph, NodeId, Source};
use crate::literal::Literals;
use crate::node::Step;
use crate::problem::{Cause, Problems};
use crate::ratio::Ratio;
use crate::types::Type;
use crate::value::Value;

/// The most bytes of state and of signals that a graph may have to be interpreted.
/// Each takes up to 32 times as much here.
pub const MAX_STATE_BYTES: u64 = 1 << 26;

/// The most ticks of the common clock in one sample of the base rate, and the most base samples in
/// one tick.
pub const MAX_TICKS: u64 = 1 << 32;

/// A graph in some state.
pub struct Interpreter {
    graph: Arc<Graph>,
    steps: Vec<Box<dyn Step>>,
    /// The last value of each output of each node.
    values: Vec<Vec<Value>>,
    /// Ticks of the common clock between two samples of each node.
    periods: Vec<u64>,
    tick: u64,
    /// Numbers that take the place of a node's own, and the tick from which on.
    changes: Vec<(u64, NodeId, Literals)>,
}

impl Interpreter {
    /// The graph in its initial state, or why it cannot run.
    pub fn new(graph: &Graph) -> Result<Interpreter, Problems> {
        let mut problems = unknown(graph);
        let signals = graph
            .nodes()
            .iter()
            .flat_map(|placed| &placed.outputs)
            .map(|kind| kind.bytes() as u64);
        let bytes = signals.fold(graph.state_bytes(), u64::saturating_add);
        if bytes > MAX_STATE_BYTES {
            let text = format!(
                "{bytes} bytes of state and signals: at most {MAX_STATE_BYTES} are interpreted"
            );
            problems.add(Cause::Limit, graph.name(), text);
        }
        let periods = match periods(graph) {
            Ok(periods) => periods,
            Err(text) => {
                problems.add(Cause::Limit, graph.name(), text);
                vec![]
            }
        };
        problems.unless(())?;
        let graph = Arc::new(graph.clone());
        let mut interpreter = Interpreter {
            graph,
            steps: vec![],
            values: vec![],
            periods,
            tick: 0,
            changes: vec![],
        };
        interpreter.reset();
        Ok(interpreter)
    }

    /// Gives a node other numbers from a tick on: see [`Node::takes`](crate::Node::takes). Of two
    /// changes at one tick the second counts.
    pub fn change_at(&mut self, path: &str, numbers: Literals, tick: u64) -> Result<(), Problems> {
        let Some(id) = self.graph.find(path) else {
            let text = "there is no such node: give the path of one";
            return Err(Problems::one(Cause::Parameter, path, text));
        };
        let placed = self.graph.node(id);
        let kind = placed.outputs.first();
        let fits = || kind.map_or(Ok(()), |kind| numbers.fit(kind.scalar));
        let taken = placed.node.takes(&numbers).and_then(|()| fits());
        taken.map_err(|text| Problems::one(Cause::Parameter, path, text))?;
        self.changes.push((tick, id, numbers));
        self.changes.sort_by_key(|change| change.0);
        Ok(())
    }

    /// Brings the graph back to its initial state. Changes that are to come are forgotten.
    pub fn reset(&mut self) {
        self.tick = 0;
        self.changes.clear();
        self.steps = self
            .graph
            .nodes()
            .iter()
            .map(|placed| placed.node.start(&placed.inputs, &placed.outputs))
            .collect();
        self.values = self
            .graph
            .nodes()
            .iter()
            .map(|placed| placed.node.rest(&placed.outputs))
            .collect();
    }

    /// Runs until an input has no sample left. `inputs` holds one stream for each of
    /// [`Graph::inputs`]; the result has one for each of [`Graph::outputs`]. A further call goes on
    /// where this one ended. A sample that is not of its output's type, as nodes of one's own may
    /// put out, ends the run. Panics of such nodes pass through.
    pub fn run(&mut self, inputs: &[Vec<Value>]) -> Result<Vec<Vec<Value>>, Problems> {
        let ports: Vec<NodeId> = self.graph.inputs().collect();
        let mut problems = Problems::default();
        if inputs.len() != ports.len() {
            let text = format!(
                "{} input streams are given: there are {} inputs",
                inputs.len(),
                ports.len()
            );
            return Err(Problems::one(Cause::Connection, self.graph.name(), text));
        }
        if ports.is_empty() {
            let text = "the graph has no inputs that could end: use `run_for`";
            return Err(Problems::one(Cause::Connection, self.graph.name(), text));
        }
        for (port, stream) in ports.iter().zip(inputs) {
            let kind = self.graph.node(*port).outputs[0];
            if let Some(wrong) = stream.iter().find(|value| value.kind() != kind) {
                let text = format!("a sample is {}: the input is {kind}", wrong.kind());
                problems.add(Cause::Type, self.graph.path(*port), text);
            }
        }
        problems.unless(())?;
        let mut streams: Vec<_> = inputs
            .iter()
            .map(|stream| stream.iter().peekable())
            .collect();
        let mut outputs = vec![Vec::new(); self.graph.outputs().count()];
        loop {
            let due: Vec<usize> = (0..ports.len())
                .filter(|&port| self.due(ports[port]))
                .collect();
            if due.iter().any(|&port| streams[port].peek().is_none()) {
                return Ok(outputs);
            }
            for port in due {
                if let Some(value) = streams[port].next() {
                    self.values[ports[port].index()][0].clone_from(value);
                }
            }
            self.cycle(&mut outputs)?;
        }
    }

    /// Runs a graph for so many ticks of its common clock: as many samples, if all is at the base
    /// rate. Inputs keep their last value. It ends early as [`run`](Self::run) does.
    pub fn run_for(&mut self, ticks: u64) -> Result<Vec<Vec<Value>>, Problems> {
        let mut outputs = vec![Vec::new(); self.graph.outputs().count()];
        for _ in 0..ticks {
            self.cycle(&mut outputs)?;
        }
        Ok(outputs)
    }

    /// Whether a node has a sample in this tick.
    fn due(&self, id: NodeId) -> bool {
        self.tick.is_multiple_of(self.periods[id.index()])
    }

    fn runs(&self, id: NodeId) -> bool {
        self.due(id)
            && self
                .graph
                .enables(id)
                .all(|enable| self.value(enable).first().is_true())
    }

    fn value(&self, source: Source) -> &Value {
        &self.values[source.node.index()][usize::from(source.port)]
    }

    fn gather(&self, id: NodeId) -> Vec<Value> {
        self.graph
            .node(id)
            .from
            .iter()
            .map(|&source| self.value(source).clone())
            .collect()
    }

    fn cycle(&mut self, outputs: &mut [Vec<Value>]) -> Result<(), Problems> {
        let graph = self.graph.clone();
        let due = self
            .changes
            .iter()
            .take_while(|change| change.0 <= self.tick);
        let due = due.count();
        for (_, id, numbers) in self.changes.drain(..due) {
            self.steps[id.index()].change(&numbers);
        }
        for &id in graph.order() {
            if self.runs(id) {
                let inputs = if graph.node(id).node.direct() {
                    self.gather(id)
                } else {
                    vec![]
                };
                let mut values = std::mem::take(&mut self.values[id.index()]);
                self.steps[id.index()].compute(&inputs, &mut values);
                let placed = graph.node(id);
                let mut made = values.iter().zip(&placed.outputs);
                if let Some(text) = made.find_map(|(value, &kind)| wrong(value, kind)) {
                    // A further run goes on with samples of the right types.
                    self.values[id.index()] = placed.node.rest(&placed.outputs);
                    return Err(Problems::one(Cause::Type, graph.path(id), text));
                }
                self.values[id.index()] = values;
            }
        }
        // Values stand still from here: the order does not matter.
        for &id in graph.order() {
            if self.runs(id) {
                let inputs = self.gather(id);
                self.steps[id.index()].update(&inputs);
            }
        }
        for (stream, id) in outputs.iter_mut().zip(graph.outputs()) {
            if self.due(id) {
                stream.extend(self.gather(id));
            }
        }
        self.tick += 1;
        Ok(())
    }
}

/// What is wrong with a sample that a node has put out, if it is not of its output's type.
pub(crate) fn wrong(value: &Value, kind: Type) -> Option<String> {
    let text = || format!("put out {} where its output is {kind}", value.kind());
    (value.kind() != kind).then(text)
}

/// The nodes that cannot run.
pub(crate) fn unknown(graph: &Graph) -> Problems {
    let mut problems = Problems::default();
    for id in graph.ids().filter(|&id| !graph.node(id).node.runs()) {
        let what = graph
            .node(id)
            .node
            .parameters()
            .and_then(|p| p.get("called").map(ToString::to_string));
        let text = format!(
            "there is no node of the kind {}: replace it",
            what.unwrap_or_default()
        );
        problems.add(Cause::Unknown, graph.path(id), text);
    }
    problems
}

/// Ticks between two samples of each node, on the slowest clock that has a tick for all.
pub(crate) fn periods(graph: &Graph) -> Result<Vec<u64>, String> {
    let rates = || graph.nodes().iter().filter_map(|placed| placed.rate);
    // The least common multiple of fractions in lowest terms: that of the numerators over the
    // divisor of the others.
    let mut clock: u128 = 1;
    let mut divisor: u128 = 0;
    for rate in rates() {
        let num = u128::from(rate.num());
        clock = lcm(clock, num);
        divisor = gcd(divisor, rate.den().into());
        if clock > MAX_TICKS.into() {
            return Err(format!(
                "the rates have no common clock below {MAX_TICKS} ticks: use smaller rate changes"
            ));
        }
    }
    let divisor = divisor.max(1);
    let period = |rate: Ratio| {
        let period = clock * u128::from(rate.den()) / (u128::from(rate.num()) * divisor);
        let most = u128::from(MAX_TICKS);
        (period <= most).then_some(period as u64).ok_or_else(|| {
            format!(
                "the slowest rate has a sample in {period} ticks of the common clock, more than \
                 {MAX_TICKS}: use smaller rate changes"
            )
        })
    };
    let all = graph.nodes().iter();
    all.map(|placed| placed.rate.map_or(Ok(1), period))
        .collect()
}

/// Ticks after which what nodes do begins anew, of which steps must be whole multiples: the periods
/// of all, and that in which `up` puts out one number of a constant, which has no period itself.
pub(crate) fn turns(graph: &Graph, periods: &[u64]) -> Vec<u64> {
    let ups = graph.nodes().iter().zip(periods).filter(|(placed, _)| {
        let mut from = placed.from.iter();
        placed.node.kind() == "up" && from.any(|source| graph.node(source.node).node.constant())
    });
    let ups = ups.map(|(placed, period)| period.saturating_mul(placed.node.ratio().num()));
    periods.iter().copied().chain(ups).collect()
}
