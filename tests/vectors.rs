//! The protocol's bytes against recorded vectors, which a second implementation wrote (`tests/node/vectors.mjs`).

use serde_json::Value;
use verifica::limits::ENVELOPE_BYTES_DEFAULT;
use verifica::refusal::Rule;
use verifica::time::Timestamp;
use verifica::wire::auth::{OnBehalf, Relay, Request, Token};
use verifica::wire::quote::{ContractKind, Quote};
use verifica::wire::seal::{self, Binding, SealKey};
use verifica::wire::{Address, AgentCard, Domain, DomainCard, Envelope, SigningKey, json, pow};

fn vectors() -> Value {
    serde_json::from_str(include_str!("../fixtures/vectors/wire.json")).expect("vectors")
}

fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    value.pointer(path).and_then(Value::as_str).unwrap_or_else(|| panic!("{path}"))
}

fn domain(text: &str) -> Domain {
    Domain::parse(text).expect("domain")
}

fn address(text: &str) -> Address {
    Address::parse(text).expect("address")
}

#[test]
fn canonical_texts_and_refusals() {
    let v = vectors();
    for case in v["canonical"].as_array().expect("cases") {
        let parsed = json::parse(text(case, "/text").as_bytes()).expect("parses");
        assert_eq!(json::canonical(&parsed), text(case, "/canonical"));
    }
    for case in v["refused"].as_array().expect("cases") {
        let case = case.as_str().expect("text");
        let rule = json::parse(case.as_bytes()).map_err(|r| r.rule).expect_err(case);
        assert!(matches!(rule, Rule::NotJson | Rule::UnsafeNumber), "{case}: {rule:?}");
    }
}

#[test]
fn the_chain_from_domain_to_envelope() {
    let v = vectors();
    let now = Timestamp::parse("2026-09-15T10:00:00Z").expect("time");
    let house = DomainCard::verify(v["domain_card"].clone(), &domain("a.example"), None).expect("domain card");
    let ana = AgentCard::parse(v["agent_card"].clone()).expect("card");
    let bot = AgentCard::parse(v["delegated_card"].clone()).expect("card");
    assert!(ana.certified_by(&house).is_ok() && bot.certified_by(&house).is_ok());
    assert!(bot.delegated_by(&ana, now).is_ok());
    assert_eq!(bot.scope().and_then(|s| s.cap), Some(100));
    for name in ["domain_card", "agent_card", "delegated_card", "envelope", "quote"] {
        let mut changed = v[name].clone();
        changed["x-forged"] = Value::Bool(true);
        let field =
            if name.ends_with("agent_card") || name == "delegated_card" { "certification" } else { "signature" };
        let key = if matches!(name, "envelope" | "quote") { &ana.sig } else { house.active_key() };
        assert!(key.verify_object(&v[name], field), "{name}");
        assert!(!key.verify_object(&changed, field), "{name} changed");
    }
    let envelope = Envelope::parse(v["envelope"].clone(), ENVELOPE_BYTES_DEFAULT).expect("envelope");
    assert_eq!(envelope.sha256().hex(), text(&v, "/envelope_sha256"));
    assert!(envelope.extension("urn:example:later").is_some(), "unknown fields survive");
    let signing = SigningKey::parse(text(&v, "/keys/ana")).expect("key");
    assert_eq!(signing.public().kid(), text(&v, "/keys/ana_public"));
    let again = Envelope::sign(v["envelope"].clone(), &signing, ENVELOPE_BYTES_DEFAULT).expect("signed");
    assert_eq!(again.doc(), envelope.doc());
    assert!(envelope.verify(ana, now).is_ok());
}

#[test]
fn both_readers_open_the_sealed_envelope() {
    let v = vectors();
    let to = ["leo@b.example".to_owned()];
    let binding = Binding { id: text(&v, "/sealed/id"), from: "ana@a.example", to: &to };
    for (reader, key) in [("leo@b.example", "/keys/leo_enc"), ("ana@a.example", "/keys/ana_enc")] {
        let key = SealKey::parse(text(&v, key)).expect("key");
        let opened = seal::open(&v["sealed"]["encrypted"], &binding, &address(reader), &key);
        assert_eq!(opened.as_ref(), Ok(&v["sealed_content"]));
    }
}

