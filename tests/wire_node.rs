//! The protocol's bytes against a second implementation: Node's JSON and crypto. Ten thousand generated documents and
//! envelopes go both ways; what one side signs and seals the other verifies and opens.

mod node;

use serde_json::{Value, json};
use verifica::ids::Ids;
use verifica::limits::ENVELOPE_BYTES_DEFAULT;
use verifica::refusal::Rule;
use verifica::time::Timestamp;
use verifica::wire::address::Address;
use verifica::wire::auth::{Relay, Request, Token};
use verifica::wire::digest::base64url;
use verifica::wire::seal::{self, Binding, SealChance, SealKey};
use verifica::wire::{AgentCard, Domain, Envelope, PublicKey, Sha256, SigningKey, json};

const ROUNDS: usize = 10_000;

/// Asks Node all of it at once; `None` where there is no Node, loudly.
fn answers(commands: &[Value]) -> Option<Vec<Value>> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/node/wire.mjs");
    let lines: String = commands.iter().map(|c| format!("{c}\n")).collect();
    let output = node::node(&[script], lines, "the protocol's bytes")?;
    let answers: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).expect("answer")).collect();
    assert_eq!(answers.len(), commands.len());
    Some(answers)
}

/// Generates documents as a stranger would write them: any key, any spelling.
struct Writer(Ids);

impl Writer {
    fn pick(&mut self, n: usize) -> usize {
        let bytes = self.0.bytes();
        usize::from(u16::from_be_bytes([bytes[0], bytes[1]])) % n
    }

    fn text(&mut self) -> String {
        const PIECES: &[&str] = &[
            "a",
            "Z",
            "0",
            " ",
            "é",
            "ß",
            "\u{7f}",
            "\u{2028}",
            "\u{e000}",
            "\u{ffee}",
            "\u{fffd}",
            "😀",
            "\u{10000}",
            "𝒳",
            "\\n",
            "\\t",
            "\\\"",
            "\\\\",
            "\\/",
            "\\u0000",
            "\\u001f",
            "\\b",
            "\\f",
            "\\u00e9",
            "\\ud83d\\ude00",
            "__proto__",
            "constructor",
            "10",
            "9",
        ];
        let len = self.pick(6);
        let body: String = (0..len).map(|_| PIECES[self.pick(PIECES.len())]).collect();
        format!("\"{body}\"")
    }

    fn number(&mut self) -> String {
        const NUMBERS: &[&str] = &[
            "0",
            "-0",
            "1",
            "-1",
            "1.0",
            "1e3",
            "10E-1",
            "9007199254740991",
            "-9007199254740991",
            "123456789",
            "4.00e2",
            "0.0",
            "-0.0e5",
            "100e-2",
        ];
        NUMBERS[self.pick(NUMBERS.len())].to_owned()
    }

    fn space(&mut self) -> &'static str {
        ["", "", " ", "\n", "\t "][self.pick(5)]
    }

    fn value(&mut self, depth: usize) -> String {
        let kind = self.pick(if depth == 0 { 5 } else { 9 });
        match kind {
            0 => "null".into(),
            1 => "true".into(),
            2 => self.number(),
            3 | 4 => self.text(),
            5 | 6 => {
                let items: Vec<String> =
                    (0..self.pick(4)).map(|_| format!("{}{}", self.space(), self.value(depth - 1))).collect();
                format!("[{}{}]", items.join(","), self.space())
            }
            _ => self.object(depth - 1),
        }
    }

    fn object(&mut self, depth: usize) -> String {
        let fields: Vec<String> = (0..self.pick(6))
            .map(|_| format!("{}{}{}:{}", self.space(), self.text(), self.space(), self.value(depth)))
            .collect();
        format!("{{{}{}}}", fields.join(","), self.space())
    }

    fn envelope(&mut self) -> Value {
        let body: Value = json::parse(self.value(3).as_bytes()).expect("generated JSON");
        let thread = if self.pick(2) == 0 { Value::Null } else { json!(self.0.uuid()) };
        let kind = ["message", "task", "result", "receipt", "intro"][self.pick(5)];
        let mut doc = json!({
            "nyx5": "1", "id": self.0.uuid(), "from": "ana@a.example", "to": ["leo@b.example", "eva@c.example"],
            "created": "2026-09-15T10:00:00.000Z", "expires": null, "thread": thread, "in_reply_to": null,
            "type": kind,
            "content": {"media": "application/json", "body": body},
        });
        let extra: Value = json::parse(self.object(2).as_bytes()).expect("generated JSON");
        doc["extensions"] = extra;
        doc
    }
}

