//! Graphs from files, and whatever else is in files.

use karoo_flow::nodes::{Counter, Down, Fir, Lookup, Lut, Machine};
use karoo_flow::{
    Builder, Cause, Graph, Interpreter, Literals, Number, Problems, Registry, Scalar, Type, Value,
};
use proptest::prelude::*;

const SMALL: &str = include_str!("small.graphml");

fn values<T: Into<Value> + Clone>(items: &[T]) -> Vec<Value> {
    items.iter().cloned().map(Into::into).collect()
}

fn small(text: &str) -> Result<Graph, String> {
    Graph::from_graphml(text, "small.graphml")
        .map(|loaded| loaded.graph)
        .map_err(|problems| problems.to_string())
}

#[test]
fn a_graph_of_graphml_runs() {
    let loaded = Graph::from_graphml(SMALL, "dir/small.graphml").unwrap();
    assert_eq!(
        loaded.notes,
        ["dir/small.graphml:5: the input `spare` is read by nothing and left out"]
    );
    let graph = loaded.graph;
    assert_eq!(graph.name(), "small");
    let sum = graph
        .find("agc & more/leaky sum")
        .expect("names lose what paths give a meaning to");
    assert_eq!(graph.partition(sum), Some(3));
    let mut interpreter = Interpreter::new(&graph).unwrap();
    let out = interpreter
        .run(&[values(&[1f32, 2.0, 3.0]), values(&[true, false, true])])
        .unwrap();
    // x - past, where the subsystem stands still at the second sample.
    assert_eq!(out[0], values(&[-3f32, -3.0, 6.0]));
    let pair: Vec<(Number, Number)> = (0..2).map(|at| out[1][2].element(at)).collect();
    let f = Number::F32;
    assert_eq!(pair, [(f(3.0), f(3.0)), (f(1.5), f(1.5))]);
}

#[test]
fn mistakes_in_graphml_are_named_by_file_line_and_element() {
    for (from, to, wanted) in [
        (
            ">0.5+0.5i<",
            ">half<",
            "small.graphml:62: node n11 `gain`: Numeric.Gain `half` is not a list of numbers",
        ),
        (
            "source=\"n10\"",
            "source=\"n77\"",
            "small.graphml:108: edge n77 -> n11: there is no node n77",
        ),
        (
            "<node id=\"n3\"",
            "<node id=n3",
            "small.graphml:19: <node>: the attribute `id` cannot be read",
        ),
        ("</graphml>", "", "the file ends inside an element"),
        (
            ">0.5+0.5i<",
            ">[1, 2, 3]<",
            "small.graphml:62: gain: input 2 has 3 elements where input 1 has 2",
        ),
        ("&amp;", "&evil;", "small.graphml:24: `&evil;` is not known"),
        (
            ">boolean<",
            ">sfix16_En12<",
            "small.graphml:72: edge n1 -> n4::n5: `sfix16_En12` is not a type here",
        ),
        (
            ">4<",
            ">[1, 2]<",
            "agc & more/past: 2 initial numbers for 1 samples of f32",
        ),
        (
            "<data key=\"arc_src_port\">2<",
            "<data key=\"arc_src_port\">0<",
            "arc_src_port `0` is not 1 to",
        ),
        (
            "id=\"n11\"",
            "id=\"n10\"",
            "node n10 `gain`: another node has this id",
        ),
    ] {
        assert!(SMALL.contains(from), "{from}");
        let problems = small(&SMALL.replacen(from, to, 1)).expect_err(to);
        assert!(problems.contains(wanted), "{to}: {problems}");
    }
}

