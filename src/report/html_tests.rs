//! Tests of the run report with made-up data.
//!
//! `KAROO_TEST_REPORT_DIR` keeps the page, to be looked at.

use std::fs;
use std::path::PathBuf;

use dsp::{Dither, OutputBits, SampleBits, WindowFunction};
use ground::stats::ThreadReport;
use ground::{SampleClock, Timestamp};

use super::data::*;
use super::html::*;
use super::levels::{OutputLevels, PolLevels};
use super::spectra::SpectraAccumulator;
use super::verdict::{Grade, Verdict, explain};
use crate::config::{Decision, EngineConfig, OutputConfig, RecvConfig, SendConfig};
use crate::engine::OutputCounts;
use crate::recv::PolReport;

const CHANNELS: usize = 1024;
const SPECTRA: usize = 64;

fn report() -> RunReport {
    let output = OutputConfig {
        name: "wideband".into(),
        channels: CHANNELS,
        dst: vec!["239.10.11.0:7148".parse().expect("address"); 4],
        jones_per_batch: CHANNELS * SPECTRA,
        taps: 16,
        w_cutoff: 1.0,
        window_function: WindowFunction::Hann,
        oversampling: dsp::Oversampling::NONE,
        dither: Dither::Uniform,
        dither_seed: 1,
        sample_bits: OutputBits::Eight,
        narrowband: None,
    };
    let config = EngineConfig {
        clock: SampleClock {
            adc_sample_rate: 1712e6,
            sync_time: 1.7e9,
        },
        feng_id: 0,
        array_size: 4,
        recv: RecvConfig {
            packet_samples: 4096,
            sample_bits: SampleBits::new(10).expect("10 bits"),
            chunk_samples: 1 << 21,
            mask_timestamp: false,
        },
        send: SendConfig {
            packet_payload: 8192,
            chunk_jones: 1 << 20,
            ttl: 4,
        },
        max_delay_diff: 16384,
        gain: 1.0,
        outputs: vec![output],
        statistics_period: 0.0,
    };
    let pol = PolReport {
        heaps: 9990,
        samples: 9990 * 4096,
        bytes: 9990 * 5120,
        missing_heaps: 10,
        clipped_samples: 3,
        power_dbfs: Some(-21.25),
        presence: vec![
            (true, 4000),
            (false, 7),
            (true, 2000),
            (false, 3),
            (true, 3990),
        ],
    };
    let lcore = |name: &str, core, phases: &[(&str, f64)]| ThreadReport {
        name: name.into(),
        core: Some(core),
        phases: phases
            .iter()
            .map(|(phase, time)| ((*phase).to_owned(), *time))
            .collect(),
        longest_turn: None,
    };
    let counts = OutputCounts {
        name: "wideband".into(),
        batches: 300,
        heaps: 1200,
        bytes: 300 * 262_144,
        clipped_samples: [12, 0],
        first_timestamp: Some(1 << 40),
        last_timestamp: Some((1 << 40) + 303 * 131_072),
    };
    RunReport {
        karoo: "0.1.0".into(),
        gains: Vec::new(),
        capture: "/data/<odd> & 'name'.pcap".into(),
        capture_notes: vec!["pcapng, nanoseconds; the end of the file is missing".into()],
        config,
        chosen: vec![Decision {
            option: "--recv-packet-samples".into(),
            value: "4096".into(),
            why: "the step between timestamps of one polarisation".into(),
        }],
        backend: "cpu".into(),
        input: InputReport {
            datagrams: 20_012,
            drops: [("not-ours".to_owned(), 32), ("no-free-chunk".to_owned(), 0)].into(),
            metadata: 0,
            chunks: 40,
            first_timestamp: Some(1 << 40),
            span: Some([1 << 40, (1 << 40) + (10_000 << 12)]),
            pols: [pol.clone(), pol],
        },
        outputs: vec![OutputReport::new(counts, 304, 4)],
        input_levels: None,
        levels: Vec::new(),
        requests: Some(RequestsReport {
            behind: 1,
            applied: 2,
            failed: 1,
            stalls: StallReport {
                median: 2e-6,
                p99: 9e-6,
                max: 9e-6,
                histogram: vec![(2e-6, 1), (16e-6, 1)],
            },
            replies: ["!gain ok", "!delays ok", "!gain fail no\\_stream\\_'<x>'"]
                .into_iter()
                .zip(1..)
                .map(|(reply, line)| Reply {
                    line,
                    timestamp: 1 << 40,
                    reply: reply.into(),
                })
                .collect(),
        }),
        rate: RateReport {
            seconds: 0.61,
            samples_per_second: 6.7e7,
            input_gbps: 1.34,
            realtime: 0.039,
        },
        lcores: vec![
            lcore(
                "rx-pol0.0",
                0,
                &[
                    ("wait-in", 0.4),
                    ("work", 0.15),
                    ("wait-out", 0.01),
                    ("rest", 0.05),
                ],
            ),
            lcore(
                "cpu-0",
                1,
                &[("wait-in", 0.05), ("compute", 0.54), ("wait-out", 0.02)],
            ),
            lcore("tx", 0, &[("wait-in", 0.55), ("work", 0.06)]),
        ],
    }
}

