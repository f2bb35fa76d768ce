//! Random graphs of nodes of all kinds, on numbers of all types: the executor has the interpreter's
//! samples.

use std::io::{Cursor, Read, Write};

use karoo_flow::nodes::{Convert, Criterion, Lookup, Lut, RealImag, Select, Switch};
use karoo_flow::{
    Builder, Executor, Graph, Interpreter, Literals, Node, NodeId, Number, Rounding, Scalar, Type,
    Value, Wire,
};
use proptest::prelude::*;

use crate::asked::Asked;
use crate::partitionings::{bytes, cases, settings};

/// A wire, its type, and whether it is at half the rate.
#[derive(Clone, Copy)]
pub struct Typed<'g> {
    pub wire: Wire<'g>,
    pub kind: Type,
    pub slow: bool,
}

/// The type that arithmetic has for operands of a type.
pub fn number(scalar: Scalar) -> Scalar {
    match scalar {
        Scalar::Bool => Scalar::F32,
        other => other,
    }
}

impl<'g> Typed<'g> {
    pub fn with(self, wire: Wire<'g>, kind: Type) -> Typed<'g> {
        Typed { wire, kind, ..self }
    }

    pub fn then(self, node: impl Node + 'static, kind: Type) -> Typed<'g> {
        self.with(self.wire.then(node), kind)
    }

    pub fn real(self) -> Typed<'g> {
        match self.kind.complex {
            true => self.then(RealImag {}, self.kind.real()),
            false => self,
        }
    }

    pub fn to(self, to: Scalar) -> Typed<'g> {
        self.rounded(to, Rounding::Zero)
    }

    pub fn rounded(self, to: Scalar, rounding: Rounding) -> Typed<'g> {
        let from = match to {
            Scalar::Bool => self.real(),
            _ => self,
        };
        let kind = Type {
            scalar: to,
            ..from.kind
        };
        match kind == from.kind {
            true => from,
            false => from.then(Convert { to, rounding }, kind),
        }
    }

    pub fn single(self) -> Typed<'g> {
        match self.kind.len {
            1 => self,
            len => {
                let indices = vec![len / 2];
                self.then(Select { indices }, self.kind.vector(1))
            }
        }
    }

    /// With as many elements as another, or one.
    pub fn beside(self, len: usize) -> Typed<'g> {
        match self.kind.len == len || len == 1 {
            true => self,
            false => self.single(),
        }
    }

    pub fn whole(self) -> Typed<'g> {
        let real = self.real();
        match real.kind.scalar.is_integer() {
            true => real,
            false => real.to(Scalar::I32),
        }
    }

    pub fn float(self) -> Typed<'g> {
        let real = self.real();
        match real.kind.scalar.is_float() {
            true => real,
            false => real.to(Scalar::F64),
        }
    }

    /// The type of its numbers, in which there is arithmetic.
    pub fn number(self) -> Scalar {
        number(self.kind.scalar)
    }
}

/// What a turn makes, of which wires, and with which numbers.
type Turn = (u8, (u8, u8, u8), u32);

/// One of some wires: mostly of the last ones, so that much is read once.
fn pick<'g>(wires: &[Typed<'g>], which: u8) -> Typed<'g> {
    let count = wires.len();
    let last = if which.is_multiple_of(2) { 3 } else { count };
    let back = usize::from(which / 2) % last;
    wires[count - 1 - back.min(count - 1)]
}

const INPUTS: [Type; 6] = [
    Type::F32,
    Type::F64.complex(),
    Type::I16,
    Type::U8.vector(3),
    Type::BOOL,
    Type::F32.vector(2),
];

