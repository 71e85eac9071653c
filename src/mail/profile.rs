//! What an agent says about itself: a closed vocabulary, cleaned and bounded, certified by the house and verified by
//! nobody.
//!
//! Texts for people are cleaned and cut, so that no hidden or reordering character disguises a name. An unknown key is
//! refused by name at every level: a catalogue is compared with quotes, so nothing in it may be ignored.

use super::cards::test_names;
use crate::limits;
use crate::probe::url::{Target, UrlPolicy};
use crate::record::House;
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use crate::wire::invisible::is_invisible;
use crate::wire::json::type_name;
use crate::wire::quote::ContractKind;
use serde_json::{Map, Value, json};

/// Reads a profile as its owner wrote it; the result is what the card carries.
pub fn read(house: &House, value: &Value, now: Timestamp) -> Result<Value, Refusal> {
    let object = object(value, "profile")?;
    let mut out = Map::new();
    for (key, value) in object.iter().filter(|(_, value)| !value.is_null()) {
        let at = format!("profile.{key}");
        let read = match key.as_str() {
            "display_name" => words(value, &at, limits::PROFILE_NAME_CHARS_MAX)?,
            "summary" => words(value, &at, limits::PROFILE_SUMMARY_CHARS_MAX)?,
            "description" => words(value, &at, limits::PROFILE_DESCRIPTION_CHARS_MAX)?,
            "languages" => Some(list(value, &at, limits::PROFILE_LANGUAGES_MAX, language)?),
            "tags" => Some(list(value, &at, limits::PROFILE_TAGS_MAX, tag)?),
            "links" => Some(list(value, &at, limits::PROFILE_LINKS_MAX, link)?),
            "owner" => Some(owner(value)?),
            "services" => Some(services(house, value)?),
            // Written by the house; what comes back with a profile that was read is replaced.
            "updated" => None,
            _ => return Err(unknown(&at)),
        };
        if let Some(read) = read {
            out.insert(key.clone(), read);
        }
    }
    out.insert("updated".into(), json!(now));
    Ok(Value::Object(out))
}

/// Whether a service of this profile is priced in dollars, which needs a wallet to be paid to.
pub fn asks_dollars(profile: &Value) -> bool {
    let services = profile.get("services").and_then(Value::as_array);
    services.into_iter().flatten().any(|service| service.pointer("/price/usd").is_some())
}

/// Hidden and reordering characters removed, controls to spaces, spaces collapsed, cut to `most` characters.
pub fn clean(text: &str, most: usize) -> String {
    let mut out = String::new();
    let mut taken = 0;
    let mut space = false;
    for c in text.chars().filter(|c| !is_invisible(*c)) {
        if c.is_whitespace() || c.is_control() {
            space = taken > 0;
            continue;
        }
        if taken + usize::from(space) >= most {
            break;
        }
        if space {
            out.push(' ');
            taken += 1;
            space = false;
        }
        out.push(c);
        taken += 1;
    }
    out
}

fn services(house: &House, value: &Value) -> Result<Value, Refusal> {
    let listed = array(value, "profile.services", limits::PROFILE_SERVICES_MAX)?;
    let mut out: Vec<Value> = Vec::with_capacity(listed.len());
    for (i, entry) in listed.iter().enumerate() {
        let service = service(house, entry, &format!("profile.services[{i}]"))?;
        if out.iter().any(|other| other.get("id") == service.get("id")) {
            return Err(bad(format!("profile.services[{i}].id stands twice")));
        }
        out.push(service);
    }
    Ok(Value::Array(out))
}

