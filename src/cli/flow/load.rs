//! What the commands read: graphs, costs of nodes, distances of cores.

use std::iter::successors;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs, io};

use clap::Args;
use ground::files::{read_text, write_whole};
use ground::os::allowed_cpus;
use host::topology::{CoreTimes, CpuList, Distances, Machine, Root};
use karoo_flow::place::{
    ALIKE, Calibration, Cores, Costs, Plan, fingerprint, measure, measure_paces,
};
use karoo_flow::{Cause, Executor, Graph, Loaded, Problem, Problems, Registry, Settings};

use crate::bench;
use crate::cli::{Failure, Files, NewFile};

/// Milliseconds that a graph is measured for.
const CALIBRATION: u64 = 400;
/// CPUs between which all pairs are measured on the spot, at most.
const FEW: usize = 8;
/// What one CPU reads of another's memory where nothing was measured, in 10⁹ bytes per second.
const USUAL_RATE: f64 = 8.0;

/// Reads a graph.
pub fn graph(path: &Path) -> Result<Loaded, Failure> {
    read(path)?.map_err(|problems| Failure::data(problems.to_string()))
}

/// Reads a graph, or what is wrong with its file: GraphML by its name or by what it begins with,
/// TOML otherwise.
pub fn read(path: &Path) -> Result<Result<Loaded, Problems>, Failure> {
    let file = path.display().to_string();
    let text = match read_text(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            let problem = Problem {
                cause: Cause::Format,
                path: file,
                text: format!("{error}: it must be TOML, or GraphML, in UTF-8"),
            };
            return Ok(Err(Problems(vec![problem])));
        }
        Err(error) => return Err(Failure::usage(format!("{file}: {error}"))),
    };
    let xml = path
        .extension()
        .is_some_and(|end| end == "graphml" || end == "xml")
        || text.trim_start().starts_with('<');
    Ok(match xml {
        true => Graph::from_graphml(&text, &file),
        false => Graph::from_toml(&text, &file, &kinds()).map(|graph| Loaded {
            graph,
            notes: Vec::new(),
        }),
    })
}

/// The same, to be run: without nodes, or without ends, it would go on for ever and do nothing.
pub fn to_run(path: &Path) -> Result<Loaded, Failure> {
    let loaded = graph(path)?;
    let graph = &loaded.graph;
    let has_ends = graph.inputs().chain(graph.outputs()).next().is_some();
    let why = match graph.nodes().is_empty() {
        _ if has_ends => return Ok(loaded),
        true => "no nodes: there is nothing to run",
        false => "neither inputs nor outputs: nothing would come of it; give it an output",
    };
    let path = path.display();
    Err(Failure::data(format!("{path}: the graph has {why}")))
}

/// The kinds of nodes that files may name: those of the library, and those of the modem.
fn kinds() -> Registry {
    let mut kinds = Registry::standard();
    karoo_modem::graph::register(&mut kinds);
    kinds
}

/// A graph that is ready to run. If it would stand still with blocks as long as these, the error
/// says with which it would not; those `of_plan` are the plan's.
pub fn executor(graph: &Graph, settings: Settings, of_plan: bool) -> Result<Executor, Problems> {
    let with = |block| Settings {
        block,
        ..settings.clone()
    };
    Executor::new(graph, settings.clone()).map_err(|mut problems| {
        let stuck = problems.0.iter_mut().find(|of| of.cause == Cause::Loop);
        if let Some(stuck) = stuck {
            let mut shorter = successors(Some(settings.block / 2), |block| Some(block / 2))
                .take_while(|block| *block > 0);
            if let Some(block) = shorter.find(|&block| Executor::new(graph, with(block)).is_ok()) {
                stuck.text += &match of_plan {
                    true => {
                        format!("; make the plan anew with --block {block}, with which it runs")
                    }
                    false => format!("; it runs with --block {block}"),
                };
            }
        }
        problems
    })
}