fn random_graph(turns: &[Turn]) -> Graph {
    let g = Builder::new("kinds");
    let fast = |(index, &kind): (usize, &Type)| Typed {
        wire: g.input(&format!("in{index}"), kind),
        kind,
        slow: false,
    };
    let mut wires: Vec<Typed> = INPUTS.iter().enumerate().map(fast).collect();
    for (number, &(what, (a, b, c), bits)) in turns.iter().enumerate() {
        let x = pick(&wires, a);
        let alike: Vec<Typed> = wires
            .iter()
            .filter(|wire| wire.slow == x.slow)
            .copied()
            .collect();
        let (y, z) = (pick(&alike, b), pick(&alike, c));
        let (g, number) = (&g, number as u32);
        let asked = Asked {
            g,
            x,
            y,
            z,
            bits,
            number,
        };
        wires.extend(asked.make(what));
    }
    for (index, made) in wires.into_iter().rev().take(5).enumerate() {
        g.output(&format!("out{index}"), made.wire);
    }
    g.build().expect("all turns make graphs that check")
}

/// Numbers of all sizes, some of which are none.
fn stream(kind: Type, count: usize, seed: u64) -> Vec<Value> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut part = || {
        let word = next();
        if !kind.scalar.is_float() {
            let small = (word >> 8) % 7;
            return Number::Int(i128::from(if word % 3 == 0 { word >> 8 } else { small }));
        }
        Number::F64(match word % 31 {
            0 => f64::NAN,
            1 => f64::INFINITY,
            2 => f64::NEG_INFINITY,
            3 => -0.0,
            4 => 1e30,
            _ => (word >> 12) as f64 / (1u64 << 50) as f64 - 2.0,
        })
    };
    (0..count)
        .map(|_| Value::build(kind, |_| (part(), part())))
        .collect()
}

/// Whether two samples are the same bits, but for what not-a-number is made of.
fn same(a: &Value, b: &Value) -> bool {
    let bits = |number: &Number| match *number {
        Number::Int(value) => value,
        Number::F32(value) if value.is_nan() => -1,
        Number::F64(value) if value.is_nan() => -1,
        Number::F32(value) => value.to_bits().into(),
        Number::F64(value) => value.to_bits().into(),
    };
    let parts =
        |value: &Value| -> Vec<i128> { value.re().iter().chain(value.im()).map(bits).collect() };
    a.kind() == b.kind() && parts(a) == parts(b)
}

/// Changes of some nodes with numbers, from some ticks on, but for constants that are outputs.
fn changes(graph: &Graph, asked: &[(u8, u16)]) -> Vec<(String, Literals, u64)> {
    let out = |id| {
        graph
            .outputs()
            .any(|out| graph.node(out).from[0].node == id)
    };
    let has = |id: &NodeId| {
        let node = &graph.node(*id).node;
        node.numbers().is_some() && !(node.constant() && out(*id))
    };
    let nodes: Vec<NodeId> = graph.ids().filter(has).collect();
    let change = |&(which, at): &(u8, u16)| {
        let id = *nodes.get(usize::from(which) % nodes.len().max(1))?;
        let placed = graph.node(id);
        let own = placed.node.numbers()?;
        let float = placed.outputs[0].scalar.is_float();
        let part = |number: Number| match float {
            true => Number::F64(number.to_f64() * -0.5 + f64::from(at % 8)),
            false => Number::Int(i128::from(at % 2)),
        };
        let im = |im: Number| match own.is_complex() {
            true => part(im),
            false => Number::Int(0),
        };
        let parts = own
            .parts()
            .iter()
            .map(|part_of| (part(part_of.0), im(part_of.1)));
        Some((
            graph.path(id),
            Literals::new(parts.collect())?,
            u64::from(at % 300),
        ))
    };
    asked.iter().filter_map(change).collect()
}

