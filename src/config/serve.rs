//! Options of the commands that KATCP clients and Prometheus talk to.

use clap::Args;

use super::units::port;
use super::{ConfigError, heading};

/// Where a command listens.
#[derive(Clone, Debug, Args)]
pub struct ServeOptions {
    /// Address that the KATCP server listens on; empty: all of IPv4
    #[arg(long, value_name = "HOST", default_value = "", help_heading = heading::CONTROL)]
    pub katcp_host: String,
    /// Port of the KATCP server; 0: any
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 7147,
        value_parser = port,
        help_heading = heading::CONTROL
    )]
    pub katcp_port: u16,
    /// Port of http://…/metrics for Prometheus, and of an engine's live page at http://…/; none
    /// unless given
    #[arg(long, value_name = "PORT", value_parser = port, help_heading = heading::CONTROL)]
    pub prometheus_port: Option<u16>,
}

impl ServeOptions {
    /// Refuses one port for both.
    pub fn check(&self) -> Result<(), ConfigError> {
        match self.prometheus_port {
            Some(port) if port > 0 && port == self.katcp_port => {
                let rule = format!("is --katcp-port {port} too");
                let way_out = "give another to one of them";
                Err(ConfigError::new("--prometheus-port", port, rule, way_out))
            }
            _ => Ok(()),
        }
    }
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
    #[arg(long, value_name = "PORT", value_parser = port)]
    pub aiomonitor_port: Option<u16>,
    /// Port of the event-loop monitor's console
    #[arg(long, value_name = "PORT", value_parser = port)]
    pub aioconsole_port: Option<u16>,
    /// Port of the event-loop monitor's web interface
    #[arg(long, value_name = "PORT", value_parser = port)]
    pub aiomonitor_webui_port: Option<u16>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_port_is_not_for_both() {
        let with = |katcp_port, prometheus_port| ServeOptions {
            katcp_host: String::new(),
            katcp_port,
            prometheus_port,
        };
        // Of 0, each gets one of its own.
        for (katcp, prometheus) in [(7147, None), (7147, Some(7148)), (0, Some(0))] {
            assert_eq!(with(katcp, prometheus).check(), Ok(()));
        }
        let refused = with(7147, Some(7147)).check().unwrap_err().to_string();
        let expected =
            "--prometheus-port 7147: is --katcp-port 7147 too; give another to one of them";
        assert_eq!(refused, expected);
    }
}
