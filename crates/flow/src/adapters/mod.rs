//! Where samples come from and go to: files, pipes, TCP, UDP, and memory shared with another
//! process. All of them carry raw little-endian samples, complex numbers interleaved; a
//! [`BlockLayout`] makes streams of blocks of them, as programs of Laminar's have.
//!
//! | address | input | output |
//! |---|---|---|
//! | `PATH`, `file:PATH` | the file, or the named pipe, to its end | the file, made anew |
//! | `-` | standard input | standard output |
//! | `tcp:HOST:PORT` | connects, and reads until the peer closes | connects |
//! | `tcp-listen:ADDRESS:PORT` | waits for one peer | waits for one peer |
//! | `udp:ADDRESS:PORT` | datagrams as they come; joins a multicast group | datagrams to there |
//! | `shm:NAME` | shared memory that another process makes | makes shared memory |
//!
//! Options follow behind commas: `size=BYTES` is the payload of a datagram (1472 unless given), or
//! the ring of shared memory (1 MiB unless given; both ends must say the same); `idle=SECONDS` ends
//! an input of `udp` or `shm` once nothing has come for so long.
//!
//! ```
//! use karoo_flow::adapters::{Address, Stop};
//! use std::io::{Read, Write};
//!
//! let address: Address = "udp:127.0.0.1:5004,size=512".parse().unwrap();
//! assert_eq!(address.to_string(), "udp:127.0.0.1:5004,size=512");
//! assert!("ucp:here".parse::<Address>().unwrap_err().contains("ucp"));
//!
//! let path = std::env::temp_dir().join(format!("flow-{}", std::process::id()));
//! let file: Address = path.to_str().unwrap().parse().unwrap();
//! let stop = Stop::new();
//! file.writer(&stop).unwrap().write_all(&[1, 2, 3]).unwrap();
//! let mut bytes = Vec::new();
//! file.reader(&stop).unwrap().read_to_end(&mut bytes).unwrap();
//! assert_eq!(bytes, [1, 2, 3]);
//! # std::fs::remove_file(path).unwrap();
//! ```

mod address;
mod blocks;
mod datagrams;
mod net;
mod pipe;
mod shared;
mod stop;

pub use address::{Address, DEFAULT_DATAGRAM, DEFAULT_RING};
pub use blocks::{BlockLayout, BlockLayoutError};
pub use datagrams::{DatagramSender, LostCounts, LostDatagrams, TakenDatagrams};
pub use net::{first, resolve};
pub use pipe::Awaited;
pub use shared::{SharedReader, SharedWriter};
pub use stop::Stop;

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use pipe::Pipe;

impl Address {
    /// Opens an input. What would wait for a peer or for samples gives up when `stop` is set: the
    /// samples then end.
    pub fn reader(&self, stop: &Stop) -> io::Result<Box<dyn Read + Send>> {
        self.reader_of(TakenDatagrams::default(), stop)
    }

    /// The same, of which only some datagrams are taken. Other kinds of inputs take all.
    pub fn reader_of(
        &self,
        taken: TakenDatagrams,
        stop: &Stop,
    ) -> io::Result<Box<dyn Read + Send>> {
        Ok(match self {
            Address::File(path) => Pipe::open(path, stop)?,
            Address::Standard => Pipe::read_from(open(io::stdin())?, stop)?,
            Address::Connect(peer) => Box::new(net::Stream::connect(peer, stop)?),
            Address::Listen(local) => Box::new(net::Stream::accept(local, stop)?),
            Address::Udp { peer, idle, .. } => {
                Box::new(net::Datagrams::bind(peer, *idle, taken, stop)?)
            }
            Address::Shared { name, bytes, idle } => {
                Box::new(SharedReader::open(name, *bytes, *idle, stop)?)
            }
        })
    }

    /// Opens an output. Whoever has written all of it flushes it twice. A TCP connection ends at
    /// the first time, and takes nothing more; at the second, it waits until the peer has all, as
    /// shared memory does. So who writes several ends them all before waiting for one.
    pub fn writer(&self, stop: &Stop) -> io::Result<Box<dyn Write + Send>> {
        self.writer_of(LostDatagrams::default(), stop)
    }

    /// The same, where datagrams that are lost on this host are told. A datagram that has no way to
    /// the peer is an error as long as there never was one, and lost later.
    pub fn writer_of(&self, lost: LostDatagrams, stop: &Stop) -> io::Result<Box<dyn Write + Send>> {
        Ok(match self {
            Address::File(path) => Pipe::create(path, stop)?,
            // Without the standard library's buffer, which is for lines of text: what comes out
            // block by block goes on block by block.
            Address::Standard => Pipe::write_to(open(io::stdout())?, stop)?,
            Address::Connect(peer) => Box::new(net::Stream::connect(peer, stop)?),
            Address::Listen(local) => Box::new(net::Stream::accept(local, stop)?),
            Address::Udp { peer, bytes, .. } => Box::new(net::Sender::connect(peer, *bytes, lost)?),
            Address::Shared { name, bytes, .. } => {
                Box::new(SharedWriter::create(name, *bytes, stop)?)
            }
        })
    }
}

/// What a stream of the process has open.
fn open(stream: impl AsFd) -> io::Result<File> {
    Ok(stream.as_fd().try_clone_to_owned()?.into())
}
