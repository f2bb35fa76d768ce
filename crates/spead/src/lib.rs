//! SPEAD wire format: checked packet views, packet and descriptor builders, item identifiers.
//!
//! Everything here speaks SPEAD-64-48 version 4: an 8-byte header, big-endian 64-bit item pointers
//! (mode bit, 15-bit identifier, 48-bit value or payload offset), then the payload. Views are made
//! by a `new_checked` or `parse` that returns a typed error; after that no accessor can fail or
//! panic.
//!
//! | module | what it reads and writes |
//! |---|---|
//! | [`packet`] | any packet: header, item pointers, payload |
//! | [`digitiser`] | digitiser heaps: one packet each, with a fast path for their usual layout |
//! | [`spectra`] | the preamble of the F-engine's data packets |
//! | [`descriptor`] | item descriptors and the heaps that carry them |
//! | [`stop`] | stop heaps |

pub mod descriptor;
pub mod digitiser;
pub mod item;
pub mod packet;
pub mod spectra;
pub mod stop;

pub use descriptor::{Descriptor, DescriptorError};
pub use digitiser::{DigitiserHeap, DigitiserRepr};
pub use packet::{ItemMode, ItemPointer, Packet, PacketError, PacketHeader};
pub use spectra::SpectraRepr;
pub use stop::StopRepr;

/// Value of [`item::STREAM_CONTROL`] that ends a stream.
pub const STREAM_STOP: u64 = 2;

/// Mask of an immediate value, which has 48 bits.
pub const IMMEDIATE_MASK: u64 = (1 << 48) - 1;
