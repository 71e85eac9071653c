//! How amounts move: the lines of an entry, made so that they sum to zero, and read back so that nothing about a fee is
//! ever recomputed from a rate.

use crate::record::{Entry, Line};
use crate::wire::address::Address;
use crate::wire::amount::Amount;
use crate::wire::quote::Referrer;
use serde_json::{Map, Value};

/// Who takes a share of what a payee receives.
#[derive(Clone, Copy, Debug)]
pub struct Shares<'a> {
    pub casa: &'a Address,
    pub fee_bps: u64,
    pub referrer: Option<&'a Referrer>,
}

/// The lines of one movement, with what was taken out of it.
#[derive(Clone, Debug)]
pub struct Movement {
    pub lines: Vec<Line>,
    /// `None` where no fee applies; zero where it applies and rounds to nothing.
    pub fee: Option<u64>,
    pub commission: Option<(Address, u64)>,
}

impl Movement {
    /// The whole amount from one account to another.
    pub fn whole(from: &str, to: &str, amount: Amount) -> Movement {
        Movement { lines: vec![line(from, -amount.delta()), line(to, amount.delta())], fee: None, commission: None }
    }

    /// The amount from one account to another, less the fee and the commission, which go to the house and the referrer.
    /// Both are computed on the gross amount and together never exceed it.
    pub fn shared(from: &str, to: &str, amount: Amount, shares: Shares<'_>) -> Movement {
        let fee = amount.share(shares.fee_bps).min(amount.tokens());
        let rest = amount.tokens() - fee;
        let commission = shares.referrer.map(|r| (r.address.clone(), amount.share(r.share).min(rest)));
        let taken = commission.as_ref().map_or(0, |(_, tokens)| *tokens);
        let mut lines = vec![line(from, -amount.delta()), line(to, (rest - taken) as i64)];
        if fee > 0 {
            lines.push(line(shares.casa.as_str(), fee as i64));
        }
        let commission = commission.filter(|(_, tokens)| *tokens > 0);
        if let Some((address, tokens)) = &commission {
            lines.push(line(address.as_str(), *tokens as i64));
        }
        Movement { lines, fee: Some(fee), commission }
    }

    /// What the entry's `meta` says about the shares.
    pub fn meta(&self, kind: &str) -> Map<String, Value> {
        let mut meta = Map::from_iter([("kind".to_owned(), Value::from(kind))]);
        if let Some(fee) = self.fee {
            meta.insert("fee".into(), fee.into());
        }
        if let Some((address, tokens)) = &self.commission {
            meta.insert("referrer".into(), address.as_str().into());
            meta.insert("commission".into(), (*tokens).into());
        }
        meta
    }
}

/// What an entry took out of an amount, read from its lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    pub fee: Option<u64>,
    pub commission: Option<(String, u64)>,
}

impl Taken {
    /// `meta` says which share was meant, a line must bear it out: a bond that is forfeited to the house is not a fee.
    pub fn of(entry: &Entry, casa: &Address) -> Taken {
        let meta = entry.doc.get("meta");
        let number = |field: &str| meta.and_then(|m| m.get(field)).and_then(Value::as_u64).filter(|n| *n > 0);
        let borne = |account: &str, tokens: u64| {
            entry.lines.iter().any(|line| line.account == account && u64::try_from(line.delta) == Ok(tokens))
        };
        let fee = number("fee").filter(|fee| borne(casa.as_str(), *fee));
        let referrer = meta.and_then(|m| m.get("referrer")).and_then(Value::as_str);
        let commission = referrer
            .zip(number("commission"))
            .filter(|(account, tokens)| borne(account, *tokens))
            .map(|(account, tokens)| (account.to_owned(), tokens));
        Taken { fee, commission }
    }
}

fn line(account: &str, delta: i64) -> Line {
    Line { account: account.to_owned(), delta }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::SAFE_INTEGER_MAX;
    use proptest::prelude::*;

    fn address(text: &str) -> Address {
        Address::parse(text).expect("address")
    }

    #[test]
    fn the_buyer_pays_the_price_and_the_shares_come_out_of_what_the_seller_gets() {
        let casa = address("casa@a.example");
        let referrer = Referrer { address: address("socio@b.example"), share: 1500 };
        let shares = Shares { casa: &casa, fee_bps: 1000, referrer: Some(&referrer) };
        let amount = Amount::new(200).expect("amount");
        let movement = Movement::shared("buyer", "seller", amount, shares);
        let deltas: Vec<_> = movement.lines.iter().map(|l| (l.account.as_str(), l.delta)).collect();
        assert_eq!(deltas, [("buyer", -200), ("seller", 150), ("casa@a.example", 20), ("socio@b.example", 30)]);
        let small = Movement::shared("buyer", "seller", Amount::new(1).expect("amount"), shares);
        assert_eq!((small.lines.len(), small.fee, small.commission), (2, Some(0), None));
    }

    proptest! {
        #[test]
        fn every_movement_sums_to_zero_and_takes_nothing_below_zero(
            tokens in 1..=SAFE_INTEGER_MAX, fee_bps in 0..=20_000u64, share in 1..=20_000u64, referred: bool,
        ) {
            let casa = address("casa@a.example");
            let referrer = Referrer { address: address("socio@b.example"), share };
            let shares = Shares { casa: &casa, fee_bps, referrer: referred.then_some(&referrer) };
            let amount = Amount::new(tokens).expect("amount");
            let movement = Movement::shared("a", "b", amount, shares);
            prop_assert_eq!(movement.lines.iter().map(|l| i128::from(l.delta)).sum::<i128>(), 0);
            prop_assert_eq!(movement.lines[0].delta, -amount.delta());
            prop_assert!(movement.lines[1..].iter().all(|l| l.delta >= 0));
        }
    }
}
