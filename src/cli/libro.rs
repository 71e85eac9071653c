//! `verifica libro`: deal and pay. Each order is a signed envelope to the ledger; the answer is its signed receipt, or
//! the letter that came back with the reason.

use super::agent::{duration, instant, read_text, table};
use super::deal;
use super::handover::{self, hand_over, naming};
use super::keyfile;
use super::output::{Failure, Out, Style, brief, clean};
use super::who::{Who, extra_roots};
use super::{block_on, json_source, settings};
use crate::client::agent::{self as lib, AgentClient, ClientError, HouseClient, Mail, Message, Privacy, Receipt};
use crate::config::house_url;
use crate::limits;
use crate::probe::address::AddressRule;
use crate::probe::plan::{Capabilities, acceptable};
use crate::probe::url::UrlPolicy;
use crate::refusal::Exit;
use crate::time::{Clock, Timestamp};
use crate::wire::address::{Address, Domain, SystemName};
use crate::wire::amount::Amount;
use crate::wire::digest::Sha256;
use crate::wire::envelope::Kind;
use crate::wire::json::unsignable;
use crate::wire::quote::{ContractKind, Offer, QUOTE_MEDIA, Referrer};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Write and sign an offer as the seller
    Quote(Box<Quote>),
    /// Accept an offer as the buyer: an escrow holds the price, a spot deal pays it (network)
    Accept(Accept),
    /// Say as the seller that the work is done, with its evidence (network)
    Deliver(Deliver),
    /// Pay the held tokens to the seller (network)
    Release(OnContract),
    /// Give the held tokens back to the buyer (network)
    Refund(OnContract),
    /// Take the held tokens back when nothing was delivered in time (network)
    Reclaim(OnContract),
    /// Pay an agent of the house (network)
    Pay(Pay),
    /// Show the balance of your account (network)
    Balance(Read),
    /// Show the movements of your account (network)
    Statement(Statement),
    /// Show a contract that you are a party of (network)
    Contract(OneContract),
    /// Fetch what the verdict on a contract stands on, for replay and verify (network)
    Evidence(Evidence),
    /// Issue tokens to an account, with the operator's authority (network)
    Topup(Topup),
}

/// How to order: who, whose ledger, and whether to wait for the answer.
#[derive(Debug, clap::Args)]
pub struct Order {
    #[command(flatten)]
    who: Who,
    /// The house whose ledger is ordered [default: the house of the deal, else your own]
    #[arg(long, value_name = "DOMAIN")]
    house: Option<Domain>,
    /// How long to wait for the receipt
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    wait: i64,
    /// Hand the order over and do not wait for its receipt
    #[arg(long)]
    no_wait: bool,
    /// Leave the receipt in the mailbox, not marked as handled
    #[arg(long)]
    no_ack: bool,
    /// Repeat the order of this id, whose answer was lost; it is done once [default: a new id]
    #[arg(long, value_name = "ID", value_parser = handover::id)]
    id: Option<String>,
}

