//! Energy that engines' devices take: the GPU, and the processors of the host.

use host::energy::PackageEnergy;
use host::topology::Root;
use schemars::JsonSchema;
use serde::Serialize;

use crate::gpu::GpuEnergy;

/// Energy counters of a GPU and of the host's processors, as far as they can be read. They count
/// whole devices, whoever else uses them.
#[derive(Debug, Default)]
pub struct EnergyMeter {
    gpu: Option<(String, GpuEnergy)>,
    packages: Option<PackageEnergy>,
}

/// Joules of one device.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct DeviceEnergy {
    /// Name of the device: `gpu` and its PCI address, or that of a processor package.
    pub device: String,
    /// Joules.
    pub joules: f64,
}

impl EnergyMeter {
    /// Counters of this host's processors, and of the GPU at a PCI address if one computes.
    pub fn open(gpu: Option<&str>) -> Self {
        let gpu = gpu.and_then(|address| {
            let opened = GpuEnergy::open(address);
            let opened =
                opened.inspect_err(|error| tracing::debug!(%error, "no energy of the GPU"));
            Some((format!("gpu {address}"), opened.ok()?))
        });
        Self {
            gpu,
            packages: Some(PackageEnergy::find(&Root::host())),
        }
    }

    /// Joules of each device since some moment.
    pub fn read(&self) -> Vec<DeviceEnergy> {
        let gpu = self.gpu.iter().filter_map(|(device, counter)| {
            let joules = counter.joules()?;
            Some((device.clone(), joules))
        });
        let packages = self.packages.iter().flat_map(PackageEnergy::joules);
        gpu.chain(packages)
            .map(|(device, joules)| DeviceEnergy { device, joules })
            .collect()
    }
}

impl DeviceEnergy {
    /// What each device took between two readings.
    pub fn between(before: &[Self], after: &[Self]) -> Vec<Self> {
        let taken = |now: &Self| {
            let then = before.iter().find(|then| then.device == now.device)?;
            Some(Self {
                device: now.device.clone(),
                joules: now.joules - then.joules,
            })
        };
        after.iter().filter_map(taken).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_is_of_devices_read_twice() {
        let of = |device: &str, joules| DeviceEnergy {
            device: device.to_owned(),
            joules,
        };
        let before = [of("gpu 0000:41:00.0", 100.0), of("package-0", 5.0)];
        let after = [of("package-0", 7.5), of("package-1", 1.0)];
        let taken = DeviceEnergy::between(&before, &after);
        assert_eq!(taken, [of("package-0", 2.5)]);
    }
}
