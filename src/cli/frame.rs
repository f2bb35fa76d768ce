//! The life of a command that runs until it is told to end: sockets that are bound before anything
//! starts, DPDK, control, the wait for the end, and what the end means for the exit code.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use dpdk::{Eal, EalConfig, memory_mib};
use ground::os::{allowed_cpus, run_on};
use katcp::ReservedAddress;

use super::Failure;
use super::serve::{Serving, Sockets};
use crate::config::ServeOptions;
use crate::control::ControlEnd;
use crate::ports::{Interface, devices};

/// How often the main thread looks whether a data thread has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Reason for the end of a command that runs until it is told to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// A client said `?halt`.
    Halt,
    /// A signal of this name.
    Signal(&'static str),
    /// The capture has ended.
    Input,
    /// All that was asked for has come, or was sent.
    Done,
    /// A data thread failed.
    Stage,
    /// Something beside the data threads failed.
    Failed(String),
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Halt => f.write_str("?halt"),
            Self::Signal(name) => f.write_str(name),
            Self::Input => f.write_str("the input has ended"),
            Self::Done => f.write_str("it is done"),
            Self::Stage => f.write_str("a stage failed"),
            Self::Failed(what) => write!(f, "{what} failed"),
        }
    }
}

impl StopReason {
    /// The outcome of the command.
    pub fn outcome(self) -> Result<(), Failure> {
        match self {
            Self::Failed(what) => Err(Failure::data(format!("{what} failed: see the log"))),
            _ => Ok(()),
        }
    }
}

impl From<ControlEnd> for StopReason {
    fn from(end: ControlEnd) -> Self {
        match end {
            ControlEnd::Halt => Self::Halt,
            ControlEnd::Failed => Self::Failed("control".to_owned()),
        }
    }
}

/// The time of an option that takes a positive number of seconds.
pub fn positive_seconds(option: &str, seconds: f64) -> Result<Duration, Failure> {
    let positive = Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|s| !s.is_zero());
    positive.ok_or_else(|| {
        Failure::usage(format!(
            "{option} {seconds} must be a positive number of seconds, such as 10"
        ))
    })
}

/// Binds the sockets of control and of metrics, so that a port in use is known at once.
pub fn bind(serve: &ServeOptions) -> Result<(ReservedAddress, Sockets), Failure> {
    let katcp = ReservedAddress::bind(katcp_address(serve)?);
    let katcp = katcp
        .map_err(|error| Failure::usage(format!("--katcp-port {}: {error}", serve.katcp_port)))?;
    Ok((
        katcp,
        Sockets::bind("--prometheus-port", serve.prometheus_port)?,
    ))
}

/// Address of the KATCP server: all IPv4 addresses without a host, else the first of the host's
/// addresses, one of IPv4 if there is any.
fn katcp_address(serve: &ServeOptions) -> Result<SocketAddr, Failure> {
    let (host, port) = match &serve.katcp_host[..] {
        "" => ("0.0.0.0", serve.katcp_port),
        host => (host, serve.katcp_port),
    };
    let refused =
        |why: String| Failure::usage(format!("--katcp-host {host}: {why}; try 127.0.0.1"));
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let bare = bare.filter(|bare| bare.parse::<Ipv6Addr>().is_ok());
    let addresses = (bare.unwrap_or(host), port)
        .to_socket_addrs()
        .map_err(|error| refused(error.to_string()))?;
    addresses
        .min_by_key(SocketAddr::is_ipv6)
        .ok_or_else(|| refused("has no address".to_owned()))
}

/// Starts DPDK with one worker lcore for a port on `interface`, with pools of `pool_bytes`.
///
/// The lcore is on CPU `worker`, or the last that is allowed. The calling thread is left on CPU
/// `main`, or where it was.
pub fn start_dpdk(
    interface: &Interface,
    pool_bytes: usize,
    worker: Option<usize>,
    main: Option<usize>,
) -> Result<Eal, Failure> {
    let allowed = allowed_cpus();
    let worker = worker.or(allowed.last().copied()).unwrap_or(0);
    run_on(allowed.iter().copied().chain([worker])).map_err(Failure::usage)?;
    let (devices, huge_pages) = devices([interface]).map_err(Failure::usage)?;
    let eal = Eal::init(&EalConfig {
        devices,
        huge_pages,
        worker_cpus: vec![worker],
        memory_mib: memory_mib(pool_bytes),
        ..EalConfig::default()
    });
    let eal = eal.map_err(Failure::usage)?;
    run_on(main.map_or(allowed, |cpu| vec![cpu])).map_err(Failure::usage)?;
    Ok(eal)
}

impl Serving {
    /// Waits until somebody says that the command is to end, or until `look` gives a reason: `look`
    /// is called every 20 ms.
    pub fn wait(&self, mut look: impl FnMut() -> Option<StopReason>) -> StopReason {
        loop {
            match self.reasons_receiver().recv_timeout(LOOK) {
                Ok(reason) => return reason,
                Err(RecvTimeoutError::Disconnected) => {
                    return StopReason::Failed("the thread that serves".to_owned());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Some(reason) = look() {
                return reason;
            }
        }
    }

    /// What control calls when it ends by itself.
    pub fn on_control_end(&self) -> impl FnOnce(ControlEnd) + Send + 'static {
        let reasons = self.reasons_sender();
        move |end| _ = reasons.try_send(end.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_control_may_stand_in_brackets_as_the_log_writes_it() {
        for host in ["::1", "[::1]"] {
            let serve = ServeOptions {
                katcp_host: host.to_owned(),
                katcp_port: 7147,
                prometheus_port: None,
            };
            let address = katcp_address(&serve).map(|address| address.to_string());
            assert_eq!(address.ok().as_deref(), Some("[::1]:7147"), "{host}");
        }
    }
}
