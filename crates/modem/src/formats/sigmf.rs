//! SigMF recordings: what samples are, beside them.
//!
//! Read and written are recordings of one channel, with little-endian `cf32` or `ci16` samples.
//! Source: *Signal Metadata Format Specification* 1.2. Checksums (`core:sha512`) are not checked.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::samples::{FullScale, SampleFormat};

/// Most bytes that metadata may have.
pub const MOST_META_BYTES: u64 = 16 << 20;
/// Version of the specification that is written.
const VERSION: &str = "1.2.0";

/// Why metadata are refused.
#[derive(Debug, thiserror::Error)]
pub enum SigmfError {
    /// No JSON, or JSON without what a recording needs.
    #[error("no SigMF metadata: {0}")]
    Json(#[from] serde_json::Error),
    /// Samples of a type that is not read.
    #[error("core:datatype {0:?}: cf32_le and ci16_le are read; convert the recording")]
    Datatype(String),
    /// A field whose value cannot be used.
    #[error("{field} {value}: it must be {rule}")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// Value of the field.
        value: String,
        /// What it must be.
        rule: &'static str,
    },
}

fn refuse(field: &'static str, value: impl ToString, rule: &'static str) -> SigmfError {
    SigmfError::Field {
        field,
        value: value.to_string(),
        rule,
    }
}

/// The two files of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingPaths {
    /// Metadata.
    pub meta: PathBuf,
    /// Samples.
    pub data: PathBuf,
}

impl RecordingPaths {
    /// The files of a recording that either of them names, or none for another name.
    pub fn of(path: &Path) -> Option<RecordingPaths> {
        let extension = path.extension()?.to_str()?;
        let with = |extension: &str| path.with_extension(OsString::from(extension));
        matches!(extension, "sigmf-meta" | "sigmf-data").then(|| RecordingPaths {
            meta: with("sigmf-meta"),
            data: with("sigmf-data"),
        })
    }
}

/// A stretch of samples with a label.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Annotation {
    /// First sample.
    #[serde(rename = "core:sample_start")]
    pub sample_start: u64,
    /// Number of samples.
    #[serde(rename = "core:sample_count", skip_serializing_if = "Option::is_none")]
    pub sample_count: Option<u64>,
    /// What it is, in a word.
    #[serde(rename = "core:label", skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// What a recording is.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// How a sample is written.
    pub format: SampleFormat,
    /// Value that the largest integer stands for, if it is said.
    pub full_scale: Option<FullScale>,
    /// Samples per second.
    pub sample_rate: Option<f64>,
    /// Frequency of the carrier in Hz.
    pub frequency: Option<f64>,
    /// What it is, in words.
    pub description: Option<String>,
    /// Labelled stretches.
    pub annotations: Vec<Annotation>,
    /// Bytes before the first sample.
    pub header_bytes: u64,
    /// Bytes behind the last sample.
    pub trailing_bytes: u64,
}

#[derive(Serialize, Deserialize)]
struct Meta {
    global: Global,
    #[serde(default)]
    captures: Vec<Capture>,
    #[serde(default)]
    annotations: Vec<Annotation>,
}

#[derive(Serialize, Deserialize)]
struct Global {
    #[serde(rename = "core:datatype")]
    datatype: String,
    #[serde(rename = "core:version")]
    version: String,
    #[serde(rename = "core:sample_rate", skip_serializing_if = "Option::is_none")]
    sample_rate: Option<f64>,
    #[serde(rename = "core:num_channels", skip_serializing_if = "Option::is_none")]
    channels: Option<u64>,
    #[serde(rename = "core:description", skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(rename = "core:recorder", skip_serializing_if = "Option::is_none")]
    recorder: Option<String>,
    #[serde(rename = "core:metadata_only", skip_serializing_if = "Option::is_none")]
    metadata_only: Option<bool>,
    #[serde(rename = "core:dataset", skip_serializing_if = "Option::is_none")]
    dataset: Option<String>,
    #[serde(
        rename = "core:trailing_bytes",
        skip_serializing_if = "Option::is_none"
    )]
    trailing_bytes: Option<u64>,
    #[serde(
        rename = "core:extensions",
        default,
        skip_serializing_if = "Vec::is_empty"
    )]
    extensions: Vec<Extension>,
    #[serde(rename = "karoo:full_scale", skip_serializing_if = "Option::is_none")]
    full_scale: Option<f32>,
}

