//! The faults that other checkers were reported for, each as a server that provokes it: what the whole way, from the
//! socket to the outcome of a test, makes of it. The same table runs over TLS 1.2 and 1.3.

use crate::hostile::server::{Server, Stage, Step, Tls, send};
use crate::hostile::*;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::task::JoinSet;
use verifica::client::agent::SystemClock;
use verifica::observe::jobs::Order;
use verifica::observe::look::{Eyes, look};
use verifica::probe::url::{Target, UrlPolicy};
use verifica::probe::{Capabilities, Delivery, Outcome, Suite};
use verifica::wire::Sha256;

/// What the server does, what is asked of it, and how that ends.
type Row = (&'static str, Vec<Step>, Value, &'static str);

async fn outcome(server: &Server, tests: &Value) -> Vec<(String, String)> {
    let urls = UrlPolicy { addresses: loopback() };
    let suite = Arc::new(Suite::from_tests(tests, &urls, &Capabilities::network()));
    let eyes = Eyes { fetcher: fetcher_to(server.address), jobs: None, timeout_ms: 30_000 };
    let looked = look(&eyes, &suite, &Delivery::default(), &Order::default(), &SystemClock).await;
    let word = |outcome: Outcome| match outcome {
        Outcome::Undecided(cause) => format!("undecided {}", cause.name()),
        decided => decided.word().to_owned(),
    };
    looked.look.results.into_iter().map(|result| (word(result.outcome), result.reason)).collect()
}

