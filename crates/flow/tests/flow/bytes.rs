//! Nodes that work on bytes: the same as sample by sample, in any partition and any number of
//! copies.

use karoo_flow::place::{Cores, Costs, Wishes, plan};
use karoo_flow::{
    Builder, ByBytes, ByteStep, Executor, Graph, Interpreter, Mismatch, Node, Settings, Step, Type,
    Value,
};
use proptest::prelude::*;

use crate::partitionings::bytes;

/// Sums of vectors and a number, and how many vectors there were if `counts`.
#[derive(Clone, Debug)]
struct Sums {
    counts: bool,
}

struct Summing {
    counts: bool,
    number: u32,
}

const WIDE: Type = Type::U16.vector(7);

impl ByteStep for Summing {
    fn compute(&mut self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        let number = u32::from_le_bytes(inputs[1].try_into().unwrap());
        let shorts = inputs[0].as_chunks::<2>().0;
        self.number += u32::from(self.counts);
        let sum = shorts.iter().map(|two| u32::from(u16::from_le_bytes(*two)));
        let sum = sum.fold(number.wrapping_add(self.number), u32::wrapping_add);
        outputs[0].copy_from_slice(&sum.to_le_bytes());
        for (to, from) in outputs[1].iter_mut().zip(inputs[0].iter().rev()) {
            *to = *from;
        }
    }
}

impl Node for Sums {
    fn kind(&self) -> &str {
        "sums"
    }
    fn inputs(&self) -> usize {
        2
    }
    fn outputs(&self) -> usize {
        2
    }
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
        assert_eq!(inputs, [WIDE, Type::U32]);
        Ok(vec![Type::U32, WIDE])
    }
    fn stateless(&self) -> bool {
        !self.counts
    }
    fn start(&self, _: &[Type], _: &[Type]) -> Box<dyn Step> {
        Box::new(ByBytes(self.running()))
    }
    fn start_bytes(&self, _: &[Type], _: &[Type]) -> Option<Box<dyn ByteStep>> {
        Some(Box::new(self.running()))
    }
    fn parameters(&self) -> Option<toml::Table> {
        None
    }
}

impl Sums {
    fn running(&self) -> Summing {
        Summing {
            counts: self.counts,
            number: 0,
        }
    }
}

/// A counting one, one with a constant that may be copied, one that runs every other time.
fn graph() -> Graph {
    let g = Builder::new("bytes");
    let (x, n) = (g.input("x", WIDE), g.input("n", Type::U32));
    let first = g.scope("first", || {
        g.partition(0);
        g.add(Sums { counts: true }, [x, n]).named("counting")
    });
    let second = g.scope("second", || {
        g.partition(1);
        let three = g.constant(Type::U32, 3);
        g.add(Sums { counts: false }, [first.port(1), three])
            .named("plain")
    });
    let third = g.scope("third", || {
        g.partition(2);
        let odd = g.add(
            karoo_flow::nodes::Machine::new(
                "odd",
                [Type::U32],
                [Type::BOOL],
                || (),
                |(), inputs, outputs| {
                    let number = inputs[0].to_f64s()[0];
                    outputs[0] = Value::from(number % 2.0 == 1.0);
                },
            ),
            [first],
        );
        g.enabled("sometimes", odd, || {
            g.add(Sums { counts: true }, [second.port(1), second])
                .hold(5)
        })
    });
    g.output("sums", first);
    g.output("plains", second);
    g.output("odds", third);
    g.build().unwrap()
}

fn inputs(count: usize) -> [Vec<Value>; 2] {
    let wide = |at: usize| {
        let words: Vec<u8> = (0..14).map(|i| (at * 31 + i * 7 + at / 9) as u8).collect();
        Value::read(WIDE, &words).unwrap()
    };
    [
        (0..count).map(wide).collect(),
        (0..count as u32).map(|at| Value::from(at * at)).collect(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::partitionings::cases(30)))]
    #[test]
    fn nodes_of_bytes_give_the_interpreters_bytes(
        copies in 0..4usize, block in 1..40u64, step in 1..30u64, length in 0..300usize,
        together: bool,
    ) {
        let graph = graph();
        let inputs = inputs(length);
        let wanted = Interpreter::new(&graph).unwrap().run(&inputs).unwrap();
        let settings = Settings {
            block,
            step,
            partitions: together.then(|| vec![0; graph.nodes().len()]),
            copies: if together { [].into() } else { [(1, vec![None; copies])].into() },
            ..Settings::default()
        };
        let executor = Executor::new(&graph, settings).unwrap();
        prop_assert_eq!(bytes(&executor.run_values(&inputs).unwrap()), bytes(&wanted));
    }
}

#[test]
fn only_those_without_state_are_copied() {
    let graph = graph();
    let copied = |id: u32| Settings {
        copies: [(id, vec![None])].into(),
        ..Settings::default()
    };
    assert!(Executor::new(&graph, copied(1)).is_ok());
    let refused = Executor::new(&graph, copied(0)).unwrap_err().to_string();
    assert!(refused.contains("first/counting has a state"), "{refused}");
    let mut costs = Costs::guessed(&graph);
    if let Some(cost) = costs.nodes.get_mut("second/plain") {
        cost.per_tick = 1e5;
    }
    let cores = Cores::alike((0..6).collect(), 50.0, 10.0);
    let plan = plan(&graph, &costs, &cores, &Wishes::default()).unwrap();
    let copies = plan
        .partitions
        .iter()
        .find(|partition| !partition.copies.is_empty());
    assert_eq!(copies.unwrap().nodes, ["second/plain"]);
}
