//! CUDA backend: the wideband channeliser on one GPU.
//!
//! The driver and NVRTC are opened at run time: the same binary starts where there is neither. Kernels
//! (`kernels/`, whose README has the mathematics) are compiled for the device found and cached on disk.
//! All work of an engine is on one stream of one [`Gpu`]; [`Input`] is the copy of the receive chunk that
//! its outputs share.

#![allow(unsafe_code)]

mod bar;
mod cache;
mod compile;
mod cufft;
mod device;
mod form;
mod input;
pub mod measure;
mod memory;
#[cfg(feature = "nic")]
mod nic;
mod shape;
mod tune;
mod variant;
mod vulkan;
mod wideband;

pub use bar::{BarAllocator, BarError};
pub use compile::nvrtc_version;
pub use device::{Gpu, GpuError};
pub use form::{Fft, KernelOptions, Kernels, Tune};
pub use input::Input;
pub use memory::{MemoryChoice, PinnedAllocator, read_back};
#[cfg(feature = "nic")]
pub use nic::{Gather, GatherError, GpuPackets};
pub use wideband::Wideband;
