//! `verifica demo`: a whole house on loopback, from nothing to signed receipts, through the same doors that any agent uses.
//!
//! A buyer and a seller with their own keys join over HTTP, two escrows of 200 tokens are arbitrated against a small HTTPS
//! site: one passes its five tests and one does not. Where this machine can enforce the sandbox, two more are judged by a
//! program that is run on what was delivered; where it cannot, that is said. Everything lies in one temporary folder, which goes at the end
//! unless `--keep` is given. The only numbers that the demonstration adds are its own file names; every fact it prints
//! was read back from the house.

mod site;

use super::keyfile;
use super::output::{Failure, Out, Style, brief, clean};
use super::serve;
use super::settings;
use crate::client::agent::{self as lib, AgentClient, HouseClient, Identity, Joining, Mail, Message, Options, Privacy};
use crate::config::{self, Config};
use crate::daemon::{self, Listen, Running};
use crate::limits;
use crate::refusal::Exit;
use crate::time::Clock;
use crate::wire::address::{Address, Domain, SystemName};
use crate::wire::amount::Amount;
use crate::wire::digest::{Sha256, base64url};
use crate::wire::envelope::Kind;
use crate::wire::key::SigningKey;
use crate::wire::quote::{ContractKind, Offer, QUOTE_MEDIA};
use serde_json::{Value, json};
use site::{Page, Site};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[derive(Debug, clap::Args)]
#[command(after_help = "Talks to 127.0.0.1 only, and leaves nothing behind without --keep.")]
pub struct Args {
    /// Leave the house running when everything is done, and say how to talk to it
    #[arg(long)]
    keep: bool,
}

const DOMAIN: &str = "mar.example";
const SITE: &str = "entrega.example";
const PRICE: u64 = 200;
const FUNDS: u64 = 1_000;
const WITHIN: Duration = Duration::from_secs(30);

pub fn run(args: &Args, out: &Out) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime =
        runtime.map_err(|error| Failure::new(Exit::Disk, "the program cannot start its event loop").why(error))?;
    let folder = Folder::new(args.keep)?;
    runtime.block_on(play(args, &folder, out))
}

async fn play(args: &Args, folder: &Folder, out: &Out) -> Result<Exit, Failure> {
    let started = Instant::now();
    let site = Site::start(SITE, pages()).await?;
    say(out, "site", format!("https://{SITE} is served at {} under an authority of its own", site.address));
    let (config, running) = open_house(&folder.path, &site).await?;
    say(
        out,
        "house",
        format!("{DOMAIN} listens at {}, its fee is {} basis points", config.public_url, config.libro.fee_bps),
    );
    let token = settings::admin_token(&config.admin_token_file)?;
    let house = HouseClient::new(&config.public_url, &[])?;
    let buyer = join(&folder.path, "compras", &config, out).await?;
    let seller = join(&folder.path, "taller", &config, out).await?;
    lib::topup(
        &house,
        &token,
        &uuid::Uuid::new_v4().to_string(),
        buyer.address(),
        FUNDS,
        Some("funds for the demonstration"),
    )
    .await?;
    say(out, "libro", format!("the operator issued {FUNDS} tok to {}", buyer.address()));

    let missing = running.doors.house().settings.capabilities.unenforced.clone();
    match &missing {
        None => say(out, "sandbox", "it proved itself on this machine, so exit_0 tests are offered".to_owned()),
        Some(why) => {
            say(out, "sandbox", format!("it cannot be enforced on this machine: {}", clean(why)));
            say(out, "", "exit_0 tests are not offered here; `verifica doctor` says how to mend it".to_owned());
        }
    }
    let mut deals = Vec::new();
    for (concept, tests, work, op) in plays(missing.is_none()) {
        let contract = deal(&buyer, &seller, concept, tests, out).await?;
        deals.push((contract, Sha256::of(work), op));
    }
    for (contract, work, _) in &deals {
        let op = json!({"op": "deliver", "contract": contract, "evidence_sha256": work});
        let id = seller.operate(&op).await?;
        seller.wait_receipt(&id, WITHIN).await?;
        say(out, "deliver", format!("{} delivered contract {}", seller.address(), short(contract)));
    }
    say(out, "arbiter", "verifica@ looks at each, waits, and looks again; two looks must agree".to_owned());
    let mut settled = Vec::new();
    for (contract, _, op) in &deals {
        settled.push(settlement(&buyer, contract, op, out).await?);
    }
    let released = deals.iter().filter(|(_, _, op)| *op == "release").count() as u64;
    let balances = balances(&house, &token).await?;
    blank(out);
    for (account, balance) in &balances {
        say(out, "balance", format!("{account:<28} {balance:>7} tok"));
    }
    let sum: i64 = balances.values().sum();
    let fee = Amount::new(PRICE).map_or(0, |price| price.share(config.libro.fee_bps)).cast_signed();
    let expected = BTreeMap::from([
        (seller.address().to_string(), released.cast_signed() * (PRICE.cast_signed() - fee)),
        (buyer.address().to_string(), (FUNDS - released * PRICE).cast_signed()),
        (casa(), released.cast_signed() * fee - FUNDS.cast_signed()),
    ]);
    say(out, "balance", format!("{:<28} {sum:>7} tok", "sum"));
    let took = started.elapsed();
    if balances != expected || sum != 0 {
        return Err(Failure::new(Exit::Bug, "the balances are not what the contracts say")
            .why(format!("expected {expected:?}")));
    }
    if out.json {
        let at = args.keep.then(|| folder.path.display().to_string());
        out.doc(&json!({
            "schema": "verifica.demo/1", "house": config.public_url, "folder": at, "domain": DOMAIN, "settled": settled, "balances": balances,
            "sum": sum, "sandbox_missing": missing, "duration_ms": u64::try_from(took.as_millis()).unwrap_or(limits::SAFE_INTEGER_MAX),
        }));
    } else {
        blank(out);
        out.line(format!(
            "{}   {} escrows: {released} released, {} refunded, every balance accounted for   {:.1}s",
            out.paint(Style::Good, "done"),
            deals.len(),
            deals.len() as u64 - released,
            took.as_secs_f64()
        ));
    }
    end(args, folder, running, out).await
}

