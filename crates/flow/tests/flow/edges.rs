//! What few graphs and few inputs have: long delays side by side, rates far apart, odd bytes, ends
//! in the middle.

use std::io::{Cursor, Read};
use std::sync::mpsc::{Receiver, channel};

use karoo_flow::nodes::{
    Bitwise, BitwiseOp, Convert, Counter, Criterion, Delay, Demodulate, Fir, Logic, LogicOp,
    Lookup, Lut, Machine, Modulate, Nco, Switch, constellation,
};
use karoo_flow::run::Handle;
use karoo_flow::{
    Builder, Executor, Graph, Interpreter, Literals, Ratio, Registry, Rounding, Scalar, Settings,
    Type, Value, Wire,
};

/// `count` numbers that tell their places.
pub fn ramp(count: usize) -> Vec<Value> {
    (1..=count).map(|n| Value::from(n as f32)).collect()
}

#[test]
fn long_delays_beside_a_queue_keep_their_samples() {
    // Together beyond what one parameter may have, each by itself below.
    let long = 1 << 20;
    let short = 5000;
    let g = Builder::new("delays");
    let x = g.input("x", Type::F32);
    let (late, early) = g.scope("first", || {
        g.partition(0);
        let late = x.gain(1).delay(long, 7).delay(short, 0);
        (late, x.gain(2))
    });
    let sum = g.scope("second", || {
        g.partition(1);
        late.gain(1) + early
    });
    g.output("y", sum);
    let graph = g.build().unwrap();
    let executor = Executor::new(&graph, Settings::default()).unwrap();
    // Zeros come first, then sevens: what the delays hold beside an undelayed signal.
    let count = short + 100;
    let out = executor.run_values(&[ramp(count)]).unwrap();
    let wanted = |n: usize| if n < short { 0.0 } else { 7.0 } + 2.0 * (n + 1) as f32;
    for (n, value) in out[0].iter().enumerate() {
        assert_eq!(*value, Value::from(wanted(n)), "sample {n}");
    }
    assert_eq!(out[0].len(), count);
}

#[test]
fn a_constant_may_enable_nodes_of_several_rates() {
    let g = Builder::new("rates");
    let x = g.input("x", Type::F32);
    let slow = x.down(2);
    let on = g.constant(Type::BOOL, true);
    let (fast, slow) = g.enabled("on", on, || (x.gain(2).hold(0), slow.gain(3).hold(0)));
    g.output("fast", fast);
    g.output("slow", slow);
    let graph = g.build().unwrap();
    let inputs = [ramp(3000)];
    let wanted = Interpreter::new(&graph).unwrap().run(&inputs).unwrap();
    let executor = Executor::new(&graph, Settings::default()).unwrap();
    assert_eq!(executor.run_values(&inputs).unwrap(), wanted);
}

/// Why a graph of a file does not run.
fn refused(toml: &str) -> String {
    let graph = match Graph::from_toml(toml, "file", &Registry::standard()) {
        Ok(graph) => graph,
        Err(problems) => return problems.to_string(),
    };
    let problems = Executor::new(&graph, Settings::default()).map(|_| ());
    problems.unwrap_err().to_string()
}

#[test]
fn rates_and_delays_that_no_machine_has_are_refused() {
    let through = |node: &str, of: &str| {
        format!(
            "name = \"g\"\n\
             [[node]]\npath = \"x\"\nkind = \"input\"\nof = \"{of}\"\n\
             [[node]]\npath = \"d\"\n{node}\nfrom = [\"x\"]\n\
             [[node]]\npath = \"y\"\nkind = \"output\"\nfrom = [\"d\"]\n"
        )
    };
    let rates = "name = \"g\"\n\
                 [[node]]\npath = \"a\"\nkind = \"input\"\nof = \"f32\"\nrate = \"4294967296\"\n\
                 [[node]]\npath = \"b\"\nkind = \"input\"\nof = \"f32\"\nrate = \"1/4294967296\"\n\
                 [[node]]\npath = \"c\"\nkind = \"output\"\nfrom = [\"a\"]\n\
                 [[node]]\npath = \"d\"\nkind = \"output\"\nfrom = [\"b\"]\n";
    let text = refused(rates);
    assert!(text.contains("use smaller rate changes"), "{text}");
    let long = through("kind = \"delay\"\nlength = 16777216", "f64[1048576]");
    let text = refused(&long);
    assert!(text.contains("bytes of state and queues"), "{text}");
    let repeated = through("kind = \"repeat\"\nby = 1048576", "complex f64[1048576]");
    let text = refused(&repeated);
    assert!(text.contains("bytes of state and queues"), "{text}");
    // Numbers for one sample of many: not one of the others is made to see whether they fit.
    let numbers = vec!["1"; 1000].join(", ");
    let initial = format!("kind = \"delay\"\nlength = 16777216\ninitial = [{numbers}]");
    let text = refused(&through(&initial, "f32[1000]"));
    assert!(text.contains("bytes of state and queues"), "{text}");
}

