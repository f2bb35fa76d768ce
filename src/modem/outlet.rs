//! Samples to packets, at the pace of their rate.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dpdk::{LcoreHandle, MbufBatch, RingReceiver, RingSender, TxQueue, mbuf_ring};
use ground::{Idle, IdlePolicy};
use karoo_flow::adapters::{DatagramSender, LostDatagrams, Stop};
use karoo_modem::formats::FullScale;
use karoo_modem::vita::{
    Context, OutPacket, PICOSECONDS, PacketTime, SampleRate, StreamWriter, samples_within,
};
use num_complex::Complex32;
use schemars::JsonSchema;
use serde::Serialize;

use super::losses::{Losses, LossesLeft};
use super::pace::Pace;
use super::place::{Place, PlaceError};
use super::sockets;
use crate::net::capture::Precision;
use crate::net::frame::HEADERS_LEN;
use crate::net::{CaptureWriter, HeaderTemplate, MacAddr};
use crate::ports::{
    DatagramError, DatagramSettings, FrameMaker, Interface, KeptPorts, PortAddress, open_datagrams,
};

/// Contexts of a second.
const CONTEXTS: f64 = 10.0;
/// Packets between the thread that makes them and a port's lcore.
const RING: usize = 255;
/// A port that takes no packets for so long takes none at all.
const PATIENCE: Duration = Duration::from_secs(2);
/// Where packets of a capture come from and go to.
const CAPTURE_ENDS: [SocketAddrV4; 2] = [
    SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 1), 49152),
    SocketAddrV4::new(Ipv4Addr::new(239, 102, 9, 1), 4991),
];

/// How packets are sent.
#[derive(Clone, Debug)]
pub struct OutletSettings {
    /// Number of the stream.
    pub stream: u32,
    /// Samples a second.
    pub rate: SampleRate,
    /// What 32767 stands for.
    pub full_scale: FullScale,
    /// Interface by which a socket sends to a group.
    pub interface: Option<String>,
    /// CPU of a port's lcore.
    pub cpu: usize,
    /// Share of the data packets that is left out on purpose.
    pub losses: f64,
    /// Seed of the choice of packets that are left out.
    pub seed: u64,
}

/// What was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct OutletCounts {
    /// Data packets, those left out on purpose aside.
    pub packets: u64,
    /// Context packets.
    pub contexts: u64,
    /// What was left out on purpose.
    pub left_out: LossesLeft,
    /// The most seconds that a packet left behind its time.
    pub most_late: f64,
    /// Real and imaginary parts that were clipped.
    #[serde(skip)]
    pub clipped: u64,
}

/// Where packets go.
enum Ends {
    Socket(DatagramSender),
    Port(Box<PortEnd>),
    Capture(Box<CaptureWriter>, Box<HeaderTemplate>),
}

struct PortEnd {
    frames: FrameMaker,
    batch: MbufBatch,
    ring: RingSender,
    done: Stop,
    lcore: LcoreHandle<Result<(), PlaceError>>,
    kept: KeptPorts,
}

/// A stream of packets on its way out.
pub struct Outlet {
    writer: StreamWriter,
    gate: Gate,
}

/// What is behind the writer.
struct Gate {
    ends: Ends,
    pace: Option<Pace>,
    /// UNIX time of the first sample in nanoseconds, and samples a second.
    start: (u64, f64),
    losses: Losses,
    counts: OutletCounts,
}

impl Outlet {
    /// A stream that begins now.
    pub fn open(place: &Place, settings: &OutletSettings) -> Result<Outlet, PlaceError> {
        let rate = settings.rate.hertz();
        let size = match place {
            Place::Socket { bytes, .. } | Place::Capture { bytes, .. } => *bytes,
            Place::Port(address) => address.bytes,
            Place::Bytes(_) => return Err(PlaceError::TakesNoPackets(place.to_string())),
        };
        let samples = samples_within(size).ok_or(PlaceError::Size(size))?;
        let ends = match place {
            Place::Bytes(_) => return Err(PlaceError::TakesNoPackets(place.to_string())),
            Place::Socket { peer, .. } => {
                let interface = settings.interface.as_deref().map(Interface::find);
                let socket = sockets::sender(peer, interface.transpose()?.as_ref())?;
                Ends::Socket(DatagramSender::new(socket, told_of(peer)))
            }
            Place::Port(address) => Ends::Port(Box::new(PortEnd::open(address, settings)?)),
            Place::Capture { path, .. } => capture(path)?,
        };
        let paced = !matches!(ends, Ends::Capture(..));
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let since = since.unwrap_or_default();
        let start = PacketTime {
            // Seconds of packets have 32 bits.
            seconds: since.as_secs() as u32,
            picoseconds: u64::from(since.subsec_nanos()) * (PICOSECONDS / 1_000_000_000),
        };
        let context = Context {
            sample_rate: settings.rate,
            // The pulse's: half as much again as the symbol rate.
            bandwidth: rate / 2.0,
            frequency: 0.0,
            changed: true,
        };
        let every = (rate / samples as f64 / CONTEXTS) as u64;
        let writer = StreamWriter::new(
            settings.stream,
            context,
            start,
            settings.full_scale,
            every.max(1),
        );
        Ok(Outlet {
            writer: writer.with_packet_samples(samples),
            gate: Gate {
                ends,
                pace: paced.then(|| Pace::new(Instant::now(), rate)),
                start: (since.as_nanos() as u64, rate),
                losses: Losses::new(settings.losses, settings.seed),
                counts: OutletCounts::default(),
            },
        })
    }

    /// Tells which samples are a frame's, before they are written.
    pub fn frame(&mut self, samples: Range<u64>) {
        self.gate.losses.frame(samples);
    }

