//! Gains: one for all channels, one for each, and back to those of the start.

use super::*;

#[test]
fn gains_of_the_start_are_told() {
    let bench = Bench::new();
    assert_eq!(bench.ask("?gain wideband 0"), ["ok", "0.125+0j"]);
    assert_eq!(bench.sensor("wideband.input0.eq"), "[0.125+0j]");
    assert_eq!(bench.sensor("steady-state-timestamp"), "0");
}

#[test]
fn one_gain_is_for_all_channels() {
    let bench = Bench::new();
    bench.steered.outputs[0].publish_end(ground::Timestamp(4096));
    assert_eq!(bench.ask("?gain wideband 0 0.2-3j"), ["ok"]);
    assert_eq!(
        bench.ask("?gain wideband 0"),
        ["ok", "0.20000000298023224-3j"]
    );
    assert_eq!(
        bench.sensor("wideband.input0.eq"),
        "[0.20000000298023224-3j]"
    );
    assert_eq!(bench.sensor("wideband.input1.eq"), "[0.125+0j]");
    assert_eq!(bench.sensor("steady-state-timestamp"), "4096");
    let request = bench.steered.outputs[0].take().expect("a request");
    let gains = Gains::uniform(64, Complex32::new(0.2, -3.0));
    assert_eq!(request.change, Change::Gains([Some(gains), None]));
}

#[test]
fn each_channel_may_have_its_own_gain() {
    let bench = Bench::new();
    let values: Vec<_> = (0..64).map(|k| format!("{}+{}j", 2 * k, 3 * k)).collect();
    let line = format!("?gain wideband 1 {}", values.join(" "));
    assert_eq!(bench.ask(&line), ["ok"]);
    assert_eq!(bench.ask("?gain wideband 1")[1..], values);
    assert_eq!(
        bench.sensor("wideband.input1.eq"),
        format!("[{}]", values.join(", "))
    );
    let line = line.replace("gain wideband 1", "gain-all wideband");
    assert_eq!(bench.ask(&line), ["ok"]);
    assert_eq!(bench.ask("?gain wideband 0")[1..], values);
}

#[test]
fn both_inputs_are_set_and_put_back() {
    let bench = Bench::new();
    assert_eq!(bench.ask("?gain-all wideband (1+2J)"), ["ok"]);
    for input in 0..2 {
        assert_eq!(bench.sensor(&format!("wideband.input{input}.eq")), "[1+2j]");
    }
    assert_eq!(bench.ask("?gain-all wideband default"), ["ok"]);
    for input in 0..2 {
        assert_eq!(
            bench.ask(&format!("?gain wideband {input}")),
            ["ok", "0.125+0j"]
        );
    }
}

#[test]
fn gains_that_cannot_be_are_refused() {
    let bench = Bench::new();
    for (line, with) in [
        ("?gain", "stream is missing"),
        ("?gain wideband", "input is missing"),
        (
            "?gain nosuch 0",
            "no output stream called 'nosuch': there is wideband",
        ),
        ("?gain wideband 2", "input 2 is out of range"),
        ("?gain wideband -1", "input -1 is out of range"),
        ("?gain wideband x", "input: 'x' is not a whole number"),
        (
            "?gain wideband 0 text",
            "gain of channel 0: 'text' is not a complex number",
        ),
        ("?gain wideband 0 nan", "must be finite"),
        ("?gain wideband 0 inf+infj", "must be finite"),
        ("?gain wideband 0 1e39", "must be finite"),
        ("?gain wideband 0 1 2", "2 gains"),
        (r"?gain wideband 0 1\_+\_2j", "is not a complex number"),
        ("?gain-all wideband", "0 gains"),
        ("?gain-all wideband default default", "2 gains"),
        ("?gain-all nosuch 1", "'nosuch'"),
    ] {
        bench.fails(line, with);
    }
    let mut values = vec!["1"; 64];
    values[17] = "1,0";
    bench.fails(
        &format!("?gain wideband 0 {}", values.join(" ")),
        "gain of channel 17: '1,0'",
    );
    assert_eq!(bench.ask("?gain wideband 0"), ["ok", "0.125+0j"]);
    assert_eq!(bench.sensor("steady-state-timestamp"), "0");
}
