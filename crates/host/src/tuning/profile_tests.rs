use super::*;

#[test]
fn profiles_that_come_with_karoo_can_be_read_and_give_reasons() {
    for name in Profile::names() {
        let profile = Profile::load(name).unwrap();
        assert!(!profile.entries.is_empty());
        for entry in &profile.entries {
            assert!(
                entry.why.len() > 10 && entry.what.len() > 10,
                "{}",
                entry.id
            );
        }
    }
}

#[test]
fn what_is_not_understood_is_refused() {
    let parse = |entry: &str| {
        let text =
            format!("purpose = 'a test'\n[[entry]]\nid = 'x'\nwhat = 'w'\nwhy = 'y'\n{entry}");
        Profile::parse("test", &text, 0)
            .map(|_| ())
            .map_err(|error| error.to_string())
    };
    assert_eq!(
        parse("kind = 'sysctl'\nname = 'kernel.x'\nwant = '>=3'"),
        Ok(())
    );
    for (wrong, word) in [
        ("kind = 'magic'", "magic"),
        (
            "kind = 'sysctl'\nname = 'kernel.x'\nwant = '1'\nforce = true",
            "force",
        ),
        (
            "kind = 'sysctl'\nname = '../../etc/passwd'\nwant = '1'",
            "kernel parameter",
        ),
        ("kind = 'file'\npath = '/etc/passwd'\nwant = '1'", "/sys/"),
        (
            "kind = 'file'\npath = '/sys/../etc/passwd'\nwant = '1'",
            "/sys/",
        ),
        ("kind = 'sysctl'\nname = 'kernel.x'\nwant = '>=many'", ">="),
        ("kind = 'kernel-argument'\nname = 'a b'", "letters"),
        (
            "kind = 'ethtool'\ngroup = 'pause'\nname = 'speed'\nwant = '1'",
            "autoneg",
        ),
    ] {
        let error = parse(wrong).unwrap_err();
        assert!(error.contains(word) && error.contains("'x'"), "{error}");
    }
}

#[test]
fn values_of_another_form_are_neither_right_nor_wrong() {
    let want = |text: &str| text.parse::<Want>().unwrap();
    assert_eq!(want("0").is_met("0\n"), Some(true));
    assert_eq!(want("0").is_met("1"), Some(false));
    assert_eq!(want("0").is_met("some words"), None);
    assert_eq!(want(">=9000").is_met("9216"), Some(true));
    assert_eq!(want(">=9000").is_met("1500"), Some(false));
    assert_eq!(want(">=9000").is_met("-"), None);
    assert_eq!(want("performance").is_met("ondemand"), Some(false));
}
