//! Identifiers of items.
//!
//! Identifiers below 0x1000 are the protocol's own. The others are MeerKAT's, for digitisers and
//! F-engines; a stream of one's own takes whatever its receivers know.

/// Padding.
pub const NULL: u64 = 0x0000;
/// Heap count: the number of the heap in its stream.
pub const HEAP_COUNT: u64 = 0x0001;
/// Length of the whole heap's payload, in bytes.
pub const HEAP_LENGTH: u64 = 0x0002;
/// Offset of the packet's payload in the heap's payload, in bytes.
pub const PAYLOAD_OFFSET: u64 = 0x0003;
/// Payload bytes in the packet.
pub const PAYLOAD_LENGTH: u64 = 0x0004;
/// Descriptor of an item: a packet inside the heap's payload.
pub const DESCRIPTOR: u64 = 0x0005;
/// Stream control: [`crate::STREAM_STOP`] ends the stream.
pub const STREAM_CONTROL: u64 = 0x0006;
/// Name, in a descriptor.
pub const DESCRIPTOR_NAME: u64 = 0x0010;
/// Free text, in a descriptor.
pub const DESCRIPTOR_DESCRIPTION: u64 = 0x0011;
/// Shape, in a descriptor.
pub const DESCRIPTOR_SHAPE: u64 = 0x0012;
/// Fields of bits of an element, in a descriptor.
pub const DESCRIPTOR_FORMAT: u64 = 0x0013;
/// Identifier of the described item, in a descriptor.
pub const DESCRIPTOR_ID: u64 = 0x0014;
/// Header dictionary of numpy's, in a descriptor.
pub const DESCRIPTOR_DTYPE: u64 = 0x0015;
/// ADC sample count of the first sample, of 48 bits.
pub const TIMESTAMP: u64 = 0x1600;
/// Digitiser number, whose bit 0 is the polarisation.
pub const DIGITISER_ID: u64 = 0x3101;
/// Digitiser status: number of saturated samples in bits 47 to 32, saturation flag in bit 1.
pub const DIGITISER_STATUS: u64 = 0x3102;
/// Samples of a digitiser, packed.
pub const ADC_SAMPLES: u64 = 0x3300;
/// F-engine number.
pub const FENG_ID: u64 = 0x4101;
/// Channel number of the first channel in the heap.
pub const FREQUENCY: u64 = 0x4103;
/// Spectra, quantised.
pub const FENG_RAW: u64 = 0x4300;
