//! Attachments through the real doors: who may have them, what a stranger learns, what a crash leaves, what a full disk
//! or a bucket that is down does, and how much memory they take.

#[path = "blobs/bucket.rs"]
mod bucket;
#[path = "blobs/doors.rs"]
mod doors;
#[path = "houses/mod.rs"]
mod houses;
#[path = "blobs/memory.rs"]
mod memory;
#[allow(dead_code)]
#[path = "cli/house.rs"]
mod process;

use houses::{TestAgent, TestHouse, client, nonce};
use serde_json::Value;
use std::path::PathBuf;
use verifica::objects::Place;

pub const BLOB: &str = "6f1c2b34-1111-4000-8000-000000000000";

/// `PUT /blob/:blob?to=…`; the answer's status and body.
pub async fn put(agent: &TestAgent, blob: &str, to: &str, bytes: &[u8]) -> (u16, Value) {
    let path = format!("/blob/{blob}");
    let request = client().put(format!("{}{path}?to={to}", agent.url));
    let request = request.header("authorization", agent.token("PUT", &path, &nonce()));
    houses::answer(request.body(bytes.to_vec())).await
}

/// `GET /blob/:blob`; nothing where the answer broke off.
pub async fn get(agent: &TestAgent, blob: &str) -> (u16, Option<Vec<u8>>) {
    let path = format!("/blob/{blob}");
    let request = client().get(format!("{}{path}", agent.url));
    let response =
        request.header("authorization", agent.token("GET", &path, &nonce())).send().await.expect("an answer");
    let status = response.status().as_u16();
    (status, response.bytes().await.ok().map(|bytes| bytes.to_vec()))
}

pub async fn delete(agent: &TestAgent, blob: &str) -> u16 {
    let path = format!("/blob/{blob}");
    let request = client().delete(format!("{}{path}", agent.url));
    houses::answer(request.header("authorization", agent.token("DELETE", &path, &nonce()))).await.0
}

/// Where the house of a test keeps attachments.
pub fn folder(house: &TestHouse) -> PathBuf {
    match house.options().attachments {
        Place::Folder(at) => at,
        _ => panic!("not in a folder"),
    }
}

pub fn entries(house: &TestHouse, part: &str) -> usize {
    std::fs::read_dir(folder(house).join(part)).expect("folder").count()
}

/// Bytes that the house counts as held or reserved.
pub async fn held(house: &TestHouse) -> u64 {
    use verifica::record::View;
    house.running().doors.read(|reader| Ok(reader.blob_bytes())).await.expect("reads")
}
