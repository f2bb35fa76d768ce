//! Packets to blocks of samples, on a thread or an lcore of its own, so that whoever takes the
//! blocks may be held up for a while.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{io, mem};

use dpdk::{BURST, LcoreHandle};
use ground::{Idle, IdlePolicy, StopFlag};
use karoo_modem::formats::FullScale;
use karoo_modem::vita::{Context, Piece, SampleRate, StreamCounts, StreamReader};
use nix::sys::socket::{MsgFlags, recv};
use num_complex::Complex32;
use schemars::JsonSchema;
use serde::Serialize;

use super::place::{Place, PlaceError};
use super::sockets;
use crate::net::{CaptureReader, Datagram};
use crate::ports::{
    DatagramError, DatagramReceiver, DatagramSettings, Interface, KeptPorts, open_datagrams,
};

/// Samples of a block, from which on it is not added to while others wait.
const BLOCK: usize = 1 << 15;
/// Blocks that may wait.
const BLOCKS: usize = 128;
/// Samples of a gap that are made up for by zeros; a longer one begins the stream anew.
const MOST_LOST: u64 = 1 << 21;
/// Bytes of packets that may wait in a port: as many as AF_PACKET's largest ring holds.
const PORT_BUFFER: usize = 4096 * 9216;
/// How often a port is asked for packets that found no room in it.
const EACH: Duration = Duration::from_secs(1);
/// Bytes of the largest datagram.
const DATAGRAM: usize = 1 << 16;

/// How packets are taken.
#[derive(Clone, Debug, Default)]
pub struct IntakeSettings {
    /// Number of the stream; that of the first packet if there is none.
    pub stream: Option<u32>,
    /// Samples a second, until a context says it.
    pub rate: Option<SampleRate>,
    /// What 32767 stands for.
    pub full_scale: FullScale,
    /// Interface by which a socket joins a group.
    pub interface: Option<String>,
    /// CPU of a port's lcore.
    pub cpu: usize,
}

/// What has become of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct IntakeCounts {
    /// Of those that are datagrams.
    #[serde(flatten)]
    pub stream: StreamCounts,
    /// Number of the stream of the newest packet of another stream.
    pub other_stream: Option<u32>,
    /// Frames of a capture that are no UDP datagrams.
    pub no_datagrams: u64,
    /// Packets that found no room in the port, where it says so.
    pub port_missed: Option<u64>,
    /// Whether the capture ends within a record.
    pub capture_cut: bool,
}

impl IntakeCounts {
    /// Number of the stream to take in place of this one, of which less came than of others.
    pub fn stream_instead(&self) -> Option<u32> {
        let fewer = self.stream.packets < self.stream.other_streams;
        self.other_stream.filter(|_| fewer)
    }
}

/// Samples one behind the other.
#[derive(Debug, Default)]
pub struct Block {
    /// The samples; zeros stand for those that were lost.
    pub samples: Vec<Complex32>,
    /// Whether the stream begins anew with the first.
    pub restart: bool,
}

/// What was there to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// A block.
    Block,
    /// Nothing yet.
    Nothing,
    /// Nothing, and nothing more comes.
    End,
}

/// What the worker tells.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    counts: IntakeCounts,
    context: Option<Context>,
}

enum Worker {
    Thread(JoinHandle<Result<(), PlaceError>>),
    Lcore(LcoreHandle<Result<(), PlaceError>>, KeptPorts),
}

/// Samples of one stream of packets.
pub struct Intake {
    blocks: Receiver<Block>,
    empty: SyncSender<Vec<Complex32>>,
    /// Blocks on their way.
    waiting: Arc<AtomicUsize>,
    told: Arc<Mutex<Told>>,
    stop: StopFlag,
    worker: Worker,
    full_scale: FullScale,
}

