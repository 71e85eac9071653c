//! Files beside letters: sealed here, handed to the agent's own house, fetched from the sender's, opened and checked here.
//!
//! No URL travels and none is believed: a file is fetched from the house of the letter's sender, found by its domain.

use super::{AgentClient, ClientError, HouseClient, Mail, Message, well_known};
use crate::client::agent::http::Call;
use crate::client::peer::{Base, Peers};
use crate::client::tls;
use crate::limits;
use crate::probe::address::AddressRule;
use crate::refusal::{Refusal, Rule};
use crate::wire::address::{Address, Domain};
use crate::wire::attachment::{Attachment, FileChance};
use crate::wire::auth::host_of;
use crate::wire::card::DomainCard;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

/// A file to go with a letter.
#[derive(Clone, Debug)]
pub struct File {
    pub name: String,
    pub media: String,
    pub bytes: Vec<u8>,
}

impl AgentClient {
    /// The files of a letter, as its sender told of them: from inside the seal, or in the open beside content in clear.
    pub fn attachments(&self, mail: &Mail) -> Result<Vec<Attachment>, Refusal> {
        let inside = if mail.is_sealed() { self.open(mail)? } else { mail.envelope().clone() };
        let listed = inside.get("attachments").and_then(Value::as_array).into_iter().flatten();
        listed.take(limits::ATTACHMENTS_MAX).map(Attachment::parse).collect()
    }

    /// Fetches a file of a letter from the house of its sender, opens it and checks that it is the one told of. `house`
    /// says where that house is; without it, it is looked for at its domain.
    pub async fn fetch_file(
        &self,
        from: &Address,
        attachment: &Attachment,
        house: Option<&HouseClient>,
    ) -> Result<Vec<u8>, ClientError> {
        let path = format!("/blob/{}", attachment.blob);
        let own = self.domain_card().await?;
        let object = if from.is_of(&own.domain) {
            self.object(&self.house, &path, &host(own)?).await?
        } else if let Some(house) = house {
            let card = DomainCard::verify(well_known(house).await?, &from.domain(), None)?;
            self.object(house, &path, &host(&card)?).await?
        } else {
            self.object_of_stranger(&from.domain(), &path).await?
        };
        Ok(attachment.open(from, &object)?)
    }

    /// Takes a file of this agent's away before its time.
    pub async fn remove_file(&self, blob: &str) -> Result<Value, ClientError> {
        self.signed(reqwest::Method::DELETE, &format!("/blob/{blob}"), &[], None, false).await
    }

    /// Seals the files of a letter, hands them to the house, and says of them what may be said where.
    pub(super) async fn enclose(
        &self,
        message: &Message,
        sealed: bool,
        content: &mut Value,
        more: &mut Map<String, Value>,
    ) -> Result<(), ClientError> {
        if message.files.is_empty() {
            return Ok(());
        }
        let total: u64 = message.files.iter().map(|file| file.bytes.len() as u64).sum();
        if message.files.len() > limits::ATTACHMENTS_MAX || total > limits::ATTACHMENTS_BYTES_MAX {
            let (files, bytes) = (limits::ATTACHMENTS_MAX, limits::ATTACHMENTS_BYTES_MAX);
            return Err(Refusal::new(
                Rule::BadField,
                format!("a letter takes {files} files of {bytes} bytes together"),
            )
            .into());
        }
        let to = self.may_fetch(&message.to).await?;
        let (mut told, mut outer) = (Vec::new(), Vec::new());
        for file in &message.files {
            let attachment = self.hand_in(file, &to).await?;
            told.push(attachment.to_json());
            outer.push(attachment.outer());
        }
        if sealed {
            content["attachments"] = told.into();
            more.insert("attachments".into(), outer.into());
        } else {
            more.insert("attachments".into(), told.into());
        }
        Ok(())
    }

