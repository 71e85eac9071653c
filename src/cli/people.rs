//! `verifica agent`, about oneself and one's subagents: the card, its keys, the profile, and who may act for whom.

use super::agent::{instant, read_text, table};
use super::block_on;
use super::json_source;
use super::keyfile;
use super::output::{Failure, Out, brief, clean};
use super::who::{Who, identity_path};
use crate::client::agent::people::Subagent;
use crate::client::agent::{AgentClient, ClientError, Identity, Options};
use crate::refusal::Exit;
use crate::time::Timestamp;
use crate::wire::address::{Address, Domain};
use crate::wire::card::Scope;
use crate::wire::envelope::Kind;
use crate::wire::key::PublicKey;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Make a subagent: sign for it, enrol it, and write its identity (network)
    Delegate(Box<Delegate>),
    /// List your subagents and their bounds, revoked ones too (network)
    Delegations(Delegations),
    /// End a subagent at once, or yourself if you are one (network)
    Revoke(Revoke),
    /// Show, set or delete the profile of yourself or of a subagent (network)
    Profile(Profile),
    /// Change your card: mailbox, visibility, capabilities, wallets (network)
    Update(Update),
    /// Take new keys; letters signed with the old one still verify for a week (network)
    Rotate(Rotate),
}

#[derive(Debug, clap::Args)]
pub struct Delegate {
    #[command(flatten)]
    who: Who,
    /// What it is called: NAME of NAME.you@house
    name: String,
    /// Where to keep its identity
    #[arg(long, value_name = "FILE", required_unless_present = "sig", conflicts_with = "sig")]
    out: Option<PathBuf>,
    /// Its public key, when it keeps its own identity
    #[arg(long, value_name = "KEY", value_parser = public_key)]
    sig: Option<PublicKey>,
    /// What it may send; again for more [default: everything]
    #[arg(long = "type", value_name = "WORD", value_parser = kind)]
    types: Vec<Kind>,
    /// A house that it may write to; again for more [default: every house]
    #[arg(long, value_name = "DOMAIN")]
    to_domain: Vec<Domain>,
    /// Tokens that it may commit at once
    #[arg(long, value_name = "TOKENS")]
    cap: Option<u64>,
    /// It writes messages, results and receipts, and touches no tokens
    #[arg(long)]
    messages_only: bool,
    /// Until when
    #[arg(long, value_name = "TIME", value_parser = instant)]
    until: Option<Timestamp>,
    /// The rule of its mailbox, as JSON
    #[arg(long, value_name = "JSON")]
    inbox: Option<String>,
    /// public, private or secret
    #[arg(long, value_name = "WORD")]
    visibility: Option<String>,
    /// Write the signed delegation and enrol nobody: it enrols itself, or takes a new key with it
    #[arg(long, requires = "sig")]
    sign_only: bool,
}

#[derive(Debug, clap::Args)]
pub struct Delegations {
    #[command(flatten)]
    who: Who,
}

#[derive(Debug, clap::Args)]
pub struct Revoke {
    #[command(flatten)]
    who: Who,
    /// The address to end
    sub: Address,
}

#[derive(Debug, clap::Args)]
pub struct Profile {
    #[command(flatten)]
    who: Who,
    /// Whose, if not your own: a subagent of yours
    #[arg(long, value_name = "ADDRESS")]
    of: Option<Address>,
    /// A JSON file with the profile and its catalogue of services, or - for stdin
    #[arg(long, value_name = "FILE")]
    set: Option<PathBuf>,
    /// Delete it
    #[arg(long, conflicts_with = "set")]
    delete: bool,
}

#[derive(Debug, clap::Args)]
pub struct Update {
    #[command(flatten)]
    who: Who,
    /// The rule of your mailbox, as JSON, such as '{"policy":"stamp","price":5}'
    #[arg(long, value_name = "JSON")]
    inbox: Option<String>,
    /// public, private or secret
    #[arg(long, value_name = "WORD")]
    visibility: Option<String>,
    /// Capabilities to set, as a JSON object; those it does not name stay, null removes one
    #[arg(long, value_name = "JSON")]
    capabilities: Option<String>,
    /// NETWORK=ADDRESS, in place of the wallets that you had; again for more
    #[arg(long, value_name = "WALLET", value_parser = wallet)]
    wallet: Vec<(String, String)>,
}

