//! What evidence comes to.

mod heaps;
mod input;
mod interfaces;
mod kernel;
mod options;
mod silence;
#[cfg(test)]
mod tests;
mod time;

use super::asked::Asked;
use super::evidence::{Blind, Evidence, Flow};
use super::finding::Finding;

/// What was asked for and what was seen.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    pub asked: &'a Asked,
    pub evidence: &'a Evidence,
}

impl<'a> Case<'a> {
    /// Whether the engine would receive through this interface.
    fn receives(&self, interface: &str) -> bool {
        let mut all = self.evidence.interfaces.iter();
        all.any(|other| other.name == interface && other.receives.is_some())
    }

    /// Datagrams that the engine would look at.
    fn ours(&self) -> impl Iterator<Item = &'a Flow> {
        let case = *self;
        let flows = self.evidence.wire.flows.iter();
        flows.filter(move |flow| case.is_ours(flow))
    }

    fn is_ours(&self, flow: &Flow) -> bool {
        self.receives(&flow.key.interface) && self.asked.expects(flow.key.dst)
    }

    /// What digitisers send that the engine would not look at.
    fn strays(&self) -> impl Iterator<Item = &'a Flow> {
        let case = *self;
        let flows = self.evidence.wire.flows.iter();
        flows.filter(move |flow| flow.is_digitisers() && !case.is_ours(flow))
    }

    /// Seconds that the wire was looked at.
    fn seconds(&self) -> f64 {
        let (begun, ended) = self.evidence.looked;
        ended - begun
    }

    /// Interfaces that the engine would receive through, for messages.
    fn receivers(&self) -> String {
        self.asked.receive.join(", ")
    }
}

/// All that is wrong, the most likely reason for silence first.
pub fn diagnose(asked: &Asked, evidence: &Evidence) -> Vec<Finding> {
    let case = Case { asked, evidence };
    let mut findings = interfaces::find(case);
    findings.extend(options::find(case));
    if evidence.blind != Some(Blind::NotTheKernels) {
        let heaps = case.ours().any(|flow| flow.heaps() > 0);
        findings.extend(kernel::find(case));
        findings.extend(match heaps {
            true => heaps::find(case),
            false => silence::find(case),
        });
    }
    findings.sort_by_key(|finding| finding.code);
    findings
}
