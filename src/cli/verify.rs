//! `verifica verify`: check a signed document, and say which checks were made (V86).
//!
//! A signature says which key signed; who holds that key is said by `--key`, by a card in a file, or by the house. When
//! none of them is given the answer is that the signer was not established, and the code is 3, never 0.

use super::output::{Failure, Out, Style, brief, clean};
use super::who::extra_roots;
use super::{block_on, json_source};
use crate::attest::statement::{self, Statement};
use crate::attest::{Attestation, bound, dsse};
use crate::client::agent::{self as lib, HouseClient};
use crate::config::house_url;
use crate::limits;
use crate::refusal::Exit;
use crate::time::{Clock, Timestamp};
use crate::verdict::EvidenceName;
use crate::wire::address::{Address, Domain};
use crate::wire::card::{AgentCard, DomainCard};
use crate::wire::envelope::Envelope;
use crate::wire::key::{PublicKey, Signature};
use serde_json::{Value, json};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  verifica verify verdict.json --key 11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo
  verifica verify seen.json --card house.json     (evidence from `verifica libro evidence`)
  verifica agent card libro@mar.example --json > libro.json
  verifica verify receipt.json --card libro.json
  verifica verify receipt.json --house https://mail.mar.example     (network)")]
pub struct Args {
    /// A JSON file, or - for stdin
    file: PathBuf,
    /// The key that must have signed; again for more
    #[arg(long, value_name = "KID", allow_hyphen_values = true, conflicts_with_all = ["card", "house"])]
    key: Vec<String>,
    /// A JSON file with the domain card of the house, or with the card of the agent that must have signed
    #[arg(long, value_name = "FILE", conflicts_with = "house")]
    card: Option<PathBuf>,
    /// Print a valid attestation as an in-toto statement in a DSSE envelope
    #[arg(long, value_name = "FORM", value_parser = ["dsse"])]
    format: Option<String>,
    /// Ask the house at this URL for its card (network)
    #[arg(long, value_name = "URL")]
    house: Option<String>,
    /// A PEM file of roots to trust beside the compiled-in ones
    #[arg(long, value_name = "FILE")]
    ca: Vec<PathBuf>,
}

/// What a document is, by what it says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    Verdict,
    Envelope,
    Quote,
    Entry,
    Seal,
    Attestation,
    /// A DSSE envelope: its signature is not in the document but around it.
    Dsse,
    DomainCard,
    AgentCard,
    Other,
}

/// Keys that may have signed, and how that is known.
struct Trust {
    keys: Vec<PublicKey>,
    how: String,
    /// Whether whoever is on the way could have said it instead.
    open: bool,
    /// Whose keys they are, when that is known.
    domain: Option<Domain>,
    address: Option<Address>,
}

/// What came out for one document.
struct Checked {
    what: Is,
    signer: String,
    checks: Vec<String>,
    /// Why it is not valid.
    fault: Option<String>,
    established: bool,
}

pub fn run(args: &Args, out: &Out) -> Result<Exit, Failure> {
    let source = json_source::read_file(&args.file, out)?;
    let documents = documents(&source.value);
    if documents.is_empty() {
        return Err(Failure::usage("there is no signed document in this file")
            .at(args.file.display())
            .hint("expected a document with a signature or a certification, or one that contains such documents"));
    }
    let mut checked = Vec::new();
    for doc in &documents {
        let trust = trust(args, doc, out)?;
        let mut one = check(doc, trust.as_ref(), lib::SystemClock.now());
        beside(&source.value, doc, &mut one);
        checked.push(one);
    }
    let exit = if checked.iter().any(|c| c.fault.is_some()) {
        Exit::Fail
    } else if checked.iter().any(|c| !c.established) {
        Exit::Undecided
    } else {
        Exit::Ok
    };
    if args.format.is_some() {
        return export(&documents, exit, out);
    }
    if out.json {
        let word = if exit == Exit::Ok {
            "valid"
        } else if exit == Exit::Fail {
            "invalid"
        } else {
            "signer not established"
        };
        let list: Vec<Value> = checked.iter().map(Checked::to_json).collect();
        out.doc(&json!({"schema": "verifica.verify/1", "answer": word, "documents": list}));
        return Ok(exit);
    }
    for one in &checked {
        one.show(out);
    }
    Ok(exit)
}

