//! Interfaces of this host as DPDK ports.
//!
//! * [`locate`], [`Preset`]: which driver is best for an interface, and how it is set up;
//! * [`Interface`]: an interface with its addresses and MTU; [`PortUse`]: what it is used for;
//! * [`Membership`]: an interface in multicast groups, by the kernel or by [`IgmpThread`];
//! * [`Links`]: whether the ports' links are up;
//! * [`open_datagrams`]: datagrams through ports by their address.

mod datagrams;
mod igmp;
mod interface;
mod links;
mod port;
mod port_error;
mod preset;
mod resolve;
mod rights;

pub use datagrams::{
    DatagramError, DatagramPorts, DatagramReceiver, DatagramSender, DatagramSettings, FrameMaker,
    KeptPorts, PORT_SCHEME, PortAddress, open_datagrams,
};
pub use igmp::{ControlQueues, IgmpThread};
pub use interface::{Interface, InterfaceError, Memberships, addresses, check_mtu, without_driver};
pub use links::Links;
pub use port::{Membership, OpenPort, PortUse};
pub use port_error::PortError;
pub use preset::{Preset, PresetError, devices};
pub use resolve::{Driver, LocateError, LocatedInterface, locate};
