//! The outside of a graph: what its ports are given, and how all of it is opened.

use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use karoo_flow::adapters::{Address, Awaited, LostDatagrams, Stop, TakenDatagrams};
use karoo_flow::{Graph, NodeId};

use crate::cli::waits::{FirstWaits, ToldWait, Way, tell_wait, wait_in_words};
use crate::cli::{Failure, NewFile, is_pipe, is_stdout};
use crate::flow::{PortReader, PortWriter, RunWatch, Waiting, open};
use crate::net::is_stdin;
use crate::ports::{KeptPorts, PORT_SCHEME, PortAddress};

/// Bytes that are written to a file at once.
const BUFFER: usize = 1 << 16;

/// An end of the outside.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// What the library opens.
    Plain(Address),
    /// A DPDK port.
    Port(PortAddress),
}

impl End {
    /// Path of the end, if it is a file.
    pub fn file(&self) -> Option<&Path> {
        match self {
            End::Plain(Address::File(path)) => Some(path),
            _ => None,
        }
    }

    /// Whether it is a named pipe.
    fn is_pipe(&self) -> bool {
        self.file().is_some_and(is_pipe)
    }

    /// Whether samples come from standard input, by whatever name. A file there is read from its
    /// begin by its other names.
    pub fn is_stdin(&self) -> bool {
        match self {
            End::Plain(Address::Standard) => true,
            end => end
                .file()
                .is_some_and(|path| is_pipe(path) && is_stdin(path)),
        }
    }

    /// Whether samples go to standard output, by whatever name.
    pub fn is_stdout(&self) -> bool {
        match self {
            End::Plain(Address::Standard) => true,
            end => end.file().is_some_and(is_stdout),
        }
    }
}

impl FromStr for End {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.starts_with(PORT_SCHEME) {
            true => text.parse().map(Self::Port),
            false => Address::parse_among(text, &[PORT_SCHEME]).map(Self::Plain),
        }
    }
}

/// The address of each port, in the order of the graph's.
pub type Ends = Vec<(NodeId, Option<End>)>;

/// What an option gives to the ports.
pub fn ports(
    graph: &Graph,
    option: &str,
    given: &[String],
    ids: Vec<NodeId>,
) -> Result<Ends, Failure> {
    let mut ports: Ends = ids.into_iter().map(|id| (id, None)).collect();
    for text in given {
        let of = |name: &str| ports.iter().position(|(id, _)| graph.path(*id) == name);
        // Both names and addresses may have an equals sign.
        let split = text.match_indices('=').find_map(|(at, _)| {
            let (name, address) = (&text[..at], &text[at + 1..]);
            of(name).map(|port| (port, address))
        });
        // A word alone in front of it is a wrong name: no file is made of it.
        let word = text.split_once('=').map(|(name, _)| name);
        let is_address = word.is_none_or(|name| name.contains(['/', ':']));
        let (port, address) = match split {
            Some(found) => found,
            None if ports.len() == 1 && is_address => (0, text.as_str()),
            None => {
                let names: Vec<String> = ports.iter().map(|(id, _)| graph.path(*id)).collect();
                let names = if names.is_empty() {
                    "none".to_owned()
                } else {
                    names.join(", ")
                };
                return Err(Failure::usage(format!(
                    "{option} {text}: there is no such port; write PORT=ADDRESS with one of: \
                     {names}"
                )));
            }
        };
        let address: End = address
            .parse()
            .map_err(|error| Failure::usage(format!("{option} {error}")))?;
        if ports[port].1.replace(address).is_some() {
            return Err(Failure::usage(format!(
                "{option} {text}: the port has an address already"
            )));
        }
    }
    Ok(ports)
}

