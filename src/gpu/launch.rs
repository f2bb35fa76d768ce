//! Kernels of the channeliser and their launches, which overlap as `kernels/overlap.cuh` has it.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::zeroed;
use std::ptr::null_mut;

use cudarc::driver::sys::{self, CUlaunchAttribute, CUlaunchAttributeID, CUlaunchConfig};
use cudarc::driver::{CudaFunction, CudaStream, DeviceRepr, DriverError};

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

/// A kernel whose blocks are (column, groups of spectra).
#[derive(Debug)]
pub(super) struct Kernel {
    pub function: CudaFunction,
    pub columns: usize,
    pub layers: usize,
    pub threads: u32,
    pub shared: usize,
    /// Rows of blocks that run at a time.
    pub rows: usize,
    /// Whether it may begin before the kernel before it in its stream has ended. It then waits itself for that, and behind all else as any
    /// kernel does.
    pub overlaps: bool,
}

impl Kernel {
    /// From this architecture on (90: sm_90), kernels can overlap.
    pub const OVERLAP: i32 = 90;

    /// Launches `rows` of blocks. cudarc's own launch has no attributes.
    ///
    /// # Safety
    ///
    /// The arguments are the kernel's, and what they point to lives until `stream` has passed the launch.
    pub unsafe fn launch(
        &self,
        stream: &CudaStream,
        arguments: &mut Arguments<'_>,
        rows: usize,
    ) -> Result<(), DriverError> {
        stream.context().bind_to_thread()?;
        // SAFETY: integers, and a union of plain data, of which zeros are a value.
        let mut overlap: CUlaunchAttribute = unsafe { zeroed() };
        overlap.id = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        overlap.value.programmaticStreamSerializationAllowed = 1;
        let config = CUlaunchConfig {
            gridDimX: self.columns as u32,
            gridDimY: rows as u32,
            gridDimZ: self.layers as u32,
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