fn keys(seed: u8) -> (SigningKey, Value) {
    let key = SigningKey::from_seed([seed; 32]);
    let jwk = json!({"x": key.public().kid(), "d": key.secret_text().as_str()});
    (key, jwk)
}

fn ok(answer: &Value) -> &Value {
    assert!(answer.get("error").is_none(), "{answer}");
    &answer["ok"]
}

#[test]
fn canonical_text_of_ten_thousand_documents_is_nodes() {
    let mut writer = Writer(Ids::from_seed([11; 32]));
    let texts: Vec<String> = (0..ROUNDS).map(|_| writer.object(4)).collect();
    let commands: Vec<Value> = texts.iter().map(|text| json!({"do": "canonical", "text": text})).collect();
    let Some(answers) = answers(&commands) else { return };
    for (text, answer) in texts.iter().zip(&answers) {
        let ours = json::canonical(&json::parse(text.as_bytes()).expect(text));
        // `__proto__` in JSON.parse is an ordinary own key, and Object.keys lists it; both sides must agree on it too.
        assert_eq!(ours, ok(answer).as_str().expect("text"), "{text}");
    }
}

#[test]
fn any_double_prints_as_javascript_prints_it() {
    let mut ids = Ids::from_seed([12; 32]);
    let numbers: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let bytes = ids.bytes();
            let mut eight = [0; 8];
            eight.copy_from_slice(&bytes[..8]);
            f64::from_le_bytes(eight)
        })
        .filter(|n| n.is_finite())
        .collect();
    let commands: Vec<Value> = numbers.iter().map(|n| json!({"do": "canonical", "text": format!("[{n:e}]")})).collect();
    let Some(answers) = answers(&commands) else { return };
    for (number, answer) in numbers.iter().zip(&answers) {
        assert_eq!(json::canonical(&json!([number])), ok(answer).as_str().expect("text"));
    }
}

#[test]
fn envelopes_signed_on_one_side_verify_on_the_other() {
    let mut writer = Writer(Ids::from_seed([13; 32]));
    let (key, jwk) = keys(1);
    let card = sender_card(&key);
    let now = Timestamp::from_millis(1_800_000_000_000);
    let drafts: Vec<Value> = (0..ROUNDS).map(|_| writer.envelope()).collect();
    let mut commands = Vec::new();
    for draft in &drafts {
        let ours = Envelope::sign(draft.clone(), &key, ENVELOPE_BYTES_DEFAULT).expect("valid");
        commands.push(json!({"do": "verify", "text": ours.doc().to_string(), "field": "signature"}));
        commands.push(json!({"do": "sha256", "text": ours.doc().to_string()}));
        commands.push(json!({"do": "sign", "text": draft.to_string(), "field": "signature", "key": jwk}));
    }
    let Some(answers) = answers(&commands) else { return };
    for (i, draft) in drafts.iter().enumerate() {
        let ours = Envelope::sign(draft.clone(), &key, ENVELOPE_BYTES_DEFAULT).expect("valid");
        assert_eq!(ok(&answers[3 * i]), &json!(true));
        assert_eq!(ok(&answers[3 * i + 1]), &json!(ours.sha256().hex()));
        let theirs = ok(&answers[3 * i + 2]).as_str().expect("text").as_bytes().to_vec();
        let parsed =
            Envelope::parse(json::parse_object(&theirs).expect("JSON"), ENVELOPE_BYTES_DEFAULT).expect("envelope");
        // Ed25519 is deterministic: the same key and text give the same signature.
        assert_eq!(parsed.doc()["signature"], ours.doc()["signature"]);
        let verified = parsed.clone().verify(card.clone(), now);
        assert!(verified.is_ok());
        let mut forged = parsed.into_doc();
        forged["extensions"]["x"] = json!("added on the way");
        let forged = Envelope::parse(forged, ENVELOPE_BYTES_DEFAULT).expect("well formed");
        assert_eq!(forged.verify(card.clone(), now).map_err(|r| r.rule).err(), Some(Rule::BadSignature));
    }
}