/// Which priority threads have.
#[derive(Debug, Args)]
pub struct PriorityOptions {
    /// Real-time priority of the threads that a plan gives a CPU, 1 to 99; a thread
    /// that may not have it runs without, and a note says so
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(1..=99))]
    real_time: Option<u8>,
}

impl PriorityOptions {
    /// Gives the threads of a run their priority, if one is asked for and some have a CPU.
    pub fn give(&self, settings: &mut Settings) -> Result<(), Failure> {
        let has_cpus = |settings: &Settings| {
            let copies = settings.copies.values().flatten();
            !settings.cpus.is_empty() || copies.flatten().next().is_some()
        };
        if let Some(priority) = self.real_time.filter(|_| !has_cpus(settings)) {
            return Err(Failure::usage(format!(
                "--real-time {priority}: no thread has a CPU of its own; give them CPUs by --plan \
                 or --automatic, without --no-pin"
            )));
        }
        settings.real_time = self.real_time;
        Ok(())
    }
}

/// Where the costs of nodes come from.
#[derive(Debug, Args)]
#[command(next_help_heading = "Costs")]
pub struct CostOptions {
    /// Costs of nodes, as they were measured once; made if it is not there or of another graph
    /// [default: a file in ~/.cache/karoo/flow for each graph]
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    /// Measure the costs of nodes anew
    #[arg(long, conflicts_with = "guess")]
    measure: bool,
    /// Guess the costs of nodes from their sizes: rates then mean nothing
    #[arg(long)]
    guess: bool,
    /// Milliseconds that each of the three runs goes on by which a graph is measured
    #[arg(long, value_name = "MS", default_value_t = CALIBRATION, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    calibration: u64,
}

impl CostOptions {
    /// Adds the file of costs, which may be made.
    pub fn files(&self, files: Files) -> Files {
        files.writes("--costs", self.costs.as_deref().filter(|_| !self.guess))
    }

    /// An option that means measured costs alone, if one is given.
    pub fn of_measured(&self) -> Option<String> {
        let costs = self.costs.as_ref();
        let costs = costs.map(|path| format!("--costs {}", path.display()));
        let time = self.calibration;
        costs
            .or(self.measure.then(|| "--measure".to_owned()))
            .or((time != CALIBRATION).then(|| format!("--calibration {time}")))
    }

    /// The option that wants guessed costs, if it is given.
    pub fn of_guessed(&self) -> Option<String> {
        self.guess.then(|| "--guess".to_owned())
    }

    /// Refuses a file of something else, which would be lost, and one that cannot be made.
    fn check(&self) -> Result<(), Failure> {
        let Some(path) = &self.costs else {
            return Ok(());
        };
        let refused = |why: &str| {
            let place = path.display();
            Failure::usage(format!("--costs {place}: {why}; name another file"))
        };
        match read_text(path) {
            Ok(text) if text.trim().is_empty() || are_costs(&text) => Ok(()),
            Ok(_) => Err(refused(
                "it has no costs of nodes, and what it has would be lost",
            )),
            // It is made once all is measured, which takes a while.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                NewFile::check(path).map_err(|error| refused(&error.to_string()))
            }
            Err(error) => Err(refused(&error.to_string())),
        }
    }

    /// The costs of a graph's nodes: kept ones, or measured and kept.
    pub fn costs(&self, graph: &Graph, cpu: Option<usize>) -> Result<Costs, Failure> {
        if self.guess {
            return Ok(Costs::guessed(graph));
        }
        self.check()?;
        let path = self.costs.clone().or_else(|| cache(graph));
        let kept = path.as_ref().filter(|_| !self.measure).and_then(|path| {
            let text = read_text(path).ok()?;
            Costs::from_json(&text, graph)
        });
        if let Some(kept) = kept {
            return Ok(kept);
        }
        let time = Duration::from_millis(self.calibration);
        let costs = measure(graph, Calibration { time, cpu }).map_err(Failure::data)?;
        if let Some(path) = path {
            // That of an option is there, or it is a mistake.
            let folder = path.parent().filter(|_| self.costs.is_none());
            let folder = folder.map_or(Ok(()), fs::create_dir_all);
            let written = folder.and_then(|()| write_whole(&path, costs.to_json()));
            match (written, &self.costs) {
                (Err(error), Some(_)) => {
                    return Err(Failure::usage(format!(
                        "--costs {}: {error}",
                        path.display()
                    )));
                }
                // A cache that cannot be written is none.
                (Err(error), None) => tracing::debug!(%error, path = %path.display(), "no cache"),
                (Ok(()), _) => {}
            }
        }
        Ok(costs)
    }
}

