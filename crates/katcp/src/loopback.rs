//! A client's connection without a socket.

use std::sync::Arc;

use crate::device::Device;
use crate::message::{Message, MessageError, MessageKind};
use crate::outbox::{Backlogs, Outbox};
use crate::requests::StandardRequests;
use crate::sensor::Sensors;

/// A client's connection to a device, without a socket, a thread or a clock: for tests of devices.
///
/// ```
/// use katcp::{Loopback, SensorInfo, SensorReading, Sensors, SimpleDevice, Value, ValueType};
///
/// let sensors = Sensors::default();
/// let info = SensorInfo::new("azimuth", "Direction of the dish", "deg", ValueType::Float);
/// sensors.add(info, SensorReading::now(Value::Float(0.0)));
/// let client = Loopback::new(SimpleDevice::new("dish-1.0", "dish-1.0.0"), sensors);
/// let lines = client.answer(b"?sensor-list azimuth")?;
/// assert_eq!(
///     String::from_utf8_lossy(&lines),
///     "#sensor-list azimuth Direction\\_of\\_the\\_dish deg float\n!sensor-list ok 1\n"
/// );
/// # Ok::<(), katcp::MessageError>(())
/// ```
pub struct Loopback<D> {
    requests: StandardRequests<D>,
    outbox: Arc<Outbox>,
}

impl<D: Device> Loopback<D> {
    /// A connection to `device`.
    pub fn new(device: D, sensors: Sensors) -> Self {
        let outbox = Outbox::new(0, usize::MAX, Arc::new(Backlogs::new(usize::MAX)));
        Self {
            requests: StandardRequests::new(Arc::new(device), sensors),
            outbox: Arc::new(outbox),
        }
    }

    /// Answers a line, given without its end, as a server does.
    ///
    /// Returns whole lines: the reports of sensors since the last answer, the informs, the reply.
    /// A blank line and a line that is no request have no answer. [`Device::room`] and
    /// [`Device::begin`] are not called, and reports that only time brings do not come.
    pub fn answer(&self, line: &[u8]) -> Result<Vec<u8>, MessageError> {
        let mut lines = Vec::new();
        if let Some(request) = Message::parse(line)?
            && request.kind() == MessageKind::Request
        {
            let clients = || vec!["127.0.0.1:1".to_owned()];
            let answer = self.requests.handle(&request, &self.outbox, clients);
            self.outbox.push(answer);
            while let Some(waiting) = self.outbox.pop() {
                lines.extend_from_slice(&waiting);
                self.outbox.written(waiting.len());
            }
        }
        Ok(lines)
    }
}
