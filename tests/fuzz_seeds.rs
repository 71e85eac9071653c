//! Strangers' bytes by the thousand, from fixed seeds: whatever is read ends, never panics, says where it is wrong within
//! what was given, and believes no document that its signer did not write. The same run every time.
//!
//! Elsewhere: framing against a second reader in `observe`, JSON and regular expressions against Node in `json_node` and
//! `regex_node`, routes in `garbage`.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::Duration;
use verifica::config;
use verifica::probe::equal::{Equality, equality};
use verifica::probe::file::TestFile;
use verifica::probe::json::Document;
use verifica::probe::observation::Method;
use verifica::probe::path::{Found, Path};
use verifica::probe::regex::{Answer, Fault, Pattern};
use verifica::probe::url::{Target, UrlPolicy};
use verifica::probe::{Capabilities, Delivery, Suite};
use verifica::time::Timestamp;
use verifica::wire::address::{Address, Domain};
use verifica::wire::amount::Amount;
use verifica::wire::auth::{OnBehalf, Relay, Request, Token};
use verifica::wire::envelope::Envelope;
use verifica::wire::json::{canonical, parse, parse_object};
use verifica::wire::key::SigningKey;
use verifica::wire::quote::{ContractKind, Offer, Quote};

/// A xorshift of 64 bits.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).expect("below the bound")
    }

    fn pick<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }

    /// Up to `most` pieces, one after the other.
    fn text(&mut self, pieces: &[&str], most: usize) -> String {
        (0..self.below(most + 1)).map(|_| self.pick(pieces)).collect()
    }

    /// The bytes with one to four changes: a piece put in, a span taken out or said again, a bit turned, an end cut off.
    fn damaged(&mut self, whole: &[u8], pieces: &[&str]) -> Vec<u8> {
        let mut bytes = whole.to_vec();
        for _ in 0..=self.below(4) {
            let (at, span) = (self.below(bytes.len() + 1), 1 + self.below(9));
            let end = (at + span).min(bytes.len());
            match self.below(6) {
                0 | 1 => drop(bytes.splice(at..at, self.pick(pieces).bytes())),
                2 => drop(bytes.drain(at..end)),
                3 => {
                    let again = bytes[at..end].to_vec();
                    bytes.splice(at..at, again);
                }
                4 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                5 if self.below(4) == 0 => bytes.truncate(at),
                _ => {}
            }
        }
        bytes
    }
}

/// Runs what must end; the bound is no measure of speed but of ending at all, on the slowest machine.
fn ends(what: &str, work: impl FnOnce() + Send + 'static) {
    let (tell, told) = mpsc::channel();
    let worker = std::thread::Builder::new()
        .stack_size(1 << 20)
        .spawn(move || {
            work();
            let _ = tell.send(());
        })
        .expect("a thread");
    if told.recv_timeout(Duration::from_secs(300)) == Err(mpsc::RecvTimeoutError::Timeout) {
        panic!("{what} does not end");
    }
    assert!(worker.join().is_ok(), "{what} panics");
}

const JSON_PIECES: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "\"",
    ":",
    ",",
    "null",
    "true",
    "0",
    "-",
    "1e400",
    "1.5",
    "9007199254740993",
    "\\u0000",
    "\\ud800",
    "\\",
    "\"a\":",
    "[[[[[[[[",
    "é",
    "😀",
    "\u{feff}",
    " ",
    "\n",
    "\"type\":",
    "\"url\":\"x\",",
];

/// The grammar of V33, said in another way: cut at dots and brackets, and look at each piece.
fn is_path(text: &str) -> bool {
    let index = |digits: &str| {
        !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'))
    };
    text.split('.').enumerate().all(|(n, piece)| {
        let (name, brackets) = piece.split_at(piece.find('[').unwrap_or(piece.len()));
        let indexes_only = name.is_empty();
        if (indexes_only && (n > 0 || brackets.is_empty())) || name.contains(']') {
            return false;
        }
        brackets.is_empty()
            || brackets
                .strip_prefix('[')
                .and_then(|rest| rest.strip_suffix(']'))
                .is_some_and(|inside| inside.split("][").all(index))
    })
}

