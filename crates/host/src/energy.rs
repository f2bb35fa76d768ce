//! Energy that a host's processors took: RAPL's counters, as the kernel shows them.
//!
//! The kernel's powercap framework (Documentation/power/powercap/powercap.rst) has a folder per
//! zone under `/sys/class/powercap`: `name`, `energy_uj` in microjoules, and `max_energy_range_uj`,
//! behind which the counter begins at 0 again. AMD's processors have the same folders. Since Linux
//! 5.10 only root reads `energy_uj`, and virtual machines have none of this.

use std::sync::Mutex;

use crate::topology::Root;

const ZONES: &str = "/sys/class/powercap";

/// The energy counters of a host's processor packages.
///
/// A counter wraps after some 260 kJ: it is to be read more often than that, at 300 W every ten
/// minutes.
#[derive(Debug)]
pub struct PackageEnergy {
    root: Root,
    packages: Mutex<Vec<Package>>,
}

#[derive(Debug)]
struct Package {
    name: String,
    /// Folder of the package.
    zone: String,
    /// Microjoules behind which the counter begins anew.
    range: u64,
    last: u64,
    /// Microjoules since it was found.
    sum: u64,
}

impl PackageEnergy {
    /// Finds the packages under `root` whose counters can be read; there may be none.
    pub fn find(root: &Root) -> Self {
        let package = |zone: String| {
            // Those inside of a package are named intel-rapl:0:1.
            let number = zone.split_once(':')?.1.to_owned();
            let folder = format!("{ZONES}/{zone}");
            let name: String = root.parse(format!("{folder}/name"))?;
            if number.contains(':') || !name.starts_with("package") || zone.contains("mmio") {
                return None;
            }
            Some(Package {
                name,
                range: root.parse(format!("{folder}/max_energy_range_uj"))?,
                last: root.parse(format!("{folder}/energy_uj"))?,
                zone: folder,
                sum: 0,
            })
        };
        let packages = root.list(ZONES).into_iter().filter_map(package);
        Self {
            packages: Mutex::new(packages.collect()),
            root: root.clone(),
        }
    }

    /// Joules of each package, by its name, since it was found.
    pub fn joules(&self) -> Vec<(String, f64)> {
        let mut packages = ground::lock(&self.packages);
        let joules = packages.iter_mut().map(|package| {
            let now = self.root.parse(format!("{}/energy_uj", package.zone));
            package.add(now.unwrap_or(package.last));
            (package.name.clone(), package.sum as f64 * 1e-6)
        });
        joules.collect()
    }
}

impl Package {
    fn add(&mut self, now: u64) {
        self.sum += match now.checked_sub(self.last) {
            Some(more) => more,
            None => now + self.range.saturating_sub(self.last),
        };
        self.last = now;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn packages_count_on_behind_the_end_of_their_counters() {
        let folder = tempfile::tempdir().unwrap();
        let write = |zone: &str, file: &str, text: &str| {
            let zone = folder.path().join("sys/class/powercap").join(zone);
            fs::create_dir_all(&zone).unwrap();
            fs::write(zone.join(file), format!("{text}\n")).unwrap();
        };
        let root = Root::new(folder.path());
        assert!(PackageEnergy::find(&root).joules().is_empty());
        for (zone, name) in [
            ("intel-rapl:0", "package-0"),
            ("intel-rapl:0:0", "dram"),
            ("intel-rapl:1", "package-1"),
            ("intel-rapl:2", "psys"),
            ("intel-rapl-mmio:0", "package-0"),
        ] {
            write(zone, "name", name);
            write(zone, "max_energy_range_uj", "9000000");
            write(zone, "energy_uj", "1000000");
        }
        // What may not be read is left out.
        write("intel-rapl:3", "name", "package-3");
        let energy = PackageEnergy::find(&root);
        let joules = |zero: f64, one: f64| {
            vec![
                ("package-0".to_owned(), zero),
                ("package-1".to_owned(), one),
            ]
        };
        assert_eq!(energy.joules(), joules(0.0, 0.0));
        write("intel-rapl:0", "energy_uj", "8000000");
        write("intel-rapl:1", "energy_uj", "1500000");
        assert_eq!(energy.joules(), joules(7.0, 0.5));
        write("intel-rapl:0", "energy_uj", "500000");
        assert_eq!(energy.joules(), joules(8.5, 0.5));
        fs::remove_file(
            folder
                .path()
                .join("sys/class/powercap/intel-rapl:1/energy_uj"),
        )
        .unwrap();
        assert_eq!(energy.joules(), joules(8.5, 0.5));
    }
}
