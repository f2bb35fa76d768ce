//! Nodes that work on the bytes of their samples.

use super::lane::{Slot, first_byte};
use super::layout::{PartitionLayout, PartitionNode};
use crate::kernels::View;
use crate::kernels::lane::Lane;
use crate::node::ByteStep;

/// One such node.
pub(super) struct Bytewise {
    step: Box<dyn ByteStep>,
    from: Vec<From>,
    to: Vec<View>,
    /// Samples of a step.
    count: usize,
}

/// Where an input comes from.
enum From {
    Constant(Vec<u8>),
    Lane(View),
}

/// Where sample `at` of a run lies in its lane.
fn place(view: View, at: usize) -> std::ops::Range<usize> {
    let bytes = view.len * view.scalar.bytes();
    let from = first_byte(view) + at * bytes;
    from..from + bytes
}

impl Bytewise {
    /// The node of a unit, if it is one and alone.
    pub fn new(
        partition: &PartitionLayout,
        members: &[usize],
        slots: &[Slot],
        count: usize,
    ) -> Option<Bytewise> {
        let [member] = members else {
            return None;
        };
        let item: &PartitionNode = partition.items[*member].as_ref()?;
        let shapes = || {
            item.from
                .iter()
                .chain(&item.to)
                .map(|&at| &partition.shapes[at])
        };
        let plain = item.enables.is_empty() && item.node.direct();
        let changes = shapes().any(|shape| shape.parameter.is_some());
        let alike = |&at: &usize| {
            let shape = &partition.shapes[at];
            shape.constant.is_some() || shape.period == item.period
        };
        let real = shapes().all(|shape| !shape.kind.complex);
        if !plain || changes || !real || !item.from.iter().all(alike) {
            return None;
        }
        let step = item.node.start_bytes(&item.inputs, &item.outputs)?;
        let from = |&at: &usize| match &partition.shapes[at].constant {
            None => From::Lane(slots[at].re),
            Some(value) => {
                let mut bytes = Vec::new();
                value.write(&mut bytes);
                From::Constant(bytes)
            }
        };
        Some(Bytewise {
            step,
            from: item.from.iter().map(from).collect(),
            to: item.to.iter().map(|&at| slots[at].re).collect(),
            count,
        })
    }

    /// Computes the samples of a step.
    pub fn run(&mut self, lanes: &mut [Lane]) {
        // The lanes of outputs are lent out, so that those of inputs can be read beside them.
        let mut made: Vec<Lane> = self
            .to
            .iter()
            .map(|view| std::mem::take(&mut lanes[view.lane]))
            .collect();
        for at in 0..self.count {
            let inputs: Vec<&[u8]> = self
                .from
                .iter()
                .map(|from| match from {
                    From::Constant(bytes) => bytes.as_slice(),
                    From::Lane(view) => &lanes[view.lane].bytes()[place(*view, at)],
                })
                .collect();
            let lanes = made.iter_mut().zip(&self.to);
            let mut outputs: Vec<&mut [u8]> = lanes
                .map(|(lane, view)| &mut lane.bytes_mut()[place(*view, at)])
                .collect();
            self.step.compute(&inputs, &mut outputs);
        }
        for (lane, view) in made.into_iter().zip(&self.to) {
            lanes[view.lane] = lane;
        }
    }
}
