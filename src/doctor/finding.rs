//! What is wrong, in order: the most likely reason for silence first.

use serde::Serialize;

macro_rules! ailments {
    ($($(#[doc = $doc:literal])+ $variant:ident => $name:literal,)+) => {
        /// Something that is wrong. The order is that of findings: what keeps an engine from its
        /// port; then what explains that nothing comes, or that nothing of it is placed; then what
        /// is wrong with what comes; then what will go wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Ailment {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Ailment {
            /// All of them, the most likely reason for silence first.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Stable name, for scripts.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

ailments! {
    /// No interface has the name, the address or the PCI address that was given.
    NoSuchInterface => "no-such-interface",
    /// The interface is down.
    InterfaceDown => "interface-down",
    /// The interface has no IPv4 address.
    NoAddress => "no-address",
    /// The interface cannot be used for another reason.
    UnusableInterface => "unusable-interface",
    /// Whoever asks may not open packet sockets, which an interface is to be used through.
    NoRights => "no-rights",
    /// Nothing is connected to the interface, or its peer is down.
    NoCarrier => "no-carrier",
    /// Heaps, or output packets, do not fit the interface's MTU.
    Mtu => "mtu",
    /// SRC is the address of another host.
    ForeignAddress => "foreign-address",
    /// Heaps are sent to one host instead of groups.
    Unicast => "unicast",
    /// Heaps come through another interface.
    OtherInterface => "other-interface",
    /// Heaps are sent to another UDP port of the right groups.
    WrongPort => "wrong-port",
    /// Heaps are sent to other groups.
    OtherGroups => "other-groups",
    /// Datagrams for SRC come in fragments.
    Fragments => "fragments",
    /// An F-engine's output comes to SRC.
    SpectraAtSource => "spectra-at-source",
    /// What comes to SRC is not SPEAD.
    NotSpead => "not-spead",
    /// A heap has several packets.
    HeapSpansPackets => "heap-spans-packets",
    /// Samples have another width.
    SampleBits => "sample-bits",
    /// Heaps have another number of samples.
    HeapSamples => "heap-samples",
    /// Timestamps are not multiples of a heap's samples.
    UnalignedTimestamps => "unaligned-timestamps",
    /// The network forgets this host's memberships: nobody asks for them.
    NoQuerier => "no-querier",
    /// Heaps came and came no more.
    Stopped => "stopped",
    /// A firewall keeps IGMP from this host, or its reports from the network.
    Firewall => "firewall",
    /// The reverse path filter drops IGMP queries.
    ReversePath => "reverse-path-filter",
    /// Nothing comes that looks like a digitiser.
    NothingComes => "nothing-comes",
    /// No heap of one polarisation comes.
    OnePolarisation => "one-polarisation",
    /// Both digitisers say that they are the same polarisation.
    PolarisationNumbers => "polarisation-numbers",
    /// Timestamps go by faster or slower than the sample rate.
    AdcSampleRate => "adc-sample-rate",
    /// The time of heaps is not the host's.
    SyncTime => "sync-time",
    /// A part of the heaps goes to groups that SRC lacks.
    SomeGroups => "some-groups",
    /// A part of the heaps does not come.
    MissingHeaps => "missing-heaps",
    /// Heaps come twice.
    Duplicates => "duplicates",
    /// Some heaps have timestamps that do not go with those of the others.
    StrayTimestamps => "stray-timestamps",
    /// Heaps come with a VLAN tag.
    VlanTag => "vlan-tag",
    /// An output is sent to groups that the engine receives from.
    OutputIsInput => "output-is-input",
    /// A frequency is in another unit than hertz.
    FrequencyUnit => "frequency-unit",
}

/// Something that is wrong, how that is known, and what mends it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Finding {
    /// What it is.
    #[serde(serialize_with = "by_name")]
    #[schemars(with = "String")]
    pub code: Ailment,
    /// The same in words, with names and numbers.
    pub what: String,
    /// What was seen.
    pub evidence: Vec<String>,
    /// What mends it.
    pub way_out: String,
}

fn by_name<S: serde::Serializer>(ailment: &Ailment, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(ailment.name())
}

impl Finding {
    /// One.
    pub fn new(
        code: Ailment,
        what: impl Into<String>,
        evidence: impl IntoIterator<Item = String>,
        way_out: impl Into<String>,
    ) -> Self {
        Self {
            code,
            what: what.into(),
            evidence: evidence.into_iter().collect(),
            way_out: way_out.into(),
        }
    }
}
