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
