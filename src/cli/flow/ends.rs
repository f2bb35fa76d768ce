//! The outside of a graph: what its ports are given.

use std::path::Path;
use std::str::FromStr;

use karoo_flow::adapters::{Address, BlockLayout};
use karoo_flow::{Graph, NodeId};

use crate::cli::{Failure, is_pipe, is_stdout};
use crate::net::is_stdin;
use crate::ports::{PORT_SCHEME, PortAddress};

/// The option of an address that says how many samples a block has.
const PLANAR: &str = "planar=";

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
    pub fn is_pipe(&self) -> bool {
        self.file().is_some_and(is_pipe)
    }

    /// Whether it has datagrams, of which some may be lost.
    fn is_of_datagrams(&self) -> bool {
        matches!(self, End::Port(_) | End::Plain(Address::Udp { .. }))
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
            false => Address::parse_among(text, &[PORT_SCHEME], &[PLANAR]).map(Self::Plain),
        }
    }
}

/// What an option gives to the ports of one direction.
pub struct Ends {
    option: &'static str,
    /// The ports, in the order of the graph's.
    ports: Vec<NodeId>,
    /// What is given, in the order of the first port of each.
    given: Vec<Given>,
}

/// An end, and the ports that it is for.
pub struct Given {
    /// Several only where their samples come in blocks, in the order of these.
    pub ports: Vec<NodeId>,
    /// Names of the ports, with commas between.
    pub name: String,
    /// The end.
    pub end: End,
    /// The blocks that samples come in. Without them they come one after the other.
    pub blocks: Option<BlockLayout>,
}

/// Takes the samples of a block out of an address, which may name them anywhere behind a comma.
fn planar(address: &str) -> Result<(String, Option<usize>), String> {
    let mut words = address.split(',');
    let mut rest: Vec<&str> = words.next().into_iter().collect();
    let mut samples = None;
    for word in words {
        let Some(value) = word.strip_prefix(PLANAR) else {
            rest.push(word);
            continue;
        };
        let number = value.parse().ok().filter(|number| *number > 0);
        let number = number.ok_or_else(|| {
            format!(
                "{address}: `{word}` is not a whole number of samples above 0: write for example \
                 planar=120"
            )
        })?;
        if samples.replace(number).is_some() {
            return Err(format!("{address}: planar= is there twice: leave one out"));
        }
    }
    Ok((rest.join(","), samples))
}

impl Ends {
    /// Reads what an option gives to the ports.
    pub fn new(
        graph: &Graph,
        option: &'static str,
        given: &[String],
        ports: Vec<NodeId>,
    ) -> Result<Ends, Failure> {
        let mut ends = Ends {
            option,
            ports,
            given: Vec::new(),
        };
        for text in given {
            let new = ends.read(graph, text)?;
            let taken = |id| ends.given.iter().any(|given| given.ports.contains(id));
            if let Some(id) = new.ports.iter().find(|id| taken(id)) {
                return Err(Failure::usage(format!(
                    "{option} {text}: the port {} has an address already: leave one of the two out",
                    graph.path(*id)
                )));
            }
            ends.given.push(new);
        }
        let place = |id: &NodeId| ends.ports.iter().position(|port| port == id);
        let first = |given: &Given| given.ports.iter().filter_map(place).min();
        ends.given.sort_by_key(first);
        Ok(ends)
    }

