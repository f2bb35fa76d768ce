//! `karoo flow run`.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use ground::counted;
use ground::files::read_text;
use karoo_flow::adapters::{Address, Stop};
use karoo_flow::place::{Plan, PlanError, rate_in_words};
use karoo_flow::run::{Handle, Outcome, Telemetry};
use karoo_flow::{Executor, Graph, Settings};
use schemars::JsonSchema;
use serde::Serialize;

use super::change::{self, ChangeAt};
use super::ends::{End, Ends, one_standard, open_all, ports};
use super::{load, plan};
use crate::cli::log::{self, LogTo};
use crate::cli::serve::{Serving, Sockets};
use crate::cli::{Failure, Files, NewFile, in_utf8, is_pipe};
use crate::flow::FlowPage;
use crate::report::{Documented, to_json};
use live::Site;

/// How often a table of telemetry gets lines.
const EVERY: Duration = Duration::from_secs(1);
/// How often signals are looked for.
const LOOK: Duration = Duration::from_millis(50);

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

/// As it stands: ports are known once the graph is.
fn to_text(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Run")]
pub struct RunArgs {
    /// The graph: TOML, or GraphML as Laminar's exporter writes it
    #[arg(help_heading = None::<&str>, value_name = "GRAPH")]
    graph: PathBuf,
    /// Where the samples of an input come from: a path, - for standard input, tcp:HOST:PORT,
    /// tcp-listen:ADDRESS:PORT, udp:ADDRESS:PORT, shm:NAME or dpdk:INTERFACE:GROUP:PORT; PORT= may
    /// be left out if there is one
    #[arg(short, long, value_name = "PORT=ADDRESS", value_parser = in_utf8(to_text))]
    input: Vec<String>,
    /// Where the samples of an output go, in the same way; those that are not given go nowhere
    #[arg(short, long, value_name = "PORT=ADDRESS", value_parser = in_utf8(to_text))]
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
    /// Tick before which the run ends, if no input ends earlier
    #[arg(long, value_name = "TICKS")]
    limit: Option<u64>,
    /// Other numbers for a constant, a gain or a filter from a tick on, such as low=[0.5, 0.5]@1000
    #[arg(long, value_name = "PATH=NUMBERS@TICK")]
    change: Vec<ChangeAt>,
    /// Port of a live page, of the telemetry as JSON and of /metrics for Prometheus
    #[arg(long, value_name = "PORT")]
    http: Option<u16>,
    /// A table of the telemetry, made anew: a line for each partition every second, and at the end
    #[arg(long, value_name = "FILE.csv")]
    telemetry: Option<PathBuf>,
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
    let inputs = ports(graph, "--input", &args.input, graph.inputs().collect())?;
    let outputs = ports(graph, "--output", &args.output, graph.outputs().collect())?;
    if let Some((id, _)) = inputs.iter().find(|(_, address)| address.is_none()) {
        let path = graph.path(*id);
        return Err(Failure::usage(format!(
            "--input {path}=…: the input {path} has no address; each input needs one"
        )));
    }
    one_standard("--input", graph, &inputs, End::is_stdin)?;
    one_standard("--output", graph, &outputs, End::is_stdout)?;
    files(args, graph, &inputs, &outputs).check()?;
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
    let sockets = Sockets::bind("--http", args.http)?;
    let mut serving = Serving::start(sockets, level)?;
    let table = |path| Table::new(path, serving.told());
    let mut table = args.telemetry.as_ref().map(table).transpose()?;
    let stop = Stop::new();
    let mut ends = outputs.iter().flat_map(|(_, end)| end);
    let has_stdout = ends.any(End::is_stdout);

    let done = AtomicBool::new(false);
    // Whoever connects later waits for this; signals end it.
    let (outcome, watched) = thread::scope(|scope| {
        let (handles, newest) = std::sync::mpsc::sync_channel::<Handle>(1);
        let (stop_too, done, shape) = (&stop, &done, executor.shape());
        let (rows, mut next) = (&mut table, Instant::now() + EVERY);
        let watcher = scope.spawn(move || {
            let (mut handle, mut ends): (Option<Handle>, bool) = (None, false);
            while !done.load(Ordering::Acquire) {
                if let Ok(new) = newest.try_recv() {
                    let page = FlowPage::new(graph.name(), shape.clone(), new.clone());
                    let told = new.clone();
                    let metrics = move || Ok(told.telemetry().to_prometheus());
                    serving.show(Site::default().metrics(metrics).source(page));
                    handle = Some(new);
                }
                if let Some(why) = serving.told_to_end() {
                    tracing::info!(%why, "ending");
                    ends = true;
                }
                if ends {
                    // Also a run that began later. It knows before its inputs end within a sample.
                    handle.as_ref().inspect(|handle| handle.quit());
                    stop_too.set();
                }
                if let Some((rows, handle)) = rows.as_mut().zip(handle.as_ref())
                    && Instant::now() >= next
                {
                    rows.add(&handle.telemetry());
                    next += EVERY;
                }
                thread::sleep(LOOK);
            }
            // A run that ended before it was looked at.
            let handle = handle.or_else(|| newest.try_recv().ok());
            (serving, handle.map(|handle| handle.telemetry()))
        });
        let outcome = go(graph, &executor, &inputs, &outputs, &stop, |handle| {
            change::put(&handle, &args.change)?;
            let _ = handles.try_send(handle);
            Ok(())
        });
        done.store(true, Ordering::Release);
        (outcome, watcher.join())
    });
    let mut last = None;
    if let Ok((serving, telemetry)) = watched {
        serving.stop();
        last = telemetry;
    }
    // Also of a run that failed.
    let last = outcome
        .as_ref()
        .ok()
        .map(|outcome| &outcome.telemetry)
        .or(last.as_ref());
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
    let seconds = outcome.telemetry.elapsed as f64 * 1e-9;
    let report = Done {
        graph: graph.name(),
        ticks: outcome.ticks,
        seconds,
        ticks_per_second: outcome.ticks as f64 / seconds.max(1e-9),
        expected_ticks_per_second: expected,
        telemetry: &outcome.telemetry,
    };
    let text = match args.json {
        true => to_json(&report).map_err(Failure::data)?,
        false => words(&report),
    };
    if has_stdout {
        eprintln!("{text}");
    } else {
        println!("{text}");
    }
    Ok(())
}

/// A table that has no line yet.
enum New {
    File(NewFile),
    /// A named pipe, whose reader has come.
    Pipe(Box<dyn Write + Send>),
}

/// The telemetry of many moments, in a file.
struct Table<'a> {
    path: &'a PathBuf,
    /// The file before its first line, and behind it.
    new: Option<New>,
    file: Option<Box<dyn Write + Send>>,
    error: Option<io::Error>,
}

