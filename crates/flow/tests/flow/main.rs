//! Graphs from their making to their results, through the public interface alone.

mod adapters;
mod analysis;
mod asked;
mod bytes;
mod changes;
mod copies;
mod deadlocks;
mod edges;
mod ends;
mod executor;
mod files;
mod fused;
mod graphml;
mod graphs;
mod interpreter;
mod kinds;
mod laminar;
mod nodes;
mod own;
mod partitionings;
mod placement;
mod plans;
mod queues;
mod sinks;
mod tables;
mod telemetry;
