//! aiokatcp's client against this crate's server.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use katcp::number::{format_complex, format_float, parse_complex, parse_float, parse_integer};
use katcp::reading::DEVICE_STATUS;
use katcp::{
    Client, Device, Message, Parameters, Refusal, ReplyFuture, RequestHelp, Response, SensorId,
    SensorInfo, SensorReading, SensorStatus, Sensors, ServerThread, Value, ValueType, value,
};

use super::python::Script;

#[path = "../../examples/server.rs"]
#[allow(dead_code)]
mod example;

/// A device with requests of all sorts.
struct Bench;

const fn help(name: &'static str, parameters: &'static str) -> RequestHelp {
    RequestHelp {
        name,
        parameters,
        summary: "Serve a test.",
    }
}

const REQUESTS: &[RequestHelp] = &[
    help("echo", "[argument…]"),
    help("number", "integer|float|complex text"),
    help("list", "count"),
    help("slow", "count"),
];

impl Device for Bench {
    fn version(&self) -> &str {
        "bench-1.0"
    }

    fn build(&self) -> &str {
        "bench-1.0.3"
    }

    fn requests(&self) -> &[RequestHelp] {
        REQUESTS
    }

    fn handle(&self, request: &Message<'_>, response: &mut Response) -> Result<(), Refusal> {
        let mut parameters = Parameters::new(request);
        match request.name() {
            "echo" => parameters.rest().for_each(|a| response.argument(a)),
            "number" => {
                let kind = parameters.required("kind", value::text)?;
                let text = parameters.required("text", value::text)?;
                parameters.end()?;
                let number = match &*kind {
                    "integer" => parse_integer(&text).map(|number| number.to_string()),
                    "float" => parse_float(&text).map(format_float),
                    _ => parse_complex(&text)
                        .map(|z| num_complex::Complex32::new(z.re as f32, z.im as f32))
                        .map(format_complex),
                };
                response.argument(number.unwrap_or_else(|| "none".to_owned()));
            }
            _ => {
                let count = parameters.required("count", value::integer)?;
                parameters.end()?;
                for k in 0..count {
                    response.inform(&[k.to_string(), format!("line {k}")]);
                }
                response.count_informs();
            }
        }
        Ok(())
    }

    fn begin(&self, request: &Message<'_>) -> Option<ReplyFuture> {
        if request.name() != "slow" {
            return None;
        }
        let count = Parameters::new(request).required("count", value::integer);
        Some(Box::pin(async move {
            for _ in 0..count? {
                tokio::task::yield_now().await;
            }
            Ok(vec!["at".to_owned(), "last".to_owned()])
        }))
    }
}

/// Sensors of all types. `count` grows until this is dropped.
struct Counting {
    sensors: Sensors,
    running: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Counting {
    fn start() -> Self {
        let sensors = Sensors::default();
        let add = |name: &str, units, value_type, value| -> SensorId {
            let info = SensorInfo::new(name, format!("A {name}."), units, value_type);
            sensors.add(info, SensorReading::now(value))
        };
        let count = add("count", "", ValueType::Integer, Value::Integer(0));
        let power = add("power", "dBFS", ValueType::Float, Value::Float(-20.5));
        add("is-on", "", ValueType::Boolean, Value::Boolean(true));
        add("since", "s", ValueType::Timestamp, Value::Timestamp(1.5e9));
        let words = ValueType::Discrete(&["stow", "track"]);
        add("mode", "", words, Value::Discrete("track"));
        add(
            "label.x",
            "",
            ValueType::String,
            Value::String("two \\ words\n".into()),
        );
        let info = SensorInfo::new("calm", "A calm count.", "", ValueType::Integer);
        let calm = sensors.add(info.rate_limited(), SensorReading::now(Value::Integer(0)));
        let info = SensorInfo::new("device-status", "All sensors.", "", DEVICE_STATUS);
        sensors.add_aggregate(info, |_| true);
        let warning = SensorReading::new(1.5e9, SensorStatus::Warn, Value::Float(-20.5));
        sensors.set(power, warning);

        let running = Arc::new(AtomicBool::new(true));
        let (set, still) = (sensors.clone(), running.clone());
        let thread = std::thread::spawn(move || {
            let mut number = 0;
            while still.load(Ordering::Relaxed) {
                number += 1;
                for sensor in [count, calm] {
                    set.set(sensor, SensorReading::now(Value::Integer(number)));
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        Self {
            sensors,
            running,
            thread: Some(thread),
        }
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.running.store(false, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no panic");
        }
    }
}

fn judge(part: &str, address: SocketAddr) {
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    println!(
        "{}",
        Script::start("judge_server.py", &[&host, &port, part]).end()
    );
}

#[test]
fn aiokatcp_is_served() {
    let counting = Counting::start();
    let any = (Ipv4Addr::LOCALHOST, 0).into();
    let server = ServerThread::start(any, Bench, counting.sensors.clone());
    let server = server.expect("it listens");
    let address = server.address();
    judge("bench", address);
    // The last thing that the script does is ?halt.
    server.wait();
    assert!(Client::connect(address).is_err());
}

#[test]
fn the_example_serves_aiokatcp() {
    let server = example::dish("127.0.0.1:0").expect("it listens");
    judge("example", server.address());
    server.wait();
}
