use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::thread::JoinHandle;

use super::*;
use crate::device::Refusal;
use crate::sampling::Rate;
use crate::value::{Value, ValueType, float, text};
use crate::{
    SensorId, SensorInfo, SensorReading, SensorStatus, Sensors, ServerThread, SimpleDevice,
    Strategy,
};

const GREETING: &str = "#version-connect katcp-protocol 5.1-MIB\n";
const NEVER: Duration = Duration::from_secs(100);
const AT_ONCE: Duration = Duration::ZERO;

/// A server that greets one client, insists on these lines, and answers each with a text. Closes
/// the connection then.
fn server(greeting: &str, steps: &[(&str, &str)]) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("an address");
    let owned = |(line, answer): &(&str, &str)| (line.to_string(), answer.to_string());
    let (greeting, steps) = (
        greeting.to_owned(),
        steps.iter().map(owned).collect::<Vec<_>>(),
    );
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut lines = BufReader::new(stream.try_clone().expect("a socket")).lines();
        stream.write_all(greeting.as_bytes()).expect("a client");
        for (expected, answer) in steps {
            let line = lines.next().expect("a line").expect("a client");
            assert_eq!(line, expected);
            stream.write_all(answer.as_bytes()).expect("a client");
        }
    });
    (address, thread)
}

/// A client of a server that greets as this crate's servers do.
fn client(steps: &[(&str, &str)]) -> (Client, JoinHandle<()>) {
    let (address, thread) = server(GREETING, steps);
    (Client::connect(address).expect("a greeting"), thread)
}

fn names(informs: &[OwnedMessage]) -> Vec<&str> {
    informs.iter().map(OwnedMessage::name).collect()
}

#[test]
fn a_reply_comes_with_the_informs_of_its_request_alone() {
    let answer = "#log info 1.5 x y\n#help[1] a A\\_thing.\n#sensor-status 1.5 1 s nominal 7\n\
                  #help b of\\_another\n\r\n#help[1] c \\@\n!help[1] ok 2\n";
    let (mut client, thread) = client(&[("?help[1] two\\_words \\@", answer)]);
    let reply = client.request("help", &["two words", ""]).expect("a reply");
    assert_eq!(reply.texts(), ["2"]);
    assert_eq!(reply.informs().len(), 2);
    assert_eq!(reply.informs()[0].texts(), ["a", "A thing."]);
    assert_eq!(reply.informs()[1].texts(), ["c", ""]);
    thread.join().expect("as expected");
    let mut rest = Vec::new();
    while let Ok(Some(inform)) = client.next_inform(NEVER) {
        rest.push(inform);
    }
    assert_eq!(names(&rest), ["version-connect", "log", "help"]);
    let report = client.next_report(AT_ONCE).expect("kept").expect("kept");
    assert_eq!((&*report.name, &*report.text()), ("s", "7"));
    assert_eq!(
        (report.timestamp, report.status),
        (1.5, SensorStatus::Nominal)
    );
}

#[test]
fn refusals_are_errors_with_the_text_of_the_server() {
    let (mut client, thread) = client(&[
        ("?a[1]", "!a[1] fail it\\_is\\_night\n"),
        ("?b[2]", "!b[2] invalid\n"),
        ("?c[3]", "!c[3] done\n"),
    ]);
    let mut error = |name| client.request(name, &[]).expect_err("a refusal");
    assert_eq!(error("a").to_string(), "?a was refused: fail: it is night");
    assert!(matches!(
        error("b"),
        ClientError::Refused { refusal: Refusal::Invalid(text), .. } if text.is_empty()
    ));
    assert_eq!(
        error("c").to_string(),
        "the server's !c cannot be read: code: 'done' is not ok, fail or invalid"
    );
    thread.join().expect("as expected");
}

#[test]
fn a_late_reply_is_not_taken_for_another() {
    let (mut client, thread) = client(&[
        ("?add[1] 1", ""),
        ("?add[2] 2", "#add[1] x\n!add[1] ok 1\n!add[2] ok 2\n"),
    ]);
    client.set_reply_time(Duration::from_millis(1));
    let error = client.request("add", &["1"]).expect_err("no reply");
    assert!(matches!(error, ClientError::NoReply { .. }), "{error}");
    client.set_reply_time(NEVER);
    let reply = client.request("add", &["2"]).expect("a reply");
    assert_eq!(
        (reply.texts(), reply.informs().len()),
        (vec!["2".to_owned()], 0)
    );
    thread.join().expect("as expected");
}