#[test]
fn credentials_and_work() {
    let v = vectors();
    let house = DomainCard::verify(v["domain_card"].clone(), &domain("a.example"), None).expect("domain card");
    let ana = AgentCard::parse(v["agent_card"].clone()).expect("card");
    let now = Timestamp::parse(text(&v, "/token/claims/ts")).expect("time");
    let request = Request { method: "GET", path: "/mailbox/ana", host: "mail.a.example" };
    let token = Token::parse(text(&v, "/token/header")).expect("token");
    assert_eq!(token.check(&ana.sig, request, now), Ok(()));
    let signing = SigningKey::parse(text(&v, "/keys/ana")).expect("key");
    assert_eq!(Token::header(&ana.address, &signing, request, now, "nonce-1"), text(&v, "/token/header"));

    let relay = Relay::parse(text(&v, "/relay/header")).expect("relay");
    assert!(relay.verifies(&house.keys, text(&v, "/relay/id"), &domain("b.example")));
    assert!(!relay.verifies(&house.keys, text(&v, "/relay/id"), &domain("c.example")));
    let asked = OnBehalf::parse(text(&v, "/on_behalf/header")).expect("for");
    assert!(asked.verifies(&house.keys, &domain("b.example"), now));

    let id = text(&v, "/pow/id");
    let work = serde_json::json!({"bits": 16, "nonce": text(&v, "/pow/nonce")});
    assert!(pow::suffices(id, Some(&work), 16));
    assert_eq!(pow::search(id, 16, 1 << 24).as_ref().map(|w| &w["nonce"]), Some(&work["nonce"]));
}

#[test]
fn a_quote_is_checked_in_the_protocols_order() {
    let v = vectors();
    let now = Timestamp::parse("2026-09-16T00:00:00Z").expect("time");
    let parse = |doc: &Value, house: &str, buyer: &str| {
        Quote::parse(doc, &domain(house), &address(buyer), now, 1000).map_err(|r| (r.code(), r.rule))
    };
    let quote = parse(&v["quote"], "a.example", "leo@b.example").expect("quote");
    assert_eq!((quote.kind, quote.price.tokens()), (ContractKind::Escrow, 200));
    assert_eq!(parse(&v["quote"], "b.example", "leo@b.example").err(), Some((400, Rule::WrongHouse)));
    assert_eq!(parse(&v["quote"], "a.example", "eva@b.example").err(), Some((403, Rule::QuoteForAnother)));
    let with = |field: &str, value: Value| {
        let mut doc = v["quote"].clone();
        doc[field] = value;
        parse(&doc, "a.example", "leo@b.example").err()
    };
    assert_eq!(with("tipo", "x".into()), Some((400, Rule::BadQuote)));
    assert_eq!(with("contract", "bond".into()), Some((400, Rule::BadQuote)));
    assert_eq!(with("expires", "2026-09-15T00:00:00Z".into()), Some((410, Rule::QuoteExpired)));
    assert_eq!(with("expires", "whenever".into()), Some((400, Rule::BadQuote)));
    assert_eq!(with("arbiter", "nobody".into()), Some((400, Rule::BadQuote)));
    assert_eq!(with("price", 0.into()), Some((400, Rule::BadAmount)));
    assert_eq!(with("price", "200".into()), Some((400, Rule::BadAmount)));
    let referrer =
        |address: &str, share: u64| with("referrer", serde_json::json!({"address": address, "share": share}));
    assert_eq!(referrer("eva@c.example", 9000), None);
    assert_eq!(referrer("eva@c.example", 9001), Some((400, Rule::BadReferrer)));
    assert_eq!(referrer("eva@c.example", 0), Some((400, Rule::BadReferrer)));
    assert_eq!(referrer("ana@a.example", 5), Some((400, Rule::BadReferrer)));
}
