//! `karoo flow run`.

use std::fs;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use ground::counted;
use ground::files::read_text;
use karoo_flow::adapters::{Address, Stop};
use karoo_flow::place::{Plan, rate_in_words};
use karoo_flow::run::{Handle, Outcome, Telemetry};
use karoo_flow::{Executor, Graph, NodeId, Settings};
use schemars::JsonSchema;
use serde::Serialize;

use super::change::ChangeAt;
use super::{load, plan};
use crate::cli::log::{self, LogTo};
use crate::cli::serve::{Serving, Sockets};
use crate::cli::{Failure, Files};
use crate::flow::{FlowPage, open};
use crate::ports::{PORT_SCHEME, PortAddress};
use crate::report::{Documented, to_json};
use live::Site;

/// How often a table of telemetry gets lines.
const EVERY: Duration = Duration::from_secs(1);
/// How often signals are looked for.
const LOOK: Duration = Duration::from_millis(50);

#[derive(Debug, Args)]
#[command(next_help_heading = "Run")]
pub struct RunArgs {
    /// The graph: TOML, or GraphML as Laminar's exporter writes it
    #[arg(help_heading = None::<&str>, value_name = "GRAPH")]
    graph: PathBuf,
    /// Where the samples of an input come from: a path, - for standard input, tcp:HOST:PORT,
    /// tcp-listen:ADDRESS:PORT, udp:ADDRESS:PORT, shm:NAME or dpdk:INTERFACE:GROUP:PORT; PORT= may
    /// be left out if there is one
    #[arg(short, long, value_name = "PORT=ADDRESS")]
    input: Vec<String>,
    /// Where the samples of an output go, in the same way; those that are not given go nowhere
    #[arg(short, long, value_name = "PORT=ADDRESS")]
    output: Vec<String>,
    /// A plan that karoo flow plan has made [default: the marked partitions, else one plan is made
    /// of guessed costs]
    #[arg(long, value_name = "FILE")]
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
    #[arg(long)]
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
    let loaded = load::graph(&args.graph)?;
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
    files(args, graph, &inputs, &outputs).check()?;
    if inputs.is_empty() && args.limit.is_none() {
        tracing::info!("the graph has no inputs that could end: it runs until it is told to end");
    }
    let (mut settings, expected) = settings(args, graph)?;
    settings.changeable = args
        .change
        .iter()
        .map(|change| change.path.clone())
        .collect();
    let executor =
        load::executor(graph, settings).map_err(|found| Failure::data(found.to_string()))?;
    let sockets = Sockets::bind("--http", args.http)?;
    let mut serving = Serving::start(sockets, level)?;
    let mut table = args.telemetry.as_ref().map(Table::new).transpose()?;
    let stop = Stop::new();
    let has_stdout = outputs
        .iter()
        .any(|(_, address)| *address == Some(End::Plain(Address::Standard)));

    let done = AtomicBool::new(false);
    // Whoever connects later waits for this; signals end it.
    let (outcome, serving) = thread::scope(|scope| {
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
            serving
        });
        let outcome = go(graph, &executor, &inputs, &outputs, &stop, |handle| {
            for change in &args.change {
                let done = handle.change(&change.path, change.numbers.clone(), change.tick);
                done.map_err(|error| Failure::usage(format!("--change {error}")))?;
            }
            let _ = handles.try_send(handle);
            Ok(())
        });
        done.store(true, Ordering::Release);
        (outcome, watcher.join())
    });
    if let Ok(serving) = serving {
        serving.stop();
    }
    let outcome = outcome?;
    if let Some(mut table) = table {
        table.add(&outcome.telemetry);
        table.end()?;
    }
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
        let _ = writeln!(io::stderr(), "{text}");
    } else {
        println!("{text}");
    }
    Ok(())
}

/// The telemetry of many moments, in a file.
struct Table<'a> {
    path: &'a PathBuf,
    file: fs::File,
    error: Option<io::Error>,
}

