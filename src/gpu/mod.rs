//! CUDA backend: the wideband channeliser on one GPU.
//!
//! The driver and NVRTC are opened at run time: the same binary starts where there is neither. Kernels
//! (`kernels/`, whose README has the mathematics) are compiled for the device found and cached on disk.
//! All work of an engine is on one stream of one [`Gpu`]; [`Input`] is the copy of the receive chunk that
//! its outputs share.

#![allow(unsafe_code)]

mod compile;
mod device;
mod input;
mod shape;
mod variant;
mod wideband;

pub use device::{Gpu, GpuError};
pub use input::Input;
pub use wideband::Wideband;
