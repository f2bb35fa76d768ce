//! Sets the gain of a running engine and watches its level: `cargo run --example gain HOST:7147
//! STREAM 0.02`.

use std::process::ExitCode;
use std::time::Duration;

use katcp::{Client, ClientError, Strategy};

fn run(address: &str, stream: &str, gain: &str) -> Result<(), ClientError> {
    let mut client = Client::connect(address)?;
    for pol in ["0", "1"] {
        let reply = client.request("gain", &[stream, pol, gain])?;
        println!("input {pol}: {}", reply.texts().join(" "));
    }
    client.sample(
        &["input0.dig-rms-dbfs", "input1.dig-rms-dbfs"],
        Strategy::Auto,
    )?;
    while let Some(report) = client.next_report(Duration::from_secs(2))? {
        println!("{} is {} dBFS", report.name, report.text());
    }
    Ok(())
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [address, stream, gain] = &args[..] else {
        eprintln!("usage: gain HOST:PORT STREAM GAIN");
        return ExitCode::from(2);
    };
    match run(address, stream, gain) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gain: {error}");
            ExitCode::FAILURE
        }
    }
}
