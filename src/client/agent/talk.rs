//! Conversations and groups, as an agent uses them.

use super::{AgentClient, ClientError, HouseClient, bearer, public};
use crate::limits;
use crate::mail::talk::{self, PROJECT_URN, SUMMARY_URN};
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use crate::wire::address::Address;
use crate::wire::seal::SealPublic;
use serde_json::{Map, Value, json};

/// What a sender says of a letter in clear, beside what the letter protects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    /// Under which work of the reader it belongs.
    pub project: Option<String>,
    pub role: Option<String>,
    /// One line about it.
    pub summary: Option<String>,
}

/// Which part of a history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    pub project: Option<String>,
    pub limit: Option<usize>,
    /// `next` of the page before this one.
    pub before: Option<String>,
}

/// What to change in a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupChange {
    pub add: Vec<Address>,
    pub remove: Vec<Address>,
    /// All the admins from then on.
    pub admins: Option<Vec<Address>>,
}

impl Labels {
    /// The extensions that carry the labels, as every house will read them. A label of which nothing would be left is
    /// refused: to label and not to travel is worse than not to label.
    pub fn extensions(&self) -> Result<Map<String, Value>, Refusal> {
        let refused = |what: &str| Refusal::new(Rule::BadField, format!("the {what} has nothing that can be read"));
        let mut extensions = Map::new();
        let mut work = Map::new();
        if let Some(project) = &self.project {
            let name = talk::project_name(project).ok_or_else(|| refused("project"))?;
            work.insert("project".into(), name.into());
        }
        if let Some(role) = &self.role {
            let said = json!({"extensions": {PROJECT_URN: {"role": role}}});
            work.insert("role".into(), talk::role_of(&said).ok_or_else(|| refused("role"))?.into());
        }
        if !work.is_empty() {
            extensions.insert(PROJECT_URN.into(), Value::Object(work));
        }
        if let Some(summary) = &self.summary {
            let line = talk::summary(summary).ok_or_else(|| refused("summary"))?;
            extensions.insert(SUMMARY_URN.into(), json!({"text": line}));
        }
        Ok(extensions)
    }
}

impl Page {
    fn query(&self) -> Vec<(&'static str, String)> {
        let mut query = Vec::new();
        query.extend(self.project.clone().map(|project| ("project", project)));
        query.extend(self.limit.map(|limit| ("limit", limit.to_string())));
        query.extend(self.before.clone().map(|before| ("before", before)));
        query
    }
}

impl AgentClient {
    /// Whom the agent writes with, newest first: `{conversations, next?}`.
    pub async fn conversations(&self, page: &Page) -> Result<Value, ClientError> {
        let path = format!("/conversations/{}", self.local());
        self.signed(reqwest::Method::GET, &path, &page.query(), None, true).await
    }

    /// The letters of both directions with one contact, oldest first: `{with, messages, next?}`. A message opens as a
    /// letter of the mailbox does.
    pub async fn history(&self, with: &str, page: &Page) -> Result<Value, ClientError> {
        let path = format!("/conversations/{}", self.local());
        let mut query = page.query();
        query.push(("with", with.to_owned()));
        self.signed(reqwest::Method::GET, &path, &query, None, true).await
    }

    /// The thread of a letter exchanged with a contact, which an answer to it belongs to: a house cannot fill a field that
    /// its sender signs. Nothing where the letter is not among the newest of that conversation.
    pub async fn thread_of(&self, id: &str, with: &Address) -> Result<Option<String>, ClientError> {
        let page = Page { limit: Some(limits::CONVERSATION_PAGE_MAX), ..Page::default() };
        let answer = self.history(with.as_str(), &page).await?;
        let messages = answer.get("messages").and_then(Value::as_array).into_iter().flatten();
        let original = messages.filter_map(|message| message.get("envelope")).find(|envelope| envelope["id"] == id);
        Ok(original.map(|envelope| envelope["thread"].as_str().unwrap_or(id).to_owned()))
    }

    /// Makes the group `g.<name>` of the agent's house: `{address, group}`.
    pub async fn create_group(&self, name: &str, members: &[Address], admins_post: bool) -> Result<Value, ClientError> {
        let post = if admins_post { "admins" } else { "members" };
        let body = json!({"name": name, "members": members, "post": post});
        self.signed(reqwest::Method::POST, "/groups", &[], Some(&body), false).await
    }

