//! What watches engines from outside: the dashboard and the alert rules of `packaging/grafana`, and
//! the run-book. Rules are run over metrics of real engines by `promtool`; where
//! `KAROO_TEST_PROMTOOL` is not set, a missing one is told and the test passes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use karoo::losses::Cause;
use serde_json::Value;

use crate::support::{data, left_out};

/// Metrics that only an engine with a GPU has, or on a host that tells of its processors' energy.
const GPU_METRICS: [&str; 2] = ["karoo_gpu_busy_seconds_total", "karoo_energy_joules_total"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// A rule of `alerts.yml`.
#[derive(Default)]
struct Rule {
    alert: Option<String>,
    expr: String,
    summary: String,
    runbook_url: String,
}

/// The rules, as far as they are looked at here: one key in a line, but for folded expressions.
fn rules() -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    let mut folded = false;
    for line in read("packaging/grafana/prometheus/alerts.yml").lines() {
        let line = line.trim();
        let (key, value) = line.split_once(": ").unwrap_or((line, ""));
        let value = value.trim_matches('"').to_owned();
        if let Some(kind) = key.strip_prefix("- ") {
            if matches!(kind, "alert" | "record") {
                rules.push(Rule {
                    alert: (kind == "alert").then_some(value),
                    ..Rule::default()
                });
            }
            continue;
        }
        let Some(rule) = rules.last_mut() else {
            continue;
        };
        match key {
            "expr" => {
                folded = value == ">";
                rule.expr = if folded { String::new() } else { value };
            }
            "for" | "labels" | "annotations:" => folded = false,
            "summary" => rule.summary = value,
            "runbook_url" => rule.runbook_url = value,
            _ if folded => rule.expr += &format!(" {line}"),
            _ => {}
        }
    }
    rules
}

/// Every expression of the dashboard, with what Grafana puts in place of its variables.
fn dashboard() -> Vec<String> {
    fn collect(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    match value {
                        Value::String(text) if key == "expr" || key == "query" => {
                            found.push(text.clone());
                        }
                        value => collect(value, found),
                    }
                }
            }
            Value::Array(values) => values.iter().for_each(|value| collect(value, found)),
            _ => {}
        }
    }
    let text = read("packaging/grafana/dashboards/karoo.json");
    let mut found = Vec::new();
    collect(&serde_json::from_str(&text).unwrap(), &mut found);
    // That of the list of data sources.
    found.retain(|expr| expr != "prometheus");
    let filled = found.iter().map(|expr| {
        expr.replace("$instance", "m000h:9100")
            .replace("$__rate_interval", "10s")
    });
    filled.collect()
}

fn names(expr: &str) -> impl Iterator<Item = &str> {
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':');
    let words = expr.split(word);
    words.filter(|word| word.starts_with("karoo_") || word.starts_with("fgpu_"))
}

/// Metrics that engines have, by their own list.
fn listed() -> BTreeSet<String> {
    let text = fs::read_to_string(data("face/metrics.txt")).unwrap();
    let name = |line: &str| line.split(['{', ' ']).next().unwrap_or_default().to_owned();
    text.lines().map(name).collect()
}

/// Titles of the run-book's sections as anchors.
fn sections() -> BTreeSet<String> {
    let text = read("docs/runbook.md");
    let titles = text.lines().filter_map(|line| line.strip_prefix("### "));
    titles.map(str::to_owned).collect()
}

/// Causes that an expression selects, such as by `cause=~"rx-missed|rx-errors"`.
fn causes(expr: &str) -> Vec<String> {
    let selectors = expr.split("cause=").skip(1);
    let selectors = selectors.filter_map(|rest| rest.split('"').nth(1));
    let names = selectors.flat_map(|alternatives| alternatives.split('|'));
    names.map(str::to_owned).collect()
}

#[test]
fn dashboard_and_rules_name_metrics_that_engines_have() {
    let listed = listed();
    let rules = rules();
    let dashboard = dashboard();
    assert!(rules.len() > 10 && dashboard.len() > 40);
    let exprs = dashboard.iter().chain(rules.iter().map(|rule| &rule.expr));
    for expr in exprs {
        for name in names(expr) {
            assert!(
                listed.contains(name) || GPU_METRICS.contains(&name),
                "{name} of {expr} is not in tests/data/face/metrics.txt"
            );
        }
    }
}