#[test]
fn what_one_side_seals_the_other_opens() {
    let rounds = ROUNDS / 10;
    let mut writer = Writer(Ids::from_seed([14; 32]));
    let (key, jwk) = keys(1);
    let (leo, ana) = (SealKey::from_seed([2; 32]), SealKey::from_seed([3; 32]));
    let seal_jwk = |key: &SealKey| json!({"x": key.public().text(), "d": key.secret_text().as_str()});
    let readers = [(address("leo@b.example"), leo.public()), (address("ana@a.example"), ana.public())];
    let to = ["leo@b.example".to_owned(), "eva@c.example".to_owned()];
    let mut contents = Vec::new();
    let mut commands = Vec::new();
    for _ in 0..rounds {
        let mut draft = writer.envelope();
        let content = draft["content"].take();
        let id = draft["id"].as_str().expect("id").to_owned();
        let binding = Binding { id: &id, from: "ana@a.example", to: &to };
        let chance = SealChance {
            content_key: zeroize::Zeroizing::new(writer.0.bytes()),
            ephemeral: writer.0.bytes(),
            content_iv: first12(writer.0.bytes()),
            wrap_iv: first12(writer.0.bytes()),
        };
        draft.as_object_mut().expect("object").remove("content");
        let mut sealed = draft.clone();
        sealed["encrypted"] = seal::seal(&content, &binding, &readers, chance).expect("sealed");
        for (reader, key) in [("leo@b.example", &leo), ("ana@a.example", &ana)] {
            commands.push(json!({"do": "open", "text": sealed.to_string(), "reader": reader, "key": seal_jwk(key)}));
        }
        commands.push(json!({"do": "sealed_envelope", "text": draft.to_string(), "content": content, "key": jwk,
            "readers": {"leo@b.example": leo.public().text(), "ana@a.example": ana.public().text()}}));
        contents.push((id, content));
    }
    let Some(answers) = answers(&commands) else { return };
    let card = sender_card(&key);
    for (i, (id, content)) in contents.iter().enumerate() {
        assert_eq!(ok(&answers[3 * i]), content);
        assert_eq!(ok(&answers[3 * i + 1]), content);
        let theirs = json::parse_object(ok(&answers[3 * i + 2]).as_str().expect("text").as_bytes()).expect("JSON");
        let envelope = Envelope::parse(theirs, ENVELOPE_BYTES_DEFAULT).expect("envelope");
        assert!(envelope.is_signed_by(&card, Timestamp::from_millis(0)).is_ok());
        let binding = Binding { id, from: "ana@a.example", to: &to };
        let sealed = envelope.field("encrypted").expect("sealed");
        assert_eq!(seal::open(sealed, &binding, &address("leo@b.example"), &leo).as_ref(), Ok(content));
        assert!(seal::open(sealed, &binding, &address("leo@b.example"), &ana).is_err());
    }
}

#[test]
fn detached_signatures_and_work_agree() {
    let (key, jwk) = keys(5);
    let (a, b) = (domain("a.example"), domain("b.example"));
    let now = Timestamp::from_millis(1_800_000_000_123);
    let request = Request { method: "POST", path: "/outbound", host: "a.example:4040" };
    let token = Token::header(&address("ana@a.example"), &key, request, now, "nonce-1");
    let relay = Relay::header(&a, &key, "envelope-1", &b);
    let claims = json!({"address": "ana@a.example", "ts": now.to_string(), "nonce": "nonce-1", "method": "POST",
        "path": "/outbound", "host": "a.example:4040"});
    let claims_text = json::canonical(&claims);
    let commands = [
        json!({"do": "sign_text", "text": claims_text, "key": jwk}),
        json!({"do": "sign_text", "text": "relay:envelope-1:b.example", "key": jwk}),
        json!({"do": "pow", "id": "envelope-1", "nonce": "17"}),
    ];
    let Some(answers) = answers(&commands) else { return };
    let expected = format!("Nyx5 {}.{}", base64url(&claims_text), ok(&answers[0]).as_str().expect("text"));
    assert_eq!(token, expected);
    assert_eq!(
        relay,
        format!("nyx51 domain=a.example; kid={}; sig={}", key.public(), ok(&answers[1]).as_str().expect("t"))
    );
    assert_eq!(ok(&answers[2]), &json!(Sha256::of("envelope-1:17").hex()));
}

fn sender_card(key: &SigningKey) -> AgentCard {
    let domain_key = SigningKey::from_seed([9; 32]);
    let doc = json!({"nyx5": "1", "address": "ana@a.example", "sig": key.public().kid(), "enc": null});
    AgentCard::certify(doc, &domain_key).expect("card")
}

fn address(text: &str) -> Address {
    Address::parse(text).expect("address")
}

fn domain(text: &str) -> Domain {
    Domain::parse(text).expect("domain")
}

fn first12(bytes: [u8; 32]) -> [u8; 12] {
    let mut out = [0; 12];
    out.copy_from_slice(&bytes[..12]);
    out
}

#[test]
fn keys_read_from_text_are_the_keys_written() {
    let (key, jwk) = keys(7);
    assert_eq!(PublicKey::parse(jwk["x"].as_str().expect("x")), Ok(key.public()));
}