#[test]
fn a_block_of_no_known_kind_loads_and_does_not_run() {
    let text = SMALL.replace(">Gain<", ">Warp<");
    let loaded = Graph::from_graphml(&text, "small.graphml").unwrap();
    assert_eq!(
        loaded.notes[1],
        "small.graphml:62: there is no node for Warp: the graph cannot run"
    );
    let problems = Interpreter::new(&loaded.graph).err().unwrap();
    assert_eq!(
        problems.to_string(),
        "gain: there is no node of the kind \"Warp\": replace it"
    );
    // Nor is an output that is reset taken for one that is held.
    let when_disabled = |how: &str| {
        let data = format!(">Special Output Port</data><data key=\"OutputWhenDisabled\">{how}<");
        let graph = small(&SMALL.replace(">Special Output Port<", &data))?;
        Interpreter::new(&graph)
            .map(|_| ())
            .map_err(|told| told.to_string())
    };
    assert_eq!(when_disabled("held"), Ok(()));
    assert!(when_disabled("reset").is_err());
    // Nor is a way to round taken for another one.
    let rounds = ">DataTypeConversion</data><data key=\"RndMeth\">Ceiling<";
    let loaded = Graph::from_graphml(&SMALL.replace(">Gain<", rounds), "small.graphml").unwrap();
    let note = &loaded.notes[1];
    assert!(
        note.contains("DataTypeConversion with RndMeth Ceiling"),
        "{note}"
    );
}

#[test]
fn an_input_without_an_arc_is_zero_and_told() {
    let text = SMALL.replace(">|+-<", ">|+-+<");
    let loaded = Graph::from_graphml(&text, "small.graphml").unwrap();
    let note = "small.graphml:31: input 3 of `agc & more/leaky sum` has no arc and is taken as 0";
    assert_eq!(loaded.notes[1], note);
}

/// A graph with every sort of parameter.
fn rich() -> Graph {
    let g = Builder::new("rich \"quoted\"");
    let x = g.input("x", Type::F64);
    let on = g.input("on", Type::BOOL);
    let taps = Literals::new(vec![
        (Number::F64(0.1), Number::Int(0)),
        (Number::Int(2), Number::F64(-1e-9)),
    ])
    .unwrap();
    let y = g.enabled("a b", on, || {
        g.partition(2);
        let y = x
            .then(Fir {
                taps,
                initial: 0.into(),
                output: Some(Scalar::F32),
            })
            .named("fir");
        g.scope("inner", || y.hold("1-2i".parse_literal()).named("hold"))
    });
    let past = g.feedback("past", Type::F32.complex(), 3, [1, 2, 3]);
    g.output("y", past.out());
    past.close(y);
    let lut = Lut {
        first: -0.3,
        step: 0.1,
        table: [1.5, 2.5].into(),
        between: Lookup::Linear,
        output: Scalar::F64,
    };
    g.output("z", x.then(lut).then(Down { by: 3 }));
    g.output(
        "w",
        g.add(
            Counter {
                period: u64::MAX >> 1,
                initial: 5,
                output: Scalar::U64,
            },
            [],
        ),
    );
    g.build().unwrap()
}

trait ParseLiteral {
    fn parse_literal(self) -> Literals;
}
impl ParseLiteral for &str {
    fn parse_literal(self) -> Literals {
        toml::Value::from(self).try_into().unwrap()
    }
}

fn outputs(graph: &Graph) -> Vec<Vec<Value>> {
    let inputs = [
        values(&[0.25, 1.0, -3.0, 7.5]),
        values(&[false, true, true, false]),
    ];
    Interpreter::new(graph).unwrap().run(&inputs).unwrap()
}

#[test]
fn toml_gives_back_what_was_written() {
    for graph in [rich(), small(SMALL).unwrap()] {
        let text = graph.to_toml().unwrap();
        let back = Graph::from_toml(&text, "back.toml", &Registry::standard()).unwrap();
        assert_eq!(back.to_toml().unwrap(), text);
        assert_eq!(back.scopes(), graph.scopes());
        for (a, b) in back.nodes().iter().zip(graph.nodes()) {
            assert_eq!(
                (&a.name, &a.from, &a.outputs, a.rate),
                (&b.name, &b.from, &b.outputs, b.rate)
            );
        }
    }
    let back = Graph::from_toml(
        &rich().to_toml().unwrap(),
        "back.toml",
        &Registry::standard(),
    )
    .unwrap();
    assert_eq!(outputs(&back), outputs(&rich()));
}

