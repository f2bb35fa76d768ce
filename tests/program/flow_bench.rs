//! `karoo flow bench`: rates of graphs, queues and chains.

use crate::flow::graph;
use crate::support::{documents, json, karoo, karoo_ok, refused};

#[test]
fn a_bench_has_both_rates() {
    let args = [
        "flow",
        "bench",
        "graph",
        &graph("filter.toml"),
        "--guess",
        "--seconds",
        "0.5",
        "--runs",
        "1",
        "--json",
    ];
    let report = karoo_ok(args);
    documents::check("flow-bench-graph", &report);
    let report = json(&report);
    let graph = &report["graphs"][0];
    let ratio = graph["measured"].as_f64().unwrap() / graph["expected"].as_f64().unwrap();
    assert!(
        (ratio / graph["ratio"].as_f64().unwrap() - 1.0).abs() < 1e-9,
        "{report}"
    );
    assert!(ratio > 0.0);
}

#[test]
fn queues_are_measured_in_several_pairs_at_once() {
    let cpus = json(&karoo_ok([
        "flow", "bench", "queues", "--bytes", "64", "--rounds", "1", "--json",
    ]));
    let [from, to] = [0, 1].map(|at| cpus["cpus"][at].to_string());
    if from == to {
        return;
    }
    let pairs = format!("{from}:{to},{to}:{from}");
    let args = [
        "flow", "bench", "queues", "--bytes", "64,1024", "--rounds", "1",
    ];
    let args = [&args[..], &["--pairs", &pairs]].concat();
    let report = karoo_ok(args.iter().chain(&["--json"]));
    documents::check("flow-bench-queues", &report);
    let report = json(&report);
    assert_eq!(report["cpus"], cpus["cpus"]);
    assert_eq!(report["pairs"].as_array().unwrap().len(), 2);
    let rows = report["at_once"].as_array().unwrap();
    assert_eq!(rows.len(), 10);
    for row in rows {
        let rates = row["gigabytes_per_second"].as_array().unwrap();
        assert_eq!(rates.len(), 2);
        let sum: f64 = rates.iter().map(|rate| rate.as_f64().unwrap()).sum();
        let said = row["sum"].as_f64().unwrap();
        assert!((said - sum).abs() <= 1e-9 * sum, "{row}");
        assert!(row["alone"].as_f64().unwrap() > 0.0, "{row}");
    }
    let words = karoo_ok(&args);
    assert!(words.contains("2 pairs at once, GB/s"), "{words}");
    for (pairs, wanted) in [
        ("0", "two CPUs with a colon"),
        ("0:x", "`x` is not a whole number"),
        ("0:0", "one CPU cannot be both ends"),
        ("99999:0", "--pairs 99999: this process may not use it"),
    ] {
        let args = ["flow", "bench", "queues", "--pairs", pairs];
        refused(&karoo(args), 2, wanted);
    }
}

#[test]
fn queues_and_chains_are_measured() {
    let queues = karoo_ok([
        "flow", "bench", "queues", "--bytes", "64,1024", "--rounds", "1", "--json",
    ]);
    documents::check("flow-bench-queues", &queues);
    let queues = json(&queues);
    assert_eq!(queues["schema"], "karoo/flow-bench-queues");
    let rows = queues["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 10);
    assert!(rows.iter().all(|row| row["ns"].as_f64().unwrap() > 0.0));
    let args = [
        "flow",
        "bench",
        "chain",
        "--kernels",
        "3",
        "--samples",
        "40960",
        "--rounds",
        "1",
        "--json",
    ];
    let chain = karoo_ok(args);
    documents::check("flow-bench-chain", &chain);
    let chain = json(&chain);
    assert!(chain["rows"][0]["flow"].as_f64().unwrap() > 0.0, "{chain}");
}
