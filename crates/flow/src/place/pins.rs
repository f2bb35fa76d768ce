//! Items that are to run on a core, by what the user says.

use super::cores::Cores;
use super::model::Model;
use super::plan::PlanError;
use crate::graph::Graph;

/// Pins items by the paths of their nodes or of subsystems around these.
pub(super) fn pin(
    model: &mut Model,
    graph: &Graph,
    cores: &Cores,
    pins: &[(String, usize)],
) -> Result<(), PlanError> {
    for (path, cpu) in pins {
        let Some(core) = cores.cpus.iter().position(|known| known == cpu) else {
            let known: Vec<String> = cores.cpus.iter().map(usize::to_string).collect();
            return Err(PlanError::Pin(format!(
                "{path} is to run on CPU {cpu}: there are {}",
                known.join(", ")
            )));
        };
        let inside = format!("{path}/");
        let mut found = false;
        for item in &mut model.items {
            let here = |path_of: String| path_of == *path || path_of.starts_with(&inside);
            if !item.nodes.iter().any(|&id| here(graph.path(id))) {
                continue;
            }
            found = true;
            if item.pinned.is_some_and(|other| other != core) {
                return Err(PlanError::Pin(format!(
                    "{path} is to run on CPU {cpu}, and is in one piece with what is to run on \
                     another: {}",
                    item.name
                )));
            }
            item.pinned = Some(core);
        }
        if !found {
            return Err(PlanError::Pin(format!(
                "{path}: no node that runs on a core has this path, nor is it a subsystem around one"
            )));
        }
    }
    Ok(())
}
