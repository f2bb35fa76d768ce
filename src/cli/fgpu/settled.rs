//! An engine before it starts: its configuration, where its threads are, and whether it fits.

use clap::ArgMatches;
use ground::os::run_on;
use host::placement::{EnginePlan, HostPlan};
use katcp::reading::unix_now;

use super::footprint::{Footprint, Setting, fit};
use super::launch::Launch;
use super::{FgpuArgs, spare_chunks, wishes};
use crate::assembly::{Demand, Throttle};
use crate::cli::log::LogLevel;
use crate::cli::serve::{Serving, Sockets};
use crate::cli::{Failure, plan};
use crate::config::{Decision, FgpuConfig};
use crate::fgpu::Interfaces;
use crate::ports::{Interface, InterfaceError, PortUse};

/// What is opened and kept in memory beside an engine.
#[derive(Debug, Default)]
pub(in crate::cli) struct Beside {
    /// Further interfaces.
    pub ports: Vec<(Interface, PortUse)>,
    /// What it takes of the host's memory, without that of interfaces.
    pub demands: Vec<Demand>,
}

/// An engine whose configuration and placement are settled.
pub(in crate::cli) struct Settled {
    /// What runs.
    pub config: FgpuConfig,
    interfaces: Interfaces,
    plan: HostPlan,
    number: usize,
    spare_chunks: usize,
}

impl Settled {
    /// Finds interfaces, places threads and buffers, and sees to it that there is memory. `matches`
    /// is the parsed form of `args`; `beside` tells what there is beside it. `None` if the plan was
    /// to be printed, which it is: also where an interface's MTU is too small, which is easily set.
    pub fn find(
        args: &FgpuArgs,
        matches: &ArgMatches,
        mut config: FgpuConfig,
        beside: impl FnOnce(&FgpuConfig, &Interfaces) -> Result<Beside, Failure>,
    ) -> Result<Option<Self>, Failure> {
        for doubt in config.engine.doubts(Some(unix_now())) {
            tracing::warn!("{doubt}");
        }
        if let Some(throttle) = Throttle::find() {
            throttle.evade();
        }
        let ignored = args.options.ignored.given();
        if !ignored.is_empty() {
            let options = ignored.join(" ");
            tracing::info!(options, "taken for compatibility, without effect");
        }
        let odd = [
            args.options.unused_interfaces(),
            config.input.idle_queues(),
            config.output_into_input(),
        ];
        for text in odd.into_iter().flatten() {
            tracing::warn!("{text}");
        }
        let interfaces = Interfaces::find(&mut config).map_err(Failure::usage)?;
        let misfits = interfaces.misfits(&config.engine);
        let is_in_plan = |misfit: &InterfaceError| {
            args.print_plan && matches!(misfit, InterfaceError::Mtu { .. })
        };
        let (warned, refused): (Vec<_>, Vec<_>) = misfits.into_iter().partition(is_in_plan);
        if let Some(misfit) = refused.into_iter().next() {
            return Err(Failure::usage(misfit));
        }
        let Beside { ports, demands } = beside(&config, &interfaces)?;
        let interfaces = interfaces.with(ports);
        let mut spare_chunks = spare_chunks(args, &config);
        let setting = Setting::of(args, args.place.has_gpu());
        let taken = |workers, config: &FgpuConfig, spare_chunks| {
            let beside = (&interfaces, &demands[..]);
            Footprint::of(setting, config, beside, spare_chunks, workers)
        };
        let lower = |workers, config: &mut FgpuConfig, spare_chunks: &mut usize| {
            let taken = |config: &FgpuConfig, spare_chunks| taken(workers, config, spare_chunks);
            for Decision { option, value, why } in fit(matches, config, spare_chunks, taken) {
                tracing::warn!(option, value, why, "lowered");
            }
        };
        lower(1, &mut config, &mut spare_chunks);
        let at_least = taken(1, &config, spare_chunks);
        let (mut plan, number) = args.place.plan(wishes(args, &config, &at_least))?;
        plan::warn_of_mtu(&mut plan, warned);
        // The number of workers is known only now, and each needs memory of its own.
        let workers = plan.engines[number].workers.len();
        lower(workers, &mut config, &mut spare_chunks);
        let taken = taken(workers, &config, spare_chunks);
        if args.print_plan {
            print!("{}{taken}", plan::coloured(&plan));
            taken.check().map_err(Failure::usage)?;
            return Ok(None);
        }
        for warning in &plan.warnings {
            tracing::warn!(rule = warning.rule, "{}", warning.text);
        }
        taken.check().map_err(Failure::usage)?;
        Ok(Some(Self {
            config,
            interfaces,
            plan,
            number,
            spare_chunks,
        }))
    }

    /// Where its threads are.
    fn placement(&self) -> &EnginePlan {
        &self.plan.engines[self.number]
    }

    /// Listens to signals and for scrapes, on the CPUs for housekeeping.
    pub fn serve(&self, sockets: Sockets, level: LogLevel) -> Result<Serving, Failure> {
        run_on(self.placement().housekeeping.iter()).map_err(Failure::data)?;
        Serving::start(sockets, level)
    }

    /// What starts it.
    pub fn launch<'a>(&'a self, args: &'a FgpuArgs) -> Launch<'a> {
        Launch {
            args,
            config: &self.config,
            interfaces: &self.interfaces,
            plan: &self.plan,
            placement: self.placement(),
            number: self.number,
            spare_chunks: self.spare_chunks,
        }
    }
}
