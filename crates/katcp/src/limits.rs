//! Limits on what clients may cost a server.

use std::time::Duration;

/// Limits on the memory and time that clients may take from a server.
///
/// A client beyond a limit waits or is disconnected; the others go on. With the default limits, all
/// clients together take less than 500 MiB.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Clients at the same time.
    pub clients: usize,
    /// Bytes of a line, without its end.
    pub line: usize,
    /// Lines of more than 64 KiB that are received at the same time; others wait.
    pub long_lines: usize,
    /// Time that a client may take over a line of more than 64 KiB.
    pub line_time: Duration,
    /// Bytes that may wait for a client when there is another inform for it. A client for which
    /// more waits is disconnected.
    pub backlog: usize,
    /// Bytes that may wait for all clients. Beyond, those for which most waits are disconnected.
    pub backlogs: usize,
    /// Time for which a client may read nothing of the bytes that wait for it.
    pub stall: Duration,
    /// Time that clients have at the end of the server to read the bytes that wait for them.
    pub farewell: Duration,
}

impl ServerLimits {
    /// The same limits with times that clocks can add.
    pub(crate) fn with_bounded_times(self) -> Self {
        const YEAR: Duration = Duration::from_secs(366 * 24 * 3600);
        Self {
            line_time: self.line_time.min(YEAR),
            stall: self.stall.min(YEAR),
            farewell: self.farewell.min(YEAR),
            ..self
        }
    }
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            clients: 1000,
            line: 16 << 20,
            long_lines: 8,
            line_time: Duration::from_secs(30),
            backlog: 32 << 20,
            backlogs: 256 << 20,
            stall: Duration::from_secs(60),
            farewell: Duration::from_secs(1),
        }
    }
}