#[derive(Serialize, Deserialize)]
struct Extension {
    name: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    optional: bool,
}

#[derive(Serialize, Deserialize)]
struct Capture {
    #[serde(rename = "core:sample_start")]
    sample_start: u64,
    #[serde(rename = "core:frequency", skip_serializing_if = "Option::is_none")]
    frequency: Option<f64>,
    #[serde(rename = "core:header_bytes", skip_serializing_if = "Option::is_none")]
    header_bytes: Option<u64>,
}

impl Recording {
    /// A recording of which only the format is known.
    pub fn new(format: SampleFormat) -> Recording {
        Recording {
            format,
            full_scale: None,
            sample_rate: None,
            frequency: None,
            description: None,
            annotations: Vec::new(),
            header_bytes: 0,
            trailing_bytes: 0,
        }
    }

    /// Reads metadata.
    pub fn from_json(text: &str) -> Result<Recording, SigmfError> {
        let meta: Meta = serde_json::from_str(text)?;
        let global = meta.global;
        let format = match global.datatype.as_str() {
            "cf32_le" => SampleFormat::Cf32,
            "ci16_le" => SampleFormat::Ci16,
            _ => return Err(SigmfError::Datatype(global.datatype)),
        };
        if let Some(channels) = global.channels.filter(|&channels| channels != 1) {
            return Err(refuse("core:num_channels", channels, "1"));
        }
        if global.metadata_only == Some(true) {
            let rule = "false: there are no samples beside it";
            return Err(refuse("core:metadata_only", true, rule));
        }
        if let Some(dataset) = global.dataset {
            let rule = "absent: samples are read from .sigmf-data";
            return Err(refuse("core:dataset", dataset, rule));
        }
        if let Some(needed) = global.extensions.iter().find(|e| !e.optional) {
            let rule = "optional: no extension is known that samples need";
            return Err(refuse("core:extensions", &needed.name, rule));
        }
        let rate = global.sample_rate;
        if let Some(rate) = rate.filter(|rate| !(*rate > 0.0 && rate.is_finite())) {
            return Err(refuse("core:sample_rate", rate, "above 0"));
        }
        let late = |capture: &&Capture| capture.header_bytes.unwrap_or(0) > 0;
        if let Some(capture) = meta.captures.iter().skip(1).find(late) {
            let rule = "0 in all captures but the first";
            let bytes = capture.header_bytes.unwrap_or(0);
            return Err(refuse("core:header_bytes", bytes, rule));
        }
        let full_scale = match global.full_scale {
            Some(value) => match FullScale::new(value) {
                Ok(full_scale) => Some(full_scale),
                Err(_) => return Err(refuse("karoo:full_scale", value, "1e-6 to 1e6")),
            },
            None => None,
        };
        let first = meta.captures.first();
        Ok(Recording {
            format,
            full_scale,
            sample_rate: rate,
            frequency: first.and_then(|capture| capture.frequency),
            description: global.description,
            annotations: meta.annotations,
            header_bytes: first.and_then(|c| c.header_bytes).unwrap_or(0),
            trailing_bytes: global.trailing_bytes.unwrap_or(0),
        })
    }