#[derive(Debug, clap::Args)]
pub struct Rotate {
    #[command(flatten)]
    who: Who,
    /// For a subagent: the parent's delegation of the new key (`verifica agent delegate --sign-only`)
    #[arg(long, value_name = "FILE")]
    delegation: Option<PathBuf>,
    /// Make the new keys and show them, and ask the house for nothing yet
    #[arg(long, conflicts_with = "delegation")]
    prepare: bool,
}

pub fn run(command: &Command, out: &Out) -> Result<Exit, Failure> {
    match command {
        Command::Delegate(args) => block_on(delegate(args, out)),
        Command::Delegations(args) => block_on(delegations(args, out)),
        Command::Revoke(args) => block_on(revoke(args, out)),
        Command::Profile(args) => block_on(profile(args, out)),
        Command::Update(args) => block_on(update(args, out)),
        Command::Rotate(args) => block_on(rotate(args, out)),
    }
}

async fn delegate(args: &Delegate, out: &Out) -> Result<Exit, Failure> {
    let client = args.who.client()?;
    let text = format!("{}.{}", args.name, client.address());
    let address = Address::parse(&text).map_err(|refusal| Failure::usage(refusal.reason).at("NAME"))?;
    let made = match &args.sig {
        Some(_) => None,
        None => {
            let house = client.identity().house.clone();
            let (sig, enc) = (keyfile::random::<32>()?, keyfile::random::<32>()?);
            Some(Identity::from_seeds(address.clone(), house, sig, enc))
        }
    };
    let mut more = Map::new();
    if let Some(text) = &args.inbox {
        more.insert("inbox".into(), json_of(text, "--inbox")?);
    }
    if let Some(visibility) = &args.visibility {
        more.insert("visibility".into(), visibility.as_str().into());
    }
    let list = |texts: Vec<String>| Some(texts).filter(|texts| !texts.is_empty());
    let sig = args.sig.or_else(|| made.as_ref().map(|made| made.sig.public()));
    let sub = Subagent {
        sig: sig.ok_or_else(|| Failure::usage("whose key it is, is not known").hint("give --out FILE or --sig KEY"))?,
        enc: made.as_ref().and_then(|made| made.enc.as_ref()).map(|enc| enc.0.public()),
        scope: Scope {
            types: list(args.types.iter().map(|kind| kind.as_str().to_owned()).collect()),
            to_domains: list(args.to_domain.iter().map(Domain::to_string).collect()),
            cap: args.cap,
            messages_only: args.messages_only,
        },
        valid_until: args.until,
        address,
        more,
    };
    if args.sign_only {
        out.doc(&client.delegation(&sub));
        return Ok(Exit::Ok);
    }
    // Its keys are on the disk before the house knows them.
    if let (Some(made), Some(path)) = (&made, &args.out) {
        keyfile::write_new(&identity_path(path), made.to_text().as_bytes(), 0o600)?;
    }
    let card = match client.delegate(&sub).await {
        Ok(card) => card,
        Err(error) => {
            // A certain no leaves an identity that nobody needs; after silence it may be the one that is enrolled.
            if let (ClientError::Refused { .. }, Some(path)) = (&error, args.out.as_ref().filter(|_| made.is_some())) {
                let _ = std::fs::remove_file(identity_path(path));
            }
            return Err(error.into());
        }
    };
    args.who.keep_pin(&client)?;
    if out.json {
        let file = args.out.as_ref().map(|path| identity_path(path).display().to_string());
        out.doc(&json!({"schema": "verifica.delegated/1", "address": sub.address, "file": file, "card": card}));
    } else {
        out.line(format!("{} acts for {}", sub.address, client.address()));
        out.line(format!("scope  {}", scope_text(&sub.scope.to_json())));
    }
    Ok(Exit::Ok)
}