/// Whether a text has costs, of whatever graph and version.
fn are_costs(text: &str) -> bool {
    let read: Option<serde_json::Value> = serde_json::from_str(text).ok();
    read.is_some_and(|costs| {
        costs["version"].is_u64() && costs["graph"].is_string() && costs["nodes"].is_object()
    })
}

/// A file for this graph on this kind of machine.
fn cache(graph: &Graph) -> Option<PathBuf> {
    let base = env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")))?;
    let model = Machine::read(&Root::host()).map_or(String::new(), |machine| machine.model);
    let model: String = model.chars().filter(char::is_ascii_alphanumeric).collect();
    Some(
        base.join("karoo/flow")
            .join(format!("{}-{model}.json", fingerprint(graph))),
    )
}

/// How long CPUs compute for their paces to be seen: all of them, and those of a plan alone.
const PACE_TIME: Duration = Duration::from_millis(60);
const OWN_PACE_TIME: Duration = Duration::from_millis(200);

/// The CPUs that may be used.
#[derive(Debug, Args)]
#[command(next_help_heading = "Cores")]
pub struct CoreOptions {
    /// CPUs to run on [default: one of each core, of those of this process]
    #[arg(long, value_name = "CPU,…")]
    cpus: Option<CpuList>,
    /// Distances between CPUs as karoo bench cores wrote them [default: /var/lib/karoo/cores.json
    /// if it is there, else measured if they are few]
    #[arg(long, value_name = "FILE")]
    cores_file: Option<PathBuf>,
    /// Take all CPUs to compute as fast as the one that costs were measured on
    #[arg(long)]
    alike: bool,
}

impl CoreOptions {
    /// The CPUs with their paces beside that of the CPU which costs were measured on. Guessed costs
    /// are of no CPU.
    pub fn with_paces(&self, cores: Cores, costs: &Costs) -> Cores {
        if self.alike || !costs.measured {
            return cores;
        }
        let paces = measure_paces(&cores.cpus, costs.loops_per_second, PACE_TIME);
        for (&cpu, &pace) in cores.cpus.iter().zip(&paces) {
            if pace <= ALIKE {
                let pace = (pace * 100.0).round() / 100.0;
                tracing::info!(
                    cpu,
                    pace,
                    "slower, with all CPUs at work, than costs were measured"
                );
            }
        }
        cores.with_paces(paces)
    }

    /// The plan with the rate that comes of the paces of its own CPUs, with the others idle.
    pub fn expected(&self, plan: Plan, graph: &Graph, costs: &Costs, cores: &Cores) -> Plan {
        // Without partitions there is nothing that a CPU could do faster.
        if self.alike || !costs.measured || plan.partitions.is_empty() {
            return plan;
        }
        let expected = plan.expected_at_work(graph, costs, cores, OWN_PACE_TIME);
        expected.unwrap_or_else(|error| {
            tracing::warn!(%error, "the plan's rate is that of all CPUs at work");
            plan
        })
    }

    /// An option that nothing but a plan follows, if one is given.
    pub fn of_plans(&self) -> Option<String> {
        let cpus = self.cpus.as_ref().map(|cpus| format!("--cpus {cpus}"));
        let file = self.cores_file.as_ref();
        cpus.or(file.map(|file| format!("--cores-file {}", file.display())))
    }

    /// An option that means measured costs alone, if one is given.
    pub fn of_measured(&self) -> Option<String> {
        self.alike.then(|| "--alike".to_owned())
    }