#[test]
fn paths_of_any_text_are_read_by_the_grammar_alone() {
    let pieces =
        &["a", ".", "[", "]", "0", "1", "00", "[0]", "[1]", "][", "-", " ", "ñ", "😀", "..", "__proto__", "]."];
    let document =
        json!({"a": {"0": [1, {"a": [[2]]}], "1": "x"}, "0": [3], "__proto__": 4, "ñ": [[[[5]]]]}).to_string();
    let document = Document::read(&document).expect("json");
    let (mut chance, mut good) = (Chance(1), 0);
    for _ in 0..20_000 {
        let text = chance.text(pieces, 8);
        let units: Vec<u16> = text.encode_utf16().collect();
        let path = Path::parse(&units);
        assert_eq!(path.is_ok(), is_path(&text), "{text:?}: {path:?}");
        let Ok(path) = path else { continue };
        good += 1;
        assert_eq!(path.text(), text);
        if let Found::Repeated(key) = path.find(document.root()) {
            panic!("{text:?} finds {key} twice");
        }
    }
    assert!(good > 2_000, "{good} of the paths were paths");
    for any in 0..=u16::MAX {
        assert_eq!(Path::parse(&[any]).is_ok(), !matches!(any, 0x2e | 0x5b | 0x5d), "{any:#x}");
    }
    ends("a long path", move || {
        let units: Vec<u16> = "[0]".repeat(100_000).encode_utf16().collect();
        let path = Path::parse(&units).expect("a path");
        let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
        let deep = Document::read(&deep).expect("json");
        assert!(matches!(path.find(deep.root()), Found::Missing(_)));
    });
}

const PATTERN_PIECES: &[&str] = &[
    "a",
    "b",
    "é",
    "😀",
    ".",
    "^",
    "$",
    "|",
    "(",
    "(?:",
    "(?=",
    "(?!",
    "(?<=",
    "(?<!",
    "(?<n>",
    "(?i:",
    ")",
    "[",
    "[^",
    "]",
    "-",
    "*",
    "+",
    "?",
    "{2}",
    "{1,3}",
    "{0,}",
    "{",
    "}",
    ",",
    "\\",
    "\\d",
    "\\W",
    "\\b",
    "\\B",
    "\\s",
    "\\1",
    "\\k<n>",
    "\\p{L}",
    "\\P{Lu}",
    "\\u{1f600}",
    "\\ud83d",
    "\\x41",
    "\\cA",
    "\\0",
    "[a-z]",
    "[^\\s]",
    "//",
    "\n",
    "\u{2028}",
    "&&",
    "999999999999",
];

#[test]
fn patterns_of_any_text_are_judged_or_refused_within_themselves() {
    let (mut chance, mut judged) = (Chance(2), 0);
    for _ in 0..6_000 {
        let pattern = chance.text(PATTERN_PIECES, 12);
        let flags: String = ["i", "m", "s", "u"].iter().filter(|_| chance.below(3) == 0).copied().collect();
        let units = pattern.encode_utf16().count();
        let parsed = match Pattern::parse(&pattern, &flags) {
            Ok(parsed) => parsed,
            Err(Fault::Malformed { at, reason } | Fault::Unsupported { at, reason }) => {
                assert!(at <= units && !reason.is_empty(), "/{pattern}/{flags}: {reason} at {at} of {units}");
                continue;
            }
        };
        judged += 1;
        let mut window = chance.text(&["a", "b", "é", "😀", " ", "\n", "A", "0", "\u{2028}"], 12).into_bytes();
        if chance.below(4) == 0 {
            window.push(0xf0);
        }
        let whole = parsed.evaluate(&window, false);
        assert_eq!(parsed.evaluate(&window, false), whole, "/{pattern}/{flags}");
        // What is sure of a window with more to come is sure of the same window alone, unless a character is torn.
        let open = parsed.evaluate(&window, true);
        if std::str::from_utf8(&window).is_ok() {
            match (&open, &whole) {
                (Answer::Match, other) => assert_ne!(*other, Answer::NoMatch, "/{pattern}/{flags} on {window:?}"),
                (Answer::NoMatch, other) => assert_ne!(*other, Answer::Match, "/{pattern}/{flags} on {window:?}"),
                _ => {}
            }
        }
    }
    assert!(judged > 600, "{judged} of the patterns were patterns");
}