/// Leaves the house as it was asked to.
async fn end(args: &Args, folder: &Folder, running: Running, out: &Out) -> Result<Exit, Failure> {
    let program = "verifica";
    if !args.keep {
        running.shutdown().await;
        out.say(format!(
            "\nwhere to look next\n  {program} demo --keep          the same, and the house stays for you to talk to\n  \
             {program} init --help          a house of your own\n  {program} check --help         run a contract's tests as the arbiter would"
        ));
        return Ok(Exit::Ok);
    }
    let at = folder.path.display();
    out.say(format!(
        "\nthe house runs until you stop it with ctrl-c; talk to it from another terminal\n  \
         {program} libro balance --as {at}/taller.json\n  \
         {program} libro statement --as {at}/compras.json\n  \
         {program} agent inbox --as {at}/compras.json\n  \
         {program} libro pay taller@{DOMAIN} 5 --as {at}/compras.json\n  \
         {program} check {at}/tests.json --config {at}/verifica.toml\n  \
         {program} libro topup compras@{DOMAIN} 100 --config {at}/verifica.toml\nits folder is {at}; remove it when you are done"
    ));
    daemon::until_ended(running)
        .await
        .map_err(|error| Failure::new(Exit::Disk, "signals cannot be watched").why(error))?;
    Ok(Exit::Ok)
}

/// What the seller puts on its site.
fn pages() -> Vec<Page> {
    vec![
        Page { path: "/health", media: "text/plain", body: b"fine\n".to_vec() },
        Page { path: "/version.json", media: "application/json", body: br#"{"name":"tool","version":"2"}"#.to_vec() },
        Page { path: "/CHANGELOG", media: "text/plain", body: b"version 2\nfirst complete delivery\n".to_vec() },
        Page { path: "/tool.bin", media: "application/octet-stream", body: deliverable() },
        Page { path: "/tool.tar", media: "application/x-tar", body: archive("echo $(($1 + $2))\n") },
        Page { path: "/wrong.tar", media: "application/x-tar", body: archive("echo $(($1 - $2))\n") },
    ]
}

/// What is dealt in: the concept, its tests, what is delivered, and how that must end.
fn plays(jobs: bool) -> Vec<(&'static str, Value, Vec<u8>, &'static str)> {
    let missing = b"what was promised and is not there";
    let mut plays = vec![
        ("the tool, version 2", tests("2", &deliverable()), deliverable(), "release"),
        ("the tool, version 3", tests("3", missing), deliverable(), "refund"),
    ];
    if jobs {
        let (right, wrong) = (archive("echo $(($1 + $2))\n"), archive("echo $(($1 - $2))\n"));
        plays.push(("a tool that adds", command("/tool.tar"), right, "release"));
        plays.push(("another tool that adds", command("/wrong.tar"), wrong, "refund"));
    }
    plays
}

/// A program, in an archive.
fn archive(program: &str) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(program.len() as u64);
    header.set_mode(0o755);
    header.set_cksum();
    let _ = tar.append_data(&mut header, "add.sh", program.as_bytes());
    tar.into_inner().unwrap_or_default()
}