impl<'a> Table<'a> {
    /// Opens it. A named pipe waits for its reader until `stop` is set.
    fn new(path: &'a PathBuf, stop: &Stop) -> Result<Table<'a>, Failure> {
        let failed = |error| format!("--telemetry {}: {error}", path.display());
        let new = match is_pipe(path) {
            true => {
                let pipe = Address::File(path.clone()).writer(stop);
                New::Pipe(pipe.map_err(|error| Failure::data(failed(error)))?)
            }
            false => {
                let file = NewFile::open(path);
                New::File(file.map_err(|error| Failure::usage(failed(error)))?)
            }
        };
        Ok(Table {
            path,
            new: Some(new),
            file: None,
            error: None,
        })
    }

    /// Adds what is so now. What fails is told at the end, and the run goes on.
    fn add(&mut self, telemetry: &Telemetry) {
        if let Err(error) = self.write(telemetry) {
            self.error.get_or_insert(error);
        }
    }

    fn write(&mut self, telemetry: &Telemetry) -> io::Result<()> {
        if let Some(new) = self.new.take() {
            let mut file: Box<dyn Write + Send> = match new {
                New::File(file) => Box::new(file.begin()?),
                New::Pipe(pipe) => pipe,
            };
            writeln!(file, "{}", Telemetry::CSV)?;
            self.file = Some(file);
        }
        match &mut self.file {
            Some(file) => file.write_all(telemetry.to_csv().as_bytes()),
            None => Ok(()),
        }
    }

    fn end(self) -> Result<(), Failure> {
        let failed = |error| Failure::data(format!("--telemetry {}: {error}", self.path.display()));
        self.error.map_or(Ok(()), |error| Err(failed(error)))
    }
}

/// Opens the outside and runs to the end. `show` gets a hold on the run before it begins.
fn go(
    graph: &Graph,
    executor: &Executor,
    inputs: &Ends,
    outputs: &Ends,
    stop: &Stop,
    show: impl FnOnce(Handle) -> Result<(), Failure>,
) -> Result<Outcome, Failure> {
    let opened = open_all(graph, inputs, outputs, stop)?;
    let run = executor
        .prepare(opened.readers, opened.writers)
        .map_err(Failure::data)?;
    show(run.handle())?;
    tracing::info!(graph = graph.name(), "running");
    let outcome = run.run().map_err(Failure::data);
    drop(opened.kept);
    outcome
}

/// The files of all options.
fn files(args: &RunArgs, graph: &Graph, inputs: &Ends, outputs: &Ends) -> Files {
    let mut files = Files::default().reads("GRAPH", Some(&args.graph));
    for (id, end) in inputs {
        let option = format!("--input {}=", graph.path(*id));
        files = files.reads(&option, end.as_ref().and_then(End::file));
    }
    for (id, end) in outputs {
        let option = format!("--output {}=", graph.path(*id));
        files = files.writes(&option, end.as_ref().and_then(End::file));
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
        let costs = karoo_flow::place::Costs::guessed(graph);
        Some(args.wishes.plan(graph, &costs, &cores)?)
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
