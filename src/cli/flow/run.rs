//! `karoo flow run`.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clap::Args;
use ground::counted;
use ground::files::read_text;
use karoo_flow::adapters::Stop;
use karoo_flow::place::{Plan, PlanError, rate_in_words};
use karoo_flow::run::{Moment, Outcome, Telemetry};
use karoo_flow::{Executor, Graph, Settings};
use schemars::JsonSchema;
use serde::Serialize;

use super::change::{self, ChangeAt};
use super::ends::{End, Ends};
use super::open::open_all;
use super::watch::{Table, Watcher};
use super::{load, plan};
use crate::cli::log::{self, LogTo};
use crate::cli::serve::{Serving, Sockets};
use crate::cli::{Failure, Files, in_utf8};
use crate::flow::RunWatch;
use crate::report::{Documented, to_json};

/// Options of a plan that is to be made, and of what it is made of: a plan that is there has them
/// in it.
const OF_NO_PLAN_THAT_IS_MADE: [&str; 15] = [
    "marked",
    "pin",
    "block",
    "longest_block",
    "capacity",
    "no_copies",
    "seed",
    "looks",
    "costs",
    "measure",
    "guess",
    "calibration",
    "cpus",
    "cores_file",
    "alike",
];

/// As it stands: ports are known once the graph is. Standard streams begin with a dash, and so does
/// an option where a value is missing in front of it.
fn no_option(text: &str) -> Result<String, String> {
    let is_standard = text == "-" || text.starts_with("-,");
    match text.starts_with('-') && !is_standard {
        true => Err(format!(
            "it looks like an option: write PORT=ADDRESS; a file of that name is ./{text}"
        )),
        false => Ok(text.to_owned()),
    }
}

/// A time that is looked at often enough to be kept.
fn period(text: &str) -> Result<f64, String> {
    let value = crate::config::units::seconds(text).map_err(|error| error.to_string())?;
    match (0.1..=86400.0).contains(&value) {
        true => Ok(value),
        false => Err("it must be 0.1 to 86400 seconds".to_owned()),
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Run")]
pub struct RunArgs {
    /// The graph: TOML, or GraphML as Laminar's exporter writes it
    #[arg(help_heading = None::<&str>, value_name = "GRAPH")]
    graph: PathBuf,
    /// Where the samples of an input come from: a path, - for standard input, tcp:HOST:PORT,
    /// tcp-listen:ADDRESS:PORT, udp:ADDRESS:PORT, shm:NAME or dpdk:INTERFACE:GROUP:PORT; PORT= may
    /// be left out if there is one, and several ports have one address as
    /// PORT,PORT=ADDRESS,planar=SAMPLES
    #[arg(short, long, value_name = "PORT=ADDRESS", allow_hyphen_values = true)]
    #[arg(value_parser = in_utf8(no_option))]
    input: Vec<String>,
    /// Where the samples of an output go, in the same way; those that are not given go nowhere
    #[arg(short, long, value_name = "PORT=ADDRESS", allow_hyphen_values = true)]
    #[arg(value_parser = in_utf8(no_option))]
    output: Vec<String>,
    /// A plan that karoo flow plan has made [default: the marked partitions, else one plan is made
    /// of guessed costs]
    #[arg(long, value_name = "FILE", conflicts_with_all = OF_NO_PLAN_THAT_IS_MADE)]
    plan: Option<PathBuf>,
    /// Make a plan of measured costs first
    #[arg(long, conflicts_with = "plan")]
    automatic: bool,
    #[command(flatten)]
    wishes: plan::WishOptions,
    #[command(flatten)]
    costs: load::CostOptions,
    #[command(flatten)]
    cores: load::CoreOptions,
    /// Leave it to the kernel where threads run
    #[arg(long, conflicts_with = "pin")]
    no_pin: bool,
    #[command(flatten)]
    priority: load::PriorityOptions,
    /// Tick before which the run ends, if no input ends earlier
    #[arg(long, value_name = "TICKS")]
    limit: Option<u64>,
    /// Other numbers for a constant, a gain or a filter from a tick on, such as low=[0.5, 0.5]@1000
    #[arg(long, value_name = "PATH=NUMBERS@TICK")]
    change: Vec<ChangeAt>,
    /// Port of a live page, of the telemetry as JSON and of /metrics for Prometheus
    #[arg(long, value_name = "PORT")]
    http: Option<u16>,
    /// A table of the telemetry, made anew: a line for each partition every period, and at the end
    #[arg(long, value_name = "FILE.csv")]
    telemetry: Option<PathBuf>,
    /// Time from line to line of that table: seconds, or with a unit such as 200ms or 5min
    #[arg(long, value_name = "TIME", default_value = "1", requires = "telemetry", value_parser = period)]
    telemetry_period: f64,
    /// Print what was done as JSON, to standard error if an output goes to standard output
    #[arg(long)]
    json: bool,
    /// Where log messages go
    #[arg(long, value_enum, default_value_t)]
    log: LogTo,
}

/// What a run has done.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Done<'a> {
    graph: &'a str,
    ticks: u64,
    seconds: f64,
    ticks_per_second: f64,
    expected_ticks_per_second: Option<f64>,
    telemetry: &'a Telemetry,
}

impl Documented for Done<'_> {
    const NAME: &'static str = "flow-run";
    const TITLE: &'static str = "What karoo flow run --json says of a run";
}

