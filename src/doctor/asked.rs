//! What an engine was asked to do, as far as it tells what should come.

use std::net::SocketAddrV4;

use dsp::SampleBits;

use crate::config::{
    ConfigError, FgpuConfig, FgpuOptions, InputConfig, NarrowbandOptions, RecvConfig,
    WidebandOptions, check_rate, check_sync_time,
};
use crate::net::format_endpoints;

/// More samples than fit a packet, however narrow.
const MAX_SAMPLES: usize = 1 << 16;

/// An engine's options. All but the digitisers' destinations and the interfaces may be unknown.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Digitisers' destinations, both polarisations'.
    pub endpoints: Vec<SocketAddrV4>,
    /// Interfaces to receive on, as they were given, each once.
    pub receive: Vec<String>,
    /// Interfaces to send on, the same.
    pub send: Vec<String>,
    /// Geometry of heaps.
    pub recv: RecvConfig,
    /// Samples a second.
    pub adc_sample_rate: Option<f64>,
    /// UNIX time of sample 0.
    pub sync_time: Option<f64>,
    /// Outputs.
    pub outputs: Vec<AskedOutput>,
    /// Payload bytes of an output's packets.
    pub packet_payload: usize,
}

/// An output.
#[derive(Clone, Debug)]
pub struct AskedOutput {
    /// Name of the output.
    pub name: String,
    /// The option that asks for it.
    pub option: &'static str,
    /// Destinations of the output.
    pub dst: Vec<SocketAddrV4>,
    /// Of narrowband: centre of its band in hertz above 0 Hz of the digitised band, and by how much
    /// it is narrower.
    pub band: Option<(f64, usize)>,
}

impl AskedOutput {
    fn wideband(options: &WidebandOptions) -> Self {
        Self {
            name: options.name.clone(),
            option: "--wideband",
            dst: options.dst.clone(),
            band: None,
        }
    }

    fn narrowband(options: &NarrowbandOptions) -> Self {
        let spec = &options.spec;
        Self {
            option: "--narrowband",
            band: Some((spec.centre_frequency, spec.decimation)),
            ..Self::wideband(&options.common)
        }
    }
}

impl Asked {
    /// What a command line asks for, which may lack what nothing here depends on. A capture has no
    /// wire to look at.
    pub fn of_options(options: &FgpuOptions) -> Result<Self, ConfigError> {
        options.check_input()?;
        let InputConfig::Live {
            endpoints,
            interfaces,
            ..
        } = options.input()?
        else {
            return Err(ConfigError::new(
                "SRC",
                options.src.as_deref().unwrap_or_default(),
                "is a capture file, and the doctor looks at interfaces",
                "give the digitisers' groups, or use karoo replay for the capture",
            ));
        };
        let engine = &options.engine;
        engine.adc_sample_rate.map_or(Ok(()), check_rate)?;
        engine.sync_time.map_or(Ok(()), check_sync_time)?;
        let bits = engine.dig_sample_bits.unwrap_or_default();
        let sample_bits = SampleBits::new(bits).ok_or_else(|| {
            ConfigError::new("--dig-sample-bits", bits, "must be 2 to 16", "try 10")
        })?;
        let packet_samples = engine.recv_packet_samples.unwrap_or_default();
        if !(1..=MAX_SAMPLES).contains(&packet_samples) {
            let rule = format!("must be 1 to {MAX_SAMPLES}, for heaps of one packet");
            return Err(ConfigError::new(
                "--recv-packet-samples",
                packet_samples,
                rule,
                "try 4096",
            ));
        }
        let wideband = engine.wideband.iter().map(AskedOutput::wideband);
        let narrowband = engine.narrowband.iter().map(AskedOutput::narrowband);
        let send = options.send_interface.iter().flat_map(|list| &list.0);
        Ok(Self {
            endpoints,
            receive: once(&interfaces),
            send: once(send),
            recv: RecvConfig {
                packet_samples,
                sample_bits,
                chunk_samples: engine.recv_chunk_samples.unwrap_or_default(),
                mask_timestamp: engine.mask_timestamp,
            },
            adc_sample_rate: engine.adc_sample_rate,
            sync_time: engine.sync_time,
            outputs: wideband.chain(narrowband).collect(),
            packet_payload: options.engine.send_packet_payload,
        })
    }

    /// What a running engine was asked for; `None` if its input is a capture.
    pub fn of_engine(config: &FgpuConfig) -> Option<Self> {
        let InputConfig::Live {
            endpoints,
            interfaces,
            ..
        } = &config.input
        else {
            return None;
        };
        let engine = &config.engine;
        let outputs = engine.outputs.iter().map(|output| AskedOutput {
            name: output.name.clone(),
            option: output.option(),
            dst: output.dst.clone(),
            band: output
                .narrowband
                .as_ref()
                .map(|band| (band.centre_frequency, band.decimation)),
        });
        Some(Self {
            endpoints: endpoints.clone(),
            receive: once(interfaces),
            send: once(&config.egress.interfaces),
            recv: engine.recv.clone(),
            adc_sample_rate: Some(engine.clock.adc_sample_rate),
            sync_time: Some(engine.clock.sync_time),
            outputs: outputs.collect(),
            packet_payload: engine.send.packet_payload,
        })
    }

    /// Digitisers' destinations, for messages.
    pub fn source(&self) -> String {
        format_endpoints(&self.endpoints)
    }

    /// Whether a digitiser's heaps should go there.
    pub fn expects(&self, dst: SocketAddrV4) -> bool {
        self.endpoints.contains(&dst)
    }
}

/// Names without repetition, in their order.
fn once<'a>(names: impl IntoIterator<Item = &'a String>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for name in names {
        if !all.contains(name) {
            all.push(name.clone());
        }
    }
    all
}
