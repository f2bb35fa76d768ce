//! The receiver: samples to frames.