/// A test that is a program itself: what was delivered has to add.
fn command(path: &str) -> Value {
    let script = "sum=$(/bin/sh tool/add.sh 40 2); echo \"40 + 2 = $sum\"; test \"$sum\" = 42";
    let input = json!({"path": "tool", "url": format!("https://{SITE}{path}"), "sha256": "evidence", "unpack": "tar"});
    json!([{"type": "exit_0", "name": "adds", "argv": ["/bin/sh", "-c", script], "inputs": [input]}])
}

fn deliverable() -> Vec<u8> {
    (0..4_096u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()).collect()
}

fn tests(version: &str, expected: &[u8]) -> Value {
    let url = |path: &str| format!("https://{SITE}{path}");
    json!([
        {"type": "http_status", "name": "health", "url": url("/health"), "expect": 200},
        {"type": "sha256", "name": "tool", "url": url("/tool.bin"), "expect": Sha256::of(expected)},
        {"type": "json_path", "name": "version", "url": url("/version.json"), "path": "version", "expect": version},
        {"type": "regex", "name": "changelog", "url": url("/CHANGELOG"), "pattern": "^version [0-9]+$", "flags": "m"},
        {"type": "size", "name": "size", "url": url("/tool.bin"), "min_bytes": 1_000, "max_bytes": 100_000},
    ])
}

/// Writes the files of a house, as `init` would, and opens it on a free port.
async fn open_house(folder: &Path, site: &Site) -> Result<(Config, Running), Failure> {
    let fault = |error| Failure::new(Exit::Unreachable, "the house cannot listen on 127.0.0.1").why(error);
    let socket = std::net::TcpListener::bind("127.0.0.1:0").map_err(fault)?;
    let listen = socket.local_addr().map_err(fault)?;
    let key = SigningKey::from_seed(keyfile::random::<32>()?);
    let text = format!(
        "domain = \"{DOMAIN}\"\npublic_url = \"http://{listen}\"\nlisten = \"{listen}\"\n\n[registration]\nmode = \"open\"\n\n\
         [probe]\nallow_networks = [\"127.0.0.0/8\"]\nextra_ca = [\"site-ca.pem\"]\nresolve = {{ \"{SITE}:443\" = \"{}\" }}\n",
        site.address
    );
    let tests = tests("2", &deliverable());
    let files: [(&str, String, u32); 5] = [
        ("verifica.toml", text.clone(), 0o644),
        ("domain.key", key.secret_text().to_string(), 0o600),
        ("admin.token", base64url(keyfile::random::<32>()?), 0o600),
        ("site-ca.pem", site.ca_pem.clone(), 0o644),
        ("tests.json", format!("{tests:#}\n"), 0o644),
    ];
    for (name, text, mode) in &files {
        keyfile::write_new(&folder.join(name), text.as_bytes(), *mode)?;
    }
    let read = config::parse(&text, &BTreeMap::new(), folder);
    let (config, _) = read.map_err(|faults| {
        Failure::new(Exit::Bug, "the demonstration's configuration is refused").why(format!("{faults:?}"))
    })?;
    let running = daemon::serve(serve::options(&config, Listen::Bound(socket))?).await.map_err(serve::failure)?;
    Ok((config, running))
}