#[test]
fn without_identifiers_a_missing_reply_ends_the_connection() {
    let (address, thread) = server(
        "#version-connect katcp-protocol 5.0-M\n",
        &[
            ("?a x", "#a 1\n!a ok\n"),
            ("?sensor-sampling r event", "!sensor-sampling ok r event\n"),
            ("?sensor-sampling s event", "!sensor-sampling ok s event\n"),
            ("?b", ""),
        ],
    );
    let mut client = Client::connect(address).expect("a greeting");
    assert_eq!(client.protocol(), "5.0-M");
    let reply = client.request("a", &["x"]).expect("a reply");
    assert_eq!(reply.informs().len(), 1);
    let sampled = client.sample(&["r", "s"], Strategy::Event);
    sampled.expect("one request for each");
    client.set_reply_time(Duration::from_millis(1));
    let error = client.request("b", &[]).expect_err("no reply");
    assert!(
        matches!(
            error,
            ClientError::NoReply { .. } | ClientError::Closed { .. }
        ),
        "{error}"
    );
    let error = client.request("c", &[]).expect_err("closed");
    assert!(
        matches!(error, ClientError::Closed { why: None }),
        "{error}"
    );
    thread.join().expect("as expected");
}

#[test]
fn the_reason_of_a_disconnection_is_told() {
    let (mut client, thread) = client(&[("?a[1]", "#disconnect too\\_many\\_clients\n")]);
    let error = client.request("a", &[]).expect_err("disconnected");
    let text = "the connection is closed (too many clients): connect again";
    assert_eq!(error.to_string(), text);
    assert_eq!(
        client.request("b", &[]).expect_err("closed").to_string(),
        text
    );
    let kept = [client.next_inform(AT_ONCE), client.next_inform(AT_ONCE)];
    let kept = kept.map(|inform| inform.expect("kept").expect("kept"));
    assert_eq!(names(&kept), ["version-connect", "disconnect"]);
    assert!(client.next_inform(AT_ONCE).is_err());
    thread.join().expect("as expected");
}

#[test]
fn servers_of_other_protocols_are_refused() {
    let connect = |greeting: &str, limits| {
        let (address, thread) = server(greeting, &[]);
        let error = Client::connect_with(address, limits).expect_err("no KATCP");
        thread.join().expect("as expected");
        error.to_string()
    };
    let limits = ClientLimits::default();
    assert_eq!(
        connect("#version-connect katcp-protocol 4.9-M\n", limits),
        "the server speaks KATCP '4.9-M': this client speaks version 5"
    );
    assert_eq!(
        connect("HTTP/1.1 400 Bad Request\n", limits),
        "the server's line 'HTTP/1.1 400 Bad Request' is no KATCP: a message begins with ?, ! or #, \
         not with byte 0x48; the connection is closed"
    );
    assert_eq!(
        connect("#version 1\n", limits),
        "the connection is closed: connect again"
    );
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("an address");
    let connect_time = Duration::from_millis(20);
    let hasty = ClientLimits {
        connect_time,
        ..limits
    };
    let error = Client::connect_with(address, hasty).expect_err("silence");
    assert!(matches!(error, ClientError::NoGreeting(_)), "{error}");
    drop(listener);
    let error = Client::connect(address).expect_err("nobody listens");
    let text = error.to_string();
    assert!(
        text.starts_with(&format!("cannot connect to {address}: ")),
        "{text}"
    );
    let error = Client::connect("nowhere.invalid:x").expect_err("no address");
    assert!(matches!(error, ClientError::Connect { .. }), "{error}");
}

#[test]
fn a_server_that_sends_too_much_is_left() {
    let limits = ClientLimits {
        line: 50,
        answer: 400,
        kept: 400,
        ..ClientLimits::default()
    };
    let connect = |answer: &str| {
        let (address, thread) = server(GREETING, &[("?a[1]", answer)]);
        let mut client = Client::connect_with(address, limits).expect("a greeting");
        let error = client.request("a", &[]).expect_err("too much").to_string();
        let next = client.request("b", &[]).expect_err("closed");
        assert!(matches!(next, ClientError::Closed { .. }), "{next}");
        thread.join().expect("as expected");
        (error, client)
    };
    let long = "the server sent too much: a line is longer than 50 bytes; allow more in \
                ClientLimits; the connection is closed";
    assert_eq!(connect(&format!("#x {}\n", "y".repeat(48))).0, long);
    assert_eq!(connect(&format!("#x {}", "y".repeat(48))).0, long);
    let (error, _) = connect(&"#a[1] x\n".repeat(100));
    assert!(
        error.starts_with("the answer to ?a has more than 400 bytes: "),
        "{error}"
    );
    let (error, mut client) = connect(&("#x 1\n".repeat(50) + "#x 2\nx\n"));
    assert!(
        error.starts_with("the server's line 'x' is no KATCP: "),
        "{error}"
    );
    let kept = std::iter::from_fn(|| client.next_inform(AT_ONCE).ok()?);
    let kept: Vec<_> = kept.map(|inform| inform.texts()).collect();
    assert!((1..=5).contains(&kept.len()), "{kept:?}");
    assert_eq!(kept.last(), Some(&vec!["2".to_owned()]));
    // With the greeting.
    assert_eq!(client.lost(), 52 - kept.len() as u64);
}

