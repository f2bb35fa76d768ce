//! Which node runs on which core, and how long the blocks between them are: found from what nodes
//! cost and how far apart the cores are.
//!
//! A placement is judged by its *period*: the time of each tick that no run can beat, by the
//! maximum cycle ratio over cores and queues (docs/decisions, 48). A few items are placed by branch
//! and bound, with proof; more of them by clusters and annealing, the same way for the same seed.
//!
//! ```
//! use karoo_flow::place::{Cores, Costs, Wishes, plan};
//! use karoo_flow::{Builder, Executor, Type};
//!
//! let g = Builder::new("two filters");
//! let x = g.input("x", Type::F32);
//! let y = x.fir([0.1; 200]).fir([0.2; 200]);
//! g.output("y", y);
//! let graph = g.build().unwrap();
//!
//! // `measure` in place of `guessed` lets the graph run for a moment.
//! let costs = Costs::guessed(&graph);
//! let cores = Cores::alike(vec![0, 1], 50.0, 10.0);
//! let plan = plan(&graph, &costs, &cores, &Wishes::default()).unwrap();
//! // One filter on each core.
//! assert_eq!(plan.partitions.len(), 2);
//! assert!(plan.proved);
//! // The executor takes it as it is; here without the CPUs.
//! let mut settings = plan.settings(&graph).unwrap();
//! settings.cpus.clear();
//! assert!(Executor::new(&graph, settings).is_ok());
//! ```
//!
//! # Files
//!
//! In the order from measuring to a plan:
//!
//! | file | what it does |
//! |---|---|
//! | `costs`, `measure` | what nodes cost, by a short run on one core |
//! | `ends` | both ends of a queue, as an executor uses them |
//! | `transfers` | what a block takes from one core to another, and the fastest way for its size |
//! | `cores`, `pace` | the CPUs, how far apart they are, and how fast when all of them compute |
//! | `wishes` | what is wanted of a plan |
//! | `model`, `pins` | what is to be placed: items with costs, signals, and items bound to a core |
//! | `evaluate` | how fast a placement can be with blocks of one size |
//! | `search`, `exact` | a good placement, and the best one of a few items |
//! | `placement` | the best that these find, over block sizes |
//! | `blocks`, `round` | the exact period with a block size for each queue |
//! | `longest` | how long a block may be |
//! | `free` | which cores stay free, for the outside and for copies of partitions |
//! | `limit`, `still` | what sets the rate, or why a placement would stand still |
//! | `plan` | all of that, to a plan |
//! | `edited`, `expected` | whether a given plan fits a graph, and how fast it is to be |
//! | `network` | a plan as an executor has it, for the analysis |
//! | `show` | a plan as text and as pictures |

mod blocks;
mod cores;
mod costs;
mod edited;
mod ends;
mod evaluate;
mod exact;
mod expected;
mod free;
mod limit;
mod longest;
mod measure;
mod model;
mod network;
mod pace;
mod pins;
mod placement;
mod plan;
mod round;
mod search;
mod show;
mod still;
mod transfers;
mod wishes;

pub use cores::Cores;
pub use costs::{Cost, Costs, Pass, fingerprint};
pub use ends::{BlockReader, BlockWriter, block_ends};
pub use longest::longest_block;
pub use measure::{Calibration, measure, rate_on_noise, run_on_noise};
pub use model::{Grouping, QueueCosts};
pub use network::network;
pub use pace::{ALIKE, measure_paces};
pub use plan::{Partition, Plan, PlanError, Queue, SCHEMA, VERSION, plan};
pub use show::rate_in_words;
pub use transfers::{TransferCost, fastest, measure_transfers};
pub use wishes::Wishes;

#[cfg(test)]
mod tests;
