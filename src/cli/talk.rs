//! `verifica agent`: conversations, groups, who was seen when, and what happened in a house.

use super::agent::{instant, opened, table};
use super::block_on;
use super::output::{Failure, Out, Style, brief, clean};
use super::settings;
use super::who::{Who, extra_roots};
use crate::client::agent::talk::{self as lib, GroupChange, Page};
use crate::client::agent::{AgentClient, HouseClient, Mail};
use crate::config::house_url;
use crate::mail;
use crate::refusal::Exit;
use crate::time::Timestamp;
use crate::wire::address::Address;
use serde_json::{Map, Value, json};
use std::path::PathBuf;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List whom you write with, and what waits to be handled (network)
    Conversations(Conversations),
    /// Read the letters of both directions with one contact or group, opened (network)
    Conversation(Conversation),
    /// Make, see and change groups (network)
    #[command(subcommand)]
    Group(Group),
    /// Show a card of any house, as your own house resolved it, and when its agent was last seen (network)
    Resolve(Whose),
    /// Say when an agent last showed itself, if it lets that be known (network)
    Presence(Whose),
    /// List what happened in a house, as its operator (network)
    Events(Events),
}

#[derive(Debug, clap::Args)]
pub struct Conversations {
    #[command(flatten)]
    who: Who,
    #[command(flatten)]
    page: Pages,
}

#[derive(Debug, clap::Args)]
pub struct Conversation {
    #[command(flatten)]
    who: Who,
    /// The contact or the group
    with: String,
    #[command(flatten)]
    page: Pages,
}

#[derive(Debug, clap::Args)]
struct Pages {
    /// Only of this project
    #[arg(long, value_name = "NAME", value_parser = project)]
    project: Option<String>,
    /// At most so many [default: the house's]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// What came before: the `next` of an earlier answer
    #[arg(long, value_name = "NEXT")]
    before: Option<String>,
}

#[derive(Debug, clap::Subcommand)]
pub enum Group {
    /// Make g.NAME of your house, with yourself as its admin
    Create(Create),
    /// Show who is in a group
    Show(InGroup),
    /// Add members
    Add(Members),
    /// Take members out
    Remove(Members),
    /// Say who its admins are from now on
    Admins(Members),
    /// Leave a group
    Leave(InGroup),
}

#[derive(Debug, clap::Args)]
pub struct Create {
    #[command(flatten)]
    who: Who,
    /// What follows g. in its address
    name: String,
    /// Who is in it beside you
    members: Vec<Address>,
    /// Only admins write to it
    #[arg(long)]
    admins_post: bool,
}

#[derive(Debug, clap::Args)]
pub struct InGroup {
    #[command(flatten)]
    who: Who,
    /// The address of the group
    group: Address,
}

#[derive(Debug, clap::Args)]
pub struct Members {
    #[command(flatten)]
    who: Who,
    /// The address of the group
    group: Address,
    /// An address of your house; again for more
    #[arg(required = true)]
    members: Vec<Address>,
}

#[derive(Debug, clap::Args)]
pub struct Whose {
    #[command(flatten)]
    who: Who,
    /// Whose
    address: Address,
}

#[derive(Debug, clap::Args)]
pub struct Events {
    /// The URL of the house
    #[arg(long, value_name = "URL", env = "VERIFICA_HOUSE", hide_env_values = true)]
    house: String,
    /// The operator's token
    #[arg(long, value_name = "FILE", env = "VERIFICA_ADMIN_TOKEN_FILE", hide_env_values = true)]
    admin_token_file: PathBuf,
    /// Only of this name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Only from this instant on
    #[arg(long, value_name = "TIME", value_parser = instant)]
    since: Option<Timestamp>,
    /// At most so many, the newest
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// A PEM file of roots to trust beside the compiled-in ones
    #[arg(long, value_name = "FILE")]
    ca: Vec<PathBuf>,
}

/// What a letter says of itself in clear.
#[derive(Debug, clap::Args)]
pub struct Labels {
    /// The project that it belongs to; travels in clear
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
    /// Your part in that project; travels in clear
    #[arg(long, value_name = "TEXT")]
    role: Option<String>,
    /// One line about it; travels in clear
    #[arg(long, value_name = "TEXT")]
    summary: Option<String>,
}

/// What a card lets others know, and where the house calls.
#[derive(Debug, clap::Args)]
pub struct Shows {
    /// Let others see in which hour you were last here
    #[arg(long)]
    presence: bool,
    /// Tell senders when you have handled their letters
    #[arg(long)]
    read_receipts: bool,
    /// An https URL that the house calls with each letter
    #[arg(long, value_name = "URL")]
    pub webhook: Option<String>,
}

impl Labels {
    pub fn extensions(&self) -> Result<Map<String, Value>, Failure> {
        let labels =
            lib::Labels { project: self.project.clone(), role: self.role.clone(), summary: self.summary.clone() };
        labels.extensions().map_err(|refusal| Failure::usage(refusal.reason))
    }
}

