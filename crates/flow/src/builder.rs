//! Graphs written in Rust.

use std::cell::RefCell;
use std::ops::{Add, Mul, Sub};
use std::sync::Arc;

use crate::check;
use crate::graph::{Draft, Graph, NodeId, ScopeId, Source};
use crate::literal::Literals;
use crate::node::Node;
use crate::nodes::{self, Comparison};
use crate::number::Rounding;
use crate::problem::{Cause, Problem, Problems};
use crate::ratio::Ratio;
use crate::types::{Scalar, Type};

/// Makes a [`Graph`]: wires are values, nodes are their methods and operators, and nothing is
/// checked before the end.
///
/// ```
/// use karoo_flow::{Builder, Interpreter, Type, Value};
///
/// // y[n] = x[n] + y[n-1] / 2
/// let g = Builder::new("leaky");
/// let x = g.input("x", Type::F32);
/// let past = g.feedback("past", Type::F32, 1, 0);
/// let y = (x + past.out().gain(0.5)).named("y");
/// past.close(y);
/// g.output("out", y);
/// let graph = g.build().unwrap();
///
/// let mut interpreter = Interpreter::new(&graph).unwrap();
/// let out = interpreter.run(&[[1.0f32, 0.0, 0.0].map(Value::from).to_vec()]).unwrap();
/// assert_eq!(out[0], [1.0f32, 0.5, 0.25].map(Value::from));
/// ```
///
/// Everything that is wrong is reported at once, by path:
///
/// ```
/// use karoo_flow::{Builder, Type};
///
/// let g = Builder::new("wrong");
/// let x = g.input("x", Type::F32);
/// g.scope("part", || {
///     let sum = x + g.input("n", Type::I16);
///     g.output("sum", sum.named("sum"));
///     g.output("slow", (x + x.down(2)).named("late"));
/// });
/// let problems = g.build().unwrap_err().to_string();
/// assert!(problems.contains("part/sum: input 2 is i16 where input 1 is f32"));
/// assert!(problems.contains("part/late: takes"));
/// ```
pub struct Builder {
    draft: RefCell<Drafting>,
}

struct Drafting {
    draft: Draft,
    /// The subsystem that new nodes go into.
    scope: ScopeId,
    problems: Vec<Problem>,
    /// Inputs that are open for a reason among the problems.
    told: Vec<(NodeId, usize)>,
}

/// One output of one node, to be used as often as wanted.
#[derive(Clone, Copy)]
pub struct Wire<'g> {
    builder: &'g Builder,
    source: Source,
}

/// A node whose input comes later.
#[must_use = "the node needs its input: `close` it"]
pub struct Feedback<'g> {
    out: Wire<'g>,
}

impl Builder {
    /// An empty graph.
    pub fn new(name: impl Into<String>) -> Builder {
        let draft = Draft::new(name);
        Builder {
            draft: RefCell::new(Drafting {
                draft,
                scope: ScopeId::TOP,
                problems: Vec::new(),
                told: Vec::new(),
            }),
        }
    }

    /// The checked graph, or everything that is wrong with it.
    pub fn build(self) -> Result<Graph, Problems> {
        let Drafting {
            draft,
            problems,
            told,
            ..
        } = self.draft.into_inner();
        check::check(draft, Problems(problems), &told)
    }

