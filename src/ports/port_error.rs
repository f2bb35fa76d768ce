//! Why an interface has no port.

use dpdk::{DpdkError, FlowError};

use super::preset::PresetError;
use super::resolve::Driver;

/// An interface without a port.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// DPDK does not give one.
    #[error("interface '{interface}' ({needs})")]
    Dpdk {
        /// Name of the interface.
        interface: String,
        /// What its driver needs.
        needs: &'static str,
        /// Why.
        source: DpdkError,
    },
    /// This process may not.
    #[error(
        "interface '{interface}' is to be used through AF_PACKET, which needs CAP_NET_RAW and CAP_NET_ADMIN, and this process has not both: run it as root, or once sudo setcap cap_net_raw,cap_net_admin,cap_ipc_lock+ep {program}; or leave it to the kernel's UDP sockets, udp:{interface}"
    )]
    Rights {
        /// Name of the interface.
        interface: String,
        /// Path of the program.
        program: String,
    },
    /// What its driver is to be told is unknown.
    #[error(transparent)]
    Preset(#[from] PresetError),
    /// It takes no packets but those that rules name, and refuses a rule.
    #[error(
        "interface '{interface}': nothing but what rules name reaches a port that the kernel shares, so nothing would come; mend that, or leave the interface to the kernel: af_packet:{interface}"
    )]
    Rules {
        /// Name of the interface.
        interface: String,
        /// Which rule is refused, and why.
        source: FlowError,
    },
    /// The host gives no thread to report memberships.
    #[error("interface '{interface}': no thread for its memberships in groups: {source}")]
    Thread {
        /// Name of the interface.
        interface: String,
        /// Why.
        source: std::io::Error,
    },
}

/// The same, before it is known of which interface.
#[derive(Debug)]
pub(super) enum OpenError {
    Dpdk(DpdkError),
    Rules(FlowError),
    Thread(std::io::Error),
    Rights,
}

impl OpenError {
    /// Of this interface, which was used with this driver.
    pub fn of(self, interface: &str, driver: Driver) -> PortError {
        let interface = interface.to_owned();
        match self {
            Self::Dpdk(source) => PortError::Dpdk {
                interface,
                needs: needs(driver),
                source,
            },
            Self::Rules(source) => PortError::Rules { interface, source },
            Self::Thread(source) => PortError::Thread { interface, source },
            Self::Rights => PortError::Rights {
                interface,
                program: std::env::current_exe()
                    .map_or_else(|_| "karoo".to_owned(), |path| path.display().to_string()),
            },
        }
    }
}

impl From<DpdkError> for OpenError {
    fn from(error: DpdkError) -> Self {
        Self::Dpdk(error)
    }
}

impl From<std::io::Error> for OpenError {
    fn from(error: std::io::Error) -> Self {
        Self::Thread(error)
    }
}

fn needs(driver: Driver) -> &'static str {
    match driver {
        // The driver numbers its group by process and interface, which another program's can come
        // to as well.
        Driver::AfPacket => {
            "AF_PACKET, needs CAP_NET_RAW, CAP_NET_ADMIN and locked memory for its rings (ulimit -l, or CAP_IPC_LOCK); where PACKET_FANOUT was refused, start it again"
        }
        Driver::Udp => {
            "UDP sockets, need the UDP ports to be free or shared (SO_REUSEADDR), and CAP_NET_BIND_SERVICE for those below 1024"
        }
        Driver::Mlx5 => "mlx5, needs rdma-core, huge pages, CAP_NET_RAW and locked memory",
        Driver::Vfio => "bound to vfio-pci, needs an IOMMU and huge pages",
        Driver::Virtio => "virtio bound to vfio-pci, needs a virtual IOMMU and huge pages",
    }
}