fn service(house: &House, value: &Value, at: &str) -> Result<Value, Refusal> {
    let fields = object(value, at)?;
    closed(fields, at, &["id", "name", "summary", "price", "unit", "contract", "acceptance"])?;
    let field = |name: &str| fields.get(name).filter(|value| !value.is_null());
    let missing = |name: &str| bad(format!("{at}.{name} is missing"));
    let id = field("id").and_then(Value::as_str).filter(|id| slug(id, limits::SERVICE_ID_CHARS_MAX));
    let id = id.ok_or_else(|| bad(format!("{at}.id must be 1 to {} of a-z 0-9 -", limits::SERVICE_ID_CHARS_MAX)))?;
    let name_at = format!("{at}.name");
    let name = words(field("name").ok_or_else(|| missing("name"))?, &name_at, limits::PROFILE_NAME_CHARS_MAX)?;
    let unit = one_of(field("unit"), &format!("{at}.unit"), &["job", "call", "hour"])?;
    let kinds = [ContractKind::Spot.as_str(), ContractKind::Escrow.as_str(), ContractKind::Metered.as_str()];
    let contract = one_of(field("contract"), &format!("{at}.contract"), &kinds)?;
    let price = price(field("price").ok_or_else(|| missing("price"))?, &format!("{at}.price"))?;
    let mut out = json!({
        "id": id, "name": name.ok_or_else(|| missing("name"))?, "price": price, "unit": unit, "contract": contract,
    });
    if let Some(value) = field("summary")
        && let Some(summary) = words(value, &format!("{at}.summary"), limits::PROFILE_SUMMARY_CHARS_MAX)?
    {
        out["summary"] = summary;
    }
    if let Some(value) = field("acceptance") {
        let at = format!("{at}.acceptance");
        let fields = object(value, &at)?;
        closed(fields, &at, &["kind", "template"])?;
        let tests = test_names(&house.settings.capabilities);
        let kind = one_of(fields.get("kind"), &format!("{at}.kind"), &tests)?;
        let template = fields.get("template").filter(|value| !value.is_null());
        let template = template.ok_or_else(|| bad(format!("{at}.template is missing")))?;
        let template = words(template, &format!("{at}.template"), limits::PROFILE_SUMMARY_CHARS_MAX)?;
        out["acceptance"] = json!({"kind": kind, "template": template.unwrap_or_else(|| json!(""))});
    }
    Ok(out)
}

fn price(value: &Value, at: &str) -> Result<Value, Refusal> {
    let fields = object(value, at)?;
    closed(fields, at, &["tokens", "usd"])?;
    let tokens = fields.get("tokens").and_then(Value::as_u64).filter(|n| (1..=limits::SAFE_INTEGER_MAX).contains(n));
    let tokens = tokens.ok_or_else(|| bad(format!("{at}.tokens must be a whole number above zero")))?;
    let mut out = json!({"tokens": tokens});
    if let Some(usd) = fields.get("usd").filter(|value| !value.is_null()) {
        let usd = usd.as_str().filter(|usd| decimal(usd));
        let usd = usd.ok_or_else(|| {
            bad(format!("{at}.usd must be a decimal text above zero with up to 6 decimals, such as \"1.50\""))
        })?;
        out["usd"] = usd.into();
    }
    Ok(out)
}

fn owner(value: &Value) -> Result<Value, Refusal> {
    let fields = object(value, "profile.owner")?;
    closed(fields, "profile.owner", &["kind", "name"])?;
    let kind = one_of(fields.get("kind"), "profile.owner.kind", &["person", "org"])?;
    let mut out = json!({"kind": kind});
    if let Some(name) = fields.get("name").filter(|value| !value.is_null())
        && let Some(name) = words(name, "profile.owner.name", limits::PROFILE_OWNER_CHARS_MAX)?
    {
        out["name"] = name;
    }
    Ok(out)
}

fn language(value: &Value) -> Result<(), &'static str> {
    let text = value.as_str().filter(|text| text.len() <= limits::PROFILE_LANGUAGE_CHARS_MAX).unwrap_or_default();
    let mut parts = text.split('-');
    let primary = parts.next().unwrap_or_default();
    let first = (2..=3).contains(&primary.len()) && primary.bytes().all(|b| b.is_ascii_lowercase());
    let rest = parts.all(|part| (2..=8).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_alphanumeric()));
    if first && rest { Ok(()) } else { Err("must be a language tag of up to 35 characters, such as es or pt-BR") }
}

fn tag(value: &Value) -> Result<(), &'static str> {
    let good = value.as_str().is_some_and(|text| slug(text, limits::PROFILE_TAG_CHARS_MAX));
    if good { Ok(()) } else { Err("must be 1 to 32 of a-z 0-9 -") }
}

fn link(value: &Value) -> Result<(), &'static str> {
    let text = value.as_str().filter(|text| text.len() <= limits::PROFILE_LINK_CHARS_MAX).unwrap_or_default();
    let plain = text.chars().all(|c| !is_invisible(c) && !c.is_control() && !c.is_whitespace());
    if plain && Target::parse(text, &UrlPolicy::default()).is_ok() {
        return Ok(());
    }
    Err("must be an https URL of a public host, without a user name, of up to 200 characters")
}

fn list(
    value: &Value,
    at: &str,
    most: usize,
    check: impl Fn(&Value) -> Result<(), &'static str>,
) -> Result<Value, Refusal> {
    for (i, entry) in array(value, at, most)?.iter().enumerate() {
        check(entry).map_err(|rule| bad(format!("{at}[{i}] {rule}")))?;
    }
    Ok(value.clone())
}

