//! A strict reader of RFC 8259 that keeps what a judge needs: repeated keys, the text of numbers, and strings as UTF-16
//! code units with escapes of lone surrogates (V32).
//!
//! A document is one flat list of nodes, so neither reading, walking nor dropping it recurses. It accepts exactly what
//! `JSON.parse` of ECMAScript accepts, up to the depth that the caller allows. There is no writer of floating numbers
//! here, and no conversion that could lose one.

use crate::limits;

/// A whole JSON text.
#[derive(Clone, PartialEq, Eq)]
pub struct Document {
    nodes: Vec<Node>,
    units: Vec<u16>,
    pub(super) digits: String,
}

/// One value inside a document.
#[derive(Clone, Copy)]
pub struct Value<'a> {
    pub(super) document: &'a Document,
    pub(super) at: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind<'a> {
    Null,
    Bool(bool),
    /// The number as it was written.
    Number(&'a str),
    /// UTF-16 code units.
    Text(&'a [u16]),
    Array,
    Object,
}

/// Why a text is not a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `at` is a byte offset.
    NotJson { at: usize, reason: &'static str },
    /// Nested more deeply than allowed; nothing is said about what follows.
    TooDeep { at: usize, most: usize },
}

/// A key that stands more than once in one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeated {
    pub key: String,
    /// Byte offset of the second appearance.
    pub at: usize,
}

impl Repeated {
    /// Where the second appearance stands in `text`, which it was read from.
    pub fn span(&self, text: &str) -> std::ops::Range<usize> {
        self.at..self.at + quoted(text, self.at) as usize
    }
}

impl Document {
    /// Reads a text from the web, nested at most [`limits::PROBE_JSON_DEPTH_MAX`] deep.
    pub fn read(text: &str) -> Result<Document, Fault> {
        Document::read_within(text, limits::PROBE_JSON_DEPTH_MAX)
    }

    pub fn read_within(text: &str, depth: usize) -> Result<Document, Fault> {
        if u32::try_from(text.len()).is_err() {
            return Err(Fault::NotJson { at: 0, reason: "longer than any reader holds" });
        }
        let document = Document { nodes: Vec::new(), units: Vec::new(), digits: String::new() };
        Reader { text: text.as_bytes(), source: text, at: 0, depth, open: Vec::new(), document }.read()
    }

    /// An empty list.
    pub fn list() -> Document {
        Document { nodes: vec![Node::Array { end: 1, at: 0, stop: 0 }], units: Vec::new(), digits: String::new() }
    }

    /// The same value as `value`; numbers as `serde_json` writes them.
    pub fn from_value(value: &serde_json::Value) -> Result<Document, Fault> {
        Document::read(&value.to_string())
    }

    pub fn root(&self) -> Value<'_> {
        Value { document: self, at: 0 }
    }

    pub(super) fn node(&self, at: usize) -> Node {
        self.nodes.get(at).copied().unwrap_or(Node::Null { at: 0 })
    }

    pub(super) fn text(&self, start: u32, end: u32) -> &[u16] {
        self.units.get(start as usize..end as usize).unwrap_or_default()
    }

    /// The node after the value at `at`.
    pub(super) fn after(&self, at: usize) -> usize {
        match self.node(at) {
            Node::Array { end, .. } | Node::Object { end, .. } => end as usize,
            _ => at + 1,
        }
    }
}

impl std::fmt::Debug for Document {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.root().to_text())
    }
}

