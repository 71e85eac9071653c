//! `verifica agent attachment`: the files that came with letters.
//!
//! A file is fetched from the house of the letter's sender, opened with the key that came inside the letter, and written
//! only when it is the one that the letter tells of. A name that a stranger chose never leads out of the folder, and no
//! file that is there is replaced.

use super::agent::table;
use super::block_on;
use super::keyfile;
use super::output::{Failure, Out, brief, clean};
use super::who::{Who, extra_roots};
use crate::client::agent::talk::Page;
use crate::client::agent::{AgentClient, File, HouseClient, Mail};
use crate::config::house_url;
use crate::limits;
use crate::refusal::{Exit, Rule};
use crate::wire::address::Address;
use crate::wire::attachment::Attachment;
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List the files of a letter
    List(List),
    /// Fetch one, open it, check it and write it
    Get(Get),
    /// Take back a file that you sent
    Remove(Remove),
}

#[derive(Debug, clap::Args)]
pub struct Letter {
    #[command(flatten)]
    who: Who,
    /// The id of the letter
    letter: String,
    /// With whom it was exchanged, when it does not wait in the mailbox any more
    #[arg(long, value_name = "ADDRESS")]
    with: Option<String>,
}

#[derive(Debug, clap::Args)]
pub struct List {
    #[command(flatten)]
    letter: Letter,
}

#[derive(Debug, clap::Args)]
pub struct Get {
    #[command(flatten)]
    letter: Letter,
    /// Which, by its name or its blob; not needed where there is one
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Where to write it, or - for stdout [default: its name, here]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The URL of the sender's house [default: it is looked for at its domain]
    #[arg(long, value_name = "URL")]
    house: Option<String>,
}

#[derive(Debug, clap::Args)]
pub struct Remove {
    #[command(flatten)]
    who: Who,
    /// The blob, as `list` shows it
    blob: String,
}

pub fn run(command: &Command, out: &Out) -> Result<Exit, Failure> {
    match command {
        Command::List(args) => block_on(list_of(args, out)),
        Command::Get(args) => block_on(get(args, out)),
        Command::Remove(args) => block_on(remove(args, out)),
    }
}

/// The files named on the command line, within what a letter takes.
pub fn read(paths: &[PathBuf]) -> Result<Vec<File>, Failure> {
    let most = limits::ATTACHMENT_BYTES_MAX - limits::ATTACHMENT_SEAL_BYTES;
    let one = |path: &PathBuf| {
        let cannot = |error: std::io::Error| keyfile::cannot(&error, "the file cannot be read", path);
        let size = std::fs::metadata(path).map_err(cannot)?.len();
        if size > most {
            return Err(Failure::usage(format!("the file is larger than {most} bytes")).at(path.display()));
        }
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| Failure::usage("the file has no name that can be sent").at(path.display()))?;
        let bytes = std::fs::read(path).map_err(cannot)?;
        Ok(File { name: name.to_owned(), media: "application/octet-stream".to_owned(), bytes })
    };
    paths.iter().map(one).collect()
}

/// What a letter tells of its files, without the keys; null where it cannot be read.
pub fn told(client: &AgentClient, mail: &Mail) -> Value {
    let shown = |attachment: &Attachment| {
        let mut record = attachment.to_json();
        if let Some(fields) = record.as_object_mut() {
            fields.remove("key");
        }
        record
    };
    client.attachments(mail).map_or(Value::Null, |all| all.iter().map(shown).collect())
}

/// The files of a shown letter, for a person.
pub fn list(mail: &Value, out: &Out) {
    for record in mail.get("attachments").and_then(Value::as_array).into_iter().flatten() {
        let name = brief(record.get("name").and_then(Value::as_str).unwrap_or("-"), 120);
        let id = clean(mail.get("id").and_then(Value::as_str).unwrap_or("-"));
        let bytes = record.get("bytes").and_then(Value::as_u64).unwrap_or_default();
        out.line(format!("    file {name}, {bytes} bytes; take it with `verifica agent attachment get {id}`"));
    }
}

async fn list_of(args: &List, out: &Out) -> Result<Exit, Failure> {
    let client = args.letter.who.client()?;
    let mail = args.letter.find(&client).await?;
    let all = client.attachments(&mail)?;
    args.letter.who.keep_pin(&client)?;
    if out.json {
        let doc = json!({"schema": "verifica.attachments/1", "letter": mail.id(), "attachments": told(&client, &mail)});
        out.doc(&doc);
        return Ok(Exit::Ok);
    }
    let row =
        |one: &Attachment| vec![brief(&one.name, 120), one.bytes.to_string(), brief(&one.media, 60), one.blob.clone()];
    table(out, &["name", "bytes", "media", "blob"], all.iter().map(row).collect());
    Ok(Exit::Ok)
}

