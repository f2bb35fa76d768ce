//! Rules that give each datagram its receive queue.
//!
//! A capture file's frames are steered by the same rules that a NIC is given as flow rules.

use std::net::SocketAddrV4;

use dpdk::{FlowRule, QueueId};

use super::frame::{Datagram, FrameError};

/// Why a frame has no queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SteerError {
    /// Not a UDP datagram that can be used.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// No rule takes it.
    #[error("datagram to {0} is not for any of the sources")]
    NotOurs(SocketAddrV4),
}

/// Rules in order; the first that matches counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowTable {
    rules: Vec<FlowRule>,
}

impl FlowTable {
    /// Rules in this order.
    pub fn new(rules: Vec<FlowRule>) -> Self {
        Self { rules }
    }

    /// Divides sources over `queues` queues in contiguous slices: queue i of n takes sources
    /// ⌊i·len/n⌋ to ⌊(i+1)·len/n⌋ − 1. Neighbouring addresses of one queue become one rule.
    pub fn from_sources(sources: &[SocketAddrV4], queues: usize) -> Self {
        let mut rules: Vec<FlowRule> = Vec::new();
        for queue in 0..queues {
            let slice = queue * sources.len() / queues..(queue + 1) * sources.len() / queues;
            for source in &sources[slice] {
                let (ip, port) = (*source.ip(), Some(source.port()));
                match rules.last_mut() {
                    Some(rule)
                        if rule.queue == QueueId(queue)
                            && rule.udp_port == port
                            && u32::from(*rule.dst.end()).checked_add(1) == Some(ip.into()) =>
                    {
                        rule.dst = *rule.dst.start()..=ip;
                    }
                    _ => rules.push(FlowRule {
                        dst: ip..=ip,
                        udp_port: port,
                        queue: QueueId(queue),
                    }),
                }
            }
        }
        Self { rules }
    }

    /// The rules in order.
    pub fn rules(&self) -> &[FlowRule] {
        &self.rules
    }

    /// Destinations whose datagrams come to a queue, of rules that name a port.
    pub fn destinations(&self, queue: usize) -> Vec<SocketAddrV4> {
        let rules = self
            .rules
            .iter()
            .filter(|rule| rule.queue == QueueId(queue));
        let addresses = rules.flat_map(|rule| {
            let addresses = u32::from(*rule.dst.start())..=u32::from(*rule.dst.end());
            let port = rule.udp_port.into_iter();
            port.flat_map(move |port| {
                let addresses = addresses.clone();
                addresses.map(move |ip| SocketAddrV4::new(ip.into(), port))
            })
        });
        addresses.collect()
    }

    /// Whether a rule takes datagrams to this destination.
    #[inline]
    pub fn takes(&self, dst: SocketAddrV4) -> bool {
        self.rules.iter().any(|rule| rule.matches(dst))
    }

    /// Queue of a frame.
    pub fn classify(&self, frame: &[u8]) -> Result<QueueId, SteerError> {
        self.steer(frame).map(|(queue, _)| queue)
    }

    /// Queue of a frame, and the datagram in it.
    pub fn steer<'a>(&self, frame: &'a [u8]) -> Result<(QueueId, Datagram<'a>), SteerError> {
        let datagram = Datagram::new_checked(frame)?;
        let rule = self.rules.iter().find(|rule| rule.matches(datagram.dst()));
        match rule {
            Some(rule) => Ok((rule.queue, datagram)),
            None => Err(SteerError::NotOurs(datagram.dst())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::net::endpoint::parse_endpoints;
    use crate::net::frame::{HEADERS_LEN, HeaderTemplate, MacAddr};

    fn frame_to(dst: &str) -> [u8; HEADERS_LEN] {
        let mut frame = [0; HEADERS_LEN];
        let src = "10.0.0.1:5000".parse().unwrap();
        HeaderTemplate::new(
            MacAddr::default(),
            MacAddr::default(),
            src,
            dst.parse().unwrap(),
            1,
        )
        .emit(0, &mut frame);
        frame
    }

    fn queue(steering: &FlowTable, dst: &str) -> Result<usize, SteerError> {
        let queue = steering.classify(&frame_to(dst));
        queue.map(|queue| queue.0)
    }

    #[test]
    fn sources_are_divided_in_slices() {
        let sources = parse_endpoints("239.102.0.64+7,239.102.1.64+7:7148").unwrap();
        let steering = FlowTable::from_sources(&sources, 2);
        assert_eq!(steering.rules().len(), 2);
        assert_eq!(queue(&steering, "239.102.0.64:7148"), Ok(0));
        assert_eq!(queue(&steering, "239.102.0.71:7148"), Ok(0));
        assert_eq!(queue(&steering, "239.102.1.64:7148"), Ok(1));
        for other in ["239.102.0.72:7148", "239.102.0.64:7149"] {
            let not_ours = SteerError::NotOurs(other.parse().unwrap());
            assert_eq!(queue(&steering, other), Err(not_ours));
        }
        assert!(sources.iter().all(|&source| steering.takes(source)));
        assert_eq!(steering.destinations(0), sources[..8]);
        assert_eq!(steering.destinations(1), sources[8..]);
        assert_eq!(steering.destinations(2), []);
        assert!(!steering.takes("239.102.0.72:7148".parse().unwrap()));

        let steering = FlowTable::from_sources(&sources[..5], 3);
        let queues: Vec<_> = (64..69)
            .map(|last| queue(&steering, &format!("239.102.0.{last}:7148")).unwrap())
            .collect();
        assert_eq!(queues, [0, 1, 1, 2, 2]);
    }

    #[test]
    fn the_first_rule_that_matches_counts() {
        let one = "10.0.0.2".parse().unwrap();
        let any = FlowRule {
            dst: Ipv4Addr::UNSPECIFIED..=Ipv4Addr::BROADCAST,
            udp_port: None,
            queue: QueueId(0),
        };
        let special = FlowRule {
            dst: one..=one,
            udp_port: Some(9),
            queue: QueueId(1),
        };
        let steering = FlowTable::new(vec![special.clone(), any.clone()]);
        assert_eq!(queue(&steering, "10.0.0.2:9"), Ok(1));
        assert_eq!(queue(&steering, "10.0.0.2:10"), Ok(0));
        let steering = FlowTable::new(vec![any, special]);
        assert_eq!(queue(&steering, "10.0.0.2:9"), Ok(0));
    }

    #[test]
    fn other_frames_keep_their_error() {
        let queue = |frame: &[u8]| FlowTable::default().classify(frame);
        let cut = FrameError::Cut { len: 10 };
        assert_eq!(queue(&[0; 10]), Err(SteerError::Frame(cut)));
        let other = FrameError::NotIpv4(0);
        assert_eq!(queue(&[0; 60]), Err(SteerError::Frame(other)));
    }
}