async fn delegations(args: &Delegations, out: &Out) -> Result<Exit, Failure> {
    let client = args.who.client()?;
    let known = client.delegations().await?;
    args.who.keep_pin(&client)?;
    if out.json {
        out.doc(&json!({"schema": "verifica.delegations/1", "address": client.address(), "delegations": known}));
        return Ok(Exit::Ok);
    }
    let rows = known.iter().map(|entry| {
        let text = |path: &str| brief(entry.pointer(path).and_then(Value::as_str).unwrap_or("-"), 80);
        let state = match (entry.get("revoked").is_some_and(|at| !at.is_null()), entry.get("renew_by")) {
            (true, _) => format!("revoked {}", text("/revoked/at")),
            (false, Some(_)) => format!("renew by {}", text("/renew_by")),
            (false, None) => format!("until {}", text("/valid_until")),
        };
        vec![text("/address"), state, scope_text(entry.get("scope").unwrap_or(&Value::Null))]
    });
    table(out, &["address", "state", "scope"], rows.collect());
    out.say(format!("{} subagents", known.len()));
    Ok(Exit::Ok)
}

async fn revoke(args: &Revoke, out: &Out) -> Result<Exit, Failure> {
    let client = args.who.client()?;
    let answer = client.revoke(&args.sub).await?;
    args.who.keep_pin(&client)?;
    if out.json {
        out.doc(&answer);
    } else {
        let at = answer.pointer("/revoked/at").and_then(Value::as_str).unwrap_or("-");
        let word = if answer.get("already") == Some(&json!(true)) { "was revoked already" } else { "is revoked" };
        out.line(format!("{} {word}, {}", args.sub, clean(at)));
    }
    Ok(Exit::Ok)
}

async fn profile(args: &Profile, out: &Out) -> Result<Exit, Failure> {
    let client = args.who.client()?;
    let of = args.of.as_ref().unwrap_or(client.address());
    let profile = match (&args.set, args.delete) {
        (Some(path), _) => {
            let profile = json_source::read_file(path, out)?.value;
            client.set_profile(of, Some(&profile)).await?
        }
        (None, true) => client.set_profile(of, None).await?,
        (None, false) => json!({"address": of, "profile": client.card(of).await?.doc().get("profile")}),
    };
    args.who.keep_pin(&client)?;
    if out.json {
        out.doc(&profile);
        return Ok(Exit::Ok);
    }
    match profile.get("profile").and_then(Value::as_object) {
        None => out.line(format!("{of} has no profile")),
        Some(fields) => fields.iter().for_each(|(name, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            out.line(format!("{:<13} {}", clean(name), brief(&text, 400)));
        }),
    }
    Ok(Exit::Ok)
}

async fn update(args: &Update, out: &Out) -> Result<Exit, Failure> {
    let client = args.who.client()?;
    let mut changes = Map::new();
    if let Some(text) = &args.inbox {
        changes.insert("inbox".into(), json_of(text, "--inbox")?);
    }
    if let Some(visibility) = &args.visibility {
        changes.insert("visibility".into(), visibility.as_str().into());
    }
    if let Some(text) = &args.capabilities {
        let Value::Object(set) = json_of(text, "--capabilities")? else {
            return Err(Failure::usage("the capabilities are not an object").at("--capabilities"));
        };
        let card = client.card(client.address()).await?;
        let mut all = card.doc().get("capabilities").and_then(Value::as_object).cloned().unwrap_or_default();
        all.extend(set);
        all.retain(|_, value| !value.is_null());
        changes.insert("capabilities".into(), Value::Object(all));
    }
    if !args.wallet.is_empty() {
        let wallets = args.wallet.iter().map(|(network, address)| json!({"network": network, "address": address}));
        changes.insert("wallets".into(), wallets.collect());
    }
    if changes.is_empty() {
        return Err(Failure::usage("there is nothing to change")
            .hint("give --inbox, --visibility, --capabilities or --wallet; a profile has its own command"));
    }
    let card = client.change_card(&changes).await?;
    args.who.keep_pin(&client)?;
    if out.json {
        out.doc(&card);
    } else {
        out.line(format!("the card of {} is certified anew", client.address()));
    }
    Ok(Exit::Ok)
}