impl Shows {
    /// The capabilities of the card, or nothing to leave the house's default.
    pub fn capabilities(&self, accepts: &[String]) -> Option<Value> {
        let mut doc = Map::new();
        if !accepts.is_empty() {
            doc.insert("accepts".into(), json!(accepts));
        }
        for (name, given) in [("presence", self.presence), ("read_receipts", self.read_receipts)] {
            if given {
                doc.insert(name.into(), true.into());
            }
        }
        (!doc.is_empty()).then_some(Value::Object(doc))
    }
}

pub fn run(command: &Command, out: &Out) -> Result<Exit, Failure> {
    match command {
        Command::Conversations(args) => block_on(conversations(args, out)),
        Command::Conversation(args) => block_on(conversation(args, out)),
        Command::Group(command) => block_on(group(command, out)),
        Command::Resolve(args) => block_on(resolve(args, out)),
        Command::Presence(args) => block_on(presence(args, out)),
        Command::Events(args) => block_on(events(args, out)),
    }
}

/// A project's name, written as every house writes it.
pub fn project(text: &str) -> Result<String, String> {
    mail::talk::project_name(text).ok_or_else(|| "a name that can be seen, and is not reserved".to_owned())
}

impl Pages {
    fn page(&self) -> Page {
        Page { project: self.project.clone(), limit: self.limit, before: self.before.clone() }
    }
}

async fn conversations(args: &Conversations, out: &Out) -> Result<Exit, Failure> {
    let client = args.who.client()?;
    let answer = client.conversations(&args.page.page()).await?;
    args.who.keep_pin(&client)?;
    let list = answer.get("conversations").and_then(Value::as_array).cloned().unwrap_or_default();
    if out.json {
        out.doc(&json!({
            "schema": "verifica.conversations/1", "address": client.address(), "conversations": list,
            "next": answer.get("next"),
        }));
        return Ok(Exit::Ok);
    }
    let rows = list.iter().map(|one| {
        let number = |name: &str| one.get(name).and_then(Value::as_u64).unwrap_or_default().to_string();
        let text = |name: &str| brief(one.get(name).and_then(Value::as_str).unwrap_or("-"), 80);
        let projects = one.get("projects").and_then(Value::as_array).into_iter().flatten();
        let projects: Vec<&str> = projects.filter_map(Value::as_str).collect();
        vec![text("with"), number("pending"), number("count"), text("last_at"), brief(&projects.join(", "), 60)]
    });
    table(out, &["with", "pending", "letters", "last", "projects"], rows.collect());
    if list.is_empty() {
        out.say("no conversations");
    }
    more(&answer, out);
    Ok(Exit::Ok)
}

async fn conversation(args: &Conversation, out: &Out) -> Result<Exit, Failure> {
    let client = args.who.client()?;
    let answer = client.history(&args.with, &args.page.page()).await?;
    args.who.keep_pin(&client)?;
    let messages = answer.get("messages").and_then(Value::as_array).cloned().unwrap_or_default();
    let shown: Vec<Value> = messages.iter().map(|message| said(&client, message)).collect();
    if out.json {
        out.doc(&json!({
            "schema": "verifica.conversation/1", "address": client.address(), "with": answer.get("with"),
            "messages": shown, "next": answer.get("next"),
        }));
        return Ok(Exit::Ok);
    }
    for message in &shown {
        let text = |name: &str| brief(message.get(name).and_then(Value::as_str).unwrap_or("-"), 200);
        let state = match text("dir").as_str() {
            "out" if message["read"].is_object() => "read".to_owned(),
            "out" => text("status"),
            _ if message["acked"].is_null() => "waits".to_owned(),
            _ => "handled".to_owned(),
        };
        out.line(format!("{}  {}  {state}  {}", text("at"), out.paint(Style::Strong, text("from")), text("id")));
        let body = message.get("body").map(|b| b.as_str().map_or_else(|| b.to_string(), str::to_owned));
        match message.get("fault").and_then(Value::as_str) {
            Some(fault) => out.line(format!("    {}", out.paint(Style::Doubt, clean(fault)))),
            None => body.unwrap_or_default().lines().for_each(|line| out.line(format!("    {}", clean(line)))),
        }
    }
    if shown.is_empty() {
        out.say(format!("no letters with {}", clean(&args.with)));
    }
    more(&answer, out);
    Ok(Exit::Ok)
}

/// A message of a history as data, opened like a letter of the mailbox.
fn said(client: &AgentClient, message: &Value) -> Value {
    let mut doc = opened(client, &Mail { record: message.clone() });
    if let (Some(doc), Some(message)) = (doc.as_object_mut(), message.as_object()) {
        for field in ["received", "from_verified", "record"] {
            doc.remove(field);
        }
        for field in ["dir", "at", "acked", "status", "read", "envelope"] {
            if let Some(value) = message.get(field) {
                doc.insert(field.to_owned(), value.clone());
            }
        }
    }
    doc
}

