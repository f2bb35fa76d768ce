//! Blocks of Laminar's exporter, each by itself: what comes out, and what is named as not known.

use karoo_flow::{Cause, Graph, Interpreter, Loaded, Number, Scalar, Type, Value};

fn data(all: &[(&str, &str)]) -> String {
    let one = |(key, text): &(&str, &str)| format!("<data key=\"{key}\">{text}</data>");
    all.iter().map(one).collect()
}

fn arc((from, port): (&str, usize), (to, at): (&str, usize), kind: Type) -> String {
    let name = match kind.scalar {
        Scalar::F32 => "single".into(),
        Scalar::F64 => "double".into(),
        Scalar::Bool => "boolean".into(),
        scalar => {
            let sign = if scalar.is_signed() { "" } else { "u" };
            format!("{sign}int{}", 8 * scalar.bytes())
        }
    };
    let (port, at) = (port.to_string(), at.to_string());
    let (complex, width) = (u8::from(kind.complex).to_string(), kind.len.to_string());
    let said = [
        ("arc_src_port", &*port),
        ("arc_dst_port", &*at),
        ("arc_datatype", &*name),
        ("arc_complex", &*complex),
        ("arc_width", &*width),
    ];
    format!(
        "<edge source=\"{from}\" target=\"{to}\">{}</edge>\n",
        data(&said)
    )
}

/// A file with one block between inputs of these types and an output.
fn file(function: &str, own: &[(&str, &str)], inputs: &[Type], output: Type) -> String {
    let named = [
        ("instance_name", "blk"),
        ("block_node_type", "Standard"),
        ("block_function", function),
    ];
    let own = data(&[&named[..], own].concat());
    let master = |id: &str, name: &str| {
        let said = data(&[("instance_name", name), ("block_node_type", "Master")]);
        format!("<node id=\"{id}\">{said}</node>\n")
    };
    let mut text = master("in", "Input Master") + &master("out", "Output Master");
    text += &format!("<node id=\"b\">{own}</node>\n");
    for (at, kind) in inputs.iter().enumerate() {
        text += &arc(("in", at + 1), ("b", at + 1), *kind);
    }
    text += &arc(("b", 1), ("out", 1), output);
    format!("<graphml><graph>\n{text}</graph></graphml>\n")
}

/// The graph of such a file.
fn block(function: &str, own: &[(&str, &str)], inputs: &[Type], output: Type) -> Loaded {
    let text = file(function, own, inputs, output);
    Graph::from_graphml(&text, "file.graphml").unwrap_or_else(|problems| panic!("{problems}"))
}

/// What comes out for these samples of the inputs.
fn run(loaded: &Loaded, inputs: &[Vec<Value>]) -> Vec<Vec<f64>> {
    let mut interpreter = Interpreter::new(&loaded.graph).unwrap();
    let out = interpreter.run(inputs).unwrap();
    out[0].iter().map(Value::to_f64s).collect()
}

/// What the parts of points are, rounded to thousandths.
fn points(loaded: &Loaded, symbols: u8) -> Vec<(f64, f64)> {
    let inputs = [(0..symbols).map(Value::from).collect()];
    let mut interpreter = Interpreter::new(&loaded.graph).unwrap();
    let round = |part: &Number| (part.to_f64() * 1000.0).round() / 1000.0;
    let out = interpreter.run(&inputs).unwrap();
    let point = |value: &Value| (round(&value.re()[0]), round(&value.im()[0]));
    out[0].iter().map(point).collect()
}

/// Why a block is not known.
fn not_known(function: &str, own: &[(&str, &str)], inputs: &[Type], output: Type) -> String {
    let loaded = block(function, own, inputs, output);
    let problems = Interpreter::new(&loaded.graph)
        .err()
        .expect("it cannot run");
    assert_eq!(problems.count(Cause::Unknown), 1, "{problems}");
    problems.to_string()
}

const POINT: Type = Type::F32.complex();

