//! Statements: the one place where an account's rows are derived from entries and added up.
//!
//! It always holds that `opening_balance + totals.in - totals.out = closing_balance`. Fees and commissions are rows of
//! their own for whoever received the gross amount, read from the entry's lines.

use super::money::Taken;
use crate::limits;
use crate::record::{AccountPage, Entry, House};
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use crate::wire::address::Address;
use serde_json::{Value, json};

/// Which entries a statement lists: those with `since <= at < until`, the newest `limit` of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    pub limit: usize,
}

#[derive(Clone, Debug)]
pub struct Statement {
    account: String,
    house: String,
    range: Range,
    pub opening: i64,
    pub closing: i64,
    rows: Vec<Row>,
    totals: Totals,
    shown: u64,
    total: u64,
    ledger: i64,
    /// Whether the closing balance is today's; `None` where the range ends earlier.
    pub reconciled: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Movement,
    Fee,
    Commission,
}

#[derive(Clone, Debug)]
struct Row {
    date: Timestamp,
    entry: String,
    n: u64,
    concept: String,
    counterparty: String,
    kind: Kind,
    incoming: u64,
    outgoing: u64,
    balance: i64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Totals {
    incoming: u64,
    outgoing: u64,
    fees: u64,
    commissions: u64,
}

impl Range {
    /// `limit` counts when it is a whole number above zero; without one, a range gets `ceiling` and no range the default.
    pub fn parse(
        since: Option<&str>,
        until: Option<&str>,
        limit: Option<u64>,
        ceiling: usize,
    ) -> Result<Range, Refusal> {
        let instant = |name: &str, text: Option<&str>| match text {
            None => Ok(None),
            Some(text) => Timestamp::parse(text).map(Some).ok_or_else(|| {
                Refusal::new(
                    Rule::BadParameter,
                    format!("{name} must be a date or an instant with a zone, such as 2026-09-15T10:00:00Z"),
                )
            }),
        };
        let (since, until) = (instant("since", since)?, instant("until", until)?);
        if let (Some(since), Some(until)) = (since, until)
            && since > until
        {
            return Err(Refusal::new(
                Rule::BadParameter,
                format!("the range begins at {since} and ends before, at {until}"),
            ));
        }
        let asked = limit.filter(|limit| *limit > 0).map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let default = if since.is_some() || until.is_some() { ceiling } else { limits::STATEMENT_ROWS_DEFAULT };
        Ok(Range { since, until, limit: asked.unwrap_or(default).min(ceiling) })
    }
}

impl Statement {
    pub fn of(account: &str, house: &House, page: &AccountPage, range: &Range, ledger: i64) -> Statement {
        let casa = house.casa();
        let mut rows = Vec::new();
        let mut totals = Totals::default();
        let mut balance = page.opening;
        for entry in &page.entries {
            for mut row in rows_of(entry, account, &casa) {
                balance = balance.saturating_add_unsigned(row.incoming).saturating_sub_unsigned(row.outgoing);
                row.balance = balance;
                totals.incoming = totals.incoming.saturating_add(row.incoming);
                totals.outgoing = totals.outgoing.saturating_add(row.outgoing);
                match row.kind {
                    Kind::Movement => {}
                    Kind::Fee => totals.fees = totals.fees.saturating_add(row.outgoing),
                    Kind::Commission => totals.commissions = totals.commissions.saturating_add(row.outgoing),
                }
                rows.push(row);
            }
        }
        Statement {
            account: account.to_owned(),
            house: house.domain.to_string(),
            range: range.clone(),
            opening: page.opening,
            closing: balance,
            rows,
            totals,
            shown: page.entries.len() as u64,
            total: page.total,
            ledger,
            reconciled: range.until.is_none().then_some(balance == ledger),
        }
    }

    pub fn to_json(&self) -> Value {
        let rows: Vec<Value> = self.rows.iter().map(Row::to_json).collect();
        let Totals { incoming, outgoing, fees, commissions } = self.totals;
        json!({
            "account": self.account, "house": self.house, "since": self.range.since, "until": self.range.until,
            "opening_balance": self.opening, "closing_balance": self.closing,
            "totals": {"in": incoming, "out": outgoing, "fees": fees, "commissions": commissions},
            "rows": rows.len(), "entries": rows, "entries_shown": self.shown, "entries_total": self.total,
            "truncated": self.shown < self.total, "ledger_balance": self.ledger, "reconciled": self.reconciled,
        })
    }

