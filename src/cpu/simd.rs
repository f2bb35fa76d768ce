//! Vector kernels chosen at run time. The only `unsafe` of the CPU backend.
#![allow(unsafe_code)]
