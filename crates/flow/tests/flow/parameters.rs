//! What is told of parameters in files that are wrong.

use karoo_flow::{Graph, Number, Registry};

#[test]
fn mistakes_of_parameters_name_them_and_what_they_may_be() {
    let told = |kind: &str, parameters: &str, of: &str| {
        let text = format!(
            "name = 'g'\nnode = [\n{{ path = 'x', kind = 'input', of = '{of}' }},\n\
             {{ path = 'n', kind = '{kind}', from = ['x'], {parameters} }},\n\
             {{ path = 'y', kind = 'output', from = ['n'] }},\n]\n"
        );
        let problems = Graph::from_toml(&text, "f", &Registry::standard()).unwrap_err();
        problems.to_string()
    };
    let scalars = "it must be one of `bool`, `i8`, `u8`, `i16`, ";
    for (kind, parameters, wanted) in [
        (
            "nco",
            "bits = -1, address_bits = 1",
            "f:4: n: nco: `bits = -1`: it must be a whole number from 0 to 4294967295",
        ),
        (
            "nco",
            "bits = 8, address_bits = 'all'",
            "nco: `address_bits = \"all\"`: it must be a whole number from 0 to 4294967295",
        ),
        (
            "sum",
            "signs = '+', output = 1",
            &format!("sum: `output = 1`: {scalars}"),
        ),
        (
            "sum",
            "signs = '+', output = [1]",
            &format!("sum: output: a list: {scalars}"),
        ),
        (
            "sum",
            "signs = '+', output = 'f16'",
            &format!("sum: `output = \"f16\"`: {scalars}"),
        ),
        ("sum", "signs = 3", "sum: `signs = 3`: it must be a string"),
        ("sum", "output = 'f32'", "sum: missing field `signs`"),
        (
            "gain",
            "gain = 'half'",
            "gain: `gain = \"half\"`: it must be a number, ",
        ),
        (
            "gain",
            "gain = [1, [2, 3]]",
            "gain: gain: a list of numbers has no lists in it",
        ),
        ("gain", "gain = 1, gane = 2", "gain: unknown field `gane`"),
        (
            "select",
            "indices = [0, -1]",
            "select: indices: integer `-1`: it must be a whole number from 0 to ",
        ),
        (
            "dot",
            "conjugate = 2",
            "dot: `conjugate = 2`: it must be true or false",
        ),
        (
            "gain",
            "gain = 18446744073709551615",
            "f:4: a whole number is beyond -9223372036854775808 to 9223372036854775807",
        ),
        (
            "gain",
            "gain = -9223372036854775809",
            "f:4: a whole number is beyond",
        ),
    ] {
        let text = told(kind, parameters, "f32");
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
    let long = "x".repeat(1000);
    let text = told("gain", &format!("gain = '{long}'"), "f32");
    assert!(text.contains("xxx…`: it must be"), "{text}");
    for (kind, parameters, of, wanted) in [
        (
            "gain",
            "gain = 0.5",
            "i8",
            "n: gain: 0.5 is given, which no i8 is: give a whole number from -128 to 127, or use",
        ),
        (
            "fir",
            "taps = [1, 1e300]",
            "f32",
            "n: taps: 1e300 is given, which no f32 is: give a number from -3.4028235e38 to 3.4028",
        ),
        (
            "hold",
            "initial = [1, 2]",
            "f32",
            "n: initial: 2 numbers are given for f32: give 1$",
        ),
        (
            "hold",
            "initial = [1, 2]",
            "f32[3]",
            "n: initial: 2 numbers are given for f32[3]: give 1 or 3$",
        ),
        (
            "delay",
            "length = 3, initial = [1, 2]",
            "f32",
            "n: 2 initial numbers for 3 samples of f32: give 1 or 3$",
        ),
        (
            "delay",
            "length = 3, initial = [1, 2, 3, 4]",
            "f32[2]",
            "n: 4 initial numbers for 3 samples of f32[2]: give 1, 2 or 6$",
        ),
        (
            "fir",
            "taps = [1, 2], initial = [1, 2]",
            "f32",
            "n: 2 initial samples for 2 taps: give 1$",
        ),
    ] {
        let text = format!("{}$", told(kind, parameters, of));
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
}

/// Whole numbers that TOML has not are written in quotes.
#[test]
fn the_largest_whole_numbers_are_read_in_quotes() {
    let text = "name = 'g'\nnode = [\n\
                { path = 'c', kind = 'constant', of = 'u64', value = '18446744073709551615' },\n\
                { path = 'y', kind = 'output', from = ['c'] },\n]\n";
    let graph = Graph::from_toml(text, "f", &Registry::standard()).unwrap();
    let again = Graph::from_toml(&graph.to_toml().unwrap(), "f", &Registry::standard()).unwrap();
    let constant = again.node(again.find("c").unwrap());
    let value = constant.node.rest(&constant.outputs)[0].first();
    assert_eq!(value, Number::Int(u64::MAX.into()));
}
