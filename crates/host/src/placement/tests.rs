use IdlePolicy::{Poll, Share};

use super::*;
use crate::topology::Root;

/// One engine with these wishes on CPUs of which nothing else is known; the host has 16.
fn place(rx: &[Option<usize>], tx: Option<usize>, allowed: &str) -> EnginePlan {
    let machine = Machine::unknown(&(0..16).collect());
    let wishes = Wishes {
        rx: rx.to_vec(),
        tx,
        tx_lcores: 1,
        ..Wishes::default()
    };
    let plan = plan(&machine, &[wishes], &allowed.parse().unwrap(), None);
    plan.engines.into_iter().next().unwrap()
}

fn idle(plan: &EnginePlan) -> Vec<IdlePolicy> {
    plan.idle(|_| true)
}

#[test]
fn with_cpus_enough_every_lcore_has_its_own() {
    let plan = place(&[None, None], None, "0-6");
    assert_eq!(plan.lcore_cpus(), [1, 2, 3, 4]);
    assert_eq!(plan.housekeeping.to_string(), "0");
    assert_eq!(plan.worker_cpus(), [5, 6, 3]);
    assert_eq!(idle(&plan), [Poll; 4]);
    let names: Vec<_> = plan.lcores.iter().map(|lcore| &lcore.name[..]).collect();
    assert_eq!(names, ["rx0", "rx1", "engine", "tx"]);
}

/// The controller gives one CPU to each of receive, send and the rest, and runs the process on the
/// last alone.
#[test]
fn named_cpus_are_taken_also_from_outside_and_poll_whatever_the_engine_does() {
    let plan = place(&[Some(4)], Some(5), "6");
    assert_eq!(plan.lcore_cpus(), [4, 6, 5]);
    assert_eq!(plan.housekeeping.to_string(), "6");
    assert_eq!(plan.worker_cpus(), [6]);
    assert_eq!(idle(&plan), [Poll, Share, Poll]);
    let plan = place(&[Some(4)], Some(5), "6-7");
    assert_eq!(plan.lcore_cpus(), [4, 7, 5]);
    assert_eq!(plan.housekeeping.to_string(), "6");
    assert_eq!(idle(&plan), [Poll; 3]);
}

#[test]
fn too_few_are_shared() {
    let plan = place(&[None, None], None, "0-1");
    assert_eq!(plan.lcore_cpus(), [1, 0, 1, 0]);
    assert_eq!(idle(&plan), [Share; 4]);
    let plan = place(&[Some(0)], Some(0), "0");
    assert_eq!(plan.lcore_cpus(), [0, 0, 0]);
    assert_eq!(idle(&plan), [Share; 3]);
}

/// Engines that are started by themselves, each with its slot, take what one plan of all gives
/// them.
#[test]
fn engines_of_a_host_do_not_meet() {
    let machine = Machine::unknown(&(0..16).collect());
    let wishes = Wishes {
        rx: vec![None],
        tx_lcores: 1,
        ..Wishes::default()
    };
    let plan = plan(&machine, &vec![wishes; 3], &machine.online(), None);
    let mut seen = CpuList::default();
    for engine in &plan.engines {
        let mut cpus: CpuList = engine.lcore_cpus().into_iter().collect();
        cpus.extend(engine.housekeeping.iter().chain(engine.worker_cpus()));
        assert!(cpus.and(&seen).is_empty(), "{cpus} {seen}");
        assert_eq!(idle(engine), [Poll; 3]);
        seen.extend(cpus.iter());
    }
}

/// Twice as many CPUs as engines are enough if those lcores share that mostly wait.
#[test]
fn engine_and_tx_lcores_share_cpus_where_that_is_wished() {
    let machine = Machine::unknown(&(0..32).collect());
    let wishes = Wishes {
        rx: vec![None],
        tx_lcores: 1,
        shares_cpus: true,
        ..Wishes::default()
    };
    let engines = vec![wishes; 10];
    for (allowed, most) in [("0-19", 20), ("0-31", 32), ("8-24", 17)] {
        let plan = plan(&machine, &engines, &allowed.parse().unwrap(), None);
        let (mut rx, mut rest) = (CpuList::default(), BTreeMap::new());
        for lcore in plan.engines.iter().flat_map(|engine| &engine.lcores) {
            if let Role::Rx(_) = lcore.role {
                assert!(!rx.contains(lcore.cpu), "{allowed}: {}", lcore.cpu);
                rx.extend([lcore.cpu]);
            } else {
                *rest.entry(lcore.cpu).or_insert(0.0) += lcore.role.share();
                assert_eq!(lcore.idle, Share);
            }
        }
        assert!(rx.len() + rest.len() <= most, "{allowed}: {rx} {rest:?}");
        assert!(
            rest.keys().all(|&cpu| !rx.contains(cpu)),
            "{allowed}: {rx} {rest:?}"
        );
        assert!(
            rest.values().all(|&share| share <= FULL),
            "{allowed}: {rest:?}"
        );
    }
    // Where there are enough, no engine meets another.
    let plan = plan(&machine, &engines, &"0-19".parse().unwrap(), None);
    let warned: Vec<_> = plan.warnings.iter().map(|warning| warning.rule).collect();
    assert!(!warned.contains(&"too-few-cores"), "{:?}", plan.warnings);
    for (number, engine) in plan.engines.iter().enumerate() {
        let cpus = engine.lcore_cpus();
        assert!(
            cpus.iter().all(|cpu| cpu / 2 == number),
            "{number}: {cpus:?}"
        );
        assert_eq!(cpus[1], cpus[2]);
    }
}

