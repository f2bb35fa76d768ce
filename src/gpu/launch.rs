//! Launches of kernels that overlap as `kernels/overlap.cuh` has it, and the copy of tables.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::zeroed;
use std::ptr::null_mut;

use cudarc::driver::sys::{
    self, CUdeviceptr, CUlaunchAttribute, CUlaunchAttributeID, CUlaunchConfig,
};
use cudarc::driver::{CudaFunction, CudaStream, DeviceRepr, DriverError};

use super::compile::COPY_TABLE;
use super::{Gpu, GpuError};

/// A kernel's arguments, in its order.
#[derive(Debug, Default)]
pub(super) struct Arguments<'a> {
    pointers: Vec<*mut c_void>,
    borrowed: PhantomData<&'a ()>,
}

impl<'a> Arguments<'a> {
    /// Adds the next one.
    pub fn arg<T: DeviceRepr>(&mut self, value: &'a T) -> &mut Self {
        self.pointers.push((&raw const *value).cast_mut().cast());
        self
    }
}

/// A kernel as it is launched, but for its grid.
#[derive(Debug)]
pub(super) struct Kernel {
    pub function: CudaFunction,
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of dynamic shared memory of a block.
    pub shared: usize,
    /// Whether it may begin before the kernel before it in its stream has ended. Behind all else it
    /// begins as any kernel does.
    pub overlaps: bool,
}

impl Kernel {
    /// From this architecture on (90: sm_90), kernels can overlap.
    pub const OVERLAP: i32 = 90;

    /// Launches a grid of so many blocks: the first at most 2³¹ − 1, the others 65535. cudarc's own
    /// launch has no attributes.
    ///
    /// # Safety
    ///
    /// The arguments are the kernel's, and what they point to lives until `stream` has passed the
    /// launch. A kernel with [`overlaps`](Self::overlaps) waits for its predecessor itself: before
    /// it accesses memory that an earlier kernel of the stream writes, and before it writes memory
    /// that an earlier kernel reads.
    pub unsafe fn launch(
        &self,
        stream: &CudaStream,
        arguments: &mut Arguments<'_>,
        grid: [usize; 3],
    ) -> Result<(), DriverError> {
        stream.context().bind_to_thread()?;
        // SAFETY: integers, and a union of plain data, of which zeros are a value.
        let mut overlap: CUlaunchAttribute = unsafe { zeroed() };
        overlap.id = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        overlap.value.programmaticStreamSerializationAllowed = 1;
        let config = CUlaunchConfig {
            gridDimX: grid[0] as u32,
            gridDimY: grid[1] as u32,
            gridDimZ: grid[2] as u32,
            blockDimX: self.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: self.shared as u32,
            hStream: stream.cu_stream(),
            attrs: &raw mut overlap,
            numAttrs: self.overlaps.into(),
        };
        let (function, pointers) = (self.function.cu_function(), &mut arguments.pointers);
        // SAFETY: the configuration lives, and the caller vouches for the arguments.
        unsafe {
            sys::cuLaunchKernelEx(
                &raw const config,
                function,
                pointers.as_mut_ptr(),
                null_mut(),
            )
        }
        .result()
    }
}

/// Brings small tables and heads of chunks, from memory of the host or the GPU's, to the GPU's.
#[derive(Debug)]
pub(super) struct TableCopy(Kernel);

impl TableCopy {
    /// Threads of a block.
    const THREADS: u32 = 256;
    /// Bytes of an element.
    pub const ELEMENT: usize = 16;

    /// Compiles the kernel.
    pub fn new(gpu: &Gpu) -> Result<Self, GpuError> {
        Ok(Self(Kernel {
            function: gpu.function(COPY_TABLE, &[], 0)?,
            threads: Self::THREADS,
            shared: 0,
            overlaps: gpu.architecture() >= Kernel::OVERLAP,
        }))
    }

    /// Copies `count` [elements](Self::ELEMENT). All that follows on `stream` finds them; the copy
    /// itself may begin before the kernel before it has ended.
    ///
    /// # Safety
    ///
    /// `from` is pinned memory of the host or memory of the GPU, `to` memory of the GPU, of that
    /// size at least; both live until `stream` has passed the copy. `from` is not written
    /// meanwhile, and nothing that is under way uses these elements of `to`.
    pub unsafe fn launch(
        &self,
        stream: &CudaStream,
        from: CUdeviceptr,
        to: CUdeviceptr,
        count: usize,
    ) -> Result<(), DriverError> {
        let blocks = count.div_ceil(Self::THREADS as usize);
        let count = count as i32;
        let mut arguments = Arguments::default();
        arguments.arg(&from).arg(&to).arg(&count);
        // SAFETY: the arguments are those of copy_table, and the caller vouches for what they point
        // to. It touches nothing else before it waits.
        unsafe { self.0.launch(stream, &mut arguments, [blocks, 1, 1]) }
    }
}
