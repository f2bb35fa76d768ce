//! What is wrong with a graph: everything at once, each with the path of the node it is about.

use std::fmt;

/// The kind of a [`Problem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Nodes whose outputs depend on one another in the same cycle.
    Loop,
    /// Element types that do not go together.
    Type,
    /// Vector lengths that do not go together.
    Size,
    /// Sample rates that do not go together.
    Rate,
    /// An input without a source, or with two.
    Connection,
    /// A name that is missing, malformed or used twice.
    Name,
    /// A parameter out of range.
    Parameter,
    /// A signal that leaves or enters an enabled subsystem where it may not.
    Context,
    /// A node that is described and cannot be run here.
    Unknown,
    /// Text that is not a graph in the format that it is read in.
    Format,
    /// More than the limits of a reader or of a run allow.
    Limit,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What sort of thing it is.
    pub cause: Cause,
    /// The path of the node, `subsystem/node`, or of the file with line and element. May be empty.
    pub path: String,
    /// The value, the rule, and the way out.
    pub text: String,
}

impl Problem {
    pub(crate) fn new(cause: Cause, path: impl Into<String>, text: impl Into<String>) -> Problem {
        Problem {
            cause,
            path: path.into(),
            text: text.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.text)
        } else {
            write!(f, "{}: {}", self.path, self.text)
        }
    }
}

/// All that is wrong, one problem a line. Never empty as an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    pub(crate) fn one(cause: Cause, path: impl Into<String>, text: impl Into<String>) -> Problems {
        Problems(vec![Problem::new(cause, path, text)])
    }

    pub(crate) fn add(&mut self, cause: Cause, path: impl Into<String>, text: impl Into<String>) {
        self.0.push(Problem::new(cause, path, text));
    }

    /// `value`, if nothing is wrong.
    pub(crate) fn unless<T>(self, value: T) -> Result<T, Problems> {
        if self.0.is_empty() {
            Ok(value)
        } else {
            Err(self)
        }
    }

    /// How many problems have this cause.
    pub fn count(&self, cause: Cause) -> usize {
        self.0
            .iter()
            .filter(|problem| problem.cause == cause)
            .count()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}