    /// Adds a node of any kind and gives its first output. Its name is its kind and a number: see
    /// [`Wire::named`].
    pub fn add<'g>(
        &'g self,
        node: impl Node + 'static,
        inputs: impl AsRef<[Wire<'g>]>,
    ) -> Wire<'g> {
        self.place(None, Arc::new(node), inputs.as_ref())
    }

    fn place<'g>(
        &'g self,
        name: Option<&str>,
        node: Arc<dyn Node>,
        inputs: &[Wire<'g>],
    ) -> Wire<'g> {
        let mut drafting = self.draft.borrow_mut();
        let scope = drafting.scope;
        let name = name.map_or_else(
            || format!("{}{}", node.kind(), drafting.draft.nodes.len()),
            str::to_string,
        );
        let wanted = node.inputs();
        let id = drafting.draft.node(name, scope, node);
        if inputs.len() != wanted {
            let text = format!("{} inputs are given where there are {wanted}", inputs.len());
            let path = drafting.draft.path(id);
            drafting
                .problems
                .push(Problem::new(Cause::Connection, path, text));
        }
        for (index, wire) in inputs.iter().take(wanted).enumerate() {
            drafting.connect(self, id, index, *wire);
        }
        Wire {
            builder: self,
            source: Source { node: id, port: 0 },
        }
    }

    /// Where samples of `kind` come in, at the base rate.
    pub fn input(&self, name: &str, kind: Type) -> Wire<'_> {
        self.place(
            Some(name),
            Arc::new(nodes::Input {
                of: kind,
                rate: Ratio::ONE,
            }),
            &[],
        )
    }

    /// Where samples of `kind` come in, `rate` for each sample of the base rate.
    pub fn input_at(&self, name: &str, kind: Type, rate: Ratio) -> Wire<'_> {
        self.place(Some(name), Arc::new(nodes::Input { of: kind, rate }), &[])
    }

    /// Where samples go out.
    pub fn output<'g>(&'g self, name: &str, wire: Wire<'g>) {
        self.place(Some(name), Arc::new(nodes::Output {}), &[wire]);
    }

    /// A signal that has the same value for ever.
    pub fn constant(&self, kind: Type, value: impl Into<Literals>) -> Wire<'_> {
        self.add(
            nodes::Constant {
                of: kind,
                value: value.into(),
            },
            [],
        )
    }

    /// A delay that closes a loop: its output is there at once, its input comes later.
    pub fn feedback(
        &self,
        name: &str,
        kind: Type,
        length: usize,
        initial: impl Into<Literals>,
    ) -> Feedback<'_> {
        self.open(
            name,
            nodes::Delay {
                length,
                initial: initial.into(),
                of: Some(kind),
            },
        )
    }

    /// A node of one input that closes a loop: its output is there at once, its input comes later.
    pub fn open(&self, name: &str, node: impl Node + 'static) -> Feedback<'_> {
        let mut drafting = self.draft.borrow_mut();
        let scope = drafting.scope;
        let id = drafting.draft.node(name, scope, Arc::new(node));
        Feedback {
            out: Wire {
                builder: self,
                source: Source { node: id, port: 0 },
            },
        }
    }

    /// A subsystem: what `inside` makes goes into it.
    pub fn scope<T>(&self, name: &str, inside: impl FnOnce() -> T) -> T {
        self.within(name, None, inside)
    }

    /// An enabled subsystem: what `inside` makes runs while `enable` is true, and stands still
    /// otherwise. Signals leave it by [`Wire::hold`].
    pub fn enabled<'g, T>(&'g self, name: &str, enable: Wire<'g>, inside: impl FnOnce() -> T) -> T {
        self.within(name, Some(enable), inside)
    }

    fn within<T>(&self, name: &str, enable: Option<Wire>, inside: impl FnOnce() -> T) -> T {
        let mut drafting = self.draft.borrow_mut();
        let outer = drafting.scope;
        let scope = drafting.draft.scope(name, outer);
        if let Some(enable) = enable {
            if std::ptr::eq(enable.builder, self) {
                drafting.draft.scopes[scope.index()].enable = Some(enable.source);
            } else {
                drafting.foreign(name);
            }
        }
        drafting.scope = scope;
        drop(drafting);
        let result = inside();
        self.draft.borrow_mut().scope = outer;
        result
    }

    /// Marks the subsystem that is being made for a partition.
    pub fn partition(&self, partition: u32) {
        let mut drafting = self.draft.borrow_mut();
        let scope = drafting.scope.index();
        drafting.draft.scopes[scope].partition = Some(partition);
    }
}

impl Drafting {
    fn connect(&mut self, builder: &Builder, node: NodeId, input: usize, wire: Wire) {
        if !std::ptr::eq(builder, wire.builder) {
            let path = self.draft.path(node);
            self.told.push((node, input));
            return self.foreign(&path);
        }
        let from = &mut self.draft.nodes[node.index()].from[input];
        if from.replace(wire.source).is_some() {
            let text = format!("input {} has two sources: connect it once", input + 1);
            let path = self.draft.path(node);
            self.problems
                .push(Problem::new(Cause::Connection, path, text));
        }
    }

    fn foreign(&mut self, path: &str) {
        let text = "a wire of another graph: make both nodes with one builder";
        self.problems
            .push(Problem::new(Cause::Connection, path, text));
    }
}