#[test]
fn the_deepest_and_widest_patterns_end() {
    ends("a pattern at its bounds", || {
        for (open, close) in
            [("(", ")"), ("(?:", ")"), ("(?=", ")"), ("(?<!", ")"), ("[", "]"), ("(a|", ")"), ("(?:x{0,9}", "){2}")]
        {
            for depth in [1, 20, 60, 127, 200, 5_000] {
                for (left, right) in [(open, close), (open, ""), ("", close)] {
                    let pattern = format!("{}a{}", left.repeat(depth), right.repeat(depth));
                    if let Ok(parsed) = Pattern::parse(&pattern, "") {
                        let answer = parsed.evaluate(b"aaaaxaaa", false);
                        assert!(!matches!(answer, Answer::Unknown { .. }), "{pattern}");
                    }
                }
            }
        }
        for pattern in [
            "a?".repeat(127),
            "(?=a*)".repeat(42),
            "a{0,99}".repeat(36),
            "[^a]{255}".repeat(28),
            ".*".repeat(127),
            "a{65535}".to_owned(),
            "(?:(?:(?:a{99}){99}){99}){99}".to_owned(),
        ] {
            for flags in ["", "iu"] {
                if let Ok(parsed) = Pattern::parse(&pattern, flags) {
                    let _ = parsed.evaluate("añ".repeat(700).as_bytes(), true);
                }
            }
        }
    });
}

#[test]
fn a_url_that_is_accepted_means_one_public_place() {
    let pieces = &[
        "https://",
        "http://",
        "https:",
        "//",
        "/",
        "\\",
        "@",
        ":",
        "#",
        "?",
        "s.example",
        "example.com",
        "127.0.0.1",
        "0x7f.1",
        "[::1]",
        "[::ffff:10.0.0.1]",
        "[2001:db8::1]",
        "[2600::1]",
        "9.9.9.9",
        "10.1",
        "localhost",
        ".local",
        ".",
        "..",
        ":443",
        ":0",
        ":22",
        ":65536",
        "%2e",
        "%00",
        "%",
        "é",
        "ｅ",
        "。",
        "\t",
        "\n",
        " ",
        "\0",
        "xn--",
        "a",
        "-",
        "_",
        "u:p",
        "😀",
    ];
    let (mut chance, mut accepted) = (Chance(3), 0);
    for n in 0..20_000 {
        let start = if n % 3 == 0 { "" } else { "https://" };
        let text = format!("{start}{}", chance.text(pieces, 6));
        let Ok(target) = Target::parse(&text, &UrlPolicy::default()) else { continue };
        accepted += 1;
        let url = target.url();
        assert_eq!(url.scheme(), "https", "{text:?}");
        assert!(text.starts_with("https://"), "{text:?}");
        assert!(url.username().is_empty() && url.password().is_none() && url.fragment().is_none(), "{text:?}");
        let host = url.host_str().expect("a host");
        assert!(host.contains('.') || host.starts_with('['), "{text:?}");
        assert!(!host.ends_with('.') && !host.contains(".."), "{text:?}");
        if let Ok(ip) = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>() {
            let inside = match ip.to_canonical() {
                std::net::IpAddr::V4(v4) => v4.is_loopback() || v4.is_private() || v4.is_unspecified(),
                std::net::IpAddr::V6(v6) => v6.segments()[0] >> 13 != 1 || v6.segments()[..2] == [0x2001, 0xdb8],
            };
            assert!(!inside, "{text:?}");
        } else {
            assert!(host != "localhost" && !host.ends_with(".localhost"), "{text:?}");
        }
        assert!(!host.ends_with(".local") && !matches!(url.port(), Some(0 | 22)), "{text:?}");
        // What is requested is read again as the same place.
        let key = target.key(Method::Get, "*/*").url;
        let again =
            Target::parse(&key, &UrlPolicy::default()).unwrap_or_else(|why| panic!("{text:?} then {key:?}: {why}"));
        assert_eq!(again.key(Method::Get, "*/*").url, key, "{text:?}");
    }
    assert!(accepted > 500, "{accepted} of the urls were accepted");
}