/// What a graph puts out where numbers change.
fn run(
    executor: &Executor,
    graph: &Graph,
    inputs: &[Vec<Value>],
    changes: &[(String, Literals, u64)],
) -> Vec<Vec<Value>> {
    let readers = bytes(inputs)
        .into_iter()
        .map(|all| Box::new(Cursor::new(all)) as Box<dyn Read + Send>);
    let mut out = vec![Vec::new(); graph.outputs().count()];
    let writers = out.iter_mut().map(|out| Box::new(out) as Box<dyn Write>);
    let run = executor
        .prepare(readers.collect(), writers.collect())
        .unwrap();
    let handle = run.handle();
    for (path, numbers, at) in changes {
        handle.change(path, numbers.clone(), *at).unwrap();
    }
    run.run().unwrap();
    let kinds = graph.outputs().map(|id| graph.node(id).inputs[0]);
    kinds
        .zip(&out)
        .map(|(kind, bytes)| Value::read_all(kind, bytes).0)
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(100)))]

    #[test]
    fn nodes_of_all_kinds_and_types_have_the_interpreters_samples(
        turns in proptest::collection::vec(any::<Turn>(), 1..20),
        marks in proptest::collection::vec(0..3u32, 1..5),
        mut settings in settings(),
        length in 1..300usize,
        seed: u64,
        asked in proptest::collection::vec(any::<(u8, u16)>(), 0..4),
    ) {
        let graph = random_graph(&turns);
        let changes = changes(&graph, &asked);
        settings.changeable = changes.iter().map(|change| change.0.clone()).collect();
        let inputs: Vec<Vec<Value>> = INPUTS
            .iter()
            .zip(0..)
            .map(|(&kind, number)| stream(kind, length, seed.wrapping_add(number)))
            .collect();
        let mut interpreter = Interpreter::new(&graph).unwrap();
        for (path, numbers, at) in &changes {
            interpreter.change_at(path, numbers.clone(), *at).unwrap();
        }
        let wanted = interpreter.run(&inputs).unwrap();
        let mark = |node: usize| marks[node / 3 % marks.len()];
        settings.partitions = Some((0..graph.nodes().len()).map(mark).collect());
        let executor = match Executor::new(&graph, settings.clone()) {
            Ok(executor) => executor,
            Err(_) => {
                settings.partitions = Some(vec![0; graph.nodes().len()]);
                Executor::new(&graph, settings).unwrap()
            }
        };
        let found = run(&executor, &graph, &inputs, &changes);
        for (index, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
            prop_assert_eq!(found.len(), wanted.len());
            let differs = found.iter().zip(wanted).position(|(a, b)| !same(a, b));
            if let Some(at) = differs {
                let text = graph.to_toml().unwrap();
                prop_assert!(false, "output {} at {}: {:?} for {:?}, {:?}\n{}", index, at, found[at], wanted[at], changes, text);
            }
        }
    }
}

/// What a table is asked for may be a constant, from the start or once a choice is settled.
#[test]
fn tables_of_constants_have_the_interpreters_samples() {
    for kind in [Type::F32, Type::F64] {
        let g = Builder::new("constant");
        let (x, on) = (g.input("x", kind), g.input("on", Type::BOOL));
        let switch = || Switch {
            criterion: Criterion::NotZero,
            threshold: 0.0,
            output: None,
        };
        let entries: Vec<f64> = (0..40).map(|at| f64::from(at * at)).collect();
        let lut = || Lut {
            first: -1.0,
            step: 0.125,
            table: entries.as_slice().into(),
            between: Lookup::Below,
            output: kind.scalar,
        };
        let half = g.constant(kind, 0.5);
        let plain = half.then(lut());
        g.output("plain", g.add(switch(), [x, on, plain]));
        let guarded = g.add(switch(), [x, on, half]).then(lut());
        g.output("guarded", g.add(switch(), [x, on, guarded]));
        let graph = g.build().unwrap();
        let inputs = [kind, Type::BOOL].map(|kind| stream(kind, 700, 5));
        let wanted = Interpreter::new(&graph).unwrap().run(&inputs).unwrap();
        for level in karoo_flow::kernels::Level::available() {
            let settings = karoo_flow::Settings {
                level: Some(level),
                ..karoo_flow::Settings::default()
            };
            let executor = Executor::new(&graph, settings).unwrap();
            let found = executor.run_values(&inputs).unwrap();
            for (found, wanted) in found.iter().flatten().zip(wanted.iter().flatten()) {
                assert!(same(found, wanted), "{level}: {found:?} for {wanted:?}");
            }
        }
    }
}
