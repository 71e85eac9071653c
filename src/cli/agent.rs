//! `verifica agent`: be an agent. Keys on disk, registration, letters.

use super::block_on;
use super::files;
use super::handover::{self, hand_over};
use super::keyfile;
use super::output::{Failure, Out, Style, brief, clean};
use super::people;
use super::search;
use super::settings;
use super::talk;
use super::who::{Who, extra_roots, identity_path};
use crate::client::agent::{
    self as lib, AgentClient, ClientError, Filter, HouseClient, Identity, Joining, Mail, Message, Privacy,
};
use crate::config::{house_url, parse_duration};
use crate::limits;
use crate::refusal::{Exit, Rule};
use crate::time::{Clock, Timestamp};
use crate::wire::address::Address;
use crate::wire::envelope::Kind;
use crate::wire::quote::{QUOTE_MEDIA, RECEIPT_MEDIA};
use serde_json::{Value, json};
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Make an identity: an address and its two private keys, in one file that only you can read
    New(New),
    /// Register the identity at its house (network)
    Join(Join),
    /// Write a letter; sealed when the recipient has an encryption key (network)
    Send(Send),
    /// Show the letters that wait, opened (network)
    Inbox(Inbox),
    /// Mark letters as handled (network)
    Ack(Ack),
    /// Show what was sent and what became of it (network)
    Outbox(Outbox),
    /// Show a card: your own, or another's (network)
    Card(Card),
    /// Search the public directory of a house (network)
    Directory(Directory),
    /// Fetch the files that came with a letter, or take back your own (network)
    #[command(subcommand)]
    Attachment(files::Command),
    #[command(flatten)]
    People(people::Command),
    #[command(flatten)]
    Talk(talk::Command),
    #[command(flatten)]
    Search(search::Command),
}

#[derive(Debug, clap::Args)]
pub struct New {
    /// NAME@DOMAIN
    address: Address,
    /// The URL of the house
    #[arg(long, value_name = "URL", env = "VERIFICA_HOUSE", hide_env_values = true)]
    house: String,
    /// Where to keep the identity: a file, or an existing folder
    #[arg(
        long = "as",
        value_name = "FILE",
        env = "VERIFICA_AGENT",
        default_value = "agent.json",
        hide_env_values = true
    )]
    identity: PathBuf,
}

#[derive(Debug, clap::Args)]
pub struct Join {
    #[command(flatten)]
    who: Who,
    /// An invitation code
    #[arg(long, value_name = "CODE", conflicts_with = "admin_token_file")]
    invite: Option<String>,
    /// Register with the operator's authority
    #[arg(long, value_name = "FILE", env = "VERIFICA_ADMIN_TOKEN_FILE", hide_env_values = true)]
    admin_token_file: Option<PathBuf>,
    /// public, private or secret
    #[arg(long, value_name = "WORD")]
    visibility: Option<String>,
    /// A media type that you take; again for more
    #[arg(long, value_name = "MEDIA")]
    accepts: Vec<String>,
    /// The rule of your mailbox, as JSON, such as '{"policy":"allowlist","allowlist":["beta.example"]}'
    #[arg(long, value_name = "JSON")]
    inbox: Option<String>,
    /// A JSON file with your profile
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    #[command(flatten)]
    shows: talk::Shows,
}

#[derive(Debug, clap::Args)]
pub struct Send {
    #[command(flatten)]
    who: Who,
    /// Who gets it; again for more
    #[arg(required = true)]
    to: Vec<Address>,
    /// The text
    #[arg(long, value_name = "TEXT", conflicts_with = "file")]
    body: Option<String>,
    /// A file with the content, or - for stdin; JSON when the media type says so
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// A file to go with it, sealed; again for more
    #[arg(long, value_name = "FILE")]
    attach: Vec<PathBuf>,
    /// The media type of the content
    #[arg(long, value_name = "TYPE", default_value = "text/plain")]
    media: String,
    /// message, task, result, receipt or intro
    #[arg(long = "type", value_name = "WORD", default_value = "message", value_parser = kind)]
    kind: Kind,
    /// The conversation it belongs to
    #[arg(long, value_name = "ID")]
    thread: Option<String>,
    /// The letter that it answers; without --thread, in its thread
    #[arg(long, value_name = "ID")]
    reply_to: Option<String>,
    /// Give up after this long, such as 2d
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    expires: Option<i64>,
    /// Not before this instant
    #[arg(long, value_name = "TIME", value_parser = instant)]
    deliver_after: Option<Timestamp>,
    /// Send in clear although it could be sealed
    #[arg(long, conflicts_with = "sealed")]
    clear: bool,
    /// Refuse to send in clear
    #[arg(long)]
    sealed: bool,
    /// Ask for a notice of delivery
    #[arg(long)]
    receipt: bool,
    /// Pay a mailbox that asks for a stamp
    #[arg(long, value_name = "TOKENS")]
    stamp: Option<u64>,
    #[command(flatten)]
    labels: talk::Labels,
    /// Repeat the letter of this id, whose answer was lost; it is delivered once [default: a new id]
    #[arg(long, value_name = "ID", value_parser = handover::id)]
    id: Option<String>,
}

