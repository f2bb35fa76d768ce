//! What files of Laminar's say, taken as they say it or told.

use karoo_flow::{Cause, Graph, Interpreter, Loaded, Number, Problems, Type, Value};
use proptest::prelude::*;

/// A file of nodes with their data, and of arcs: source, target, type, and what says the width.
struct File {
    nodes: String,
    arcs: String,
}

const ARC: (&str, &str) = ("arc_width", "1");

impl File {
    /// With the input master `in` and the output master `out`.
    fn new() -> File {
        let mut file = File {
            nodes: String::new(),
            arcs: String::new(),
        };
        for (id, name) in [("in", "Input Master"), ("out", "Output Master")] {
            file = file.node(
                id,
                &[("instance_name", name), ("block_node_type", "Master")],
            );
        }
        file
    }

    fn node(mut self, id: &str, data: &[(&str, &str)]) -> File {
        self.nodes += &format!("<node id=\"{id}\">{}</node>\n", texts(data));
        self
    }

    fn block(self, id: &str, function: &str, data: &[(&str, &str)]) -> File {
        let own = [
            ("instance_name", id),
            ("block_node_type", "Standard"),
            ("block_function", function),
        ];
        self.node(id, &[&own[..], data].concat())
    }

    fn fan(self, id: &str) -> File {
        self.node(
            id,
            &[("instance_name", id), ("block_node_type", "VectorFan")],
        )
    }

    fn arc(self, from: (&str, usize), to: (&str, usize), width: usize) -> File {
        let width = width.to_string();
        self.typed(from, to, "double", ("arc_width", &width))
    }

    fn typed(
        mut self,
        from: (&str, usize),
        to: (&str, usize),
        kind: &str,
        width: (&str, &str),
    ) -> File {
        let (a, b) = (from.1.to_string(), to.1.to_string());
        let data = [
            ("arc_src_port", &*a),
            ("arc_dst_port", &*b),
            ("arc_datatype", kind),
            width,
        ];
        let (from, to, data) = (from.0, to.0, texts(&data));
        self.arcs += &format!("<edge source=\"{from}\" target=\"{to}\">{data}</edge>\n");
        self
    }

    fn text(&self) -> String {
        format!(
            "<graphml>\n<graph>\n{}{}</graph>\n</graphml>\n",
            self.nodes, self.arcs
        )
    }

    fn load(&self) -> Result<Loaded, Problems> {
        Graph::from_graphml(&self.text(), "file.graphml")
    }

    fn refused(&self) -> String {
        self.load().unwrap_err().to_string()
    }
}

fn texts(data: &[(&str, &str)]) -> String {
    let one = |(key, text): &(&str, &str)| format!("<data key=\"{key}\">{text}</data>");
    data.iter().map(one).collect()
}

/// A block of one input of so many elements and one output of so many.
fn one(function: &str, data: &[(&str, &str)], (wide, given): (usize, usize)) -> File {
    File::new()
        .block("g", function, data)
        .arc(("in", 1), ("g", 1), wide)
        .arc(("g", 1), ("out", 1), given)
}

fn vector(all: &[f64]) -> Value {
    let zero = Number::F64(0.0);
    Value::build(Type::F64.vector(all.len()), |at| {
        (Number::F64(all[at]), zero)
    })
}

/// What comes out of one sample.
fn result(graph: &Graph, sample: &[f64]) -> Vec<f64> {
    let out = Interpreter::new(graph)
        .unwrap()
        .run(&[vec![vector(sample)]])
        .unwrap();
    out[0][0].to_f64s()
}

#[test]
fn numbers_with_spaces_between_are_several() {
    let gain = one("Gain", &[("Gain", "[1 2 -3]")], (3, 3))
        .load()
        .unwrap()
        .graph;
    assert_eq!(result(&gain, &[1.0, 1.0, 1.0]), [1.0, 2.0, -3.0]);
    let told = one("Gain", &[("Gain", "1 2")], (3, 3)).refused();
    assert!(
        told.contains("Gain `1 2` is not a list of numbers"),
        "{told}"
    );
}

#[test]
fn an_index_that_is_not_whole_is_refused() {
    let select = |index: &str| {
        let data = [
            ("NumberOfDimensions", "1"),
            ("index_mode", "1"),
            ("IndexOption1st", "Index vector (dialog)"),
            ("IndexParam1st", index),
        ];
        one("Selector", &data, (3, 1))
    };
    assert_eq!(
        result(&select("2").load().unwrap().graph, &[5.0, 6.0, 7.0]),
        [6.0]
    );
    let told = select("1.7").refused();
    assert!(
        told.contains("IndexParam1st 1.7 is not a whole number from 0 to"),
        "{told}"
    );
    let told = select("1+1i").refused();
    assert!(told.contains("IndexParam1st is complex"), "{told}");
}

