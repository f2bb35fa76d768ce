//! Flow rules of a port: which packets come to which queue, as the device sorts them.

use std::ffi::{CStr, c_char};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::RangeInclusive;
use std::ptr::NonNull;

use dpdk_sys::rte_flow;

use super::{Device, Port};

/// A receive queue, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub usize);

/// Datagrams to some addresses go to a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRule {
    /// First and last destination address.
    pub dst: RangeInclusive<Ipv4Addr>,
    /// Destination port; any where `None`.
    pub udp_port: Option<u16>,
    /// Where they go.
    pub queue: QueueId,
}

impl FlowRule {
    /// Whether the rule takes datagrams to this destination.
    #[inline]
    pub fn matches(&self, dst: SocketAddrV4) -> bool {
        self.dst.contains(dst.ip()) && self.udp_port.is_none_or(|port| port == dst.port())
    }
}

/// The device does not take rules, or not these.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("port '{port}' takes no rule for {what}: {why}")]
pub struct FlowError {
    port: String,
    what: String,
    why: String,
}

/// Longest message of a driver.
const MESSAGE: usize = 200;

/// A buffer for a driver's message.
struct Message([c_char; MESSAGE]);

impl Message {
    fn text(&self) -> String {
        // SAFETY: the shims end the text with a NUL inside the array, which was zero before.
        let text = unsafe { CStr::from_ptr(self.0.as_ptr()) };
        text.to_string_lossy().into_owned()
    }
}

/// Rules in force until they are dropped.
#[derive(Debug)]
pub struct Flows {
    port: Port,
    rules: Vec<NonNull<rte_flow>>,
}

// SAFETY: a rule is a handle that any thread may give back to DPDK, which the control lock
// serialises.
unsafe impl Send for Flows {}

impl Flows {
    /// Has a port steer datagrams by rules, and IGMP to a queue if one is named. Either all are in
    /// force or none.
    pub fn steer(port: &Port, rules: &[FlowRule], igmp: Option<u16>) -> Result<Self, FlowError> {
        let mut flows = Self {
            port: port.clone(),
            rules: Vec::new(),
        };
        for rule in rules {
            for (dst, bits) in prefixes(rule.dst.clone()) {
                let what = format!("{dst}/{bits} UDP {:?}", rule.udp_port);
                flows.add(
                    &what,
                    (dst, bits),
                    rule.udp_port,
                    false,
                    rule.queue.0 as u16,
                )?;
            }
        }
        if let Some(queue) = igmp {
            flows.add("IGMP", (Ipv4Addr::UNSPECIFIED, 0), None, true, queue)?;
        }
        Ok(flows)
    }

    /// Rules of the device, which may be more than were asked for.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    fn add(
        &mut self,
        what: &str,
        (dst, bits): (Ipv4Addr, u32),
        udp_port: Option<u16>,
        igmp: bool,
        queue: u16,
    ) -> Result<(), FlowError> {
        let mut why = Message([0; MESSAGE]);
        let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
        let Some((port, _control)) = self.port.control() else {
            return Err(FlowError {
                port: self.port.name().to_owned(),
                what: what.to_owned(),
                why: "it has no device".to_owned(),
            });
        };
        // SAFETY: the port is started while `self.port` lives; the buffer has room for its length.
        let flow = unsafe {
            dpdk_sys::karoo_flow_to_queue(
                port,
                dst.into(),
                mask,
                udp_port.unwrap_or(0),
                igmp.into(),
                queue,
                why.0.as_mut_ptr(),
                MESSAGE,
            )
        };
        match NonNull::new(flow) {
            Some(flow) => {
                self.rules.push(flow);
                Ok(())
            }
            None => Err(FlowError {
                port: self.port.name().to_owned(),
                what: what.to_owned(),
                why: why.text(),
            }),
        }
    }
}

