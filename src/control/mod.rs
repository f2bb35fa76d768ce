//! Control: the KATCP server, and the devices behind it.
//!
//! [`katcp`] speaks the protocol and knows no device; [`fgpu`] is the F-engine: its requests on top
//! of [`engine::steer`](crate::engine::steer), and its sensors; [`dsim`] is a simulated digitiser;
//! [`host`] watches this machine's clock for any device.
//!
//! All of it runs on one ordinary thread. A data thread never waits for it: requests go through
//! bounded queues, and what happens comes back through
//! [`Published`](crate::engine::steer::Published). See `docs/control.md`.

pub mod dsim;
pub mod fgpu;
pub mod host;

mod thread;

use std::sync::OnceLock;

pub use thread::{Control, ControlEnd, ControlError};

/// What devices say of their build: the version of Karoo with its commit.
fn build() -> &'static str {
    static BUILD: OnceLock<String> = OnceLock::new();
    BUILD.get_or_init(|| format!("karoo-{}", ground::karoo_version()))
}
