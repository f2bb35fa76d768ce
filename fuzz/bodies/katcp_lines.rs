//! Lines from a client, read and answered: for the fuzz target, and for the test of its corpus.

use dsp::SampleBits;
use ground::SampleClock;
use karoo::config::{EngineConfig, RecvConfig, SendConfig, WidebandOptions};
use karoo::control::fgpu::Fgpu;
use karoo::engine::steer::ControlHandle;
use katcp::number::{format_complex, format_float, parse_complex, parse_float, parse_integer};
use katcp::{Loopback, Message, MessageBuilder, MessageKind, Sensors, ValueType};
use num_complex::Complex32;

/// Reads bytes as lines, and has an engine without data answer those that are requests.
///
/// # Panics
///
/// Where a message is not what it was built from, or an answer is not one.
pub fn lines(bytes: &[u8]) {
    let config = engine();
    let (steering, steered) = ControlHandle::new(&config, 4);
    let sensors = Sensors::default();
    let client = Loopback::new(Fgpu::new(&config, steering, &sensors), sensors);
    for line in bytes.split(|byte| matches!(byte, b'\n' | b'\r')) {
        let Ok(Some(message)) = Message::parse(line) else {
            continue;
        };
        rebuild(&message);
        message.arguments().for_each(|argument| values(&argument));
        if message.kind() == MessageKind::Request {
            check(&message, &client.answer(line).expect("a message"));
        }
        while let Some(request) = steered.outputs[0].take() {
            steered.outputs[0].spend(request);
        }
    }
}

fn engine() -> EngineConfig {
    let options = "name=w,channels=4,dst=239.10.1.0,jones_per_batch=128";
    let output: WidebandOptions = options.parse().expect("an output");
    EngineConfig {
        clock: SampleClock {
            adc_sample_rate: 1e9,
            sync_time: 1e9,
        },
        feng_id: 0,
        array_size: 1,
        recv: RecvConfig {
            packet_samples: 64,
            sample_bits: SampleBits::new(8).expect("8 bits"),
            chunk_samples: 4096,
            mask_timestamp: false,
        },
        send: SendConfig {
            packet_payload: 1024,
            chunk_jones: 128,
            ttl: 1,
        },
        max_delay_diff: 64,
        gain: 1.0,
        outputs: vec![output.into_config(128, 0)],
        statistics_period: 0.0,
    }
}

fn rebuild(message: &Message<'_>) {
    let mut line = MessageBuilder::new(message.kind(), message.name(), message.id());
    for argument in message.arguments() {
        line = line.argument(argument);
    }
    let line = line.finish();
    let (end, line) = line.split_last().expect("a line ends");
    assert_eq!(*end, b'\n');
    let again = Message::parse(line).expect("a message").expect("not blank");
    assert_eq!(again.name(), message.name());
    assert_eq!(again.id(), message.id());
    assert!(again.arguments().eq(message.arguments()));
    assert_eq!(message.arguments().len(), message.arguments().count());
}

fn values(argument: &[u8]) {
    for of in [
        ValueType::Integer,
        ValueType::Float,
        ValueType::Boolean,
        ValueType::Timestamp,
        ValueType::String,
    ] {
        if let Ok(value) = of.parse(argument) {
            assert_eq!(of.parse(value.encode().as_bytes()), Ok(value));
        }
    }
    let Ok(text) = std::str::from_utf8(argument) else {
        return;
    };
    if let Some(value) = parse_integer(text) {
        assert_eq!(parse_float(text), Some(value as f64));
    }
    if let Some(value) = parse_float(text) {
        let again = parse_float(&format_float(value)).expect("a float");
        assert!(again == value || again.is_nan() && value.is_nan());
        assert!(parse_complex(text).is_some());
    }
    if let Some(value) = parse_complex(text) {
        let gain = num(value.re, value.im);
        let again = parse_complex(&format_complex(gain)).map(|z| num(z.re, z.im));
        assert!(!gain.is_finite() || again == Some(gain));
    }
}

fn num(re: f64, im: f64) -> Complex32 {
    Complex32::new(re as f32, im as f32)
}

/// Checks whole lines: reports of sensors, then the informs and the reply of a request.
fn check(request: &Message<'_>, answer: &[u8]) {
    let answer = answer.strip_suffix(b"\n").expect("whole lines");
    let messages = answer.split(|&byte| byte == b'\n');
    let mut messages = messages
        .map(|line| Message::parse(line).expect("a message").expect("not blank"))
        .rev();
    let is_answer =
        |message: &Message<'_>| (message.name(), message.id()) == (request.name(), request.id());
    let reply = messages.next().expect("a reply");
    assert!(reply.kind() == MessageKind::Reply && is_answer(&reply));
    let code = reply.arguments().next().expect("a code");
    assert!([&b"ok"[..], b"fail", b"invalid"].contains(&&*code));
    for message in messages.skip_while(is_answer) {
        assert_eq!((message.name(), message.id()), ("sensor-status", None));
    }
}