/// One rx lcore was seen to place 1.75 Gsample/s of both polarisations at 10 bits
/// (docs/performance.md).
#[test]
fn rx_lcores_are_too_few_beyond_what_was_measured() {
    let machine = Machine::unknown(&(0..16).collect());
    let told = |lcores: usize, gbps| {
        let wishes = Wishes {
            rx: vec![None; lcores],
            tx_lcores: 1,
            input_gbps: gbps,
            ..Wishes::default()
        };
        let plan = plan(&machine, &[wishes], &machine.online(), None);
        let mut warnings = plan.warnings.into_iter();
        warnings.find(|warning| warning.rule == "receive-rate")
    };
    let payload = |rate: f64, bits: f64| Some(2.0 * rate * bits / 1e9);
    assert_eq!(told(1, payload(1.712e9, 10.0)), None);
    assert_eq!(told(1, payload(1.75e9, 10.0)), None);
    let warning = told(1, payload(1.712e9, 12.0)).unwrap().text;
    assert!(
        warning.contains("41.1 Gb/s")
            && warning.contains("--recv-affinity 2 entries, such as -1,-1"),
        "{warning}"
    );
    assert_eq!(told(2, payload(3.5e9, 10.0)), None);
    assert!(
        told(2, payload(3.6e9, 10.0))
            .unwrap()
            .text
            .contains("-1,-1,-1")
    );
    assert_eq!(told(1, None), None);
}

/// Engines that run already have their huge pages: one that starts counts its own buffers alone,
/// and what is advised leaves the others theirs.
#[test]
fn an_engine_that_starts_needs_free_pages_for_itself_alone() {
    let mut machine = Machine::unknown(&(0..16).collect());
    let told = |machine: &Machine, starting: Option<usize>| {
        let wishes = |engine| Wishes {
            rx: vec![None],
            tx_lcores: 1,
            memory: vec![Memory {
                what: PACKET_BUFFERS.into(),
                bytes: 400 << 20,
            }],
            starting: starting == Some(engine),
            ..Wishes::default()
        };
        let engines: Vec<_> = (0..4).map(wishes).collect();
        let plan = plan(machine, &engines, &machine.online(), None);
        let mut warnings = plan.warnings.into_iter();
        let warning = warnings.find(|warning| warning.rule == "huge-pages");
        warning.map(|warning| warning.text)
    };
    let mut pages = |all, free| {
        let node = machine.nodes.get_mut(&0).unwrap();
        node.huge_pages = [(2048, (all, free)), (1 << 20, (0, 0))].into();
        machine.clone()
    };
    // Three of four run; nobody starts.
    assert_eq!(told(&pages(800, 200), Some(3)), None);
    assert_eq!(told(&pages(0, 0), None), None);
    let text = told(&pages(800, 150), Some(3)).unwrap();
    assert!(
        text.contains("take 400 MiB, 300 MiB of huge pages are free there")
            && text.contains("HUGE_PAGES_2M=850 in /etc/karoo/host.conf, then")
            && text.ends_with(
                "echo 850 | sudo tee /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
            ),
        "{text}"
    );
    let mut two = pages(0, 0);
    two.nodes.insert(1, two.nodes[&0].clone());
    let text = told(&two, Some(0)).unwrap();
    assert!(
        text.contains("Have 200 huge pages of 2 MiB on node 0: HUGE_PAGES_2M=400 in")
            && text.ends_with(
                "200 | sudo tee /sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages"
            ),
        "{text}"
    );
}

/// A recorded host may say anything.
#[test]
fn sizes_that_no_host_has_are_as_large_as_can_be() {
    let folder = tempfile::tempdir().unwrap();
    let largest = u64::MAX.to_string();
    let node = "sys/devices/system/node/node0";
    let pages = format!("{node}/hugepages/hugepages-{largest}kB");
    for (path, text) in [
        ("sys/devices/system/cpu/online".to_owned(), "0-3"),
        (format!("{node}/cpulist"), "0-3"),
        (
            format!("{node}/meminfo"),
            &format!("Node 0 MemTotal: {largest} kB"),
        ),
        (format!("{pages}/nr_hugepages"), &largest),
        (format!("{pages}/free_hugepages"), "7"),
    ] {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let machine = Machine::read(&Root::new(folder.path())).unwrap();
    assert_eq!(machine.nodes[&0].memory, u64::MAX);
    let engine = Wishes {
        starting: true,
        memory: vec![Memory {
            what: PACKET_BUFFERS.to_owned(),
            bytes: 1 << 30,
        }],
        ..Wishes::default()
    };
    let plan = plan(&machine, &[engine], &machine.online(), None);
    assert!(plan.warnings.iter().all(|of| of.rule != "huge-pages"));
}