/// Attestations as DSSE envelopes, which need no key: the signature is in the document.
fn export(documents: &[Value], exit: Exit, out: &Out) -> Result<Exit, Failure> {
    if exit == Exit::Fail {
        return Err(Failure::new(Exit::Fail, "a document is not valid, so nothing is handed on"));
    }
    for doc in documents {
        let attestation = Attestation::parse(doc.clone())
            .map_err(|refusal| Failure::usage("only an attestation has a DSSE form").why(refusal.reason))?;
        let envelope = attestation.envelope();
        let envelope = envelope.ok_or_else(|| Failure::new(Exit::Bug, "the attestation has no statement"))?;
        out.doc(&envelope.to_json());
    }
    Ok(exit)
}

/// The signed documents of a file: itself, the verdict that an operation carries, the envelope of a mailbox record, the
/// verdict beside its evidence, or the verdicts in a contract's history.
fn documents(value: &Value) -> Vec<Value> {
    if signature_field(value).is_some() || dsse::is_envelope(value) {
        let carried = value.pointer("/content/body/veredicto").filter(|verdict| signature_field(verdict).is_some());
        return [Some(value), carried].into_iter().flatten().cloned().collect();
    }
    let attestations = value.get("attestations").and_then(Value::as_array).into_iter().flatten();
    let inner = ["envelope", "veredicto", "receipt", "record", "card", "contract", "seal", "look"]
        .iter()
        .filter_map(|name| value.get(*name));
    let history = value.get("history").and_then(Value::as_array).into_iter().flatten();
    let history = history.filter_map(|item| item.get("veredicto"));
    let listed = value.as_array().into_iter().flatten();
    inner.chain(history).chain(attestations).chain(listed).flat_map(documents).collect()
}

/// What the file around a verdict says about it: evidence must be the one that the verdict names, a contract the one it
/// is about.
fn beside(file: &Value, doc: &Value, checked: &mut Checked) {
    if checked.what != Is::Verdict || checked.fault.is_some() {
        return;
    }
    if file.get("looks").is_some() && file.get("veredicto") == Some(doc) {
        if doc.get("evidence") != Some(&json!(EvidenceName::of(file))) {
            checked.fault = Some("the evidence in this file is not the one that the verdict names".into());
            return;
        }
        checked
            .checks
            .push("the evidence in this file is the one that the verdict names; replay judges it again".into());
        let (checks, differences) = bound(file);
        checked.checks.extend(checks);
        if let Some(difference) = differences.into_iter().next() {
            checked.fault = Some(difference);
            return;
        }
    }
    let contract = file.get("contract").filter(|contract| contract.is_object()).unwrap_or(file);
    if contract.get("history").is_some() && contract.get("id") != doc.get("contract") {
        checked.fault = Some("the verdict is about another contract than the one it stands in".into());
    }
}

fn signature_field(doc: &Value) -> Option<&'static str> {
    ["certification", "signature"].into_iter().find(|field| doc.get(*field).is_some_and(Value::is_object))
}

fn what(doc: &Value) -> Is {
    let has = |name: &str| doc.get(name).is_some();
    match doc.get("tipo").and_then(Value::as_str) {
        Some("veredicto") => Is::Verdict,
        Some("cotizacion") => Is::Quote,
        Some("sello") => Is::Seal,
        Some("atestacion") => Is::Attestation,
        _ if dsse::is_envelope(doc) => Is::Dsse,
        _ if has("certification") && has("address") => Is::AgentCard,
        _ if has("estafeta") && has("keys") => Is::DomainCard,
        _ if has("lines") && has("n") => Is::Entry,
        _ if has("from") && has("to") && has("type") => Is::Envelope,
        _ => Is::Other,
    }
}

/// The address or the domain that the document says it is from.
fn claimed(doc: &Value, what: Is) -> (Option<Address>, Option<Domain>) {
    let address = |name: &str| doc.get(name).and_then(Value::as_str).and_then(|text| Address::parse(text).ok());
    let domain = |name: &str| doc.get(name).and_then(Value::as_str).and_then(|text| Domain::parse(text).ok());
    let by = match what {
        Is::Envelope => address("from"),
        Is::Verdict => address("by"),
        Is::Quote => address("seller"),
        _ => None,
    };
    let of = match what {
        Is::Entry | Is::Seal => domain("house"),
        Is::DomainCard => domain("domain"),
        Is::AgentCard => address("address").map(|address| address.domain()),
        _ => by.as_ref().map(Address::domain),
    };
    (by, of)
}

