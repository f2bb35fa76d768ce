//! `karoo schema`: the JSON Schemas of what Karoo writes as JSON.

use clap::Args;
use host::placement::HostPlan;
use host::topology::CoreTimes;
use host::tuning::Finding;
use karoo_flow::place;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde_json::Value;

use super::{Failure, bench, dsim, examples, flow, modem};
use crate::bench::engine::EngineBench;
use crate::bench::ports::PortsReport;
use crate::config::ConfigError;
use crate::doctor;
use crate::report::document::{Documented, identified, schema_of};
use crate::report::qualification::Qualification;
use crate::report::verdict::JudgedReport;
use crate::shadow::ShadowReport;
use crate::sink::SinkReport;
use crate::sink::live::LiveReport;
use crate::sink::metadata::StreamMetadata;

/// Print the JSON Schema of a document that Karoo writes
///
/// Each document says what it is (schema) and in which version. Without a name, their names.
#[derive(Debug, Args)]
#[command(after_help = examples::SCHEMA)]
pub struct SchemaArgs {
    /// Which document: replay-report, plan and so on
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

/// What `karoo tune check --json` prints.
#[derive(Serialize, JsonSchema)]
pub struct Findings<'a> {
    /// Entries of the profile, in its order.
    pub findings: &'a [Finding],
}

impl Documented for Findings<'_> {
    const NAME: &'static str = "tune-check";
    const TITLE: &'static str = "What karoo tune check --json found";
}

impl Documented for HostPlan {
    const NAME: &'static str = "plan";
    const TITLE: &'static str = "What karoo plan --json shows";
}

impl Documented for CoreTimes {
    const NAME: &'static str = "bench-cores";
    const TITLE: &'static str = "What karoo bench cores measured: cores.json";
}

/// A document's name, what it is, and its schema.
type Entry = (&'static str, &'static str, fn() -> Value);

fn entry<T: Documented>() -> Entry {
    (T::NAME, T::TITLE, schema_of::<T>)
}

/// What `/live.json` serves.
fn live() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let schema = settings
        .into_generator()
        .into_root_schema_for::<live::Document>();
    identified(schema, live::SCHEMA, live::VERSION, LIVE)
}

/// What `karoo flow plan --json` prints, and reads.
fn flow_plan() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let schema = settings
        .into_generator()
        .into_root_schema_for::<place::Plan>();
    identified(schema, place::SCHEMA, place::VERSION, FLOW_PLAN)
}

const FLOW_PLAN: &str = "Where the nodes of a dataflow graph run: karoo flow plan --json";

const LIVE: &str = "What a page of a running program shows: /live.json";

/// All documents.
fn entries() -> [Entry; 28] {
    [
        entry::<JudgedReport<'_>>(),
        entry::<Qualification>(),
        entry::<SinkReport>(),
        entry::<StreamMetadata>(),
        entry::<LiveReport>(),
        entry::<doctor::Report>(),
        entry::<ShadowReport>(),
        entry::<HostPlan>(),
        entry::<Findings<'_>>(),
        entry::<EngineBench>(),
        entry::<PortsReport>(),
        entry::<bench::KernelsReport<'_>>(),
        entry::<CoreTimes>(),
        entry::<flow::Checked>(),
        entry::<flow::Done<'_>>(),
        entry::<flow::GraphReport>(),
        entry::<flow::QueuesReport>(),
        entry::<flow::ChainReport>(),
        entry::<modem::TxDocument>(),
        entry::<modem::RxDocument>(),
        entry::<modem::ChannelDocument>(),
        entry::<modem::LinkDocument>(),
        entry::<modem::BerDocument<'_>>(),
        entry::<modem::BenchTxDocument>(),
        entry::<modem::BenchRxDocument>(),
        entry::<modem::LatencyDocument>(),
        entry::<modem::LoopDocument>(),
        entry::<dsim::Truth<'_>>(),
    ]
}

/// Runs the command.
pub fn run(args: &SchemaArgs) -> Result<(), Failure> {
    let mut entries = entries().to_vec();
    entries.push((place::SCHEMA, FLOW_PLAN, flow_plan));
    entries.push((live::SCHEMA, LIVE, live));
    let Some(name) = &args.name else {
        for (name, title, _) in entries {
            println!("{name:20} {title}");
        }
        return Ok(());
    };
    // As documents themselves say it, too.
    let bare = name.strip_prefix("karoo/").unwrap_or(name);
    let found = entries.iter().find(|(known, ..)| *known == bare);
    let Some((_, _, schema)) = found else {
        let names: Vec<_> = entries.iter().map(|(name, ..)| *name).collect();
        let way_out = format!("there are {}", names.join(", "));
        let error = ConfigError::new("NAME", name, "is not a document", way_out);
        return Err(Failure::usage(error));
    };
    let text = serde_json::to_string_pretty(&schema()).map_err(Failure::data)?;
    println!("{text}");
    Ok(())
}
