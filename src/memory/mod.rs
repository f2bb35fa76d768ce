//! Chunk buffers by kind.
#![allow(unsafe_code)]