async fn get(args: &Get, out: &Out) -> Result<Exit, Failure> {
    let client = args.letter.who.client()?;
    let mail = args.letter.find(&client).await?;
    let all = client.attachments(&mail)?;
    let wanted: Vec<&Attachment> = match &args.name {
        Some(name) => all.iter().filter(|one| one.name == *name || one.blob == *name).collect(),
        None => all.iter().collect(),
    };
    let one = match wanted.as_slice() {
        [one] => *one,
        [] => return Err(Failure::new(Exit::Refused, "the letter has no such file").at(clean(mail.id()))),
        _ => {
            let failure = Failure::usage("the letter has more than one such file");
            return Err(
                failure.hint("name it with --name, or by its blob; `verifica agent attachment list` shows them")
            );
        }
    };
    let to_stdout = args.out.as_deref() == Some(Path::new("-"));
    let place = args.out.clone().unwrap_or_else(|| PathBuf::from(file_name(one)));
    if !to_stdout && place.exists() {
        return Err(Failure::usage("the file exists").at(place.display()).hint("choose another place with --out"));
    }
    let house = match &args.house {
        Some(url) => {
            let url = house_url(url).map_err(|why| Failure::usage(why).at("--house"))?;
            Some(HouseClient::new(&url, &extra_roots(&args.letter.who.ca)?)?)
        }
        None => None,
    };
    let from = Address::parse(mail.from())?;
    let file = client.fetch_file(&from, one, house.as_ref()).await?;
    args.letter.who.keep_pin(&client)?;
    if to_stdout {
        let written = std::io::stdout().lock().write_all(&file);
        written.map_err(|error| keyfile::cannot(&error, "stdout cannot be written", &place))?;
        return Ok(Exit::Ok);
    }
    keyfile::write_new(&place, &file, 0o600)?;
    if out.json {
        let mut doc =
            json!({"schema": "verifica.attachment/1", "letter": mail.id(), "file": place.display().to_string()});
        for (name, value) in [("blob", json!(one.blob)), ("bytes", json!(file.len())), ("sha256", json!(one.sha256))] {
            doc[name] = value;
        }
        out.doc(&doc);
    } else {
        out.line(clean(&place.display().to_string()));
        out.say(format!("{} bytes, sha256 {} as the letter says", file.len(), one.sha256));
    }
    Ok(Exit::Ok)
}

async fn remove(args: &Remove, out: &Out) -> Result<Exit, Failure> {
    let client = args.who.client()?;
    let answer = client.remove_file(&crate::mail::blobs::name(&args.blob)?).await?;
    args.who.keep_pin(&client)?;
    if out.json {
        out.doc(&answer);
    } else {
        out.line(clean(&args.blob));
    }
    Ok(Exit::Ok)
}

impl Letter {
    async fn find(&self, client: &AgentClient) -> Result<Mail, Failure> {
        let pending = client.inbox(limits::MAILBOX_PAGE_MAX).await?;
        if let Some(mail) = pending.into_iter().find(|mail| mail.id() == self.letter) {
            return Ok(mail);
        }
        if let Some(with) = &self.with {
            let page = Page { limit: Some(limits::CONVERSATION_PAGE_MAX), ..Page::default() };
            let history = client.history(with, &page).await?;
            let mut messages = history.get("messages").and_then(Value::as_array).into_iter().flatten();
            if let Some(record) = messages.find(|record| record["envelope"]["id"] == self.letter.as_str()) {
                return Ok(Mail { record: record.clone() });
            }
        }
        let mut failure = Failure::new(Exit::Refused, "there is no such letter").at(clean(&self.letter));
        failure.rule = Some(Rule::NoSuchBlob.number());
        Err(failure.hint("name with whom it was exchanged: --with ADDRESS"))
    }
}

/// The name that the sender chose, where it is a plain name; the blob's otherwise.
fn file_name(attachment: &Attachment) -> String {
    let name = attachment.name.as_str();
    let plain = |c: char| !c.is_control() && !matches!(c, '/' | '\\' | '\0') && clean(&c.to_string()) == c.to_string();
    if !name.is_empty() && !name.starts_with('.') && name.chars().all(plain) {
        name.to_owned()
    } else {
        attachment.blob.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_a_stranger_chose_stays_in_the_folder() {
        let named = |name: &str| {
            let record = json!({
                "blob": "6f1c2b34-0000-4000-8000-000000000000", "bytes": 1, "name": name, "media": "x",
                "sha256": "0".repeat(64), "key": "A".repeat(43),
            });
            file_name(&Attachment::parse(&record).expect("record"))
        };
        assert_eq!(named("informe 1.pdf"), "informe 1.pdf");
        for bad in ["", ".", "..", "../x", "/etc/passwd", ".bashrc", "a/b", "a\\b", "a\u{1b}[2J", "a\nb", "a\u{202e}b"]
        {
            assert_eq!(named(bad), "6f1c2b34-0000-4000-8000-000000000000", "{bad:?}");
        }
    }
}
