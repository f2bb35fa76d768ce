//! Turns a dish and watches it: `cargo run -p katcp --example client [ADDRESS]`. Try it with the
//! example `server`.
use katcp::{Client, ClientError, Strategy};
use std::time::Duration;

/// Turns the dish of a server.
pub fn turn(address: &str) -> Result<(), ClientError> {
    let mut client = Client::connect(address)?;
    for sensor in client.sensor_list("/./")? {
        println!("{}: {} ({})", sensor.name, sensor.description, sensor.units);
    }
    client.sample(&["azimuth"], Strategy::Event)?;
    for degrees in ["12.5", "north"] {
        match client.request("turn", &[degrees]) {
            Err(ClientError::Refused { refusal, .. }) => println!("{degrees}: {refusal}"),
            reply => println!("{degrees}: done {}", reply?.texts().join(" ")),
        }
    }
    while let Some(report) = client.next_report(Duration::from_millis(100))? {
        println!("{} is {}, {}", report.name, report.text(), report.status);
    }
    Ok(())
}

fn main() -> Result<(), ClientError> {
    turn(&std::env::args().nth(1).unwrap_or("127.0.0.1:7147".into()))
}