fn trust(args: &Args, doc: &Value, out: &Out) -> Result<Option<Trust>, Failure> {
    if !args.key.is_empty() {
        let keys = args.key.iter().map(|kid| PublicKey::parse(kid).map_err(|r| Failure::usage(r.reason).at("--key")));
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        return Ok(Some(Trust {
            keys,
            how: "the key given by --key".into(),
            open: false,
            domain: None,
            address: None,
        }));
    }
    if let Some(path) = &args.card {
        let card = json_source::read_file(path, out)?.value;
        let unfit = |why: String| Failure::usage("the card cannot be used").at(path.display()).why(why);
        return from_card(card, &format!("the card in {}", path.display())).map(Some).map_err(unfit);
    }
    let Some(url) = &args.house else { return Ok(None) };
    let url = house_url(url).map_err(|why| Failure::usage(why).at("--house"))?;
    let house = HouseClient::new(&url, &extra_roots(&args.ca)?)?;
    block_on(from_house(&house, doc)).map(Some)
}

fn from_card(card: Value, how: &str) -> Result<Trust, String> {
    if what(&card) == Is::DomainCard {
        let domain = card.get("domain").and_then(Value::as_str).unwrap_or_default();
        let domain = Domain::parse(domain).map_err(|r| r.reason)?;
        let card = DomainCard::verify(card, &domain, None).map_err(|r| r.reason)?;
        return Ok(Trust { keys: card.keys, how: how.to_owned(), open: false, domain: Some(domain), address: None });
    }
    let card = AgentCard::parse(card).map_err(|r| r.reason)?;
    Ok(Trust {
        keys: vec![card.sig],
        how: how.to_owned(),
        open: false,
        domain: None,
        address: Some(card.address.clone()),
    })
}

/// The keys that the house says its documents, or this agent's, are signed with.
async fn from_house(house: &HouseClient, doc: &Value) -> Result<Trust, Failure> {
    let open = !house.url().starts_with("https://") && !house.is_loopback();
    let card = lib::well_known(house).await?;
    let domain = card.get("domain").and_then(Value::as_str).unwrap_or_default();
    let domain = Domain::parse(domain)?;
    let card = DomainCard::verify(card, &domain, None)?;
    let (by, _) = claimed(doc, what(doc));
    let signer = by.filter(|by| by.is_of(&domain));
    let Some(by) = signer else {
        return Ok(Trust {
            keys: card.keys,
            how: format!("the card of {domain} as answered by {}", house.url()),
            open,
            domain: Some(domain),
            address: None,
        });
    };
    let agent = lib::public_card(house, &by).await?;
    let agent = AgentCard::parse(agent)?;
    agent.certified_by(&card)?;
    let mut keys = vec![agent.sig];
    // An old key counts within its grace, as it does at the doors.
    if let Some(signature) = Signature::of(doc, "signature") {
        keys.extend(agent.accepted_key(signature.kid, lib::SystemClock.now()));
    }
    Ok(Trust {
        keys,
        how: format!("the card of {by}, certified by {domain}, as answered by {}", house.url()),
        open,
        domain: None,
        address: Some(agent.address.clone()),
    })
}

fn check(doc: &Value, trust: Option<&Trust>, now: Timestamp) -> Checked {
    let what = what(doc);
    let mut checked = Checked { what, signer: "nobody".into(), checks: Vec::new(), fault: None, established: false };
    let key = match signer(doc, what, trust, &mut checked) {
        Ok(key) => key,
        Err(fault) => {
            checked.fault = Some(fault);
            return checked;
        }
    };
    if let Err(fault) = inside(doc, what, &mut checked.checks) {
        checked.fault = Some(fault);
        return checked;
    }
    let (by, of) = claimed(doc, what);
    let Some(trust) = trust else { return checked };
    if let (Some(address), Some(by)) = (&trust.address, &by)
        && address != by
    {
        checked.fault = Some(format!("the document says it is by {by}, and the card is of {address}"));
        return checked;
    }
    let house = trust.domain.clone().or_else(|| trust.address.as_ref().map(Address::domain));
    if let (Some(house), Some(of)) = (&house, &of)
        && house != of
    {
        checked.fault = Some(format!("the document is of {of}, and the card is of {house}"));
        return checked;
    }
    if !trust.keys.contains(&key) {
        checked.fault = Some(format!("it was signed by {key}, which is not {}", trust.how));
        return checked;
    }
    if what == Is::AgentCard && expired(doc, now) {
        checked.checks.push("the card has ended: it was revoked, or its date has passed".into());
    }
    if trust.open {
        checked.checks.push(format!(
            "the signer is the one of {}, over plain HTTP: anybody on the way could have answered",
            trust.how
        ));
        return checked;
    }
    checked.checks.push(format!("the signer is established by {}", trust.how));
    checked.established = true;
    checked
}