/// The new keys are on the disk before the house knows them, and take the place of the old ones when it has said so:
/// whatever stops in between, one of the two files holds the keys of the card.
async fn rotate(args: &Rotate, out: &Out) -> Result<Exit, Failure> {
    let path = args.who.path();
    let next_path = beside(&path);
    let next = match next_path.exists() {
        true => read_identity(&next_path)?,
        false => {
            let old = args.who.load()?;
            let (sig, enc) = (keyfile::random::<32>()?, keyfile::random::<32>()?);
            let mut next = Identity::from_seeds(old.address.clone(), old.house.clone(), sig, enc);
            (next.house_key, next.next_house_key) = (old.house_key, old.next_house_key);
            keyfile::write_new(&next_path, next.to_text().as_bytes(), 0o600)?;
            next
        }
    };
    let show = |done: bool, card: &Value| {
        let (sig, enc) = (next.sig.public().kid(), next.enc.as_ref().map(|enc| enc.0.public().text()));
        if out.json {
            out.doc(&json!({
                "schema": "verifica.rotated/1", "address": next.address, "rotated": done, "sig": sig, "enc": enc,
                "previous": card.get("previous"),
            }));
        } else {
            let word = if done { "has new keys" } else { "can take new keys" };
            out.line(format!("{} {word}", next.address));
            out.line(format!("sig  {sig}"));
        }
    };
    if args.prepare {
        show(false, &Value::Null);
        return Ok(Exit::Ok);
    }
    let client = args.who.client()?;
    let delegation = match &args.delegation {
        None => None,
        Some(path) => Some(json_of(&read_text(path)?, "the delegation")?),
    };
    let card = match client.rotate(&next, delegation.as_ref()).await {
        Ok(card) => card,
        // An earlier attempt may have reached the house, whose answer was lost.
        Err(error) => match taken_already(args, &next).await {
            Some(card) => card,
            None => return Err(error.into()),
        },
    };
    keyfile::replace(&path, next.to_text().as_bytes(), 0o600)?;
    let _ = std::fs::remove_file(&next_path);
    show(true, &card);
    Ok(Exit::Ok)
}

/// The card, if the house knows the agent by the new key.
async fn taken_already(args: &Rotate, next: &Identity) -> Option<Value> {
    let options = Options { extra_roots: super::who::extra_roots(&args.who.ca).ok()?, ..Options::default() };
    let client = AgentClient::new(next.clone(), options).ok()?;
    let card = client.card(client.address()).await.ok()?;
    (card.sig == next.sig.public()).then(|| card.doc().clone())
}

fn read_identity(path: &Path) -> Result<Identity, Failure> {
    let text = keyfile::read_secret(path, "the new identity")?;
    Identity::from_text(&text).map_err(|refusal| Failure::usage(refusal.reason).at(path.display()))
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(".next");
    name.into()
}

fn json_of(text: &str, what: &str) -> Result<Value, Failure> {
    serde_json::from_str(text).map_err(|error| Failure::usage(format!("{what} is not JSON")).why(error))
}

fn scope_text(scope: &Value) -> String {
    let all = scope.as_object().filter(|scope| !scope.is_empty());
    all.map_or_else(|| "no bounds".to_owned(), |scope| brief(&Value::Object(scope.clone()).to_string(), 200))
}

fn public_key(text: &str) -> Result<PublicKey, String> {
    PublicKey::parse(text).map_err(|refusal| refusal.reason)
}

fn kind(text: &str) -> Result<Kind, String> {
    Kind::parse(text).ok_or_else(|| "one of message, task, result, receipt, intro".to_owned())
}

fn wallet(text: &str) -> Result<(String, String), String> {
    let (network, address) = text.split_once('=').ok_or("write NETWORK=ADDRESS")?;
    Ok((network.to_owned(), address.to_owned()))
}