    /// The recipients, and of a group its members: only who is named may fetch.
    async fn may_fetch(&self, to: &[Address]) -> Result<Vec<Address>, ClientError> {
        let mut all: Vec<Address> = to.to_vec();
        for group in to.iter().filter(|to| self.is_group(to)) {
            let answer = self.group(group).await?;
            let listed = answer.pointer("/group/members").and_then(Value::as_array).into_iter().flatten();
            all.extend(listed.filter_map(Value::as_str).filter_map(|text| Address::parse(text).ok()));
        }
        all.sort();
        all.dedup();
        Ok(all)
    }

    async fn hand_in(&self, file: &File, to: &[Address]) -> Result<Attachment, ClientError> {
        let mut chance = FileChance { key: Zeroizing::new([0; 32]), iv: [0; 12] };
        let drawn = getrandom::fill(chance.key.as_mut_slice()).and_then(|()| getrandom::fill(&mut chance.iv));
        drawn.map_err(|e| ClientError::Setup(format!("the system's random generator does not answer: {e}")))?;
        let blob = uuid::Uuid::new_v4().to_string();
        let (attachment, object) =
            Attachment::seal(&blob, self.address(), &file.name, &file.media, &file.bytes, &chance)?;
        let path = format!("/blob/{blob}");
        let host = host(self.domain_card().await?)?;
        let authorize = || Ok(Some(self.token("PUT", &path, &host)));
        let to: Vec<&str> = to.iter().map(Address::as_str).collect();
        let query = [("to", to.join(","))];
        let mut call = self.call(reqwest::Method::PUT, &path, None, &authorize, true);
        call.query = &query;
        call.timeout_ms = limits::BLOB_TRANSFER_MS;
        self.house.put(call, object.into()).await?;
        Ok(attachment)
    }

    async fn object(&self, house: &HouseClient, path: &str, host: &str) -> Result<Vec<u8>, ClientError> {
        let authorize = || Ok(Some(self.token("GET", path, host)));
        let mut call: Call<'_> = self.call(reqwest::Method::GET, path, None, &authorize, true);
        call.timeout_ms = limits::BLOB_TRANSFER_MS;
        house.bytes(call).await
    }

    /// From a house that only a letter names: over HTTPS, and at no address inside a network of ours.
    async fn object_of_stranger(&self, domain: &Domain, path: &str) -> Result<Vec<u8>, ClientError> {
        let lost = |why: String| ClientError::Unreachable { url: format!("https://{domain}"), why };
        let tls = tls::client_config(&self.roots).map_err(ClientError::Setup)?;
        let peers = Peers::new(&tls, AddressRule::default()).map_err(ClientError::Setup)?;
        let first = Base::judged(&format!("https://{domain}")).map_err(|fault| lost(fault.0))?;
        let shown = peers.get(&first, "/.well-known/nyx5.json", None, limits::CARD_BYTES_MAX).await;
        let shown = shown.map_err(|fault| lost(fault.0))?;
        let doc = crate::wire::json::parse_object(&shown.body)?;
        let card = DomainCard::verify(doc, domain, None)?;
        let base = Base::judged(&card.estafeta).map_err(|fault| lost(fault.0))?;
        let token = ("authorization", self.token("GET", path, &host(&card)?));
        let most = usize::try_from(limits::ATTACHMENT_BYTES_MAX).unwrap_or(usize::MAX);
        let answer = peers.fetch(&base, path, Some(token), most, limits::BLOB_TRANSFER_MS).await;
        let answer = answer.map_err(|fault| lost(fault.0))?;
        if answer.status == 200 {
            return Ok(answer.body.into());
        }
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let reason = body.get("reason").and_then(Value::as_str).unwrap_or("no reason given").to_owned();
        Err(ClientError::Refused { status: answer.status, reason, rule: None, retry_after: None, body })
    }
}

fn host(card: &DomainCard) -> Result<String, ClientError> {
    let no_host = || ClientError::BadAnswer {
        url: card.estafeta.clone(),
        why: "the estafeta URL of the domain card has no host".into(),
    };
    host_of(&card.estafeta).ok_or_else(no_host)
}
