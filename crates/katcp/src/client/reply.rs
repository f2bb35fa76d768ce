//! Replies to requests of a client.

use super::error::ClientError;
use crate::device::{ArgumentError, Parameters, Refusal};
use crate::message::{Arguments, OwnedMessage};
use crate::value::ValueError;

/// Reply to a request that was done, with the informs that came before it.
#[derive(Clone, Debug)]
pub struct Reply {
    message: OwnedMessage,
    informs: Vec<OwnedMessage>,
}

impl Reply {
    /// Checks that `message` is a reply that says `ok`.
    pub(super) fn new(
        message: OwnedMessage,
        informs: Vec<OwnedMessage>,
    ) -> Result<Self, ClientError> {
        let mut arguments = message.arguments();
        let code = arguments.next().unwrap_or_default();
        let text = || arguments.texts().into_iter().next().unwrap_or_default();
        let refusal = match &*code {
            b"ok" => return Ok(Self { message, informs }),
            b"fail" => Refusal::Fail(text()),
            b"invalid" => Refusal::Invalid(text()),
            other => {
                let source = ValueError::new(other, "ok, fail or invalid");
                let name = "code";
                return Err(ClientError::Argument {
                    message: format!("!{}", message.name()),
                    source: ArgumentError::Value { name, source },
                });
            }
        };
        let name = message.name().to_owned();
        Err(ClientError::Refused { name, refusal })
    }

    /// Arguments of the reply behind `ok`, unescaped.
    pub fn arguments(&self) -> Arguments<'_> {
        let mut arguments = self.message.arguments();
        arguments.next();
        arguments
    }

    /// Arguments of the reply behind `ok`, as text. Bytes that are not UTF-8 become U+FFFD.
    pub fn texts(&self) -> Vec<String> {
        self.arguments().texts()
    }

    /// Arguments of the reply behind `ok`, for reading by their types.
    pub fn parameters(&self) -> Parameters<'_> {
        Parameters::of_arguments(self.message.name(), self.arguments())
    }

    /// The informs of the request, in order.
    pub fn informs(&self) -> &[OwnedMessage] {
        &self.informs
    }
}
