#![deny(unsafe_code)]
#![doc = include_str!("../README.md")]
//!
//! # Rooms
//!
//! A room imports from rooms on lower floors alone.
//!
//! | floor | room | what lives there |
//! |---|---|---|
//! | 4 | [`trials`] | frames through a channel into the receiver, beside theory |
//! | 3 | `graph` | receiver and transmitter as dataflow graphs, with the feature `flow` |
//! | 3 | [`theory`] | error rates of a perfect receiver, and how sure a measured one is |
//! | 3 | [`vita`] | samples in packets: VITA 49.2 and DIFI |
//! | 2 | [`rx`] | the receiver: samples to frames |
//! | 2 | [`tx`] | the transmitter: frames to samples |
//! | 2 | [`channel`] | the channel simulator: samples to samples with faults |
//! | 2 | [`formats`] | samples as bytes: raw, and SigMF recordings |
//! | 1 | [`waveform`] | what is on the air: preamble, header, constellations, pulse, frames |
//!
//! # Words
//!
//! *Symbol* k and *sample* n count from 0; three samples make a symbol. A *body* is a frame's
//! payload and check field together; it has as many symbols in every modulation. A *point* is a
//! complex number of a constellation; a symbol's *integer* is the bits that it stands for.

pub mod channel;
pub mod formats;
#[cfg(feature = "flow")]
pub mod graph;
pub mod rx;
pub mod theory;
pub mod trials;
pub mod tx;
pub mod vita;
pub mod waveform;
