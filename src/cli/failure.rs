//! How a command fails: the one error type at the edge.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

/// Why a command ended without doing its job, and whose turn it is.
#[derive(Debug)]
pub enum Failure {
    /// The command line is wrong: exit code 2.
    Usage(Box<dyn Error + Send + Sync>),
    /// The data is unusable, or the run failed: exit code 1.
    Data(Box<dyn Error + Send + Sync>),
    /// A device failed in the middle of the run: exit code 3.
    Device(Box<dyn Error + Send + Sync>),
}

impl Failure {
    /// A wrong command line.
    pub fn usage(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Usage(cause.into())
    }

    /// Unusable data, or a failed run.
    pub fn data(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Data(cause.into())
    }

    /// A device that failed in the middle of a run.
    pub fn device(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Device(cause.into())
    }

    /// The process exit code.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::from(2),
            Self::Data(_) => ExitCode::from(1),
            Self::Device(_) => ExitCode::from(3),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Usage(cause) | Self::Data(cause) | Self::Device(cause)) = self;
        write!(f, "{cause}")?;
        let mut source = cause.source();
        while let Some(inner) = source {
            write!(f, ": {inner}")?;
            source = inner.source();
        }
        Ok(())
    }
}

impl Error for Failure {}
