//! Graphs of Laminar's own, and files as large as they may be.

use karoo_flow::{Cause, Graph, Interpreter, Registry};

/// Every graph that Laminar is tested with. `KAROO_LAMINAR_GRAPHS` names the folder `test/stimulus`
/// of its sources.
#[test]
#[ignore = "needs the sources of Laminar in KAROO_LAMINAR_GRAPHS"]
fn every_test_graph_of_laminar_loads_and_all_but_two_run() {
    let root = std::env::var("KAROO_LAMINAR_GRAPHS").expect("KAROO_LAMINAR_GRAPHS");
    let mut folders = vec![std::path::PathBuf::from(root)];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|extension| extension == "graphml")
            {
                found.push(path);
            }
        }
    }
    let mut refused = Vec::new();
    for path in &found {
        let text = std::fs::read_to_string(path).unwrap();
        let loaded = Graph::from_graphml(&text, &path.to_string_lossy());
        let graph = loaded.unwrap_or_else(|problems| panic!("{problems}")).graph;
        let toml = graph.to_toml().unwrap();
        let back = Graph::from_toml(&toml, "back.toml", &Registry::standard()).unwrap();
        assert_eq!(back.to_toml().unwrap(), toml);
        match Interpreter::new(&graph) {
            Ok(mut interpreter) => {
                let out = interpreter.run_for(20).unwrap();
                let again = Interpreter::new(&back).unwrap().run_for(20);
                assert_eq!(out, again.unwrap());
                println!(
                    "{}: {} nodes, {} outputs",
                    path.display(),
                    graph.nodes().len(),
                    out.len()
                );
            }
            Err(problems) => refused.push((path.file_name().unwrap().to_owned(), problems)),
        }
    }
    refused.sort_by(|a, b| a.0.cmp(&b.0));
    let names: Vec<_> = refused
        .iter()
        .map(|(name, _)| name.to_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["commented.graphml", "non_input_drivers.graphml"],
        "{refused:?}"
    );
    assert_eq!(found.len(), 30);
}

/// A file of Laminar's with these blocks, each with arcs from the input and to the output.
fn blocks(blocks: &[(&str, &[(&str, &str)])]) -> String {
    let data = |key: &str, value: &str| format!("<data key=\"{key}\">{value}</data>");
    let node = |id: &str, all: &[(&str, &str)]| {
        let all: String = all.iter().map(|(key, value)| data(key, value)).collect();
        format!("<node id=\"{id}\">{all}</node>\n")
    };
    let arc = |from: &str, to: &str, port: usize| {
        let all = [
            data("arc_src_port", "1"),
            data("arc_dst_port", &port.to_string()),
            data("arc_datatype", "double"),
            data("arc_dimension", "[1, 1]"),
        ];
        let all = all.concat();
        format!("<edge source=\"{from}\" target=\"{to}\">{all}</edge>\n")
    };
    let master = |name| [("instance_name", name), ("block_node_type", "Master")];
    let mut text = format!(
        "<graphml><graph>{}{}",
        node("in", &master("Input Master")),
        node("out", &master("Output Master"))
    );
    for (index, (name, parameters)) in blocks.iter().enumerate() {
        let id = format!("n{index}");
        let block = [("instance_name", *name), ("block_node_type", "Standard")];
        text += &node(&id, &[&block[..], parameters].concat());
        text += &arc("in", &id, 1);
        // Outputs have as many ports as blocks have inputs, at most.
        if index < 100 {
            text += &arc(&id, "out", index + 1);
        }
    }
    text + "</graph></graphml>"
}

#[test]
fn as_many_blocks_as_a_file_may_have_can_have_one_name() {
    const MANY: usize = 100_000;
    let pass = ("twin", &[("block_function", "SignalSpecification")][..]);
    let loaded = Graph::from_graphml(&blocks(&vec![pass; MANY]), "twins.graphml").unwrap();
    let graph = loaded.graph;
    // The input, the outputs, and they.
    assert_eq!(graph.nodes().len(), 1 + 100 + MANY);
    for name in ["twin", "twin_2", "twin_3", "twin_100000"] {
        assert!(graph.find(name).is_some(), "{name}");
    }
}

#[test]
fn names_that_look_like_numbered_ones_are_kept_apart() {
    let pass = &[("block_function", "SignalSpecification")][..];
    let names = ["a_2", "a", "a", "a", "a_2"];
    let text = blocks(&names.map(|name| (name, pass)));
    let graph = Graph::from_graphml(&text, "twins.graphml").unwrap().graph;
    for name in ["a", "a_2", "a_3", "a_4", "a_2_2"] {
        assert!(graph.find(name).is_some(), "{name}");
    }
}

#[test]
fn inputs_without_arcs_count_as_nodes() {
    let sum = [("block_function", "Sum"), ("Inputs", "4096")];
    let text = blocks(&[("wide", &sum[..]); 80]);
    let problems = Graph::from_graphml(&text, "wide.graphml").unwrap_err();
    assert!(
        problems
            .0
            .iter()
            .all(|problem| problem.cause == Cause::Limit)
    );
    let text = problems.to_string();
    assert!(text.contains("at most 262144"), "{text}");
}

#[test]
fn breakpoints_are_even_as_far_as_their_digits_tell() {
    let loads = |points: &str| {
        let entries = "[1, 2, 3, 4]";
        let table = [
            ("block_function", "Lookup_n-D"),
            ("InterpMethod", "Flat"),
            ("NumberOfTableDimensions", "1"),
            ("Numeric.BreakpointsForDimension1", points),
            ("Numeric.Table", entries),
        ];
        let loaded = Graph::from_graphml(&blocks(&[("lut", &table)]), "lut.graphml").unwrap();
        let id = loaded.graph.find("lut").unwrap();
        loaded.graph.node(id).node.kind() == "lut"
    };
    // Thirds in five digits, as the exporter writes them; the same of thousands.
    assert!(loads("[0.33333, 0.66667, 1, 1.3333]"));
    assert!(loads("[1333.3, 1666.7, 2000, 2333.3]"));
    assert!(loads("[1e-6, 2e-6, 3e-6, 4e-6]"));
    // However near they are to each other.
    assert!(!loads("[1e-6, 2e-6, 3e-6, 9e-6]"));
    assert!(!loads("[0, 1e-5, 9e-5, 1e-4]"));
    assert!(!loads("[0, 1, 3, 4]"));
    assert!(!loads("[1000, 1000.01, 1000.05, 1000.1]"));
}