impl Intake {
    /// Takes packets from now on.
    pub fn open(place: &Place, settings: &IntakeSettings) -> Result<Intake, PlaceError> {
        let (blocks, filled) = sync_channel(BLOCKS);
        let (empty, used) = sync_channel(BLOCKS);
        let told = Arc::new(Mutex::new(Told::default()));
        let stop = StopFlag::default();
        let waiting = Arc::<AtomicUsize>::default();
        let assembler = Assembler {
            reader: StreamReader::new(
                settings.stream,
                settings.rate,
                settings.full_scale,
                MOST_LOST,
            ),
            block: Block::default(),
            blocks,
            used,
            waiting: waiting.clone(),
            now: Told::default(),
            told: told.clone(),
            stop: stop.clone(),
        };
        let worker = match place {
            Place::Bytes(_) => return Err(PlaceError::NoPackets(place.to_string())),
            Place::Socket { peer, idle, .. } => {
                let interface = settings.interface.as_deref().map(Interface::find);
                let socket = sockets::receiver(peer, interface.transpose()?.as_ref())?;
                let idle = *idle;
                thread_of(move || assembler.socket(&socket, idle))?
            }
            Place::Capture { path, .. } => {
                let capture = CaptureReader::open(Path::new(path))?;
                thread_of(move || assembler.capture(capture))?
            }
            Place::Port(address) => {
                let ports = DatagramSettings {
                    buffer: PORT_BUFFER,
                    worker_cpus: vec![settings.cpu],
                };
                let mut ports = open_datagrams(std::slice::from_ref(address), &[], &ports)?;
                let queue = || DatagramError::Queue(address.interface.clone());
                let receiver = ports.receivers.pop().ok_or_else(queue)?;
                let lcore = *ports.kept.eal.workers().first().ok_or_else(queue)?;
                let idle = address.idle;
                let work = move || assembler.port(receiver, idle);
                let handle = ports.kept.eal.launch(lcore.id, "modem-rx", work)?;
                Worker::Lcore(handle, ports.kept)
            }
        };
        Ok(Intake {
            blocks: filled,
            empty,
            waiting,
            told,
            stop,
            worker,
            full_scale: settings.full_scale,
        })
    }

    /// Takes the next block, in exchange for the one that was taken before, and waits for it if
    /// need be.
    pub fn take(&mut self, block: &mut Block, patience: Duration) -> Taken {
        match self.blocks.recv_timeout(patience) {
            Ok(next) => {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                let mut used = mem::replace(block, next).samples;
                used.clear();
                // If there are enough, it goes.
                let _ = self.empty.try_send(used);
                Taken::Block
            }
            Err(RecvTimeoutError::Timeout) => Taken::Nothing,
            Err(RecvTimeoutError::Disconnected) => Taken::End,
        }
    }

    fn told(&self) -> Told {
        *ground::lock(&self.told)
    }

    /// Value that its integers' largest stands for.
    pub fn full_scale(&self) -> FullScale {
        self.full_scale
    }

    /// The stream's newest context.
    pub fn context(&self) -> Option<Context> {
        self.told().context
    }

    /// What has become of packets so far.
    pub fn counts(&self) -> IntakeCounts {
        self.told().counts
    }

    /// Ends taking packets; blocks that wait can still be taken.
    pub fn stop(&self) {
        self.stop.set();
    }

    /// Ends it, and says what has become of packets.
    pub fn finish(self) -> Result<IntakeCounts, PlaceError> {
        self.stop.set();
        // Whoever waits for room goes on.
        drop(self.blocks);
        match self.worker {
            Worker::Thread(thread) => thread.join().map_err(|_| PlaceError::Thread)??,
            Worker::Lcore(lcore, _kept) => lcore.join()??,
        }
        let told = ground::lock(&self.told);
        Ok(told.counts)
    }
}

fn thread_of(
    work: impl FnOnce() -> Result<(), PlaceError> + Send + 'static,
) -> Result<Worker, PlaceError> {
    let thread = thread::Builder::new().name("packets".to_owned());
    Ok(Worker::Thread(thread.spawn(work)?))
}

/// Makes blocks of packets.
struct Assembler {
    reader: StreamReader,
    block: Block,
    blocks: SyncSender<Block>,
    used: Receiver<Vec<Complex32>>,
    waiting: Arc<AtomicUsize>,
    now: Told,
    told: Arc<Mutex<Told>>,
    stop: StopFlag,
}

impl Assembler {
    fn packet(&mut self, bytes: &[u8]) {
        let placed = match self.reader.place(bytes) {
            Ok(placed) => placed,
            Err(error) => return tracing::debug!(%error, "a packet is left out"),
        };
        match placed.piece {
            Piece::Restart => {
                self.give(true);
                self.block.restart = true;
            }
            Piece::Context(context) => self.now.context = Some(context),
            Piece::Samples { lost, .. } => self.zeros(lost),
            Piece::Nothing => {}
        }
        self.block.samples.extend(placed.samples());
        if self.block.samples.len() >= BLOCK {
            self.give(false);
        }
    }

