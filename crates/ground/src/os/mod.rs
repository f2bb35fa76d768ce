//! System calls of Linux that are nobody else's: scheduling, memory policy, mappings, the kernel's
//! clock, a look at frames, the way of what goes to groups, a signal that is ignored.
#![allow(unsafe_code)]

mod hangup;
mod kernel_clock;
mod memory_policy;
mod multicast;
mod packet_tap;
mod region;
mod scheduling;

pub use hangup::{ignore_hangup, ignores_hangup};
pub use kernel_clock::{ClockState, KernelClock};
pub use memory_policy::prefer_node;
pub use multicast::send_groups_through;
pub use packet_tap::{PacketTap, TappedFrame};
pub use region::Region;
pub use scheduling::{allowed_cpus, leave_real_time, run_on};