#[test]
fn any_byte_but_0_is_true() {
    let bytes: Vec<u8> = vec![0, 1, 2, 3, 254, 255, 128];
    let g = Builder::new("bytes");
    let x = g.input("x", Type::BOOL);
    let not = LogicOp::Nor;
    g.output(
        "not",
        x.then(Logic {
            operation: not,
            inputs: 1,
        }),
    );
    let number = Convert {
        to: Scalar::I32,
        rounding: Rounding::Zero,
    };
    g.output("number", x.then(number));
    g.output("same", x);
    let executor = Executor::new(&g.build().unwrap(), Settings::default()).unwrap();
    let (mut not, mut number, mut same) = (Vec::new(), Vec::new(), Vec::new());
    let run = executor.prepare(
        vec![Box::new(Cursor::new(bytes))],
        vec![
            Box::new(&mut not),
            Box::new(&mut number),
            Box::new(&mut same),
        ],
    );
    run.unwrap().run().unwrap();
    assert_eq!(not, [1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(same, [0, 1, 1, 1, 1, 1, 1]);
    let number = Value::read_all(Type::I32, &number).0;
    assert_eq!(number, [0, 1, 1, 1, 1, 1, 1].map(Value::from));
}

fn chain() -> Graph {
    let g = Builder::new("chain");
    let x = g.input("x", Type::F32);
    let first = g.scope("first", || {
        g.partition(0);
        x.gain(2)
    });
    let second = g.scope("second", || {
        g.partition(1);
        first.gain(0.5)
    });
    g.output("y", second);
    g.build().unwrap()
}

/// Of 100 003 bytes a chain lets 100 000 out, whatever its blocks, and fails with these words.
fn let_whole_samples_out(reader: fn(Cursor<Vec<u8>>) -> Box<dyn Read + Send>, words: &str) {
    let bytes: Vec<u8> = (0..100_003u32).map(|n| (n % 60) as u8).collect();
    for block in [16, 1024, 65_536] {
        let settings = Settings {
            block,
            ..Settings::default()
        };
        let executor = Executor::new(&chain(), settings).unwrap();
        let mut out = Vec::new();
        let reader = reader(Cursor::new(bytes.clone()));
        let run = executor.prepare(vec![reader], vec![Box::new(&mut out)]);
        let failure = run.unwrap().run().unwrap_err();
        assert!(failure.text.contains(words), "{failure}");
        assert!(out == bytes[..100_000], "{block}: {} bytes", out.len());
    }
}

#[test]
fn whole_samples_before_a_torn_one_come_out() {
    let_whole_samples_out(|bytes| Box::new(bytes), "3 bytes into a sample");
}

/// Gives what it has, and then fails.
struct Fails(Cursor<Vec<u8>>);

impl Read for Fails {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        match self.0.read(bytes)? {
            0 => Err(std::io::ErrorKind::ConnectionReset.into()),
            some => Ok(some),
        }
    }
}

#[test]
fn whole_samples_before_an_input_fails_come_out() {
    let_whole_samples_out(|bytes| Box::new(Fails(bytes)), "cannot be read");
}

/// Gives a sample at a time, and asks for an end.
struct Asks {
    handle: Receiver<Handle>,
    /// Samples before it asks, and the tick that it asks for.
    at: usize,
    tick: u64,
    given: usize,
    most: usize,
}

impl Read for Asks {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        self.given += 1;
        if self.given == self.at {
            self.handle.recv().unwrap().stop_at(self.tick);
        }
        assert!(self.given <= self.most, "it is read behind the end");
        bytes[..4].fill(0);
        Ok(4)
    }
}

/// Runs in blocks of 1024, and asks for the end at a tick in front of sample `at`.
fn ends_at(at: usize, tick: u64, wanted: usize) {
    let executor = Executor::new(&chain(), Settings::default()).unwrap();
    let (told, handle) = channel();
    let asks = Asks {
        handle,
        at,
        tick,
        given: 0,
        most: wanted,
    };
    let mut out = Vec::new();
    let run = executor
        .prepare(vec![Box::new(asks)], vec![Box::new(&mut out)])
        .unwrap();
    told.send(run.handle()).unwrap();
    assert_eq!(run.run().unwrap().ticks, wanted as u64);
    assert_eq!(out.len(), 4 * wanted);
}

