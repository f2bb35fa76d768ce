//! A live engine, checked: where its samples come from, and where its spectra go.

use std::net::SocketAddrV4;
use std::path::PathBuf;

use dpdk::{FlowRule, QueueId};

use super::EngineConfig;
use crate::net::FlowTable;

/// Where samples come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputConfig {
    /// From digitisers.
    Live {
        /// Destinations of their packets, both polarisations'.
        endpoints: Vec<SocketAddrV4>,
        /// Interface of each receive queue.
        interfaces: Vec<String>,
        /// CPU of each receive queue's lcore, if it matters.
        cpus: Vec<Option<usize>>,
        /// Bytes that packets may wait in, all queues together.
        buffer: usize,
    },
    /// From a capture file.
    Capture {
        /// The file.
        path: PathBuf,
        /// CPU of the lcore that receives from it, if it matters.
        cpu: Option<usize>,
    },
}

impl InputConfig {
    /// Which queue of `interface`'s, in the order of the list, each destination that comes through
    /// it is for.
    pub fn steering_of(&self, interface: &str) -> FlowTable {
        let Self::Live {
            endpoints,
            interfaces,
            ..
        } = self
        else {
            return FlowTable::default();
        };
        let all = FlowTable::from_sources(endpoints, interfaces.len());
        let ours = interfaces.iter().enumerate();
        let ours: Vec<_> = ours
            .filter(|(_, name)| *name == interface)
            .map(|(i, _)| i)
            .collect();
        let rules = all.rules().iter().filter_map(|rule| {
            let queue = ours
                .iter()
                .position(|&queue| QueueId(queue) == rule.queue)?;
            Some(FlowRule {
                queue: QueueId(queue),
                ..rule.clone()
            })
        });
        FlowTable::new(rules.collect())
    }

    /// What to say of `--recv-affinity` if there are more receive queues than destinations, so that
    /// nothing comes to some.
    pub fn idle_queues(&self) -> Option<String> {
        let Self::Live {
            endpoints, cpus, ..
        } = self
        else {
            return None;
        };
        let (sources, queues) = (endpoints.len(), cpus.len());
        (sources < queues).then(|| {
            let destinations = if sources == 1 { "destination" } else { "destinations" };
            format!(
                "--recv-affinity with {queues} entries: SRC has {sources} {destinations}, each of which comes to one \
                 receive queue, so that nothing comes to the others; give {sources} or fewer"
            )
        })
    }

    /// Destinations whose packets come through `interface`. The list is divided over the receive
    /// queues in contiguous slices, and those of an interface share what is theirs.
    pub fn endpoints_of(&self, interface: &str) -> Vec<SocketAddrV4> {
        let Self::Live {
            endpoints,
            interfaces,
            ..
        } = self
        else {
            return Vec::new();
        };
        let (count, queues) = (endpoints.len(), interfaces.len());
        let slice = |queue: usize| &endpoints[queue * count / queues..(queue + 1) * count / queues];
        let ours = (0..queues).filter(|&queue| interfaces[queue] == interface);
        ours.flat_map(slice).copied().collect()
    }
}

/// Where spectra go, beside what [`SendConfig`](super::SendConfig) says.
#[derive(Clone, Debug, PartialEq)]
pub struct EgressConfig {
    /// Interfaces, one send lcore each.
    pub interfaces: Vec<String>,
    /// CPU of these lcores, if it matters.
    pub cpu: Option<usize>,
    /// Bytes that packets may wait in, all interfaces together.
    pub buffer: usize,
    /// Rate of each output as a multiple of its own; 0: unlimited.
    pub rate_factor: f64,
}

/// A live engine, checked.
#[derive(Clone, Debug)]
pub struct FgpuConfig {
    /// The engine.
    pub engine: EngineConfig,
    /// Where samples come from.
    pub input: InputConfig,
    /// Where spectra go.
    pub egress: EgressConfig,
}

impl FgpuConfig {
    /// What to say of an output that is sent to where digitisers send to, if there is one.
    pub fn output_into_input(&self) -> Option<String> {
        let InputConfig::Live { endpoints, .. } = &self.input else {
            return None;
        };
        let mut outputs = self.engine.outputs.iter();
        outputs.find_map(|output| {
            let dst = output.dst.iter().find(|&dst| endpoints.contains(dst))?;
            Some(format!(
                "{} dst of '{}' {dst}: is one of SRC too, so that the engine receives what it sends; choose other addresses or ports",
                output.option(),
                output.name
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_to_which_nothing_comes_are_named() {
        let told = |sources: &str, queues: usize| {
            let input = InputConfig::Live {
                endpoints: crate::net::parse_endpoints(sources).unwrap(),
                interfaces: vec!["eth0".to_owned(); queues],
                cpus: vec![None; queues],
                buffer: 0,
            };
            input.idle_queues()
        };
        assert_eq!(told("239.1.1.1+1", 2), None);
        let text = told("239.1.1.1", 3).unwrap();
        let begins = "--recv-affinity with 3 entries: SRC has 1 destination, each";
        assert!(
            text.starts_with(begins) && text.ends_with("give 1 or fewer"),
            "{text}"
        );
    }
}
