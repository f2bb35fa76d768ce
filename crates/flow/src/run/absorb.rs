//! Delays beside a queue become what the queue holds at the start.
//!
//! A delay whose output nothing but the queue reads goes behind what the queue holds. Delays that
//! are all that reads the queue give the end that their initial samples have in common, in front.
//! Whole blocks stay in the queue, at most one less than it has room for, and as many for each of
//! its signals; the rest goes back into a delay in front of the queue.

use std::sync::Arc;

use super::lane::SignalShape;
use super::layout::{Crossing, Edge, Layout, PartitionLayout, PartitionNode, Turn, is_outside};
use crate::literal::{Literals, MAX_LITERALS};
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

/// Whether so many more samples may be absorbed: what a queue does not keep has to fit a delay.
fn fits(layout: &Layout, edge: usize, crossing: usize, more: usize) -> bool {
    let crossing = &layout.edges[edge].crossings[crossing];
    let len = layout.partitions[layout.edges[edge].to].shapes[crossing.to]
        .kind
        .len;
    let samples = crossing.initial.len().saturating_add(more);
    samples.saturating_mul(len) <= MAX_LITERALS
}

/// What a delay puts out before its first input.
fn initials(item: &PartitionNode) -> Option<Vec<Value>> {
    let (length, kind) = (item.plain_delay(), *item.outputs.first()?);
    if length == 0 || length.saturating_mul(kind.len) > MAX_LITERALS {
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
    Some((0..length).map(next).collect())
}

/// A delay in place of another with these samples in it.
fn delay(
    path: &str,
    initial: &[Value],
    from: usize,
    to: usize,
    period: u64,
) -> Option<PartitionNode> {
    let kind = initial.first()?.kind();
    let parts = initial
        .iter()
        .flat_map(|value| (0..kind.len).map(|index| value.element(index)));
    let node = Delay {
        length: initial.len(),
        initial: Literals::new(parts.collect())?,
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
    if !fits(layout, edge, crossing, more.len()) {
        return false;
    }
    layout.partitions[from].items[index] = None;
    let crossing = &mut layout.edges[edge].crossings[crossing];
    crossing.initial.extend(more);
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
    let common = (0..)
        .take_while(|&back| {
            let at = |initial: &Vec<Value>| {
                let at = initial.len().checked_sub(back + 1)?;
                Some(bytes(&initial[at]))
            };
            let first = at(&all[0]);
            first.is_some() && all.iter().all(|initial| at(initial) == first)
        })
        .count();
    if common == 0 || !fits(layout, edge, crossing, common) {
        return false;
    }
    let split = all[0].len() - common;
    let mut initial = all[0][split..].to_vec();
    let crossing = &mut layout.edges[edge].crossings[crossing];
    initial.append(&mut crossing.initial);
    crossing.initial = initial;
    for (index, initial) in found.into_iter().zip(all) {
        shorten(layout, to, index, &initial[..initial.len() - common]);
    }
    true
}

fn bytes(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.write(&mut bytes);
    bytes
}

/// Puts a shorter delay in place of one, or passes on what it reads where nothing is left.
fn shorten(layout: &mut Layout, partition: usize, index: usize, initial: &[Value]) {
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
    let shape = partition.shapes[*source].clone();
    let to = partition.shapes.len();
    let Some(item) = delay("queue", &rest, *source, to, shape.period) else {
        return;
    };
    *source = to;
    partition.shapes.push(SignalShape {
        rest: Value::zero(shape.kind),
        ..shape
    });
    partition.items.push(Some(item));
}