/// A text for people; `None` where nothing of it is left.
fn words(value: &Value, at: &str, most: usize) -> Result<Option<Value>, Refusal> {
    let text = value.as_str().ok_or_else(|| bad(format!("{at} must be a text, got {}", type_name(value))))?;
    let text = clean(text, most);
    Ok(Some(text).filter(|text| !text.is_empty()).map(Value::String))
}

fn one_of(value: Option<&Value>, at: &str, names: &[&str]) -> Result<Value, Refusal> {
    let name = value.and_then(Value::as_str).filter(|name| names.contains(name));
    name.map(Value::from).ok_or_else(|| bad(format!("{at} must be one of {}", names.join(", "))))
}

fn object<'a>(value: &'a Value, at: &str) -> Result<&'a Map<String, Value>, Refusal> {
    value.as_object().ok_or_else(|| bad(format!("{at} must be an object, got {}", type_name(value))))
}

fn array<'a>(value: &'a Value, at: &str, most: usize) -> Result<&'a Vec<Value>, Refusal> {
    let list = value.as_array().filter(|list| list.len() <= most);
    list.ok_or_else(|| bad(format!("{at} must be a list of at most {most}")))
}

fn closed(fields: &Map<String, Value>, at: &str, known: &[&str]) -> Result<(), Refusal> {
    match fields.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => Err(unknown(&format!("{at}.{key}"))),
        None => Ok(()),
    }
}

fn unknown(at: &str) -> Refusal {
    bad(format!("{} is not a field of a profile", crate::probe::text::plain(at, 120)))
}