impl<'a> Value<'a> {
    pub fn kind(&self) -> Kind<'a> {
        match self.document.node(self.at) {
            Node::Null { .. } | Node::Key { .. } => Kind::Null,
            Node::Bool { is, .. } => Kind::Bool(is),
            Node::Number { start, end, .. } => {
                Kind::Number(self.document.digits.get(start as usize..end as usize).unwrap_or_default())
            }
            Node::Text { start, end, .. } => Kind::Text(self.document.text(start, end)),
            Node::Array { .. } => Kind::Array,
            Node::Object { .. } => Kind::Object,
        }
    }

    pub fn is_null(&self) -> bool {
        self.kind() == Kind::Null
    }

    /// Where this value stands in `text`, which it was read from; nowhere in a document that was not read from it.
    pub fn span(&self, text: &str) -> std::ops::Range<usize> {
        let (at, stop) = match self.document.node(self.at) {
            Node::Array { at, stop, .. } | Node::Object { at, stop, .. } => return at as usize..stop as usize,
            Node::Null { at } => (at, at + 4),
            Node::Bool { is, at } => (at, at + if is { 4 } else { 5 }),
            Node::Number { start, end, at } => (at, at + (end - start)),
            Node::Text { at, .. } | Node::Key { at, .. } => (at, at + quoted(text, at as usize)),
        };
        at as usize..stop as usize
    }

    /// The elements of an array; nothing for any other value.
    pub fn items(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let document = self.document;
        let (mut at, end) = match document.node(self.at) {
            Node::Array { end, .. } => (self.at + 1, end as usize),
            _ => (0, 0),
        };
        std::iter::from_fn(move || {
            let item = (at < end).then_some(Value { document, at })?;
            at = document.after(at);
            Some(item)
        })
    }

    /// The members of an object in order, repeated keys included; nothing for any other value.
    pub fn members(&self) -> impl Iterator<Item = (&'a [u16], Value<'a>)> + use<'a> {
        let document = self.document;
        let (mut at, end) = match document.node(self.at) {
            Node::Object { end, .. } => (self.at + 1, end as usize),
            _ => (0, 0),
        };
        std::iter::from_fn(move || {
            let key = match document.node(at) {
                Node::Key { start, end: stop, .. } if at < end => document.text(start, stop),
                _ => return None,
            };
            let value = Value { document, at: at + 1 };
            at = document.after(at + 1);
            Some((key, value))
        })
    }

    /// This value as a document of its own.
    pub fn to_document(&self) -> Document {
        let end = self.document.after(self.at);
        let mut copy = Document { nodes: Vec::new(), units: Vec::new(), digits: String::new() };
        for at in self.at..end {
            let node = match self.document.node(at) {
                Node::Number { start, end, at } => {
                    let from = copy.digits.len() as u32;
                    copy.digits.push_str(self.document.digits.get(start as usize..end as usize).unwrap_or_default());
                    Node::Number { start: from, end: copy.digits.len() as u32, at }
                }
                Node::Text { start, end, at } => {
                    let from = copy.units.len() as u32;
                    copy.units.extend_from_slice(self.document.text(start, end));
                    Node::Text { start: from, end: copy.units.len() as u32, at }
                }
                Node::Key { start, end, at } => {
                    let from = copy.units.len() as u32;
                    copy.units.extend_from_slice(self.document.text(start, end));
                    Node::Key { start: from, end: copy.units.len() as u32, at }
                }
                Node::Array { end, at, stop } => Node::Array { end: end - self.at as u32, at, stop },
                Node::Object { end, at, stop } => Node::Object { end: end - self.at as u32, at, stop },
                plain => plain,
            };
            copy.nodes.push(node);
        }
        copy
    }

    /// Every key that is repeated in an object of this value, in order of the text.
    pub fn repeated_keys(&self) -> Vec<Repeated> {
        let document = self.document;
        let mut found = Vec::new();
        for at in self.at..document.after(self.at) {
            let Node::Object { end, .. } = document.node(at) else { continue };
            let mut keys: Vec<(&[u16], u32)> = Vec::new();
            let mut member = at + 1;
            while member < end as usize {
                let Node::Key { start, end: stop, at } = document.node(member) else { break };
                keys.push((document.text(start, stop), at));
                member = document.after(member + 1);
            }
            keys.sort_unstable();
            let mut last_reported = None;
            for pair in keys.windows(2) {
                if let [(first, _), (second, at)] = pair
                    && first == second
                    && last_reported != Some(*first)
                {
                    last_reported = Some(*first);
                    found.push(Repeated { key: String::from_utf16_lossy(second), at: *at as usize });
                }
            }
        }
        found.sort_by_key(|repeated| repeated.at);
        found
    }

    /// Whether some object of this value repeats a key.
    pub fn repeats_a_key(&self) -> Option<String> {
        self.repeated_keys().into_iter().next().map(|repeated| repeated.key)
    }

    /// The numbers of this value, as written.
    pub fn numbers(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let document = self.document;
        (self.at..document.after(self.at)).filter_map(move |at| match (Value { document, at }).kind() {
            Kind::Number(digits) => Some(digits),
            _ => None,
        })
    }
}

impl std::fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.to_text())
    }
}

impl Kind<'_> {
    /// The type in words, for reasons.
    pub const fn type_name(&self) -> &'static str {
        match self {
            Kind::Null => "null",
            Kind::Bool(_) => "a boolean",
            Kind::Number(_) => "a number",
            Kind::Text(_) => "a string",
            Kind::Array => "an array",
            Kind::Object => "an object",
        }
    }
}

