use super::*;
use crate::outbox::Backlogs;
use crate::reading::{SensorInfo, SensorReading, SensorStatus};
use crate::value::{Value, ValueType, integer};

/// A device with one request of its own, which adds a number to 40.
pub struct Adder;

impl Device for Adder {
    fn version(&self) -> &str {
        "adder-1.0"
    }

    fn build(&self) -> &str {
        "adder-1.0.3"
    }

    fn requests(&self) -> &'static [RequestHelp] {
        &[RequestHelp {
            name: "add",
            parameters: "number",
            summary: "Add.",
        }]
    }

    fn handle(&self, request: &Message<'_>, response: &mut Response) -> Result<(), Refusal> {
        let mut parameters = Parameters::new(request);
        let number = parameters.required("number", integer)?;
        parameters.end()?;
        response.argument((40 + number).to_string());
        Ok(())
    }
}

/// A few sensors.
pub fn sensors() -> Sensors {
    let sensors = Sensors::default();
    for (name, of, value) in [
        ("b.count", ValueType::Integer, Value::Integer(5)),
        ("a.level", ValueType::Float, Value::Float(1e-7)),
        (
            "b.mode",
            ValueType::Discrete(&["on", "off"]),
            Value::Discrete("on"),
        ),
        (
            "b.text",
            ValueType::String,
            Value::String("two words".into()),
        ),
    ] {
        let info = SensorInfo::new(name, format!("About {name}."), "m", of);
        sensors.add(
            info,
            SensorReading::new(1.5e9, SensorStatus::Nominal, value),
        );
    }
    sensors
}

