//! Received chunks on their way to where the kernels read them.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use cudarc::driver::sys::{self, CUDA_MEMCPY2D, CUdeviceptr, CUmemorytype, CUstream};
use cudarc::driver::{CudaEvent, CudaSlice, DriverError};
use ground::stats::ThreadReport;
use ground::{N_POL, Timestamp};

use super::GpuError;
use super::device::address;
use super::launch::TableCopy;
use super::streams::{Stopwatch, Streams, failed};
use crate::engine::PipelineError;
use crate::memory::{ChunkLayout, DeviceSamples, FrozenChunk, MemoryKind, SampleView};

/// Copies of chunks in memory of the host: one being read, one that waits for its successor's head,
/// one being filled.
pub const COPIES: usize = 3;

/// Least time from one timed copy to the next: the copy engine loses time with each time stamp.
const TIMED_EVERY: Duration = Duration::from_millis(50);

/// The [`Intake`](crate::engine::Intake) of GPU pipelines, which share its streams.
///
/// A chunk in memory of the host is copied as soon as it comes, in one piece, because copies of
/// several engines share a copy engine, which loses time with each piece (decision 92). Its head,
/// for which its predecessor waits, is read by a kernel, from the host's memory. The chunk goes
/// back when both are done. A chunk in memory of the GPU is read where it lies, and goes back when
/// the last kernel that reads it is done. Chunks of both kinds may follow each other.
pub struct GpuIntake {
    streams: Arc<Streams>,
    layout: ChunkLayout,
    buffers: Vec<Buffer>,
    next: usize,
    /// Not released, oldest first.
    loaded: VecDeque<Loaded>,
    /// Released, or copied, oldest first.
    released: VecDeque<Released>,
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

/// A chunk that is given back once nothing reads it any more, which is after all of the events.
#[derive(Debug)]
struct Released {
    chunk: FrozenChunk,
    reads: Vec<CudaEvent>,
}

impl Released {
    fn new(chunk: FrozenChunk) -> Self {
        let reads = Vec::with_capacity(2);
        Self { chunk, reads }
    }
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
            released: VecDeque::new(),
            spare: Vec::new(),
            begun: Instant::now(),
            copying: Stopwatch::with_pauses(TIMED_EVERY),
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
            let read = self.extend(before, at, true)?;
            self.spare.push(read);
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
        // Pinned memory has the same address on the GPU.
        let from = [0, 1].map(|pol| chunk.pol(pol).as_ptr() as CUdeviceptr);
        let pinned = chunk.kind() == MemoryKind::Pinned;
        let before = self.loaded.back().filter(|_| follows);
        let before = before.map(|loaded| loaded.at);
        // Kept before the first copy is issued: whatever fails, the memory outlives the copies.
        self.released.push_back(Released::new(chunk));
        if let Some(before) = before {
            let read = self.extend(before, from, pinned)?;
            self.read_until(read);
        }
        self.copying.start(stream)?;
        // SAFETY: the chunk is frozen, and this intake's until the copy is done; the buffer has its
        // layout, and the stream has waited for all that reads it.
        unsafe { copy_rows(&layout, from, at, stream.cu_stream()) }?;
        self.copying.stop(stream)?;
        copied.record(stream)?;
        ready.record(stream)?;
        self.read_until(copied);
        self.loaded.push_back(Loaded {
            at,
            ready: Some(ready),
            place: ChunkHome::Copy(index),
        });
        Ok(())
    }

    /// The chunk that was released or copied last is read until this event too.
    fn read_until(&mut self, event: CudaEvent) {
        if let Some(released) = self.released.back_mut() {
            released.reads.push(event);
        }
    }