#[test]
fn damaged_tests_are_answered_one_by_one() {
    let whole = json!([
        {"type": "json_path", "url": "https://s.example/", "path": "a[0].b", "expect": {"x": [1, 2.5, "é"]}, "name": "n"},
        {"type": "regex", "url": "https://s.example/", "pattern": "a(?=b)", "flags": "im"},
        {"type": "size", "url": "https://s.example/", "max_bytes": 10, "min_bytes": 0},
        {"type": "header", "url": "https://s.example/", "name": "x-n", "equals": "y"},
        {"type": "sha256", "expect": "a".repeat(64)},
        {"type": "exit_0", "argv": ["a"], "within": 5, "inputs": [{"path": "a", "url": "https://s.example/", "sha256": "evidence", "mode": "0644"}]},
    ])
    .to_string();
    let able = Capabilities::with_jobs(60);
    let (mut chance, mut read, mut files) = (Chance(4), 0, 0);
    for _ in 0..4_000 {
        let bytes = chance.damaged(whole.as_bytes(), JSON_PIECES);
        let text = String::from_utf8_lossy(&bytes);
        if let Ok(suite) = Suite::from_text(&text, &UrlPolicy::default(), &able) {
            read += 1;
            let results = suite.judge(&BTreeMap::new(), &Delivery::default());
            assert_eq!(results.len(), if suite.refused().is_some() { 1 } else { suite.tests().len() });
            // With nothing observed and nothing delivered no test passes.
            assert!(
                results.iter().all(|result| result.outcome.word() != "pass" && !result.reason.is_empty()),
                "{text}"
            );
            let again = Suite::from_text(suite.source(), &UrlPolicy::default(), &able).expect("its own text");
            assert_eq!(again.judge(&BTreeMap::new(), &Delivery::default()), results, "{text}");
        }
        match TestFile::read(&bytes) {
            Ok(file) => {
                files += 1;
                let again = file.tests.root().to_text();
                assert_eq!(
                    TestFile::read(again.as_bytes()).map(|file| file.tests.root().to_text()).ok().as_deref(),
                    Some(&*again),
                    "{text}"
                );
            }
            Err(faults) => {
                assert!(!faults.is_empty(), "{text}");
                for fault in faults {
                    assert!(fault.at <= bytes.len() && fault.line >= 1 && fault.column >= 1, "{fault}: {text}");
                    assert!(fault.line <= 1 + bytes.iter().filter(|b| **b == b'\n').count(), "{fault}: {text}");
                }
            }
        }
    }
    assert!(read > 400 && files > 400, "{read} suites and {files} files were read");
}

#[test]
fn the_largest_json_of_every_kind_ends() {
    ends("a megabyte of json", || {
        let mib = 1_048_576;
        let list = |item: &str| format!("[{}1]", format!("{item},").repeat(mib / (item.len() + 1) - 1));
        let object = |key: &dyn Fn(usize) -> String| {
            let members: Vec<String> = (0..60_000).map(|n| format!("\"{}\":{n}", key(n))).collect();
            format!("{{{}}}", members.join(","))
        };
        for text in [
            "[".repeat(mib),
            "{\"a\":".repeat(mib / 5),
            format!("\"{}\"", "\\ud800".repeat(mib / 6)),
            format!("\"{}", "\\\"".repeat(mib / 2)),
            format!("1{}", "0".repeat(mib)),
            format!("0.{}1e-999999999", "0".repeat(mib)),
            list("1e400"),
            list("{}"),
            list("[[[[[]]]]]"),
            object(&|_| "same".to_owned()),
            object(&|n| format!("k{n}")),
            object(&|n| format!("k{:05}", 59_999 - n)),
            " ".repeat(mib),
        ] {
            let Ok(document) = Document::read(&text) else { continue };
            let root = document.root();
            let _ = (root.repeated_keys().len(), root.repeats_a_key(), root.numbers().count());
            let path: Vec<u16> = "k59999".encode_utf16().collect();
            let _ = Path::parse(&path).expect("a path").find(root);
            assert_ne!(equality(root, root), Equality::Different, "a document is itself");
            let copy = root.to_text();
            assert_eq!(Document::read(&copy).map(|document| document.root().to_text()).as_deref(), Ok(&*copy));
        }
    });
}

