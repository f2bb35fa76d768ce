//! Delay models.

use katcp::reading::unix_now;

use super::*;

#[test]
fn delays_are_models() {
    let bench = Bench::new();
    bench.steered.outputs[0].publish_end(ground::Timestamp(512));
    let line =
        "?delays wideband 1632561931.0 3.76e-9,0.12e-9:7.322,1.91 2.67e-9,0.02e-9:5.678,-1.81";
    assert_eq!(bench.ask(line), ["ok"]);
    let request = bench.steered.outputs[0].take().expect("a request");
    let Change::Delays { models, .. } = request.change else {
        panic!("{request:?}");
    };
    assert_eq!(models.map(|m| m.start()), [17_120_000_000; 2]);
    assert!((models[0].delay() - 3.76e-9 * 1712e6).abs() < 1e-12);
    assert_eq!(models[1].rate(), 0.02e-9);
    assert!((models[0].phase() - (7.322 - std::f64::consts::TAU)).abs() < 1e-12);
    assert!((models[1].phase_rate() + 1.81 / 1712e6).abs() < 1e-20);
    assert_eq!(bench.sensor("steady-state-timestamp"), "512");
    // Shown when it is active, not when it is asked for.
    assert_eq!(
        bench.sensor("wideband.input0.delay"),
        "(-1, 0.0, 0.0, 0.0, 0.0)"
    );
}

/// As katgpucbf does: sensors then show what was asked for.
#[test]
fn models_that_begin_between_samples_begin_at_the_nearest_as_they_are() {
    let bench = Bench::new();
    // 2⁻²² s, the finest that UNIX times resolve, are 408.17 samples.
    let line = "?delays wideband 1632561921.0000002384185791015625 1e-6,0.5:1,1e9 0,0:0,0";
    assert_eq!(bench.ask(line), ["ok"]);
    let request = bench.steered.outputs[0].take().expect("a request");
    let Change::Delays { models, .. } = request.change else {
        panic!("{request:?}");
    };
    let model = models[0];
    assert_eq!(
        (model.start(), model.delay(), model.phase()),
        (408, 1712.0, 1.0)
    );
}

#[test]
fn delays_that_cannot_be_are_refused() {
    let bench = Bench::new();
    for (arguments, with) in [
        ("", "stream is missing"),
        ("nosuch 1632561921 0,0:0,0 0,0:0,0", "'nosuch'"),
        ("wideband", "start-time is missing"),
        (
            "wideband 0,0:0,0 0,0:0,0",
            "start-time: '0,0:0,0' is not a number",
        ),
        ("wideband 1632561921 0,0:0,0", "model of input 1 is missing"),
        (
            "wideband 1632561921 0,0:0,0 0,0:0,0 0,0:0,0",
            "1 argument too many",
        ),
        (
            "wideband 1632561920 0,0:0,0 0,0:0,0",
            "start time 1632561920.0 (UNIX seconds) must be between 1632561921.0, the sync time",
        ),
        (
            "wideband 1e300 0,0:0,0 0,0:0,0",
            "start time 1e300 (UNIX seconds) must be between",
        ),
        ("wideband nan 0,0:0,0 0,0:0,0", "start-time: 'nan'"),
        ("wideband inf 0,0:0,0 0,0:0,0", "finite"),
        (
            "wideband 1632561921 0,00,0 0,0:0,0",
            "model of input 0: '0,00,0' is not delay,rate:phase,phase-rate",
        ),
        (
            "wideband 1632561921 0,0:0,0 00:0,0",
            "model of input 1: '00:0,0'",
        ),
        ("wideband 1632561921 0,0:00 0,0:0,0", "model of input 0"),
        ("wideband 1632561921 0,0:x,0 0,0:0,0", "'x' is not a number"),
        (
            "wideband 1632561921 0,0:0,0 0,0,0:0,0",
            "'0,0' is not a number",
        ),
        (
            "wideband 1632561921 0,0:0,0:0 0,0:0,0",
            "'0:0' is not a number",
        ),
        ("wideband 1632561921 0,1:0,0 0,0:0,0", "rate"),
        (
            "wideband 1632561921 0,0:0,0 0,-1:0,0",
            "delay rate -1 must be between -1 and 1 s/s",
        ),
        (
            "wideband 1632561921 nan,0:0,0 0,0:0,0",
            "'nan' is not a number",
        ),
        (
            "wideband 1632561921 0,0:0,0 0,-inf:0,0",
            "must be a finite number",
        ),
    ] {
        bench.fails(&format!("?delays {arguments}"), with);
    }
    assert_eq!(bench.sensor("steady-state-timestamp"), "0");
}

/// It may have nothing else that tells it.
#[test]
fn delays_tell_an_engine_what_time_it_is() {
    let bench = Bench::new();
    let now = || bench.steered.outputs[0].now();
    assert_eq!(now(), Timestamp(0));
    assert_eq!(bench.ask("?gain wideband 0"), ["ok", "0.125+0j"]);
    assert_eq!(now(), Timestamp(0));
    let before = unix_now();
    let reply = bench.ask("?delays wideband 1632561921.5 0,0:0,0 0,0:0,0");
    assert_eq!(reply, ["ok"]);
    let told = now().0 as f64 / 1712e6 + 1_632_561_921.0;
    assert!(
        (before - 0.001..unix_now() + 0.001).contains(&told),
        "{told}"
    );
}
