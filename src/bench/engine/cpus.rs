//! Which thread of a bench runs on which CPU.

use ground::os::allowed_cpus;

use super::options::BenchOptions;
use crate::assembly::BackendKind;
use crate::config::ConfigError;

/// The CPUs of a bench, and whose each is.
pub struct Cpus {
    /// All that may be used.
    pub all: Vec<usize>,
    /// The main thread's, unless it shares one.
    pub main: Option<usize>,
    pub lcores: Vec<usize>,
    pub workers: Vec<usize>,
    /// Those that are left, for who looks at the engines.
    pub clients: Vec<usize>,
}

impl Cpus {
    pub fn assign(options: &BenchOptions) -> Result<Self, ConfigError> {
        let cpus = if options.cpus.is_empty() {
            allowed_cpus()
        } else {
            options.cpus.clone()
        };
        let lcores = options.lcore_count();
        let taken = options.engines * options.rx_queues
            + options.modest_cpus()
            + options.generators
            + options.sinks;
        let workers = match options.backend {
            BackendKind::Cuda => 0,
            BackendKind::Auto | BackendKind::Cpu => options.workers,
        };
        let needed = 1 + taken + workers;
        if needed > cpus.len() && !options.oversubscribe {
            let rule = format!(
                "are too few: the main thread, {lcores} lcores on {taken} CPUs and {workers} compute threads take {needed}"
            );
            let way_out =
                "ask for fewer queues, generators, sinks or engines, or give --oversubscribe";
            return Err(ConfigError::new("--cpus", cpus.len(), rule, way_out));
        }
        if needed > cpus.len() {
            tracing::warn!(
                "{needed} threads share {} CPUs: figures mean little",
                cpus.len()
            );
        }
        let mut turn = cpus.iter().copied().cycle().skip(1);
        let lcores = lcore_cpus(options, &mut turn);
        Ok(Self {
            clients: cpus.iter().copied().skip(needed).collect(),
            all: cpus.clone(),
            main: (needed <= cpus.len()).then(|| cpus[0]),
            lcores,
            workers: turn.take(workers.max(1)).collect(),
        })
    }
}

/// The CPU of each lcore in the order in which they are started, out of `turn`.
fn lcore_cpus(options: &BenchOptions, turn: &mut impl Iterator<Item = usize>) -> Vec<usize> {
    let mut cpus = Vec::new();
    let mut shared = None;
    for engine in 0..options.engines {
        cpus.extend(turn.by_ref().take(options.rx_queues));
        let modest = 1 + options.tx_queues;
        if options.share_cpus == 0 {
            cpus.extend(turn.by_ref().take(modest));
            continue;
        }
        if engine % options.share_cpus == 0 {
            shared = turn.next();
        }
        cpus.extend(shared.into_iter().cycle().take(modest));
    }
    cpus.extend(turn.take(options.generators + options.sinks));
    cpus
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command, FromArgMatches};

    use super::*;

    fn cpus(words: &[&str]) -> Cpus {
        let command = BenchOptions::augment_args(Command::new("engine"));
        let words = ["engine", "--backend=cuda"].iter().chain(words);
        let matches = command.try_get_matches_from(words).unwrap();
        Cpus::assign(&BenchOptions::from_arg_matches(&matches).unwrap()).unwrap()
    }

    #[test]
    fn engine_and_tx_lcores_share_cpus_if_told_so() {
        let words = ["--engines=3", "--rx-queues=1", "--generators=2"];
        let apart = cpus(&[&words[..], &["--cpus=0,1,2,3,4,5,6,7,8,9,10,11,12"]].concat());
        assert_eq!(apart.lcores, (1..13).collect::<Vec<_>>());
        assert!(apart.clients.is_empty());
        let words = [
            &words[..],
            &["--share-cpus=2", "--cpus=0,1,2,3,4,5,6,7,8,9"],
        ]
        .concat();
        let together = cpus(&words);
        // rx, engine, tx of each, the generators, the sink.
        let wanted = [1, 2, 2, 3, 2, 2, 4, 5, 5, 6, 7, 8];
        assert_eq!(together.lcores, wanted);
        assert_eq!(together.clients, [9]);
        assert_eq!(together.main, Some(0));
    }
}