    /// RFC 4180 with a fixed header. A text that a spreadsheet could read as a formula begins with an apostrophe.
    pub fn to_csv(&self) -> String {
        let mut out = String::from("date,entry,concept,counterparty,in,out,fee,balance\r\n");
        let number = |n: u64| if n == 0 { String::new() } else { n.to_string() };
        for row in &self.rows {
            let cells = [
                row.date.to_string(),
                row.entry.clone(),
                harmless(&row.concept),
                harmless(&row.counterparty),
                number(row.incoming),
                number(row.outgoing),
                number(row.fee()),
                row.balance.to_string(),
            ];
            out.push_str(&cells.map(|cell| quoted(&cell)).join(","));
            out.push_str("\r\n");
        }
        out
    }

    /// The name of the file that [`Statement::to_csv`] is saved under.
    pub fn csv_name(&self, today: Timestamp) -> String {
        let (local, domain) = self.account.split_once('@').unwrap_or((&self.account, &self.house));
        let foreign = if domain == self.house { String::new() } else { format!(".{domain}") };
        let day = |at: Timestamp| at.to_string().chars().take(10).collect::<String>();
        let from = self.range.since.map_or("inicio".to_owned(), day);
        let name = format!("estado-{local}{foreign}-{from}-{}", day(self.range.until.unwrap_or(today)));
        let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '-' };
        format!("{}.csv", name.chars().map(safe).collect::<String>())
    }
}

impl Row {
    fn fee(&self) -> u64 {
        if self.kind == Kind::Fee { self.outgoing } else { 0 }
    }

    fn to_json(&self) -> Value {
        let kind = match self.kind {
            Kind::Movement => "movement",
            Kind::Fee => "fee",
            Kind::Commission => "commission",
        };
        json!({
            "date": self.date, "entry": self.entry, "n": self.n, "concept": self.concept,
            "counterparty": self.counterparty, "kind": kind, "in": self.incoming, "out": self.outgoing,
            "fee": self.fee(), "balance": self.balance,
        })
    }
}

/// What one entry means to one account: a movement, and for whoever received a split amount, the gross coming in and each
/// share going out.
fn rows_of(entry: &Entry, account: &str, casa: &Address) -> Vec<Row> {
    let own = || entry.lines.iter().filter(|line| line.account == account);
    if own().next().is_none() {
        return Vec::new();
    }
    let taken = Taken::of(entry, casa);
    let took_commission = |account: &str| taken.commission.as_ref().is_some_and(|(referrer, _)| referrer == account);
    let received = own().any(|line| line.delta >= 0);
    let split = received && account != casa.as_str() && !took_commission(account);
    let shares = Taken { fee: taken.fee.filter(|_| split), commission: taken.commission.clone().filter(|_| split) };
    let commission = shares.commission.as_ref().map_or(0, |(_, tokens)| *tokens);
    let net: u64 = own().filter_map(|line| u64::try_from(line.delta).ok()).sum();
    let outgoing: u64 = own().filter(|line| line.delta < 0).map(|line| line.delta.unsigned_abs()).sum();
    let row = |concept: &str, counterparty: String, kind: Kind, incoming: u64, outgoing: u64| Row {
        date: entry.at,
        entry: entry.id.clone(),
        n: entry.n,
        concept: concept.to_owned(),
        counterparty,
        kind,
        incoming,
        outgoing,
        balance: 0,
    };
    let concept = entry.doc.get("concept").and_then(Value::as_str).unwrap_or_default();
    let gross = net + shares.fee.unwrap_or(0) + commission;
    let hidden = |other: &str| (taken.fee.is_some() && other == casa.as_str()) || took_commission(other);
    let incoming_side = net >= outgoing;
    let mut others: Vec<&str> = Vec::new();
    for line in &entry.lines {
        let opposite = if incoming_side { line.delta < 0 } else { line.delta > 0 };
        if opposite && line.account != account && !hidden(&line.account) && !others.contains(&line.account.as_str()) {
            others.push(&line.account);
        }
    }
    let mut rows = vec![row(concept, others.join(";"), Kind::Movement, gross, outgoing)];
    if let Some(fee) = shares.fee {
        rows.push(row("house fee", casa.to_string(), Kind::Fee, 0, fee));
    }
    if let Some((referrer, tokens)) = shares.commission {
        rows.push(row("referral commission", referrer, Kind::Commission, 0, tokens));
    }
    rows
}

fn harmless(text: &str) -> String {
    if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { format!("'{text}") } else { text.to_owned() }
}

/// A cell is text: a control that is no end of a line has no meaning in it but to whatever shows it.
fn quoted(cell: &str) -> String {
    let cell = cell.replace(|c: char| c.is_control() && !matches!(c, '\r' | '\n' | '\t'), "\u{fffd}");
    if cell.contains([',', '"', '\r', '\n']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell }
}
