//! What an engine needs, held against what hosts and control groups have.

use std::fs;

use clap::{Args, FromArgMatches};

use super::*;
use crate::config::FgpuOptions;

fn demand(what: &str, bytes: u64) -> Demand {
    Demand {
        what: what.to_owned(),
        bytes,
        option: format!("--{what}"),
        value: 1,
    }
}

#[test]
fn the_largest_demand_is_named_when_the_sum_does_not_fit() {
    let demands = || vec![demand("a", 1 << 20), demand("b", 3 << 20)];
    let there = |bytes| Available { bytes, group: None };
    assert_eq!(compare(demands(), there(4 << 20)), Ok(()));
    let error = compare(demands(), there((4 << 20) - 1)).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("lower --b (3 MiB), --a (1 MiB)") && error.contains("3 MiB are"),
        "{error}"
    );
    let endless = vec![demand("a", u64::MAX), demand("b", u64::MAX)];
    assert!(compare(endless, there(u64::MAX - 1)).is_err());
    // What no option lowers is not named as one.
    let fixed = Demand::fixed("c", 9 << 20, "");
    let error = compare(vec![fixed, demand("a", 1 << 20)], there(0)).unwrap_err();
    let error = error.to_string();
    assert!(error.starts_with("--a 1: a would take 1 MiB"), "{error}");
    assert!(error.ends_with("lower --a (1 MiB)"), "{error}");
}

/// The numbers of an engine as MeerKAT's controller starts it.
#[test]
fn the_controllers_engine_fits_what_the_controller_gives() {
    const ARGS: [&str; 9] = [
        "fgpu",
        "--recv-interface=eth0",
        "--send-interface=eth0",
        "--adc-sample-rate=1712000000.0",
        "--feng-id=0",
        "--array-size=64",
        "--sync-time=1763700000.0",
        "--wideband=name=w,channels=4096,taps=16,jones_per_batch=1048576,dst=239.10.0.0+63:7148",
        "239.102.0.64+15:7148",
    ];
    let command = clap::Command::new("fgpu");
    let command = FgpuOptions::with_defaults(FgpuOptions::augment_args(command));
    let matches = command.try_get_matches_from(ARGS).unwrap();
    let options = FgpuOptions::from_arg_matches(&matches).unwrap();
    let config = options.resolve().unwrap().engine;
    for (kind, on_gpu) in [
        (MemoryKind::Host, false),
        (MemoryKind::Pinned, true),
        (MemoryKind::Bar, true),
    ] {
        let mut demands = Demand::on_host(&config, 3, 1, kind);
        demands.extend(Demand::of_process(on_gpu));
        let sum = Demand::sum(&demands) >> 20;
        assert!((500..1700).contains(&sum), "{kind:?}: {sum} MiB");
    }
    for kind in [MemoryKind::Pinned, MemoryKind::Bar] {
        let sum = Demand::sum(&Demand::on_gpu(&config, 3, kind)) >> 20;
        assert!((500..1850).contains(&sum), "{kind:?}: {sum} MiB of the GPU");
    }
}

#[test]
fn the_tightest_control_group_counts() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::new(folder.path());
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let bytes = |root: &Root| Available::under(root).map(|left| left.bytes);
    assert_eq!(bytes(&root), None);
    write("proc/meminfo", "MemTotal: 9000 kB\nMemAvailable: 8000 kB\n");
    assert_eq!(bytes(&root), Some(8000 << 10));
    // A container without groups that it could be told of.
    write("sys/fs/cgroup/memory.max", "7000000\n");
    assert_eq!(bytes(&root), Some(7_000_000));
    let groups = "4:memory:/other\n0::/karoo.slice/karoo-engine.service\n";
    write("proc/self/cgroup", groups);
    assert_eq!(bytes(&root), Some(7_000_000));
    let slice = "sys/fs/cgroup/karoo.slice";
    write(&format!("{slice}/memory.max"), "6000000\n");
    write(&format!("{slice}/memory.current"), "3500000\n");
    assert_eq!(bytes(&root), Some(2_500_000));
    let stat = "anon 2000000\nfile 1500000\ninactive_file 1000000\nactive_file 500000\n";
    write(&format!("{slice}/memory.stat"), stat);
    assert_eq!(bytes(&root), Some(4_000_000));
    let service = format!("{slice}/karoo-engine.service");
    write(&format!("{service}/memory.current"), "10\n");
    write(&format!("{service}/memory.max"), "max\n");
    assert_eq!(bytes(&root), Some(4_000_000));
    write(&format!("{service}/memory.max"), "1000\n");
    assert_eq!(bytes(&root), Some(990));
    // More than a limit that was lowered since.
    write(&format!("{service}/memory.max"), "9\n");
    let left = Available::under(&root).unwrap();
    assert_eq!(left.bytes, 0);
    let text = left.to_string();
    assert!(text.ends_with("karoo-engine.service/memory.max)"), "{text}");
}

/// Docker's groups of version 1, as the host and as the container see them.
#[test]
fn limits_of_the_first_version_count_too() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::new(folder.path());
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("proc/meminfo", "MemAvailable: 8000000 kB\n");
    write(
        "proc/self/cgroup",
        "5:cpu,cpuacct:/docker/1f\n4:memory:/docker/1f\n",
    );
    let group = "sys/fs/cgroup/memory";
    write(&format!("{group}/memory.limit_in_bytes"), "1782579200\n");
    write(&format!("{group}/memory.usage_in_bytes"), "30000000\n");
    let stat = "cache 1\ntotal_active_file 4000000\ntotal_inactive_file 6000000\n";
    write(&format!("{group}/memory.stat"), stat);
    let left = Available::under(&root).unwrap();
    assert_eq!(left.bytes, 1_782_579_200 - 20_000_000);
    // No limit is a very large one.
    let above = format!("{group}/docker/1f/memory.limit_in_bytes");
    write(&above, "9223372036854771712\n");
    assert_eq!(Available::under(&root).unwrap(), left);
}
