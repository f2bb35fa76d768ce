//! A device made of closures.

use crate::device::{Device, Parameters, Refusal, RequestHelp, Response};
use crate::message::Message;

type Handler = dyn Fn(Parameters<'_>, &mut Response) -> Result<(), Refusal> + Send + Sync;

/// A device whose requests are closures.
///
/// ```
/// use katcp::{Loopback, Sensors, SimpleDevice, number::format_float, value::float};
///
/// let device = SimpleDevice::new("adder-1.0", "adder-1.0.3").request(
///     "add",
///     "number number",
///     "Add two numbers.",
///     |mut parameters, response| {
///         let first = parameters.required("first number", float)?;
///         let second = parameters.required("second number", float)?;
///         parameters.end()?;
///         response.argument(format_float(first + second));
///         Ok(())
///     },
/// );
/// let client = Loopback::new(device, Sensors::default());
/// assert_eq!(client.answer(b"?add[1] 1 2")?, b"!add[1] ok 3.0\n");
/// # Ok::<(), katcp::MessageError>(())
/// ```
pub struct SimpleDevice {
    version: String,
    build: String,
    help: Vec<RequestHelp>,
    handlers: Vec<Box<Handler>>,
}

impl SimpleDevice {
    /// A device without requests of its own. The arguments are those of [`Device::version`] and
    /// [`Device::build`].
    pub fn new(version: impl Into<String>, build: impl Into<String>) -> Self {
        Self {
            version: version.into(),
            build: build.into(),
            help: Vec::new(),
            handlers: Vec::new(),
        }
    }

    /// Adds a request. The texts are those of [`RequestHelp`].
    ///
    /// All clients wait while `handler` runs. It must read all parameters, and see by
    /// [`Parameters::end`] that there are no more. Standard requests cannot be replaced; of two
    /// requests with one name, the first counts.
    pub fn request(
        mut self,
        name: &'static str,
        parameters: &'static str,
        summary: &'static str,
        handler: impl Fn(Parameters<'_>, &mut Response) -> Result<(), Refusal> + Send + Sync + 'static,
    ) -> Self {
        self.help.push(RequestHelp {
            name,
            parameters,
            summary,
        });
        self.handlers.push(Box::new(handler));
        self
    }
}

impl Device for SimpleDevice {
    fn version(&self) -> &str {
        &self.version
    }

    fn build(&self) -> &str {
        &self.build
    }

    fn requests(&self) -> &[RequestHelp] {
        &self.help
    }

    fn handle(&self, request: &Message<'_>, response: &mut Response) -> Result<(), Refusal> {
        let mut known = self.help.iter().zip(&self.handlers);
        match known.find(|(help, _)| help.name == request.name()) {
            Some((_, handler)) => handler(Parameters::new(request), response),
            None => Err(Refusal::Invalid(format!(
                "unknown request {}",
                request.name()
            ))),
        }
    }
}
