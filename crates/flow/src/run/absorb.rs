//! Delays beside a queue become what the queue holds at the start.
//!
//! A delay whose output nothing but the queue reads goes behind what the queue holds. Delays that
//! are all that reads the queue give the end that their initial samples have in common, in front.
//! Whole blocks stay in the queue, at most one less than it has room for, and as many for each of
//! its signals; the rest goes back into a delay in front of the queue.

use std::any::Any;
use std::sync::Arc;

use super::initial::InitialSamples;
use super::lane::SignalShape;
use super::layout::{Crossing, Edge, Layout, PartitionLayout, PartitionNode, Turn, is_outside};
use crate::literal::MAX_LITERALS;
use crate::nodes::Delay;
use crate::value::Value;

/// Absorbs what can be, for all queues between partitions.
pub(super) fn absorb(layout: &mut Layout) {
    for edge in 0..layout.edges.len() {
        let Edge {
            from,
            to,
            writes,
            reads,
            ..
        } = layout.edges[edge];
        let outer = is_outside(from) || is_outside(to);
        if outer || writes != Turn::EVERY || reads != Turn::EVERY {
            continue;
        }
        for crossing in 0..layout.edges[edge].crossings.len() {
            // Each turn takes one delay at least, and none is taken twice.
            while before(layout, edge, crossing) || behind(layout, edge, crossing) {}
        }
        let most = layout.edges[edge].capacity.saturating_sub(1);
        let blocks = |crossing: &Crossing| crossing.initial.len() / samples(layout, edge, crossing);
        let kept = layout.edges[edge].crossings.iter().map(blocks).min();
        let kept = kept.unwrap_or(0).min(most);
        layout.edges[edge].initial = kept;
        for crossing in 0..layout.edges[edge].crossings.len() {
            give_back(layout, edge, crossing, kept);
        }
    }
}

/// Samples of a crossing in one block.
fn samples(layout: &Layout, edge: usize, crossing: &Crossing) -> usize {
    let edge = &layout.edges[edge];
    layout.partitions[edge.to].shapes[crossing.to].samples(edge.block)
}

/// Whether another sample may still be absorbed.
fn has_room(layout: &Layout, edge: usize, crossing: usize) -> bool {
    let queue = &layout.edges[edge];
    let crossing = &queue.crossings[crossing];
    let most = samples(layout, edge, crossing).saturating_mul(queue.capacity.saturating_sub(1));
    crossing.initial.len() < most
}

/// What a delay puts out before its first input.
fn initials(item: &PartitionNode) -> Option<InitialSamples> {
    let (length, kind) = (item.plain_delay(), *item.outputs.first()?);
    let node: &dyn Any = item.node.as_ref();
    if length == 0 {
        return None;
    }
    let alike = node
        .downcast_ref()
        .and_then(|delay: &Delay| delay.alike(kind));
    if let Some(value) = alike {
        return Some(InitialSamples::alike(value, length));
    }
    if length.saturating_mul(kind.len) > MAX_LITERALS {
        return None;
    }
    let mut step = item.node.start(&item.inputs, &item.outputs);
    let mut outputs = item.node.rest(&item.outputs);
    let nothing = [Value::zero(item.inputs[0])];
    let next = |_| {
        step.compute(&[], &mut outputs);
        step.update(&nothing);
        outputs[0].clone()
    };
    Some(InitialSamples::each((0..length).map(next)))
}

/// A delay in place of another with these samples in it.
fn delay(
    path: &str,
    initial: &InitialSamples,
    from: usize,
    to: usize,
    period: u64,
) -> Option<PartitionNode> {
    let kind = initial.iter().next()?.kind();
    let node = Delay {
        length: initial.len(),
        initial: initial.literals()?,
        of: Some(kind),
    };
    Some(PartitionNode {
        path: path.into(),
        node: Arc::new(node),
        from: vec![from],
        to: vec![to],
        inputs: vec![kind],
        outputs: vec![kind],
        period,
        parameter: None,
        enables: vec![],
    })
}

/// The items that read a signal, also as an enable signal.
fn readers(partition: &PartitionLayout, signal: usize) -> Vec<usize> {
    let reads =
        |item: &PartitionNode| item.from.contains(&signal) || item.enables.contains(&signal);
    let items = partition.items.iter().enumerate();
    items
        .filter(|(_, item)| item.as_ref().is_some_and(reads))
        .map(|(index, _)| index)
        .collect()
}