#[derive(Debug, clap::Args)]
pub struct Inbox {
    #[command(flatten)]
    who: Who,
    /// At most so many, the newest
    #[arg(long, value_name = "N", default_value_t = limits::MAILBOX_PAGE_DEFAULT)]
    limit: usize,
    /// Wait up to so many seconds for one letter
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=limits::WAIT_SECONDS_MAX))]
    wait: Option<u64>,
    /// Only from this address
    #[arg(long, value_name = "ADDRESS")]
    from: Option<Address>,
    /// Only of this conversation
    #[arg(long, value_name = "ID")]
    thread: Option<String>,
    /// Only of this project
    #[arg(long, value_name = "NAME", value_parser = talk::project)]
    project: Option<String>,
    /// Mark what is shown as handled
    #[arg(long)]
    ack: bool,
}

#[derive(Debug, clap::Args)]
pub struct Ack {
    #[command(flatten)]
    who: Who,
    /// The id of a letter; again for more
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub struct Outbox {
    #[command(flatten)]
    who: Who,
    /// At most so many, the newest
    #[arg(long, value_name = "N", default_value_t = limits::MAILBOX_PAGE_DEFAULT)]
    limit: usize,
}

#[derive(Debug, clap::Args)]
pub struct Card {
    #[command(flatten)]
    who: Who,
    /// Whose; your own when absent
    address: Option<Address>,
}

#[derive(Debug, clap::Args)]
pub struct Directory {
    /// The URL of the house; the identity's own when absent
    #[arg(long, value_name = "URL", env = "VERIFICA_HOUSE", hide_env_values = true)]
    house: Option<String>,
    #[command(flatten)]
    who: Who,
    /// A part of the address or of what the card says it can do
    #[arg(long, value_name = "TEXT")]
    query: Option<String>,
    /// Only agents whose card names this capability
    #[arg(long, value_name = "NAME")]
    capability: Option<String>,
    /// Only agents that take this media type
    #[arg(long, value_name = "MEDIA")]
    accepts: Option<String>,
    /// At most so many on a page
    #[arg(long, value_name = "N", default_value_t = limits::DIRECTORY_PAGE_DEFAULT)]
    limit: usize,
    /// Leave out so many at the beginning
    #[arg(long, value_name = "N", default_value_t = 0)]
    offset: usize,
}

pub fn run(command: &Command, out: &Out) -> Result<Exit, Failure> {
    match command {
        Command::New(args) => new(args, out),
        Command::Join(args) => block_on(join(args, out)),
        Command::Send(args) => block_on(send(args, out)),
        Command::Inbox(args) => block_on(inbox(args, out)),
        Command::Ack(args) => block_on(ack(args, out)),
        Command::Outbox(args) => block_on(outbox(args, out)),
        Command::Card(args) => block_on(card(args, out)),
        Command::Directory(args) => block_on(directory(args, out)),
        Command::Attachment(command) => files::run(command, out),
        Command::People(command) => people::run(command, out),
        Command::Talk(command) => talk::run(command, out),
        Command::Search(command) => search::run(command, out),
    }
}

fn new(args: &New, out: &Out) -> Result<Exit, Failure> {
    let house = house_url(&args.house).map_err(|why| Failure::usage(why).at("--house"))?;
    let path = identity_path(&args.identity);
    let identity =
        Identity::from_seeds(args.address.clone(), house, keyfile::random::<32>()?, keyfile::random::<32>()?);
    keyfile::write_new(&path, identity.to_text().as_bytes(), 0o600)?;
    let sig = identity.sig.public().kid();
    let enc = identity.enc.as_ref().map(|enc| enc.0.public().text());
    if out.json {
        out.doc(&json!({
            "schema": "verifica.identity/1", "address": identity.address, "house": identity.house, "sig": sig, "enc": enc,
            "file": path.display().to_string(),
        }));
        return Ok(Exit::Ok);
    }
    out.line(format!("{}  {}", identity.address, path.display()));
    out.line(format!("sig  {sig}"));
    out.line(format!("enc  {}", enc.unwrap_or_default()));
    out.say(format!("next: verifica agent join --as {}", path.display()));
    Ok(Exit::Ok)
}

async fn join(args: &Join, out: &Out) -> Result<Exit, Failure> {
    let client = args.who.client()?;
    let json_of = |text: &str, what: &str| {
        serde_json::from_str::<Value>(text).map_err(|e| Failure::usage(format!("{what} is not JSON")).why(e))
    };
    let profile = match &args.profile {
        None => None,
        Some(path) => Some(json_of(&read_text(path)?, "the profile")?),
    };
    let joining = Joining {
        invite: args.invite.clone(),
        capabilities: args.shows.capabilities(&args.accepts),
        webhook: args.shows.webhook.clone(),
        inbox: args.inbox.as_deref().map(|text| json_of(text, "--inbox")).transpose()?,
        visibility: args.visibility.clone(),
        profile,
        source: Some("verifica-cli".to_owned()),
    };
    let joined = match &args.admin_token_file {
        Some(path) => client.join_as_admin(&joining, &settings::admin_token(path)?).await,
        None => client.join(&joining).await,
    };
    let (card, again) = match joined {
        Ok(card) => (card, false),
        Err(error) => (own_card_after(&client, error).await?, true),
    };
    args.who.keep_pin(&client)?;
    let via = card.get("registered_via").and_then(Value::as_str).unwrap_or("earlier");
    if out.json {
        out.doc(&json!({"schema": "verifica.joined/1", "address": client.address(), "already": again, "card": card}));
    } else {
        let word = if again {
            "was registered already, with this key".to_owned()
        } else {
            format!("is registered (via {})", clean(via))
        };
        out.line(format!("{} {word}", client.address()));
    }
    Ok(Exit::Ok)
}

/// A name that is taken may be taken by this very key: then joining again changes nothing and is no failure.
async fn own_card_after(client: &AgentClient, error: ClientError) -> Result<Value, Failure> {
    if !matches!(&error, ClientError::Refused { status, .. } if *status == Rule::NameTaken.code()) {
        return Err(error.into());
    }
    match client.card(client.address()).await {
        Ok(card) if card.sig == client.identity().sig.public() => Ok(card.doc().clone()),
        _ => Err(error.into()),
    }
}

async fn send(args: &Send, out: &Out) -> Result<Exit, Failure> {
    let client = args.who.client()?;
    let text = match (&args.body, &args.file) {
        (Some(text), _) => text.clone(),
        (None, Some(path)) => read_text(path)?,
        (None, None) if !args.attach.is_empty() => String::new(),
        (None, None) => {
            return Err(Failure::usage("there is nothing to send")
                .hint("give --body TEXT, or --file FILE, or --file - for stdin; or --attach FILE"));
        }
    };
    let body = if is_json(&args.media) {
        serde_json::from_str(&text)
            .map_err(|e| Failure::usage(format!("the content is not JSON, and {} says it is", args.media)).why(e))?
    } else {
        Value::String(text)
    };
    let now = lib::SystemClock.now();
    let thread = match (&args.thread, &args.reply_to, args.to.first()) {
        (None, Some(original), Some(with)) => client.thread_of(original, with).await?,
        (given, ..) => given.clone(),
    };
    let message = Message {
        to: args.to.clone(),
        kind: args.kind,
        media: args.media.clone(),
        body,
        thread,
        in_reply_to: args.reply_to.clone(),
        expires: args.expires.map(|ms| now.plus(ms)),
        deliver_after: args.deliver_after,
        privacy: match (args.clear, args.sealed) {
            (true, _) => Privacy::Clear,
            (_, true) => Privacy::Sealed,
            _ => Privacy::Auto,
        },
        receipt: args.receipt,
        stamp: args.stamp.zip(args.to.first().map(Address::domain)).map(|(amount, house)| (house, amount)),
        extensions: args.labels.extensions()?,
        files: files::read(&args.attach)?,
    };
    let sent = hand_over(&client, &args.who, args.id.as_deref(), &message, out).await?;
    sent.settle();
    args.who.keep_pin(&client)?;
    if out.json {
        out.doc(&json!({"schema": "verifica.sent/1", "id": sent.id, "sealed": sent.sealed, "answer": sent.answer}));
    } else {
        out.line(&sent.id);
        let how = if sent.sealed { "sealed" } else { "in clear" };
        let to: Vec<&str> = args.to.iter().map(Address::as_str).collect();
        out.say(format!("taken for delivery to {}, {how}", to.join(", ")));
    }
    Ok(Exit::Ok)
}

async fn inbox(args: &Inbox, out: &Out) -> Result<Exit, Failure> {
    let client = args.who.client()?;
    let admits = |mail: &Mail| {
        let envelope = mail.envelope();
        let of_thread = |thread: &String| {
            let says = |name: &str| envelope.get(name).and_then(Value::as_str) == Some(thread.as_str());
            says("thread") || says("id")
        };
        args.from.as_ref().is_none_or(|from| mail.from() == from.as_str())
            && args.thread.as_ref().is_none_or(of_thread)
            && (args.project.is_none() || crate::mail::talk::project_of(envelope) == args.project)
    };
    let mails: Vec<Mail> = match args.wait {
        Some(seconds) => {
            let filter = Filter {
                from: args.from.clone(),
                thread: args.thread.clone(),
                since: None,
                project: args.project.clone(),
            };
            client.wait(&filter, seconds).await?.into_iter().collect()
        }
        None => {
            // What is asked for may lie behind newer letters of others.
            let chosen = args.from.is_some() || args.thread.is_some() || args.project.is_some();
            let page = if chosen { limits::MAILBOX_PAGE_MAX } else { args.limit.min(limits::MAILBOX_PAGE_MAX) };
            let waiting = client.inbox(page).await?;
            if chosen && waiting.len() == page {
                out.say(format!(
                    "only the newest {page} letters were looked through; mark some as handled to see more"
                ));
            }
            let mut mails: Vec<Mail> = waiting.into_iter().filter(admits).collect();
            mails.split_off(mails.len().saturating_sub(args.limit))
        }
    };
    args.who.keep_pin(&client)?;
    let shown: Vec<Value> = mails.iter().map(|mail| opened(&client, mail)).collect();
    if out.json {
        out.doc(&json!({"schema": "verifica.inbox/1", "address": client.address(), "messages": shown}));
    } else {
        shown.iter().for_each(|mail| show_mail(mail, out));
        if shown.is_empty() {
            out.say("no letters wait");
        }
    }
    if args.ack && !mails.is_empty() {
        let ids: Vec<String> = mails.iter().map(|mail| mail.id().to_owned()).collect();
        client.ack(&ids).await?;
    }
    Ok(Exit::Ok)
}

/// A letter as data: what it says, or why it cannot be opened.
pub fn opened(client: &AgentClient, mail: &Mail) -> Value {
    let envelope = mail.envelope();
    let field = |name: &str| envelope.get(name).cloned().unwrap_or_default();
    let (content, fault) = match client.open(mail) {
        Ok(content) => (content, None),
        Err(refusal) => (Value::Null, Some(refusal.reason)),
    };
    json!({
        "id": mail.id(), "from": mail.from(), "to": field("to"), "type": field("type"), "thread": field("thread"),
        "in_reply_to": field("in_reply_to"), "received": mail.record.get("received"), "sealed": mail.is_sealed(),
        "from_verified": mail.record.get("from_verified"), "project": crate::mail::talk::project_of(envelope),
        "summary": crate::mail::talk::summary_of(envelope), "media": content.get("media"), "body": content.get("body"),
        "fault": fault, "attachments": files::told(client, mail), "record": mail.record,
    })
}

fn show_mail(mail: &Value, out: &Out) {
    let text = |name: &str| brief(mail.get(name).and_then(Value::as_str).unwrap_or("-"), 200);
    let sealed = if mail["sealed"] == json!(true) { "sealed" } else { "clear" };
    let from = out.paint(Style::Strong, text("from"));
    out.line(format!("{}  {from}  {}  {sealed}  {}", text("received"), text("type"), text("id")));
    if mail["thread"].is_string() {
        out.line(format!("    thread {}", text("thread")));
    }
    if mail["project"].is_string() {
        out.line(format!("    project {}", text("project")));
    }
    if mail["summary"].is_string() {
        out.line(format!("    about (the sender's own line, unchecked): {}", text("summary")));
    }
    match mail.get("fault").and_then(Value::as_str) {
        Some(fault) => out.line(format!("    {}", out.paint(Style::Doubt, clean(fault)))),
        None => out.line(format!("    {}", said(mail))),
    }
    files::list(mail, out);
}

/// The content of a letter: a text whole, the protocol's documents by what they mean, other data in brief.
fn said(mail: &Value) -> String {
    let body = mail.get("body").unwrap_or(&Value::Null);
    let media = mail.get("media").and_then(Value::as_str).unwrap_or("-");
    let of = |name: &str| match body.get(name) {
        Some(Value::String(text)) => brief(text, 120),
        Some(Value::Object(inner)) => brief(inner.get("id").and_then(Value::as_str).unwrap_or("-"), 120),
        Some(other) => brief(&other.to_string(), 120),
        None => "-".to_owned(),
    };
    if let Some(text) = body.as_str() {
        // Its further lines stand further in than anything that is said about a letter.
        return format!("{}  {}", brief(media, 80), clean(text).replace("\n    ", "\n      | "));
    }
    match media {
        QUOTE_MEDIA => {
            let id = brief(mail.get("id").and_then(Value::as_str).unwrap_or("-"), 128);
            let deal = format!("{} for {} tok, \"{}\"", of("contract"), of("price"), of("concept"));
            format!("quote: {deal}; take it with `verifica libro accept {id}`")
        }
        RECEIPT_MEDIA if body.get("op").is_some() => {
            let fee = body.pointer("/fee/amount").map(|fee| format!(", fee {fee} tok")).unwrap_or_default();
            let on =
                if body.get("contract").is_some() { format!(" of contract {}", of("contract")) } else { String::new() };
            format!("receipt: {}{on}, ordered by {}{fee}", of("op"), of("from"))
        }
        "application/json" if body.get("status").is_some() && body.get("of").is_some() => {
            let why = body.get("reason").and_then(Value::as_str).filter(|why| !why.is_empty());
            let why = why.map(|why| format!(": {}", brief(why, 120))).unwrap_or_default();
            format!("{} to {}{why} (letter {})", of("status"), of("to"), of("of"))
        }
        _ => format!("{}  {}", brief(media, 80), brief(&body.to_string(), 200)),
    }
}

async fn ack(args: &Ack, out: &Out) -> Result<Exit, Failure> {
    let client = args.who.client()?;
    let acked = client.ack(&args.ids).await?;
    args.who.keep_pin(&client)?;
    let left: Vec<&String> = args.ids.iter().filter(|id| !acked.contains(id)).collect();
    if out.json {
        out.doc(&json!({"schema": "verifica.acked/1", "acked": acked, "not_pending": left}));
    } else {
        acked.iter().for_each(|id| out.line(id));
        for id in &left {
            out.say(format!("{} was not pending", clean(id)));
        }
    }
    Ok(if acked.is_empty() { Exit::Fail } else { Exit::Ok })
}

async fn outbox(args: &Outbox, out: &Out) -> Result<Exit, Failure> {
    let client = args.who.client()?;
    let mut sent = client.outbox().await?;
    args.who.keep_pin(&client)?;
    sent.sort_by_key(|job| job.get("updated").and_then(Value::as_str).map(str::to_owned));
    let sent = sent.split_off(sent.len().saturating_sub(args.limit));
    if out.json {
        out.doc(&json!({"schema": "verifica.outbox/1", "address": client.address(), "sent": sent}));
        return Ok(Exit::Ok);
    }
    let rows = sent.iter().map(|job| {
        let text = |name: &str| brief(job.get(name).and_then(Value::as_str).unwrap_or("-"), 60);
        let to = job.pointer("/envelope/to").or_else(|| job.get("to")).and_then(Value::as_array);
        let to: Vec<&str> = to.into_iter().flatten().filter_map(Value::as_str).collect();
        let last = job.get("log").and_then(Value::as_array).and_then(|log| log.last());
        let detail = last.and_then(|line| line.get("detail")).and_then(Value::as_str).unwrap_or("");
        vec![text("status"), text("id"), brief(&to.join(","), 60), text("updated"), brief(detail, 80)]
    });
    table(out, &["status", "id", "to", "updated", "last answer"], rows.collect());
    Ok(Exit::Ok)
}

async fn card(args: &Card, out: &Out) -> Result<Exit, Failure> {
    let client = args.who.client()?;
    let address = args.address.as_ref().unwrap_or(client.address());
    let card = client.card(address).await?;
    args.who.keep_pin(&client)?;
    if out.json {
        out.doc(card.doc());
        return Ok(Exit::Ok);
    }
    let doc = card.doc();
    let text = |name: &str| {
        let given = doc.get(name).filter(|value| !value.is_null());
        given.map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned)).unwrap_or_else(|| "-".into())
    };
    out.line(out.paint(Style::Strong, &card.address));
    for name in ["sig", "enc", "valid_until", "visibility", "inbox", "capabilities", "profile"] {
        out.line(format!("{name:<13}{}", brief(&text(name), 400)));
    }
    let who = if address.domain() == client.address().domain() {
        "certified by the house, checked here"
    } else {
        "as the house resolved it"
    };
    out.say(who);
    Ok(Exit::Ok)
}