/// The key whose signature holds over the document.
fn signer(doc: &Value, what: Is, trust: Option<&Trust>, checked: &mut Checked) -> Result<PublicKey, String> {
    if what == Is::Dsse {
        let envelope = dsse::Envelope::parse(doc).map_err(|r| r.reason)?;
        let trusted = trust.and_then(|trust| trust.keys.iter().find(|key| envelope.verified_by(key)).copied());
        let key = trusted.or_else(|| envelope.self_named_signer());
        let key = key.ok_or("no signature of the envelope holds with a key that is known or named in it")?;
        checked.signer = key.kid();
        checked.checks.push(format!("the signature holds over the payload and its type, key {key}"));
        return Ok(key);
    }
    let field = signature_field(doc).unwrap_or("signature");
    let signature =
        Signature::of(doc, field).ok_or_else(|| format!("{field} is not {{alg: \"Ed25519\", kid, value}}"))?;
    checked.signer = signature.kid.to_owned();
    let key = PublicKey::parse(signature.kid).map_err(|_| "the kid of the signature is not a usable key".to_owned())?;
    if !key.verify_object(doc, field) {
        return Err("the signature does not hold over the canonical document".into());
    }
    checked.checks.push(format!("the {field} holds over the canonical document, key {key}"));
    Ok(key)
}

/// What a document of this kind must keep beside its signature.
fn inside(doc: &Value, what: Is, checks: &mut Vec<String>) -> Result<(), String> {
    match what {
        Is::Envelope => {
            Envelope::parse(doc.clone(), limits::AGENT_ANSWER_BYTES_MAX).map_err(|r| r.reason)?;
            checks.push("the envelope is well formed".into());
        }
        Is::Entry => {
            let lines = doc.get("lines").and_then(Value::as_array).ok_or("the entry has no lines")?;
            let deltas = lines.iter().map(|line| line.get("delta").and_then(Value::as_i64).map(i128::from));
            let sum: i128 =
                deltas.collect::<Option<Vec<_>>>().ok_or("a line of the entry has no whole delta")?.iter().sum();
            if sum != 0 {
                return Err(format!("the lines of the entry sum to {sum} and not to zero"));
            }
            checks.push(format!("{} lines sum to zero", lines.len()));
        }
        Is::Verdict => {
            let results = doc.get("resultados").and_then(Value::as_array).ok_or("the verdict has no resultados")?;
            let is = |result: &Value, name: &str| result.get(name) == Some(&Value::Bool(true));
            let undecided = results.is_empty() || results.iter().any(|result| is(result, "indeciso"));
            let passes = !undecided && results.iter().all(|result| is(result, "pasa"));
            if is(doc, "pasa") != passes || is(doc, "indeciso") != undecided {
                return Err("the joint answer does not follow from the results of the tests".into());
            }
            checks.push(format!("the joint answer follows from the {} results", results.len()));
        }
        Is::DomainCard => {
            let domain = doc.get("domain").and_then(Value::as_str).unwrap_or_default();
            let domain = Domain::parse(domain).map_err(|r| r.reason)?;
            DomainCard::verify(doc.clone(), &domain, None).map_err(|r| r.reason)?;
            checks.push("the card is signed by one of its own keys".into());
        }
        Is::AgentCard => {
            AgentCard::parse(doc.clone()).map_err(|r| r.reason)?;
            checks.push("the card is well formed".into());
        }
        Is::Attestation => {
            let attestation = Attestation::parse(doc.clone()).map_err(|r| r.reason)?;
            checks.push(format!("each claim follows from a fact in the document: {}", attestation.claims().join(", ")));
            checks.push(format!("not claimed: {}", attestation.not_claimed().join(", ")));
        }
        Is::Dsse => match statement::read(&dsse::Envelope::parse(doc).map_err(|r| r.reason)?).map_err(|r| r.reason)? {
            Statement::Attestation { .. } => {
                checks.push("the statement is an attestation whose claims follow from its facts".into())
            }
            Statement::Other { predicate_type } => {
                checks.push(format!("the statement is well formed, of the type {}", brief(&predicate_type, 200)))
            }
        },
        Is::Quote | Is::Seal | Is::Other => {}
    }
    Ok(())
}

fn expired(doc: &Value, now: Timestamp) -> bool {
    AgentCard::parse(doc.clone()).is_ok_and(|card| card.ended(now))
}

