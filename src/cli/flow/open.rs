//! The outside of a graph, opened.

use std::io::{self, BufWriter, Read, Write};
use std::path::PathBuf;

use karoo_flow::Graph;
use karoo_flow::adapters::{Address, Awaited, LostDatagrams, Stop, TakenDatagrams};

use super::ends::{End, Ends, Given};
use crate::cli::waits::{FirstWaits, ToldWait, Way, tell_wait, wait_in_words};
use crate::cli::{Failure, NewFile, is_pipe};
use crate::flow::{PortReader, PortWriter, RunWatch, Waiting, open};
use crate::ports::{KeptPorts, PortAddress};

/// Bytes that are written to a file at once.
const BUFFER: usize = 1 << 16;

/// The outside, opened.
pub struct Opened {
    /// One for each input, in their order.
    pub readers: Vec<Box<dyn Read + Send>>,
    /// One for each output.
    pub writers: Vec<Box<dyn Write>>,
    /// To be kept as long as both are used.
    pub kept: Option<KeptPorts>,
}

/// The samples of a port in a stream of blocks. Errors name the stream: the port may be any of
/// those that share it.
struct OfBlocks {
    reader: Box<dyn Read + Send>,
    /// The ports and their address.
    name: String,
}

impl Read for OfBlocks {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.reader
            .read(bytes)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", self.name)))
    }
}

/// What is to be written.
enum Out {
    /// What is there already: all but files.
    There(Box<dyn Write>),
    /// A file, with what is in it.
    File(PathBuf, NewFile),
}

/// Whether opening it waits for a peer: a named pipe's other end, or whoever connects.
fn waits(address: &Address) -> bool {
    match address {
        Address::File(path) => is_pipe(path),
        Address::Standard => false,
        _ => true,
    }
}

/// The address of ports, and how it is named.
struct Named<'a> {
    name: String,
    address: &'a Address,
}

/// Datagrams of an input with samples of so many bytes. Those that are left out are told, fewer and
/// fewer of them.
fn taken(name: &str, sample: usize) -> TakenDatagrams {
    let name = name.to_owned();
    TakenDatagrams::of_samples(sample, move |bytes, left_out| {
        if left_out.is_power_of_two() {
            tracing::warn!(
                left_out,
                "{name}: a datagram of {bytes} bytes is left out: a sample has {sample}, and the \
                 others were whole samples"
            );
        }
    })
}

/// Datagrams of an output that are lost on this host are told, fewer and fewer of them.
fn lost(name: &str) -> LostDatagrams {
    let name = name.to_owned();
    LostDatagrams::telling(move |error, lost| {
        if lost.in_a_row.is_power_of_two() {
            tracing::warn!(
                lost = lost.all,
                "{name}: no way to the peer, its datagrams are lost: {error}"
            );
        }
    })
}

impl<'a> Named<'a> {
    fn of(given: &Given, address: &'a Address) -> Self {
        let name = given.name.clone();
        Self { name, address }
    }

    fn failed(&self, error: io::Error) -> Failure {
        Failure::data(format!("{}: {}: {error}", self.name, self.address))
    }

    /// It waits for its peer from now on, if there is one to wait for.
    fn waits(&self, way: Way, run: &RunWatch) -> Option<(Waiting, ToldWait)> {
        let text = wait_in_words(&self.name, self.address, way)?;
        Some((run.wait(&self.name, &text), tell_wait(text)))
    }

    fn reader(
        &self,
        sample: usize,
        (stop, run): (&Stop, &RunWatch),
    ) -> Result<Box<dyn Read + Send>, Failure> {
        if let Address::File(path) = self.address
            && path.is_dir()
        {
            return Err(self.failed(io::ErrorKind::IsADirectory.into()));
        }
        let _waits = self.waits(Way::In, run);
        self.address
            .reader_of(taken(&self.name, sample), stop)
            .map_err(|error| self.failed(error))
    }

    fn out(&self, (stop, run): (&Stop, &RunWatch)) -> Result<Out, Failure> {
        match self.address {
            Address::File(path) if !waits(self.address) => {
                let file = NewFile::open(path).map_err(|error| self.failed(error))?;
                Ok(Out::File(path.clone(), file))
            }
            other => {
                let is_shared = matches!(other, Address::Shared { .. });
                let waits = (!is_shared).then(|| self.waits(Way::Out, run));
                let writer = other
                    .writer_of(lost(&self.name), stop)
                    .map_err(|error| self.failed(error))?;
                drop(waits);
                if !is_shared {
                    return Ok(Out::There(writer));
                }
                // It is made at once; its first write waits for a reader.
                let (name, address, run) = (self.name.clone(), other.clone(), run.clone());
                let begin = move || {
                    let named = Named {
                        name,
                        address: &address,
                    };
                    named.waits(Way::Out, &run)
                };
                Ok(Out::There(Box::new(FirstWaits::new(writer, begin))))
            }
        }
    }
}

/// DPDK ports of both directions, in their order.
#[derive(Default)]
struct DpdkPorts {
    readers: Vec<PortReader>,
    writers: Vec<PortWriter>,
    kept: Option<KeptPorts>,
}

