//! Receiving into GPU memory (`nic`): a NIC writes payloads into packet buffers in the GPU's
//! memory, and the GPU moves them to their places in the chunk.
//!
//! Not run with a NIC so far: docs/memory.md says what that needs.

use std::sync::Arc;

use cudarc::driver::sys::{CUdeviceptr, CUevent_flags, CUpointer_attribute};
use cudarc::driver::{
    CudaContext, CudaEvent, CudaFunction, CudaStream, DeviceRepr, DriverError, LaunchConfig,
    PinnedHostSlice, PushKernelArg, ValidAsZeroBits, result, sys,
};
use dpdk::{BURST, DmaMemory, SplitBatch};

use super::compile::GATHER;
use super::{Gpu, GpuError, streams};
use crate::memory::{HeapSlot, publish};

/// Memory of the GPU for packets' payloads, to make a [`PayloadPool`](dpdk::PayloadPool) of.
#[derive(Debug)]
pub struct GpuPackets {
    context: Arc<CudaContext>,
    allocation: CUdeviceptr,
    /// On a page inside the allocation.
    start: u64,
    bytes: usize,
}

impl GpuPackets {
    /// Pages of a GPU as others on the bus see them.
    const PAGE: usize = 1 << 16;

    /// Room for `bytes`, rounded up to whole pages.
    pub fn new(gpu: &Gpu, bytes: usize) -> Result<Self, GpuError> {
        let bytes = bytes.max(1).saturating_add(Self::PAGE - 1) / Self::PAGE * Self::PAGE;
        let context = gpu.context.clone();
        let failed = |source| GpuError::Memory {
            what: "packets",
            bytes,
            kind: "GPU",
            source,
        };
        context.bind_to_thread().map_err(failed)?;
        // SAFETY: the context is current on this thread.
        let allocation = unsafe { result::malloc_sync(bytes.saturating_add(Self::PAGE)) };
        let allocation = allocation.map_err(failed)?;
        let packets = Self {
            context,
            allocation,
            start: allocation.next_multiple_of(Self::PAGE as u64),
            bytes,
        };
        // What a NIC has written must be there before a copy or kernel that is issued later.
        let mut synchronous = 1u32;
        let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
        // SAFETY: the attribute's value is an unsigned int, and the allocation is there.
        unsafe { sys::cuPointerSetAttribute((&raw mut synchronous).cast(), attribute, allocation) }
            .result()
            .map_err(failed)?;
        Ok(packets)
    }
}