/// Runs the command.
pub fn run(args: &RunArgs) -> Result<(), Failure> {
    let level = log::start(args.log);
    let loaded = load::to_run(&args.graph)?;
    for note in &loaded.notes {
        tracing::info!("{note}");
    }
    let graph = &loaded.graph;
    let prepared = prepare(args, graph)?;
    let sockets = Sockets::bind("--http", args.http)?;
    let mut serving = Serving::start(sockets, level)?;
    // Seen also while ends wait for their peers.
    let run = RunWatch::default();
    serving.show(run.site(graph.name(), prepared.executor.shape()));
    let period = Duration::from_secs_f64(args.telemetry_period);
    let table = |path| Table::new((path, period), serving.told(), &run);
    let mut table = args.telemetry.as_ref().map(table).transpose()?;
    let (outcome, last) = watched((args, graph), &prepared, serving, &mut table, &run);
    // Also of a run that failed.
    let mut table_ended = Ok(());
    if let Some((mut table, last)) = table.zip(last) {
        table.add(last);
        table_ended = table.end();
    }
    let outcome = match (outcome, table_ended) {
        (Ok(outcome), ended) => ended.map(|()| outcome)?,
        (Err(failure), ended) => {
            if let Err(error) = ended {
                tracing::error!("{error}");
            }
            return Err(failure);
        }
    };
    report(args, graph, &prepared, &outcome)
}

/// A graph that can run.
struct Prepared {
    inputs: Ends,
    outputs: Ends,
    executor: Executor,
    /// Ticks a second that are expected if costs were measured.
    expected: Option<f64>,
}

/// Reads what the options say of the graph, and refuses what cannot be.
fn prepare(args: &RunArgs, graph: &Graph) -> Result<Prepared, Failure> {
    let inputs = Ends::new(graph, "--input", &args.input, graph.inputs().collect())?;
    let outputs = Ends::new(graph, "--output", &args.output, graph.outputs().collect())?;
    if let Some(id) = inputs.without() {
        let path = graph.path(id);
        return Err(Failure::usage(format!(
            "--input {path}=…: the input {path} has no address; each input needs one"
        )));
    }
    inputs.one_standard(End::is_stdin)?;
    outputs.one_standard(End::is_stdout)?;
    outputs.no_idle()?;
    files(args, &inputs, &outputs).check()?;
    change::check(graph, &args.change)?;
    if inputs.is_empty() && args.limit.is_none() {
        tracing::info!("the graph has no inputs that could end: it runs until it is told to end");
    }
    let (mut settings, expected) = settings(args, graph)?;
    settings.changeable = args
        .change
        .iter()
        .map(|change| change.path.clone())
        .collect();
    let executor = load::executor(graph, settings, args.plan.is_some())
        .map_err(|found| Failure::data(found.to_string()))?;
    change::check_numbers(&executor, &args.change)?;
    Ok(Prepared {
        inputs,
        outputs,
        executor,
        expected,
    })
}

/// Runs to the end while a thread watches; says what came of it, and the end of a run that had
/// begun.
fn watched(
    (args, graph): (&RunArgs, &Graph),
    prepared: &Prepared,
    serving: Serving,
    table: &mut Option<Table<'_>>,
    run: &RunWatch,
) -> (Result<Outcome, Failure>, Option<Moment>) {
    // Whoever connects later waits for this; signals end it.
    let (stop, done) = (Stop::new(), AtomicBool::new(false));
    let (outcome, watched) = thread::scope(|scope| {
        let watcher = Watcher {
            serving,
            table: table.as_mut(),
            stop: &stop,
            run,
        };
        let watcher = scope.spawn(|| watcher.watch(&done));
        let outcome = go((args, graph), prepared, &stop, run);
        done.store(true, Ordering::Release);
        (outcome, watcher.join())
    });
    let mut last = None;
    if let Ok((serving, moment)) = watched {
        serving.stop();
        last = moment;
    }
    (outcome, last)
}

/// Prints what a run has done, to standard error if an output goes to standard output.
fn report(
    args: &RunArgs,
    graph: &Graph,
    prepared: &Prepared,
    outcome: &Outcome,
) -> Result<(), Failure> {
    let seconds = outcome.telemetry.elapsed as f64 * 1e-9;
    let done = Done {
        graph: graph.name(),
        ticks: outcome.ticks,
        seconds,
        ticks_per_second: outcome.ticks as f64 / seconds.max(1e-9),
        expected_ticks_per_second: prepared.expected,
        telemetry: &outcome.telemetry,
    };
    let text = match args.json {
        true => to_json(&done).map_err(Failure::data)?,
        false => words(&done),
    };
    if prepared.outputs.iter().any(|given| given.end.is_stdout()) {
        eprintln!("{text}");
    } else {
        println!("{text}");
    }
    Ok(())
}

