//! SPEAD, the streaming protocol of radio telescopes: packets, heaps, descriptors.
//!
//! Digitisers, channelisers, correlators and beamformers send each other their data as heaps. A
//! heap is one message, such as a few thousand samples with their timestamp: it has a number, the
//! heap count, and any number of items, each with an identifier. A sender cuts heaps into packets,
//! which travel as UDP datagrams, mostly to multicast groups. Any packet may be lost, come twice or
//! come late; nobody asks for it again. Each packet therefore says of which heap it is, and where
//! in the heap its bytes belong.
//!
//! # A packet
//!
//! Numbers are big endian. This packet has the first 1024 of a heap's 2048 bytes:
//!
//! ```text
//!  byte   0  1  2  3  4  5  6  7
//!       ┌──┬──┬──┬──┬─────┬─────┐
//!     0 │53│04│02│06│00 00│00 06│  magic, version 4, bytes of an identifier and of a value,
//!       ├──┴──┼──┴──┴─────┴─────┤  and the number of item pointers
//!     8 │80 01│00 00 00 00 00 2a│  immediate 0x0001, heap count: 42
//!    16 │80 02│00 00 00 00 08 00│  immediate 0x0002, heap length: 2048
//!    24 │80 03│00 00 00 00 00 00│  immediate 0x0003, payload offset: 0
//!    32 │80 04│00 00 00 00 04 00│  immediate 0x0004, payload length: 1024
//!    40 │96 00│00 00 00 12 d6 87│  immediate 0x1600, timestamp: 1234567
//!    48 │33 00│00 00 00 00 00 00│  addressed 0x3300, samples: from byte 0 of the heap
//!       ├─────┴─────────────────┤
//!    56 │ payload               │  1024 bytes of the heap, from its byte 0 on
//!       └───────────────────────┘
//! ```
//!
//! Each item pointer has a mode bit, an identifier of 15 bits and a value of 48 bits. If the bit is
//! set, the item is immediate: the value is the item. Otherwise the item is addressed: the value is
//! the item's offset in the heap's payload, and the item ends where the next one begins. The first
//! four items are about the packet itself, and every packet has them. The others stand in at least
//! one packet of their heap. These widths are called SPEAD-64-48. Packets of other widths are read
//! as well, but not written.
//!
//! # What items mean
//!
//! A receiver knows the meaning of identifiers by agreement, or by descriptors. A descriptor is an
//! item, 0x0005, whose bytes are a packet once more. It has the name, the shape and the type of
//! another item, the type either as numpy writes it (`<i2`) or as fields of bits (`i` with 12
//! bits). Senders put descriptors into the first heap of a stream, and into some later heaps.
//!
//! # What to use
//!
//! | to | use |
//! |---|---|
//! | send heaps | [`HeapBuilder`], and a `UdpSocket` |
//! | receive heaps | [`HeapAssembler`], which gives a [`Heap`] when its last packet has come |
//! | describe items | [`Descriptor`], [`HeapBuilder::descriptor`] |
//! | make numbers of items | [`DescriptorTable`], which gives an [`ItemArray`] |
//! | count what was lost | [`AssemblerCounts`] |
//! | bound a receiver's memory | [`AssemblerLimits`] |
//! | read one packet without a copy | [`Packet`] |
//! | write one packet in place | [`PacketHeader`], [`ItemPointer`] |
//! | read and write a digitiser's packets at line rate | [`DigitiserHeap`], [`DigitiserRepr`] |
//! | write the packets of an F-engine at line rate | [`SpectraRepr`] |
//! | end a stream | [`HeapBuilder::stream_stop`], [`StopRepr`] |
//! | look up an identifier | [`item`] |
//!
//! Views such as [`Packet`] are made by `new_checked`, which checks all rules of the format and
//! returns a typed error. After that no accessor fails. A `Repr` is a packet's preamble as a
//! struct, which `emit` writes and `parse` reads. Whatever bytes come, nothing panics.
//!
//! # A sender and a receiver
//!
//! ```
//! use std::net::UdpSocket;
//!
//! use spead::{Descriptor, DescriptorTable, HeapAssembler, HeapBuilder, PacketSize};
//!
//! let receiver = UdpSocket::bind("127.0.0.1:0")?;
//! let sender = UdpSocket::bind("127.0.0.1:0")?;
//! sender.connect(receiver.local_addr()?)?;
//!
//! // One heap of 600 numbers with a timestamp, in two packets, and the heap that ends the stream.
//! let samples: Vec<u8> = (0..600i16).flat_map(i16::to_be_bytes).collect();
//! let heap = HeapBuilder::new(1)
//!     .descriptor(&Descriptor::immediate(0x1600, "timestamp", "Number of the first sample"))
//!     .descriptor(&Descriptor::array(0x3300, "samples", "Voltages", &[600], ">i2"))
//!     .immediate(0x1600, 1_234_567)
//!     .addressed(0x3300, &samples);
//! let stop = HeapBuilder::new(2).stream_stop();
//! for heap in [heap, stop] {
//!     for packet in heap.packets(PacketSize::Whole(1472))? {
//!         sender.send(&packet)?;
//!     }
//! }
//!
//! let mut assembler = HeapAssembler::default();
//! let mut table = DescriptorTable::default();
//! let mut buffer = [0; spead::packet::MAX_PACKET];
//! let mut sums = Vec::new();
//! loop {
//!     let length = receiver.recv(&mut buffer)?;
//!     let Some(heap) = assembler.add_packet(&buffer[..length])? else { continue };
//!     if heap.is_stream_stop() {
//!         break;
//!     }
//!     table.learn(&heap)?;
//!     let item = heap.item(0x3300).expect("samples");
//!     let samples = table.interpret(&item)?.to_f64().expect("numbers");
//!     sums.push((heap.immediate(0x1600), samples.iter().sum::<f64>()));
//! }
//! assert_eq!(sums, [(Some(1_234_567), 179_700.0)]);
//! assert_eq!(assembler.counts().incomplete_heaps, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Limits
//!
//! The crate makes no sockets, threads or clocks: pacing, multicast groups, buffer sizes and time
//! limits are the program's. [`HeapAssembler`] copies each payload once; streams of tens of
//! gigabits per second need the views, and memory of the program's own. Packets have at most
//! [`MAX_PACKET`](packet::MAX_PACKET) bytes. Not here: the flavours with other widths for writing,
//! the deviations of PySPEAD that spead2 calls bug compatibility, packets without heap length in
//! [`HeapAssembler`], and types of numpy's with named fields.
#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod descriptor;
pub mod digitiser;
pub mod heap;
pub mod item;
pub mod packet;
pub mod spectra;
pub mod stop;
pub mod table;
pub mod value;

pub use descriptor::{Descriptor, DescriptorError};
pub use digitiser::{DigitiserHeap, DigitiserRepr};
pub use heap::{
    AssemblerCounts, AssemblerLimits, AssemblyError, Heap, HeapAssembler, HeapBuilder, HeapError,
    HeapPackets, Item, ItemContent, PacketSize,
};
pub use packet::{ItemMode, ItemPointer, Packet, PacketError, PacketHeader};
pub use spectra::SpectraRepr;
pub use stop::StopRepr;
pub use table::DescriptorTable;
pub use value::{ElementValue, ItemArray, ItemError};

/// Value of [`item::STREAM_CONTROL`] that ends a stream.
pub const STREAM_STOP: u64 = 2;

/// Mask of an immediate value, which has 48 bits.
pub const IMMEDIATE_MASK: u64 = (1 << 48) - 1;
