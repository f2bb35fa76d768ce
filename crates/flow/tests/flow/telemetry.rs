//! What a run tells, in the formats that others read.

use std::io::Write as _;
use std::process::{Command, Stdio};

use karoo_flow::run::{Limit, QueueTelemetry, Telemetry};
use karoo_flow::{Builder, Executor, Settings, Type};

use crate::executor::samples;

/// A run of three partitions, one of them with a copy, whose name has a comma.
fn telemetry() -> Telemetry {
    let g = Builder::new("told");
    let x = g.input("x", Type::F32);
    let a = g.scope("a", || {
        g.partition(0);
        x.fir([0.5; 31])
    });
    let b = g.scope("b", || {
        g.partition(1);
        a * a
    });
    g.output("y", b);
    let graph = g.build().unwrap();
    let settings = Settings {
        copies: [(1, vec![None])].into(),
        block: 64,
        step: 16,
        ..Settings::default()
    };
    let executor = Executor::new(&graph, settings).unwrap();
    let input: Vec<u8> = samples(20_000, 1)
        .iter()
        .flat_map(|value| (value.to_f64s()[0] as f32).to_le_bytes())
        .collect();
    let reader = Box::new(std::io::Cursor::new(input));
    let run = executor.prepare(vec![reader], vec![Box::new(std::io::sink())]);
    run.unwrap().run().unwrap().telemetry
}

#[test]
fn what_was_not_measured_is_not_told_as_nothing() {
    let nothing = Telemetry {
        queues: vec![QueueTelemetry::default()],
        ..Telemetry::default()
    };
    let text = nothing.to_string();
    assert!(text.contains("latency not measured"), "{text}");
    assert!(!text.contains("blocks in it"), "{text}");
    let text = telemetry().to_string();
    assert!(!text.contains("not measured"), "{text}");
    assert!(text.contains("blocks in it"), "{text}");
}

/// The fields of a line as RFC 4180 has them.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut quoted) = (vec![String::new()], false);
    for letter in line.chars() {
        match letter {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            letter => fields.last_mut().unwrap().push(letter),
        }
    }
    fields
}

#[test]
fn a_table_has_a_line_for_each_partition_under_its_titles() {
    let telemetry = telemetry();
    let titles = fields(Telemetry::CSV);
    let text = telemetry.to_csv();
    let lines: Vec<Vec<String>> = text.lines().map(fields).collect();
    assert_eq!(lines.len(), telemetry.partitions.len());
    let column = |title: &str| titles.iter().position(|own| own == title).unwrap();
    for (line, part) in lines.iter().zip(&telemetry.partitions) {
        assert_eq!(line.len(), titles.len(), "{line:?}");
        assert_eq!(line[column("partition")], part.name);
        for (title, wanted) in [
            ("elapsed_ns", telemetry.elapsed),
            ("ticks", part.ticks),
            ("busy_ns", part.busy),
            ("waiting_to_read_ns", part.waiting_to_read),
            ("waiting_to_write_ns", part.waiting_to_write),
            ("step_p99_ns", part.steps.p99),
            ("latency_most_ns", telemetry.latency.most),
        ] {
            assert_eq!(line[column(title)], wanted.to_string(), "{title}");
        }
    }
}

#[test]
fn prometheus_takes_the_metrics() {
    let telemetry = telemetry();
    let text = telemetry.to_prometheus();
    for part in &telemetry.partitions {
        let line = format!(
            "flow_ticks_total{{partition=\"{}\"}} {}\n",
            part.name, part.ticks
        );
        assert!(text.contains(&line), "{line} in {text}");
    }
    let step = &telemetry.partitions[2];
    let line = format!(
        "flow_step_phase_seconds{{partition=\"partition 0\",phase=\"computing\"}} {}\n",
        step.computing as f64 * 1e-9
    );
    assert!(text.contains(&line), "{line} in {text}");
    assert!(
        text.contains(
            "flow_queue_seconds_total{from=\"inputs\",to=\"partition 0\",end=\"writer\"}"
        )
    );
    assert!(text.contains("flow_latency_seconds{quantile"), "{text}");
    let nothing = Telemetry::default().to_prometheus();
    assert!(!nothing.contains("flow_latency_seconds{"), "{nothing}");
    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut promtool) = promtool else {
        println!("no promtool");
        return;
    };
    let mut stdin = promtool.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    drop(stdin);
    let output = promtool.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?} of {text}");
}

#[test]
fn a_picture_has_all_partitions_and_queues_and_marks_the_limit() {
    let telemetry = telemetry();
    let text = telemetry.to_dot();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.first(), Some(&"digraph flow {"));
    assert_eq!(lines.last(), Some(&"}"));
    let arrows = lines.iter().filter(|line| line.contains(" -> ")).count();
    assert_eq!(arrows, telemetry.queues.len());
    let red: Vec<&&str> = lines
        .iter()
        .filter(|line| line.contains("color=red"))
        .collect();
    let limit = telemetry.limit().and_then(Limit::partition);
    assert_eq!(red.len(), usize::from(limit.is_some()));
    if let Some(limit) = limit {
        let name = &telemetry.partitions[limit].name;
        assert!(red[0].starts_with(&format!("  \"{name}\" [")), "{text}");
    }
    for part in &telemetry.partitions {
        assert!(text.contains(&format!("  \"{}\" [label=", part.name)));
    }
}