#[test]
fn an_oscillator_turns_by_its_input() {
    let own = |dither, formula| {
        [
            ("Numeric.TableDepth", "2"),
            ("Numeric.AccumWL", "16"),
            ("Numeric.DitherWL", "4"),
            ("HasDither", dither),
            ("Formula", formula),
        ]
    };
    let exponential = own("off", "Complex exponential");
    let nco = block("NCO", &exponential, &[Type::I16], POINT);
    let steps = vec![Value::from(1i16 << 14); 4];
    let mut interpreter = Interpreter::new(&nco.graph).unwrap();
    let out = interpreter.run(&[steps]).unwrap();
    let turn = |value: &Value| {
        (
            value.re()[0].to_f64().round(),
            value.im()[0].to_f64().round(),
        )
    };
    let turns: Vec<(f64, f64)> = out[0].iter().map(turn).collect();
    assert_eq!(turns, [(1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0)]);
    let told = not_known("NCO", &own("off", "Cosine"), &[Type::I16], Type::F32);
    assert!(told.contains("NCO with Formula Cosine"), "{told}");
    let told = not_known(
        "NCO",
        &own("on", "Complex exponential"),
        &[Type::I16],
        POINT,
    );
    assert!(told.contains("NCO with HasDither on"), "{told}");
}

/// The points are those that the exporter's comments and MATLAB's documents have.
#[test]
fn modulators_have_the_points_of_simulink() {
    let bpsk = block(
        "BPSK_ModulatorBaseband",
        &[("Numeric.Ph", "0")],
        &[Type::U8],
        POINT,
    );
    assert_eq!(points(&bpsk, 2), [(1.0, 0.0), (-1.0, 0.0)]);
    let own = |code| [("Numeric.Ph", "0.785398"), ("Enc", code), ("Dec", code)];
    let qpsk = |code| block("QPSK_ModulatorBaseband", &own(code), &[Type::U8], POINT);
    let part = 0.707;
    let gray = [(part, part), (-part, part), (part, -part), (-part, -part)];
    assert_eq!(points(&qpsk("Gray"), 4), gray);
    let binary = [(part, part), (-part, part), (-part, -part), (part, -part)];
    assert_eq!(points(&qpsk("Binary"), 4), binary);
    let qam = [
        ("Numeric.M", "16"),
        ("Numeric.Ph", "0"),
        ("Enc", "Gray"),
        ("Dec", "Gray"),
        ("PowType", "Min. distance between symbols"),
        ("Numeric.MinDist", "2"),
    ];
    let modulator = block("RectangularQAM_ModulatorBaseband", &qam, &[Type::U8], POINT);
    // qammod(0:15, 16).
    let lines = [-3.0, -1.0, 3.0, 1.0];
    let wanted = (0..16).map(|symbol| (lines[symbol / 4], -lines[symbol % 4]));
    let found = points(&modulator, 16);
    assert_eq!(found, wanted.collect::<Vec<_>>());
    let demodulator = block(
        "RectangularQAM_DemodulatorBaseband",
        &qam,
        &[POINT],
        Type::U8,
    );
    let near = |&(re, im): &(f64, f64)| {
        Value::build(POINT, |_| (Number::F64(re + 0.4), Number::F64(im - 0.4)))
    };
    let symbols: Vec<f64> = run(&demodulator, &[found.iter().map(near).collect()]).concat();
    assert_eq!(symbols, (0..16).map(f64::from).collect::<Vec<_>>());
    let average = [
        &qam[..4],
        &[("PowType", "Average Power"), ("Numeric.AvgPow", "1")],
    ]
    .concat();
    let average = block(
        "RectangularQAM_ModulatorBaseband",
        &average,
        &[Type::U8],
        POINT,
    );
    let power = |(re, im): (f64, f64)| re * re + im * im;
    let mean = points(&average, 16).into_iter().map(power).sum::<f64>() / 16.0;
    assert!((mean - 1.0).abs() < 0.01, "{mean}");
    let turned = [("Numeric.Ph", "1")];
    let told = not_known("BPSK_ModulatorBaseband", &turned, &[Type::U8], POINT);
    assert!(told.contains("BPSK_ModulatorBaseband with Ph 1"), "{told}");
}

