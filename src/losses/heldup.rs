//! What held the engine up while heaps were dropped for want of a free chunk.

use std::collections::BTreeSet;

use super::Cause;
use super::counts::LossCounts;
use super::text::{Line, Words};
use crate::recv::DropCause;

/// Heaps dropped for want of a free chunk since that began, by what the look found that counted
/// them: what is so at one moment need not have cost the heaps of the others.
#[derive(Debug, Default)]
pub struct HeldUp {
    all: u64,
    /// Those with no free output chunk.
    sending: u64,
    /// Those of these with a link that was down.
    no_link: u64,
    /// Outputs that had no free chunk.
    outputs: BTreeSet<String>,
}

impl HeldUp {
    /// Adds what was dropped since the look before; begins anew unless the loss `is_active`.
    pub fn look(&mut self, last: &LossCounts, counts: &LossCounts, is_active: bool) {
        if !is_active {
            *self = Self::default();
        }
        let lost = |counts: &LossCounts| counts.lost(DropCause::NoFreeChunk);
        let new = lost(counts).saturating_sub(lost(last));
        let full = counts.outputs.iter();
        let mut full = full.filter(|output| output.free_chunks == 0).peekable();
        if new == 0 {
            return;
        }
        self.all += new;
        if full.peek().is_some() {
            self.sending += new;
            self.no_link += new * u64::from(counts.links.iter().any(|(_, up, _)| !up));
            self.outputs.extend(full.map(|output| output.name.clone()));
        }
    }
}

impl Line<'_> {
    pub(super) fn no_free_chunk(&self) -> Words {
        let HeldUp {
            all,
            sending,
            no_link,
            outputs,
        } = self.held_up;
        if 2 * sending < *all || outputs.is_empty() {
            return Words::new(
                "the engine does not keep up",
                "`--backend cuda`, CPUs of its own (`--print-plan`) or fewer outputs; against short stalls \
                 `--recv-spare-chunks`",
            );
        }
        let mends = match 2 * no_link >= *sending {
            true => format!("see {}", Cause::LinkDown.name()),
            false => "`--send-rate-factor`, or a faster link".to_owned(),
        };
        let outputs: Vec<_> = outputs.iter().map(|name| &name[..]).collect();
        let outputs = outputs.join(", ");
        let full = self
            .counts
            .outputs
            .iter()
            .any(|output| output.free_chunks == 0);
        let wait = if full { "wait" } else { "waited" };
        Words::new(
            format!("all output chunks of {outputs} {wait} to be sent"),
            mends,
        )
    }
}
