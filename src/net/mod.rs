//! Endpoints, frames, steering rules, capture files.
//!
//! | module | what lives there |
//! |---|---|
//! | [`endpoint`] | lists of IPv4 addresses and ports |
//! | [`frame`] | Ethernet, IPv4 and UDP: checked views, header templates, multicast addresses |
//! | [`flow_table`] | rules that give each datagram its receive queue |
//! | [`igmp`] | membership in groups where no kernel sees to it |
//! | [`capture`] | pcap and pcapng files: a streaming reader, writers |

pub mod capture;
pub mod endpoint;
pub mod flow_table;
pub mod frame;
pub mod igmp;

pub use capture::{
    CaptureError, CaptureReader, CaptureWriter, Frame, is_read_once, is_stdin, is_stdout,
};
pub use endpoint::{EndpointError, format_endpoints, parse_endpoints};
pub use flow_table::{FlowTable, SteerError};
pub use frame::{Datagram, FrameError, HeaderTemplate, MacAddr};