    /// A group of which the agent is a member, as it is now: `{address, group}`. Never from memory: who has just come in
    /// must be able to open what is written.
    pub async fn group(&self, group: &Address) -> Result<Value, ClientError> {
        let path = format!("/groups/{}/members", group.local());
        self.signed(reqwest::Method::GET, &path, &[], None, true).await
    }

    pub async fn change_group(&self, group: &Address, change: &GroupChange) -> Result<Value, ClientError> {
        let path = format!("/groups/{}/members", group.local());
        let mut body = json!({"add": change.add, "remove": change.remove});
        if let Some(admins) = &change.admins {
            body["admins"] = json!(admins);
        }
        self.signed(reqwest::Method::POST, &path, &[], Some(&body), true).await
    }

    /// A card and, beside it, when its agent was last seen, as the agent's own house resolved it.
    pub async fn resolve(&self, address: &Address) -> Result<Value, ClientError> {
        self.signed(reqwest::Method::GET, &format!("/resolve/{address}"), &[], None, true).await
    }

    /// The hour in which an agent last showed itself, if it lets that be known.
    pub async fn last_seen(&self, address: &Address) -> Result<Option<Timestamp>, ClientError> {
        let seen = if address.is_of(&self.address().domain()) {
            let path = format!("/agents/{}/presence", address.local());
            self.signed(reqwest::Method::GET, &path, &[], None, true).await?
        } else {
            self.resolve(address).await?.get("presence").cloned().unwrap_or_default()
        };
        Ok(seen.get("last_seen").and_then(Value::as_str).and_then(Timestamp::parse))
    }

    /// Those who can open what is sealed for a recipient, and those who have no key. Of a group, its members; one who
    /// cannot be seen gets no copy and needs no key.
    pub(super) async fn readers_in(
        &self,
        group: &Address,
    ) -> Result<(Vec<(Address, SealPublic)>, Vec<Address>), ClientError> {
        let answer = self.group(group).await?;
        let listed = answer.pointer("/group/members").and_then(Value::as_array).into_iter().flatten();
        let members = listed.filter_map(Value::as_str).filter_map(|text| Address::parse(text).ok());
        let (mut readers, mut closed) = (Vec::new(), Vec::new());
        for member in members.take(limits::GROUP_MEMBERS_MAX).filter(|member| member != self.address()) {
            match self.card(&member).await {
                Ok(card) => match card.enc {
                    Some(enc) => readers.push((member, enc)),
                    None => closed.push(member),
                },
                Err(ClientError::Refused { status: 404, .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok((readers, closed))
    }

    /// Whether an address is a group of the agent's own house.
    pub(super) fn is_group(&self, address: &Address) -> bool {
        address.local().starts_with(talk::GROUP_PREFIX) && address.is_of(&self.address().domain())
    }
}

/// What happened in a house, with the operator's authority: `{conteo, eventos}`.
pub async fn events(house: &HouseClient, admin_token: &str, query: &[(&str, String)]) -> Result<Value, ClientError> {
    let bearer = bearer(house, admin_token)?;
    let authorize = || Ok(Some(bearer.clone()));
    let mut call = public("/eventos", query);
    call.authorize = &authorize;
    house.json(call).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_travel_as_houses_read_them_or_not_at_all() {
        let labels = |project: &str, role: &str, summary: &str| {
            let given = |text: &str| Some(text.to_owned()).filter(|text| text != "-");
            Labels { project: given(project), role: given(role), summary: given(summary) }.extensions()
        };
        let whole = labels("Nyx 5\u{200b}", " seller ", "one\nline").expect("labels");
        assert_eq!(whole[PROJECT_URN], json!({"project": "nyx 5", "role": "seller"}));
        assert_eq!(whole[SUMMARY_URN], json!({"text": "one line"}));
        assert_eq!(labels("-", "-", "-").map(|map| map.len()), Ok(0));
        for (project, role, summary) in
            [("__proto__", "-", "-"), ("\u{200b}", "-", "-"), ("-", " ", "-"), ("-", "-", "\n")]
        {
            assert!(labels(project, role, summary).is_err(), "{project:?} {role:?} {summary:?}");
        }
    }
}