#[test]
fn a_fan_of_one_arc_out_gives_what_its_width_says() {
    let fan = |function: &str, wide: usize, given: usize| {
        let data = [
            ("instance_name", "v"),
            ("block_node_type", "VectorFan"),
            ("block_function", function),
        ];
        let file = File::new()
            .node("v", &data)
            .block("g", "Gain", &[("Gain", "2")]);
        let file = file
            .arc(("in", 1), ("v", 1), wide)
            .arc(("v", 1), ("g", 1), given);
        file.arc(("g", 1), ("out", 1), given)
    };
    let taken_apart = fan("", 3, 1).load().unwrap();
    assert_eq!(result(&taken_apart.graph, &[1.0, 2.0, 3.0]), [2.0]);
    assert!(taken_apart.notes.is_empty(), "{:?}", taken_apart.notes);
    assert_eq!(
        result(&fan("", 3, 3).load().unwrap().graph, &[1.0, 2.0, 3.0]),
        [2.0, 4.0, 6.0]
    );
    for (function, wide, given) in [("", 3, 2), ("", 3, 4), ("VectorFanIn", 3, 1)] {
        let told = fan(function, wide, given).refused();
        let wanted = format!("node v `v`: a fan of {wide} elements in and {given} out");
        assert!(told.contains(&wanted), "{told}");
    }
    // Also one whose second output alone is used.
    let second = File::new()
        .fan("v")
        .arc(("in", 1), ("v", 1), 3)
        .arc(("v", 2), ("out", 1), 1);
    assert_eq!(
        result(&second.load().unwrap().graph, &[1.0, 2.0, 3.0]),
        [2.0]
    );
}

#[test]
fn arcs_that_are_not_what_comes_are_told() {
    let data = [("LowerLimit", "-1"), ("UpperLimit", "1")];
    let file = File::new()
        .block("g", "Saturate", &data)
        .arc(("in", 1), ("g", 1), 3);
    let file = file.typed(("g", 1), ("out", 1), "int8", ("arc_width", "7"));
    let notes = file.load().unwrap().notes;
    assert_eq!(
        notes,
        ["file.graphml:7: an arc of `g` is i8[7] in the file, and f64[3] here"]
    );
}

#[test]
fn criteria_of_switches_are_told_as_the_file_has_them() {
    let refused = |data: &[(&str, &str)]| {
        let file = File::new().block("s", "Switch", data);
        let file = (1..4).fold(file, |file, port| file.arc(("in", 1), ("s", port), 1));
        file.arc(("s", 1), ("out", 1), 1).refused()
    };
    let told = refused(&[("Criteria", "u2 = Threshold")]);
    assert!(
        told.contains("Criteria `u2 = Threshold` is not known"),
        "{told}"
    );
    let told = refused(&[]);
    assert!(told.contains("the parameter Criteria is missing"), "{told}");
}

/// Rather than computed as something else.
#[test]
fn what_would_be_computed_otherwise_is_not_known() {
    let unknown = |file: &File| {
        let graph = file.load().unwrap().graph;
        Interpreter::new(&graph).err().map(|told| told.to_string())
    };
    let table = |beyond: &str| {
        let data = [
            ("InterpMethod", "Linear"),
            ("ExtrapMethod", beyond),
            ("NumberOfTableDimensions", "1"),
            ("BreakpointsForDimension1", "[0 1 2]"),
            ("Table", "[0 10 20]"),
        ];
        one("Lookup_n-D", &data, (1, 1))
    };
    assert_eq!(unknown(&table("Clip")), None);
    let told = unknown(&table("Linear")).unwrap();
    assert!(told.contains("ExtrapMethod Linear"), "{told}");
    let told = unknown(&one("Logic", &[("Operator", "AND")], (3, 1))).unwrap();
    assert!(told.contains("over the elements of a vector"), "{told}");
}

#[test]
fn widths_of_arcs_that_cannot_be_read_are_refused() {
    for (key, width, wanted) in [
        (
            "arc_dimension",
            "[1, x]",
            "arc_dimension `[1, x]` is not a list of numbers",
        ),
        (
            "arc_dimension",
            "[1, 2.5]",
            "arc_dimension `[1, 2.5]` has a size that is not whole",
        ),
        (
            "arc_dimension",
            "[1, -2]",
            "arc_dimension `[1, -2]` has a size that is not whole",
        ),
        ("arc_dimension", "[1, 0]", "a vector has 1 to"),
        ("arc_width", "abc", "arc_width `abc` is not a whole number"),
    ] {
        let file = File::new().block("g", "Gain", &[("Gain", "2")]);
        let file = file.typed(("in", 1), ("g", 1), "double", (key, width));
        let told = file.typed(("g", 1), ("out", 1), "double", ARC).refused();
        assert!(told.contains(wanted), "{told}");
    }
}

