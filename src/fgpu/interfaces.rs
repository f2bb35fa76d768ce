//! The interfaces of an engine: what each is for, and the ends of its ports.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use dpdk::{
    BURST, Device, DpdkError, Eal, ExtPool, HugePages, MbufPool, PoolConfig, Port, PortConfig,
    RingSender, RxQueue, TxQueue, mbuf_ring, memory_mib, pool_bytes, pool_size,
};
use host::placement::PACKET_BUFFERS;
use spead::{digitiser, spectra};

use super::LiveError;
use crate::assembly::Demand;
use crate::config::{EngineConfig, FgpuConfig, InputConfig, OutputConfig};
use crate::memory::{OUTPUT_CHUNKS, OutputMemory};
use crate::net::MacAddr;
use crate::ports::{Interface, InterfaceError, Membership, PortUse, PresetError, devices};
use crate::send::{SourceAddress, TxPools};

/// UDP port that the first output's packets come from.
const SOURCE_PORT: u16 = 49152;
/// Packets between the lcore that reads a capture and the one that receives: a power of two less
/// one.
const CAPTURE_RING: usize = 511;
/// Packets that may be on their way to nowhere: they are gone at once.
const NOWHERE: usize = 256;
/// Largest frame of a capture that fits an mbuf.
const CAPTURE_FRAME: usize = 9600;

/// The interfaces of an engine, and what each is for.
#[derive(Clone, Debug)]
pub struct Interfaces {
    pub(super) uses: Vec<(Interface, PortUse)>,
    /// Those that others of this process open.
    beside: Vec<(Interface, PortUse)>,
}

/// The UDP payload of the largest packets that an engine receives or sends.
#[derive(Clone, Copy, Debug)]
pub struct Payload {
    /// Its bytes.
    pub bytes: usize,
    /// The option that it follows from.
    pub option: &'static str,
}

/// Of packets that an engine receives.
pub fn received_payload(config: &EngineConfig) -> Payload {
    Payload {
        bytes: digitiser::PREAMBLE_LEN + config.recv.heap_bytes(),
        option: "--recv-packet-samples",
    }
}

/// Of packets that an engine sends.
pub fn sent_payload(config: &EngineConfig) -> Payload {
    Payload {
        bytes: spectra::PREAMBLE_LEN + config.send.packet_payload,
        option: "--send-packet-payload",
    }
}

impl Interfaces {
    /// Finds them; [`misfits`](Self::misfits) says whether packets fit them. From then on the
    /// configuration calls each by its own name, whatever the user called it.
    pub fn find(config: &mut FgpuConfig) -> Result<Self, InterfaceError> {
        let mut found: BTreeMap<String, Interface> = BTreeMap::new();
        let mut given: BTreeMap<String, String> = BTreeMap::new();
        let mut resolve = |names: &mut Vec<String>| {
            for name in names {
                let own = match given.get(name) {
                    Some(own) => own.clone(),
                    None => {
                        let interface = Interface::find(name)?;
                        let own = interface.name.clone();
                        given.insert(name.clone(), own.clone());
                        // Those to send through come first: what is sent comes from their address.
                        let first = found.entry(own.clone()).or_insert(interface.clone());
                        first.check_driver(&interface)?;
                        own
                    }
                };
                *name = own;
            }
            Ok::<_, InterfaceError>(())
        };
        resolve(&mut config.egress.interfaces)?;
        if let InputConfig::Live { interfaces, .. } = &mut config.input {
            resolve(interfaces)?;
        }
        let mut uses: BTreeMap<&str, PortUse> = BTreeMap::new();
        let egress = &config.egress;
        for name in &egress.interfaces {
            let port = uses.entry(name).or_default();
            if port.tx {
                return Err(InterfaceError::Twice { name: name.clone() });
            }
            port.tx = true;
            port.tx_bytes = egress.buffer / egress.interfaces.len();
            port.chunk_packets = chunk_packets(&config.engine, egress.interfaces.len());
        }
        if let InputConfig::Live {
            interfaces, buffer, ..
        } = &config.input
        {
            for name in interfaces {
                let port = uses.entry(name).or_default();
                port.rx_queues += 1;
                port.rx_bytes = buffer / interfaces.len();
            }
        }
        let uses = uses.into_iter();
        Ok(Self {
            uses: uses
                .map(|(name, port)| (found[name].clone(), port))
                .collect(),
            beside: Vec::new(),
        })
    }

    /// Why packets do not fit interfaces, of each with which that is so.
    pub fn misfits(&self, config: &EngineConfig) -> Vec<InterfaceError> {
        let misfits = |(interface, port): &(Interface, PortUse)| {
            let received = (port.rx_queues > 0).then(|| received_payload(config));
            let sent = port.tx.then(|| sent_payload(config));
            let payloads = received.into_iter().chain(sent);
            let misfit = |Payload { bytes, option }| interface.check_mtu(bytes, option).err();
            payloads.filter_map(misfit).collect::<Vec<_>>()
        };
        self.uses.iter().flat_map(misfits).collect()
    }