struct Signed {
    key: SigningKey,
    address: Address,
    domain: Domain,
    now: Timestamp,
}

fn signed() -> Signed {
    let domain = Domain::parse("mar.example").expect("a domain");
    let address = Address::parse("anamar@mar.example").expect("an address");
    Signed { key: SigningKey::from_seed([5; 32]), address, domain, now: Timestamp::from_millis(1_790_000_000_000) }
}

#[test]
fn damaged_envelopes_are_refused_or_mean_what_was_signed() {
    let who = signed();
    let mut doc = json!({
        "nyx5": "1", "id": "m-00000001", "from": who.address, "to": ["evamar@rio.example"], "type": "message",
        "created": who.now, "expires": null, "thread": "t", "in_reply_to": null,
        "content": {"media": "text/plain", "body": {"a": [1, "é", null]}}, "extensions": {"urn:x:y": {"b": 1}},
    });
    who.key.sign_object(&mut doc, "signature");
    let (whole, meaning) = (doc.to_string(), canonical(&doc));
    let (mut chance, mut read, mut believed) = (Chance(5), 0, 0);
    for n in 0..4_000 {
        // Now and then whole, or only spaced otherwise: then it must be believed.
        let bytes = match n % 50 {
            0 => format!(" {} ", whole.replace(',', " ,\n")).into_bytes(),
            _ => chance.damaged(whole.as_bytes(), JSON_PIECES),
        };
        let Ok(doc) = parse(&bytes) else { continue };
        let verifies = who.key.public().verify_object(&doc, "signature");
        let without = |doc: &Value| {
            let mut doc = doc.clone();
            doc.as_object_mut().map(|fields| fields.remove("signature"));
            canonical(&doc)
        };
        if verifies {
            believed += 1;
            let original: Value = serde_json::from_str(&meaning).expect("json");
            assert_eq!(without(&doc), without(&original), "{doc}");
        }
        match Envelope::parse(doc.clone(), 1_048_576) {
            Ok(envelope) => {
                read += 1;
                assert_eq!(canonical(envelope.doc()), canonical(&doc));
            }
            Err(refusal) => assert!(refusal.reason.len() > 8, "{refusal:?}"),
        }
    }
    assert!(read > 200 && believed >= 80, "{read} were read and {believed} believed");
}

#[test]
fn damaged_credentials_open_nothing_else() {
    let who = signed();
    let request = Request { method: "POST", path: "/outbound", host: "mar.example" };
    let header = Token::header(&who.address, &who.key, request, who.now, "nonce-0001");
    let rio = Domain::parse("rio.example").expect("a domain");
    let relay = Relay::header(&who.domain, &who.key, "m-00000001", &rio);
    let behalf = OnBehalf::header(&who.domain, &who.key, &who.address, &rio, who.now);
    let keys = [who.key.public()];
    let pieces = &[
        "Nyx5 ",
        "nyx51 ",
        ".",
        "=",
        ";",
        " ",
        "\t",
        "domain=",
        "kid=",
        "sig=",
        "for=",
        "ts=",
        "A",
        "_",
        "-",
        "é",
        "😀",
        "\0",
        "==",
        "mar.example",
    ];
    let mut chance = Chance(6);
    let mut believed = [0; 3];
    for n in 0..6_000 {
        let mut damaged = |whole: &str| match n % 100 {
            0 => whole.to_owned(),
            _ => String::from_utf8_lossy(&chance.damaged(whole.as_bytes(), pieces)).into_owned(),
        };
        if let Ok(token) = Token::parse(&damaged(&header))
            && token.check(&keys[0], request, who.now).is_ok()
        {
            believed[0] += 1;
            assert_eq!((&token.address, token.nonce.as_str()), (&who.address, "nonce-0001"));
            assert!(token.check(&keys[0], Request { path: "/mailbox", ..request }, who.now).is_err());
        }
        if let Some(read) = Relay::parse(&damaged(&relay))
            && read.verifies(&keys, "m-00000001", &rio)
        {
            believed[1] += 1;
            assert!(!read.verifies(&keys, "m-00000002", &rio) && !read.verifies(&keys, "m-00000001", &who.domain));
        }
        if let Some(read) = OnBehalf::parse(&damaged(&behalf))
            && read.verifies(&keys, &rio, who.now)
        {
            believed[2] += 1;
            assert_eq!((&read.agent, &read.domain), (&who.address, &who.domain));
        }
    }
    assert!(believed.iter().all(|count| *count >= 60), "{believed:?}");
}

