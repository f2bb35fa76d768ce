//! `karoo flow bench`: rates of graphs, queues and chains.

use crate::flow::graph;
use crate::support::{documents, json, karoo_ok};

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
