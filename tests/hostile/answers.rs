//! Answers: heads and contents, each row over TLS 1.2 and 1.3.

use crate::hostile::server::{Server, Stage, Step, Tls, send};
use crate::hostile::*;
use tokio::task::JoinSet;
use verifica::wire::Sha256;

const READ: u64 = 1_000_000;

/// `(name, what the server does, what is seen)`; runs every row over both versions of TLS.
async fn table(rows: Vec<(&'static str, Vec<Step>, &'static str)>) {
    let mut set = JoinSet::new();
    for tls in [Tls::V12, Tls::V13] {
        for (name, steps, expect) in rows.clone() {
            set.spawn(async move {
                let server =
                    Server::scripted("127.0.0.1:0", identity(), tls, move |_| (Stage::Request, steps.clone())).await;
                let seen = see(&server, READ).await;
                (name, tls, summary(&seen), expect, seen)
            });
        }
    }
    let wrong: Vec<_> = set.join_all().await.into_iter().filter(|(_, _, seen, expect, _)| seen != expect).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn ok(head: &str, body: &str) -> Step {
    send(format!("HTTP/1.1 200 OK\r\n{head}\r\n{body}"))
}

#[tokio::test]
async fn content_of_a_stated_length() {
    use Step::{Fin, Notify, Reset};
    let length = |n: u64, body: &str| ok(&format!("Content-Length: {n}\r\n"), body);
    table(vec![
        ("exact, close_notify", vec![length(5, "hello"), Notify], "200 complete 5"),
        ("exact, abrupt close", vec![length(5, "hello"), Fin], "200 complete 5"),
        ("exact, reset", vec![length(5, "hello"), Reset], "200 complete 5"),
        ("more than stated", vec![length(5, "hello and more"), Notify], "200 complete 5"),
        (
            "in pieces",
            vec![length(5, "he"), Step::Wait(30), send("l"), Step::Wait(30), send("lo"), Fin],
            "200 complete 5",
        ),
        ("short, close_notify", vec![length(10_000, "fourteen bytes"), Notify], "200 broken origin 14"),
        ("short, abrupt close", vec![length(20, "0123456789"), Fin], "200 broken origin 10"),
        ("short, reset", vec![length(20, "0123456789"), Reset], "200 broken network 10"),
        ("nothing of it", vec![length(20, ""), Notify], "200 broken origin 0"),
        ("zero", vec![length(0, ""), Step::Hang], "200 complete 0"),
        ("size before compression", vec![length(16_775, &"x".repeat(4_838)), Notify], "200 broken origin 4838"),
    ])
    .await;
}

#[tokio::test]
async fn content_until_the_connection_closes() {
    use Step::{Fin, Notify, Reset};
    table(vec![
        ("close_notify", vec![ok("", "hello"), Notify], "200 complete 5"),
        ("FIN alone", vec![ok("", "hello"), Fin], "200 unconfirmed 5"),
        ("reset", vec![ok("", "hello"), Reset], "200 broken network 5"),
        ("nothing, close_notify", vec![ok("", ""), Notify], "200 complete 0"),
        ("nothing, FIN alone", vec![ok("", ""), Fin], "200 unconfirmed 0"),
        ("HTTP/1.0", vec![send("HTTP/1.0 200 OK\r\n\r\nhello"), Notify], "200 complete 5"),
        ("keep-alive promised", vec![ok("Connection: keep-alive\r\n", "hello"), Notify], "200 complete 5"),
    ])
    .await;
}

#[tokio::test]
async fn chunked_content() {
    use Step::{Fin, Notify, Reset};
    let chunked = |body: &str| ok("Transfer-Encoding: chunked\r\n", body);
    table(vec![
        ("whole", vec![chunked("5\r\nhello\r\n0\r\n\r\n"), Notify], "200 complete 5"),
        ("whole, FIN alone", vec![chunked("5\r\nhello\r\n0\r\n\r\n"), Fin], "200 complete 5"),
        ("whole, reset", vec![chunked("5\r\nhello\r\n0\r\n\r\n"), Reset], "200 complete 5"),
        ("whole, left open", vec![chunked("5\r\nhello\r\n0\r\n\r\n"), Step::Hang], "200 complete 5"),
        ("trailers", vec![chunked("5\r\nhello\r\n0\r\nX-T: a\r\n\r\n"), Notify], "200 complete 5"),
        (
            "seams",
            vec![chunked("1\r\nh\r\n4;a=b\r\nel"), Step::Wait(30), send("lo\r\n0\r"), Step::Wait(30), send("\n\r\n")],
            "200 complete 5",
        ),
        ("no last chunk", vec![chunked("5\r\nhello\r\n"), Notify], "200 broken origin 5"),
        (
            "no last chunk, connection: close",
            vec![ok("Connection: close\r\nTransfer-Encoding: chunked\r\n", "5\r\nhello\r\n"), Notify],
            "200 broken origin 5",
        ),
        ("no last chunk, FIN alone", vec![chunked("5\r\nhello\r\n"), Fin], "200 broken origin 5"),
        ("no last chunk, reset", vec![chunked("5\r\nhello\r\n"), Reset], "200 broken network 5"),
        ("no final CRLF", vec![chunked("5\r\nhello\r\n0\r\n"), Notify], "200 broken origin 5"),
        ("cut in a chunk", vec![chunked("5\r\nhel"), Notify], "200 broken origin 3"),
        ("space after the size", vec![chunked("5 \r\nhello\r\n0\r\n\r\n"), Notify], "200 broken origin 0"),
        ("bare LF", vec![chunked("5\nhello\n0\n\n"), Notify], "200 broken origin 0"),
        ("no size", vec![chunked("hello"), Notify], "200 broken origin 0"),
        ("endless extensions", vec![chunked("5;"), Step::Endless(vec![b'a'; 1_024])], "200 broken origin 0"),
        ("endless trailers", vec![chunked("0\r\n"), Step::Endless(b"X: a\r\n".repeat(100))], "200 broken origin 0"),
    ])
    .await;
}

#[tokio::test]
async fn framing_that_clients_read_differently() {
    let refused = "nothing head origin";
    let mut rows: Vec<(&'static str, Vec<Step>, &'static str)> = vec![
        (
            "HTTP/1.0 and chunked",
            vec![send("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")],
            refused,
        ),
        (
            "TE and CL, on 304",
            vec![send("HTTP/1.1 304 X\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n")],
            refused,
        ),
    ];
    for lines in [
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Content-Length: 5\r\nContent-Length: 5",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5, 5",
        "Content-Length: +5",
        "Content-Length: abc",
        "Content-Length: 99999999999999999999999",
        "Content-Length: -1",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: identity",
        "X-T: a\r\n  b",
        "Content-Length: 5\r\n \t",
        "X-T : a",
        "X(T: a",
        "X-T: a\0b",
        "X-T: a\rb",
        "X-T: \x01",
        "no colon",
    ] {
        rows.push((lines, vec![ok(&format!("{lines}\r\n"), "hello"), Step::Notify], refused));
    }
    table(rows).await;
}

#[tokio::test]
async fn status_lines_and_interim_answers() {
    let refused = "nothing head origin";
    let last = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    let interim = |text: &str| vec![send(format!("{text}{last}")), Step::Notify];
    let mut rows: Vec<(&'static str, Vec<Step>, &'static str)> = vec![
        ("100 then 200", interim("HTTP/1.1 100 Continue\r\n\r\n"), "200 complete 5"),
        ("103 then 200", interim("HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"), "200 complete 5"),
        ("102 and a pause", vec![send("HTTP/1.1 102 P\r\n\r\n"), Step::Wait(50), send(last)], "200 complete 5"),
        ("16 interim", interim(&"HTTP/1.1 103 E\r\n\r\n".repeat(16)), "200 complete 5"),
        ("17 interim", interim(&"HTTP/1.1 103 E\r\n\r\n".repeat(17)), refused),
        ("endless interim", vec![Step::Endless(b"HTTP/1.1 103 E\r\n\r\n".to_vec())], refused),
        ("101", interim("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"), refused),
        ("leading CRLF", interim("\r\n"), refused),
        ("bare LF", vec![send("HTTP/1.1 200 OK\nContent-Length: 5\n\nhello"), Step::Notify], refused),
        ("only interim", vec![send("HTTP/1.1 100 Continue\r\n\r\n"), Step::Notify], refused),
        ("not HTTP", vec![send("220 mail.example ESMTP\r\n"), Step::Notify], refused),
        ("cut head", vec![send("HTTP/1.1 200 OK\r\nX: a\r\n"), Step::Notify], refused),
        ("cut head, FIN alone", vec![send("HTTP/1.1 200 OK\r\nX: a\r\n\r"), Step::Fin], refused),
        ("cut head, reset", vec![send("HTTP/1.1 200 OK\r\nX: a\r\n"), Step::Reset], "nothing head network"),
        ("no answer, close_notify", vec![Step::Notify], refused),
        ("no answer, FIN alone", vec![Step::Fin], refused),
        ("no answer, reset", vec![Step::Reset], "nothing head network"),
    ];
    for line in [
        "HTTP/1.1 099 X",
        "HTTP/1.1 1000 X",
        "HTTP/1.1 20 X",
        "HTTP/1.1 0200 X",
        "HTTP/1.1 600 X",
        "HTTP/1.1 999 X",
        "HTTP/2 200 OK",
        "HTTP/0.9 200 OK",
        "ICY 200 OK",
        "<html>hello</html>",
    ] {
        let text = format!("{line}\r\nContent-Length: 5\r\n\r\nhello");
        rows.push((line, vec![send(text), Step::Notify], refused));
    }
    table(rows).await;
}

#[tokio::test]
async fn the_size_of_a_head() {
    let refused = "nothing head origin";
    let lines = |n: usize| vec![ok(&format!("Content-Length: 0\r\n{}", "X: a\r\n".repeat(n - 1)), "")];
    let value = |n: usize| vec![ok(&format!("Content-Length: 0\r\nX: {}\r\n", "a".repeat(n)), "")];
    let fixed = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: \r\n\r\n".len();
    table(vec![
        ("120 lines", lines(120), "200 complete 0"),
        ("256 lines", lines(256), "200 complete 0"),
        ("257 lines", lines(257), refused),
        ("a value of 20 kB", value(20_000), "200 complete 0"),
        ("64 KiB", value(65_536 - fixed), "200 complete 0"),
        ("64 KiB and one", value(65_537 - fixed), refused),
        ("a value of 500 kB", value(500_000), refused),
        ("endless line", vec![send("HTTP/1.1 200 OK\r\nX: "), Step::Endless(vec![b'a'; 4_096])], refused),
        ("endless lines", vec![send("HTTP/1.1 200 OK\r\n"), Step::Endless(b"X: a\r\n".to_vec())], refused),
        ("endless bytes", vec![Step::Endless(vec![0xFF; 4_096])], refused),
    ])
    .await;
}

#[tokio::test]
async fn answers_without_content() {
    table(vec![
        ("204", vec![send("HTTP/1.1 204 No Content\r\n\r\n"), Step::Notify], "204 complete 0"),
        ("204, left open", vec![send("HTTP/1.1 204 No Content\r\n\r\n"), Step::Hang], "204 complete 0"),
        ("204, FIN alone", vec![send("HTTP/1.1 204 No Content\r\n\r\n"), Step::Fin], "204 complete 0"),
        (
            "204 with a length",
            vec![send("HTTP/1.1 204 X\r\nContent-Length: 5\r\n\r\n"), Step::Notify],
            "204 complete 0",
        ),
        (
            "204 with content",
            vec![send("HTTP/1.1 204 X\r\nContent-Length: 5\r\n\r\nhello"), Step::Notify],
            "204 broken origin 5",
        ),
        (
            "204, content later",
            vec![send("HTTP/1.1 204 X\r\n\r\n"), Step::Wait(30), send("hello"), Step::Notify],
            "204 broken origin 5",
        ),
        ("304", vec![send("HTTP/1.1 304 Not Modified\r\nContent-Length: 500\r\n\r\n"), Step::Notify], "304 complete 0"),
        ("304 with content", vec![send("HTTP/1.1 304 X\r\n\r\nhello"), Step::Notify], "304 broken origin 5"),
        (
            "205 with content",
            vec![send("HTTP/1.1 205 X\r\nContent-Length: 5\r\n\r\nhello"), Step::Notify],
            "205 complete 5",
        ),
        (
            "404 with content",
            vec![send("HTTP/1.1 404 X\r\nContent-Length: 5\r\n\r\nhello"), Step::Notify],
            "404 complete 5",
        ),
        (
            "522 with content",
            vec![send("HTTP/1.1 522 X\r\nContent-Length: 5\r\n\r\nhello"), Step::Notify],
            "522 complete 5",
        ),
    ])
    .await;
}

#[tokio::test]
async fn the_bound_on_reading_stops_huge_and_endless_content() {
    let endless = vec![ok("", ""), Step::Endless(vec![b'x'; 16_384])];
    let lying = vec![ok("Content-Length: 9000000000000000000\r\n", ""), Step::Endless(vec![b'x'; 16_384])];
    let chunks = vec![
        ok("Transfer-Encoding: chunked\r\n", ""),
        Step::Endless([b"400\r\n".as_slice(), &[b'x'; 1_024], b"\r\n"].concat()),
    ];
    let one_chunk =
        vec![ok("Transfer-Encoding: chunked\r\n", "ffffffffffffffff\r\n"), Step::Endless(vec![b'x'; 16_384])];
    let redirect =
        vec![send("HTTP/1.1 302 Found\r\nLocation: https://other.example/\r\n\r\n"), Step::Endless(vec![b'x'; 16_384])];
    let read = 1_048_577;
    let expect = Sha256::of(vec![b'x'; 1_048_577]);
    for steps in [endless, lying, chunks, one_chunk, redirect] {
        let server = Server::start(identity(), steps).await;
        let mut plan = host_plan(read);
        plan.keep = 10;
        let seen = fetcher_to(server.address).fetch(&plan).await;
        let content = &response(&seen).content;
        assert_eq!((content.bytes, &content.end, content.sha256), (read, &End::Cut, expect));
        assert_eq!(content.kept, b"xxxxxxxxxx");
    }
}

#[tokio::test]
async fn a_large_content_is_hashed_whole_and_kept_in_part() {
    let body: Vec<u8> = (0..5_000_000u32).map(|n| (n % 251) as u8).collect();
    let whole = [format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes(), &body].concat();
    let server = Server::start(identity(), vec![send(whole), Step::Fin]).await;
    for (read, keep, end) in [
        (5_000_001, 1_000_000, End::Complete),
        (5_000_000, 7, End::Complete),
        (4_999_999, 5_000_000, End::Cut),
        (1, 0, End::Cut),
    ] {
        let mut plan = host_plan(read);
        plan.keep = keep;
        let seen = fetcher_to(server.address).fetch(&plan).await;
        let content = &response(&seen).content;
        let size = read.min(5_000_000) as usize;
        assert_eq!((content.bytes, &content.end), (size as u64, &end));
        assert_eq!(content.sha256, Sha256::of(&body[..size]));
        assert_eq!(content.kept, body[..size.min(keep as usize)]);
    }
}

#[tokio::test]
async fn what_no_test_looks_at_is_not_waited_for() {
    let server = Server::start(identity(), vec![ok("Content-Length: 5\r\nX-T: a\r\n", ""), Step::Hang]).await;
    let seen = see(&server, 0).await;
    assert_eq!(summary(&seen), "200 not read 0");
    assert_eq!(headers(response(&seen))["x-t"], [b"a"]);
}

#[tokio::test]
async fn an_answer_to_head_has_no_content_whatever_it_announces() {
    for (head, stray) in
        [("Content-Length: 500\r\n", ""), ("Transfer-Encoding: chunked\r\n", ""), ("", ""), ("", "stray")]
    {
        let server = Server::start(identity(), vec![ok(head, stray), Step::Hang]).await;
        let mut plan = host_plan(10);
        plan.key.method = Method::Head;
        let seen = fetcher_to(server.address).fetch(&plan).await;
        assert_eq!(summary(&seen), "200 complete 0", "{head}");
        assert!(server.requests()[0].starts_with("HEAD / HTTP/1.1\r\n"));
    }
}

#[tokio::test]
async fn headers_arrive_as_they_were_sent() {
    let text = b"HTTP/1.1 301 Moved\r\nX-T: a\r\nLocation: http://127.0.0.1:6379/\r\nx-t: b  \r\nContent-Encoding: gzip\r\nX-L:\t\xE9\r\nContent-Length: 3\r\n\r\n\x1f\x8b\x08";
    let server = Server::start(identity(), vec![send(*text), Step::Notify]).await;
    let seen = see(&server, READ).await;
    let answer = response(&seen);
    let names: Vec<&str> = answer.headers.iter().map(|h| h.name.as_str()).collect();
    assert_eq!(names, ["x-t", "location", "x-t", "content-encoding", "x-l", "content-length"]);
    let by_name = headers(answer);
    assert_eq!(by_name["x-t"], [b"a", b"b"]);
    assert_eq!(by_name["x-l"], [b"\xE9"]);
    // Neither followed nor decoded.
    assert_eq!(answer.content.kept, b"\x1f\x8b\x08");
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn the_request_is_the_same_bytes_each_time() {
    let server = Server::start(identity(), vec![ok("Content-Length: 0\r\n", "")]).await;
    let fetcher = fetcher_to(server.address);
    let mut plan = plan(&format!("https://{HOST}/a%20b?c=d"), 1);
    plan.key.accept = "application/json".into();
    for _ in 0..2 {
        assert_eq!(summary(&fetcher.fetch(&plan).await), "200 complete 0");
    }
    let expect = format!(
        "GET /a%20b?c=d HTTP/1.1\r\nHost: {HOST}\r\nUser-Agent: {}\r\nAccept: application/json\r\nAccept-Encoding: identity\r\nConnection: close\r\n\r\n",
        verifica::observe::USER_AGENT
    );
    assert_eq!(server.requests(), [expect.clone(), expect]);
    assert_eq!(server.connections(), 2, "one request for each connection");
}

#[tokio::test]
async fn an_observation_survives_its_stored_form() {
    let server = Server::start(identity(), vec![ok("Content-Length: 5\r\n", "hello"), Step::Fin]).await;
    let seen = see(&server, READ).await;
    assert_eq!(seen.address, Some(server.address));
    assert!(seen.ended >= seen.started && seen.started.millis() > 0);
    assert_eq!(Observation::from_bytes(&seen.to_bytes()).as_ref(), Some(&seen));
}
