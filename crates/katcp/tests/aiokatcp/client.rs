//! This crate's client against aiokatcp's server.

use std::time::Duration;

use katcp::sampling::{Difference, Rate};
use katcp::{Client, ClientError, Refusal, SensorReport, SensorStatus, Strategy, Value, ValueType};

use super::python::Script;

#[path = "../../examples/client.rs"]
#[allow(dead_code)]
mod example;

const WHILE: Duration = Duration::from_secs(60);

/// A device of aiokatcp, and its address.
fn serve(device: &str) -> (Script, String) {
    let mut script = Script::start("serve.py", &[device]);
    let address = script.line();
    (script, address)
}

fn refusal(client: &mut Client, name: &str, arguments: &[&str]) -> Refusal {
    match client.request(name, arguments) {
        Err(ClientError::Refused { refusal, .. }) => refusal,
        other => panic!("?{name}: {other:?}"),
    }
}

#[test]
fn requests_of_all_sorts_are_answered_by_aiokatcp() {
    let (script, address) = serve("bench");
    let mut client = Client::connect(address).expect("a greeting");
    assert_eq!(client.protocol(), "5.1-MIB");
    let reply = client.request("version-list", &[]).expect("a reply");
    let versions: Vec<_> = reply
        .informs()
        .iter()
        .map(|inform| inform.texts())
        .collect();
    assert!(
        versions.contains(
            &["katcp-device", "bench-1.0", "bench-1.0.3"]
                .map(str::to_owned)
                .into()
        )
    );

    let every_byte: Vec<u8> = (0..=255).collect();
    let long = vec![b'x'; 1 << 20];
    for arguments in [
        &[][..],
        &[&b""[..]],
        &[b"", b"", b""],
        &[&every_byte],
        &[b" ", b"\\", b"\\_", b"\\@", b"\n\r\0\x1b\t"],
        &[&long, b"", &long],
    ] {
        let reply = client.request_bytes("echo", arguments).expect("a reply");
        let back: Vec<_> = reply
            .arguments()
            .map(|argument| argument.into_owned())
            .collect();
        assert_eq!(back, arguments);
    }
    let reply = client.request("list", &["1000"]).expect("a reply");
    let informs = reply.informs().iter().map(|inform| inform.texts());
    assert!(informs.eq((0..1000).map(|k| vec![k.to_string(), format!("line {k}")])));
    assert_eq!(reply.texts(), ["1000"]);

    let why = refusal(&mut client, "list", &["x"]);
    assert!(matches!(why, Refusal::Fail(_)), "{why}");
    let why = refusal(&mut client, "refuse", &["it is night"]);
    assert_eq!(why, Refusal::Fail("it is night".to_owned()));
    let why = refusal(&mut client, "no-such-request", &[]);
    assert!(
        matches!(&why, Refusal::Invalid(text) if text.contains("no-such-request")),
        "{why}"
    );

    // Its handlers run side by side: the late reply comes behind that of the next request.
    client.set_reply_time(Duration::from_millis(1));
    let error = client.request("hold", &["late"]).expect_err("no reply");
    assert!(matches!(error, ClientError::NoReply { .. }), "{error}");
    client.set_reply_time(WHILE);
    client.request("release", &[]).expect("a reply");
    assert_eq!(
        client.request("echo", &["x"]).expect("a reply").texts(),
        ["x"]
    );

    client.request("halt", &[]).expect("a reply");
    let error = client.reports().find_map(Result::err).expect("the end");
    let text = "the connection is closed (server shutting down): connect again";
    assert_eq!(error.to_string(), text);
    script.end();
}

#[test]
fn sensors_of_aiokatcp_are_listed_read_and_sampled() {
    let (script, address) = serve("bench");
    let mut client = Client::connect(address).expect("a greeting");
    let list = client.sensor_list("/./").expect("sensors");
    let types = [
        ("count", ValueType::Integer, Value::Integer(0)),
        ("is-on", ValueType::Boolean, Value::Boolean(true)),
        (
            "label.x",
            ValueType::String,
            Value::String("two \\ words\n".into()),
        ),
        (
            "mode",
            ValueType::Discrete(&["stow", "track"]),
            Value::Discrete("track"),
        ),
        ("power", ValueType::Float, Value::Float(-20.5)),
        ("since", ValueType::Timestamp, Value::Timestamp(1.5e9)),
    ];
    assert_eq!(list.len(), types.len());
    for (listing, (name, value_type, value)) in list.iter().zip(types) {
        assert_eq!(
            (&*listing.name, &*listing.value_type),
            (name, value_type.name())
        );
        assert_eq!(listing.description, format!("A {name}."));
        let report = client.sensor_value(name).expect("a sensor");
        assert_eq!(report.parse(value_type), Ok(value), "{report:?}");
    }
    assert_eq!(
        (&*list[4].units, &list[3].parameters[..]),
        ("dBFS", &["stow".to_owned(), "track".to_owned()][..])
    );
    let power = client.sensor_value("power").expect("a sensor");
    assert_eq!((power.timestamp, power.status), (1.5e9, SensorStatus::Warn));
    assert_eq!(
        client
            .sensor_values("/^(count|mode)$/")
            .expect("sensors")
            .len(),
        2
    );
    let error = client.sensor_value("none").expect_err("no sensor");
    assert!(error.to_string().contains("Unknown sensor"), "{error}");

    let values = |reports: &[SensorReport]| -> Vec<String> {
        reports
            .iter()
            .map(|report| format!("{} {}", report.name, report.text()))
            .collect()
    };
    let take = |client: &mut Client, count: usize| -> Vec<SensorReport> {
        let reports = (0..count).map(|_| client.next_report(WHILE).expect("a server"));
        reports.map(|report| report.expect("a report")).collect()
    };
    client
        .sample(&["count", "mode"], Strategy::Event)
        .expect("sensors");
    for value in ["1", "1", "2"] {
        client.request("set", &["count", value]).expect("a reply");
    }
    let reports = values(&take(&mut client, 4));
    assert_eq!(reports, ["count 0", "mode track", "count 1", "count 2"]);
    let difference = Strategy::Differential(Difference::Integer(3));
    client.sample(&["count"], difference).expect("a sensor");
    for value in ["5", "6", "9", "10"] {
        client.request("set", &["count", value]).expect("a reply");
    }
    assert_eq!(
        values(&take(&mut client, 3)),
        ["count 2", "count 6", "count 10"]
    );
    client
        .sample(&["count", "mode"], Strategy::None)
        .expect("sensors");
    client.request("set", &["count", "20"]).expect("a reply");
    client
        .sample(&["power"], Strategy::Period(0.01))
        .expect("a sensor");
    assert!(
        take(&mut client, 3)
            .iter()
            .all(|report| report.name == "power")
    );
    let rate = Rate {
        min: 0.0,
        max: 0.02,
    };
    client
        .sample(&["power"], Strategy::EventRate(rate))
        .expect("a sensor");
    assert!(
        take(&mut client, 3)
            .iter()
            .all(|report| report.name == "power")
    );
    let error = client
        .sample(&["mode"], difference)
        .expect_err("no numbers");
    assert!(matches!(error, ClientError::Refused { .. }), "{error}");

    client.request("halt", &[]).expect("a reply");
    script.end();
}

/// The script insists on what the example asks for.
#[test]
fn the_example_asks_aiokatcp() {
    let (script, address) = serve("dish");
    example::turn(&address).expect("a dish");
    let mut client = Client::connect(address).expect("a greeting");
    client.request("halt", &[]).expect("a reply");
    script.end();
}