    /// Adds the file of distances.
    pub fn files(&self, files: Files) -> Files {
        files.reads("--cores-file", self.cores_file.as_deref())
    }

    /// The CPUs with their distances.
    pub fn cores(&self) -> Result<Cores, Failure> {
        // Those of a file may be another machine's.
        if let (Some(cpus), None) = (&self.cpus, &self.cores_file) {
            check_allowed("--cpus", cpus)?;
        }
        let given = match &self.cpus {
            Some(cpus) => cpus.clone(),
            None => allowed_cpus().into_iter().collect(),
        };
        let cache = Path::new(CoreTimes::CACHE);
        let machine = Machine::read(&Root::host()).unwrap_or_else(|_| Machine::unknown(&given));
        let cpus: Vec<usize> = match &self.cpus {
            Some(cpus) => cpus.iter().collect(),
            None => one_of_each_core(&given, &machine),
        };
        let read = match &self.cores_file {
            Some(file) => Some(CoreTimes::read(file).map_err(Failure::usage)?),
            None => CoreTimes::read(cache)
                .ok()
                .filter(|times| times.model == machine.model),
        };
        if let Some(times) = read {
            let all = Cores {
                model: times.model,
                cpus: times.cpus,
                latency_ns: times.latency_ns,
                gigabytes_per_second: times.gigabytes_per_second,
                paces: Vec::new(),
            };
            let cores = all.only(&cpus);
            if cores.cpus.len() < cpus.len() {
                let text = "--cores-file: it has not all of the CPUs that are to be used; \
                            karoo bench cores --output FILE makes one";
                return Err(Failure::usage(text));
            }
            return Ok(cores);
        }
        if cpus.len() <= FEW {
            let time = Duration::from_millis(5);
            let times = bench::cores::measure(machine.model, &cpus, time, |_, _| {});
            let times = times.map_err(Failure::usage)?;
            return Ok(Cores {
                model: times.model,
                cpus: times.cpus,
                latency_ns: times.latency_ns,
                gigabytes_per_second: times.gigabytes_per_second,
                paces: Vec::new(),
            });
        }
        let distances = Distances::new(&machine, None);
        let mut cores = Cores::alike(cpus.clone(), 0.0, USUAL_RATE);
        for (row, &from) in cpus.iter().enumerate() {
            for (column, &to) in cpus.iter().enumerate().filter(|&(column, _)| column != row) {
                cores.latency_ns[row][column] = distances.between(from, to);
            }
        }
        Ok(cores)
    }
}

/// Refuses CPUs of an option that this process may not use.
pub fn check_allowed(option: &str, cpus: &CpuList) -> Result<(), Failure> {
    let allowed = allowed_cpus();
    match cpus.iter().find(|cpu| !allowed.contains(cpu)) {
        Some(cpu) => Err(Failure::usage(format!(
            "{option} {cpu}: this process may not use it, but {}",
            allowed.into_iter().collect::<CpuList>()
        ))),
        None => Ok(()),
    }
}

/// The first of these CPUs on each core. Two partitions on one core would take each other's time,
/// and plans count all of it for each.
fn one_of_each_core(cpus: &CpuList, machine: &Machine) -> Vec<usize> {
    let first = |cpu: &usize| machine.siblings(*cpu).and(cpus).first() == Some(*cpu);
    cpus.iter().filter(first).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_have_one_cpu_of_each_core() {
        let list = |text: &str| text.parse::<CpuList>().unwrap();
        let mut machine = Machine::unknown(&list("0-7"));
        for (&cpu, known) in &mut machine.cpus {
            known.siblings = [cpu % 4, cpu % 4 + 4].into_iter().collect();
        }
        assert_eq!(one_of_each_core(&list("0-7"), &machine), [0, 1, 2, 3]);
        // Of cores of which the first CPU is not ours, the second.
        assert_eq!(one_of_each_core(&list("2,4-6"), &machine), [2, 4, 5]);
        assert_eq!(one_of_each_core(&list("9"), &machine), [9]);
    }
}
