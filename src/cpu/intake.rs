//! Received chunks, which CPU pipelines read where they lie.

use std::collections::VecDeque;

use ground::Timestamp;

use crate::engine::PipelineError;
use crate::memory::{FrozenChunk, SampleView};

/// The [`Intake`](crate::engine::Intake) of CPU pipelines.
#[derive(Debug, Default)]
pub struct CpuIntake {
    chunks: VecDeque<FrozenChunk>,
    released: VecDeque<FrozenChunk>,
}

impl crate::engine::Intake for CpuIntake {
    fn load(&mut self, chunk: FrozenChunk, follows: bool) -> Result<(), PipelineError> {
        if let Some(before) = self.chunks.back_mut().filter(|_| follows) {
            before.copy_tail(&chunk);
        }
        self.chunks.push_back(chunk);
        Ok(())
    }

    fn view(
        &mut self,
        start: Timestamp,
        samples: usize,
    ) -> Result<Option<SampleView<'_>>, PipelineError> {
        let chunk = self.chunks.front();
        Ok(chunk.map(|chunk| chunk.view(start, samples)))
    }

    fn release(&mut self) -> Result<(), PipelineError> {
        self.released.extend(self.chunks.pop_front());
        Ok(())
    }

    fn poll_released(&mut self) -> Result<Option<FrozenChunk>, PipelineError> {
        Ok(self.released.pop_front())
    }
}
