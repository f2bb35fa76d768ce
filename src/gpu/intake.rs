//! Received chunks on their way to where the kernels read them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaEvent, CudaSlice, DriverError, result};
use ground::stats::ThreadReport;
use ground::{N_POL, Timestamp};

use super::GpuError;
use super::streams::{Stopwatch, Streams, failed};
use super::variant::address;
use crate::engine::PipelineError;
use crate::memory::{ChunkLayout, DeviceSamples, FrozenChunk, MemoryKind, SampleView};

/// Copies of chunks in memory of the host: one being read, one that waits for its successor's head,
/// one being filled.
pub const COPIES: usize = 3;

/// The [`Intake`](crate::engine::Intake) of GPU pipelines, which share its streams.
///
/// A chunk in memory of the host is copied as soon as it comes, its head first, because its
/// predecessor waits for that, and goes back when the copy is done. A chunk in memory of the GPU is
/// read where it lies, and goes back when the last kernel that reads it is done. Chunks of both
/// kinds may follow each other.
pub struct GpuIntake {
    streams: Arc<Streams>,
    layout: ChunkLayout,
    buffers: Vec<Buffer>,
    next: usize,
    /// Not retired, oldest first.
    loaded: VecDeque<Loaded>,
    /// Still read, until the event.
    leaving: VecDeque<(CudaEvent, FrozenChunk)>,
    spare: Vec<CudaEvent>,
    begun: Instant,
    copying: Stopwatch,
}

/// Room for the copy of a chunk.
#[derive(Debug)]
struct Buffer {
    memory: CudaSlice<u8>,
    /// After the last kernel that reads it.
    read: CudaEvent,
}

/// A chunk that pipelines may read.
#[derive(Debug)]
struct Loaded {
    /// Per polarisation.
    at: [CUdeviceptr; N_POL],
    /// What the compute stream has to wait for.
    ready: Option<CudaEvent>,
    place: ChunkHome,
}

#[derive(Debug)]
enum ChunkHome {
    Copy(usize),
    Own(FrozenChunk),
}

impl GpuIntake {
    /// An intake for chunks of `layout` in memory of `kind`.
    pub fn new(
        streams: Arc<Streams>,
        layout: &ChunkLayout,
        kind: MemoryKind,
    ) -> Result<Self, GpuError> {
        let count = match kind {
            MemoryKind::Bar => 0,
            MemoryKind::Host | MemoryKind::Pinned | MemoryKind::Mixed => COPIES,
        };
        let gpu = streams.gpu();
        let option = "--recv-chunk-samples";
        gpu.check_room("copies of receive chunks", count * layout.bytes(), option)?;
        let buffer = |_| -> Result<Buffer, GpuError> {
            let read = streams.event().map_err(|source| GpuError::Driver {
                what: "make an event",
                source,
            })?;
            let memory = gpu.zeros("copies of receive chunks", layout.bytes())?;
            Ok(Buffer { memory, read })
        };
        Ok(Self {
            buffers: (0..count).map(buffer).collect::<Result<_, _>>()?,
            streams,
            layout: *layout,
            next: 0,
            loaded: VecDeque::new(),
            leaving: VecDeque::new(),
            spare: Vec::new(),
            begun: Instant::now(),
            copying: Stopwatch::default(),
        })
    }

    fn event(&mut self) -> Result<CudaEvent, DriverError> {
        self.spare.pop().map_or_else(|| self.streams.event(), Ok)
    }

    /// Lets the kernels read the chunk where it lies.
    fn adopt(
        &mut self,
        chunk: FrozenChunk,
        at: [CUdeviceptr; N_POL],
        follows: bool,
    ) -> Result<(), DriverError> {
        let layout = *chunk.layout();
        // The engine's thread may not have used the GPU yet.
        self.streams.gpu().context.bind_to_thread()?;
        let before = self
            .loaded
            .back()
            .filter(|_| follows)
            .map(|loaded| loaded.at);
        self.loaded.push_back(Loaded {
            at,
            ready: None,
            place: ChunkHome::Own(chunk),
        });
        if let Some(before) = before {
            // SAFETY: both chunks are this intake's until the compute stream has passed all work on
            // them.
            unsafe { copy_tail(&layout, before, at, self.streams.compute.cu_stream()) }?;
        }
        Ok(())
    }

    /// Starts to copy the chunk.
    fn copy(&mut self, chunk: FrozenChunk, follows: bool) -> Result<(), DriverError> {
        let layout = *chunk.layout();
        let (copied, ready) = (self.event()?, self.event()?);
        let (index, streams) = (self.next, self.streams.clone());
        self.next = (index + 1) % COPIES;
        let stream = &streams.copy_in;
        let buffer = &self.buffers[index];
        stream.wait(&buffer.read)?;
        let at = [0, 1].map(|pol| address(&buffer.memory) + (pol * layout.stride) as u64);
        // Kept before the first copy is issued: whatever fails, the memory outlives the copies.
        self.leaving.push_back((copied, chunk));
        let Some((copied, chunk)) = self.leaving.back() else {
            return Ok(());
        };
        let part = |from: usize, to: usize| -> Result<(), DriverError> {
            for (pol, at) in at.into_iter().enumerate() {
                let source = &chunk.pol(pol)[from..to];
                // SAFETY: the chunk is frozen, and this intake's until the copy is done; the buffer
                // has its layout, and the stream has waited for all that reads it.
                unsafe { result::memcpy_htod_async(at + from as u64, source, stream.cu_stream()) }?;
            }
            Ok(())
        };
        self.copying.start(stream)?;
        let head = layout.tail_bytes().min(layout.sample_bytes());
        part(0, head)?;
        if let Some(before) = self.loaded.back_mut().filter(|_| follows) {
            // SAFETY: no kernel reads the tail of a chunk before its successor is loaded, and the
            // head is there by order.
            unsafe { copy_tail(&layout, before.at, at, stream.cu_stream()) }?;
            // Later on the same stream than what it may stand for already.
            let spare = &mut self.spare;
            let ready = before.ready.take().or_else(|| spare.pop());
            let ready = ready.map_or_else(|| streams.event(), Ok)?;
            ready.record(stream)?;
            before.ready = Some(ready);
        }
        part(head, layout.sample_bytes())?;
        self.copying.stop(stream)?;
        copied.record(stream)?;
        ready.record(stream)?;
        self.loaded.push_back(Loaded {
            at,
            ready: Some(ready),
            place: ChunkHome::Copy(index),
        });
        Ok(())
    }

