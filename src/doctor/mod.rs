//! Why nothing comes, or why nothing of what comes is placed.
//!
//! [`examine`] looks at the wire, at interfaces and at the kernel for a while ([`Evidence`]), and
//! [`diagnose`] makes findings of that, the most likely first, each with what was seen and what
//! mends it. The look is that of a bystander: what it sees takes nothing from an engine.

mod asked;
mod evidence;
mod finding;
mod host;
mod listener;
mod look;
mod report;
mod rules;
mod sight;

use ground::StopFlag;

pub use asked::{Asked, AskedOutput};
pub use evidence::{Blind, Evidence, Flow, FlowKey, IgmpPath, InterfaceFacts, PolHeaps, Wire};
pub use finding::{Ailment, Finding};
pub use look::Look;
pub use report::{Report, Seen};
pub use rules::diagnose;

/// Looks, no longer than until `stop` is set, and says what is wrong.
pub fn examine(asked: &Asked, how: Look, stop: &StopFlag) -> std::io::Result<Report> {
    let evidence = look::look(asked, how, stop)?;
    let findings = diagnose(asked, &evidence);
    Ok(Report::new(asked, &evidence, findings))
}