/// The crossings that a signal of a partition leaves it by.
fn leaves(layout: &Layout, partition: usize, signal: usize) -> usize {
    let edges = layout.edges.iter().filter(|edge| edge.from == partition);
    edges
        .flat_map(|edge| &edge.crossings)
        .filter(|crossing| crossing.from == signal)
        .count()
}

/// Absorbs a delay in front of the queue.
fn before(layout: &mut Layout, edge: usize, crossing: usize) -> bool {
    let from = layout.edges[edge].from;
    let signal = layout.edges[edge].crossings[crossing].from;
    let partition = &layout.partitions[from];
    let alone = readers(partition, signal).is_empty() && leaves(layout, from, signal) == 1;
    if !alone || !has_room(layout, edge, crossing) {
        return false;
    }
    let makes =
        |item: &Option<PartitionNode>| item.as_ref().is_some_and(|item| item.to == [signal]);
    let Some(index) = partition.items.iter().position(makes) else {
        return false;
    };
    let Some(item) = &partition.items[index] else {
        return false;
    };
    let source = item.from.first().copied();
    let source = source.filter(|&source| partition.shapes[source].constant.is_none());
    let (Some(source), Some(more)) = (source, initials(item)) else {
        return false;
    };
    layout.partitions[from].items[index] = None;
    let crossing = &mut layout.edges[edge].crossings[crossing];
    crossing.initial.append(more);
    crossing.from = source;
    true
}

/// Absorbs what the delays behind the queue have in common.
fn behind(layout: &mut Layout, edge: usize, crossing: usize) -> bool {
    let to = layout.edges[edge].to;
    let signal = layout.edges[edge].crossings[crossing].to;
    let partition = &layout.partitions[to];
    let found = readers(partition, signal);
    if found.is_empty() || leaves(layout, to, signal) > 0 || !has_room(layout, edge, crossing) {
        return false;
    }
    let mut all = Vec::new();
    for &index in &found {
        let initial = partition.items[index].as_ref().and_then(initials);
        let Some(initial) = initial else {
            return false;
        };
        all.push(initial);
    }
    let common = InitialSamples::common_end(&all);
    if common == 0 {
        return false;
    }
    let mut end = InitialSamples::default();
    for (index, mut initial) in found.into_iter().zip(all) {
        end = initial.split_off(initial.len() - common);
        shorten(layout, to, index, &initial);
    }
    let crossing = &mut layout.edges[edge].crossings[crossing];
    end.append(std::mem::take(&mut crossing.initial));
    crossing.initial = end;
    true
}

/// Puts a shorter delay in place of one, or passes on what it reads where nothing is left.
fn shorten(layout: &mut Layout, partition: usize, index: usize, initial: &InitialSamples) {
    let Some(item) = layout.partitions[partition].items[index].take() else {
        return;
    };
    let (from, to) = (item.from[0], item.to[0]);
    if let Some(shorter) = delay(&item.path, initial, from, to, item.period) {
        layout.partitions[partition].items[index] = Some(shorter);
        return;
    }
    let rename = |signal: &mut usize| {
        if *signal == to {
            *signal = from;
        }
    };
    for item in layout.partitions[partition].items.iter_mut().flatten() {
        item.from.iter_mut().for_each(rename);
        item.enables.iter_mut().for_each(rename);
    }
    for edge in layout
        .edges
        .iter_mut()
        .filter(|edge| edge.from == partition)
    {
        edge.crossings
            .iter_mut()
            .for_each(|crossing| rename(&mut crossing.from));
    }
}

/// Puts what the queue does not keep into a delay in front of it.
fn give_back(layout: &mut Layout, edge: usize, crossing: usize, blocks: usize) {
    let from = layout.edges[edge].from;
    let each = samples(layout, edge, &layout.edges[edge].crossings[crossing]);
    let Crossing {
        from: source,
        initial,
        ..
    } = &mut layout.edges[edge].crossings[crossing];
    let rest = initial.split_off(blocks * each);
    let partition = &mut layout.partitions[from];
    // What comes out last is nearest to what the delays read.
    for part in rest.parts().iter().rev() {
        let shape = partition.shapes[*source].clone();
        let to = partition.shapes.len();
        let Some(item) = delay("queue", part, *source, to, shape.period) else {
            return;
        };
        *source = to;
        partition.shapes.push(SignalShape {
            rest: Value::zero(shape.kind),
            ..shape
        });
        partition.items.push(Some(item));
    }
}
