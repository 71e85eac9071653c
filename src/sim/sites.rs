//! What the houses' probes see: sites that answer, fail, hide behind an edge, or say something else every time.

use super::chance::Chance;
use super::people::START;
use crate::probe::observation::{Cause, Content, End, FetchKey, Observation, Phase, Response, Seen};
use crate::time::Timestamp;
use crate::wire::digest::Sha256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    Good,
    Bad,
    /// Now this, now that.
    Flapping,
    /// Tells every look the opposite of what it told the last.
    Lying(bool),
    Down,
    /// An intermediary answers for it.
    Edge,
}

impl Site {
    pub fn draw(chance: &mut Chance) -> Site {
        match chance.below(10) {
            0..4 => Site::Good,
            4..6 => Site::Bad,
            6 => Site::Flapping,
            7 => Site::Lying(true),
            8 => Site::Down,
            _ => Site::Edge,
        }
    }

    /// From now on it says one thing.
    pub fn settle(&mut self) {
        *self = match self {
            Site::Good | Site::Edge | Site::Flapping => Site::Good,
            Site::Bad | Site::Down | Site::Lying(_) => Site::Bad,
        };
    }

    /// One look at a test that wants a 200, and what it proves: nothing, where nobody but an intermediary answered.
    pub fn answer(&mut self, chance: &mut Chance, key: &FetchKey, at: Timestamp) -> (Observation, Option<bool>) {
        let status = match self {
            Site::Good => Some(200),
            Site::Bad => Some(404),
            Site::Flapping => *chance.pick(&[Some(200), Some(404), Some(500), Some(522), None]).unwrap_or(&None),
            Site::Lying(last) => {
                *last = !*last;
                Some(if *last { 200 } else { 404 })
            }
            Site::Down => None,
            Site::Edge => Some(522),
        };
        let seen = match status {
            None => Seen::Nothing { phase: Phase::Connect, cause: Cause::Network, reason: "nobody answers".into() },
            Some(status) => Seen::Response(Response {
                status,
                headers: Vec::new(),
                content: Content { kept: Vec::new(), bytes: 0, sha256: Sha256::of(""), end: End::NotRead },
            }),
        };
        let truth = match status {
            Some(200) => Some(true),
            None | Some(522) => None,
            Some(_) => Some(false),
        };
        let observation = Observation {
            key: key.clone(),
            started: at,
            ended: at,
            address: None,
            certificate_sha256: None,
            certificate_not_after: None,
            tls: None,
            seen,
        };
        (observation, truth)
    }
}

/// A deadline some way into a run.
pub fn deadline(chance: &mut Chance, now: Timestamp) -> Timestamp {
    let far = if chance.per_mille(600) { 180_000 } else { 3_600_000 };
    now.max(START).plus(chance.span(-60_000, far))
}