#[test]
fn closures_are_not_written() {
    let g = Builder::new("closure");
    g.add(Machine::new("m", [], [Type::F32], || (), |(), _, _| {}), [])
        .named("m");
    let problems = g.build().unwrap().to_toml().unwrap_err();
    assert_eq!(
        problems.to_string(),
        "m: a `machine` cannot be written to a file: give it a kind of its own"
    );
}

#[test]
fn every_counter_of_a_graph_can_be_written() {
    let counts = |period| {
        let g = Builder::new("counts");
        let counter = Counter {
            period,
            initial: 0,
            output: Scalar::U64,
        };
        g.output("y", g.add(counter, []).named("n"));
        g.build()
    };
    let longest = counts(i64::MAX as u64).unwrap().to_toml().unwrap();
    Graph::from_toml(&longest, "longest.toml", &Registry::standard()).unwrap();
    let problems = counts(1 << 63).unwrap_err().to_string();
    let wanted = "n: a period of 9223372036854775808: it must be at most 9223372036854775807";
    assert_eq!(problems, wanted);
}

#[test]
fn mistakes_in_toml_are_named_by_line_and_all_at_once() {
    let text = "name = 'wrong'
[[scope]]
path = 'a/b'
[[node]]
path = 'x'
kind = 'input'
of = 'f99'
[[node]]
path = 'y'
kind = 'gian'
[[node]]
path = 'z'
kind = 'gain'
gain = 2
gane = 3
from = ['nowhere']
[[node]]
path = 'w'
kind = 'pass'
from = ['w:3']
";
    let problems = Graph::from_toml(text, "w.toml", &Registry::standard()).unwrap_err();
    let text = problems.to_string();
    for wanted in [
        "w.toml:2: a/b: there is no subsystem `a` before it",
        "w.toml:4: x: input: of: `f99` is no type",
        "w.toml:8: y: there is no kind `gian`",
        "w.toml:11: z: gain: unknown field `gane`",
        "w.toml:17: w: `w:3` is no output of a node",
    ] {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
    assert_eq!(problems.0.len(), 5, "{text}");
    let problems =
        Graph::from_toml("name = 'x'\nnode = 3", "n.toml", &Registry::standard()).unwrap_err();
    assert_eq!(problems.0[0].cause, Cause::Format);
    assert!(problems.to_string().starts_with("n.toml:2: "), "{problems}");
}

/// What is wrong with a file that nests too deep. It is read where there is little stack, so that a
/// reader that follows the nesting by calls of its own ends here.
fn too_deep(read: impl FnOnce() -> Result<Graph, Problems> + Send + 'static) -> String {
    let thread = std::thread::Builder::new().stack_size(512 << 10);
    let read = thread.spawn(read).unwrap().join().unwrap();
    let problems = read.unwrap_err();
    let limits = problems.0.iter().filter(|of| of.cause == Cause::Limit);
    assert_eq!(limits.count(), problems.0.len(), "{problems:.300}");
    problems.to_string()
}

#[test]
fn toml_that_nests_too_deep_is_refused_by_line() {
    const DEEP: usize = 100_000;
    let (dots, opened, closed) = (".a".repeat(DEEP), "{a=".repeat(DEEP), "}".repeat(DEEP));
    // What the format's own limits let pass.
    let (dotted, many) = (format!("{{a{} = ", ".a".repeat(78)), 78);
    for (what, text) in [
        ("a key", format!("node{dots} = 1")),
        ("a header", format!("[[node{dots}]]")),
        (
            "lists",
            format!("node = {}{}", "[".repeat(DEEP), "]".repeat(DEEP)),
        ),
        ("tables", format!("node = {opened}1{closed}")),
        ("not closed", format!("node = {opened}")),
        (
            "both",
            format!(
                "node = [{{of = {}1{}}}]",
                dotted.repeat(many),
                "}".repeat(many)
            ),
        ),
    ] {
        let text = format!("name = 'deep'\n{text}\n");
        let read = move || Graph::from_toml(&text, "deep.toml", &Registry::standard());
        let rule = "deep.toml:2: tables and lists nest at most 64 deep";
        assert_eq!(too_deep(read), rule, "{what}");
    }
}

#[test]
fn subsystems_that_nest_too_deep_are_refused_by_line() {
    let (mut text, mut path) = ("name = 'deep'\n".to_owned(), "a".to_owned());
    for _ in 0..2000 {
        text += &format!("[[scope]]\npath = '{path}'\n");
        path += "/a";
    }
    let read = move || Graph::from_toml(&text, "deep.toml", &Registry::standard());
    let problems = too_deep(read);
    // The graph itself is the first of the 64.
    let (place, rule) = problems.lines().next().unwrap().split_once(": a/").unwrap();
    assert_eq!(place, "deep.toml:128");
    assert!(
        rule.ends_with("/a: subsystems nest at most 64 deep"),
        "{rule}"
    );

    let (opened, closed) = ("<node id=\"n\"><graph>", "</graph></node>");
    for (many, limit) in [
        (100, "subsystems nest at most 64"),
        (100_000, "elements nest at most 256"),
    ] {
        let subsystem = "<data key=\"block_node_type\">Subsystem</data>";
        let ids = (0..many).map(|id| opened.replace("\"n\"", &format!("\"n{id}\"")));
        let opened: String = ids
            .map(|node| node.replace("<graph>", subsystem) + "<graph>")
            .collect();
        let closed = closed.repeat(many);
        let text = format!("<graphml>\n<graph>{opened}{closed}</graph></graphml>");
        let read = move || Graph::from_graphml(&text, "deep.graphml").map(|loaded| loaded.graph);
        let problems = too_deep(read);
        assert!(problems.starts_with("deep.graphml:2: "), "{problems:.300}");
        assert!(problems.contains(limit), "{problems:.300}");
    }
}

/// Runs what has loaded, if it is small.
fn try_to_run(graph: &Graph) {
    if let Ok(mut interpreter) =
        Interpreter::new(graph).map_err(|problems| assert!(!problems.0.is_empty()))
        && graph
            .nodes()
            .iter()
            .all(|node| node.outputs.iter().all(|kind| kind.len < 1000))
        && graph.state_bytes() < 100_000
    {
        interpreter.run_for(3).unwrap();
    }
}

/// A text with pieces cut, doubled, swapped for another piece, or replaced.
fn damaged(text: &'static str) -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just(String::new()),
        Just("999999999999".into()),
        Just("-1".into()),
        Just("[[".into()),
        Just("</node>".into()),
        Just("NaN".into()),
        "[ -~]{0,6}",
        (0..text.len(), 0..40usize).prop_map(|(at, len)| text
            .get(at..(at + len).min(text.len()))
            .unwrap_or("")
            .to_string()),
    ];
    proptest::collection::vec((0..text.len(), 0..12usize, piece), 1..5).prop_map(|edits| {
        let mut text = text.to_string();
        for (at, len, piece) in edits {
            let end = (at + len).min(text.len());
            if text.is_char_boundary(at.min(end)) && text.is_char_boundary(end) {
                text.replace_range(at.min(end)..end, &piece);
            }
        }
        text
    })
}

const LEAKY: &str = include_str!("leaky.toml");

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn no_graphml_makes_a_panic(text in damaged(SMALL)) {
        if let Ok(graph) = small(&text) {
            try_to_run(&graph);
        }
    }

    #[test]
    fn no_toml_makes_a_panic(text in damaged(LEAKY)) {
        if let Ok(graph) = Graph::from_toml(&text, "leaky.toml", &Registry::standard()) {
            try_to_run(&graph);
            let again = graph.to_toml().unwrap();
            let back = Graph::from_toml(&again, "again.toml", &Registry::standard());
            prop_assert_eq!(back.unwrap().to_toml().unwrap(), again);
        }
    }

    #[test]
    fn no_text_at_all_makes_a_panic(text in ".{0,200}") {
        prop_assert!(small(&text).is_err());
        let _ = Graph::from_toml(&text, "any.toml", &Registry::standard());
    }
}
