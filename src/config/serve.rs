//! Options of the commands that KATCP clients and Prometheus talk to.

use clap::Args;

use super::heading;

/// Where a command listens.
#[derive(Clone, Debug, Args)]
pub struct ServeOptions {
    /// Address that the KATCP server listens on; empty: all of IPv4
    #[arg(long, value_name = "HOST", default_value = "", help_heading = heading::CONTROL)]
    pub katcp_host: String,
    /// Port of the KATCP server; 0: any
    #[arg(long, value_name = "PORT", default_value_t = 7147, help_heading = heading::CONTROL)]
    pub katcp_port: u16,
    /// Port of http://…/metrics for Prometheus, and of an engine's live page at http://…/; none
    /// unless given
    #[arg(long, value_name = "PORT", help_heading = heading::CONTROL)]
    pub prometheus_port: Option<u16>,
}

/// Options of katgpucbf's Python event loop, which is not here.
#[derive(Clone, Debug, Args)]
pub struct AiomonitorOptions {
    /// Monitor of katgpucbf's event loop
    #[arg(long)]
    pub aiomonitor: bool,
    /// Address of katgpucbf's event-loop monitor
    #[arg(long, value_name = "HOST")]
    pub aiomonitor_host: Option<String>,
    /// Port of katgpucbf's event-loop monitor
    #[arg(long, value_name = "PORT")]
    pub aiomonitor_port: Option<u16>,
    /// Port of the event-loop monitor's console
    #[arg(long, value_name = "PORT")]
    pub aioconsole_port: Option<u16>,
    /// Port of the event-loop monitor's web interface
    #[arg(long, value_name = "PORT")]
    pub aiomonitor_webui_port: Option<u16>,
}
