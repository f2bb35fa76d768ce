//! Values that are allowed, and that are most often typing errors.

use super::{EngineConfig, OutputConfig};

/// Hertz, below what any digitiser of a telescope samples at.
const LEAST_RATE: f64 = 1e6;
/// Share of a band below which a frequency in it was hardly meant.
const LEAST_SHARE: f64 = 1e-3;
/// UNIX time of the year 2000.
const YEAR_2000: f64 = 946_684_800.0;
/// Seconds by which clocks may differ.
const A_DAY: f64 = 86_400.0;

/// What is odd about a rate, if anything.
pub fn doubt_about_rate(rate: f64) -> Option<String> {
    let meant = match rate {
        // Of these, megahertz would be more than any digitiser has.
        rate if rate >= 1e5 => format!("if kilohertz were meant, give {rate}k"),
        rate => format!("if megahertz were meant, give {rate}M"),
    };
    (rate < LEAST_RATE).then(|| {
        format!("--adc-sample-rate {rate}: that is in hertz, and little for a digitiser; {meant}")
    })
}

/// What is odd about a sync time at the UNIX time `now`, if anything.
pub fn doubt_about_sync_time(sync_time: f64, now: f64) -> Option<String> {
    let year = (1970.0 + sync_time / (365.2425 * A_DAY)).floor();
    let what = match sync_time {
        time if time > now + A_DAY => "to come",
        // What stands for any time.
        0.0 => return None,
        time if time < YEAR_2000 => "long gone",
        _ => return None,
    };
    let millis = sync_time * 1e-3;
    let meant = match (YEAR_2000..=now + A_DAY).contains(&millis) {
        true => format!("; if it was in milliseconds, give {millis}"),
        false => ", and timestamps count from it".to_owned(),
    };
    Some(format!(
        "--sync-time {sync_time}: the year {year} is {what}{meant}"
    ))
}

impl EngineConfig {
    /// What is odd about its values at the UNIX time `now`, if the sync time was given and not
    /// picked: each as a sentence that names the option.
    pub fn doubts(&self, now: Option<f64>) -> Vec<String> {
        let clock = self.clock;
        let mut doubts = Vec::new();
        doubts.extend(doubt_about_rate(clock.adc_sample_rate));
        doubts.extend(now.and_then(|now| doubt_about_sync_time(clock.sync_time, now)));
        if self.gain == 0.0 {
            doubts.push("--gain 0: all that is sent will be zero, but for dither".to_owned());
        }
        if self.send.ttl == 0 {
            doubts.push(
                "--send-ttl 0: packets with it leave no host; give 1 for one network, and more for \
                 networks behind routers"
                    .to_owned(),
            );
        }
        let outputs = self.outputs.iter();
        doubts.extend(outputs.flat_map(|output| output.doubts(clock.adc_sample_rate)));
        doubts
    }
}