/// Opens the outside and runs to the end; `watch` sees it.
fn go(
    (args, graph): (&RunArgs, &Graph),
    prepared: &Prepared,
    stop: &Stop,
    watch: &RunWatch,
) -> Result<Outcome, Failure> {
    let opened = open_all(graph, &prepared.inputs, &prepared.outputs, (stop, watch))?;
    let run = prepared
        .executor
        .prepare(opened.readers, opened.writers)
        .map_err(Failure::data)?;
    let handle = run.handle();
    change::put(&handle, &args.change)?;
    watch.begin(handle);
    tracing::info!(graph = graph.name(), "running");
    let outcome = run.run().map_err(Failure::data);
    drop(opened.kept);
    if let Ok(outcome) = &outcome {
        change::tell_unreached(&args.change, outcome.ticks);
    }
    outcome
}

/// The files of all options.
fn files(args: &RunArgs, inputs: &Ends, outputs: &Ends) -> Files {
    let mut files = Files::default().reads("GRAPH", Some(&args.graph));
    for given in inputs.iter() {
        files = files.reads(&format!("--input {}=", given.name), given.end.file());
    }
    for given in outputs.iter() {
        files = files.writes(&format!("--output {}=", given.name), given.end.file());
    }
    let files = files
        .reads("--plan", args.plan.as_deref())
        .writes("--telemetry", args.telemetry.as_deref());
    args.costs.files(args.cores.files(files))
}

/// Refuses options that nothing would follow: those of plans where none is made, those of costs
/// where none are measured.
fn all_followed(args: &RunArgs, marked: bool) -> Result<(), Failure> {
    if args.plan.is_some() || args.automatic {
        return Ok(());
    }
    let (wishes, cores, costs) = (&args.wishes, &args.cores, &args.costs);
    let of_costs = || costs.of_measured().or(cores.of_measured());
    let of_plans = || {
        wishes
            .of_plans()
            .or(cores.of_plans())
            .or(costs.of_guessed())
    };
    let (option, why) = match marked {
        true => (
            of_plans().or_else(of_costs),
            "the graph runs in the partitions that it is marked for, without a plan",
        ),
        false => (of_costs(), "the plan is made of guessed costs"),
    };
    option.map_or(Ok(()), |option| {
        let out = "add --automatic, or leave the option out";
        Err(Failure::usage(format!("{option}: {why}; {out}")))
    })
}

/// How the graph is to run, and the ticks a second that are expected if costs were measured.
fn settings(args: &RunArgs, graph: &Graph) -> Result<(Settings, Option<f64>), Failure> {
    let marked = graph.ids().any(|id| graph.partition(id).is_some());
    all_followed(args, marked)?;
    let of_plan = |error: PlanError| match &args.plan {
        Some(path) => Failure::usage(format!("--plan {}: {error}", path.display())),
        None => Failure::usage(error),
    };
    let made = if let Some(path) = &args.plan {
        let text = read_text(path).map_err(|error| of_plan(PlanError::Other(error.to_string())))?;
        Some(Plan::from_json(&text).map_err(of_plan)?)
    } else if args.automatic {
        let cores = args.cores.cores()?;
        let (costs, options) = (&args.costs, &args.cores);
        Some(args.wishes.measured(graph, costs, options, cores)?)
    } else if marked {
        None
    } else {
        let cores = args.cores.cores()?;
        tracing::info!("making a plan of guessed costs");
        Some(args.wishes.guessed(graph, &cores)?)
    };
    let mut settings = match &made {
        Some(plan) => plan.settings(graph).map_err(of_plan)?,
        None => Settings {
            block: args.wishes.block(graph),
            capacity: args.wishes.capacity(),
            ..Settings::default()
        },
    };
    if args.no_pin {
        settings.cpus.clear();
        settings
            .copies
            .values_mut()
            .for_each(|cpus| cpus.fill(None));
    }
    args.priority.give(&mut settings)?;
    settings.limit = args.limit;
    let expected = made.filter(|plan| plan.measured).map(|plan| plan.rate());
    Ok((settings, expected))
}

fn words(done: &Done) -> String {
    let expected = done
        .expected_ticks_per_second
        .map_or(String::new(), |rate| {
            format!(", {} were expected", rate_in_words(rate))
        });
    let limit = done.telemetry.limit_in_words();
    let limit = limit.map_or(String::new(), |limit| format!("limit   {limit}\n"));
    format!(
        "{}: {} in {:.3} s, {} a second{expected}\n{limit}{}",
        done.graph,
        counted(done.ticks, "tick"),
        done.seconds,
        rate_in_words(done.ticks_per_second),
        done.telemetry.to_string().trim_end()
    )
}