impl Fault {
    pub fn at(&self) -> usize {
        match self {
            Fault::NotJson { at, .. } | Fault::TooDeep { at, .. } => *at,
        }
    }
}

impl Fault {
    /// Without the place.
    pub fn reason(&self) -> String {
        match self {
            Fault::NotJson { reason, .. } => (*reason).to_owned(),
            Fault::TooDeep { most, .. } => format!("nested more than {most} deep"),
        }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at byte {}", self.reason(), self.at())
    }
}

/// Containers know where they end; a member is a key node followed by its value. `at` is the byte where it begins in the
/// text, and `stop` the byte after a container.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    Null { at: u32 },
    Bool { is: bool, at: u32 },
    Number { start: u32, end: u32, at: u32 },
    Text { start: u32, end: u32, at: u32 },
    Key { start: u32, end: u32, at: u32 },
    Array { end: u32, at: u32, stop: u32 },
    Object { end: u32, at: u32, stop: u32 },
}

/// The bytes of the string at this place, quotes included.
fn quoted(text: &str, at: usize) -> u32 {
    let mut escaped = true;
    let bytes = text.as_bytes().get(at..).unwrap_or_default();
    let last = bytes.iter().position(|byte| {
        let closes = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        closes
    });
    last.map_or(0, |last| last as u32 + 1)
}

struct Reader<'t> {
    text: &'t [u8],
    source: &'t str,
    at: usize,
    depth: usize,
    /// The containers that are open, outermost first.
    open: Vec<usize>,
    document: Document,
}