impl OutputConfig {
    /// Frequencies in megahertz where hertz are meant.
    fn doubts(&self, adc_sample_rate: f64) -> Vec<String> {
        // 224.0.0.0/24 (RFC 5771).
        let local = self
            .dst
            .iter()
            .find(|dst| dst.ip().octets()[..3] == [224, 0, 0]);
        let local = local.map(|dst| {
            format!(
                "{} dst of '{}' {dst}: groups up to 224.0.0.255 are for protocols of the network: no router passes \
                 them on, and switches flood them; choose others, such as 239.10.10.0",
                self.option(),
                self.name
            )
        });
        let Some(narrowband) = &self.narrowband else {
            return local.into_iter().collect();
        };
        let digitised = adc_sample_rate / 2.0;
        let width = digitised / self.decimation() as f64;
        let tiny = |key: &str, value: f64, band: f64| {
            (value != 0.0 && value.abs() < LEAST_SHARE * band).then(|| {
                format!(
                    "--narrowband {key} of '{}' is {value} Hz, of a band of {:.3} MHz; if megahertz were meant, give \
                     {key}={value}M",
                    self.name,
                    band / 1e6
                )
            })
        };
        let digitised_band = 0.0..=digitised;
        let outside = !digitised_band.contains(&narrowband.centre_frequency);
        let outside = outside.then(|| {
            format!(
                "--narrowband centre_frequency of '{}' is {} Hz, outside of the digitised band from 0 to {:.3} MHz: what lies \
                 there is its image",
                self.name,
                narrowband.centre_frequency,
                digitised / 1e6
            )
        });
        let centre = tiny("centre_frequency", narrowband.centre_frequency, digitised);
        let pass = narrowband.pass_bandwidth;
        let pass = pass.and_then(|pass| tiny("pass_bandwidth", pass, width));
        let frequencies = centre.into_iter().chain(pass).chain(outside);
        local.into_iter().chain(frequencies).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::engine;
    use super::super::{Narrowband, NarrowbandSpec};
    use super::*;

    const NOW: f64 = 1_780_000_000.0;

    fn doubts(change: impl FnOnce(&mut EngineConfig)) -> Vec<String> {
        engine(
            "name=w,channels=64,dst=239.10.1.0,jones_per_batch=2048",
            change,
        )
        .doubts(Some(NOW))
    }

    #[test]
    fn usual_values_are_not_doubted() {
        assert_eq!(doubts(|_| ()), Vec::<String>::new());
        assert_eq!(doubts(|config| config.gain = -0.01), Vec::<String>::new());
        assert_eq!(doubt_about_sync_time(NOW + 3600.0, NOW), None);
        assert_eq!(doubt_about_sync_time(0.0, NOW), None);
        assert_eq!(doubt_about_rate(4e6), None);
    }

    #[test]
    fn typing_errors_are_named_with_what_was_meant() {
        let one = |change: &dyn Fn(&mut EngineConfig)| {
            let found = doubts(change);
            assert_eq!(found.len(), 1, "{found:?}");
            found.into_iter().next().unwrap_or_default()
        };
        let rate = one(&|config| config.clock.adc_sample_rate = 1712.0);
        assert!(rate.contains("--adc-sample-rate 1712") && rate.contains("1712M"));
        let rate = one(&|config| config.clock.adc_sample_rate = 1.712e5);
        assert!(
            rate.ends_with("kilohertz were meant, give 171200k"),
            "{rate}"
        );
        let late = one(&|config| config.clock.sync_time = 99_999_999_999.0);
        assert!(late.contains("the year 5138 is to come"), "{late}");
        let millis = one(&|config| config.clock.sync_time = 1_763_700_000_000.0);
        assert!(millis.ends_with("give 1763700000"), "{millis}");
        let early = one(&|config| config.clock.sync_time = 17_637.0);
        assert!(early.contains("the year 1970 is long gone"), "{early}");
        assert!(one(&|config| config.gain = 0.0).contains("--gain 0"));
        assert!(one(&|config| config.send.ttl = 0).contains("--send-ttl 0"));
        let local = one(&|config| config.outputs[0].dst[0].set_ip([224, 0, 0, 22].into()));
        assert!(local.contains("dst of 'w' 224.0.0.22:7148"), "{local}");
        let spec = NarrowbandSpec {
            centre_frequency: 284.0,
            decimation: 16,
            ddc_taps: None,
            weight_pass: 0.005,
            pass_bandwidth: None,
        };
        let zoom = one(&|config| {
            let narrowband = Narrowband::new(&spec, config.clock).expect("a filter");
            config.outputs[0].narrowband = Some(narrowband);
        });
        assert!(zoom.contains("centre_frequency of 'w' is 284 Hz"), "{zoom}");
        assert!(zoom.ends_with("centre_frequency=284M"), "{zoom}");
        for outside in [-284e6, 1284e6] {
            let outside = one(&|config| {
                let spec = NarrowbandSpec {
                    centre_frequency: outside,
                    ..spec
                };
                let narrowband = Narrowband::new(&spec, config.clock).expect("a filter");
                config.outputs[0].narrowband = Some(narrowband);
            });
            assert!(
                outside.contains("outside of the digitised band"),
                "{outside}"
            );
        }
    }
}
