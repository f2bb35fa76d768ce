//! When captures may end.

use super::ConfigError;

/// Refuses a capture that ends, by the options and values `by`, when its format has no times any
/// more.
pub fn check_capture_end(
    end: f64,
    sync_time: f64,
    by: &str,
    way_out: &str,
) -> Result<(), ConfigError> {
    const MOST: f64 = u32::MAX as f64;
    if end <= MOST {
        return Ok(());
    }
    let end = match end.ceil() {
        end if end < 1e15 => end.to_string(),
        end => format!("{end:.1e}"),
    };
    let rule = format!(
        "the capture would end at UNIX time {end}, by {by}, and pcap has times up to {MOST}, in \
         2106"
    );
    Err(ConfigError::new("--sync-time", sync_time, rule, way_out))
}
