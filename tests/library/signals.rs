//! The language of digitiser signals, as clients may send it.

use karoo::sim::{SignalError, parse};

/// Clients are served by threads of 2 MiB of stack, as tests are.
#[test]
fn size_is_bounded() {
    let nested = format!("{}1{};", "(".repeat(100_000), ")".repeat(100_000));
    let doubling = format!("a = 1; {} a;", "a = a + a;".repeat(64));
    let chain = format!("a = 1; {} a;", "a = delay(a, 1);".repeat(100_000));
    for program in [nested, doubling, chain] {
        let error = parse(&program, || 1).expect_err("too large");
        assert!(matches!(error, SignalError::TooComplex { .. }), "{error:?}");
    }
}