async fn join(folder: &Path, name: &str, config: &Config, out: &Out) -> Result<AgentClient, Failure> {
    let address = Address::parse(&format!("{name}@{}", config.domain))?;
    let seeds = (keyfile::random::<32>()?, keyfile::random::<32>()?);
    let identity = Identity::from_seeds(address, config.public_url.clone(), seeds.0, seeds.1);
    keyfile::write_new(&folder.join(format!("{name}.json")), identity.to_text().as_bytes(), 0o600)?;
    let client = AgentClient::new(identity, Options::default())?;
    client.join(&Joining { visibility: Some("public".into()), ..Joining::default() }).await?;
    say(out, "agent", format!("{} joined with its own key {}", client.address(), client.identity().sig.public()));
    Ok(client)
}

/// Quote, sealed letter, acceptance; answers the contract's id.
async fn deal(
    buyer: &AgentClient,
    seller: &AgentClient,
    concept: &str,
    tests: Value,
    out: &Out,
) -> Result<String, Failure> {
    let domain = Domain::parse(DOMAIN)?;
    let counted = match tests.as_array().map_or(1, Vec::len) {
        1 => "1 test".to_owned(),
        n => format!("{n} tests"),
    };
    let now = lib::SystemClock.now();
    let offer = Offer {
        id: uuid::Uuid::new_v4().to_string(),
        house: domain.clone(),
        seller: seller.address().clone(),
        buyer: buyer.address().clone(),
        kind: ContractKind::Escrow,
        price: Amount::new(PRICE).ok_or_else(|| Failure::new(Exit::Bug, "the price is no amount"))?,
        concept: concept.to_owned(),
        terms: json!({"verify": tests}),
        arbiter: Some(domain.system(SystemName::Verifica)),
        referrer: None,
        service: None,
        issued: now,
        expires: Some(now.plus(3_600_000)),
    };
    let message = Message {
        to: vec![buyer.address().clone()],
        kind: Kind::Message,
        media: QUOTE_MEDIA.to_owned(),
        body: offer.sign(&seller.identity().sig),
        thread: None,
        in_reply_to: None,
        expires: None,
        deliver_after: None,
        privacy: Privacy::Sealed,
        receipt: false,
        stamp: None,
        extensions: serde_json::Map::new(),
        files: Vec::new(),
    };
    let sent = seller.send(&message).await?;
    let quote = letter(buyer, |mail| mail.id() == sent.id).await?;
    let quote = buyer.open(&quote)?.get("body").cloned().unwrap_or_default();
    say(
        out,
        "quote",
        format!("{} offers \"{concept}\" for {PRICE} tok with {counted}, in a sealed letter", seller.address()),
    );
    let id = buyer.operate(&json!({"op": "accept", "quote": quote})).await?;
    let receipt = buyer.wait_receipt(&id, WITHIN).await?;
    let contract = match receipt.body.get("contract") {
        Some(Value::String(id)) => Some(id.clone()),
        Some(contract) => contract.get("id").and_then(Value::as_str).map(str::to_owned),
        None => None,
    };
    let contract =
        contract.ok_or_else(|| Failure::new(Exit::Bug, "the receipt of the acceptance names no contract"))?;
    say(out, "accept", format!("{} accepted; {PRICE} tok are held by contract {}", buyer.address(), short(&contract)));
    Ok(contract)
}

