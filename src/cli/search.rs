//! `verifica agent search` and `houses`: finding agents of any house through a federated index.

use super::agent::table;
use super::block_on;
use super::output::{Failure, Out, brief};
use super::who::{Who, extra_roots};
use crate::client::agent::index as lib;
use crate::client::agent::{ClientError, HouseClient};
use crate::config::house_url;
use crate::limits;
use crate::refusal::Exit;
use crate::wire::address::Domain;
use serde_json::{Value, json};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Search the agents of many houses on a federated index (network)
    Search(Box<Search>),
    /// Show the houses on a federated index, or list one there (network)
    Houses(Houses),
}

#[derive(Debug, clap::Args)]
pub struct Search {
    /// The URL of the house that runs the index; the identity's own house when absent
    #[arg(long, value_name = "URL", env = "VERIFICA_INDEX", hide_env_values = true)]
    index: Option<String>,
    #[command(flatten)]
    who: Who,
    /// A part of the card
    query: Option<String>,
    /// Agents that carry this tag
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
    /// A language, its varieties too: es finds es-CL
    #[arg(long, value_name = "LANG")]
    lang: Option<String>,
    /// Agents that name this capability
    #[arg(long, value_name = "NAME")]
    capability: Option<String>,
    /// Agents that take letters of this media type
    #[arg(long, value_name = "MEDIA")]
    accepts: Option<String>,
    /// Agents of this house only
    #[arg(long, value_name = "DOMAIN")]
    house: Option<Domain>,
    /// Whose cheapest service costs no more
    #[arg(long, value_name = "TOKENS")]
    price_max: Option<u64>,
    /// Whose share of arbitrated work is at least this, 0 to 1
    #[arg(long, value_name = "SHARE")]
    min_score: Option<f64>,
    /// How many at most on one page
    #[arg(long, value_name = "N", default_value_t = limits::INDEX_PAGE_DEFAULT)]
    limit: usize,
    /// Where the page before ended
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
    /// Ask your own house for each card by the chain, and say whether it is the same
    #[arg(long)]
    verify: bool,
}

#[derive(Debug, clap::Args)]
pub struct Houses {
    /// The URL of the house that runs the index; the identity's own house when absent
    #[arg(long, value_name = "URL", env = "VERIFICA_INDEX", hide_env_values = true)]
    index: Option<String>,
    #[command(flatten)]
    who: Who,
    /// List this house on the index
    #[arg(long, value_name = "DOMAIN")]
    add: Option<Domain>,
}

pub fn run(command: &Command, out: &Out) -> Result<Exit, Failure> {
    match command {
        Command::Search(args) => block_on(search(args, out)),
        Command::Houses(args) => block_on(houses(args, out)),
    }
}

