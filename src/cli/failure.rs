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
        f.write_str(&with_causes(&**cause))
    }
}

impl Error for Failure {}

/// An error in words, with each of its causes behind it.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        // Messages that end with the way out have their cause before it.
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        source = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Failed {
        text: &'static str,
        source: Option<Box<Failed>>,
    }

    #[test]
    fn every_cause_is_said_once() {
        let chain = |texts: &[&'static str]| {
            let link = |source, text: &&'static str| Some(Box::new(Failed { text, source }));
            let chain = texts.iter().rev().fold(None, link);
            Failure::data(*chain.expect("a chain")).to_string()
        };
        assert_eq!(chain(&["a", "b", "c"]), "a: b: c");
        assert_eq!(chain(&["no b; use c", "b", "d"]), "no b; use c: d");
    }
}