/// The first letter that is meant, polled for: the mailbox is small.
async fn letter(client: &AgentClient, meant: impl Fn(&Mail) -> bool) -> Result<Mail, Failure> {
    let started = Instant::now();
    loop {
        let found = client.inbox(limits::MAILBOX_PAGE_MAX).await?.into_iter().find(&meant);
        if let Some(mail) = found {
            return Ok(mail);
        }
        if started.elapsed() > WITHIN {
            return Err(Failure::new(Exit::Undecided, "a letter that should come did not come in time"));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits for the receipt of the verdict, checks both signatures and shows them.
async fn settlement(buyer: &AgentClient, contract: &str, op: &str, out: &Out) -> Result<Value, Failure> {
    let libro = Domain::parse(DOMAIN)?.system(SystemName::Libro);
    let says = |mail: &Mail, name: &str| mail.envelope().get("content").and_then(|c| c.get("body")?.get(name)).cloned();
    let of = |mail: &Mail| {
        mail.envelope().get("thread").and_then(Value::as_str) == Some(contract) && mail.from() == libro.as_str()
    };
    let ends = |mail: &Mail| says(mail, "op").is_some_and(|op| op == "release" || op == "refund");
    let mail = letter(buyer, |mail| of(mail) && ends(mail)).await?;
    let receipt = buyer.verified(&mail).await?;
    let body = receipt.envelope().body().cloned().unwrap_or_default();
    let doc = buyer.contract(contract).await?;
    let history = doc.get("history").and_then(Value::as_array).into_iter().flatten();
    let verdict = history.filter_map(|item| item.get("veredicto")).next_back().cloned();
    let verdict = verdict.ok_or_else(|| Failure::new(Exit::Bug, "the contract keeps no verdict"))?;
    let key = buyer.domain_card().await?.active_key();
    if !key.verify_object(&verdict, "signature") {
        return Err(Failure::new(Exit::Bug, "the signature of the verdict does not hold"));
    }
    let passed = verdict.get("pasa") == Some(&Value::Bool(true));
    let word = if passed { out.paint(Style::Good, "PASS") } else { out.paint(Style::Bad, "FAIL") };
    blank(out);
    say(out, "verdict", format!("{word} for contract {}, signed by verifica@{DOMAIN} with {key}", short(contract)));
    for result in verdict.get("resultados").and_then(Value::as_array).into_iter().flatten() {
        let text = |name: &str| brief(result.get(name).and_then(Value::as_str).unwrap_or("-"), 240);
        let word = if result.get("pasa") == Some(&Value::Bool(true)) { "pass" } else { "fail" };
        say(out, "", format!("{word:<5} {:<12} {:<10} {}", text("prueba"), text("name"), text("razon")));
    }
    let evidence = buyer.evidence(contract).await?;
    let runs = evidence.get("attestations").and_then(Value::as_array).map(Vec::len).unwrap_or_default();
    if let Some(backend) = evidence.pointer("/attestations/0/enforcement_backend").and_then(Value::as_str) {
        say(out, "", format!("{runs} runs, each attested: {}", brief(backend, 200)));
    }
    let fee = match body.get("fee").and_then(|fee| Some((fee.get("amount")?.as_u64()?, fee.get("account")?.as_str()?)))
    {
        Some((amount, account)) => format!(", fee {amount} tok to {}", clean(account)),
        None => ", no fee".to_owned(),
    };
    let from = body.get("from").and_then(Value::as_str).unwrap_or("-");
    say(out, "receipt", format!("{op} of {PRICE} tok ordered by {}{fee}; signed by {libro}", clean(from)));
    if body.get("op").and_then(Value::as_str) != Some(op) {
        return Err(Failure::new(Exit::Bug, format!("contract {contract} ended with another operation than {op}")));
    }
    Ok(json!({"contract": contract, "op": op, "verdict": verdict, "receipt": mail.envelope()}))
}

/// Every account that holds or owes something.
async fn balances(house: &HouseClient, token: &str) -> Result<BTreeMap<String, i64>, Failure> {
    let books = lib::journal(house, token, 1).await?;
    let listed = books.get("balances").and_then(Value::as_object).cloned().unwrap_or_default();
    let held = listed.into_iter().filter_map(|(account, sum)| Some((account, sum.as_i64()?)));
    Ok(held.filter(|(_, sum)| *sum != 0).collect())
}

fn casa() -> String {
    format!("casa@{DOMAIN}")
}

/// A step of the story. The story is the answer, unless a document was asked for.
fn say(out: &Out, step: &str, text: String) {
    if out.json {
        out.say(format!("{step:>9}  {text}"));
    } else if !out.quiet {
        out.line(format!("{}  {text}", out.paint(Style::Strong, format!("{step:>9}"))));
    }
}

fn blank(out: &Out) {
    if !out.json && !out.quiet {
        out.line("");
    }
}

fn short(id: &str) -> String {
    brief(id, 14)
}

/// A folder of this run's own, gone at the end unless it is to be kept.
struct Folder {
    path: PathBuf,
    keep: bool,
}

impl Folder {
    fn new(keep: bool) -> Result<Folder, Failure> {
        let name = format!("verifica-demo-{}", base64url(keyfile::random::<9>()?));
        let path = std::env::temp_dir().join(name);
        settings::make_folder(&path, 0o700)?;
        Ok(Folder { path, keep })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.keep {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
