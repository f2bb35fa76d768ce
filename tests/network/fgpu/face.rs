//! What clients of a live engine rely on: its sensors and metrics, as `tests/data/face` lists them.
//! A change there is one that controllers, dashboards and alerts see.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};

use super::rig::{KATCP, Rig};
use crate::support::data;

/// Holds `found` against the list in `file`.
fn check(file: &str, found: &BTreeSet<String>) {
    let path = data(&format!("face/{file}"));
    if std::env::var_os("KAROO_TEST_ACCEPT").is_some() {
        let lines: Vec<_> = found.iter().map(|line| format!("{line}\n")).collect();
        fs::write(&path, lines.concat()).unwrap();
    }
    let listed = fs::read_to_string(path).unwrap();
    let listed: BTreeSet<_> = listed.lines().map(str::to_owned).collect();
    let (gone, new): (Vec<_>, Vec<_>) = (
        listed.difference(found).collect(),
        found.difference(&listed).collect(),
    );
    assert!(
        gone.is_empty() && new.is_empty(),
        "{file}: gone {gone:#?}, new {new:#?}; if this is meant, run the test again with KAROO_TEST_ACCEPT=1"
    );
}

#[test]
fn sensors_and_metrics_are_those_that_are_listed() {
    let Some(mut rig) = Rig::live("face", &[]) else {
        return;
    };
    let sensors = super::cable::Cable::within(&rig.cable.engine, || {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, KATCP)).unwrap();
        stream.write_all(b"?sensor-list[1]\n").unwrap();
        let mut sensors = BTreeSet::new();
        for line in BufReader::new(stream).lines() {
            let line = line.unwrap();
            if line.starts_with("!sensor-list") {
                break;
            }
            // Name, description, units, type; what follows depends on the type.
            let fields: Vec<_> = line.split(' ').collect();
            if fields[0].starts_with("#sensor-list") {
                sensors.insert(format!("{} {} {}", fields[1], fields[4], fields[3]));
            }
        }
        sensors
    });
    check("sensors.txt", &sensors);
    let text = rig.scrape();
    let mut metrics = BTreeSet::new();
    for line in text.lines() {
        // Only where the host tells of its processors' energy.
        if line.contains("karoo_energy_joules") {
            continue;
        }
        if let Some(family) = line.strip_prefix("# TYPE ") {
            metrics.insert(family.to_owned());
            continue;
        }
        let Some((_, labels)) = line.split_once('{') else {
            continue;
        };
        let name = line.split('{').next().unwrap();
        let labels = labels.split('}').next().unwrap().split("\",");
        let labels: Vec<_> = labels
            .map(|label| label.split('=').next().unwrap())
            .collect();
        metrics.insert(format!("{name}{{{}}}", labels.join(",")));
    }
    check("metrics.txt", &metrics);
    rig.send_all();
    rig.wait_for_all();
    rig.end();
}
