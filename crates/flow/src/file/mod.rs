//! Graphs from files. Whatever a file holds, reading it ends in a graph or in a list of what is
//! wrong, by line.

mod graphml;
mod nesting;
mod tables;

use std::collections::HashMap;

use crate::graph::{Draft, Graph};
use crate::node::Registry;
use crate::problem::{Cause, Problem, Problems};

/// The longest file that is read, in bytes.
pub const MAX_FILE: usize = 64 << 20;
/// The most nodes and subsystems of one file.
pub const MAX_NODES: usize = 1 << 18;

/// A graph from a file.
#[derive(Debug)]
pub struct Loaded {
    /// The graph.
    pub graph: Graph,
    /// What was taken otherwise than the file has it, and what cannot run, by line.
    pub notes: Vec<String>,
}

impl Graph {
    /// Reads the TOML that [`Graph::to_toml`] writes. `file` is a name for messages.
    ///
    /// ```
    /// use karoo_flow::{Graph, Registry};
    ///
    /// let text = r#"
    ///     name = "leaky"
    ///     node = [
    ///         { path = "x", kind = "input", of = "f32" },
    ///         { path = "half", kind = "gain", from = ["past"], gain = 0.5 },
    ///         { path = "sum", kind = "sum", from = ["x", "half"], signs = "++" },
    ///         { path = "past", kind = "delay", from = ["sum"], length = 1, of = "f32" },
    ///         { path = "y", kind = "output", from = ["sum"] },
    ///     ]
    /// "#;
    /// let graph = Graph::from_toml(text, "leaky.toml", &Registry::standard()).unwrap();
    /// assert_eq!(graph.nodes().len(), 5);
    ///
    /// let wrong = text.replace("sum\", signs", "\", gain").replace("0.5", "\"a\"");
    /// let problems = Graph::from_toml(&wrong, "leaky.toml", &Registry::standard()).unwrap_err();
    /// assert!(problems.to_string().contains("leaky.toml:5: half: gain: "));
    /// ```
    pub fn from_toml(text: &str, file: &str, registry: &Registry) -> Result<Graph, Problems> {
        limit(text, file)?;
        tables::read(text, file, registry)
    }

    /// The graph as TOML, or the nodes that cannot be written because they are closures.
    pub fn to_toml(&self) -> Result<String, Problems> {
        tables::write(self)
    }

    /// Reads GraphML as Laminar's exporter writes it from Simulink. `file` is a name for messages.
    ///
    /// Nodes of kinds that are not known here are kept as
    /// [`nodes::Unknown`](crate::nodes::Unknown): the graph can be looked at, and is refused when
    /// it is to run.
    pub fn from_graphml(text: &str, file: &str) -> Result<Loaded, Problems> {
        limit(text, file)?;
        graphml::read(text, file)
    }
}

fn limit(text: &str, file: &str) -> Result<(), Problems> {
    if text.len() <= MAX_FILE {
        return Ok(());
    }
    let text = format!("{} bytes: a file has at most {MAX_FILE}", text.len());
    Err(Problems::one(Cause::Limit, file, text))
}

/// Checks a draft, and puts the lines of its nodes and subsystems into what is wrong.
fn check(draft: Draft, file: &str, lines: &HashMap<String, usize>) -> Result<Graph, Problems> {
    draft.check().map_err(|problems| {
        let placed = problems.0.into_iter().map(|problem| {
            let place = lines
                .get(&problem.path)
                .map_or(file.to_string(), |line| format!("{file}:{line}"));
            Problem {
                path: format!("{place}: {}", problem.path),
                ..problem
            }
        });
        Problems(placed.collect())
    })
}
