//! What each [`DropCause`] means to whoever looks for what mends it.

use super::DropCause;

impl DropCause {
    /// What it means and where to look, in a line or two.
    pub fn explanation(self) -> &'static str {
        match self {
            Self::FrameCut => {
                "The frame ends before its headers say: captured with a snap length, or cut on the way."
            }
            Self::NotIpv4Udp => "Other traffic, such as ARP or IGMP.",
            Self::BadIpv4Header => {
                "The IPv4 header contradicts itself: damaged on the way or in the file."
            }
            Self::BadChecksum => {
                "The NIC found a checksum wrong: damaged on the way, look at cables and optics."
            }
            Self::Ipv4Options => "IPv4 options are not taken; digitisers send none.",
            Self::Ipv4Fragment => {
                "The sender's MTU is too small for a heap: raise it to 9000 on every hop."
            }
            Self::BadUdpLength => "UDP and IPv4 lengths disagree: a damaged packet.",
            Self::NotOurs => "Sent to an address that this engine does not listen to.",
            Self::PacketTooShort | Self::BadMagic | Self::BadVersion | Self::BadWidths => {
                "Not SPEAD-64-48: another sender uses this address and port."
            }
            Self::PacketTooLong => "Larger than any packet that digitisers send.",
            Self::ItemsPastEnd
            | Self::NoHeapCount
            | Self::NoPayloadOffset
            | Self::NoPayloadLength
            | Self::PayloadPastEnd
            | Self::PayloadPastHeap
            | Self::NoHeapLength => "A damaged SPEAD packet, or one from another kind of sender.",
            Self::HeapSpansPackets => {
                "A digitiser heap must be one packet: check the digitiser's packet size."
            }
            Self::WrongHeapLength => {
                "A descriptor or stop heap, or samples of another width or number: check the sample bits and samples per heap."
            }
            Self::NoTimestamp => "A heap without a timestamp item.",
            Self::BadTimestamp => {
                "The timestamp is not a multiple of the samples per heap: check that number, or mask timestamps."
            }
            Self::StrayTime => {
                "Its time is far ahead of that of all other heaps: damaged, or from a digitiser of another time."
            }
            Self::TooOld => {
                "It came after its chunk was closed: reordered by more than the window, or time went back."
            }
            Self::Duplicate => "Sent or captured twice; the first one counts.",
            Self::NoFreeChunk => "The engine was slower than its input.",
        }
    }

    /// Whether such datagrams come to a port whatever is wrong: traffic that is for others.
    pub fn is_other_traffic(self) -> bool {
        matches!(self, Self::NotOurs | Self::NotIpv4Udp)
    }

    /// Whether datagrams dropped for this cause are data that the engine should have had.
    pub fn is_loss(self) -> bool {
        // Heaps of another length may be descriptors.
        !self.is_other_traffic() && !matches!(self, Self::WrongHeapLength | Self::Duplicate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn those(is: fn(DropCause) -> bool) -> Vec<DropCause> {
        let all = DropCause::ALL.iter().copied();
        all.filter(|&cause| is(cause)).collect()
    }

    #[test]
    fn all_causes_but_four_are_losses() {
        use DropCause::{Duplicate, NotIpv4Udp, NotOurs, WrongHeapLength};
        assert_eq!(those(DropCause::is_other_traffic), [NotIpv4Udp, NotOurs]);
        let harmless = [NotIpv4Udp, NotOurs, WrongHeapLength, Duplicate];
        assert_eq!(those(|cause| !cause.is_loss()), harmless);
    }

    #[test]
    fn every_cause_is_explained_in_a_sentence() {
        for cause in DropCause::ALL {
            let text = cause.explanation();
            assert!(text.ends_with('.') && text.contains(' '), "{text}");
        }
    }
}
