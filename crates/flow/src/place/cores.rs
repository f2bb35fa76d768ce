//! The CPUs that a graph may use, and how far apart they are.

use serde::{Deserialize, Serialize};

use super::pace::rounded;

/// CPUs, what passes between them, as `karoo bench cores --output` writes it, and how fast they
/// are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cores {
    /// The processor's name.
    #[serde(default)]
    pub model: String,
    /// The CPUs, in the order of rows and columns.
    pub cpus: Vec<usize>,
    /// Nanoseconds from a store of the row's CPU until the column's sees it.
    pub latency_ns: Vec<Vec<f64>>,
    /// 10⁹ bytes per second that the column's CPU reads of what the row's wrote last.
    pub gigabytes_per_second: Vec<Vec<f64>>,
    /// How fast each CPU computes, beside the one that costs were measured on; none: all are alike.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paces: Vec<f64>,
}

impl Cores {
    /// CPUs of which any two are as far apart as any others, where nothing was measured.
    pub fn alike(cpus: Vec<usize>, latency_ns: f64, gigabytes_per_second: f64) -> Cores {
        let count = cpus.len();
        let table = |off: f64, own: f64| -> Vec<Vec<f64>> {
            let row = |at| (0..count).map(move |to| if to == at { own } else { off });
            (0..count).map(|at| row(at).collect()).collect()
        };
        Cores {
            model: String::new(),
            cpus,
            latency_ns: table(latency_ns, 0.0),
            gigabytes_per_second: table(gigabytes_per_second, 2.0 * gigabytes_per_second),
            paces: Vec::new(),
        }
    }

    /// The same with these [paces](crate::place::measure_paces), one for each CPU.
    pub fn with_paces(mut self, paces: Vec<f64>) -> Cores {
        self.paces = paces;
        self
    }

    /// The same with paces as CPUs are chosen by: small differences are none.
    pub(super) fn rounded(mut self) -> Cores {
        for pace in &mut self.paces {
            *pace = rounded(*pace);
        }
        self
    }

    /// The same with the fastest CPUs first, and others in their order.
    pub(super) fn fastest_first(&self) -> Cores {
        let mut rows: Vec<usize> = (0..self.cpus.len()).collect();
        rows.sort_by(|&a, &b| self.pace(b).total_cmp(&self.pace(a)));
        let cpus: Vec<usize> = rows.into_iter().map(|row| self.cpus[row]).collect();
        self.only(&cpus)
    }

    /// How fast the CPU of this row computes.
    pub(super) fn pace(&self, row: usize) -> f64 {
        self.paces.get(row).copied().unwrap_or(1.0)
    }

    /// Reads what `karoo bench cores --output` wrote.
    pub fn from_json(text: &str) -> Result<Cores, String> {
        let cores: Cores = serde_json::from_str(text).map_err(|error| error.to_string())?;
        cores.check()?;
        Ok(cores)
    }

    /// The same with these CPUs alone, in their order. CPUs that the tables do not have are left
    /// out.
    pub fn only(&self, cpus: &[usize]) -> Cores {
        let kept: Vec<usize> = cpus
            .iter()
            .filter_map(|cpu| self.cpus.iter().position(|known| known == cpu))
            .collect();
        let table = |rows: &[Vec<f64>]| -> Vec<Vec<f64>> {
            let row = |&from: &usize| kept.iter().map(|&to| rows[from][to]).collect();
            kept.iter().map(row).collect()
        };
        Cores {
            model: self.model.clone(),
            cpus: kept.iter().map(|&at| self.cpus[at]).collect(),
            latency_ns: table(&self.latency_ns),
            gigabytes_per_second: table(&self.gigabytes_per_second),
            paces: match self.paces.is_empty() {
                true => Vec::new(),
                false => kept.iter().map(|&at| self.pace(at)).collect(),
            },
        }
    }

    /// What is wrong with the tables.
    pub fn check(&self) -> Result<(), String> {
        let count = self.cpus.len();
        let square = |table: &[Vec<f64>], least: f64| {
            let right = |value: &f64| value.is_finite() && *value >= least;
            let whole = |row: &Vec<f64>| row.len() == count && row.iter().all(right);
            table.len() == count && table.iter().all(whole)
        };
        if count == 0 {
            return Err("there are no CPUs: give one at least".into());
        }
        let mut seen = std::collections::BTreeSet::new();
        if let Some(cpu) = self.cpus.iter().find(|&&cpu| !seen.insert(cpu)) {
            return Err(format!(
                "CPU {cpu} is there twice: give each CPU one row and one column"
            ));
        }
        if !square(&self.latency_ns, 0.0) || !square(&self.gigabytes_per_second, 1e-6) {
            return Err(
                "the tables have not a row and a column of positive numbers for each CPU: \
                 karoo bench cores --output FILE makes one that has"
                    .into(),
            );
        }
        let right = |pace: &f64| pace.is_finite() && *pace >= 1e-3;
        if !(self.paces.is_empty() || self.paces.len() == count && self.paces.iter().all(right)) {
            return Err("paces are positive numbers, one for each CPU, or none".into());
        }
        Ok(())
    }

    /// For each CPU the first that it could change places with, without any change to the tables.
    pub(super) fn alikes(&self) -> Vec<usize> {
        let count = self.cpus.len();
        let swapped = |a: usize, b: usize| {
            let to = |at: usize| match at {
                at if at == a => b,
                at if at == b => a,
                at => at,
            };
            let same = |table: &[Vec<f64>]| {
                (0..count)
                    .all(|row| (0..count).all(|col| table[row][col] == table[to(row)][to(col)]))
            };
            self.pace(a) == self.pace(b)
                && same(&self.latency_ns)
                && same(&self.gigabytes_per_second)
        };
        (0..count)
            .map(|at| (0..at).find(|&first| swapped(first, at)).unwrap_or(at))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_that_could_change_places_are_known() {
        let mut cores = Cores::alike(vec![3, 5, 7, 9], 40.0, 10.0);
        assert_eq!(cores.alikes(), [0, 0, 0, 0]);
        // 5 and 7 share a cache.
        (cores.latency_ns[1][2], cores.latency_ns[2][1]) = (20.0, 20.0);
        assert_eq!(cores.alikes(), [0, 1, 1, 0]);
        cores.paces = vec![1.0, 1.0, 1.0, 0.5];
        assert_eq!(cores.alikes(), [0, 1, 1, 3]);
        assert_eq!(cores.only(&[9, 3]).paces, [0.5, 1.0]);
        let two = cores.only(&[7, 5, 4]);
        assert_eq!((two.cpus, two.latency_ns[0][1]), (vec![7, 5], 20.0));
    }

    #[test]
    fn tables_with_holes_are_refused() {
        for text in [
            "{}",
            r#"{"cpus": [], "latency_ns": [], "gigabytes_per_second": []}"#,
            r#"{"cpus": [0], "latency_ns": [[]], "gigabytes_per_second": [[1]]}"#,
            r#"{"cpus": [0], "latency_ns": [[0]], "gigabytes_per_second": [[0]]}"#,
            r#"{"cpus": [0], "latency_ns": [[0]], "gigabytes_per_second": [[9]], "paces": [0]}"#,
            r#"{"cpus": [0], "latency_ns": [[0]], "gigabytes_per_second": [[9]], "paces": [1, 1]}"#,
        ] {
            assert!(Cores::from_json(text).is_err(), "{text}");
        }
        let text = r#"{"cpus": [4], "latency_ns": [[0]], "gigabytes_per_second": [[9]]}"#;
        assert_eq!(Cores::from_json(text).unwrap().cpus, [4]);
    }
}