async fn search(args: &Search, out: &Out) -> Result<Exit, Failure> {
    let (index, anchor) = place(args.index.as_deref(), &args.who)?;
    let mut query = vec![("limit", args.limit.to_string())];
    let words = [
        ("q", args.query.clone()),
        ("tag", args.tag.clone()),
        ("lang", args.lang.clone()),
        ("capability", args.capability.clone()),
        ("accepts", args.accepts.clone()),
        ("house", args.house.as_ref().map(Domain::to_string)),
        ("price_max", args.price_max.map(|most| most.to_string())),
        ("min_score", args.min_score.map(|least| least.to_string())),
        ("cursor", args.cursor.clone()),
    ];
    query.extend(words.into_iter().filter_map(|(name, value)| Some((name, value?))));
    let mut page = lib::search(&index, anchor.as_ref(), &query).await?;
    let results = page.get("agents").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut verified: Vec<Option<bool>> = vec![None; results.len()];
    if args.verify {
        let client = args.who.client()?;
        for (result, verified) in results.iter().zip(&mut verified) {
            *verified = Some(match client.confirm(result).await {
                Ok(same) => same,
                // A certain no is an answer about the card; silence is none.
                Err(ClientError::Refused { status: 400..=499, .. }) => false,
                Err(error) => return Err(error.into()),
            });
        }
    }
    if out.json {
        if args.verify {
            let marks = results
                .iter()
                .zip(&verified)
                .map(|(result, same)| json!({"address": result.get("address"), "verified": same}));
            page = json!({"schema": "verifica.search/1", "answer": page, "checked": marks.collect::<Vec<_>>()});
        }
        out.doc(&page);
    } else {
        let rows = results.iter().zip(&verified).map(|(result, same)| {
            let text = |path: &str| brief(result.pointer(path).and_then(Value::as_str).unwrap_or("-"), 60);
            let number =
                |name: &str| result.get(name).filter(|v| v.is_number()).map_or("-".to_owned(), Value::to_string);
            let mut row = vec![
                brief(result.get("address").and_then(Value::as_str).unwrap_or("-"), 100),
                number("_score"),
                number("_jobs_done"),
                number("_price_min"),
                text("/profile/summary"),
            ];
            row.extend(same.map(|same| if same { "verified" } else { "not verified" }.to_owned()));
            row
        });
        let mut head = vec!["address", "score", "jobs", "price", "summary"];
        head.extend(args.verify.then_some("card"));
        table(out, &head, rows.collect());
        let total = page.get("total").and_then(Value::as_u64).unwrap_or_default();
        let more = if page.get("total_at_least").is_some() { "or more" } else { "" };
        out.say(format!("{} of {total} {more}", results.len()).trim_end().to_owned());
        if let Some(cursor) = page.get("next_cursor").and_then(Value::as_str) {
            out.say(format!("next: --cursor {}", brief(cursor, limits::INDEX_CURSOR_CHARS_MAX)));
        }
        if !args.verify && !results.is_empty() {
            out.say("an index is a hint: --verify, or `verifica agent card ADDRESS`, asks for a card by the chain");
        }
    }
    Ok(if verified.contains(&Some(false)) { Exit::Fail } else { Exit::Ok })
}

async fn houses(args: &Houses, out: &Out) -> Result<Exit, Failure> {
    let (index, _) = place(args.index.as_deref(), &args.who)?;
    if let Some(domain) = &args.add {
        let record = lib::list_house(&index, domain).await?;
        if out.json {
            out.doc(&record);
        } else {
            let agents = record.get("agents").and_then(Value::as_u64).unwrap_or_default();
            match record.get("last_ok").and_then(Value::as_str) {
                Some(at) => out.line(format!("{domain} is listed, {agents} agents as of {}", brief(at, 40))),
                None => out.line(format!("{domain} is listed and not read yet")),
            }
        }
        return Ok(Exit::Ok);
    }
    let listed = lib::houses(&index).await?;
    if out.json {
        out.doc(&listed);
        return Ok(Exit::Ok);
    }
    let houses = listed.get("houses").and_then(Value::as_array).cloned().unwrap_or_default();
    let rows = houses.iter().map(|house| {
        let text = |name: &str| brief(house.get(name).and_then(Value::as_str).unwrap_or("-"), 120);
        let agents = house.get("agents").and_then(Value::as_u64).unwrap_or_default();
        vec![text("domain"), agents.to_string(), text("last_ok"), text("estafeta")]
    });
    table(out, &["house", "agents", "read", "estafeta"], rows.collect());
    out.say(format!("{} houses", houses.len()));
    Ok(Exit::Ok)
}

/// The index that is asked, and the key that its house is known by where it is one's own.
fn place(url: Option<&str>, who: &Who) -> Result<(HouseClient, Option<crate::wire::PublicKey>), Failure> {
    let roots = extra_roots(&who.ca)?;
    match url {
        Some(url) => {
            let url = house_url(url).map_err(|why| Failure::usage(why).at("--index"))?;
            Ok((HouseClient::new(&url, &roots)?, None))
        }
        None => {
            let identity = who.load()?;
            Ok((HouseClient::new(&identity.house, &roots)?, identity.house_key))
        }
    }
}