#[test]
fn laminars_own_blocks_are_read() {
    let depth = [("Numeric.Depth", "3"), ("Numeric.InitCond", "9")];
    let pair = Type::F64.vector(2);
    let delay = block("VectorTappedDelay", &depth, &[pair], pair.vector(6));
    let value = |a: f64| {
        Value::build(pair, |at| {
            (Number::F64(a + at as f64 / 2.0), Number::Int(0))
        })
    };
    let out = run(&delay, &[vec![value(1.0), value(2.0)]]);
    assert_eq!(out[1], [9.0, 9.0, 1.0, 1.5, 2.0, 2.5]);
    let wide = Type::F64.vector(3);
    let delay = block(
        "TappedDelayWithReset",
        &depth,
        &[Type::F64, Type::BOOL],
        wide,
    );
    let samples = [1.0, 2.0, 3.0].map(Value::from).to_vec();
    let resets = [false, false, true].map(Value::from).to_vec();
    let wanted = [[9.0, 9.0, 1.0], [9.0, 1.0, 2.0], [9.0, 9.0, 3.0]];
    assert_eq!(run(&delay, &[samples.clone(), resets]), wanted);
    // A number resets where it is not 0, as in C.
    for resets in [
        [0.0, -0.0, 0.25].map(Value::from),
        [0, 0, 256].map(Value::from),
    ] {
        let kinds = [Type::F64, resets[0].kind()];
        let delay = block("TappedDelayWithReset", &depth, &kinds, wide);
        assert_eq!(run(&delay, &[samples.clone(), resets.to_vec()]), wanted);
    }
    // Nothing else says where it is not 0.
    for kind in [Type::I16.vector(2), Type::F32.complex()] {
        let text = file("TappedDelayWithReset", &depth, &[Type::F64, kind], wide);
        let problems = Graph::from_graphml(&text, "file.graphml").err().unwrap();
        let wanted = format!("blk: input 2 is {kind}:");
        assert!(problems.to_string().contains(&wanted), "{problems}");
    }
    let four = Type::F64.complex().vector(2);
    let dot = block("DotProductNoConj", &[], &[four, four], Type::F64.complex());
    let vector = Value::build(four, |_| (Number::F64(1.0), Number::F64(1.0)));
    // Two times (1 + i)², not |1 + i|².
    let out = Interpreter::new(&dot.graph)
        .unwrap()
        .run(&[vec![vector.clone()], vec![vector]]);
    let out = out.unwrap();
    let parts = (out[0][0].re()[0].to_f64(), out[0][0].im()[0].to_f64());
    assert_eq!(parts, (0.0, 4.0));
}

#[test]
fn shifts_parts_and_reshapes_are_read() {
    let own = |direction| {
        [
            ("BitShiftNumberSource", "Dialog"),
            ("BitShiftDirection", direction),
            ("Numeric.BitShiftNumber", "1"),
            ("Numeric.BinPtShiftNumber", "0"),
        ]
    };
    let shifted = |direction: &'static str, kind: Type, value: Value| {
        run(
            &block("ArithShift", &own(direction), &[kind], kind),
            &[vec![value]],
        )[0][0]
    };
    assert_eq!(shifted("Left", Type::I16, Value::from(-3i16)), -6.0);
    assert_eq!(shifted("Right", Type::I16, Value::from(-3i16)), -2.0);
    assert_eq!(shifted("Right", Type::U8, Value::from(253u8)), 126.0);
    let told = not_known("ArithShift", &own("Bidirectional"), &[Type::I16], Type::I16);
    assert!(told.contains("BitShiftDirection Bidirectional"), "{told}");
    let real = block(
        "ComplexToRealImag",
        &[("Output", "Real")],
        &[POINT],
        Type::F32,
    );
    let point = Value::build(POINT, |_| (Number::F64(0.5), Number::F64(2.0)));
    assert_eq!(run(&real, &[vec![point]]), [[0.5]]);
    let told = not_known(
        "ComplexToRealImag",
        &[("Output", "Imag")],
        &[POINT],
        Type::F32,
    );
    assert!(
        told.contains("ComplexToRealImag with Output Imag"),
        "{told}"
    );
    let four = Type::F64.vector(4);
    let row = [("OutputDimensionality", "Row vector (2-D)")];
    let vector = Value::build(four, |at| (Number::F64(at as f64), Number::Int(0)));
    let out = run(&block("Reshape", &row, &[four], four), &[vec![vector]]);
    assert_eq!(out, [[0.0, 1.0, 2.0, 3.0]]);
}

