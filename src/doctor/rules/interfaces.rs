//! Interfaces that an engine could not use, or through which nothing can come.

use std::net::Ipv4Addr;

use spead::{digitiser, spectra};

use super::Case;
use crate::doctor::evidence::{Blind, InterfaceFacts};
use crate::doctor::finding::{Ailment, Finding};
use crate::ports::without_driver;

/// Bytes of IPv4 and UDP headers.
const HEADERS: usize = 28;

pub fn find(case: Case<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (code, refusal) in &case.evidence.refused {
        // A refusal ends with the way out, or with what there is.
        let (what, way_out) = match *code {
            Ailment::NoSuchInterface => (&refusal[..], "give one that there is: ip -brief link"),
            _ => refusal.rsplit_once(": ").unwrap_or((&refusal[..], "")),
        };
        found.push(Finding::new(*code, what, [], way_out));
    }
    found.extend(no_rights(case));
    for interface in &case.evidence.interfaces {
        found.extend(no_carrier(interface));
        found.extend(mtu(case, interface));
        found.extend(foreign_address(case, interface));
    }
    found
}

/// Whoever may not open packet sockets cannot start an engine that is told to use them.
fn no_rights(case: Case<'_>) -> Option<Finding> {
    let asked = case.asked.receive.iter().chain(&case.asked.send);
    let mut asked = asked.filter(|name| name.starts_with("af_packet:"));
    let name = asked.next()?;
    (case.evidence.blind == Some(Blind::NoRights)).then(|| {
        Finding::new(
            Ailment::NoRights,
            format!("this user may not open packet sockets, which an engine on {name} has to"),
            ["a packet socket takes the capability CAP_NET_RAW".to_owned()],
            format!(
                "run as root or by karoo@.service, or once: sudo setcap cap_net_raw,cap_net_admin,cap_ipc_lock+ep \
                 $(which karoo); or leave it to UDP sockets: {}",
                without_driver(name)
            ),
        )
    })
}

fn no_carrier(interface: &InterfaceFacts) -> Option<Finding> {
    let used = interface.receives.is_some() || interface.sends;
    let name = &interface.name;
    (used && interface.carrier == Some(false)).then(|| {
        Finding::new(
            Ailment::NoCarrier,
            format!("{name} is up, but nothing answers at its other end"),
            [format!("/sys/class/net/{name}/carrier is 0")],
            "look at the cable, at the optics and at the switch's port: is it enabled, at the same speed?",
        )
    })
}

fn mtu(case: Case<'_>, interface: &InterfaceFacts) -> Option<Finding> {
    let asked = case.asked;
    let heap = digitiser::PREAMBLE_LEN + asked.recv.heap_bytes() + HEADERS;
    let packet = asked
        .packet_payload
        .saturating_add(spectra::PREAMBLE_LEN + HEADERS);
    let receives = interface.receives.is_some();
    let (needed, what, option) = match receives && (heap >= packet || !interface.sends) {
        true => (heap, "heaps", "--recv-packet-samples"),
        false => (packet, "output packets", "--send-packet-payload"),
    };
    let (name, mtu) = (&interface.name, interface.mtu?);
    let used = receives || interface.sends;
    (used && mtu < needed).then(|| {
        Finding::new(
            Ailment::Mtu,
            format!("{what} do not fit {name}: they are IP packets of {needed} bytes"),
            [format!("the MTU of {name} is {mtu}")],
            format!(
                "ip link set dev {name} mtu 9000, and as much on every hop; or a smaller {option}"
            ),
        )
    })
}

fn foreign_address(case: Case<'_>, interface: &InterfaceFacts) -> Option<Finding> {
    interface.receives.as_ref()?;
    let ours = |ip: &Ipv4Addr| {
        let mut all = case.evidence.interfaces.iter();
        all.any(|i| i.receives.is_some() && i.addresses.contains(ip))
    };
    let mut unicast = case.asked.endpoints.iter().map(|endpoint| endpoint.ip());
    let ip = unicast.find(|ip| !ip.is_multicast() && !ours(ip))?;
    let addresses: Vec<_> = interface
        .addresses
        .iter()
        .map(ToString::to_string)
        .collect();
    let (name, own) = (&interface.name, addresses.join(" and "));
    Some(Finding::new(
        Ailment::ForeignAddress,
        format!(
            "SRC has {ip}, which is neither a multicast group nor an address of this host's {name}"
        ),
        [format!("{name} has {own}")],
        format!("give the digitisers' groups as SRC; if they send to this host alone, {own}"),
    ))
}