#[test]
fn every_broken_arc_is_told_in_the_order_of_the_file() {
    let mut file = File::new().block("g", "Gain", &[("Gain", "2")]);
    for port in 2..12 {
        file = file
            .arc(("g", port), ("out", port), 1)
            .arc(("in", port), ("g", port), 1);
    }
    let problems = file.load().unwrap_err().0;
    assert_eq!(problems.len(), 20);
    for (at, problem) in problems.iter().enumerate() {
        let wanted = match at % 2 {
            0 => "the source is not an output of a block",
            _ => "the target has no such input",
        };
        let place = format!("file.graphml:{}: ", 6 + at);
        assert!(
            problem.path.starts_with(&place) && problem.text == wanted,
            "{problem}"
        );
    }
}

#[test]
fn subsystems_without_enable_signals_are_told_in_their_order() {
    let mut file = File::new();
    for at in 0..50 {
        let name = format!("e{at}");
        let data = [
            ("instance_name", &*name),
            ("block_node_type", "Enabled Subsystem"),
        ];
        file = file.node(&name, &data);
    }
    let file = file.block("g", "Gain", &[("Gain", "2")]);
    let problems = file.arc(("in", 1), ("g", 1), 1).load().unwrap_err().0;
    let lines: Vec<&str> = problems
        .iter()
        .map(|problem| problem.path.split(':').nth(1).unwrap())
        .collect();
    let wanted: Vec<String> = (5..55).map(|line| line.to_string()).collect();
    assert_eq!(lines, wanted);
}

#[test]
fn attributes_that_cannot_be_read_are_not_called_missing() {
    let text = one("Gain", &[("Gain", "2")], (1, 1)).text();
    let load = |text: &str| Graph::from_graphml(text, "file.graphml");
    let told = load(&text.replace("id=\"g\"", "id=\"g&foo;\""))
        .unwrap_err()
        .to_string();
    assert!(
        told.starts_with("file.graphml:5: <node>: the attribute `id` cannot be read"),
        "{told}"
    );
    let told = load(&text.replace("id=\"g\"", "")).unwrap_err().to_string();
    assert_eq!(
        told,
        "file.graphml:5: <node>: the attribute `id` is missing"
    );
    // Names with a prefix are names.
    let prefixed = text.replace("<graphml>", "<g:graphml xmlns:g=\"x\">");
    load(&prefixed.replace("</graphml>", "</g:graphml>")).unwrap();
}

/// Each master looked at every arc: here for minutes.
#[test]
fn as_many_masters_as_a_file_may_have_are_read() {
    const MANY: usize = 60_000;
    let mut file = File {
        nodes: String::new(),
        arcs: String::new(),
    };
    for at in 0..MANY {
        let (from, to) = (format!("i{at}"), format!("o{at}"));
        for (id, name) in [(&from, "Input Master"), (&to, "Output Master")] {
            file = file.node(
                id,
                &[("instance_name", name), ("block_node_type", "Master")],
            );
        }
        file = file.arc((&from, 1), (&to, 1), 1);
    }
    assert_eq!(file.load().unwrap().graph.nodes().len(), 2 * MANY);
}

fn limit(file: &File) -> String {
    let problems = file.load().unwrap_err();
    assert_eq!(
        problems.count(Cause::Limit),
        problems.0.len(),
        "{problems:.300}"
    );
    problems.to_string()
}

/// Ports without arcs were made first, some hundred bytes for each, and counted then.
#[test]
fn ports_without_arcs_are_counted_before_they_are_made() {
    let mut file = File::new();
    for at in 0..20_000 {
        let id = format!("n{at}");
        file = file
            .block(&id, "Sum", &[("Inputs", "4096")])
            .arc(("in", 1), (&id, 1), 1);
    }
    let told = limit(&file);
    // That is the block which is one too many.
    assert!(told.contains("node n64 `n64`: "), "{told:.300}");
    assert!(
        told.contains("a file has at most 262144 nodes, and ports without an arc"),
        "{told}"
    );
    // A block that is not known has as many outputs as the last arc says.
    let mut file = File::new();
    for at in 0..20_000 {
        let id = format!("n{at}");
        file = file.block(&id, "Warp", &[]).arc((&id, 4096), ("out", 1), 1);
    }
    assert!(limit(&file).contains("node n64 `n64`: "));
}