async fn group(command: &Group, out: &Out) -> Result<Exit, Failure> {
    let change = |add: &[Address], remove: &[Address], admins: Option<&[Address]>| GroupChange {
        add: add.to_vec(),
        remove: remove.to_vec(),
        admins: admins.map(<[Address]>::to_vec),
    };
    let who = match command {
        Group::Create(args) => &args.who,
        Group::Show(args) | Group::Leave(args) => &args.who,
        Group::Add(args) | Group::Remove(args) | Group::Admins(args) => &args.who,
    };
    let client = who.client()?;
    let own = std::slice::from_ref(client.address());
    let answer = match command {
        Group::Create(args) => client.create_group(&args.name, &args.members, args.admins_post).await?,
        Group::Show(args) => client.group(&args.group).await?,
        Group::Leave(args) => client.change_group(&args.group, &change(&[], own, None)).await?,
        Group::Add(args) => client.change_group(&args.group, &change(&args.members, &[], None)).await?,
        Group::Remove(args) => client.change_group(&args.group, &change(&[], &args.members, None)).await?,
        Group::Admins(args) => client.change_group(&args.group, &change(&[], &[], Some(&args.members))).await?,
    };
    who.keep_pin(&client)?;
    let (address, group) = (answer.get("address"), answer.get("group").cloned().unwrap_or_default());
    if out.json {
        out.doc(&json!({"schema": "verifica.group/1", "address": address, "group": group}));
        return Ok(Exit::Ok);
    }
    let list = |name: &str| -> Vec<String> {
        let listed = group.get(name).and_then(Value::as_array).into_iter().flatten();
        listed.filter_map(Value::as_str).map(clean).collect()
    };
    let admins = list("admins");
    out.line(out.paint(Style::Strong, clean(address.and_then(Value::as_str).unwrap_or("-"))));
    for member in list("members") {
        let role = if admins.contains(&member) { "admin" } else { "member" };
        out.line(format!("{role:<8}{member}"));
    }
    out.say(format!("{} write to it", clean(group.get("post").and_then(Value::as_str).unwrap_or("members"))));
    Ok(Exit::Ok)
}

async fn resolve(args: &Whose, out: &Out) -> Result<Exit, Failure> {
    let client = args.who.client()?;
    let card = client.resolve(&args.address).await?;
    args.who.keep_pin(&client)?;
    if out.json {
        out.doc(&card);
        return Ok(Exit::Ok);
    }
    out.line(out.paint(Style::Strong, &args.address));
    for name in ["sig", "enc", "valid_until", "visibility", "inbox", "capabilities", "profile", "group"] {
        if let Some(value) = card.get(name).filter(|value| !value.is_null()) {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            out.line(format!("{name:<13}{}", brief(&text, 400)));
        }
    }
    let seen = card.pointer("/presence/last_seen").and_then(Value::as_str);
    out.line(format!("{:<13}{}", "last seen", clean(seen.unwrap_or("not known"))));
    Ok(Exit::Ok)
}

async fn presence(args: &Whose, out: &Out) -> Result<Exit, Failure> {
    let client = args.who.client()?;
    let seen = client.last_seen(&args.address).await?;
    args.who.keep_pin(&client)?;
    if out.json {
        out.doc(&json!({"schema": "verifica.presence/1", "address": args.address, "last_seen": seen}));
    } else {
        out.line(seen.map_or_else(|| "not known".to_owned(), |at| at.to_string()));
    }
    Ok(Exit::Ok)
}

async fn events(args: &Events, out: &Out) -> Result<Exit, Failure> {
    let url = house_url(&args.house).map_err(|why| Failure::usage(why).at("--house"))?;
    let house = HouseClient::new(&url, &extra_roots(&args.ca)?)?;
    let mut query = Vec::new();
    query.extend(args.name.clone().map(|name| ("name", name)));
    query.extend(args.since.map(|since| ("since", since.to_string())));
    query.extend(args.limit.map(|limit| ("limit", limit.to_string())));
    let answer = lib::events(&house, &settings::admin_token(&args.admin_token_file)?, &query).await?;
    if out.json {
        out.doc(&answer);
        return Ok(Exit::Ok);
    }
    let list = answer.get("eventos").and_then(Value::as_array).cloned().unwrap_or_default();
    let rows = list.iter().map(|event| {
        let text = |name: &str| brief(event.get(name).and_then(Value::as_str).unwrap_or("-"), 80);
        let data = event.get("data").map(Value::to_string).unwrap_or_default();
        vec![text("ts"), text("name"), text("actor"), brief(&data, 100)]
    });
    table(out, &["at", "event", "by", "data"], rows.collect());
    for (name, n) in answer.get("conteo").and_then(Value::as_object).into_iter().flatten() {
        out.say(format!("{} {n}", clean(name)));
    }
    Ok(Exit::Ok)
}

fn more(answer: &Value, out: &Out) {
    if let Some(next) = answer.get("next").and_then(Value::as_str) {
        out.say(format!("there is more: --before {}", clean(next)));
    }
}
