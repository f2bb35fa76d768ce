//! What a run tells, in the formats that others read.

use std::io::Write as _;
use std::process::{Command, Stdio};

use karoo_flow::run::{Limit, Moment, QueueTelemetry, Telemetry};
use karoo_flow::{Builder, Executor, Settings, Type};

use crate::executor::samples;

/// A run of three partitions, one of them with a copy, whose name has a comma.
fn telemetry() -> Telemetry {
    moment().telemetry
}

/// The end of the same run.
fn moment() -> Moment {
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
    let run = run.unwrap();
    let handle = run.handle();
    run.run().unwrap();
    handle.moment()
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

/// The lines of a table, and a field of a line by its title.
fn lines(text: &str) -> Vec<Vec<String>> {
    text.lines().map(fields).collect()
}

fn column(line: &[String], title: &str) -> String {
    let at = fields(Moment::CSV).iter().position(|own| own == title);
    line[at.unwrap()].clone()
}

#[test]
fn a_table_has_a_line_for_each_partition_under_its_titles() {
    let moment = moment();
    let telemetry = &moment.telemetry;
    let text = moment.to_csv(&Moment::default());
    let lines = lines(&text);
    assert_eq!(lines.len(), telemetry.partitions.len());
    for (line, part) in lines.iter().zip(&telemetry.partitions) {
        assert_eq!(line.len(), fields(Moment::CSV).len(), "{line:?}");
        assert_eq!(column(line, "partition"), part.name);
        for (title, wanted) in [
            ("elapsed_ns", telemetry.elapsed),
            ("ticks", part.ticks),
            ("busy_ns", part.busy),
            ("waiting_to_read_ns", part.waiting_to_read),
            ("waiting_to_write_ns", part.waiting_to_write),
            ("interval_ns", telemetry.elapsed),
            ("interval_latency_most_ns", telemetry.latency.most),
        ] {
            assert_eq!(column(line, title), wanted.to_string(), "{title}");
        }
        for (title, time) in [
            ("interval_busy_percent", part.busy),
            ("interval_waiting_to_read_percent", part.waiting_to_read),
            ("interval_waiting_to_write_percent", part.waiting_to_write),
        ] {
            let percent: f64 = column(line, title).parse().unwrap();
            let wanted = (100.0 * time as f64 / telemetry.elapsed as f64).min(100.0);
            assert!((percent - wanted).abs() <= 0.0051, "{title} in {line:?}");
        }
        let rate: f64 = column(line, "interval_ticks_per_second").parse().unwrap();
        let wanted = part.ticks as f64 * 1e9 / telemetry.elapsed as f64;
        assert!((rate - wanted).abs() <= 0.051, "{rate} for {wanted}");
        // Inputs and outputs have no steps.
        let step = column(line, "interval_step_p99_ns");
        match part.steps.count {
            0 => assert_eq!(step, "", "{line:?}"),
            _ => assert_eq!(step, part.steps.p99.to_string()),
        }
    }
}

#[test]
fn a_line_of_a_table_has_what_was_done_since_the_one_before() {
    let end = moment();
    for line in lines(&end.to_csv(&end)) {
        assert_eq!(
            column(&line, "elapsed_ns"),
            end.telemetry.elapsed.to_string()
        );
        assert_eq!(column(&line, "interval_ns"), "0");
        assert_eq!(column(&line, "interval_ticks_per_second"), "0.0");
        for title in ["interval_step_most_ns", "interval_latency_most_ns"] {
            assert_eq!(column(&line, title), "", "{line:?}");
        }
        for title in [
            "interval_busy_percent",
            "interval_waiting_to_read_percent",
            "interval_waiting_to_write_percent",
        ] {
            assert_eq!(column(&line, title), "0.00", "{line:?}");
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