#[test]
fn a_stop_within_the_block_that_is_being_read_is_in_time() {
    ends_at(50, 500, 500);
}

#[test]
fn what_was_read_comes_out_where_a_stop_comes_too_late() {
    ends_at(1024 + 700, 100, 2048);
}

#[test]
fn nodes_do_not_run_behind_the_end() {
    // A step that the end falls into is filled up; no other step has zeros alone.
    let g = Builder::new("counted");
    let x = g.input("x", Type::F32);
    let counts = Machine::new(
        "counts",
        [Type::F32],
        [Type::F32],
        || 0,
        |count, i, o| {
            *count += 1;
            assert!(*count <= 1024, "{count} samples of 1000");
            o[0] = i[0].clone();
        },
    );
    g.output("y", g.add(counts, [x]));
    let executor = Executor::new(&g.build().unwrap(), Settings::default()).unwrap();
    for _ in 0..20 {
        let out = executor.run_values(&[ramp(1000)]).unwrap();
        assert_eq!(out[0], ramp(1000));
    }
}

/// Why a graph of one node behind an input cannot be made.
fn unmade(kind: Type, node: impl for<'g> FnOnce(&'g Builder, Wire<'g>) -> Wire<'g>) -> String {
    let g = Builder::new("numbers");
    g.output("y", node(&g, g.input("x", kind)));
    g.build().unwrap_err().to_string()
}

#[test]
fn numbers_that_a_type_has_not_are_refused() {
    let small = Type::of(Scalar::I8);
    for gain in [Literals::from(1.5), 300.into(), (-129).into()] {
        let text = unmade(small, |_, x| x.gain(gain));
        assert!(text.contains("which no i8 is"), "{text}");
    }
    let text = unmade(small, |_, x| x.fir([0.5, 1.0]));
    assert!(text.contains("0.5 is given"), "{text}");
    let late = Delay {
        length: 3,
        initial: 128.into(),
        of: None,
    };
    let text = unmade(small, |_, x| x.then(late));
    assert!(text.contains("128 is given"), "{text}");
    let fir = |initial: Literals| Fir {
        taps: 1.into(),
        initial,
        output: None,
    };
    let text = unmade(small, |_, x| x.then(fir(300.into())));
    assert!(text.contains("300 is given"), "{text}");
    let table: Literals = [300, 2].into();
    for between in [Lookup::Below, Lookup::Nearest] {
        let lut = Lut {
            first: 0.0,
            step: 1.0,
            table: table.clone(),
            between,
            output: Scalar::I8,
        };
        let text = unmade(small, |_, x| x.then(lut));
        assert!(text.contains("300 is given"), "{text}");
    }
    let modulate = Modulate {
        points: [0.7, -0.7].into(),
        output: Scalar::I16,
    };
    let text = unmade(small, |_, x| x.then(modulate));
    assert!(text.contains("0.7 is given"), "{text}");
    let demodulate = Demodulate {
        points: constellation(8).unwrap(),
        output: Scalar::I8,
    };
    let text = unmade(Type::F32, |_, x| x.then(demodulate));
    assert!(text.contains("symbols up to 255"), "{text}");
    let bytes = Type::of(Scalar::U8);
    let text = unmade(bytes, |g, x| x + g.constant(bytes, -1));
    assert!(text.contains("-1 is given"), "{text}");
    let counter = Counter {
        period: 300,
        initial: 0,
        output: Scalar::I8,
    };
    let text = unmade(small, |g, x| x + g.add(counter, []));
    assert!(text.contains("counts to 299"), "{text}");
    let mask = |mask| Bitwise {
        operation: BitwiseOp::And,
        inputs: 1,
        mask: Some(mask),
    };
    for wrong in [256, -129] {
        let text = unmade(bytes, |_, x| x.then(mask(wrong)));
        let wanted = format!("mask {wrong} for the 8 bits of u8: it must be -128 to 255");
        assert!(text.contains(&wanted), "{text}");
    }
    // All bits, by each of their names.
    for (kind, all) in [(small, 255), (bytes, -1), (Type::of(Scalar::U64), -1)] {
        let g = Builder::new("bits");
        g.output("y", g.input("x", kind).then(mask(all)));
        g.build().unwrap();
    }
    let nco = Nco {
        bits: 8,
        address_bits: 8,
        initial: 256,
        output: Scalar::F32,
    };
    let text = unmade(bytes, |_, x| x.then(nco));
    assert!(text.contains("it must be at most 255"), "{text}");
    let g = Builder::new("choice");
    let switch = Switch {
        criterion: Criterion::NotZero,
        threshold: 0.5,
        output: None,
    };
    let x = g.input("x", Type::F32);
    g.output("y", g.add(switch, [x, x, x]));
    let text = g.build().unwrap_err().to_string();
    assert!(text.contains("threshold 0.5 with"), "{text}");
}

