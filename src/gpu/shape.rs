//! How the transform is cut for a number of channels and a device.

use std::fmt;

use serde::Deserialize;

/// One entry of `kernels/shapes.json`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub(super) struct Shape {
    pub channels: usize,
    /// log₂ of the first factor of the transform.
    pub log_n1: u32,
    /// Columns of one block of the front kernel.
    pub tile: usize,
    /// Columns of one of its threads.
    pub width: usize,
    /// Spectra of one block.
    pub group: usize,
    pub front_threads: u32,
    pub front_blocks: u32,
    pub back_threads: u32,
    pub back_blocks: u32,
}

impl Shape {
    /// Shapes for `channels` whose blocks fit `shared` bytes, the likeliest best first.
    pub fn candidates(channels: usize, shared: usize) -> Vec<Self> {
        let mut all = Self::all();
        all.retain(|shape| shape.channels == channels && shape.shared() <= shared);
        all
    }

    /// What the kernels around a library's transform are. They have no first factor; a tile is of channels.
    pub fn plain(channels: usize) -> Self {
        Self {
            channels,
            log_n1: 0,
            tile: 64,
            width: 1,
            group: 16,
            front_threads: 128,
            front_blocks: 5,
            back_threads: 256,
            back_blocks: 5,
        }
    }

    fn all() -> Vec<Self> {
        // The file is part of the program, and a test reads it.
        serde_json::from_str(include_str!("../../kernels/shapes.json")).unwrap_or_default()
    }

    /// What tells the kernels of one shape from those of another with as many channels.
    pub fn macros(&self) -> [(&'static str, u64); 8] {
        [
            ("LOG_N1", self.log_n1.into()),
            ("TILE", self.tile as u64),
            ("WIDTH", self.width as u64),
            ("GROUP", self.group as u64),
            ("FRONT_THREADS", self.front_threads.into()),
            ("FRONT_BLOCKS", self.front_blocks.into()),
            ("BACK_THREADS", self.back_threads.into()),
            ("BACK_BLOCKS", self.back_blocks.into()),
        ]
    }

    /// Points of the transform, N.
    pub fn points(&self) -> usize {
        2 * self.channels
    }

    /// First factor of N.
    pub fn n1(&self) -> usize {
        1 << self.log_n1
    }

    /// Second factor of N.
    pub fn n2(&self) -> usize {
        self.points() >> self.log_n1
    }

    /// Bytes of shared memory of a block of the front kernel.
    pub fn front_shared(&self) -> usize {
        self.n1() * self.tile * (self.group + 1) * 8
    }

    /// Bytes of shared memory of a block of the back kernel.
    pub fn back_shared(&self) -> usize {
        2 * self.n2() * self.group * 8
    }

    fn shared(&self) -> usize {
        self.front_shared().max(self.back_shared())
    }
}

/// The macros as `kernels/shapes.json` writes them.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.macros();
        let text = fields.map(|(name, value)| format!("{}={value}", name.to_lowercase()));
        f.write_str(&text.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_architecture_has_a_shape_for_every_size() {
        // Bytes per block of sm_75 and of sm_86: the smallest.
        for (shared, smallest) in [(64 << 10, 8192), (99 << 10, 64)] {
            for log in 6..=16 {
                let channels = 1 << log;
                if channels >= smallest {
                    assert!(
                        !Shape::candidates(channels, shared).is_empty(),
                        "{channels} in {shared} bytes"
                    );
                }
            }
        }
        assert!(Shape::candidates(32, 1 << 20).is_empty());
    }

    #[test]
    fn a_name_stands_for_one_shape() {
        let all = Shape::all();
        for (i, shape) in all.iter().enumerate() {
            let name = shape.to_string();
            let same =
                |other: &&Shape| other.channels == shape.channels && other.to_string() == name;
            assert_eq!(all.iter().filter(same).count(), 1, "{i}: {name}");
        }
    }

    #[test]
    fn a_name_is_what_the_list_says() {
        let list: serde_json::Value =
            serde_json::from_str(include_str!("../../kernels/shapes.json")).unwrap();
        for (entry, shape) in list.as_array().unwrap().iter().zip(Shape::all()) {
            let mut fields = entry.as_object().unwrap().clone();
            fields.remove("channels");
            let name = shape.to_string();
            assert_eq!(name.split(',').count(), fields.len(), "{name}");
            for field in name.split(',') {
                let (field, value) = field.split_once('=').unwrap();
                assert_eq!(fields[field].to_string(), value, "{name}");
            }
        }
    }

    #[test]
    fn shapes_are_whole() {
        for shape in Shape::all() {
            assert!(shape.channels.is_power_of_two() && shape.group.is_power_of_two());
            assert_eq!(shape.n2() % shape.tile, 0, "{shape:?}");
            assert_eq!(shape.tile % shape.width, 0, "{shape:?}");
            let threads = shape.n1() * shape.tile / shape.width;
            assert_eq!(threads % shape.front_threads as usize, 0, "{shape:?}");
            assert_eq!(shape.back_threads as usize % shape.group, 0, "{shape:?}");
        }
    }
}