impl Checked {
    fn show(&self, out: &Out) {
        let (style, word) = match (&self.fault, self.established) {
            (Some(_), _) => (Style::Bad, "INVALID"),
            (None, true) => (Style::Good, "VALID"),
            (None, false) => (Style::Doubt, "SIGNED, BY WHOM IS NOT KNOWN"),
        };
        out.line(format!("{}  {}", out.paint(style, word), self.what.name()));
        if let Some(fault) = &self.fault {
            out.line(format!("  {}", clean(fault)));
        }
        out.line(format!("  signer  {}", brief(&self.signer, 100)));
        if !self.checks.is_empty() {
            out.say("checks made");
            self.checks.iter().for_each(|check| out.say(format!("  - {check}")));
        }
        if self.fault.is_none() && !self.established {
            out.say("hint: say who must have signed: --key KID, --card FILE, or --house URL");
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "kind": self.what.name(), "signer": self.signer, "valid": self.fault.is_none(),
            "signer_established": self.established, "fault": self.fault, "checks": self.checks,
        })
    }
}

impl Is {
    const fn name(self) -> &'static str {
        match self {
            Is::Verdict => "verdict",
            Is::Envelope => "envelope",
            Is::Quote => "quote",
            Is::Entry => "ledger entry",
            Is::Seal => "seal",
            Is::Attestation => "attestation",
            Is::Dsse => "DSSE envelope",
            Is::DomainCard => "domain card",
            Is::AgentCard => "agent card",
            Is::Other => "document",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::key::SigningKey;

    fn signed(mut doc: Value, seed: u8) -> Value {
        SigningKey::from_seed([seed; 32]).sign_object(&mut doc, "signature");
        doc
    }

    fn by_key(seed: u8) -> Trust {
        let keys = vec![SigningKey::from_seed([seed; 32]).public()];
        Trust { keys, how: "the key".into(), open: false, domain: None, address: None }
    }

    #[test]
    fn a_signature_alone_establishes_nobody() {
        let doc = signed(json!({"tipo": "cotizacion", "seller": "a@b"}), 1);
        let now = Timestamp::from_millis(0);
        let bare = check(&doc, None, now);
        assert!(bare.fault.is_none() && !bare.established);
        assert!(check(&doc, Some(&by_key(1)), now).established);
        assert!(check(&doc, Some(&by_key(2)), now).fault.is_some());
        let overheard = check(&doc, Some(&Trust { open: true, ..by_key(1) }), now);
        assert!(overheard.fault.is_none() && !overheard.established, "anybody on the way could have named the key");
    }

    #[test]
    fn documents_break_their_own_rules_even_when_signed() {
        let now = Timestamp::from_millis(0);
        let entry = |delta: i64| {
            signed(
                json!({"n": 1, "house": "a.b", "lines": [{"account": "x", "delta": 5}, {"account": "y", "delta": delta}]}),
                1,
            )
        };
        assert!(check(&entry(-5), Some(&by_key(1)), now).established);
        assert!(check(&entry(-4), Some(&by_key(1)), now).fault.is_some());
        let verdict = |pasa: bool, of: Value| {
            signed(
                json!({"tipo": "veredicto", "by": "verifica@a.b", "pasa": pasa, "indeciso": false, "resultados": of}),
                1,
            )
        };
        assert!(check(&verdict(true, json!([{"pasa": true}])), Some(&by_key(1)), now).established);
        assert!(check(&verdict(true, json!([{"pasa": false}])), Some(&by_key(1)), now).fault.is_some());
        assert!(check(&verdict(true, json!([])), Some(&by_key(1)), now).fault.is_some());
        assert!(
            check(&verdict(true, json!([{"pasa": false, "indeciso": true}])), Some(&by_key(1)), now).fault.is_some()
        );
    }

    #[test]
    fn signed_documents_are_found_inside_others() {
        let verdict = signed(json!({"tipo": "veredicto"}), 1);
        let operation = signed(json!({"content": {"body": {"op": "release", "veredicto": verdict}}}), 1);
        for (file, found) in [
            (verdict.clone(), 1),
            (json!({"envelope": verdict}), 1),
            (json!({"history": [{"op": "accept"}, {"op": "release", "veredicto": verdict}]}), 1),
            (json!({"contract": {"history": [{"op": "release", "veredicto": verdict}]}}), 1),
            (json!({"looks": [], "veredicto": verdict}), 1),
            (operation.clone(), 2),
            (json!({"envelope": operation}), 2),
            (json!([verdict, verdict]), 2),
            (json!({"a": 1}), 0),
        ] {
            assert_eq!(documents(&file).len(), found, "{file}");
        }
    }
}