/// With their arcs, and also where none comes to the port that the parameter asks for.
#[test]
fn delays_with_more_than_an_input_are_named() {
    let delay = |key: &'static str, text: &'static str| {
        [
            ("Numeric.DelayLength", "2"),
            ("Numeric.InitialCondition", "1"),
            (key, text),
        ]
    };
    for (key, text, more) in [
        ("ExternalReset", "Rising", Some(Type::BOOL)),
        ("ExternalReset", "Level hold", None),
        ("ShowEnablePort", "on", None),
        ("DelayLengthSource", "Input port", Some(Type::U8)),
        ("InitialConditionSource", "Input port", Some(Type::F64)),
    ] {
        let inputs: Vec<Type> = [Type::F64].into_iter().chain(more).collect();
        let told = not_known("Delay", &delay(key, text), &inputs, Type::F64);
        assert!(told.contains(&format!("Delay with {key} {text}")), "{told}");
    }
    let usual = block(
        "Delay",
        &delay("ExternalReset", "None"),
        &[Type::F64],
        Type::F64,
    );
    let samples = [3.0, 4.0, 5.0].map(Value::from).to_vec();
    assert_eq!(run(&usual, &[samples]).concat(), [1.0, 1.0, 3.0]);
}

/// `x` goes into a domain at half of the rate of `r`, and meets it behind a repetition.
#[test]
fn an_input_that_a_clock_domain_reads_has_its_rate() {
    let file = |domain: &str, reader: &str| {
        let named = |name: &str, function: &str, more: &[(&str, &str)]| {
            let own = [
                ("instance_name", name),
                ("block_node_type", "Standard"),
                ("block_function", function),
            ];
            data(&[&own[..], more].concat())
        };
        let master = |id: &str, name: &str| {
            let said = data(&[("instance_name", name), ("block_node_type", "Master")]);
            format!("<node id=\"{id}\">{said}</node>\n")
        };
        let inner = [
            (
                "d::g",
                named("g", reader, &[("Numeric.Gain", "2"), ("Numeric.N", "1")]),
            ),
            ("d::up", named("up", "Repeat", &[("Numeric.N", "2")])),
        ];
        let inner = inner
            .map(|(id, said)| format!("<node id=\"{id}\">{said}</node>\n"))
            .concat();
        let said = data(&[("instance_name", domain), ("block_node_type", "Subsystem")]);
        let domain = format!("<node id=\"d\">{said}<graph id=\"d:\">{inner}</graph></node>\n");
        let sum = format!(
            "<node id=\"s\">{}</node>\n",
            named("s", "Sum", &[("Inputs", "++")])
        );
        let arcs = [
            (("in", 1), ("d::g", 1)),
            (("d::g", 1), ("d::up", 1)),
            (("d::up", 1), ("s", 1)),
            (("in", 2), ("s", 2)),
            (("s", 1), ("out", 1)),
        ];
        let arcs = arcs.map(|(from, to)| arc(from, to, Type::F64)).concat();
        let masters = master("in", "Input Master") + &master("out", "Output Master");
        let text = format!("<graphml><graph>\n{masters}{domain}{sum}{arcs}</graph></graphml>\n");
        Graph::from_graphml(&text, "file.graphml")
    };
    let loaded = file("LAMINAR_CLOCK_DOMAIN_a", "Gain").unwrap();
    let notes = loaded.notes.join("\n");
    assert!(
        notes.contains("comes at rate 1/2, that of the clock domain"),
        "{notes}"
    );
    let samples = |all: &[f64]| {
        all.iter()
            .map(|&value| Value::from(value))
            .collect::<Vec<_>>()
    };
    let inputs = [samples(&[10.0, 20.0]), samples(&[1.0, 2.0, 3.0, 4.0])];
    assert_eq!(run(&loaded, &inputs).concat(), [21.0, 22.0, 43.0, 44.0]);
    // In another subsystem, and where the domain itself goes down from it, it is at the base rate.
    let told = file("other", "Gain").unwrap_err();
    assert_eq!(told.count(Cause::Rate), 1, "{told}");
    let told = file("LAMINAR_CLOCK_DOMAIN_a", "DownSample").unwrap_err();
    assert_eq!(told.count(Cause::Rate), 1, "{told}");
}
