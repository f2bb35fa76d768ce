//! KATCP 5.1 with message identifiers, many clients and bulk sampling, as servers speak it.
//!
//! | module | what it does |
//! |---|---|
//! | [`message`] | one line: a checked view and a builder |
//! | [`number`], [`value`] | types of arguments, read and written as the peer's library does |
//! | [`reading`], [`sensor`], [`sampling`] | what a device publishes, and when subscribers are told |
//! | [`device`], [`requests`] | the [`Device`] behind a server, and the requests that all have |
//! | [`server`], [`lines`], [`outbox`] | connections, and what they may cost |
//!
//! Nothing here knows what the device is.

pub mod device;
pub mod lines;
pub mod message;
pub mod number;
pub mod outbox;
pub mod reading;
pub mod requests;
pub mod sampling;
pub mod sensor;
pub mod server;
pub mod value;

pub use device::{
    ArgumentError, Device, Parameters, Refusal, ReplyFuture, RequestHelp, Response, RoomFuture,
};
pub use message::{Message, MessageKind};
pub use reading::{SensorInfo, SensorReading, SensorStatus};
pub use sensor::{SensorId, Sensors};
pub use server::{BindError, ReservedAddress, Server, ServerEnd, ServerLimits};
pub use value::{Value, ValueError, ValueType};