    fn read(&self, graph: &Graph, text: &str) -> Result<Given, Failure> {
        let option = self.option;
        let of = |name: &str| self.ports.iter().find(|id| graph.path(**id) == name);
        // Both names and addresses may have an equals sign, and names a comma.
        let all_of = |names: &str| -> Option<Vec<NodeId>> {
            if let Some(id) = of(names) {
                return Some(vec![*id]);
            }
            names.split(',').map(|name| of(name).copied()).collect()
        };
        let split = text.match_indices('=').find_map(|(at, _)| {
            let (names, address) = (&text[..at], &text[at + 1..]);
            all_of(names).map(|ports| (ports, address))
        });
        // A word alone in front of it is a wrong name: no file is made of it.
        let word = text.split_once('=').map(|(name, _)| name);
        let is_address =
            word.is_none_or(|name| name.contains(['/', ':']) || name.ends_with(",planar"));
        let (ports, address) = match split {
            Some(found) => found,
            None if self.ports.len() == 1 && is_address => (self.ports.clone(), text),
            None => {
                let names: Vec<String> = self.ports.iter().map(|id| graph.path(*id)).collect();
                let names = if names.is_empty() {
                    "none".to_owned()
                } else {
                    names.join(", ")
                };
                let unknown = word
                    .and_then(|word| word.split(',').find(|name| of(name).is_none()))
                    .map_or("no such port".to_owned(), |name| {
                        format!("no port `{name}`")
                    });
                let several = match self.ports.len() {
                    0 | 1 => "",
                    _ => "; or PORT,PORT=ADDRESS,planar=SAMPLES with several",
                };
                return Err(Failure::usage(format!(
                    "{option} {text}: there is {unknown}; write PORT=ADDRESS with one of: \
                     {names}{several}"
                )));
            }
        };
        let names: Vec<String> = ports.iter().map(|id| graph.path(*id)).collect();
        let name = names.join(",");
        let wrong = |error: String| Failure::usage(format!("{option} {error}"));
        let of_this = |error: &str| Failure::usage(format!("{option} {name}=…: {error}"));
        let (address, samples) = planar(address).map_err(wrong)?;
        let end: End = address.parse().map_err(|error: String| {
            // Other errors have the address, which this one has not.
            match address.is_empty() {
                true => of_this(&error),
                false => wrong(error),
            }
        })?;
        let twice = |(at, id): (usize, &NodeId)| ports[..at].contains(id);
        if ports.iter().enumerate().any(twice) {
            return Err(of_this("a port is there twice: name each once"));
        }
        if ports.len() > 1 && end.is_of_datagrams() {
            return Err(of_this(
                "several ports have no address of datagrams in common: behind one that is lost, \
                 samples would be parts of others; give each port an address",
            ));
        }
        if samples.is_some() && end.is_of_datagrams() {
            return Err(of_this(
                "planar= is not for datagrams: behind one that is lost, samples would be parts of \
                 others; leave it out",
            ));
        }
        if samples.is_none() && ports.len() > 1 {
            return Err(of_this(
                "several ports have one address where their samples come in blocks: add planar= \
                 with the samples of a block, or give each an address",
            ));
        }
        let blocks = samples.map(|samples| BlockLayout::of(graph, &ports, samples));
        let blocks = blocks.transpose().map_err(|error| of_this(&error))?;
        Ok(Given {
            ports,
            name,
            end,
            blocks,
        })
    }

    /// What is given.
    pub fn iter(&self) -> impl Iterator<Item = &Given> {
        self.given.iter()
    }

    /// Whether the graph has no ports of this direction.
    pub fn is_empty(&self) -> bool {
        self.ports.is_empty()
    }

    /// The first port that has no address.
    pub fn without(&self) -> Option<NodeId> {
        let has = |id: &NodeId| self.given.iter().any(|given| given.ports.contains(id));
        self.ports.iter().find(|id| !has(id)).copied()
    }

    /// What is given to a port, and which of its ports that is.
    fn of(&self, id: NodeId) -> Option<(usize, usize)> {
        let given = self.given.iter().enumerate();
        let mut found = given.filter_map(|(at, given)| {
            let port = given.ports.iter().position(|port| *port == id)?;
            Some((at, port))
        });
        found.next()
    }

    /// Refuses standard input or output for more than one address: each would have some of the
    /// samples.
    pub fn one_standard(&self, is: fn(&End) -> bool) -> Result<(), Failure> {
        let mut names = self.iter().filter(|given| is(&given.end));
        match (names.next(), names.next()) {
            (Some(first), Some(second)) => Err(Failure::usage(format!(
                "{} {}=…: {} has the standard stream already; give one of them a file, or a pipe \
                 of its own",
                self.option, second.name, first.name
            ))),
            _ => Ok(()),
        }
    }

    /// Refuses times of silence, for which outputs have no use.
    pub fn no_idle(&self) -> Result<(), Failure> {
        let idle = |given: &&Given| match &given.end {
            End::Plain(address) => address.idle().is_some(),
            End::Port(address) => address.idle.is_some(),
        };
        self.iter().find(idle).map_or(Ok(()), |given| {
            Err(Failure::usage(format!(
                "{} {}=…: idle= is for inputs; leave it out",
                self.option, given.name
            )))
        })
    }

    /// Deals out what was opened for each that is given to the ports, in the order of the graph's.
    pub fn deal<T>(&self, opened: Vec<Vec<T>>, other: impl Fn() -> Option<T>) -> Vec<T> {
        let mut opened: Vec<Vec<Option<T>>> = opened
            .into_iter()
            .map(|own| own.into_iter().map(Some).collect())
            .collect();
        let take = |id: &NodeId| match self.of(*id) {
            Some((at, port)) => opened[at].get_mut(port).and_then(Option::take),
            None => other(),
        };
        self.ports.iter().filter_map(take).collect()
    }
}
