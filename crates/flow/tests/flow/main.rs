//! Graphs from their making to their results, through the public interface alone.

mod analysis;
mod files;
mod graphs;
mod interpreter;
mod nodes;
mod queues;