impl Drop for GpuPackets {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`; freeing waits for work that is under way. An error leaves
        // nothing to be done.
        unsafe {
            let _ = self.context.bind_to_thread();
            let _ = result::free_sync(self.allocation);
        }
    }
}

// SAFETY: an allocation of the GPU that this value owns alone; the CPU cannot reach it at all.
unsafe impl DmaMemory for GpuPackets {
    fn address(&self) -> u64 {
        self.start
    }

    fn len(&self) -> usize {
        self.bytes
    }

    fn page(&self) -> usize {
        Self::PAGE
    }
}

/// `Move` of gather.cu.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Move {
    from: u64,
    to: u64,
}

// SAFETY: the same two integers as in gather.cu.
unsafe impl DeviceRepr for Move {}
// SAFETY: zero bits are two zeros.
unsafe impl ValidAsZeroBits for Move {}

/// Why a packet's payload cannot be moved to a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GatherError {
    /// There is no slot for the packet, or the slot is not in the GPU's memory.
    #[error("the chunk is not in the GPU's memory: receive into memory of the kind nic")]
    NotInGpu,
    /// The payload is not one heap.
    #[error(
        "a payload of {payload} bytes is not a heap of {heap}: split packets behind their SPEAD items"
    )]
    Length {
        /// Bytes of the payload.
        payload: usize,
        /// Bytes of a heap.
        heap: usize,
    },
    /// The GPU failed.
    #[error("CUDA cannot move payloads: {0}")]
    Driver(DriverError),
}

impl From<DriverError> for GatherError {
    fn from(error: DriverError) -> Self {
        Self::Driver(error)
    }
}

/// One burst of split packets on its way into chunks. An rx lcore has several, which it uses by
/// turns.
pub struct Gather<'a> {
    stream: Arc<CudaStream>,
    function: CudaFunction,
    done: CudaEvent,
    moves: PinnedHostSlice<Move>,
    /// Hold payloads and places until the GPU is done.
    batch: SplitBatch,
    slots: Vec<(HeapSlot<'a>, u16)>,
}

impl<'a> Gather<'a> {
    /// An idle one, on a stream of its own.
    pub fn new(gpu: &Gpu) -> Result<Self, GpuError> {
        let wrap = |source| GpuError::Driver {
            what: "make a stream for payloads",
            source,
        };
        let flags = Some(CUevent_flags::CU_EVENT_DISABLE_TIMING);
        Ok(Self {
            stream: gpu.context.new_stream().map_err(wrap)?,
            function: gpu.function(GATHER, &[], 0)?,
            done: gpu.context.new_event(flags).map_err(wrap)?,
            moves: gpu.pinned("moves of payloads", BURST)?,
            batch: SplitBatch::default(),
            slots: Vec::with_capacity(BURST),
        })
    }

    /// Starts to move the payload of each packet of `batch` into its slot, which comes with the
    /// digitiser's saturation count. Packets without a slot were dropped by the caller. Waits for
    /// what is under way.
    pub fn start(
        &mut self,
        batch: SplitBatch,
        slots: impl IntoIterator<Item = Option<(HeapSlot<'a>, u16)>>,
    ) -> Result<(), GatherError> {
        self.finish()?;
        let mut heap = None;
        let moves = self.moves.as_mut_slice()?;
        for (packet, slot) in batch.iter().zip(slots) {
            let Some((slot, saturated)) = slot else {
                continue;
            };
            let heap = *heap.get_or_insert(slot.heap_bytes());
            let (from, payload) = packet.payload().unwrap_or_default();
            if payload != heap || slot.heap_bytes() != heap {
                self.slots.clear();
                return Err(GatherError::Length { payload, heap });
            }
            let Some(to) = slot.device_address() else {
                self.slots.clear();
                return Err(GatherError::NotInGpu);
            };
            moves[self.slots.len()] = Move { from, to };
            self.slots.push((slot, saturated));
        }
        // Packets none of which is wanted go back at once, not with the next burst.
        let Some(heap) = heap else {
            return Ok(());
        };
        self.batch = batch;
        let config = LaunchConfig {
            grid_dim: (self.slots.len() as u32, 1, 1),
            block_dim: (256, 1, 1),
            shared_mem_bytes: 0,
        };
        let launched = self.launch(config, heap as u32);
        if launched.is_err() {
            self.give_up();
        }
        launched
    }

    fn launch(&mut self, config: LaunchConfig, bytes: u32) -> Result<(), GatherError> {
        // Pinned memory has one address for CPU and GPU.
        let moves = self.moves.as_ptr()? as u64;
        let mut launch = self.stream.launch_builder(&self.function);
        launch.arg(&moves).arg(&bytes);
        // SAFETY: the arguments are those of gather. Each move is from a payload of `bytes` bytes
        // that `batch` holds to a heap of as many that a slot holds, until `finish` has seen the
        // GPU done.
        unsafe { launch.launch(config) }?;
        Ok(self.done.record(&self.stream)?)
    }

    /// Frees packets and slots whose payloads may not have been moved; the heaps stay absent.
    fn give_up(&mut self) {
        // A GPU that failed moves nothing any more.
        streams::settle(&self.stream);
        self.slots.clear();
        self.batch.clear();
    }

    /// Publishes the heaps and frees the packets, if the GPU is done with them; says whether.
    pub fn poll(&mut self) -> Result<bool, GatherError> {
        if !self.slots.is_empty() {
            match self.done.try_is_complete() {
                Ok(true) => self.settle(),
                Ok(false) => return Ok(false),
                Err(error) => {
                    self.give_up();
                    return Err(error.into());
                }
            }
        }
        Ok(true)
    }

    /// Waits until the GPU is done, then publishes the heaps and frees the packets.
    pub fn finish(&mut self) -> Result<(), GatherError> {
        if !self.slots.is_empty() {
            if let Err(error) = self.done.synchronize() {
                self.give_up();
                return Err(error.into());
            }
            self.settle();
        }
        Ok(())
    }

    fn settle(&mut self) {
        let placed = self.slots.drain(..);
        let mut stored = placed
            .map(|(slot, saturated)| slot.placed_by_gpu(saturated))
            .collect();
        publish(&mut stored);
        self.batch.clear();
    }
}

impl Drop for Gather<'_> {
    fn drop(&mut self) {
        // If the GPU failed, it does not write any more either.
        let _ = self.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RecvConfig;
    use crate::gpu::{BarAllocator, BarError, read_back};
    use crate::memory::{Chunk, ChunkAllocator, ChunkLayout, MemoryKind, Purpose};
    use dpdk::{Eal, MbufPool, PayloadPool, PoolConfig};
    use dsp::SampleBits;

    /// Every third packet was dropped; the others go to the chunk's heaps in reverse order.
    fn payloads_get_to_their_places(gpu: &Gpu, bits: u32, heap_samples: usize) {
        let config = RecvConfig {
            packet_samples: heap_samples,
            sample_bits: SampleBits::new(bits).unwrap(),
            chunk_samples: 16 * heap_samples,
            mask_timestamp: false,
        };
        let layout = ChunkLayout::new(&config, 0);
        let heap_bytes = layout.heap_bytes;
        let room = heap_bytes.next_multiple_of(64) as u16;
        let name = format!("gather_{heap_bytes}");
        let packets = GpuPackets::new(gpu, 40 * usize::from(room)).unwrap();
        let pool = PayloadPool::new(Eal::for_tests(), &name, room, packets).unwrap();
        let config = PoolConfig {
            mbufs: 64,
            cache: 0,
            data_room: 128,
            socket: None,
        };
        let headers = MbufPool::new(Eal::for_tests(), &format!("{name}_h"), config).unwrap();
        let allocator = BarAllocator::open(gpu, 0).unwrap();
        let memory = allocator.allocate(Purpose::ReceiveChunk, layout.bytes());
        let chunk = Arc::new(Chunk::new(layout, 0, memory.unwrap()));

        let payload = |i: usize| vec![i as u8 + 1; heap_bytes];
        let mut expected = vec![0; layout.stride];
        let mut gather = Gather::new(gpu).unwrap();
        let mut batch = SplitBatch::default();
        let mut slots = Vec::new();
        for i in 0..16 {
            let packet = pool.behind(headers.alloc().unwrap(), heap_bytes as u16);
            batch.push(packet.unwrap()).unwrap();
            let to = batch.iter().last().unwrap().payload().unwrap().0;
            // SAFETY: the payload has that many bytes, and nobody else uses it.
            unsafe { result::memcpy_htod_sync(to, &payload(i)) }.unwrap();
            slots.push((i % 3 != 2).then(|| {
                expected[(15 - i) * heap_bytes..][..heap_bytes].copy_from_slice(&payload(i));
                (chunk.claim(1, 15 - i).unwrap(), i as u16)
            }));
        }
        gather.start(batch, slots).unwrap();
        assert_eq!(pool.mbufs() - pool.available(), 16);
        gather.finish().unwrap();
        assert!(gather.poll().unwrap());
        assert_eq!(pool.mbufs(), pool.available());
        let frozen = chunk.clone().freeze().unwrap();
        assert_eq!(frozen.kind(), MemoryKind::Bar);
        for i in 0..16 {
            assert_eq!(frozen.present(1, 15 - i), i % 3 != 2);
            let saturated = if i % 3 == 2 { 0 } else { i as u16 };
            assert_eq!(frozen.saturated(1, 15 - i), saturated);
        }
        assert!(read_back(gpu, &frozen, 1).unwrap() == expected);
    }

    #[test]
    fn the_gpu_gathers_payloads_of_any_length() {
        let gpu = match Gpu::open() {
            Ok(gpu) => gpu,
            Err(error @ (GpuError::NoDriver | GpuError::NoDevice(_))) => {
                println!("no CUDA device: {error}");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        if let Err(error @ (BarError::NoLoader(_) | BarError::NoDevice { .. })) =
            BarAllocator::open(&gpu, 0)
        {
            println!("no bar memory: {error}");
            return;
        }
        for (bits, heap_samples) in [(10, 4096), (12, 104), (10, 56)] {
            payloads_get_to_their_places(&gpu, bits, heap_samples);
        }
    }
}
