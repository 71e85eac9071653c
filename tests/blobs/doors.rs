//! The three doors, and the clock behind them.

use crate::houses::{self, TestAgent, TestHouse, client, eventually, nonce};
use crate::{BLOB, delete, entries, folder, get, held, put};
use reqwest::Method;
use serde_json::json;
use std::io::Write;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use verifica::client::agent::{
    AgentClient, ClientError, File, Filter, HouseClient, Identity, Joining, Message, Options, Privacy,
};
use verifica::limits;
use verifica::mail::blobs;
use verifica::record::{BlobRecord, Change, Decision, View};
use verifica::wire::Address;
use verifica::wire::attachment::Attachment;

/// Status, body and headers of an answer, without its date.
async fn whole(agent: &TestAgent, method: &Method, blob: &str, token: Option<String>) -> String {
    let mut request = client().request(method.clone(), format!("{}/blob/{blob}?to=eva@mar.example", agent.url));
    if *method == Method::PUT {
        request = request.body(vec![7u8; 100]);
    }
    if let Some(token) = token {
        request = request.header("authorization", token);
    }
    let response = request.send().await.expect("an answer");
    let status = response.status();
    let mut headers: Vec<String> = response
        .headers()
        .iter()
        .filter(|(name, _)| *name != "date")
        .map(|(name, value)| format!("{name}: {value:?}"))
        .collect();
    headers.sort();
    format!("{status}\n{}\n{}", headers.join("\n"), response.text().await.expect("text"))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attachment_goes_from_its_sender_to_its_recipients_and_to_nobody_else() {
    let mut mar = TestHouse::new("mar.example", 1);
    let mut sur = TestHouse::new("sur.example", 2);
    mar.knows(&sur);
    sur.knows(&mar);
    mar.start().await;
    sur.start().await;
    let ana = mar.agent("anna", json!({})).await;
    let eva = mar.agent("evaa", json!({})).await;
    let bob = mar.agent("bobb", json!({})).await;
    let leo = sur.agent("leoo", json!({})).await.at(&mar);
    let pia = sur.agent("piaa", json!({})).await.at(&mar);
    let bytes: Vec<u8> = (0..300_000u32).map(|i| (i * 31) as u8).collect();
    let to = "evaa@mar.example,leoo@sur.example";
    let (status, body) = put(&ana, BLOB, to, &bytes).await;
    assert_eq!(status, 201, "{body}");
    assert_eq!(body["bytes"], 300_000);
    assert_eq!(body["sha256"], verifica::wire::Sha256::of(&bytes).hex());
    assert_eq!(std::fs::read(folder(&mar).join("blobs").join(BLOB)).expect("object"), bytes);
    for may in [&ana, &eva, &leo] {
        assert_eq!(get(may, BLOB).await, (200, Some(bytes.clone())), "{}", may.address);
    }
    for may_not in [&bob, &pia] {
        assert_eq!(get(may_not, BLOB).await.0, 403, "{}", may_not.address);
    }
    assert_eq!(get(&eva, &nonce()).await.0, 404);
    assert_eq!(get(&eva, "not-a-uuid").await.0, 400);
    assert_eq!(delete(&eva, BLOB).await, 403, "the copy is the sender's");
    assert_eq!(put(&bob, BLOB, to, &bytes).await.0, 409, "another's name");
    assert_eq!(put(&ana, BLOB, to, &bytes[1..]).await.0, 409, "other bytes");
    // Handed in again after a lost answer, to one more.
    let (status, body) = put(&ana, BLOB, "bobb@mar.example", &bytes).await;
    assert_eq!((status, &body["already"]), (200, &json!(true)), "{body}");
    assert_eq!(get(&bob, BLOB).await.0, 200);
    assert_eq!(held(&mar).await, 300_000);
    assert_eq!(delete(&ana, BLOB).await, 200);
    assert_eq!(get(&ana, BLOB).await.0, 404);
    assert_eq!(delete(&ana, BLOB).await, 404);
    assert_eq!((held(&mar).await, entries(&mar, "blobs"), entries(&mar, "coming")), (0, 0, 0));
    mar.stop().await;
    sur.stop().await;
}

/// An agent of the library, registered at its house.
async fn library(house: &TestHouse, name: &str, seed: u8) -> AgentClient {
    let address = Address::parse(&format!("{name}@{}", house.domain)).expect("address");
    let identity = Identity::from_seeds(address, house.url.clone(), [seed; 32], [seed + 1; 32]);
    let client = AgentClient::new(identity, Options::default()).expect("client");
    client.join(&Joining::default()).await.expect("joins");
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_goes_from_house_to_house_sealed_and_is_checked_where_it_is_opened() {
    let mut mar = TestHouse::new("mar.example", 11);
    let mut sur = TestHouse::new("sur.example", 12);
    mar.knows(&sur);
    sur.knows(&mar);
    mar.start().await;
    sur.start().await;
    let ana = library(&mar, "anna", 70).await;
    let leo = library(&sur, "leoo", 80).await;
    let file = |name: &str, bytes: &[u8]| File { name: name.into(), media: "text/plain".into(), bytes: bytes.to_vec() };
    let message = |privacy: Privacy, files: Vec<File>| Message {
        to: vec![leo.address().clone()],
        privacy,
        files,
        ..Message::text("with two files")
    };
    let files = vec![file("severance.txt", b"a secret"), file("b.bin", &[7; 100_000])];
    let sent = ana.send(&message(Privacy::Sealed, files.clone())).await.expect("sent");
    let mail = leo.wait(&Filter::default(), 20).await.expect("waits").expect("came");
    assert_eq!(mail.id(), sent.id);
    let outer = mail.envelope()["attachments"].as_array().expect("outer").clone();
    assert!(outer.iter().all(|entry| entry.as_object().is_some_and(|entry| entry.len() == 2)), "{outer:?}");
    assert!(!mail.envelope().to_string().contains("severance"));
    let at_mar = HouseClient::new(&mar.url, &[]).expect("client");
    let listed = leo.attachments(&mail).expect("listed");
    for (told, file) in listed.iter().zip(&files) {
        assert_eq!((&told.name, told.bytes), (&file.name, file.bytes.len() as u64));
        let opened = leo.fetch_file(ana.address(), told, Some(&at_mar)).await.expect("opened");
        assert_eq!(opened, file.bytes);
        // What the house holds says nothing of it.
        let stored = std::fs::read(folder(&mar).join("blobs").join(&told.blob)).expect("object");
        assert_eq!(stored.len(), file.bytes.len() + 28);
        assert!(!stored.windows(8).any(|eight| eight == b"a secret"));
    }
    // The object of one name under another: not what was sealed.
    let blobs = folder(&mar).join("blobs");
    let crossed = std::fs::read(blobs.join(&listed[0].blob)).expect("object");
    let (status, body) = put_as(&ana, &nonce(), "leoo@sur.example", &crossed).await;
    assert_eq!(status, 201, "{body}");
    let wrong = Attachment::parse(&{
        let mut record = listed[0].to_json();
        record["blob"] = body["blob"].clone();
        record
    });
    let refused = leo.fetch_file(ana.address(), &wrong.expect("record"), Some(&at_mar)).await;
    assert!(matches!(refused, Err(ClientError::Local(_))), "{refused:?}");
    ana.remove_file(&listed[1].blob).await.expect("removed");
    let refused = leo.fetch_file(ana.address(), &listed[1], Some(&at_mar)).await;
    assert!(matches!(refused, Err(ClientError::Refused { status: 404, .. })), "{refused:?}");
    // In clear the whole record travels in the open.
    leo.ack(&[sent.id]).await.expect("handled");
    ana.send(&message(Privacy::Clear, files)).await.expect("sent");
    let mail = leo.wait(&Filter::default(), 20).await.expect("waits").expect("came");
    assert!(mail.envelope()["attachments"][0]["key"].is_string());
    let listed = leo.attachments(&mail).expect("listed");
    assert_eq!(leo.fetch_file(ana.address(), &listed[0], Some(&at_mar)).await.expect("opened"), b"a secret");
    let eleven = vec![file("a", b"1"); limits::ATTACHMENTS_MAX + 1];
    assert!(matches!(ana.send(&message(Privacy::Clear, eleven)).await, Err(ClientError::Local(_))));
    let heavy = vec![file("a", &vec![1; 9 << 20]); 3];
    assert!(matches!(ana.send(&message(Privacy::Clear, heavy)).await, Err(ClientError::Local(_))));
    mar.stop().await;
    sur.stop().await;
}

/// `PUT /blob/:blob` with the key of an agent of the library.
async fn put_as(client: &AgentClient, blob: &str, to: &str, bytes: &[u8]) -> (u16, serde_json::Value) {
    let identity = client.identity();
    let host = verifica::wire::auth::host_of(&identity.house).expect("host");
    let (address, key, url) = (identity.address.clone(), identity.sig.clone(), identity.house.clone());
    put(&TestAgent { address, key, url, host }, blob, to, bytes).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_learns_nothing_of_what_is_there() {
    let mut house = TestHouse::started("mar.example", 3).await;
    let ana = house.agent("anna", json!({})).await;
    let nobody = house.unregistered("nobo");
    assert_eq!(put(&ana, BLOB, "evaa@mar.example", &[1; 500]).await.0, 201);
    let absent = "00000000-1111-4000-8000-000000000000";
    for method in [Method::GET, Method::PUT, Method::DELETE] {
        let bad = |blob: &str| {
            let path = format!("/blob/{blob}");
            let wrong_path = ana.token(method.as_str(), "/blob/x", "nonce-of-another-path");
            [None, Some(nobody.token(method.as_str(), &path, &nonce())), Some(wrong_path), Some("Nyx5 a.b".to_owned())]
        };
        for (there, not_there) in bad(BLOB).into_iter().zip(bad(absent)) {
            let said = whole(&ana, &method, BLOB, there).await;
            assert!(said.starts_with("401"), "{said}");
            assert_eq!(said, whole(&ana, &method, absent, not_there).await);
        }
    }
    assert_eq!(get(&ana, BLOB).await, (200, Some(vec![1; 500])));
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bounds_hold_at_their_last_byte_and_a_house_without_room_says_so() {
    let mut house = TestHouse::new("mar.example", 4);
    house.settings.attachments = Some(limits::ATTACHMENT_BYTES_MAX + 1_000);
    house.start().await;
    let ana = house.agent("anna", json!({})).await;
    let whole = vec![9u8; limits::ATTACHMENT_BYTES_MAX as usize];
    assert_eq!(put(&ana, BLOB, "evaa@mar.example", &whole).await.0, 201);
    let mut more = whole;
    more.push(9);
    assert_eq!(put(&ana, &nonce(), "evaa@mar.example", &more).await.0, 413);
    assert_eq!(put(&ana, &nonce(), "evaa@mar.example", &[1; 1_000]).await.0, 201);
    let (status, body) = put(&ana, &nonce(), "evaa@mar.example", &[1]).await;
    assert_eq!((status, &body["rule"]), (503, &json!(605)), "{body}");
    assert_eq!(put(&ana, &nonce(), "evaa@mar.example", &[]).await.0, 400);
    assert_eq!(put(&ana, &nonce(), "", &[1]).await.0, 400);
    let card = house.get("/.well-known/nyx5.json").await.1;
    assert_eq!(card["attachments"]["max_bytes"], limits::ATTACHMENT_BYTES_MAX);
    house.stop().await;
    house.settings.attachments = None;
    house.start().await;
    let (status, body) = put(&ana, &nonce(), "evaa@mar.example", &[1]).await;
    assert_eq!((status, &body["rule"]), (503, &json!(606)), "{body}");
    assert_eq!(get(&ana, BLOB).await.0, 503);
    assert!(house.get("/.well-known/nyx5.json").await.1.get("attachments").is_none());
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undeclared_body_ends_at_the_bound_and_an_upload_that_breaks_off_leaves_nothing() {
    let mut house = TestHouse::started("mar.example", 5).await;
    let ana = house.agent("anna", json!({})).await;
    let path = format!("/blob/{BLOB}");
    let head = |framing: &str| {
        let token = ana.token("PUT", &path, &nonce());
        let host = &ana.host;
        format!(
            "PUT {path}?to=evaa@mar.example HTTP/1.1\r\nhost: {host}\r\nauthorization: {token}\r\n{framing}\r\n\r\n"
        )
    };
    // Declared as a thousand, ten came; the room that was reserved comes back.
    let mut stream = TcpStream::connect(house.address()).await.expect("connect");
    stream.write_all(head("content-length: 1000").as_bytes()).await.expect("head");
    stream.write_all(&[1; 10]).await.expect("some");
    eventually("room is reserved", || async { held(&house).await == 1_000 }).await;
    drop(stream);
    eventually("the room comes back", || async { held(&house).await == 0 }).await;
    eventually("nothing is left", || async { entries(&house, "coming") + entries(&house, "blobs") == 0 }).await;
    // Chunks without an end are cut at the bound.
    let mut stream = TcpStream::connect(house.address()).await.expect("connect");
    stream.write_all(head("transfer-encoding: chunked").as_bytes()).await.expect("head");
    let mut chunk = b"10000\r\n".to_vec();
    chunk.extend_from_slice(&[2; 65_536]);
    chunk.extend_from_slice(b"\r\n");
    for _ in 0..=limits::ATTACHMENT_BYTES_MAX / 65_536 {
        if stream.write_all(&chunk).await.is_err() {
            break;
        }
    }
    let mut said = vec![0u8; 12];
    stream.read_exact(&mut said).await.expect("an answer");
    assert_eq!(String::from_utf8_lossy(&said), "HTTP/1.1 413");
    eventually("the room comes back", || async { held(&house).await == 0 }).await;
    assert_eq!(put(&ana, BLOB, "evaa@mar.example", &[3; 10]).await.0, 201, "the name is free");
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_finds_what_was_kept_and_sweeps_what_was_coming() {
    let mut house = TestHouse::started("mar.example", 6).await;
    let ana = house.agent("anna", json!({})).await;
    assert_eq!(put(&ana, BLOB, "evaa@mar.example", &[4; 2_000]).await.0, 201);
    // As a crash leaves it: room reserved, bytes already under their name, and a file that never got one.
    let coming = nonce();
    let (doors, name, from) = (house.running().doors.clone(), coming.clone(), ana.address.clone());
    let (rules, now) = (doors.house(), doors.now());
    let reserved = doors.commit(move |view| {
        let card = view.agent(from.local()).expect("agent").card;
        let handed = blobs::Handed::parse(&name, std::iter::once("evaa@mar.example"), Some(500))?;
        blobs::reserve(&rules, view, now, &card, &handed, "upload-of-a-process-that-ended")
    });
    reserved.await.expect("reserved");
    std::fs::write(folder(&house).join("blobs").join(&coming), [5; 500]).expect("object");
    std::fs::write(folder(&house).join("coming/77"), [5; 500]).expect("half");
    assert_eq!(get(&ana, &coming).await.0, 404);
    assert_eq!(held(&house).await, 2_500);
    drop(doors);
    house.stop().await;
    house.start().await;
    assert_eq!(held(&house).await, 2_000);
    assert_eq!((entries(&house, "blobs"), entries(&house, "coming")), (1, 0));
    assert_eq!(get(&ana, BLOB).await, (200, Some(vec![4; 2_000])));
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn past_its_time_it_is_gone_before_the_clock_has_run_and_removed_when_it_runs() {
    let mut house = TestHouse::started("mar.example", 7).await;
    let ana = house.agent("anna", json!({})).await;
    let eva = house.agent("evaa", json!({})).await;
    assert_eq!(put(&ana, BLOB, "evaa@mar.example", &[6; 100]).await.0, 201);
    let doors = house.running().doors.clone();
    let until = async || doors.read(|reader| Ok(reader.blob(BLOB).map(|row| row.until))).await.expect("reads");
    let before = until().await.expect("row");
    assert_eq!(get(&ana, BLOB).await.0, 200);
    assert_eq!(get(&eva, BLOB).await.0, 200);
    eventually("every recipient has it", || async { until().await.is_some_and(|after| after < before) }).await;
    let now = doors.now();
    let lapsed = doors.commit(move |view| {
        let row = view.blob(BLOB).expect("row");
        Ok(Decision { changes: vec![Change::PutBlob(BlobRecord { until: now, ..row })], reply: () })
    });
    lapsed.await.expect("lapsed");
    assert_eq!(get(&eva, BLOB).await.0, 404);
    assert_eq!(entries(&house, "blobs"), 1);
    drop(doors);
    house.stop().await;
    house.start().await;
    eventually("the clock has run", || async { held(&house).await == 0 && entries(&house, "blobs") == 0 }).await;
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_not_what_was_kept_never_arrive_whole() {
    let mut house = TestHouse::started("mar.example", 8).await;
    let ana = house.agent("anna", json!({})).await;
    let bytes = vec![7u8; 200_000];
    assert_eq!(put(&ana, BLOB, "evaa@mar.example", &bytes).await.0, 201);
    let at = folder(&house).join("blobs").join(BLOB);
    let mut file = std::fs::OpenOptions::new().write(true).open(&at).expect("object");
    file.write_all(&[8]).expect("one byte");
    let (status, body) = get(&ana, BLOB).await;
    assert_eq!((status, body), (200, None), "the answer breaks off");
    std::fs::write(&at, &bytes[1..]).expect("shorter");
    assert_eq!(get(&ana, BLOB).await.0, 503);
    std::fs::remove_file(&at).expect("lost");
    assert_eq!(get(&ana, BLOB).await.0, 503, "lost is not removed");
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_cannot_be_written_refuses_and_loses_nothing() {
    let mut house = TestHouse::started("mar.example", 9).await;
    let ana = house.agent("anna", json!({})).await;
    assert_eq!(put(&ana, BLOB, "evaa@mar.example", &[1; 100]).await.0, 201);
    let (coming, aside) = (folder(&house).join("coming"), folder(&house).join("aside"));
    std::fs::rename(&coming, &aside).expect("moved away");
    let other = nonce();
    let (status, body) = put(&ana, &other, "evaa@mar.example", &[2; 100]).await;
    assert_eq!((status, &body["rule"]), (503, &json!(601)), "{body}");
    eventually("nothing is reserved", || async { held(&house).await == 100 }).await;
    assert_eq!(get(&ana, BLOB).await.0, 200);
    std::fs::rename(&aside, &coming).expect("moved back");
    assert_eq!(put(&ana, &other, "evaa@mar.example", &[2; 100]).await.0, 201);
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_of_the_house_fetches_by_its_members_and_a_bounded_subagent_stays_in_its_bounds() {
    let mut house = TestHouse::started("mar.example", 10).await;
    let ana = house.agent("anna", json!({})).await;
    let eva = house.agent("evaa", json!({})).await;
    let bob = house.agent("bobb", json!({})).await;
    let (status, body) = ana.post("/groups", &json!({"name": "team", "members": ["evaa@mar.example"]})).await;
    assert_eq!(status, 201, "{body}");
    assert_eq!(put(&ana, BLOB, "g.team@mar.example", &[1; 100]).await.0, 201);
    assert_eq!(get(&eva, BLOB).await.0, 200);
    assert_eq!(get(&bob, BLOB).await.0, 403);
    let sub = house.unregistered("sub.anna");
    let mut delegation = json!({
        "by": "anna@mar.example", "address": "sub.anna@mar.example", "sig": sub.key.public().kid(),
        "scope": {"to_domains": ["mar.example"]}, "issued": houses::now(), "valid_until": null,
    });
    ana.key.sign_object(&mut delegation, "signature");
    let (status, body) = sub.register(json!({"delegation": delegation})).await;
    assert_eq!(status, 201, "{body}");
    assert_eq!(put(&sub, &nonce(), "evaa@mar.example", &[1; 100]).await.0, 201);
    assert_eq!(put(&sub, &nonce(), "leoo@sur.example", &[1; 100]).await.0, 403);
    house.stop().await;
}