/// Noise under a band shape, with one drifting tone and one gap.
fn spectra() -> SpectraAccumulator {
    use rand::{Rng, SeedableRng};
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(5);
    let mut spectra = SpectraAccumulator::new(CHANNELS, SPECTRA);
    for batch in (0..300u64).filter(|batch| !(120..124).contains(batch)) {
        let mut data = vec![0u8; CHANNELS * SPECTRA * 4];
        for (channel, values) in data.chunks_exact_mut(SPECTRA * 4).enumerate() {
            let edge = (channel as f64 / CHANNELS as f64 * std::f64::consts::PI).sin();
            let tone = channel.abs_diff(300 + batch as usize / 3) < 2 || channel == 777;
            let width = (2.0 + 18.0 * edge.sqrt()) as i8 + if tone { 60 } else { 0 };
            for value in values {
                *value = rng.random_range(-width..=width) as u8;
            }
        }
        spectra.add_batch(Timestamp((1 << 40) + batch * 131_072), &data);
    }
    spectra
}

#[test]
fn report_is_one_page_that_needs_nothing_else() {
    let kept = std::env::var_os("KAROO_TEST_REPORT_DIR").map(PathBuf::from);
    let folder = tempfile::tempdir().expect("folder");
    let dir = kept.unwrap_or_else(|| folder.path().join("new"));
    write_report(&dir, &report(), &[("wideband".to_owned(), spectra())]).expect("written");

    let json = fs::read(dir.join("report.json")).expect("JSON");
    let json: serde_json::Value = serde_json::from_slice(&json).expect("valid");
    assert_eq!(json["input"]["pols"][1]["missing_heaps"], 10);
    let verdict = Verdict::of(&report());
    assert_eq!(json["verdict"]["grade"], "losses");
    assert_eq!(json["verdict"]["headline"], verdict.headline);
    assert_eq!(
        json["verdict"]["reasons"],
        serde_json::json!(verdict.reasons)
    );

    let html = fs::read_to_string(dir.join("report.html")).expect("page");
    assert!(html.contains("&lt;odd&gt; &amp; &apos;name&apos;.pcap"));
    assert!(!html.contains("<odd>") && !html.contains("<script"));
    assert!(
        html.contains("3 requests, 1 failed, 1 after the last batch; the output reached 2 changes")
    );
    assert!(html.contains("line 3: <code>!gain fail no\\_stream\\_&apos;&lt;x&gt;&apos;"));
    let addresses = html
        .split("src=\"")
        .skip(1)
        .chain(html.split("href=\"").skip(1));
    for address in addresses {
        let address = address.split('"').next().expect("an address");
        let inside = address
            .strip_prefix('#')
            .is_some_and(|id| html.contains(&format!("id=\"{id}\"")));
        assert!(inside || address.starts_with("data:"), "{address}");
    }
    assert!(!html.contains("url(http") && !html.contains("@import"));
    assert_eq!(html.matches("data:image/png").count(), 2);
    assert_eq!(html.matches("<svg").count(), 4);
    for tag in ["div", "table", "figure", "section", "p", "span"] {
        let open =
            html.matches(&format!("<{tag}>")).count() + html.matches(&format!("<{tag} ")).count();
        assert_eq!(open, html.matches(&format!("</{tag}>")).count(), "<{tag}>");
    }
    let files = fs::read_dir(&dir).expect("folder").flatten();
    let left: Vec<_> = files
        .map(|file| file.file_name())
        .filter(|name| name.to_string_lossy().contains(".tmp"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Levels of the output of a report, of which so large a share is clipped.
fn levels(report: &RunReport, clipped: f64) -> OutputLevels {
    let pol = PolLevels {
        rms: 10.0,
        best_rms: 10.0,
        gain_factor: Some(1.0),
        zeros: 0.0,
        clipped,
        efficiency: 1.0,
        flags: None,
    };
    OutputLevels {
        name: report.config.outputs[0].name.clone(),
        spectra: 1,
        pols: [pol.clone(), pol],
        correlation: 0.0,
        phase: 0.0,
    }
}

#[test]
fn verdicts_follow_the_counters() {
    let lossy = report();
    let verdict = Verdict::of(&lossy);
    assert_eq!(verdict.grade, Grade::Losses);
    assert_eq!(verdict.headline, "Losses: 4 of 304 batches were not sent");
    assert!(
        verdict.reasons[0].contains("20 of 20\u{202f}000 heaps are missing"),
        "{verdict:?}"
    );
    let sent = "300 of 304 batches of wideband were sent.";
    assert!(verdict.reasons[1].starts_with(sent), "{verdict:?}");
    let lossy = page(&lossy, &[]);
    assert!(lossy.contains("<b>300 of 304</b>") && lossy.contains(">300 of 304</td>"));

    let mut good = report();
    for pol in &mut good.input.pols {
        pol.missing_heaps = 0;
    }
    good.outputs[0] = OutputReport::new(good.outputs[0].counts.clone(), 300, 4);
    let verdict = Verdict::of(&good);
    assert_eq!(verdict.grade, Grade::Refused);
    let refused = "1 of 3 requests failed, and what was sent is without them";
    assert_eq!(verdict.headline, format!("Refused: {refused}"));
    assert_eq!(verdict.reasons, [format!("{refused}.")]);
    good.requests = None;
    assert_eq!(
        Verdict::of(&good).grade,
        Grade::Good,
        "datagrams for others are no loss"
    );
    let mut clipped = good.clone();
    clipped.levels = vec![levels(&good, 0.02)];
    let verdict = Verdict::of(&clipped);
    assert_eq!(verdict.grade, Grade::Clipped);
    assert!(
        verdict.reasons[0].starts_with("2.0 % of the values of wideband were clipped"),
        "{verdict:?}"
    );
    // Noise of the best level of 4 bits has as much.
    clipped.config.outputs[0].sample_bits = OutputBits::Four;
    assert_eq!(Verdict::of(&clipped).grade, Grade::Good);

    good.input.drops.insert("no-free-chunk".into(), 1);
    let verdict = Verdict::of(&good);
    assert_eq!(verdict.grade, Grade::Losses);
    let dropped = "Losses: 1 datagram was dropped: no-free-chunk";
    assert_eq!(verdict.headline, dropped);

    let mut nothing = report();
    nothing.outputs[0].counts.batches = 0;
    nothing.input.pols[1].heaps = 0;
    nothing.outputs[0].expected_batches = 7;
    let verdict = Verdict::of(&nothing);
    assert_eq!(verdict.grade, Grade::Nothing);
    assert!(
        verdict.reasons[0].starts_with("Polarisation 1 has no heaps"),
        "{verdict:?}"
    );
    assert_eq!(verdict.reasons[1], "None of 7 batches was sent.");
    assert!(
        verdict.reasons[2].contains("not-ours, 32 datagrams"),
        "{verdict:?}"
    );
    let mut short = nothing.clone();
    short.outputs[0].expected_batches = 0;
    let verdict = Verdict::of(&short);
    assert!(verdict.reasons[1].contains("too short"), "{verdict:?}");
    let page = page(
        &nothing,
        &[("wideband".into(), SpectraAccumulator::new(8, 2))],
    );
    assert!(page.contains("Nothing came out") && page.contains("nothing to draw"));
}

/// Zeros are whole and in time, and nobody can use them.
#[test]
fn an_output_that_quantisation_left_little_of_is_not_good() {
    let mut report = report();
    for pol in &mut report.input.pols {
        pol.missing_heaps = 0;
    }
    report.outputs[0] = OutputReport::new(report.outputs[0].counts.clone(), 300, 4);
    report.requests = None;
    let judged = |pols: [(Option<f64>, f64); 2]| {
        let mut levels = levels(&report, 0.0);
        for (pol, (factor, efficiency)) in levels.pols.iter_mut().zip(pols) {
            (pol.gain_factor, pol.efficiency) = (factor, efficiency);
            pol.zeros = 0.856;
        }
        let mut report = report.clone();
        report.levels = vec![levels];
        Verdict::of(&report)
    };
    let verdict = judged([(Some(17.67), 0.23), (Some(2.5), 0.95)]);
    assert_eq!(verdict.grade, Grade::Weak);
    let worst = "86 % of the values of wideband, polarisation 0, are zero: its gains should be 18 \
                 times what they are (--gain auto)";
    assert_eq!(verdict.headline, format!("Too weak: {worst}"));
    assert_eq!(verdict.reasons, [format!("{worst}.")]);
    // The worst comes first.
    let verdict = judged([(Some(9.44), 0.85), (None, 0.0)]);
    let dead = "Too weak: wideband, polarisation 1, has no power";
    assert!(verdict.headline.starts_with(dead), "{verdict:?}");
    assert!(verdict.reasons[1].contains("9.4 times"), "{verdict:?}");
    // Channels without noise between tones, which have all power; noise with channels at the
    // band's edges that hardly have any.
    for factor in [0.2, 1.2] {
        let verdict = judged([(Some(factor), 0.1), (Some(1.0), 0.999)]);
        assert_eq!(verdict.grade, Grade::Good);
    }
}

/// Every sender of data has descriptors: they are no fault.
#[test]
fn descriptors_are_not_called_heaps_of_a_wrong_length() {
    let mut report = report();
    let wrong = crate::recv::DropCause::WrongHeapLength.name();
    report.input.drops = [(wrong.to_owned(), 3), ("duplicate".to_owned(), 2)].into();
    report.input.metadata = 3;
    let all = [("duplicate", 2), (METADATA, 3)];
    assert_eq!(report.input.not_placed(), all);
    let shown = page(&report, &[]);
    assert!(shown.contains(METADATA) && !shown.contains(wrong));
    report.input.metadata = 1;
    let all = [("duplicate", 2), (wrong, 2), (METADATA, 1)];
    assert_eq!(report.input.not_placed(), all);
}

/// A cause that the receiver knows must be explained here.
#[test]
fn every_drop_cause_is_explained() {
    for cause in crate::recv::DropCause::ALL {
        assert!(!explain(cause.name()).is_empty(), "{}", cause.name());
    }
}

/// As where the disk has room for the document alone.
#[test]
fn a_report_is_not_of_two_runs() {
    let folder = tempfile::tempdir().expect("folder");
    let at = |name: &str| folder.path().join(name);
    for name in REPORT_FILES {
        fs::write(at(name), "old").expect("written");
    }
    fs::create_dir(at("report.html.part")).expect("in the way");
    let error = write_report(folder.path(), &report(), &[]).expect_err("half of it");
    assert!(error.to_string().contains("report.html"), "{error}");
    for name in REPORT_FILES {
        assert_eq!(fs::read_to_string(at(name)).expect("there"), "old");
    }
    assert!(!at("report.json.part").exists());
}

#[test]
fn unwritable_folder_is_named() {
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("file");
    fs::write(&file, "").expect("written");
    let error = write_report(&file.join("sub"), &report(), &[]).expect_err("a file is in the way");
    assert!(error.to_string().contains("file/sub"), "{error}");
}
