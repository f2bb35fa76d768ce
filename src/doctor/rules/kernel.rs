//! What the kernel keeps from itself: questions of IGMP queriers, and the answers.
//!
//! Heaps reach an engine past firewall and reverse path filter, unless its port is UDP sockets.
//! Memberships do not: who does not
//! answer queriers loses the groups after some minutes.

use std::net::Ipv4Addr;

use super::Case;
use crate::doctor::evidence::IgmpPath;
use crate::doctor::finding::{Ailment, Finding};

const ALLOW: &str = "let IGMP through: nft insert rule inet filter input ip protocol igmp accept (and output, if that \
                     drops), or iptables -I INPUT -p igmp -j ACCEPT";

pub fn find(case: Case<'_>) -> Vec<Finding> {
    let evidence = case.evidence;
    let mut found = Vec::new();
    for (interface, path) in &evidence.igmp {
        found.extend(dropped(interface, *path));
    }
    if !found.is_empty() {
        return found;
    }
    for ((interface, querier), count) in &evidence.wire.queries {
        let listened = evidence.igmp.contains_key(interface);
        let heard = evidence.heard.contains(&(interface.clone(), *querier));
        if listened && !heard {
            found.push(unheard(case, interface, *querier, *count));
        }
    }
    found
}

fn dropped(interface: &str, path: IgmpPath) -> Option<Finding> {
    let (what, evidence) = match path {
        IgmpPath::Open | IgmpPath::Untried => return None,
        IgmpPath::DroppedIn => (
            "drops IGMP that comes in: queriers get no answer, and the network ends this host's memberships",
            "a query sent by this host to itself did not arrive",
        ),
        IgmpPath::DroppedOut => (
            "drops IGMP that goes out: the network does not learn of this host's memberships",
            "this host was not permitted to send IGMP",
        ),
    };
    Some(Finding::new(
        Ailment::Firewall,
        format!("this host's firewall at {interface} {what}"),
        [evidence.to_owned()],
        ALLOW,
    ))
}

fn unheard(case: Case<'_>, interface: &str, querier: Ipv4Addr, count: u64) -> Finding {
    let mut interfaces = case.evidence.interfaces.iter();
    let filter = interfaces.find(|other| other.name == interface);
    let filter = filter.map_or(0, |facts| facts.reverse_path);
    let seen =
        format!("{count} IGMP queries of {querier} came to {interface}, and the kernel heard none");
    let consequence = "so this host does not answer, and the network ends its memberships";
    if filter == 0 {
        return Finding::new(
            Ailment::Firewall,
            format!("a firewall drops the IGMP querier's questions, {consequence}"),
            [seen],
            ALLOW,
        );
    }
    let mut evidence = vec![seen, format!("rp_filter of {interface} is {filter}")];
    if let Some(drops) = case.evidence.reverse_path_drops {
        evidence.push(format!("it dropped {drops} packets meanwhile"));
    }
    Finding::new(
        Ailment::ReversePath,
        format!(
            "the reverse path filter drops questions of the IGMP querier {querier}, to which no route leads through \
             {interface}, {consequence}"
        ),
        evidence,
        format!(
            "sysctl -w net.ipv4.conf.{interface}.rp_filter=0 net.ipv4.conf.all.rp_filter=0 (the larger of both counts), \
             or a route: ip route add {querier}/32 dev {interface}"
        ),
    )
}
