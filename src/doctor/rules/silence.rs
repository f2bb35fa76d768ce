//! Why no digitiser heap comes to where it is expected.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4};

use super::Case;
use crate::doctor::evidence::Flow;
use crate::doctor::finding::{Ailment, Finding};
use crate::losses::{grouped, per_second};
use crate::net::format_endpoints;
use crate::recv::DropCause;

pub fn find(case: Case<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(foreign(case));
    found.extend(fragments(case));
    let (here, elsewhere): (Vec<&Flow>, Vec<&Flow>) = case
        .strays()
        .partition(|flow| case.receives(&flow.key.interface));
    let groups: BTreeSet<_> = case.asked.endpoints.iter().map(|e| *e.ip()).collect();
    let of = |code: Ailment| {
        let chosen = here.iter().filter(|flow| stray(flow, &groups) == code);
        chosen.copied().collect::<Vec<_>>()
    };
    found.extend(unicast(case, &of(Ailment::Unicast)));
    found.extend(wrong_port(case, &of(Ailment::WrongPort)));
    found.extend(other_groups(case, &of(Ailment::OtherGroups)));
    found.extend(other_interface(case, &elsewhere));
    if found.is_empty()
        && case
            .evidence
            .interfaces
            .iter()
            .any(|i| i.receives.is_some())
    {
        found.push(nothing(case));
    }
    found
}

fn stray(flow: &Flow, groups: &BTreeSet<Ipv4Addr>) -> Ailment {
    let ip = flow.key.dst.ip();
    match () {
        () if groups.contains(ip) => Ailment::WrongPort,
        () if ip.is_multicast() => Ailment::OtherGroups,
        () => Ailment::Unicast,
    }
}

/// What flows have in common, for messages.
pub struct Total {
    pub heaps: u64,
    pub pols: Vec<usize>,
    pub senders: String,
    pub dst: Vec<SocketAddrV4>,
    pub interfaces: Vec<String>,
}

impl Total {
    pub fn of(flows: &[&Flow]) -> Self {
        let pol = |&pol: &usize| flows.iter().any(|flow| flow.pols[pol].count > 0);
        let senders: BTreeSet<_> = flows.iter().map(|flow| flow.key.src).collect();
        let dst: BTreeSet<_> = flows.iter().map(|flow| flow.key.dst).collect();
        let interfaces: BTreeSet<_> = flows.iter().map(|f| f.key.interface.clone()).collect();
        Self {
            heaps: flows.iter().map(|flow| flow.heaps() + flow.parts).sum(),
            pols: (0..2).filter(pol).collect(),
            senders: listed(senders),
            dst: dst.into_iter().collect(),
            interfaces: interfaces.into_iter().collect(),
        }
    }

    /// A sentence on them.
    pub fn seen(&self, seconds: f64) -> String {
        let pols = match self.pols[..] {
            [0] => " of polarisation 0",
            [1] => " of polarisation 1",
            [] => "",
            _ => " of both polarisations",
        };
        format!(
            "{} heaps{pols} in {seconds:.1} s from {} to {} on {}",
            grouped(self.heaps),
            self.senders,
            self.endpoints(),
            self.interfaces.join(", "),
        )
    }

    pub fn endpoints(&self) -> String {
        format_endpoints(&self.dst)
    }
}

/// A few of them by name.
fn listed(senders: BTreeSet<Ipv4Addr>) -> String {
    const FEW: usize = 3;
    let names: Vec<_> = senders.iter().take(FEW).map(ToString::to_string).collect();
    match senders.len() {
        0..=FEW => names.join(", "),
        more => format!("{} and {} more", names.join(", "), more - FEW),
    }
}

fn unicast(case: Case<'_>, flows: &[&Flow]) -> Option<Finding> {
    let total = (!flows.is_empty()).then(|| Total::of(flows))?;
    let source = case.asked.source();
    let to = total.endpoints();
    Some(Finding::new(
        Ailment::Unicast,
        format!("heaps are sent to {to}, one host alone, instead of {source}"),
        [total.seen(case.seconds())],
        format!("let the digitisers send to {source}; or give {to} as SRC"),
    ))
}

fn wrong_port(case: Case<'_>, flows: &[&Flow]) -> Option<Finding> {
    let total = (!flows.is_empty()).then(|| Total::of(flows))?;
    let to = total.endpoints();
    Some(Finding::new(
        Ailment::WrongPort,
        format!("heaps come to the right groups, but to another UDP port: {to}"),
        [
            total.seen(case.seconds()),
            format!("expected are {}", case.asked.source()),
        ],
        format!("give {to} as SRC: a port that is not given is 7148"),
    ))
}

fn other_groups(case: Case<'_>, flows: &[&Flow]) -> Option<Finding> {
    let total = (!flows.is_empty()).then(|| Total::of(flows))?;
    let to = total.endpoints();
    Some(Finding::new(
        Ailment::OtherGroups,
        format!(
            "heaps are sent to {to}, and none to {}",
            case.asked.source()
        ),
        [total.seen(case.seconds())],
        format!(
            "give {to} as SRC if they are this antenna's; else look at what its digitisers were told"
        ),
    ))
}