#[test]
fn damaged_quotes_bind_nobody() {
    let who = signed();
    let buyer = Address::parse("evamar@mar.example").expect("an address");
    let quote = Offer {
        id: "q-00000001".to_owned(),
        house: who.domain.clone(),
        seller: who.address.clone(),
        buyer: buyer.clone(),
        kind: ContractKind::Escrow,
        price: Amount::new(200).expect("an amount"),
        concept: "a map".to_owned(),
        terms: json!({"verify": [{"type": "http_status", "url": "https://s.example/"}], "deadline": null}),
        arbiter: Address::parse("verifica@mar.example").ok(),
        referrer: None,
        service: Some("maps".to_owned()),
        issued: who.now,
        expires: Some(Timestamp::from_millis(who.now.millis() + 1_000)),
    }
    .sign(&who.key);
    let whole = quote.to_string();
    let pieces: Vec<&str> =
        JSON_PIECES.iter().copied().chain(["\"price\":1,", "\"buyer\":null,", "200", "-1", "1e2"]).collect();
    let (mut chance, mut read, mut believed) = (Chance(7), 0, 0);
    for n in 0..4_000 {
        let bytes = if n % 50 == 0 { whole.clone().into_bytes() } else { chance.damaged(whole.as_bytes(), &pieces) };
        let Ok(doc) = parse_object(&bytes) else { continue };
        match Quote::parse(&doc, &who.domain, &buyer, who.now, 1_000) {
            Ok(parsed) => {
                read += 1;
                assert_eq!(parsed.buyer, buyer);
                assert!(parsed.expires.is_none_or(|at| at > who.now), "{doc}");
                assert_eq!(canonical(parsed.doc()), canonical(&doc));
                if who.key.public().verify_object(&doc, "signature") {
                    believed += 1;
                    assert_eq!((parsed.price.tokens(), &parsed.terms), (200, &quote["terms"]), "{doc}");
                }
            }
            Err(refusal) => assert!(refusal.reason.len() > 8, "{refusal:?}"),
        }
    }
    assert!(read > 200 && believed >= 80, "{read} were read and {believed} believed");
}

#[test]
fn damaged_configurations_are_told_where_they_are_wrong() {
    let domain = Domain::parse("mar.example").expect("a domain");
    let listen = "127.0.0.1:4555".parse().expect("an address");
    let mut whole = config::template(&domain, "https://mar.example", &listen);
    whole.push_str("\n[probe]\nallow_networks = [\"10.0.0.0/8\"]\n[libro]\nfee_bps = 5\n");
    let pieces = &[
        "=",
        "[",
        "]",
        "\"",
        "'",
        "\n",
        "#",
        ".",
        ",",
        "{",
        "}",
        "[[",
        "\"\"\"",
        "\\u00",
        "-",
        "1e9",
        "nan",
        "true",
        "é",
        "😀",
        "\0",
        "domain = 5\n",
        "[libro]\n",
        "\"10s\"",
        "99999999999999999999",
        "1979-05-27",
    ];
    let (mut chance, mut refused) = (Chance(8), 0);
    for _ in 0..1_500 {
        let text = String::from_utf8_lossy(&chance.damaged(whole.as_bytes(), pieces)).into_owned();
        let told = match config::parse(&text, &BTreeMap::new(), std::path::Path::new("/etc/house")) {
            Ok((_, warnings)) => warnings,
            Err(faults) => {
                refused += 1;
                assert!(!faults.is_empty(), "{text}");
                faults
            }
        };
        for fault in told {
            assert!(!fault.message.is_empty());
            if let config::At::Span(span) = &fault.at {
                assert!(text.get(span.clone()).is_some(), "{} at {span:?} of {}", fault.message, text.len());
            }
        }
    }
    assert!(refused > 200, "{refused} were refused");
}