impl<'g> Feedback<'g> {
    /// The node's output.
    pub fn out(&self) -> Wire<'g> {
        self.out
    }

    /// Connects the node's input.
    pub fn close(self, wire: Wire<'g>) {
        let builder = self.out.builder;
        let node = self.out.source.node;
        let mut drafting = builder.draft.borrow_mut();
        if drafting.draft.nodes[node.index()].from.is_empty() {
            let path = drafting.draft.path(node);
            let text = "the node has no input to close";
            return drafting
                .problems
                .push(Problem::new(Cause::Connection, path, text));
        }
        drafting.connect(builder, node, 0, wire);
    }
}

impl<'g> Wire<'g> {
    /// The builder that made it.
    pub fn builder(self) -> &'g Builder {
        self.builder
    }

    /// Gives the node that this wire comes from a name, which must be the only one in its
    /// subsystem.
    pub fn named(self, name: &str) -> Wire<'g> {
        let mut drafting = self.builder.draft.borrow_mut();
        drafting.draft.nodes[self.source.node.index()].name = name.to_string();
        self
    }

    /// Another output of the same node.
    pub fn port(self, port: u16) -> Wire<'g> {
        Wire {
            source: Source {
                port,
                ..self.source
            },
            ..self
        }
    }

    /// Adds a node with this one input.
    pub fn then(self, node: impl Node + 'static) -> Wire<'g> {
        self.builder.add(node, [self])
    }

    /// Times a constant.
    pub fn gain(self, gain: impl Into<Literals>) -> Wire<'g> {
        self.then(nodes::Gain {
            gain: gain.into(),
            output: None,
        })
    }

    /// `length` samples later; `initial` comes out first.
    pub fn delay(self, length: usize, initial: impl Into<Literals>) -> Wire<'g> {
        self.then(nodes::Delay {
            length,
            initial: initial.into(),
            of: None,
        })
    }

    /// In another element type, as `as` converts in Rust.
    pub fn to(self, scalar: Scalar) -> Wire<'g> {
        self.then(nodes::Convert {
            to: scalar,
            rounding: Rounding::Zero,
        })
    }

    /// Filtered; the first tap goes with the newest sample.
    pub fn fir(self, taps: impl Into<Literals>) -> Wire<'g> {
        self.then(nodes::Fir {
            taps: taps.into(),
            initial: 0.into(),
            output: None,
        })
    }

    /// Every `by`-th sample.
    pub fn down(self, by: u64) -> Wire<'g> {
        self.then(nodes::Down { by })
    }

    /// With `by` - 1 zeros behind each sample.
    pub fn up(self, by: u64) -> Wire<'g> {
        self.then(nodes::Up { by })
    }

    /// Each sample `by` times.
    pub fn repeat(self, by: u64) -> Wire<'g> {
        self.then(nodes::Repeat { by })
    }

    /// Compared with another.
    pub fn compare(self, relation: Comparison, other: Wire<'g>) -> Wire<'g> {
        self.builder.add(nodes::Compare { relation }, [self, other])
    }

    /// The data wire that this one selects, counted from 0.
    pub fn mux(self, choices: impl AsRef<[Wire<'g>]>) -> Wire<'g> {
        let choices = choices.as_ref();
        let node = nodes::Mux {
            choices: choices.len(),
            first: 0,
            output: None,
        };
        let inputs: Vec<Wire> = std::iter::once(self)
            .chain(choices.iter().copied())
            .collect();
        self.builder.add(node, inputs)
    }

    /// Out of an enabled subsystem, at `initial` until that has run.
    pub fn hold(self, initial: impl Into<Literals>) -> Wire<'g> {
        self.then(nodes::Hold {
            initial: initial.into(),
        })
    }
}

macro_rules! operator {
    ($operator:ident, $method:ident, $node:expr) => {
        impl<'g> $operator for Wire<'g> {
            type Output = Wire<'g>;
            fn $method(self, other: Wire<'g>) -> Wire<'g> {
                self.builder.add($node, [self, other])
            }
        }
    };
}

operator!(
    Add,
    add,
    nodes::Sum {
        signs: "++".into(),
        output: None
    }
);
operator!(
    Sub,
    sub,
    nodes::Sum {
        signs: "+-".into(),
        output: None
    }
);
operator!(
    Mul,
    mul,
    nodes::Product {
        operations: "**".into(),
        output: None
    }
);