    /// Counts in what others of this process open beside the engine's.
    pub fn with(mut self, beside: Vec<(Interface, PortUse)>) -> Self {
        self.beside = beside;
        self
    }

    /// What others of this process open.
    pub fn beside(&self) -> &[(Interface, PortUse)] {
        &self.beside
    }

    /// Whether packets are received through the interface of this name.
    pub fn receives(&self, name: &str) -> bool {
        let mut uses = self.uses.iter();
        uses.any(|(interface, port)| interface.name == name && port.rx_queues > 0)
    }

    /// All ports that this process opens.
    fn all(&self) -> impl Iterator<Item = &(Interface, PortUse)> {
        self.uses.iter().chain(&self.beside)
    }

    /// PCI devices that DPDK is to drive, with their drivers' options, and whether they need huge
    /// pages.
    pub fn devices(&self) -> Result<(Vec<String>, HugePages), PresetError> {
        devices(self.all().map(|(interface, _)| interface))
    }

    /// Packets that a transmit queue holds, at most.
    pub(super) fn tx_packets(&self) -> usize {
        let sending = self.uses.iter().filter(|(_, port)| port.tx);
        let packets = sending.map(|(i, port)| port.tx_packets(i));
        packets.max().unwrap_or(NOWHERE)
    }

    /// Maps output chunks for DMA by the devices of `queues`. Returns the smallest chunk, in
    /// packets, that may be sent without a copy. Smaller chunks could all sit in a transmit queue
    /// that frees nothing until it gets more packets, and the engine would run out of chunks
    /// (decision 20).
    pub(super) fn map_output_chunks_for_dma(
        &self,
        queues: &[TxQueue],
        pools: &[(String, ExtPool<OutputMemory>)],
    ) -> usize {
        let ports = queues.iter().map(TxQueue::port);
        for port in ports.filter(|port| !port.is_virtual()) {
            // Virtual ones take chains, and do not say so.
            if !port.info().is_ok_and(|info| info.multi_segment_tx) {
                let port = port.name();
                tracing::warn!(
                    port,
                    "the device takes no packets in two parts: they are copied"
                );
                return usize::MAX;
            }
            for (output, pool) in pools {
                if let Err(error) = port.register(pool) {
                    let port = port.name();
                    tracing::warn!(port, output, %error, "the device cannot read output chunks: packets are copied");
                    return usize::MAX;
                }
            }
        }
        let kept = queues.iter().map(TxQueue::keeps).max().unwrap_or(0);
        let least = kept.div_ceil(OUTPUT_CHUNKS - 1);
        let packets = self.uses.iter().filter(|(_, port)| port.tx);
        let packets = packets.map(|(_, port)| port.chunk_packets).min();
        match packets.unwrap_or(0) {
            _ if least == 0 => {}
            packets if packets < least => tracing::warn!(
                packets,
                least,
                "output chunks are of fewer packets than the device's queue needs: they are copied; raise --send-chunk-jones"
            ),
            packets => tracing::info!(packets, least, "the device reads output chunks in place"),
        }
        least
    }

    /// All memory for packets: DPDK's, for which there should be huge pages, and the kernel's.
    pub fn demands(&self, config: &FgpuConfig) -> Vec<Demand> {
        let rings: usize = self.all().map(|(i, port)| port.ring_bytes(i)).sum();
        let sent = ("--send-buffer", config.egress.buffer);
        let (option, value) = match config.input {
            InputConfig::Live { buffer, .. } if buffer >= sent.1 => ("--recv-buffer", buffer),
            _ => sent,
        };
        let demand = |what: &str, bytes| Demand {
            what: what.to_owned(),
            bytes,
            option: option.to_owned(),
            value,
        };
        let dpdk = (self.memory_mib(config) as u64) << 20;
        let mut demands = vec![demand(PACKET_BUFFERS, dpdk)];
        if rings > 0 {
            demands.push(demand("rings of the kernel", rings as u64));
        }
        demands
    }

    /// Memory for DPDK, in MiB.
    pub fn memory_mib(&self, config: &FgpuConfig) -> usize {
        let rx: usize = self.all().map(|(i, port)| port.mbuf_bytes(i)).sum();
        let by_dma = |(i, port): &(Interface, PortUse)| port.tx && i.driver.reads_memory();
        let copied = match self.uses.iter().any(by_dma) {
            true => config.engine.send.packet_payload,
            false => 0,
        };
        let queues = config.egress.interfaces.len().max(1);
        let tx = queues * TxPools::bytes(self.tx_packets(), 2 * BURST, copied);
        let capture = match config.input {
            InputConfig::Capture { .. } => pool_bytes(capture_mbufs(), CAPTURE_FRAME),
            InputConfig::Live { .. } => 0,
        };
        memory_mib(rx + tx + capture)
    }
}