async fn directory(args: &Directory, out: &Out) -> Result<Exit, Failure> {
    let url = match &args.house {
        Some(url) => house_url(url).map_err(|why| Failure::usage(why).at("--house"))?,
        None => args.who.load()?.house,
    };
    let house = HouseClient::new(&url, &extra_roots(&args.who.ca)?)?;
    let mut query = vec![("limit", args.limit.to_string()), ("offset", args.offset.to_string())];
    for (name, value) in [("q", &args.query), ("capability", &args.capability), ("accepts", &args.accepts)] {
        query.extend(value.iter().map(|value| (name, value.clone())));
    }
    let page = lib::directory(&house, &query).await?;
    if out.json {
        out.doc(&page);
        return Ok(Exit::Ok);
    }
    let agents = page.get("agents").and_then(Value::as_array).cloned().unwrap_or_default();
    let rows = agents.iter().map(|card| {
        let at = |path: &str| card.pointer(path).and_then(Value::as_str).unwrap_or("-");
        let accepts = card.pointer("/capabilities/accepts").and_then(Value::as_array).into_iter().flatten();
        let accepts: Vec<&str> = accepts.filter_map(Value::as_str).collect();
        vec![
            brief(at("/address"), 100),
            brief(at("/inbox/policy"), 20),
            brief(&accepts.join(" "), 60),
            brief(at("/profile/summary"), 60),
        ]
    });
    table(out, &["address", "inbox", "accepts", "summary"], rows.collect());
    let total = page.get("total").and_then(Value::as_u64).unwrap_or_default();
    out.say(format!("{} of {total}", agents.len()));
    Ok(Exit::Ok)
}