fn other_interface(case: Case<'_>, flows: &[&Flow]) -> Option<Finding> {
    let expected = flows.iter().filter(|f| case.asked.expects(f.key.dst));
    let expected: Vec<_> = expected.copied().collect();
    let flows = if expected.is_empty() {
        flows
    } else {
        &expected[..]
    };
    let total = (!flows.is_empty()).then(|| Total::of(flows))?;
    let (on, asked) = (total.interfaces.join(","), case.receivers());
    let mut evidence = vec![total.seen(case.seconds())];
    if expected.is_empty() {
        evidence.push(format!("expected are {}", case.asked.source()));
    }
    Some(Finding::new(
        Ailment::OtherInterface,
        format!("heaps come to {on}, and none to {asked}"),
        evidence,
        format!("--recv-interface {on}, or plug the cable into {asked}"),
    ))
}

pub fn fragments(case: Case<'_>) -> Option<Finding> {
    let ours = |ip: &Ipv4Addr| case.asked.endpoints.iter().any(|e| e.ip() == ip);
    let all = case.evidence.wire.fragments.iter();
    let mut all = all
        .filter(|((on, _, to), _)| case.receives(on) && ours(to))
        .peekable();
    let ((on, from, _), _) = all.peek()?;
    let (on, from) = (on.clone(), *from);
    let count: u64 = all.map(|(_, count)| count).sum();
    Some(Finding::new(
        Ailment::Fragments,
        format!(
            "datagrams come in fragments, which no engine takes: the MTU is too small on their way from {from}"
        ),
        [format!(
            "{} fragments in {:.1} s for {} on {on}",
            grouped(count),
            case.seconds(),
            case.asked.source(),
        )],
        DropCause::Ipv4Fragment.explanation(),
    ))
}

/// What comes to where heaps should, and is none.
fn foreign(case: Case<'_>) -> Option<Finding> {
    let ours: Vec<_> = case.ours().collect();
    let count = |value: fn(&Flow) -> u64| ours.iter().map(|flow| value(flow)).sum::<u64>();
    let (spectra, parts) = (count(|flow| flow.spectra), count(|flow| flow.parts));
    let foreign = count(|flow| flow.foreign.values().sum());
    let total = Total::of(&ours);
    let (from, to, seconds) = (&total.senders, total.endpoints(), case.seconds());
    if spectra > 0 && spectra >= foreign.max(parts) {
        return Some(Finding::new(
            Ailment::SpectraAtSource,
            format!("what comes to {to} is an F-engine's output, not a digitiser's"),
            [format!(
                "{} packets of spectra in {seconds:.1} s from {from}",
                grouped(spectra)
            )],
            "give the digitisers' groups as SRC, not those of an output",
        ));
    }
    if parts > 0 && parts >= foreign {
        return Some(Finding::new(
            Ailment::HeapSpansPackets,
            format!("heaps come to {to} in several packets each"),
            [format!(
                "{} parts of heaps in {seconds:.1} s from {from}",
                grouped(parts)
            )],
            DropCause::HeapSpansPackets.explanation(),
        ));
    }
    let mut causes = BTreeMap::<DropCause, u64>::new();
    for (&cause, count) in ours.iter().flat_map(|flow| &flow.foreign) {
        *causes.entry(cause).or_default() += count;
    }
    let (cause, _) = causes.iter().max_by_key(|(_, count)| **count)?;
    let explanation = cause.explanation();
    Some(Finding::new(
        Ailment::NotSpead,
        format!("what comes to {to} is no heap: {}", cause.name()),
        [format!(
            "{} datagrams in {seconds:.1} s from {from}",
            grouped(foreign)
        )],
        format!("{explanation} Look who {from} is, and give the digitisers' groups as SRC"),
    ))
}

fn nothing(case: Case<'_>) -> Finding {
    let (on, seconds) = (case.receivers(), case.seconds());
    let mut evidence = Vec::new();
    let interfaces = case.evidence.interfaces.iter();
    for interface in interfaces.filter(|interface| interface.receives.is_some()) {
        let name = &interface.name;
        evidence.push(match interface.packets {
            0 => format!("not one packet came to {name} in {seconds:.1} s"),
            packets => format!(
                "{} packets/s came to {name}, none of a digitiser",
                per_second(packets as f64 / seconds.max(1e-9))
            ),
        });
        if interface.refused > 0 {
            evidence.push(format!(
                "{name} dropped {} packets: longer than its MTU of {}, or damaged?",
                grouped(interface.refused),
                interface.mtu.map_or("?".to_owned(), |mtu| mtu.to_string()),
            ));
        }
    }
    evidence.push(match case.evidence.wire.queries.len() {
        _ if case.evidence.blind.is_some() => {
            "only what is sent to SRC was heard; as root the doctor sees what else comes".to_owned()
        }
        0 => format!(
            "no IGMP querier was heard in {seconds:.1} s; one asks every 125 s as a rule (`--for 130` waits for it)"
        ),
        _ => "an IGMP querier was heard, so that switches know of this host's groups".to_owned(),
    });
    Finding::new(
        Ailment::NothingComes,
        format!("nothing of a digitiser comes to {on}"),
        evidence,
        format!(
            "does the digitiser send, to {}, with a time to live that reaches here? is {on} in its network (VLAN of \
             the switch's port)? does the network have an IGMP querier?",
            case.asked.source(),
        ),
    )
}
