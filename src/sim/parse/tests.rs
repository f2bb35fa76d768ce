use proptest::prelude::*;

use super::*;

fn canonical(program: &str) -> String {
    let mut seed = 100;
    let signals = parse(program, || {
        seed += 1;
        seed
    });
    signals
        .unwrap()
        .iter()
        .map(Signal::to_string)
        .collect::<Vec<_>>()
        .join(" ")
}

fn error(program: &str) -> SignalError {
    parse(program, || 0).unwrap_err()
}

#[test]
fn precedence_and_association() {
    assert_eq!(canonical("1+2*3-4;"), "((1.0 + (2.0 * 3.0)) - 4.0);");
    assert_eq!(canonical("1-2;"), "(1.0 - 2.0);");
    assert_eq!(canonical("1 - -2;"), "(1.0 - -2.0);");
    assert_eq!(canonical(" ( 1 + 2 ) * 3 ;"), "((1.0 + 2.0) * 3.0);");
    assert_eq!(canonical(""), "");
}

#[test]
fn functions_and_variables() {
    assert_eq!(
        canonical("cw(1, 2.5e3);comb(.5,-1);"),
        "cw(1.0, 2500.0); comb(0.5, -1.0);"
    );
    assert_eq!(
        canonical("multicw(3, 1, 0.1, 1e6, 2);"),
        "multicw(3, 1.0, 0.1, 1000000.0, 2.0);"
    );
    assert_eq!(
        canonical("wgn(0.1); wgn(0.1, 5);"),
        "wgn(0.1, 101); wgn(0.1, 5);"
    );
    assert_eq!(canonical("delay(cw(1,1), -5);"), "delay(cw(1.0, 1.0), -5);");
    assert_eq!(canonical("nodither(1 + 1);"), "nodither((1.0 + 1.0));");
    // A variable's noise is the same noise wherever it is used.
    assert_eq!(
        canonical("n = wgn(1); n; n + 1;"),
        "wgn(1.0, 101); (wgn(1.0, 101) + 1.0);"
    );
    assert_eq!(canonical("a = 1; a = a + 1; a;"), "(1.0 + 1.0);");
    assert_eq!(canonical("n = nodither(2); n;"), "nodither(2.0);");
}

#[test]
fn mistakes_have_their_place() {
    assert!(matches!(
        error("1"),
        SignalError::Expected {
            at: 1,
            expected: "';'",
            ..
        }
    ));
    assert!(matches!(
        error("cw(1);"),
        SignalError::Expected { at: 4, .. }
    ));
    assert!(matches!(
        error("1 + ;"),
        SignalError::Expected { at: 4, .. }
    ));
    assert!(matches!(
        error("-cw(1, 2);"),
        SignalError::Expected { at: 0, .. }
    ));
    assert!(matches!(
        error("1 / 2;"),
        SignalError::Expected { at: 2, .. }
    ));
    assert!(matches!(
        error("wgn(1, -2);"),
        SignalError::Expected { at: 7, .. }
    ));
    assert!(matches!(error("1 é;"), SignalError::Expected { at: 2, .. }));
    for (program, at, range) in [
        ("1e999;", 0, "-1.797e308 to 1.797e308"),
        ("multicw(70000, 1, 1, 1, 1);", 8, "0 to 65536"),
        (
            "wgn(1, 18446744073709551616);",
            7,
            "0 to 18446744073709551615",
        ),
        (
            "delay(1, -9223372036854775809);",
            9,
            "-9223372036854775808 to 9223372036854775807",
        ),
    ] {
        let error = error(program);
        assert_eq!(error.at(), at, "{error}");
        let words = format!("position {at} is out of range; it must be from {range}");
        assert!(error.to_string().ends_with(&words), "{error}");
    }
    assert!(matches!(
        error("cw = 1;"),
        SignalError::Reserved { at: 0, .. }
    ));
    let text = error("a = 1; 2 * foo;").to_string();
    assert!(text.contains("'foo'") && text.contains("11"), "{text}");
    for program in [
        "1 + nodither(cw(1, 2));",
        "nodither(nodither(cw(1, 2)));",
        "delay(nodither(cw(1, 2)), 3);",
    ] {
        let text = error(program).to_string();
        assert!(text.contains("nodither(cw(1.0, 2.0))"), "{text}");
    }
}

/// The longest sum, and the same with all parentheses written, on a small stack.
#[test]
fn what_is_written_out_can_be_given_again() {
    let sum = vec!["cw(0.001, 1e6)"; MAX_TERMS / 2].join(" + ") + ";";
    let again = move || {
        let text = canonical(&sum);
        assert_eq!(canonical(&text), text);
    };
    let thread = std::thread::Builder::new().stack_size(1 << 20);
    thread.spawn(again).unwrap().join().unwrap();
}

fn term() -> impl Strategy<Value = Arc<Term>> {
    let number = -1e9..1e9f64;
    let leaf = prop_oneof![
        number.clone().prop_map(Term::Constant),
        (number.clone(), number.clone()).prop_map(|(amplitude, frequency)| Term::Cw {
            amplitude,
            frequency
        }),
        (number.clone(), number.clone()).prop_map(|(amplitude, frequency)| Term::Comb {
            amplitude,
            frequency
        }),
        (0..100u64, number.clone(), number.clone()).prop_map(|(tones, a, f)| Term::MultiCw {
            tones,
            amplitude: (a, f),
            frequency: (f, a)
        }),
        (number, any::<u64>()).prop_map(|(std, seed)| Term::Wgn { std, seed }),
    ];
    leaf.prop_map(Arc::new).prop_recursive(4, 20, 2, |inner| {
        let operator = prop_oneof![
            Just(Operator::Add),
            Just(Operator::Subtract),
            Just(Operator::Multiply)
        ];
        prop_oneof![
            (inner.clone(), any::<i32>()).prop_map(|(t, d)| Arc::new(Term::Delay(t, d.into()))),
            (operator, inner.clone(), inner).prop_map(|(o, a, b)| Arc::new(Term::Combine(o, a, b))),
        ]
    })
}

proptest! {
    #[test]
    fn text_of_a_signal_parses_to_it(term in term(), dither: bool) {
        let signal = Signal { term, dither };
        prop_assert_eq!(parse(&signal.to_string(), || 0), Ok(vec![signal]));
    }

    #[test]
    fn arbitrary_text_never_panics(text in "[cwdelay0-9+*()=;,. é-]{0,40}") {
        let _ = parse(&text, || 0);
    }
}
