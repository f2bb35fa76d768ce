//! Findings for people and for machines.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

use super::asked::Asked;
use super::evidence::{Blind, Evidence, Flow, IgmpPath};
use super::finding::Finding;
use crate::losses::{grouped, per_second};
use crate::report::Documented;

/// Flows that are named.
const FLOWS: usize = 12;
/// Columns of text.
const WIDTH: usize = 100;

/// What a look came to.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Report {
    /// Version of the program.
    pub karoo: &'static str,
    /// Seconds that the wire was looked at.
    pub seconds: f64,
    /// Seconds that it was to be looked at, if a signal has cut the look short.
    pub cut_short_of: Option<f64>,
    /// Digitisers' destinations.
    pub source: String,
    /// Interfaces to receive on, as they were given.
    pub interfaces: Vec<String>,
    /// What is wrong, the most likely reason for silence first.
    pub findings: Vec<Finding>,
    /// What came, most of it first.
    pub seen: Vec<Seen>,
    /// What else is to be known.
    pub notes: Vec<String>,
}

impl Documented for Report {
    const NAME: &'static str = "doctor";
    const TITLE: &'static str = "What karoo doctor --json found";
}

/// Datagrams of one sender to one destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Seen {
    /// Interface that they came to.
    pub interface: String,
    /// VLAN of their tags.
    pub vlan: Option<u16>,
    /// Sender.
    pub from: String,
    /// Destination.
    pub to: String,
    /// Whether the engine would look at them.
    pub ours: bool,
    /// How many.
    pub datagrams: u64,
    /// Digitiser heaps of each polarisation.
    pub heaps: [u64; 2],
    /// What most of them are.
    pub content: &'static str,
}

impl Report {
    /// The report of what was seen and found.
    pub fn new(asked: &Asked, evidence: &Evidence, findings: Vec<Finding>) -> Self {
        let receives = |name: &str| {
            let mut all = evidence.interfaces.iter();
            all.any(|i| i.name == name && i.receives.is_some())
        };
        let seen = |flow: &Flow| Seen {
            interface: flow.key.interface.clone(),
            vlan: flow.key.vlan,
            from: flow.key.src.to_string(),
            to: flow.key.dst.to_string(),
            ours: receives(&flow.key.interface) && asked.expects(flow.key.dst),
            datagrams: flow.datagrams,
            heaps: [flow.pols[0].count, flow.pols[1].count],
            content: flow.content(),
        };
        let mut seen: Vec<_> = evidence.wire.flows.iter().map(seen).collect();
        seen.sort_by_key(|seen| std::cmp::Reverse((seen.ours, seen.datagrams)));
        Self {
            karoo: ground::karoo_version(),
            seconds: evidence.looked.1 - evidence.looked.0,
            cut_short_of: evidence.cut_short_of,
            source: asked.source(),
            interfaces: asked.receive.clone(),
            findings,
            seen,
            notes: notes(asked, evidence),
        }
    }
}

