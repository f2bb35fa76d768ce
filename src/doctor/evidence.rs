//! What was seen: of the wire, of interfaces, of the kernel.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};

use super::finding::Ailment;
use crate::recv::DropCause;

/// All that findings are made of.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// Interfaces that could not be used: what it is, and the refusal, which has the way out.
    pub refused: Vec<(Ailment, String)>,
    /// Interfaces of the kernel.
    pub interfaces: Vec<InterfaceFacts>,
    /// What came by.
    pub wire: Wire,
    /// When the look began and ended, UNIX seconds.
    pub looked: (f64, f64),
    /// Seconds that it was to last, if it was told to end before.
    pub cut_short_of: Option<f64>,
    /// Why the wire could not be looked at.
    pub blind: Option<Blind>,
    /// Frames that the look had no room for.
    pub missed: u64,
    /// Whether IGMP gets through this host's firewall, by interface; those are missing where nobody
    /// listened to what the kernel hears.
    pub igmp: BTreeMap<String, IgmpPath>,
    /// Queriers that the kernel heard on an interface.
    pub heard: BTreeSet<(String, Ipv4Addr)>,
    /// Packets that the reverse path filter dropped meanwhile, if the kernel counts them.
    pub reverse_path_drops: Option<u64>,
}

/// Why there was no look, or not at everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blind {
    /// It takes CAP_NET_RAW: only what is sent to the digitisers' destinations was heard.
    NoRights,
    /// No interface to receive on is the kernel's.
    NotTheKernels,
}

/// Whether IGMP gets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IgmpPath {
    /// Nobody tried.
    Untried,
    /// It does.
    Open,
    /// What comes in is dropped.
    DroppedIn,
    /// What goes out is dropped.
    DroppedOut,
}

/// An interface of the kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InterfaceFacts {
    /// Name of the interface.
    pub name: String,
    /// As it was given for `--recv-interface`, if it was.
    pub receives: Option<String>,
    /// Whether it was given for `--send-interface`.
    pub sends: bool,
    /// Whether something at the other end answers; `None` if it is down or cannot tell.
    pub carrier: Option<bool>,
    /// IPv4 addresses.
    pub addresses: Vec<Ipv4Addr>,
    /// Largest IP packet.
    pub mtu: Option<usize>,
    /// Reverse path filter in force: 0 none, 1 strict, 2 loose.
    pub reverse_path: u8,
    /// Packets received meanwhile.
    pub packets: u64,
    /// Packets that it dropped meanwhile, or that were too long or damaged.
    pub refused: u64,
    /// Whether an engine would use it past the kernel, so that a running engine's packets cannot
    /// be seen.
    pub shared: bool,
}

/// All that came by, sorted.
#[derive(Clone, Debug, Default)]
pub struct Wire {
    /// Datagrams by where they came from and went to.
    pub flows: Vec<Flow>,
    /// Fragments, by where they came and went to.
    pub fragments: BTreeMap<(String, Ipv4Addr, Ipv4Addr), u64>,
    /// Queriers heard on the wire, and how often each asked.
    pub queries: BTreeMap<(String, Ipv4Addr), u64>,
    /// Frames.
    pub frames: u64,
    /// Datagrams of further flows than there is room for.
    pub further: u64,
}

/// Where datagrams came from and went to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowKey {
    /// Interface that they came to.
    pub interface: String,
    /// VLAN of their tags.
    pub vlan: Option<u16>,
    /// Sender.
    pub src: Ipv4Addr,
    /// Destination.
    pub dst: SocketAddrV4,
}

/// Datagrams of one sender to one destination.
#[derive(Clone, Debug)]
pub struct Flow {
    /// From where to where.
    pub key: FlowKey,
    /// All of them.
    pub datagrams: u64,
    /// Digitiser heaps of each polarisation.
    pub pols: [PolHeaps; 2],
    /// Descriptors, stop heaps and the like.
    pub metadata: u64,
    /// Parts of digitiser heaps, or of others that are no F-engine's.
    pub parts: u64,
    /// Packets of an F-engine's output.
    pub spectra: u64,
    /// Others, by the SPEAD rule that they break.
    pub foreign: BTreeMap<DropCause, u64>,
}

impl Flow {
    /// None yet.
    pub fn new(key: FlowKey) -> Self {
        Self {
            key,
            datagrams: 0,
            pols: Default::default(),
            metadata: 0,
            parts: 0,
            spectra: 0,
            foreign: BTreeMap::new(),
        }
    }

    /// Digitiser heaps.
    pub fn heaps(&self) -> u64 {
        self.pols.iter().map(|pol| pol.count).sum()
    }

    /// Whether a digitiser sends it, with whatever packets.
    pub fn is_digitisers(&self) -> bool {
        self.heaps() > 0 || self.parts > 0
    }

    /// What most of it is.
    pub fn content(&self) -> &'static str {
        let foreign: u64 = self.foreign.values().sum();
        let kinds = [
            (self.heaps(), "digitiser heaps"),
            (self.parts, "parts of heaps"),
            (self.spectra, "F-engine output"),
            (self.metadata, "descriptors or stop heaps"),
            (foreign, "not SPEAD"),
        ];
        let most = kinds.iter().max_by_key(|(count, _)| *count);
        most.map_or("", |(_, name)| name)
    }
}

/// Digitiser heaps of one polarisation in one flow. Of those that are not sent to SRC there is no
/// more than their number.
#[derive(Clone, Debug, Default)]
pub struct PolHeaps {
    /// All of them.
    pub count: u64,
    /// How many have so many bytes.
    pub sizes: BTreeMap<usize, u64>,
    /// UNIX time of arrival by timestamp, but of no more than `TIMESTAMPS`.
    pub timestamps: BTreeMap<u64, f64>,
    /// Those whose timestamp had come before.
    pub repeats: u64,
    /// Timestamp and UNIX time of arrival of the first and of the last.
    pub span: Option<[(u64, f64); 2]>,
    /// The same of the last `LATEST`: the last of all may be a stray.
    pub latest: VecDeque<(u64, f64)>,
}

/// Timestamps that are kept of a flow and polarisation.
pub const TIMESTAMPS: usize = 1 << 14;
/// Last heaps that are kept of a flow and polarisation.
pub const LATEST: usize = 8;

impl PolHeaps {
    /// Takes in one.
    pub fn note(&mut self, timestamp: u64, bytes: usize, unix: f64) {
        self.count += 1;
        *self.sizes.entry(bytes).or_default() += 1;
        if self.timestamps.len() < TIMESTAMPS {
            match self.timestamps.entry(timestamp) {
                Entry::Vacant(entry) => _ = entry.insert(unix),
                Entry::Occupied(_) => self.repeats += 1,
            }
        }
        match &mut self.span {
            Some([_, last]) => *last = (timestamp, unix),
            None => self.span = Some([(timestamp, unix); 2]),
        }
        if self.latest.len() == LATEST {
            self.latest.pop_front();
        }
        self.latest.push_back((timestamp, unix));
    }
}