    fn try_retire(&mut self) -> Result<(), DriverError> {
        let Some(loaded) = self.loaded.pop_front() else {
            return Ok(());
        };
        if let Some(ready) = loaded.ready {
            // Of a chunk that was not viewed: what fills it, or its tail, comes first.
            self.streams.compute.wait(&ready)?;
            self.spare.push(ready);
        }
        match loaded.place {
            ChunkHome::Copy(index) => self.buffers[index].read.record(&self.streams.compute),
            ChunkHome::Own(chunk) => {
                let read = self.event()?;
                let recorded = read.record(&self.streams.compute);
                self.leaving.push_back((read, chunk));
                recorded
            }
        }
    }

    fn try_reclaim(&mut self) -> Result<Option<FrozenChunk>, DriverError> {
        self.copying.read()?;
        match self.leaving.front() {
            Some((event, _)) if event.try_is_complete()? => {}
            _ => return Ok(None),
        }
        Ok(self.leaving.pop_front().map(|(event, chunk)| {
            self.spare.push(event);
            chunk
        }))
    }
}

/// Copies the head of the chunk at `next` behind the samples of the one at `chunk`, on the GPU.
///
/// # Safety
///
/// Both have `layout` and live until the stream has passed the copy; nothing else touches these
/// parts meanwhile.
unsafe fn copy_tail(
    layout: &ChunkLayout,
    chunk: [CUdeviceptr; N_POL],
    next: [CUdeviceptr; N_POL],
    stream: cudarc::driver::sys::CUstream,
) -> Result<(), DriverError> {
    for (chunk, next) in chunk.into_iter().zip(next) {
        let tail = chunk + layout.sample_bytes() as u64;
        // SAFETY: the tail lies inside the chunk's stride, and the caller vouches for the rest.
        unsafe { result::memcpy_dtod_async(tail, next, layout.tail_bytes(), stream) }?;
    }
    Ok(())
}

impl crate::engine::Intake for GpuIntake {
    fn load(&mut self, chunk: FrozenChunk, follows: bool) -> Result<(), PipelineError> {
        if *chunk.layout() != self.layout {
            let way_out = "load chunks of the layout that the intake was made for";
            let cause = format!("a chunk has {:?}", chunk.layout());
            return Err(PipelineError::new("copying to the GPU", cause, way_out));
        }
        let at = chunk.device_address(0).zip(chunk.device_address(1));
        match at {
            Some((pol0, pol1)) => self.adopt(chunk, [pol0, pol1], follows),
            None if self.loaded.len() < self.buffers.len() => self.copy(chunk, follows),
            None => {
                let cause = format!("{} chunks are loaded and not retired", self.loaded.len());
                let way_out = "retire a chunk before the next but one is loaded";
                return Err(PipelineError::new("copying to the GPU", cause, way_out));
            }
        }
        .map_err(failed("copying to the GPU"))
    }

    fn view(
        &mut self,
        start: Timestamp,
        samples: usize,
    ) -> Result<Option<SampleView<'_>>, PipelineError> {
        let Some(loaded) = self.loaded.front_mut() else {
            return Ok(None);
        };
        let most = self.layout.samples + self.layout.tail_samples;
        if samples > most {
            let cause = format!("{samples} samples of {most} are wanted");
            let way_out = "view no more than a chunk and its tail";
            return Err(PipelineError::new("reading a chunk", cause, way_out));
        }
        if let Some(ready) = loaded.ready.take() {
            let waiting = self.streams.compute.wait(&ready);
            waiting.map_err(failed("copying to the GPU"))?;
            self.spare.push(ready);
        }
        let bytes = self.layout.sample_bytes() + self.layout.tail_bytes();
        Ok(Some(SampleView {
            start,
            samples,
            pol: [&[]; N_POL],
            // SAFETY: the chunk, or its copy, is this intake's until the compute stream, which
            // pipelines share, has passed all that was issued before it was retired, which needs
            // this view to have ended; and it has so many bytes and the padding.
            device: Some(unsafe { DeviceSamples::new(loaded.at, bytes) }),
        }))
    }

    fn release(&mut self) -> Result<(), PipelineError> {
        self.try_retire().map_err(failed("computing on the GPU"))
    }

    fn poll_released(&mut self) -> Result<Option<FrozenChunk>, PipelineError> {
        self.try_reclaim().map_err(failed("copying to the GPU"))
    }

    fn busy(&self) -> Option<(String, Arc<AtomicU64>)> {
        (!self.buffers.is_empty()).then(|| ("gpu-in".to_owned(), self.copying.busy().clone()))
    }

    fn lcores(&self) -> Vec<ThreadReport> {
        if self.buffers.is_empty() {
            return Vec::new();
        }
        vec![self.copying.report("gpu-in", "copy", self.begun)]
    }
}

impl Drop for GpuIntake {
    fn drop(&mut self) {
        self.streams.settle();
    }
}