impl DpdkPorts {
    fn open(inputs: &Ends, outputs: &Ends, stop: &Stop) -> Result<DpdkPorts, Failure> {
        let ports = |ends: &Ends| -> Vec<PortAddress> {
            let port = |given: &Given| match &given.end {
                End::Port(address) => Some(address.clone()),
                End::Plain(_) => None,
            };
            ends.iter().filter_map(port).collect()
        };
        let (inputs, outputs) = (ports(inputs), ports(outputs));
        if inputs.is_empty() && outputs.is_empty() {
            return Ok(DpdkPorts::default());
        }
        let opened = open(&inputs, &outputs, stop).map_err(Failure::usage)?;
        Ok(DpdkPorts {
            readers: opened.readers,
            writers: opened.writers,
            kept: Some(opened.kept),
        })
    }
}

/// Opens all, and tells `run` who waits meanwhile. Inputs that are there come first, then outputs,
/// for whoever takes those is to be there before inputs wait for their peers. Files that are
/// written lose what they had when all else is open, and if pipes are all that is read, when the
/// first writer has come.
pub fn open_all(
    graph: &Graph,
    inputs: &Ends,
    outputs: &Ends,
    (stop, run): (&Stop, &RunWatch),
) -> Result<Opened, Failure> {
    let sample = |given: &Given| match &given.blocks {
        Some(blocks) => blocks.bytes(),
        None => graph.node(given.ports[0]).outputs[0].bytes(),
    };
    let mut readers: Vec<Option<Box<dyn Read + Send>>> = Vec::new();
    for given in inputs.iter() {
        readers.push(match &given.end {
            End::Plain(address) if !waits(address) => {
                Some(Named::of(given, address).reader(sample(given), (stop, run))?)
            }
            _ => None,
        });
    }
    let ports = DpdkPorts::open(inputs, outputs, stop)?;
    let (mut from_ports, mut to_ports) = (ports.readers.into_iter(), ports.writers.into_iter());
    let mut outs = Vec::new();
    for given in outputs.iter() {
        outs.push(match &given.end {
            End::Plain(address) => Named::of(given, address).out((stop, run))?,
            End::Port(_) => match to_ports.next() {
                Some(writer) => Out::There(Box::new(writer)),
                None => Out::There(Box::new(io::sink())),
            },
        });
    }
    let mut awaited = Awaited::default();
    for (given, reader) in inputs.iter().zip(&mut readers) {
        match &given.end {
            End::Plain(address) if reader.is_none() => {
                let named = Named::of(given, address);
                if let Address::File(path) = address {
                    awaited.add(path).map_err(|error| named.failed(error))?;
                }
                *reader = Some(named.reader(sample(given), (stop, run))?);
            }
            End::Plain(_) => {}
            End::Port(_) => {
                *reader = from_ports.next().map(|port| {
                    let taken = taken(&given.name, sample(given));
                    Box::new(port.taking(taken)) as Box<dyn Read + Send>
                });
            }
        }
    }
    // Beside other inputs a pipe may be written with what those have made.
    if inputs.iter().all(|given| given.end.is_pipe()) {
        let failed = |error| Failure::data(format!("--input {error}"));
        let waits = |given: &Given| match &given.end {
            End::Plain(address) => Named::of(given, address).waits(Way::In, run),
            End::Port(_) => None,
        };
        let _waits: Vec<_> = inputs.iter().filter_map(waits).collect();
        awaited.wait(stop).map_err(failed)?;
    }
    let begin = |out: Out| match out {
        Out::There(writer) => Ok(writer),
        Out::File(path, file) => {
            let failed = |error| Failure::data(format!("--output {}: {error}", path.display()));
            let file = file.begin().map_err(failed)?;
            Ok(Box::new(BufWriter::with_capacity(BUFFER, file)) as Box<dyn Write>)
        }
    };
    let by_port = |(given, reader): (&Given, Option<_>)| match (reader, &given.blocks) {
        (Some(reader), Some(blocks)) => {
            let name = match &given.end {
                End::Plain(address) => format!("{}={address}", given.name),
                End::Port(_) => given.name.clone(),
            };
            let named = |reader| -> Box<dyn Read + Send> {
                let name = name.clone();
                Box::new(OfBlocks { reader, name })
            };
            let readers = blocks.clone().readers(reader, stop);
            readers.into_iter().map(named).collect()
        }
        (reader, _) => reader.into_iter().collect(),
    };
    let readers = inputs.iter().zip(readers).map(by_port).collect();
    let mut writers = Vec::new();
    for (given, out) in outputs.iter().zip(outs) {
        let writer = begin(out)?;
        writers.push(match &given.blocks {
            Some(blocks) => blocks.clone().writers(writer),
            None => vec![writer],
        });
    }
    Ok(Opened {
        readers: inputs.deal(readers, || None),
        writers: outputs.deal(writers, || Some(Box::new(io::sink()))),
        kept: ports.kept,
    })
}
