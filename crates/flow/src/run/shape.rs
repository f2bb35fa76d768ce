//! What an executor made of a graph: which nodes run where, with which steps and queues.

use super::Executor;
use super::code::PartitionCode;
use super::layout::{PartitionLayout, is_outside};
use super::settings::Transfer;
use crate::kernels::Level;

/// The partitions and queues of an [`Executor`].
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// The inputs, the outputs, then the others; as in
    /// [`Telemetry::partitions`](super::Telemetry::partitions).
    pub partitions: Vec<PartitionShape>,
    /// As in [`Telemetry::queues`](super::Telemetry::queues).
    pub queues: Vec<QueueShape>,
}

/// One partition of a [`Shape`].
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionShape {
    /// Name of the partition.
    pub name: String,
    /// Its number; none for inputs and outputs.
    pub id: Option<u32>,
    /// Ticks that are worked on at once.
    pub step: u64,
    /// The paths of the nodes that run together.
    pub units: Vec<Vec<String>>,
}

/// One queue of a [`Shape`].
#[derive(Clone, Debug, PartialEq)]
pub struct QueueShape {
    /// The partition that writes, as an index of [`Shape::partitions`].
    pub from: usize,
    /// The partition that reads.
    pub to: usize,
    /// Signals that cross by it.
    pub signals: usize,
    /// Ticks in a block.
    pub block: u64,
    /// Blocks that it holds.
    pub capacity: usize,
    /// Blocks at the start.
    pub initial: usize,
    /// How blocks pass.
    pub transfer: Transfer,
    /// Bytes of a block.
    pub bytes: usize,
}

impl Executor {
    /// What was made of the graph.
    pub fn shape(&self) -> Shape {
        let path = |partition: &PartitionLayout, item: usize| {
            let item = partition.items[item].as_ref();
            item.map_or(String::new(), |item| item.path.clone())
        };
        let level = self.settings.level.unwrap_or_else(Level::detect);
        let units = |partition: &PartitionLayout| {
            let code = PartitionCode::new(partition, level, false);
            code.units
                .iter()
                .map(|unit| {
                    unit.items
                        .iter()
                        .map(|&item| path(partition, item))
                        .collect()
                })
                .collect()
        };
        let partitions = self.layout.partitions.iter().enumerate();
        let edges = self.layout.edges.iter();
        Shape {
            partitions: partitions
                .map(|(index, partition)| PartitionShape {
                    name: partition.name(index),
                    id: (!is_outside(index)).then_some(partition.id),
                    step: partition.step,
                    units: units(partition),
                })
                .collect(),
            queues: edges
                .map(|edge| QueueShape {
                    from: edge.from,
                    to: edge.to,
                    signals: edge.crossings.len(),
                    block: edge.block,
                    capacity: edge.capacity,
                    initial: edge.initial,
                    transfer: edge.transfer,
                    bytes: super::link::block_bytes(&self.layout, edge),
                })
                .collect(),
        }
    }
}