async fn table(rows: Vec<Row>) {
    let mut set = JoinSet::new();
    for tls in [Tls::V12, Tls::V13] {
        for (what, steps, test, expect) in rows.clone() {
            set.spawn(async move {
                let server =
                    Server::scripted("127.0.0.1:0", identity(), tls, move |_| (Stage::Request, steps.clone())).await;
                let mut test = test;
                test["url"] = format!("https://{HOST}/").into();
                let got = outcome(&server, &test).await.remove(0);
                (what, tls, expect, got)
            });
        }
    }
    let wrong: Vec<_> = set.join_all().await.into_iter().filter(|(_, _, expect, got)| got.0 != *expect).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn ok(head: &str, body: impl AsRef<[u8]>) -> Step {
    send([format!("HTTP/1.1 200 OK\r\n{head}\r\n").as_bytes(), body.as_ref()].concat())
}

fn sha256(of: impl AsRef<[u8]>) -> Value {
    json!({"type": "sha256", "expect": Sha256::of(of).hex()})
}

fn regex(pattern: &str) -> Value {
    json!({"type": "regex", "pattern": pattern})
}

fn path(path: &str, expect: Value) -> Value {
    json!({"type": "json_path", "path": path, "expect": expect})
}

fn header(name: &str, equals: &str) -> Value {
    json!({"type": "header", "name": name, "equals": equals})
}

fn whole(body: impl AsRef<[u8]>) -> Vec<Step> {
    let body = body.as_ref();
    vec![ok(&format!("Content-Length: {}\r\n", body.len()), body), Step::Fin]
}

#[tokio::test]
async fn part_of_a_body_is_not_the_body() {
    use Step::{Fin, Notify, Reset};
    let short = |body: &str| ok("Content-Length: 100\r\n", body);
    let chunked = |body: &str| ok("Transfer-Encoding: chunked\r\n", body);
    table(vec![
        ("a short read is hashed", vec![short("hello"), Notify], sha256("hello"), "undecided origin"),
        ("a short read is hashed, FIN", vec![short("hello"), Fin], sha256("hello"), "undecided origin"),
        ("a read error is dropped", vec![short("hello"), Reset], sha256("hello"), "undecided network"),
        ("the fragment was in the part that came", vec![short("hello"), Notify], regex("hello"), "undecided origin"),
        ("the fragment was not in it", vec![short("hello"), Notify], regex("jamás"), "undecided origin"),
        ("part of a document is one", vec![short("{\"a\":1}"), Notify], path("a", json!(1)), "undecided origin"),
        (
            "the part is small",
            vec![short("hello"), Notify],
            json!({"type": "size", "max_bytes": 50}),
            "undecided origin",
        ),
        ("the last chunk is missing", vec![chunked("5\r\nhello\r\n"), Notify], sha256("hello"), "undecided origin"),
        ("the last line is missing", vec![chunked("5\r\nhello\r\n0\r\n"), Fin], sha256("hello"), "undecided origin"),
        ("a whole body and a rude end", vec![ok("Content-Length: 5\r\n", "hello"), Reset], sha256("hello"), "pass"),
        ("a whole chunked body and a rude end", vec![chunked("5\r\nhello\r\n0\r\n\r\n"), Fin], sha256("hello"), "pass"),
        ("no length, close_notify", vec![ok("", "hello"), Notify], sha256("hello"), "pass"),
        ("no length, close_notify, another", vec![ok("", "hello"), Notify], sha256("other"), "fail"),
        ("no length, FIN alone", vec![ok("", "hello"), Fin], sha256("hello"), "pass"),
        ("no length, FIN alone, another", vec![ok("", "hello"), Fin], sha256("other"), "undecided origin"),
        ("no length, FIN alone, a match", vec![ok("", "hello"), Fin], regex("ell"), "pass"),
        ("no length, FIN alone, its end", vec![ok("", "hello"), Fin], regex("lo$"), "undecided origin"),
        ("no length, FIN alone, no match", vec![ok("", "hello"), Fin], regex("x"), "undecided origin"),
        ("no length, reset", vec![ok("", "hello"), Reset], regex("ell"), "undecided network"),
        (
            "length before compression",
            vec![ok("Content-Length: 16775\r\n", "x"), Notify],
            regex("x"),
            "undecided origin",
        ),
        (
            "a seam in the match",
            vec![ok("Content-Length: 5\r\n", "he"), Step::Wait(30), send("llo")],
            regex("hello"),
            "pass",
        ),
        (
            "a seam in a character",
            vec![ok("Content-Length: 2\r\n", b"\xC3"), Step::Wait(30), send(b"\xA9")],
            regex("é"),
            "pass",
        ),
    ])
    .await;
}

#[tokio::test]
async fn framing_is_read_once_and_not_repaired() {
    let end = Step::Notify;
    let lines = |lines: &str| vec![ok(lines, "hello"), end.clone()];
    table(vec![
        (
            "two lengths, equal",
            lines("Content-Length: 5\r\nContent-Length: 5\r\n"),
            sha256("hello"),
            "undecided origin",
        ),
        ("two lengths", lines("Content-Length: 5\r\nContent-Length: 4\r\n"), sha256("hell"), "undecided origin"),
        ("a signed length", lines("Content-Length: +5\r\n"), sha256("hello"), "undecided origin"),
        (
            "both framings",
            lines("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
            sha256("hello"),
            "undecided origin",
        ),
        ("a coding nobody knows", lines("Transfer-Encoding: xchunked\r\n"), sha256("hello"), "undecided origin"),
        ("a folded line", lines("Content-Length: 5\r\nX-T: a\r\n b\r\n"), header("x-t", "a b"), "undecided origin"),
        (
            "a folded line of spaces alone, and headers that follow it",
            lines("Content-Length: 5\r\n \t\r\nX-After: v\r\n"),
            header("x-after", "v"),
            "undecided origin",
        ),
        (
            "an invalid line is skipped",
            lines("Content-Length: 5\r\nX(T: v\r\nX-T: v\r\n"),
            header("x-t", "v"),
            "undecided origin",
        ),
        (
            "205 with content",
            vec![send("HTTP/1.1 205 X\r\nContent-Length: 5\r\n\r\nhello")],
            sha256(""),
            "undecided origin",
        ),
        ("204 with content", vec![send("HTTP/1.1 204 X\r\n\r\nhello"), end.clone()], sha256(""), "undecided origin"),
        ("204", vec![send("HTTP/1.1 204 X\r\n\r\n"), end.clone()], sha256(""), "pass"),
        (
            "206 that nobody asked for",
            vec![send("HTTP/1.1 206 X\r\nContent-Length: 5\r\n\r\nhello")],
            sha256("hello"),
            "undecided origin",
        ),
        (
            "304 with content before another answer",
            vec![send("HTTP/1.1 304 X\r\n\r\nhelloHTTP/1.1 200 OK\r\n\r\n"), end.clone()],
            json!({"type": "http_status", "expect": 304}),
            "pass",
        ),
        (
            "an interim answer before the final one",
            vec![send("HTTP/1.1 100 Continue\r\n\r\n"), ok("Content-Length: 5\r\n", "hello")],
            json!({"type": "http_status"}),
            "pass",
        ),
        (
            "headers of an interim answer",
            vec![send("HTTP/1.1 103 E\r\nX-T: early\r\n\r\n"), ok("Content-Length: 0\r\n", "")],
            header("x-t", "early"),
            "fail",
        ),
        ("HTTP/0.9", vec![send("hello"), end.clone()], regex("hello"), "undecided origin"),
        (
            "status 999",
            vec![send("HTTP/1.1 999 X\r\nContent-Length: 0\r\n\r\n")],
            json!({"type": "http_status"}),
            "undecided origin",
        ),
    ])
    .await;
}

#[tokio::test]
async fn content_is_judged_as_it_came_or_not_at_all() {
    // "hello" by gzip, whole and without its last six bytes.
    let squeezed = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xcbH\xcd\xc9\xc9\x07\x00\x86\xa6\x106\x05\x00\x00\x00";
    let coded = |coding: &str, body: &[u8]| {
        vec![ok(&format!("Content-Encoding: {coding}\r\nContent-Length: {}\r\n", body.len()), body), Step::Fin]
    };
    let part = &squeezed[..squeezed.len() - 6];
    table(vec![
        ("the hash of what was packed", coded("gzip", squeezed), sha256("hello"), "undecided origin"),
        ("the hash of the pack", coded("gzip", squeezed), sha256(squeezed), "undecided origin"),
        ("a pattern on packed bytes", coded("gzip", squeezed), regex("^[^h]*$"), "undecided origin"),
        ("a pack without its end", coded("gzip", part), regex("hello"), "undecided origin"),
        (
            "a pack without its end or length",
            vec![ok("Content-Encoding: gzip\r\n", part), Step::Fin],
            regex("hello"),
            "undecided origin",
        ),
        ("packed twice", coded("gzip, gzip", squeezed), regex("hello"), "undecided origin"),
        ("empty members of the list", coded("gzip,,", squeezed), sha256("hello"), "undecided origin"),
        ("a coding nobody knows", coded("quux", b"hello"), sha256("hello"), "undecided origin"),
        (
            "the small pack of something large",
            coded("br", b"\x00"),
            json!({"type": "size", "max_bytes": 10}),
            "undecided origin",
        ),
        ("identity said aloud", coded("identity", b"hello"), sha256("hello"), "pass"),
        ("the header of a coded answer is there", coded("gzip", squeezed), header("content-encoding", "gzip"), "pass"),
        ("its length too", coded("gzip", squeezed), header("content-length", "25"), "pass"),
        ("a download named gzip that is not coded", whole(squeezed), sha256(squeezed), "pass"),
    ])
    .await;
}

#[tokio::test]
async fn what_is_endless_is_cut_and_what_the_cut_decides_is_decided() {
    let stream = || vec![ok("", "ready\n"), Step::Endless(vec![b'x'; 65_536])];
    let redirect =
        vec![send("HTTP/1.1 302 F\r\nLocation: http://127.0.0.1:6379/\r\n\r\n"), Step::Endless(vec![b'x'; 65_536])];
    let edge = 1_048_576;
    let at = |place: usize| {
        let mut body = vec![b'x'; edge + 64];
        body[place..place + 4].copy_from_slice(b"NEED");
        whole(body)
    };
    table(vec![
        ("a stream that began well", stream(), regex("^ready$|^ready\\n"), "pass"),
        ("a stream that never says it", stream(), regex("never"), "fail"),
        ("a stream, and its size", stream(), json!({"type": "size", "max_bytes": 1_000}), "fail"),
        ("a stream is long enough", stream(), json!({"type": "size", "min_bytes": 1_000}), "pass"),
        ("a stream is no document", stream(), path("a", json!(1)), "undecided origin"),
        ("a stream has no hash", stream(), sha256("ready\n"), "undecided origin"),
        ("a redirect with an endless body", redirect, regex("x"), "fail"),
        ("the last four bytes of the window", at(edge - 4), regex("NEED"), "pass"),
        ("two bytes over its end", at(edge - 2), regex("NEED"), "fail"),
        ("beyond its end", at(edge), regex("NEED"), "fail"),
        (
            "a length that is a lie",
            vec![ok("Content-Length: 9000000000000000000\r\n", "hi"), Step::Fin],
            json!({"type": "size", "min_bytes": 5}),
            "undecided origin",
        ),
    ])
    .await;
}

#[tokio::test]
async fn the_answer_is_about_what_was_asked() {
    let status =
        |code: u16| vec![send(format!("HTTP/1.1 {code} X\r\nContent-Length: 2\r\nX-B: 7\r\n\r\n{{}}")), Step::Fin];
    let expect = |code: u16| json!({"type": "http_status", "expect": code});
    let value = |text: &str| whole(text);
    table(vec![
        ("an expected 404", status(404), expect(404), "pass"),
        ("an expected 500", status(500), expect(500), "pass"),
        ("an unexpected 404", status(404), expect(200), "fail"),
        ("a 522 is nobody's", status(522), expect(200), "undecided edge"),
        ("a 522 has no content", status(522), path("a", json!(null)), "undecided edge"),
        ("a 525 and its header", status(525), header("x-b", "7"), "undecided edge"),
        ("HEAD is not served", status(405), json!({"type": "http_status", "method": "HEAD"}), "fail"),
        ("a header on an error", status(500), header("X-B", "7"), "pass"),
        ("a header that is not there", status(200), header("x-c", "7"), "fail"),
        ("a redirect is its own code", status(302), expect(302), "pass"),
        ("what is missing is no zero", value("{\"error\":1}"), path("n", json!(0)), "fail"),
        ("what is missing is no null", value("{}"), path("n", json!(null)), "fail"),
        ("what is missing is no empty text", value("{}"), path("n", json!("")), "fail"),
        ("null is null", value("{\"n\":null}"), path("n", json!(null)), "pass"),
        ("text is no number", value("{\"n\":\"2\"}"), path("n", json!(2)), "fail"),
        ("010 is not JSON", value("{\"n\":010}"), path("n", json!(8)), "fail"),
        ("an integer and a float", value("{\"n\":2.0}"), path("n", json!(2)), "pass"),
        ("450 and 4.5E+2", value("{\"n\":4.5E+2}"), path("n", json!(450)), "pass"),
        ("a number beyond doubles", value("{\"n\":1e400}"), path("n", json!(null)), "undecided origin"),
        ("-1e40 and 1e40", value("{\"n\":-1e40}"), path("n", json!(1e40)), "fail"),
        (
            "two integers that are one double",
            value("{\"n\":9007199254740993}"),
            path("n", json!(9_007_199_254_740_992u64)),
            "undecided origin",
        ),
        ("a byte order mark", value("\u{feff}{\"n\":1}"), path("n", json!(1)), "pass"),
        ("a key named length", value("{\"length\":1}"), path("length", json!(1)), "pass"),
        ("a list has no length", value("[1,2]"), path("length", json!(2)), "undecided contract"),
        ("a key that stands twice", value("{\"n\":1,\"n\":2}"), path("n", json!(2)), "undecided origin"),
        ("a line end before the end", value("cat\n"), regex("cat$"), "fail"),
        ("CR is a line end", value("a\r\n"), json!({"type": "regex", "pattern": "a$", "flags": "m"}), "pass"),
        ("letters of other scripts are no words", value("éΩ中"), regex("[\\w-]+"), "fail"),
        ("NEL is no space", value("\u{85}"), regex("\\s"), "fail"),
        ("a byte order mark within is one", value("a\u{feff}"), regex("a\\s"), "pass"),
        (
            "the order of a class",
            value("a.c"),
            json!({"type": "regex", "pattern": "(\\.[\\u4e00-\\u9fa5A-Z])", "flags": "i"}),
            "pass",
        ),
    ])
    .await;
}

/// One member of every type that fails makes the whole fail, whatever its place among others that pass.
#[tokio::test]
async fn no_failing_member_is_lost() {
    let server = Server::start(identity(), whole("{\"a\":1}")).await;
    let url = format!("https://{HOST}/");
    let pass = json!({"type": "http_status", "url": url});
    let failing = [
        json!({"type": "http_status", "expect": 404}),
        header("content-length", "8"),
        header("x-none", ""),
        sha256("other"),
        json!({"type": "size", "max_bytes": 6}),
        path("a", json!(2)),
        regex("b"),
    ];
    for mut test in failing {
        test["url"] = url.clone().into();
        for place in 0..3 {
            let mut tests = vec![pass.clone(), pass.clone()];
            tests.insert(place, test.clone());
            let got = outcome(&server, &json!(tests)).await;
            let words: Vec<&str> = got.iter().map(|(word, _)| word.as_str()).collect();
            let expect: Vec<&str> = (0..3).map(|n| if n == place { "fail" } else { "pass" }).collect();
            assert_eq!(words, expect, "{test}");
        }
    }
    assert!(server.requests().iter().all(|request| request.contains("\r\nAccept-Encoding: identity\r\n")));
    assert!(server.requests().iter().all(|request| request.starts_with("GET / HTTP/1.1\r\n")), "HEAD was not agreed");
}

/// Names and addresses that one reader takes for another's: none of them is asked.
#[tokio::test]
async fn no_spelling_leads_inward() {
    let admitted = |url: &str| Target::parse(url, &UrlPolicy::default()).map(|target| target.url().to_string());
    for url in [
        "https://::1/",
        "https://api.seller.example:443@169.254.169.254/",
        "https://127.0.0.1:6666\\@1.1.1.1/",
        "https:\\\\seller.example\\@x",
        "https://[64:ff9b::a9fe:a9fe]/",
        "https://[::7f00:1]/",
        "https://[2002:7f00:1::]/",
        "https://[2001:0:0:0:0:0:80ff:fffe]/",
        "https://[2606:4700::5efe:7f00:1]/",
        "https://seller.example./",
        "https://xn--example-.org/",
        "https://xn--a/",
    ] {
        assert!(admitted(url).is_err(), "{url} is {:?}", admitted(url));
    }
    // Both of the common readers take these for the public host that they name.
    for (url, asked) in [
        ("https://1.1.1.1\\@127.0.0.1/", "https://1.1.1.1/@127.0.0.1/"),
        ("https://seller.example/\t@127.0.0.1", "https://seller.example/@127.0.0.1"),
    ] {
        assert_eq!(admitted(url).as_deref(), Ok(asked));
    }
}