#[test]
fn every_cause_has_a_section_and_one_alert() {
    let sections = sections();
    let names: BTreeSet<_> = Cause::all().map(Cause::name).collect();
    let mut alerts: BTreeMap<String, usize> = BTreeMap::new();
    for rule in rules().iter().filter(|rule| rule.alert.is_some()) {
        let (expr, explained) = rule.expr.split_once(" unless ").unwrap_or((&rule.expr, ""));
        for cause in causes(explained) {
            assert!(names.contains(&*cause), "{cause} of {}", rule.expr);
        }
        for cause in causes(expr) {
            *alerts.entry(cause).or_default() += 1;
        }
    }
    for name in &names {
        assert!(sections.contains(*name), "docs/runbook.md: ### {name}");
        assert_eq!(alerts.get(*name), Some(&1), "{name} in alerts.yml");
    }
    let unknown: Vec<_> = alerts
        .keys()
        .filter(|name| !names.contains(&***name))
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn every_alert_says_what_is_wrong_and_has_a_section() {
    let sections = sections();
    for rule in rules() {
        let Some(alert) = rule.alert else {
            continue;
        };
        assert!(rule.summary.contains("$labels.instance"), "{alert}");
        let Some((page, anchor)) = rule.runbook_url.split_once('#') else {
            panic!("{alert}: {}", rule.runbook_url);
        };
        assert_eq!(page, "/usr/share/doc/karoo/docs/runbook.md", "{alert}");
        let anchors = match anchor {
            "{{ $labels.cause }}" => causes(&rule.expr),
            anchor => vec![anchor.to_owned()],
        };
        assert!(!anchors.is_empty(), "{alert}");
        for anchor in anchors {
            assert!(sections.contains(&anchor), "{alert}: {anchor}");
        }
        let row = format!("| `{alert}` |");
        assert!(read("docs/monitoring.md").contains(&row), "{alert}");
    }
}

/// What promtool printed, and whether it was satisfied; `None` without it.
fn promtool(args: &[&str], folder: &Path) -> Option<(bool, String)> {
    let output = Command::new("promtool")
        .args(args)
        .current_dir(folder)
        .output();
    let wanted = std::env::var_os("KAROO_TEST_PROMTOOL").is_some();
    match output {
        Err(error) if !wanted => {
            left_out(&format!("no promtool: {error}"));
            None
        }
        output => {
            let output = output.unwrap();
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&text).into_owned();
            Some((output.status.success(), text))
        }
    }
}

#[test]
fn prometheus_takes_its_files_and_the_dashboards_expressions() {
    let folder = root().join("packaging/grafana/prometheus");
    let Some((taken, text)) = promtool(&["check", "config", "prometheus.yml"], &folder) else {
        return;
    };
    assert!(taken, "{text}");
    let exprs = dashboard();
    let exprs = exprs
        .iter()
        .filter(|expr| !expr.starts_with("label_values("));
    let record =
        |(n, expr)| format!("      - record: panel:{n}\n        expr: |\n          {expr}\n");
    let records: String = exprs.enumerate().map(record).collect();
    let rules = tempfile::tempdir().unwrap();
    let text = format!("groups:\n  - name: dashboard\n    rules:\n{records}");
    fs::write(rules.path().join("dashboard.yml"), text).unwrap();
    let (taken, text) = promtool(&["check", "rules", "dashboard.yml"], rules.path()).unwrap();
    assert!(taken, "{text}");
}

/// A link that is down loses nothing that is counted, and is the top cause all the same.
#[test]
fn the_dashboards_top_cause_is_the_one_of_the_live_page() {
    let exprs = dashboard();
    let mut top = exprs
        .iter()
        .filter(|expr| expr.contains("topk") || expr.contains("bottomk"));
    let expr = top.next().unwrap();
    assert_eq!(top.next(), None);
    let series = |metric: &str, cause: &str, values: &str| {
        let labels = format!(r#"cause="{cause}",instance="m000h:9100",job="karoo""#);
        format!("      - series: '{metric}{{{labels}}}'\n        values: '{values}'\n")
    };
    let causes = [
        ("duplicate", ["0x60", "0x60", "0x60"]),
        ("link-down", ["1x60", "1x60", "0x60"]),
        ("missing-heaps", ["1x60", "2x60", "0+10x60"]),
    ];
    let metrics = ["karoo_loss_active", "karoo_loss_rank", "karoo_losses_total"];
    let input: String = causes
        .iter()
        .flat_map(|(cause, values)| {
            let metrics = metrics.iter().zip(values);
            metrics.map(|(metric, values)| series(metric, cause, values))
        })
        .collect();
    let expected = r#"{labels: '{instance="m000h:9100",cause="link-down"}', value: 1}"#;
    let text = format!(
        "evaluation_interval: 1s\ntests:\n  - interval: 1s\n    input_series:\n{input}    promql_expr_test:\n      \
         - expr: '{expr}'\n        eval_time: 60s\n        exp_samples:\n          - {expected}\n"
    );
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("top.yml"), text).unwrap();
    let Some((passed, text)) = promtool(&["test", "rules", "top.yml"], folder.path()) else {
        return;
    };
    assert!(passed, "{text}");
}

/// Each recorded fault fires its alert and no other, and a run without a fault none.
#[test]
fn alerts_fire_for_their_faults_alone() {
    let folder = data("alerts");
    let files = fs::read_dir(&folder).unwrap();
    let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut files: Vec<_> = files.filter(|file| file.ends_with(".yml")).collect();
    files.sort();
    assert!(files.len() > 5, "{files:?}");
    let args: Vec<_> = ["test", "rules"]
        .into_iter()
        .chain(files.iter().map(|f| &**f))
        .collect();
    let Some((passed, text)) = promtool(&args, &folder) else {
        return;
    };
    assert!(passed, "{text}");
}