impl<'a> Table<'a> {
    fn new(path: &'a PathBuf) -> Result<Table<'a>, Failure> {
        let failed = |error| Failure::usage(format!("--telemetry {}: {error}", path.display()));
        let mut file = fs::File::create(path).map_err(failed)?;
        writeln!(file, "{}", Telemetry::CSV).map_err(failed)?;
        Ok(Table {
            path,
            file,
            error: None,
        })
    }

    /// Adds what is so now. What fails is told at the end, and the run goes on.
    fn add(&mut self, telemetry: &Telemetry) {
        if let Err(error) = self.file.write_all(telemetry.to_csv().as_bytes()) {
            self.error.get_or_insert(error);
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
    inputs: &[(NodeId, Option<End>)],
    outputs: &[(NodeId, Option<End>)],
    stop: &Stop,
    show: impl FnOnce(Handle) -> Result<(), Failure>,
) -> Result<Outcome, Failure> {
    let failed = |id: NodeId, address: &Address, error: io::Error| {
        Failure::data(format!("{}: {address}: {error}", graph.path(id)))
    };
    let ports = |ends: &[(NodeId, Option<End>)]| -> Vec<PortAddress> {
        let port = |end: &(NodeId, Option<End>)| match &end.1 {
            Some(End::Port(address)) => Some(address.clone()),
            _ => None,
        };
        ends.iter().filter_map(port).collect()
    };
    let (in_ports, out_ports) = (ports(inputs), ports(outputs));
    let (mut kept, mut port_readers, mut port_writers) = (None, Vec::new(), Vec::new());
    if !in_ports.is_empty() || !out_ports.is_empty() {
        let opened = open(&in_ports, &out_ports, stop).map_err(Failure::usage)?;
        kept = Some(opened.kept);
        port_readers = opened.readers;
        port_writers = opened.writers;
    }
    let (mut port_readers, mut port_writers) = (port_readers.into_iter(), port_writers.into_iter());
    let mut writers: Vec<Box<dyn Write>> = Vec::new();
    for (id, end) in outputs {
        writers.push(match end {
            Some(End::Plain(address)) => address
                .writer(stop)
                .map_err(|error| failed(*id, address, error))?,
            Some(End::Port(_)) => match port_writers.next() {
                Some(writer) => Box::new(writer),
                None => Box::new(io::sink()),
            },
            None => Box::new(io::sink()),
        });
    }
    let mut readers: Vec<Box<dyn Read + Send>> = Vec::new();
    for (id, end) in inputs {
        match end {
            Some(End::Plain(address)) => {
                let reader = address.reader(stop);
                readers.push(reader.map_err(|error| failed(*id, address, error))?);
            }
            Some(End::Port(_)) => {
                readers.extend(
                    port_readers
                        .next()
                        .map(|reader| Box::new(reader) as Box<dyn Read + Send>),
                );
            }
            None => {}
        }
    }
    let run = executor.prepare(readers, writers).map_err(Failure::data)?;
    show(run.handle())?;
    tracing::info!(graph = graph.name(), "running");
    let outcome = run.run().map_err(Failure::data);
    drop(kept);
    outcome
}

/// An end of the outside.
#[derive(Clone, Debug, PartialEq)]
enum End {
    /// What the library opens.
    Plain(Address),
    /// A DPDK port.
    Port(PortAddress),
}

impl FromStr for End {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.starts_with(PORT_SCHEME) {
            true => text.parse().map(Self::Port),
            false => text.parse().map(Self::Plain),
        }
    }
}

/// The address of each port, in the order of the graph's.
fn ports(
    graph: &Graph,
    option: &str,
    given: &[String],
    ids: Vec<NodeId>,
) -> Result<Vec<(NodeId, Option<End>)>, Failure> {
    let mut ports: Vec<(NodeId, Option<End>)> = ids.into_iter().map(|id| (id, None)).collect();
    for text in given {
        let of = |name: &str| ports.iter().position(|(id, _)| graph.path(*id) == name);
        // Both names and addresses may have an equals sign.
        let split = text.match_indices('=').find_map(|(at, _)| {
            let (name, address) = (&text[..at], &text[at + 1..]);
            of(name).map(|port| (port, address))
        });
        let (port, address) = match split {
            Some(found) => found,
            None if ports.len() == 1 && !text.contains('=') => (0, text.as_str()),
            None => {
                let names: Vec<String> = ports.iter().map(|(id, _)| graph.path(*id)).collect();
                let names = if names.is_empty() {
                    "none".to_owned()
                } else {
                    names.join(", ")
                };
                return Err(Failure::usage(format!(
                    "{option} {text}: there is no such port; write PORT=ADDRESS with one of: {names}"
                )));
            }
        };
        let address: End = address
            .parse()
            .map_err(|error| Failure::usage(format!("{option} {error}")))?;
        if ports[port].1.replace(address).is_some() {
            return Err(Failure::usage(format!(
                "{option} {text}: the port has an address already"
            )));
        }
    }
    Ok(ports)
}

/// The files of all options.
fn files(
    args: &RunArgs,
    graph: &Graph,
    inputs: &[(NodeId, Option<End>)],
    outputs: &[(NodeId, Option<End>)],
) -> Files {
    let file = |end: &Option<End>| match end {
        Some(End::Plain(Address::File(path))) => Some(path.clone()),
        _ => None,
    };
    let mut files = Files::default().reads("GRAPH", Some(&args.graph));
    for (id, end) in inputs {
        let option = format!("--input {}=", graph.path(*id));
        files = files.reads(&option, file(end).as_deref());
    }
    for (id, end) in outputs {
        let option = format!("--output {}=", graph.path(*id));
        files = files.writes(&option, file(end).as_deref());
    }
    let files = files
        .reads("--plan", args.plan.as_deref())
        .writes("--telemetry", args.telemetry.as_deref());
    args.costs.files(args.cores.files(files))
}

/// How the graph is to run, and the ticks a second that are expected if costs were measured.
fn settings(args: &RunArgs, graph: &Graph) -> Result<(Settings, Option<f64>), Failure> {
    let marked = graph.ids().any(|id| graph.partition(id).is_some());
    let made = if let Some(path) = &args.plan {
        let failed = |error: String| Failure::usage(format!("--plan {}: {error}", path.display()));
        let text = read_text(path).map_err(|error| failed(error.to_string()))?;
        Some(Plan::from_json(&text).map_err(|error| failed(error.to_string()))?)
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
        Some(plan) => plan.settings(graph).map_err(Failure::usage)?,
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
    let bottleneck = done.telemetry.bottleneck();
    let limit = bottleneck.map_or(String::new(), |part| format!("limit   {}\n", part.name));
    format!(
        "{}: {} in {:.3} s, {} a second{expected}\n{limit}{}",
        done.graph,
        counted(done.ticks, "tick"),
        done.seconds,
        rate_in_words(done.ticks_per_second),
        done.telemetry.to_string().trim_end()
    )
}
