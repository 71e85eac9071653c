//! Handing letters and orders over so that doing it again is the same one and never another.
//!
//! An envelope is signed once, and written beside the identity (`agent.json.pending/ID.json`, for the owner only) before
//! anything leaves. It stays there until its fate is known: the house refused it for good, or took it, or for an order
//! the ledger's answer came. A rerun with `--id ID` posts that very file, byte for byte, which every house takes once.
//! What was asked is kept with it, so an id cannot be used to send something else. A rerun whose file is gone is signed
//! anew under the same id, and a house that knows the id refuses it: the worst is a refusal, not a second payment.

use super::keyfile;
use super::output::{Failure, Out, clean};
use super::who::Who;
use crate::client::agent::{AgentClient, ClientError, File, Message};
use crate::limits;
use crate::refusal::retryable;
use crate::wire::Sha256;
use crate::wire::envelope::{Envelope, is_id};
use crate::wire::json::canonical_sha256;
use serde_json::{Value, json};
use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// A letter that the house has taken.
pub struct Handed {
    pub id: String,
    pub sealed: bool,
    pub answer: Value,
    file: PathBuf,
}

impl Handed {
    /// Its fate is known: nobody needs to send it again.
    pub fn settle(&self) {
        forget(&self.file);
    }
}

/// Hands a letter over under this id, or a new one. Every failure names the id.
pub async fn hand_over(
    client: &AgentClient,
    who: &Who,
    given: Option<&str>,
    message: &Message,
    out: &Out,
) -> Result<Handed, Failure> {
    let folder = folder(&who.path());
    if given.is_none() {
        remind(&folder, out);
    }
    let id = given.map_or_else(|| uuid::Uuid::new_v4().to_string(), str::to_owned);
    let file = folder.join(format!("{id}.json"));
    let asked = asked(message);
    let envelope = match kept(&file, &asked)? {
        Some(envelope) => envelope,
        None => {
            let envelope = client.write(&id, message).await.map_err(|error| naming(&id, error))?;
            keep(&folder, &file, &asked, &envelope)?;
            envelope
        }
    };
    let sealed = envelope.is_sealed();
    match client.post(&envelope).await {
        Ok(answer) => Ok(Handed { id, sealed, answer, file }),
        Err(error) => {
            if !matches!(error, ClientError::Unacknowledged { .. }) {
                forget(&file);
            }
            Err(naming(&id, error))
        }
    }
}

/// The failure of an order or a letter: which, and how to go on.
pub fn naming(id: &str, error: ClientError) -> Failure {
    let again = match &error {
        ClientError::Unacknowledged { .. } | ClientError::NoReceipt { .. } | ClientError::Unreachable { .. } => true,
        ClientError::Refused { status, .. } => retryable(*status),
        ClientError::BadAnswer { .. } => true,
        _ => false,
    };
    let mut failure = Failure::from(error);
    failure.what = format!("order {id}: {}", failure.what);
    if again {
        let repeat = format!("repeat with --id {id}: it is done once, however often it is sent");
        failure.hint = Some(failure.hint.map_or(repeat.clone(), |hint| format!("{hint}; {repeat}")));
    }
    failure
}

/// `--id`, as envelopes take it.
pub fn id(text: &str) -> Result<String, String> {
    match is_id(text) {
        true => Ok(text.to_owned()),
        false => Err("8 to 128 characters of A-Z a-z 0-9 . _ : -".to_owned()),
    }
}

/// What was asked, apart from what a repetition may not repeat: its dates.
fn asked(message: &Message) -> String {
    let stamp = message.stamp.as_ref().map(|(house, amount)| json!([house, amount]));
    let mut doc = json!({
        "to": message.to, "type": message.kind.as_str(), "media": message.media, "body": message.body,
        "thread": message.thread, "in_reply_to": message.in_reply_to, "privacy": format!("{:?}", message.privacy),
        "receipt": message.receipt, "stamp": stamp,
    });
    if !message.files.is_empty() {
        let of = |file: &File| json!([file.name, file.media, Sha256::of(&file.bytes)]);
        doc["files"] = message.files.iter().map(of).collect();
    }
    canonical_sha256(&doc).hex()
}

fn folder(identity: &Path) -> PathBuf {
    let name = identity.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    identity.with_file_name(format!("{name}.pending"))
}

/// The envelope that an earlier attempt signed.
fn kept(file: &Path, asked: &str) -> Result<Option<Envelope>, Failure> {
    if !file.exists() {
        return Ok(None);
    }
    let text = keyfile::read_private(file, "the pending letter", 2 * limits::REQUEST_BODY_MAX as u64)?;
    let unusable = || {
        Failure::usage("the pending letter cannot be used").at(file.display()).hint("remove the file and take a new id")
    };
    let doc: Value = serde_json::from_str(&text).map_err(|error| unusable().why(error))?;
    if doc.get("asked").and_then(Value::as_str) != Some(asked) {
        return Err(Failure::usage("another letter is pending under this id")
            .at(file.display())
            .hint("repeat it as it was, or leave out --id"));
    }
    let envelope = doc.get("envelope").cloned().unwrap_or_default();
    Envelope::parse(envelope, limits::REQUEST_BODY_MAX).map(Some).map_err(|refusal| unusable().why(refusal.reason))
}

fn keep(folder: &Path, file: &Path, asked: &str, envelope: &Envelope) -> Result<(), Failure> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(keyfile::cannot(&error, "the folder of pending letters cannot be made", folder));
        }
        _ => {}
    }
    let doc = json!({"schema": SCHEMA, "asked": asked, "envelope": envelope.doc()});
    keyfile::write_new(file, doc.to_string().as_bytes(), 0o600)
}

/// What stays behind is sent at most once more by hand, so a file that cannot be removed is no failure.
fn forget(file: &Path) {
    let _ = fs::remove_file(file);
    if let Some(folder) = file.parent() {
        let _ = fs::remove_dir(folder);
    }
}

/// A program that was killed between sending and hearing left no words, only the file.
fn remind(folder: &Path, out: &Out) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut ids: Vec<String> = names.filter_map(|name| Some(name.strip_suffix(".json")?.to_owned())).collect();
    ids.retain(|id| is_id(id));
    ids.sort();
    let Some(first) = ids.first() else { return };
    let others = if ids.len() > 1 { format!(" and {} more", ids.len() - 1) } else { String::new() };
    out.say(format!(
        "note: the answer to {}{others} was never seen; repeat it with --id, or remove it from {}",
        clean(first),
        folder.display()
    ));
}

const SCHEMA: &str = "verifica.pending/1";