fn ask(line: &str) -> Vec<String> {
    thread_local! {
        static STANDARD: StandardRequests<Adder> = StandardRequests::new(Arc::new(Adder), sensors());
    }
    let outbox = Arc::new(Outbox::new(0, 1 << 20, Arc::new(Backlogs::new(usize::MAX))));
    let request = Message::parse(line.as_bytes()).expect(line).expect(line);
    let clients = || vec!["127.0.0.1:5".to_owned(), "[::1]:6".to_owned()];
    let lines = STANDARD.with(|standard| standard.handle(&request, &outbox, clients));
    let text = String::from_utf8(lines).expect("UTF-8");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn answers_carry_the_identifier() {
    assert_eq!(ask("?watchdog"), ["!watchdog ok"]);
    assert_eq!(ask("?watchdog[7]"), ["!watchdog[7] ok"]);
    assert_eq!(
        ask("?client-list[9]"),
        [
            "#client-list[9] 127.0.0.1:5",
            "#client-list[9] [::1]:6",
            "!client-list[9] ok 2"
        ]
    );
}

#[test]
fn versions_are_listed() {
    let build = env!("CARGO_PKG_VERSION");
    let (minor, _) = build.rsplit_once('.').expect("three numbers");
    assert_eq!(
        ask("?version-list"),
        [
            "#version-list katcp-protocol 5.1-MIB".to_owned(),
            format!("#version-list katcp-library karoo-{minor} karoo-{build}"),
            "#version-list katcp-device adder-1.0 adder-1.0.3".to_owned(),
            "!version-list ok 3".to_owned(),
        ]
    );
}

#[test]
fn help_lists_all_requests_in_order() {
    let lines = ask("?help");
    let names: Vec<_> = lines
        .iter()
        .map(|line| line.split(' ').nth(1).expect("a name"))
        .collect();
    assert_eq!(
        names,
        [
            "add",
            "client-list",
            "halt",
            "help",
            "log-level",
            "sensor-list",
            "sensor-sampling",
            "sensor-value",
            "version-list",
            "watchdog",
            "ok"
        ]
    );
    assert_eq!(lines.last().map(String::as_str), Some("!help ok 10"));
    assert_eq!(
        ask("?help add"),
        [r"#help add Add.\n\n?add\_number", "!help ok 1"]
    );
    let unknown = ask("?help nothing");
    assert!(unknown[0].starts_with("!help fail request"), "{unknown:?}");
}

#[test]
fn sensors_are_listed_by_name_and_expression() {
    assert_eq!(
        ask("?sensor-list"),
        [
            r"#sensor-list a.level About\_a.level. m float",
            r"#sensor-list b.count About\_b.count. m integer",
            r"#sensor-list b.mode About\_b.mode. m discrete on off",
            r"#sensor-list b.text About\_b.text. m string",
            "!sensor-list ok 4",
        ]
    );
    assert_eq!(
        ask("?sensor-value b.text"),
        [
            r"#sensor-value 1500000000.0 1 b.text nominal two\_words",
            "!sensor-value ok 1"
        ]
    );
    assert_eq!(ask("?sensor-value /^b|level/").len(), 5);
    assert_eq!(
        ask("?sensor-value a.level")[0],
        "#sensor-value 1500000000.0 1 a.level nominal 1e-07"
    );
    assert_eq!(ask("?sensor-list /nothing/"), ["!sensor-list ok 0"]);
    assert_eq!(ask("?sensor-list //").len(), 5);
    for request in ["?sensor-list", "?sensor-value"] {
        for wrong in ["/(/", "nothing", "/", "/a{1000}{1000}{1000}/"] {
            let answer = ask(&format!("{request} {wrong}"));
            let expected = format!("!{} fail ", &request[1..]);
            assert!(answer[0].starts_with(&expected), "{answer:?}");
        }
    }
    let open = ask("?sensor-list /(/").remove(0);
    assert!(open.ends_with(r"here:\_unclosed\_group"), "{open}");
    // Two bytes that stand for a class of kilobytes.
    let classes = |count: usize| ask(&format!("?sensor-list /{}/", r"\\w".repeat(count))).remove(0);
    assert_eq!(classes(20), "!sensor-list ok 0");
    let long = classes(513);
    assert!(
        long.ends_with(r"it\_has\_1026\_bytes,\_and\_at\_most\_1024\_are\_taken"),
        "{long}"
    );
    // Clients look for this text.
    assert!(ask("?sensor-value x")[0].starts_with(r"!sensor-value fail Unknown\_sensor\_'x'"));
}

#[test]
fn sampling_is_set_and_queried() {
    assert_eq!(
        ask("?sensor-sampling b.count differential-rate 2 0.5 inf"),
        ["!sensor-sampling ok b.count differential-rate 2 0.5 inf"]
    );
    for (asked, told) in [
        (
            "period 18446744073709549568",
            "period 1.844674407370955e+19",
        ),
        ("period 1e400", "period inf"),
        ("event-rate 1e-9 1e300", "event-rate 1e-09 1e+300"),
        ("event-rate 1e300 inf", "event-rate 1e+300 inf"),
    ] {
        assert_eq!(
            ask(&format!("?sensor-sampling b.count {asked}")),
            [format!("!sensor-sampling ok b.count {told}")]
        );
    }
    for (asked, why) in [
        ("period 0", r"period\_0.0\_must\_be\_positive\_(seconds)"),
        (
            "period -1e-300",
            r"period\_-1e-300\_must\_be\_positive\_(seconds)",
        ),
        (
            "event-rate 1 -inf",
            r"longest\_period\_-inf\_must\_be\_positive\_(seconds)",
        ),
        (
            "event-rate 1e400 inf",
            r"shortest\_period\_inf\_must\_be\_0\_or\_more,\_and\_finite\_(seconds)",
        ),
        (
            "differential-rate 1 -1e-300 1",
            r"shortest\_period\_-1e-300\_must\_be\_0\_or\_more,\_and\_finite\_(seconds)",
        ),
    ] {
        assert_eq!(
            ask(&format!("?sensor-sampling b.count {asked}")),
            [format!("!sensor-sampling fail {why}")]
        );
    }
    assert_eq!(
        ask("?sensor-sampling[3] b.count,a.level auto"),
        ["!sensor-sampling[3] ok b.count,a.level auto"]
    );
    for wrong in [
        "",
        " b.count,b.count auto",
        " x auto",
        " b.count,x auto",
        " b.count,a.level",
        " b.count often",
        " b.count period",
        " b.count period 1 2",
        " b.count event-rate 1 2 3 4 5 6",
        " b.text differential 1",
    ] {
        let answer = ask(&format!("?sensor-sampling{wrong}"));
        assert!(
            answer[0].starts_with("!sensor-sampling fail "),
            "{answer:?}"
        );
    }
}

#[test]
fn the_log_level_is_kept() {
    assert_eq!(ask("?log-level"), ["!log-level ok warn"]);
    assert_eq!(ask("?log-level debug"), ["!log-level ok debug"]);
    assert_eq!(ask("?log-level"), ["!log-level ok debug"]);
    assert!(ask("?log-level trace")[0].starts_with("!log-level fail "));
}

#[test]
fn a_device_answers_its_own_requests() {
    assert_eq!(ask("?add[1] 2"), ["!add[1] ok 42"]);
    assert_eq!(
        ask("?add"),
        [r"!add fail number\_is\_missing:\_?help\_add\_says\_what\_is\_needed"]
    );
    assert_eq!(
        ask("?add 1 2 3"),
        [r"!add fail 2\_arguments\_too\_many:\_?help\_add\_says\_what\_is\_needed"]
    );
    assert_eq!(
        ask("?add two"),
        [r"!add fail number:\_'two'\_is\_not\_a\_whole\_number\_such\_as\_42"]
    );
    assert_eq!(
        ask("?subtract 1"),
        [r"!subtract invalid unknown\_request\_subtract"]
    );
    assert!(ask("?watchdog 1")[0].starts_with("!watchdog fail "));
}