fn notes(asked: &Asked, evidence: &Evidence) -> Vec<String> {
    let mut notes = Vec::new();
    match evidence.blind {
        Some(Blind::NotTheKernels) if evidence.refused.is_empty() => notes.push(format!(
            "{} has left the kernel: what comes there cannot be seen from outside of an engine; its metrics have the \
             causes (karoo_input_drops_total)",
            asked.receive.join(", ")
        )),
        Some(Blind::NotTheKernels) => notes.push("the wire was not looked at".to_owned()),
        Some(Blind::NoRights) => notes.push(
            "without CAP_NET_RAW only what is sent to SRC can be heard, behind firewall and reverse path filter: not \
             what goes to other groups, ports, hosts and interfaces, nor IGMP queriers"
                .to_owned(),
        ),
        None => {}
    }
    for interface in evidence.interfaces.iter().filter(|i| i.shared) {
        notes.push(format!(
            "while an engine runs on {}, the packets that it takes go past the kernel and are not seen here",
            interface.name
        ));
    }
    if evidence.missed > 0 {
        notes.push(format!(
            "{} frames came too fast for this look, and are not counted here; no engine missed them for it",
            grouped(evidence.missed)
        ));
    }
    if evidence.wire.further > 0 {
        let further = grouped(evidence.wire.further);
        notes.push(format!(
            "{further} datagrams of further senders are not listed"
        ));
    }
    let filtered = evidence.reverse_path_drops.filter(|drops| *drops > 0);
    if let Some(drops) = filtered {
        notes.push(format!(
            "the kernel's reverse path filter dropped {drops} packets; an engine gets them all the same, unless its port is UDP sockets"
        ));
    }
    let queriers: Vec<_> = evidence
        .wire
        .queries
        .keys()
        .map(|(_, ip)| ip.to_string())
        .collect();
    if !queriers.is_empty() {
        notes.push(format!("IGMP querier heard: {}", queriers.join(", ")));
    }
    if evidence
        .igmp
        .values()
        .any(|path| *path == IgmpPath::Untried)
    {
        notes.push("whether a firewall lets IGMP through was not tried".to_owned());
    }
    notes
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (on, seconds) = (self.interfaces.join(", "), self.seconds);
        match self.findings.len() {
            0 => writeln!(f, "nothing wrong found on {on} in {seconds:.1} s")?,
            1 => writeln!(f, "1 finding on {on} in {seconds:.1} s")?,
            n => writeln!(
                f,
                "{n} findings on {on} in {seconds:.1} s, the most likely first"
            )?,
        }
        if let Some(wanted) = self.cut_short_of {
            writeln!(
                f,
                "a signal cut the look short: {seconds:.1} s of {wanted} s"
            )?;
        }
        for (number, finding) in self.findings.iter().enumerate() {
            let Finding {
                code,
                what,
                evidence,
                way_out,
            } = finding;
            writeln!(f)?;
            write_wrapped(
                f,
                &format!("{}. ", number + 1),
                &format!("{what} [{}]", code.name()),
            )?;
            for line in evidence {
                write_wrapped(f, "   seen: ", line)?;
            }
            write_wrapped(f, "   mend: ", way_out)?;
        }
        if !self.seen.is_empty() {
            writeln!(f, "\nwhat came:")?;
        }
        for seen in self.seen.iter().take(FLOWS) {
            let vlan = seen
                .vlan
                .map_or(String::new(), |vlan| format!(" VLAN {vlan}"));
            let mark = if seen.ours { "*" } else { " " };
            let rate = per_second(seen.datagrams as f64 / seconds.max(1e-9));
            let Seen {
                interface,
                from,
                to,
                content,
                heaps: [pol0, pol1],
                ..
            } = seen;
            let heaps = match pol0 + pol1 {
                0 => String::new(),
                _ => format!(", {} + {} by polarisation", grouped(*pol0), grouped(*pol1)),
            };
            writeln!(
                f,
                "{mark} {interface}{vlan}  {from} -> {to}  {rate}/s  {content}{heaps}"
            )?;
        }
        if self.seen.len() > FLOWS {
            writeln!(f, "  and {} more", self.seen.len() - FLOWS)?;
        }
        if self.seen.iter().any(|seen| seen.ours) {
            writeln!(f, "  (* is for the engine)")?;
        }
        if !self.notes.is_empty() {
            writeln!(f)?;
        }
        for note in &self.notes {
            write_wrapped(f, "note: ", note)?;
        }
        Ok(())
    }
}

/// Lines of at most [`WIDTH`] columns, the first behind `head`, the others below its text.
fn write_wrapped(f: &mut fmt::Formatter<'_>, head: &str, text: &str) -> fmt::Result {
    let (mut line, mut column) = (head.to_owned(), head.len());
    for (number, word) in text.split(' ').enumerate() {
        let length = word.chars().count();
        if number > 0 && column + 1 + length > WIDTH {
            writeln!(f, "{}", line.trim_end())?;
            line = " ".repeat(head.len());
            column = head.len();
        } else if number > 0 {
            line.push(' ');
            column += 1;
        }
        line.push_str(word);
        column += length;
    }
    writeln!(f, "{line}")
}
