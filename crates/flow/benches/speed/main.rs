//! How fast kernels, graphs and chains of kernels are.
//!
//! `cargo bench -p karoo-flow --bench speed -- graphs [GRAPH.graphml …]`, `… -- chain [OPTIONS]`,
//! or the program itself with `--bench` in front: see `graphs.rs` and `chain.rs`. Without either,
//! both.

mod chain;
mod graphs;

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let count = arguments.len();
    arguments.retain(|argument| argument != "--bench");
    // `cargo test --benches` asks for no measurement.
    if arguments.len() == count {
        return;
    }
    match arguments.first().map(String::as_str) {
        Some("graphs") => graphs::run(&arguments[1..]),
        Some("chain") => chain::run(&arguments[1..]),
        None => {
            graphs::run(&[]);
            chain::run(&[]);
        }
        Some(other) => println!("{other}: give `graphs` or `chain`"),
    }
}