    /// Sends samples, each packet when its first is due.
    pub fn write(&mut self, samples: &[Complex32]) -> Result<(), PlaceError> {
        let gate = &mut self.gate;
        self.writer.push(samples, |packet| gate.packet(&packet))
    }

    /// Sends what is left, and waits until it has gone.
    pub fn finish(mut self) -> Result<OutletCounts, PlaceError> {
        let gate = &mut self.gate;
        self.writer.finish(|packet| gate.packet(&packet))?;
        let mut counts = self.gate.counts;
        counts.clipped = self.writer.clipped();
        counts.left_out = self.gate.losses.left();
        let late = self.gate.pace.map(|pace| pace.most_late());
        counts.most_late = late.unwrap_or_default().as_secs_f64();
        match self.gate.ends {
            Ends::Socket(_) => {}
            Ends::Port(end) => end.finish()?,
            Ends::Capture(writer, _) => writer.finish().map(|_| ())?,
        }
        Ok(counts)
    }
}

impl Gate {
    fn packet(&mut self, packet: &OutPacket) -> Result<(), PlaceError> {
        let end = packet.first + packet.samples as u64;
        if packet.samples > 0 && self.losses.loses(packet.first..end) {
            return Ok(());
        }
        if let Some(pace) = &mut self.pace {
            pace.wait(packet.first);
        }
        match packet.samples {
            0 => self.counts.contexts += 1,
            _ => self.counts.packets += 1,
        }
        match &mut self.ends {
            Ends::Socket(sender) => Ok(sender.send(packet.bytes)?),
            Ends::Port(end) => end.packet(packet.bytes),
            Ends::Capture(writer, template) => {
                let mut headers = [0; HEADERS_LEN];
                template.emit(packet.bytes.len(), &mut headers);
                let (start, rate) = self.start;
                let time = start.saturating_add((packet.first as f64 / rate * 1e9) as u64);
                Ok(writer.write_frame(time, &[&headers, packet.bytes])?)
            }
        }
    }
}

/// Packets that are lost on this host are told, fewer and fewer of them.
fn told_of(peer: &str) -> LostDatagrams {
    let peer = peer.to_owned();
    LostDatagrams::telling(move |error, lost| {
        if lost.in_a_row.is_power_of_two() {
            tracing::warn!(
                lost = lost.all,
                "no way to {peer}, its packets are lost: {error}"
            );
        }
    })
}

fn capture(path: &Path) -> Result<Ends, PlaceError> {
    if path.extension().is_some_and(|end| end == "pcapng") {
        return Err(PlaceError::Pcapng);
    }
    let writer = CaptureWriter::create(path, Precision::Nanoseconds)?;
    let [from, to] = CAPTURE_ENDS;
    let mac = MacAddr::multicast(*to.ip()).unwrap_or_default();
    let template = HeaderTemplate::new(MacAddr::default(), mac, from, to, 1);
    Ok(Ends::Capture(Box::new(writer), Box::new(template)))
}

impl PortEnd {
    fn open(address: &PortAddress, settings: &OutletSettings) -> Result<PortEnd, PlaceError> {
        let ports = DatagramSettings {
            worker_cpus: vec![settings.cpu],
            ..DatagramSettings::default()
        };
        let mut ports = open_datagrams(&[], std::slice::from_ref(address), &ports)?;
        let queue = || DatagramError::Queue(address.interface.clone());
        let (frames, queue_out) = ports.senders.pop().ok_or_else(queue)?.into_parts();
        let eal = &ports.kept.eal;
        let lcore = *eal.workers().first().ok_or_else(queue)?;
        let (ring, packets) = mbuf_ring(eal, "modem-tx", RING)?;
        let done = Stop::new();
        let told = done.clone();
        let work = move || send(queue_out, packets, &told);
        Ok(PortEnd {
            frames,
            batch: MbufBatch::new(),
            ring,
            done,
            lcore: eal.launch(lcore.id, "modem-tx", work)?,
            kept: ports.kept,
        })
    }

    /// Hands a packet to the lcore, and waits for a buffer and for room.
    fn packet(&mut self, bytes: &[u8]) -> Result<(), PlaceError> {
        let (mut idle, begun) = (Idle::new(IdlePolicy::Share), Instant::now());
        loop {
            if let Some(frame) = self.frames.frame(bytes) {
                // The batch was emptied by the packet before.
                let _ = self.batch.push(frame);
                break;
            }
            rest(&mut idle, begun)?;
        }
        while !self.batch.is_empty() {
            if self.ring.enqueue(&mut self.batch) == 0 {
                rest(&mut idle, begun)?;
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<(), PlaceError> {
        self.done.set();
        self.lcore.join()??;
        drop(self.kept);
        Ok(())
    }
}

fn rest(idle: &mut Idle, since: Instant) -> Result<(), PlaceError> {
    idle.wait();
    match since.elapsed() > PATIENCE {
        true => Err(PlaceError::Stuck),
        false => Ok(()),
    }
}

/// The lcore of a port: sends what is in the ring until no more comes.
fn send(mut queue: TxQueue, mut packets: RingReceiver, done: &Stop) -> Result<(), PlaceError> {
    let mut batch: MbufBatch = MbufBatch::new();
    let (mut idle, mut last) = (Idle::new(IdlePolicy::Share), Instant::now());
    loop {
        // Before the ring is looked at: what comes first is in it then.
        let ends = done.is_set();
        packets.dequeue(&mut batch);
        if batch.is_empty() {
            if ends {
                return Ok(());
            }
            last = Instant::now();
            idle.wait();
        } else if queue.tx_burst(&mut batch) > 0 {
            last = Instant::now();
            idle.reset();
        } else {
            rest(&mut idle, last)?;
        }
    }
}