/// They would become infinite.
#[test]
fn numbers_beyond_the_range_of_floats_are_refused() {
    for gain in [1e300, -1e39, 3.402_823_6e38] {
        let text = unmade(Type::F32, |_, x| x.gain(gain));
        assert!(text.contains("which no f32 is"), "{text}");
    }
    let text = unmade(Type::F32, |g, x| x + g.constant(Type::F32, 1e300));
    assert!(text.contains("which no f32 is"), "{text}");
    let lut = |between| Lut {
        first: 0.0,
        step: 1.0,
        table: [0.0, 1e300].into(),
        between,
        output: Scalar::F32,
    };
    for between in [Lookup::Below, Lookup::Linear] {
        let text = unmade(Type::F32, |_, x| x.then(lut(between)));
        assert!(text.contains("which no f32 is"), "{text}");
    }
    let g = Builder::new("floats");
    let x = g
        .input("x", Type::F32)
        .gain(f64::from(f32::MAX))
        .named("gain");
    let x = x + g.constant(Type::F32, f64::INFINITY) + g.constant(Type::F32, 1e-300);
    g.output("y", (x * g.constant(Type::F32, f64::NAN)).named("product"));
    g.output(
        "wide",
        g.input("w", Type::F64).gain(1e300).named("wide gain"),
    );
    let mut interpreter = Interpreter::new(&g.build().unwrap()).unwrap();
    let refused = interpreter.change_at("gain", 1e39.into(), 7).unwrap_err();
    assert!(refused.to_string().contains("which no f32 is"), "{refused}");
}

#[test]
fn a_change_to_a_number_that_the_type_has_not_is_refused() {
    let g = Builder::new("changed");
    g.output(
        "y",
        g.input("x", Type::of(Scalar::I8)).gain(2).named("twice"),
    );
    let settings = Settings {
        changeable: vec!["twice".into()],
        ..Settings::default()
    };
    let executor = Executor::new(&g.build().unwrap(), settings).unwrap();
    let run = executor.prepare(
        vec![Box::new(std::io::empty())],
        vec![Box::new(std::io::sink())],
    );
    let handle = run.unwrap().handle();
    let refused = handle.change("twice", 0.5, None).unwrap_err().to_string();
    assert!(refused.contains("which no i8 is"), "{refused}");
    handle.change("twice", 3, None).unwrap();
}

#[test]
fn two_rates_far_apart_but_not_too_far_run() {
    let g = Builder::new("slow");
    let rate = Ratio::new(1, 1 << 12).unwrap();
    g.output(
        "y",
        g.input_at("x", Type::F32, rate)
            .repeat(1 << 12)
            .down(1 << 11),
    );
    let executor = Executor::new(&g.build().unwrap(), Settings::default()).unwrap();
    let out = executor.run_values(&[ramp(3)]).unwrap();
    assert_eq!(out[0], [1.0f32, 1.0, 2.0, 2.0, 3.0, 3.0].map(Value::from));
}

#[test]
fn a_mark_for_steps_shortens_them_and_counts_samples() {
    let step = |mark: &str, down: u32, settings: Settings| {
        let text = format!(
            "name = \"marked\"\n\
             [[scope]]\npath = \"part\"\npartition = 0\n{mark}\n\
             [[node]]\npath = \"x\"\nkind = \"input\"\nof = \"f32\"\n\
             [[node]]\npath = \"down\"\nkind = \"down\"\nby = {down}\nfrom = [\"x\"]\n\
             [[node]]\npath = \"part/g\"\nkind = \"gain\"\ngain = 2\nfrom = [\"down\"]\n\
             [[node]]\npath = \"y\"\nkind = \"output\"\nfrom = [\"part/g\"]\n"
        );
        let graph = Graph::from_toml(&text, "marked", &Registry::standard()).unwrap();
        let shape = Executor::new(&graph, settings).unwrap().shape();
        let mut parts = shape.partitions.iter();
        parts.find(|part| part.name == "partition 0").unwrap().step
    };
    let short = || Settings {
        step: 128,
        ..Settings::default()
    };
    assert_eq!(step("", 1, Settings::default()), 512);
    assert_eq!(step("sub_block = 64", 1, Settings::default()), 64);
    assert_eq!(step("sub_block = 4096", 1, short()), 128);
    // Four ticks for each of its samples.
    assert_eq!(step("sub_block = 32", 4, Settings::default()), 128);
}