    /// Writes metadata.
    pub fn to_json(&self) -> String {
        let datatype = match self.format {
            SampleFormat::Cf32 => "cf32_le",
            SampleFormat::Ci16 => "ci16_le",
        };
        let extension = self.full_scale.map(|_| Extension {
            name: "karoo".to_owned(),
            version: "1.0.0".to_owned(),
            optional: true,
        });
        let some = |bytes: u64| (bytes > 0).then_some(bytes);
        let meta = Meta {
            global: Global {
                datatype: datatype.to_owned(),
                version: VERSION.to_owned(),
                sample_rate: self.sample_rate,
                channels: Some(1),
                description: self.description.clone(),
                recorder: Some("karoo".to_owned()),
                metadata_only: None,
                dataset: None,
                trailing_bytes: some(self.trailing_bytes),
                extensions: extension.into_iter().collect(),
                full_scale: self.full_scale.map(FullScale::value),
            },
            captures: vec![Capture {
                sample_start: 0,
                frequency: self.frequency,
                header_bytes: some(self.header_bytes),
            }],
            annotations: self.annotations.clone(),
        };
        // Only maps with other keys than words, and failing implementations, cannot be written.
        serde_json::to_string_pretty(&meta).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn recording() -> Recording {
        Recording {
            full_scale: FullScale::new(2.0).ok(),
            sample_rate: Some(80e6),
            frequency: Some(2.4e9),
            description: Some("frames".to_owned()),
            annotations: vec![Annotation {
                sample_start: 24,
                sample_count: Some(48_288),
                label: Some("qpsk".to_owned()),
            }],
            ..Recording::new(SampleFormat::Ci16)
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let recording = recording();
        let back = Recording::from_json(&recording.to_json()).unwrap();
        assert_eq!(back, recording);
    }

    #[test]
    fn either_file_names_the_recording() {
        let paths = RecordingPaths::of(Path::new("/a/b.sigmf-data")).unwrap();
        assert_eq!(paths.meta, Path::new("/a/b.sigmf-meta"));
        assert_eq!(RecordingPaths::of(&paths.meta), Some(paths));
        assert_eq!(RecordingPaths::of(Path::new("/a/b.cf32")), None);
        // An archive.
        assert_eq!(RecordingPaths::of(Path::new("/a/b.sigmf")), None);
    }

    #[test]
    fn recordings_that_cannot_be_read_are_refused_by_field() {
        let rows = [
            (r#"{}"#, "global"),
            (r#"[1, 2"#, "no SigMF"),
            (
                r#"{"global": {"core:datatype": "ru8", "core:version": "1.0.0"}}"#,
                "ru8",
            ),
            (
                r#"{"global": {"core:datatype": "cf32_le", "core:version": "1.0.0",
                    "core:num_channels": 2}}"#,
                "core:num_channels 2",
            ),
            (
                r#"{"global": {"core:datatype": "cf32_le", "core:version": "1.0.0",
                    "core:sample_rate": -1}}"#,
                "core:sample_rate -1",
            ),
            (
                r#"{"global": {"core:datatype": "cf32_le", "core:version": "1.0.0",
                    "core:extensions": [{"name": "magic", "version": "1", "optional": false}]}}"#,
                "magic",
            ),
            (
                r#"{"global": {"core:datatype": "cf32_le", "core:version": "1.0.0"},
                    "captures": [{"core:sample_start": 0},
                    {"core:sample_start": 9, "core:header_bytes": 4}]}"#,
                "core:header_bytes 4",
            ),
        ];
        for (text, wanted) in rows {
            let error = Recording::from_json(text).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn fields_that_are_not_known_are_left_out() {
        let text = r#"{"global": {"core:datatype": "cf32_le", "core:version": "1.0.0",
            "other:field": [1]}, "captures": [{"core:sample_start": 0, "core:frequency": 1e9}],
            "annotations": [{"core:sample_start": 3, "x": {}}]}"#;
        let recording = Recording::from_json(text).unwrap();
        assert_eq!(recording.frequency, Some(1e9));
        assert_eq!(recording.annotations[0].sample_start, 3);
    }

    proptest! {
        #[test]
        fn metadata_cut_or_changed_do_not_panic(at in 0usize..900, byte: u8) {
            let mut text = recording().to_json().into_bytes();
            let at = at % text.len();
            let _ = Recording::from_json(&String::from_utf8_lossy(&text[..at]));
            text[at] = byte;
            let _ = Recording::from_json(&String::from_utf8_lossy(&text));
        }
    }
}
