//! What was applied, as lines for replays.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;

/// Lines for replays ask for the very same, to the last bit.
#[test]
fn what_was_applied_can_be_asked_for_again() {
    let bench = Bench::new();
    let mut random = StdRng::seed_from_u64(1);
    let mut number = || {
        let number = random.random_range(-1.0..1.0_f64);
        number * 10f64.powi(random.random_range(-12..4))
    };
    for _ in 0..1000 {
        let start = 1_632_561_921.0 + 1e6 * number().abs();
        let mut model = || {
            let rate = number() / 1e4;
            format!("{},{rate}:{},{}", number() / 20.0, number(), number())
        };
        let delays = format!("?delays wideband {start} {} {}", model(), model());
        let mut gain = || format!("{}{:+}j", number(), number());
        let each: Vec<_> = (0..64).map(|_| gain()).collect();
        let gains = format!("?gain wideband 1 {}", each.join(" "));
        let all = format!("?gain-all wideband {}", gain());
        let test = format!("?karoo-test wideband ramp {}", 1.0 + number().abs());
        let off = "?karoo-test wideband off".to_owned();
        for line in [delays, gains, all, test, off] {
            assert_eq!(bench.ask(&line)[0], "ok", "{line}");
            let change = bench.steered.outputs[0].take().expect("a request").change;
            let applied = Applied {
                output: 0,
                from: Timestamp(1 << 47),
                change,
            };
            let lines = replay_lines("wideband", &applied, CLOCK);
            let [again] = &lines[..] else {
                panic!("{lines:?}");
            };
            let (at, again) = again.split_once(' ').expect("a timestamp");
            assert_eq!(at, "140737488355328");
            assert_eq!(again.split(' ').next(), line.split(' ').next());
            bench.ask(again);
            let asked = bench.steered.outputs[0].take().expect("a request");
            assert_eq!(asked.change, applied.change, "{line}: {again}");
        }
    }
}

#[test]
fn gains_that_were_applied_together_are_asked_for_by_input() {
    let [x, y] = [1.0, 0.5].map(|gain| Some(Gains::uniform(64, Complex32::from(gain))));
    let lines = |gains| {
        let applied = Applied {
            output: 0,
            from: Timestamp(7),
            change: Change::Gains(gains),
        };
        replay_lines("a b", &applied, CLOCK)
    };
    let each = ["7 ?gain a\\_b 0 1+0j", "7 ?gain a\\_b 1 0.5+0j"];
    assert_eq!(lines([x.clone(), y.clone()]), each);
    assert_eq!(lines([None, y]), each[1..]);
    assert_eq!(lines([x.clone(), x]), ["7 ?gain-all a\\_b 1+0j"]);
}