impl Reader<'_> {
    fn read(mut self) -> Result<Document, Fault> {
        loop {
            self.space();
            let opened = self.value()?;
            if opened && !self.closes_at_once() {
                self.key_if_object()?;
                continue;
            }
            if !self.next_after_value()? {
                return Ok(self.document);
            }
        }
    }

    /// Reads a scalar, or opens a container and says so.
    fn value(&mut self) -> Result<bool, Fault> {
        let at = self.at as u32;
        match self.peek() {
            Some(b'{') => self.opens(Node::Object { end: 0, at, stop: 0 }),
            Some(b'[') => self.opens(Node::Array { end: 0, at, stop: 0 }),
            Some(b'"') => {
                let (start, end) = self.string()?;
                self.push(Node::Text { start, end, at })
            }
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal("true", Node::Bool { is: true, at }),
            Some(b'f') => self.literal("false", Node::Bool { is: false, at }),
            Some(b'n') => self.literal("null", Node::Null { at }),
            Some(_) => Err(self.fault("a value was expected")),
            None => Err(self.fault("the text ends where a value was expected")),
        }
    }

    fn opens(&mut self, node: Node) -> Result<bool, Fault> {
        if self.open.len() >= self.depth {
            return Err(Fault::TooDeep { at: self.at, most: self.depth });
        }
        self.at += 1;
        self.open.push(self.document.nodes.len());
        self.document.nodes.push(node);
        Ok(true)
    }

    fn push(&mut self, node: Node) -> Result<bool, Fault> {
        self.document.nodes.push(node);
        Ok(false)
    }

    /// Closes the container that was just opened if it is empty.
    fn closes_at_once(&mut self) -> bool {
        self.space();
        let closes = match self.innermost() {
            Some(Node::Object { .. }) => self.peek() == Some(b'}'),
            _ => self.peek() == Some(b']'),
        };
        if closes {
            self.close();
        }
        closes
    }

    /// After a complete value: goes on to the next one, or says that the text is at its end.
    fn next_after_value(&mut self) -> Result<bool, Fault> {
        loop {
            self.space();
            let Some(container) = self.innermost() else {
                return if self.at == self.text.len() { Ok(false) } else { Err(self.fault("text after the value")) };
            };
            let object = matches!(container, Node::Object { .. });
            match self.peek() {
                Some(b',') => {
                    self.at += 1;
                    self.key_if_object()?;
                    return Ok(true);
                }
                Some(b'}') if object => self.close(),
                Some(b']') if !object => self.close(),
                Some(_) if object => return Err(self.fault("a comma or a closing brace was expected")),
                Some(_) => return Err(self.fault("a comma or a closing bracket was expected")),
                None => return Err(self.fault("the text ends inside a value")),
            }
        }
    }

    fn key_if_object(&mut self) -> Result<(), Fault> {
        if !matches!(self.innermost(), Some(Node::Object { .. })) {
            return Ok(());
        }
        self.space();
        if self.peek() != Some(b'"') {
            return Err(self.fault("a key was expected"));
        }
        let at = self.at as u32;
        let (start, end) = self.string()?;
        self.document.nodes.push(Node::Key { start, end, at });
        self.space();
        if self.peek() != Some(b':') {
            return Err(self.fault("a colon was expected"));
        }
        self.at += 1;
        Ok(())
    }

    fn innermost(&self) -> Option<Node> {
        self.open.last().map(|at| self.document.node(*at))
    }

    fn close(&mut self) {
        self.at += 1;
        let (after, here) = (self.document.nodes.len() as u32, self.at as u32);
        if let Some(at) = self.open.pop()
            && let Some(Node::Array { end, stop, .. } | Node::Object { end, stop, .. }) =
                self.document.nodes.get_mut(at)
        {
            (*end, *stop) = (after, here);
        }
    }

    fn literal(&mut self, word: &str, node: Node) -> Result<bool, Fault> {
        if !self.text.get(self.at..).is_some_and(|rest| rest.starts_with(word.as_bytes())) {
            return Err(self.fault("a value was expected"));
        }
        self.at += word.len();
        self.push(node)
    }

    fn number(&mut self) -> Result<bool, Fault> {
        let from = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        let start = self.document.digits.len() as u32;
        self.document.digits.push_str(self.source.get(from..self.at).unwrap_or_default());
        let end = self.document.digits.len() as u32;
        self.push(Node::Number { start, end, at: from as u32 })
    }

    fn digits(&mut self) -> Result<(), Fault> {
        let from = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if from == self.at { Err(self.fault("a digit was expected")) } else { Ok(()) }
    }

    /// Reads a string from its opening quote; the range of its code units.
    fn string(&mut self) -> Result<(u32, u32), Fault> {
        let start = self.document.units.len() as u32;
        self.at += 1;
        loop {
            let from = self.at;
            while matches!(self.peek(), Some(b) if b >= 0x20 && b != b'"' && b != b'\\') {
                self.at += 1;
            }
            self.document.units.extend(self.source.get(from..self.at).unwrap_or_default().encode_utf16());
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok((start, self.document.units.len() as u32));
                }
                Some(b'\\') => {
                    self.at += 1;
                    let unit = self.escape()?;
                    self.document.units.push(unit);
                }
                Some(_) => return Err(self.fault("a control character inside a string")),
                None => return Err(self.fault("the text ends inside a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<u16, Fault> {
        let unit = match self.peek() {
            Some(b'"') => 0x22,
            Some(b'\\') => 0x5c,
            Some(b'/') => 0x2f,
            Some(b'b') => 0x08,
            Some(b'f') => 0x0c,
            Some(b'n') => 0x0a,
            Some(b'r') => 0x0d,
            Some(b't') => 0x09,
            Some(b'u') => {
                let mut unit = 0;
                for _ in 0..4 {
                    self.at += 1;
                    let digit = self.peek().and_then(|b| char::from(b).to_digit(16));
                    let Some(digit) = digit else { return Err(self.fault("four hex digits were expected")) };
                    unit = unit * 16 + digit as u16;
                }
                unit
            }
            _ => return Err(self.fault("an escape that does not exist")),
        };
        self.at += 1;
        Ok(unit)
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn fault(&self, reason: &'static str) -> Fault {
        Fault::NotJson { at: self.at, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        match Document::read(text) {
            Ok(document) => document.root().to_text(),
            Err(fault) => fault.to_string(),
        }
    }

    #[test]
    fn reads_what_rfc_8259_says_and_writes_it_back() {
        for (text, back) in [
            ("null", "null"),
            (" true\n", "true"),
            ("-0", "-0"),
            ("1E400", "1E400"),
            ("0.10e-5", "0.10e-5"),
            ("[]", "[]"),
            ("[ ]", "[]"),
            ("{ }", "{}"),
            ("[[],{},[{}]]", "[[],{},[{}]]"),
            ("{\"a\":1,\"a\":2}", "{\"a\":1,\"a\":2}"),
            ("{\"\":[1,\"x\",null,{\"b\":false}]}", "{\"\":[1,\"x\",null,{\"b\":false}]}"),
            (r#""\u00e9\ud83d\ude00\/\b\f\n\r\t""#, r#""é😀/\u0008\u000c\n\r\t""#),
            (r#""\ud800""#, r#""\ud800""#),
            (r#""\udc00\ud800""#, r#""\udc00\ud800""#),
            ("\"\u{2028}\u{7f}\"", r#""\u2028\u007f""#),
        ] {
            assert_eq!(read(text), back, "{text}");
        }
    }

    #[test]
    fn refuses_everything_else() {
        for text in [
            "",
            " ",
            "nul",
            "nulll",
            "True",
            "+1",
            "01",
            "-",
            "-01",
            "1.",
            ".5",
            "1e",
            "1e+",
            "0x1",
            "NaN",
            "Infinity",
            "1_0",
            "[",
            "]",
            "[1",
            "[1,",
            "[1,]",
            "[,1]",
            "[1 2]",
            "{",
            "}",
            "{,}",
            "{1:2}",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{\"a\" 1}",
            "{\"a\":1]",
            "[1}",
            "\"",
            "\"\\",
            "\"\\u12",
            "\"\\u12g4\"",
            "\"\\x41\"",
            "\"\\'\"",
            "'a'",
            "\"a\nb\"",
            "\"\u{0}\"",
            "1 1",
            "{} {}",
            "[] x",
            "\u{feff}1",
            "\u{a0}1",
            "//\n1",
            "[1]]",
            "tru",
            "undefined",
        ] {
            assert!(matches!(Document::read(text), Err(Fault::NotJson { .. })), "{text:?} gave {}", read(text));
        }
    }

    #[test]
    fn depth_has_a_bound_and_no_recursion() {
        let at = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(Document::read(&at(limits::PROBE_JSON_DEPTH_MAX)).is_ok());
        let over = limits::PROBE_JSON_DEPTH_MAX + 1;
        assert_eq!(
            Document::read(&at(over)),
            Err(Fault::TooDeep { at: limits::PROBE_JSON_DEPTH_MAX, most: limits::PROBE_JSON_DEPTH_MAX })
        );
        let deep = 1_000_000;
        let document = Document::read_within(&at(deep), deep).expect("deep");
        assert_eq!(document.root().to_document().root().to_text().len(), 2 * deep);
        let objects = format!("{}1{}", "{\"a\":".repeat(over), "}".repeat(over));
        assert!(matches!(Document::read(&objects), Err(Fault::TooDeep { .. })));
    }

    #[test]
    fn walks_members_in_order_with_repeats() {
        let document = Document::read(r#"{"a":{"x":1,"y":[2]},"b":[],"a":3,"c":{"k":1,"k":2,"k":3}}"#).expect("json");
        let members: Vec<String> = document
            .root()
            .members()
            .map(|(k, v)| format!("{}={}", String::from_utf16_lossy(k), v.to_text()))
            .collect();
        assert_eq!(members, ["a={\"x\":1,\"y\":[2]}", "b=[]", "a=3", "c={\"k\":1,\"k\":2,\"k\":3}"]);
        let repeated: Vec<(String, usize)> =
            document.root().repeated_keys().into_iter().map(|r| (r.key, r.at)).collect();
        assert_eq!(repeated, [("a".to_owned(), 28), ("k".to_owned(), 45)]);
        let (_, inner) = document.root().members().nth(3).expect("c");
        assert_eq!(inner.to_document(), Document::read(r#"{"k":1,"k":2,"k":3}"#).map(|d| shift(d, 38)).expect("json"));
    }

    /// Places count from the start of the text that was read.
    fn shift(mut document: Document, by: u32) -> Document {
        for node in &mut document.nodes {
            match node {
                Node::Array { at, stop, .. } | Node::Object { at, stop, .. } => (*at, *stop) = (*at + by, *stop + by),
                Node::Null { at } | Node::Bool { at, .. } | Node::Number { at, .. } => *at += by,
                Node::Text { at, .. } | Node::Key { at, .. } => *at += by,
            }
        }
        document
    }

    #[test]
    fn values_know_where_they_stand() {
        let text = r#" {"a\\\"": [1, -2.5e3 , true], "é": {"b": "x\\", "c": null}, "d": false} "#;
        let document = Document::read(text).expect("json");
        let mut found = Vec::new();
        let mut open = vec![document.root()];
        while let Some(value) = open.pop() {
            found.push(&text[value.span(text)]);
            open.extend(value.members().map(|(_, value)| value).chain(value.items()));
        }
        found.sort_unstable();
        let mut wanted = vec![text.trim(), "[1, -2.5e3 , true]", "1", "-2.5e3", "true"];
        wanted.extend([r#"{"b": "x\\", "c": null}"#, r#""x\\""#, "null", "false"]);
        wanted.sort_unstable();
        assert_eq!(found, wanted);
    }
}
