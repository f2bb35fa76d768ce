//! `karoo bench ports`: packets from one interface to another, at the highest rate without loss.
//!
//! Two lcores: one sends datagrams with numbers at the pace of a trial, the other counts what
//! comes. What a trial costs is what AF_PACKET, or a NIC and its cable, take; no engine is in
//! between. The receiver also measures how uneven the packets come: the depth of a bucket that
//! leaks at the trial's rate, were it filled by them.

mod lcores;
mod options;
mod report;
mod rig;

use std::net::{Ipv4Addr, SocketAddrV4};

use dpdk::{DpdkError, EalError, LcorePanic};
use ground::StopFlag;
pub use options::{PortsOptions, Search};
pub use report::{PortTrial, PortsReport};
use rig::Rig;

use crate::assembly::on_signal;
use crate::config::ConfigError;
use crate::ports::{Interface, InterfaceError, PortError, PresetError};

/// Where the datagrams go: a group for experiments (RFC 2365's site-local scope), and the discard
/// port.
const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 255, 75, 79), 9);
/// Bytes in front of a datagram's payload: the number of its trial, and its own number.
const STAMP: usize = 16;

/// Why the bench gave no result.
#[derive(Debug, thiserror::Error)]
pub enum PortsError {
    /// An option.
    #[error(transparent)]
    Option(#[from] ConfigError),
    /// An interface.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// A port.
    #[error(transparent)]
    Port(#[from] PortError),
    /// What a driver is to be told.
    #[error(transparent)]
    Preset(#[from] PresetError),
    /// DPDK did not start.
    #[error(transparent)]
    Eal(#[from] EalError),
    /// DPDK refused something.
    #[error(transparent)]
    Dpdk(#[from] DpdkError),
    /// An lcore failed.
    #[error(transparent)]
    Lcore(#[from] LcorePanic),
    /// The user asked.
    #[error("interrupted")]
    Interrupted,
}

/// Runs the bench.
pub fn run(options: &PortsOptions) -> Result<PortsReport, PortsError> {
    options.check()?;
    let send = Interface::find(&options.send_interface)?;
    let recv = Interface::find(&options.recv_interface)?;
    for interface in [&send, &recv] {
        interface.check_mtu(options.payload, "--payload")?;
    }
    let abort = StopFlag::default();
    let handler = abort.clone();
    if let Err(error) = on_signal(move || handler.set()) {
        tracing::warn!(%error, "an interrupt will end the process without a report");
    }
    let rig = Rig::start(options, &send, &recv, abort)?;
    let outcome = rig.measure(options);
    let trials = rig.end()?;
    Ok(PortsReport {
        ports: [send.name, recv.name],
        payload: options.payload,
        seconds: options.seconds,
        found: outcome?,
        trials,
    })
}
