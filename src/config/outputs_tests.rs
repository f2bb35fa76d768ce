//! The text of outputs: keys, defaults, and what is refused.

use super::*;

fn refusal(text: &str) -> String {
    text.parse::<WidebandOptions>().unwrap_err().to_string()
}

#[test]
fn the_defaults_are_katgpucbfs() {
    let options: WidebandOptions = "name=w,channels=64,dst=239.1.2.3+1".parse().unwrap();
    assert_eq!((options.taps, options.w_cutoff), (16, 1.0));
    assert!(options.oversampling.is_none());
    assert_eq!(
        (options.window_function, options.dither),
        (WindowFunction::Hann, Dither::Uniform)
    );
    assert_eq!(
        options.dst,
        [
            "239.1.2.3:7148".parse().unwrap(),
            "239.1.2.4:7148".parse().unwrap()
        ]
    );
}

#[test]
fn refusals_name_the_key_and_a_way_out() {
    assert!(refusal("name=w,channels=64").contains("dst is required"));
    assert!(refusal("name=w,name=v").contains("given twice"));
    assert!(refusal("name").contains("not key=value"));
    assert!(refusal("name=w,channels=6x4,dst=239.1.2.3").contains("try channels=1024"));
    assert!(refusal("name=w,channels=64,dst=239.1.2.3,dither=Uniform").contains("none or uniform"));
}

#[test]
fn an_unknown_key_is_named_before_a_missing_one_with_what_was_meant() {
    for (given, meant) in [
        ("chanels=64", "did you mean channels?"),
        ("Channels=64", "did you mean channels?"),
        ("tap=4", "did you mean taps?"),
        ("window=hann", "did you mean window_function?"),
        ("jones-per-batch=1024", "did you mean jones_per_batch?"),
        ("xyz=1", "the keys are name, channels,"),
    ] {
        let said = refusal(&format!("name=w,{given}"));
        let key = given.split('=').next().expect("a key");
        assert!(
            said.starts_with(&format!("--wideband '{key}': is not a key")),
            "{said}"
        );
        assert!(said.contains(meant), "{said}");
    }
    assert!(!refusal("name=w,xyz=1").contains("did you mean"));
    // A key of the other option.
    let said = refusal("name=w,decimation=8");
    assert!(said.contains("'decimation': is not a key"), "{said}");
}

#[test]
fn blanks_beside_commas_are_no_part_of_keys_and_values() {
    let plain = "name=n,channels=64,dst=239.1.2.3+1,centre_frequency=284e6,decimation=8";
    let blanks =
        " name = n, channels=64 ,\n  dst=239.1.2.3+1, centre_frequency= 284 MHz,decimation=8 ";
    let parse = |text: &str| text.parse::<NarrowbandOptions>().expect("options");
    assert_eq!(parse(blanks), parse(plain));
}

#[test]
fn an_oversampled_output_has_a_filter_for_it() {
    let parse = |keys: &str| -> WidebandOptions {
        let text = format!("name=w,channels=64,dst=239.1.2.3+1,{keys}");
        text.parse().expect("options")
    };
    let options = parse("oversampling=64/54");
    assert_eq!(options.oversampling.to_string(), "32/27");
    assert_eq!(options.window_function, WindowFunction::Kaiser);
    assert!((0.95..0.97).contains(&options.w_cutoff));
    let given = parse("oversampling=4/3,window_function=hann,w_cutoff=0.8");
    assert_eq!(
        (given.window_function, given.w_cutoff),
        (WindowFunction::Hann, 0.8)
    );
    for value in ["27/32", "1.2", "17", "4/0"] {
        let said = refusal(&format!(
            "name=w,channels=64,dst=239.1.2.3,oversampling={value}"
        ));
        assert!(
            said.contains("--wideband oversampling") || said.contains("oversampling"),
            "{said}"
        );
        assert!(said.contains("32/27"), "{said}");
    }
}

#[test]
fn help_has_every_key() {
    let help = with_output_keys("the rest");
    for key in KEYS.iter().chain(&NARROWBAND_KEYS) {
        assert!(
            help.contains(&format!("\n  {}={}\n", key.name, key.value)),
            "{help}"
        );
    }
    assert!(help.ends_with("the rest"));
    // Those that are required are those without which an output is refused.
    let all = || KEYS.iter().chain(&NARROWBAND_KEYS);
    for key in all() {
        assert_eq!(key.help.ends_with("[required]"), key.example.is_some());
    }
    let required = all().filter(|key| key.example.is_some());
    let names: Vec<_> = required.map(|key| key.name).collect();
    assert_eq!(
        names,
        ["name", "channels", "dst", "centre_frequency", "decimation"]
    );
}

#[test]
fn all_keys_that_are_missing_are_named_at_once() {
    let said = |text: &str| text.parse::<NarrowbandOptions>().unwrap_err().to_string();
    let all = said("taps=4,dst=239.1.2.3+1");
    assert!(
        all.contains("name, channels, centre_frequency, decimation are required; add name=wideband,channels=1024,"),
        "{all}"
    );
    let one = said("name=n,channels=64,dst=239.1.2.3+1,decimation=8");
    assert!(
        one.ends_with("centre_frequency is required; add centre_frequency=284M"),
        "{one}"
    );
}

#[test]
fn names_have_nothing_that_breaks_addresses_and_logs() {
    for name in ["a b", "../x", "a\nb", "a\u{1b}[1m", "50%", "a?b", "a#b"] {
        let text = format!("name={name},channels=64,dst=239.1.2.3+1");
        let error = text.parse::<WidebandOptions>().unwrap_err().to_string();
        assert!(error.contains("--wideband name"), "{name}: {error}");
    }
    for name in [
        "wideband",
        "m800.antenna-channelised_voltage",
        "schmalband-ü",
    ] {
        let text = format!("name={name},channels=64,dst=239.1.2.3+1");
        assert_eq!(text.parse::<WidebandOptions>().unwrap().name, name);
    }
}
