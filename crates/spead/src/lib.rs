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
//! | [`digitiser`] | digitiser heaps: one packet each, with a fast path for their layout |
//! | [`spectra`] | the preamble of the F-engine's data packets |
//! | [`descriptor`] | item descriptors and the heaps that carry them |
//! | [`stop`] | stop heaps |

pub mod descriptor;
pub mod digitiser;
pub mod packet;
pub mod spectra;
pub mod stop;

pub use descriptor::{Descriptor, DescriptorError};
pub use digitiser::{DigitiserHeap, DigitiserRepr};
pub use packet::{Header, Item, Mode, Packet, PacketError};
pub use spectra::SpectraRepr;
pub use stop::StopRepr;

/// Item identifiers.
pub mod item {
    /// Padding.
    pub const NULL: u64 = 0x0000;
    /// Heap count, the number of the heap.
    pub const HEAP_COUNT: u64 = 0x0001;
    /// Length of the whole heap's payload in bytes.
    pub const HEAP_LENGTH: u64 = 0x0002;
    /// Place of this packet's payload in the heap's, in bytes.
    pub const PAYLOAD_OFFSET: u64 = 0x0003;
    /// Payload bytes in this packet.
    pub const PAYLOAD_LENGTH: u64 = 0x0004;
    /// A nested packet that describes an item.
    pub const DESCRIPTOR: u64 = 0x0005;
    /// Stream control, see [`crate::STREAM_STOP`].
    pub const STREAM_CONTROL: u64 = 0x0006;
    /// In a descriptor: name.
    pub const DESCRIPTOR_NAME: u64 = 0x0010;
    /// In a descriptor: free text.
    pub const DESCRIPTOR_DESCRIPTION: u64 = 0x0011;
    /// In a descriptor: shape.
    pub const DESCRIPTOR_SHAPE: u64 = 0x0012;
    /// In a descriptor: format fields.
    pub const DESCRIPTOR_FORMAT: u64 = 0x0013;
    /// In a descriptor: the identifier that it describes.
    pub const DESCRIPTOR_ID: u64 = 0x0014;
    /// In a descriptor: numpy header dictionary.
    pub const DESCRIPTOR_DTYPE: u64 = 0x0015;
    /// ADC sample count of the first sample, 48 bits.
    pub const TIMESTAMP: u64 = 0x1600;
    /// Digitiser number; bit 0 is the polarisation.
    pub const DIGITISER_ID: u64 = 0x3101;
    /// Saturated samples in bits 47 to 32, saturation flag in bit 1.
    pub const DIGITISER_STATUS: u64 = 0x3102;
    /// Packed ADC samples.
    pub const ADC_SAMPLES: u64 = 0x3300;
    /// F-engine number.
    pub const FENG_ID: u64 = 0x4101;
    /// Channel number of the first channel in the heap.
    pub const FREQUENCY: u64 = 0x4103;
    /// Quantised spectra.
    pub const FENG_RAW: u64 = 0x4300;
}

/// Value of [`item::STREAM_CONTROL`] that ends a stream.
pub const STREAM_STOP: u64 = 2;

/// Mask of a 48-bit immediate value.
pub const IMMEDIATE_MASK: u64 = (1 << 48) - 1;
