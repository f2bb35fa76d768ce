//! KATCP: messages, sensors, a server. Nothing here knows what the device is.
#![forbid(unsafe_code)]

pub mod device;
mod limits;
mod line_buffer;
mod lines;
mod loopback;
pub mod message;
pub mod number;
mod outbox;
pub mod reading;
mod requests;
pub mod sampling;
pub mod sensor;
pub mod server;
mod server_thread;
mod simple_device;
pub mod value;

pub use device::{
    ArgumentError, Device, Parameters, Refusal, ReplyFuture, RequestHelp, Response, RoomFuture,
};
pub use limits::ServerLimits;
pub use loopback::Loopback;
pub use message::{
    Arguments, Message, MessageBuilder, MessageError, MessageId, MessageKind, OwnedMessage,
};
pub use reading::{SensorInfo, SensorReading, SensorStatus};
pub use sampling::Strategy;
pub use sensor::{SensorError, SensorId, Sensors};
pub use server::{BindError, ReservedAddress, Server, ServerEnd};
pub use server_thread::{ServerThread, ServerThreadError};
pub use simple_device::SimpleDevice;
pub use value::{Value, ValueError, ValueType};
