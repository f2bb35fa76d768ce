//! A dish with a sensor and a request: `cargo run -p katcp --example server [ADDRESS]`.
use katcp::{Parameters, Response, SensorInfo, SensorReading, Sensors, ServerThread};
use katcp::{SimpleDevice, Value, ValueType, value::float};

/// Starts the dish's server.
pub fn dish(address: &str) -> Result<ServerThread, Box<dyn std::error::Error>> {
    let sensors = Sensors::default();
    let info = SensorInfo::new("azimuth", "Direction of the dish", "deg", ValueType::Float);
    let azimuth = sensors.add(info, SensorReading::now(Value::Float(0.0)));
    let turning = sensors.clone();
    let turn = move |mut parameters: Parameters<'_>, _response: &mut Response| {
        let degrees = parameters.required("degrees", float)?;
        parameters.end()?;
        turning.set(azimuth, SensorReading::now(Value::Float(degrees)));
        Ok(())
    };
    let device = SimpleDevice::new("dish-1.0", "dish-1.0.0");
    let device = device.request("turn", "degrees", "Turn the dish.", turn);
    Ok(ServerThread::start(address.parse()?, device, sensors)?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:7147".into());
    dish(&address)?.wait(); // until a client asks for ?halt
    Ok(())
}