impl Drop for Flows {
    fn drop(&mut self) {
        let rules = std::mem::take(&mut self.rules);
        let Some((port, _control)) = self.port.control() else {
            return;
        };
        for flow in rules {
            // SAFETY: the rule was made for this port and has not been destroyed.
            unsafe { dpdk_sys::karoo_flow_destroy(port, flow.as_ptr()) };
        }
    }
}

impl Device {
    /// Lets nothing but what rules name reach the port: the kernel keeps the rest. Before it is
    /// started.
    pub fn isolate(&self) -> Result<(), FlowError> {
        let mut why = Message([0; MESSAGE]);
        let _control = self.eal.control();
        // SAFETY: the port exists and is not configured; the buffer has room for its length.
        match unsafe { dpdk_sys::karoo_flow_isolate(self.port, why.0.as_mut_ptr(), MESSAGE) } {
            0 => Ok(()),
            _ => Err(FlowError {
                port: self.name().to_owned(),
                what: "isolation".to_owned(),
                why: why.text(),
            }),
        }
    }
}

/// A range of addresses as prefixes, which is what devices compare: address and number of bits.
fn prefixes(range: RangeInclusive<Ipv4Addr>) -> Vec<(Ipv4Addr, u32)> {
    let (mut first, last) = (
        u64::from(u32::from(*range.start())),
        u64::from(u32::from(*range.end())),
    );
    let mut found = Vec::new();
    while first <= last {
        // The longest stretch that begins here, and ends in the range.
        let aligned = first.trailing_zeros().min(32);
        let fits = (last - first + 1).ilog2();
        let bits = aligned.min(fits);
        found.push((Ipv4Addr::from(first as u32), 32 - bits));
        first += 1 << bits;
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Eal, PortConfig};

    #[test]
    fn eight_groups_in_a_row_are_one_prefix() {
        let of = |first: &str, last: &str| {
            let range = first.parse().unwrap()..=last.parse().unwrap();
            let prefixes = prefixes(range).into_iter();
            prefixes
                .map(|(a, bits)| format!("{a}/{bits}"))
                .collect::<Vec<_>>()
        };
        assert_eq!(of("239.102.0.64", "239.102.0.71"), ["239.102.0.64/29"]);
        assert_eq!(of("10.0.0.3", "10.0.0.3"), ["10.0.0.3/32"]);
        assert_eq!(
            of("10.0.0.3", "10.0.0.8"),
            ["10.0.0.3/32", "10.0.0.4/30", "10.0.0.8/32"]
        );
        assert_eq!(of("0.0.0.0", "255.255.255.255"), ["0.0.0.0/0"]);
    }

    proptest! {
        /// Together they cover the range, each address once.
        #[test]
        fn prefixes_cover_the_range(first in any::<u32>(), more in 0..5000u32) {
            let last = first.saturating_add(more);
            let mut next = u64::from(first);
            for (address, bits) in prefixes(first.into()..=last.into()) {
                prop_assert_eq!(u64::from(u32::from(address)), next);
                prop_assert!(next.is_multiple_of(1 << (32 - bits)));
                next += 1 << (32 - bits);
            }
            prop_assert_eq!(next, u64::from(last) + 1);
        }
    }

    /// Ports without rules say so; what is to be done then is the caller's business.
    #[test]
    fn ports_without_rules_are_named() {
        let eal = Eal::for_tests();
        let device = Device::vdev(eal, "net_null_flows", "size=64").unwrap();
        let why = device.isolate().unwrap_err().to_string();
        assert!(
            why.contains("net_null_flows") && why.contains("isolation"),
            "{why}"
        );
        let port = device.start(&PortConfig::default()).unwrap();
        let rule = FlowRule {
            dst: "239.102.0.64".parse().unwrap()..="239.102.0.71".parse().unwrap(),
            udp_port: Some(7148),
            queue: QueueId(0),
        };
        let refused = Flows::steer(&port.port, &[rule], None)
            .unwrap_err()
            .to_string();
        assert!(refused.contains("239.102.0.64/29"), "{refused}");
    }
}