fn range(size: usize) -> [(&'static str, String); 5] {
    [
        ("NumberOfDimensions", "1".into()),
        ("index_mode", "1".into()),
        ("IndexOption1st", "Starting index (dialog)".into()),
        ("IndexParam1st", "2".into()),
        ("OutputSize1st", size.to_string()),
    ]
}

/// Each range was written out, 8 MiB, before it was looked at: 400 GB here.
#[test]
fn ranges_of_selectors_are_within_their_input_and_within_a_limit() {
    let with = |count: usize, wide: usize, size: usize| {
        let mut file = File::new();
        let data = range(size);
        let data: Vec<(&str, &str)> = data.iter().map(|(key, text)| (*key, &**text)).collect();
        for at in 0..count {
            let id = format!("n{at}");
            file = file
                .block(&id, "Selector", &data)
                .arc(("in", 1), (&id, 1), wide);
        }
        file
    };
    let told = with(50_000, 4, 1 << 20).refused();
    let wanted = "OutputSize1st 1048576 from the element 1 on, counted from 0: its input has 4";
    assert!(told.contains(wanted), "{told:.300}");
    let told = with(50_000, 1 << 20, (1 << 20) - 1).refused();
    assert!(told.contains("node n16 `n16`: OutputSize1st 1048575: the selectors of a file"));
    assert_eq!(told.lines().count(), 50_000 - 16);
    let file = with(1, 4, 3).arc(("n0", 1), ("out", 1), 3);
    assert_eq!(
        result(&file.load().unwrap().graph, &[1.0, 2.0, 3.0, 4.0]),
        [2.0, 3.0, 4.0]
    );
}

/// Subsystems, one in the other, with nodes in the innermost.
fn nested(depth: usize, name: &str, nodes: usize) -> String {
    let mut text = String::from("<graphml><graph>\n");
    for level in 0..depth {
        let data = texts(&[("instance_name", name), ("block_node_type", "Subsystem")]);
        text += &format!("<node id=\"s{level}\">{data}<graph>\n");
    }
    let pass = [
        ("instance_name", "p"),
        ("block_node_type", "Standard"),
        ("block_function", "SignalSpecification"),
    ];
    for node in 0..nodes {
        text += &format!("<node id=\"n{node}\">{}</node>\n", texts(&pass));
    }
    text += &"</graph></node>\n".repeat(depth);
    let arc = [
        ("arc_src_port", "1"),
        ("arc_dst_port", "1"),
        ("arc_datatype", "double"),
        ARC,
    ];
    for node in 1..nodes {
        let (from, to) = (node - 1, node);
        text += &format!(
            "<edge source=\"n{from}\" target=\"n{to}\">{}</edge>\n",
            texts(&arc)
        );
    }
    text + "</graph></graphml>"
}

/// A path for each node: a gigabyte for 20000 of them, before the depth was looked at.
#[test]
fn paths_take_no_more_memory_than_a_file() {
    let load = |text: &str| Graph::from_graphml(text, "deep.graphml");
    let long = "\u{1f300}".repeat(200);
    for (depth, wanted) in [
        (60, "bytes: at most 67108864; nest fewer"),
        (120, "at most 64 deep"),
    ] {
        let problems = load(&nested(depth, &long, 20_000)).unwrap_err();
        assert_eq!(
            (problems.0.len(), problems.0[0].cause),
            (1, Cause::Limit),
            "{problems:.300}"
        );
        assert!(problems.to_string().contains(wanted), "{problems}");
    }
    let graph = load(&nested(60, "s", 20_000)).unwrap().graph;
    assert_eq!(graph.nodes().len(), 20_001);
}

proptest! {
    /// Blocks of any count of inputs with any of these joined.
    #[test]
    fn joins_have_the_elements_of_all_their_arcs(widths in proptest::collection::vec(1..5usize, 1..6)) {
        let mut file = File::new().fan("v");
        for (port, &width) in widths.iter().enumerate() {
            file = file.arc(("in", port + 1), ("v", port + 1), width);
        }
        let all = widths.iter().sum();
        let loaded = file.arc(("v", 1), ("out", 1), all).load().unwrap();
        let output = loaded.graph.outputs().next().unwrap();
        prop_assert_eq!(loaded.graph.node(output).inputs[0], Type::F64.vector(all));
        prop_assert!(loaded.notes.is_empty());
    }
}
