//! KATCP, the Karoo Array Telescope Control Protocol: messages, sensors, a server and a client.
//!
//! Telescopes such as MeerKAT are controlled and monitored by KATCP: digitisers, correlators,
//! antennas and weather stations are servers, and controllers are their clients. The protocol is
//! lines of text over TCP. A client sends requests, and the server answers each with any number of
//! informs and a reply. A server has sensors, which clients list, read and subscribe to. This crate
//! speaks version 5.1 with many clients, message identifiers and bulk sampling (`5.1-MIB`), as
//! [aiokatcp](https://pypi.org/project/aiokatcp/) does, against which its tests hold it in both
//! directions.
//!
//! ```text
//! ?sensor-value[7] /rx/
//! #sensor-value[7] 1712000000.5 1 rx.timestamp nominal 2097152
//! !sensor-value[7] ok 1
//! ││           │   └ arguments, between blanks: two\_words is one argument, \@ is empty
//! ││           └ identifier of the request, which its informs and its reply repeat
//! │└ name of the request
//! └ kind: ? request to the server, # inform and ! reply to the client
//! ```
//!
//! The first argument of a reply is `ok`, `fail` or `invalid`. Informs without an identifier are
//! news: reports of sensors that a client has subscribed to, log messages, other clients.
//!
//! | to | use |
//! |---|---|
//! | control or watch a device | [`Client`] |
//! | make a device of closures | [`SimpleDevice`] |
//! | make a device with a state, or with requests that take long | [`Device`] |
//! | publish readings | [`Sensors`], [`SensorInfo`], [`SensorReading`] |
//! | serve a device on a thread | [`ServerThread`] |
//! | serve a device in a tokio program | [`Server`] |
//! | bound what clients and servers cost | [`ServerLimits`], [`ClientLimits`] |
//! | test a device without a network | [`Loopback`] |
//! | read arguments of requests and replies | [`Parameters`], [`value`] |
//! | read and write lines | [`Message`], [`MessageBuilder`] |
//! | read and write numbers as Python does | [`number`] |
//! | sample sensors elsewhere | [`sampling`] |
//!
//! # A server and a client
//!
//! ```
//! use std::time::Duration;
//!
//! use katcp::value::float;
//! use katcp::{Client, SensorInfo, SensorReading, Sensors, ServerThread, SimpleDevice};
//! use katcp::{Strategy, Value, ValueType};
//!
//! // A dish with a sensor, and with a request that sets it.
//! let sensors = Sensors::default();
//! let info = SensorInfo::new("azimuth", "Direction of the dish", "deg", ValueType::Float);
//! let azimuth = sensors.add(info, SensorReading::now(Value::Float(0.0)));
//! let turning = sensors.clone();
//! let device = SimpleDevice::new("dish-1.0", "dish-1.0.0").request(
//!     "turn",
//!     "degrees",
//!     "Turn the dish.",
//!     move |mut parameters, _response| {
//!         let degrees = parameters.required("degrees", float)?;
//!         parameters.end()?;
//!         turning.set(azimuth, SensorReading::now(Value::Float(degrees)));
//!         Ok(())
//!     },
//! );
//! // Port 0 is a port of the system's choice.
//! let server = ServerThread::start(([127, 0, 0, 1], 0).into(), device, sensors)?;
//!
//! let mut client = Client::connect(server.address())?;
//! client.sample(&["azimuth"], Strategy::Event)?;
//! client.request("turn", &["12.5"])?;
//! for expected in ["0.0", "12.5"] {
//!     let report = client.next_report(Duration::from_secs(10))?.expect("a report");
//!     assert_eq!(report.text(), expected);
//! }
//! let error = client.request("turn", &["north"]).unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "?turn was refused: fail: degrees: 'north' is not a number such as 1.5e-3"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Limits
//!
//! Not here: the controller's side of KATCP (proxies, resource trees), authentication and
//! encryption, which the protocol does not have, versions before 5, `#log` of a program's own
//! messages, removal of sensors, and the sensor type `address`. A client does not connect again by
//! itself.
#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod client;
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
mod sparing;
pub mod value;

pub use client::{Client, ClientError, ClientLimits, Reply, SensorListing, SensorReport};
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