/// Aligned with a heading for eyes, tab-separated without one in a pipe.
pub fn table(out: &Out, head: &[&str], rows: Vec<Vec<String>>) {
    if !std::io::stdout().is_terminal() {
        rows.iter().for_each(|row| out.line(row.join("\t")));
        return;
    }
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::TableStyle::new());
    table.set_header(head.iter().map(|name| name.to_uppercase()));
    rows.into_iter().for_each(|row| {
        table.add_row(row);
    });
    out.line(table.to_string().trim_end());
}

/// A file, or stdin for `-`.
pub fn read_bytes(path: &Path) -> Result<Vec<u8>, Failure> {
    if path == Path::new("-") {
        let mut bytes = Vec::new();
        let read = std::io::stdin().lock().read_to_end(&mut bytes);
        return read.map(|_| bytes).map_err(|error| keyfile::cannot(&error, "stdin cannot be read", path));
    }
    std::fs::read(path).map_err(|error| keyfile::cannot(&error, "the file cannot be read", path))
}

/// A text file, or stdin for `-`.
pub fn read_text(path: &Path) -> Result<String, Failure> {
    let not_text = || Failure::usage("the file is not UTF-8 text").at(path.display());
    String::from_utf8(read_bytes(path)?).map_err(|_| not_text())
}

pub fn duration(text: &str) -> Result<i64, String> {
    parse_duration(text)
}

pub fn instant(text: &str) -> Result<Timestamp, String> {
    Timestamp::parse(text)
        .ok_or_else(|| "write an instant with a zone, such as 2026-09-15T10:00:00Z, or a date".to_owned())
}

fn kind(text: &str) -> Result<Kind, String> {
    Kind::parse(text).ok_or_else(|| "one of message, task, result, receipt, intro".to_owned())
}

fn is_json(media: &str) -> bool {
    media == "application/json" || media.ends_with("+json")
}