fn slug(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

fn decimal(text: &str) -> bool {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str, most: usize| (1..=most).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    digits(whole, 12) && digits(part, 6) && text.bytes().any(|b| (b'1'..=b'9').contains(&b))
}

fn bad(reason: String) -> Refusal {
    Refusal::new(Rule::BadProfile, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mail::fixture::{START, World};

    fn read_one(value: &Value) -> Result<Value, Refusal> {
        read(&World::new().house, value, START)
    }

    fn service(more: Value) -> Value {
        let mut doc = json!({"id": "translate", "name": "Translation", "unit": "job", "contract": "escrow",
            "price": {"tokens": 300}});
        doc.as_object_mut().expect("object").extend(more.as_object().expect("object").clone());
        doc
    }

    #[test]
    fn texts_are_cleaned_and_cut_never_refused() {
        let read = read_one(&json!({
            "display_name": format!("  Mar\u{202e}ía\t\u{200b}\n de \u{0007} la  Mar {}", "x".repeat(200)),
            "summary": "\u{feff}\u{2066}", "description": "y".repeat(3_000), "updated": "1999-01-01T00:00:00Z",
        }))
        .expect("profile");
        let name = read["display_name"].as_str().expect("name");
        assert!(name.starts_with("María de la Mar x"), "{name}");
        assert_eq!(name.chars().count(), limits::PROFILE_NAME_CHARS_MAX);
        assert!(read.get("summary").is_none());
        assert_eq!(read["description"].as_str().map(str::len), Some(limits::PROFILE_DESCRIPTION_CHARS_MAX));
        assert_eq!(read["updated"], json!(START));
        // What was read once reads the same again.
        assert_eq!(read_one(&read).expect("again"), read);
    }

    #[test]
    fn cleaning_never_ends_in_a_space_and_never_exceeds_its_bound() {
        for (text, most, cleaned) in [
            ("a b", 1, "a"),
            ("a b", 2, "a"),
            ("a b", 3, "a b"),
            (" a ", 5, "a"),
            ("a  \u{200b} b", 9, "a b"),
            ("\u{200b}", 5, ""),
            ("é\u{0}é", 3, "é é"),
        ] {
            assert_eq!(clean(text, most), cleaned, "{text:?} {most}");
        }
    }

    #[test]
    fn lists_have_bounds_and_shapes() {
        let many = |n: usize, one: &str| json!(vec![one; n]);
        for (field, most, one) in [
            ("languages", limits::PROFILE_LANGUAGES_MAX, "es"),
            ("tags", limits::PROFILE_TAGS_MAX, "a-1"),
            ("links", limits::PROFILE_LINKS_MAX, "https://mar.example/x"),
        ] {
            assert!(read_one(&json!({field: many(most, one)})).is_ok(), "{field}");
            assert!(read_one(&json!({field: many(most + 1, one)})).is_err(), "{field}");
            for bad in [json!("es"), json!([3]), json!([null]), json!([""]), json!({})] {
                assert!(read_one(&json!({field: bad})).is_err(), "{field} {bad}");
            }
        }
        for good in ["es", "spa", "pt-BR", "zh-Hant-TW", "sr-Latn-RS-ekavsk-12345678"] {
            assert!(read_one(&json!({"languages": [good]})).is_ok(), "{good}");
        }
        for bad in ["ES", "e", "engl", "es-", "es-x", "es_CL", "es-123456789", &format!("es{}", "-abcdefgh".repeat(4))]
        {
            assert!(read_one(&json!({"languages": [bad]})).is_err(), "{bad}");
        }
        let longest = format!("https://mar.example/{}", "x".repeat(limits::PROFILE_LINK_CHARS_MAX - 20));
        assert_eq!(longest.len(), limits::PROFILE_LINK_CHARS_MAX);
        assert!(read_one(&json!({"links": [longest]})).is_ok());
        for bad in [
            format!("{longest}x"),
            "http://mar.example".into(),
            "https://mar.example@evil.example/".into(),
            "https://127.0.0.1/".into(),
            "javascript:alert(1)".into(),
            "https://mar.example/\u{202e}".into(),
        ] {
            assert!(read_one(&json!({"links": [bad]})).is_err(), "{bad}");
        }
        assert!(read_one(&json!({"tags": ["x".repeat(limits::PROFILE_TAG_CHARS_MAX)]})).is_ok());
        assert!(read_one(&json!({"tags": ["x".repeat(limits::PROFILE_TAG_CHARS_MAX + 1)]})).is_err());
    }

    #[test]
    fn unknown_keys_are_named_at_every_level() {
        for (value, at) in [
            (json!({"nick": "x"}), "profile.nick"),
            (json!({"__proto__": {}}), "profile.__proto__"),
            (json!({"owner": {"kind": "org", "vat": "1"}}), "profile.owner.vat"),
            (json!({"services": [service(json!({"sla": "1h"}))]}), "profile.services[0].sla"),
            (json!({"services": [service(json!({"price": {"tokens": 1, "eur": "2"}}))]}), "services[0].price.eur"),
            (
                json!({"services": [service(json!({"acceptance": {"kind": "sha256", "template": "x", "url": "y"}}))]}),
                "acceptance.url",
            ),
        ] {
            let refusal = read_one(&value).expect_err(at);
            assert_eq!(refusal.rule, Rule::BadProfile);
            assert!(refusal.reason.contains(at), "{}", refusal.reason);
        }
    }

    #[test]
    fn a_service_states_what_a_quote_is_compared_with() {
        let whole = service(json!({"summary": "fast", "price": {"tokens": 300, "usd": "1.50"},
            "acceptance": {"kind": "http_status", "template": "the url answers 200"}}));
        let read = read_one(&json!({"services": [whole], "owner": {"kind": "org", "name": "Mar"}})).expect("profile");
        assert_eq!(read["services"][0], whole);
        assert!(asks_dollars(&read));
        assert!(!asks_dollars(&read_one(&json!({"services": [service(json!({}))]})).expect("profile")));
        for bad in [
            json!({"id": "Translate"}),
            json!({"id": "x".repeat(limits::SERVICE_ID_CHARS_MAX + 1)}),
            json!({"name": null}),
            json!({"name": "\u{200b}"}),
            json!({"unit": "day"}),
            json!({"contract": "bond"}),
            json!({"price": null}),
            json!({"price": {"tokens": 0}}),
            json!({"price": {"tokens": "300"}}),
            json!({"price": {"tokens": 1.5}}),
            json!({"price": {"tokens": 1, "usd": 2}}),
            json!({"price": {"tokens": 1, "usd": "0.00"}}),
            json!({"price": {"tokens": 1, "usd": "1.1234567"}}),
            json!({"price": {"tokens": 1, "usd": "1,5"}}),
            json!({"price": {"tokens": 1, "usd": "-1"}}),
            json!({"acceptance": {"kind": "exit_0", "template": "x"}}),
            json!({"acceptance": {"kind": "opinion", "template": "x"}}),
            json!({"acceptance": {"kind": "sha256"}}),
        ] {
            assert!(read_one(&json!({"services": [service(bad.clone())]})).is_err(), "{bad}");
        }
        assert!(read_one(&json!({"services": [service(json!({})), service(json!({}))]})).is_err());
        let numbered = |n: usize| -> Vec<Value> { (0..n).map(|i| service(json!({"id": format!("s{i}")}))).collect() };
        assert!(read_one(&json!({"services": numbered(limits::PROFILE_SERVICES_MAX)})).is_ok());
        assert!(read_one(&json!({"services": numbered(limits::PROFILE_SERVICES_MAX + 1)})).is_err());
    }
}
