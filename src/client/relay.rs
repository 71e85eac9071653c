//! Delivering an envelope to the house of its recipients.

use crate::client::peer::{PeerAnswer, PeerFault};
use crate::client::resolver::Resolver;
use crate::record::House;
use crate::refusal::Refusal;
use crate::wire::address::Domain;
use crate::wire::auth::Relay;
use bytes::Bytes;
use serde_json::Value;

/// What came back. Whether it means a delivery is the mail's rule to say.
pub enum Relayed {
    Answered(PeerAnswer),
    /// The house of the domain could not be established; the refusal says whether trying again may help.
    NotResolved(Refusal),
    NotReached(PeerFault),
}

/// The header that says this house relays this envelope to `receiver`.
pub fn relay_header(house: &House, envelope_id: &str, receiver: &Domain) -> String {
    Relay::header(&house.domain, &house.key, envelope_id, receiver)
}

/// Posts the envelope to `<estafeta>/inbound` with this house's relay header.
pub async fn deliver(resolver: &Resolver, house: &House, domain: &Domain, id: &str, envelope: &Value) -> Relayed {
    let peer = match resolver.domain(domain).await {
        Ok(peer) => peer,
        Err(refusal) => return Relayed::NotResolved(refusal),
    };
    let body = Bytes::from(envelope.to_string());
    let header = ("x-nyx5-relay", relay_header(house, id, domain));
    match resolver.peers().post(&peer.base, "/inbound", header, body).await {
        Ok(answer) => Relayed::Answered(answer),
        Err(fault) => {
            // The card may name a place that the house has left.
            resolver.forget(domain);
            Relayed::NotReached(fault)
        }
    }
}