/// Refuses standard input or output for more than one port: each would have some of the samples.
pub fn one_standard(
    option: &str,
    graph: &Graph,
    ends: &Ends,
    is: fn(&End) -> bool,
) -> Result<(), Failure> {
    let mut names = ends
        .iter()
        .filter(|(_, end)| end.as_ref().is_some_and(is))
        .map(|(id, _)| graph.path(*id));
    match (names.next(), names.next()) {
        (Some(first), Some(second)) => Err(Failure::usage(format!(
            "{option} {second}=…: {first} has the standard stream already; give one of them a \
             file, or a pipe of its own"
        ))),
        _ => Ok(()),
    }
}

/// Refuses times of silence for outputs, which have no use for them.
pub fn no_idle(graph: &Graph, outputs: &Ends) -> Result<(), Failure> {
    let idle = |end: &End| match end {
        End::Plain(address) => address.idle(),
        End::Port(address) => address.idle,
    };
    let mut given = outputs.iter();
    let given = given.find(|(_, end)| end.as_ref().and_then(idle).is_some());
    given.map_or(Ok(()), |(id, _)| {
        let path = graph.path(*id);
        Err(Failure::usage(format!(
            "--output {path}=…: idle= is for inputs; leave it out"
        )))
    })
}

/// The outside, opened.
pub struct Opened {
    /// One for each input, in their order.
    pub readers: Vec<Box<dyn Read + Send>>,
    /// One for each output.
    pub writers: Vec<Box<dyn Write>>,
    /// To be kept as long as both are used.
    pub kept: Option<KeptPorts>,
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

/// The address of a port, and how it is named.
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
    fn of(graph: &Graph, id: NodeId, address: &'a Address) -> Self {
        let name = graph.path(id);
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
            let port = |end: &(NodeId, Option<End>)| match &end.1 {
                Some(End::Port(address)) => Some(address.clone()),
                _ => None,
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
    let sample = |id: &NodeId| graph.node(*id).outputs[0].bytes();
    let mut readers: Vec<Option<Box<dyn Read + Send>>> = Vec::new();
    for (id, end) in inputs {
        readers.push(match end {
            Some(End::Plain(address)) if !waits(address) => {
                Some(Named::of(graph, *id, address).reader(sample(id), (stop, run))?)
            }
            _ => None,
        });
    }
    let ports = DpdkPorts::open(inputs, outputs, stop)?;
    let (mut from_ports, mut to_ports) = (ports.readers.into_iter(), ports.writers.into_iter());
    let mut outs = Vec::new();
    for (id, end) in outputs {
        outs.push(match end {
            Some(End::Plain(address)) => Named::of(graph, *id, address).out((stop, run))?,
            Some(End::Port(_)) => match to_ports.next() {
                Some(writer) => Out::There(Box::new(writer)),
                None => Out::There(Box::new(io::sink())),
            },
            None => Out::There(Box::new(io::sink())),
        });
    }
    let mut awaited = Awaited::default();
    for ((id, end), reader) in inputs.iter().zip(&mut readers) {
        match end {
            Some(End::Plain(address)) if reader.is_none() => {
                let named = Named::of(graph, *id, address);
                if let Address::File(path) = address {
                    awaited.add(path).map_err(|error| named.failed(error))?;
                }
                *reader = Some(named.reader(sample(id), (stop, run))?);
            }
            Some(End::Port(_)) => {
                *reader = from_ports.next().map(|port| {
                    let taken = taken(&graph.path(*id), sample(id));
                    Box::new(port.taking(taken)) as Box<dyn Read + Send>
                });
            }
            _ => {}
        }
    }
    // Beside other inputs a pipe may be written with what those have made.
    if inputs.iter().flat_map(|(_, end)| end).all(End::is_pipe) {
        let failed = |error| Failure::data(format!("--input {error}"));
        let waits = |(id, end): &(NodeId, Option<End>)| match end {
            Some(End::Plain(address)) => Named::of(graph, *id, address).waits(Way::In, run),
            _ => None,
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
    Ok(Opened {
        readers: readers.into_iter().flatten().collect(),
        writers: outs.into_iter().map(begin).collect::<Result<_, _>>()?,
        kept: ports.kept,
    })
}