#[derive(Debug, clap::Args)]
pub struct Quote {
    #[command(flatten)]
    who: Who,
    /// Who is to buy
    buyer: Address,
    /// In tokens
    #[arg(long, value_name = "TOKENS")]
    price: u64,
    /// What is sold, in a few words
    #[arg(long, value_name = "TEXT", default_value = "")]
    concept: String,
    /// escrow, spot or metered
    #[arg(long, value_name = "KIND", default_value = "escrow", value_parser = contract_kind)]
    contract: ContractKind,
    /// A JSON file with the terms
    #[arg(long, value_name = "FILE")]
    terms: Option<PathBuf>,
    /// A JSON or TOML file with the tests that decide; they become terms.verify
    #[arg(long, value_name = "FILE")]
    verify: Option<PathBuf>,
    /// When the work is due
    #[arg(long, value_name = "TIME", value_parser = instant)]
    deadline: Option<Timestamp>,
    /// Who decides [default: verifica@ of the house when there are tests]
    #[arg(long, value_name = "ADDRESS")]
    arbiter: Option<Address>,
    /// The house whose ledger holds the deal [default: the buyer's]
    #[arg(long, value_name = "DOMAIN")]
    house: Option<Domain>,
    /// How long the offer stands
    #[arg(long, value_name = "DURATION", default_value = "1d", value_parser = duration)]
    expires: i64,
    /// A service of your published profile
    #[arg(long, value_name = "ID")]
    service: Option<String>,
    /// Who brought the deal, with its share in basis points
    #[arg(long, value_name = "ADDRESS:BPS", value_parser = referrer)]
    referrer: Option<Referrer>,
    /// Send it to the buyer as well (network)
    #[arg(long)]
    send: bool,
    /// Write it to a new file and not to stdout
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct Accept {
    #[command(flatten)]
    order: Order,
    /// A file with the quote, - for stdin, or the id of the letter that brought it
    quote: String,
    /// Refuse a quote that asks for more
    #[arg(long, value_name = "TOKENS")]
    max_price: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub struct Deliver {
    #[command(flatten)]
    order: Order,
    /// The id of the contract
    contract: String,
    /// The delivered file; its SHA-256 is declared
    #[arg(long, value_name = "FILE", conflicts_with_all = ["evidence_sha256", "text"])]
    evidence: Option<PathBuf>,
    /// The SHA-256 of what was delivered
    #[arg(long, value_name = "HEX", value_parser = sha256, conflicts_with = "text")]
    evidence_sha256: Option<Sha256>,
    /// The delivery itself, when it is a text
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    /// A word to the other party; the contract keeps it
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

#[derive(Debug, clap::Args)]
pub struct OnContract {
    #[command(flatten)]
    order: Order,
    /// The id of the contract
    contract: String,
    /// A word to the other party; the contract keeps it
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

#[derive(Debug, clap::Args)]
pub struct Pay {
    #[command(flatten)]
    order: Order,
    /// Who gets them
    to: Address,
    /// How many
    #[arg(value_name = "TOKENS")]
    amount: u64,
    /// What for, in a few words
    #[arg(long, value_name = "TEXT")]
    concept: Option<String>,
}

#[derive(Debug, clap::Args)]
pub struct Read {
    #[command(flatten)]
    order: Order,
}

#[derive(Debug, clap::Args)]
pub struct Statement {
    #[command(flatten)]
    order: Order,
    /// From this instant or date on
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Before this instant or date
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// At most so many movements, the newest
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// As comma-separated values; of your own house only
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

#[derive(Debug, clap::Args)]
pub struct OneContract {
    #[command(flatten)]
    order: Order,
    /// The id of the contract
    contract: String,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  verifica libro evidence CONTRACT --out seen.json
  verifica replay seen.json
  verifica verify seen.json --house https://mail.mar.example     (network)")]
pub struct Evidence {
    #[command(flatten)]
    who: Who,
    /// The id of the contract
    contract: String,
    /// A new file for it [default: stdout]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The house that keeps the contract [default: your own]
    #[arg(long, value_name = "URL")]
    at: Option<String>,
}

#[derive(Debug, clap::Args)]
pub struct Topup {
    /// Whose account
    account: Address,
    /// How many
    #[arg(value_name = "TOKENS")]
    amount: u64,
    /// What for, in a few words
    #[arg(long, value_name = "TEXT")]
    concept: Option<String>,
    /// The URL of the house [default: from its configuration]
    #[arg(long, value_name = "URL", env = "VERIFICA_HOUSE", hide_env_values = true)]
    house: Option<String>,
    /// The operator's token [default: from the configuration]
    #[arg(long, value_name = "FILE", env = "VERIFICA_ADMIN_TOKEN_FILE", hide_env_values = true)]
    admin_token_file: Option<PathBuf>,
    /// A PEM file of roots to trust beside the compiled-in ones
    #[arg(long, value_name = "FILE")]
    ca: Vec<PathBuf>,
    /// Repeat the issue of this id, whose answer was lost; it is done once [default: a new id]
    #[arg(long, value_name = "ID", value_parser = handover::id)]
    id: Option<String>,
}

pub fn run(command: &Command, config: Option<&Path>, out: &Out) -> Result<Exit, Failure> {
    match command {
        Command::Quote(args) => block_on(quote(args, out)),
        Command::Accept(args) => block_on(accept(args, out)),
        Command::Deliver(args) => deliver(args, out),
        Command::Release(args) => on_contract("release", args, out),
        Command::Refund(args) => on_contract("refund", args, out),
        Command::Reclaim(args) => on_contract("reclaim", args, out),
        Command::Pay(args) => pay(args, out),
        Command::Balance(args) => block_on(balance(args, out)),
        Command::Statement(args) => block_on(statement(args, out)),
        Command::Contract(args) => block_on(contract(args, out)),
        Command::Evidence(args) => block_on(evidence(args, out)),
        Command::Topup(args) => topup(args, config, out),
    }
}

async fn quote(args: &Quote, out: &Out) -> Result<Exit, Failure> {
    let identity = args.who.load()?;
    let house = args.house.clone().unwrap_or_else(|| args.buyer.domain());
    let price = Amount::new(args.price)
        .ok_or_else(|| Failure::usage("the price must be above zero and a safe integer").at("--price"))?;
    if args.concept.chars().count() > limits::CONCEPT_CHARS_MAX {
        return Err(Failure::usage(format!("the concept is longer than {} characters", limits::CONCEPT_CHARS_MAX))
            .at("--concept"));
    }
    let mut terms = match &args.terms {
        None => Map::new(),
        Some(path) => match json_source::read_file(path, out)?.value {
            Value::Object(terms) => terms,
            _ => return Err(Failure::usage("the terms are not an object").at(path.display())),
        },
    };
    if let Some(path) = &args.verify {
        let tests = json_source::read_file(path, out)?.value;
        let listed = tests.get("test").or_else(|| tests.get("verify")).cloned();
        terms.insert("verify".into(), listed.unwrap_or(tests));
    }
    if let Some(deadline) = args.deadline {
        terms.insert("deadline".into(), deadline.to_string().into());
    }
    let terms = Value::Object(terms);
    if let Some((pointer, why)) = unsignable(&terms) {
        return Err(Failure::usage(why.reason)
            .at(format!("terms{pointer}"))
            .why("no house accepts a document with it"));
    }
    let tested = crate::probe::plan::declared(&terms).is_some();
    let arbiter = args.arbiter.clone().or_else(|| tested.then(|| house.system(SystemName::Verifica)));
    let urls = UrlPolicy { addresses: AddressRule::default() };
    let somewhere = Capabilities::with_jobs(settings::job_policy("default")?.wall_s());
    if let Err(why) = acceptable(&terms, &urls, &somewhere) {
        out.say(format!("warning: a house with the default rules would refuse this at accept: {}", clean(&why)));
    } else if acceptable(&terms, &urls, &Capabilities::network()).is_err() {
        out.say(format!(
            "note: only a house whose verifica@ offers exit_0 takes this: verifica agent card verifica@{house}"
        ));
    }
    let now = lib::SystemClock.now();
    let offer = Offer {
        id: uuid::Uuid::new_v4().to_string(),
        house,
        seller: identity.address.clone(),
        buyer: args.buyer.clone(),
        kind: args.contract,
        price,
        concept: args.concept.clone(),
        terms,
        arbiter,
        referrer: args.referrer.clone(),
        service: args.service.clone(),
        issued: now,
        expires: Some(now.plus(args.expires)),
    };
    let doc = offer.sign(&identity.sig);
    match &args.output {
        Some(path) => {
            keyfile::write_new(path, format!("{doc:#}\n").as_bytes(), 0o644)?;
            out.say(format!("written to {}", path.display()));
        }
        None => out.doc(&doc),
    }
    if args.send {
        let client = args.who.client()?;
        let message = Message {
            to: vec![args.buyer.clone()],
            kind: Kind::Message,
            media: QUOTE_MEDIA.to_owned(),
            body: doc,
            thread: None,
            in_reply_to: None,
            expires: None,
            deliver_after: None,
            privacy: Privacy::Auto,
            receipt: false,
            stamp: None,
            extensions: serde_json::Map::new(),
            files: Vec::new(),
        };
        let sent = hand_over(&client, &args.who, None, &message, out).await?;
        sent.settle();
        args.who.keep_pin(&client)?;
        out.say(format!("sent to {} in the letter {}", args.buyer, sent.id));
    }
    Ok(Exit::Ok)
}

async fn accept(args: &Accept, out: &Out) -> Result<Exit, Failure> {
    let client = args.order.who.client()?;
    let doc = find_quote(&client, &args.quote).await?;
    let text = |name: &str| doc.get(name).and_then(Value::as_str).unwrap_or_default();
    if text("tipo") != "cotizacion" {
        return Err(Failure::usage("this is not a quote: its tipo is not cotizacion").at(clean(&args.quote)));
    }
    let price = doc.get("price").and_then(Value::as_u64);
    if let (Some(most), Some(price)) = (args.max_price, price)
        && price > most
    {
        return Err(Failure::new(
            Exit::Refused,
            format!("the quote asks for {price} tok, more than --max-price {most}"),
        ));
    }
    let house = match &args.order.house {
        Some(house) => house.clone(),
        None => Domain::parse(text("house")).map_err(|refusal| Failure::usage(refusal.reason).at("quote.house"))?,
    };
    order(&client, &args.order, Some(&house), json!({"op": "accept", "quote": doc}), out).await
}

/// A file, stdin, or a letter in the mailbox.
async fn find_quote(client: &AgentClient, named: &str) -> Result<Value, Failure> {
    let path = Path::new(named);
    if named != "-" && !path.exists() && crate::wire::envelope::is_id(named) {
        let mails = client.inbox(limits::MAILBOX_PAGE_MAX).await?;
        let mail = mails.iter().find(|mail| mail.id() == named);
        let mail: &Mail = mail.ok_or_else(|| {
            Failure::usage("there is neither a file nor a waiting letter of this name").at(clean(named))
        })?;
        return Ok(client.open(mail)?.get("body").cloned().unwrap_or_default());
    }
    let text = read_text(path)?;
    let doc: Value =
        serde_json::from_str(&text).map_err(|e| Failure::usage("the quote is not JSON").at(named).why(e))?;
    // A quote as it lies in a letter is taken too.
    Ok(doc.get("body").filter(|body| body.get("tipo").is_some()).cloned().unwrap_or(doc))
}

fn deliver(args: &Deliver, out: &Out) -> Result<Exit, Failure> {
    let declared = match (&args.evidence, args.evidence_sha256) {
        (Some(path), _) => Some(hash_file(path)?),
        (None, given) => given,
    };
    let mut op =
        Map::from_iter([("op".to_owned(), "deliver".into()), ("contract".to_owned(), args.contract.as_str().into())]);
    if let Some(text) = &args.text {
        op.insert("evidence".into(), text.as_str().into());
        op.insert("evidence_sha256".into(), Sha256::of(text).hex().into());
    } else if let Some(declared) = declared {
        op.insert("evidence_sha256".into(), declared.hex().into());
    }
    op.extend(args.note.iter().map(|note| ("note".to_owned(), Value::from(note.as_str()))));
    simple(&args.order, Value::Object(op), out)
}

fn on_contract(op: &str, args: &OnContract, out: &Out) -> Result<Exit, Failure> {
    let mut body = json!({"op": op, "contract": args.contract});
    if let Some(note) = &args.note {
        body["note"] = note.as_str().into();
    }
    simple(&args.order, body, out)
}

fn pay(args: &Pay, out: &Out) -> Result<Exit, Failure> {
    let mut body = json!({"op": "pay", "to": args.to, "amount": args.amount});
    if let Some(concept) = &args.concept {
        body["concept"] = concept.as_str().into();
    }
    simple(&args.order, body, out)
}

fn simple(args: &Order, op: Value, out: &Out) -> Result<Exit, Failure> {
    let client = args.who.client()?;
    block_on(order(&client, args, None, op, out))
}

/// Hands an order over, waits for the ledger's answer and prints it.
async fn order(
    client: &AgentClient,
    args: &Order,
    house: Option<&Domain>,
    op: Value,
    out: &Out,
) -> Result<Exit, Failure> {
    let answer = ask(client, args, house, &op, out).await?;
    let (id, receipt) = match answer {
        Answer::Taken(id) => {
            if out.json {
                out.doc(&json!({"schema": "verifica.order/1", "id": id, "receipt": null}));
            } else {
                out.line(&id);
                out.say("handed over; the receipt will come by mail");
            }
            return Ok(Exit::Ok);
        }
        Answer::Receipt(id, receipt) => (id, receipt),
    };
    if out.json {
        out.doc(
            &json!({"schema": "verifica.order/1", "id": id, "receipt": receipt.body, "envelope": receipt.envelope}),
        );
        return Ok(Exit::Ok);
    }
    out.line(told(&op, &receipt.body));
    show_split(&receipt.body, out);
    out.say(format!("receipt signed by the house, order {id}"));
    Ok(Exit::Ok)
}

enum Answer {
    Taken(String),
    Receipt(String, Box<Receipt>),
}

async fn ask(
    client: &AgentClient,
    args: &Order,
    house: Option<&Domain>,
    op: &Value,
    out: &Out,
) -> Result<Answer, Failure> {
    let house = args.house.as_ref().or(house);
    let libro = house.unwrap_or(&client.address().domain()).system(SystemName::Libro);
    let handed = hand_over(client, &args.who, args.id.as_deref(), &Message::order(&libro, op), out).await?;
    let id = handed.id.clone();
    args.who.keep_pin(client)?;
    if args.no_wait {
        handed.settle();
        return Ok(Answer::Taken(id));
    }
    let within = Duration::from_millis(u64::try_from(args.wait).unwrap_or_default());
    let answer = client.wait_receipt(&id, within).await;
    if matches!(answer, Ok(_) | Err(ClientError::Bounced { .. })) {
        handed.settle();
    }
    let letter = match &answer {
        Ok(receipt) => receipt.envelope.get("id").and_then(Value::as_str),
        Err(ClientError::Bounced { letter, .. }) => Some(letter.as_str()),
        Err(_) => None,
    };
    if let Some(letter) = letter.filter(|_| !args.no_ack) {
        client.ack(&[letter.to_owned()]).await?;
    }
    match answer {
        Ok(receipt) => Ok(Answer::Receipt(id, Box::new(receipt))),
        Err(error) => Err(naming(&id, error)),
    }
}

/// One line about what an order did.
fn told(op: &Value, receipt: &Value) -> String {
    let of = |doc: &Value, name: &str| match doc.get(name) {
        Some(Value::String(text)) => brief(text, 100),
        Some(Value::Object(inner)) => brief(inner.get("id").and_then(Value::as_str).unwrap_or("-"), 100),
        Some(other) => other.to_string(),
        None => "-".to_owned(),
    };
    let name = of(op, "op");
    match name.as_str() {
        "pay" => format!("paid {} tok to {}", of(op, "amount"), of(op, "to")),
        "balance" => format!("{}  {} tok", of(receipt, "account"), of(receipt, "balance")),
        _ => format!("{}  contract {}", past(&name), of(receipt, "contract")),
    }
}

fn past(op: &str) -> &str {
    match op {
        "accept" => "accepted",
        "deliver" => "delivered",
        "release" => "released",
        "refund" => "refunded",
        "reclaim" => "reclaimed",
        other => other,
    }
}

fn show_split(receipt: &Value, out: &Out) {
    for (name, what) in [("fee", "fee"), ("commission", "commission")] {
        if let Some(slip) = receipt.get(name) {
            let text = |field: &str| {
                slip.get(field).map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned)).unwrap_or_default()
            };
            out.line(format!(
                "  {what} {} tok to {} ({} bps)",
                text("amount"),
                brief(&text("account"), 100),
                text("bps")
            ));
        }
    }
}

async fn balance(args: &Read, out: &Out) -> Result<Exit, Failure> {
    let client = args.order.who.client()?;
    let doc = if elsewhere(&client, &args.order) {
        read_by_mail(&client, &args.order, json!({"op": "balance"}), out).await?
    } else {
        client.account().await?
    };
    args.order.who.keep_pin(&client)?;
    if out.json {
        out.doc(&doc);
        return Ok(Exit::Ok);
    }
    let balance = doc.get("balance").map(Value::to_string).unwrap_or_else(|| "-".into());
    let account = doc.get("account").and_then(Value::as_str).unwrap_or(client.address().as_str());
    if out.quiet {
        out.line(balance);
        return Ok(Exit::Ok);
    }
    out.line(format!("{}  {balance} tok", out.paint(Style::Strong, clean(account))));
    let rows = doc.get("contracts").and_then(Value::as_array).into_iter().flatten().map(|contract| {
        let text = |name: &str| {
            contract.get(name).map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned)).unwrap_or_default()
        };
        ["id", "kind", "state", "amount", "seller", "buyer", "concept"]
            .iter()
            .map(|name| brief(&text(name), 50))
            .collect()
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if !rows.is_empty() {
        table(out, &["contract", "kind", "state", "tok", "seller", "buyer", "concept"], rows);
    }
    Ok(Exit::Ok)
}

async fn statement(args: &Statement, out: &Out) -> Result<Exit, Failure> {
    let client = args.order.who.client()?;
    let mut query = Vec::new();
    query.extend(args.since.iter().map(|since| ("desde", since.clone())));
    query.extend(args.until.iter().map(|until| ("hasta", until.clone())));
    query.extend(args.limit.iter().map(|limit| ("limit", limit.to_string())));
    if args.csv {
        if elsewhere(&client, &args.order) {
            return Err(Failure::usage("the ledger of another house is read by mail, and not as a file")
                .at("--csv")
                .hint("leave out --csv, or --house"));
        }
        let bytes = client.statement_csv(&query).await?;
        out.raw(&bytes);
        return args.order.who.keep_pin(&client).map(|()| Exit::Ok);
    }
    let doc = if elsewhere(&client, &args.order) {
        let mut op = json!({"op": "statement"});
        for (name, value) in [("since", &args.since), ("until", &args.until)] {
            if let Some(value) = value {
                op[name] = value.as_str().into();
            }
        }
        if let Some(limit) = args.limit {
            op["limit"] = limit.into();
        }
        read_by_mail(&client, &args.order, op, out).await?
    } else {
        client.statement(&query).await?
    };
    args.order.who.keep_pin(&client)?;
    if out.json {
        out.doc(&doc);
        return Ok(Exit::Ok);
    }
    let text = |doc: &Value, name: &str| {
        doc.get(name)
            .filter(|v| **v != json!(0))
            .map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned))
            .unwrap_or_default()
    };
    let rows = doc.get("entries").and_then(Value::as_array).into_iter().flatten();
    let rows = rows.map(|row| {
        ["date", "concept", "counterparty", "in", "out", "balance"]
            .iter()
            .map(|name| brief(&text(row, name), 60))
            .collect()
    });
    table(out, &["date", "concept", "counterparty", "in", "out", "balance"], rows.collect());
    let number = |name: &str| doc.get(name).map(Value::to_string).unwrap_or_default();
    out.say(format!(
        "opening {}, closing {}, {} of {} movements",
        number("opening_balance"),
        number("closing_balance"),
        number("entries_shown"),
        number("entries_total")
    ));
    Ok(Exit::Ok)
}

async fn contract(args: &OneContract, out: &Out) -> Result<Exit, Failure> {
    let client = args.order.who.client()?;
    let doc = if elsewhere(&client, &args.order) {
        let body =
            read_by_mail(&client, &args.order, json!({"op": "contract", "contract": args.contract}), out).await?;
        body.get("contract").cloned().unwrap_or_default()
    } else {
        client.contract(&args.contract).await?
    };
    args.order.who.keep_pin(&client)?;
    if out.json {
        out.doc(&doc);
        return Ok(Exit::Ok);
    }
    deal::show(&doc, out);
    Ok(Exit::Ok)
}

async fn evidence(args: &Evidence, out: &Out) -> Result<Exit, Failure> {
    let client = args.who.client()?;
    let doc = match &args.at {
        None => client.evidence(&args.contract).await?,
        Some(url) => {
            let url = house_url(url).map_err(|why| Failure::usage(why).at("--at"))?;
            client.evidence_at(&HouseClient::new(&url, &extra_roots(&args.who.ca)?)?, &args.contract).await?
        }
    };
    args.who.keep_pin(&client)?;
    let Some(path) = &args.out else {
        out.doc(&doc);
        return Ok(Exit::Ok);
    };
    let text = format!("{doc}\n");
    keyfile::write_new(path, text.as_bytes(), 0o644)?;
    let sha256 = Sha256::of(&text);
    if out.json {
        out.doc(&json!({"path": path.display().to_string(), "sha256": sha256, "verdict": doc.get("verdict")}));
        return Ok(Exit::Ok);
    }
    let word = |name: &str| brief(doc.get(name).and_then(Value::as_str).unwrap_or("-"), 300);
    out.line(format!("{}  verdict {}  sha256:{sha256}", path.display(), word("verdict")));
    out.say(format!("hint: judge it again with `verifica replay {}`", path.display()));
    Ok(Exit::Ok)
}

/// The ledger of another house is read by mail: its HTTP doors are not the agent's house's to open.
fn elsewhere(client: &AgentClient, args: &Order) -> bool {
    args.house.as_ref().is_some_and(|house| !client.address().is_of(house))
}

async fn read_by_mail(client: &AgentClient, args: &Order, op: Value, out: &Out) -> Result<Value, Failure> {
    match ask(client, args, None, &op, out).await? {
        Answer::Receipt(_, receipt) => Ok(receipt.body),
        Answer::Taken(id) => Ok(json!({"id": id})),
    }
}

fn topup(args: &Topup, config: Option<&Path>, out: &Out) -> Result<Exit, Failure> {
    let known = settings::load_if_present(config, out)?;
    let url = match (&args.house, &known) {
        (Some(url), _) => house_url(url).map_err(|why| Failure::usage(why).at("--house"))?,
        (None, Some(config)) if config.tls.is_none() => format!("http://{}", config.listen),
        (None, Some(config)) => config.public_url.clone(),
        (None, None) => {
            return Err(Failure::usage("which house is not known").hint("give --house URL, or --config FILE"));
        }
    };
    let token_file = args.admin_token_file.clone().or_else(|| known.map(|config| config.admin_token_file));
    let token_file = token_file.ok_or_else(|| {
        Failure::usage("the operator's token is not known").hint("give --admin-token-file FILE, or --config FILE")
    })?;
    let amount =
        Amount::new(args.amount).ok_or_else(|| Failure::usage("the amount must be above zero and a safe integer"))?;
    let token = settings::admin_token(&token_file)?;
    let house = HouseClient::new(&url, &extra_roots(&args.ca)?)?;
    let order = args.id.clone().unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
    let entry = block_on(async {
        let issued = lib::topup(&house, &token, &order, &args.account, amount.tokens(), args.concept.as_deref());
        issued.await.map_err(|error| naming(&order, error))
    })?;
    if out.json {
        out.doc(&entry);
    } else {
        let id = entry.get("id").and_then(Value::as_str).unwrap_or("-");
        let again =
            if entry.get("duplicate") == Some(&json!(true)) { ", as before: nothing was issued again" } else { "" };
        out.line(format!("issued {} tok to {}, entry {}{again}", args.amount, args.account, clean(id)));
    }
    Ok(Exit::Ok)
}

fn hash_file(path: &Path) -> Result<Sha256, Failure> {
    let bytes = std::fs::read(path).map_err(|error| keyfile::cannot(&error, "the evidence cannot be read", path))?;
    Ok(Sha256::of(bytes))
}

fn sha256(text: &str) -> Result<Sha256, String> {
    Sha256::parse(text).ok_or_else(|| "64 hex digits".to_owned())
}

fn contract_kind(text: &str) -> Result<ContractKind, String> {
    ContractKind::parse(text)
        .filter(|kind| *kind != ContractKind::Bond)
        .ok_or_else(|| "one of escrow, spot, metered".to_owned())
}

fn referrer(text: &str) -> Result<Referrer, String> {
    let (address, share) = text.rsplit_once(':').ok_or("write ADDRESS:BPS")?;
    let address = Address::parse(address).map_err(|refusal| refusal.reason)?;
    let share = share.parse::<u64>().ok().filter(|bps| (1..=limits::BPS_WHOLE).contains(bps));
    Ok(Referrer { address, share: share.ok_or("the share is a whole number of basis points above 0")? })
}
