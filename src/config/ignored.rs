//! Options of katgpucbf's fgpu that do nothing here.

use std::path::PathBuf;

use clap::Args;

use super::fgpu::List;
use super::units::plain;
use super::{AiomonitorOptions, heading};

/// Options of katgpucbf that are taken and do nothing here.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = heading::IGNORED)]
pub struct IgnoredOptions {
    /// Kernel bypass for receiving: the interface's DPDK driver decides
    #[arg(long)]
    pub recv_ibv: bool,
    /// Completion vectors for receiving
    #[arg(
        long,
        value_name = "V,…",
        value_parser = plain::<List<i64>>("must be whole numbers, separated by commas", "0"),
        allow_hyphen_values = true
    )]
    pub recv_comp_vector: Option<List<i64>>,
    /// Kernel bypass for sending: the interface's DPDK driver decides
    #[arg(long)]
    pub send_ibv: bool,
    /// Completion vector for sending
    #[arg(
        long,
        value_name = "V",
        value_parser = plain::<i64>("must be a whole number", "0"),
        allow_hyphen_values = true
    )]
    pub send_comp_vector: Option<i64>,
    /// Send straight from GPU memory; needs --send-ibv
    #[arg(long)]
    pub use_peerdirect: bool,
    /// Jones vectors per batch: the outputs' own jones_per_batch counts
    #[arg(long, value_name = "N", value_parser = plain::<i64>("must be a whole number", "1048576"))]
    pub jones_per_batch: Option<i64>,
    /// Log of katgpucbf's queues
    #[arg(long, value_name = "FILE")]
    pub monitor_log: Option<PathBuf>,
    /// Of its event loop.
    #[command(flatten)]
    pub aiomonitor: AiomonitorOptions,
}

impl IgnoredOptions {
    /// The options that were given.
    pub fn given(&self) -> Vec<&'static str> {
        let monitor = &self.aiomonitor;
        [
            ("--recv-ibv", self.recv_ibv),
            ("--recv-comp-vector", self.recv_comp_vector.is_some()),
            ("--send-ibv", self.send_ibv),
            ("--send-comp-vector", self.send_comp_vector.is_some()),
            ("--use-peerdirect", self.use_peerdirect),
            ("--jones-per-batch", self.jones_per_batch.is_some()),
            ("--monitor-log", self.monitor_log.is_some()),
            ("--aiomonitor", monitor.aiomonitor),
            ("--aiomonitor-host", monitor.aiomonitor_host.is_some()),
            ("--aiomonitor-port", monitor.aiomonitor_port.is_some()),
            (
                "--aiomonitor-webui-port",
                monitor.aiomonitor_webui_port.is_some(),
            ),
            ("--aioconsole-port", monitor.aioconsole_port.is_some()),
        ]
        .into_iter()
        .filter_map(|(option, given)| given.then_some(option))
        .collect()
    }
}
