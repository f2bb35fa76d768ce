//! Headings of options in help pages: the same options stand under the same heading everywhere.

/// What comes in, and how.
pub const RECEIVE: &str = "Receive";
/// What goes out, and how.
pub const SEND: &str = "Send";
/// Output streams and their values.
pub const OUTPUTS: &str = "Outputs";
/// Sample counts and the time of day.
pub const TIMING: &str = "Timing";
/// One engine among others.
pub const ENGINE: &str = "Engine";
/// What computes.
pub const COMPUTE: &str = "GPU and CPU";
/// Threads and buffers on a host.
pub const PLACE: &str = "Place on this host";
/// Clients, metrics and messages.
pub const CONTROL: &str = "Control, metrics and log";
/// The configuration file.
pub const CONFIGURATION: &str = "Configuration";
/// What is simulated.
pub const SIGNAL: &str = "Signal";
/// What goes wrong on purpose.
pub const FAULTS: &str = "Faults";
/// What is measured, and for how long.
pub const MEASURE: &str = "What is measured";
/// What a command tells about what it did.
pub const RESULTS: &str = "Results";
/// When a command ends by itself.
pub const END: &str = "End";
/// What a stream is expected to be.
pub const CHECK: &str = "What is expected";
/// Options without effect.
pub const IGNORED: &str = "Taken for compatibility, without effect";
/// How a shadow compares.
pub const SHADOW: &str = "The comparison";
/// How the doctor looks.
pub const LOOK: &str = "The look";
