//! Graphs from their making to their results, through the public interface alone.

mod analysis;
mod executor;
mod files;
mod graphs;
mod interpreter;
mod nodes;
mod partitionings;
mod queues;
