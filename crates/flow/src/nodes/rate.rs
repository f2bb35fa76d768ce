//! Integer rate changes. A ratio p/q is `up` by p, a filter, and `down` by q.

use serde::{Deserialize, Serialize};

use crate::kernels::{Code, Planes};
use crate::node::{Mismatch, Node, Step, table};
use crate::ratio::Ratio;
use crate::types::Type;
use crate::value::Value;

/// The largest factor of one rate change.
pub const MAX_FACTOR: u64 = 1 << 20;

fn check(by: u64) -> Result<(), String> {
    if (1..=MAX_FACTOR).contains(&by) {
        return Ok(());
    }
    Err(format!(
        "a rate change by {by}: it must be 1 to {MAX_FACTOR}"
    ))
}

macro_rules! rate_change {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $ratio:expr, $step:expr, $emit:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            /// The factor.
            pub by: u64,
        }

        impl Node for $name {
            fn kind(&self) -> &str {
                $kind
            }
            fn inputs(&self) -> usize {
                1
            }
            fn check(&self) -> Result<(), String> {
                check(self.by)
            }
            fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
                Ok(vec![inputs[0]])
            }
            fn ratio(&self) -> Ratio {
                let ratio: fn(u64) -> Option<Ratio> = $ratio;
                // A factor out of range is a problem of its own: no need for one of rates beside
                // it.
                check(self.by).ok().and_then(|()| ratio(self.by)).unwrap_or(Ratio::ONE)
            }
            fn start(&self, _: &[Type], _: &[Type]) -> Box<dyn Step> {
                let step: fn(u64) -> Box<dyn Step> = $step;
                step(self.by)
            }
            fn emit(&self, code: &mut Code, inputs: &[Planes], outputs: &[Planes]) -> bool {
                let emit: fn(u64, &mut Code, &[Planes], Planes) -> bool = $emit;
                emit(self.by, code, inputs, outputs[0])
            }
            fn parameters(&self) -> Option<toml::Table> {
                table(self)
            }
        }
    };
}

rate_change!(
    /// Keeps every `by`-th sample, beginning with the first. Another phase is a delay before it.
    Down,
    "down",
    |by| Ratio::new(1, by),
    |_| Box::new(Fresh { by: 1, count: 0, zeros: false }),
    super::emit::down
);
rate_change!(
    /// Puts `by` - 1 zeros behind each sample.
    Up,
    "up",
    |by| Ratio::new(by, 1),
    |by| Box::new(Fresh { by, count: 0, zeros: true }),
    |by, code, inputs, out| super::emit::up(by, true, code, inputs, out)
);
rate_change!(
    /// Puts out each sample `by` times.
    Repeat,
    "repeat",
    |by| Ratio::new(by, 1),
    |by| Box::new(Fresh { by, count: 0, zeros: false }),
    |by, code, inputs, out| super::emit::up(by, false, code, inputs, out)
);

/// Runs once for each output sample; every `by`-th time the input is a new one.
struct Fresh {
    by: u64,
    count: u64,
    zeros: bool,
}

impl Step for Fresh {
    fn compute(&mut self, inputs: &[Value], outputs: &mut [Value]) {
        if self.zeros && self.count > 0 {
            outputs[0] = Value::zero(outputs[0].kind());
        } else {
            outputs[0].clone_from(&inputs[0]);
        }
    }
    fn update(&mut self, _: &[Value]) {
        self.count = if self.count + 1 == self.by {
            0
        } else {
            self.count + 1
        };
    }
}
