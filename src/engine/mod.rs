//! Input and output pipelines: cadence, delays applied to blocks, presence to batches.

mod backend;

pub use backend::{BatchStats, Block, FineDelay, InputView, OutputSpan, Pipeline};