#[test]
fn requests_that_are_no_lines_are_not_sent() {
    let limits = ClientLimits {
        line: 40,
        ..ClientLimits::default()
    };
    let longest = format!("?a[2] {}", "x".repeat(34));
    let (address, thread) = server(GREETING, &[(&longest, "!a[2] ok\n")]);
    let mut client = Client::connect_with(address, limits).expect("a greeting");
    for name in ["", "1a", "a b", "a\n?halt", "a_b", "é"] {
        let error = client.request(name, &[]).expect_err("no name");
        assert!(matches!(error, ClientError::Name(_)), "{error}");
    }
    let error = client
        .request("a", &[&"x".repeat(35)])
        .expect_err("too long");
    let text = "?a has 41 bytes: at most 40 fit a line; split the request";
    assert_eq!(error.to_string(), text);
    let longest = "x".repeat(34);
    client
        .request_bytes("a", &[longest.as_bytes()])
        .expect("a reply");
    thread.join().expect("as expected");
}

#[test]
fn reports_of_many_sensors_come_one_by_one_and_bad_ones_are_errors() {
    let answer = "#sensor-status 2 2 r warn 1 s unknown \\@\n#sensor-status 3 1 s nominal\n\
                  #sensor-status 3 1 s good 1\n#sensor-status 4 1 r error a\\_b\n!a[1] ok\n";
    let (mut client, thread) = client(&[("?a[1]", answer)]);
    client.request("a", &[]).expect("a reply");
    let mut next = || {
        let report = client.next_report(NEVER)?.expect("a report");
        Ok::<_, ClientError>((
            report.timestamp,
            report.name.clone(),
            report.status,
            report.text().into_owned(),
        ))
    };
    let report =
        |time, name: &str, status, text: &str| (time, name.to_owned(), status, text.to_owned());
    assert_eq!(
        next().expect("a report"),
        report(2.0, "r", SensorStatus::Warn, "1")
    );
    assert_eq!(
        next().expect("a report"),
        report(2.0, "s", SensorStatus::Unknown, "")
    );
    assert_eq!(
        next().expect_err("no value").to_string(),
        "the server's #sensor-status cannot be read: value is missing: ?help sensor-status says what \
         is needed"
    );
    assert_eq!(
        next().expect_err("no status").to_string(),
        "the server's #sensor-status cannot be read: status: 'good' is not a status such as nominal"
    );
    assert_eq!(
        next().expect("a report"),
        report(4.0, "r", SensorStatus::Error, "a b")
    );
    let end: Vec<_> = client.reports().collect();
    assert!(
        matches!(end[..], [Err(ClientError::Closed { why: None })]),
        "{end:?}"
    );
    thread.join().expect("as expected");
}

/// A dish that turns, on a server of this crate.
fn dish() -> (ServerThread, Sensors, SensorId) {
    let sensors = Sensors::default();
    let info = SensorInfo::new("azimuth", "Direction of the dish", "deg", ValueType::Float);
    let azimuth = sensors.add(info, SensorReading::now(Value::Float(0.0)));
    let mode = ValueType::Discrete(&["stow", "track"]);
    let info = SensorInfo::new("mode", "What the dish does", "", mode);
    sensors.add(info, SensorReading::now(Value::Discrete("stow")));
    let turning = sensors.clone();
    let device = SimpleDevice::new("dish-1.0", "dish-1.0.0").request(
        "turn",
        "degrees",
        "Turn the dish.",
        move |mut parameters, response| {
            let degrees = parameters.required("degrees", float)?;
            parameters.end()?;
            turning.set(azimuth, SensorReading::now(Value::Float(degrees)));
            response.argument("turning");
            Ok(())
        },
    );
    let server = ServerThread::start((Ipv4Addr::LOCALHOST, 0).into(), device, sensors.clone());
    (server.expect("it listens"), sensors, azimuth)
}