    /// Copies the head of a chunk, which is at `from`, behind the samples of the chunk before, on
    /// the stream that computes. By a kernel, if `reachable` says that one can read there: it need
    /// not wait for a copy engine. Returns an event behind the copy.
    fn extend(
        &mut self,
        before: [CUdeviceptr; N_POL],
        from: [CUdeviceptr; N_POL],
        reachable: bool,
    ) -> Result<CudaEvent, DriverError> {
        let event = self.event()?;
        let (layout, compute) = (self.layout, &self.streams.compute);
        let element = TableCopy::ELEMENT;
        for (from, before) in from.into_iter().zip(before) {
            let tail = before + layout.sample_bytes() as u64;
            // SAFETY: both parts lie within the strides of their polarisations, the last element
            // with padding, and their chunks are this intake's until the stream has passed the
            // copy. Nothing writes the head any more, and no kernel that is under way reads this
            // tail: none reads the tail of a chunk before its successor is loaded.
            unsafe {
                if reachable && layout.sample_bytes().is_multiple_of(element) {
                    let count = layout.tail_bytes().div_ceil(element);
                    self.streams.table_copy.launch(compute, from, tail, count)?;
                } else {
                    let stream = compute.cu_stream();
                    sys::cuMemcpyAsync(tail, from, layout.tail_bytes(), stream).result()?;
                }
            }
        }
        // It also keeps the next kernel from beginning beside the copy.
        event.record(compute)?;
        Ok(event)
    }

    fn try_release(&mut self) -> Result<(), DriverError> {
        let Some(loaded) = self.loaded.pop_front() else {
            return Ok(());
        };
        if let Some(ready) = loaded.ready {
            // Of a chunk that was not viewed: what fills it comes first.
            self.streams.compute.wait(&ready)?;
            self.spare.push(ready);
        }
        match loaded.place {
            ChunkHome::Copy(index) => self.buffers[index].read.record(&self.streams.compute),
            ChunkHome::Own(chunk) => {
                let read = self.event()?;
                let recorded = read.record(&self.streams.compute);
                self.released.push_back(Released {
                    chunk,
                    reads: vec![read],
                });
                recorded
            }
        }
    }

    fn try_poll_released(&mut self) -> Result<Option<FrozenChunk>, DriverError> {
        self.copying.read()?;
        let Some(first) = self.released.front() else {
            return Ok(None);
        };
        for event in &first.reads {
            if !event.try_is_complete()? {
                return Ok(None);
            }
        }
        Ok(self.released.pop_front().map(|released| {
            self.spare.extend(released.reads);
            released.chunk
        }))
    }
}

/// Copies the samples of both polarisations of the chunk at `from`, in memory of the host, to `at`.
///
/// # Safety
///
/// Both have `layout` and live until the stream has passed the copy; nothing else touches `at`
/// meanwhile, or writes what is copied.
unsafe fn copy_rows(
    layout: &ChunkLayout,
    from: [CUdeviceptr; N_POL],
    at: [CUdeviceptr; N_POL],
    stream: CUstream,
) -> Result<(), DriverError> {
    let copy = CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_HOST,
        srcHost: from[0] as *const c_void,
        srcDevice: 0,
        srcArray: null_mut(),
        srcPitch: layout.stride,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        dstHost: null_mut(),
        dstDevice: at[0],
        dstArray: null_mut(),
        dstPitch: layout.stride,
        WidthInBytes: layout.sample_bytes(),
        Height: N_POL,
    };
    // SAFETY: polarisations are a stride apart in both, and the caller vouches for the rest.
    unsafe { sys::cuMemcpy2DAsync_v2(&raw const copy, stream) }.result()
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
                let cause = format!("{} chunks are loaded and not released", self.loaded.len());
                let way_out = "release the oldest before another is loaded";
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
            // pipelines share, has passed all that was issued before it was released, which needs
            // this view to have ended; and it has so many bytes and the padding.
            device: Some(unsafe { DeviceSamples::new(loaded.at, bytes) }),
        }))
    }

    fn release(&mut self) -> Result<(), PipelineError> {
        self.try_release().map_err(failed("computing on the GPU"))
    }

    fn poll_released(&mut self) -> Result<Option<FrozenChunk>, PipelineError> {
        self.try_poll_released()
            .map_err(failed("copying to the GPU"))
    }

    fn busy(&self) -> Option<(String, Arc<AtomicU64>)> {
        (!self.buffers.is_empty()).then(|| ("gpu-in".to_owned(), self.copying.busy().clone()))
    }

    fn thread_reports(&self) -> Vec<ThreadReport> {
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