    /// Adds zeros, a block at a time: a gap may be much longer than a block.
    fn zeros(&mut self, mut lost: u64) {
        while lost > 0 {
            let samples = &mut self.block.samples;
            let now = lost.min((2 * BLOCK - samples.len()) as u64);
            samples.resize(samples.len() + now as usize, Complex32::default());
            lost -= now;
            if samples.len() >= BLOCK {
                self.give(false);
            }
        }
    }

    /// Gives what there is, or adds to it while others wait. Where nobody takes blocks, one grows
    /// to twice its size before it waits.
    fn give(&mut self, wait: bool) {
        self.now.counts.stream = self.reader.counts();
        self.now.counts.other_stream = self.reader.other_stream();
        *ground::lock(&self.told) = self.now;
        let length = self.block.samples.len();
        if length == 0 || !wait && length < BLOCK && self.waiting.load(Ordering::Relaxed) > 0 {
            return;
        }
        let wait = wait || length >= 2 * BLOCK;
        let samples = self.used.try_recv().unwrap_or_default();
        let next = Block {
            samples,
            restart: false,
        };
        let block = mem::replace(&mut self.block, next);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        if wait {
            if self.blocks.send(block).is_err() {
                self.stop.set();
            }
            return;
        }
        match self.blocks.try_send(block) {
            Ok(()) => {}
            Err(TrySendError::Full(block)) => {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                self.block = block;
            }
            Err(TrySendError::Disconnected(_)) => self.stop.set(),
        }
    }

    fn socket(mut self, socket: &UdpSocket, idle: Option<Duration>) -> Result<(), PlaceError> {
        let heard = self.hear(socket, idle);
        // What came before a failure is not lost by it.
        self.give(true);
        heard
    }

    fn hear(&mut self, socket: &UdpSocket, idle: Option<Duration>) -> Result<(), PlaceError> {
        let mut bytes = vec![0; DATAGRAM];
        let mut last = Instant::now();
        while !self.stop.is_set() {
            match socket.recv(&mut bytes) {
                Ok(length) => self.packet(&bytes[..length]),
                Err(error) if waits(&error) => {
                    self.give(false);
                    if idle.is_some_and(|idle| last.elapsed() >= idle) {
                        break;
                    }
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            last = Instant::now();
            // What else is there, without waiting.
            for _ in 1..2 * BURST {
                match recv(socket.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT) {
                    Ok(length) => self.packet(&bytes[..length]),
                    Err(_) => break,
                }
            }
            self.give(false);
        }
        Ok(())
    }

    fn port(
        mut self,
        mut receiver: DatagramReceiver,
        idle: Option<Duration>,
    ) -> Result<(), PlaceError> {
        let mut rest = Idle::new(IdlePolicy::Share);
        let mut last = Instant::now();
        let mut asked: Option<Instant> = None;
        while !self.stop.is_set() {
            if asked.is_none_or(|asked| asked.elapsed() >= EACH) {
                self.now.counts.port_missed = receiver.missed();
                asked = Some(Instant::now());
            }
            // A port has packets of others too.
            let mut ours = false;
            let count = receiver.receive(|bytes| {
                ours = true;
                self.packet(bytes);
            });
            if ours {
                last = Instant::now();
            } else if idle.is_some_and(|idle| last.elapsed() >= idle) {
                break;
            }
            if count == 0 {
                self.give(false);
                rest.wait();
            } else {
                rest.reset();
            }
        }
        self.now.counts.port_missed = receiver.missed();
        self.give(true);
        Ok(())
    }

    fn capture(mut self, mut capture: CaptureReader) -> Result<(), PlaceError> {
        let read = self.frames(&mut capture);
        self.now.counts.capture_cut = capture.truncated();
        self.give(true);
        read
    }

    fn frames(&mut self, capture: &mut CaptureReader) -> Result<(), PlaceError> {
        while let Some(frame) = capture.next_frame()? {
            if self.stop.is_set() {
                break;
            }
            match Datagram::new_checked(frame.bytes) {
                Ok(datagram) => self.packet(datagram.payload()),
                Err(_) => self.now.counts.no_datagrams += 1,
            }
        }
        Ok(())
    }
}

fn waits(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}