#[test]
fn a_dish_is_turned_and_watched() {
    let (server, sensors, azimuth) = dish();
    let mut client = Client::connect(server.address().to_string()).expect("a greeting");
    assert_eq!(
        (client.protocol(), client.server_address()),
        ("5.1-MIB", server.address())
    );
    let greeting: Vec<_> = (0..3)
        .map(|_| {
            client
                .next_inform(NEVER)
                .expect("a server")
                .expect("a version")
        })
        .map(|inform| inform.texts().remove(0))
        .collect();
    assert_eq!(
        greeting,
        ["katcp-protocol", "katcp-library", "katcp-device"]
    );

    client
        .sample(&["azimuth", "mode"], Strategy::Event)
        .expect("sensors");
    let reply = client.request("turn", &["12.5"]).expect("a reply");
    assert_eq!(
        reply.parameters().required("state", text).expect("text"),
        "turning"
    );
    let reports: Vec<_> = client
        .reports()
        .take(3)
        .map(|r| r.expect("a report"))
        .collect();
    let told: Vec<_> = reports.iter().map(|r| (&*r.name, r.text())).collect();
    assert_eq!(
        told,
        [
            ("azimuth", "0.0".into()),
            ("mode", "stow".into()),
            ("azimuth", "12.5".into())
        ]
    );
    assert_eq!(reports[2].parse(ValueType::Float), Ok(Value::Float(12.5)));
    assert_eq!(client.next_report(AT_ONCE).expect("a server"), None);

    // Set by the program, while the client waits.
    let setter = std::thread::spawn(move || {
        sensors.set(
            azimuth,
            SensorReading::new(1e9, SensorStatus::Warn, Value::Float(13.0)),
        );
    });
    let report = client
        .next_report(NEVER)
        .expect("a server")
        .expect("a report");
    assert_eq!((report.timestamp, report.status), (1e9, SensorStatus::Warn));
    setter.join().expect("no panic");

    let rate = Rate {
        min: 0.0,
        max: 0.02,
    };
    client
        .sample(&["mode"], Strategy::EventRate(rate))
        .expect("a sensor");
    assert!(
        client
            .reports()
            .take(3)
            .all(|report| report.is_ok_and(|r| r.name == "mode"))
    );
    client
        .sample(&["azimuth", "mode"], Strategy::None)
        .expect("sensors");

    let list = client.sensor_list("/./").expect("sensors");
    let types: Vec<_> = list
        .iter()
        .map(|s| (&*s.name, &*s.value_type, &*s.units))
        .collect();
    assert_eq!(
        types,
        [("azimuth", "float", "deg"), ("mode", "discrete", "")]
    );
    assert_eq!(list[1].parameters, ["stow", "track"]);
    assert_eq!(client.sensor_values("/mode/").expect("a sensor").len(), 1);
    assert_eq!(
        client.sensor_value("azimuth").expect("a sensor").text(),
        "13.0"
    );
    let error = client
        .sensor_value("elevation")
        .expect_err("no such sensor");
    let text =
        "?sensor-value was refused: fail: Unknown sensor 'elevation': ?sensor-list lists all";
    assert_eq!(error.to_string(), text);
    assert!(client.sensor_value("/none/").is_err());

    let mut other = Client::connect(server.address()).expect("a greeting");
    other.request("halt", &[]).expect("a reply");
    let error = client.reports().find_map(Result::err).expect("the end");
    let text = "the connection is closed (server shutting down): connect again";
    assert_eq!(error.to_string(), text);
    server.wait();
}

#[test]
fn a_server_thread_that_is_dropped_ends() {
    let (server, ..) = dish();
    let mut client = Client::connect(server.address()).expect("a greeting");
    let address = server.address();
    drop(server);
    assert!(Client::connect(address).is_err());
    let error = client.request("watchdog", &[]).expect_err("closed");
    assert!(
        matches!(error, ClientError::Closed { why: Some(_) }),
        "{error}"
    );
}

#[test]
fn long_lines_go_both_ways() {
    let echo = SimpleDevice::new("echo-1.0", "echo-1.0.0").request(
        "echo",
        "[text…]",
        "Reply with the arguments.",
        |parameters, response| {
            parameters
                .rest()
                .for_each(|argument| response.argument(argument));
            Ok(())
        },
    );
    let server = ServerThread::start((Ipv4Addr::LOCALHOST, 0).into(), echo, Sensors::default());
    let server = server.expect("it listens");
    let mut client = Client::connect(server.address()).expect("a greeting");
    let gains: Vec<String> = (0..32768).map(|k| format!("{k}.25-{k}.5j \n")).collect();
    let gains: Vec<&str> = gains.iter().map(String::as_str).collect();
    assert_eq!(
        client.request("echo", &gains).expect("a reply").texts(),
        gains
    );
    let any: Vec<u8> = (0..=255).cycle().take(2 << 20).collect();
    let reply = client.request_bytes("echo", &[&any, b""]).expect("a reply");
    let back: Vec<_> = reply
        .arguments()
        .map(|argument| argument.into_owned())
        .collect();
    assert_eq!(back, [any, vec![]]);
}