/// Packets of an output chunk that go through each of `interfaces`, of the output that has the
/// fewest.
fn chunk_packets(engine: &EngineConfig, interfaces: usize) -> usize {
    let packets = |output: &OutputConfig| {
        let substreams = (output.dst.len() / interfaces).max(1);
        let heap = output.heap_bytes().div_ceil(engine.send.packet_payload);
        engine.send.chunk_jones / output.jones_per_batch * substreams * heap
    };
    engine.outputs.iter().map(packets).min().unwrap_or(0)
}

/// Started ports of an engine: their queues, source addresses and memberships.
pub(super) struct OpenPorts {
    pub(super) rx: Vec<RxQueue>,
    /// Packets that may wait at each receive queue, at least.
    pub(super) rx_packets: usize,
    pub(super) tx: Vec<TxQueue>,
    pub(super) sources: Vec<SourceAddress>,
    pub(super) ports: Vec<Port>,
    /// One for each interface.
    pub(super) memberships: Vec<Membership>,
}

impl OpenPorts {
    /// Starts the port of each interface, and puts its queues in the order in which the
    /// configuration names it.
    pub(super) fn open(
        eal: &Eal,
        config: &FgpuConfig,
        interfaces: &Interfaces,
    ) -> Result<Self, LiveError> {
        let mut started = BTreeMap::new();
        let (mut ports, mut memberships) = (Vec::new(), Vec::new());
        let mut rx_packets = usize::MAX;
        for (interface, port_use) in &interfaces.uses {
            let steering = config.input.steering_of(&interface.name);
            let port = port_use.open(eal, interface, &steering)?;
            if port_use.rx_queues > 0 {
                rx_packets = rx_packets.min(port.rx_packets);
            }
            ports.push(port.port);
            memberships.push(port.membership);
            started.insert(
                &interface.name[..],
                (interface, port.mac, port.rx.into_iter(), port.tx),
            );
        }
        let mut open = Self {
            rx: Vec::new(),
            rx_packets,
            tx: Vec::new(),
            sources: Vec::new(),
            ports,
            memberships,
        };
        if let InputConfig::Live { interfaces, .. } = &config.input {
            for name in interfaces {
                open.rx
                    .extend(started.get_mut(&name[..]).and_then(|(.., rx, _)| rx.next()));
            }
        }
        for name in &config.egress.interfaces {
            if let Some((interface, mac, _, tx)) = started.get_mut(&name[..]) {
                open.tx.append(tx);
                open.sources.push(SourceAddress {
                    mac: *mac,
                    ip: interface.ip,
                    port: SOURCE_PORT,
                });
            }
        }
        Ok(open)
    }

    /// A transmit queue whose packets go nowhere: for an engine whose chunks are looked at alone.
    pub(super) fn add_nowhere(&mut self, eal: &Eal) -> Result<(), DpdkError> {
        let device = Device::vdev(eal, "net_null_nowhere", "")?;
        let port = device.start(&PortConfig {
            tx_queues: 1,
            ..PortConfig::default()
        })?;
        self.tx.extend(port.tx);
        self.sources.push(SourceAddress {
            mac: MacAddr::default(),
            ip: Ipv4Addr::UNSPECIFIED,
            port: SOURCE_PORT,
        });
        Ok(())
    }

    /// A receive queue that a capture is put into: the other end, and the mbufs for its frames.
    pub(super) fn add_capture(&mut self, eal: &Eal) -> Result<(RingSender, MbufPool), DpdkError> {
        let pool = PoolConfig {
            mbufs: capture_mbufs(),
            cache: BURST,
            data_room: CAPTURE_FRAME,
            socket: None,
        };
        let pool = MbufPool::new(eal, "capture_frames", pool)?;
        let (sender, receiver) = mbuf_ring(eal, "capture", CAPTURE_RING)?;
        // DPDK's ring ports have both; nothing is sent.
        let (unused, _) = mbuf_ring(eal, "capture_unused", 1)?;
        let port = Device::rings(eal, "capture", vec![receiver], vec![unused])?;
        let port = port.start(&PortConfig {
            rx_pools: vec![pool.clone()],
            ..PortConfig::default()
        })?;
        self.rx.extend(port.rx);
        Ok((sender, pool))
    }
}

/// Mbufs for the frames of a capture: the ring's, and a burst for either lcore.
fn capture_mbufs() -> usize {
    pool_size(CAPTURE_RING, 2 * BURST)
}
