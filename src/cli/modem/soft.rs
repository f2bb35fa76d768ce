//! Soft values of received bits, as a file.

use std::io::Write;

use karoo_modem::rx::{Outcome, ReceivedFrame};

use super::sink::Payloads;
use crate::cli::Failure;

/// Where soft values go.
pub struct SoftOutput {
    name: String,
    output: Box<dyn Write>,
}

impl SoftOutput {
    /// Writes them to what has been opened.
    pub fn new((name, output): Payloads) -> SoftOutput {
        SoftOutput { name, output }
    }

    /// Writes the values of a frame whose modulation and length are known.
    pub fn frame(&mut self, frame: &ReceivedFrame) -> Result<(), Failure> {
        if matches!(frame.outcome, Outcome::Mode | Outcome::Length) {
            return Ok(());
        }
        let bytes: Vec<u8> = frame.soft.iter().flat_map(|v| v.to_le_bytes()).collect();
        let done = self.output.write_all(&bytes);
        done.map_err(|error| Failure::data(format!("--soft {}: {error}", self.name)))
    }

    /// Writes what has been held back.
    pub fn flush(&mut self) -> Result<(), Failure> {
        let done = self.output.flush();
        done.map_err(|error| Failure::data(format!("--soft {}: {error}", self.name)))
    }
}
