//! What a block of a capture means.

use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{Block, PcapBlockOwned};

use super::super::ETHERNET;

/// Bytes of a block before its frame.
const ENHANCED_PACKET: usize = 28;
const SIMPLE_PACKET: usize = 12;

/// An interface of a pcapng section.
pub(super) struct Interface {
    link_type: u16,
    snaplen: usize,
    ticks_per_second: u64,
    offset_seconds: i64,
}

/// Where a frame lies in the reader's buffer.
pub(super) struct Found {
    pub at: usize,
    pub len: usize,
    pub orig_len: usize,
    pub time_ns: u64,
}

/// What a block was.
pub(super) enum Step {
    Frame(Found),
    Section { big_endian: bool },
    Interface(Interface),
    Skip,
    Corrupt(&'static str),
    LinkType(u16),
}

impl Interface {
    fn time_ns(&self, high: u32, low: u32) -> u64 {
        let ticks = i128::from(high) << 32 | i128::from(low);
        let ns = ticks * 1_000_000_000 / i128::from(self.ticks_per_second)
            + i128::from(self.offset_seconds) * 1_000_000_000;
        ns.clamp(0, u64::MAX.into()) as u64
    }
}

/// The meaning of `block`, which takes `len` bytes, after the `interfaces` of its section, which
/// may be `big_endian`; records of pcap files may have `nanoseconds`.
pub(super) fn step(
    block: &PcapBlockOwned<'_>,
    len: usize,
    interfaces: &[Interface],
    big_endian: bool,
    nanoseconds: bool,
) -> Step {
    match block {
        PcapBlockOwned::Legacy(record) => {
            let per_tick = if nanoseconds { 1 } else { 1000 };
            let fraction = u64::from(record.ts_usec) * per_tick;
            Step::Frame(Found {
                // The frame ends the record; what comes before it is longer in some forms of the
                // file.
                at: len - record.data.len(),
                len: record.data.len(),
                orig_len: record.origlen as usize,
                time_ns: u64::from(record.ts_sec) * 1_000_000_000 + fraction,
            })
        }
        PcapBlockOwned::LegacyHeader(_) => Step::Skip,
        PcapBlockOwned::NG(Block::SectionHeader(section)) => Step::Section {
            big_endian: section.big_endian(),
        },
        PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => Step::Interface(Interface {
            link_type: interface.linktype.0 as u16,
            snaplen: interface.snaplen as usize,
            ticks_per_second: ticks_per_second(interface.if_tsresol).unwrap_or(1_000_000),
            // pcap-parser takes the option to be little-endian wherever it is.
            offset_seconds: match big_endian {
                true => interface.if_tsoffset.swap_bytes(),
                false => interface.if_tsoffset,
            },
        }),
        PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
            match interfaces.get(packet.if_id as usize) {
                None => Step::Corrupt("the packet's interface was never described"),
                Some(interface) if interface.link_type != ETHERNET => {
                    Step::LinkType(interface.link_type)
                }
                Some(interface) => Step::Frame(Found {
                    at: ENHANCED_PACKET,
                    len: packet.packet_data().len(),
                    orig_len: packet.origlen as usize,
                    time_ns: interface.time_ns(packet.ts_high, packet.ts_low),
                }),
            }
        }
        PcapBlockOwned::NG(Block::SimplePacket(packet)) => match interfaces.first() {
            None => Step::Corrupt("the packet's interface was never described"),
            Some(interface) if interface.link_type != ETHERNET => {
                Step::LinkType(interface.link_type)
            }
            Some(interface) => {
                let orig_len = packet.origlen as usize;
                let limit = match interface.snaplen {
                    0 => orig_len,
                    snaplen => orig_len.min(snaplen),
                };
                Step::Frame(Found {
                    at: SIMPLE_PACKET,
                    len: packet.data.len().min(limit),
                    orig_len,
                    time_ns: 0,
                })
            }
        },
        PcapBlockOwned::NG(_) => Step::Skip,
    }
}

/// What an interface's resolution says, if it is a number of 64 bits: a power of ten, or of two
/// with the upper bit.
///
/// pcap-parser's own function takes microseconds for all powers of two.
fn ticks_per_second(resolution: u8) -> Option<u64> {
    match resolution & 0x80 {
        0 => 10u64.checked_pow(resolution.into()),
        _ => 1u64.checked_shl((resolution & 0x7f).into()),
    }
}
